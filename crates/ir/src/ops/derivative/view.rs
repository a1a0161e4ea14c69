//! Views: the gradient is the inverse view of the result's, or that of a window in zeros.

use super::super::view::reshape;
use super::{zeros, zeros_of};
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.view.default", "f32[2, 3], [3, -1]", reshaped),
    Derivative::new("aten._unsafe_view.default", "f32[2, 3], [3, -1]", reshaped),
    Derivative::new("aten.squeeze.dims", "f32[2, 1, 3, 1], [1, 2]", reshaped),
    Derivative::new("aten.squeeze.dim", "f32[2, 1, 3], 1", reshaped),
    Derivative::new("aten.squeeze.default", "f32[2, 1, 3, 1]", reshaped),
    Derivative::new("aten.unsqueeze.default", "f32[2, 3], -1", reshaped),
    Derivative::new("aten.expand.default", "f32[2, 1], [3, -1, 4]", |d| d.give("self", d.g())),
    Derivative::new("aten.permute.default", "f32[2, 3, 4], [2, 0, -2]", |d| {
        let rank = d.tensor("self").rank();
        let order: Vec<usize> = d.ints("dims").iter().filter_map(|i| d.wrap(*i, rank).ok()).collect();
        let back = (0..rank).map(|i| order.iter().position(|o| *o == i).unwrap_or(i) as i64);
        d.give("self", d.g().permute(back.collect()));
    }),
    Derivative::new("aten.transpose.int", "f32[2, 3, 4], 0, -1", |d| {
        d.give("self", d.g().op("aten.transpose.int", vec![d.arg("dim0").clone(), d.arg("dim1").clone()]));
    }),
    Derivative::new("aten.slice.Tensor", "f32[2, 5], 1, 1, 4, 2 | f32[4], 0, -3 | f32[3, 2], 0, 0, 9", |d| {
        let rest = ["dim", "start", "end", "step"].map(|n| d.arg(n).clone());
        window(d, "aten.slice_scatter", rest.to_vec());
    }),
    Derivative::new("aten.select.int", "f32[2, 3], 1, -1", |d| {
        window(d, "aten.select_scatter", vec![d.arg("dim").clone(), d.arg("index").clone()]);
    }),
    Derivative::new("aten.diagonal.default", "f32[3, 4], 1 | f32[2, 3, 3], 0, -1, 0", |d| {
        window(d, "aten.diagonal_scatter", ["offset", "dim1", "dim2"].map(|n| d.arg(n).clone()).to_vec());
    }),
    Derivative::new("aten.split_with_sizes.default", "f32[5, 2], [2, 0, 3]", joined),
    Derivative::new("aten.split.Tensor", "f32[2, 5], 2, 1", joined),
    Derivative::new("aten.chunk.default", "f32[5, 2], 2", joined),
    Derivative::new("aten.unbind.int", "f32[2, 3] | f32[2, 3], -1", |d| {
        d.give("self", d.b.call("aten.stack", vec![parts(d).into(), d.arg("dim").clone()]));
    }),
    Derivative::new("aten.as_strided.default", "f32[2, 3], [3, 2], [1, 3] | f32[6], [2, 3], [1, 1], 1", strided),
    Derivative::new("aten.as_strided_scatter.default", "f32[2, 3], f32[2, 2], [2, 2], [3, 2]", |d| {
        if !d.tensor("self").is_contiguous() {
            return d.fail("a tensor that does not lie in row-major order");
        }
        let rest = || ["size", "stride", "storage_offset"].map(|n| d.arg(n).clone()).to_vec();
        let src = zeros(d.tensor("src"));
        d.give("self", d.g().op("aten.as_strided_scatter", [vec![src.into()], rest()].concat()));
        d.give("src", d.g().op("aten.as_strided", rest()));
    }),
    Derivative::new("aten.resize.default", "f32[2, 3], [4] | f32[2, 2], [2, 3]", |d| {
        // What is too much was left out; what was too little stands for nothing.
        let count = |v: Value<'_>| v.shape().into_iter().product::<Dim>();
        let (x, g) = (d.tensor("self"), d.g());
        let pads = vec![Dim::from(0i64), count(x) - count(g)];
        let flat = reshape(g, vec![count(g)]).op("aten.constant_pad_nd", vec![pads.into()]);
        d.give("self", reshape(flat, x.shape()));
    }),
];

fn reshaped(d: &Gradient<'_>) {
    d.give("self", reshape(d.g(), d.tensor("self").shape()));
}

/// Zeros but for the window that the view was.
fn window(d: &Gradient<'_>, scatter: &str, rest: Vec<Arg>) {
    d.give("self", zeros(d.tensor("self")).op(scatter, [vec![d.g().into()], rest].concat()));
}

/// Gradients of all results.
fn parts<'b>(d: &Gradient<'b>) -> Vec<Value<'b>> {
    let Meta::Tuple(items) = d.y().meta() else { return vec![] };
    (0..items.len()).map(|i| d.gs(i)).collect()
}

fn joined(d: &Gradient<'_>) {
    d.give("self", d.b.call("aten.cat", vec![parts(d).into(), d.arg("dim").clone()]));
}

/// The gradient is added up in the storage, and read out of it as the argument lies there.
fn strided(d: &Gradient<'_>) {
    let x = d.tensor("self");
    let (shape, strides) = (x.shape(), x.strides());
    let repeated = shape.iter().zip(&strides).any(|(n, s)| s.is(0) && !n.is(1));
    let known = |s: &[Dim]| s.iter().all(|d| d.as_const().is_some());
    let (size, stride) = (d.dims("size"), d.dims("stride"));
    if repeated || ![&shape, &strides, &size, &stride].iter().all(|s| known(s)) {
        return d.fail("its gradient needs a storage of known size without repeated elements");
    }
    let offset = d.opt_int("storage_offset").unwrap_or(0);
    let last = |n: &[Dim], s: &[Dim], from: i64| -> i64 {
        let steps = n.iter().zip(s).filter_map(|(n, s)| Some((n.as_const()? - 1) * s.as_const()?));
        if n.iter().any(|n| n.is(0)) { -1 } else { from + steps.sum::<i64>() }
    };
    let length = 1 + last(&shape, &strides, 0).max(last(&size, &stride, offset));
    let storage = zeros_of(vec![length.into()], x);
    let at = |n: &[Dim], s: &[Dim], from: i64| Arg::List(vec![places(d, n, s, from).into()]);
    let sum = storage.op("aten.index_put", vec![at(&size, &stride, offset), d.g().into(), true.into()]);
    d.give("self", sum.op("aten.index.Tensor", vec![at(&shape, &strides, 0)]));
}

/// Where the elements of a strided tensor lie.
fn places<'b>(d: &Gradient<'b>, shape: &[Dim], strides: &[Dim], offset: i64) -> Value<'b> {
    let start = d.b.call("aten.full", vec![vec![1i64; shape.len()].into(), offset.into()]);
    shape.iter().zip(strides).enumerate().fold(start, |sum, (i, (n, s))| {
        let count = d.b.call("aten.arange.start_step", vec![0i64.into(), n.clone().into()]);
        let mut shape = vec![Dim::from(1i64); shape.len()];
        shape[i] = n.clone();
        sum + count.op("aten.mul.Tensor", vec![s.clone().into()]).view(shape)
    })
}
