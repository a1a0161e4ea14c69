//! Transposition of the last two of three axes, in blocks that stay in L1, with a conversion on the way.

use super::{Dequantize, dequantize_slice};
use crate::pointwise::{Quantize, quantize_slice};
use crate::share::{row_part, tasks};
use crate::versions::versions;
use crate::{Isa, KernelError, Level, SharedMut, ThreadPool};

/// Side of a block.
const BLOCK: usize = 32;
/// Columns that are interleaved at once.
const RUN: usize = 256;

/// `x [rows, cols]`: columns `cols.0..cols.1`, given transposed in `y [cols.1 - cols.0, rows]`; `convert` does a run.
#[inline(always)]
fn transpose_body<T: Copy, U: Copy + Default>(
    x: &[T],
    rows: usize,
    cols: usize,
    part: (usize, usize),
    y: &mut [U],
    convert: impl Fn(&[T], &mut [U]),
) {
    match rows {
        2 => return interleave::<T, U, 2>(x, cols, part, y, convert),
        3 => return interleave::<T, U, 3>(x, cols, part, y, convert),
        4 => return interleave::<T, U, 4>(x, cols, part, y, convert),
        _ => {}
    }
    if part == (0, cols) && cols <= BLOCK {
        return deinterleave(x, rows, cols, y, convert);
    }
    let mut block = [[U::default(); BLOCK]; BLOCK];
    for c0 in (part.0..part.1).step_by(BLOCK) {
        let width = BLOCK.min(part.1 - c0);
        for r0 in (0..rows).step_by(BLOCK) {
            let height = BLOCK.min(rows - r0);
            for (r, line) in block[..height].iter_mut().enumerate() {
                let start = (r0 + r) * cols + c0;
                convert(&x[start..start + width], &mut line[..width]);
            }
            for c in 0..width {
                let start = (c0 + c - part.0) * rows + r0;
                let to = &mut y[start..start + height];
                to.iter_mut().zip(&block[..height]).for_each(|(to, line)| *to = line[c]);
            }
        }
    }
}

/// The same for all of a few columns: pixels that become planes.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "strided reads of a small block")]
fn deinterleave<T: Copy, U: Copy + Default>(
    x: &[T],
    rows: usize,
    cols: usize,
    y: &mut [U],
    convert: impl Fn(&[T], &mut [U]),
) {
    let mut block = [U::default(); BLOCK * BLOCK];
    let step = BLOCK * BLOCK / cols.max(1);
    for r0 in (0..rows).step_by(step) {
        let height = step.min(rows - r0);
        let n = height * cols;
        convert(&x[r0 * cols..][..n], &mut block[..n]);
        for c in 0..cols {
            let to = &mut y[c * rows + r0..][..height];
            for r in 0..height {
                to[r] = block[r * cols + c];
            }
        }
    }
}

/// The same for a few rows: the planes of an image.
#[inline(always)]
fn interleave<T: Copy, U: Copy + Default, const R: usize>(
    x: &[T],
    cols: usize,
    part: (usize, usize),
    y: &mut [U],
    convert: impl Fn(&[T], &mut [U]),
) {
    let mut block = [[U::default(); RUN]; R];
    for (run, y) in y.chunks_mut(RUN * R).enumerate() {
        let (c0, width) = (part.0 + run * RUN, y.len() / R);
        for (r, line) in block.iter_mut().enumerate() {
            convert(&x[r * cols + c0..][..width], &mut line[..width]);
        }
        for (c, y) in y.as_chunks_mut::<R>().0.iter_mut().enumerate() {
            *y = std::array::from_fn(|r| block[r][c]);
        }
    }
}

#[inline(always)]
fn quantized(q: &Quantize, x: &[f32], rows: usize, cols: usize, part: (usize, usize), y: &mut [u8]) {
    transpose_body(x, rows, cols, part, y, |x, y| quantize_slice(q, x, y));
}

#[inline(always)]
fn dequantized(q: &Dequantize, x: &[u8], rows: usize, cols: usize, part: (usize, usize), y: &mut [f32]) {
    transpose_body(x, rows, cols, part, y, |x, y| dequantize_slice(q, x, y));
}

versions! {
    fn quantized_on(q: &Quantize, x: &[f32], rows: usize, cols: usize, part: (usize, usize), y: &mut [u8]) => quantized
}

versions! {
    fn dequantized_on(q: &Dequantize, x: &[u8], rows: usize, cols: usize, part: (usize, usize), y: &mut [f32])
        => dequantized
}

/// Fills the transposed columns `part` of one matrix.
type Fill<'a, T, U> = &'a (dyn Fn(&[T], (usize, usize), &mut [U]) + Sync);

/// Splits `[batch, rows, cols]` over the pool by columns.
fn run<T: Sync, U: Send>(
    pool: &ThreadPool,
    dims: [usize; 3],
    x: &[T],
    y: &mut [U],
    f: Fill<'_, T, U>,
) -> Result<(), KernelError> {
    let [batch, rows, cols] = dims;
    KernelError::exactly("input of a transposition", batch * rows * cols, x.len())?;
    KernelError::exactly("output of a transposition", x.len(), y.len())?;
    let matrix = rows * cols;
    let tasks = tasks(pool, x.len(), cols);
    let y = SharedMut::new(y);
    pool.run(tasks, &|task| {
        let part = (task * cols / tasks, (task + 1) * cols / tasks);
        for b in 0..batch {
            let to = b * matrix + part.0 * rows..b * matrix + part.1 * rows;
            f(&x[b * matrix..(b + 1) * matrix], part, row_part(&y, to));
        }
    });
    Ok(())
}

/// `y[b, c, r] = x[b, r, c]` for `x` of shape `dims = [batch, rows, cols]`.
///
/// # Errors
/// Slices that do not have `dims`' length.
pub fn transpose<T: Copy + Default + Send + Sync>(
    pool: &ThreadPool,
    dims: [usize; 3],
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    run(pool, dims, x, y, &|x, part, y| transpose_body(x, dims[1], dims[2], part, y, |x, y| y.copy_from_slice(x)))
}

/// `[n, c, pixels]` to `[n, pixels, c]`.
///
/// # Errors
/// Slices of another length.
pub fn nchw_to_nhwc<T: Copy + Default + Send + Sync>(
    pool: &ThreadPool,
    n: usize,
    c: usize,
    pixels: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    transpose(pool, [n, c, pixels], x, y)
}

/// `[n, pixels, c]` to `[n, c, pixels]`.
///
/// # Errors
/// Slices of another length.
pub fn nhwc_to_nchw<T: Copy + Default + Send + Sync>(
    pool: &ThreadPool,
    n: usize,
    c: usize,
    pixels: usize,
    x: &[T],
    y: &mut [T],
) -> Result<(), KernelError> {
    transpose(pool, [n, pixels, c], x, y)
}

/// f32 `[n, c, pixels]` to u8 `[n, pixels, c]`; `dims = [n, c, pixels]`.
///
/// # Errors
/// Slices of another length, or a quantization outside u8.
pub fn quantize_from_nchw(
    isa: Isa,
    pool: &ThreadPool,
    q: &Quantize,
    dims: [usize; 3],
    x: &[f32],
    y: &mut [u8],
) -> Result<(), KernelError> {
    q.check()?;
    run(pool, dims, x, y, &|x, part, y| match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 if dims[1] == 3 => super::avx512::interleave(isa, q, x, dims[2], part.0, y),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni if dims[1] == 3 => super::avx2::interleave(isa, q, x, dims[2], part.0, y),
        _ => quantized_on(isa, q, x, dims[1], dims[2], part, y),
    })
}

/// u8 `[n, pixels, c]` to f32 `[n, c, pixels]`; `dims = [n, c, pixels]`.
///
/// # Errors
/// Slices of another length.
pub fn dequantize_to_nchw(
    isa: Isa,
    pool: &ThreadPool,
    q: &Dequantize,
    dims: [usize; 3],
    x: &[u8],
    y: &mut [f32],
) -> Result<(), KernelError> {
    let [n, c, pixels] = dims;
    run(pool, [n, pixels, c], x, y, &|x, part, y| dequantized_on(isa, q, x, pixels, c, part, y))
}
