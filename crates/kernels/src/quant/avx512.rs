//! Three float planes to interleaved bytes, 64 pixels at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::bytes512::ones;
use crate::pointwise::{Quantize, Rounding};
use crate::{Isa, Level};
use cleave_numerics::reciprocal_per_tensor;
use std::arch::x86_64::*;

/// Pixels of one step.
const STEP: usize = 64;

/// Quantizes pixels of three planes of `plane` floats, from `first` on, to three bytes each.
pub(super) fn interleave(isa: Isa, q: &Quantize, x: &[f32], plane: usize, first: usize, y: &mut [u8]) {
    assert!(isa.level() == Level::Avx512 && x.len() == 3 * plane && first + y.len() / 3 <= plane);
    // SAFETY: the token proves the features; the planes have the pixels.
    unsafe { planes(q, x.as_ptr().add(first), plane, y) }
}

/// For each output vector, where its bytes' pixels stand among 64 that were packed within 128-bit lanes.
static PLACES: [[u8; 64]; 3] = {
    let mut all = [[0; 64]; 3];
    let mut byte = 0;
    while byte < 192 {
        let pixel = byte / 3;
        all[byte / 64][byte % 64] = (pixel / 4 % 4 * 16 + pixel / 16 * 4 + pixel % 4) as u8;
        byte += 1;
    }
    all
};

/// The bytes of each output vector that come from a plane.
const fn bytes_of(plane: usize, vector: usize) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < 64 {
        if (vector * 64 + i) % 3 == plane {
            mask |= 1 << i;
        }
        i += 1;
    }
    mask
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn planes(q: &Quantize, x: *const f32, plane: usize, y: &mut [u8]) {
    let (lo, hi) = ((q.qmin - q.zero_point) as f32, (q.qmax - q.zero_point) as f32);
    let (lo, hi, zero) = (_mm512_set1_ps(lo), _mm512_set1_ps(hi), _mm512_set1_epi16(q.zero_point as i16));
    let divides = q.rounding == Rounding::Div;
    let factor = _mm512_set1_ps(if divides { q.scale } else { reciprocal_per_tensor(q.scale) });
    for (step, y) in y.chunks_mut(3 * STEP).enumerate() {
        let left = y.len() / 3;
        let mut bytes = [_mm512_setzero_si512(); 3];
        for (r, bytes) in bytes.iter_mut().enumerate() {
            let mut v = [_mm512_setzero_si512(); 4];
            for (i, v) in v.iter_mut().enumerate() {
                // SAFETY: the mask has the pixels that are left.
                let x = unsafe {
                    let mask = ones(left.saturating_sub(16 * i)) as u16;
                    _mm512_maskz_loadu_ps(mask, x.wrapping_add(r * plane + step * STEP + 16 * i))
                };
                let x = if divides { _mm512_div_ps(x, factor) } else { _mm512_mul_ps(x, factor) };
                let x = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_ORD_Q>(x, x), x);
                // Bounds are integers: clamping before rounding is clamping after it.
                *v = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(x, lo), hi));
            }
            let low = _mm512_add_epi16(_mm512_packs_epi32(v[0], v[1]), zero);
            let high = _mm512_add_epi16(_mm512_packs_epi32(v[2], v[3]), zero);
            *bytes = _mm512_packus_epi16(low, high);
        }
        macro_rules! store {
            ($($k:literal)*) => {
                $(
                    // SAFETY: the table has 64 bytes; what is left of the output is masked.
                    unsafe {
                        let at = _mm512_loadu_si512(PLACES[$k].as_ptr().cast());
                        let out = _mm512_maskz_permutexvar_epi8(const { bytes_of(0, $k) }, at, bytes[0]);
                        let out = _mm512_mask_permutexvar_epi8(out, const { bytes_of(1, $k) }, at, bytes[1]);
                        let out = _mm512_mask_permutexvar_epi8(out, const { bytes_of(2, $k) }, at, bytes[2]);
                        let to = y.as_mut_ptr().wrapping_add(64 * $k);
                        _mm512_mask_storeu_epi8(to.cast(), ones(y.len().saturating_sub(64 * $k)), out);
                    }
                )*
            };
        }
        store!(0 1 2);
    }
}
