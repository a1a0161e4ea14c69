//! Elementwise ops that write to their first argument: each is its functional op in the type of that argument.

use super::infer;
use crate::builder::{Call, Value};
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};

const IN_PLACE: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH,
    infer: Some(infer::same),
    rule: Some(|c| of(c, &c.op.name.replacen("_.", ".", 1))),
    functional: Functional::Always,
    ..OpDef::BASE
};

fn of<'b>(c: &Call<'b>, op: &str) -> Vec<Value<'b>> {
    vec![c.b.call(op, c.args.clone()).to(c.tensor("self").dtype())]
}

/// Records by the parameters behind the first and an example: the op, and the functional op if it is called otherwise.
macro_rules! in_place {
    ($($rest:literal, $example:literal: $($name:literal $(= $of:literal)?),* $(,)?;)*) => {
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$($(&OpDef {
            name: $name,
            schema: concat!("(Tensor(a!) self", $rest, ") -> Tensor(a!)"),
            example: $example,
            $(rule: Some(|c| of(c, $of)),)?
            ..IN_PLACE
        },)*)* &ATAN2_OUT]];
    };
}

/// [`super::arith::ATAN2`] written to a tensor.
static ATAN2_OUT: OpDef = OpDef {
    name: "aten.atan2.out",
    schema: "(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)",
    infer: Some(|c| Ok(Meta::Tensor(c.meta("out")?))),
    rule: Some(|c| vec![c.tensor("self").op("aten.atan2", vec![c.arg("other").clone()]).to(c.tensor("out").dtype())]),
    example: "f32[2, 3], f32[3]>0, f32[2, 3]",
    ..IN_PLACE
};

in_place! {
    "", "f32[2, 3]":
        "aten.abs_.default",
        "aten.absolute_.default" = "aten.abs",
        "aten.arcsinh_.default" = "aten.asinh",
        "aten.arctan_.default" = "aten.atan",
        "aten.asinh_.default",
        "aten.atan_.default",
        "aten.ceil_.default",
        "aten.conj_physical_.default",
        "aten.cos_.default",
        "aten.cosh_.default",
        "aten.deg2rad_.default",
        "aten.erf_.default",
        "aten.erfc_.default",
        "aten.exp2_.default",
        "aten.exp_.default",
        "aten.expm1_.default",
        "aten.fix_.default" = "aten.trunc",
        "aten.floor_.default",
        "aten.frac_.default",
        "aten.hardsigmoid_.default",
        "aten.hardswish_.default",
        "aten.i0_.default",
        "aten.mish_.default",
        "aten.neg_.default",
        "aten.negative_.default" = "aten.neg",
        "aten.rad2deg_.default",
        "aten.relu6_.default" = "aten.relu6",
        "aten.relu_.default",
        "aten.round_.default",
        "aten.selu_.default" = "aten.selu",
        "aten.sgn_.default",
        "aten.sigmoid_.default",
        "aten.sign_.default",
        "aten.silu_.default",
        "aten.sin_.default",
        "aten.sinc_.default",
        "aten.sinh_.default",
        "aten.square_.default" = "aten.square",
        "aten.tanh_.default",
        "aten.trunc_.default";
    "", "f32[2, 3]>0":
        "aten.digamma_.default",
        "aten.lgamma_.default",
        "aten.log10_.default",
        "aten.log1p_.default",
        "aten.log2_.default",
        "aten.log_.default",
        "aten.reciprocal_.default",
        "aten.rsqrt_.default",
        "aten.sqrt_.default";
    "", "f32[2, 3]<1":
        "aten.acos_.default",
        "aten.arccos_.default" = "aten.acos",
        "aten.arcsin_.default" = "aten.asin",
        "aten.arctanh_.default" = "aten.atanh",
        "aten.asin_.default",
        "aten.atanh_.default",
        "aten.erfinv_.default",
        "aten.tan_.default";
    "", "f32[2, 3]>1":
        "aten.acosh_.default",
        "aten.arccosh_.default" = "aten.acosh";
    "", "bool[2, 3]":
        "aten.bitwise_not_.default",
        "aten.logical_not_.default";
    ", *, int decimals", "f32[2, 3], 1": "aten.round_.decimals";
    ", int p", "f32[2, 3]>0, 1": "aten.mvlgamma_.default";
    ", Tensor other, *, Scalar alpha=1", "f32[2, 3], f32[3], 0.5":
        "aten.add_.Tensor",
        "aten.sub_.Tensor",
        "aten.subtract_.Tensor" = "aten.sub.Tensor";
    ", Scalar other, Scalar alpha=1", "f32[2, 3], 1.5, 0.5":
        "aten.add_.Scalar",
        "aten.sub_.Scalar",
        "aten.subtract_.Scalar" = "aten.sub.Scalar";
    ", Tensor other", "": "aten.nextafter_.default";
    ", Tensor other", "f32[2, 3], f32[3]":
        "aten.copysign_.Tensor",
        "aten.greater_.Tensor" = "aten.gt.Tensor",
        "aten.greater_equal_.Tensor" = "aten.ge.Tensor",
        "aten.eq_.Tensor",
        "aten.ge_.Tensor",
        "aten.gt_.Tensor",
        "aten.hypot_.default",
        "aten.ldexp_.default" = "aten.ldexp.Tensor",
        "aten.le_.Tensor",
        "aten.less_.Tensor" = "aten.lt.Tensor",
        "aten.less_equal_.Tensor" = "aten.le.Tensor",
        "aten.logical_and_.default",
        "aten.logical_or_.default",
        "aten.logical_xor_.default",
        "aten.lt_.Tensor",
        "aten.mul_.Tensor",
        "aten.multiply_.Tensor" = "aten.mul.Tensor",
        "aten.ne_.Tensor",
        "aten.not_equal_.Tensor" = "aten.ne.Tensor";
    ", Tensor other", "f32[2, 3], f32[3]>0":
        "aten.arctan2_.default" = "aten.atan2",
        "aten.atan2_.default",
        "aten.div_.Tensor",
        "aten.divide_.Tensor" = "aten.div.Tensor",
        "aten.floor_divide_.Tensor" = "aten.floor_divide",
        "aten.fmod_.Tensor",
        "aten.remainder_.Tensor",
        "aten.true_divide_.Tensor" = "aten.div.Tensor",
        "aten.xlogy_.Tensor";
    ", Tensor other", "i64[2, 3], f32[3]>0": "aten.igamma_.default", "aten.igammac_.default";
    ", Tensor other", "i64[2, 3]<9, i64[3]<9":
        "aten.__iand__.Tensor" = "aten.bitwise_and.Tensor",
        "aten.__ilshift__.Tensor" = "aten.__lshift__.Tensor",
        "aten.__ior__.Tensor" = "aten.bitwise_or.Tensor",
        "aten.__irshift__.Tensor" = "aten.__rshift__.Tensor",
        "aten.__ixor__.Tensor" = "aten.bitwise_xor.Tensor",
        "aten.bitwise_and_.Tensor",
        "aten.bitwise_left_shift_.Tensor",
        "aten.bitwise_or_.Tensor",
        "aten.bitwise_right_shift_.Tensor",
        "aten.bitwise_xor_.Tensor",
        "aten.gcd_.default",
        "aten.lcm_.default";
    ", Scalar other", "f32[2, 3], 1.5":
        "aten.copysign_.Scalar",
        "aten.div_.Scalar",
        "aten.divide_.Scalar" = "aten.div.Scalar",
        "aten.eq_.Scalar",
        "aten.floor_divide_.Scalar",
        "aten.fmod_.Scalar",
        "aten.ge_.Scalar",
        "aten.greater_.Scalar" = "aten.gt.Scalar",
        "aten.greater_equal_.Scalar" = "aten.ge.Scalar",
        "aten.gt_.Scalar",
        "aten.le_.Scalar",
        "aten.less_.Scalar" = "aten.lt.Scalar",
        "aten.less_equal_.Scalar" = "aten.le.Scalar",
        "aten.lt_.Scalar",
        "aten.mul_.Scalar",
        "aten.multiply_.Scalar" = "aten.mul.Scalar",
        "aten.ne_.Scalar",
        "aten.not_equal_.Scalar" = "aten.ne.Scalar",
        "aten.remainder_.Scalar",
        "aten.true_divide_.Scalar" = "aten.div.Scalar",
        "aten.xlogy_.Scalar_Other";
    ", Scalar other", "i64[2, 3]<9, 1":
        "aten.__iand__.Scalar" = "aten.bitwise_and.Scalar",
        "aten.__ilshift__.Scalar" = "aten.__lshift__.Scalar",
        "aten.__ior__.Scalar" = "aten.bitwise_or.Scalar",
        "aten.__irshift__.Scalar" = "aten.__rshift__.Scalar",
        "aten.__ixor__.Scalar" = "aten.bitwise_xor.Scalar",
        "aten.bitwise_and_.Scalar",
        "aten.bitwise_left_shift_.Tensor_Scalar",
        "aten.bitwise_or_.Scalar",
        "aten.bitwise_right_shift_.Tensor_Scalar",
        "aten.bitwise_xor_.Scalar";
    ", Tensor other, *, str? rounding_mode", "f32[2, 3], f32[3]>0, \"floor\"":
        "aten.div_.Tensor_mode",
        "aten.divide_.Tensor_mode" = "aten.div.Tensor_mode";
    ", Scalar other, *, str? rounding_mode", "f32[2, 3], 1.5, \"trunc\"":
        "aten.div_.Scalar_mode",
        "aten.divide_.Scalar_mode" = "aten.div.Scalar_mode";
    ", Tensor exponent", "f32[2, 3]>0, f32[3]":
        "aten.float_power_.Tensor" = "aten.float_power.Tensor_Tensor",
        "aten.pow_.Tensor" = "aten.pow.Tensor_Tensor";
    ", Scalar exponent", "f32[2, 3]>0, 2.5":
        "aten.float_power_.Scalar" = "aten.float_power.Tensor_Scalar",
        "aten.pow_.Scalar" = "aten.pow.Tensor_Scalar";
    ", Tensor tensor1, Tensor tensor2, *, Scalar value=1", "f32[2, 3], f32[3], f32[3]>0":
        "aten.addcdiv_.default",
        "aten.addcmul_.default";
    ", Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1", "f32[2, 3], f32[2], f32[3]": "aten.addr_.default";
    ", Tensor end, Tensor weight", "f32[2, 3], f32[3], f32[3]": "aten.lerp_.Tensor";
    ", Tensor end, Scalar weight", "f32[2, 3], f32[3], 0.25": "aten.lerp_.Scalar";
    ", Tensor values", "f32[2, 3], f32[2, 3]": "aten.heaviside_.default";
    ", float? eps=None", "f32[2, 3]<1, 0.25": "aten.logit_.default";
    ", float? nan=None, float? posinf=None, float? neginf=None", "f32[2, 3]": "aten.nan_to_num_.default";
    ", Scalar? min=None, Scalar? max=None", "f32[2, 3], -0.5, 0.5":
        "aten.clamp_.default",
        "aten.clip_.default" = "aten.clamp";
    ", Tensor? min=None, Tensor? max=None", "f32[2, 3], f32[3], f32[3]":
        "aten.clamp_.Tensor",
        "aten.clip_.Tensor" = "aten.clamp.Tensor";
    ", Scalar min", "f32[2, 3], 0.25": "aten.clamp_min_.default";
    ", Tensor min", "f32[2, 3], f32[3]": "aten.clamp_min_.Tensor";
    ", Scalar max", "f32[2, 3], 0.25": "aten.clamp_max_.default";
    ", Tensor max", "f32[2, 3], f32[3]": "aten.clamp_max_.Tensor";
    ", Scalar min_val=-1, Scalar max_val=1", "f32[2, 3]": "aten.hardtanh_.default";
    ", Scalar negative_slope=0.01", "f32[2, 3]": "aten.leaky_relu_.default";
    ", Scalar threshold, Scalar value", "f32[2, 3], 0.25, 2.0": "aten.threshold_.default";
    ", Scalar alpha=1, Scalar scale=1, Scalar input_scale=1", "f32[2, 3]": "aten.elu_.default";
    ", Scalar alpha=1.0", "f32[2, 3], 0.5": "aten.celu_.default";
    ", Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, Generator? generator=None", "f32[2, 3]":
        "aten.rrelu_.default";
    ", *, str approximate='none'", "f32[2, 3]": "aten.gelu_.default";
}
