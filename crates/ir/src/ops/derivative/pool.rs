//! Pooling: gradients have ops of their own, which are linear, and those have forward ops for theirs.

use super::super::view::reshape;
use super::zeros_of;
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::Arg;

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.max_pool2d_with_indices.default", "f32[1, 2, 4, 5]!, [2, 3], [1, 2], [0, 1]", greatest),
    Derivative::new("aten.max_pool3d_with_indices.default", "f32[1, 1, 3, 3, 4]!, [2, 2, 2], [1, 1, 2]", greatest),
    Derivative::new(
        "aten.max_pool2d_with_indices_backward.default",
        "f32[1, 1, 1, 2], f32[1, 1, 2, 4], [2, 2], [2, 2], [0, 0], [1, 1], false, i64[1, 1, 1, 2]<8",
        |d| d.give("grad_output", gathered(d, 2)),
    ),
    Derivative::new(
        "aten.max_pool3d_with_indices_backward.default",
        "f32[1, 1, 1, 1, 2], f32[1, 1, 2, 2, 4], [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], false, i64[1, 1, 1, 1, 2]<16",
        |d| d.give("grad_output", gathered(d, 3)),
    ),
    Derivative::new("aten.adaptive_max_pool2d.default", "f32[1, 2, 4, 5]!, [2, 3]", |d| added(d, 2)),
    Derivative::new("aten.adaptive_max_pool3d.default", "f32[1, 1, 3, 3, 4]!, [2, 2, 2]", |d| added(d, 3)),
    Derivative::new("aten.fractional_max_pool2d.default", "f32[1, 1, 5, 5]!, [2, 2], [3, 3], f32[1, 1, 2]>0<1", |d| {
        added(d, 2);
    }),
    Derivative::new(
        "aten.fractional_max_pool3d.default",
        "f32[1, 1, 4, 4, 4]!, [2, 2, 2], [2, 2, 2], f32[1, 1, 3]>0<1",
        |d| added(d, 3),
    ),
    Derivative::new(
        "aten.avg_pool2d.default",
        "f32[1, 2, 4, 5], [2, 3], [1, 2], [0, 1], true, false | f32[2, 4, 4], [2, 2]",
        |d| mean(d, "aten.avg_pool2d_backward"),
    ),
    Derivative::new("aten.avg_pool3d.default", "f32[1, 1, 3, 3, 4], [2, 2, 2], [1, 1, 2]", |d| {
        mean(d, "aten.avg_pool3d_backward");
    }),
    Derivative::new(
        "aten.avg_pool2d_backward.default",
        "f32[1, 1, 2, 2], f32[1, 1, 3, 4], [2, 2], [2, 2], [1, 0], true, false, none",
        |d| again(d, "aten.avg_pool2d"),
    ),
    Derivative::new(
        "aten.avg_pool3d_backward.default",
        "f32[1, 1, 1, 1, 2], f32[1, 1, 2, 2, 4], [2, 2, 2], [2, 2, 2], [0, 0, 0], false, true, 3",
        |d| again(d, "aten.avg_pool3d"),
    ),
    Derivative::new("aten._adaptive_avg_pool2d.default", "f32[1, 2, 4, 5], [2, 3]", |d| {
        grid(d, "aten._adaptive_avg_pool2d_backward");
    }),
    Derivative::new("aten._adaptive_avg_pool3d.default", "f32[1, 1, 3, 4, 5], [2, 2, 3]", |d| {
        grid(d, "aten._adaptive_avg_pool3d_backward");
    }),
    Derivative::new("aten._adaptive_avg_pool2d_backward.default", "f32[1, 1, 2, 3], f32[1, 1, 4, 5]", |d| {
        again_grid(d, "aten._adaptive_avg_pool2d", 2);
    }),
    Derivative::new("aten._adaptive_avg_pool3d_backward.default", "f32[1, 1, 2, 1, 2], f32[1, 1, 3, 2, 3]", |d| {
        again_grid(d, "aten._adaptive_avg_pool3d", 3);
    }),
];

/// A shape with its last `n` dimensions as one.
fn flat(shape: &[Dim], n: usize) -> Vec<Dim> {
    let lead = shape.len().saturating_sub(n);
    [&shape[..lead], &[shape[lead..].iter().cloned().product()]].concat()
}

/// Gradients of the greatest elements, by the op's own backward.
fn greatest(d: &Gradient<'_>) {
    let stride = match d.arg("stride") {
        Arg::List(l) if l.is_empty() => d.arg("kernel_size").clone(),
        given => given.clone(),
    };
    let rest = ["padding", "dilation", "ceil_mode"].map(|n| d.arg(n).clone());
    let first = [d.arg("self").clone(), d.arg("kernel_size").clone(), stride];
    let op = format!("aten.{}_backward", d.op.base());
    d.give("self", d.g().op(&op, [&first[..], &rest, &[d.ys(1).into()]].concat()));
}

/// What stood where the indices say in the last `n` dimensions, taken as one.
fn gathered<'b>(d: &Gradient<'b>, n: usize) -> Value<'b> {
    let (g, at) = (d.g(), d.tensor("indices"));
    let at_flat = reshape(at, flat(&at.shape(), n));
    reshape(g, flat(&g.shape(), n)).op("aten.gather", vec![(-1i64).into(), at_flat.into()]).view(at.shape())
}

/// Gradients of the greatest elements added where they were in the last `n` dimensions, taken as one.
fn added(d: &Gradient<'_>, n: usize) {
    let x = d.tensor("self");
    let shape = x.shape();
    let to = flat(&d.g().shape(), n);
    let args = vec![(-1i64).into(), reshape(d.ys(1), to.clone()).into(), reshape(d.g(), to).into()];
    d.give("self", zeros_of(flat(&shape, n), x).op("aten.scatter_add", args).view(shape));
}

/// The op's own backward, which takes the op's arguments.
fn mean(d: &Gradient<'_>, backward: &str) {
    d.give("self", d.g().op(backward, d.args.clone()));
}

/// [`mean`] of an op whose backward finds its grid in the shapes.
fn grid(d: &Gradient<'_>, backward: &str) {
    d.give("self", d.g().op(backward, vec![d.arg("self").clone()]));
}

/// The op of which this is the backward, with its arguments.
fn again(d: &Gradient<'_>, op: &str) {
    d.give("grad_output", d.g().op(op, d.args.iter().skip(2).cloned().collect()));
}

/// [`again`] of an op that takes the sizes of its grid.
fn again_grid(d: &Gradient<'_>, op: &str, n: usize) {
    let shape = d.tensor("grad_output").shape();
    let sizes = shape[shape.len().saturating_sub(n)..].to_vec();
    d.give("grad_output", d.g().op(op, vec![sizes.into()]));
}
