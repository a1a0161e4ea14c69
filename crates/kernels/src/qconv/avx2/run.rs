//! The driver of staged tiles: pixels are staged for all blocks of channels.
#![allow(unsafe_code, reason = "tasks have a buffer each, and tiles write disjoint pixels")]

use super::staged::{OctetsOf, stage, tile};
use crate::qconv::dense::{Begun, Dense, Io};
use crate::qconv::octets::{ROWS, STEP};
use crate::qconv::pack::{Block, LANES, Layout};
use crate::qconv::tile::{Table, Tile};
use std::ops::Range;

/// Bytes that a task stages at a time, if a tile has no more: they stay in L2 beside weights.
const STAGED_BYTES: usize = 192 << 10;

impl Dense {
    /// Bytes of a staged tile.
    fn tile_bytes(&self) -> usize {
        self.steps() * STEP * if self.packed.octets.is_some() { 1 } else { 2 }
    }

    /// Tiles that are staged together.
    fn tiles(&self) -> usize {
        (STAGED_BYTES / self.tile_bytes()).clamp(1, self.geometry.pixels().div_ceil(ROWS))
    }

    /// Bytes that one task stages.
    pub(in crate::qconv) fn staged_bytes(&self) -> usize {
        if self.layout == Layout::Columns { self.tiles() * self.tile_bytes() } else { 0 }
    }

    /// Computes pixels of blocks.
    pub(in crate::qconv) fn staged(
        &self,
        begun: &Begun<'_>,
        io: &Io<'_>,
        task: usize,
        rows: Range<usize>,
        blocks: &[Block],
    ) {
        let (size, bytes) = (self.tile_bytes(), self.staged_bytes());
        // SAFETY: a task has its buffer for itself.
        let staged = unsafe { begun.staged.slice(task * bytes..(task + 1) * bytes) };
        for first in rows.clone().step_by(self.tiles() * ROWS) {
            let rows = first..rows.end.min(first + self.tiles() * ROWS);
            for blocks in blocks.chunk_by(|a, b| a.input == b.input) {
                let tiles = || rows.clone().step_by(ROWS).zip((0..).step_by(size));
                for (m, at) in tiles() {
                    self.stage(begun.x, m..rows.end.min(m + ROWS), blocks[0].input, &mut staged[at..at + size]);
                }
                for b in blocks {
                    for (m, at) in tiles() {
                        self.tile_of(&staged[at..], begun, io, m..rows.end.min(m + ROWS), b);
                    }
                }
            }
        }
    }

    /// Stages at most 16 pixels, of a group whose input begins at this channel.
    fn stage(&self, x: &[u8], rows: Range<usize>, channel: usize, to: &mut [u8]) {
        let mut offsets = [0; ROWS];
        let (there, rest) = offsets.split_at_mut(rows.len());
        self.walk.offsets(rows.start, there);
        rest.fill(there[0]);
        // SAFETY: the walk stays inside `x`, whose length was checked; the token in `self.isa` proves the
        // instruction set, and the buffer has a tile's bytes.
        unsafe {
            let rows = offsets.map(|o| x.as_ptr().add(o + channel));
            let (offsets, steps) = (&self.segments.offsets, self.segments.steps());
            match self.packed.octets {
                Some(_) => stage::<false>(&rows, offsets, steps, to.as_mut_ptr()),
                None => stage::<true>(&rows, offsets, steps, to.as_mut_ptr()),
            }
        }
    }

    /// Computes a staged tile of a block.
    fn tile_of(&self, staged: &[u8], begun: &Begun<'_>, io: &Io<'_>, rows: Range<usize>, b: &Block) {
        let dense = self.placement.is_dense();
        let pixel = if dense { rows.start } else { self.placement.at(rows.start) };
        let table = (!dense).then(|| {
            let mut table = Table::default();
            rows.clone().zip(&mut table.pixel).for_each(|(m, p)| *p = self.placement.at(m) - pixel);
            table
        });
        let (y, r) = io.at(pixel, b.channel);
        let t = Tile {
            x: staged.as_ptr(),
            x_step: 0,
            y,
            y_step: io.y_stride * io.size,
            r,
            r_step: io.r_stride,
            table: table.as_ref(),
            tiles: 1,
            segments: &[],
            steps: self.steps(),
            weights: self.packed.weights.get(b.start..).map_or(std::ptr::null(), <[i8]>::as_ptr),
            ahead: 0,
            number: 0,
            columns: self.columns(begun, b),
            epilogue: &self.epilogue,
        };
        let octets = self.packed.octets.as_ref().map(|o| OctetsOf {
            list: o.list[b.column / 4 * (self.steps() / 2)..].as_ptr(),
            fixes: o.fixes.as_ptr(),
            starts: o.starts[b.column..=b.column + LANES].as_ptr(),
        });
        // SAFETY: the output's length was checked, everything else was made by `pack`; the token in `self.isa` proves
        // the instruction set.
        unsafe { tile(&t, octets, rows.len()) };
    }
}
