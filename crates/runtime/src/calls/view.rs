//! The same elements under another shape or order.

use super::Calls;
use cleave_ir::{NodeId, Tensor};

/// What a result is of a call's first tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum View {
    /// The tensor.
    Same,
    /// Its elements in this shape.
    Reshape(Vec<usize>),
    /// Its dimensions in this order.
    Permute(Vec<usize>),
    /// The tensor repeated to this shape.
    Broadcast(Vec<usize>),
    /// Places of one dimension.
    Slice { dim: usize, start: usize, len: usize, step: usize },
    /// One place of a dimension, without the dimension.
    Select { dim: usize, at: usize },
}

/// The views that a call's results are; `from` is its tensor's shape.
type Reader = fn(calls: &Calls<'_>, id: NodeId, from: &[usize]) -> Option<Vec<View>>;

/// The ops that are views.
static VIEWS: &[(&str, Reader)] = &[
    ("aten.view.default", reshape),
    ("aten.reshape.default", reshape),
    ("aten._unsafe_view.default", reshape),
    ("aten.flatten.using_ints", reshape),
    ("aten.unflatten.int", reshape),
    ("aten.unsqueeze.default", reshape),
    ("aten.squeeze.dims", reshape),
    ("aten.squeeze.dim", reshape),
    ("aten.squeeze.default", reshape),
    ("aten.permute.default", |c, id, from| Some(vec![View::Permute(c.args(id).axes("dims", from.len())?)])),
    ("aten.transpose.int", transpose),
    ("aten.t.default", transpose),
    ("aten.expand.default", |c, id, _| Some(vec![View::Broadcast(c.shape(id).ok()?)])),
    ("aten.slice.Tensor", slice),
    ("aten.narrow.default", slice),
    ("aten.select.int", |c, id, from| {
        let dim = c.args(id).axis("dim", from.len())?;
        Some(vec![View::Select { dim, at: c.args(id).axis("index", from[dim])? }])
    }),
    ("aten.chunk.default", split),
    ("aten.split.Tensor", split),
    ("aten.split_with_sizes.default", split),
    ("aten.unbind.int", |c, id, from| {
        let dim = c.args(id).axis("dim", from.len())?;
        Some((0..from[dim]).map(|at| View::Select { dim, at }).collect())
    }),
    ("aten.clone.default", same),
    ("aten.contiguous.default", same),
    ("aten.alias.default", same),
    ("aten.detach.default", same),
    ("aten.dropout.default", same),
];

fn same(_: &Calls<'_>, _: NodeId, _: &[usize]) -> Option<Vec<View>> {
    Some(vec![View::Same])
}

fn reshape(c: &Calls<'_>, id: NodeId, _: &[usize]) -> Option<Vec<View>> {
    Some(vec![View::Reshape(c.shape(id).ok()?)])
}

fn transpose(c: &Calls<'_>, id: NodeId, from: &[usize]) -> Option<Vec<View>> {
    let (a, rank) = (c.args(id), from.len());
    let (i, j) = match a.int("dim0") {
        Some(_) => (a.axis("dim0", rank)?, a.axis("dim1", rank)?),
        None => (0, rank.saturating_sub(1)),
    };
    let mut order: Vec<usize> = (0..rank).collect();
    if rank > 0 {
        order.swap(i, j);
    }
    Some(vec![View::Permute(order)])
}

fn slice(c: &Calls<'_>, id: NodeId, from: &[usize]) -> Option<Vec<View>> {
    let (a, shape) = (c.args(id), c.shape(id).ok()?);
    let (dim, step) = (a.axis("dim", shape.len())?, usize::try_from(a.int("step").unwrap_or(1)).ok()?);
    let (n, start) = (from[dim] as i64, if a.is_none("start") { 0 } else { a.int("start")? });
    let start = usize::try_from(if start < 0 { (start + n).max(0) } else { start.min(n) }).ok()?;
    Some(vec![View::Slice { dim, start, len: shape[dim], step }])
}

fn split(c: &Calls<'_>, id: NodeId, from: &[usize]) -> Option<Vec<View>> {
    let dim = c.args(id).axis("dim", from.len())?;
    let parts = c.result_shapes(id)?.into_iter().scan(0, |next, shape| {
        let (start, len) = (*next, shape[dim]);
        *next += len;
        Some(View::Slice { dim, start, len, step: 1 })
    });
    Some(parts.collect())
}

impl Calls<'_> {
    /// The tensor that a call shows, and what each of its results is of it; none if it is no view.
    pub(crate) fn views(&self, id: NodeId) -> Option<(NodeId, Vec<View>)> {
        let (_, reader) = VIEWS.iter().find(|(name, _)| *name == self.op(id))?;
        let x = *self.g.node(id).args.first()?.nodes().first()?;
        Some((x, reader(self, id, &self.shape(x).ok()?)?))
    }

    /// The call with several values of which a call takes one, and which.
    pub(crate) fn item(&self, id: NodeId) -> Option<(NodeId, usize)> {
        let a = self.args(id);
        let item = (a.tensor("self")?, usize::try_from(a.int("index")?).ok()?);
        (self.op(id) == "getitem").then_some(item)
    }

    /// The view of a constant that a call is, where its bytes can be shared.
    pub(super) fn window(&self, id: NodeId) -> Option<Tensor> {
        let (x, views) = self.views(id)?;
        match (self.constant(x)?, views.as_slice()) {
            (t, [View::Same]) => Some(t.clone()),
            (t, [View::Reshape(shape)]) => (t.len() == shape.iter().product()).then(|| t.reshape(shape)),
            (t, [View::Permute(order)]) => Some(t.permute(order)),
            _ => None,
        }
    }
}
