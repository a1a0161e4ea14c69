//! Elementwise ops that are other ops under another name.

use crate::op::{Class, Levels, OpDef};

/// Records by schema and example: the alias and the op.
macro_rules! aliases {
    ($($schema:literal, $example:literal: $($name:literal = $of:literal),* $(,)?;)*) => {
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$($(&OpDef {
            name: $name,
            schema: $schema,
            class: Class::Pointwise,
            levels: Levels::TORCH.and(Levels::ATEN),
            rule: Some(|c| vec![c.b.call($of, c.args.clone())]),
            example: $example,
            ..OpDef::BASE
        },)*)*]];
    };
}

aliases! {
    "(Tensor self) -> Tensor", "f32[2, 3]":
        "aten.absolute.default" = "aten.abs",
        "aten.arcsinh.default" = "aten.asinh",
        "aten.arctan.default" = "aten.atan",
        "aten.fix.default" = "aten.trunc",
        "aten.negative.default" = "aten.neg",
        "aten.special_erf.default" = "aten.erf",
        "aten.special_erfc.default" = "aten.erfc",
        "aten.special_exp2.default" = "aten.exp2",
        "aten.special_expit.default" = "aten.sigmoid",
        "aten.special_expm1.default" = "aten.expm1",
        "aten.special_i0.default" = "aten.i0",
        "aten.special_sinc.default" = "aten.sinc";
    "(Tensor self) -> Tensor", "f32[2, 3]>0":
        "aten.special_digamma.default" = "aten.digamma",
        "aten.special_gammaln.default" = "aten.lgamma",
        "aten.special_log1p.default" = "aten.log1p",
        "aten.special_psi.default" = "aten.digamma";
    "(Tensor self) -> Tensor", "f32[2, 3]<1":
        "aten.arccos.default" = "aten.acos",
        "aten.arcsin.default" = "aten.asin",
        "aten.arctanh.default" = "aten.atanh",
        "aten.special_erfinv.default" = "aten.erfinv";
    "(Tensor self) -> Tensor", "f32[2, 3]>1": "aten.arccosh.default" = "aten.acosh";
    "(Tensor self, *, int decimals=0) -> Tensor", "f32[2, 3], 1": "aten.special_round.default" = "aten.round.decimals";
    "(Tensor self, float? eps=None) -> Tensor", "f32[2, 3]<1, 0.25": "aten.special_logit.default" = "aten.logit";
    "(Tensor self, int p) -> Tensor", "f32[2, 3]>0, 1": "aten.special_multigammaln.default" = "aten.mvlgamma";
    "(int n, Tensor self) -> Tensor", "1, f32[2, 3]>0": "aten.special_polygamma.default" = "aten.polygamma";
    "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", "f32[2, 3], f32[3], 0.5":
        "aten.subtract.Tensor" = "aten.sub.Tensor";
    "(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", "f32[2, 3], 1.5, 0.5":
        "aten.subtract.Scalar" = "aten.sub.Scalar";
    "(Tensor self, Tensor other) -> Tensor", "f32[2, 3], f32[3]":
        "aten.greater.Tensor" = "aten.gt.Tensor",
        "aten.greater_equal.Tensor" = "aten.ge.Tensor",
        "aten.less.Tensor" = "aten.lt.Tensor",
        "aten.less_equal.Tensor" = "aten.le.Tensor",
        "aten.max.other" = "aten.maximum",
        "aten.min.other" = "aten.minimum",
        "aten.multiply.Tensor" = "aten.mul.Tensor",
        "aten.not_equal.Tensor" = "aten.ne.Tensor";
    "(Tensor self, Tensor other) -> Tensor", "f32[2, 3], f32[3]>0":
        "aten.arctan2.default" = "aten.atan2",
        "aten.divide.Tensor" = "aten.div.Tensor",
        "aten.special_xlogy.default" = "aten.xlogy.Tensor",
        "aten.true_divide.Tensor" = "aten.div.Tensor";
    "(Tensor self, Tensor other) -> Tensor", "i64[2, 3], f32[3]>0":
        "aten.special_gammainc.default" = "aten.igamma",
        "aten.special_gammaincc.default" = "aten.igammac";
    "(Tensor self, Tensor other) -> Tensor", "i64[2, 3]<9, i64[3]<9":
        "aten.__and__.Tensor" = "aten.bitwise_and.Tensor",
        "aten.__or__.Tensor" = "aten.bitwise_or.Tensor",
        "aten.__xor__.Tensor" = "aten.bitwise_xor.Tensor";
    "(Tensor self, Scalar other) -> Tensor", "f32[2, 3], 1.5":
        "aten.divide.Scalar" = "aten.div.Scalar",
        "aten.greater.Scalar" = "aten.gt.Scalar",
        "aten.greater_equal.Scalar" = "aten.ge.Scalar",
        "aten.less.Scalar" = "aten.lt.Scalar",
        "aten.less_equal.Scalar" = "aten.le.Scalar",
        "aten.multiply.Scalar" = "aten.mul.Scalar",
        "aten.not_equal.Scalar" = "aten.ne.Scalar",
        "aten.special_xlogy.other_scalar" = "aten.xlogy.Scalar_Other",
        "aten.true_divide.Scalar" = "aten.div.Scalar";
    "(Scalar self, Tensor other) -> Tensor", "1.5, f32[2, 3]>0":
        "aten.special_xlogy.self_scalar" = "aten.xlogy.Scalar_Self";
    "(Tensor self, Scalar other) -> Tensor", "i64[2, 3]<9, 3":
        "aten.__and__.Scalar" = "aten.bitwise_and.Scalar",
        "aten.__or__.Scalar" = "aten.bitwise_or.Scalar",
        "aten.__xor__.Scalar" = "aten.bitwise_xor.Scalar";
    "(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor", "f32[2, 3], f32[3]>0, \"floor\"":
        "aten.divide.Tensor_mode" = "aten.div.Tensor_mode";
    "(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor", "f32[2, 3], 1.5, \"trunc\"":
        "aten.divide.Scalar_mode" = "aten.div.Scalar_mode";
    "(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor", "f32[2, 3], -0.5, 0.5":
        "aten.clip.default" = "aten.clamp";
    "(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor", "f32[2, 3], f32[3], f32[3]":
        "aten.clip.Tensor" = "aten.clamp.Tensor";
}
