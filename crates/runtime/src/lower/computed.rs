//! Levels whose scale and zero point are computed as the model runs.

use super::{Lower, Rules, State};
use crate::calls::stored;
use crate::error::Result;
use crate::kernel::{ChooseKernel, DequantizeKernel, QuantizeKernel, RunLevels};
use crate::memory::{Storage, Value};
use cleave_ir::NodeId;
use cleave_numerics::{DType, QScheme};

/// The ops lowered here.
pub(super) const RULES: Rules = &[
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

fn choose(l: &mut Lower<'_>, id: NodeId, scheme: QScheme) -> Result<Option<State>> {
    let a = l.calls.args(id);
    let (Some(x), Some(range), Some(eps)) = (a.tensor("input"), l.calls.range(id), a.float("eps")) else {
        return Ok(None);
    };
    // The middle of half of u8 is what the reference makes of it.
    let half = scheme == QScheme::Symmetric && range.dtype == DType::U8 && (range.min, range.max) != (0, 255);
    if !l.calls.is_float(x) || half {
        return Ok(None);
    }
    let x = l.value(x)?;
    let x = l.gapless(&x);
    let [scale, zero] = [DType::F64, DType::I64].map(|d| l.steps.alloc(&[1], Storage::Raw(d), &[0]));
    let kernel = Box::new(ChooseKernel { isa: l.isa, range, scheme, eps });
    l.step_to(kernel, &[&x], &[&scale, &zero], "choose_qparams", &[id]);
    Ok(Some(State::Tuple(vec![State::Stored(scale), State::Stored(zero)])))
}

/// Scale and zero point of a call, in memory, where `up` is added to levels as they are stored; none if there are several.
fn params(l: &mut Lower<'_>, id: NodeId, up: i32) -> Result<Option<(Value, Value, RunLevels)>> {
    let a = l.calls.args(id);
    let (Some(s), Some(z)) = (a.tensor("scale"), a.tensor("zero_point")) else { return Ok(None) };
    let types = (l.g.tensor_meta(s)?.dtype, l.g.tensor_meta(z)?.dtype);
    let (DType::F32 | DType::F64, DType::I64 | DType::I32 | DType::I8 | DType::U8) = types else { return Ok(None) };
    let (scale, zero) = (l.value(s)?, l.value(z)?);
    let how = RunLevels { scale: types.0, zero: types.1, up: up.into() };
    Ok((scale.len() == 1 && zero.len() == 1).then_some((scale, zero, how)))
}

fn quantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let (Some(x), Some(range)) = (l.calls.args(id).tensor("input"), l.calls.range(id)) else { return Ok(None) };
    let Some((storage, up)) = stored(range.dtype).filter(|_| l.calls.is_float(x)) else { return Ok(None) };
    let Some((scale, zero, levels)) = params(l, id, up)? else { return Ok(None) };
    let x = l.value(x)?;
    let x = l.gapless(&x);
    let out = l.steps.alloc(&x.shape, storage, &x.order());
    let (bounds, rounding) = ([range.min + up, range.max + up], l.calls.rounding());
    let kernel = QuantizeKernel { isa: l.isa, levels, bounds, rounding };
    l.step(Box::new(kernel), &[&x, &scale, &zero], &out, "quantize", &[id]);
    Ok(Some(State::Stored(out)))
}

fn dequantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let (Some(x), Some(range)) = (l.calls.args(id).tensor("input"), l.calls.range(id)) else { return Ok(None) };
    let (State::Stored(levels), Some((storage, up))) = (l.state(x).clone(), stored(range.dtype)) else {
        return Ok(None);
    };
    if !l.calls.is_float(id) || levels.storage != storage {
        return Ok(None);
    }
    let Some((scale, zero, how)) = params(l, id, up)? else { return Ok(None) };
    Ok(Some(State::Computed(Box::new(Computed { levels, scale, zero, how }))))
}

/// The floats that levels mean.
pub(super) fn floats(l: &mut Lower<'_>, id: NodeId, c: &Computed) -> Value {
    let levels = l.gapless(&c.levels);
    let out = l.steps.alloc(&levels.shape, Storage::F32, &levels.order());
    let kernel = DequantizeKernel { isa: l.isa, levels: c.how };
    l.step(Box::new(kernel), &[&levels, &c.scale, &c.zero], &out, "dequantize", &[id]);
    out
}
