//! What orders elements. Elements of either kind are compared by integer keys.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::{bounded, pick, steps};
use super::reduce::Rows;
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Axis, IxDyn};
use std::cmp::Reverse;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.sort.default", |c| sort(c, None, c.bool("descending")?)),
    ("aten.sort.stable", |c| sort(c, None, c.bool("descending")?)),
    ("aten.topk.default", |c| sort(c, Some(c.int("k")?), c.bool("largest")?)),
    ("aten.kthvalue.default", |c| {
        let k = c.int("k")?;
        one_of_each(c, move |row| usize::try_from(k - 1).ok().and_then(|k| sorted(row, false).get(k).copied()))
    }),
    ("aten.mode.default", |c| one_of_each(c, mode)),
    ("aten.median.dim", |c| one_of_each(c, median)),
    ("aten.nanmedian.dim", |c| one_of_each(c, nanmedian)),
    ("aten.median.default", |c| one_of_all(c, median)),
    ("aten.nanmedian.default", |c| one_of_all(c, nanmedian)),
    ("aten.cummax.default", |c| cumulative(c, |new, old| new >= old)),
    ("aten.cummin.default", |c| cumulative(c, |new, old| new == NAN || (old != NAN && new <= old))),
    ("aten.searchsorted.Tensor", searchsorted),
    ("aten._unique2.default", |c| unique(c, None, false)),
    ("aten.unique_dim.default", |c| unique(c, Some(c.int("dim")?), false)),
    ("aten.unique_consecutive.default", |c| unique(c, c.opt_int("dim")?, true)),
    ("aten.unique_dim_consecutive.default", |c| unique(c, Some(c.int("dim")?), true)),
];

/// The key of what is not a number: it counts as the greatest.
const NAN: i64 = i64::MAX;

/// A number's key: keys compare as the numbers do.
fn key(v: f64) -> i64 {
    if v.is_nan() {
        return NAN;
    }
    let bits = (v + 0.0).to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

fn keys(x: &Array) -> ArrayD<i64> {
    match &x.data {
        Data::Float(a) => a.mapv(key),
        Data::Int(a) => a.clone(),
    }
}

/// Places of a row in order, equal elements as they stand.
fn sorted(row: &[i64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    if descending {
        order.sort_by_key(|i| Reverse(row[*i]));
    } else {
        order.sort_by_key(|i| row[*i]);
    }
    order
}

/// Elements that `f` picks from each row along a dimension, `k` of each, and where they were.
fn picked(
    c: &Ctx<'_>,
    x: &Array,
    axis: usize,
    k: usize,
    f: impl Fn(&[i64]) -> Result<Vec<usize>>,
) -> Result<(Array, Array)> {
    let rank = x.shape().len();
    let mut shape = x.shape().to_vec();
    match shape.get_mut(axis) {
        Some(n) => *n = k,
        None if k != 1 => return Err(c.err(format!("{k} elements of one"))),
        None => {}
    }
    bounded(c, &shape)?;
    let rows = Rows::new(x.shape(), &[axis], false).map(&keys(x), f).into_iter().collect::<Result<Vec<_>>>()?;
    // Rows are numbered by the other dimensions.
    let other: Vec<usize> = (0..rank).filter(|d| *d != axis).collect();
    let outer = steps(&other.iter().map(|d| shape[*d]).collect::<Vec<_>>());
    let which = |at: &[usize]| {
        let row: usize = other.iter().zip(&outer).map(|(d, s)| at[*d] * s).sum();
        rows[row][at.get(axis).copied().unwrap_or(0)]
    };
    let from = steps(x.shape());
    let values = pick(c, x, &shape, |at| {
        let place = |(d, i): (usize, &usize)| if d == axis { which(at) * from[d] } else { i * from[d] };
        Ok(at.iter().enumerate().map(place).sum())
    })?;
    let index = ArrayD::from_shape_fn(IxDyn(&shape), |at| which(ndarray::Dimension::slice(&at)) as i64);
    Ok((values, Array::int(DType::I64, index)))
}

fn both((values, index): (Array, Array)) -> Value {
    Value::List(vec![values.into(), index.into()])
}

/// The first `k` elements of each row in order, or all.
fn sort(c: &Ctx<'_>, k: Option<i64>, descending: bool) -> Result<Value> {
    let x = c.array("self")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    let n = x.shape().get(axis).copied().unwrap_or(1);
    let k = match k.map(|k| (k, usize::try_from(k))) {
        None => n,
        Some((_, Ok(k))) if k <= n => k,
        Some((k, _)) => return Err(c.err(format!("{k} of {n} elements"))),
    };
    let first = |row: &[i64]| Ok(sorted(row, descending).into_iter().take(k).collect());
    Ok(both(picked(c, &x, axis, k, first)?))
}

/// One element of each row, which `f` picks.
fn one_of_each(c: &Ctx<'_>, f: impl Fn(&[i64]) -> Option<usize>) -> Result<Value> {
    let x = c.array("self")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    let one = |row: &[i64]| f(row).map(|i| vec![i]).ok_or_else(|| c.err("no such element in a row"));
    let (mut values, mut index) = picked(c, &x, axis, 1, one)?;
    if !c.bool("keepdim")? && !x.shape().is_empty() {
        let axis = Axis(axis);
        let drop =
            |a: Array| a.moved(|v| Ok(v.clone().index_axis_move(axis, 0)), |v| Ok(v.clone().index_axis_move(axis, 0)));
        (values, index) = (drop(values)?, drop(index)?);
    }
    Ok(both((values, index)))
}

/// One of all elements; without elements, not a number.
fn one_of_all(c: &Ctx<'_>, f: fn(&[i64]) -> Option<usize>) -> Result<Value> {
    let x = c.array("self")?;
    let row: Vec<i64> = keys(&x).into_iter().collect();
    Ok(match f(&row) {
        Some(i) => pick(c, &x, &[], |_| Ok(i))?,
        None => Array::from_f64(x.dtype, ArrayD::from_elem(IxDyn(&[]), f64::NAN)),
    }
    .into())
}

fn median(row: &[i64]) -> Option<usize> {
    let order = sorted(row, false);
    row.iter().position(|k| *k == NAN).or_else(|| order.get(order.len().checked_sub(1)? / 2).copied())
}

fn nanmedian(row: &[i64]) -> Option<usize> {
    let order = sorted(row, false);
    let numbers = row.iter().filter(|k| **k != NAN).count();
    order.get(numbers.saturating_sub(1) / 2).copied()
}

fn mode(row: &[i64]) -> Option<usize> {
    let order = sorted(row, false);
    let mut best: Option<(usize, usize)> = None;
    for run in order.chunk_by(|a, b| row[*a] == row[*b]) {
        if best.is_none_or(|(n, _)| run.len() > n) {
            best = run.last().map(|i| (run.len(), *i));
        }
    }
    best.map(|(_, i)| i)
}

fn cumulative(c: &Ctx<'_>, takes: fn(i64, i64) -> bool) -> Result<Value> {
    let x = c.array("self")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    let n = x.shape().get(axis).copied().unwrap_or(1);
    let run = |row: &[i64]| {
        let mut best = 0;
        let next = |i: usize| {
            if takes(row[i], row[best]) {
                best = i;
            }
            best
        };
        Ok((0..row.len()).map(next).collect())
    };
    Ok(both(picked(c, &x, axis, n, run)?))
}

fn searchsorted(c: &Ctx<'_>) -> Result<Value> {
    let (sequence, x) = (c.array("sorted_sequence")?, c.array("self")?);
    let side = match c.arg("side")? {
        Value::Str(s) => s == "right",
        _ => false,
    };
    let right = side || c.bool("right")?;
    let Some((&n, lead)) = sequence.shape().split_last() else { return Err(c.err("a sequence without dimensions")) };
    let fits = lead.is_empty() || x.shape().split_last().is_some_and(|(_, l)| l == lead);
    if !fits {
        return Err(c.err(format!("elements of shape {:?} in rows of shape {:?}", x.shape(), sequence.shape())));
    }
    let order: Option<Vec<i64>> = c.opt_array("sorter")?.map(|s| s.to_i64().into_iter().collect());
    if order
        .as_ref()
        .is_some_and(|o| o.len() != sequence.to_f64().len() || o.iter().any(|i| !(0..n as i64).contains(i)))
    {
        return Err(c.err("a sorter that is no order of the sequence"));
    }
    let flat: Vec<f64> = sequence.to_f64().into_iter().collect();
    let width = x.shape().last().copied().unwrap_or(1).max(1);
    let found = x.to_f64().into_iter().enumerate().map(|(i, v)| {
        let row = if lead.is_empty() { 0 } else { i / width * n };
        let at = |k: usize| flat[row + order.as_ref().map_or(k, |o| o[row + k] as usize)];
        let (mut from, mut to) = (0, n);
        while from < to {
            let middle = (from + to) / 2;
            let behind = if right { at(middle) > v } else { at(middle) >= v };
            if behind { to = middle } else { from = middle + 1 }
        }
        from as i64
    });
    let found = ArrayD::from_shape_vec(x.shape(), found.collect()).map_err(|e| c.err(e.to_string()))?;
    Ok(Array::int(c.dtype(), found).into())
}

/// Different elements, or parts along a dimension: in order, or as they follow one another.
fn unique(c: &Ctx<'_>, dim: Option<i64>, consecutive: bool) -> Result<Value> {
    let x = c.array("self")?;
    let keys = keys(&x);
    let axis = dim.map(|d| c.axis(d, x.shape().len())).transpose()?;
    // One row of keys for each part.
    let parts: Vec<Vec<i64>> = match axis {
        Some(axis) if axis < x.shape().len() => {
            keys.axis_iter(Axis(axis)).map(|part| part.iter().copied().collect()).collect()
        }
        Some(_) => return Err(c.err("a tensor without dimensions")),
        None => keys.iter().map(|k| vec![*k]).collect(),
    };
    let mut order: Vec<usize> = (0..parts.len()).collect();
    if !consecutive {
        order.sort_by(|p, q| parts[*p].cmp(&parts[*q]));
    }
    let float = x.dtype.is_float();
    let equal = |p: usize, q: usize| parts[p] == parts[q] && !(float && parts[p].contains(&NAN));
    let runs: Vec<&[usize]> = order.chunk_by(|p, q| equal(*p, *q)).collect();
    let mut inverse = vec![0i64; parts.len()];
    for (i, run) in runs.iter().enumerate() {
        run.iter().for_each(|p| inverse[*p] = i as i64);
    }
    let counts: Vec<i64> = runs.iter().map(|run| run.len() as i64).collect();
    let (from, mut shape) = (steps(x.shape()), vec![runs.len()]);
    if let Some(axis) = axis {
        shape = x.shape().to_vec();
        shape[axis] = runs.len();
    }
    let values = pick(c, &x, &shape, |at| match axis {
        None => Ok(runs[at[0]][0]),
        Some(axis) => {
            let place = |(d, i): (usize, &usize)| if d == axis { runs[*i][0] * from[d] } else { i * from[d] };
            Ok(at.iter().enumerate().map(place).sum())
        }
    })?;
    let has = |name: &str| c.bool(name).unwrap_or(false) || axis.is_some();
    let index = |shape: Vec<usize>, data: Vec<i64>| -> Result<Value> {
        let a = ArrayD::from_shape_vec(shape, data).map_err(|e| c.err(e.to_string()))?;
        Ok(Array::int(DType::I64, a).into())
    };
    let own = if axis.is_some() { vec![parts.len()] } else { x.shape().to_vec() };
    let inverse = if has("return_inverse") { index(own, inverse)? } else { index(vec![0], vec![])? };
    let counts = if has("return_counts") { index(vec![counts.len()], counts)? } else { index(vec![0], vec![])? };
    Ok(Value::List(vec![values.into(), inverse, counts]))
}
