//! Functions of one element.

use super::expr::{choose, compare, elementwise, isnan, log, minus};
use super::promote::{self, Kind};
use super::{infer, prims};
use crate::builder::{Call, Value};
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const FLOAT: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self) -> Tensor",
    accuracy: Accuracy::Rounding,
    infer: Some(infer::same_float),
    rule: Some(|c| prims::lower(c, Kind::IntToFloat)),
    example: "f32[2, 3]",
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
    rule: Some(|c| prims::lower(c, Kind::Bool)),
    ..FLOAT
};

const COMPOSITE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), infer: None, ..FLOAT };
const COMPOSITE_TEST: OpDef = OpDef { levels: COMPOSITE.levels, ..TEST };

records! { CORE:
    /// e to the power of x.
    EXP = "aten.exp.default", FLOAT {};
    /// Natural logarithm.
    LOG = "aten.log.default", FLOAT { example: "f32[2, 3]>0" };
    /// Error function.
    ERF = "aten.erf.default", FLOAT {};
    /// Hyperbolic tangent.
    TANH = "aten.tanh.default", FLOAT {};
    /// `1 / (1 + exp(-x))`.
    SIGMOID = "aten.sigmoid.default", FLOAT { raisable: true, rule: Some(|c| {
        let (x, types) = promote::tensors(c, &["self"], Kind::IntToFloat);
        let e = x[0].op("aten.neg", vec![]).exp();
        vec![(e + 1i64).reciprocal().to(types.result)]
    }) };
    /// Square root.
    SQRT = "aten.sqrt.default", FLOAT { example: "f32[2, 3]>0" };
    /// `1 / sqrt(x)`.
    RSQRT = "aten.rsqrt.default", FLOAT { example: "f32[2, 3]>0" };
    /// `1 / x`.
    RECIPROCAL = "aten.reciprocal.default", FLOAT { example: "f32[2, 3]>0" };
    /// `-x`.
    NEG = "aten.neg.default", EXACT {};
    /// Absolute value.
    ABS = "aten.abs.default", EXACT {};
    /// Greatest integer not above.
    FLOOR = "aten.floor.default", EXACT {};
    /// Least integer not below.
    CEIL = "aten.ceil.default", EXACT {};
    /// Nearest integer, halves to even.
    ROUND = "aten.round.default", EXACT {};
    /// Towards zero.
    TRUNC = "aten.trunc.default", EXACT {};
    /// -1, 0 or 1.
    SIGN = "aten.sign.default", EXACT {};
    /// Bits, or truth values, inverted.
    BITWISE_NOT = "aten.bitwise_not.default", EXACT { example: "i64[2, 3]<9 | bool[2]" };
    /// `exp(x) - 1`.
    EXPM1 = "aten.expm1.default", FLOAT {};
    /// `log(1 + x)`.
    LOG1P = "aten.log1p.default", FLOAT { example: "f32[2, 3]>0" };
    /// Logarithm to base 2.
    LOG2 = "aten.log2.default", FLOAT { example: "f32[2, 3]>0" };
    /// Logarithm to base 10.
    LOG10 = "aten.log10.default", FLOAT { example: "f32[2, 3]>0" };
    /// Sine.
    SIN = "aten.sin.default", FLOAT {};
    /// Cosine.
    COS = "aten.cos.default", FLOAT {};
    /// Tangent.
    TAN = "aten.tan.default", FLOAT { example: "f32[2, 3]<1" };
    /// Inverse sine.
    ASIN = "aten.asin.default", FLOAT { example: "f32[2, 3]<1" };
    /// Inverse cosine.
    ACOS = "aten.acos.default", FLOAT { example: "f32[2, 3]<1" };
    /// Inverse tangent.
    ATAN = "aten.atan.default", FLOAT {};
    /// Hyperbolic sine.
    SINH = "aten.sinh.default", FLOAT {};
    /// Hyperbolic cosine.
    COSH = "aten.cosh.default", FLOAT {};
    /// Inverse hyperbolic sine.
    ASINH = "aten.asinh.default", FLOAT {};
    /// Inverse hyperbolic cosine.
    ACOSH = "aten.acosh.default", FLOAT { example: "f32[2, 3]>1" };
    /// Inverse hyperbolic tangent.
    ATANH = "aten.atanh.default", FLOAT { example: "f32[2, 3]<1" };
    /// Whether an element is zero.
    LOGICAL_NOT = "aten.logical_not.default", TEST { rule: Some(|c| vec![c.tensor("self").op("aten.eq.Scalar", vec![0i64.into()])]) };
    /// Whether an element is not a number.
    ISNAN = "aten.isnan.default", TEST { rule: Some(|c| {
        let x = c.tensor("self");
        vec![x.op("aten.ne.Tensor", vec![x.into()])]
    }) };
    /// Whether an element is infinite.
    ISINF = "aten.isinf.default", TEST { rule: Some(|c| {
        let x = c.tensor("self");
        // An integer is never infinite, and no number of its type says so.
        let x = x.to(infer::to_float(x.dtype()));
        vec![x.abs().op("aten.eq.Scalar", vec![f64::INFINITY.into()])]
    }), example: "f32[2, 3] | i64[2]<9" };
    /// `1 - erf(x)`.
    ERFC = "aten.erfc.default", FLOAT {};
    /// 2 to the power of x.
    EXP2 = "aten.exp2.default", FLOAT {};
    /// Whether the sign bit is set, that of -0 too.
    SIGNBIT = "aten.signbit.default", TEST {};
    /// A number in [0.5, 1), and the power of 2 by which it was divided.
    FREXP = "aten.frexp.Tensor", EXACT {
        levels: Levels::ALL,
        schema: "(Tensor self) -> (Tensor mantissa, Tensor exponent)",
        infer: Some(|c| {
            let m = c.meta("self")?;
            if !m.dtype.is_float() {
                return Err(c.err(&format!("elements of type {}, expected floats", m.dtype)));
            }
            Ok(Meta::Tuple(vec![Meta::Tensor(m.clone()), Meta::tensor(DType::I32, m.shape)]))
        }),
        rule: None,
        example: "",
    };
    /// Rounded to so many decimals, halves to even.
    ROUND_DECIMALS = "aten.round.decimals", EXACT {
        schema: "(Tensor self, *, int decimals) -> Tensor",
        rule: Some(|c| {
            let power = Arg::Float(10f64.powi(c.int("decimals").unsigned_abs().min(400) as i32));
            let (up, down) = if c.int("decimals") < 0 { ("div", "mul") } else { ("mul", "div") };
            elementwise(c, ["self"], Kind::Default, |[x]| {
                if !x.dtype().is_float() {
                    return x;
                }
                let scaled = x.op(&format!("aten.{up}.Tensor"), vec![power.clone()]).op("aten.round", vec![]);
                scaled.op(&format!("aten.{down}.Tensor"), vec![power])
            })
        }),
        example: "f32[2, 3], 1 | f32[2], -1",
    };
    /// 0, or π where negative.
    ANGLE = "aten.angle.default", FLOAT {
        accuracy: Accuracy::Exact,
        rule: Some(|c| {
            let x = c.tensor("self");
            let float = x.to(infer::to_float(x.dtype()));
            let angle = choose(compare(x, "lt", 0i64), std::f64::consts::PI, 0.0).to(float.dtype());
            vec![choose(isnan(float), float, angle)]
        }),
    };
}

records! { COMPOSITES:
    /// `x²`.
    SQUARE = "aten.square.default", COMPOSITE {
        rule: Some(|c| vec![c.tensor("self").op("aten.pow.Tensor_Scalar", vec![2i64.into()])]),
    };
    /// The part behind the point, with the sign of x.
    FRAC = "aten.frac.default", COMPOSITE {
        accuracy: Accuracy::Exact,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| x - x.op("aten.trunc", vec![]))),
    };
    /// -1, 0 or 1.
    SGN = "aten.sgn.default", COMPOSITE {
        accuracy: Accuracy::Exact,
        rule: Some(|c| elementwise(c, ["self"], Kind::Default, |[x]| x.op("aten.sign", vec![]))),
    };
    /// Degrees in radians.
    DEG2RAD = "aten.deg2rad.default", COMPOSITE {
        rule: Some(|c| elementwise(c, ["self"], Kind::IntToFloat, |[x]| x * 1f64.to_radians())),
    };
    /// Radians in degrees.
    RAD2DEG = "aten.rad2deg.default", COMPOSITE {
        rule: Some(|c| elementwise(c, ["self"], Kind::IntToFloat, |[x]| x * 1f64.to_degrees())),
    };
    /// `sin(πx) / πx`, 1 at 0.
    SINC = "aten.sinc.default", COMPOSITE {
        rule: Some(|c| {
            elementwise(c, ["self"], Kind::IntToFloat, |[x]| {
                let x = x * std::f64::consts::PI;
                choose(compare(x, "eq", 0i64), 1i64, x.op("aten.sin", vec![]) / x)
            })
        }),
        example: "f32[2, 3]>0",
    };
    /// `log(x / (1 - x))`, of x held between `eps` and `1 - eps`.
    LOGIT = "aten.logit.default", COMPOSITE {
        raisable: true,
        schema: "(Tensor self, float? eps=None) -> Tensor",
        rule: Some(|c| {
            let low = c.opt_float("eps").unwrap_or(-1.0);
            let high = 1.0 - low;
            elementwise(c, ["self"], Kind::IntToFloat, |[x]| {
                let (below, above) = (compare(x, "lt", low), compare(x, "gt", high));
                let held = choose(below, low, choose(above, high, x));
                log(held / minus(1i64, held))
            })
        }),
        accuracy: Accuracy::Approximate,
        example: "f32[2, 3]<1, 0.25",
    };
    /// What is not a number, and infinities, replaced by numbers.
    NAN_TO_NUM = "aten.nan_to_num.default", COMPOSITE {
        schema: "(Tensor self, float? nan=None, float? posinf=None, float? neginf=None) -> Tensor",
        accuracy: Accuracy::Exact,
        rule: Some(|c| {
            let x = c.tensor("self");
            let greatest = match x.dtype() {
                DType::F64 => f64::MAX,
                DType::F16 => 65504.0,
                DType::BF16 => 3.3895313892515355e38,
                _ => f64::from(f32::MAX),
            };
            if !x.dtype().is_float() {
                return vec![x.op("aten.clone", vec![])];
            }
            let number = |n: &str, default: f64| c.opt_float(n).unwrap_or(default);
            let y = choose(isnan(x), number("nan", 0.0), x);
            let y = choose(x.op("aten.isneginf", vec![]), number("neginf", -greatest), y);
            vec![choose(x.op("aten.isposinf", vec![]), number("posinf", greatest), y)]
        }),
        example: "f32[2, 3] | f32[2], 0.5, 1.5, -1.5",
    };
    /// Whether elements are numbers and finite.
    ISFINITE = "aten.isfinite.default", COMPOSITE_TEST {
        rule: Some(|c| {
            let x = c.tensor("self");
            vec![if x.dtype().is_float() {
                compare(x, "eq", x) * compare(x.abs(), "ne", f64::INFINITY)
            } else {
                truth(x, true)
            }]
        }),
        example: "f32[2, 3] | i64[2]<9",
    };
    /// Whether elements are positive infinity.
    ISPOSINF = "aten.isposinf.default", COMPOSITE_TEST {
        rule: Some(|c| infinity(c, f64::INFINITY)),
        example: "f32[2, 3] | i64[2]<9",
    };
    /// Whether elements are negative infinity.
    ISNEGINF = "aten.isneginf.default", COMPOSITE_TEST {
        rule: Some(|c| infinity(c, f64::NEG_INFINITY)),
        example: "f32[2, 3] | i64[2]<9",
    };
    /// x: there are no complex numbers here.
    CONJ_PHYSICAL = "aten.conj_physical.default", EXACT {
        levels: Levels::TORCH,
        rule: Some(|c| vec![c.tensor("self")]),
        functional: Functional::Always,
    };
    /// Whether elements have no imaginary part: all of them here.
    ISREAL = "aten.isreal.default", COMPOSITE_TEST { rule: Some(|c| vec![truth(c.tensor("self"), true)]) };
}

/// One truth value in the shape of a tensor.
fn truth(like: Value<'_>, value: bool) -> Value<'_> {
    like.op("aten.full_like", vec![value.into(), DType::Bool.into()])
}

fn infinity<'b>(c: &Call<'b>, which: f64) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let wide = x.to(Kind::Default.of(x.dtype()).compute);
    vec![if x.dtype().is_float() { compare(wide, "eq", which) } else { truth(x, false) }]
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[CORE, COMPOSITES];
