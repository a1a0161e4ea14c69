//! Activations, 512 bits at a time.
//!
//! A closure has not the instruction set of the function that it stands in, so there is none here.
#![allow(unsafe_code, reason = "intrinsics of an instruction set that the caller enables")]

use crate::qconv::activation::{Curve, FRACTION_BITS, Form, MIDDLE, PIECE_BITS};
use std::arch::x86_64::*;

/// [`Activation::eval`](crate::qconv::Activation::eval) of each lane of two vectors, rounded, with the zero point: words in
/// the order of `vpackssdw`. The argument is one that an i32 holds. A curve has the zero point in its table.
///
/// # Safety
/// AVX-512 is enabled in the caller, which this is inlined into.
#[inline(always)]
pub(in crate::qconv) unsafe fn levels(form: &Form, v: [__m512; 2], zero: __m512i) -> __m512i {
    // SAFETY: by the caller's promise.
    unsafe {
        match form {
            Form::HardSwish(factor) => {
                _mm512_adds_epi16(rounded_words([hardswish(v[0], *factor), hardswish(v[1], *factor)]), zero)
            }
            Form::Curve(c) => curve(c, rounded_words(v)),
        }
    }
}

/// Two vectors of values as words in the order of `vpackssdw`.
#[inline(always)]
pub(super) unsafe fn rounded_words(v: [__m512; 2]) -> __m512i {
    // SAFETY: as in `levels`.
    unsafe { _mm512_packs_epi32(_mm512_cvtps_epi32(v[0]), _mm512_cvtps_epi32(v[1])) }
}

#[inline(always)]
unsafe fn hardswish(v: __m512, factor: f32) -> __m512 {
    // SAFETY: as in `levels`. Zero where the comparison is not true, as in the definition.
    unsafe {
        let gate = _mm512_max_ps(_mm512_add_ps(v, _mm512_set1_ps(3.0)), _mm512_setzero_ps());
        let gate = _mm512_min_ps(gate, _mm512_set1_ps(6.0));
        _mm512_mul_ps(_mm512_mul_ps(v, gate), _mm512_set1_ps(factor))
    }
}

#[inline(always)]
unsafe fn curve(c: &Curve, x: __m512i) -> __m512i {
    // SAFETY: the tables have 64 words each, and their alignment. Of an index six bits count.
    unsafe {
        let x = _mm512_xor_si512(x, _mm512_set1_epi16(MIDDLE));
        let t = _mm512_shldi_epi16::<{ 16 - PIECE_BITS as i32 }>(x, x);
        let rise = _mm512_mulhrs_epi16(entries(c.rise.as_ptr(), t), t);
        _mm512_srai_epi16::<FRACTION_BITS>(_mm512_adds_epi16(entries(c.base.as_ptr(), t), rise))
    }
}

/// Entries of a table.
#[inline(always)]
unsafe fn entries(table: *const i16, at: __m512i) -> __m512i {
    // SAFETY: as in `curve`.
    unsafe { _mm512_permutex2var_epi16(_mm512_load_si512(table.cast()), at, _mm512_load_si512(table.add(32).cast())) }
}
