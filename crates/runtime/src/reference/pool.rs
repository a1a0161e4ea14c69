//! Pooling over the last one to three dimensions, all taken as three.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_ir::schema::Type;
use cleave_numerics::DType;
use ndarray::{Array4, ArrayD, ArrayView3, ArrayViewMut3, Axis, IxDyn, s};
use std::ops::Range;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.max_pool2d.default", |c| Ok(max_pool(c)?.0.into())),
    ("aten.max_pool2d_with_indices.default", with_indices),
    ("aten.max_pool3d_with_indices.default", with_indices),
    ("prims._low_memory_max_pool_with_offsets.default", with_offsets),
    ("aten.avg_pool2d.default", avg_pool),
    ("aten.avg_pool3d.default", avg_pool),
    ("aten.adaptive_max_pool2d.default", adaptive_max),
    ("aten.adaptive_max_pool3d.default", adaptive_max),
    ("aten.fractional_max_pool2d.default", fractional_max),
    ("aten.fractional_max_pool3d.default", fractional_max),
    ("aten.adaptive_avg_pool2d.default", adaptive),
    ("aten._adaptive_avg_pool2d.default", adaptive),
    ("aten._adaptive_avg_pool3d.default", adaptive),
    ("aten.max_pool2d_with_indices_backward.default", max_pool_backward),
    ("aten.max_pool3d_with_indices_backward.default", max_pool_backward),
    ("aten.avg_pool2d_backward.default", avg_pool_backward),
    ("aten.avg_pool3d_backward.default", avg_pool_backward),
    ("aten._adaptive_avg_pool2d_backward.default", adaptive_backward),
    ("aten._adaptive_avg_pool3d_backward.default", adaptive_backward),
];

/// How many dimensions the op pools over: the length of its first list, or the digit in its name.
fn rank(c: &Ctx<'_>) -> usize {
    let lists = c.op.schema.params.iter().map(|p| if let Type::IntList(n) = p.ty { n } else { None });
    let given = || c.sizes("kernel_size").ok().map(|k| k.len());
    let named = if c.op.name.contains("3d") { 3 } else { 2 };
    lists.flatten().next().or_else(given).unwrap_or(named).min(3)
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
    numbered(c, x, out, |_, part, at| f(part, at))
}

/// [`volumes`] with the number of each.
fn numbered<R: Clone>(
    c: &Ctx<'_>,
    x: &ArrayD<f64>,
    out: [usize; 3],
    f: impl Fn(usize, ArrayView3<'_, f64>, [usize; 3]) -> R,
) -> Result<ArrayD<R>> {
    let (n, [d, h, w]) = (rank(c), volume(c, x.shape())?);
    let lead = &x.shape()[..x.ndim() - n];
    let shape = [lead, &out[3 - n..]].concat();
    let mut data = Vec::with_capacity(bounded(c, &shape)?);
    let count = lead.iter().product::<usize>();
    let all = x.as_standard_layout().into_owned().into_shape_with_order((count, d, h, w));
    for (n, part) in all.map_err(|e| c.err(e.to_string()))?.axis_iter(Axis(0)).enumerate() {
        data.extend(ndarray::indices(out).into_iter().map(|(i, j, k)| f(n, part, [i, j, k])));
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

/// Which elements an output place is the mean of, and by what their sum is divided.
type Mean = ([Range<usize>; 3], f64);

fn mean(part: &ArrayView3<'_, f64>, (inner, divisor): Mean) -> f64 {
    sum(part, &inner) / divisor
}

/// Windows of an average pooling of an input of this shape, and how many there are.
fn means(c: &Ctx<'_>, shape: &[usize]) -> Result<(impl Fn([usize; 3]) -> Mean + use<>, [usize; 3])> {
    let w = windows(c, shape)?;
    let (all, divisor) = (c.bool("count_include_pad")?, divisor(c)?);
    let out = [w[0].out, w[1].out, w[2].out];
    let mean = move |at: [usize; 3]| {
        // The window, cut at the padded border; then what of it lies inside the input.
        let padded = |d: usize| {
            let start = (at[d] * w[d].stride) as i64 - w[d].pad as i64;
            start..(start + w[d].k as i64).min((w[d].n + w[d].pad) as i64)
        };
        let inside = |d: usize| {
            let r = padded(d);
            let start = (r.start.max(0) as usize).min(w[d].n);
            start..(r.end.max(0) as usize).min(w[d].n).max(start)
        };
        let inner = [0, 1, 2].map(inside);
        let count = if all { [0, 1, 2].map(|d| padded(d).count()) } else { [0, 1, 2].map(|d| inner[d].len()) };
        (inner, divisor.map_or(count.iter().product::<usize>() as f64, |d| d as f64))
    };
    Ok((mean, out))
}

fn divisor(c: &Ctx<'_>) -> Result<Option<i64>> {
    if c.op.schema.index("divisor_override").is_some() { c.opt_int("divisor_override") } else { Ok(None) }
}

fn avg_pool(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (window, out) = means(c, x.shape())?;
    let y = volumes(c, &x.to_f64(), out, |part, at| mean(&part, window(at)))?;
    Ok(Array::from_f64(c.dtype(), y).into())
}

/// Part `at` of `n` elements in `out` parts, which may overlap.
fn part(at: usize, n: usize, out: usize) -> Range<usize> {
    at * n / out..((at + 1) * n).div_ceil(out)
}

/// Parts of an adaptive pooling.
fn parts(at: [usize; 3], n: [usize; 3], out: [usize; 3]) -> Mean {
    let inner = [0, 1, 2].map(|d| part(at[d], n[d], out[d]));
    let count = inner.iter().map(|r| r.len()).product::<usize>();
    (inner, count as f64)
}

fn adaptive(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (out, n) = (three(c, "output_size", 1)?, volume(c, x.shape())?);
    let y = volumes(c, &x.to_f64(), out, |part, at| mean(&part, parts(at, n, out)))?;
    Ok(Array::from_f64(c.dtype(), y).into())
}

/// The greatest element of a part of a volume, and its place in the volume.
fn greatest(part: &ArrayView3<'_, f64>, [a, b, c]: [Range<usize>; 3]) -> (f64, i64) {
    let (_, h, w) = part.dim();
    let mut best = (f64::NEG_INFINITY, ((a.start * h + b.start) * w + c.start) as i64);
    for ((i, j, k), v) in part.slice(s![a.clone(), b.clone(), c.clone()]).indexed_iter() {
        if *v > best.0 || v.is_nan() {
            best = (*v, (((a.start + i) * h + b.start + j) * w + c.start + k) as i64);
        }
    }
    best
}

/// Values of the input's type and where they were.
fn found(c: &Ctx<'_>, best: &ArrayD<(f64, i64)>) -> Value {
    let values = Array::from_f64(c.dtype(), best.mapv(|v| v.0));
    Value::List(vec![values.into(), Array::int(DType::I64, best.mapv(|v| v.1)).into()])
}

fn adaptive_max(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (out, n) = (three(c, "output_size", 1)?, volume(c, x.shape())?);
    let best = volumes(c, &x.to_f64(), out, |part, at| greatest(&part, parts(at, n, out).0))?;
    Ok(found(c, &best))
}

/// Where `out` windows of `k` elements out of `n` start, moved by a random number, in f32 as torch does it.
fn random_starts(sample: f64, n: usize, out: usize, k: usize) -> Vec<usize> {
    let (sample, alpha) = (sample as f32, (n - k) as f32 / out.saturating_sub(1).max(1) as f32);
    let start = |i: usize| ((i as f32 + sample) * alpha) as usize - (sample * alpha) as usize;
    (0..out).map(|i| if i + 1 == out { n - k } else { start(i).min(n - k) }).collect()
}

fn fractional_max(c: &Ctx<'_>) -> Result<Value> {
    let (x, samples) = (c.array("self")?, c.array("random_samples")?.to_f64());
    let (out, n, k, r) = (three(c, "output_size", 1)?, volume(c, x.shape())?, three(c, "kernel_size", 1)?, rank(c));
    let count: usize = x.shape()[..x.shape().len() - r].iter().product();
    if (0..3).any(|d| k[d] > n[d]) || samples.len() != count * r {
        return Err(c.err(format!("windows {k:?} in {n:?} by random numbers of shape {:?}", samples.shape())));
    }
    let samples: Vec<f64> = samples.iter().copied().collect();
    // Over two dimensions the first random number is that of the last dimension.
    let sample = |plane: usize, d: usize| {
        d.checked_sub(3 - r).map_or(0.0, |i| samples[plane * r + if r == 2 { 1 - i } else { i }])
    };
    let starts: Vec<[Vec<usize>; 3]> =
        (0..count).map(|plane| [0, 1, 2].map(|d| random_starts(sample(plane, d), n[d], out[d], k[d]))).collect();
    let best = numbered(c, &x.to_f64(), out, |plane, part, at| {
        greatest(&part, [0, 1, 2].map(|d| starts[plane][d][at[d]]..starts[plane][d][at[d]] + k[d]))
    })?;
    Ok(found(c, &best))
}

/// Each volume of the output's gradient spread by `f` over one of the input.
fn spread(
    c: &Ctx<'_>,
    out: [usize; 3],
    f: impl Fn(usize, ArrayView3<'_, f64>, &mut ArrayViewMut3<'_, f64>),
) -> Result<Value> {
    let (gy, x) = (c.array("grad_output")?.to_f64(), c.array("self")?);
    let (n, [d, h, w]) = (rank(c), volume(c, x.shape())?);
    let lead = &x.shape()[..x.shape().len() - n];
    if gy.shape() != [lead, &out[3 - n..]].concat() {
        return Err(c.err(format!("a gradient of shape {:?} for {:?}", gy.shape(), x.shape())));
    }
    let count = lead.iter().product::<usize>();
    let gy = gy.as_standard_layout().into_owned().into_shape_with_order((count, out[0], out[1], out[2]));
    let gy = gy.map_err(|e| c.err(e.to_string()))?;
    let mut gx = Array4::zeros((count, d, h, w));
    for (i, (from, mut to)) in gy.axis_iter(Axis(0)).zip(gx.axis_iter_mut(Axis(0))).enumerate() {
        f(i, from, &mut to);
    }
    let gx = gx.into_shape_with_order(x.shape()).map_err(|e| c.err(e.to_string()))?;
    Ok(Array::from_f64(c.dtype(), gx).into())
}

/// Gradient of a pooling whose outputs are these means.
fn mean_backward(c: &Ctx<'_>, out: [usize; 3], window: impl Fn([usize; 3]) -> Mean) -> Result<Value> {
    spread(c, out, |_, from, to| {
        for ((i, j, k), g) in from.indexed_iter() {
            let ([a, b, c], divisor) = window([i, j, k]);
            to.slice_mut(s![a, b, c]).mapv_inplace(|v| v + g / divisor);
        }
    })
}

fn avg_pool_backward(c: &Ctx<'_>) -> Result<Value> {
    let (window, out) = means(c, c.array("self")?.shape())?;
    mean_backward(c, out, window)
}

fn adaptive_backward(c: &Ctx<'_>) -> Result<Value> {
    let n = volume(c, c.array("self")?.shape())?;
    let out = volume(c, c.array("grad_output")?.shape())?;
    mean_backward(c, out, |at| parts(at, n, out))
}

/// Gradient of a maximum pooling: to the places that it found.
fn max_pool_backward(c: &Ctx<'_>) -> Result<Value> {
    let (shape, at) = (c.array("grad_output")?.shape().to_vec(), c.array("indices")?);
    let (out, n) = (volume(c, &shape)?, volume(c, c.array("self")?.shape())?);
    let (size, places) = (n.iter().product::<usize>() as i64, out.iter().product::<usize>());
    if at.shape() != shape || at.to_i64().iter().any(|i| !(0..size).contains(i)) {
        return Err(c.err(format!("indices for a gradient of shape {shape:?}")));
    }
    let at: Vec<usize> = at.to_i64().iter().map(|i| *i as usize).collect();
    spread(c, out, |volume, from, to| {
        for (g, i) in from.iter().zip(&at[volume * places..]) {
            to[[i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]]] += g;
        }
    })
}
