//! The greatest of bytes, 64 channels at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use super::{LANES, Pixel};
use crate::bytes512::ones;
use crate::{Isa, Level};
use std::arch::x86_64::*;

/// The greatest tap of each channel.
pub(super) fn greatest(isa: Isa, p: &Pixel<'_, u8>, y: &mut [u8]) {
    assert!(isa.level() == Level::Avx512 && p.end(y.len()) <= p.image.len());
    // SAFETY: the token proves the features; the taps lie in the image.
    unsafe { greatest_avx512(p, y) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn greatest_avx512(p: &Pixel<'_, u8>, y: &mut [u8]) {
    let (rows, cols, step) = (p.rows.count(), p.cols.count(), p.cols.step * p.c);
    for at in (0..y.len()).step_by(LANES) {
        let mask = ones(y.len() - at);
        let mut most = _mm512_setzero_si512();
        for row in 0..rows {
            let first = (p.rows.tap(row) * p.w + p.cols.from) * p.c + p.first + at;
            for col in 0..cols {
                // SAFETY: the caller has checked the last tap; masked lanes are not touched.
                let x = unsafe { _mm512_maskz_loadu_epi8(mask, p.image.as_ptr().add(first + col * step).cast()) };
                most = _mm512_max_epu8(most, x);
            }
        }
        // SAFETY: the mask ends with the channels.
        unsafe { _mm512_mask_storeu_epi8(y.as_mut_ptr().add(at).cast(), mask, most) };
    }
}
