//! The driver of the depthwise kernels: output rows over threads, taps and borders.
#![allow(unsafe_code, reason = "threads write disjoint output rows through one pointer")]

use super::{Depthwise, Pixel};
use crate::buffer::apart;
use crate::qconv::dense::Io;
use crate::qconv::program::ProgramRun;
use crate::{Level, SharedMut, ThreadPool};
use std::ops::Range;

/// Takes a task, an image, output rows that are taken together and the task's scratch.
type StripFn<'a> = dyn Fn(usize, usize, Range<usize>, &mut [u8]) + Sync + 'a;

/// Rows at multiples of which threads may part.
const PARTED: usize = 2;

impl Depthwise {
    /// Runs all images. The caller has checked the lengths of everything.
    pub fn run(&self, pool: &ThreadPool, io: &Io<'_>, scratch: &mut [u8]) {
        // SAFETY: lengths were checked, and strips are disjoint.
        self.split(pool, scratch, &|_, image, rows, scratch| unsafe { self.strip(image, rows, io, scratch) });
    }

    /// Floats of one task's buffer for a program.
    pub fn program_floats(&self) -> usize {
        self.rows_of_strip() * self.geometry.ow * self.geometry.c
    }

    /// Runs all images with a program as the epilogue. The caller has checked the lengths of everything.
    pub fn run_program(&self, pool: &ThreadPool, p: &ProgramRun<'_>, scratch: &mut [u8]) {
        let g = &self.geometry;
        self.split(pool, scratch, &|task, image, rows, scratch| {
            let pixel = |oy: usize| (image * g.oh + oy) * g.ow;
            let pixels = pixel(rows.start)..pixel(rows.end);
            // SAFETY: as in `run`; a task has its buffer and its strips for itself.
            unsafe { p.tile(task, pixels, 0..g.c, |io| self.strip(image, rows, io, scratch)) };
        });
    }

    /// Splits the output rows over threads.
    fn split(&self, pool: &ThreadPool, scratch: &mut [u8], f: &StripFn<'_>) {
        let (size, oh, most) = (self.scratch_of_thread(), self.geometry.oh, self.rows_of_strip());
        let unit = most.min(PARTED);
        let each = oh.div_ceil(unit);
        let total = self.geometry.n * each;
        let parts = pool.threads().min(total);
        let apart = apart(scratch.len(), pool.threads(), size);
        let shared = SharedMut::new(scratch);
        pool.run(parts, &|part| {
            // SAFETY: each part has a scratch of its own.
            let scratch = unsafe { shared.slice(part * apart..part * apart + size) };
            let (mut at, end) = (part * total / parts, (part + 1) * total / parts);
            while at < end {
                let (image, first) = (at / each, at % each);
                let units = (most / unit).min(end - at).min(each - first);
                f(part, image, first * unit..((first + units) * unit).min(oh), scratch);
                at += units;
            }
        });
    }

    /// Output rows that are taken together.
    fn rows_of_strip(&self) -> usize {
        if self.isa.level() == Level::Portable { 1 } else { self.rows }
    }

    /// # Safety
    /// `io` is valid for the geometry; no other thread writes these rows.
    unsafe fn strip(&self, image: usize, rows: Range<usize>, io: &Io<'_>, scratch: &mut [u8]) {
        // SAFETY: by the caller's promise; the token in `self.isa` proves the instruction set.
        unsafe {
            match self.isa.level() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 if self.is_3x3_stride2() => self.row_stride2_avx512(image, rows.start, io, scratch),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => self.strip_avx512(image, rows, io, scratch),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => self.strip_avx2(image, rows, io, scratch),
                _ => self.row_of_taps(image, rows.start, io, bytemuck::cast_slice_mut(scratch)),
            }
        }
    }

    /// One output row, a pixel at a time.
    ///
    /// # Safety
    /// `io` is valid for the geometry; no other thread writes this row.
    unsafe fn row_of_taps(&self, image: usize, oy: usize, io: &Io<'_>, list: &mut [usize]) {
        let g = &self.geometry;
        for ox in 0..g.ow {
            self.list_taps(image, oy, ox, io.x, list);
            let m = (image * g.oh + oy) * g.ow + ox;
            // SAFETY: m is a pixel of the output.
            unsafe {
                let (y, r) = io.at(m, 0);
                let pixel = Pixel { taps: list, y, r, size: io.size };
                self.pixel_portable(&pixel);
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
