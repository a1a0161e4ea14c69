//! Pooling over the last two dimensions.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, ArrayView2, Axis, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.max_pool2d.default", |c| Ok(Value::Array(max_pool(c)?.0))),
    ("aten.max_pool2d_with_indices.default", |c| {
        let (y, at) = max_pool(c)?;
        Ok(Value::List(vec![Value::Array(y), Value::Array(at)]))
    }),
    ("aten.avg_pool2d.default", avg_pool),
    ("aten.adaptive_avg_pool2d.default", adaptive),
    ("aten._adaptive_avg_pool2d.default", adaptive),
];

/// Kernel, stride, padding and dilation of one dimension, and its number of outputs.
struct Window {
    k: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
    out: usize,
}

fn windows(c: &Ctx<'_>, shape: &[usize]) -> Result<[Window; 2]> {
    let pair = |name: &str| -> Result<[usize; 2]> {
        let v = c.ints(name)?;
        match v.as_slice() {
            [a] => Ok([*a as usize; 2]),
            [a, b] => Ok([*a as usize, *b as usize]),
            _ => Err(c.err(format!("argument '{name}': expected two numbers, found {v:?}"))),
        }
    };
    let k = pair("kernel_size")?;
    let stride = if c.ints("stride")?.is_empty() { k } else { pair("stride")? };
    let pad = pair("padding")?;
    let dilation = if c.op.schema.index("dilation").is_some() { pair("dilation")? } else { [1, 1] };
    let ceil = c.bool("ceil_mode")?;
    let lead = shape.len().checked_sub(2).ok_or_else(|| c.err("expected 3 or 4 dimensions"))?;
    let one = |i: usize| -> Result<Window> {
        let n = shape[lead + i];
        let span = (n + 2 * pad[i]).checked_sub(dilation[i] * (k[i] - 1) + 1);
        let span = span.ok_or_else(|| c.err(format!("window {k:?} does not fit into {shape:?}")))?;
        let mut out = (span + if ceil { stride[i] - 1 } else { 0 }) / stride[i] + 1;
        if ceil && (out - 1) * stride[i] >= n + pad[i] {
            out -= 1;
        }
        Ok(Window { k: k[i], stride: stride[i], pad: pad[i], dilation: dilation[i], out })
    };
    Ok([one(0)?, one(1)?])
}

/// Applies `f` to each plane of the last two dimensions, giving planes of the size `out`.
fn planes<R: Clone + Default>(
    c: &Ctx<'_>,
    x: &ArrayD<f64>,
    out: [usize; 2],
    mut f: impl FnMut(ArrayView2<'_, f64>, usize, usize) -> R,
) -> Result<ArrayD<R>> {
    let shape = x.shape();
    let lead = shape.len() - 2;
    let count = shape[..lead].iter().product::<usize>();
    let flat = x
        .as_standard_layout()
        .into_owned()
        .into_shape_with_order((count, shape[lead], shape[lead + 1]))
        .map_err(|e| c.err(e.to_string()))?;
    let mut data = Vec::with_capacity(count * out[0] * out[1]);
    for plane in flat.axis_iter(Axis(0)) {
        for i in 0..out[0] {
            for j in 0..out[1] {
                data.push(f(plane, i, j));
            }
        }
    }
    let dims: Vec<usize> = shape[..lead].iter().copied().chain(out).collect();
    ArrayD::from_shape_vec(IxDyn(&dims), data).map_err(|e| c.err(e.to_string()))
}

fn max_pool(c: &Ctx<'_>) -> Result<(Array, Array)> {
    let x = c.array("self")?;
    let [a, b] = windows(c, x.shape())?;
    let best = planes(c, &x.to_f64(), [a.out, b.out], |plane, i, j| {
        let (h, w) = plane.dim();
        let mut best = (f64::NEG_INFINITY, None);
        for (y, z) in (0..a.k).flat_map(|y| (0..b.k).map(move |z| (y, z))) {
            let y = (i * a.stride + y * a.dilation).wrapping_sub(a.pad);
            let z = (j * b.stride + z * b.dilation).wrapping_sub(b.pad);
            if y < h && z < w && (best.1.is_none() || plane[[y, z]] > best.0 || plane[[y, z]].is_nan()) {
                best = (plane[[y, z]], Some((y * w + z) as i64));
            }
        }
        (best.0, best.1.unwrap_or(0))
    })?;
    Ok((Array::from_f64(x.dtype, best.mapv(|v| v.0)), Array::int(DType::I64, best.mapv(|v| v.1))))
}

fn avg_pool(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let [a, b] = windows(c, x.shape())?;
    let (all, divisor) = (c.bool("count_include_pad")?, c.opt_int("divisor_override")?);
    let y = planes(c, &x.to_f64(), [a.out, b.out], |plane, i, j| {
        let (h, w) = plane.dim();
        // The window, cut at the padded border; then what of it lies inside the input.
        let span = |w: &Window, i: usize, n: usize| {
            let start = (i * w.stride) as i64 - w.pad as i64;
            let end = (start + w.k as i64).min((n + w.pad) as i64);
            (end - start, start.max(0) as usize, (end.max(0) as usize).min(n))
        };
        let ((hs, h0, h1), (ws, w0, w1)) = (span(&a, i, h), span(&b, j, w));
        let sum: f64 = plane.slice(ndarray::s![h0..h1.max(h0), w0..w1.max(w0)]).sum();
        let count = if all { hs * ws } else { ((h1.saturating_sub(h0)) * (w1.saturating_sub(w0))) as i64 };
        sum / divisor.unwrap_or(count) as f64
    })?;
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
}

fn adaptive(c: &Ctx<'_>) -> Result<Value> {
    let (x, size) = (c.array("self")?, c.ints("output_size")?);
    let &[oh, ow] = size.as_slice() else { return Err(c.err("expected two output sizes")) };
    let y = planes(c, &x.to_f64(), [oh as usize, ow as usize], |plane, i, j| {
        let (h, w) = plane.dim();
        let cut = |i: usize, n: usize, o: usize| (i * n / o, ((i + 1) * n).div_ceil(o));
        let ((a, b), (p, q)) = (cut(i, h, oh as usize), cut(j, w, ow as usize));
        plane.slice(ndarray::s![a..b, p..q]).sum() / ((b - a) * (q - p)) as f64
    })?;
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
}
