//! Reductions.

use super::host::Known;
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Value};

pub(super) const OPS: &[(&str, Map)] = &[
    ("ReduceMean", |c| reduce(c, 18, "aten.mean.dim")),
    ("ReduceSum", |c| reduce(c, 13, "aten.sum.dim_IntList")),
    ("ReduceMax", |c| reduce(c, 18, "aten.amax")),
    ("ReduceMin", |c| reduce(c, 18, "aten.amin")),
    ("ReduceSumSquare", |c| composed(c, |x| x * x, |y| y)),
    ("ReduceL1", |c| composed(c, Value::abs, |y| y)),
    ("ReduceL2", |c| composed(c, |x| x * x, Value::sqrt)),
    ("ReduceLogSum", |c| composed(c, |x| x, |y| y.op("aten.log", vec![]))),
    ("ReduceLogSumExp", |c| reduce(c, 18, "aten.logsumexp")),
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
        Some((axes, keep)) => c.one(c.call(op, vec![x.into(), axes.into(), keep.into()])),
        None => c.one(x),
    }
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

fn arg<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let (x, axis, keep) = (c.value(0)?, c.int("axis", 0)?, c.flag("keepdims", true)?);
    if c.flag("select_last_index", false)? {
        return Err("select_last_index is not supported".into());
    }
    c.one(c.call(op, vec![x.into(), Arg::Int(axis), keep.into()]))
}
