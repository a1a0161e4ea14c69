//! Resizing channels-last images by tables of indices and weights: nearest, bilinear, and whatever else is
//! separable.
//!
//! `y = Σ_i wy[i] · (Σ_j wx[j] · x[i, j])` in f32, sums from the first tap: torch's order for bilinear. Of bytes
//! the sum is taken of the integers themselves (weights add up to 1, so that scale and zero point stay) and
//! rounded half to even.

mod table;

pub use table::{AxisTable, Coordinates, Nearest};

use crate::pointwise::{Quantize, Quantizer, Rounding};
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};

/// A resize of `x [n, h, w, c]`.
#[derive(Clone, Debug)]
pub struct Resize {
    isa: Isa,
    n: usize,
    c: usize,
    rows: AxisTable,
    cols: AxisTable,
    /// Whether every output is one input, bit for bit.
    pick: bool,
}

/// Channels that are accumulated side by side.
const LANES: usize = 32;

/// One output row of one image.
#[inline(always)]
fn row<T: Copy>(
    r: &Resize,
    image: &[T],
    oy: usize,
    y: &mut [T],
    load: impl Fn(T) -> f32 + Copy,
    store: impl Fn(f32) -> T + Copy,
) {
    let c = r.c;
    for (ox, y) in y.chunks_exact_mut(c).enumerate() {
        if r.pick {
            let at = (r.rows.at(oy).0[0] * r.cols.size + r.cols.at(ox).0[0]) * c;
            y.copy_from_slice(&image[at..at + c]);
        } else if c >= LANES {
            for block in 0..c.div_ceil(LANES) {
                // The last block overlaps the one before.
                channels::<T, LANES>(r, image, oy, ox, (block * LANES).min(c - LANES), y, load, store);
            }
        } else {
            for at in 0..c {
                channels::<T, 1>(r, image, oy, ox, at, y, load, store);
            }
        }
    }
}

/// `N` channels of one output pixel, from `at` on, in registers.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
#[allow(clippy::too_many_arguments, reason = "a position in the output and the operands")]
fn channels<T: Copy, const N: usize>(
    r: &Resize,
    image: &[T],
    oy: usize,
    ox: usize,
    at: usize,
    y: &mut [T],
    load: impl Fn(T) -> f32,
    store: impl Fn(f32) -> T,
) {
    let ((ys, wys), (xs, wxs)) = (r.rows.at(oy), r.cols.at(ox));
    let mut total = [0.0f32; N];
    for i in 0..ys.len() {
        let mut line = [0.0f32; N];
        for j in 0..xs.len() {
            let (from, wx) = (&image[(ys[i] * r.cols.size + xs[j]) * r.c + at..][..N], wxs[j]);
            // The first term is no sum, so that -0 stays.
            if j == 0 {
                for k in 0..N {
                    line[k] = wx * load(from[k]);
                }
            } else {
                for k in 0..N {
                    line[k] += wx * load(from[k]);
                }
            }
        }
        if i == 0 {
            for k in 0..N {
                total[k] = wys[i] * line[k];
            }
        } else {
            for k in 0..N {
                total[k] += wys[i] * line[k];
            }
        }
    }
    let y = &mut y[at..at + N];
    for k in 0..N {
        y[k] = store(total[k]);
    }
}

#[inline(always)]
fn row_f32(r: &Resize, image: &[f32], oy: usize, y: &mut [f32]) {
    row(r, image, oy, y, |x| x, |v| v);
}

#[inline(always)]
fn row_u8(r: &Resize, image: &[u8], oy: usize, y: &mut [u8]) {
    let to = Quantizer::new(&Quantize::u8(1.0, 0, Rounding::Div));
    row(r, image, oy, y, f32::from, |v| to.round(v));
}

versions! {
    fn row_f32_on(r: &Resize, image: &[f32], oy: usize, y: &mut [f32]) => row_f32
}

versions! {
    fn row_u8_on(r: &Resize, image: &[u8], oy: usize, y: &mut [u8]) => row_u8
}

impl Resize {
    /// `n` images of `c` channels, their rows and columns by the tables.
    pub fn new(isa: Isa, n: usize, c: usize, rows: AxisTable, cols: AxisTable) -> Resize {
        Resize { isa, n, c, pick: rows.is_pick() && cols.is_pick(), rows, cols }
    }

    /// Of floats: `y [n, rows.out(), cols.out(), c]`.
    ///
    /// # Errors
    /// Slices of another length.
    pub fn run_f32(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
        self.run(pool, x, y, |image, oy, y| row_f32_on(self.isa, self, image, oy, y))
    }

    /// Of bytes, which keep their scale and zero point.
    ///
    /// # Errors
    /// Slices of another length.
    pub fn run_u8(&self, pool: &ThreadPool, x: &[u8], y: &mut [u8]) -> Result<(), KernelError> {
        self.run(pool, x, y, |image, oy, y| row_u8_on(self.isa, self, image, oy, y))
    }

    fn run<T: Copy + Send + Sync>(
        &self,
        pool: &ThreadPool,
        x: &[T],
        y: &mut [T],
        f: impl Fn(&[T], usize, &mut [T]) + Sync,
    ) -> Result<(), KernelError> {
        let image = self.rows.size * self.cols.size * self.c;
        let (oh, width) = (self.rows.out(), self.cols.out() * self.c);
        KernelError::exactly("input of a resize", self.n * image, x.len())?;
        KernelError::exactly("output of a resize", self.n * oh * width, y.len())?;
        if width == 0 {
            return Ok(());
        }
        split_rows(pool, y, self.n * oh, width, &|range, y| {
            for (row, y) in range.zip(y.chunks_exact_mut(width)) {
                f(&x[row / oh * image..][..image], row % oh, y);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
