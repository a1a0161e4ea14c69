//! Outputs that several tasks write disjoint parts of.
#![allow(unsafe_code, reason = "parts of a shared output, disjoint by the plan of their one user")]

use crate::SharedMut;

/// An output tensor, shared by the tasks that fill it.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    /// Floats.
    F32(SharedMut<'a, f32>),
    /// Bytes.
    U8(SharedMut<'a, u8>),
}

impl<'a> Sink<'a> {
    /// Elements.
    pub fn len(&self) -> usize {
        match self {
            Sink::F32(s) => s.len(),
            Sink::U8(s) => s.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` floats from `start`; none of a byte tensor (types are checked when operands are bound).
    #[inline(always)]
    pub(super) fn f32s(&self, start: usize, len: usize) -> &'a mut [f32] {
        match self {
            // SAFETY: `Pointwise::run` gives each task chunks of its own, and `run_tile`'s caller promises the same.
            Sink::F32(s) => unsafe { s.slice(start..start + len) },
            Sink::U8(_) => &mut [],
        }
    }

    /// `len` bytes from `start`; none of a float tensor.
    #[inline(always)]
    pub(super) fn u8s(&self, start: usize, len: usize) -> &'a mut [u8] {
        match self {
            // SAFETY: as in `f32s`.
            Sink::U8(s) => unsafe { s.slice(start..start + len) },
            Sink::F32(_) => &mut [],
        }
    }
}
