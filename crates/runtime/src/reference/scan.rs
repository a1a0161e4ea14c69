//! What runs along a dimension, one element after another; computed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Data, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.cumsum.default", |c| running(c, |p, q| p + q, i64::wrapping_add)),
    ("aten.cumprod.default", |c| running(c, |p, q| p * q, i64::wrapping_mul)),
    ("aten.logcumsumexp.default", |c| running(c, add_logarithms, |p, _| p)),
];

/// `log(exp(p) + exp(q))`.
fn add_logarithms(p: f64, q: f64) -> f64 {
    let (low, high) = (p.min(q), p.max(q));
    if p.is_nan() || q.is_nan() {
        f64::NAN
    } else if low == high && low.is_infinite() {
        low
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// Each element combined with all before it along the dimension.
fn running(c: &Ctx<'_>, f: fn(f64, f64) -> f64, i: fn(i64, i64) -> i64) -> Result<Value> {
    let mut x = c.array("self")?.cast(c.dtype());
    let axis = Axis(c.axis(c.int("dim")?, x.shape().len())?);
    fn run<T: Copy>(a: &mut ArrayD<T>, axis: Axis, f: fn(T, T) -> T) {
        if a.ndim() == 0 {
            return;
        }
        for mut lane in a.lanes_mut(axis) {
            for i in 1..lane.len() {
                lane[i] = f(lane[i - 1], lane[i]);
            }
        }
    }
    match &mut x.data {
        Data::Int(a) => run(a, axis, i),
        Data::Float(a) => run(a, axis, f),
    }
    Ok(match x.data {
        Data::Int(a) => Array::int(x.dtype, a),
        Data::Float(a) => Array::float(x.dtype, a),
    }
    .into())
}
