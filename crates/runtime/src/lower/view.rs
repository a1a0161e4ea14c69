//! The same elements under another shape or order: windows where strides can express it, copies where not.

use super::computed::Computed;
use super::{Args, Lower, Rules, State};
use crate::error::Result;
use crate::memory::{Value, row_major};
use cleave_ir::{Meta, NodeId, Tensor};

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
    ("aten.view.default", reshape),
    ("aten.reshape.default", reshape),
    ("aten._unsafe_view.default", reshape),
    ("aten.flatten.using_ints", reshape),
    ("aten.unflatten.int", reshape),
    ("aten.unsqueeze.default", reshape),
    ("aten.squeeze.dims", reshape),
    ("aten.squeeze.dim", reshape),
    ("aten.squeeze.default", reshape),
    ("aten.permute.default", permute),
    ("aten.transpose.int", transpose),
    ("aten.t.default", transpose),
    ("aten.expand.default", expand),
    ("aten.slice.Tensor", slice),
    ("aten.narrow.default", slice),
    ("aten.select.int", select),
    ("aten.chunk.default", split),
    ("aten.split.Tensor", split),
    ("aten.split_with_sizes.default", split),
    ("aten.unbind.int", unbind),
    ("getitem", getitem),
    ("aten.clone.default", same),
    ("aten.contiguous.default", same),
    ("aten.alias.default", same),
    ("aten.detach.default", same),
    ("aten.dropout.default", same),
];

/// The value of a call's first tensor, computed by now; none if it is a constant or several values.
fn source(l: &mut Lower<'_>, id: NodeId) -> Result<Option<(NodeId, Value)>> {
    let node = l.g.node(id);
    let Some(x) = node.args.first().and_then(|a| a.nodes().first().copied()) else { return Ok(None) };
    l.settle(x)?;
    Ok(match l.state(x) {
        State::Stored(v) | State::Dequant(v, _) => Some((x, v.clone())),
        State::Computed(c) => Some((x, c.levels.clone())),
        _ => None,
    })
}

/// What a window on the source's levels or floats is: levels or floats.
fn restate(l: &Lower<'_>, source: NodeId, v: Value) -> State {
    match l.state(source) {
        State::Dequant(_, q) => State::Dequant(v, *q),
        State::Computed(c) => State::Computed(Box::new(Computed { levels: v, ..(**c).clone() })),
        _ => State::Stored(v),
    }
}

/// Applies a view to the source's window, or to a constant.
fn apply(
    l: &mut Lower<'_>,
    id: NodeId,
    window: impl FnOnce(&mut Lower<'_>, &Value) -> Option<Value>,
    tensor: impl FnOnce(&Tensor) -> Option<Tensor>,
) -> Result<bool> {
    let x = l.g.node(id).args.first().and_then(|a| a.nodes().first().copied());
    if let Some(State::Constant(t)) = x.map(|x| l.state(x)) {
        let Some(t) = tensor(t) else { return Ok(false) };
        l.set(id, State::Constant(t));
        return Ok(true);
    }
    let Some((x, v)) = source(l, id)? else { return Ok(false) };
    let Some(v) = window(l, &v) else { return Ok(false) };
    let state = restate(l, x, v);
    l.set(id, state);
    Ok(true)
}

fn reshape(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let shape = l.shape(id)?;
    let window = |l: &mut Lower<'_>, v: &Value| {
        v.reshape(&shape).or_else(|| l.dense(v, &row_major(v.shape.len())).reshape(&shape))
    };
    apply(l, id, window, |t| (t.len() == shape.iter().product()).then(|| t.reshape(&shape)))
}

fn permute(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some(dims) = Args::of(l.g, id).ints("dims") else { return Ok(false) };
    let rank = dims.len();
    let Some(order) = dims.into_iter().map(|d| super::args::wrap(d, rank)).collect::<Option<Vec<_>>>() else {
        return Ok(false);
    };
    apply(l, id, |_, v| Some(v.permute(&order)), |t| Some(t.permute(&order)))
}

fn transpose(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let rank = l.shape(id)?.len();
    let a = Args::of(l.g, id);
    let pair = match a.int("dim0") {
        Some(_) => (a.axis("dim0", rank), a.axis("dim1", rank)),
        None => (Some(0), Some(rank.saturating_sub(1))),
    };
    let (Some(i), Some(j)) = pair else { return Ok(false) };
    let mut order = row_major(rank);
    if rank > 0 {
        order.swap(i, j);
    }
    apply(l, id, |_, v| Some(v.permute(&order)), |t| Some(t.permute(&order)))
}

fn expand(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let shape = l.shape(id)?;
    apply(l, id, |_, v| v.broadcast(&shape), |_| None)
}

fn slice(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let shape = l.shape(id)?;
    let a = Args::of(l.g, id);
    let (Some(dim), step) = (a.axis("dim", shape.len()), a.int("step").unwrap_or(1)) else { return Ok(false) };
    let (start, Ok(step)) = (if a.is_none("start") { Some(0) } else { a.int("start") }, usize::try_from(step)) else {
        return Ok(false);
    };
    let Some(start) = start else { return Ok(false) };
    let window = |_: &mut Lower<'_>, v: &Value| {
        let n = v.shape[dim] as i64;
        let start = if start < 0 { (start + n).max(0) } else { start.min(n) };
        Some(v.slice(dim, usize::try_from(start).ok()?, shape[dim], step))
    };
    apply(l, id, window, |_| None)
}

fn select(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let rank = l.shape(id)?.len() + 1;
    let a = Args::of(l.g, id);
    let (Some(dim), Some(index)) = (a.axis("dim", rank), a.int("index")) else { return Ok(false) };
    apply(l, id, |_, v| drop_dim(v, dim, index), |_| None)
}

fn drop_dim(v: &Value, dim: usize, index: i64) -> Option<Value> {
    let at = super::args::wrap(index, v.shape[dim])?;
    let mut v = v.slice(dim, at, 1, 1);
    v.shape.remove(dim);
    v.strides.remove(dim);
    Some(v)
}

/// The shapes of a call's results.
fn result_shapes(l: &Lower<'_>, id: NodeId) -> Option<Vec<Vec<usize>>> {
    let Meta::Tuple(items) = &l.g.node(id).meta else { return None };
    let size = |d: &cleave_ir::Dim| d.as_const().and_then(|n| usize::try_from(n).ok());
    items.iter().map(|m| m.as_tensor()?.shape.iter().map(size).collect()).collect()
}

fn split(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some(shapes) = result_shapes(l, id) else { return Ok(false) };
    let Some((x, v)) = source(l, id)? else { return Ok(false) };
    let Some(dim) = Args::of(l.g, id).axis("dim", v.shape.len()) else { return Ok(false) };
    let mut at = 0;
    let parts = shapes.iter().map(|s| {
        let part = v.slice(dim, at, s[dim], 1);
        at += s[dim];
        restate(l, x, part)
    });
    let parts = parts.collect();
    l.set(id, State::Tuple(parts));
    Ok(true)
}

fn unbind(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let Some((x, v)) = source(l, id)? else { return Ok(false) };
    let Some(dim) = Args::of(l.g, id).axis("dim", v.shape.len()) else { return Ok(false) };
    let parts = (0..v.shape[dim]).map(|i| drop_dim(&v, dim, i as i64).map(|p| restate(l, x, p)));
    let Some(parts) = parts.collect() else { return Ok(false) };
    l.set(id, State::Tuple(parts));
    Ok(true)
}

fn getitem(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(tuple), Some(index)) = (a.tensor("self"), a.int("index")) else { return Ok(false) };
    let State::Tuple(parts) = l.state(tuple) else { return Ok(false) };
    let Some(part) = usize::try_from(index).ok().and_then(|i| parts.get(i)).cloned() else { return Ok(false) };
    l.set(id, part);
    Ok(true)
}

fn same(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    apply(l, id, |_, v| Some(v.clone()), |t| Some(t.clone()))
}
