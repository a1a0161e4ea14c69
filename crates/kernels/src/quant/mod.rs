//! Between f32 and u8, and between NCHW and NHWC: one pass each.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod choose;
mod transpose;

#[cfg(test)]
mod tests;

pub use choose::choose;
pub use transpose::{dequantize_to_nchw, nchw_to_nhwc, nhwc_to_nchw, quantize_from_nchw, transpose};

use crate::pointwise::{Quantize, quantize_slice};
use crate::share::{split_rows, tasks};
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};
use std::sync::atomic::{AtomicBool, Ordering};

/// Scale and zero point of a u8 tensor that is read: `(f32(q) - zero_point) · scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dequantize {
    /// Step.
    pub scale: f32,
    /// The integer that means 0; 0..=255.
    pub zero_point: i32,
}

impl Dequantize {
    /// One value: `cleave_numerics::dequantize`.
    #[inline(always)]
    pub fn eval(&self, q: u8) -> f32 {
        (f32::from(q) - self.zero_point as f32) * self.scale
    }
}

versions! {
    fn quantize_on(q: &Quantize, x: &[f32], y: &mut [u8]) => quantize_slice
}

versions! {
    fn dequantize_on(q: &Dequantize, x: &[u8], y: &mut [f32]) => dequantize_slice
}

#[inline(always)]
fn dequantize_slice(q: &Dequantize, x: &[u8], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = q.eval(*x));
}

versions! {
    fn has_nan_on(x: &[f32], any: &mut bool) => has_nan_in
}

#[inline(always)]
fn has_nan_in(x: &[f32], any: &mut bool) {
    *any = x.chunks(4096).any(|c| c.iter().fold(false, |any, x| any | x.is_nan()));
}

/// Whether there is a NaN.
pub fn has_nan(isa: Isa, pool: &ThreadPool, x: &[f32]) -> bool {
    let (parts, found) = (tasks(pool, x.len(), pool.threads()), AtomicBool::new(false));
    pool.run(parts, &|i| {
        let mut any = false;
        has_nan_on(isa, &x[i * x.len() / parts..(i + 1) * x.len() / parts], &mut any);
        found.fetch_or(any, Ordering::Relaxed);
    });
    found.into_inner()
}

/// `y = quantize(x)`, see [`Quantize::eval`].
///
/// # Errors
/// Slices of different lengths, or a quantization outside u8.
pub fn quantize(isa: Isa, pool: &ThreadPool, q: &Quantize, x: &[f32], y: &mut [u8]) -> Result<(), KernelError> {
    q.check()?;
    KernelError::exactly("quantized tensor", x.len(), y.len())?;
    split_rows(pool, y, x.len(), 1, &|range, y| quantize_on(isa, q, &x[range], y));
    Ok(())
}

/// `y = dequantize(x)`, see [`Dequantize::eval`].
///
/// # Errors
/// Slices of different lengths.
pub fn dequantize(isa: Isa, pool: &ThreadPool, q: &Dequantize, x: &[u8], y: &mut [f32]) -> Result<(), KernelError> {
    KernelError::exactly("dequantized tensor", x.len(), y.len())?;
    split_rows(pool, y, x.len(), 1, &|range, y| dequantize_on(isa, q, &x[range], y));
    Ok(())
}
