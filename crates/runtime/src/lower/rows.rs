//! Softmax, layer norm, reductions, products of activations, and resizing.

use super::{Lower, Rules, State};
use crate::error::Result;
use crate::kernel::Dense;
use crate::memory::{Storage, Value, channels_last, row_major};
use cleave_ir::{Meta, NodeId};
use cleave_kernels::gemm_f32::{MatMulF32, MatStrides};
use cleave_kernels::reduce::Reduction;

/// The ops lowered here.
pub(super) const RULES: Rules = &[
    ("aten.softmax.int", softmax),
    ("aten._softmax.default", softmax),
    ("aten.log_softmax.int", softmax),
    ("aten._log_softmax.default", softmax),
    ("aten.layer_norm.default", layer_norm),
    ("aten.mean.dim", reduce),
    ("aten.sum.dim_IntList", reduce),
    ("aten.amax.default", reduce),
    ("aten.amin.default", reduce),
    ("aten.var.correction", reduce),
    ("aten.var_mean.correction", reduce),
    ("aten.mm.default", matmul),
    ("aten.bmm.default", matmul),
    ("aten.matmul.default", matmul),
    ("aten.upsample_nearest2d.vec", resize),
    ("aten.upsample_bilinear2d.vec", resize),
];

/// Emits a kernel for a call's floats, stored in this order.
fn emit(
    l: &mut Lower<'_>,
    id: NodeId,
    stem: &str,
    kernel: Dense,
    reads: &[&Value],
    order: &[usize],
) -> Result<Option<State>> {
    let out = l.steps.alloc(&l.calls.shape(id)?, Storage::F32, order);
    l.step(Box::new(kernel), reads, &[&out], stem, &[id]);
    Ok(Some(State::Stored(out)))
}

fn softmax(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, dim, log)) = l.calls.softmax(id) else { return Ok(None) };
    let x = l.value(x)?;
    // The dimension goes innermost.
    let order: Vec<usize> = (0..x.shape.len()).filter(|d| *d != dim).chain([dim]).collect();
    let x = l.dense(&x, &order);
    let dims = [x.len() / x.shape[dim].max(1), x.shape[dim]];
    let stem = if log { "red_fused_log_softmax" } else { "red_fused_softmax" };
    emit(l, id, stem, Dense::Softmax { isa: l.isa, dims, log }, &[&x], &order)
}

fn layer_norm(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, norm)) = l.calls.layer_norm(l.isa, id)? else { return Ok(None) };
    let x = l.value(x)?;
    let order = row_major(x.shape.len());
    let x = l.dense(&x, &order);
    emit(l, id, "red_fused_layer_norm", Dense::LayerNorm(norm), &[&x], &order)
}

fn reduce(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let (Some(r), Some(shapes)) = (l.calls.reduced(id), l.calls.result_shapes(id)) else { return Ok(None) };
    let x = l.value(r.x)?;
    let x = l.dense(&x, &row_major(x.shape.len()));
    let stem = l.steps.fused_name("red_fused", &[id]);
    let (Meta::Tuple(_), Reduction::Variance { correction }) = (&l.g.node(id).meta, r.op) else {
        let order = row_major(shapes[0].len());
        return emit(l, id, &stem, Dense::Reduce(l.isa, r.op, r.dims), &[&x], &order);
    };
    // Variance and mean by one kernel, one behind the other.
    let both = [&[2], shapes[0].as_slice()].concat();
    let out = l.steps.alloc(&both, Storage::F32, &row_major(both.len()));
    l.step(Box::new(Dense::VarMean(l.isa, correction, r.dims)), &[&x], &[&out], &stem, &[id]);
    Ok(Some(State::Tuple(vec![State::Stored(out.select(0, 0)), State::Stored(out.select(0, 1))])))
}

/// One side of a product: its value with one batch dimension, and the strides of it.
fn side(l: &mut Lower<'_>, v: &Value, lead: &[usize]) -> Option<(Value, MatStrides)> {
    let rank = v.shape.len();
    let matrix = [v.shape[rank - 2], v.shape[rank - 1]];
    let wide = v.broadcast(&[lead, matrix.as_slice()].concat())?;
    let flat = [&[lead.iter().product()], matrix.as_slice()].concat();
    let seen = wide.reshape(&flat).or_else(|| l.dense(&wide, &row_major(wide.shape.len())).reshape(&flat))?;
    let s = MatStrides { batch: seen.strides[0], row: seen.strides[1], col: seen.strides[2] };
    Some((seen, s))
}

fn matmul(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some([a, b]) = l.calls.product(id) else { return Ok(None) };
    let (a, b) = (l.value(a)?, l.value(b)?);
    let shape = l.calls.shape(id)?;
    let rank = shape.len();
    if a.shape.len() < 2 || b.shape.len() < 2 || rank < 2 || a.len() == 0 || b.len() == 0 {
        return Ok(None);
    }
    let dims = [shape[rank - 2], a.shape[a.shape.len() - 1], shape[rank - 1]];
    let lead = &shape[..rank - 2];
    let (Some((a, sa)), Some((b, sb))) = (side(l, &a, lead), side(l, &b, lead)) else { return Ok(None) };
    let body = MatMulF32::new(l.isa, lead.iter().product(), dims, sa, sb)?;
    emit(l, id, "matmul_f32", Dense::MatMul(body), &[&a, &b], &row_major(rank))
}

fn resize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, body, linear)) = l.calls.resized(l.isa, id)? else { return Ok(None) };
    l.settle(x)?;
    // Nearest elements keep their levels; interpolated ones are floats.
    let (v, quant) = if linear { (l.value(x)?, None) } else { l.levels_or_value(x)? };
    let order = channels_last(4);
    let v = l.dense(&v, &order);
    let out = l.steps.alloc(&l.calls.shape(id)?, v.storage, &order);
    let stem = if linear { "resize_bilinear" } else { "resize_nearest" };
    l.step(Box::new(Dense::Resize(body, quant.is_some())), &[&v], &[&out], stem, &[id]);
    Ok(Some(State::of(out, quant)))
}
