//! Normalizations and softmax.

use super::infer::same;
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
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
    ..BASE
};

/// Layer norm over the last dimensions.
pub static LAYER_NORM: OpDef = OpDef {
    name: "aten.layer_norm.default",
    schema: "(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True) -> Tensor",
    ..BASE
};

/// Softmax along one dimension.
pub static SOFTMAX: OpDef = OpDef {
    name: "aten.softmax.int",
    schema: "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| vec![c.tensor("self").op("aten._softmax", vec![c.arg("dim").clone(), false.into()])]),
    infer: Some(softmax),
    ..BASE
};

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

/// The family.
pub static OPS: &[&OpDef] = &[&BATCH_NORM, &BATCH_NORM_NO_TRAINING, &LAYER_NORM, &SOFTMAX, &CORE_SOFTMAX];
