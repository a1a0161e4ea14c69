//! Three float planes to interleaved bytes, 32 pixels at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use crate::pointwise::{Quantize, Rounding};
use crate::{Isa, Level};
use cleave_numerics::reciprocal_per_tensor;
use std::arch::x86_64::*;

/// Pixels of one step.
const STEP: usize = 32;

/// Quantizes pixels of three planes of `plane` floats, from `first` on, to three bytes each.
pub(super) fn interleave(isa: Isa, q: &Quantize, x: &[f32], plane: usize, first: usize, y: &mut [u8]) {
    assert!(isa.level() >= Level::Avx2 && x.len() == 3 * plane && first + y.len() / 3 <= plane);
    // SAFETY: the token proves the features; the planes have the pixels.
    unsafe { planes(q, x.as_ptr().add(first), plane, y) }
}

/// For each output vector and plane, which of 16 pixels a byte is; 128 where it is of another plane.
static PLACES: [[[u8; 16]; 3]; 3] = {
    let mut all = [[[128; 16]; 3]; 3];
    let mut byte = 0;
    while byte < 48 {
        all[byte / 16][byte % 3][byte % 16] = (byte / 3) as u8;
        byte += 1;
    }
    all
};

#[target_feature(enable = "avx2")]
unsafe fn planes(q: &Quantize, x: *const f32, plane: usize, y: &mut [u8]) {
    let pixels = y.len() / 3;
    let whole = pixels / STEP * STEP;
    // SAFETY: the planes have the pixels; what is left of them is copied first.
    unsafe {
        for pixel in (0..whole).step_by(STEP) {
            step(q, x.add(pixel), plane, y.as_mut_ptr().add(3 * pixel));
        }
        if whole < pixels {
            let (mut rest, mut out) = ([0.0f32; 3 * STEP], [0u8; 3 * STEP]);
            for r in 0..3 {
                let from = x.add(r * plane + whole);
                std::ptr::copy_nonoverlapping(from, rest.as_mut_ptr().add(r * STEP), pixels - whole);
            }
            step(q, rest.as_ptr(), STEP, out.as_mut_ptr());
            y[3 * whole..].copy_from_slice(&out[..3 * (pixels - whole)]);
        }
    }
}

#[inline(always)]
unsafe fn step(q: &Quantize, x: *const f32, plane: usize, y: *mut u8) {
    // SAFETY: the caller enables the features; each plane has 32 pixels, and so has the output.
    unsafe {
        let (lo, hi) = ((q.qmin - q.zero_point) as f32, (q.qmax - q.zero_point) as f32);
        let (lo, hi, zero) = (_mm256_set1_ps(lo), _mm256_set1_ps(hi), _mm256_set1_epi16(q.zero_point as i16));
        let divides = q.rounding == Rounding::Div;
        let factor = _mm256_set1_ps(if divides { q.scale } else { reciprocal_per_tensor(q.scale) });
        let mut bytes = [_mm256_setzero_si256(); 3];
        for r in 0..3 {
            let mut v = [_mm256_setzero_si256(); 4];
            for i in 0..4 {
                let x = _mm256_loadu_ps(x.add(r * plane + 8 * i));
                let x = if divides { _mm256_div_ps(x, factor) } else { _mm256_mul_ps(x, factor) };
                // NaN counts as 0.
                let x = _mm256_and_ps(x, _mm256_cmp_ps::<_CMP_ORD_Q>(x, x));
                // Bounds are integers: clamping before rounding is clamping after it.
                v[i] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(x, lo), hi));
            }
            let low = _mm256_add_epi16(_mm256_packs_epi32(v[0], v[1]), zero);
            let high = _mm256_add_epi16(_mm256_packs_epi32(v[2], v[3]), zero);
            let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
            bytes[r] = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        }
        for k in 0..3 {
            let mut out = _mm256_setzero_si256();
            for r in 0..3 {
                let at = _mm256_broadcastsi128_si256(_mm_loadu_si128(PLACES[k][r].as_ptr().cast()));
                out = _mm256_or_si256(out, _mm256_shuffle_epi8(bytes[r], at));
            }
            _mm_storeu_si128(y.add(16 * k).cast(), _mm256_castsi256_si128(out));
            _mm_storeu_si128(y.add(48 + 16 * k).cast(), _mm256_extracti128_si256::<1>(out));
        }
    }
}
