//! The places where tasks of a product share memory.
#![allow(unsafe_code, reason = "parts of shared buffers, disjoint by the plan of `Driver`")]

use crate::buffer::align_scratch;
use crate::pointwise::{Program, Tile, TileInput, TileOutput};
use crate::{Isa, KernelError, SharedMut};

/// The first `count` floats of a byte scratch, from a cache line's start.
///
/// # Errors
/// Too little of it.
pub(crate) fn floats<'a>(
    what: &'static str,
    scratch: &'a mut [u8],
    count: usize,
) -> Result<&'a mut [f32], KernelError> {
    if count == 0 {
        return Ok(&mut []);
    }
    let scratch = align_scratch(scratch);
    KernelError::at_least(what, count * size_of::<f32>(), scratch.len())?;
    Ok(bytemuck::cast_slice_mut(&mut scratch[..count * size_of::<f32>()]))
}

/// One task's scratch.
pub(crate) fn part<'a>(shared: &SharedMut<'a, f32>, range: std::ops::Range<usize>) -> &'a mut [f32] {
    // SAFETY: `Driver::run` gives each task a range of its own.
    unsafe { shared.slice(range) }
}

/// Runs an epilogue over one tile of the task's own.
pub(crate) fn run_epilogue(
    isa: Isa,
    program: &Program,
    tile: &Tile<'_>,
    inputs: &[TileInput<'_>],
    outputs: &[TileOutput<'_>],
) {
    // SAFETY: the tiles of a product are disjoint, and each is run by one task.
    unsafe { program.run_tile(isa, tile, inputs, outputs) };
}
