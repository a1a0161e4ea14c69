//! The op vocabulary: one file a family, each op's record beside its rule.
//!
//! To add an op, write its `OpDef` in the family's file and name it in that file's `OPS`.

pub mod activation;
pub mod arith;
pub mod conv;
pub mod infer;
pub mod linear;
pub mod moving;
pub mod norm;
pub mod pool;
pub mod quantized;
pub mod reduce;
pub mod structural;
pub mod unary;
pub mod view;

use crate::op::OpDef;

/// All records, by family.
pub static ALL: &[&[&OpDef]] = &[
    activation::OPS,
    arith::OPS,
    conv::OPS,
    linear::OPS,
    moving::OPS,
    norm::OPS,
    pool::OPS,
    quantized::OPS,
    reduce::OPS,
    structural::OPS,
    unary::OPS,
    view::OPS,
];
