//! Kernels bound to their operands: what a compiled model runs, one file a family.

mod conv;
mod copy;
mod fallback;
mod gather;
mod levels;
mod pad;
mod pointwise;
mod pool;
mod qconv;
mod rows;

pub(crate) use conv::{ConvKernel, ConvTransposeKernel, Side};
pub(crate) use copy::CopyKernel;
pub(crate) use fallback::{Operand, ReferenceKernel, shift};
pub(crate) use gather::GatherKernel;
pub(crate) use levels::{ChooseKernel, DequantizeKernel, QuantizeKernel, RunLevels};
pub(crate) use pad::PadKernel;
pub(crate) use pointwise::{PointwiseKernel, ThenKernel};
pub(crate) use pool::{AvgPoolKernel, MaxPoolKernel};
pub(crate) use qconv::{QConvKernel, QConvTransposeKernel, QSides, Then};
pub(crate) use rows::Dense;

use crate::error::Result;
use cleave_kernels::ThreadPool;

/// The operands of one run.
pub(crate) struct Io<'a, 'b> {
    /// Threads.
    pub(crate) pool: &'a ThreadPool,
    /// What is read, in the step's order.
    pub(crate) reads: &'b [&'a [u8]],
    /// What is written, in the step's order.
    pub(crate) writes: &'b mut [&'a mut [u8]],
    /// At least [`Kernel::scratch_bytes`].
    pub(crate) scratch: &'b mut [u8],
}

/// A kernel bound to shapes and constants.
pub(crate) trait Kernel: Send + Sync {
    /// The code that runs.
    fn name(&self) -> String;

    /// Bytes of scratch for so many threads.
    fn scratch_bytes(&self, _threads: usize) -> usize {
        0
    }

    /// Which of its reads it would add to in place, if what it writes were there: a residual that lies as the result does.
    fn adds_to(&self) -> Option<usize> {
        None
    }

    /// Has it add in place: it has a read less then.
    fn add_in_place(&mut self) {}

    /// Runs it.
    ///
    /// # Errors
    /// Operands that it does not admit.
    fn run(&self, io: &mut Io<'_, '_>) -> Result<()>;
}

/// Bytes as floats. Arena, constants and inputs are aligned for them.
pub(crate) fn floats(bytes: &[u8]) -> &[f32] {
    bytemuck::cast_slice(bytes)
}

/// Bytes as floats to be written.
pub(crate) fn floats_mut(bytes: &mut [u8]) -> &mut [f32] {
    bytemuck::cast_slice_mut(bytes)
}
