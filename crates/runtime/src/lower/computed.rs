//! Levels whose scale and zero point are computed as the model runs, and convolutions and linear layers of them.

use super::conv::{self, Convolution, reorder};
use super::fuse::{Region, Sink};
use super::pointwise::compile;
use super::qconv::{input, levels, per_output, signed};
use super::{Args, Deferred, Lower, Rules, State, constant};
use crate::error::Result;
use crate::kernel::{
    ChooseKernel, DequantizeKernel, Kernel, QConvKernel, QProgramKernel, QSides, QuantizeKernel, RunLevels,
};
use crate::memory::{Storage, Value};
use cleave_ir::{Arg, Node, NodeId};
use cleave_kernels::KernelError;
use cleave_kernels::pointwise::Rounding;
use cleave_kernels::qconv::{Bias, QConv};
use cleave_numerics::{DType, QRange, QScheme};

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
    ("quantized_decomposed.choose_qparams.tensor", |l, id| choose(l, id, QScheme::Affine)),
    ("quantized_decomposed.choose_qparams_symmetric.tensor", |l, id| choose(l, id, QScheme::Symmetric)),
    ("quantized_decomposed.quantize_per_tensor.tensor", quantize),
    ("quantized_decomposed.dequantize_per_tensor.tensor", dequantize),
];

/// Stored levels and where their scale and zero point lie.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    /// The levels.
    pub(crate) levels: Value,
    pub(crate) scale: Value,
    pub(crate) zero: Value,
    pub(crate) how: RunLevels,
}

/// The integers that a call names, if they are of an 8-bit type.
fn range(node: &Node) -> Option<QRange> {
    let a = Args { node };
    let (min, max) = (a.int("quant_min")?, a.int("quant_max")?);
    let Some(Arg::DType(dtype)) = node.arg("dtype") else { return None };
    let dtype = *dtype;
    let (least, greatest) = dtype.int_range().filter(|_| matches!(dtype, DType::U8 | DType::I8))?;
    let fits = |v: i64| i32::try_from(v).ok().filter(|v| (least..=greatest).contains(v));
    Some(QRange { dtype, min: fits(min)?, max: fits(max)? }).filter(|r| r.min < r.max)
}

/// What is added to levels of a type as they are stored.
fn up(dtype: DType) -> (Storage, i32) {
    if dtype == DType::I8 { (Storage::S8, 128) } else { (Storage::U8, 0) }
}

fn choose(l: &mut Lower<'_>, id: NodeId, scheme: QScheme) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(x), Some(range), Some(eps)) = (a.tensor("input"), range(a.node), a.float("eps")) else {
        return Ok(false);
    };
    // The middle of half of u8 is what the reference makes of it.
    let half = scheme == QScheme::Symmetric && range.dtype == DType::U8 && (range.min, range.max) != (0, 255);
    if l.g.tensor_meta(x)?.dtype != DType::F32 || half {
        return Ok(false);
    }
    let x = l.value(x)?;
    let order = x.order();
    let x = l.dense(&x, &order);
    let [scale, zero] = [DType::F64, DType::I64].map(|d| l.alloc(&[1], Storage::Raw(d), &[0]));
    let kernel = Box::new(ChooseKernel { isa: l.isa, range, scheme, eps });
    l.step_to(kernel, &[&x], &[&scale, &zero], "choose_qparams", &[id]);
    l.set(id, State::Tuple(vec![State::Stored(scale), State::Stored(zero)]));
    Ok(true)
}

/// Scale and zero point of a call, in memory; none if there are several.
fn params(l: &mut Lower<'_>, id: NodeId, dtype: DType) -> Result<Option<(Value, Value, RunLevels)>> {
    let a = Args::of(l.g, id);
    let (Some(s), Some(z)) = (a.tensor("scale"), a.tensor("zero_point")) else { return Ok(None) };
    let types = (l.g.tensor_meta(s)?.dtype, l.g.tensor_meta(z)?.dtype);
    let (DType::F32 | DType::F64, DType::I64 | DType::I32 | DType::I8 | DType::U8) = types else { return Ok(None) };
    let (scale, zero) = (l.value(s)?, l.value(z)?);
    let how = RunLevels { scale: types.0, zero: types.1, up: up(dtype).1.into() };
    Ok((scale.len() == 1 && zero.len() == 1).then_some((scale, zero, how)))
}

fn quantize(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(x), Some(range)) = (a.tensor("input"), range(a.node)) else { return Ok(false) };
    if l.g.tensor_meta(x)?.dtype != DType::F32 {
        return Ok(false);
    }
    let Some((scale, zero, levels)) = params(l, id, range.dtype)? else { return Ok(false) };
    let x = l.value(x)?;
    let order = x.order();
    let x = l.dense(&x, &order);
    let (storage, up) = up(range.dtype);
    let out = l.alloc(&x.shape, storage, &order);
    let rounding = if l.g.quantizes_by_division() { Rounding::Div } else { Rounding::Recip };
    let kernel = QuantizeKernel { isa: l.isa, levels, bounds: [range.min + up, range.max + up], rounding };
    l.step(Box::new(kernel), &[&x, &scale, &zero], &out, "quantize", &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

fn dequantize(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(x), Some(range)) = (a.tensor("input"), range(a.node)) else { return Ok(false) };
    let State::Stored(v) = l.state(x).clone() else { return Ok(false) };
    if l.g.tensor_meta(id)?.dtype != DType::F32 || v.storage != up(range.dtype).0 {
        return Ok(false);
    }
    let Some((scale, zero, how)) = params(l, id, range.dtype)? else { return Ok(false) };
    l.set(id, State::Computed(Box::new(Computed { levels: v, scale, zero, how })));
    Ok(true)
}

/// The floats that levels mean.
pub(crate) fn floats(l: &mut Lower<'_>, id: NodeId, c: &Computed) -> Value {
    let order = c.levels.order();
    let levels = l.dense(&c.levels, &order);
    let out = l.alloc(&levels.shape, Storage::F32, &order);
    let kernel = DequantizeKernel { isa: l.isa, levels: c.how };
    l.step(Box::new(kernel), &[&levels, &c.scale, &c.zero], &out, "dequantize", &[id]);
    out
}

/// Whether kernels take a convolution of such levels.
pub(crate) fn fits(c: &Convolution) -> bool {
    c.transposed.is_none() && !(c.shape.is_depthwise() && c.shape.groups > 1)
}

/// Emits a convolution of such levels, `f32(acc)·f32(sx·sw) + bias`, with the region behind it. None if no kernel does
/// both.
pub(crate) fn emit(
    l: &mut Lower<'_>,
    c: &Convolution,
    root: NodeId,
    region: &Region,
    sink: &Sink,
) -> Result<Option<Value>> {
    let (State::Computed(x), Some(w)) = (l.state(c.x).clone(), levels(l, c.weight)) else { return Ok(None) };
    let shape = l.shape(root)?;
    let order = c.order(shape.len());
    let mut program = None;
    if !(matches!(sink, Sink::Float) && region.nodes.is_empty()) {
        let Some(compiled) = compile(l, root, region, Some(c.id), sink) else { return Ok(None) };
        let Some((operands, sides)) = conv::operands(l, &compiled, &shape, &order)? else { return Ok(None) };
        program = Some((compiled.program, operands, sides));
    }
    let weights = signed(&w).ok_or_else(|| l.unsupported(c.id, "its weights are no signed bytes"))?;
    let bias = match c.bias {
        Some(b) => Bias::F32(constant::tensor(l, b)?.to_f32().into_owned()),
        None => Bias::None,
    };
    let scales = per_output(c, &w.scales);
    let body = match QConv::of_levels(l.isa, &c.shape, &reorder(c, &weights), &bias, scales) {
        // Sums that may leave an i32: the float kernel instead.
        Err(KernelError::Overflow { .. }) => {
            let c = Convolution { quantized: false, ..c.clone() };
            l.set(c.id, State::Deferred(Deferred::Convolution(Box::new(c.clone()))));
            return conv::emit(l, &c, root, region, sink);
        }
        body => body?,
    };
    let v = input(l, c, &x.levels);
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let Some(stride) = out.pixel_stride(&order) else { return Ok(None) };
    let nodes = sink.covers(&[&[c.id], region.nodes.as_slice()].concat());
    let stem = l.fused_name(&c.stem("u8s8"), &region.nodes);
    let (levels, mut reads) = (Some(x.how), vec![&v, &x.scale, &x.zero]);
    let kernel: Box<dyn Kernel> = match &program {
        None => Box::new(QConvKernel { body, sides: QSides { residual: None, stride, bytes: false }, levels }),
        Some((program, operands, sides)) => {
            reads.extend(operands);
            Box::new(QProgramKernel { body, program: program.clone(), sides: sides.clone(), stride, levels })
        }
    };
    l.step(kernel, &reads, &out, &stem, &nodes);
    Ok(Some(out))
}
