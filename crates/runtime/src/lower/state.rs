//! What lowering knows of a node's value.

use super::computed::Computed;
use crate::calls::{Convolution, Quant};
use crate::memory::Value;
use cleave_ir::NodeId;

/// A computation that waits for someone to need it.
#[derive(Clone, Debug)]
pub(super) enum Deferred {
    /// A pointwise op on the node's arguments.
    Pointwise,
    /// A convolution or linear layer of floats.
    Convolution(Box<Convolution>),
    /// One of levels.
    Quantized(Box<Convolution>),
    /// Zeros put around the rows and columns of `x`, for convolutions only: top, left, bottom, right.
    Pad(NodeId, [usize; 4]),
    /// A mean of dequantized levels that a quantize follows.
    Pool,
}

/// What is known of a node's value.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// Nothing yet.
    Unset,
    /// It lies in memory.
    Stored(Value),
    /// It is what these stored levels mean.
    Dequant(Value, Quant),
    /// It is what these stored levels mean, by a scale and zero point that are computed.
    Computed(Box<Computed>),
    /// It is known beforehand: see [`crate::calls::Calls::tensor`].
    Constant,
    /// It is computed when needed.
    Deferred(Deferred),
    /// Several values.
    Tuple(Vec<State>),
}

impl State {
    /// A value in memory: levels with their meaning, or as it stands.
    pub(super) fn of(value: Value, quant: Option<Quant>) -> State {
        match quant {
            Some(q) => State::Dequant(value, q),
            None => State::Stored(value),
        }
    }

    /// Where the value, or the levels that mean it, lie; none if that is no place in memory.
    pub(super) fn place(&self) -> Option<&Value> {
        match self {
            State::Stored(v) | State::Dequant(v, _) => Some(v),
            State::Computed(c) => Some(&c.levels),
            _ => None,
        }
    }

    /// The same of another window on what lies in memory.
    pub(super) fn moved(&self, to: Value) -> State {
        match self {
            State::Dequant(_, q) => State::Dequant(to, *q),
            State::Computed(c) => State::Computed(Box::new(Computed { levels: to, ..(**c).clone() })),
            _ => State::Stored(to),
        }
    }
}
