//! Pooling over the last one to three dimensions, all taken as three.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_ir::schema::Type;
use cleave_numerics::DType;
use ndarray::{ArrayD, ArrayView3, Axis, IxDyn, s};
use std::ops::Range;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.max_pool2d.default", |c| Ok(max_pool(c)?.0.into())),
    ("aten.max_pool2d_with_indices.default", with_indices),
    ("aten.max_pool3d_with_indices.default", with_indices),
    ("prims._low_memory_max_pool_with_offsets.default", with_offsets),
    ("aten.avg_pool2d.default", avg_pool),
    ("aten.avg_pool3d.default", avg_pool),
    ("aten.adaptive_avg_pool1d.default", adaptive),
    ("aten.adaptive_avg_pool2d.default", adaptive),
    ("aten._adaptive_avg_pool2d.default", adaptive),
    ("aten._adaptive_avg_pool3d.default", adaptive),
];

/// How many dimensions the op pools over: the length of its first list.
fn rank(c: &Ctx<'_>) -> usize {
    let lists = c.op.schema.params.iter().map(|p| if let Type::IntList(n) = p.ty { n } else { None });
    let given = || c.sizes("kernel_size").ok().map(|k| k.len());
    lists.flatten().next().or_else(given).unwrap_or(2).min(3)
}

/// Numbers for three dimensions, those given last.
fn three(c: &Ctx<'_>, name: &str, fill: usize) -> Result<[usize; 3]> {
    let (v, n) = (c.sizes(name)?, rank(c));
    let mut out = [fill; 3];
    match v.as_slice() {
        [one] => out[3 - n..].fill(*one),
        _ if v.len() == n => out[3 - n..].copy_from_slice(&v),
        _ => return Err(c.err(format!("argument '{name}': expected {n} numbers, found {v:?}"))),
    }
    Ok(out)
}

/// The last dimensions as three, the first of them of size 1 if there are less.
fn volume(c: &Ctx<'_>, shape: &[usize]) -> Result<[usize; 3]> {
    let n = rank(c);
    let lead = shape.len().checked_sub(n).ok_or_else(|| c.err(format!("{n} dimensions or more expected")))?;
    let mut out = [1; 3];
    out[3 - n..].copy_from_slice(&shape[lead..]);
    Ok(out)
}

/// Kernel, stride, padding and dilation of one dimension, its size and its number of outputs.
struct Window {
    k: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    n: usize,
    out: usize,
}

fn windows(c: &Ctx<'_>, shape: &[usize]) -> Result<[Window; 3]> {
    let (k, pad) = (three(c, "kernel_size", 1)?, three(c, "padding", 0)?);
    let stride = if c.ints("stride")?.is_empty() { k } else { three(c, "stride", 1)? };
    let dilation = if c.op.schema.index("dilation").is_some() { three(c, "dilation", 1)? } else { [1; 3] };
    let (ceil, sizes) = (c.bool("ceil_mode")?, volume(c, shape)?);
    let one = |i: usize| -> Result<Window> {
        let (k, stride, pad, dilation, n) = (k[i], stride[i], pad[i], dilation[i], sizes[i]);
        let wide = k.checked_sub(1).and_then(|k| k.checked_mul(dilation)).and_then(|w| w.checked_add(1));
        let span = pad.checked_mul(2).and_then(|p| p.checked_add(n)).zip(wide).and_then(|(n, w)| n.checked_sub(w));
        let span = span.filter(|_| stride > 0);
        let span = span.ok_or_else(|| c.err(format!("a window of {k} in steps of {stride} does not fit into {n}")))?;
        let mut out = (if ceil { span.div_ceil(stride) } else { span / stride }) + 1;
        // A window must start inside the input or the padding before it.
        if ceil && (out - 1) * stride >= n + pad {
            out -= 1;
        }
        Ok(Window { k, stride, pad, dilation, n, out })
    };
    Ok([one(0)?, one(1)?, one(2)?])
}

/// The greatest element of each window, and the number of its place in the window.
fn with_offsets(c: &Ctx<'_>) -> Result<Value> {
    let (values, index) = max_pool(c)?;
    let [d, h, w] = windows(c, c.array("self")?.shape())?;
    let (n, index) = (rank(c), index.to_i64());
    let offsets = index.indexed_iter().map(|(at, i)| {
        let out = |k: usize| if k + n > 2 { at[values.shape().len() + k - 3] } else { 0 };
        let (i, dims) = (*i as usize, [&d, &h, &w]);
        let place = [i / (h.n * w.n), i / w.n % h.n, i % w.n];
        let inside = |k: usize| (place[k] + dims[k].pad - out(k) * dims[k].stride) / dims[k].dilation;
        ((inside(0) * h.k + inside(1)) * w.k + inside(2)) as i64
    });
    let offsets = ArrayD::from_shape_vec(IxDyn(values.shape()), offsets.collect());
    let offsets = Array::int(DType::I8, offsets.map_err(|e| c.err(e.to_string()))?);
    Ok(Value::List(vec![values.into(), offsets.into()]))
}

/// Applies `f` to each volume of the last dimensions and each of `out` places in it.
fn volumes<R: Clone>(
    c: &Ctx<'_>,
    x: &ArrayD<f64>,
    out: [usize; 3],
    f: impl Fn(ArrayView3<'_, f64>, [usize; 3]) -> R,
) -> Result<ArrayD<R>> {
    let (n, [d, h, w]) = (rank(c), volume(c, x.shape())?);
    let lead = &x.shape()[..x.ndim() - n];
    let shape = [lead, &out[3 - n..]].concat();
    let mut data = Vec::with_capacity(bounded(c, &shape)?);
    let count = lead.iter().product::<usize>();
    let all = x.as_standard_layout().into_owned().into_shape_with_order((count, d, h, w));
    for part in all.map_err(|e| c.err(e.to_string()))?.axis_iter(Axis(0)) {
        data.extend(ndarray::indices(out).into_iter().map(|(i, j, k)| f(part, [i, j, k])));
    }
    ArrayD::from_shape_vec(IxDyn(&shape), data).map_err(|e| c.err(e.to_string()))
}

/// The greatest element of each window and its place in the volume.
fn max_pool(c: &Ctx<'_>) -> Result<(Array, Array)> {
    let x = c.array("self")?;
    let w = windows(c, x.shape())?;
    let best = volumes(c, &x.to_f64(), [w[0].out, w[1].out, w[2].out], |part, at| {
        let mut best = (f64::NEG_INFINITY, None);
        for (i, j, k) in ndarray::indices([w[0].k, w[1].k, w[2].k]) {
            let place = |d: usize, i: usize| (at[d] * w[d].stride + i * w[d].dilation).wrapping_sub(w[d].pad);
            let p = (place(0, i), place(1, j), place(2, k));
            let Some(v) = part.get(p).copied() else { continue };
            if best.1.is_none() || v > best.0 || v.is_nan() {
                best = (v, Some(((p.0 * w[1].n + p.1) * w[2].n + p.2) as i64));
            }
        }
        (best.0, best.1.unwrap_or(0))
    })?;
    Ok((Array::from_f64(x.dtype, best.mapv(|v| v.0)), Array::int(DType::I64, best.mapv(|v| v.1))))
}

fn with_indices(c: &Ctx<'_>) -> Result<Value> {
    let (y, at) = max_pool(c)?;
    Ok(Value::List(vec![y.into(), at.into()]))
}

fn sum(part: &ArrayView3<'_, f64>, [a, b, c]: &[Range<usize>; 3]) -> f64 {
    part.slice(s![a.clone(), b.clone(), c.clone()]).sum()
}

fn avg_pool(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let w = windows(c, x.shape())?;
    let (all, divisor) = (c.bool("count_include_pad")?, c.opt_int("divisor_override")?);
    let y = volumes(c, &x.to_f64(), [w[0].out, w[1].out, w[2].out], |part, at| {
        // The window, cut at the padded border; then what of it lies inside the input.
        let padded = |d: usize| {
            let start = (at[d] * w[d].stride) as i64 - w[d].pad as i64;
            start..(start + w[d].k as i64).min((w[d].n + w[d].pad) as i64)
        };
        let inside = |d: usize| {
            let r = padded(d);
            let start = r.start.max(0) as usize;
            start..(r.end.max(0) as usize).min(w[d].n).max(start)
        };
        let inner = [0, 1, 2].map(inside);
        let count = if all { [0, 1, 2].map(|d| padded(d).count()) } else { [0, 1, 2].map(|d| inner[d].len()) };
        sum(&part, &inner) / divisor.map_or(count.iter().product::<usize>() as f64, |d| d as f64)
    })?;
    Ok(Array::from_f64(c.dtype(), y).into())
}

fn adaptive(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (out, n) = (three(c, "output_size", 1)?, volume(c, x.shape())?);
    let y = volumes(c, &x.to_f64(), out, |part, at| {
        let cut = |d: usize| at[d] * n[d] / out[d]..((at[d] + 1) * n[d]).div_ceil(out[d]);
        let inner = [0, 1, 2].map(cut);
        sum(&part, &inner) / inner.iter().map(|r| r.len()).product::<usize>() as f64
    })?;
    Ok(Array::from_f64(c.dtype(), y).into())
}
