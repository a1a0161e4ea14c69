//! The mean of each window.

use super::window::{PoolShape, Window, adaptive, sliding};
use super::{FEW, LANES, Pixel, Windows, each_block};
use crate::pointwise::{Quantize, Quantizer};
use crate::quant::Dequantize;
use crate::share::{row_part, tasks};
use crate::versions::versions;
use crate::{Isa, KernelError, SharedMut, ThreadPool};

/// An average pooling: sliding, adaptive or over the whole image.
#[derive(Clone, Debug)]
pub struct AvgPool {
    isa: Isa,
    windows: Windows,
    /// Whether padding counts in the divisor.
    padding: bool,
    /// A divisor that overrides the count.
    divisor: Option<usize>,
}

/// Taps that a float sum takes in before it is added to the total: keeps the error of long sums low.
const RUN: usize = 64;

#[inline(always)]
fn mean_f32(p: &Pixel<'_, f32>, divisor: usize, y: &mut [f32]) {
    for (block, y) in y.chunks_mut(LANES).enumerate() {
        let (mut total, mut part, mut taps) = ([0.0f32; LANES], [0.0f32; LANES], 0);
        for row in p.rows.taps() {
            for col in p.cols.taps() {
                let start = (row * p.w + col) * p.c + p.first + block * LANES;
                part[..y.len()].iter_mut().zip(&p.image[start..]).for_each(|(a, x)| *a += x);
                taps += 1;
                if taps % RUN == 0 {
                    total.iter_mut().zip(&mut part).for_each(|(t, a)| *t += std::mem::take(a));
                }
            }
        }
        let divisor = divisor as f32;
        y.iter_mut().zip(total.iter().zip(part)).for_each(|(y, (t, a))| *y = (t + a) / divisor);
    }
}

/// Taps whose bytes a u16 holds the sum of.
const SHORT: usize = 257;

/// Exact sums of the bytes of `N` channels, less `count · zero_point`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
fn sums<const N: usize>(p: &Pixel<'_, u8>, at: usize, zero_point: i32) -> [i32; N] {
    let (mut sum, mut short, mut taps) = ([0i32; N], [0u16; N], 0);
    for row in 0..p.rows.count() {
        let line = p.rows.tap(row) * p.w;
        for col in 0..p.cols.count() {
            let x = &p.image[(line + p.cols.tap(col)) * p.c + p.first + at..][..N];
            for i in 0..N {
                short[i] = short[i].wrapping_add(u16::from(x[i]));
            }
            taps += 1;
            if taps == SHORT {
                for i in 0..N {
                    sum[i] = sum[i].wrapping_add(i32::from(short[i]));
                }
                (short, taps) = ([0; N], 0);
            }
        }
    }
    let zero = (p.rows.count() * p.cols.count()) as i32 * zero_point;
    for i in 0..N {
        sum[i] = sum[i].wrapping_add(i32::from(short[i])).wrapping_sub(zero);
    }
    sum
}

/// Few channels whose pixels, so many beside each other, fill lines of 64 bytes: the same image with that many channels.
#[inline(always)]
fn widened<'a>(p: &Pixel<'a, u8>) -> Option<Pixel<'a, u8>> {
    let (line, len) = (p.w * p.c, p.cols.count() * p.c);
    let whole = LANES.is_multiple_of(p.c) && line.is_multiple_of(LANES) && len.is_multiple_of(LANES);
    let cols = Window { from: 0, to: len / LANES, step: 1, padded: 0 };
    let widened = Pixel { w: line / LANES, c: LANES, first: p.cols.from * p.c, cols, ..*p };
    (whole && p.c < LANES && p.cols.step == 1).then_some(widened)
}

/// What `f` makes of the sum of each channel.
#[inline(always)]
fn mean<T>(p: &Pixel<'_, u8>, zero_point: i32, y: &mut [T], f: impl Fn(i32) -> T + Copy) {
    if y.len() == p.c
        && let Some(wide) = widened(p)
    {
        let sums = sums::<LANES>(&wide, 0, zero_point);
        for channel in 0..p.c {
            let sum = sums[channel..].iter().step_by(p.c).fold(0i32, |a, x| a.wrapping_add(*x));
            y[channel] = f(sum);
        }
        return;
    }
    #[inline(always)]
    fn block<T, const N: usize>(p: &Pixel<'_, u8>, at: usize, zero: i32, y: &mut [T], f: impl Fn(i32) -> T) {
        let (y, sum) = (&mut y[at..at + N], sums::<N>(p, at, zero));
        for i in 0..N {
            y[i] = f(sum[i]);
        }
    }
    each_block!(y.len(), |at, N| block::<T, N>(p, at, zero_point, y, f));
}

#[inline(always)]
fn mean_u8(p: &Pixel<'_, u8>, zero_point: i32, m: f32, q: &Quantize, y: &mut [u8]) {
    let to = Quantizer::new(q);
    mean(p, zero_point, y, |sum| to.round(sum as f32 * m));
}

#[inline(always)]
fn mean_u8_f32(p: &Pixel<'_, u8>, zero_point: i32, m: f32, y: &mut [f32]) {
    mean(p, zero_point, y, |sum| sum as f32 * m);
}

/// Sums of bytes that threads leave to one of them, of as many channels and threads as there is room for.
const SUMS: usize = 8192;

#[inline(always)]
fn sums_of(p: &Pixel<'_, u8>, zero_point: i32, y: &mut [i32]) {
    mean(p, zero_point, y, |sum| sum);
}

#[inline(always)]
fn scaled_u8(sums: &[i32], m: f32, q: &Quantize, y: &mut [u8]) {
    let to = Quantizer::new(q);
    y.iter_mut().zip(sums).for_each(|(y, sum)| *y = to.round(*sum as f32 * m));
}

versions! {
    fn sums_on(p: &Pixel<'_, u8>, zero_point: i32, y: &mut [i32]) => sums_of
}

versions! {
    fn scaled_u8_on(sums: &[i32], m: f32, q: &Quantize, y: &mut [u8]) => scaled_u8
}

versions! {
    fn mean_f32_on(p: &Pixel<'_, f32>, divisor: usize, y: &mut [f32]) => mean_f32
}

versions! {
    fn mean_u8_on(p: &Pixel<'_, u8>, zero_point: i32, m: f32, q: &Quantize, y: &mut [u8]) => mean_u8
}

versions! {
    fn mean_u8_f32_on(p: &Pixel<'_, u8>, zero_point: i32, m: f32, y: &mut [f32]) => mean_u8_f32
}

impl AvgPool {
    /// Sliding windows; `count_padding` is torch's `count_include_pad`, `divisor` its `divisor_override`.
    ///
    /// # Errors
    /// A kernel, stride, dilation or divisor of 0, or a window over 2²³ taps.
    pub fn new(isa: Isa, s: &PoolShape, count_padding: bool, divisor: Option<usize>) -> Result<AvgPool, KernelError> {
        s.check()?;
        let axis =
            |i: usize, size| sliding(size, s.out[i], s.kernel[i], s.stride[i], [s.pad[i], s.pad[i + 2]], s.dilation[i]);
        let windows = Windows { n: s.n, h: s.h, w: s.w, c: s.c, rows: axis(0, s.h), cols: axis(1, s.w) };
        if divisor == Some(0) {
            return Err(KernelError::invalid("average pooling", "the divisor is 0"));
        }
        AvgPool { isa, windows, padding: count_padding, divisor }.checked()
    }

    /// torch's adaptive windows: `x [n, h, w, c]` to `out[0] × out[1]` pixels.
    ///
    /// # Errors
    /// A window over 2²³ taps.
    pub fn adaptive(isa: Isa, [n, h, w, c]: [usize; 4], out: [usize; 2]) -> Result<AvgPool, KernelError> {
        let windows = Windows { n, h, w, c, rows: adaptive(h, out[0]), cols: adaptive(w, out[1]) };
        AvgPool { isa, windows, padding: false, divisor: None }.checked()
    }

    /// The mean over each image: `x [n, h, w, c]` to `[n, c]`.
    ///
    /// # Errors
    /// An image over 2²³ pixels.
    pub fn global(isa: Isa, dims: [usize; 4]) -> Result<AvgPool, KernelError> {
        AvgPool::adaptive(isa, dims, [1, 1])
    }

    fn checked(self) -> Result<AvgPool, KernelError> {
        let most = |w: &[Window]| w.iter().map(Window::count).max().unwrap_or(0);
        let taps = most(&self.windows.rows) * most(&self.windows.cols);
        // Sums of bytes must fit an i32.
        if taps <= 1 << 23 {
            return Ok(self);
        }
        Err(KernelError::invalid("average pooling", format!("a window of {taps} taps, expected at most 2^23")))
    }

    /// Of floats; `stride` elements of `y` from pixel to pixel, at least `c`.
    ///
    /// # Errors
    /// A slice that is too short, or a stride below `c`.
    pub fn run_f32(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32], stride: usize) -> Result<(), KernelError> {
        self.run(pool, x, y, stride, |p, divisor, y| mean_f32_on(self.isa, p, divisor, y))
    }

    /// Of bytes, as bytes: see [the module](crate::pool) for the arithmetic (`y.rounding` makes no difference).
    ///
    /// # Errors
    /// A slice that is too short, a stride below `c`, or a quantization outside u8.
    pub fn run_u8(
        &self,
        pool: &ThreadPool,
        x: &[u8],
        from: &Dequantize,
        y: &mut [u8],
        to: &Quantize,
        stride: usize,
    ) -> Result<(), KernelError> {
        to.check()?;
        let m = |divisor: usize| from.scale / (to.scale * divisor as f32);
        if self.sums_by_row(pool, x, from.zero_point, y, stride, |sums, divisor, y| {
            scaled_u8_on(self.isa, sums, m(divisor), to, y);
        })? {
            return Ok(());
        }
        self.run(pool, x, y, stride, |p, divisor, y| mean_u8_on(self.isa, p, from.zero_point, m(divisor), to, y))
    }

    /// Of bytes, as floats.
    ///
    /// # Errors
    /// A slice that is too short, or a stride below `c`.
    pub fn run_u8_f32(
        &self,
        pool: &ThreadPool,
        x: &[u8],
        from: &Dequantize,
        y: &mut [f32],
        stride: usize,
    ) -> Result<(), KernelError> {
        let m = |divisor: usize| from.scale / divisor as f32;
        if self.sums_by_row(pool, x, from.zero_point, y, stride, |sums, divisor, y| {
            y.iter_mut().zip(sums).for_each(|(y, sum)| *y = *sum as f32 * m(divisor));
        })? {
            return Ok(());
        }
        self.run(pool, x, y, stride, |p, divisor, y| mean_u8_f32_on(self.isa, p, from.zero_point, m(divisor), y))
    }

    /// One window for each of a few images: threads share out its rows, as the kernel did whose results they are, so that
    /// none has to fetch what another one wrote. Sums of bytes are exact, however they are shared out. `f(sums, divisor,
    /// part of y)` follows for each image; false if the windows are others.
    fn sums_by_row<U: Send>(
        &self,
        pool: &ThreadPool,
        x: &[u8],
        zero_point: i32,
        y: &mut [U],
        stride: usize,
        f: impl Fn(&[i32], usize, &mut [U]),
    ) -> Result<bool, KernelError> {
        let g = &self.windows;
        g.check(x.len(), y.len(), stride)?;
        let ([rows], [cols]) = (&g.rows[..], &g.cols[..]) else { return Ok(false) };
        let (each, count) = (g.c.next_multiple_of(FEW), rows.count());
        let parts = tasks(pool, count * cols.count() * g.c, count).min(SUMS / each.max(1));
        if g.n >= pool.threads() || parts < 2 {
            return Ok(false);
        }
        for n in 0..g.n {
            let mut sums = [0; SUMS];
            let shared = SharedMut::new(&mut sums);
            pool.run(parts, &|part| {
                let share = |i: usize| rows.tap(i * count / parts);
                let own = Window { from: share(part), to: share(part + 1).min(rows.to), ..*rows };
                let image = &x[n * g.h * g.w * g.c..];
                let pixel = Pixel { image, w: g.w, c: g.c, first: 0, rows: own, cols: *cols };
                sums_on(self.isa, &pixel, zero_point, row_part(&shared, part * each..part * each + g.c));
            });
            let (first, others) = sums.split_at_mut(each);
            for other in others.chunks(each).take(parts - 1) {
                first.iter_mut().zip(other).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
            }
            f(&first[..g.c], self.divisor(rows, cols), &mut y[n * stride..][..g.c]);
        }
        Ok(true)
    }

    /// What the sum of a window is divided by.
    fn divisor(&self, rows: &Window, cols: &Window) -> usize {
        let counted = if self.padding { rows.padded * cols.padded } else { rows.count() * cols.count() };
        self.divisor.unwrap_or(counted)
    }

    fn run<T: Copy + Sync, U: Send>(
        &self,
        pool: &ThreadPool,
        x: &[T],
        y: &mut [U],
        stride: usize,
        f: impl Fn(&Pixel<'_, T>, usize, &mut [U]) + Sync,
    ) -> Result<(), KernelError> {
        let g = &self.windows;
        g.check(x.len(), y.len(), stride)?;
        g.run(pool, y, stride, &|n, oy, channels, part| {
            let (image, rows) = (&x[n * g.h * g.w * g.c..], g.rows[oy]);
            for (ox, cols) in g.cols.iter().copied().enumerate() {
                let pixel = Pixel { image, w: g.w, c: g.c, first: channels.start, rows, cols };
                f(&pixel, self.divisor(&rows, &cols), part(ox));
            }
        });
        Ok(())
    }
}
