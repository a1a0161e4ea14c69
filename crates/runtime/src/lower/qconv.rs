//! Quantized convolutions and linear layers: levels in, levels or floats out, by the arithmetic of `numerics`.

use super::conv::{Convolution, clamps, reorder};
use super::fuse::{Region, Sink};
use super::pointwise::{Form, compile, form};
use super::{Deferred, Lower, Quant, State, computed, conv};
use crate::error::Result;
use crate::kernel::{Kernel, QConvKernel, QConvTransposeKernel, QProgramKernel, QSides};
use crate::memory::{Storage, Value};
use cleave_ir::{Arg, NodeId, Tensor};
use cleave_kernels::KernelError;
use cleave_kernels::pointwise::Binary;
use cleave_kernels::qconv::{
    Activation, Bias, ConvTransposeShape, OutputKind, QConv, QConvTranspose, Requant, Residual,
};
use cleave_numerics::{DType, multiplier};

/// Constant levels with their scales.
pub(crate) struct Levels {
    /// The levels.
    pub(crate) tensor: Tensor,
    /// One, or one for each channel.
    pub(crate) scales: Vec<f32>,
    /// As the scales.
    pub(crate) zero_points: Vec<i64>,
    /// The channels' dimension.
    pub(crate) axis: Option<i64>,
}

/// What a dequantize of a constant reads.
pub(crate) fn levels(l: &Lower<'_>, id: NodeId) -> Option<Levels> {
    let node = l.g.node(id);
    let constant = |name: &str| match node.arg(name) {
        Some(Arg::Node(n)) => match l.state(*n) {
            State::Constant(t) => Some(t.clone()),
            _ => None,
        },
        _ => None,
    };
    let tensor = constant("input")?;
    Some(match node.op()?.base() {
        "dequantize_per_tensor" => {
            let (Some(Arg::Float(s)), Some(Arg::Int(z))) = (node.arg("scale"), node.arg("zero_point")) else {
                return None;
            };
            Levels { tensor, scales: vec![*s as f32], zero_points: vec![*z], axis: None }
        }
        "dequantize_per_channel" => {
            let scales = constant("scales")?.to_f32().into_owned();
            let zero_points = constant("zero_points").map_or(vec![0; scales.len()], |t| t.to_i64());
            let axis = if let Some(Arg::Int(a)) = node.arg("axis") { *a } else { return None };
            Levels { tensor, scales, zero_points, axis: Some(axis) }
        }
        _ => return None,
    })
}

/// Weights as signed bytes around 0: those with zero points are shifted, as far as they are bytes then.
pub(crate) fn signed(w: &Levels) -> Option<Vec<i8>> {
    match (w.tensor.dtype(), w.zero_points.iter().all(|z| *z == 0), w.zero_points.iter().all(|z| *z == 128)) {
        (DType::I8, true, _) => Some(w.tensor.elements::<i8>()?.into_owned()),
        (DType::U8, _, true) => Some(w.tensor.to_bytes().iter().map(|b| (b ^ 0x80).cast_signed()).collect()),
        (DType::I8 | DType::U8, ..) => {
            let (shape, n) = (w.tensor.shape(), w.zero_points.len());
            let axis = super::args::wrap(w.axis.unwrap_or(0), shape.len())?;
            let inner: usize = shape[axis + 1..].iter().product();
            let zero = |i: usize| w.zero_points[i / inner.max(1) % n];
            w.tensor.to_i64().iter().enumerate().map(|(i, v)| i8::try_from(v - zero(i)).ok()).collect()
        }
        _ => None,
    }
}

/// Whether a convolution's input and weight are levels that the kernels take.
pub(crate) fn fits(l: &Lower<'_>, c: &Convolution) -> bool {
    match l.state(c.x) {
        State::Dequant(..) => {}
        State::Computed(_) if computed::fits(c) => {}
        _ => return false,
    }
    let Some(w) = levels(l, c.weight).filter(|_| matches!(l.state(c.weight), State::DequantConstant)) else {
        return false;
    };
    let axis = i64::from(c.transposed.is_some());
    let per_channel = w.axis.is_none_or(|a| a == axis || a - w.tensor.shape().len() as i64 == axis);
    per_channel && signed(&w).is_some()
}

/// A scale for each output channel.
pub(crate) fn per_output(c: &Convolution, scales: &[f32]) -> Vec<f32> {
    (0..c.shape.c_out).map(|o| scales[o % scales.len()]).collect()
}

/// The bias in the accumulator's units where it is stored so, else as floats over `unit`, the output's scale.
fn bias(l: &Lower<'_>, c: &Convolution, acc_scale: &[f32], unit: f32) -> Result<Bias> {
    let Some(id) = c.bias else { return Ok(Bias::None) };
    if let Some(b) = levels(l, id).filter(|b| b.tensor.dtype() == DType::I32) {
        let close = |a: f32, b: f32| (a - b).abs() <= 1e-6 * b.abs();
        let same = per_output(c, &b.scales).iter().zip(acc_scale).all(|(a, b)| close(*a, *b));
        if same
            && b.zero_points.iter().all(|z| *z == 0)
            && let Some(v) = b.tensor.elements::<i32>()
        {
            return Ok(Bias::I32(v.into_owned()));
        }
    }
    let b = super::constant::tensor(l, id)?;
    Ok(Bias::F32(b.to_f32().iter().map(|v| v / unit).collect()))
}

/// The input's levels, dense, in the arena: kernels may read a little past its end.
pub(crate) fn input(l: &mut Lower<'_>, c: &Convolution, x: &Value) -> Value {
    let order = c.order(x.shape.len());
    if !l.is_outside(x) {
        return l.dense(x, &order);
    }
    let out = l.alloc(&x.shape, x.storage, &order);
    l.copy(x, &out, &[]);
    out
}

/// The epilogue that requantization absorbs: a residual, or an activation, and bounds.
struct Absorbed {
    residual: Option<NodeId>,
    activation: Option<Activation>,
    bounds: (f32, f32),
}

impl Absorbed {
    const NOTHING: Absorbed = Absorbed { residual: None, activation: None, bounds: (f32::NEG_INFINITY, f32::INFINITY) };
}

/// A chain `[add(·, dq(r)) | activation] → clamps` from the convolution to the root; none if it is another one.
fn absorb(l: &Lower<'_>, c: &Convolution, region: &Region, quant: &Quant) -> Option<Absorbed> {
    let (mut residual, mut activation, mut nodes) = (None, None, region.nodes.as_slice());
    if let Some((first, rest)) = nodes.split_first()
        && form(l.g, *first) == Some(Form::Binary(Binary::Add, 1.0))
    {
        let args: Vec<NodeId> = l.g.node(*first).args[..2].iter().flat_map(Arg::nodes).collect();
        let other = args.iter().find(|a| **a != c.id).filter(|_| args.len() == 2 && args.contains(&c.id))?;
        let same = l.shape(*other).ok() == l.shape(c.id).ok();
        if !same || !matches!(l.state(*other), State::Dequant(..)) {
            return None;
        }
        (residual, nodes) = (Some(*other), rest);
    }
    if let Some((first, rest)) = nodes.split_first()
        && residual.is_none()
        && let Some(Form::Unary(op)) = form(l.g, *first)
        && let Some(a) = Activation::new(op, &quant.q)
    {
        (activation, nodes) = (Some(a), rest);
    }
    let chained = nodes.windows(2).all(|w| l.g.node(w[1]).args.iter().flat_map(Arg::nodes).any(|a| a == w[0]));
    if !chained {
        return None;
    }
    Some(Absorbed { residual, activation, bounds: clamps(l, nodes)? })
}

/// Emits a quantized convolution with the region behind it. None if no kernel does both.
pub(crate) fn emit(
    l: &mut Lower<'_>,
    c: &Convolution,
    root: NodeId,
    region: &Region,
    sink: &Sink,
) -> Result<Option<Value>> {
    if let State::Computed(_) = l.state(c.x) {
        return computed::emit(l, c, root, region, sink);
    }
    let absorbed = match (sink, region.nodes.is_empty()) {
        (Sink::Float, true) => Absorbed::NOTHING,
        (Sink::Float, false) => return emit_program(l, c, root, region, sink),
        (Sink::Quantize(_, quant), _) => match absorb(l, c, region, quant) {
            Some(a) => a,
            None => return emit_program(l, c, root, region, sink),
        },
    };
    let shape = l.shape(root)?;
    let order = c.order(shape.len());
    let (State::Dequant(x, xq), Some(w)) = (l.state(c.x).clone(), levels(l, c.weight)) else { return Ok(None) };
    let mut residual = None;
    if let Some(id) = absorbed.residual
        && let State::Dequant(v, q) = l.state(id).clone()
    {
        let v = if v.pixel_stride(&order).is_some() { v } else { l.dense(&v, &order) };
        let stride = v.pixel_stride(&order).ok_or_else(|| l.unsupported(id, "it has no pixel stride"))?;
        residual = Some((v, q, stride));
    }
    let x = input(l, c, &x);
    let acc_scale: Vec<f32> = per_output(c, &w.scales).iter().map(|sw| xq.q.scale * sw).collect();
    let requant = requant(c, &w, &xq, sink, &absorbed, residual.as_ref().map(|r| &r.1));
    let unit = match (sink, &requant.activation) {
        (_, Some(a)) => a.unit(),
        (Sink::Quantize(_, quant), None) => quant.q.scale,
        _ => 1.0,
    };
    let bias = bias(l, c, &acc_scale, unit)?;
    let weights = signed(&w).ok_or_else(|| l.unsupported(c.id, "its weights are no signed bytes"))?;
    let weights = reorder(c, &weights);
    let stem = l.fused_name(&c.stem("u8s8"), &region.nodes);
    let nodes = sink.covers(&[&[c.id], region.nodes.as_slice()].concat());
    let body = match Body::new(l, c, &weights, &bias, &xq, requant, sink) {
        // Sums that may leave an i32: the float kernel instead.
        Err(KernelError::Overflow { .. }) => {
            let c = Convolution { quantized: false, ..c.clone() };
            l.set(c.id, State::Deferred(Deferred::Convolution(Box::new(c.clone()))));
            return conv::emit(l, &c, root, region, sink);
        }
        body => body?,
    };
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let stride = out.pixel_stride(&order).ok_or_else(|| l.unsupported(c.id, "its output has no pixel stride"))?;
    let sides = QSides { residual: residual.as_ref().map(|r| r.2), stride, bytes: sink.storage() != Storage::F32 };
    let reads: Vec<&Value> = std::iter::once(&x).chain(residual.as_ref().map(|r| &r.0)).collect();
    l.step(body.bind(sides), &reads, &out, &stem, &nodes);
    Ok(Some(out))
}

/// Emits a quantized convolution whose results, `f32(acc)·f32(sx·sw)` with the bias, go through a program.
fn emit_program(
    l: &mut Lower<'_>,
    c: &Convolution,
    root: NodeId,
    region: &Region,
    sink: &Sink,
) -> Result<Option<Value>> {
    let (State::Dequant(x, xq), Some(w), None) = (l.state(c.x).clone(), levels(l, c.weight), c.transposed) else {
        return Ok(None);
    };
    let Some(compiled) = compile(l, root, region, Some(c.id), sink) else { return Ok(None) };
    let shape = l.shape(root)?;
    let order = c.order(shape.len());
    let Some((operands, sides)) = conv::operands(l, &compiled, &shape, &order)? else { return Ok(None) };
    let requant = requant(c, &w, &xq, &Sink::Float, &Absorbed::NOTHING, None);
    let bias = bias(l, c, &requant.multiplier, 1.0)?;
    let weights = signed(&w).ok_or_else(|| l.unsupported(c.id, "its weights are no signed bytes"))?;
    let body = match Body::new(l, c, &reorder(c, &weights), &bias, &xq, requant, &Sink::Float) {
        Ok(Body::Direct(body)) => *body,
        Ok(Body::Transposed(_)) | Err(KernelError::Overflow { .. }) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let x = input(l, c, &x);
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let Some(stride) = out.pixel_stride(&order) else { return Ok(None) };
    let nodes = sink.covers(&[&[c.id], region.nodes.as_slice()].concat());
    let stem = l.fused_name(&c.stem("u8s8"), &region.nodes);
    let kernel = Box::new(QProgramKernel { body, program: compiled.program, sides, stride, levels: None });
    let reads: Vec<&Value> = std::iter::once(&x).chain(&operands).collect();
    l.step(kernel, &reads, &out, &stem, &nodes);
    Ok(Some(out))
}

fn requant(c: &Convolution, w: &Levels, x: &Quant, sink: &Sink, absorbed: &Absorbed, r: Option<&Quant>) -> Requant {
    let scales = per_output(c, &w.scales);
    let Sink::Quantize(_, out) = sink else {
        return Requant::new(scales.iter().map(|sw| x.q.scale * sw).collect(), 0);
    };
    let (lo, hi) = absorbed.bounds;
    let scaled = |sw: &f32| match &absorbed.activation {
        Some(a) => multiplier(x.q.scale, *sw, a.unit()),
        None => multiplier(x.q.scale, *sw, out.q.scale),
    };
    let mut requant = Requant::new(scales.iter().map(scaled).collect(), out.q.zero_point);
    requant.activation = absorbed.activation.clone();
    requant.qmin = i32::from(out.q.eval(lo));
    requant.qmax = i32::from(out.q.eval(hi));
    requant.residual = r.map(|r| Residual { multiplier: r.q.scale / out.q.scale, zero_point: r.q.zero_point });
    requant
}

/// A packed convolution of either direction.
enum Body {
    Direct(Box<QConv>),
    Transposed(QConvTranspose),
}

impl Body {
    fn new(
        l: &Lower<'_>,
        c: &Convolution,
        weights: &[i8],
        bias: &Bias,
        x: &Quant,
        requant: Requant,
        sink: &Sink,
    ) -> std::result::Result<Body, KernelError> {
        let zero = u8::try_from(x.q.zero_point).unwrap_or(0);
        let out = if sink.storage() == Storage::F32 { OutputKind::F32 } else { OutputKind::U8 };
        let s = &c.shape;
        Ok(match c.transposed {
            None => Body::Direct(Box::new(QConv::new(l.isa, s, weights, bias, zero, requant, out)?)),
            Some(output_pad) => {
                let shape = ConvTransposeShape {
                    n: s.n,
                    h: s.h,
                    w: s.w,
                    c_in: s.c_in,
                    c_out: s.c_out,
                    kh: s.kh,
                    kw: s.kw,
                    stride: s.stride,
                    pad: s.pad,
                    output_pad,
                    dilation: s.dilation,
                    groups: s.groups,
                };
                Body::Transposed(QConvTranspose::new(l.isa, &shape, weights, bias, zero, requant, out)?)
            }
        })
    }

    fn bind(self, sides: QSides) -> Box<dyn Kernel> {
        match self {
            Body::Direct(body) => Box::new(QConvKernel { body: *body, sides, levels: None }),
            Body::Transposed(body) => Box::new(QConvTransposeKernel { body, sides }),
        }
    }
}
