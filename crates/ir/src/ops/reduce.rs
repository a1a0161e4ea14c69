//! Reductions.

use super::infer::{reduced, to_float};
use crate::builder::Call;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef =
    OpDef { class: Class::Reduction, levels: Levels::ALL, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// Mean over dimensions.
pub static MEAN: OpDef = OpDef {
    name: "aten.mean.dim",
    schema: "(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    infer: Some(|c| reduce(c, to_float)),
    ..BASE
};

/// Sum over dimensions; integers are summed as i64.
pub static SUM: OpDef = OpDef {
    name: "aten.sum.dim_IntList",
    schema: "(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    infer: Some(|c| reduce(c, |d| if d.is_float() { d } else { DType::I64 })),
    ..BASE
};

/// Greatest elements over dimensions.
pub static AMAX: OpDef = OpDef {
    name: "aten.amax.default",
    schema: "(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    accuracy: Accuracy::Exact,
    infer: Some(|c| reduce(c, |d| d)),
    ..BASE
};

fn reduce(c: &Call<'_>, dtype: fn(DType) -> DType) -> Result<Meta> {
    let m = c.meta("self")?;
    let dims = c.opt_ints("dim");
    let dtype =
        if c.op.schema.index("dtype").is_some() { c.opt_dtype("dtype") } else { None }.unwrap_or(dtype(m.dtype));
    Ok(Meta::tensor(dtype, reduced(c, &m.shape, dims.as_deref(), c.bool("keepdim"))?))
}

/// Least elements over dimensions.
pub static AMIN: OpDef = OpDef { name: "aten.amin.default", ..AMAX };

/// Whether any element along a dimension is true.
pub static ANY: OpDef = OpDef {
    name: "aten.any.dim",
    schema: "(Tensor self, int dim, bool keepdim=False) -> Tensor",
    accuracy: Accuracy::Exact,
    infer: Some(|c| along(c, Some(DType::Bool))),
    ..BASE
};

/// Whether all elements along a dimension are true.
pub static ALL: OpDef = OpDef { name: "aten.all.dim", ..ANY };

/// Product along a dimension.
pub static PROD: OpDef = OpDef {
    name: "aten.prod.dim_int",
    schema: "(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        let natural = if m.dtype.is_float() { m.dtype } else { DType::I64 };
        along(c, Some(c.opt_dtype("dtype").unwrap_or(natural)))
    }),
    ..BASE
};

fn along(c: &Call<'_>, dtype: Option<DType>) -> Result<Meta> {
    let m = c.meta("self")?;
    let shape = reduced(c, &m.shape, Some(&[c.int("dim")]), c.bool("keepdim"))?;
    Ok(Meta::tensor(dtype.unwrap_or(m.dtype), shape))
}

/// The greatest elements along a dimension, and where they were.
pub static MAX_DIM: OpDef = OpDef {
    name: "aten.max.dim",
    schema: "(Tensor self, int dim, bool keepdim=False) -> (Tensor, Tensor)",
    accuracy: Accuracy::Exact,
    infer: Some(|c| Ok(Meta::Tuple(vec![along(c, None)?, along(c, Some(DType::I64))?]))),
    ..BASE
};

/// The least elements along a dimension, and where they were.
pub static MIN_DIM: OpDef = OpDef { name: "aten.min.dim", ..MAX_DIM };

/// Where the greatest element is, along a dimension or in the flattened tensor.
pub static ARGMAX: OpDef = OpDef {
    name: "aten.argmax.default",
    schema: "(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    accuracy: Accuracy::Exact,
    infer: Some(|c| {
        let m = c.meta("self")?;
        let dims = c.opt_int("dim").map(|d| vec![d]);
        Ok(Meta::tensor(DType::I64, reduced(c, &m.shape, dims.as_deref(), c.bool("keepdim"))?))
    }),
    ..BASE
};

/// Where the least element is, along a dimension or in the flattened tensor.
pub static ARGMIN: OpDef = OpDef { name: "aten.argmin.default", ..ARGMAX };

/// Variance over dimensions; `correction` is taken from the count (1 if none is given).
pub static VAR: OpDef = OpDef {
    name: "aten.var.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    infer: Some(|c| reduce(c, to_float)),
    ..BASE
};

/// [`VAR`] and mean.
pub static VAR_MEAN: OpDef = OpDef {
    name: "aten.var_mean.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::PRIMS),
    infer: Some(|c| {
        let m = reduce(c, to_float)?;
        Ok(Meta::Tuple(vec![m.clone(), m]))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        let pick = |n: &str| c.arg(n).clone();
        let var = x.op("aten.var.correction", vec![pick("dim"), pick("correction"), pick("keepdim")]);
        vec![var, x.op("aten.mean.dim", vec![pick("dim"), pick("keepdim")])]
    }),
    ..BASE
};

/// Square root of [`VAR`].
pub static STD: OpDef = OpDef {
    name: "aten.std.correction",
    schema: "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| reduce(c, to_float)),
    rule: Some(|c| vec![c.b.call("aten.var.correction", c.args.to_vec()).sqrt()]),
    ..BASE
};

const WHOLE: OpDef = OpDef {
    schema: "(Tensor self, *, ScalarType? dtype=None) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    ..BASE
};

/// Mean of all elements.
pub static MEAN_ALL: OpDef = OpDef {
    name: "aten.mean.default",
    rule: Some(|c| {
        vec![c.tensor("self").op("aten.mean.dim", vec![Vec::<i64>::new().into(), false.into(), c.arg("dtype").clone()])]
    }),
    ..WHOLE
};

/// Sum of all elements.
pub static SUM_ALL: OpDef = OpDef {
    name: "aten.sum.default",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        vec![
            c.tensor("self")
                .op("aten.sum.dim_IntList", vec![Vec::<i64>::new().into(), false.into(), c.arg("dtype").clone()]),
        ]
    }),
    ..WHOLE
};

/// The greatest of all elements.
pub static MAX_ALL: OpDef = OpDef {
    name: "aten.max.default",
    schema: "(Tensor self) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    accuracy: Accuracy::Exact,
    rule: Some(|c| vec![c.tensor("self").op("aten.amax", vec![])]),
    ..BASE
};

/// The least of all elements.
pub static MIN_ALL: OpDef = OpDef {
    name: "aten.min.default",
    schema: "(Tensor self) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    accuracy: Accuracy::Exact,
    rule: Some(|c| vec![c.tensor("self").op("aten.amin", vec![])]),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[
    &MEAN, &SUM, &AMAX, &AMIN, &ANY, &ALL, &PROD, &MAX_DIM, &MIN_DIM, &ARGMAX, &ARGMIN, &VAR, &VAR_MEAN, &STD,
    &MEAN_ALL, &SUM_ALL, &MAX_ALL, &MIN_ALL,
];
