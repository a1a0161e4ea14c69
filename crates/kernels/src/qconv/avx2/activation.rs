//! Activations, 256 bits at a time.
#![allow(unsafe_code, reason = "intrinsics of an instruction set that the caller enables")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use crate::qconv::activation::{Curve, FRACTION_BITS, Form, MIDDLE, PIECE_BITS};
use crate::qconv::tile::Path;
use std::arch::x86_64::*;

/// What an activation does before values are rounded to words, in the order of `vpackssdw`; nothing by another path than
/// [`Path::Activation`]. The argument is one that an i32 holds. With [`after`] it is
/// [`Activation::eval`](crate::qconv::Activation::eval).
///
/// # Safety
/// AVX2 is enabled in the caller, which this is inlined into.
#[inline(always)]
pub(in crate::qconv) unsafe fn before<const PATH: u8>(form: Option<&Form>, x: [__m256; 2]) -> __m256i {
    // SAFETY: by the caller's promise.
    unsafe {
        match form {
            Some(Form::HardSwish(factor)) if PATH == Path::Activation as u8 => {
                rounded([hardswish(x[0], *factor), hardswish(x[1], *factor)])
            }
            _ => rounded(x),
        }
    }
}

/// What it does after that, of two vectors of words.
///
/// # Safety
/// As for [`before`].
#[inline(always)]
pub(in crate::qconv) unsafe fn after<const PATH: u8>(form: Option<&Form>, x: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: by the caller's promise.
    unsafe {
        match form {
            Some(Form::Curve(c)) if PATH == Path::Activation as u8 => curve(c, x),
            _ => x,
        }
    }
}

/// Two vectors of values as words in the order of `vpackssdw`.
#[inline(always)]
unsafe fn rounded(x: [__m256; 2]) -> __m256i {
    // SAFETY: as in `before`.
    unsafe { _mm256_packs_epi32(_mm256_cvtps_epi32(x[0]), _mm256_cvtps_epi32(x[1])) }
}

#[inline(always)]
unsafe fn hardswish(v: __m256, factor: f32) -> __m256 {
    // SAFETY: as in `before`. Zero where the comparison is not true, as in the definition.
    unsafe {
        let gate = _mm256_max_ps(_mm256_add_ps(v, _mm256_set1_ps(3.0)), _mm256_setzero_ps());
        let gate = _mm256_min_ps(gate, _mm256_set1_ps(6.0));
        _mm256_mul_ps(_mm256_mul_ps(v, gate), _mm256_set1_ps(factor))
    }
}

#[inline(always)]
unsafe fn curve(c: &Curve, x: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: as in `before`.
    unsafe {
        const PIECE: i32 = PIECE_BITS as i32;
        let pieces = _mm256_packus_epi16(_mm256_srli_epi16::<PIECE>(x[0]), _mm256_srli_epi16::<PIECE>(x[1]));
        let [b0, b1, r0, r1] = entries(c, pieces);
        // Unpacks undo the pack of the pieces.
        let base = [_mm256_unpacklo_epi8(b0, b1), _mm256_unpackhi_epi8(b0, b1)];
        let rise = [_mm256_unpacklo_epi8(r0, r1), _mm256_unpackhi_epi8(r0, r1)];
        let mut y = x;
        for i in 0..2 {
            let x = _mm256_xor_si256(x[i], _mm256_set1_epi16(MIDDLE));
            let t = _mm256_or_si256(_mm256_slli_epi16::<{ 16 - PIECE }>(x), _mm256_srli_epi16::<PIECE>(x));
            let line = _mm256_adds_epi16(base[i], _mm256_mulhrs_epi16(rise[i], t));
            y[i] = _mm256_srai_epi16::<{ FRACTION_BITS as i32 }>(line);
        }
        y
    }
}

/// The bytes of 32 pieces: low and high of the base, low and high of the rise.
#[inline(always)]
unsafe fn entries(c: &Curve, pieces: __m256i) -> [__m256i; 4] {
    // SAFETY: each table has 64 bytes.
    unsafe {
        // A shuffle gives zero where its index has the highest bit: that of pieces outside a quarter of the table.
        let beyond = _mm256_set1_epi8(0x70);
        let mut at = [pieces; 4];
        for quarter in 0..4 {
            at[quarter] = _mm256_add_epi8(_mm256_xor_si256(pieces, _mm256_set1_epi8(16 * quarter as i8)), beyond);
        }
        let mut found = [pieces; 4];
        for part in 0..4 {
            let table = c.bytes[part].as_ptr();
            let mut of = [pieces; 4];
            for quarter in 0..4 {
                let entries = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16 * quarter).cast()));
                of[quarter] = _mm256_shuffle_epi8(entries, at[quarter]);
            }
            found[part] = _mm256_or_si256(_mm256_or_si256(of[0], of[1]), _mm256_or_si256(of[2], of[3]));
        }
        found
    }
}
