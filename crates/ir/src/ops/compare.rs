//! Comparisons, logic, and choice between elements.

use super::promote::{self, Kind};
use super::view::contiguous;
use super::{infer, prims};
use crate::builder::{Call, Value};
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const BINARY: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(infer::compare),
    rule: Some(|c| prims::lower(c, Kind::Bool)),
    ..OpDef::BASE
};
const SCALAR: OpDef = OpDef { schema: "(Tensor self, Scalar other) -> Tensor", ..BINARY };
const BITS: OpDef =
    OpDef { commutative: true, infer: Some(infer::binary), rule: Some(|c| prims::lower(c, Kind::Default)), ..BINARY };

/// Both operands as truth values, combined by the prim.
fn logical<'b>(c: &Call<'b>, prim: &str) -> Vec<Value<'b>> {
    let args = ["self", "other"].map(|n| c.tensor(n).op("aten.ne.Scalar", vec![0i64.into()]).into());
    vec![c.b.call(prim, prims::broadcast(c, args.to_vec()))]
}

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $base:ident $(, $rule:expr)?;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef { name: $name, $(rule: Some($rule),)? ..$base };)*
        /// The family.
        pub static OPS: &[&OpDef] = &[$(&$id,)* &WHERE, &WHERE_SCALAR, &MASKED_FILL, &MASKED_FILL_TENSOR];
    };
}

family! {
    /// Whether elements are equal.
    EQ = "aten.eq.Tensor", BINARY;
    /// Whether elements are equal in comparison with a number.
    EQ_SCALAR = "aten.eq.Scalar", SCALAR;
    /// Whether elements are not equal.
    NE = "aten.ne.Tensor", BINARY;
    /// Whether elements are not equal in comparison with a number.
    NE_SCALAR = "aten.ne.Scalar", SCALAR;
    /// Whether elements are less.
    LT = "aten.lt.Tensor", BINARY;
    /// Whether elements are less in comparison with a number.
    LT_SCALAR = "aten.lt.Scalar", SCALAR;
    /// Whether elements are less or equal.
    LE = "aten.le.Tensor", BINARY;
    /// Whether elements are less or equal in comparison with a number.
    LE_SCALAR = "aten.le.Scalar", SCALAR;
    /// Whether elements are greater.
    GT = "aten.gt.Tensor", BINARY;
    /// Whether elements are greater in comparison with a number.
    GT_SCALAR = "aten.gt.Scalar", SCALAR;
    /// Whether elements are greater or equal.
    GE = "aten.ge.Tensor", BINARY;
    /// Whether elements are greater or equal in comparison with a number.
    GE_SCALAR = "aten.ge.Scalar", SCALAR;
    /// Whether both are true.
    LOGICAL_AND = "aten.logical_and.default", BINARY, |c| logical(c, "prims.bitwise_and");
    /// Whether one is true.
    LOGICAL_OR = "aten.logical_or.default", BINARY, |c| logical(c, "prims.bitwise_or");
    /// Whether exactly one is true.
    LOGICAL_XOR = "aten.logical_xor.default", BINARY, |c| logical(c, "prims.bitwise_xor");
    /// Bits that both have.
    BITWISE_AND = "aten.bitwise_and.Tensor", BITS;
    /// Bits that one has.
    BITWISE_OR = "aten.bitwise_or.Tensor", BITS;
    /// Bits that exactly one has.
    BITWISE_XOR = "aten.bitwise_xor.Tensor", BITS;
}

/// `self` where the condition holds, else `other`.
pub static WHERE: OpDef = OpDef {
    name: "aten.where.self",
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
    ..BINARY
};

/// [`WHERE`] with a number where the condition does not hold.
pub static WHERE_SCALAR: OpDef = OpDef {
    name: "aten.where.ScalarOther",
    schema: "(Tensor condition, Tensor self, Scalar other) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: None,
    rule: Some(|c| {
        let (condition, x) = (c.tensor("condition"), c.tensor("self"));
        let other = c.b.call("aten.scalar_tensor", vec![c.arg("other").clone(), x.dtype().into()]);
        vec![condition.op("aten.where.self", vec![x.into(), other.into()])]
    }),
    ..BINARY
};

/// A number where the mask holds.
pub static MASKED_FILL: OpDef = OpDef {
    name: "aten.masked_fill.Scalar",
    schema: "(Tensor self, Tensor mask, Scalar value) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(masked),
    rule: Some(|c| {
        let x = c.tensor("self");
        let value = c.b.call("aten.scalar_tensor", vec![c.arg("value").clone(), x.dtype().into()]);
        vec![contiguous(c.tensor("mask").op("aten.where.self", vec![value.into(), x.into()]))]
    }),
    example: "f32[2, 3], bool[3], 0.5",
    ..BINARY
};

/// A tensor's one element where the mask holds.
pub static MASKED_FILL_TENSOR: OpDef = OpDef {
    name: "aten.masked_fill.Tensor",
    schema: "(Tensor self, Tensor mask, Tensor value) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(masked),
    rule: Some(|c| {
        let x = c.tensor("self");
        let value = c.tensor("value").to(x.dtype());
        vec![contiguous(c.tensor("mask").op("aten.where.self", vec![value.into(), x.into()]))]
    }),
    example: "f32[2, 3], bool[2, 1], f32[]",
    ..BINARY
};

fn masked(c: &crate::Call<'_>) -> crate::Result<Meta> {
    let (x, mask) = (c.meta("self")?, c.meta("mask")?);
    let shape = infer::broadcast(&[&x.shape, &mask.shape]).map_err(|why| c.err(&why))?;
    Ok(Meta::tensor(x.dtype, shape))
}
