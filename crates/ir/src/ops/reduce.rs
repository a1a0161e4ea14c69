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

/// The family.
pub static OPS: &[&OpDef] = &[&MEAN, &SUM, &AMAX];
