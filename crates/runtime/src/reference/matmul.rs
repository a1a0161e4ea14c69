//! Matrix products, summed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::pointwise::zip;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, Ix2, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.linear.default", linear),
    ("aten.mm.default", |c| product(c, "self", "mat2")),
    ("aten.bmm.default", |c| product(c, "self", "mat2")),
    ("aten.matmul.default", |c| product(c, "self", "other")),
    ("aten.addmm.default", addmm),
];

fn linear(c: &Ctx<'_>) -> Result<Value> {
    let (x, w) = (c.array("input")?.to_f64(), c.array("weight")?.to_f64());
    let mut y = matmul(c, &x, &w.reversed_axes())?;
    if let Some(b) = c.opt_array("bias")? {
        y = zip(c, &y, &b.to_f64(), |y, b| y + b)?;
    }
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
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
