//! What kernels of 64 bytes at a time share.
#![allow(unsafe_code, reason = "intrinsics of an instruction set that the caller enables")]

use std::arch::x86_64::*;

/// Bits of the first `n` of 64 lanes; all where there are more.
#[inline(always)]
pub(crate) fn ones(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// 2²³: a byte in the low bits of its significand makes the float `SHIFT + byte`, exactly.
pub(crate) const SHIFT: f32 = 8_388_608.0;

/// `SHIFT + x` of 64 bytes, interleaved within 128-bit lanes as packs undo it.
///
/// # Safety
/// AVX-512 F and BW are enabled in the caller, which this is inlined into.
#[inline(always)]
pub(crate) unsafe fn shifted(x: __m512i) -> [__m512; 4] {
    // SAFETY: by the caller's promise.
    unsafe {
        let (zero, high) = (_mm512_setzero_si512(), _mm512_set1_epi16(0x4b00));
        let (a, b) = (_mm512_unpacklo_epi8(x, zero), _mm512_unpackhi_epi8(x, zero));
        [
            _mm512_castsi512_ps(_mm512_unpacklo_epi16(a, high)),
            _mm512_castsi512_ps(_mm512_unpackhi_epi16(a, high)),
            _mm512_castsi512_ps(_mm512_unpacklo_epi16(b, high)),
            _mm512_castsi512_ps(_mm512_unpackhi_epi16(b, high)),
        ]
    }
}
