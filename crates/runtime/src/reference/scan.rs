//! What runs along a dimension, one element after another; computed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::reduce::{Rows, before};
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Axis};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.cumsum.default", |c| running(c, |p, q| p + q, i64::wrapping_add)),
    ("aten.cumprod.default", |c| running(c, |p, q| p * q, i64::wrapping_mul)),
    ("aten.logcumsumexp.default", |c| running(c, add_logarithms, |p, _| p)),
    ("aten.cummax.default", |c| best(c, true)),
    ("aten.cummin.default", |c| best(c, false)),
    ("aten.mode.default", mode),
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

/// The greatest or least element so far and the last place where it was; what is not a number stays.
fn best(c: &Ctx<'_>, greatest: bool) -> Result<Value> {
    let x = c.array("self")?;
    let axis = Axis(c.axis(c.int("dim")?, x.shape().len())?);
    fn run<T: Copy>(a: &ArrayD<T>, axis: Axis, keeps: impl Fn(T, T) -> bool) -> (ArrayD<T>, ArrayD<i64>) {
        let (mut values, mut places) = (a.clone(), a.mapv(|_| 0i64));
        if a.ndim() > 0 {
            for (mut lane, mut at) in values.lanes_mut(axis).into_iter().zip(places.lanes_mut(axis)) {
                for i in 1..lane.len() {
                    let stays = keeps(lane[i - 1], lane[i]);
                    at[i] = if stays { at[i - 1] } else { i as i64 };
                    lane[i] = if stays { lane[i - 1] } else { lane[i] };
                }
            }
        }
        (values, places)
    }
    let (values, places) = match &x.data {
        Data::Float(a) => {
            let (v, p) = run(a, axis, |p, q| before(p, q, greatest));
            (Array::float(x.dtype, v), p)
        }
        Data::Int(a) => {
            let (v, p) = run(a, axis, |p, q| if greatest { p > q } else { p < q });
            (Array::int(x.dtype, v), p)
        }
    };
    Ok(Value::List(vec![values.into(), Array::int(DType::I64, places).into()]))
}

/// The most frequent element of each row, the least of several, and the last place where it was.
fn mode(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let axes = if x.shape().is_empty() { vec![] } else { vec![c.axis(c.int("dim")?, x.shape().len())?] };
    let rows = Rows::new(x.shape(), &axes, c.bool("keepdim")?);
    if axes.iter().any(|a| x.shape()[*a] == 0) {
        return Err(c.err(format!("no elements to choose from in shape {:?}", x.shape())));
    }
    /// The last place of the longest run of equals in sorted order.
    fn place<T: Copy>(row: &[T], order: impl Fn(T, T) -> std::cmp::Ordering) -> usize {
        let mut at: Vec<usize> = (0..row.len()).collect();
        at.sort_by(|i, j| order(row[*i], row[*j]));
        let mut best = (0, 0);
        for run in at.chunk_by(|i, j| order(row[*i], row[*j]).is_eq()) {
            if run.len() > best.0 {
                best = (run.len(), run[run.len() - 1]);
            }
        }
        best.1
    }
    let (values, places) = match &x.data {
        Data::Float(a) => {
            // What is not a number stands behind all numbers.
            let order = |p: f64, q: f64| p.partial_cmp(&q).unwrap_or_else(|| p.is_nan().cmp(&q.is_nan()));
            let y = rows.fold(c, a, |row| {
                let i = place(row, order);
                (row[i], i as i64)
            })?;
            (Array::float(x.dtype, y.mapv(|v| v.0)), y.mapv(|v| v.1))
        }
        Data::Int(a) => {
            let y = rows.fold(c, a, |row| {
                let i = place(row, |p, q| p.cmp(&q));
                (row[i], i as i64)
            })?;
            (Array::int(x.dtype, y.mapv(|v| v.0)), y.mapv(|v| v.1))
        }
    };
    Ok(Value::List(vec![values.into(), Array::int(DType::I64, places).into()]))
}
