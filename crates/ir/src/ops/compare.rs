//! Comparisons, logic, and choice between elements.

use super::expr::{choose, compare, is_tensor, isnan, neg, scalar};
use super::promote::{self, Kind};
use super::{infer, prims};
use crate::builder::{Call, Value};
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const CORE: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self, Tensor other) -> Tensor",
    ..OpDef::BASE
};
const BINARY: OpDef = OpDef {
    infer: Some(infer::compare),
    rule: Some(|c| prims::lower(c, Kind::Bool)),
    example: "f32[2, 3], f32[3]",
    ..CORE
};
const SCALAR: OpDef = OpDef { schema: "(Tensor self, Scalar other) -> Tensor", example: "f32[2, 3], 0.5", ..BINARY };
const SCALAR_TENSOR: OpDef = OpDef { schema: "(Scalar self, Tensor other) -> Tensor", ..BINARY };
const BITS: OpDef = OpDef {
    commutative: true,
    infer: Some(infer::binary),
    rule: Some(|c| prims::lower(c, Kind::Default)),
    example: "i64[2, 3]<9, i64[3]<9 | bool[2], bool[2]",
    ..BINARY
};
const BITS_SCALAR: OpDef = OpDef { schema: SCALAR.schema, example: "i64[2, 3]<9, 3", ..BITS };
const BITS_NUMBER: OpDef = OpDef { schema: SCALAR_TENSOR.schema, example: "3, i64[2, 3]<9", ..BITS };
const LOGIC: OpDef = OpDef { commutative: true, ..BINARY };
const LEFT: OpDef = OpDef {
    commutative: false,
    rule: Some(|c| prims::lower_to(c, Kind::Default, "prims.shift_left")),
    example: "i64[2, 3]<9, i64[3]<3",
    ..BITS
};
const RIGHT: OpDef =
    OpDef { rule: Some(|c| prims::lower_to(c, Kind::Default, "prims.shift_right_arithmetic")), ..LEFT };
const SUGAR: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), ..CORE };

/// Both operands as truth values, combined by the prim.
fn logical<'b>(c: &Call<'b>, prim: &str) -> Vec<Value<'b>> {
    let args = ["self", "other"].map(|n| compare(c.tensor(n), "ne", 0i64).into());
    vec![c.b.call(prim, prims::broadcast(c, args.to_vec()))]
}

records! { COMPARISONS:
/// Whether elements are equal.
    EQ = "aten.eq.Tensor", BINARY { commutative: true };
    /// Whether elements are equal in comparison with a number.
    EQ_SCALAR = "aten.eq.Scalar", SCALAR {};
    /// Whether elements are not equal.
    NE = "aten.ne.Tensor", BINARY { commutative: true };
    /// Whether elements are not equal in comparison with a number.
    NE_SCALAR = "aten.ne.Scalar", SCALAR {};
    /// Whether elements are less.
    LT = "aten.lt.Tensor", BINARY {};
    /// Whether elements are less in comparison with a number.
    LT_SCALAR = "aten.lt.Scalar", SCALAR {};
    /// Whether elements are less or equal.
    LE = "aten.le.Tensor", BINARY {};
    /// Whether elements are less or equal in comparison with a number.
    LE_SCALAR = "aten.le.Scalar", SCALAR {};
    /// Whether elements are greater.
    GT = "aten.gt.Tensor", BINARY {};
    /// Whether elements are greater in comparison with a number.
    GT_SCALAR = "aten.gt.Scalar", SCALAR {};
    /// Whether elements are greater or equal.
    GE = "aten.ge.Tensor", BINARY {};
    /// Whether elements are greater or equal in comparison with a number.
    GE_SCALAR = "aten.ge.Scalar", SCALAR {};
    /// Whether both are true.
    LOGICAL_AND = "aten.logical_and.default", LOGIC { rule: Some(|c| logical(c, "prims.bitwise_and")) };
    /// Whether one is true.
    LOGICAL_OR = "aten.logical_or.default", LOGIC { rule: Some(|c| logical(c, "prims.bitwise_or")) };
    /// Whether exactly one is true.
    LOGICAL_XOR = "aten.logical_xor.default", LOGIC { rule: Some(|c| logical(c, "prims.bitwise_xor")) };
    /// Bits that both have.
    BITWISE_AND = "aten.bitwise_and.Tensor", BITS {};
    /// Bits that one has.
    BITWISE_OR = "aten.bitwise_or.Tensor", BITS {};
    /// Bits that exactly one has.
    BITWISE_XOR = "aten.bitwise_xor.Tensor", BITS {};
    /// [`BITWISE_AND`] with a number.
    BITWISE_AND_SCALAR = "aten.bitwise_and.Scalar", BITS_SCALAR {};
    /// [`BITWISE_AND`] of a number.
    BITWISE_AND_NUMBER = "aten.bitwise_and.Scalar_Tensor", BITS_NUMBER {};
    /// [`BITWISE_OR`] with a number.
    BITWISE_OR_SCALAR = "aten.bitwise_or.Scalar", BITS_SCALAR {};
    /// [`BITWISE_OR`] of a number.
    BITWISE_OR_NUMBER = "aten.bitwise_or.Scalar_Tensor", BITS_NUMBER {};
    /// [`BITWISE_XOR`] with a number.
    BITWISE_XOR_SCALAR = "aten.bitwise_xor.Scalar", BITS_SCALAR {};
    /// [`BITWISE_XOR`] of a number.
    BITWISE_XOR_NUMBER = "aten.bitwise_xor.Scalar_Tensor", BITS_NUMBER {};
    /// `self · 2^other` in the integer type.
    LEFT_SHIFT = "aten.bitwise_left_shift.Tensor", LEFT {};
    /// [`LEFT_SHIFT`] by a number.
    LEFT_SHIFT_SCALAR = "aten.bitwise_left_shift.Tensor_Scalar", LEFT { schema: SCALAR.schema, example: "i64[2, 3]<9, 3" };
    /// [`LEFT_SHIFT`] of a number.
    LEFT_SHIFT_NUMBER = "aten.bitwise_left_shift.Scalar_Tensor", LEFT { schema: SCALAR_TENSOR.schema, example: "3, i64[2, 3]<3" };
    /// [`LEFT_SHIFT`] as the operator `<<`.
    LSHIFT = "aten.__lshift__.Tensor", LEFT {};
    /// [`LEFT_SHIFT_SCALAR`] as the operator `<<`.
    LSHIFT_SCALAR = "aten.__lshift__.Scalar", LEFT { schema: SCALAR.schema, example: "i64[2, 3]<9, 3" };
    /// `floor(self / 2^other)`.
    RIGHT_SHIFT = "aten.bitwise_right_shift.Tensor", RIGHT {};
    /// [`RIGHT_SHIFT`] by a number.
    RIGHT_SHIFT_SCALAR = "aten.bitwise_right_shift.Tensor_Scalar", RIGHT { schema: SCALAR.schema, example: "i64[2, 3]<9, 1" };
    /// [`RIGHT_SHIFT`] of a number.
    RIGHT_SHIFT_NUMBER = "aten.bitwise_right_shift.Scalar_Tensor", RIGHT { schema: SCALAR_TENSOR.schema, example: "9, i64[2, 3]<3" };
    /// [`RIGHT_SHIFT`] as the operator `>>`.
    RSHIFT = "aten.__rshift__.Tensor", RIGHT {};
    /// [`RIGHT_SHIFT_SCALAR`] as the operator `>>`.
    RSHIFT_SCALAR = "aten.__rshift__.Scalar", RIGHT { schema: SCALAR.schema, example: "i64[2, 3]<9, 1" };
}

records! { CHOICES:
    /// `self` where the condition holds, else `other`.
    WHERE = "aten.where.self", CORE {
        schema: "(Tensor condition, Tensor self, Tensor other) -> Tensor",
        infer: Some(|c| {
            let values = infer::pointwise(c, &["self", "other"])?;
            let condition = c.meta("condition")?;
            let shape = infer::broadcast(&[&condition.shape, &values.shape]).map_err(|why| c.err(&why))?;
            Ok(Meta::tensor(values.dtype, shape))
        }),
        rule: Some(|c| {
            let (values, _) = promote::operands(c, &["self", "other"], Kind::NoOpmath);
            let pred = c.tensor("condition").to(DType::Bool);
            vec![c.b.call("prims.where", prims::broadcast(c, [vec![pred.into()], values].concat()))]
        }),
        example: "bool[2, 3], f32[2, 3], f32[3]",
    };
    /// [`WHERE`] with a number where the condition does not hold.
    WHERE_OTHER = "aten.where.ScalarOther", SUGAR {
        schema: "(Tensor condition, Tensor self, Scalar other) -> Tensor",
        rule: Some(choose_number),
        example: "bool[2, 3], f32[2, 3], 0.5",
    };
    /// [`WHERE`] with a number where the condition holds.
    WHERE_SELF = "aten.where.ScalarSelf", SUGAR {
        schema: "(Tensor condition, Scalar self, Tensor other) -> Tensor",
        rule: Some(choose_number),
        example: "bool[2, 3], 0.5, f32[2, 3]",
    };
    /// One of two numbers.
    WHERE_SCALAR = "aten.where.Scalar", SUGAR {
        schema: "(Tensor condition, Scalar self, Scalar other) -> Tensor",
        rule: Some(choose_number),
        example: "bool[2, 3], 1, 2",
    };
    /// A number where the mask holds.
    MASKED_FILL = "aten.masked_fill.Scalar", SUGAR {
        schema: "(Tensor self, Tensor mask, Scalar value) -> Tensor",
        infer: Some(masked),
        rule: Some(|c| {
            let x = c.tensor("self");
            vec![choose(c.tensor("mask"), scalar(c.b, c.arg("value").clone(), x.dtype()), x).op("aten.contiguous", vec![])]
        }),
        example: "f32[2, 3], bool[2, 3], 0.5",
    };
    /// A tensor's one element where the mask holds.
    MASKED_FILL_TENSOR = "aten.masked_fill.Tensor", SUGAR {
        schema: "(Tensor self, Tensor mask, Tensor value) -> Tensor",
        infer: Some(masked),
        rule: Some(|c| {
            let x = c.tensor("self");
            vec![choose(c.tensor("mask"), c.tensor("value").to(x.dtype()), x).op("aten.contiguous", vec![])]
        }),
        example: "f32[2, 3], bool[2, 3], f32[]",
    };
    /// Whether `|self - other| <= atol + rtol·|other|`, or both are the same infinity.
    ISCLOSE = "aten.isclose.default", SUGAR {
        schema: "(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False) -> Tensor",
        infer: Some(infer::compare),
        rule: Some(isclose),
        example: "f32[2, 3], f32[2, 3] | f32[2], f32[2], 0.5, 0.5, true | i64[2], i64[2]",
    };
    /// 0 below zero and for NaN, 1 above, and `values` at zero.
    HEAVISIDE = "aten.heaviside.default", SUGAR {
        schema: "(Tensor self, Tensor values) -> Tensor",
        rule: Some(|c| {
            let (x, types) = promote::tensors(c, &["self", "values"], Kind::Default);
            if c.tensor("self").dtype() != c.tensor("values").dtype() {
                c.fail("self and values differ in type");
            }
            let [x, values] = super::expr::broadcast(c, [x[0], x[1]]);
            let zero = compare(x, "eq", 0i64);
            let below = compare(x, "lt", 0i64).op("aten.logical_or", vec![isnan(x).into()]);
            vec![choose(zero, values, choose(below, 0i64, 1i64)).to(types.result)]
        }),
        example: "f32[2, 3], f32[3]",
    };
    /// `|self|` with the sign of `other`.
    COPYSIGN = "aten.copysign.Tensor", CORE {
        infer: Some(infer::binary_float),
        rule: Some(|c| {
            let (x, types) = promote::tensors(c, &["self", "other"], Kind::IntToFloat);
            vec![copysign(x[0], x[1]).to(types.result)]
        }),
        example: "f32[2, 3], f32[3]",
    };
    /// [`COPYSIGN`] with the sign of a number.
    COPYSIGN_SCALAR = "aten.copysign.Scalar", CORE {
        schema: SCALAR.schema,
        infer: Some(infer::binary_float),
        rule: Some(|c| {
            let (args, types) = promote::operands(c, &["self", "other"], Kind::IntToFloat);
            let x = c.tensor("self").to(types.compute);
            let sign = args.into_iter().nth(1).unwrap_or(Arg::None);
            vec![copysign(x, scalar(c.b, sign, types.compute)).to(types.result)]
        }),
        example: "f32[2, 3], -0.5",
    };
}

fn copysign<'b>(x: Value<'b>, sign: Value<'b>) -> Value<'b> {
    choose(sign.op("aten.signbit", vec![]), neg(x.abs()), x.abs())
}

/// [`WHERE`] with a number as tensor of the type to which torch promotes both choices.
fn choose_number<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let dtype = infer::pointwise(c, &["self", "other"]).map(|m| m.dtype).unwrap_or_else(|e| {
        c.b.fail(e);
        DType::F32
    });
    let [a, b] = ["self", "other"].map(|n| match c.arg(n) {
        Arg::Node(id) if is_tensor(c.b, c.arg(n)) => c.b.value(*id).to(dtype),
        number => scalar(c.b, number.clone(), dtype),
    });
    vec![choose(c.tensor("condition"), a, b)]
}

fn isclose<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, y) = (c.tensor("self"), c.tensor("other"));
    if x.dtype() != y.dtype() {
        c.fail(&format!("other of type {}, expected {}", y.dtype(), x.dtype()));
    }
    let (rtol, atol) = (c.float("rtol"), c.float("atol"));
    let mut close = compare(x, "eq", y);
    if c.bool("equal_nan") && x.dtype().is_float() {
        let both = isnan(x).op("aten.bitwise_and.Tensor", vec![isnan(y).into()]);
        close = close.op("aten.bitwise_or.Tensor", vec![both.into()]);
    }
    if rtol == 0.0 && atol == 0.0 {
        return vec![close];
    }
    let x = x.to(infer::to_float(x.dtype()));
    let allowed = y.op("aten.mul.Scalar", vec![rtol.into()]).abs().op("aten.add.Scalar", vec![atol.into()]);
    let actual = (x - y).abs();
    let near = compare(actual, "le", allowed);
    let near = actual.op("aten.isfinite", vec![]).op("aten.bitwise_and.Tensor", vec![near.into()]);
    vec![close.op("aten.bitwise_or.Tensor", vec![near.into()])]
}

fn masked(c: &Call<'_>) -> Result<Meta> {
    let (x, mask) = (c.meta("self")?, c.meta("mask")?);
    let shape = infer::broadcast(&[&x.shape, &mask.shape]).map_err(|why| c.err(&why))?;
    Ok(Meta::tensor(x.dtype, shape))
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[COMPARISONS, CHOICES];
