//! 64 bytes at a time. A byte in the low bits of 2²³'s significand is a float: neither widening nor conversion is needed.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::gate::{Gate, Operands};
use super::{Formula, QBinary};
use crate::bytes512::{SHIFT, ones, shifted};
use crate::{Isa, Level};
use cleave_numerics::{QProduct, QSum};
use std::arch::x86_64::*;

/// Slices of one length.
pub(super) fn binary(isa: Isa, one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    assert!(isa.level() == Level::Avx512 && a.len() == b.len() && a.len() == y.len());
    // SAFETY: the token proves the features; the lengths are equal.
    unsafe {
        match one.formula {
            Formula::Sum(s) => sum(&s, one, a, b, y),
            Formula::Product(p) => product(&p, one, a, b, y),
        }
    }
}

/// `clamp(rne(v))` as bytes.
#[inline(always)]
unsafe fn rounded(v: [__m512; 4], one: &QBinary) -> __m512i {
    // SAFETY: the caller enables the features.
    unsafe {
        // The bound is an integer: rounding does not pass it. Downwards the conversion saturates.
        let top = _mm512_set1_ps(one.y.qmax as f32);
        let mut q = [_mm512_setzero_si512(); 4];
        for i in 0..4 {
            q[i] = _mm512_cvtps_epi32(_mm512_min_ps(v[i], top));
        }
        let q = _mm512_packus_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
        _mm512_max_epu8(q, _mm512_set1_epi8(one.y.qmin as i8))
    }
}

macro_rules! by_64 {
    ($a:ident, $b:ident, $y:ident, |$x:ident, $z:ident| $body:expr) => {
        for start in (0..$a.len()).step_by(64) {
            let mask = ones($a.len() - start);
            let $x = _mm512_maskz_loadu_epi8(mask, $a.as_ptr().add(start).cast());
            let $z = _mm512_maskz_loadu_epi8(mask, $b.as_ptr().add(start).cast());
            let q = $body;
            _mm512_mask_storeu_epi8($y.as_mut_ptr().add(start).cast(), mask, q);
        }
    };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn product(p: &QProduct, one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    let za = _mm512_set1_ps(SHIFT + p.zeros[0] as f32);
    let zb = _mm512_set1_ps(SHIFT + p.zeros[1] as f32);
    let (m, zero) = (_mm512_set1_ps(p.m), _mm512_set1_ps(p.zero_point));
    // SAFETY: masked by the lengths.
    unsafe {
        by_64!(a, b, y, |x, z| {
            let (x, z) = (shifted(x), shifted(z));
            let mut v = x;
            for i in 0..4 {
                // Both factors have at most nine bits: their product is exact.
                let p = _mm512_mul_ps(_mm512_sub_ps(x[i], za), _mm512_sub_ps(z[i], zb));
                v[i] = _mm512_add_ps(_mm512_mul_ps(p, m), zero);
            }
            rounded(v, one)
        });
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn sum(s: &QSum, one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    let shift = _mm512_set1_ps(SHIFT);
    let (ra, rb, fixed) = (_mm512_set1_ps(s.ra), _mm512_set1_ps(s.rb), _mm512_set1_ps(s.fixed));
    // SAFETY: masked by the lengths.
    unsafe {
        by_64!(a, b, y, |x, z| {
            let (x, z) = (shifted(x), shifted(z));
            let mut v = x;
            for i in 0..4 {
                let rest = _mm512_fmadd_ps(_mm512_sub_ps(z[i], shift), rb, fixed);
                v[i] = _mm512_fmadd_ps(_mm512_sub_ps(x[i], shift), ra, rest);
            }
            rounded(v, one)
        });
    }
}

/// A product with a gate whose operands stand in the order of unpacks; `a` and `y` are of one length.
pub(super) fn gate(isa: Isa, g: &Gate, a: &[u8], o: &Operands, y: &mut [u8]) {
    assert!(isa.level() == Level::Avx512 && a.len() == y.len());
    assert!(0 < o.period && o.period <= o.gates.len());
    // SAFETY: the token proves the features; the operands are multiples of 64.
    unsafe { gate_avx512(g, a, o, y) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn gate_avx512(g: &Gate, a: &[u8], o: &Operands, y: &mut [u8]) {
    let (qmin, qmax) = (_mm512_set1_epi8(g.y.qmin as i8), _mm512_set1_epi8(g.y.qmax as i8));
    let (zero, bits) = (_mm512_setzero_si512(), _mm_cvtsi32_si128(g.bits as i32));
    for first in (0..a.len()).step_by(o.period) {
        for at in (0..(a.len() - first).min(o.period)).step_by(64) {
            let (start, mask) = (first + at, ones((a.len() - first).min(o.period) - at));
            // SAFETY: bytes are masked by the length; operands are whole blocks, and so is where they end.
            unsafe {
                let x = _mm512_maskz_loadu_epi8(mask, a.as_ptr().add(start).cast());
                let (gates, fixed) = (o.gates.as_ptr().add(at), o.fixed.as_ptr().add(at));
                let low = _mm512_mulhi_epu16(_mm512_unpacklo_epi8(zero, x), _mm512_loadu_si512(gates.cast()));
                let high = _mm512_mulhi_epu16(_mm512_unpackhi_epi8(zero, x), _mm512_loadu_si512(gates.add(32).cast()));
                let low = _mm512_sra_epi16(_mm512_adds_epi16(low, _mm512_loadu_si512(fixed.cast())), bits);
                let high = _mm512_sra_epi16(_mm512_adds_epi16(high, _mm512_loadu_si512(fixed.add(32).cast())), bits);
                let q = _mm512_max_epu8(_mm512_min_epu8(_mm512_packus_epi16(low, high), qmax), qmin);
                _mm512_mask_storeu_epi8(y.as_mut_ptr().add(start).cast(), mask, q);
            }
        }
    }
}
