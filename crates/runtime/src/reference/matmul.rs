//! Matrix products and convolutions, summed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::pointwise::zip;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, Ix2, IxDyn, s};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.linear.default", linear),
    ("aten.mm.default", |c| product(c, "self", "mat2")),
    ("aten.bmm.default", |c| product(c, "self", "mat2")),
    ("aten.matmul.default", |c| product(c, "self", "other")),
    ("aten.addmm.default", addmm),
    ("aten.conv1d.default", |c| conv(c, false)),
    ("aten.conv2d.default", |c| conv(c, false)),
    ("aten.conv3d.default", |c| conv(c, false)),
    ("aten.conv_transpose1d.default", |c| conv(c, true)),
    ("aten.conv_transpose2d.input", |c| conv(c, true)),
    ("aten.convolution.default", |c| {
        let transposed = c.bool("transposed")?;
        conv(c, transposed)
    }),
];

fn linear(c: &Ctx<'_>) -> Result<Value> {
    let (x, w) = (c.array("input")?.to_f64(), c.array("weight")?.to_f64());
    let mut y = matmul(c, &x, &w.reversed_axes())?;
    if let Some(b) = c.opt_array("bias")? {
        y = zip(c, &y, &b.to_f64(), |y, b| y + b)?;
    }
    Ok(Value::Array(Array::float(c.dtype(), y)))
}

fn product(c: &Ctx<'_>, a: &str, b: &str) -> Result<Value> {
    let y = matmul(c, &c.array(a)?.to_f64(), &c.array(b)?.to_f64())?;
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
}

fn addmm(c: &Ctx<'_>) -> Result<Value> {
    let (bias, beta, alpha) = (c.array("self")?.to_f64(), c.float("beta")?, c.float("alpha")?);
    let y = matmul(c, &c.array("mat1")?.to_f64(), &c.array("mat2")?.to_f64())?;
    // With a beta of 0, torch does not look at the bias.
    let sum = |y: &f64, b: &f64| if beta == 0.0 { y * alpha } else { y * alpha + b * beta };
    Ok(Value::Array(Array::from_f64(c.dtype(), zip(c, &y, &bias, sum)?)))
}

/// torch's matmul: vectors are promoted to matrices, leading dimensions broadcast.
fn matmul(c: &Ctx<'_>, a: &ArrayD<f64>, b: &ArrayD<f64>) -> Result<ArrayD<f64>> {
    if a.ndim() == 0 || b.ndim() == 0 {
        return Err(c.err("an operand without dimensions"));
    }
    let left = if a.ndim() == 1 { a.clone().insert_axis(Axis(0)) } else { a.clone() };
    let right = if b.ndim() == 1 { b.clone().insert_axis(Axis(1)) } else { b.clone() };
    let (m, k) = (left.shape()[left.ndim() - 2], left.shape()[left.ndim() - 1]);
    let n = right.shape()[right.ndim() - 1];
    if right.shape()[right.ndim() - 2] != k {
        return Err(c.err(format!("{:?} by {:?}", a.shape(), b.shape())));
    }
    let rank = left.ndim().max(right.ndim()) - 2;
    let size = |s: &[usize], i: usize| (i + s.len() - 2).checked_sub(rank).map_or(1, |j| s[j]);
    let batch: Vec<usize> = (0..rank).map(|i| size(left.shape(), i).max(size(right.shape(), i))).collect();
    let full = |x: &ArrayD<f64>, r, q| -> Result<ArrayD<f64>> {
        let shape: Vec<usize> = batch.iter().copied().chain([r, q]).collect();
        let wide = x.broadcast(shape).ok_or_else(|| c.err(format!("{:?} by {:?}", a.shape(), b.shape())))?;
        let count = batch.iter().product::<usize>();
        wide.as_standard_layout()
            .into_owned()
            .into_shape_with_order(IxDyn(&[count, r, q]))
            .map_err(|e| c.err(e.to_string()))
    };
    let (left, right) = (full(&left, m, k)?, full(&right, k, n)?);
    bounded(c, &[left.shape()[0], m, n])?;
    let mut out = ArrayD::zeros(IxDyn(&[left.shape()[0], m, n]));
    for i in 0..left.shape()[0] {
        let x = left.index_axis(Axis(0), i).into_dimensionality::<Ix2>().map_err(|e| c.err(e.to_string()))?;
        let y = right.index_axis(Axis(0), i).into_dimensionality::<Ix2>().map_err(|e| c.err(e.to_string()))?;
        out.index_axis_mut(Axis(0), i).assign(&x.dot(&y));
    }
    let mut shape = batch;
    if a.ndim() > 1 {
        shape.push(m);
    }
    if b.ndim() > 1 {
        shape.push(n);
    }
    out.into_shape_with_order(IxDyn(&shape)).map_err(|e| c.err(e.to_string()))
}

/// Parameters of a convolution over exactly three dimensions; missing ones have size 1.
struct Conv {
    stride: [usize; 3],
    pad: [i64; 3],
    dilation: [usize; 3],
    groups: usize,
}

/// `v` for three dimensions, the given ones last.
fn three(v: &[i64], n: usize, fill: i64) -> [i64; 3] {
    let v = if v.len() == 1 { vec![v[0]; n] } else { v.to_vec() };
    let mut out = [fill; 3];
    out[3 - n..].copy_from_slice(&v);
    out
}

fn conv(c: &Ctx<'_>, transposed: bool) -> Result<Value> {
    let (x, w) = (c.array("input")?.to_f64(), c.array("weight")?.to_f64());
    let n = w.ndim().checked_sub(2).filter(|n| (1..=3).contains(n));
    let n = n.ok_or_else(|| c.err(format!("a weight of shape {:?}", w.shape())))?;
    let batched = x.ndim() == n + 2;
    let x = if batched { x } else { x.insert_axis(Axis(0)) };
    let wide = |a: &ArrayD<f64>| -> Result<ArrayD<f64>> {
        let mut shape = a.shape()[..2].to_vec();
        shape.extend(vec![1; 3 - n]);
        shape.extend(&a.shape()[2..]);
        a.as_standard_layout().into_owned().into_shape_with_order(IxDyn(&shape)).map_err(|e| c.err(e.to_string()))
    };
    let sizes = |name: &str, fill| -> Result<[i64; 3]> { Ok(three(&c.ints(name)?, n, fill)) };
    let p = Conv {
        stride: sizes("stride", 1)?.map(|v| v as usize),
        pad: sizes("padding", 0)?,
        dilation: sizes("dilation", 1)?.map(|v| v as usize),
        groups: c.int("groups")? as usize,
    };
    let extra = if transposed { sizes("output_padding", 0)? } else { [0; 3] };
    let (x, w) = (wide(&x)?, wide(&w)?);
    let y = if transposed { scatter(c, &x, &w, &p, extra)? } else { gather(c, &x, &w, &p)? };
    let mut shape = y.shape()[..2].to_vec();
    shape.extend(&y.shape()[2 + 3 - n..]);
    let mut y = y.into_shape_with_order(IxDyn(&shape)).map_err(|e| c.err(e.to_string()))?;
    if let Some(b) = c.opt_array("bias")? {
        let mut lane = vec![1; shape.len()];
        lane[1] = shape[1];
        y += &b.to_f64().into_shape_with_order(IxDyn(&lane)).map_err(|e| c.err(e.to_string()))?;
    }
    let y = if batched { y } else { y.index_axis_move(Axis(0), 0) };
    Ok(Value::Array(Array::float(c.dtype(), y)))
}

/// For each output place the sum over its window. `x [n, ci, d, h, w]`, `w [co, ci/g, kd, kh, kw]`.
fn gather(c: &Ctx<'_>, x: &ArrayD<f64>, w: &ArrayD<f64>, p: &Conv) -> Result<ArrayD<f64>> {
    let (xs, ws) = (x.shape().to_vec(), w.shape().to_vec());
    let out = |i: usize| {
        let span = xs[i + 2] as i64 + 2 * p.pad[i] - (p.dilation[i] * (ws[i + 2] - 1)) as i64 - 1;
        (span.div_euclid(p.stride[i] as i64) + 1).max(0) as usize
    };
    let o = [out(0), out(1), out(2)];
    let (co, cg) = (ws[0], ws[1]);
    bounded(c, &[xs[0], co, o[0], o[1], o[2]])?;
    let mut y = ArrayD::zeros(IxDyn(&[xs[0], co, o[0], o[1], o[2]]));
    let at = |o: usize, k: usize, i: usize| {
        let v = (o * p.stride[i] + k * p.dilation[i]) as i64 - p.pad[i];
        usize::try_from(v).ok().filter(|v| *v < xs[i + 2])
    };
    for (n, f, g) in (0..xs[0]).flat_map(|n| (0..co).map(move |f| (n, f, f / (co / p.groups)))) {
        for (kd, kh, kw) in places(&ws[2..]) {
            for (od, oh) in (0..o[0]).flat_map(|d| (0..o[1]).map(move |h| (d, h))) {
                let (Some(d), Some(h)) = (at(od, kd, 0), at(oh, kh, 1)) else { continue };
                for ow in 0..o[2] {
                    let Some(v) = at(ow, kw, 2) else { continue };
                    let window = x.slice(s![n, g * cg..(g + 1) * cg, d, h, v]);
                    y[[n, f, od, oh, ow]] += window.dot(&w.slice(s![f, .., kd, kh, kw]));
                }
            }
        }
    }
    Ok(y)
}

/// Each input place added to the window that it reaches. `w [ci, co/g, kd, kh, kw]`.
fn scatter(c: &Ctx<'_>, x: &ArrayD<f64>, w: &ArrayD<f64>, p: &Conv, extra: [i64; 3]) -> Result<ArrayD<f64>> {
    let (xs, ws) = (x.shape().to_vec(), w.shape().to_vec());
    let out = |i: usize| {
        let span = (xs[i + 2] as i64 - 1) * p.stride[i] as i64 - 2 * p.pad[i];
        (span + (p.dilation[i] * (ws[i + 2] - 1)) as i64 + extra[i] + 1).max(0) as usize
    };
    let o = [out(0), out(1), out(2)];
    let cg = ws[1];
    bounded(c, &[xs[0], cg * p.groups, o[0], o[1], o[2]])?;
    let mut y = ArrayD::zeros(IxDyn(&[xs[0], cg * p.groups, o[0], o[1], o[2]]));
    let at = |i: usize, k: usize, d: usize| {
        let v = (i * p.stride[d] + k * p.dilation[d]) as i64 - p.pad[d];
        usize::try_from(v).ok().filter(|v| *v < o[d])
    };
    for (n, ci) in (0..xs[0]).flat_map(|n| (0..xs[1]).map(move |c| (n, c))) {
        let g = ci / (xs[1] / p.groups);
        for (kd, kh, kw) in places(&ws[2..]) {
            for (d, h, v) in places(&xs[2..]) {
                let (Some(od), Some(oh), Some(ow)) = (at(d, kd, 0), at(h, kh, 1), at(v, kw, 2)) else { continue };
                let mut lane = y.slice_mut(s![n, g * cg..(g + 1) * cg, od, oh, ow]);
                lane.scaled_add(x[[n, ci, d, h, v]], &w.slice(s![ci, .., kd, kh, kw]));
            }
        }
    }
    Ok(y)
}

fn places(n: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let (a, b, c) = (n[0], n[1], n[2]);
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}
