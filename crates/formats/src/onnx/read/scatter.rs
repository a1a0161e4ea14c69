//! Elements written, picked and sorted out by indices.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use cleave_ir::{Dim, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Trilu", |c| {
        let (x, k) = (c.value(0)?, c.opt_ints(1)?.and_then(|k| k.first().copied()).unwrap_or(0));
        let op = if c.flag("upper", true)? { "aten.triu" } else { "aten.tril" };
        c.one(c.call(op, vec![x.into(), k.into()]))
    }),
    ("Scatter", scatter_elements),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
    ("GatherND", gather_nd),
    ("Compress", compress),
    ("OneHot", one_hot),
    ("ReverseSequence", reverse_sequence),
    ("TensorScatter", tensor_scatter),
    ("NonZero", |c| {
        let x = c.value(0)?;
        let places = c.call("aten.nonzero", vec![x.into()]);
        c.one(places.permute(vec![1, 0]))
    }),
    ("Unique", unique),
];

/// Indices counted from the start, where negative ones count from the end of a dimension of this size.
pub(super) fn from_start<'b>(c: &Ctx<'b, '_>, i: usize, n: &Dim) -> Step<Value<'b>> {
    let index = c.value(i)?;
    if let Some(h) = c.host(i)
        && h.as_ints().is_some_and(|v| v.iter().all(|v| *v >= 0))
    {
        return Ok(index.to(DType::I64));
    }
    Ok(counted(index.to(DType::I64), n))
}

fn counted<'b>(index: Value<'b>, n: &Dim) -> Value<'b> {
    let back = index.op("aten.add.Tensor", vec![n.clone().into()]);
    let negative = index.op("aten.lt.Scalar", vec![0i64.into()]);
    negative.op("aten.where.self", vec![back.into(), index.into()])
}

/// torch's name for what is done with values that meet; none where the last one stays.
fn reduction<'m>(c: &Ctx<'_, 'm>) -> Step<Option<&'m str>> {
    Ok(match c.str("reduction", "none")? {
        "none" => None,
        "add" => Some("sum"),
        "mul" => Some("prod"),
        "max" => Some("amax"),
        "min" => Some("amin"),
        other => return Err(format!("attribute 'reduction': found '{other}'")),
    })
}

fn scattered<'b>(c: &Ctx<'b, '_>, x: Value<'b>, axis: usize, index: Value<'b>, from: Value<'b>) -> Step<Value<'b>> {
    Ok(match reduction(c)? {
        None => c.call("aten.scatter.src", vec![x.into(), axis.into(), index.into(), from.into()]),
        Some(how) => {
            c.call("aten.scatter_reduce.two", vec![x.into(), axis.into(), index.into(), from.into(), how.into()])
        }
    })
}

fn scatter_elements<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, from) = (c.value(0)?, c.value(2)?);
    let axis = axis_of(c.int("axis", 0)?, x.rank())?;
    let index = from_start(c, 1, &dim_of(x, axis))?;
    c.one(scattered(c, x, axis, index, from)?)
}

/// Rows of coordinates as numbers of elements in the first dimensions taken as one, and how many those are.
fn row_numbers<'b>(index: Value<'b>, sizes: &[Dim]) -> Value<'b> {
    let last = index.rank() - 1;
    let mut all: Option<Value<'b>> = None;
    for (j, n) in sizes.iter().enumerate() {
        let one = counted(index.op("aten.select.int", vec![last.into(), j.into()]), n);
        all = Some(match all {
            None => one,
            Some(v) => v.op("aten.mul.Tensor", vec![n.clone().into()]) + one,
        });
    }
    all.unwrap_or(index)
}

/// How many coordinates each index has.
fn coordinates(index: Value<'_>, rank: usize) -> Step<usize> {
    let k = index.shape().last().and_then(Dim::as_const).and_then(|k| usize::try_from(k).ok());
    k.filter(|k| (1..=rank).contains(k)).ok_or_else(|| format!("indices of shape {:?} into rank {rank}", index.shape()))
}

fn scatter_nd<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, index, from) = (c.value(0)?, c.value(1)?.to(DType::I64), c.value(2)?);
    let shape = x.shape();
    let k = coordinates(index, shape.len())?;
    let rows = row_numbers(index, &shape[..k]);
    // The first k dimensions as one, the rest as another; a row of the index goes along that one.
    let (count, width): (Dim, Dim) = (shape[..k].iter().cloned().product(), shape[k..].iter().cloned().product());
    let places: Dim = index.shape()[..index.rank() - 1].iter().cloned().product();
    let flat = |v: Value<'b>, n: Dim| v.op("aten.reshape", vec![vec![n, width.clone()].into()]);
    let rows = rows.op("aten.reshape", vec![vec![places.clone(), 1.into()].into()]);
    let rows = rows.op("aten.expand", vec![vec![places.clone(), width.clone()].into()]);
    let y = scattered(c, flat(x, count), 0, rows, flat(from, places))?;
    c.one(y.op("aten.reshape", vec![shape.into()]))
}

fn gather_nd<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, index) = (c.value(0)?, c.value(1)?.to(DType::I64));
    let (shape, at) = (x.shape(), index.shape());
    let batch = usize::try_from(c.int("batch_dims", 0)?).map_err(|e| e.to_string())?;
    if batch >= shape.len() || batch >= at.len() {
        return Err(format!("batch_dims {batch} of ranks {} and {}", shape.len(), at.len()));
    }
    let k = coordinates(index, shape.len() - batch)?;
    let mut rows = row_numbers(index, &shape[batch..batch + k]);
    let inner: Dim = shape[batch..batch + k].iter().cloned().product();
    let outer: Dim = shape[..batch].iter().cloned().product();
    if batch > 0 {
        // The numbers of the elements before a batch's own are added.
        let end = outer.clone() * inner.clone();
        let first =
            c.b.call("aten.arange.start_step", vec![0i64.into(), end.into(), inner.clone().into(), DType::I64.into()]);
        let ones = vec![Dim::from(1); at.len() - 1 - batch];
        let sizes = [shape[..batch].to_vec(), ones].concat();
        rows = rows + first.op("aten.reshape", vec![sizes.into()]);
    }
    let rest = &shape[batch + k..];
    let flat = x.op("aten.reshape", vec![[&[outer * inner], rest].concat().into()]);
    let rows = rows.op("aten.reshape", vec![vec![-1i64].into()]);
    let y = flat.op("aten.index_select", vec![0i64.into(), rows.into()]);
    c.one(c.call("aten.reshape", vec![y.into(), [&at[..at.len() - 1], rest].concat().into()]))
}

/// The slices whose condition holds; a condition may be shorter than its dimension.
fn compress<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (mut x, condition) = (c.value(0)?, c.value(1)?);
    let axis = match c.opt_int("axis")? {
        Some(a) => axis_of(a, x.rank())?,
        None => {
            x = x.op("aten.reshape", vec![vec![-1i64].into()]);
            0
        }
    };
    let places = condition.op("aten.nonzero", vec![]).op("aten.reshape", vec![vec![-1i64].into()]);
    c.one(c.call("aten.index_select", vec![x.into(), axis.into(), places.into()]))
}

fn one_hot<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (index, values) = (c.value(0)?, c.value(2)?);
    let depth = Host::tensor("", c.constant(1)?).as_ints().and_then(|d| d.first().copied());
    let depth = depth.filter(|d| (0..1 << 31).contains(d)).ok_or("input 1: expected a size")?;
    let axis = axis_of(c.int("axis", -1)?, index.rank() + 1)?;
    let index = counted(index.to(DType::I64), &depth.into()).op("aten.unsqueeze", vec![axis.into()]);
    let places = c.b.call("aten.arange.start_step", vec![0i64.into(), depth.into(), 1i64.into(), DType::I64.into()]);
    let sizes: Vec<i64> = (0..index.rank()).map(|i| if i == axis { depth } else { 1 }).collect();
    let hot = index.op("aten.eq.Tensor", vec![places.op("aten.reshape", vec![sizes.into()]).into()]);
    let value = |i: i64| values.op("aten.select.int", vec![0i64.into(), i.into()]);
    c.one(c.call("aten.where.self", vec![hot.into(), value(1).into(), value(0).into()]))
}

fn reverse_sequence<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, lens) = (c.value(0)?, c.value(1)?.to(DType::I64));
    let (batch, time) = (axis_of(c.int("batch_axis", 1)?, x.rank())?, axis_of(c.int("time_axis", 0)?, x.rank())?);
    let shape = x.shape();
    c.one(reversed(c, x, lens, batch, time, &shape)?)
}

/// The first elements of each sequence, as many as its length says, in opposite order.
pub(super) fn reversed<'b>(
    c: &Ctx<'b, '_>,
    x: Value<'b>,
    lens: Value<'b>,
    batch: usize,
    time: usize,
    shape: &[Dim],
) -> Step<Value<'b>> {
    if batch == time {
        return Err(format!("batch and time are both axis {batch}"));
    }
    let along = |v: Value<'b>, axis: usize| {
        let sizes: Vec<Dim> =
            shape.iter().enumerate().map(|(i, d)| if i == axis { d.clone() } else { 1.into() }).collect();
        v.op("aten.reshape", vec![sizes.into()])
    };
    let steps = vec![0i64.into(), shape[time].clone().into(), 1i64.into(), DType::I64.into()];
    let place = along(c.b.call("aten.arange.start_step", steps), time);
    let lens = along(lens, batch);
    let inside = place.op("aten.lt.Tensor", vec![lens.into()]);
    let index = inside.op("aten.where.self", vec![((lens - 1i64) - place).into(), place.into()]);
    let index = index.op("aten.expand", vec![shape.to_vec().into()]);
    Ok(c.call("aten.gather", vec![x.into(), time.into(), index.into()]))
}

/// Writes a sequence into a cache from the place that each sample names.
fn tensor_scatter<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (cache, update) = (c.value(0)?, c.value(1)?);
    let shape = update.shape();
    let axis = axis_of(c.int("axis", -2)?, shape.len())?;
    let steps = vec![0i64.into(), shape[axis].clone().into(), 1i64.into(), DType::I64.into()];
    let along = |v: Value<'b>, at: usize| {
        let sizes: Vec<Dim> =
            shape.iter().enumerate().map(|(i, d)| if i == at { d.clone() } else { 1.into() }).collect();
        v.op("aten.reshape", vec![sizes.into()])
    };
    let mut place = along(c.b.call("aten.arange.start_step", steps), axis);
    if let Some(first) = c.opt_value(2) {
        place = place + along(first.to(DType::I64), 0);
    }
    match c.str("mode", "linear")? {
        "linear" => {}
        "circular" => place = place.op("aten.remainder.Tensor", vec![dim_of(cache, axis).into()]),
        other => return Err(format!("attribute 'mode': found '{other}'")),
    }
    let place = place.op("aten.expand", vec![shape.into()]);
    c.one(c.call("aten.scatter.src", vec![cache.into(), axis.into(), place.into(), update.into()]))
}

/// torch sorts always; where the order of the file is asked for, the first places are sorted by.
fn unique<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let sorted = c.flag("sorted", true)?;
    let axis = match c.opt_int("axis")? {
        Some(a) => Some(axis_of(a, x.rank())?),
        None => None,
    };
    let (x, axis) = match axis {
        Some(a) => (x, a),
        None => (x.op("aten.reshape", vec![vec![-1i64].into()]), 0),
    };
    let all = c.call("aten.unique_dim", vec![x.into(), axis.into(), true.into(), true.into(), true.into()]);
    let [mut values, mut inverse, mut counts] = [0, 1, 2].map(|i| c.b.getitem(all, i));
    // The first place of each: the least that leads to it.
    let n = dim_of(counts, 0);
    let length = dim_of(x, axis);
    let places = vec![0i64.into(), length.clone().into(), 1i64.into(), DType::I64.into()];
    let places = c.b.call("aten.arange.start_step", places);
    let start = c.b.call("aten.full", vec![vec![n.clone()].into(), length.into(), DType::I64.into()]);
    let args = vec![0i64.into(), inverse.into(), places.into(), "amin".into()];
    let mut first = start.op("aten.scatter_reduce.two", args);
    if !sorted {
        let both = first.op("aten.sort", vec![]);
        first = c.b.getitem(both, 0);
        let order = c.b.getitem(both, 1);
        values = values.op("aten.index_select", vec![axis.into(), order.into()]);
        counts = counts.op("aten.index_select", vec![0i64.into(), order.into()]);
        let rank = c.b.getitem(order.op("aten.sort", vec![]), 1);
        inverse = rank.op("aten.index_select", vec![0i64.into(), inverse.into()]);
    }
    Ok([values, first, inverse, counts].map(Known::Value).to_vec())
}
