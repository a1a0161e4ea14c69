//! Normalizations and softmax.

use super::super::view::reshape;
use super::neg;
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::Arg;

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten._softmax.default", "f32[2, 3], 1, false | f32[3, 2], 0, false", softmax),
    Derivative::new("aten._safe_softmax.default", "f32[2, 3], 1", softmax),
    Derivative::new("aten._log_softmax.default", "f32[2, 3], 1, false | f32[3, 2], 0, false", |d| {
        let sum = d.g().op("aten.sum.dim_IntList", vec![vec![d.int("dim")].into(), true.into()]);
        d.give("self", d.g() - d.y().exp() * sum);
    }),
    Derivative::new(
        "aten._native_batch_norm_legit_no_training.default",
        "f32[2, 3, 2], f32[3], f32[3], f32[3], f32[3]>0, 0.1, 0.001 | f32[4, 3], none, none, f32[3], f32[3]>0, 0.1, 0.001",
        |d| {
            let (x, g, mean) = (d.tensor("input"), d.g(), d.tensor("running_mean"));
            let scale = (d.tensor("running_var") + d.float("eps")).rsqrt();
            let far = (x - channels(mean, x.rank())) * channels(scale, x.rank());
            let gw = weighted(d, g);
            d.give("input", gw * channels(scale, x.rank()));
            d.give("weight", per_channel(g * far));
            d.give("bias", per_channel(g));
            d.give("running_mean", neg(per_channel(gw) * scale));
            d.give("running_var", per_channel(gw * far) * (scale * scale) * -0.5);
        },
    ),
    Derivative::new(
        "aten.native_layer_norm.default",
        "f32[2, 3], [3], f32[3], f32[3], 0.001 | f32[2, 2, 3], [2, 3], none, none, 0.001",
        |d| {
            let x = d.tensor("input");
            let g = d.g();
            let gw = d.opt_tensor("weight").map_or(g, |w| g * w);
            let axes = (x.rank().saturating_sub(d.dims("normalized_shape").len())..x.rank()).collect();
            let (gx, far) = standardized(d, x, gw, axes, |v| v);
            d.give("input", gx);
            d.give("weight", g * far);
            d.give("bias", g);
        },
    ),
    Derivative::new(
        "aten.native_group_norm.default",
        "f32[2, 4, 3], f32[4], f32[4], 2, 4, 3, 2, 0.001 | f32[1, 2, 2, 2], none, none, 1, 2, 4, 1, 0.001",
        groups,
    ),
];

/// `y·(g - Σ g·y)`.
fn softmax(d: &Gradient<'_>) {
    let part = d.g() * d.y();
    let sum = part.op("aten.sum.dim_IntList", vec![vec![d.int("dim")].into(), true.into()]);
    d.give("self", part - d.y() * sum);
}

/// One number a channel, as it broadcasts with a tensor of this rank.
fn channels(v: Value<'_>, rank: usize) -> Value<'_> {
    let ones = vec![Dim::from(1i64); rank.saturating_sub(2)];
    v.view([v.shape(), ones].concat())
}

/// Sums over all but the channels.
fn per_channel(v: Value<'_>) -> Value<'_> {
    let over: Vec<usize> = (0..v.rank()).filter(|i| *i != 1).collect();
    v.op("aten.sum.dim_IntList", vec![over.into()])
}

/// A gradient times the channels' weights, if there are any.
fn weighted<'b>(d: &Gradient<'b>, g: Value<'b>) -> Value<'b> {
    d.opt_tensor("weight").map_or(g, |w| g * channels(w, g.rank()))
}

/// The gradient of `x` from that of `(x - mean) / deviation`, and these; both are means over the dimensions, and, in the
/// shape that `stat` gives them, the call's second result and the reciprocal of its third.
fn standardized<'b>(
    d: &Gradient<'b>,
    x: Value<'b>,
    g: Value<'b>,
    axes: Vec<usize>,
    stat: impl Fn(Value<'b>) -> Value<'b>,
) -> (Value<'b>, Value<'b>) {
    let (mean, scale) = (stat(d.ys(1)), stat(d.ys(2)));
    let far = (x - mean) * scale;
    let over = |v: Value<'b>| v.op("aten.mean.dim", vec![axes.clone().into(), true.into()]);
    let mut sum = (g - over(g) - far * over(g * far)) * scale;
    let n: Dim = axes.iter().map(|i| x.shape()[*i].clone()).product();
    let share = |v: Value<'b>| v.op("aten.div.Scalar", vec![Arg::from(n.clone())]);
    if let Some(g) = d.flow(1) {
        sum = sum + share(stat(g));
    }
    if let Some(g) = d.flow(2) {
        sum = sum - share(stat(g) * scale * scale) * far;
    }
    (sum, far)
}

fn groups<'b>(d: &Gradient<'b>) {
    let (x, g) = (d.tensor("input"), d.g());
    let split = vec![d.dim("N"), d.dim("group"), (d.dim("C") * d.dim("HxW")).floor_div(&d.dim("group"))];
    let of = |v: Value<'b>| reshape(v, split.clone());
    let stat = |v: Value<'b>| v.op("aten.unsqueeze", vec![(-1i64).into()]);
    let (gx, far) = standardized(d, of(x), of(weighted(d, g)), vec![2], stat);
    d.give("input", reshape(gx, x.shape()));
    d.give("weight", per_channel(g * reshape(far, x.shape())));
    d.give("bias", per_channel(g));
}
