//! The op vocabulary: one file a family, each op's record beside its rule.
//!
//! To add an op, write its `OpDef` in the family's file and name it in that file's `OPS`.

/// Records of a family, and the list of them.
macro_rules! records {
    ($list:ident: $($(#[$doc:meta])* $id:ident = $name:literal, $base:ident { $($field:ident: $value:expr),* $(,)? };)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, $($field: $value,)* ..$base };)*
        static $list: &[&OpDef] = &[$(&$id),*];
    };
}

pub mod activation;
pub mod alias;
pub mod arith;
pub mod attention;
pub mod classes;
pub mod compare;
pub mod control;
pub mod conv;
pub mod create;
pub mod derivative;
pub mod expr;
pub mod in_place;
pub mod index;
pub mod infer;
pub mod linear;
pub mod loss;
pub mod moving;
pub mod norm;
pub mod order;
pub mod pool;
pub mod prims;
pub mod prims_view;
pub mod promote;
pub mod quantized;
pub mod reduce;
pub mod resize;
pub mod sample;
pub mod special;
pub mod structural;
pub mod unary;
pub mod view;
pub mod window;

use crate::op::OpDef;

/// All records, by family.
pub static ALL: &[&[&OpDef]] = &[
    activation::OPS,
    alias::OPS,
    arith::OPS[0],
    arith::OPS[1],
    attention::OPS,
    control::OPS,
    classes::OPS,
    compare::OPS[0],
    compare::OPS[1],
    conv::OPS,
    create::OPS[0],
    create::OPS[1],
    in_place::OPS,
    index::OPS,
    linear::OPS,
    loss::OPS[0],
    loss::OPS[1],
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
    special::OPS[0],
    special::OPS[1],
    structural::OPS[0],
    structural::OPS[1],
    structural::OPS[2],
    unary::OPS[0],
    unary::OPS[1],
    view::OPS,
    window::OPS,
];
