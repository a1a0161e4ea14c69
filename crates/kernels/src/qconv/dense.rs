//! The driver of the dense and grouped kernels: implicit matrix products over output pixels.
//!
//! An input with borders, or whose runs are not a multiple of four bytes, is first copied with its borders
//! filled by the zero point; then no kernel knows of borders, and the folded zero point is exact everywhere.
#![allow(unsafe_code, reason = "threads write disjoint parts of the output through one pointer")]

use super::geometry::{Geometry, Placement, Walk};
use super::pack::{self, Block, LANES, Layout, Order, Packed, Segments, Source};
use super::program::ProgramRun;
use super::spec::InputLevels;
use super::tile::{Columns, Epilogue, Table, Tile, select};
use crate::buffer::{ALIGN, SLACK};
use crate::{Isa, KernelError, SharedMut, ThreadPool};
use std::ops::Range;

/// Bytes of input that a thread walks before it turns to the next block of channels: they stay in L2.
const CHUNK_BYTES: usize = 384 << 10;
/// Chunks are multiples of this many pixels, so that most tiles are whole.
const CHUNK_ROWS: usize = 168;
/// Weights of more bytes than this come from beyond L2, so that they are fetched ahead.
const FETCHED_BYTES: usize = 256 << 10;
/// Pixels of a thread below which channels are split over threads instead, where there are more weights than inputs.
const FEW_ROWS: usize = 48;
/// Pixels that a program takes at a time.
const PROGRAM_ROWS: usize = 84;

/// The operands of one run; lengths are checked before it is made.
pub(super) struct Io<'a> {
    pub x: &'a [u8],
    /// First pixel's first channel.
    pub y: *mut u8,
    /// Elements from a pixel to the next.
    pub y_stride: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Null without a residual.
    pub r: *const u8,
    pub r_stride: usize,
}

// SAFETY: tasks write disjoint elements of `y`, and only read the rest.
unsafe impl Sync for Io<'_> {}

impl Io<'_> {
    /// Output and residual of a pixel and channel of the tensor.
    /// Valid where the pixel and the channel lie in the part of the output that is in memory.
    #[inline]
    pub fn at(&self, pixel: usize, channel: usize) -> (*mut u8, *const u8) {
        let y = self.y.wrapping_add((pixel * self.y_stride + channel) * self.size);
        (y, self.r.wrapping_add(pixel * self.r_stride + channel))
    }
}

/// What a task does: `f(task, pixels, blocks)`, of blocks beside each other.
type BlocksFn<'a> = dyn Fn(usize, Range<usize>, &[Block]) + Sync + 'a;

/// Where accumulators start, and what they are multiplied by; for each column.
#[derive(Clone, Copy)]
struct Folded<'a> {
    bias: &'a [i32],
    scale: &'a [f32],
}

/// What a run has before its tasks.
#[derive(Clone, Copy)]
pub(super) struct Begun<'a> {
    /// The input, with its borders.
    pub x: &'a [u8],
    folded: Folded<'a>,
    /// The tasks' buffers, one after another.
    pub staged: SharedMut<'a, u8>,
}

/// A packed dense or grouped convolution.
#[derive(Clone, Debug)]
pub(super) struct Dense {
    isa: Isa,
    pub(super) geometry: Geometry,
    pub(super) placement: Placement,
    pub(super) layout: Layout,
    pub(super) packed: Packed,
    pub(super) segments: Segments,
    pub(super) epilogue: Epilogue,
    /// Over the input, or over the copy.
    pub(super) walk: Walk,
    /// Bytes of the copy, or 0.
    halo: usize,
    /// None where each run brings it.
    zx: Option<u8>,
}

impl Dense {
    pub fn new(
        isa: Isa,
        geometry: Geometry,
        placement: Placement,
        src: &Source<'_>,
        epilogue: Epilogue,
        like: Option<&Dense>,
    ) -> Result<Dense, KernelError> {
        let g = &geometry;
        let whole_rows = src.groups == 1 && (g.kw == 1 || g.dilation[1] == 1);
        let (runs, len) = if whole_rows { (1, g.kw * g.c) } else { (g.kw, src.c_group) };
        let copied = !g.inside() || !len.is_multiple_of(4);
        let [span_h, span_w] = g.span();
        let (line, lines) = if copied { (span_w * g.c, span_h) } else { (g.w * g.c, g.h) };
        let start = if copied { 0 } else { g.origin[0] as usize * line + g.origin[1] as usize * g.c };
        let walk =
            Walk { start, image: lines * line, down: g.stride[0] * line, right: g.stride[1] * g.c, oh: g.oh, ow: g.ow };
        let offset = |i: usize| i / runs * g.dilation[0] * line + i % runs * g.dilation[1] * g.c;
        let segments = Segments { offsets: (0..g.kh * runs).map(offset).collect(), len };
        let layout = Layout::of(isa, g.pixels());
        let form = (layout, Order::of(isa, epilogue.out));
        let packed = pack::pack(src, &segments, isa, form, like.map(|d| &d.packed))?;
        let halo = if copied { g.n * walk.image } else { 0 };
        Ok(Dense { isa, placement, layout, packed, segments, epilogue, walk, halo, zx: src.zx, geometry })
    }

    /// The same for another number of images.
    pub fn set_batch(&mut self, n: usize) {
        self.halo = self.halo / self.geometry.n * n;
        self.geometry.n = n;
    }

    /// Bytes of scratch that a run on so many threads needs: per-column operands that depend on the input's levels,
    /// what tasks stage, and the copy.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        let copy = if self.halo > 0 { (self.halo + SLACK).next_multiple_of(ALIGN) } else { 0 };
        self.levels_bytes() + threads * self.staged_bytes() + copy
    }

    /// Bytes of the operands that depend on the input's levels.
    fn levels_bytes(&self) -> usize {
        if self.zx.is_none() { 2 * self.column_bytes() } else { 0 }
    }

    /// Bytes that one task stages.
    #[cfg(not(target_arch = "x86_64"))]
    fn staged_bytes(&self) -> usize {
        0
    }

    /// Steps of four weights of a column.
    pub(super) fn steps(&self) -> usize {
        self.segments.all_steps(self.layout)
    }

    /// Bytes of one operand of all columns.
    fn column_bytes(&self) -> usize {
        (self.packed.bias.len() * size_of::<i32>()).next_multiple_of(ALIGN)
    }

    /// Rows and columns of the tile of the first block.
    pub fn tile(&self) -> (usize, usize) {
        if self.layout == Layout::Columns {
            return (16, 4);
        }
        self.packed.blocks.first().map_or((1, pack::LANES), |b| super::tile::largest(self.isa, b))
    }

    /// The instruction set's part of the kernel's name.
    pub fn isa_name(&self) -> &'static str {
        if self.packed.octets.is_some() { "avx2_octets" } else { super::tile::isa_name(self.isa) }
    }

    /// Runs all images. The caller has checked the lengths of everything.
    pub fn run(&self, pool: &ThreadPool, io: &Io<'_>, levels: Option<InputLevels>, scratch: &mut [u8]) {
        let begun = self.begin(pool, io.x, levels, scratch);
        self.split(pool, &|task, rows, blocks| self.compute(&begun, io, task, rows, blocks));
    }

    /// The input with its borders, what stands beside the accumulators of each column, and the tasks' buffers.
    fn begin<'a>(
        &'a self,
        pool: &ThreadPool,
        x: &'a [u8],
        levels: Option<InputLevels>,
        scratch: &'a mut [u8],
    ) -> Begun<'a> {
        let (columns, rest) = scratch.split_at_mut(self.levels_bytes());
        let (staged, copy) = rest.split_at_mut(pool.threads() * self.staged_bytes());
        let staged = SharedMut::new(staged);
        let zx = self.zx.or(levels.map(|l| l.zero_point)).unwrap_or(0);
        let x = if self.halo > 0 { self.copy_with_borders(pool, x, zx, copy) } else { x };
        let Packed { bias, scale, .. } = &self.packed;
        let Some(levels) = levels else { return Begun { x, folded: Folded { bias, scale }, staged } };
        let (b, s) = columns.split_at_mut(self.column_bytes());
        let b: &mut [i32] = &mut bytemuck::cast_slice_mut(b)[..bias.len()];
        let s: &mut [f32] = &mut bytemuck::cast_slice_mut(s)[..scale.len()];
        // What is packed is -Σw: the whole fits an i32 for every zero point.
        b.iter_mut().zip(bias.iter()).for_each(|(b, sum)| *b = i32::from(zx) * sum);
        s.iter_mut().zip(scale.iter()).for_each(|(s, sw)| *s = levels.scale * sw);
        Begun { x, folded: Folded { bias: b, scale: s }, staged }
    }

    /// Floats of one task's buffer for a program.
    pub fn program_floats(&self) -> usize {
        self.packed.blocks.iter().map(|b| b.width).max().unwrap_or(0) * PROGRAM_ROWS
    }

    /// Runs all images with a program as the epilogue. The caller has checked the lengths of everything.
    pub fn run_program(&self, pool: &ThreadPool, p: &ProgramRun<'_>, levels: Option<InputLevels>, scratch: &mut [u8]) {
        let begun = self.begin(pool, p.x, levels, scratch);
        self.split(pool, &|task, rows, blocks| {
            // Of few rows, the blocks that fill a buffer together.
            let together = (PROGRAM_ROWS / rows.len().max(1)).max(1);
            for (blocks, first) in
                blocks.chunks(together).flat_map(|b| rows.clone().step_by(PROGRAM_ROWS).map(move |first| (b, first)))
            {
                let rows = first..rows.end.min(first + PROGRAM_ROWS);
                let columns = blocks[0].channel..blocks.last().map_or(0, |b| b.channel + b.width);
                let compute = |io: &Io<'_>| self.compute(&begun, io, task, rows.clone(), blocks);
                // SAFETY: tasks have rows or blocks of their own.
                unsafe { p.tile(task, rows.clone(), columns, compute) };
            }
        });
    }

    /// Splits the work over threads.
    fn split(&self, pool: &ThreadPool, f: &BlocksFn<'_>) {
        let (m, blocks) = (self.geometry.pixels(), &self.packed.blocks[..]);
        let parts = pool.threads();
        // Split what is larger, so that threads share the smaller operand; but channels of many pixels side by side would have
        // cores wait for one another's lines.
        let input = self.geometry.n * self.geometry.h * self.geometry.w * self.geometry.c;
        let by_block = blocks.len() >= 2 * parts && self.packed.bytes() > input && m < FEW_ROWS * parts;
        pool.run(parts, &|i| {
            if by_block {
                self.part(i, 0..m, &blocks[i * blocks.len() / parts..(i + 1) * blocks.len() / parts], f);
            } else {
                let unit = if self.layout == Layout::Columns { 8 } else { 2 };
                let cut = |i: usize| if i == parts { m } else { i * m / parts / unit * unit };
                self.part(i, cut(i)..cut(i + 1), blocks, f);
            }
        });
    }

    /// Output pixels `rows` of some blocks, in chunks whose input stays in cache.
    fn part(&self, task: usize, rows: Range<usize>, blocks: &[Block], f: &BlocksFn<'_>) {
        let per_row = (self.walk.right * self.geometry.stride[0]).max(1);
        let chunk = (CHUNK_BYTES / per_row / CHUNK_ROWS).max(1) * CHUNK_ROWS;
        let whole = blocks.len() == 1 || self.layout == Layout::Columns;
        let chunk = if whole { rows.len().max(1) } else { chunk };
        for first in rows.clone().step_by(chunk) {
            f(task, first..rows.end.min(first + chunk), blocks);
        }
    }

    /// Computes pixels of blocks.
    fn compute(&self, begun: &Begun<'_>, io: &Io<'_>, task: usize, rows: Range<usize>, blocks: &[Block]) {
        #[cfg(target_arch = "x86_64")]
        if self.layout == Layout::Columns {
            return self.staged(begun, io, task, rows, blocks);
        }
        let _ = task;
        blocks.iter().for_each(|b| self.block(begun, io, rows.clone(), b));
    }

    /// The operands of a block's columns.
    pub(super) fn columns(&self, begun: &Begun<'_>, b: &Block) -> Columns {
        self.packed.columns(b, begun.folded.bias, begun.folded.scale)
    }

    fn block(&self, begun: &Begun<'_>, io: &Io<'_>, rows: Range<usize>, b: &Block) {
        let (p, x, columns) = (&self.packed, begun.x, self.columns(begun, b));
        let size = self.steps() * b.nv * LANES * 4;
        let ahead = if p.weights.len() > FETCHED_BYTES { size } else { 0 };
        let mut number = 0;
        let mut table = Table::default();
        let mut m = rows.start;
        while m < rows.end {
            let (mr, kernel) = select(self.isa, b, rows.end - m);
            let run = rows.end.min(self.walk.even_until(m)) - m;
            let even = run >= mr && self.placement.is_dense();
            self.walk.offsets(m, &mut table.x[..if even { 1 } else { mr }]);
            let (first, pixel) = (table.x[0], self.placement.at(m));
            if !even {
                table.x[..mr].iter_mut().for_each(|x| *x -= first);
                for (i, p) in table.pixel[..mr].iter_mut().enumerate() {
                    *p = self.placement.at(m + i) - pixel;
                }
            }
            // SAFETY: the walk stays inside `x`, whose length was checked; so was the output's. The token in
            // `self.isa` proves the instruction set.
            unsafe {
                let (y, r) = io.at(pixel, b.channel);
                kernel(&Tile {
                    x: x.as_ptr().add(first + b.input),
                    x_step: self.walk.right,
                    y,
                    y_step: io.y_stride * io.size,
                    r,
                    r_step: io.r_stride,
                    table: (!even).then_some(&table),
                    tiles: if even { run / mr } else { 1 },
                    segments: &self.segments.offsets,
                    steps: self.segments.steps(),
                    weights: p.weights[b.start..].as_ptr(),
                    ahead,
                    number,
                    columns,
                    epilogue: &self.epilogue,
                });
            }
            let tiles = if even { run / mr } else { 1 };
            m += tiles * mr;
            number += tiles;
        }
    }

    /// Copies the input into the scratch with its borders.
    fn copy_with_borders<'a>(&self, pool: &ThreadPool, x: &[u8], zx: u8, scratch: &'a mut [u8]) -> &'a [u8] {
        let g = &self.geometry;
        let [lines, columns] = g.span();
        let (line, total) = (columns * g.c, g.n * lines);
        // Columns of a line that lie inside the input.
        let left = g.origin[1].min(0).unsigned_abs().min(columns);
        let skip = g.origin[1].max(0) as usize;
        let inner = g.w.saturating_sub(skip).min(columns - left) * g.c;
        let shared = SharedMut::new(&mut scratch[..self.halo]);
        let parts = pool.threads().min(total);
        pool.run(parts, &|part| {
            for index in part * total / parts..(part + 1) * total / parts {
                // SAFETY: lines are disjoint.
                let out = unsafe { shared.slice(index * line..(index + 1) * line) };
                let iy = (index % lines) as isize + g.origin[0];
                if !(0..g.h as isize).contains(&iy) || inner == 0 {
                    out.fill(zx);
                    continue;
                }
                let from = ((index / lines * g.h + iy as usize) * g.w + skip) * g.c;
                let (before, rest) = out.split_at_mut(left * g.c);
                let (middle, after) = rest.split_at_mut(inner);
                before.fill(zx);
                middle.copy_from_slice(&x[from..from + inner]);
                after.fill(zx);
            }
        });
        scratch
    }
}
