//! Reductions, summed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.mean.dim", |c| {
        let x = c.array("self")?.cast(c.dtype()).to_f64();
        floats(c, rows(c, x.shape())?.fold(c, &x, |row| row.iter().sum::<f64>() / row.len() as f64)?)
    }),
    ("aten.sum.dim_IntList", |c| total(c, |row| row.iter().sum(), |row| row.iter().fold(0, |a, b| a.wrapping_add(*b)))),
    ("aten.prod.dim_int", |c| {
        total(c, |row| row.iter().product(), |row| row.iter().fold(1, |a, b| a.wrapping_mul(*b)))
    }),
    ("aten.any.dim", |c| truth(c, |row| row.contains(&true))),
    ("aten.all.dim", |c| truth(c, |row| !row.contains(&false))),
    ("aten.amax.default", |c| Ok(extreme(c, true)?.0.into())),
    ("aten.amin.default", |c| Ok(extreme(c, false)?.0.into())),
    ("aten.max.dim", |c| {
        let (values, index) = extreme(c, true)?;
        Ok(Value::List(vec![values.into(), index.into()]))
    }),
    ("aten.min.dim", |c| {
        let (values, index) = extreme(c, false)?;
        Ok(Value::List(vec![values.into(), index.into()]))
    }),
    ("aten.argmax.default", |c| Ok(extreme(c, true)?.1.into())),
    ("aten.argmin.default", |c| Ok(extreme(c, false)?.1.into())),
    ("aten.var.correction", var),
];

/// Some dimensions of a tensor moved last, in their order, and taken as one.
pub struct Rows {
    order: Vec<usize>,
    /// Elements of a row.
    len: usize,
    /// How many rows there are.
    count: usize,
    /// The shape of a result with one element for each row.
    shape: Vec<usize>,
}

impl Rows {
    /// The rows of a tensor of this shape along `axes`; a result keeps these as sizes of 1, if asked.
    pub fn new(shape: &[usize], axes: &[usize], keep: bool) -> Rows {
        let (over, kept): (Vec<usize>, Vec<usize>) = (0..shape.len()).partition(|i| axes.contains(i));
        let size = |v: &[usize]| v.iter().map(|i| shape[*i]).product();
        let result = (0..shape.len())
            .filter(|i| keep || !axes.contains(i))
            .map(|i| if axes.contains(&i) { 1 } else { shape[i] })
            .collect();
        Rows { len: size(&over), count: size(&kept), shape: result, order: [kept, over].concat() }
    }

    /// What `f` gives for each row.
    pub fn map<T: Copy, R>(&self, a: &ArrayD<T>, f: impl Fn(&[T]) -> R) -> Vec<R> {
        let moved: Vec<T> = a.view().permuted_axes(IxDyn(&self.order)).iter().copied().collect();
        (0..self.count).map(|i| f(&moved[i * self.len..(i + 1) * self.len])).collect()
    }

    /// What `f` gives for each row, as a tensor.
    ///
    /// # Errors
    /// None that a tensor of the shape given to [`Rows::new`] could meet.
    pub fn fold<T: Copy, R>(&self, c: &Ctx<'_>, a: &ArrayD<T>, f: impl Fn(&[T]) -> R) -> Result<ArrayD<R>> {
        ArrayD::from_shape_vec(IxDyn(&self.shape), self.map(a, f)).map_err(|e| c.err(e.to_string()))
    }
}

/// The rows that a call reduces: those of `dim`, or of all dimensions.
fn rows(c: &Ctx<'_>, shape: &[usize]) -> Result<Rows> {
    let axes = match c.opt_ints("dim")? {
        Some(d) if !d.is_empty() => d.iter().map(|a| c.axis(*a, shape.len())).collect::<Result<Vec<_>>>()?,
        _ => (0..shape.len()).collect(),
    };
    Ok(Rows::new(shape, &axes, c.bool("keepdim")?))
}

fn floats(c: &Ctx<'_>, y: ArrayD<f64>) -> Result<Value> {
    Ok(Array::from_f64(c.dtype(), y).into())
}

fn total(c: &Ctx<'_>, f: fn(&[f64]) -> f64, i: fn(&[i64]) -> i64) -> Result<Value> {
    let x = c.array("self")?.cast(c.dtype());
    let rows = rows(c, x.shape())?;
    match &x.data {
        Data::Int(a) => Ok(Array::int(c.dtype(), rows.fold(c, a, i)?).into()),
        Data::Float(a) => floats(c, rows.fold(c, a, f)?),
    }
}

fn truth(c: &Ctx<'_>, f: fn(&[bool]) -> bool) -> Result<Value> {
    let x = c.array("self")?.to_f64().mapv(|v| v != 0.0);
    let y = rows(c, x.shape())?.fold(c, &x, f)?;
    Ok(Array::int(DType::Bool, y.mapv(i64::from)).into())
}

/// Whether `p` is to be preferred to `q`; NaN is preferred to numbers by both orders, as in torch.
pub fn before(p: f64, q: f64, greatest: bool) -> bool {
    match (p.is_nan(), q.is_nan()) {
        (false, false) => {
            if greatest {
                p > q
            } else {
                p < q
            }
        }
        (p, q) => p && !q,
    }
}

/// The greatest or least element of each row, and the first place where it is.
fn extreme(c: &Ctx<'_>, greatest: bool) -> Result<(Array, Array)> {
    let x = c.array("self")?;
    let rows = rows(c, x.shape())?;
    if rows.len == 0 && rows.count > 0 {
        return Err(c.err(format!("no elements to choose from in shape {:?}", x.shape())));
    }
    fn first<T: Copy>(row: &[T], better: impl Fn(T, T) -> bool) -> usize {
        (1..row.len()).fold(0, |best, i| if better(row[i], row[best]) { i } else { best })
    }
    let (values, index) = match &x.data {
        Data::Float(a) => {
            let y = rows.fold(c, a, |row| {
                let i = first(row, |p, q| before(p, q, greatest));
                (row[i], i as i64)
            })?;
            (Array::float(x.dtype, y.mapv(|v| v.0)), y.mapv(|v| v.1))
        }
        Data::Int(a) => {
            let y = rows.fold(c, a, |row| {
                let i = first(row, |p, q| if greatest { p > q } else { p < q });
                (row[i], i as i64)
            })?;
            (Array::int(x.dtype, y.mapv(|v| v.0)), y.mapv(|v| v.1))
        }
    };
    Ok((values, Array::int(DType::I64, index)))
}

fn var(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?.cast(c.dtype()).to_f64();
    let correction = c.opt_float("correction")?.unwrap_or(1.0);
    let y = rows(c, x.shape())?.fold(c, &x, |row| variance(row, correction))?;
    floats(c, y)
}

/// `Σ(x - mean)² / max(0, n - correction)` of one row.
pub fn variance(row: &[f64], correction: f64) -> f64 {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - correction).max(0.0)
}
