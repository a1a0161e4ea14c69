//! Normalizations.

use super::infer::{ensure, same};
use super::promote::Kind;
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta, TensorMeta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;
use std::ops::Range;

pub(super) const BASE: OpDef =
    OpDef { class: Class::Norm, accuracy: Accuracy::Approximate, infer: Some(same), ..OpDef::BASE };

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
    example: "f32[2, 3], [3], f32[3], f32[3], 0.001 | f32[2, 2, 3], [2, 3]",
    raisable: true,
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
    rule: Some(|c| {
        let (x, over) = (c.tensor("input"), c.dims("normalized_shape").len());
        let lead = x.rank().saturating_sub(over);
        let (y, mean, rstd) = standardized(c, x, lead..x.rank());
        let y = scaled(y, c.opt_tensor("weight"), c.opt_tensor("bias"));
        [y, mean, rstd].map(|v| v.to(x.dtype())).to_vec()
    }),
    example: "f32[2, 3], [3], f32[3], f32[3], 0.001 | f32[2, 2, 3], [2, 3], none, none, 0.001",
    ..BASE
};

/// `(x - mean) / sqrt(var + eps)` over dimensions, with means and reciprocal standard deviations, in the type in
/// which torch computes.
fn standardized<'b>(c: &Call<'b>, x: Value<'b>, over: Range<usize>) -> (Value<'b>, Value<'b>, Value<'b>) {
    let x = x.to(Kind::Default.of(x.dtype()).compute);
    let dims: Vec<usize> = over.collect();
    let both = x.op("aten.var_mean.correction", vec![dims.into(), 0i64.into(), true.into()]);
    let (var, mean) = (c.b.getitem(both, 0), c.b.getitem(both, 1));
    let rstd = (var + c.float("eps")).rsqrt();
    ((x - mean) * rstd, mean, rstd)
}

/// `x · weight + bias`, with what of them there is.
pub(super) fn scaled<'b>(x: Value<'b>, weight: Option<Value<'b>>, bias: Option<Value<'b>>) -> Value<'b> {
    let x = weight.map_or(x, |w| x * w);
    bias.map_or(x, |b| x + b)
}

/// A value for each channel in a shape that goes with dimension 1 of a tensor of this rank.
pub(super) fn per_channel(v: Value<'_>, rank: usize) -> Value<'_> {
    let mut shape = v.shape();
    shape.extend(vec![Dim::from(1i64); rank.saturating_sub(2)]);
    v.view(shape)
}

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
    example: "f32[2, 4, 3], 2, f32[4], f32[4], 0.001 | f32[2, 4], 2",
    raisable: true,
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
    rule: Some(|c| {
        let (x, group) = (c.tensor("input"), Dim::from(c.int("group").max(1)));
        let channels = c.dim("C").floor_div(&group);
        let grouped = reshape(x, vec![c.dim("N"), group, channels, c.dim("HxW")]);
        let (y, mean, rstd) = standardized(c, grouped, 2..4);
        let [w, b] = ["weight", "bias"].map(|n| c.opt_tensor(n).map(|v| per_channel(v, x.rank())));
        let y = scaled(y.view(x.shape()), w, b);
        let [mean, rstd] = [mean, rstd].map(|v| v.op("aten.squeeze.dims", vec![vec![2i64, 3].into()]));
        [y, mean, rstd].map(|v| v.to(x.dtype())).to_vec()
    }),
    example: "f32[2, 4, 3], f32[4], f32[4], 2, 4, 3, 2, 0.001 | f32[2, 4, 2, 2], none, none, 2, 4, 4, 2, 0.001",
    ..BASE
};

/// Normalization of each channel of each sample: a batch norm of one sample that has them all as channels.
pub static INSTANCE_NORM: OpDef = OpDef {
    name: "aten.instance_norm.default",
    schema: "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> Tensor",
    rule: Some(|c| {
        let x = c.tensor("input");
        let shape = x.shape();
        let [batch, channels, space @ ..] = shape.as_slice() else {
            c.fail("an input of rank 2 or more expected");
            return vec![x];
        };
        let of = |n: &str| -> Arg {
            let repeated = |v: Value<'_>| v.op("aten.repeat", vec![vec![batch.clone()].into()]).id();
            c.opt_tensor(n).map(repeated).into()
        };
        let one = [vec![1i64.into(), batch.clone() * channels.clone()], space.to_vec()].concat();
        let flat = x.op("aten.contiguous", vec![]).view(one);
        let [momentum, eps] = ["momentum", "eps"].map(|n| c.arg(n).clone());
        let affine = vec![flat.into(), of("weight"), of("bias")];
        let (op, rest) = match (c.bool("use_input_stats"), c.opt_tensor("running_mean")) {
            (true, None) => ("aten._native_batch_norm_legit.no_stats", vec![true.into()]),
            (true, Some(_)) => {
                ("aten._native_batch_norm_legit_functional", vec![of("running_mean"), of("running_var"), true.into()])
            }
            (false, _) => ("aten._native_batch_norm_legit_no_training", vec![of("running_mean"), of("running_var")]),
        };
        let y = c.b.call(op, [affine, rest, vec![momentum, eps]].concat());
        vec![c.b.getitem(y, 0).view(shape)]
    }),
    example: "f32[2, 3, 4], f32[3], f32[3], none, none, true, 0.1, 0.001, false | f32[2, 3, 4], none, none, f32[3], f32[3]>0, false, 0.1, 0.001, false",
    raisable: true,
    ..BASE
};

/// `x / sqrt(mean x² + eps) · weight` over the last dimensions; eps is by default that of the type.
pub static RMS_NORM: OpDef = OpDef {
    name: "aten.rms_norm.default",
    schema: "(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("input")?;
        normalized(c, &m)?;
        Ok(Meta::Tensor(m))
    }),
    rule: Some(|c| vec![rms_norm(c).0]),
    example: "f32[2, 3], [3], f32[3], 0.001 | f32[2, 2, 3], [2, 3]",
    raisable: true,
    ..BASE
};

/// [`RMS_NORM`] with the reciprocal roots.
pub static FUSED_RMS_NORM: OpDef = OpDef {
    name: "aten._fused_rms_norm.default",
    schema: "(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
    infer: None,
    rule: Some(|c| {
        let (y, rstd) = rms_norm(c);
        vec![y, rstd]
    }),
    example: "f32[2, 3], [3], f32[3], 0.001",
    ..BASE
};

fn rms_norm<'b>(c: &Call<'b>) -> (Value<'b>, Value<'b>) {
    let x = c.tensor("input");
    let wide = x.to(Kind::Default.of(x.dtype()).compute);
    let rank = x.rank() as i64;
    let over: Vec<i64> = (1..=c.dims("normalized_shape").len() as i64).map(|i| rank - i).collect();
    let least = if wide.dtype() == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let square = wide.op("aten.pow.Tensor_Scalar", vec![2i64.into()]);
    let mean = square.op("aten.mean.dim", vec![over.into(), true.into()]);
    let rstd = mean.op("aten.add.Scalar", vec![c.opt_float("eps").unwrap_or(least).into()]).rsqrt();
    (scaled(wide * rstd, c.opt_tensor("weight"), None).to(x.dtype()), rstd)
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&LAYER_NORM, &NATIVE_LAYER_NORM, &GROUP_NORM, &NATIVE_GROUP_NORM, &INSTANCE_NORM, &RMS_NORM, &FUSED_RMS_NORM]];
