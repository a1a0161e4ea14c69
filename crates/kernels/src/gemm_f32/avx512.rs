//! 14×32 (and 14×16) tiles in 28 accumulators of 16 lanes.
//!
//! Loops count: calls of iterators that are not inlined would keep the accumulators in memory.
#![allow(unsafe_code, reason = "AVX-512 loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::{Addend, Element, Kernel, Task};
use half::f16;
use std::arch::x86_64::*;

const MR: usize = 14;

/// Obtained by holding the token of the level only (see `Element::kernel`).
pub(super) fn kernel<E: Load>() -> Kernel<E> {
    Kernel { mr: MR, nr: 32, run: run::<E>, name: "14x32_avx512" }
}

/// Elements that fill a register of 16 floats.
pub(super) trait Load: Element {
    /// 16 elements as floats.
    ///
    /// # Safety
    /// The machine has the instructions, and 16 elements lie at `from`.
    unsafe fn load(from: *const Self) -> __m512;
}

impl Load for f32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn load(from: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(from) }
    }
}

impl Load for f16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn load(from: *const f16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
}

fn run<E: Load>(t: &Task<'_, E>) {
    t.check(MR);
    macro_rules! rows {
        ($($n:literal)*) => {
            match (t.rows, t.width) {
                // SAFETY: the kernel is chosen by the token of its level; `check` has bounded every pointer.
                $(($n, 32) => unsafe { tile::<E, $n, 2>(t) }, ($n, 16) => unsafe { tile::<E, $n, 1>(t) },)*
                (rows, width) => unreachable!("invariant: a tile of 1 to 14 rows, 16 or 32 wide, not {rows}×{width}"),
            }
        };
    }
    rows!(1 2 3 4 5 6 7 8 9 10 11 12 13 14);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn tile<E: Load, const R: usize, const V: usize>(t: &Task<'_, E>) {
    let mut acc = [[_mm512_setzero_ps(); V]; R];
    let mut b = t.b.as_ptr();
    let (pitch, depth) = (t.a.pitch, t.a.depth);
    let (mut fetched, fetch_step) = t.fetched();
    if let Addend::Rows(data, at) = t.add {
        for r in 0..R {
            for v in 0..V {
                // On their way while sums are computed; a prefetch may go anywhere.
                _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(at[r] + v * 16).cast());
            }
        }
    }
    // SAFETY: `bias` holds `width = 16 V` floats and `b` `k` rows of as many; `a` holds what `Lines` says.
    unsafe {
        for r in 0..R {
            for v in 0..V {
                acc[r][v] = _mm512_loadu_ps(t.bias.as_ptr().add(v * 16));
            }
        }
        let (mut lines, mut left) = (t.a.data.as_ptr(), t.k);
        while left > 0 {
            let a = lines;
            for k in 0..depth.min(left) {
                _mm_prefetch::<_MM_HINT_T1>(fetched.cast());
                fetched = fetched.wrapping_add(fetch_step);
                let mut bs = [_mm512_setzero_ps(); V];
                for v in 0..V {
                    bs[v] = E::load(b.add(v * 16));
                }
                b = b.add(16 * V);
                for r in 0..R {
                    let x = _mm512_set1_ps(*a.add(r * pitch + k));
                    for v in 0..V {
                        acc[r][v] = _mm512_fmadd_ps(x, bs[v], acc[r][v]);
                    }
                }
            }
            lines = lines.wrapping_add(t.a.step);
            left -= depth.min(left);
        }
    }
    let mut masks = [0; V];
    for v in 0..V {
        masks[v] = ((1u32 << t.cols.saturating_sub(v * 16).min(16)) - 1) as __mmask16;
    }
    // Loops counted by R alone are unrolled, and the accumulators stay in registers.
    if let Some((added, at)) = t.added() {
        for r in 0..R {
            let from = added.wrapping_add(at[r]);
            for v in 0..V {
                // SAFETY: `check` has bounded `cols` elements from there on; the mask stops at `cols`.
                let more = unsafe { _mm512_maskz_loadu_ps(masks[v], from.wrapping_add(v * 16)) };
                acc[r][v] = _mm512_add_ps(acc[r][v], more);
            }
        }
    }
    let (lo, hi) = (_mm512_set1_ps(t.clamp.0), _mm512_set1_ps(t.clamp.1));
    for r in 0..R {
        let at = t.at[r];
        for v in 0..V {
            let y = _mm512_min_ps(hi, _mm512_max_ps(lo, acc[r][v]));
            // SAFETY: `check` has bounded `at + cols`; the mask stops at `cols`.
            unsafe { _mm512_mask_storeu_ps(t.out.as_mut_ptr().add(at + v * 16), masks[v], y) };
        }
    }
}
