//! The op vocabulary: one file a family, each op's record beside its rule.
//!
//! To add an op, write its `OpDef` in the family's file and name it in that file's `OPS`.

pub mod activation;
pub mod arith;
pub mod attention;
pub mod batch_norm;
pub mod compare;
pub mod control;
pub mod conv;
pub mod create;
pub mod derivative;
pub mod distance;
pub mod dropout;
pub mod einsum;
pub mod index;
pub mod infer;
pub mod linear;
pub mod moving;
pub mod norm;
pub mod order;
pub mod pool;
pub mod prims;
pub mod prims_view;
pub mod products;
pub mod promote;
pub mod quantized;
pub mod reduce;
pub mod resize;
pub mod sample;
pub mod scan;
pub mod softmax;
pub mod stat;
pub mod structural;
pub mod unary;
pub mod view;
pub mod window;

use crate::op::OpDef;

/// All records, by family.
pub static ALL: &[&[&OpDef]] = &[
    activation::OPS,
    arith::OPS,
    attention::OPS,
    batch_norm::OPS,
    compare::OPS,
    control::OPS,
    conv::OPS,
    create::OPS[0],
    create::OPS[1],
    distance::OPS[0],
    distance::OPS[1],
    dropout::OPS[0],
    dropout::OPS[1],
    einsum::OPS,
    index::OPS,
    linear::OPS,
    moving::OPS,
    norm::OPS,
    order::OPS,
    pool::OPS,
    prims::OPS[0],
    prims::OPS[1],
    prims_view::OPS,
    quantized::OPS,
    reduce::OPS,
    resize::OPS[0],
    resize::OPS[1],
    sample::OPS,
    products::OPS,
    scan::OPS[0],
    scan::OPS[1],
    scan::OPS[2],
    softmax::OPS,
    stat::OPS[0],
    stat::OPS[1],
    stat::OPS[2],
    structural::OPS[0],
    structural::OPS[1],
    structural::OPS[2],
    unary::OPS,
    view::OPS,
    window::OPS,
];
