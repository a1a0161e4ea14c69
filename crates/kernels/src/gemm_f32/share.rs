//! The places where tasks of a product share memory.
#![allow(unsafe_code, reason = "parts of shared buffers, disjoint by the plan of `Driver`")]

use crate::buffer::{align_scratch, apart};
use crate::pointwise::{Program, Tile, TileInput, TileOutput};
use crate::{Isa, KernelError, SharedMut};

/// A scratch of which each task has a part.
pub(crate) struct TaskScratch<'a> {
    all: SharedMut<'a, f32>,
    each: usize,
    /// Elements from part to part.
    apart: usize,
}

impl<'a> TaskScratch<'a> {
    /// Parts of `each` elements, in whole cache lines, for as many tasks as there are threads at most.
    ///
    /// # Errors
    /// Too little scratch.
    pub(crate) fn new(
        what: &'static str,
        scratch: &'a mut [u8],
        each: usize,
        threads: usize,
    ) -> Result<TaskScratch<'a>, KernelError> {
        if each == 0 {
            return Ok(TaskScratch { all: SharedMut::new(&mut []), each, apart: 0 });
        }
        let (scratch, bytes) = (align_scratch(scratch), each * size_of::<f32>());
        KernelError::at_least(what, bytes * threads, scratch.len())?;
        let apart = apart(scratch.len(), threads, bytes);
        let all = SharedMut::new(bytemuck::cast_slice_mut(&mut scratch[..apart * threads]));
        Ok(TaskScratch { all, each, apart: apart / size_of::<f32>() })
    }

    /// A task's part; each task must have another one.
    pub(crate) fn of(&self, task: usize) -> &'a mut [f32] {
        let start = task * self.apart;
        // SAFETY: parts are disjoint, and kernels ask for that of their task.
        unsafe { self.all.slice(start..start + self.each) }
    }
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
