//! The driver of the depthwise kernels: output rows or channels over threads, taps and borders.
#![allow(unsafe_code, reason = "threads write disjoint output rows through one pointer")]

use super::{Block, Depthwise, Pixel};
use crate::qconv::dense::Io;
use crate::qconv::program::ProgramRun;
use crate::{Level, SharedMut, ThreadPool};
use std::ops::Range;

/// Takes a task, an image, output rows that are taken together, blocks beside each other, and the task's scratch.
type StripFn<'a> = dyn Fn(usize, usize, Range<usize>, &[Block], &mut [u8]) + Sync + 'a;

/// Rows at multiples of which threads may part.
const PARTED: usize = 2;

impl Depthwise {
    /// Runs all images. The caller has checked the lengths of everything.
    pub fn run(&self, pool: &ThreadPool, io: &Io<'_>, scratch: &mut [u8]) {
        // SAFETY: lengths were checked, and strips are disjoint.
        self.split(pool, scratch, &|_, image, rows, blocks, scratch| unsafe {
            self.strip(image, rows, blocks, io, scratch)
        });
    }

    /// Floats of one task's buffer for a program.
    pub fn program_floats(&self) -> usize {
        self.rows_of_strip() * self.geometry.ow * self.geometry.c
    }

    /// Runs all images with a program as the epilogue. The caller has checked the lengths of everything.
    pub fn run_program(&self, pool: &ThreadPool, p: &ProgramRun<'_>, scratch: &mut [u8]) {
        let g = &self.geometry;
        self.split(pool, scratch, &|task, image, rows, blocks, scratch| {
            let pixel = |oy: usize| (image * g.oh + oy) * g.ow;
            let pixels = pixel(rows.start)..pixel(rows.end);
            let channels = blocks[0].channel..blocks.last().map_or(g.c, |b| b.channel + b.width);
            // SAFETY: as in `run`; a task has its buffer and its strips for itself.
            unsafe { p.tile(task, pixels, channels, |io| self.strip(image, rows, blocks, io, scratch)) };
        });
    }

    /// Splits the work over threads: by channels where there are more of them than pixels, since whoever made the input
    /// did so too, and else by output rows.
    fn split(&self, pool: &ThreadPool, scratch: &mut [u8], f: &StripFn<'_>) {
        let (g, blocks, size) = (&self.geometry, &self.blocks[..], self.scratch_of_thread());
        let unit = self.rows_of_strip().min(PARTED);
        let total = g.n * g.oh.div_ceil(unit);
        let by_block = blocks.len() >= 2 * pool.threads() && g.c > g.h * g.w;
        let parts = if by_block { pool.threads() } else { pool.threads().min(total) };
        let shared = SharedMut::new(scratch);
        pool.run(parts, &|task| {
            // SAFETY: each task has a scratch of its own.
            let scratch = unsafe { shared.slice(task * size..(task + 1) * size) };
            let part = |n: usize| task * n / parts..(task + 1) * n / parts;
            let (units, blocks) =
                if by_block { (0..total, &blocks[part(blocks.len())]) } else { (part(total), blocks) };
            self.strips(units, unit, &mut |image, rows| f(task, image, rows, blocks, scratch));
        });
    }

    /// Strips of some units of output rows.
    fn strips(&self, units: Range<usize>, unit: usize, f: &mut dyn FnMut(usize, Range<usize>)) {
        let (oh, most) = (self.geometry.oh, self.rows_of_strip());
        let each = oh.div_ceil(unit);
        let mut at = units.start;
        while at < units.end {
            let (image, first) = (at / each, at % each);
            let count = (most / unit).min(units.end - at).min(each - first);
            f(image, first * unit..((first + count) * unit).min(oh));
            at += count;
        }
    }

    /// Output rows that are taken together.
    fn rows_of_strip(&self) -> usize {
        if self.isa.level() == Level::Portable { 1 } else { self.rows }
    }

    /// # Safety
    /// `io` is valid for the geometry; no other thread writes these rows of these blocks.
    unsafe fn strip(&self, image: usize, rows: Range<usize>, blocks: &[Block], io: &Io<'_>, scratch: &mut [u8]) {
        if self.isa.level() == Level::Portable {
            // SAFETY: by the caller's promise.
            return unsafe { self.row_of_taps(image, rows.start, blocks, io, bytemuck::cast_slice_mut(scratch)) };
        }
        #[cfg(target_arch = "x86_64")]
        for b in blocks {
            // SAFETY: by the caller's promise; the token in `self.isa` proves the instruction set.
            unsafe {
                match self.isa.level() {
                    Level::Avx512 if self.is_3x3_stride2() => {
                        self.row_stride2_avx512(image, rows.start, io, b, scratch)
                    }
                    Level::Avx512 => self.strip_avx512(image, rows.clone(), io, b, scratch),
                    _ => self.strip_avx2(image, rows.clone(), io, b, scratch),
                }
            }
        }
    }

    /// One output row, a pixel at a time.
    ///
    /// # Safety
    /// `io` is valid for the geometry; no other thread writes these blocks of this row.
    unsafe fn row_of_taps(&self, image: usize, oy: usize, blocks: &[Block], io: &Io<'_>, list: &mut [usize]) {
        let g = &self.geometry;
        for ox in 0..g.ow {
            self.list_taps(image, oy, ox, io.x, list);
            let m = (image * g.oh + oy) * g.ow + ox;
            // SAFETY: m is a pixel of the output.
            unsafe {
                let (y, r) = io.at(m, 0);
                let pixel = Pixel { taps: list, y, r, size: io.size };
                self.pixel_portable(&pixel, blocks);
            }
        }
    }

    /// The address of every tap of one output pixel.
    fn list_taps(&self, image: usize, oy: usize, ox: usize, x: &[u8], list: &mut [usize]) {
        let g = &self.geometry;
        let border = self.border.as_ptr() as usize;
        let mut slots = list.iter_mut();
        let y0 = (oy * g.stride[0]) as isize + g.origin[0];
        let x0 = (ox * g.stride[1]) as isize + g.origin[1];
        for ky in 0..g.kh {
            let iy = y0 + (ky * g.dilation[0]) as isize;
            let row = (0..g.h as isize).contains(&iy).then(|| (image * g.h + iy as usize) * g.w);
            for (kx, slot) in (0..g.kw).zip(&mut slots) {
                let ix = x0 + (kx * g.dilation[1]) as isize;
                *slot = match row {
                    Some(row) if (0..g.w as isize).contains(&ix) => x[(row + ix as usize) * g.c..].as_ptr() as usize,
                    _ => border,
                };
            }
        }
    }
}
