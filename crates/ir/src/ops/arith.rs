//! Binary arithmetic and comparisons.

use super::infer;
use crate::op::{Accuracy, Class, Levels, OpDef};

const POINTWISE: OpDef =
    OpDef { class: Class::Pointwise, levels: Levels::ALL, infer: Some(infer::binary), ..OpDef::BASE };

/// Sum: `self + alpha·other`.
pub static ADD: OpDef = OpDef {
    name: "aten.add.Tensor",
    schema: "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    commutative: true,
    must_default: &["alpha"],
    ..POINTWISE
};

/// Difference: `self - alpha·other`.
pub static SUB: OpDef = OpDef {
    name: "aten.sub.Tensor",
    schema: "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    must_default: &["alpha"],
    ..POINTWISE
};

/// Product.
pub static MUL: OpDef =
    OpDef { name: "aten.mul.Tensor", schema: "(Tensor self, Tensor other) -> Tensor", commutative: true, ..POINTWISE };

/// Quotient; integers become floats.
pub static DIV: OpDef = OpDef {
    name: "aten.div.Tensor",
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(infer::binary_float),
    ..POINTWISE
};

/// Power.
pub static POW: OpDef = OpDef {
    name: "aten.pow.Tensor_Scalar",
    schema: "(Tensor self, Scalar exponent) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(infer::same),
    ..POINTWISE
};

/// The greater element.
pub static MAXIMUM: OpDef = OpDef {
    name: "aten.maximum.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    commutative: true,
    ..POINTWISE
};

/// The lesser element.
pub static MINIMUM: OpDef = OpDef {
    name: "aten.minimum.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    commutative: true,
    ..POINTWISE
};

/// The family.
pub static OPS: &[&OpDef] = &[&ADD, &SUB, &MUL, &DIV, &POW, &MAXIMUM, &MINIMUM];
