//! Batch norm: by running statistics, or by those of the batch.

use super::infer::ensure;
use super::norm::{BASE, per_channel, scaled};
use super::promote::Kind;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Functional, Levels, OpDef};

const CORE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE), ..BASE };
/// Writes to the running statistics, or is one of several in functional form.
const SUGAR: OpDef = OpDef { levels: Levels::TORCH, functional: Functional::Always, ..BASE };

/// `(x - mean) / sqrt(var + eps) · weight + bias` for each channel (dimension 1); in training, or without running
/// statistics, mean and variance are those of the batch.
pub static BATCH_NORM: OpDef = OpDef {
    name: "aten.batch_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    rule: Some(|c| vec![c.b.getitem(by_mode(c), 0)]),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, false, 0.1, 0.001, false | f32[2, 3], none, none, none, none, true, 0.1, 0.001, false",
    raisable: true,
    ..SUGAR
};

/// [`BATCH_NORM`] with what a backward pass wants: the means and reciprocal standard deviations of the batch.
pub static NATIVE_BATCH_NORM: OpDef = OpDef {
    name: "aten.native_batch_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    infer: None,
    rule: Some(|c| {
        let y = by_mode(c);
        [0, 1, 2].map(|i| c.b.getitem(y, i)).to_vec()
    }),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, false, 0.1, 0.001",
    ..SUGAR
};

/// The functional op for a call's mode.
fn by_mode<'b>(c: &Call<'b>) -> Value<'b> {
    let pick = |names: &[&str]| names.iter().map(|n| c.arg(n).clone()).collect::<Vec<_>>();
    match (c.opt_tensor("running_mean"), c.bool("training")) {
        (None, _) => {
            let args = pick(&["input", "weight", "bias", "training", "momentum", "eps"]);
            c.b.call("aten._native_batch_norm_legit.no_stats", args)
        }
        (_, true) => c.b.call("aten._native_batch_norm_legit_functional", pick(LEGIT)),
        (_, false) => {
            let args = pick(&["input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"]);
            c.b.call("aten._native_batch_norm_legit_no_training", args)
        }
    }
}

const LEGIT: &[&str] = &["input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"];

/// What a functional graph has for [`BATCH_NORM`] at inference; the second and third result are empty.
pub static BATCH_NORM_NO_TRAINING: OpDef = OpDef {
    name: "aten._native_batch_norm_legit_no_training.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    infer: Some(|c| {
        let x = Meta::Tensor(c.meta("input")?);
        let none = Meta::tensor(c.meta("running_mean")?.dtype, vec![Dim::from(0i64)]);
        Ok(Meta::Tuple(vec![x, none.clone(), none]))
    }),
    rule: Some(|c| {
        let (x, mean, var) = (c.tensor("input"), c.tensor("running_mean"), c.tensor("running_var"));
        let mut scale = (var + c.float("eps")).rsqrt();
        if let Some(w) = c.opt_tensor("weight") {
            scale = scale * w;
        }
        let shift = match c.opt_tensor("bias") {
            Some(b) => b - mean * scale,
            None => mean * scale * -1.0,
        };
        let y = x * per_channel(scale, x.rank()) + per_channel(shift, x.rank());
        vec![y, empty(mean), empty(mean)]
    }),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, 0.1, 0.001 | f32[2, 3], none, none, f32[3], f32[3]>0, 0.1, 0.001",
    ..CORE
};

/// No elements, of another tensor's type.
fn empty(like: Value<'_>) -> Value<'_> {
    like.builder().call("aten.full", vec![vec![0i64].into(), 0i64.into(), like.dtype().into()])
}

/// [`BATCH_NORM`] that writes the running statistics.
pub static LEGIT_: OpDef = OpDef {
    name: "aten._native_batch_norm_legit.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    infer: Some(|c| statistics(c, 3)),
    rule: Some(|c| {
        let y = c.b.call("aten._native_batch_norm_legit_functional", c.args.to_vec());
        (0..5).map(|i| c.b.getitem(y, i)).collect()
    }),
    ..SUGAR
};

/// [`LEGIT_`] with the new running statistics as results.
pub static LEGIT_FUNCTIONAL: OpDef = OpDef {
    name: "aten._native_batch_norm_legit_functional.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    infer: Some(|c| statistics(c, 5)),
    rule: Some(|c| normalize(c, c.bool("training"))),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, true, 0.1, 0.001 | f32[2, 3], none, none, f32[3], f32[3]>0, false, 0.1, 0.001",
    ..CORE
};

/// [`BATCH_NORM`] by the statistics of the batch.
pub static LEGIT_NO_STATS: OpDef = OpDef {
    name: "aten._native_batch_norm_legit.no_stats",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    infer: Some(|c| statistics(c, 3)),
    rule: Some(|c| normalize(c, true)),
    example: "f32[2, 3, 4], f32[3], f32[3], true, 0.1, 0.001",
    ..CORE
};

/// [`LEGIT_`] in training, with room for what a kernel keeps.
pub static WITH_UPDATE_: OpDef = OpDef {
    name: "aten._batch_norm_with_update.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
    infer: Some(|c| statistics(c, 4)),
    rule: Some(|c| {
        let y = c.b.call("aten._batch_norm_with_update_functional", c.args.to_vec());
        (0..6).map(|i| c.b.getitem(y, i)).collect()
    }),
    ..SUGAR
};

/// [`WITH_UPDATE_`] with the new running statistics as results.
pub static WITH_UPDATE_FUNCTIONAL: OpDef = OpDef {
    name: "aten._batch_norm_with_update_functional.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    infer: Some(|c| statistics(c, 6)),
    rule: Some(|c| {
        let mut y = normalize(c, true);
        y.insert(3, reserved(c));
        y
    }),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, 0.1, 0.001",
    ..CORE
};

/// [`BATCH_NORM`] by running statistics, with room for what a kernel keeps.
pub static NO_UPDATE: OpDef = OpDef {
    name: "aten._batch_norm_no_update.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
    infer: None,
    rule: Some(|c| {
        let y = c.b.call("aten._native_batch_norm_legit_no_training", c.args.to_vec());
        let mut y: Vec<_> = (0..3).map(|i| c.b.getitem(y, i)).collect();
        y.push(reserved(c));
        y
    }),
    example: "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3]>0, 0.1, 0.001",
    ..CORE
};

/// What a CPU kernel keeps: nothing.
fn reserved<'b>(c: &Call<'b>) -> Value<'b> {
    c.b.call("aten.full", vec![vec![0i64].into(), 0i64.into(), cleave_numerics::DType::U8.into()])
}

/// Whether a call takes the statistics of the batch.
fn by_batch(c: &Call<'_>) -> bool {
    c.op.schema.index("running_mean").is_none() || c.op.schema.index("training").is_none() || c.bool("training")
}

/// Input, statistics of the batch, what a kernel keeps, running statistics: as many of them as the op gives.
fn statistics(c: &Call<'_>, results: usize) -> Result<Meta> {
    let m = c.meta("input")?;
    ensure(c, m.shape.len() >= 2, || format!("an input of rank 2 or more expected, found {:?}", m.shape))?;
    let channels = vec![if by_batch(c) { m.shape[1].clone() } else { 0i64.into() }];
    let of_batch = Meta::tensor(m.dtype, channels);
    let mut all = vec![Meta::Tensor(m), of_batch.clone(), of_batch];
    if results.is_multiple_of(2) {
        all.push(Meta::tensor(cleave_numerics::DType::U8, vec![0i64.into()]));
    }
    if results > all.len() {
        all.extend([Meta::Tensor(c.meta("running_mean")?), Meta::Tensor(c.meta("running_var")?)]);
    }
    Ok(Meta::Tuple(all))
}

/// The normalized input, means and reciprocal standard deviations of the batch, and new running statistics if the op
/// has any.
fn normalize<'b>(c: &Call<'b>, by_batch: bool) -> Vec<Value<'b>> {
    let x = c.tensor("input");
    let (wide, rank) = (x.to(Kind::Default.of(x.dtype()).compute), x.rank());
    let running = c.op.schema.index("running_mean").map(|_| (c.tensor("running_mean"), c.tensor("running_var")));
    let eps = c.float("eps");
    let finish = |y: Value<'b>| {
        let [w, b] = ["weight", "bias"].map(|n| c.opt_tensor(n).map(|v| per_channel(v, rank)));
        scaled(y, w, b).to(x.dtype())
    };
    if let Some((mean, var)) = running.filter(|_| !by_batch) {
        let rstd = (var.to(wide.dtype()) + eps).rsqrt();
        let y = (wide - per_channel(mean, rank)) * per_channel(rstd, rank);
        return vec![finish(y), empty(x), empty(x), mean, var];
    }
    let dims: Vec<usize> = (0..rank).filter(|i| *i != 1).collect();
    let both = wide.op("aten.var_mean.correction", vec![dims.clone().into(), 0i64.into(), true.into()]);
    let (var, mean) = (c.b.getitem(both, 0), c.b.getitem(both, 1));
    let rstd = (var + eps).rsqrt();
    let flat = |v: Value<'b>| v.op("aten.squeeze.dims", vec![dims.clone().into()]);
    let mut results = vec![finish((wide - mean) * rstd), flat(mean).to(x.dtype()), flat(rstd).to(x.dtype())];
    if let Some((old_mean, old_var)) = running {
        let momentum = c.float("momentum");
        let moved = |new: Value<'b>, old: Value<'b>| (new * momentum + old * (1.0 - momentum)).to(old.dtype());
        let count: Dim = dims.iter().map(|i| x.shape()[*i].clone()).product();
        let unbiased = flat(var)
            .op("aten.mul.Tensor", vec![count.clone().into()])
            .op("aten.div.Tensor", vec![(count - Dim::from(1i64)).into()]);
        results.extend([moved(flat(mean), old_mean), moved(unbiased, old_var)]);
    }
    results
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &BATCH_NORM,
    &NATIVE_BATCH_NORM,
    &BATCH_NORM_NO_TRAINING,
    &LEGIT_,
    &LEGIT_FUNCTIONAL,
    &LEGIT_NO_STATS,
    &WITH_UPDATE_,
    &WITH_UPDATE_FUNCTIONAL,
    &NO_UPDATE,
]];
