//! Tiles of bytes with `vpdpbusd`, in the encoding that the machine has: AVX-512's or AVX-VNNI's.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::epilogue::store_tile;
use crate::isa::takes_evex;
use crate::qconv::pack::LANES;
use crate::qconv::tile::{Tile, TileFn};
use std::arch::x86_64::*;

/// An encoding of `vpdpbusd` with 256 bits.
pub(in crate::qconv) trait Dot {
    /// `acc + Σ x·w` by dword; x unsigned, w signed.
    ///
    /// # Safety
    /// The encoding's features are enabled in the caller, which this is inlined into.
    unsafe fn dot(acc: __m256i, x: __m256i, w: __m256i) -> __m256i;
}

/// AVX-VNNI's.
pub(in crate::qconv) struct Vex;
/// AVX-512's.
pub(in crate::qconv) struct Evex;

impl Dot for Vex {
    #[inline(always)]
    unsafe fn dot(acc: __m256i, x: __m256i, w: __m256i) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { _mm256_dpbusd_avx_epi32(acc, x, w) }
    }
}

impl Dot for Evex {
    #[inline(always)]
    unsafe fn dot(acc: __m256i, x: __m256i, w: __m256i) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { _mm256_dpbusd_epi32(acc, x, w) }
    }
}

/// The tile for `left` rows.
pub(in crate::qconv) fn select(left: usize) -> (usize, TileFn) {
    if takes_evex() { evex::select(left) } else { vex::select(left) }
}

macro_rules! encoding {
    ($name:ident, $dot:ident, $features:literal) => {
        mod $name {
            use super::*;

            pub(super) fn select(left: usize) -> (usize, TileFn) {
                match left {
                    6.. => (6, tile::<6, 1>),
                    4.. => (4, tile::<4, 1>),
                    2.. => (2, tile::<2, 2>),
                    _ => (1, tile::<1, 4>),
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn tile<const MR: usize, const CHAINS: usize>(t: &Tile<'_>) {
                // SAFETY: as the caller's.
                unsafe { tile_of::<MR, CHAINS, $dot>(t) }
            }
        }
    };
}
encoding!(vex, Vex, "avx2,fma,avxvnni");
encoding!(evex, Evex, "avx2,fma,avx512vl,avx512vnni");

/// `MR` rows by 16 columns, four input bytes a step; `CHAINS` sums side by side, where rows are too few to hide how
/// long one takes.
#[inline(always)]
unsafe fn tile_of<const MR: usize, const CHAINS: usize, D: Dot>(t: &Tile<'_>) {
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let bias = t.columns.bias;
            let mut acc = [[[_mm256_setzero_si256(); 2]; MR]; CHAINS];
            for i in 0..MR {
                acc[0][i] = [_mm256_loadu_si256(bias.cast()), _mm256_loadu_si256(bias.add(8).cast())];
            }
            let (mut w, ahead) = (t.weights, t.fetched(1));
            for segment in t.segments {
                let mut x = [std::ptr::null::<u8>(); MR];
                for i in 0..MR {
                    x[i] = t.x_at(i).add(*segment);
                }
                let mut step = 0;
                while step + CHAINS <= t.steps {
                    for chain in 0..CHAINS {
                        let (low, high) = (_mm256_load_si256(w.cast()), _mm256_load_si256(w.add(32).cast()));
                        _mm_prefetch::<_MM_HINT_T1>(w.wrapping_add(ahead));
                        w = w.add(LANES * 4);
                        for i in 0..MR {
                            let four = x[i].add((step + chain) * 4).cast::<i32>().read_unaligned();
                            let four = _mm256_set1_epi32(four);
                            acc[chain][i][0] = D::dot(acc[chain][i][0], four, low);
                            acc[chain][i][1] = D::dot(acc[chain][i][1], four, high);
                        }
                    }
                    step += CHAINS;
                }
                while CHAINS > 1 && step < t.steps {
                    let (low, high) = (_mm256_load_si256(w.cast()), _mm256_load_si256(w.add(32).cast()));
                    w = w.add(LANES * 4);
                    for i in 0..MR {
                        let four = _mm256_set1_epi32(x[i].add(step * 4).cast::<i32>().read_unaligned());
                        acc[0][i][0] = D::dot(acc[0][i][0], four, low);
                        acc[0][i][1] = D::dot(acc[0][i][1], four, high);
                    }
                    step += 1;
                }
            }
            for chain in 1..CHAINS {
                for i in 0..MR {
                    for v in 0..2 {
                        acc[0][i][v] = _mm256_add_epi32(acc[0][i][v], acc[chain][i][v]);
                    }
                }
            }
            store_tile(&acc[0], &t);
            t.next(MR);
        }
    }
}
