//! Functions of one element.

use super::infer;
use crate::op::{Accuracy, Class, Levels, OpDef};

const FLOAT: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::ALL,
    schema: "(Tensor self) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(infer::same_float),
    ..OpDef::BASE
};

const EXACT: OpDef = OpDef { accuracy: Accuracy::Exact, infer: Some(infer::same), ..FLOAT };

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $base:ident;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, ..$base };)*
        /// The family.
        pub static OPS: &[&OpDef] = &[$(&$id),*];
    };
}

family! {
    /// e to the power of x.
    EXP = "aten.exp.default", FLOAT;
    /// Natural logarithm.
    LOG = "aten.log.default", FLOAT;
    /// Error function.
    ERF = "aten.erf.default", FLOAT;
    /// Hyperbolic tangent.
    TANH = "aten.tanh.default", FLOAT;
    /// `1 / (1 + exp(-x))`.
    SIGMOID = "aten.sigmoid.default", FLOAT;
    /// Square root.
    SQRT = "aten.sqrt.default", FLOAT;
    /// `1 / sqrt(x)`.
    RSQRT = "aten.rsqrt.default", FLOAT;
    /// `1 / x`.
    RECIPROCAL = "aten.reciprocal.default", FLOAT;
    /// `-x`.
    NEG = "aten.neg.default", EXACT;
    /// Absolute value.
    ABS = "aten.abs.default", EXACT;
    /// Greatest integer not above.
    FLOOR = "aten.floor.default", EXACT;
    /// Least integer not below.
    CEIL = "aten.ceil.default", EXACT;
    /// Nearest integer, halves to even.
    ROUND = "aten.round.default", EXACT;
}
