//! Elements picked by index: their gradients are put, or added, where they were.

use super::{drop, zeros};
use crate::builder::Value;
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
    Derivative::new("aten.scatter_reduce.two", REDUCTIONS, combined),
    Derivative::new("aten.embedding_renorm.default", "", |d| d.give("self", d.g())),
    Derivative::new("aten._embedding_bag.default", BAGS, bags),
    Derivative::new("aten._embedding_bag_forward_only.default", BAGS, bags),
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
    Derivative::new("aten.bincount.default", "i64[4]<3, f32[4]", |d| {
        d.give("weights", d.g().op("aten.index_select", vec![0i64.into(), d.arg("self").clone()]));
    }),
    Derivative::new("aten.copy.default", "f32[2, 3], f32[3]", |d| d.give("src", d.g())),
    Derivative::new("aten.topk.default", "f32[2, 4]!, 2 | f32[4, 2]!, 3, 0, false", ordered),
    Derivative::new("aten.sort.default", "f32[2, 4]! | f32[4, 2]!, 0, true", ordered),
    Derivative::new("aten.sort.stable", "f32[2, 4]!, true", ordered),
    Derivative::new("aten.cummax.default", "f32[2, 4]!, 1", running),
    Derivative::new("aten.cummin.default", "f32[2, 4]!, 1", running),
];

const REDUCTIONS: &str = "f32[3, 2], 0, i64[3, 2]<3, f32[3, 2], \"sum\" \
    | f32[3, 2], 0, i64[4, 1]<3, f32[5, 2], \"mean\" | f32[3, 2], 0, i64[4, 2]<3, f32[4, 2], \"mean\", false \
    | f32[3, 2], 0, i64[4, 2]<3, f32[4, 2]!, \"amax\" | f32[3, 2], 0, i64[4, 2]<3, f32[4, 2]!, \"amin\", false \
    | f32[3, 2], 0, i64[4, 2]<3, f32[4, 2], \"prod\" | f32[3, 2], 0, i64[4, 2]<3, f32[4, 2], \"prod\", false";

const BAGS: &str = "f32[4, 2], i64[5]<4, i64[1]<1 | f32[4, 2], i64[5]<4, i64[1]<1, false, 0, false, f32[5] \
    | f32[4, 2], i64[5]<4, i64[1]<1, false, 1, false, none, false, 2 | f32[4, 2]!, i64[5]<4, i64[1]<1, false, 2";

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
    let g = at_index(d, d.g());
    d.give(src, as_large(g, d.tensor(src)));
}

/// The elements of a result, or its gradient, where the index says.
fn at_index<'b>(d: &Gradient<'b>, v: Value<'b>) -> Value<'b> {
    v.op("aten.gather", vec![d.arg("dim").clone(), d.arg("index").clone()])
}

/// Zeros behind, to the shape of another value.
fn as_large<'b>(v: Value<'b>, like: Value<'b>) -> Value<'b> {
    let (have, all) = (v.shape(), like.shape());
    let pads = have.iter().zip(&all).rev().flat_map(|(a, b)| [Arg::Int(0), (b.clone() - a.clone()).into()]);
    let pads: Vec<Arg> = pads.collect();
    if have == all { v } else { v.op("aten.constant_pad_nd", vec![Arg::List(pads)]) }
}

/// The gradients of elements combined where an index says; equal greatest ones share theirs, and zeros in a product do
/// no harm.
fn combined<'b>(d: &Gradient<'b>) {
    let (x, y, g, index) = (d.tensor("self"), d.y(), d.g(), d.tensor("index"));
    let whole = d.tensor("src");
    let with_self = d.bool("include_self");
    let src = index.shape().into_iter().zip(whole.shape()).enumerate().fold(whole, |v, (i, (n, all))| {
        if n == all { v } else { v.op("aten.slice.Tensor", vec![i.into(), 0i64.into(), n.into()]) }
    });
    let here = |v: Value<'b>| at_index(d, v);
    let args = |src: Arg| vec![d.arg("dim").clone(), index.into(), src];
    let add = |to: Value<'b>, src: Value<'b>| to.op("aten.scatter_add", args(src.into()));
    let is = |v: Value<'b>, n: i64| v.op("aten.eq.Scalar", vec![n.into()]);
    let instead = |v: Value<'b>, mask: Value<'b>| v.op("aten.masked_fill.Scalar", vec![mask.into(), 1i64.into()]);
    let (of_self, of_src) = match d.str("reduce") {
        "sum" => (g, here(g)),
        "mean" => {
            let start = x.op("aten.full_like", vec![i64::from(with_self).into()]);
            let n = add(start, src.op("aten.full_like", vec![1i64.into()]));
            let share = g / instead(n, is(n, 0));
            (share, here(share))
        }
        "prod" => {
            let product = |of: Value<'b>, src: Value<'b>| {
                let rest = vec!["prod".into(), with_self.into()];
                of.op("aten.scatter_reduce.two", [args(src.into()), rest].concat())
            };
            let nonzero = instead(x, is(x, 0));
            let zero = is(src, 0);
            let count = here(add(zeros(x), zero.to(x.dtype())));
            let lone = zero.op("aten.logical_and", vec![is(count, 1).into()]);
            let others = here(g * product(x, instead(src, lone)));
            let rest = here(g * y) / instead(src, zero);
            let of_src = lone.op("aten.where.self", vec![others.into(), rest.into()]);
            (g * product(nonzero, src) / nonzero, of_src)
        }
        _ => {
            let equal = |a: Value<'b>, b: Value<'b>| a.op("aten.eq.Tensor", vec![b.into()]).to(x.dtype());
            let (mine, theirs) = (equal(x, y), equal(src, here(y)));
            let share = g / add(mine, theirs);
            (mine * share, theirs * here(share))
        }
    };
    let replaced = || of_self.op("aten.scatter.value", args(0i64.into()));
    d.give("self", if with_self { of_self } else { replaced() });
    d.give("src", as_large(of_src, whole));
}

/// The gradients of rows of a table combined by bags.
fn bags<'b>(d: &Gradient<'b>) {
    let (w, indices, offsets, g) = (d.tensor("weight"), d.tensor("indices"), d.tensor("offsets"), d.g());
    let mode = d.int("mode");
    if d.bool("scale_grad_by_freq") {
        return d.fail("a gradient scaled by frequency");
    }
    if mode == 2 {
        return d.give("weight", zeros(w).op("aten.scatter_add", vec![0i64.into(), d.ys(3).into(), g.into()]));
    }
    // The bag of each index: how many bags start up to its place, less one.
    let n = indices.shape().first().cloned().unwrap_or(0i64.into());
    let places = d.b.call("aten.arange.start_step", vec![0i64.into(), n.into()]);
    let bag = places.op("aten.bucketize.Tensor", vec![offsets.into(), false.into(), true.into()]) - 1i64;
    let column = |v: Value<'b>| v.op("aten.unsqueeze", vec![1i64.into()]);
    let counted = indices.op("aten.ne.Scalar", vec![d.arg("padding_idx").clone()]).to(w.dtype());
    let rows = |v: Value<'b>| v.op("aten.index_select", vec![0i64.into(), bag.into()]);
    let mut each = rows(g) * column(counted);
    if mode == 1 {
        let size = zeros(g).op("aten.index_add", vec![0i64.into(), bag.into(), (column(counted) + zeros(each)).into()]);
        each = each / rows(size.clamp(Some(1.0), None));
    }
    if let Some(scale) = d.opt_tensor("per_sample_weights") {
        let row = w.op("aten.index_select", vec![0i64.into(), indices.into()]);
        d.give("per_sample_weights", (each * row).op("aten.sum.dim_IntList", vec![vec![1i64].into()]));
        each = each * column(scale);
    }
    d.give("weight", zeros(w).op("aten.index_put", vec![vec![indices].into(), each.into(), true.into()]));
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
