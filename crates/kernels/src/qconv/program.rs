//! A pointwise program as the epilogue: the accumulators' float values go to a small buffer, tile by tile, and the
//! program takes them from there while they are in cache.
#![allow(unsafe_code, reason = "tasks run a program over disjoint tiles of its outputs")]

use super::dense::Io;
use crate::pointwise::{Program, Tile, TileInput, TileOutput};
use crate::{Isa, SharedMut};
use std::ops::Range;

/// A program and its operands, checked, with one buffer of floats for each task.
pub(super) struct ProgramRun<'a> {
    pub isa: Isa,
    pub program: &'a Program,
    pub inputs: &'a [TileInput<'a>],
    pub outputs: &'a [TileOutput<'a>],
    pub x: &'a [u8],
    pub buffers: SharedMut<'a, f32>,
    /// Floats of one task's buffer.
    pub size: usize,
}

impl ProgramRun<'_> {
    /// Computes pixels `rows` and channels `columns` into the task's buffer with `compute`, and runs the program.
    ///
    /// # Safety
    /// The task has its buffer, and these elements of the outputs, for itself.
    pub unsafe fn tile(&self, task: usize, rows: Range<usize>, columns: Range<usize>, compute: impl FnOnce(&Io<'_>)) {
        let pitch = columns.len();
        // SAFETY: by the caller's promise.
        let buffer = unsafe { self.buffers.slice(task * self.size..task * self.size + rows.len() * pitch) };
        // The first pixel's first channel of an output that has only this tile in memory.
        let y = buffer.as_mut_ptr().wrapping_sub(rows.start * pitch + columns.start).cast();
        compute(&Io { x: self.x, y, y_stride: pitch, size: 4, r: std::ptr::null(), r_stride: 0 });
        let (row0, col0) = (rows.start, columns.start);
        let tile = Tile { values: buffer, pitch, rows: rows.len(), cols: pitch, row0, col0 };
        // SAFETY: by the caller's promise.
        unsafe { self.program.run_tile(self.isa, &tile, self.inputs, self.outputs) };
    }
}
