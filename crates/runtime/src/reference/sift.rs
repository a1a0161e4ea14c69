//! Places and numbers by what elements are.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Dimension, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.nonzero.default", |c| rows(c, &c.array("self")?, None)),
    ("aten.nonzero_static.default", |c| {
        let size = usize::try_from(c.int("size")?).map_err(|_| c.err("a negative size"))?;
        rows(c, &c.array("self")?, Some((size, c.int("fill_value")?)))
    }),
    ("aten._local_scalar_dense.default", item),
    ("aten.item.default", item),
    ("aten._assert_async.msg", |c| {
        let Value::Str(message) = c.arg("assert_msg")? else { return Err(c.err("expected a message")) };
        let holds = c.array("self")?.to_f64().iter().all(|v| *v != 0.0);
        if holds { Ok(Value::None) } else { Err(c.err(format!("does not hold: {message}"))) }
    }),
    ("aten.sym_storage_offset.default", |_| Ok(Value::Int(0))),
    ("aten.repeat_interleave.Tensor", repeat_interleave),
    ("aten.tril_indices.default", |c| triangle(c, |row, column, offset| column - row <= offset)),
    ("aten.triu_indices.default", |c| triangle(c, |row, column, offset| column - row >= offset)),
];

fn item(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let number = match &x.data {
        Data::Float(a) if a.len() == 1 => a.first().map(|v| Value::Float(*v)),
        Data::Int(a) if a.len() == 1 && x.dtype == DType::Bool => a.first().map(|v| Value::Bool(*v != 0)),
        Data::Int(a) if a.len() == 1 => a.first().map(|v| Value::Int(*v)),
        _ => None,
    };
    number.ok_or_else(|| c.err(format!("a tensor of shape {:?}, expected one element", x.shape())))
}

/// Indices at which elements are not zero.
pub fn nonzero(x: &Array) -> Vec<Vec<usize>> {
    let at = |i: &dyn Fn(&[usize]) -> bool| -> Vec<Vec<usize>> {
        ndarray::indices(IxDyn(x.shape())).into_iter().map(|p| p.slice().to_vec()).filter(|p| i(p)).collect()
    };
    match &x.data {
        Data::Float(a) => at(&|p| a[IxDyn(p)] != 0.0),
        Data::Int(a) => at(&|p| a[IxDyn(p)] != 0),
    }
}

/// Those indices as rows; of a number of rows that is given, the rest filled.
fn rows(c: &Ctx<'_>, x: &Array, size: Option<(usize, i64)>) -> Result<Value> {
    let rank = x.shape().len();
    let mut found = nonzero(x);
    let count = size.map_or(found.len(), |(n, _)| n);
    bounded(c, &[count, rank])?;
    found.truncate(count);
    let mut data: Vec<i64> = found.iter().flatten().map(|i| *i as i64).collect();
    data.resize(count * rank, size.map_or(0, |(_, fill)| fill));
    matrix(c, vec![count, rank], data)
}

fn matrix(c: &Ctx<'_>, shape: Vec<usize>, data: Vec<i64>) -> Result<Value> {
    let data = ArrayD::from_shape_vec(shape, data).map_err(|e| c.err(e.to_string()))?;
    Ok(Array::int(c.dtype(), data).into())
}

fn repeat_interleave(c: &Ctx<'_>) -> Result<Value> {
    let repeats = c.array("repeats")?.to_i64();
    let total = repeats.iter().try_fold(0usize, |sum, n| sum.checked_add(usize::try_from(*n).ok()?));
    let total = total.ok_or_else(|| c.err("a negative number of repeats"))?;
    bounded(c, &[total])?;
    if let Some(size) = c.opt_int("output_size")?.filter(|size| *size != total as i64) {
        return Err(c.err(format!("{total} elements, expected {size}")));
    }
    let data: Vec<i64> = repeats.iter().enumerate().flat_map(|(i, n)| vec![i as i64; *n as usize]).collect();
    matrix(c, vec![total], data)
}

fn triangle(c: &Ctx<'_>, inside: fn(i64, i64, i64) -> bool) -> Result<Value> {
    let (rows, columns, offset) = (c.int("row")?, c.int("col")?, c.int("offset")?);
    let sizes = [rows, columns].map(|n| usize::try_from(n).unwrap_or(0));
    bounded(c, &sizes)?;
    let places = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    let found: Vec<(i64, i64)> = places.filter(|(i, j)| inside(*i, *j, offset)).collect();
    let data: Vec<i64> = found.iter().map(|(i, _)| *i).chain(found.iter().map(|(_, j)| *j)).collect();
    matrix(c, vec![2, found.len()], data)
}
