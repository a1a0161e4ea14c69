//! Tiles of words, for few pixels: bytes are widened to i16 for `vpmaddwd`, which is exact; `vpmaddubsw` would saturate.
//! Weights are widened as they are loaded; inputs to a buffer in L1, once for each tile.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::epilogue::store_tile;
use crate::qconv::pack::LANES;
use crate::qconv::tile::{Tile, TileFn};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

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

/// The rows of a tile as words: as many segments as there is room for.
type Rows<const MR: usize> = [[MaybeUninit<i16>; WIDENED]; MR];

#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const MR: usize>(t: &Tile<'_>) {
    let mut words: Rows<MR> = [const { [MaybeUninit::uninit(); WIDENED] }; MR];
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let bias = t.columns.bias;
            let bias = [_mm256_loadu_si256(bias.cast()), _mm256_loadu_si256(bias.add(8).cast())];
            let (mut acc, mut w, mut filled) = ([bias; MR], t.weights, 0);
            for segment in t.segments {
                let mut step = 0;
                while step < t.steps {
                    let steps = (t.steps - step).min((WIDENED - filled) / 4);
                    for i in 0..MR {
                        let to = words[i].as_mut_ptr().add(filled).cast();
                        widen(t.x_at(i).add(segment + step * 4), to, steps * 4);
                    }
                    (step, filled) = (step + steps, filled + steps * 4);
                    if filled == WIDENED {
                        (acc, w) = products(acc, &words, w, filled);
                        filled = 0;
                    }
                }
            }
            (acc, _) = products(acc, &words, w, filled);
            store_tile(&acc, &t);
            t.next(MR);
        }
    }
}

/// Bytes as words; a multiple of four.
#[inline(always)]
unsafe fn widen(from: *const u8, to: *mut i16, n: usize) {
    let mut at = 0;
    // SAFETY: both have so many.
    unsafe {
        while at + 16 <= n {
            let x = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(at).cast()));
            _mm256_storeu_si256(to.add(at).cast(), x);
            at += 16;
        }
        if at + 8 <= n {
            _mm_storeu_si128(to.add(at).cast(), _mm_cvtepu8_epi16(_mm_loadl_epi64(from.add(at).cast())));
            at += 8;
        }
        if at < n {
            let x = _mm_cvtsi32_si128(from.add(at).cast::<i32>().read_unaligned());
            _mm_storel_epi64(to.add(at).cast(), _mm_cvtepu8_epi16(x));
        }
    }
}

/// Adds the products of so many words of each row, and gives the weights after them.
#[inline(always)]
unsafe fn products<const MR: usize>(
    mut acc: [[__m256i; 2]; MR],
    words: &Rows<MR>,
    mut w: *const i8,
    filled: usize,
) -> ([[__m256i; 2]; MR], *const i8) {
    // SAFETY: so many were widened; the block has their weights.
    unsafe {
        for pair in 0..filled / 2 {
            let low = _mm256_cvtepi8_epi16(_mm_load_si128(w.cast()));
            let high = _mm256_cvtepi8_epi16(_mm_load_si128(w.add(16).cast()));
            w = w.add(LANES * 2);
            for i in 0..MR {
                let two = words[i].as_ptr().add(pair * 2).cast::<i32>().read_unaligned();
                let x = _mm256_set1_epi32(two);
                acc[i][0] = _mm256_add_epi32(acc[i][0], _mm256_madd_epi16(x, low));
                acc[i][1] = _mm256_add_epi32(acc[i][1], _mm256_madd_epi16(x, high));
            }
        }
    }
    (acc, w)
}
