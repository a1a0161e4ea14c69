//! Normalizations and softmax.

use super::infer::{ensure, same};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta, TensorMeta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Norm, accuracy: Accuracy::Approximate, infer: Some(same), ..OpDef::BASE };

/// Batch norm; at inference `(x - mean) / sqrt(var + eps) · weight + bias` per channel (dimension 1).
pub static BATCH_NORM: OpDef = OpDef {
    name: "aten.batch_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    levels: Levels::TORCH,
    rule: Some(|c| {
        if c.bool("training") {
            c.fail("batch norm in training mode; export the model after .eval()");
        }
        let pick = |n: &str| c.arg(n).clone();
        let args = ["input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"].map(pick);
        vec![c.b.getitem(c.b.call("aten._native_batch_norm_legit_no_training", args.to_vec()), 0)]
    }),
    functional: Functional::Always,
    ..BASE
};

/// What a functional graph has for [`BATCH_NORM`] at inference; the second and third result are empty.
pub static BATCH_NORM_NO_TRAINING: OpDef = OpDef {
    name: "aten._native_batch_norm_legit_no_training.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
    levels: Levels::ATEN.and(Levels::CORE),
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
        let mut shape = vec![Dim::from(1i64); x.rank().saturating_sub(1)];
        if let (Some(first), Some(n)) = (shape.first_mut(), mean.shape().first()) {
            *first = n.clone();
        }
        let empty = || c.b.call("aten.full", vec![vec![0i64].into(), 0i64.into(), mean.dtype().into()]);
        vec![x * scale.view(shape.clone()) + shift.view(shape), empty(), empty()]
    }),
    ..BASE
};

/// Layer norm over the last dimensions.
pub static LAYER_NORM: OpDef = OpDef {
    name: "aten.layer_norm.default",
    schema: "(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("input")?;
        normalized(c, &m)?;
        Ok(Meta::Tensor(m))
    }),
    rule: Some(|c| {
        let args = ["input", "normalized_shape", "weight", "bias", "eps"].map(|n| c.arg(n).clone());
        vec![c.b.getitem(c.b.call("aten.native_layer_norm", args.to_vec()), 0)]
    }),
    ..BASE
};

/// How many of the last dimensions are normalized.
fn normalized(c: &Call<'_>, m: &TensorMeta) -> Result<usize> {
    let over = c.dims("normalized_shape");
    let fits = m.shape.len().checked_sub(over.len()).filter(|_| !over.is_empty()).is_some_and(|lead| {
        m.shape[lead..].iter().zip(&over).all(|(a, b)| a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b))
    });
    ensure(c, fits, || format!("input {:?} normalized over {over:?}", m.shape))?;
    Ok(over.len())
}

/// [`LAYER_NORM`] as Core ATen has it, with means and reciprocal standard deviations.
pub static NATIVE_LAYER_NORM: OpDef = OpDef {
    name: "aten.native_layer_norm.default",
    schema: "(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
    levels: Levels::ATEN.and(Levels::CORE),
    infer: Some(|c| {
        let m = c.meta("input")?;
        let lead = m.shape.len() - normalized(c, &m)?;
        let mut stat = m.shape.clone();
        stat[lead..].fill(Dim::from(1i64));
        let stat = Meta::tensor(m.dtype, stat);
        Ok(Meta::Tuple(vec![Meta::Tensor(m), stat.clone(), stat]))
    }),
    ..BASE
};

/// Normalization over groups of channels (dimension 1).
pub static GROUP_NORM: OpDef = OpDef {
    name: "aten.group_norm.default",
    schema: "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("input");
        let shape = x.shape();
        if shape.len() < 2 {
            c.fail("an input of rank 2 or more expected");
            return vec![x];
        }
        let space: Dim = shape[2..].iter().cloned().product();
        let args = vec![
            x.into(),
            c.arg("weight").clone(),
            c.arg("bias").clone(),
            shape[0].clone().into(),
            shape[1].clone().into(),
            space.into(),
            c.arg("num_groups").clone(),
            c.arg("eps").clone(),
        ];
        vec![c.b.getitem(c.b.call("aten.native_group_norm", args), 0)]
    }),
    ..BASE
};

/// [`GROUP_NORM`] as Core ATen has it, with means and reciprocal standard deviations.
pub static NATIVE_GROUP_NORM: OpDef = OpDef {
    name: "aten.native_group_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
    levels: Levels::ATEN.and(Levels::CORE),
    infer: Some(|c| {
        let m = c.meta("input")?;
        let stat = Meta::tensor(m.dtype, vec![c.dim("N"), Dim::from(c.int("group"))]);
        Ok(Meta::Tuple(vec![Meta::Tensor(m), stat.clone(), stat]))
    }),
    ..BASE
};

/// Normalization of each channel of each sample: a group norm with one channel a group.
pub static INSTANCE_NORM: OpDef = OpDef {
    name: "aten.instance_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("input");
        if !c.bool("use_input_stats") {
            let args = ["input", "weight", "bias", "running_mean", "running_var"].map(|n| c.arg(n).clone());
            let rest = [Arg::Bool(false), c.arg("momentum").clone(), c.arg("eps").clone(), Arg::Bool(false)];
            return vec![c.b.call("aten.batch_norm", [&args[..], &rest].concat())];
        }
        let groups = x.shape().get(1).and_then(Dim::as_const).unwrap_or(1);
        let args = [Arg::Int(groups), c.arg("weight").clone(), c.arg("bias").clone(), c.arg("eps").clone()];
        vec![x.op("aten.group_norm", args.to_vec())]
    }),
    ..BASE
};

/// Softmax along one dimension.
pub static SOFTMAX: OpDef = OpDef {
    name: "aten.softmax.int",
    schema: "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| vec![converted(c).op("aten._softmax", vec![c.arg("dim").clone(), false.into()])]),
    infer: Some(softmax),
    ..BASE
};

/// The input in the type that was asked for.
fn converted<'b>(c: &Call<'b>) -> Value<'b> {
    let x = c.tensor("self");
    match c.opt_dtype("dtype") {
        Some(d) if d != x.dtype() => x.op("aten._to_copy", vec![d.into()]),
        _ => x,
    }
}

fn softmax(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    c.axis("dim", m.shape.len())?;
    Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(m.dtype), m.shape))
}

/// Softmax as Core ATen has it.
pub static CORE_SOFTMAX: OpDef = OpDef {
    name: "aten._softmax.default",
    schema: "(Tensor self, int dim, bool half_to_float) -> Tensor",
    levels: Levels::ATEN.and(Levels::CORE),
    ..BASE
};

/// Logarithm of [`SOFTMAX`].
pub static LOG_SOFTMAX: OpDef = OpDef {
    name: "aten.log_softmax.int",
    schema: "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| vec![converted(c).op("aten._log_softmax", vec![c.arg("dim").clone(), false.into()])]),
    infer: Some(softmax),
    ..BASE
};

/// [`LOG_SOFTMAX`] as Core ATen has it.
pub static CORE_LOG_SOFTMAX: OpDef = OpDef {
    name: "aten._log_softmax.default",
    schema: "(Tensor self, int dim, bool half_to_float) -> Tensor",
    levels: Levels::ATEN.and(Levels::CORE),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[
    &BATCH_NORM,
    &BATCH_NORM_NO_TRAINING,
    &LAYER_NORM,
    &NATIVE_LAYER_NORM,
    &GROUP_NORM,
    &NATIVE_GROUP_NORM,
    &INSTANCE_NORM,
    &SOFTMAX,
    &CORE_SOFTMAX,
    &LOG_SOFTMAX,
    &CORE_LOG_SOFTMAX,
];
