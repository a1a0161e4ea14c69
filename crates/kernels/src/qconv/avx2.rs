//! Tiles in 256-bit vectors: six pixels by 16 channels. Bytes are widened to i16 for `vpmaddwd`, which is exact;
//! `vpmaddubsw` would saturate. Weights are packed so; inputs are widened to a buffer in L1, once for each tile.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::pack::LANES;
use super::portable;
use super::spec::OutputKind;
use super::tile::{Columns, Epilogue, Tile, TileFn};
use std::arch::x86_64::*;

/// The tile for `left` rows.
pub(super) fn select(left: usize) -> (usize, TileFn) {
    match left {
        6.. => (6, tile::<6>),
        3.. => (3, tile::<3>),
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
            for i in 0..MR {
                store(acc[i], &t.columns, t.epilogue, t.y_at(i), t.r_at(i));
            }
            t.next(MR);
        }
    }
}

/// Stores up to 16 channels in natural order.
///
/// # Safety
/// The columns are valid for 16; `y` and `r` for their width.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn store(acc: [__m256i; 2], c: &Columns, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: whole vectors are touched only where the block is 16 wide.
    unsafe {
        if c.width < LANES {
            let mut spilled = [0i32; LANES];
            _mm256_storeu_si256(spilled.as_mut_ptr().cast(), acc[0]);
            _mm256_storeu_si256(spilled.as_mut_ptr().add(8).cast(), acc[1]);
            return portable::store(&spilled, c, 0, e, y, r);
        }
        let mut q = acc;
        for v in 0..2 {
            let mut x = _mm256_mul_ps(_mm256_cvtepi32_ps(acc[v]), _mm256_loadu_ps(c.scale.add(8 * v)));
            if e.float_bias {
                x = _mm256_add_ps(x, _mm256_loadu_ps(c.float_bias.add(8 * v)));
            }
            if let Some((m, z)) = e.residual {
                let r = _mm256_cvtepu8_epi32(_mm_loadl_epi64(r.add(8 * v).cast()));
                let r = _mm256_cvtepi32_ps(_mm256_sub_epi32(r, _mm256_set1_epi32(z)));
                x = _mm256_add_ps(x, _mm256_mul_ps(r, _mm256_set1_ps(m)));
            }
            if let Some(form) = &e.activation {
                let mut lanes = [0.0; 8];
                _mm256_storeu_ps(lanes.as_mut_ptr(), x);
                lanes = lanes.map(|v| form.eval(v));
                x = _mm256_loadu_ps(lanes.as_ptr());
            }
            if e.out == OutputKind::F32 {
                _mm256_storeu_ps(y.cast::<f32>().add(8 * v), x);
                continue;
            }
            // Bounds are integers less the zero point: clamping before rounding is clamping after it.
            x = _mm256_min_ps(x, _mm256_set1_ps((e.qmax - e.zero_point) as f32));
            x = _mm256_max_ps(x, _mm256_set1_ps((e.qmin - e.zero_point) as f32));
            q[v] = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(e.zero_point));
        }
        if e.out == OutputKind::F32 {
            return;
        }
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(q[0], q[1]));
        let bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        _mm_storeu_si128(y.cast(), bytes);
        if let Some(table) = &e.table {
            for i in 0..LANES {
                *y.add(i) = *table.as_ptr().add(usize::from(*y.add(i)));
            }
        }
    }
}
