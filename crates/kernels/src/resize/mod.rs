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
const LANES: usize = 64;

/// One output row of one image.
#[inline(always)]
fn row<T: Copy>(r: &Resize, image: &[T], oy: usize, y: &mut [T], load: impl Fn(T) -> f32, store: impl Fn(f32) -> T) {
    let (ys, wys) = r.rows.at(oy);
    let (w, c) = (r.cols.size, r.c);
    for (ox, y) in y.chunks_exact_mut(c).enumerate() {
        let (xs, wxs) = r.cols.at(ox);
        if r.pick {
            y.copy_from_slice(&image[(ys[0] * w + xs[0]) * c..][..c]);
            continue;
        }
        for (block, y) in y.chunks_mut(LANES).enumerate() {
            let mut total = [0.0f32; LANES];
            for (i, (iy, wy)) in ys.iter().zip(wys).enumerate() {
                let mut line = [0.0f32; LANES];
                for (j, (ix, wx)) in xs.iter().zip(wxs).enumerate() {
                    let from = &image[(iy * w + ix) * c + block * LANES..][..y.len()];
                    let pairs = line.iter_mut().zip(from);
                    // The first term is no sum, so that -0 stays.
                    if j == 0 {
                        pairs.for_each(|(l, x)| *l = wx * load(*x));
                    } else {
                        pairs.for_each(|(l, x)| *l += wx * load(*x));
                    }
                }
                let pairs = total.iter_mut().zip(line);
                if i == 0 {
                    pairs.for_each(|(t, l)| *t = wy * l);
                } else {
                    pairs.for_each(|(t, l)| *t += wy * l);
                }
            }
            y.iter_mut().zip(total).for_each(|(y, t)| *y = store(t));
        }
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
