//! Softmax in its forms.

use super::promote::{self, Kind};
use crate::builder::{Call, Value};
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Norm,
    accuracy: Accuracy::Approximate,
    schema: "(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
    infer: Some(softmax),
    ..OpDef::BASE
};
const CORE: OpDef = OpDef {
    schema: "(Tensor self, int dim, bool half_to_float) -> Tensor",
    levels: Levels::ATEN.and(Levels::CORE),
    ..BASE
};

/// `exp(x) / Σ exp(x)` along one dimension.
pub static SOFTMAX: OpDef = OpDef {
    name: "aten.softmax.int",
    rule: Some(|c| vec![converted(c).op("aten._softmax", vec![c.arg("dim").clone(), false.into()])]),
    example: "f32[2, 3], 1 | f32[2, 3], 0, f64",
    raisable: true,
    ..BASE
};

/// Logarithm of [`SOFTMAX`].
pub static LOG_SOFTMAX: OpDef = OpDef {
    name: "aten.log_softmax.int",
    rule: Some(|c| vec![converted(c).op("aten._log_softmax", vec![c.arg("dim").clone(), false.into()])]),
    ..SOFTMAX
};

/// [`SOFTMAX`].
pub static SPECIAL_SOFTMAX: OpDef = OpDef {
    name: "aten.special_softmax.default",
    raisable: false,
    rule: Some(|c| vec![c.b.call("aten.softmax.int", c.args.to_vec())]),
    ..SOFTMAX
};

/// [`LOG_SOFTMAX`].
pub static SPECIAL_LOG_SOFTMAX: OpDef = OpDef {
    name: "aten.special_log_softmax.default",
    raisable: false,
    schema: "(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| vec![c.b.call("aten.log_softmax.int", c.args.to_vec())]),
    ..SOFTMAX
};

/// The input in the type that was asked for.
fn converted<'b>(c: &Call<'b>) -> Value<'b> {
    let x = c.tensor("self");
    c.opt_dtype("dtype").map_or(x, |d| x.to(d))
}

fn softmax(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("self")?;
    c.axis("dim", m.shape.len())?;
    let asked = if c.op.schema.index("dtype").is_some() { c.opt_dtype("dtype") } else { None };
    let wide = c.op.schema.index("half_to_float").is_some() && c.bool("half_to_float");
    Ok(Meta::tensor(asked.unwrap_or(if wide { DType::F32 } else { m.dtype }), m.shape))
}

/// [`SOFTMAX`] as Core ATen has it.
pub static CORE_SOFTMAX: OpDef = OpDef {
    name: "aten._softmax.default",
    rule: Some(|c| {
        let (x, dim, result) = shifted(c);
        let e = x.exp();
        vec![(e / total(e, dim)).to(result)]
    }),
    example: "f32[2, 3], 1, false",
    ..CORE
};

/// [`LOG_SOFTMAX`] as Core ATen has it.
pub static CORE_LOG_SOFTMAX: OpDef = OpDef {
    name: "aten._log_softmax.default",
    rule: Some(|c| {
        let (x, dim, result) = shifted(c);
        vec![(x - total(x.exp(), dim).op("aten.log", vec![])).to(result)]
    }),
    ..CORE_SOFTMAX
};

/// The input less its greatest elements, in the type in which torch computes; the dimension; the result's type.
fn shifted<'b>(c: &Call<'b>) -> (Value<'b>, Arg, DType) {
    let (x, types) = promote::tensors(c, &["self"], Kind::Default);
    let (x, dim) = (x[0], Arg::List(vec![c.arg("dim").clone()]));
    let result = if c.bool("half_to_float") { types.compute } else { types.result };
    if x.shape().iter().any(|d| d.is(0)) {
        return (x, dim, result);
    }
    (x - x.op("aten.amax", vec![dim.clone(), true.into()]), dim, result)
}

fn total(x: Value<'_>, dim: Arg) -> Value<'_> {
    x.op("aten.sum.dim_IntList", vec![dim, true.into()])
}

/// [`SOFTMAX`] that gives 0 where all inputs are -inf.
pub static SAFE_SOFTMAX: OpDef = OpDef {
    name: "aten._safe_softmax.default",
    raisable: false,
    rule: Some(|c| {
        let (x, dim) = (c.tensor("self"), c.arg("dim").clone());
        let p = x.op("aten.softmax.int", vec![dim.clone(), c.arg("dtype").clone()]);
        let closed = x.op("aten.eq.Scalar", vec![f64::NEG_INFINITY.into()]);
        let closed = closed.op("aten.all.dim", vec![dim, true.into()]);
        let zeros = p.op("aten.full_like", vec![0i64.into()]);
        vec![closed.op("aten.where.self", vec![zeros.into(), p.into()])]
    }),
    ..SOFTMAX
};

const BACKWARD: OpDef = OpDef {
    schema: "(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| Ok(Meta::tensor(c.opt_dtype("input_dtype").unwrap_or(DType::F32), c.meta("grad_output")?.shape))),
    example: "f32[2, 3], f32[2, 3], 1, f32",
    ..BASE
};

/// Gradient of [`SOFTMAX`]: `output · (grad - Σ grad · output)`.
pub static SOFTMAX_BACKWARD: OpDef = OpDef {
    name: "aten._softmax_backward_data.default",
    rule: Some(|c| {
        let (grad, y) = gradient(c);
        let weighted = grad * y;
        let x = weighted - y * total(weighted, Arg::List(vec![c.arg("dim").clone()]));
        let x = x.to(c.opt_dtype("input_dtype").unwrap_or(DType::F32));
        vec![if x.is_contiguous() { x } else { x.op("aten.clone", vec!["contiguous_format".into()]) }]
    }),
    ..BACKWARD
};

/// Gradient of [`LOG_SOFTMAX`]: `grad - exp(output) · Σ grad`.
pub static LOG_SOFTMAX_BACKWARD: OpDef = OpDef {
    name: "aten._log_softmax_backward_data.default",
    rule: Some(|c| {
        let (grad, y) = gradient(c);
        let x = grad - y.exp() * total(grad, Arg::List(vec![c.arg("dim").clone()]));
        vec![x.to(c.opt_dtype("input_dtype").unwrap_or(DType::F32))]
    }),
    ..BACKWARD
};

/// The gradient and the output, in the type in which torch computes.
fn gradient<'b>(c: &Call<'b>) -> (Value<'b>, Value<'b>) {
    let wide = |v: Value<'b>| v.to(Kind::Default.of(v.dtype()).compute);
    (wide(c.tensor("grad_output")), wide(c.tensor("output")))
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &SOFTMAX,
    &LOG_SOFTMAX,
    &SPECIAL_SOFTMAX,
    &SPECIAL_LOG_SOFTMAX,
    &CORE_SOFTMAX,
    &CORE_LOG_SOFTMAX,
    &SAFE_SOFTMAX,
    &SOFTMAX_BACKWARD,
    &LOG_SOFTMAX_BACKWARD,
]];
