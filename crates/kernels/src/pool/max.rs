//! The greatest tap of each window.

use super::window::{PoolShape, Window, sliding};
use super::{Part, Pixel, Windows, each_block};
use crate::versions::versions;
use crate::{Isa, KernelError, Level, ThreadPool};

/// A max pooling. Padding never wins; a float window with a NaN gives NaN.
#[derive(Clone, Debug)]
pub struct MaxPool {
    isa: Isa,
    windows: Windows,
}

/// One output row of one image: which rows it sees, and the windows along it.
pub(super) struct Row<'a, T> {
    pub(super) image: &'a [T],
    pub(super) w: usize,
    pub(super) c: usize,
    /// The first channel.
    pub(super) first: usize,
    pub(super) rows: Window,
    pub(super) cols: &'a [Window],
}

impl<T> Row<'_, T> {
    /// Where the channels of its last column end.
    pub(super) fn end(&self, channels: usize) -> usize {
        match self.rows.count() {
            0 => 0,
            rows => ((self.rows.tap(rows - 1) + 1) * self.w - 1) * self.c + self.first + channels,
        }
    }

    fn pixel(&self, column: usize) -> Pixel<'_, T> {
        let Row { image, w, c, first, rows, .. } = *self;
        Pixel { image, w, c, first, rows, cols: self.cols[column] }
    }
}

/// Calls `f` with the channels of each tap, from `p.first + at` on.
#[inline(always)]
fn each_tap<T, const N: usize>(p: &Pixel<'_, T>, at: usize, mut f: impl FnMut(&[T])) {
    for row in 0..p.rows.count() {
        let line = p.rows.tap(row) * p.w;
        for col in 0..p.cols.count() {
            f(&p.image[(line + p.cols.tap(col)) * p.c + p.first + at..][..N]);
        }
    }
}

/// `N` channels, in registers.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
fn block_u8<const N: usize>(p: &Pixel<'_, u8>, at: usize, y: &mut [u8]) {
    let mut most = [0; N];
    each_tap::<_, N>(p, at, |x| {
        for i in 0..N {
            most[i] = most[i].max(x[i]);
        }
    });
    y[at..at + N].copy_from_slice(&most);
}

/// [`block_u8`]; NaNs are counted beside: a comparison that knows them would keep the greatest ones in memory.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
fn block_f32<const N: usize>(p: &Pixel<'_, f32>, at: usize, y: &mut [f32]) {
    let (mut most, mut nans) = ([f32::NEG_INFINITY; N], [0u32; N]);
    each_tap::<_, N>(p, at, |x| {
        for i in 0..N {
            most[i] = if x[i] > most[i] { x[i] } else { most[i] };
            nans[i] |= u32::from(x[i].is_nan());
        }
    });
    let y = &mut y[at..at + N];
    for i in 0..N {
        y[i] = if nans[i] == 0 { most[i] } else { f32::NAN };
    }
}

#[inline(always)]
fn greatest_u8(p: &Pixel<'_, u8>, y: &mut [u8]) {
    each_block!(y.len(), |at, N| block_u8::<N>(p, at, y));
}

#[inline(always)]
fn greatest_f32(p: &Pixel<'_, f32>, y: &mut [f32]) {
    each_block!(y.len(), |at, N| block_f32::<N>(p, at, y));
}

versions! {
    fn greatest_u8_in(p: &Pixel<'_, u8>, y: &mut [u8]) => greatest_u8
}

fn greatest_u8_on(isa: Isa, p: &Pixel<'_, u8>, y: &mut [u8]) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni if y.len() >= super::avx2::BYTES => super::avx2::greatest(isa, p, y),
        _ => greatest_u8_in(isa, p, y),
    }
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
        #[cfg(target_arch = "x86_64")]
        if self.isa.level() == Level::Avx512 && self.windows.cols.iter().all(|w| w.reach() <= super::avx512::COLUMNS) {
            return self.run(pool, x, y, stride, |r, n, part| super::avx512::greatest(self.isa, r, n, part));
        }
        self.run(pool, x, y, stride, |r, _, part| {
            (0..r.cols.len()).for_each(|ox| greatest_u8_on(self.isa, &r.pixel(ox), part(ox)));
        })
    }

    /// Of floats; `stride` elements of `y` from pixel to pixel, at least `c`.
    ///
    /// # Errors
    /// A slice that is too short, or a stride below `c`.
    pub fn run_f32(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32], stride: usize) -> Result<(), KernelError> {
        self.run(pool, x, y, stride, |r, _, part| {
            (0..r.cols.len()).for_each(|ox| greatest_f32_on(self.isa, &r.pixel(ox), part(ox)));
        })
    }

    fn run<T: Copy + Send + Sync>(
        &self,
        pool: &ThreadPool,
        x: &[T],
        y: &mut [T],
        stride: usize,
        f: impl Fn(&Row<'_, T>, usize, Part<'_, T>) + Sync,
    ) -> Result<(), KernelError> {
        let g = &self.windows;
        g.check(x.len(), y.len(), stride)?;
        g.run(pool, y, stride, &|n, oy, channels, part| {
            let image = &x[n * g.h * g.w * g.c..];
            let row = Row { image, w: g.w, c: g.c, first: channels.start, rows: g.rows[oy], cols: &g.cols };
            f(&row, channels.len(), part);
        });
        Ok(())
    }
}
