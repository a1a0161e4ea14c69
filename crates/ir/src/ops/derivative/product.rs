//! Matrix products and convolutions.

use super::times;
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.mm.default", "f32[2, 3], f32[3, 4]", |d| factors(d, "self", "mat2", d.g())),
    Derivative::new("aten.bmm.default", "f32[2, 2, 3], f32[2, 3, 4]", |d| factors(d, "self", "mat2", d.g())),
    Derivative::new(
        "aten.addmm.default",
        "f32[4], f32[2, 3], f32[3, 4] | f32[2, 1], f32[2, 3], f32[3, 4], 0.5, 2.0",
        |d| {
            d.give("self", times(d.g(), d.arg("beta")));
            factors(d, "mat1", "mat2", times(d.g(), d.arg("alpha")));
        },
    ),
    Derivative::new(
        "aten.baddbmm.default",
        "f32[4], f32[2, 2, 3], f32[2, 3, 4] | f32[2, 2, 4], f32[2, 2, 3], f32[2, 3, 4], 0.5, 2.0",
        |d| {
            d.give("self", times(d.g(), d.arg("beta")));
            factors(d, "batch1", "batch2", times(d.g(), d.arg("alpha")));
        },
    ),
    Derivative::new("aten.dot.default", "f32[3], f32[3]", |d| {
        d.give("self", d.g() * d.tensor("tensor"));
        d.give("tensor", d.g() * d.tensor("self"));
    }),
    Derivative::new("aten.mv.default", "f32[2, 3], f32[3]", |d| {
        d.give("self", d.g().op("aten.unsqueeze", vec![1i64.into()]) * d.tensor("vec"));
        d.give("vec", transposed(d.tensor("self")).op("aten.mv", vec![d.g().into()]));
    }),
    Derivative::new("aten.convolution.default", CONVOLUTIONS, |d| {
        let sizes = match d.opt_tensor("bias").map(|b| b.meta()) {
            Some(Meta::Tensor(t)) => t.shape.into(),
            _ => Arg::None,
        };
        let mask = ["input", "weight", "bias"].map(|n| d.wants(n));
        let x = d.tensor("input");
        let lone = x.rank() < d.tensor("weight").rank();
        let batch = |v: Value<'_>| if lone { v.op("aten.unsqueeze", vec![0i64.into()]).into() } else { Arg::from(v) };
        let args = vec![batch(d.g()), batch(x), d.arg("weight").clone(), sizes];
        let all = d.b.call("aten.convolution_backward", [args, options(d), vec![mask.to_vec().into()]].concat());
        for (i, name) in ["input", "weight", "bias"].into_iter().enumerate().filter(|(i, _)| mask[*i]) {
            let g = d.b.getitem(all, i);
            d.give(name, if i == 0 && lone { g.op("aten.squeeze.dims", vec![vec![0i64].into()]) } else { g });
        }
    }),
    Derivative::new("aten.convolution_backward.default", BACKWARDS, backwards),
];

const BACKWARDS: &str = "f32[1, 3, 3], f32[1, 2, 5], f32[3, 2, 3], [3], [2], [1], [1], false, [0], 1, [true, true, true] \
    | f32[1, 2, 3, 2], f32[1, 4, 2, 2], f32[4, 1, 2, 1], [2], [1, 1], [0, 0], [1, 1], true, [0, 0], 2, [true, true, true]";

const CONVOLUTIONS: &str = "f32[1, 2, 5], f32[3, 2, 3], f32[3], [2], [1], [1], false, [0], 1 \
    | f32[2, 4, 4, 5], f32[2, 2, 2, 3], none, [1, 2], [0, 1], [2, 1], false, [0, 0], 2 \
    | f32[1, 4, 2, 3], f32[4, 1, 2, 2], f32[2], [2, 1], [1, 0], [1, 2], true, [1, 0], 2 \
    | f32[1, 1, 3, 3, 3], f32[2, 1, 2, 2, 2], f32[2], [1, 1, 1], [0, 0, 0], [1, 1, 1], false, [0, 0, 0], 1";

/// The last two dimensions exchanged.
pub(super) fn transposed(v: Value<'_>) -> Value<'_> {
    let n = v.rank() as i64;
    v.permute((0..n - 2).chain([n - 1, n - 2]).collect())
}

/// `g·bᵀ` and `aᵀ·g`, by the product whose operands have as many dimensions.
fn factors<'b>(d: &Gradient<'b>, a: &str, b: &str, g: Value<'b>) {
    let op = if g.rank() == 2 { "aten.mm" } else { "aten.bmm" };
    d.give(a, g.op(op, vec![transposed(d.tensor(b)).into()]));
    d.give(b, transposed(d.tensor(a)).op(op, vec![g.into()]));
}

fn options(d: &Gradient<'_>) -> Vec<Arg> {
    let names = ["stride", "padding", "dilation", "transposed", "output_padding", "groups"];
    names.map(|n| d.arg(n).clone()).to_vec()
}

/// A convolution is linear in its input and in its weight, and so are its gradients.
fn backwards<'b>(d: &Gradient<'b>) {
    let (g, x, w) = (d.tensor("grad_output"), d.tensor("input"), d.tensor("weight"));
    let conv = |x: Value<'b>, w: Value<'b>| x.op("aten.convolution", [vec![w.into(), Arg::None], options(d)].concat());
    let back = |x: Value<'b>, w: Value<'b>, i: usize| {
        let mask: Vec<bool> = (0..3).map(|j| i == j).collect();
        let args = [vec![x.into(), w.into(), Arg::None], options(d), vec![mask.into()]].concat();
        d.b.getitem(g.op("aten.convolution_backward", args), i)
    };
    if let Some(u) = d.flow(0) {
        d.give("grad_output", conv(u, w));
        d.give("weight", back(u, w, 1));
    }
    if let Some(v) = d.flow(1) {
        d.give("grad_output", conv(x, v));
        d.give("input", back(x, v, 0));
    }
    if let Some(b) = d.flow(2) {
        let space = vec![Dim::from(1i64); g.rank().saturating_sub(2)];
        d.give("grad_output", b.view([b.shape(), space].concat()));
    }
}
