//! Bytes, 64 channels at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use super::average::SHORT;
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

/// What `f` makes of each channel's sum, less `count · zero_point`.
pub(super) fn mean<T>(isa: Isa, p: &Pixel<'_, u8>, zero_point: i32, y: &mut [T], f: impl Fn(i32) -> T) {
    assert!(isa.level() == Level::Avx512 && p.end(y.len()) <= p.image.len());
    let zero = (p.rows.count() * p.cols.count()) as i32 * zero_point;
    for (block, y) in y.chunks_mut(LANES).enumerate() {
        let mut sum = [0; LANES];
        // SAFETY: the token proves the features; the taps lie in the image.
        unsafe { sums(p, block * LANES, y.len(), &mut sum) };
        y.iter_mut().zip(sum).for_each(|(y, s)| *y = f(s.wrapping_sub(zero)));
    }
}

/// Sums of up to 64 channels.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn sums(p: &Pixel<'_, u8>, at: usize, n: usize, out: &mut [i32; LANES]) {
    let (rows, cols, step, mask) = (p.rows.count(), p.cols.count(), p.cols.step * p.c, ones(n));
    let mut short = [_mm512_setzero_si512(); 2];
    let mut taps = 0;
    for row in 0..rows {
        let first = (p.rows.tap(row) * p.w + p.cols.from) * p.c + p.first + at;
        for col in 0..cols {
            // SAFETY: the caller has checked the last tap; masked lanes are not touched.
            let x = unsafe { _mm512_maskz_loadu_epi8(mask, p.image.as_ptr().add(first + col * step).cast()) };
            let low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(x));
            let high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64::<1>(x));
            short = [_mm512_add_epi16(short[0], low), _mm512_add_epi16(short[1], high)];
            taps += 1;
            if taps == SHORT {
                // SAFETY: `out` has 64 sums.
                unsafe { flush(short, out) };
                (short, taps) = ([_mm512_setzero_si512(); 2], 0);
            }
        }
    }
    // SAFETY: as above.
    unsafe { flush(short, out) };
}

/// Adds 64 words to sums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn flush(short: [__m512i; 2], out: &mut [i32; LANES]) {
    let quarters = [
        _mm512_castsi512_si256(short[0]),
        _mm512_extracti64x4_epi64::<1>(short[0]),
        _mm512_castsi512_si256(short[1]),
        _mm512_extracti64x4_epi64::<1>(short[1]),
    ];
    for (i, words) in quarters.into_iter().enumerate() {
        // SAFETY: four times 16 sums.
        unsafe {
            let to = out.as_mut_ptr().add(16 * i);
            let sum = _mm512_add_epi32(_mm512_loadu_si512(to.cast()), _mm512_cvtepu16_epi32(words));
            _mm512_storeu_si512(to.cast(), sum);
        }
    }
}
