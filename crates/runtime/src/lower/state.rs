//! What lowering knows of a node's value.

use super::computed::Computed;
use super::conv::Convolution;
use crate::memory::{Storage, Value};
use cleave_ir::{Arg, Node, NodeId, Tensor};
use cleave_kernels::pointwise::{Quantize, Rounding};
use cleave_numerics::DType;

/// Scale, zero point and range of a quantize or dequantize, in terms of the bytes stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quant {
    /// The arithmetic; an i8 tensor's zero point and range are 128 up.
    pub(crate) q: Quantize,
    /// How its levels are stored.
    pub(crate) storage: Storage,
}

impl Quant {
    /// From the arguments of a per-tensor call; none if they are not numbers of an 8-bit type.
    pub(crate) fn of(node: &Node, divide: bool) -> Option<Quant> {
        let int = |name: &str| match node.arg(name) {
            Some(Arg::Int(i)) => i32::try_from(*i).ok(),
            _ => None,
        };
        let Some(Arg::Float(scale)) = node.arg("scale") else { return None };
        let (storage, up) = match node.arg("dtype") {
            Some(Arg::DType(DType::U8)) => (Storage::U8, 0),
            Some(Arg::DType(DType::I8)) => (Storage::S8, 128),
            _ => return None,
        };
        let q = Quantize {
            scale: *scale as f32,
            zero_point: int("zero_point")? + up,
            qmin: int("quant_min")? + up,
            qmax: int("quant_max")? + up,
            rounding: if divide { Rounding::Div } else { Rounding::Recip },
        };
        q.check().is_ok().then_some(Quant { q, storage })
    }

    /// Whether levels of one are levels of the other.
    pub(crate) fn same_levels(&self, other: &Quant) -> bool {
        self.storage == other.storage && self.q.scale == other.q.scale && self.q.zero_point == other.q.zero_point
    }

    /// The arithmetic of a value that is already in units of this scale.
    pub(crate) fn unit(&self) -> Quantize {
        Quantize { scale: 1.0, ..self.q }
    }
}

/// A computation that waits for someone to need it.
#[derive(Clone, Debug)]
pub(crate) enum Deferred {
    /// A pointwise op on the node's arguments.
    Pointwise,
    /// A convolution or linear layer.
    Convolution(Box<Convolution>),
    /// Zeros put around the rows and columns of `x`, for convolutions only: top, left, bottom, right.
    Pad(NodeId, [usize; 4]),
    /// A mean of dequantized levels that a quantize follows.
    Pool,
}

/// What is known of a node's value.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Nothing yet.
    Unset,
    /// It lies in memory.
    Stored(Value),
    /// It is what these stored levels mean.
    Dequant(Value, Quant),
    /// It is what these stored levels mean, by a scale and zero point that are computed.
    Computed(Box<Computed>),
    /// It is a constant.
    Constant(Tensor),
    /// It is what constant levels or halves mean: the node is a dequantize, or a cast to f32, of a constant.
    DequantConstant,
    /// It is computed when needed.
    Deferred(Deferred),
    /// Several values.
    Tuple(Vec<State>),
}
