//! Activations, 512 bits at a time.
#![allow(unsafe_code, reason = "intrinsics of an instruction set that the caller enables")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use crate::qconv::activation::{Curve, FIRST, Form, PIECES, SHIFT};
use std::arch::x86_64::*;

/// [`Activation::eval`](crate::qconv::Activation::eval) of each lane of each vector.
///
/// # Safety
/// AVX-512 is enabled in the caller, which this is inlined into.
#[inline(always)]
pub(in crate::qconv) unsafe fn activate<const N: usize>(form: &Form, v: &mut [__m512; N]) {
    // SAFETY: by the caller's promise.
    unsafe {
        match form {
            Form::HardSwish(factor) => {
                for i in 0..N {
                    // Zero where the comparison is not true, as in the definition.
                    let gate = _mm512_max_ps(_mm512_add_ps(v[i], _mm512_set1_ps(3.0)), _mm512_setzero_ps());
                    let gate = _mm512_min_ps(gate, _mm512_set1_ps(6.0));
                    v[i] = _mm512_mul_ps(_mm512_mul_ps(v[i], gate), _mm512_set1_ps(*factor));
                }
            }
            Form::Curve(c) => {
                for i in 0..N {
                    v[i] = curve(c, v[i]);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn curve(c: &Curve, v: __m512) -> __m512 {
    // SAFETY: the tables have 16 floats each, and their alignment.
    unsafe {
        let u = _mm512_abs_ps(v);
        let i = _mm512_sub_epi32(_mm512_srli_epi32::<SHIFT>(_mm512_castps_si512(u)), _mm512_set1_epi32(FIRST));
        let i = _mm512_max_epi32(_mm512_setzero_si512(), _mm512_min_epi32(i, _mm512_set1_epi32(PIECES as i32 - 1)));
        let p = _mm512_mul_ps(_mm512_permutexvar_ps(i, _mm512_load_ps(c.c2.as_ptr())), u);
        let p = _mm512_add_ps(p, _mm512_permutexvar_ps(i, _mm512_load_ps(c.c1.as_ptr())));
        let p = _mm512_add_ps(_mm512_mul_ps(p, u), _mm512_permutexvar_ps(i, _mm512_load_ps(c.c0.as_ptr())));
        _mm512_add_ps(_mm512_mul_ps(v, _mm512_set1_ps(c.half)), p)
    }
}
