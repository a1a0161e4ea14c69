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
pub mod batch_norm;
pub mod classes;
pub mod compare;
pub mod control;
pub mod conv;
pub mod copies;
pub mod create;
pub mod derivative;
pub mod diagonal;
pub mod distance;
pub mod dropout;
pub mod einsum;
pub mod expr;
pub mod factor;
pub mod fourier;
pub mod in_place;
pub mod index;
pub mod infer;
pub mod linear;
pub mod loss;
pub mod matrix;
pub mod norm;
pub mod order;
pub mod pad;
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
pub mod scatter;
pub mod shuffle;
pub mod sift;
pub mod softmax;
pub mod spaced;
pub mod special;
pub mod spelling;
pub mod stack;
pub mod stat;
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
    batch_norm::OPS,
    classes::OPS,
    compare::OPS[0],
    compare::OPS[1],
    control::OPS,
    conv::OPS,
    copies::OPS,
    create::OPS[0],
    create::OPS[1],
    diagonal::OPS,
    distance::OPS[0],
    distance::OPS[1],
    dropout::OPS[0],
    dropout::OPS[1],
    einsum::OPS,
    factor::OPS,
    fourier::OPS,
    in_place::OPS,
    index::OPS,
    linear::OPS,
    loss::OPS[0],
    loss::OPS[1],
    matrix::OPS,
    norm::OPS,
    order::OPS,
    pad::OPS,
    pool::OPS,
    prims::OPS[0],
    prims::OPS[1],
    prims_view::OPS,
    products::OPS,
    quantized::OPS,
    reduce::OPS,
    resize::OPS[0],
    resize::OPS[1],
    sample::OPS,
    scan::OPS[0],
    scan::OPS[1],
    scan::OPS[2],
    scatter::OPS[0],
    scatter::OPS[1],
    shuffle::OPS,
    sift::OPS,
    softmax::OPS,
    spaced::OPS,
    special::OPS[0],
    special::OPS[1],
    spelling::OPS[0],
    spelling::OPS[1],
    stack::OPS,
    stat::OPS[0],
    stat::OPS[1],
    stat::OPS[2],
    structural::OPS[0],
    structural::OPS[1],
    structural::OPS[2],
    unary::OPS[0],
    unary::OPS[1],
    view::OPS,
    window::OPS[0],
    window::OPS[1],
];
