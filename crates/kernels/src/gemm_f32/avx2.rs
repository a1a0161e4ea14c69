//! 6×16 (and 6×8) tiles in 12 accumulators of 8 lanes.
#![allow(unsafe_code, reason = "AVX2 loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::{Element, Kernel, Task};
use half::f16;
use std::arch::x86_64::*;

const MR: usize = 6;

/// Obtained by holding the token of the level only (see `Element::kernel`).
pub(super) fn kernel<E: Load>() -> Kernel<E> {
    Kernel { mr: MR, nr: 16, run: run::<E>, name: "6x16_avx2" }
}

/// Elements that fill a register of 8 floats.
pub(super) trait Load: Element {
    /// 8 elements as floats.
    ///
    /// # Safety
    /// The machine has the instructions, and 8 elements lie at `from`.
    unsafe fn load(from: *const Self) -> __m256;
}

impl Load for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(from: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }
}

impl Load for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(from: *const f16) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
}

fn run<E: Load>(t: &Task<'_, E>) {
    t.check(MR);
    macro_rules! rows {
        ($($n:literal)*) => {
            match (t.rows, t.width) {
                // SAFETY: the kernel is chosen by the token of its level; `check` has bounded every pointer.
                $(($n, 16) => unsafe { tile::<E, $n, 2>(t) }, ($n, 8) => unsafe { tile::<E, $n, 1>(t) },)*
                (rows, width) => unreachable!("invariant: a tile of 1 to 6 rows, 8 or 16 wide, not {rows}×{width}"),
            }
        };
    }
    rows!(1 2 3 4 5 6);
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<E: Load, const R: usize, const V: usize>(t: &Task<'_, E>) {
    let mut acc = [[_mm256_setzero_ps(); V]; R];
    let mut b = t.b.as_ptr();
    let (pitch, depth) = (t.a.pitch, t.a.depth);
    let (mut fetched, fetch_step) = t.fetched();
    // SAFETY: `bias` holds `width = 8 V` floats and `b` `k` rows of as many; `a` holds what `Lines` says.
    unsafe {
        for r in 0..R {
            for v in 0..V {
                acc[r][v] = _mm256_loadu_ps(t.bias.as_ptr().add(v * 8));
            }
        }
        let (mut lines, mut left) = (t.a.data.as_ptr(), t.k);
        while left > 0 {
            let a = lines;
            for k in 0..depth.min(left) {
                _mm_prefetch::<_MM_HINT_T1>(fetched.cast());
                fetched = fetched.wrapping_add(fetch_step);
                let mut bs = [_mm256_setzero_ps(); V];
                for v in 0..V {
                    bs[v] = E::load(b.add(v * 8));
                }
                b = b.add(8 * V);
                for r in 0..R {
                    let x = _mm256_set1_ps(*a.add(r * pitch + k));
                    for v in 0..V {
                        acc[r][v] = _mm256_fmadd_ps(x, bs[v], acc[r][v]);
                    }
                }
            }
            lines = lines.wrapping_add(t.a.step);
            left -= depth.min(left);
        }
    }
    // Loops counted by R alone are unrolled, and the accumulators stay in registers.
    if let Some((added, at)) = t.added() {
        for r in 0..R {
            let from = added.wrapping_add(at[r]);
            for v in 0..V {
                let left = t.cols.saturating_sub(v * 8).min(8);
                // SAFETY: `check` has bounded `cols` elements from there on, and `left` stops there.
                let more = unsafe { load_part(from.wrapping_add(v * 8), left) };
                acc[r][v] = _mm256_add_ps(acc[r][v], more);
            }
        }
    }
    let (lo, hi) = (_mm256_set1_ps(t.clamp.0), _mm256_set1_ps(t.clamp.1));
    for r in 0..R {
        let at = t.at[r];
        for v in 0..V {
            let left = t.cols.saturating_sub(v * 8).min(8);
            let y = _mm256_min_ps(hi, _mm256_max_ps(lo, acc[r][v]));
            let mut whole = [0.0f32; 8];
            // SAFETY: `check` has bounded `at + cols`, and `left` stops there.
            unsafe {
                let to = t.out.as_mut_ptr().add(at + v * 8);
                if left == 8 {
                    _mm256_storeu_ps(to, y);
                } else {
                    _mm256_storeu_ps(whole.as_mut_ptr(), y);
                    std::ptr::copy_nonoverlapping(whole.as_ptr(), to, left);
                }
            }
        }
    }
}

/// Up to 8 floats, and zeros.
///
/// # Safety
/// The machine has AVX2, and `left` floats lie at `from`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_part(from: *const f32, left: usize) -> __m256 {
    let mut whole = [0.0f32; 8];
    // SAFETY: the caller's promise.
    unsafe {
        if left == 8 {
            return _mm256_loadu_ps(from);
        }
        std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), left);
        _mm256_loadu_ps(whole.as_ptr())
    }
}
