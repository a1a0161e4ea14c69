//! Losses of predictions of classes.

use super::expr::{choose, compare, neg};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, Levels, OpDef};

const BASE: OpDef = OpDef {
    class: Class::Reduction,
    levels: Levels::TORCH.and(Levels::ATEN),
    schema: "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100) -> Tensor",
    accuracy: Accuracy::Approximate,
    ..OpDef::BASE
};
const FORWARD: OpDef = OpDef {
    schema: "(Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index) -> (Tensor output, Tensor total_weight)",
    rule: Some(nll),
    ..BASE
};

records! { CLASSES:
    /// `-weight[target]·x[target]`, the mean by the sum of the weights; targets of `ignore_index` do not count.
    NLL = "aten.nll_loss.default", BASE {
        rule: Some(|c| vec![c.b.getitem(c.b.call("aten.nll_loss_forward", c.args.clone()), 0)]),
        example: "f32[2, 3], i64[2]<3 | f32[3], i64[]<3, f32[3], 2",
    };
    /// [`NLL`] at each place of an image.
    NLL_2D = "aten.nll_loss2d.default", BASE {
        rule: Some(|c| vec![c.b.getitem(c.b.call("aten.nll_loss2d_forward", c.args.clone()), 0)]),
        example: "f32[2, 3, 2, 2], i64[2, 2, 2]<3",
    };
    /// [`NLL`] at each place of any number of dimensions behind the classes.
    NLL_ND = "aten.nll_loss_nd.default", BASE {
        rule: Some(|c| vec![nll_nd(c, c.tensor("self"))]),
        example: "f32[2, 3], i64[2]<3 | f32[2, 3, 2], i64[2, 2]<3, f32[3], 0",
    };
    /// [`NLL`] and the sum of the weights that count.
    NLL_FORWARD = "aten.nll_loss_forward.default", FORWARD {
        example: "f32[2, 3], i64[2]<3, f32[3], 1, -100 | f32[3], i64[]<3, none, 0, 1",
    };
    /// [`NLL_2D`] and the sum of the weights that count.
    NLL_2D_FORWARD = "aten.nll_loss2d_forward.default", FORWARD {
        example: "f32[2, 3, 2, 2], i64[2, 2, 2]<3, none, 2, -100",
    };
    /// [`NLL`] of the logarithm of softmax; targets of the input's shape are probabilities.
    CROSS_ENTROPY = "aten.cross_entropy_loss.default", BASE {
        schema: "(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, float label_smoothing=0.0) -> Tensor",
        rule: Some(|c| vec![cross_entropy(c)]),
        example: "f32[2, 3], i64[2]<3 | f32[2, 3, 2], f32[2, 3, 2], f32[3], 0, -100, 0.25 | f32[2, 3], i64[2]<3, none, 1, 0, 0.5",
    };
    /// [`CROSS_ENTROPY`] of a linear layer, and its gradients, which are empty where they are not asked for.
    LINEAR_CROSS_ENTROPY = "torch_nn._linear_cross_entropy_batch_chunked.default", BASE {
        levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
        schema: "(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, str reduction, SymInt ignore_index, float label_smoothing, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype, bool allow_retain_graph, bool compute_input_grad, bool compute_linear_weight_grad, bool compute_linear_bias_grad) -> (Tensor, Tensor, Tensor, Tensor)",
        rule: Some(|c| {
            let grads = ["compute_input_grad", "compute_linear_weight_grad", "compute_linear_bias_grad"];
            if grads.iter().any(|n| c.bool(n)) {
                c.fail("it computes gradients; export the model without them");
            }
            let reduction = match c.str("reduction") {
                "mean" => 1i64,
                "sum" => 2,
                other => {
                    c.fail(&format!("reduction '{other}', expected 'mean' or 'sum'"));
                    1
                }
            };
            let dtype = c.tensor("input").dtype();
            let none = |shape: Vec<i64>| c.b.call("aten.full", vec![shape.into(), 0i64.into(), dtype.into()]);
            let loss = linear_cross_entropy(c, reduction, c.float("label_smoothing"));
            vec![loss, none(vec![0, 0]), none(vec![0, 0]), none(vec![0])]
        }),
        example: "f32[2, 3], f32[4, 3], i64[2]<4, f32[4], none, \"mean\", -100, 0.0, 1, \"auto\", f32, false, false, false, false",
    };
    /// [`LINEAR_CROSS_ENTROPY`] of each row.
    LINEAR_CROSS_ENTROPY_ROWS = "torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default", BASE {
        levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
        schema: "(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, SymInt ignore_index, SymInt batch_chunk_size, str acc_policy, ScalarType acc_dtype) -> Tensor",
        rule: Some(|c| vec![linear_cross_entropy(c, 0, 0.0)]),
        example: "f32[2, 3], f32[4, 3], i64[2]<4, none, f32[4], -100, 1, \"auto\", f32",
    };
}

/// Where the classes are.
fn class_dim(x: Value<'_>) -> i64 {
    i64::from(x.rank() != 1)
}

/// A weight for each class, shaped to go along with `x`.
fn along<'b>(c: &Call<'b>, x: Value<'b>, weight: Value<'b>) -> Value<'b> {
    if weight.rank() != 1 {
        c.fail(&format!("weight of shape {:?}, expected one for each class", weight.shape()));
        return x;
    }
    let mut shape = vec![Dim::from(1i64); x.rank()];
    match shape.get_mut(1) {
        Some(d) => {
            *d = weight.shape()[0].clone();
            weight.view(shape)
        }
        None => weight,
    }
}

fn sum<'b>(x: Value<'b>) -> Value<'b> {
    x.op("aten.sum", vec![])
}

fn nll<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (mut x, target) = (c.tensor("self"), c.tensor("target"));
    if target.rank() + 1 != x.rank() && !(x.rank() == 1 && target.rank() == 1) {
        c.fail(&format!("targets of shape {:?} for predictions of shape {:?}", target.shape(), x.shape()));
        return vec![x, x];
    }
    let (dim, shape, dtype) = (class_dim(x), x.shape(), x.dtype());
    let ignored = c.arg("ignore_index").clone();
    let counts = || compare(target, "ne", ignored.clone());
    let weight = c.opt_tensor("weight").map(|w| along(c, x, w));
    if let Some(w) = weight {
        x = x * w;
    }
    let index = choose(counts(), target, 0i64).op("aten.unsqueeze", vec![dim.into()]);
    let pick =
        |v: Value<'b>| v.op("aten.gather", vec![dim.into(), index.into()]).op("aten.squeeze.dim", vec![dim.into()]);
    let loss = choose(counts(), neg(pick(x)), 0i64);
    let reduction = c.int("reduction");
    if reduction == 0 && shape.len() > 1 {
        return vec![loss, c.b.call("aten.full", vec![Arg::List(vec![]), 0i64.into(), dtype.into()])];
    }
    let total = match weight {
        Some(w) => sum(choose(counts(), pick(w.op("aten.expand", vec![shape.into()])), 0i64)),
        None => sum(counts()).to(dtype),
    };
    let loss = match reduction {
        0 => loss,
        1 => sum(loss) / total,
        2 => sum(loss),
        other => {
            c.fail(&format!("reduction {other}, expected 0 (none), 1 (mean) or 2 (sum)"));
            loss
        }
    };
    vec![loss, total]
}

fn nll_nd<'b>(c: &Call<'b>, x: Value<'b>) -> Value<'b> {
    let (target, shape) = (c.tensor("target"), x.shape());
    let rest = ["weight", "reduction", "ignore_index"].map(|n| c.arg(n).clone()).to_vec();
    let loss = |op: &str, x: Value<'b>, target: Value<'b>| x.op(op, [vec![target.into()], rest].concat());
    match shape.as_slice() {
        [_] | [_, _] => loss("aten.nll_loss", x, target),
        [_, _, _, _] => loss("aten.nll_loss2d", x, target),
        [n, classes, places @ ..] => {
            let empty = shape.iter().any(|d| d.is(0));
            let tail = |lead: Vec<Dim>| {
                let tail = if empty { [0i64, 0] } else { [1, -1] };
                [lead, tail.map(Dim::from).to_vec()].concat()
            };
            let flat = x.op("aten.contiguous", vec![]).view(tail(vec![n.clone(), classes.clone()]));
            let y = target.op("aten.contiguous", vec![]).view(tail(vec![n.clone()]));
            let y = loss("aten.nll_loss2d", flat, y);
            if c.int("reduction") == 0 { y.view([vec![n.clone()], places.to_vec()].concat()) } else { y }
        }
        [] => {
            c.fail("a prediction without dimensions");
            x
        }
    }
}

fn cross_entropy<'b>(c: &Call<'b>) -> Value<'b> {
    let (x, target, smoothing) = (c.tensor("self"), c.tensor("target"), c.float("label_smoothing"));
    let dim = class_dim(x);
    let logs = x.op("aten._log_softmax", vec![dim.into(), false.into()]);
    let weighted = |v: Value<'b>| match c.opt_tensor("weight") {
        Some(w) => v * along(c, x, w),
        None => v,
    };
    let classes = x.shape().get(dim as usize).cloned().unwrap_or(Dim::from(1i64));
    if x.shape() == target.shape() {
        return probable(c, logs, &weighted, classes);
    }
    if smoothing == 0.0 {
        return nll_nd(c, logs);
    }
    let plain = nll_nd(c, logs);
    let along_classes = |v: Value<'b>| neg(v.op("aten.sum.dim_IntList", vec![vec![dim].into()]));
    let ignored = compare(target, "eq", c.arg("ignore_index").clone());
    let masked = |v: Value<'b>, mask: Value<'b>| v.op("aten.masked_fill.Scalar", vec![mask.into(), 0i64.into()]);
    let even = masked(along_classes(weighted(logs)), ignored);
    let even = match (c.int("reduction"), c.opt_tensor("weight")) {
        (1, Some(w)) => {
            let flat = |v: Value<'b>| v.op("aten.flatten.using_ints", vec![]);
            let weights = w.op("aten.gather", vec![0i64.into(), flat(masked(target, ignored)).into()]);
            sum(even) / sum(masked(weights, flat(ignored)))
        }
        (1, None) => sum(even) / sum(ignored.op("aten.bitwise_not", vec![])),
        (2, _) => sum(even),
        _ => even,
    };
    let Some(n) = classes.as_const() else {
        c.fail("label smoothing over a number of classes that is not known");
        return plain;
    };
    let scale = |v: Value<'b>, by: f64| v.op("aten.mul.Scalar", vec![by.into()]);
    scale(plain, 1.0 - smoothing) + scale(even, smoothing / n as f64)
}

/// Cross entropy with probabilities as targets.
fn probable<'b>(c: &Call<'b>, logs: Value<'b>, weighted: &dyn Fn(Value<'b>) -> Value<'b>, classes: Dim) -> Value<'b> {
    let (mut target, smoothing) = (c.tensor("target"), c.float("label_smoothing"));
    if smoothing > 0.0 {
        let Some(n) = classes.as_const() else {
            c.fail("label smoothing over a number of classes that is not known");
            return logs;
        };
        target = target.op("aten.mul.Scalar", vec![(1.0 - smoothing).into()]);
        target = target.op("aten.add.Scalar", vec![(smoothing / n as f64).into()]);
    }
    let loss = weighted(logs * target);
    match c.int("reduction") {
        0 => neg(loss.op("aten.sum.dim_IntList", vec![vec![class_dim(logs)].into()])),
        2 => neg(sum(loss)),
        _ if logs.shape().iter().any(|d| d.is(0)) => neg(sum(loss)).op("aten.fill.Scalar", vec![f64::NAN.into()]),
        _ => {
            let rows = logs.shape().into_iter().product::<Dim>().floor_div(&classes);
            neg(sum(loss)).op("aten.div.Scalar", vec![rows.into()])
        }
    }
}

fn linear_cross_entropy<'b>(c: &Call<'b>, reduction: i64, smoothing: f64) -> Value<'b> {
    let [weight, bias] = ["linear_weight", "linear_bias"].map(|n| c.arg(n).clone());
    let logits = c.tensor("input").op("aten.linear", vec![weight, bias]);
    let rest = vec![c.arg("target").clone(), c.arg("weight").clone(), reduction.into(), c.arg("ignore_index").clone()];
    logits.op("aten.cross_entropy_loss", [rest, vec![smoothing.into()]].concat())
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[CLASSES];
