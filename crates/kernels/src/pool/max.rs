//! The greatest tap of each window.

use super::window::{PoolShape, Window, sliding};
use super::{LANES, Windows};
use crate::pointwise::math::maximum;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};

/// A max pooling. Padding never wins; a float window with a NaN gives NaN.
#[derive(Clone, Debug)]
pub struct MaxPool {
    isa: Isa,
    windows: Windows,
}

/// One output pixel of one image: taps at `(row · w + col) · c + channel`.
struct Pixel<'a, T> {
    image: &'a [T],
    w: usize,
    c: usize,
    first: usize,
    rows: Window,
    cols: Window,
}

#[inline(always)]
fn greatest<T: Copy>(p: &Pixel<'_, T>, least: T, y: &mut [T], max: impl Fn(T, T) -> T) {
    for (block, y) in y.chunks_mut(LANES).enumerate() {
        let mut most = [least; LANES];
        for row in p.rows.taps() {
            for col in p.cols.taps() {
                let start = (row * p.w + col) * p.c + p.first + block * LANES;
                let x = &p.image[start..start + y.len()];
                // A whole block stays in registers.
                match <&[T; LANES]>::try_from(x) {
                    Ok(x) => most.iter_mut().zip(x).for_each(|(y, x)| *y = max(*y, *x)),
                    Err(_) => most.iter_mut().zip(x).for_each(|(y, x)| *y = max(*y, *x)),
                }
            }
        }
        y.copy_from_slice(&most[..y.len()]);
    }
}

#[inline(always)]
fn greatest_u8(p: &Pixel<'_, u8>, y: &mut [u8]) {
    greatest(p, 0, y, u8::max);
}

#[inline(always)]
fn greatest_f32(p: &Pixel<'_, f32>, y: &mut [f32]) {
    greatest(p, f32::NEG_INFINITY, y, maximum);
}

versions! {
    fn greatest_u8_on(p: &Pixel<'_, u8>, y: &mut [u8]) => greatest_u8
}

versions! {
    fn greatest_f32_on(p: &Pixel<'_, f32>, y: &mut [f32]) => greatest_f32
}

impl MaxPool {
    /// # Errors
    /// A kernel, stride or dilation of 0.
    pub fn new(isa: Isa, s: &PoolShape) -> Result<MaxPool, KernelError> {
        s.check()?;
        let axis =
            |i: usize, size| sliding(size, s.out[i], s.kernel[i], s.stride[i], [s.pad[i], s.pad[i + 2]], s.dilation[i]);
        let windows = Windows { n: s.n, h: s.h, w: s.w, c: s.c, rows: axis(0, s.h), cols: axis(1, s.w) };
        Ok(MaxPool { isa, windows })
    }

    /// Of bytes; `stride` elements of `y` from pixel to pixel, at least `c`.
    ///
    /// # Errors
    /// A slice that is too short, or a stride below `c`.
    pub fn run_u8(&self, pool: &ThreadPool, x: &[u8], y: &mut [u8], stride: usize) -> Result<(), KernelError> {
        self.run(pool, x, y, stride, |p, y| greatest_u8_on(self.isa, p, y))
    }

    /// Of floats; `stride` elements of `y` from pixel to pixel, at least `c`.
    ///
    /// # Errors
    /// A slice that is too short, or a stride below `c`.
    pub fn run_f32(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32], stride: usize) -> Result<(), KernelError> {
        self.run(pool, x, y, stride, |p, y| greatest_f32_on(self.isa, p, y))
    }

    fn run<T: Copy + Send + Sync>(
        &self,
        pool: &ThreadPool,
        x: &[T],
        y: &mut [T],
        stride: usize,
        f: impl Fn(&Pixel<'_, T>, &mut [T]) + Sync,
    ) -> Result<(), KernelError> {
        let g = &self.windows;
        g.check(x.len(), y.len(), stride)?;
        g.run(pool, y, stride, &|n, oy, channels, part| {
            let image = &x[n * g.h * g.w * g.c..];
            for (ox, cols) in g.cols.iter().enumerate() {
                let pixel = Pixel { image, w: g.w, c: g.c, first: channels.start, rows: g.rows[oy], cols: *cols };
                f(&pixel, part(ox));
            }
        });
        Ok(())
    }
}
