//! Softmax, layer norm, reductions, products of activations, and resizing.

use super::{Args, Lower, Rules, State, constant};
use crate::error::Result;
use crate::kernel::Dense;
use crate::memory::{Storage, Value, row_major};
use cleave_ir::{Arg, Dim, Meta, NodeId};
use cleave_kernels::gemm_f32::{MatMulF32, MatStrides};
use cleave_kernels::layer_norm::LayerNorm;
use cleave_kernels::reduce::Reduction;
use cleave_kernels::resize::{AxisTable, Coordinates, Nearest, Resize};
use cleave_numerics::DType;

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
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
    ("aten.var_mean.correction", var_mean),
    ("aten.mm.default", matmul),
    ("aten.bmm.default", matmul),
    ("aten.matmul.default", matmul),
    ("aten.upsample_nearest2d.vec", resize),
    ("aten.upsample_bilinear2d.vec", resize),
];

fn is_float(l: &Lower<'_>, id: NodeId) -> bool {
    l.g.tensor_meta(id).is_ok_and(|m| m.dtype == DType::F32)
}

/// A call's tensor as floats, if they are floats that are computed when the model runs.
fn operand(l: &mut Lower<'_>, id: NodeId, name: &str) -> Result<Option<Value>> {
    let Some(x) = Args::of(l.g, id).tensor(name) else { return Ok(None) };
    if !is_float(l, x) || !is_float(l, id) {
        return Ok(None);
    }
    l.value(x).map(Some)
}

fn softmax(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let shape = l.shape(id)?;
    let Some(dim) = Args::of(l.g, id).axis("dim", shape.len()) else { return Ok(false) };
    let Some(x) = operand(l, id, "self")? else { return Ok(false) };
    // The dimension goes innermost.
    let mut order: Vec<usize> = (0..shape.len()).filter(|d| *d != dim).collect();
    order.push(dim);
    let x = l.dense(&x, &order);
    let out = l.alloc(&shape, Storage::F32, &order);
    let n = shape[dim];
    let log = l.g.node(id).op().is_some_and(|o| o.base().contains("log"));
    let dims = [x.len() / n.max(1), n];
    let stem = if log { "red_fused_log_softmax" } else { "red_fused_softmax" };
    l.step(Box::new(Dense::Softmax { isa: l.isa, dims, log }), &[&x], &out, stem, &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

fn layer_norm(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(dims), Some(eps)) = (a.ints("normalized_shape"), a.float("eps")) else { return Ok(false) };
    let mut parts = vec![];
    for name in ["weight", "bias"] {
        let Some(n) = a.tensor(name) else {
            parts.push(None);
            continue;
        };
        if !matches!(l.state(n), State::Constant(_) | State::DequantConstant) {
            return Ok(false);
        }
        parts.push(Some(constant::tensor(l, n)?.to_f32().into_owned()));
    }
    let Some(x) = operand(l, id, "input")? else { return Ok(false) };
    let n = dims.iter().map(|d| usize::try_from(*d).unwrap_or(0)).product();
    let norm = LayerNorm::new(l.isa, n, eps, parts[0].as_deref(), parts[1].as_deref())?;
    let x = l.dense(&x, &row_major(x.shape.len()));
    let out = l.alloc(&x.shape, Storage::F32, &row_major(x.shape.len()));
    l.step(Box::new(Dense::LayerNorm(norm)), &[&x], &out, "red_fused_layer_norm", &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

fn reduction(l: &Lower<'_>, id: NodeId) -> Option<Reduction> {
    Some(match l.g.node(id).op()?.base() {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        "amax" => Reduction::Max,
        "amin" => Reduction::Min,
        "var" => {
            let a = Args::of(l.g, id);
            Reduction::Variance { correction: if a.is_none("correction") { 1.0 } else { a.float("correction")? } }
        }
        _ => return None,
    })
}

/// The input of a reduction, row-major, and its sizes before, in and behind the dimensions reduced; none if these
/// are no neighbours.
fn rows(l: &mut Lower<'_>, id: NodeId) -> Result<Option<(Value, [usize; 3])>> {
    let a = Args::of(l.g, id);
    let (Some(x), Some(dims)) = (a.tensor("self"), a.ints("dim")) else { return Ok(None) };
    let rank = l.shape(x)?.len();
    let Some(mut axes) = dims.into_iter().map(|d| super::args::wrap(d, rank)).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    axes.sort_unstable();
    let neighbours = axes.windows(2).all(|w| w[1] == w[0] + 1);
    if axes.is_empty() || !neighbours || !is_float(l, x) {
        return Ok(None);
    }
    let x = l.value(x)?;
    let x = l.dense(&x, &row_major(rank));
    let size = |r: std::ops::Range<usize>| x.shape[r].iter().product::<usize>();
    let (first, last) = (axes[0], axes[axes.len() - 1] + 1);
    let dims = [size(0..first), size(first..last), size(last..rank)];
    Ok(Some((x, dims)))
}

fn reduce(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some(op) = reduction(l, id).filter(|_| is_float(l, id)) else { return Ok(false) };
    let Some((x, dims)) = rows(l, id)? else { return Ok(false) };
    let shape = l.shape(id)?;
    let out = l.alloc(&shape, Storage::F32, &row_major(shape.len()));
    let stem = l.fused_name("red_fused", &[id]);
    l.step(Box::new(Dense::Reduce(l.isa, op, dims)), &[&x], &out, &stem, &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

/// Both statistics by one kernel, one behind the other.
fn var_mean(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let correction = if a.is_none("correction") { Some(1.0) } else { a.float("correction") };
    let shape = match &l.g.node(id).meta {
        Meta::Tuple(items) => items.first().and_then(Meta::as_tensor).map(|m| m.shape.clone()),
        _ => None,
    };
    let sizes = |s: Vec<Dim>| s.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok())).collect();
    let (Some(correction), Some(shape)) = (correction, shape.and_then::<Vec<usize>, _>(sizes)) else {
        return Ok(false);
    };
    let Some((x, dims)) = rows(l, id)? else { return Ok(false) };
    let both = [&[2], shape.as_slice()].concat();
    let out = l.alloc(&both, Storage::F32, &row_major(both.len()));
    let stem = l.fused_name("red_fused", &[id]);
    l.step(Box::new(Dense::VarMean(l.isa, correction, dims)), &[&x], &out, &stem, &[id]);
    let part = |i: usize| Value {
        offset: out.offset + i * out.strides[0],
        shape: shape.clone(),
        strides: out.strides[1..].to_vec(),
        ..out.clone()
    };
    l.set(id, State::Tuple(vec![State::Stored(part(0)), State::Stored(part(1))]));
    Ok(true)
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

fn matmul(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let right = if l.g.node(id).arg("mat2").is_some() { "mat2" } else { "other" };
    let (Some(a), Some(b)) = (operand(l, id, "self")?, operand(l, id, right)?) else { return Ok(false) };
    let shape = l.shape(id)?;
    let rank = shape.len();
    if a.shape.len() < 2 || b.shape.len() < 2 || rank < 2 || a.len() == 0 || b.len() == 0 {
        return Ok(false);
    }
    let dims = [shape[rank - 2], a.shape[a.shape.len() - 1], shape[rank - 1]];
    let lead = &shape[..rank - 2];
    let (Some((a, sa)), Some((b, sb))) = (side(l, &a, lead), side(l, &b, lead)) else { return Ok(false) };
    let body = MatMulF32::new(l.isa, lead.iter().product(), dims, sa, sb)?;
    let out = l.alloc(&shape, Storage::F32, &row_major(rank));
    l.step(Box::new(Dense::MatMul(body)), &[&a, &b], &out, "matmul_f32", &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

fn resize(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let Some(x) = a.tensor("input").filter(|x| is_float(l, *x)) else { return Ok(false) };
    let shape = l.shape(id)?;
    let scale = |i: usize| match a.node.arg("scale_factors") {
        Some(Arg::List(s)) => match s.get(i) {
            Some(Arg::Float(f)) => Some((1.0 / f) as f32),
            _ => None,
        },
        _ => None,
    };
    let linear = a.node.op().is_some_and(|o| o.base() == "upsample_bilinear2d");
    let mode = if a.bool("align_corners") { Coordinates::AlignCorners } else { Coordinates::HalfPixel };
    let from = l.shape(x)?;
    let axis = |i: usize| match linear {
        true => AxisTable::linear(from[2 + i], shape[2 + i], mode, scale(i)),
        false => AxisTable::nearest(from[2 + i], shape[2 + i], Coordinates::Asymmetric, Nearest::Floor, scale(i)),
    };
    let body = Resize::new(l.isa, shape[0], shape[1], axis(0)?, axis(1)?);
    l.settle(x)?;
    let order = Lower::spatial_order(4);
    // Nearest elements keep their levels; interpolated ones are floats.
    let (v, quant) = match l.state(x).clone() {
        State::Dequant(v, q) if !linear => (v, Some(q)),
        _ => (l.value(x)?, None),
    };
    let v = l.dense(&v, &order);
    let out = l.alloc(&shape, v.storage, &order);
    let stem = if linear { "resize_bilinear" } else { "resize_nearest" };
    l.step(Box::new(Dense::Resize(body, quant.is_some())), &[&v], &out, stem, &[id]);
    let state = match quant {
        Some(q) => State::Dequant(out, q),
        None => State::Stored(out),
    };
    l.set(id, state);
    Ok(true)
}
