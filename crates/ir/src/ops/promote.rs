//! torch's type promotion made explicit, for rules: operands are converted to the type in which torch computes,
//! and the result to the type that it gives.

use super::infer;
use crate::builder::{Call, Value};
use crate::graph::Arg;
use cleave_numerics::DType;

/// How torch finds the type of an elementwise result (`ELEMENTWISE_TYPE_PROMOTION_KIND`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The promoted type; halves are computed in f32.
    Default,
    /// The promoted type; halves are computed as they are.
    NoOpmath,
    /// Integers and bools become floats; halves are computed in f32.
    IntToFloat,
    /// Bools become integers.
    BoolToLong,
    /// The result is bool, computed in the promoted type.
    Bool,
}

/// Types of an elementwise call: in which it is computed, and of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types {
    /// In which torch computes.
    pub compute: DType,
    /// What it gives.
    pub result: DType,
}

impl Kind {
    /// Types of a call whose operands promote to this one.
    pub fn of(self, promoted: DType) -> Types {
        let wide = |d: DType| if matches!(d, DType::F16 | DType::BF16) { DType::F32 } else { d };
        match self {
            Kind::Default => Types { compute: wide(promoted), result: promoted },
            Kind::NoOpmath => Types { compute: promoted, result: promoted },
            Kind::IntToFloat => {
                let d = infer::to_float(promoted);
                Types { compute: wide(d), result: d }
            }
            Kind::BoolToLong => {
                let d = if promoted == DType::Bool { DType::I64 } else { promoted };
                Types { compute: d, result: d }
            }
            Kind::Bool => Types { compute: promoted, result: DType::Bool },
        }
    }
}

/// The named operands in the type in which torch computes, numbers as they are, and the types.
pub fn operands(c: &Call<'_>, names: &[&str], kind: Kind) -> (Vec<Arg>, Types) {
    let promoted = infer::pointwise(c, names).map(|m| m.dtype).unwrap_or_else(|e| {
        c.b.fail(e);
        DType::F32
    });
    let types = kind.of(promoted);
    let args = names.iter().map(|n| match c.arg(n) {
        Arg::Node(id) => c.b.value(*id).to(types.compute).into(),
        number => number.clone(),
    });
    (args.collect(), types)
}

/// The named operands as tensors in the type in which torch computes, and the types.
///
/// A number among them is recorded as an error of the call.
pub fn tensors<'b>(c: &Call<'b>, names: &[&str], kind: Kind) -> (Vec<Value<'b>>, Types) {
    let (args, types) = operands(c, names, kind);
    let tensors = args.iter().zip(names).map(|(a, n)| match a {
        Arg::Node(id) => c.b.value(*id),
        _ => c.tensor(n),
    });
    (tensors.collect(), types)
}

/// The tensors in the type in which torch computes with them, whatever their shapes, and the types.
pub fn together<'b>(tensors: &[Value<'b>], kind: Kind) -> (Vec<Value<'b>>, Types) {
    let promoted = tensors.iter().map(|v| v.dtype()).reduce(infer::promote).unwrap_or(DType::F32);
    let types = kind.of(promoted);
    (tensors.iter().map(|v| v.to(types.compute)).collect(), types)
}
