//! Arithmetic of two and three operands.

use super::expr::{choose, compare, elementwise, isnan, log1p, scalar};
use super::promote::{self, Kind};
use super::{expr, infer, prims};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(infer::binary),
    rule: Some(|c| prims::lower(c, Kind::Default)),
    example: "f32[2, 3], f32[3]",
    ..OpDef::BASE
};
const SCALED: OpDef = OpDef {
    schema: "(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    must_default: &["alpha"],
    example: "f32[2, 3], f32[3] | f32[2], f32[2], 0.5",
    ..BASE
};
const SCALED_SCALAR: OpDef = OpDef {
    schema: "(Tensor self, Scalar other, Scalar alpha=1) -> Tensor",
    example: "f32[2, 3], 1.5 | f32[2], 1.5, 0.5",
    ..BASE
};
const SCALAR: OpDef = OpDef { schema: "(Tensor self, Scalar other) -> Tensor", example: "f32[2, 3], 1.5", ..BASE };
const NUMBER: OpDef = OpDef { schema: "(Scalar self, Tensor other) -> Tensor", example: "1.5, f32[2, 3]>0", ..BASE };
const QUOTIENT: OpDef = OpDef {
    infer: Some(infer::binary_float),
    rule: Some(|c| prims::lower(c, Kind::IntToFloat)),
    example: "f32[2, 3], f32[3]>0",
    ..BASE
};
const POWER: OpDef = OpDef {
    accuracy: Accuracy::Rounding,
    infer: Some(|c| Ok(Meta::Tensor(infer::pointwise(c, &["self", "exponent"])?))),
    ..BASE
};
const MODE: OpDef = OpDef {
    levels: Levels::ALL,
    rule: None,
    infer: Some(|c| match c.arg("rounding_mode") {
        Arg::None => infer::binary_float(c),
        _ => infer::binary(c),
    }),
    example: "",
    ..BASE
};
const SUGAR: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), infer: None, ..BASE };
const LN_TWICE: OpDef = OpDef { accuracy: Accuracy::Approximate, ..SUGAR };

records! { CORE:
    /// Sum: `self + alpha·other`.
    ADD = "aten.add.Tensor", SCALED { commutative: true };
    /// [`ADD`] of a number.
    ADD_SCALAR = "aten.add.Scalar", SCALED_SCALAR {};
    /// Difference: `self - alpha·other`.
    SUB = "aten.sub.Tensor", SCALED {};
    /// [`SUB`] of a number.
    SUB_SCALAR = "aten.sub.Scalar", SCALED_SCALAR {};
    /// Product.
    MUL = "aten.mul.Tensor", BASE { commutative: true };
    /// [`MUL`] by a number.
    MUL_SCALAR = "aten.mul.Scalar", SCALAR {};
    /// Quotient; integers become floats.
    DIV = "aten.div.Tensor", QUOTIENT {};
    /// [`DIV`] by a number.
    DIV_SCALAR = "aten.div.Scalar", QUOTIENT { schema: SCALAR.schema, example: SCALAR.example };
    /// Quotient rounded as asked: `none`, `"trunc"` or `"floor"`.
    DIV_MODE = "aten.div.Tensor_mode", MODE { schema: "(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor" };
    /// [`DIV_MODE`] by a number.
    DIV_SCALAR_MODE = "aten.div.Scalar_mode", MODE { schema: "(Tensor self, Scalar other, *, str? rounding_mode) -> Tensor" };
    /// Power with a number as exponent.
    POW = "aten.pow.Tensor_Scalar", POWER {
        schema: "(Tensor self, Scalar exponent) -> Tensor",
        example: "f32[2, 3]>0, 2.5 | f32[2], 2",
    };
    /// Power with an exponent for each element.
    POW_TENSOR = "aten.pow.Tensor_Tensor", POWER {
        schema: "(Tensor self, Tensor exponent) -> Tensor",
        example: "f32[2, 3]>0, f32[3]",
    };
    /// A number to the power of each element.
    POW_SCALAR = "aten.pow.Scalar", POWER {
        schema: "(Scalar self, Tensor exponent) -> Tensor",
        example: "1.5, f32[2, 3]",
    };
    /// The greater element.
    MAXIMUM = "aten.maximum.default", BASE { commutative: true };
    /// The lesser element.
    MINIMUM = "aten.minimum.default", BASE { commutative: true };
    /// The greater element, or the one that is a number.
    FMAX = "aten.fmax.default", BASE { commutative: true };
    /// The lesser element, or the one that is a number.
    FMIN = "aten.fmin.default", BASE { commutative: true };
    /// `self - other·floor(self / other)`: the sign of the divisor.
    REMAINDER = "aten.remainder.Tensor", BASE { example: QUOTIENT.example };
    /// [`REMAINDER`] by a number.
    REMAINDER_SCALAR = "aten.remainder.Scalar", SCALAR {};
    /// [`REMAINDER`] of a number.
    REMAINDER_NUMBER = "aten.remainder.Scalar_Tensor", NUMBER {};
    /// `self - other·trunc(self / other)`: the sign of the dividend.
    FMOD = "aten.fmod.Tensor", BASE { example: QUOTIENT.example };
    /// [`FMOD`] by a number.
    FMOD_SCALAR = "aten.fmod.Scalar", SCALAR {};
    /// Angle of the point (other, self).
    ATAN2 = "aten.atan2.default", QUOTIENT { accuracy: Accuracy::Rounding };
    /// `√(self² + other²)`.
    HYPOT = "aten.hypot.default", BASE { commutative: true, accuracy: Accuracy::Rounding };
    /// The next number of the type towards the other element.
    NEXTAFTER = "aten.nextafter.default", BASE {};
    /// Greatest common divisor.
    GCD = "aten.gcd.default", BASE { commutative: true, example: "i64[2, 3]<9, i64[3]<9" };
    /// Least common multiple.
    LCM = "aten.lcm.default", BASE {
        commutative: true,
        rule: Some(|c| {
            elementwise(c, ["self", "other"], Kind::Default, |[x, y]| {
                let gcd = x.op("aten.gcd", vec![y.into()]);
                let zero = compare(gcd, "eq", 0i64);
                let part = x.op("aten.div.Tensor_mode", vec![choose(zero, 1i64, gcd).into(), "trunc".into()]);
                choose(zero, 0i64, (part * y).abs())
            })
        }),
        example: "i64[2, 3]<9, i64[3]<9",
    };
    /// `self · 2^other`.
    LDEXP = "aten.ldexp.Tensor", BASE {
        infer: None,
        rule: Some(|c| vec![c.tensor("self") * c.b.call("aten.pow.Scalar", vec![2.0.into(), c.arg("other").clone()])]),
    };
}

records! { COMPOSITE:
    /// `other - alpha·self`.
    RSUB = "aten.rsub.Tensor", SCALED {
        levels: SUGAR.levels,
        rule: Some(|c| vec![c.b.call("aten.sub.Tensor", ["other", "self", "alpha"].map(|n| c.arg(n).clone()).to_vec())]),
    };
    /// A number less `alpha·self`.
    RSUB_SCALAR = "aten.rsub.Scalar", SCALED_SCALAR { levels: SUGAR.levels, rule: RSUB.rule };
    /// Quotient rounded down.
    FLOOR_DIVIDE = "aten.floor_divide.default", SUGAR {
        rule: Some(|c| vec![c.b.call("aten.div.Tensor_mode", [c.args.clone(), vec!["floor".into()]].concat())]),
        example: QUOTIENT.example,
    };
    /// [`FLOOR_DIVIDE`] by a number.
    FLOOR_DIVIDE_SCALAR = "aten.floor_divide.Scalar", SUGAR {
        schema: SCALAR.schema,
        rule: FLOOR_DIVIDE.rule,
        example: SCALAR.example,
    };
    /// Power in f64.
    FLOAT_POWER = "aten.float_power.Tensor_Tensor", SUGAR {
        schema: POW_TENSOR.schema,
        rule: Some(|c| float_power(c, "aten.pow.Tensor_Tensor")),
        example: POW_TENSOR.example,
    };
    /// [`FLOAT_POWER`] with a number as exponent.
    FLOAT_POWER_SCALAR = "aten.float_power.Tensor_Scalar", SUGAR {
        schema: POW.schema,
        rule: Some(|c| float_power(c, "aten.pow.Tensor_Scalar")),
        example: POW.example,
    };
    /// [`FLOAT_POWER`] of a number.
    FLOAT_POWER_NUMBER = "aten.float_power.Scalar", SUGAR {
        schema: POW_SCALAR.schema,
        rule: Some(|c| float_power(c, "aten.pow.Scalar")),
        example: POW_SCALAR.example,
    };
    /// `self + value·tensor1·tensor2`.
    ADDCMUL = "aten.addcmul.default", SUGAR {
        schema: "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
        rule: Some(|c| {
            elementwise(c, ["self", "tensor1", "tensor2"], Kind::Default, |[x, a, b]| x + times(a, c.arg("value")) * b)
        }),
        example: "f32[2, 3], f32[3], f32[2, 1] | f32[2], f32[2], f32[2], 0.5",
    };
    /// `self + value·tensor1 / tensor2`.
    ADDCDIV = "aten.addcdiv.default", SUGAR {
        schema: ADDCMUL.schema,
        rule: Some(|c| {
            elementwise(c, ["self", "tensor1", "tensor2"], Kind::IntToFloat, |[x, a, b]| x + times(a, c.arg("value")) / b)
        }),
        example: "f32[2, 3], f32[3], f32[2, 1]>0 | f32[2], f32[2], f32[2]>0, 0.5",
    };
    /// `beta·self + alpha·vec1·vec2ᵀ`.
    ADDR = "aten.addr.default", SUGAR {
        schema: "(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        rule: Some(addr),
        example: "f32[2, 3], f32[2], f32[3] | f32[3], f32[2], f32[3], 0.5, 2 | f32[2, 3], f32[2], f32[3], 0",
    };
    /// `self + weight·(end - self)`, from the nearer end.
    LERP = "aten.lerp.Tensor", SUGAR {
        schema: "(Tensor self, Tensor end, Tensor weight) -> Tensor",
        rule: Some(|c| {
            elementwise(c, ["self", "end", "weight"], Kind::Default, |[start, end, weight]| lerp(start, end, weight))
        }),
        example: "f32[2, 3], f32[3], f32[2, 1]<1",
    };
    /// [`LERP`] with a number as weight.
    LERP_SCALAR = "aten.lerp.Scalar", SUGAR {
        schema: "(Tensor self, Tensor end, Scalar weight) -> Tensor",
        rule: Some(|c| {
            let (x, types) = promote::tensors(c, &["self", "end"], Kind::Default);
            let weight = c.b.call("aten.full", vec![Arg::List(vec![]), c.arg("weight").clone(), types.compute.into()]);
            vec![lerp(x[0], x[1], weight).to(types.result)]
        }),
        example: "f32[2, 3], f32[3], 0.25 | f32[2], f32[2], 0.75",
    };
    /// `log(exp(self) + exp(other))`.
    LOGADDEXP = "aten.logaddexp.default", LN_TWICE {
        commutative: true,
        rule: Some(|c| log_sum(c, |x| x.op("aten.isfinite", vec![]).op("aten.logical_not", vec![]), |d| log1p(d.exp()))),
    };
    /// `log2(2^self + 2^other)`.
    LOGADDEXP2 = "aten.logaddexp2.default", LN_TWICE {
        commutative: true,
        rule: Some(|c| {
            log_sum(c, |x| x.op("aten.isinf", vec![]), |d| log1p(d.op("aten.exp2", vec![])) * std::f64::consts::LOG2_E)
        }),
    };
    /// `self · log(other)`, 0 where `self` is 0.
    XLOGY = "aten.xlogy.Tensor", LN_TWICE {
        rule: Some(|c| xlog(c, "aten.log")),
        example: "f32[2, 3], f32[3]>0",
    };
    /// [`XLOGY`] of a tensor and a number.
    XLOGY_SCALAR = "aten.xlogy.Scalar_Other", LN_TWICE {
        schema: SCALAR.schema,
        rule: XLOGY.rule,
        example: SCALAR.example,
    };
    /// [`XLOGY`] of a number and a tensor.
    XLOGY_NUMBER = "aten.xlogy.Scalar_Self", LN_TWICE {
        schema: NUMBER.schema,
        rule: XLOGY.rule,
        example: NUMBER.example,
    };
    /// `self · log(1 + other)`, 0 where `self` is 0.
    XLOG1PY = "aten.special_xlog1py.default", LN_TWICE {
        rule: Some(|c| xlog(c, "aten.log1p")),
        example: "f32[2, 3], f32[3]>0",
    };
    /// [`XLOG1PY`] of a tensor and a number.
    XLOG1PY_SCALAR = "aten.special_xlog1py.other_scalar", LN_TWICE {
        schema: SCALAR.schema,
        rule: XLOG1PY.rule,
        example: SCALAR.example,
    };
    /// [`XLOG1PY`] of a number and a tensor.
    XLOG1PY_NUMBER = "aten.special_xlog1py.self_scalar", LN_TWICE {
        schema: NUMBER.schema,
        rule: XLOG1PY.rule,
        example: NUMBER.example,
    };
}

fn times<'b>(x: Value<'b>, number: &Arg) -> Value<'b> {
    x.op("aten.mul.Tensor", vec![number.clone()])
}

fn float_power<'b>(c: &Call<'b>, pow: &str) -> Vec<Value<'b>> {
    let wide = |a: &Arg| match a {
        Arg::Node(n) => c.b.value(*n).to(DType::F64).into(),
        number => number.clone(),
    };
    let args = ["exponent", "self"].map(|n| wide(c.arg(n)));
    let [exponent, base] = args;
    vec![c.b.call(pow, vec![base, exponent])]
}

fn addr<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, types) = promote::tensors(c, &["self", "vec1", "vec2"], Kind::Default);
    let (rows, columns) = (x[1].shape(), x[2].shape());
    if rows.len() != 1 || columns.len() != 1 {
        c.fail(&format!("vectors of shapes {rows:?} and {columns:?}, expected one dimension each"));
        return vec![x[0]];
    }
    let expanded = || x[0].op("aten.expand", vec![vec![rows[0].clone(), columns[0].clone()].into()]);
    let outer = || x[1].view(vec![rows[0].clone(), Dim::from(1i64)]) * x[2];
    let zero = |n: &str| c.float(n) == 0.0;
    let y = if types.result == DType::Bool {
        let product = if zero("alpha") { expanded().op("aten.full_like", vec![false.into()]) } else { outer() };
        if zero("beta") { product } else { expanded().op("aten.logical_or", vec![product.into()]) }
    } else if zero("beta") {
        // What is not a number in `self` is dropped.
        times(outer(), c.arg("alpha"))
    } else {
        times(expanded(), c.arg("beta")) + times(outer(), c.arg("alpha"))
    };
    vec![y.to(types.result)]
}

fn lerp<'b>(start: Value<'b>, end: Value<'b>, weight: Value<'b>) -> Value<'b> {
    let far = compare(weight.abs(), "ge", 0.5);
    let factor = choose(far, weight - 1i64, weight);
    factor * (end - start) + choose(far, end, start)
}

/// The greater operand, and what the lesser adds; where both are the same infinity, that.
fn log_sum<'b>(
    c: &Call<'b>,
    infinite: fn(Value<'b>) -> Value<'b>,
    added: fn(Value<'b>) -> Value<'b>,
) -> Vec<Value<'b>> {
    elementwise(c, ["self", "other"], Kind::Default, |both| {
        let [x, y] = expr::broadcast(c, both);
        let first = compare(x, "ge", y);
        let (greater, lesser) = (choose(first, x, y), choose(first, y, x));
        let same = infinite(x).op("aten.logical_and", vec![compare(x, "eq", y).into()]);
        choose(same, x, greater + added(lesser - greater))
    })
}

fn xlog<'b>(c: &Call<'b>, log: &str) -> Vec<Value<'b>> {
    let (args, types) = promote::operands(c, &["self", "other"], Kind::IntToFloat);
    let tensor = |a: &Arg| match a {
        Arg::Node(n) => c.b.value(*n),
        number => scalar(c.b, number.clone(), types.compute),
    };
    let [x, y] = [tensor(&args[0]), tensor(&args[1])];
    let product = choose(compare(x, "eq", 0i64), 0i64, x * y.op(log, vec![]));
    vec![choose(isnan(y), f64::NAN, product).to(types.result)]
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[CORE, COMPOSITE];
