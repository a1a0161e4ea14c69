//! Elements joined, padded, repeated and turned around.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::{bounded, pick, steps};
use super::value::{Array, Data, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, Dimension, IxDyn, concatenate};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.cat.default", cat),
    ("aten.constant_pad_nd.default", pad),
    ("aten.repeat.default", repeat),
    ("aten.flip.default", flip),
];

fn cat(c: &Ctx<'_>) -> Result<Value> {
    // torch leaves out the legacy empty tensor of shape [0].
    let all = c.arrays("tensors")?;
    let arrays: Vec<Array> = all.iter().filter(|a| a.shape() != [0]).map(|a| a.cast(c.dtype())).collect();
    let Some(first) = arrays.first() else {
        return all.first().map(|a| a.cast(c.dtype()).into()).ok_or_else(|| c.err("no tensors"));
    };
    let axis = Axis(c.axis(c.int("dim")?, first.shape().len())?);
    let fail = |e: ndarray::ShapeError| c.err(e.to_string());
    let floats: Vec<_> =
        arrays.iter().filter_map(|a| if let Data::Float(x) = &a.data { Some(x.view()) } else { None }).collect();
    let ints: Vec<_> =
        arrays.iter().filter_map(|a| if let Data::Int(x) = &a.data { Some(x.view()) } else { None }).collect();
    let data = if ints.is_empty() {
        Data::Float(concatenate(axis, &floats).map_err(fail)?)
    } else {
        Data::Int(concatenate(axis, &ints).map_err(fail)?)
    };
    Ok(Value::Array(Array { dtype: c.dtype(), data }))
}

/// A shape after padding: for each dimension its new size and how far its elements are moved.
fn padded(c: &Ctx<'_>, shape: &[usize], pads: &[i64]) -> Result<(Vec<usize>, Vec<i64>)> {
    let wrong = || c.err(format!("pads {pads:?} of {shape:?}"));
    let (mut to, mut moved) = (shape.to_vec(), vec![0; shape.len()]);
    for (i, pair) in pads.chunks(2).enumerate() {
        let (&[a, b], Some(axis)) = (pair, shape.len().checked_sub(i + 1)) else { return Err(wrong()) };
        let size = (shape[axis] as i64).checked_add(a).and_then(|n| n.checked_add(b));
        to[axis] = size.and_then(|n| usize::try_from(n).ok()).ok_or_else(wrong)?;
        moved[axis] = a;
    }
    bounded(c, &to)?;
    Ok((to, moved))
}

/// The index of the element that a padded tensor has at `at`, which lies outside where the padding is.
fn unmoved(at: &[usize], moved: &[i64]) -> Vec<i64> {
    at.iter().zip(moved).map(|(i, by)| *i as i64 - by).collect()
}

fn pad(c: &Ctx<'_>) -> Result<Value> {
    let (x, value) = (c.array("self")?, c.array("value")?.cast(c.dtype()));
    let (shape, moved) = padded(c, x.shape(), &c.ints("pad")?)?;
    fn filled<T: Copy>(x: &ArrayD<T>, fill: &ArrayD<T>, shape: &[usize], moved: &[i64]) -> Option<ArrayD<T>> {
        let fill = *fill.first()?;
        Some(ArrayD::from_shape_fn(IxDyn(shape), |at| {
            let from = unmoved(at.slice(), moved);
            let from = from.into_iter().map(|i| usize::try_from(i).unwrap_or(usize::MAX)).collect::<Vec<_>>();
            x.get(IxDyn(&from)).copied().unwrap_or(fill)
        }))
    }
    let data = match (&x.data, &value.data) {
        (Data::Float(a), Data::Float(v)) => filled(a, v, &shape, &moved).map(Data::Float),
        (Data::Int(a), Data::Int(v)) => filled(a, v, &shape, &moved).map(Data::Int),
        _ => None,
    };
    let data = data.ok_or_else(|| c.err("expected one number to pad with"))?;
    Ok(Array { dtype: x.dtype, data }.into())
}

fn repeat(c: &Ctx<'_>) -> Result<Value> {
    let (x, repeats) = (c.array("self")?, c.sizes("repeats")?);
    let lead = repeats.len().checked_sub(x.shape().len());
    let lead = lead.ok_or_else(|| c.err(format!("{} repeats of {:?}", repeats.len(), x.shape())))?;
    let own = [vec![1; lead], x.shape().to_vec()].concat();
    let shape: Vec<usize> = own.iter().zip(&repeats).map(|(n, r)| n.saturating_mul(*r)).collect();
    let from = steps(&own);
    let y = pick(c, &x, &shape, |at| Ok(at.iter().zip(&own).zip(&from).map(|((i, n), s)| i % n * s).sum()))?;
    Ok(y.into())
}

fn flip(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let axes = c.ints("dims")?.iter().map(|d| c.axis(*d, x.shape().len())).collect::<Result<Vec<_>>>()?;
    let from = steps(x.shape());
    let y = pick(c, &x, x.shape(), |at| {
        let place = |d: usize| if axes.contains(&d) { x.shape()[d] - 1 - at[d] } else { at[d] };
        Ok((0..at.len()).map(|d| place(d) * from[d]).sum())
    })?;
    Ok(y.into())
}
