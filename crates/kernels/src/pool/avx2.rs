//! The greatest of bytes, 32 channels at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::Pixel;
use crate::{Isa, Level};
use std::arch::x86_64::*;

/// Channels of a vector: the fewest that are taken.
pub(super) const BYTES: usize = 32;

/// The greatest tap of each channel, of [`BYTES`] at least.
pub(super) fn greatest(isa: Isa, p: &Pixel<'_, u8>, y: &mut [u8]) {
    assert!(isa.level() >= Level::Avx2 && y.len() >= BYTES && p.end(y.len()) <= p.image.len());
    // SAFETY: the token proves the features; the taps lie in the image.
    unsafe { greatest_avx2(p, y) }
}

#[target_feature(enable = "avx2")]
unsafe fn greatest_avx2(p: &Pixel<'_, u8>, y: &mut [u8]) {
    let mut at = 0;
    // SAFETY: as the caller's; the last block overlaps the one before.
    unsafe {
        while at + 4 * BYTES <= y.len() {
            block::<4>(p, at, y);
            at += 4 * BYTES;
        }
        if at + 2 * BYTES <= y.len() {
            block::<2>(p, at, y);
            at += 2 * BYTES;
        }
        while at < y.len() {
            block::<1>(p, at.min(y.len() - BYTES), y);
            at += BYTES;
        }
    }
}

/// `V` vectors of channels.
#[inline(always)]
unsafe fn block<const V: usize>(p: &Pixel<'_, u8>, at: usize, y: &mut [u8]) {
    let (rows, cols, step) = (p.rows.count(), p.cols.count(), p.cols.step * p.c);
    // SAFETY: the caller has checked the last tap of the last channel.
    unsafe {
        let mut most = [_mm256_setzero_si256(); V];
        for row in 0..rows {
            let mut x = p.image.as_ptr().wrapping_add((p.rows.tap(row) * p.w + p.cols.from) * p.c + p.first + at);
            for _ in 0..cols {
                for v in 0..V {
                    most[v] = _mm256_max_epu8(most[v], _mm256_loadu_si256(x.add(v * BYTES).cast()));
                }
                x = x.wrapping_add(step);
            }
        }
        for v in 0..V {
            _mm256_storeu_si256(y.as_mut_ptr().add(at + v * BYTES).cast(), most[v]);
        }
    }
}
