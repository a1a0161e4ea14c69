//! Functions of one element.

use super::promote::{self, Kind};
use super::{infer, prims};
use crate::graph::Meta;
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const FLOAT: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(infer::same_float),
    rule: Some(|c| prims::lower(c, Kind::IntToFloat)),
    ..OpDef::BASE
};

const EXACT: OpDef = OpDef {
    accuracy: Accuracy::Exact,
    infer: Some(infer::same),
    rule: Some(|c| prims::lower(c, Kind::NoOpmath)),
    ..FLOAT
};

const TEST: OpDef = OpDef {
    accuracy: Accuracy::Exact,
    infer: Some(|c| Ok(Meta::tensor(DType::Bool, c.meta("self")?.shape))),
    rule: None,
    ..FLOAT
};

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $base:ident $(, $rule:expr)?;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, $(rule: Some($rule),)? ..$base };)*
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
    SIGMOID = "aten.sigmoid.default", FLOAT, |c| {
        let (x, types) = promote::tensors(c, &["self"], Kind::IntToFloat);
        let e = x[0].op("aten.neg", vec![]).exp();
        vec![(e + 1i64).reciprocal().to(types.result)]
    };
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
    /// Towards zero.
    TRUNC = "aten.trunc.default", EXACT;
    /// -1, 0 or 1.
    SIGN = "aten.sign.default", EXACT;
    /// Bits, or truth values, inverted.
    BITWISE_NOT = "aten.bitwise_not.default", EXACT;
    /// `exp(x) - 1`.
    EXPM1 = "aten.expm1.default", FLOAT;
    /// `log(1 + x)`.
    LOG1P = "aten.log1p.default", FLOAT;
    /// Logarithm to base 2.
    LOG2 = "aten.log2.default", FLOAT;
    /// Logarithm to base 10.
    LOG10 = "aten.log10.default", FLOAT;
    /// Sine.
    SIN = "aten.sin.default", FLOAT;
    /// Cosine.
    COS = "aten.cos.default", FLOAT;
    /// Tangent.
    TAN = "aten.tan.default", FLOAT;
    /// Inverse sine.
    ASIN = "aten.asin.default", FLOAT;
    /// Inverse cosine.
    ACOS = "aten.acos.default", FLOAT;
    /// Inverse tangent.
    ATAN = "aten.atan.default", FLOAT;
    /// Hyperbolic sine.
    SINH = "aten.sinh.default", FLOAT;
    /// Hyperbolic cosine.
    COSH = "aten.cosh.default", FLOAT;
    /// Inverse hyperbolic sine.
    ASINH = "aten.asinh.default", FLOAT;
    /// Inverse hyperbolic cosine.
    ACOSH = "aten.acosh.default", FLOAT;
    /// Inverse hyperbolic tangent.
    ATANH = "aten.atanh.default", FLOAT;
    /// Whether an element is zero.
    LOGICAL_NOT = "aten.logical_not.default", TEST, |c| vec![c.tensor("self").op("aten.eq.Scalar", vec![0i64.into()])];
    /// Whether an element is not a number.
    ISNAN = "aten.isnan.default", TEST, |c| {
        let x = c.tensor("self");
        vec![x.op("aten.ne.Tensor", vec![x.into()])]
    };
    /// Whether an element is infinite.
    ISINF = "aten.isinf.default", TEST, |c| {
        let x = c.tensor("self");
        // An integer is never infinite, and no number of its type says so.
        let x = x.to(infer::to_float(x.dtype()));
        vec![x.abs().op("aten.eq.Scalar", vec![f64::INFINITY.into()])]
    };
}
