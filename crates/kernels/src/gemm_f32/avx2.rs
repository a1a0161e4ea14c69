//! 6×16 (and 6×8) tiles in 12 accumulators of 8 lanes.
#![allow(unsafe_code, reason = "AVX2 loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::{KB, Kernel, LDA, Task};
use std::arch::x86_64::*;

const MR: usize = 6;

/// Obtained by holding the token of the level only (see `kernel`).
pub(super) const KERNEL: Kernel = Kernel { mr: MR, nr: 16, run, name: "6x16_avx2" };

fn run(t: &Task<'_>) {
    t.check(MR);
    macro_rules! rows {
        ($($n:literal)*) => {
            match (t.rows, t.width) {
                // SAFETY: the kernel is chosen by the token of its level; `check` has bounded every pointer.
                $(($n, 16) => unsafe { tile::<$n, 2>(t) }, ($n, 8) => unsafe { tile::<$n, 1>(t) },)*
                (rows, width) => unreachable!("invariant: a tile of 1 to 6 rows, 8 or 16 wide, not {rows}×{width}"),
            }
        };
    }
    rows!(1 2 3 4 5 6);
}

#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const R: usize, const V: usize>(t: &Task<'_>) {
    let mut acc = [[_mm256_setzero_ps(); V]; R];
    let mut b = t.b.as_ptr();
    // SAFETY: `b` holds `width = 8 V` biases and `k` rows of as many; `a` holds blocks of 6 rows of LDA.
    unsafe {
        for r in 0..R {
            for v in 0..V {
                acc[r][v] = _mm256_loadu_ps(b.add(v * 8));
            }
        }
        b = b.add(8 * V);
        for start in (0..t.k).step_by(KB) {
            let a = t.a.as_ptr().add(start / KB * MR * LDA);
            for k in 0..KB.min(t.k - start) {
                let mut bs = [_mm256_setzero_ps(); V];
                for v in 0..V {
                    bs[v] = _mm256_loadu_ps(b.add(v * 8));
                }
                b = b.add(8 * V);
                for r in 0..R {
                    let x = _mm256_set1_ps(*a.add(r * LDA + k));
                    for v in 0..V {
                        acc[r][v] = _mm256_fmadd_ps(x, bs[v], acc[r][v]);
                    }
                }
            }
        }
    }
    let (lo, hi) = (_mm256_set1_ps(t.clamp.0), _mm256_set1_ps(t.clamp.1));
    // Counted by R alone, so that the loop is unrolled and the accumulators stay in registers.
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
