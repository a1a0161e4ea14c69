//! Reductions.

use super::host::Known;
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use cleave_ir::{Arg, Dim, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("ReduceMean", |c| reduce(c, 18, "aten.mean.dim")),
    ("ReduceSum", |c| reduce(c, 13, "aten.sum.dim_IntList")),
    ("ReduceMax", |c| reduce(c, 18, "aten.amax")),
    ("ReduceMin", |c| reduce(c, 18, "aten.amin")),
    ("ReduceSumSquare", |c| composed(c, |x| x * x, |y| y)),
    ("ReduceL1", |c| composed(c, Value::abs, |y| y)),
    ("ReduceL2", |c| composed(c, |x| x * x, Value::sqrt)),
    ("ReduceLogSum", |c| composed(c, |x| x, |y| y.op("aten.log", vec![]))),
    ("ReduceLogSumExp", |c| composed(c, Value::exp, |y| y.op("aten.log", vec![]))),
    ("ReduceProd", product),
    ("CumSum", |c| running(c, "aten.cumsum", 0)),
    ("CumProd", |c| running(c, "aten.cumprod", 1)),
    ("TopK", top_k),
    ("ArgMax", |c| arg(c, "aten.argmax")),
    ("ArgMin", |c| arg(c, "aten.argmin")),
];

/// The dimensions to reduce and whether they stay as 1; none if nothing is to be reduced. Axes are an input
/// from operator set `since` on.
fn axes(c: &Ctx<'_, '_>, since: i64, rank: usize) -> Step<Option<(Vec<i64>, bool)>> {
    let keep = c.flag("keepdims", true)?;
    let noop = c.flag("noop_with_empty_axes", false)?;
    let given = if c.opset < since { c.opt_list("axes")? } else { c.opt_ints(1)? };
    Ok(match given.filter(|a| !a.is_empty()) {
        Some(a) => Some((a, keep)),
        None if noop => None,
        None => Some(((0i64..).take(rank).collect(), keep)),
    })
}

fn reduce<'b>(c: &Ctx<'b, '_>, since: i64, op: &str) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    match axes(c, since, x.rank())? {
        Some((axes, keep)) => match nothing(c, x, op, &axes, keep)? {
            Some(y) => c.one(y),
            None => c.one(c.call(op, vec![x.into(), axes.into(), keep.into()])),
        },
        None => c.one(x),
    }
}

/// The greatest or least of no elements: the other end of what the type holds. torch knows none.
fn nothing<'b>(c: &Ctx<'b, '_>, x: Value<'b>, op: &str, axes: &[i64], keep: bool) -> Step<Option<Value<'b>>> {
    let shape = x.shape();
    let axes = axes.iter().map(|a| axis_of(*a, shape.len())).collect::<Step<Vec<_>>>()?;
    let greatest = op == "aten.amax";
    if !(greatest || op == "aten.amin") || !axes.iter().any(|a| shape[*a].is(0)) {
        return Ok(None);
    }
    let one = |(i, d): (usize, &Dim)| match axes.contains(&i) {
        false => Some(d.clone()),
        true => keep.then(|| 1.into()),
    };
    let sizes: Vec<Dim> = shape.iter().enumerate().filter_map(one).collect();
    let value: Arg = match x.dtype() {
        DType::Bool => (!greatest).into(),
        d if d.is_float() => (if greatest { f64::NEG_INFINITY } else { f64::INFINITY }).into(),
        d => {
            let (low, high) = d.int_range().map_or((i64::MIN, i64::MAX), |(l, h)| (l.into(), h.into()));
            (if greatest { low } else { high }).into()
        }
    };
    Ok(Some(c.call("aten.full", vec![sizes.into(), value, x.dtype().into()])))
}

/// A sum with a function before and one after it.
fn composed<'b>(
    c: &Ctx<'b, '_>,
    before: impl Fn(Value<'b>) -> Value<'b>,
    after: impl Fn(Value<'b>) -> Value<'b>,
) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let y = before(x);
    c.one(after(match axes(c, 18, x.rank())? {
        Some((axes, keep)) => c.call("aten.sum.dim_IntList", vec![y.into(), axes.into(), keep.into()]),
        None => y,
    }))
}

/// One dimension after the other, the last first.
fn product<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let mut x = c.value(0)?;
    let Some((axes, keep)) = axes(c, 18, x.rank())? else { return c.one(x) };
    let mut axes = axes.into_iter().map(|a| axis_of(a, x.rank())).collect::<Step<Vec<_>>>()?;
    axes.sort_unstable();
    for a in axes.into_iter().rev() {
        x = c.call("aten.prod.dim_int", vec![x.into(), a.into(), keep.into()]);
    }
    c.one(x)
}

/// Sums or products of all elements up to each, or from the end, or without the element itself.
fn running<'b>(c: &Ctx<'b, '_>, op: &str, neutral: i64) -> Step<Vec<Known<'b>>> {
    let (exclusive, reverse) = (c.flag("exclusive", false)?, c.flag("reverse", false)?);
    let x = c.value(0)?;
    let axis = c.opt_ints(1)?.and_then(|a| a.first().copied()).ok_or("axis is missing")?;
    let at = axis_of(axis, x.rank())?;
    let flip = |v: Value<'b>| if reverse { v.op("aten.flip", vec![vec![at].into()]) } else { v };
    let mut y = c.call(op, vec![flip(x).into(), at.into(), x.dtype().into()]);
    if exclusive {
        // Moved on by one place, the neutral element in front.
        let dims = x.rank() - at;
        let pads: Vec<i64> = (0..2 * dims).map(|i| i64::from(i == 2 * dims - 2)).collect();
        let value = if x.dtype().is_float() { Arg::Float(neutral as f64) } else { Arg::Int(neutral) };
        let moved = y.op("aten.constant_pad_nd", vec![pads.into(), value]);
        y = moved.op("aten.slice.Tensor", vec![at.into(), 0i64.into(), dim_of(x, at).into()]);
    }
    c.one(flip(y))
}

fn top_k<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, axis) = (c.value(0)?, c.int("axis", -1)?);
    let k = if c.opset < 10 { c.opt_int("k")? } else { c.opt_ints(1)?.and_then(|k| k.first().copied()) };
    let (largest, sorted) = (c.flag("largest", true)?, c.flag("sorted", true)?);
    let k = k.ok_or("k is missing")?;
    let both = c.call("aten.topk", vec![x.into(), k.into(), axis.into(), largest.into(), sorted.into()]);
    Ok((0..2).map(|i| Known::Value(c.b.getitem(both, i))).collect())
}

fn arg<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let (x, axis, keep) = (c.value(0)?, c.int("axis", 0)?, c.flag("keepdims", true)?);
    if c.flag("select_last_index", false)? {
        // The first in opposite order.
        let at = axis_of(axis, x.rank())?;
        let flipped = x.op("aten.flip", vec![vec![at].into()]);
        let first = flipped.op(op, vec![at.into(), keep.into()]);
        let last = first.op("aten.neg", vec![]).op("aten.add.Tensor", vec![(dim_of(x, at) - 1.into()).into()]);
        return c.one(last);
    }
    c.one(c.call(op, vec![x.into(), Arg::Int(axis), keep.into()]))
}
