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

/// The modules of families, and the list of their records.
macro_rules! families {
    ($($family:ident),* $(,)?) => {
        $(pub mod $family;)*
        /// All records: families, in them lists of records.
        pub static ALL: &[&[&[&OpDef]]] = &[$($family::OPS),*];
    };
}

pub mod derivative;
pub mod expr;
pub mod infer;
pub mod promote;

use crate::op::OpDef;

families! {
    activation,
    alias,
    arith,
    attention,
    backward,
    batch_norm,
    classes,
    compare,
    control,
    conv,
    copies,
    create,
    detect,
    diagonal,
    distance,
    dropout,
    einsum,
    factor,
    fake_quantize,
    fourier,
    in_place,
    index,
    linear,
    loss,
    matrix,
    norm,
    order,
    pad,
    pool,
    prims,
    prims_view,
    products,
    quantized,
    random,
    reduce,
    resize,
    sample,
    scan,
    scatter,
    shuffle,
    sift,
    softmax,
    spaced,
    special,
    spelling,
    stack,
    stat,
    structural,
    unary,
    view,
    window,
}
