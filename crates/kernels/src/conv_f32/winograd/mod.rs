//! 3×3 convolutions of stride 1 by Winograd's F(4×4, 3×3): 36 products for 16 results, where the sum over taps takes 144.
//!
//! The image is cut into tiles of 4×4 results, each of which sees a patch of 6×6 inputs. Patches and weights are
//! transformed (`transform.rs`), multiplied term by term, each term a matrix product over the channels, and the sums are
//! transformed back. Weights are transformed as they are used, from the panels of the direct product: it takes less
//! time than to load the terms, which are four times as large, and packed weights serve images of any size. For a few tiles
//! their terms never leave the registers (`few.rs`).
//!
//! Every sum is one of slices of at most 64 channels, in order, and a slice's a chain of fused multiply-adds from 0, so
//! that the bits are the same on every instruction set and thread count. They are not those of the direct sum, and an
//! infinity or a NaN reaches all of a tile. The transforms magnify errors, short chains make few: a result's is twice
//! that of the direct sum for 64 channels, and as large for 512.

mod few;
mod transform;

#[cfg(test)]
mod tests;

use super::geometry::{Geometry, Placement, span};
use crate::buffer::ALIGN;
use crate::gemm_f32::{Addend, Element, Finish, Kernel, Lines, Panels, Task, TaskScratch, epilogue, kernel};
use crate::pointwise::Tile;
use crate::{ConvShape, Isa, KernelError, Level, SharedMut, ThreadPool};
use few::{FEW, FewTask};
use std::ops::Range;
use transform::{InputTask, OutputTask, WeightsTask};

/// Results of a tile in each direction.
const SIDE: usize = 4;
/// Inputs of a tile in each direction.
const PATCH: usize = SIDE + 2;
/// Products of a tile.
const TERMS: usize = PATCH * PATCH;
/// Most channels of a slice of the depth: sums are chains as short, and the weights' terms stay in L2.
const DEPTH: usize = 64;
/// What a patch sees outside the image.
static OUTSIDE: [f32; DEPTH] = [0.0; DEPTH];
/// Most tiles for which a panel's weights are transformed at once.
const TILES: usize = 56;
/// Lanes of weights that are transformed at once.
const LANES: usize = 512;
/// As many zeros as the widest panel has columns: sums begin without the biases, which are added to results.
const NO_BIAS: [f32; 64] = [0.0; 64];

/// Fewest channels, of inputs and of outputs, for which the transforms pay.
const CHANNELS: usize = 16;

/// Whether a convolution is run in this way. For a register of channels, a pixel of the direct sum was measured to take
/// 4.5 cycles, a tile 23 and the weights' transform 94. Images are counted one by one, so that their number does not
/// decide about bits.
pub(super) fn pays(s: &ConvShape) -> bool {
    let fits = [s.kh, s.kw] == [3, 3] && s.stride == [1, 1] && s.dilation == [1, 1] && s.groups == 1;
    let (pixels, tiles) = (s.oh() * s.ow(), s.oh().div_ceil(SIDE) * s.ow().div_ceil(SIDE));
    fits && s.c_in.min(s.c_out) >= CHANNELS && pixels > 5 * tiles + 21
}

/// How the depth and the tiles are cut, and what a thread's scratch consists of.
struct Plan {
    /// Tiles in a row, and in a column.
    cols: usize,
    rows: usize,
    /// Tiles of all images.
    tiles: usize,
    /// Channels of a slice, but for the last one.
    depth: usize,
    slices: usize,
    /// Most tiles at once.
    most: usize,
    /// Elements from one term of the weights to the next: a cache line more than there are, so that the terms of a lane
    /// fall into different sets.
    plane: usize,
    /// Elements of the patches' terms, the weights', the sums and the results before a program.
    parts: [usize; 4],
}

impl Plan {
    fn new<E: Element>(kernel: &Kernel<E>, [n, oh, ow]: [usize; 3], c_in: usize, program: bool) -> Plan {
        let (rows, cols) = (oh.div_ceil(SIDE), ow.div_ceil(SIDE));
        let tiles = n * rows * cols;
        let slices = c_in.div_ceil(DEPTH);
        let most = tiles.min(TILES);
        let results = if program { most * SIDE * SIDE * kernel.nr } else { 0 };
        let plane = DEPTH * kernel.nr + ALIGN / 4;
        let parts = [slices * most * TERMS * DEPTH, TERMS * plane, most * TERMS * kernel.nr, results];
        Plan { cols, rows, tiles, depth: c_in.div_ceil(slices), slices, most, plane, parts }
    }

    /// Elements of one thread's scratch, in whole cache lines.
    fn thread_len(&self) -> usize {
        self.parts.iter().sum::<usize>().next_multiple_of(ALIGN / 4)
    }
}

/// Bytes of scratch.
pub(super) fn scratch_bytes(isa: Isa, s: &ConvShape, program: bool, threads: usize) -> usize {
    let plan = Plan::new(&kernel(isa), [s.n, s.oh(), s.ow()], s.c_in, program);
    plan.thread_len() * size_of::<f32>() * threads.max(1) + ALIGN
}

/// A convolution, ready to run.
pub(super) struct Winograd<'a> {
    pub(super) isa: Isa,
    pub(super) geometry: Geometry,
    pub(super) c_out: usize,
    pub(super) place: Placement,
    pub(super) x: &'a [f32],
    pub(super) finish: Finish<'a>,
}

impl Winograd<'_> {
    pub(super) fn run<E: Element>(
        &self,
        pool: &ThreadPool,
        weights: &Panels<E>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (g, kernel) = (&self.geometry, E::kernel(self.isa));
        let plan = Plan::new(&kernel, [g.n, g.oh, g.ow], g.channels, matches!(self.finish, Finish::Program { .. }));
        let panels = self.c_out.div_ceil(kernel.nr);
        // Tiles are split where each thread gets enough of them for the weights' transform.
        let by_tiles = plan.tiles >= TILES / 2 * pool.threads() || plan.tiles >= panels;
        let tasks = pool.threads().min(if by_tiles { plan.tiles } else { panels });
        let each = plan.thread_len();
        let scratch = TaskScratch::new("scratch of a convolution, in bytes", scratch, each, pool.threads())?;
        pool.run(tasks, &|task| {
            let own = scratch.of(task);
            let part = |count: usize| task * count / tasks..(task + 1) * count / tasks;
            let (tiles, panels) = if by_tiles { (part(plan.tiles), 0..panels) } else { (0..plan.tiles, part(panels)) };
            let mut work = Work::new(self, &plan, kernel, weights, own);
            let chunks = tiles.len().div_ceil(plan.most);
            for chunk in 0..chunks {
                let at = |i: usize| tiles.start + i * tiles.len() / chunks;
                work.run(at(chunk)..at(chunk + 1), panels.clone());
            }
        });
        Ok(())
    }
}

/// One thread's part.
struct Work<'a, E: Element> {
    conv: &'a Winograd<'a>,
    plan: &'a Plan,
    kernel: Kernel<E>,
    weights: &'a Panels<E>,
    /// The patches' terms, `[slice][tile][term][DEPTH]`.
    v: &'a mut [[[f32; DEPTH]; TERMS]],
    /// The weights' terms, for one panel and slice: `[term][channel of the slice][column]`.
    u: &'a mut [f32],
    /// Sums of one panel, `[tile][term][column]`.
    m: &'a mut [f32],
    /// Results of one panel before a program.
    results: &'a mut [f32],
    /// Weights that are widened.
    room: [[f32; LANES]; 9],
}

impl<'a, E: Element> Work<'a, E> {
    fn new(
        conv: &'a Winograd<'a>,
        plan: &'a Plan,
        kernel: Kernel<E>,
        weights: &'a Panels<E>,
        scratch: &'a mut [f32],
    ) -> Work<'a, E> {
        let [v, u, m, results] = plan.parts;
        let (v, rest) = scratch.split_at_mut(v);
        let (u, rest) = rest.split_at_mut(u);
        let (m, rest) = rest.split_at_mut(m);
        Work {
            conv,
            plan,
            kernel,
            weights,
            v: v.as_chunks_mut().0.as_chunks_mut().0,
            u,
            m,
            results: &mut rest[..results],
            room: [[0.0; LANES]; 9],
        }
    }

    /// Some of the panels over a range of tiles.
    fn run(&mut self, tiles: Range<usize>, panels: Range<usize>) {
        self.transform_patches(tiles.clone());
        for panel in panels {
            let col = panel * self.kernel.nr;
            for slice in 0..self.plan.slices {
                if tiles.len() <= FEW && self.conv.isa.level() == Level::Avx512 {
                    self.multiply_few(tiles.len(), col, slice);
                } else {
                    let width = self.transform_weights(col, slice);
                    self.multiply(tiles.len(), slice, width);
                }
            }
            match self.conv.finish {
                Finish::Store { clamp, out, .. } => self.store(tiles.clone(), col, clamp, out),
                Finish::Program { .. } => self.run_program(tiles.clone(), col),
            }
        }
    }

    /// Channels of a slice.
    fn slice(&self, slice: usize) -> Range<usize> {
        let (depth, channels) = (self.plan.depth, self.conv.geometry.channels);
        slice * depth..channels.min((slice + 1) * depth)
    }

    /// Image, first row and first column of a tile's results.
    fn position(&self, tile: usize) -> [usize; 3] {
        let (line, column) = (tile / self.plan.cols, tile % self.plan.cols);
        [line / self.plan.rows, line % self.plan.rows * SIDE, column * SIDE]
    }

    fn transform_patches(&mut self, tiles: Range<usize>) {
        let g = &self.conv.geometry;
        for (i, tile) in tiles.clone().enumerate() {
            let [n, oy, ox] = self.position(tile);
            let around = |at: usize, origin: isize, size: usize| span(at.cast_signed() + origin, 1, PATCH, size);
            let (rows, cols) = (around(oy, g.origin[0], g.h), around(ox, g.origin[1], g.w));
            for slice in 0..self.plan.slices {
                let channels = self.slice(slice);
                let mut patch = [&OUTSIDE[..]; TERMS];
                for ky in rows.from..rows.to {
                    for kx in cols.from..cols.to {
                        let at = g.at(n, rows, ky, cols, kx);
                        patch[ky * PATCH + kx] = &self.conv.x[at + channels.start..at + channels.end];
                    }
                }
                let v = &mut self.v[slice * self.plan.most + i];
                transform::run(self.conv.isa, InputTask { patch, channels: channels.len(), v });
            }
        }
    }

    /// A slice of the panel that starts at column `col`: its first tap's weights and all behind them, its width and how
    /// far behind them those lie that are needed next.
    fn slice_of_panel(&self, col: usize, slice: usize) -> (&'a [E], usize, usize) {
        let (channels, c_in) = (self.slice(slice), self.conv.geometry.channels);
        let (panel, bias) = self.weights.panel(&self.kernel, [9 * c_in, self.conv.c_out], col);
        let width = bias.len();
        // The next slice, or the next panel's first.
        let ahead = if channels.end < c_in { channels.len() } else { 9 * c_in - channels.start };
        (&panel[channels.start * width..], width, ahead * width)
    }

    /// Transforms a slice of the panel that starts at column `col`; its width.
    fn transform_weights(&mut self, col: usize, slice: usize) -> usize {
        let (weights, width, ahead) = self.slice_of_panel(col, slice);
        let (lanes, c_in) = (self.slice(slice).len() * width, self.conv.geometry.channels);
        for at in (0..lanes).step_by(LANES) {
            let count = LANES.min(lanes - at);
            let room = self.room.as_flattened_mut();
            let (g, step) = E::widen_lines(self.conv.isa, &weights[at..], c_in * width, count, room);
            transform::run(
                self.conv.isa,
                WeightsTask { g, step, lanes: count, ahead, u: &mut self.u[at..], plane: self.plan.plane },
            );
        }
        width
    }

    /// Adds the products of a slice to the sums of `tiles`.
    fn multiply(&mut self, tiles: usize, slice: usize, width: usize) {
        let kernel = f32::kernel(self.conv.isa);
        let k = self.slice(slice).len();
        let v = self.v[slice * self.plan.most..][..tiles].as_flattened().as_flattened();
        // Tiles of rows that are as high as one another keep as many sums in flight.
        let blocks = tiles.div_ceil(kernel.mr);
        let at: [usize; TILES] = std::array::from_fn(|tile| tile * TERMS * width);
        for term in 0..TERMS {
            let b = &self.u[term * self.plan.plane..][..k * width];
            let out = SharedMut::new(&mut self.m[term * width..]);
            for block in 0..blocks {
                let (first, end) = (block * tiles / blocks, (block + 1) * tiles / blocks);
                (kernel.run)(&Task {
                    rows: end - first,
                    cols: width,
                    width,
                    k,
                    a: Lines {
                        data: &v[(first * TERMS + term) * DEPTH..],
                        pitch: TERMS * DEPTH,
                        depth: DEPTH,
                        step: 0,
                    },
                    add: if slice > 0 { Addend::Stored } else { Addend::Nothing },
                    bias: &NO_BIAS[..width],
                    b,
                    ahead: &[],
                    clamp: (f32::NEG_INFINITY, f32::INFINITY),
                    out,
                    at: &at[first..end],
                });
            }
        }
    }

    /// [`Work::multiply`] for at most [`FEW`] tiles, by weights that are transformed meanwhile.
    fn multiply_few(&mut self, tiles: usize, col: usize, slice: usize) {
        let (weights, width, ahead) = self.slice_of_panel(col, slice);
        let (channels, c_in) = (self.slice(slice).len(), self.conv.geometry.channels);
        let (g, step) = E::widen_lines(self.conv.isa, weights, c_in * width, channels * width, self.u);
        let v = &self.v[slice * self.plan.most..][..tiles];
        let task = FewTask { g, step, width, channels, ahead, v, m: self.m, add: slice > 0 };
        transform::run(self.conv.isa, task);
    }

    fn bias(&self, col: usize) -> &'a [f32] {
        self.weights.panel(&self.kernel, [9 * self.conv.geometry.channels, self.conv.c_out], col).1
    }

    /// Stores the results of a panel.
    fn store(&mut self, tiles: Range<usize>, col: usize, clamp: (f32, f32), out: SharedMut<'_, f32>) {
        let (bias, conv) = (self.bias(col), self.conv);
        let (g, place) = (&conv.geometry, &conv.place);
        for (i, tile) in tiles.enumerate() {
            let [n, oy, ox] = self.position(tile);
            let task = OutputTask {
                m: sums(self.m, i, bias.len()),
                bias,
                out,
                at: place.of((n, oy, ox)) + col,
                step: [place.row, place.pixel],
                size: [SIDE.min(g.oh - oy), SIDE.min(g.ow - ox), bias.len().min(conv.c_out - col)],
                clamp,
            };
            transform::run(conv.isa, task);
        }
    }

    /// Runs the program over the results of a panel: tiles that lie in a row at once.
    fn run_program(&mut self, tiles: Range<usize>, col: usize) {
        let Finish::Program { program, inputs, outputs } = self.conv.finish else { return };
        let (bias, conv) = (self.bias(col), self.conv);
        let (g, width, cols) = (&conv.geometry, bias.len(), bias.len().min(conv.c_out - col));
        let mut start = tiles.start;
        while start < tiles.end {
            let end = tiles.end.min((start / self.plan.cols + 1) * self.plan.cols);
            let [n, oy, first] = self.position(start);
            let (rows, pixels) = (SIDE.min(g.oh - oy), g.ow.min(first + (end - start) * SIDE) - first);
            for tile in start..end {
                let x = (tile - start) * SIDE;
                let task = OutputTask {
                    m: sums(self.m, tile - tiles.start, width),
                    bias,
                    out: SharedMut::new(self.results),
                    at: x * width,
                    step: [pixels * width, width],
                    size: [rows, SIDE.min(pixels - x), width],
                    clamp: (f32::NEG_INFINITY, f32::INFINITY),
                };
                transform::run(conv.isa, task);
            }
            // Whole rows are pixels that follow one another.
            let (calls, each) = if pixels == g.ow { (1, rows * pixels) } else { (rows, pixels) };
            for call in 0..calls {
                let values = &self.results[call * pixels * width..][..each * width];
                let row0 = (n * g.oh + oy + call) * g.ow + first;
                let tile = Tile { values, pitch: width, rows: each, cols, row0, col0: col };
                epilogue(conv.isa, program, &tile, inputs, outputs);
            }
            start = end;
        }
    }
}

/// The sums of a chunk's tile.
fn sums(m: &[f32], tile: usize, width: usize) -> &[f32] {
    &m[tile * TERMS * width..][..TERMS * width]
}
