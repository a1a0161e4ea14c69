//! Pooling: maxima keep the levels they are given, means of levels are summed as integers.

use super::{Deferred, Lower, Region, Rules, State};
use crate::error::Result;
use crate::kernel::{AvgPoolKernel, MaxPoolKernel};
use crate::memory::{Storage, Value, channels_last};
use cleave_ir::{Meta, NodeId};
use cleave_kernels::pool::MaxPool;

/// The ops lowered here.
pub(super) const RULES: Rules = &[
    ("aten.max_pool2d.default", max),
    ("aten.max_pool2d_with_indices.default", max),
    ("aten.avg_pool2d.default", average),
    ("aten.adaptive_avg_pool2d.default", average),
    ("aten._adaptive_avg_pool2d.default", average),
    ("aten.mean.dim", average),
];

fn max(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, shape)) = l.calls.windows(id) else { return Ok(None) };
    let tuple = matches!(l.g.node(id).meta, Meta::Tuple(_));
    if tuple && !l.g.users(id).iter().all(|u| l.calls.item(*u) == Some((id, 0))) {
        return Ok(None);
    }
    l.settle(x)?;
    let (v, quant) = l.levels_or_value(x)?;
    // Levels that nothing says the meaning of are compared as they are: 128 more keeps the order of signed ones.
    let bytes = matches!(v.storage, Storage::U8 | Storage::S8);
    if !bytes && v.storage != Storage::F32 {
        return Ok(None);
    }
    let order = channels_last(4);
    let v = l.dense(&v, &order);
    let body = MaxPool::new(l.isa, &shape)?;
    let sizes = [shape.n, shape.c, shape.out[0], shape.out[1]];
    // The levels' quantize, if it follows with the same arithmetic, is the value that others see.
    let quantize = l.calls.only_user(id).filter(|u| quant.is_some() && l.calls.quant(*u) == quant);
    let out = l.destination(quantize.unwrap_or(id), &sizes, v.storage, &order);
    let stride = out.pixel_stride(&order);
    let stride = stride.ok_or_else(|| l.calls.unsupported(id, "its output has no pixel stride"))?;
    let stem = if bytes { "max_pool2d_u8" } else { "max_pool2d_f32" };
    l.step(Box::new(MaxPoolKernel { body, bytes, stride }), &[&v], &[&out], stem, &[id]);
    let state = State::of(out, quant);
    Ok(Some(if tuple { State::Tuple(vec![state, State::Unset]) } else { state }))
}

fn average(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, _)) = l.calls.means(l.isa, id) else { return Ok(None) };
    l.settle(x)?;
    if matches!(l.state(x), State::Dequant(..)) {
        return Ok(Some(State::Deferred(Deferred::Pool)));
    }
    let region = Region { root: id, quantize: None, nodes: vec![], anchors: vec![id] };
    let out = emit(l, id, &region)?;
    let out = out.ok_or_else(|| l.calls.unsupported(id, "its windows are not those of an average"))?;
    Ok(Some(State::Stored(out)))
}

/// Emits a mean with the clamps and the quantize behind it. None if no kernel does all.
pub(super) fn emit(l: &mut Lower<'_>, pool: NodeId, region: &Region) -> Result<Option<Value>> {
    let Some((x, body)) = l.calls.means(l.isa, pool) else { return Ok(None) };
    let (v, from) = l.levels_or_value(x)?;
    let to = match (&region.quantize, l.calls.clamps(&region.nodes)) {
        (None, _) if region.nodes.is_empty() => None,
        (Some((_, quant)), Some(bounds)) if from.is_some() => Some(quant.within(bounds)),
        _ => return Ok(None),
    };
    let v = l.dense(&v, &channels_last(4));
    let order = channels_last(l.calls.shape(region.root)?.len());
    let (out, stride) = l.pixels(region, &order)?;
    let stem = if from.is_some() { "avg_pool2d_u8" } else { "avg_pool2d_f32" };
    let name = l.steps.fused_name(stem, &region.nodes);
    let kernel = AvgPoolKernel { body, from: from.map(|q| q.dequantize()), to, stride };
    l.step(Box::new(kernel), &[&v], &[&out], &name, &region.covers());
    Ok(Some(out))
}
