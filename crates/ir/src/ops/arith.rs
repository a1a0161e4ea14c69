//! Binary arithmetic.

use super::promote::Kind;
use super::{infer, prims};
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};

const POINTWISE: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(infer::binary),
    rule: Some(|c| prims::lower(c, Kind::Default)),
    ..OpDef::BASE
};
const QUOTIENT: OpDef =
    OpDef { infer: Some(infer::binary_float), rule: Some(|c| prims::lower(c, Kind::IntToFloat)), ..POINTWISE };

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
pub static DIV: OpDef = OpDef { name: "aten.div.Tensor", schema: "(Tensor self, Tensor other) -> Tensor", ..QUOTIENT };

/// Power.
pub static POW: OpDef = OpDef {
    name: "aten.pow.Tensor_Scalar",
    schema: "(Tensor self, Scalar exponent) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &["self", "exponent"])?))),
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

/// `self - other·floor(self / other)`: the sign of the divisor.
pub static REMAINDER: OpDef =
    OpDef { name: "aten.remainder.Tensor", schema: "(Tensor self, Tensor other) -> Tensor", ..POINTWISE };

/// [`REMAINDER`] by a number.
pub static REMAINDER_SCALAR: OpDef =
    OpDef { name: "aten.remainder.Scalar", schema: "(Tensor self, Scalar other) -> Tensor", ..POINTWISE };

/// `self - other·trunc(self / other)`: the sign of the dividend.
pub static FMOD: OpDef =
    OpDef { name: "aten.fmod.Tensor", schema: "(Tensor self, Tensor other) -> Tensor", ..POINTWISE };

/// [`FMOD`] by a number.
pub static FMOD_SCALAR: OpDef =
    OpDef { name: "aten.fmod.Scalar", schema: "(Tensor self, Scalar other) -> Tensor", ..POINTWISE };

/// Power with an exponent for each element.
pub static POW_TENSOR: OpDef = OpDef {
    name: "aten.pow.Tensor_Tensor",
    schema: "(Tensor self, Tensor exponent) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &["self", "exponent"])?))),
    ..POINTWISE
};

/// A number to the power of each element.
pub static POW_SCALAR: OpDef = OpDef {
    name: "aten.pow.Scalar",
    schema: "(Scalar self, Tensor exponent) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &["self", "exponent"])?))),
    ..POINTWISE
};

/// Angle of the point (other, self).
pub static ATAN2: OpDef = OpDef {
    name: "aten.atan2.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    accuracy: Accuracy::Rounding,
    ..QUOTIENT
};

/// Quotient rounded as asked: `none`, `"trunc"` or `"floor"`.
pub static DIV_MODE: OpDef = OpDef {
    name: "aten.div.Tensor_mode",
    schema: "(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor",
    levels: Levels::ALL,
    rule: None,
    infer: Some(|c| match c.arg("rounding_mode") {
        Arg::None => infer::binary_float(c),
        _ => infer::binary(c),
    }),
    ..POINTWISE
};

/// Quotient rounded down.
pub static FLOOR_DIVIDE: OpDef = OpDef {
    name: "aten.floor_divide.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let args = vec![c.arg("self").clone(), c.arg("other").clone(), "floor".into()];
        vec![c.b.call("aten.div.Tensor_mode", args)]
    }),
    ..POINTWISE
};

/// `other - alpha·self`.
pub static RSUB: OpDef = OpDef {
    name: "aten.rsub.Tensor",
    schema: "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let args = ["other", "self", "alpha"].map(|n| c.arg(n).clone());
        vec![c.b.call("aten.sub.Tensor", args.to_vec())]
    }),
    ..POINTWISE
};

/// A number less `alpha·self`.
pub static RSUB_SCALAR: OpDef = OpDef {
    name: "aten.rsub.Scalar",
    schema: "(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let args = ["other", "self", "alpha"].map(|n| c.arg(n).clone());
        vec![c.b.call("aten.sub.Tensor", args.to_vec())]
    }),
    ..POINTWISE
};

macro_rules! with_scalar {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $base:ident;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, schema: $schema, ..$base };)*
    };
}

with_scalar! {
    /// [`ADD`] of a number.
    ADD_SCALAR = "aten.add.Scalar", "(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", POINTWISE;
    /// [`SUB`] of a number.
    SUB_SCALAR = "aten.sub.Scalar", "(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", POINTWISE;
    /// [`MUL`] by a number.
    MUL_SCALAR = "aten.mul.Scalar", "(Tensor self, Scalar other) -> Tensor", POINTWISE;
    /// [`DIV`] by a number.
    DIV_SCALAR = "aten.div.Scalar", "(Tensor self, Scalar other) -> Tensor", QUOTIENT;
}

macro_rules! in_place {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal => $to:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: $schema,
            levels: Levels::TORCH,
            infer: Some(infer::same),
            rule: Some(|c| vec![c.b.call($to, c.args.to_vec())]),
            functional: Functional::Always,
            ..POINTWISE
        };)*
    };
}

in_place! {
    /// [`ADD`] in place.
    ADD_ = "aten.add_.Tensor", "(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)" => "aten.add.Tensor";
    /// [`ADD_SCALAR`] in place.
    ADD_SCALAR_ = "aten.add_.Scalar", "(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)" => "aten.add.Scalar";
    /// [`SUB`] in place.
    SUB_ = "aten.sub_.Tensor", "(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)" => "aten.sub.Tensor";
    /// [`MUL`] in place.
    MUL_ = "aten.mul_.Tensor", "(Tensor(a!) self, Tensor other) -> Tensor(a!)" => "aten.mul.Tensor";
    /// [`MUL_SCALAR`] in place.
    MUL_SCALAR_ = "aten.mul_.Scalar", "(Tensor(a!) self, Scalar other) -> Tensor(a!)" => "aten.mul.Scalar";
    /// [`DIV`] in place.
    DIV_ = "aten.div_.Tensor", "(Tensor(a!) self, Tensor other) -> Tensor(a!)" => "aten.div.Tensor";
}

/// The family.
pub static OPS: &[&OpDef] = &[
    &ADD,
    &SUB,
    &MUL,
    &DIV,
    &POW,
    &MAXIMUM,
    &MINIMUM,
    &REMAINDER,
    &REMAINDER_SCALAR,
    &FMOD,
    &FMOD_SCALAR,
    &POW_TENSOR,
    &POW_SCALAR,
    &ATAN2,
    &DIV_MODE,
    &FLOOR_DIVIDE,
    &RSUB,
    &RSUB_SCALAR,
    &ADD_SCALAR,
    &SUB_SCALAR,
    &MUL_SCALAR,
    &DIV_SCALAR,
    &ADD_,
    &ADD_SCALAR_,
    &SUB_,
    &MUL_,
    &MUL_SCALAR_,
    &DIV_,
];
