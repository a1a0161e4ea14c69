//! Pooling: maxima keep the levels they are given, means of levels are summed as integers.

use super::conv::clamps;
use super::fuse::{Region, Sink};
use super::{Args, Deferred, Lower, Rules, State};
use crate::error::Result;
use crate::kernel::{AvgPoolKernel, MaxPoolKernel};
use crate::memory::{Storage, Value};
use cleave_ir::{Meta, NodeId};
use cleave_kernels::pointwise::Quantize;
use cleave_kernels::pool::{AvgPool, MaxPool, PoolShape};
use cleave_kernels::quant::Dequantize;
use cleave_numerics::DType;

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
    ("aten.max_pool2d.default", max),
    ("aten.max_pool2d_with_indices.default", max),
    ("aten.avg_pool2d.default", average),
    ("aten.adaptive_avg_pool2d.default", average),
    ("aten._adaptive_avg_pool2d.default", average),
    ("aten.mean.dim", average),
];

/// Windows over the last two of four dimensions.
fn windows(l: &Lower<'_>, id: NodeId) -> Option<(NodeId, PoolShape)> {
    let a = Args::of(l.g, id);
    let x = a.tensor("self")?;
    let shape = l.shape(x).ok()?;
    let [n, c, h, w] = *shape.as_slice() else { return None };
    let pair = |name: &str| a.sizes(name, 2).map(|v| [v[0], v[1]]);
    let kernel = pair("kernel_size")?;
    let stride = if a.ints("stride")?.is_empty() { kernel } else { pair("stride")? };
    let padding = pair("padding")?;
    let dilation = pair("dilation").unwrap_or([1, 1]);
    let result = match &l.g.node(id).meta {
        Meta::Tuple(items) => items.first()?.as_tensor()?,
        m => m.as_tensor()?,
    };
    let size = |d: usize| result.shape.get(d)?.as_const().and_then(|n| usize::try_from(n).ok());
    let out = [size(2)?, size(3)?];
    let pad = [padding[0], padding[1], padding[0], padding[1]];
    Some((x, PoolShape { n, h, w, c, kernel, stride, pad, dilation, out }))
}

fn max(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some((x, shape)) = windows(l, id) else { return Ok(false) };
    let tuple = matches!(l.g.node(id).meta, Meta::Tuple(_));
    let first_only =
        |u: &NodeId| Args::of(l.g, *u).int("index") == Some(0) && Args::of(l.g, *u).tensor("self") == Some(id);
    if tuple && !l.g.users(id).iter().all(first_only) {
        return Ok(false);
    }
    l.settle(x)?;
    let (v, quant) = match l.state(x).clone() {
        State::Dequant(v, q) => (v, Some(q)),
        _ => (l.value(x)?, None),
    };
    // Levels that nothing says the meaning of are compared as they are: 128 more keeps the order of signed ones.
    let bytes = matches!(v.storage, Storage::U8 | Storage::S8);
    if !bytes && v.storage != Storage::F32 {
        return Ok(false);
    }
    let order = Lower::spatial_order(4);
    let v = l.dense(&v, &order);
    let body = MaxPool::new(l.isa, &shape)?;
    let sizes = [shape.n, shape.c, shape.out[0], shape.out[1]];
    // The levels' quantize, if it follows with the same arithmetic, is the value that others see.
    let quantize = l.only_user(id).filter(|u| super::Quant::of(l.g.node(*u), l.g.quantizes_by_division()) == quant);
    let node = if quant.is_some() { quantize.unwrap_or(id) } else { id };
    let out = l.destination(node, &sizes, v.storage, &order);
    let stride = out.pixel_stride(&order).ok_or_else(|| l.unsupported(id, "its output has no pixel stride"))?;
    let kernel = Box::new(MaxPoolKernel { body, bytes, stride });
    let stem = if bytes { "max_pool2d_u8" } else { "max_pool2d_f32" };
    l.step(kernel, &[&v], &out, stem, &[id]);
    let state = match quant {
        Some(q) => State::Dequant(out, q),
        None => State::Stored(out),
    };
    l.set(id, if tuple { State::Tuple(vec![state, State::Unset]) } else { state });
    Ok(true)
}

/// The means that a call computes, of which input.
fn means(l: &Lower<'_>, id: NodeId) -> Option<(NodeId, AvgPool)> {
    let a = Args::of(l.g, id);
    let x = a.tensor("self")?;
    let shape = l.shape(x).ok()?;
    let dims: [usize; 4] = shape.as_slice().try_into().ok()?;
    let [n, c, h, w] = dims;
    let float = |n: NodeId| l.g.tensor_meta(n).is_ok_and(|m| m.dtype == DType::F32);
    if !float(x) || !float(id) || shape.contains(&0) {
        return None;
    }
    let pool = match l.g.node(id).op()?.base() {
        "avg_pool2d" => {
            let (_, s) = windows(l, id)?;
            let divisor = match a.is_none("divisor_override") {
                true => None,
                false => Some(usize::try_from(a.int("divisor_override")?).ok()?),
            };
            AvgPool::new(l.isa, &s, a.bool("count_include_pad"), divisor)
        }
        "mean" => {
            let mut axes: Vec<usize> =
                a.ints("dim")?.into_iter().map(|d| super::args::wrap(d, 4)).collect::<Option<_>>()?;
            axes.sort_unstable();
            if axes != [2, 3] {
                return None;
            }
            AvgPool::global(l.isa, [n, h, w, c])
        }
        _ => {
            let out = a.sizes("output_size", 2)?;
            AvgPool::adaptive(l.isa, [n, h, w, c], [out[0], out[1]])
        }
    };
    Some((x, pool.ok()?))
}

fn average(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some((x, _)) = means(l, id) else { return Ok(false) };
    l.settle(x)?;
    if matches!(l.state(x), State::Constant(_) | State::DequantConstant) {
        return Ok(false);
    }
    if matches!(l.state(x), State::Dequant(..)) {
        l.set(id, State::Deferred(Deferred::Pool));
        return Ok(true);
    }
    let out = emit(l, id, id, &Region::default(), &Sink::Float)?;
    let out = out.ok_or_else(|| l.unsupported(id, "its windows are not those of an average"))?;
    l.set(id, State::Stored(out));
    Ok(true)
}

/// Emits a mean with the clamps and the quantize behind it. None if no kernel does all.
pub(crate) fn emit(
    l: &mut Lower<'_>,
    pool: NodeId,
    root: NodeId,
    region: &Region,
    sink: &Sink,
) -> Result<Option<Value>> {
    let Some((x, body)) = means(l, pool) else { return Ok(None) };
    let (from, v) = match l.state(x).clone() {
        State::Dequant(v, q) => (Some(Dequantize { scale: q.q.scale, zero_point: q.q.zero_point }), v),
        _ => (None, l.value(x)?),
    };
    let to = match (sink, clamps(l, &region.nodes)) {
        (Sink::Float, _) if region.nodes.is_empty() => None,
        (Sink::Quantize(_, quant), Some((lo, hi))) if from.is_some() => {
            let bound = |x: f32| i32::from(quant.q.eval(x));
            Some(Quantize { qmin: bound(lo), qmax: bound(hi), ..quant.q })
        }
        _ => return Ok(None),
    };
    let v = l.dense(&v, &Lower::spatial_order(4));
    let shape = l.shape(root)?;
    let order = Lower::spatial_order(shape.len());
    let out = l.destination(sink.node(root), &shape, sink.storage(), &order);
    let Some(stride) = out.pixel_stride(&order) else { return Ok(None) };
    let stem = if from.is_some() { "avg_pool2d_u8" } else { "avg_pool2d_f32" };
    let nodes = sink.covers(&[&[pool], region.nodes.as_slice()].concat());
    let stem = l.fused_name(stem, &region.nodes);
    l.step(Box::new(AvgPoolKernel { body, from, to, stride }), &[&v], &out, &stem, &nodes);
    Ok(Some(out))
}
