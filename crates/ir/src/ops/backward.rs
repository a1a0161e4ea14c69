//! Gradients that torch has an op for: of norms and embedding. Those of convolutions, pooling and resizing stand beside
//! the ops themselves.

use super::infer::ensure;
use super::promote::{self, Kind};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Norm,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    ..OpDef::BASE
};

records! { GRADIENTS:
    /// Gradients of `native_layer_norm` by its input, weight and bias.
    LAYER_NORM = "aten.native_layer_norm_backward.default", BASE {
        schema: "(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
        infer: Some(|c| of_norm(c, c.dims("normalized_shape"))),
        rule: Some(layer_norm),
        example: "f32[2, 3], f32[2, 3], [3], f32[2, 1], f32[2, 1]>0, f32[3], f32[3], [true, true, true] | f32[2, 2, 3], f32[2, 2, 3], [2, 3], f32[2, 1, 1], f32[2, 1, 1]>0, none, none, [true, true, false] | f32[3], f32[3], [3], f32[1], f32[1]>0, f32[3], f32[3], [false, true, true]",
    };
    /// Gradients of `native_group_norm` by its input, weight and bias.
    GROUP_NORM = "aten.native_group_norm_backward.default", BASE {
        schema: "(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N, SymInt C, SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
        infer: Some(|c| of_norm(c, vec![c.dim("C")])),
        rule: Some(group_norm),
        example: "f32[2, 4, 3], f32[2, 4, 3], f32[2, 2], f32[2, 2]>0, f32[4], 2, 4, 3, 2, [true, true, true] | f32[1, 2, 2, 2], f32[1, 2, 2, 2], f32[1, 1], f32[1, 1]>0, none, 1, 2, 4, 1, [true, false, true]",
    };
    /// Gradient of `embedding` by its weight: the sum of the gradients of the rows that each index took.
    EMBEDDING = "aten.embedding_dense_backward.default", BASE {
        class: Class::Move,
        schema: "(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
        rule: Some(embedding),
        example: "f32[3, 2], i64[3]<4, 4, -1, false | f32[2, 2, 3], i64[2, 2]<3, 3, 1, true",
    };
}

/// What is asked for of these results.
fn masked(c: &Call<'_>, results: [Meta; 3]) -> Result<Meta> {
    let Arg::List(mask) = c.arg("output_mask") else { return Err(c.err("expected three bools")) };
    ensure(c, mask.len() == 3, || format!("{} bools, expected 3", mask.len()))?;
    let asked = |(m, wanted): (Meta, &Arg)| if *wanted == Arg::Bool(true) { m } else { Meta::None };
    Ok(Meta::Tuple(results.into_iter().zip(mask).map(asked).collect()))
}

/// Gradients of a norm's input, and of its weight and bias of this shape.
fn of_norm(c: &Call<'_>, shape: Vec<Dim>) -> Result<Meta> {
    let x = c.meta("input")?;
    let part = Meta::tensor(x.dtype, shape);
    masked(c, [Meta::Tensor(x), part.clone(), part])
}

fn total<'b>(x: Value<'b>, dims: &[usize], keepdim: bool) -> Value<'b> {
    if dims.is_empty() { x } else { x.op("aten.sum.dim_IntList", vec![dims.to_vec().into(), keepdim.into()]) }
}

/// A tensor with dimensions of one element behind its own, up to this rank.
fn behind(x: Value<'_>, rank: usize) -> Value<'_> {
    let ones = vec![Dim::from(1i64); rank.saturating_sub(x.rank())];
    x.view([x.shape(), ones].concat())
}

fn layer_norm<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (parts, types) = promote::tensors(c, &["grad_out", "input", "mean", "rstd"], Kind::Default);
    let [g, x, mean, rstd] = parts[..] else { return vec![] };
    let result = c.tensor("input").dtype();
    let over = c.dims("normalized_shape").len();
    let outer: Vec<usize> = (0..x.rank().saturating_sub(over)).collect();
    let inner: Vec<usize> = (outer.len()..x.rank()).collect();
    let n: Dim = inner.iter().map(|i| x.shape()[*i].clone()).product();
    let rstd = behind(rstd, x.rank());
    let far = (x - behind(mean, x.rank())) * rstd;
    let gw = c.opt_tensor("weight").map_or(g, |w| g * w.to(types.compute));
    let sized = |v: Value<'b>, op: &str| v.op(op, vec![Arg::from(n.clone())]);
    let inside = sized(gw, "aten.mul.Scalar") - total(gw, &inner, true) - far * total(gw * far, &inner, true);
    let of_input = sized(rstd, "aten.div.Scalar") * inside;
    [of_input, total(g * far, &outer, false), total(g, &outer, false)].map(|v| v.to(result)).to_vec()
}

fn group_norm<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (parts, types) = promote::tensors(c, &["grad_out", "input", "mean", "rstd"], Kind::Default);
    let [g, x, mean, rstd] = parts[..] else { return vec![] };
    let result = c.tensor("input").dtype();
    let [n, channels, size, groups] = ["N", "C", "HxW", "group"].map(|n| c.dim(n));
    let each = channels.floor_div(&groups);
    let split = vec![n.clone(), groups.clone(), each.clone(), size.clone()];
    let statistic = |v: Value<'b>| v.view(vec![n.clone(), groups.clone(), 1.into(), 1.into()]);
    let (gs, xs, rstd) = (reshape(g, split.clone()), reshape(x, split), statistic(rstd));
    let far = (xs - statistic(mean)) * rstd;
    let gw = match c.opt_tensor("weight") {
        Some(w) => gs * w.to(types.compute).view(vec![1.into(), groups.clone(), each.clone(), 1.into()]),
        None => gs,
    };
    let count = Arg::from(each * size);
    let mean_of = |v: Value<'b>| total(v, &[2, 3], true).op("aten.div.Scalar", vec![count.clone()]);
    let of_input = (gw - mean_of(gw) - far * mean_of(gw * far)) * rstd;
    let of_channel = |v: Value<'b>| total(v, &[0, 3], false).view(vec![channels.clone()]);
    [reshape(of_input, c.tensor("input").shape()), of_channel(gs * far), of_channel(gs)].map(|v| v.to(result)).to_vec()
}

fn embedding<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (parts, types) = promote::tensors(c, &["grad_output"], Kind::Default);
    let indices = c.tensor("indices").to(DType::I64);
    let (mut g, rows) = (parts[0], c.arg("num_weights").clone());
    let add = |to: Value<'b>, v: Value<'b>| {
        to.op("aten.index_put", vec![Arg::List(vec![indices.into()]), v.into(), true.into()])
    };
    let column = |v: Value<'b>| behind(v, parts[0].rank());
    if c.bool("scale_grad_by_freq") {
        let none = c.b.call("aten.full", vec![Arg::List(vec![rows.clone()]), 0i64.into(), types.compute.into()]);
        let one = c.b.call("aten.full", vec![indices.shape().into(), 1i64.into(), types.compute.into()]);
        let counts = add(none, one).op("aten.index.Tensor", vec![Arg::List(vec![indices.into()])]);
        g = g / column(counts);
    }
    let padded = column(indices.op("aten.eq.Scalar", vec![c.arg("padding_idx").clone()]));
    let g = padded.op("aten.where.ScalarSelf", vec![0i64.into(), g.into()]);
    let shape = [vec![rows], g.shape().split_off(indices.rank()).into_iter().map(Arg::from).collect()].concat();
    let none = c.b.call("aten.full", vec![Arg::List(shape), 0i64.into(), types.compute.into()]);
    vec![add(none, g).to(types.result)]
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[GRADIENTS];
