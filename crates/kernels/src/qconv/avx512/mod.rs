//! Tiles in 512-bit vectors with `vpdpbusd`: 6×64, 14×32, 14×16 and what remains below them.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

pub(super) mod activation;
pub(super) mod epilogue;
pub(super) mod vector;

use super::pack::LANES;
use super::tile::{Path, Tile, TileFn};
use std::arch::x86_64::*;

/// The tile for a block of so many channels in `nv` vectors, with `left` rows to go.
pub(super) fn select(width: usize, nv: usize, left: usize) -> (usize, TileFn) {
    match (nv, left) {
        (1, 14..) if width <= LANES / 2 => (14, tile_of_half::<14>),
        (1, 7..) if width <= LANES / 2 => (7, tile_of_half::<7>),
        (4, 6..) => (6, tile::<6, 4>),
        (4, 4..) => (4, tile::<4, 4>),
        (4, 2..) => (2, tile::<2, 4>),
        (4, _) => (1, tile::<1, 4>),
        (2, 14..) => (14, tile::<14, 2>),
        (2, 7..) => (7, tile::<7, 2>),
        (2, 4..) => (4, tile::<4, 2>),
        (2, 2..) => (2, tile::<2, 2>),
        (2, _) => (1, tile::<1, 2>),
        (_, 14..) => (14, tile::<14, 1>),
        (_, 7..) => (7, tile::<7, 1>),
        (_, 4..) => (4, tile::<4, 1>),
        (_, 2..) => (2, tile::<2, 1>),
        (_, _) => (1, tile::<1, 1>),
    }
}

/// `MR` rows by `16·NV` columns, four input bytes a step.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn tile<const MR: usize, const NV: usize>(t: &Tile<'_>) {
    // SAFETY: by the caller's promise.
    unsafe { tiles::<MR, NV, false>(t) }
}

/// `MR` rows by 8 columns: the upper half of each vector stays as it is.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn tile_of_half<const MR: usize>(t: &Tile<'_>) {
    // SAFETY: by the caller's promise.
    unsafe { tiles::<MR, 1, true>(t) }
}

#[inline(always)]
unsafe fn tiles<const MR: usize, const NV: usize, const HALF: bool>(t: &Tile<'_>) {
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let mut acc = [[_mm512_setzero_si512(); NV]; MR];
            for v in 0..NV {
                let bias = _mm512_loadu_si512(t.columns.bias.add(v * LANES).cast());
                for row in &mut acc {
                    row[v] = bias;
                }
            }
            let (mut w, ahead) = (t.weights, t.fetched(NV));
            for segment in t.segments {
                let mut x = [std::ptr::null::<u8>(); MR];
                for i in 0..MR {
                    x[i] = t.x_at(i).add(*segment);
                }
                for step in 0..t.steps {
                    let mut b = [_mm512_setzero_si512(); NV];
                    for v in 0..NV {
                        b[v] = _mm512_load_si512(w.add(v * 64).cast());
                    }
                    if NV > 1 {
                        _mm_prefetch::<_MM_HINT_T1>(w.wrapping_add(ahead));
                    }
                    w = w.add(NV * 64);
                    for i in 0..MR {
                        let a = _mm512_set1_epi32(x[i].add(step * 4).cast::<i32>().read_unaligned());
                        for v in 0..NV {
                            acc[i][v] = match HALF {
                                true => dot_of_half(acc[i][v], a, b[v]),
                                false => _mm512_dpbusd_epi32(acc[i][v], a, b[v]),
                            };
                        }
                    }
                }
            }
            // Written out, since a loop that is not unrolled would keep the accumulators in memory.
            macro_rules! rows {
                ($path:expr, $($i:literal)*) => {
                    $(if $i < MR {
                        // Rows that fill 64 bytes together; what is left of them alone.
                        let side = const { 4 / NV };
                        if side > 1 && $i / side * side + side <= MR {
                            if $i % side == 0 {
                                epilogue::store_side::<NV, MR, { $path as u8 }>(&acc, $i, &t);
                            }
                        } else {
                            let (y, r) = (t.y_at($i), t.r_at($i));
                            epilogue::store_by::<NV, { $path as u8 }>(&acc[$i], &t.columns, t.epilogue, y, r);
                        }
                    })*
                };
            }
            match t.epilogue.path {
                Path::Plain => {
                    rows!(Path::Plain, 0 1 2 3 4 5 6 7 8 9 10 11 12 13);
                }
                Path::Residual => {
                    rows!(Path::Residual, 0 1 2 3 4 5 6 7 8 9 10 11 12 13);
                }
                Path::Activation => {
                    rows!(Path::Activation, 0 1 2 3 4 5 6 7 8 9 10 11 12 13);
                }
                Path::General => {
                    let spilled = acc;
                    for i in 0..MR {
                        epilogue::store(&spilled[i], &t.columns, t.epilogue, t.y_at(i), t.r_at(i));
                    }
                }
            }
            t.next(MR);
        }
    }
}

/// `vpdpbusd` of the lower halves: it takes half as long where vectors of 512 bits pass in two.
#[inline(always)]
unsafe fn dot_of_half(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller enables the features.
    unsafe {
        let (a, b) = (_mm512_castsi512_si256(a), _mm512_castsi512_si256(b));
        _mm512_castsi256_si512(_mm256_dpbusd_epi32(_mm512_castsi512_si256(acc), a, b))
    }
}
