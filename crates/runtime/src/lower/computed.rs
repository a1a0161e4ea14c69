//! Levels whose scale and zero point are computed as the model runs.

use super::{Lower, Rules, State};
use crate::calls::RunQuant;
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
pub(super) struct Computed {
    /// The levels.
    pub(super) levels: Value,
    pub(super) scale: Value,
    pub(super) zero: Value,
    pub(super) how: RunLevels,
}

fn choose(l: &mut Lower<'_>, id: NodeId, scheme: QScheme) -> Result<Option<State>> {
    let Some((x, range, eps)) = l.calls.chosen(id, scheme) else { return Ok(None) };
    let x = l.value(x)?;
    let x = l.gapless(&x);
    let [scale, zero] = [DType::F64, DType::I64].map(|d| l.steps.alloc(&[1], Storage::Raw(d), &[0]));
    let kernel = Box::new(ChooseKernel { isa: l.isa, range, scheme, eps });
    l.step(kernel, &[&x], &[&scale, &zero], "choose_qparams", &[id]);
    Ok(Some(State::Tuple(vec![State::Stored(scale), State::Stored(zero)])))
}

fn quantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some(RunQuant { x, scale, zero, how, storage, bounds, rounding }) = l.calls.run_converted(id) else {
        return Ok(None);
    };
    let (scale, zero, x) = (l.value(scale)?, l.value(zero)?, l.value(x)?);
    let x = l.gapless(&x);
    let out = l.steps.alloc(&x.shape, storage, &x.order());
    let kernel = QuantizeKernel { isa: l.isa, levels: how, bounds, rounding };
    l.step(Box::new(kernel), &[&x, &scale, &zero], &[&out], "quantize", &[id]);
    Ok(Some(State::Stored(out)))
}

fn dequantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some(RunQuant { x, scale, zero, how, storage, .. }) = l.calls.run_converted(id) else { return Ok(None) };
    let State::Stored(levels) = l.state(x).clone() else { return Ok(None) };
    if levels.storage != storage {
        return Ok(None);
    }
    let (scale, zero) = (l.value(scale)?, l.value(zero)?);
    Ok(Some(State::Computed(Box::new(Computed { levels, scale, zero, how }))))
}

/// The floats that levels mean.
pub(super) fn floats(l: &mut Lower<'_>, id: NodeId, c: &Computed) -> Value {
    let levels = l.gapless(&c.levels);
    let out = l.steps.alloc(&levels.shape, Storage::F32, &levels.order());
    let kernel = DequantizeKernel { isa: l.isa, levels: c.how };
    l.step(Box::new(kernel), &[&levels, &c.scale, &c.zero], &[&out], "dequantize", &[id]);
    out
}
