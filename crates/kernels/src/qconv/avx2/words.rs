//! Tiles of words: bytes are widened to i16 for `vpmaddwd`, which is exact; `vpmaddubsw` would saturate. Weights are
//! packed so; inputs are widened to a buffer in L1, once for each tile.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::epilogue::store_tile;
use crate::qconv::pack::LANES;
use crate::qconv::tile::{Tile, TileFn};
use std::arch::x86_64::*;

/// The tile for `left` rows.
pub(in crate::qconv) fn select(left: usize) -> (usize, TileFn) {
    match left {
        6.. => (6, tile::<6>),
        4.. => (4, tile::<4>),
        2.. => (2, tile::<2>),
        _ => (1, tile::<1>),
    }
}

/// Bytes of a row that are widened at once.
const WIDENED: usize = 512;

#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const MR: usize>(t: &Tile<'_>) {
    let mut words = [[0i16; WIDENED]; MR];
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let bias = t.columns.bias;
            let mut acc = [[_mm256_setzero_si256(); 2]; MR];
            for i in 0..MR {
                acc[i] = [_mm256_loadu_si256(bias.cast()), _mm256_loadu_si256(bias.add(8).cast())];
            }
            let mut w = t.weights;
            for segment in t.segments {
                let mut step = 0;
                while step < t.steps {
                    let steps = (t.steps - step).min(WIDENED / 4);
                    for i in 0..MR {
                        let row = t.x_at(i).add(segment + step * 4);
                        let to = words[i].as_mut_ptr();
                        let mut at = 0;
                        while at + 16 <= steps * 4 {
                            let x = _mm256_cvtepu8_epi16(_mm_loadu_si128(row.add(at).cast()));
                            _mm256_storeu_si256(to.add(at).cast(), x);
                            at += 16;
                        }
                        while at < steps * 4 {
                            let x = _mm_cvtsi32_si128(row.add(at).cast::<i32>().read_unaligned());
                            _mm_storel_epi64(to.add(at).cast(), _mm_cvtepu8_epi16(x));
                            at += 4;
                        }
                    }
                    for pair in 0..steps * 2 {
                        let (low, high) = (_mm256_load_si256(w.cast()), _mm256_load_si256(w.add(32).cast()));
                        w = w.add(LANES * 4);
                        for i in 0..MR {
                            let two = words[i].as_ptr().add(pair * 2).cast::<i32>().read_unaligned();
                            let x = _mm256_set1_epi32(two);
                            acc[i][0] = _mm256_add_epi32(acc[i][0], _mm256_madd_epi16(x, low));
                            acc[i][1] = _mm256_add_epi32(acc[i][1], _mm256_madd_epi16(x, high));
                        }
                    }
                    step += steps;
                }
            }
            store_tile(&acc, &t);
            t.next(MR);
        }
    }
}
