//! Where the values of a compiled model lie: strided windows on buffers, and the arena that holds the buffers.

pub(crate) mod arena;
pub(crate) mod carve;
mod value;

pub(crate) use value::{BufferId, Storage, Value, channels_last, row_major, strides_in};

use cleave_ir::Tensor;
use cleave_kernels::AlignedVec;
use std::ops::Range;

/// What a buffer is.
pub(crate) enum Home {
    /// Bytes of the arena, at an offset that the plan assigns.
    Arena,
    /// The elements of an input, in row-major order.
    Input(usize),
    /// A constant of the compiled model.
    Constant(AlignedVec<u8>),
}

/// A buffer that steps read and write.
pub(crate) struct Buffer {
    /// What it is.
    pub(crate) home: Home,
    /// Its size.
    pub(crate) bytes: usize,
}

/// A range of bytes of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// The buffer.
    pub(crate) buffer: BufferId,
    /// Bytes of it.
    pub(crate) range: Range<usize>,
}

impl Span {
    /// Whether the other one lies in this one.
    pub(crate) fn covers(&self, other: &Span) -> bool {
        let (own, part) = (&self.range, &other.range);
        self.buffer == other.buffer && own.start <= part.start && part.end <= own.end
    }
}

/// A constant as an aligned buffer.
pub(crate) fn upload(t: &Tensor) -> AlignedVec<u8> {
    AlignedVec::from_slice(&t.to_bytes())
}
