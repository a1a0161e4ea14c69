//! Pooling over channels-last activations: maximum and average, of u8 and of f32.
//!
//! The average of bytes is exact until it is scaled: with the sum `S` of the taps inside the input, `count`
//! of them, and the divisor `d` (all taps if padding counts),
//! `f32(S - count · zx) · (sx / (sy · f32(d)))`, rounded, plus `zy`, clamped: what ONNX Runtime's
//! QLinearGlobalAveragePool computes. As f32 it is `f32(S - count · zx) · (sx / f32(d))`.
//! The average of floats sums the taps in order of row and column, then divides.

mod average;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod max;
mod window;

#[cfg(test)]
mod tests;

pub use average::AvgPool;
pub use max::MaxPool;
pub use window::PoolShape;

use crate::share::{row_part, tasks};
use crate::{KernelError, SharedMut, ThreadPool};
use window::Window;

/// Channels that are accumulated side by side.
const LANES: usize = 64;
/// The same where there are not so many.
const FEW: usize = 16;

/// Does something for each block of channels, of a size that is known to the compiler: 64, where there are so many, 16, or
/// each channel. The last block overlaps the one before. A closure would not have the caller's instruction set.
macro_rules! each_block {
    ($n:expr, |$at:ident, $size:ident| $do:expr) => {{
        let n = $n;
        if n >= super::LANES {
            const $size: usize = super::LANES;
            for block in 0..n.div_ceil($size) {
                let $at = (block * $size).min(n - $size);
                $do;
            }
        } else if n >= super::FEW {
            const $size: usize = super::FEW;
            for block in 0..n.div_ceil($size) {
                let $at = (block * $size).min(n - $size);
                $do;
            }
        } else {
            const $size: usize = 1;
            for $at in 0..n {
                $do;
            }
        }
    }};
}
use each_block;

/// One output pixel of one image: taps at `(row · w + col) · c + first + channel`.
#[derive(Clone, Copy)]
struct Pixel<'a, T> {
    image: &'a [T],
    w: usize,
    c: usize,
    first: usize,
    rows: Window,
    cols: Window,
}

impl<T> Pixel<'_, T> {
    /// Where the taps' channels end.
    fn end(&self, channels: usize) -> usize {
        match (self.rows.count(), self.cols.count()) {
            (0, _) | (_, 0) => 0,
            (r, c) => (self.rows.tap(r - 1) * self.w + self.cols.tap(c - 1)) * self.c + self.first + channels,
        }
    }
}

/// Windows of both axes over `[n, h, w, c]`.
#[derive(Clone, Debug)]
struct Windows {
    n: usize,
    h: usize,
    w: usize,
    c: usize,
    rows: Vec<Window>,
    cols: Vec<Window>,
}

impl Windows {
    fn in_len(&self) -> usize {
        self.n * self.h * self.w * self.c
    }

    /// Checks the lengths of a run.
    fn check(&self, x: usize, y: usize, stride: usize) -> Result<(), KernelError> {
        if stride < self.c {
            return Err(KernelError::invalid(
                "pooling",
                format!("{} channels do not fit a stride of {stride}", self.c),
            ));
        }
        let pixels = self.n * self.rows.len() * self.cols.len();
        KernelError::at_least("input of a pooling", self.in_len(), x)?;
        KernelError::at_least("output of a pooling", if pixels == 0 { 0 } else { (pixels - 1) * stride + self.c }, y)
    }

    /// Calls `f(image, row, channels, pixels)` for all output rows, split over the pool by rows or, where there are
    /// few of them, by channels. `pixels(column)` is the part of `y` to fill.
    fn run<T: Send>(&self, pool: &ThreadPool, y: &mut [T], stride: usize, f: &RowFn<'_, T>) {
        let (rows, ow) = (self.n * self.rows.len(), self.cols.len());
        let taps: usize = self.rows.iter().map(Window::count).sum::<usize>() * self.n;
        let work = taps * self.cols.iter().map(Window::count).sum::<usize>() * self.c;
        let y = SharedMut::new(y);
        let blocks = self.c.div_ceil(LANES);
        let by_rows = rows >= 2 * pool.threads() || rows >= blocks;
        let tasks = tasks(pool, work, if by_rows { rows } else { blocks });
        pool.run(tasks, &|task| {
            let share = |count: usize| task * count / tasks..(task + 1) * count / tasks;
            let (own_rows, own_blocks) = if by_rows { (share(rows), 0..blocks) } else { (0..rows, share(blocks)) };
            let channels = own_blocks.start * LANES..(own_blocks.end * LANES).min(self.c);
            for row in own_rows {
                let part = |ox: usize| {
                    let start = (row * ow + ox) * stride;
                    row_part(&y, start + channels.start..start + channels.end)
                };
                f(row / self.rows.len(), row % self.rows.len(), channels.clone(), &part);
            }
        });
    }
}

/// Where each column's channels go.
type Part<'a, T> = &'a dyn Fn(usize) -> &'a mut [T];

/// Computes one output row: image, row, channels, and where each column's channels go.
type RowFn<'a, T> = dyn for<'p> Fn(usize, usize, std::ops::Range<usize>, Part<'p, T>) + Sync + 'a;
