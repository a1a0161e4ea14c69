//! Elements picked by index: their gradients are put, or added, where they were.

use super::{drop, zeros};
use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.index.Tensor", "f32[3, 4], [i64[2]<3] | f32[3, 4, 2], [none, i64[2, 1]<4, i64[3]<2]", picked),
    Derivative::new("aten._unsafe_index.Tensor", "f32[3, 4], [i64[2]<3, i64[1]<4]", picked),
    Derivative::new("aten.index_select.default", "f32[3, 4], 1, i64[3]<4", |d| {
        d.give("self", added(d, "aten.index_add", "index"));
    }),
    Derivative::new("aten.gather.default", "f32[3, 4], 1, i64[3, 2]<4", |d| {
        d.give("self", added(d, "aten.scatter_add", "index"));
    }),
    Derivative::new("aten.embedding.default", "f32[4, 2], i64[3]<4 | f32[3, 2], i64[2, 4]<3, 1", |d| {
        let (w, at) = (d.tensor("weight"), d.tensor("indices"));
        if d.bool("scale_grad_by_freq") {
            return d.fail("a gradient scaled by frequency");
        }
        let still =
            at.op("aten.eq.Scalar", vec![d.arg("padding_idx").clone()]).op("aten.unsqueeze", vec![(-1i64).into()]);
        let g = if d.int("padding_idx") < 0 { d.g() } else { drop(d.g(), still) };
        d.give("weight", zeros(w).op("aten.index_put", vec![vec![at].into(), g.into(), true.into()]));
    }),
    Derivative::new("aten.scatter.src", "f32[3, 4], 1, i64[3, 1]<4, f32[3, 2]", |d| {
        let args = || vec![d.arg("dim").clone(), d.arg("index").clone()];
        d.give("self", d.g().op("aten.scatter.value", [args(), vec![0i64.into()]].concat()));
        taken(d, "src");
    }),
    Derivative::new("aten.scatter.value", "f32[3, 4], 1, i64[3, 1]<4, 0.5", |d| {
        d.give("self", d.g().op("aten.scatter.value", vec![d.arg("dim").clone(), d.arg("index").clone(), 0i64.into()]));
    }),
    Derivative::new("aten.scatter_add.default", "f32[3, 4], 1, i64[3, 2]<4, f32[3, 2]", |d| {
        d.give("self", d.g());
        taken(d, "src");
    }),
    Derivative::new("aten.slice_scatter.default", "f32[2, 5], f32[2, 2], 1, 1, 4, 2 | f32[4], f32[3], 0, -3", |d| {
        let rest = || ["dim", "start", "end", "step"].map(|n| d.arg(n).clone()).to_vec();
        let src = zeros(d.tensor("src"));
        d.give("self", d.g().op("aten.slice_scatter", [vec![src.into()], rest()].concat()));
        d.give("src", d.g().op("aten.slice.Tensor", rest()));
    }),
    Derivative::new("aten.select_scatter.default", "f32[2, 3], f32[2], 1, -1", |d| {
        let rest = || ["dim", "index"].map(|n| d.arg(n).clone()).to_vec();
        let src = zeros(d.tensor("src"));
        d.give("self", d.g().op("aten.select_scatter", [vec![src.into()], rest()].concat()));
        d.give("src", d.g().op("aten.select.int", rest()));
    }),
    Derivative::new("aten.diagonal_scatter.default", "f32[3, 4], f32[3], 1", |d| {
        let rest = || ["offset", "dim1", "dim2"].map(|n| d.arg(n).clone()).to_vec();
        let src = zeros(d.tensor("src"));
        d.give("self", d.g().op("aten.diagonal_scatter", [vec![src.into()], rest()].concat()));
        d.give("src", d.g().op("aten.diagonal", rest()));
    }),
    Derivative::new(
        "aten.index_put.default",
        "f32[3, 4], [i64[2]<3!], f32[2, 4] | f32[3, 4], [i64[2]<3], f32[4], true",
        |d| {
            let indices = || d.arg("indices").clone();
            let zero = zeros(d.tensor("values"));
            let left = d.g().op("aten.index_put", vec![indices(), zero.into()]);
            d.give("self", if d.bool("accumulate") { d.g() } else { left });
            d.give("values", d.g().op("aten.index.Tensor", vec![indices()]));
        },
    ),
    Derivative::new("aten.copy.default", "f32[2, 3], f32[3]", |d| d.give("src", d.g())),
    Derivative::new("aten.topk.default", "f32[2, 4]!, 2 | f32[4, 2]!, 3, 0, false", ordered),
    Derivative::new("aten.sort.default", "f32[2, 4]! | f32[4, 2]!, 0, true", ordered),
    Derivative::new("aten.sort.stable", "f32[2, 4]!, true", ordered),
    Derivative::new("aten.cummax.default", "f32[2, 4]!, 1", running),
    Derivative::new("aten.cummin.default", "f32[2, 4]!, 1", running),
];

/// Elements of the result's gradient added where a list of indices says.
fn picked(d: &Gradient<'_>) {
    let x = zeros(d.tensor("self"));
    d.give("self", x.op("aten.index_put", vec![d.arg("indices").clone(), d.g().into(), true.into()]));
}

/// The result's gradient added along a dimension where an index says.
fn added<'b>(d: &Gradient<'b>, op: &str, index: &str) -> crate::Value<'b> {
    zeros(d.tensor("self")).op(op, vec![d.arg("dim").clone(), d.arg(index).clone(), d.g().into()])
}

/// The gradient of what was put where an index says; only so many of its elements were.
fn taken(d: &Gradient<'_>, src: &str) {
    let g = d.g().op("aten.gather", vec![d.arg("dim").clone(), d.arg("index").clone()]);
    let (have, all) = (g.shape(), d.tensor(src).shape());
    let pads = have.iter().zip(&all).rev().flat_map(|(a, b)| [Arg::Int(0), (b.clone() - a.clone()).into()]);
    let pads: Vec<Arg> = pads.collect();
    d.give(src, if have == all { g } else { g.op("aten.constant_pad_nd", vec![Arg::List(pads)]) });
}

/// The gradient of elements in another order.
fn ordered(d: &Gradient<'_>) {
    let x = d.tensor("self");
    if x.rank() == 0 {
        return d.give("self", d.g());
    }
    d.give("self", zeros(x).op("aten.scatter.src", vec![d.arg("dim").clone(), d.ys(1).into(), d.g().into()]));
}

/// The gradient of elements that stood for all up to the next.
fn running(d: &Gradient<'_>) {
    let x = d.tensor("self");
    if x.rank() == 0 {
        return d.give("self", d.g());
    }
    d.give("self", zeros(x).op("aten.scatter_add", vec![d.arg("dim").clone(), d.ys(1).into(), d.g().into()]));
}
