//! The driver of the depthwise kernels: output rows over threads, taps and borders.
#![allow(unsafe_code, reason = "threads write disjoint output rows through one pointer")]

use super::{Depthwise, Kernel, Pixel};
use crate::qconv::dense::Io;
use crate::{Level, SharedMut, ThreadPool};

impl Depthwise {
    /// Runs all images. The caller has checked the lengths of everything.
    pub fn run(&self, pool: &ThreadPool, io: &Io<'_>, scratch: &mut [u8]) {
        let g = &self.geometry;
        let threads = pool.threads();
        let listed = self.listed_taps();
        let lists: &mut [usize] = bytemuck::cast_slice_mut(&mut scratch[..threads * listed * size_of::<usize>()]);
        let lists = SharedMut::new(lists);
        let step = if self.kernel == Kernel::Rows3x3S1 { 2 } else { 1 };
        let strips = g.oh.div_ceil(step);
        let (total, parts) = (g.n * strips, threads.min(g.n * strips));
        pool.run(parts, &|part| {
            // SAFETY: each part has a list of its own.
            let list = unsafe { lists.slice(part * listed..(part + 1) * listed) };
            for strip in part * total / parts..(part + 1) * total / parts {
                let (image, oy) = (strip / strips, strip % strips * step);
                // SAFETY: lengths were checked, and strips are disjoint.
                unsafe {
                    match self.kernel {
                        Kernel::Taps => self.row_of_taps(image, oy, io, list),
                        Kernel::Rows3x3S1 | Kernel::Rows3x3S2 => self.rows_3x3(image, oy, io),
                    }
                }
            }
        });
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
                match self.isa.level() {
                    Level::Portable => self.pixel_portable(&pixel),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => self.pixel_avx2(&pixel),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => self.pixel_avx512(&pixel),
                    #[cfg(not(target_arch = "x86_64"))]
                    _ => self.pixel_portable(&pixel),
                }
            }
        }
    }

    /// The address of every tap of one output pixel; taps beyond the last repeat the border.
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
        slots.for_each(|slot| *slot = border);
    }

    #[cfg(target_arch = "x86_64")]
    unsafe fn rows_3x3(&self, image: usize, oy: usize, io: &Io<'_>) {
        // SAFETY: only chosen where the instruction set is there.
        unsafe { self.rows_3x3_avx512(image, oy, io) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn rows_3x3(&self, _: usize, _: usize, _: &Io<'_>) {}
}
