//! The loops: as many chains as hide the latency of an instruction.
#![allow(unsafe_code, reason = "functions of an instruction set, called with its token")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use crate::isa::takes_evex;
use crate::{Isa, Level};
use std::arch::x86_64::*;
use std::hint::black_box;

const CHAINS: usize = 12;

/// Runs so many rounds, and gives the multiply-accumulates that it did.
type Loop = fn(usize) -> usize;

/// Of bytes and of floats.
pub(super) fn loops(isa: Isa) -> (Loop, Loop) {
    // SAFETY: the token proves the features.
    match isa.level() {
        Level::Avx512 => (|n| unsafe { bytes512(n) }, |n| unsafe { floats512(n) }),
        Level::AvxVnni if takes_evex() => (|n| unsafe { dots256(n) }, |n| unsafe { floats256(n) }),
        Level::AvxVnni => (|n| unsafe { dots256_vex(n) }, |n| unsafe { floats256(n) }),
        _ => {
            assert!(isa.level() == Level::Avx2);
            (|n| unsafe { bytes256(n) }, |n| unsafe { floats256(n) })
        }
    }
}

macro_rules! chains {
    ($n:ident, $zero:expr, $lanes:literal, |$acc:ident, $x:ident| $step:expr) => {{
        let $x = black_box($zero);
        let mut all = [$zero; CHAINS];
        for _ in 0..$n {
            for i in 0..CHAINS {
                let $acc = all[i];
                all[i] = $step;
            }
        }
        black_box(all);
        $n * CHAINS * $lanes
    }};
}

#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn bytes512(n: usize) -> usize {
    chains!(n, _mm512_setzero_si512(), 64, |acc, x| _mm512_dpbusd_epi32(acc, x, x))
}

#[target_feature(enable = "avx2,avx512vl,avx512vnni")]
unsafe fn dots256(n: usize) -> usize {
    chains!(n, _mm256_setzero_si256(), 32, |acc, x| _mm256_dpbusd_epi32(acc, x, x))
}

#[target_feature(enable = "avx2,avxvnni")]
unsafe fn dots256_vex(n: usize) -> usize {
    chains!(n, _mm256_setzero_si256(), 32, |acc, x| _mm256_dpbusd_avx_epi32(acc, x, x))
}

#[target_feature(enable = "avx512f")]
unsafe fn floats512(n: usize) -> usize {
    chains!(n, _mm512_setzero_ps(), 16, |acc, x| _mm512_fmadd_ps(x, x, acc))
}

#[target_feature(enable = "avx2,fma")]
unsafe fn bytes256(n: usize) -> usize {
    let one = black_box(_mm256_set1_epi16(1));
    let (mut x, mut all, others) = (one, [one; CHAINS], black_box([one; CHAINS]));
    for _ in 0..n {
        // Another operand each round, or the products would be computed once.
        x = _mm256_add_epi16(x, one);
        for i in 0..CHAINS {
            all[i] = _mm256_add_epi32(all[i], _mm256_madd_epi16(x, others[i]));
        }
    }
    black_box(all);
    n * CHAINS * 16
}

#[target_feature(enable = "avx2,fma")]
unsafe fn floats256(n: usize) -> usize {
    chains!(n, _mm256_setzero_ps(), 8, |acc, x| _mm256_fmadd_ps(x, x, acc))
}
