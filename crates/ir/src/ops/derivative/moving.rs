//! Elements joined, padded, repeated and turned around.

use super::super::view::reshape;
use super::size;
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.cat.default", "[f32[2, 3], f32[1, 3]], 0 | [f32[2, 1], f32[2, 2]], -1", |d| {
        let (parts, rank, mut start) = (d.tensors("tensors"), d.y().rank(), Dim::from(0i64));
        let at = super::axis(d, "dim", rank);
        for (i, x) in parts.into_iter().enumerate() {
            // torch leaves out the legacy empty tensor of shape [0].
            let Some(n) = x.shape().get(at).filter(|_| x.rank() == rank).cloned() else { continue };
            let end = start.clone() + n;
            let args = vec![at.into(), start.into(), end.clone().into()];
            d.give_at("tensors", i, d.g().op("aten.slice.Tensor", args));
            start = end;
        }
    }),
    Derivative::new("aten.flip.default", "f32[2, 3], [1] | f32[2, 3], [0, 1]", |d| {
        d.give("self", d.g().op("aten.flip", vec![d.arg("dims").clone()]));
    }),
    Derivative::new("aten.roll.default", "f32[2, 3], [1], [1] | f32[2, 3], [2] | f32[2, 3], [1, -1], [0, 1]", |d| {
        let back: Vec<Dim> = d.dims("shifts").into_iter().map(|s| Dim::from(0i64) - s).collect();
        d.give("self", d.g().op("aten.roll", vec![back.into(), d.arg("dims").clone()]));
    }),
    Derivative::new("aten.repeat.default", "f32[2, 3], [2, 1, 3]", |d| {
        // Each dimension becomes (how often, size); the sum is over the former.
        let (x, repeats) = (d.tensor("self"), d.dims("repeats"));
        let lead = repeats.len() - x.rank();
        let sizes = [vec![Dim::from(1i64); lead], x.shape()].concat();
        let pairs = repeats.into_iter().zip(sizes).flat_map(|(r, n)| [r, n]);
        let over: Vec<usize> = (0..x.rank() + lead).map(|i| 2 * i).collect();
        let wide = reshape(d.g(), pairs.collect());
        d.give("self", if over.is_empty() { wide } else { wide.op("aten.sum.dim_IntList", vec![over.into()]) });
    }),
    Derivative::new("aten.constant_pad_nd.default", "f32[2, 3], [1, 2] | f32[2, 3], [1, -1, 0, 1], 0.5", |d| {
        let back: Vec<Dim> = d.dims("pad").into_iter().map(|s| Dim::from(0i64) - s).collect();
        d.give("self", d.g().op("aten.constant_pad_nd", vec![back.into()]));
    }),
    Derivative::new("aten.reflection_pad1d.default", "f32[1, 2, 4], [2, 1]", |d| folded(d, mirrored)),
    Derivative::new(
        "aten.reflection_pad2d.default",
        "f32[1, 2, 4, 3], [2, 1, 0, 3] | f32[2, 3, 3], [1, 1, 1, 1]",
        |d| {
            folded(d, mirrored);
        },
    ),
    Derivative::new("aten.reflection_pad3d.default", "f32[1, 1, 2, 3, 3], [2, 1, 0, 2, 1, 1]", |d| folded(d, mirrored)),
    Derivative::new("aten.replication_pad1d.default", "f32[1, 2, 3], [2, 1]", |d| folded(d, edge)),
    Derivative::new(
        "aten.replication_pad2d.default",
        "f32[1, 2, 2, 3], [2, 1, 0, 3] | f32[1, 4, 4], [-1, 2, 1, -1]",
        |d| folded(d, edge),
    ),
    Derivative::new("aten.replication_pad3d.default", "f32[1, 1, 2, 2, 2], [2, 1, 0, 2, 1, 1]", |d| folded(d, edge)),
];

/// A range of one dimension.
fn range<'b>(v: Value<'b>, at: usize, start: &Dim, end: &Dim) -> Value<'b> {
    v.op("aten.slice.Tensor", vec![at.into(), start.clone().into(), end.clone().into()])
}

/// Where the gradient of the padding before and behind belongs: (gradient, dimension) to (gradient there, first place
/// from the near edge).
type Fold = for<'b> fn(Value<'b>, usize) -> (Value<'b>, i64);

/// The element next to the edge is repeated farthest away from it.
fn mirrored(v: Value<'_>, at: usize) -> (Value<'_>, i64) {
    (v.op("aten.flip", vec![vec![at].into()]), 1)
}

fn edge(v: Value<'_>, at: usize) -> (Value<'_>, i64) {
    (v.op("aten.sum.dim_IntList", vec![vec![at].into(), true.into()]), 0)
}

/// The gradient of the padding added to that of what it repeats, one dimension after the other; what negative padding
/// cut off has none.
fn folded<'b>(d: &Gradient<'b>, fold: Fold) {
    let (x, mut pads) = (d.tensor("self"), d.dims("padding"));
    let mut g = d.g();
    let cut = |p: &Dim| p.as_const().map_or(0, |p| (-p).max(0));
    if pads.iter().any(|p| cut(p) > 0) {
        g = g.op("aten.constant_pad_nd", vec![pads.iter().map(cut).collect::<Vec<_>>().into()]);
        pads.iter_mut().for_each(|p| *p = p.clone() + cut(p).into());
    }
    for (i, pad) in pads.chunks(2).enumerate() {
        let Some(at) = x.rank().checked_sub(i + 1) else { return d.fail("more pads than dimensions") };
        let (n, before, total) = (size(x, at), pad[0].clone(), size(g, at));
        let inner = before.clone() + n.clone();
        let mut sum = range(g, at, &before, &inner);
        let placed = |v: Value<'b>, near: i64, front: bool| {
            let rest = n.clone() - size(v, at) - near.into();
            let (a, b) = if front { (near.into(), rest) } else { (rest, near.into()) };
            let pads = [vec![Dim::from(0i64); 2 * i], vec![a, b]].concat();
            v.op("aten.constant_pad_nd", vec![pads.into()])
        };
        if !before.is(0) {
            let (v, near) = fold(range(g, at, &0i64.into(), &before), at);
            sum = sum + placed(v, near, true);
        }
        if !pad[1].is(0) {
            let (v, near) = fold(range(g, at, &inner, &total), at);
            sum = sum + placed(v, near, false);
        }
        g = sum;
    }
    d.give("self", g);
}
