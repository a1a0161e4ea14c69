//! Convolutions and linear layers: what they are, and the float ones with their epilogues.

use super::affine::Affine;
use super::fuse::{Region, Sink};
use super::pointwise::{Compiled, Form, compile, form, leaf};
use super::{Args, Deferred, Lower, Rules, State, constant, qconv};
use crate::error::Result;
use crate::kernel::{ConvKernel, ConvTransposeKernel, Kernel, Side};
use crate::memory::{Storage, Value, row_major};
use cleave_ir::NodeId;
use cleave_kernels::ConvShape;
use cleave_kernels::conv_f32::{ConvF32, ConvTransposeF32, EpilogueF32, TransposeShape};
use cleave_kernels::pointwise::{Input, Layout, Unary};
use cleave_numerics::DType;
use half::f16;
use std::sync::PoisonError;

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
    ("aten.conv1d.default", defer),
    ("aten.conv2d.default", defer),
    ("aten.conv_transpose1d.default", defer),
    ("aten.conv_transpose2d.input", defer),
    ("aten.convolution.default", defer),
    ("aten.linear.default", defer),
];

/// A convolution of constant weights, or a linear layer as one over rows.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    /// The call.
    pub(crate) id: NodeId,
    /// Its input, before zeros are put around it.
    pub(crate) x: NodeId,
    /// A constant, a dequantize of one, or halves that are widened.
    pub(crate) weight: NodeId,
    /// As the weight.
    pub(crate) bias: Option<NodeId>,
    /// Geometry, with all padding.
    pub(crate) shape: ConvShape,
    /// Output padding, of a transposed one.
    pub(crate) transposed: Option<[usize; 2]>,
    /// Whether rows are the pixels.
    pub(crate) linear: bool,
    /// Whether input and weight are levels.
    pub(crate) quantized: bool,
}

impl Convolution {
    /// The order in which its operands are stored.
    pub(crate) fn order(&self, rank: usize) -> Vec<usize> {
        if self.linear { row_major(rank) } else { Lower::spatial_order(rank) }
    }

    /// What it is called in kernel names.
    pub(crate) fn stem(&self, types: &str) -> String {
        let s = &self.shape;
        let op = match (self.linear, self.transposed.is_some(), s.is_depthwise() && s.groups > 1) {
            (true, ..) => "linear",
            (_, true, _) => "conv_transpose2d",
            (.., true) => "dwconv2d",
            _ => "conv2d",
        };
        format!("{op}_{types}")
    }
}

fn defer(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some(c) = describe(l, id) else { return Ok(false) };
    // What comes before cannot share a kernel with it: done now, chains stay shallow.
    l.settle(c.x)?;
    l.set(id, State::Deferred(Deferred::Convolution(Box::new(c))));
    Ok(true)
}

/// The convolution that a call is; none where no kernel takes it.
fn describe(l: &Lower<'_>, id: NodeId) -> Option<Convolution> {
    let a = Args::of(l.g, id);
    let (x, weight, bias) = (a.tensor("input")?, a.tensor("weight")?, a.tensor("bias"));
    let constant = |n: NodeId| matches!(l.state(n), State::Constant(_) | State::DequantConstant);
    let float = |n: NodeId| l.g.tensor_meta(n).is_ok_and(|m| m.dtype == DType::F32);
    if !constant(weight) || !bias.is_none_or(constant) || !float(x) || !float(weight) {
        return None;
    }
    let base = a.node.op()?.base();
    let (w, mut c) = (l.shape(weight).ok()?, None);
    if base == "linear" {
        let x_shape = l.shape(x).ok()?;
        let rows = x_shape.split_last()?.1.iter().product();
        let shape = ConvShape::linear(rows, w[1], w[0]);
        c = Some(Convolution { id, x, weight, bias, shape, transposed: None, linear: true, quantized: false });
    } else if w.len() == 3 || w.len() == 4 {
        c = spatial(l, id, &a, &w, x, weight, bias);
    }
    let mut c = c?;
    c.quantized = qconv::fits(l, &c);
    Some(c)
}

fn spatial(
    l: &Lower<'_>,
    id: NodeId,
    a: &Args<'_>,
    w: &[usize],
    x: NodeId,
    weight: NodeId,
    bias: Option<NodeId>,
) -> Option<Convolution> {
    let base = a.node.op()?.base();
    let transposed = base.starts_with("conv_transpose") || a.bool("transposed");
    let n = w.len() - 2;
    // One dimension is a row.
    let two = |v: Vec<usize>, fill: usize| if n == 1 { [fill, v[0]] } else { [v[0], v[1]] };
    let stride = two(a.sizes("stride", n)?, 1);
    let padding = two(a.sizes("padding", n)?, 0);
    let dilation = two(a.sizes("dilation", n)?, 1);
    let groups = usize::try_from(a.int("groups")?).ok()?;
    let (x, extra) = match l.state(x) {
        State::Deferred(Deferred::Pad(inner, pads)) => (*inner, *pads),
        _ => (x, [0; 4]),
    };
    let xs = l.shape(x).ok()?;
    if xs.len() != n + 2 || groups == 0 {
        return None;
    }
    let (h, kh) = if n == 1 { (1, 1) } else { (xs[2], w[2]) };
    let (c_in, c_out) = if transposed { (w[0], w[1] * groups) } else { (w[1] * groups, w[0]) };
    let pad = [padding[0] + extra[0], padding[1] + extra[1], padding[0] + extra[2], padding[1] + extra[3]];
    let shape = ConvShape { n: xs[0], h, w: xs[n + 1], c_in, c_out, kh, kw: w[n + 1], stride, pad, dilation, groups };
    shape.check().ok()?;
    let transposed = match transposed {
        true => Some(two(a.sizes("output_padding", n)?, 0)),
        false => None,
    };
    let c = Convolution { id, x, weight, bias, shape, transposed, linear: false, quantized: false };
    Some(c).filter(|c| c.transposed.is_none() || extra == [0; 4])
}

/// Weights in the kernels' order, `[c_out, kh, kw, c_in / groups]`, from torch's.
pub(crate) fn reorder<T: Copy>(c: &Convolution, w: &[T]) -> Vec<T> {
    let s = &c.shape;
    let (taps, each) = (s.kh * s.kw, s.c_in / s.groups);
    if taps == 1 && c.transposed.is_none() {
        return w.to_vec();
    }
    let mut out = Vec::with_capacity(w.len());
    let per_group = s.c_out / s.groups;
    for o in 0..s.c_out {
        for tap in 0..taps {
            for i in 0..each {
                out.push(match c.transposed {
                    None => w[(o * each + i) * taps + tap],
                    // torch's transposed weights: [c_in, c_out / groups, kh, kw].
                    Some(_) => w[((o / per_group * each + i) * per_group + o % per_group) * taps + tap],
                });
            }
        }
    }
    out
}

/// Bounds that a chain of clamps from a value puts on it.
pub(crate) fn clamps(l: &Lower<'_>, nodes: &[NodeId]) -> Option<(f32, f32)> {
    nodes.iter().try_fold((f32::NEG_INFINITY, f32::INFINITY), |(lo, hi), n| match form(l.g, *n)? {
        Form::Unary(Unary::Relu) => Some((lo.max(0.0), hi.max(0.0))),
        Form::Unary(Unary::Clamp { lo: a, hi: b }) => Some((lo.max(a).min(b), hi.max(a).min(b))),
        _ => None,
    })
}

/// How an epilogue addresses an operand of a result of this shape; none if it cannot.
pub(crate) fn layout(v: &Value, shape: &[usize], order: &[usize]) -> Option<Layout> {
    let seen = v.broadcast(shape)?;
    let (channel, pixels) = order.split_last()?;
    let repeated = |d: &usize| shape[*d] == 1 || seen.strides[*d] == 0;
    let contiguous = shape[*channel] == 1 || seen.strides[*channel] == 1;
    if pixels.iter().all(repeated) {
        return if repeated(channel) { Some(Layout::Scalar) } else { contiguous.then_some(Layout::PerChannel) };
    }
    if !contiguous {
        return None;
    }
    if pixels.len() > 1 && pixels[1..].iter().all(repeated) {
        let each = pixels[1..].iter().map(|d| shape[*d]).product();
        return Some(Layout::PerBatchChannel { pixels: each, stride: seen.strides[pixels[0]] });
    }
    if pixels.iter().any(|d| shape[*d] > 1 && seen.strides[*d] == 0) {
        return None;
    }
    seen.pixel_stride(order).map(|stride| Layout::Rows { stride, offset: 0 })
}

/// Emits a float convolution with the region behind it. None if no kernel does both.
pub(crate) fn emit(
    l: &mut Lower<'_>,
    c: &Convolution,
    root: NodeId,
    region: &Region,
    sink: &Sink,
) -> Result<Option<Value>> {
    let shape = l.shape(root)?;
    let order = c.order(shape.len());
    let affine = Affine::behind(l, c, region);
    let rest = affine.rest(region);
    let clamp = if matches!(sink, Sink::Float) { clamps(l, &rest.nodes) } else { None };
    let (epilogue, operands, sides) = match clamp {
        Some((lo, hi)) => (EpilogueF32::Clamp { lo, hi }, vec![], vec![]),
        None if c.transposed.is_some() => return Ok(None),
        None => {
            let Some(compiled) = compile(l, root, &rest, Some(affine.last), sink) else { return Ok(None) };
            let Some((operands, sides)) = operands(l, &compiled, &shape, &order)? else { return Ok(None) };
            (EpilogueF32::Program(compiled.program), operands, sides)
        }
    };
    let x = l.value(c.x)?;
    let x = l.dense(&x, &c.order(x.shape.len()));
    let nodes = sink.covers(&[&[c.id], region.nodes.as_slice()].concat());
    let types = if constant::halves(l, c.weight).is_some() { "f32f16" } else { "f32" };
    let name = l.fused_name(&c.stem(types), &rest.nodes);
    if c.transposed.is_some() {
        let kernel = Box::new(ConvTransposeKernel { body: transposed(l, c, &affine, epilogue)? });
        let out = l.alloc(&shape, Storage::F32, &order);
        l.step(kernel, &[&x], &out, &name, &nodes);
        return Ok(Some(out));
    }
    let body = packed(l, c, &affine, epilogue)?;
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let stride = out.pixel_stride(&order).ok_or_else(|| l.unsupported(c.id, "its output has no pixel stride"))?;
    let kernel: Box<dyn Kernel> = Box::new(ConvKernel { body, sides, stride, bytes: sink.storage() != Storage::F32 });
    let reads: Vec<&Value> = std::iter::once(&x).chain(&operands).collect();
    l.step(kernel, &reads, &out, &name, &nodes);
    Ok(Some(out))
}

/// The operands of an epilogue, but for the convolution's results, and how it addresses them; none if it cannot.
pub(crate) fn operands(
    l: &mut Lower<'_>,
    compiled: &Compiled,
    shape: &[usize],
    order: &[usize],
) -> Result<Option<(Vec<Value>, Vec<Side>)>> {
    let (mut values, mut sides) = (vec![], vec![]);
    for (n, input) in compiled.leaves.iter().zip(&compiled.program.inputs()[1..]) {
        let mut v = leaf(l, *n)?;
        if v.shape == shape && layout(&v, shape, order).is_none() {
            v = l.dense(&v, order);
        }
        let Some(layout) = layout(&v, shape, order) else { return Ok(None) };
        sides.push(Side { layout, bytes: *input != Input::F32 });
        values.push(v);
    }
    Ok(Some((values, sides)))
}

/// Weights in the kernels' order.
enum Weights {
    Floats(Vec<f32>),
    Halves(Vec<f16>),
}

/// Weights and bias with what follows put in.
fn weights(l: &Lower<'_>, c: &Convolution, affine: &Affine) -> Result<(Weights, Option<Vec<f32>>)> {
    let bias = c.bias.map(|b| constant::tensor(l, b)).transpose()?;
    let bias = affine.shift(bias.map(|b| b.to_f32().into_owned()));
    if let Some(halves) = constant::half_elements(l, c.weight) {
        return Ok((Weights::Halves(reorder(c, &halves)), bias));
    }
    let mut weights = reorder(c, &constant::tensor(l, c.weight)?.to_f32());
    affine.scale(&mut weights);
    Ok((Weights::Floats(weights), bias))
}

/// The convolution with its weights packed, once for all shapes.
fn packed(l: &Lower<'_>, c: &Convolution, affine: &Affine, epilogue: EpilogueF32) -> Result<ConvF32> {
    // With other taps another part of what follows may be in the weights.
    let name = l.g.node(affine.last).name.clone();
    let s = &c.shape;
    // Held while they are packed: another session that compiles the same model waits for them.
    let mut all = l.packed.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((conv, known)) = all.get(&name) {
        let resized = conv.resized(s.n, s.h, s.w);
        if *known == epilogue && resized.shape() == s {
            return Ok(resized);
        }
    }
    let (weights, bias) = weights(l, c, affine)?;
    let conv = match &weights {
        Weights::Floats(w) => ConvF32::new(l.isa, s, w, bias.as_deref(), epilogue.clone())?,
        Weights::Halves(w) => ConvF32::with_halves(l.isa, s, w, bias.as_deref(), epilogue.clone())?,
    };
    all.insert(name, (conv.clone(), epilogue));
    Ok(conv)
}

fn transposed(l: &Lower<'_>, c: &Convolution, affine: &Affine, epilogue: EpilogueF32) -> Result<ConvTransposeF32> {
    let (weights, bias) = weights(l, c, affine)?;
    let shape = TransposeShape { conv: c.shape, output_padding: c.transposed.unwrap_or([0; 2]) };
    Ok(match &weights {
        Weights::Floats(w) => ConvTransposeF32::new(l.isa, &shape, w, bias.as_deref(), epilogue)?,
        Weights::Halves(w) => ConvTransposeF32::with_halves(l.isa, &shape, w, bias.as_deref(), epilogue)?,
    })
}
