//! The op vocabulary: one file a family, each op's record beside its rule.
//!
//! To add an op, write its `OpDef` in the family's file and name it in that file's `OPS`.

pub mod activation;
pub mod arith;
pub mod attention;
pub mod compare;
pub mod control;
pub mod conv;
pub mod copies;
pub mod create;
pub mod derivative;
pub mod diagonal;
pub mod index;
pub mod infer;
pub mod linear;
pub mod norm;
pub mod order;
pub mod pad;
pub mod pool;
pub mod prims;
pub mod prims_view;
pub mod promote;
pub mod quantized;
pub mod reduce;
pub mod resize;
pub mod sample;
pub mod scatter;
pub mod shuffle;
pub mod sift;
pub mod spaced;
pub mod spelling;
pub mod stack;
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
    compare::OPS,
    control::OPS,
    conv::OPS,
    copies::OPS,
    create::OPS[0],
    create::OPS[1],
    diagonal::OPS,
    index::OPS,
    linear::OPS,
    norm::OPS,
    order::OPS,
    pad::OPS,
    pool::OPS,
    prims::OPS[0],
    prims::OPS[1],
    prims_view::OPS,
    quantized::OPS,
    reduce::OPS,
    resize::OPS[0],
    resize::OPS[1],
    sample::OPS,
    scatter::OPS[0],
    scatter::OPS[1],
    shuffle::OPS,
    sift::OPS,
    spaced::OPS,
    spelling::OPS[0],
    spelling::OPS[1],
    stack::OPS,
    structural::OPS[0],
    structural::OPS[1],
    structural::OPS[2],
    unary::OPS,
    view::OPS,
    window::OPS[0],
    window::OPS[1],
];
