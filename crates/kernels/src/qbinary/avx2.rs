//! Gates in fixed point, 32 bytes at a time.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use super::gate::{Gate, Operands};
use crate::{Isa, Level};
use std::arch::x86_64::*;

/// A product with a gate whose operands stand in the order of unpacks; `a` and `y` are of one length, at most theirs. Gives
/// how many elements were done: whole vectors.
pub(super) fn gate(isa: Isa, g: &Gate, a: &[u8], o: &Operands, y: &mut [u8]) -> usize {
    assert!(isa.level() >= Level::Avx2 && a.len() == y.len() && a.len() <= o.gates.len());
    // SAFETY: the token proves the features; the operands are multiples of 64.
    unsafe { gate_avx2(g, a, o, y) }
}

#[target_feature(enable = "avx2")]
unsafe fn gate_avx2(g: &Gate, a: &[u8], o: &Operands, y: &mut [u8]) -> usize {
    let (qmin, qmax) = (_mm256_set1_epi8(g.y.qmin as i8), _mm256_set1_epi8(g.y.qmax as i8));
    let (zero, bits) = (_mm256_setzero_si256(), _mm_cvtsi32_si128(g.bits as i32));
    let whole = a.len() / 32 * 32;
    for start in (0..whole).step_by(32) {
        // A block of 64 has the operands of all low halves, then of all high ones.
        let at = start / 64 * 64 + start % 64 / 2;
        // SAFETY: whole vectors of bytes; operands are whole blocks.
        unsafe {
            let x = _mm256_loadu_si256(a.as_ptr().add(start).cast());
            let (gates, fixed) = (o.gates.as_ptr().add(at), o.fixed.as_ptr().add(at));
            let low = _mm256_mulhi_epu16(_mm256_unpacklo_epi8(zero, x), _mm256_loadu_si256(gates.cast()));
            let high = _mm256_mulhi_epu16(_mm256_unpackhi_epi8(zero, x), _mm256_loadu_si256(gates.add(32).cast()));
            let low = _mm256_sra_epi16(_mm256_adds_epi16(low, _mm256_loadu_si256(fixed.cast())), bits);
            let high = _mm256_sra_epi16(_mm256_adds_epi16(high, _mm256_loadu_si256(fixed.add(32).cast())), bits);
            let q = _mm256_max_epu8(_mm256_min_epu8(_mm256_packus_epi16(low, high), qmax), qmin);
            _mm256_storeu_si256(y.as_mut_ptr().add(start).cast(), q);
        }
    }
    whole
}
