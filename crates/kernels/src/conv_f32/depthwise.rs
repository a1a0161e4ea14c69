//! Depthwise convolution: channels in lanes, and the pixels of a row that have all taps at once.

use super::geometry::{Geometry, Placement};
use super::lanes;
use crate::buffer::ALIGN;
use crate::gemm_f32::{Finish, TaskScratch, epilogue};
use crate::pointwise::Tile;
use crate::{AlignedVec, Isa, KernelError, SharedMut, ThreadPool};

/// Most taps of this kernel; larger windows go the general way.
pub(super) const MAX_TAPS: usize = 128;
/// Elements of a tile that an epilogue runs on.
const TILE: usize = 16 * 1024;

/// Weights `[taps + 1][channels]`: the biases, then one row a tap.
#[derive(Clone)]
pub(super) struct Weights {
    pub(super) data: AlignedVec<f32>,
    pub(super) channels: usize,
}

impl Weights {
    /// From `[channels, taps]`.
    pub(super) fn new(channels: usize, taps: usize, weights: &[f32], bias: Option<&[f32]>) -> Weights {
        let mut data = AlignedVec::zeroed((taps + 1) * channels);
        for c in 0..channels {
            data[c] = bias.map_or(0.0, |b| b[c]);
            for t in 0..taps {
                data[(t + 1) * channels + c] = weights[c * taps + t];
            }
        }
        Weights { data, channels }
    }
}

/// A depthwise convolution, ready to run.
pub(super) struct Depthwise<'a> {
    pub(super) isa: Isa,
    pub(super) geometry: Geometry,
    pub(super) place: Placement,
    pub(super) weights: &'a Weights,
    pub(super) x: &'a [f32],
    pub(super) finish: Finish<'a>,
}

/// Pixels of an epilogue's tile.
fn tile_pixels(channels: usize) -> usize {
    (TILE / channels).max(1)
}

/// Bytes of scratch.
pub(super) fn scratch_bytes(channels: usize, program: bool, threads: usize) -> usize {
    if program { thread_len(channels) * 4 * threads.max(1) + ALIGN } else { 0 }
}

fn thread_len(channels: usize) -> usize {
    (tile_pixels(channels) * channels).next_multiple_of(ALIGN / 4)
}

impl Depthwise<'_> {
    pub(super) fn run(&self, pool: &ThreadPool, scratch: &mut [u8]) -> Result<(), KernelError> {
        let (g, channels) = (&self.geometry, self.weights.channels);
        let rows = g.n * g.oh;
        let work = g.pixels() * channels * g.kh * g.kw;
        let tasks = if work < 50_000 { 1 } else { pool.threads().min(rows) };
        let program = matches!(self.finish, Finish::Program { .. });
        let each = if program { thread_len(channels) } else { 0 };
        let scratch = TaskScratch::new("scratch of a depthwise convolution, in bytes", scratch, each, pool.threads())?;
        pool.run(tasks, &|task| {
            let own = scratch.of(task);
            for row in task * rows / tasks..(task + 1) * rows / tasks {
                self.run_row(row / g.oh, row % g.oh, own);
            }
        });
        Ok(())
    }

    fn run_row(&self, n: usize, oy: usize, scratch: &mut [f32]) {
        let (g, channels) = (&self.geometry, self.weights.channels);
        match self.finish {
            Finish::Store { clamp, out, .. } => {
                let base = self.place.of((n, oy, 0));
                self.run_pixels(n, oy, 0..g.ow, clamp, out, base, self.place.pixel);
            }
            Finish::Program { program, inputs, outputs } => {
                let none = (f32::NEG_INFINITY, f32::INFINITY);
                let step = tile_pixels(channels);
                for ox in (0..g.ow).step_by(step) {
                    let rows = step.min(g.ow - ox);
                    self.run_pixels(n, oy, ox..ox + rows, none, SharedMut::new(scratch), 0, channels);
                    let row0 = (n * g.oh + oy) * g.ow + ox;
                    let tile = Tile { values: scratch, pitch: channels, rows, cols: channels, row0, col0: 0 };
                    epilogue(self.isa, program, &tile, inputs, outputs);
                }
            }
        }
    }

    /// Pixels of one output row, written from `base` at `step`.
    #[allow(clippy::too_many_arguments, reason = "a row's position and its destination")]
    fn run_pixels(
        &self,
        n: usize,
        oy: usize,
        range: std::ops::Range<usize>,
        clamp: (f32, f32),
        out: SharedMut<'_, f32>,
        base: usize,
        step: usize,
    ) {
        let g = &self.geometry;
        let rows = g.rows_of(oy);
        let mut ox = range.start;
        while ox < range.end {
            let cols = g.cols_of(ox);
            let whole = g.whole_from(ox, range.end);
            let pixels = whole.max(1);
            let (mut taps, mut count) = ([(0, 0); MAX_TAPS], 0);
            for ky in rows.from..rows.to {
                for kx in cols.from..cols.to {
                    taps[count] = (g.at(n, rows, ky, cols, kx), (ky * g.kw + kx + 1) * self.weights.channels);
                    count += 1;
                }
            }
            lanes::run(
                self.isa,
                &lanes::Task {
                    x: self.x,
                    weights: &self.weights.data,
                    channels: self.weights.channels,
                    taps: &taps[..count],
                    // A pixel's inputs are those of its neighbour, but for one.
                    slides: if whole > 0 && (g.stride[1], g.dilation[1]) == (1, 1) { g.kw } else { 0 },
                    pixels,
                    x_step: g.stride[1] * g.channels,
                    clamp,
                    out,
                    at: base + (ox - range.start) * step,
                    out_step: step,
                },
            );
            ox += pixels;
        }
    }
}
