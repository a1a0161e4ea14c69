//! Tiles of bytes with `vpmaddubsw`, 16 pixels by 4 channels: lanes are pixels, so that what [`super::super::octets`]
//! adds to a single channel costs two products of a tile. Inputs are staged as `[k / 4][16 pixels][4 k]`, once for all
//! channels.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::epilogue::store_rows;
use crate::qconv::octets::Fix;
use crate::qconv::pack::LANES;
use crate::qconv::tile::Tile;
use std::arch::x86_64::*;

/// Pixels of a tile.
pub(in crate::qconv) const ROWS: usize = 16;
/// Staged bytes of a step: four of each pixel.
pub(in crate::qconv) const STEP: usize = ROWS * 4;

/// The fixes of a block of columns.
#[derive(Clone, Copy)]
pub(in crate::qconv) struct FixesOf<'a> {
    /// The first fix of each column, and the end.
    pub starts: &'a [u32],
    pub list: &'a [Fix],
}

/// Stages the segments of 16 pixels, each of which begins at one of `rows`; `to` has room for their steps.
///
/// # Safety
/// AVX2 is there; the segments of all rows can be read, and `to` written.
#[target_feature(enable = "avx2")]
pub(in crate::qconv) unsafe fn stage(rows: &[*const u8; ROWS], segments: &[usize], steps: usize, mut to: *mut u8) {
    // SAFETY: by the caller's promise: no more than the steps is read.
    unsafe {
        for segment in segments {
            let mut step = 0;
            while step + 8 <= steps {
                for half in [0, 8] {
                    eight(&rows[half..half + 8], segment + step * 4, to.add(half * 4));
                }
                (step, to) = (step + 8, to.add(8 * STEP));
            }
            while step + 4 <= steps {
                for quarter in [0, 4, 8, 12] {
                    four(&rows[quarter..quarter + 4], segment + step * 4, to.add(quarter * 4));
                }
                (step, to) = (step + 4, to.add(4 * STEP));
            }
            while step < steps {
                for (i, row) in rows.iter().enumerate() {
                    let x = row.add(segment + step * 4).cast::<u32>().read_unaligned();
                    to.add(i * 4).cast::<u32>().write(x);
                }
                (step, to) = (step + 1, to.add(STEP));
            }
        }
    }
}

/// Eight steps of eight pixels.
#[inline(always)]
unsafe fn eight(rows: &[*const u8], at: usize, to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [_mm256_setzero_si256(); 8];
        for i in 0..4 {
            // Of pixels i and i + 4, the first four steps and the last.
            let (a, b) = (rows[i].add(at), rows[i + 4].add(at));
            x[i] = _mm256_loadu2_m128i(b.cast(), a.cast());
            x[i + 4] = _mm256_loadu2_m128i(b.add(16).cast(), a.add(16).cast());
        }
        for half in [0, 4] {
            let columns = transpose([x[half], x[half + 1], x[half + 2], x[half + 3]]);
            for i in 0..4 {
                _mm256_store_si256(to.add((half + i) * STEP).cast(), columns[i]);
            }
        }
    }
}

/// Four steps of four pixels.
#[inline(always)]
unsafe fn four(rows: &[*const u8], at: usize, to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [_mm_setzero_si128(); 4];
        for i in 0..4 {
            x[i] = _mm_loadu_si128(rows[i].add(at).cast());
        }
        let (a, b) = (_mm_unpacklo_epi32(x[0], x[1]), _mm_unpacklo_epi32(x[2], x[3]));
        let (c, d) = (_mm_unpackhi_epi32(x[0], x[1]), _mm_unpackhi_epi32(x[2], x[3]));
        let columns = [
            _mm_unpacklo_epi64(a, b),
            _mm_unpackhi_epi64(a, b),
            _mm_unpacklo_epi64(c, d),
            _mm_unpackhi_epi64(c, d),
        ];
        for i in 0..4 {
            _mm_store_si128(to.add(i * STEP).cast(), columns[i]);
        }
    }
}

/// Transposes four by four dwords in each half.
#[inline(always)]
unsafe fn transpose(x: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (a, b) = (_mm256_unpacklo_epi32(x[0], x[1]), _mm256_unpacklo_epi32(x[2], x[3]));
        let (c, d) = (_mm256_unpackhi_epi32(x[0], x[1]), _mm256_unpackhi_epi32(x[2], x[3]));
        [
            _mm256_unpacklo_epi64(a, b),
            _mm256_unpackhi_epi64(a, b),
            _mm256_unpacklo_epi64(c, d),
            _mm256_unpackhi_epi64(c, d),
        ]
    }
}

/// Computes and stores `rows` pixels, at most 16, of a block of 16 channels. The tile's `x` is staged, and its steps
/// are even.
///
/// # Safety
/// AVX2 and FMA are there; the staged steps, the weights, the fixes' columns and steps and what the tile stores are
/// valid.
#[target_feature(enable = "avx2,fma")]
pub(in crate::qconv) unsafe fn tile(t: &Tile<'_>, fixes: FixesOf<'_>, rows: usize) {
    // SAFETY: by the caller's promise.
    unsafe { if rows > 8 { tile_of::<2>(t, fixes, rows) } else { tile_of::<1>(t, fixes, rows) } }
}

/// `V` vectors of eight pixels.
#[inline(always)]
unsafe fn tile_of<const V: usize>(t: &Tile<'_>, fixes: FixesOf<'_>, rows: usize) {
    let mut sums = Rows([[0; LANES]; ROWS]);
    // SAFETY: as the caller's.
    unsafe {
        for first in (0..t.columns.width).step_by(4) {
            let mut acc = [[_mm256_setzero_si256(); V]; 4];
            for c in 0..4 {
                acc[c] = [_mm256_set1_epi32(*t.columns.bias.add(first + c)); V];
            }
            acc = products(acc, t.x, t.weights.add(first * 4 * t.steps), t.steps);
            for c in 0..4 {
                let range = fixes.starts[first + c] as usize..fixes.starts[first + c + 1] as usize;
                acc[c] = fixed(acc[c], t.x, &fixes.list[range]);
            }
            for v in 0..V {
                let columns = transpose([acc[0][v], acc[1][v], acc[2][v], acc[3][v]]);
                for i in 0..4 {
                    let to = (&raw mut sums.0[8 * v + i][first]).cast::<__m128i>();
                    _mm_store_si128(to, _mm256_castsi256_si128(columns[i]));
                    _mm_store_si128(to.add(4 * 4), _mm256_extracti128_si256::<1>(columns[i]));
                }
            }
        }
        store_rows(&sums.0[..rows], t);
    }
}

/// Accumulators in the order in which they are stored.
#[repr(align(64))]
struct Rows([[i32; LANES]; ROWS]);

/// Adds the products of four channels.
#[inline(always)]
unsafe fn products<const V: usize>(
    mut acc: [[__m256i; V]; 4],
    mut x: *const u8,
    mut w: *const i8,
    steps: usize,
) -> [[__m256i; V]; 4] {
    // SAFETY: so many steps are staged, and packed.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        for _ in 0..steps / 2 {
            let (mut a, mut b) = ([_mm256_setzero_si256(); V], [_mm256_setzero_si256(); V]);
            for v in 0..V {
                a[v] = _mm256_load_si256(x.add(32 * v).cast());
                b[v] = _mm256_load_si256(x.add(STEP + 32 * v).cast());
            }
            for c in 0..4 {
                let wa = _mm256_set1_epi32(w.add(4 * c).cast::<i32>().read_unaligned());
                let wb = _mm256_set1_epi32(w.add(16 + 4 * c).cast::<i32>().read_unaligned());
                for v in 0..V {
                    let words = _mm256_add_epi16(_mm256_maddubs_epi16(a[v], wa), _mm256_maddubs_epi16(b[v], wb));
                    acc[c][v] = _mm256_add_epi32(acc[c][v], _mm256_madd_epi16(words, ones));
                }
            }
            (x, w) = (x.add(2 * STEP), w.add(32));
        }
    }
    acc
}

/// Adds the fixes of a channel.
#[inline(always)]
unsafe fn fixed<const V: usize>(mut acc: [__m256i; V], x: *const u8, fixes: &[Fix]) -> [__m256i; V] {
    // SAFETY: fixes are of steps that are staged.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        for fix in fixes {
            let (a, b) = (x.add(fix.steps[0] as usize * STEP), x.add(fix.steps[1] as usize * STEP));
            let w = (&raw const fix.weights).cast::<i32>();
            let (wa, wb) = (_mm256_set1_epi32(w.read_unaligned()), _mm256_set1_epi32(w.add(1).read_unaligned()));
            for v in 0..V {
                let (a, b) = (_mm256_load_si256(a.add(32 * v).cast()), _mm256_load_si256(b.add(32 * v).cast()));
                let words = _mm256_add_epi16(_mm256_maddubs_epi16(a, wa), _mm256_maddubs_epi16(b, wb));
                acc[v] = _mm256_add_epi32(acc[v], _mm256_madd_epi16(words, ones));
            }
        }
    }
    acc
}
