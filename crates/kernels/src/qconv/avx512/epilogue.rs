//! From accumulators to stored outputs, 512 bits at a time.
//!
//! By the general path the upper bound is applied in float, before rounding, so that the conversion cannot overflow
//! upwards; it is an integer less the zero point, so that rounding cannot pass it. Downwards the conversion gives the least
//! i32, which the packs saturate. The other paths have no such values, and apply bounds to bytes. Zero points are added
//! after rounding.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::activation::{levels, rounded_words};
use crate::bytes512::{SHIFT, ones, shifted};
use crate::qconv::pack::LANES;
use crate::qconv::spec::OutputKind;
use crate::qconv::tile::{Columns, Epilogue, Path, Tile};
use std::arch::x86_64::*;

/// Stores `NV` vectors of accumulators of one output pixel.
///
/// # Safety
/// The columns are valid for `NV` vectors, in the packed order for u8 and the natural one for f32; `y` and `r` for
/// their width.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
pub(in crate::qconv) unsafe fn store<const NV: usize>(
    acc: &[__m512i; NV],
    c: &Columns,
    e: &Epilogue,
    y: *mut u8,
    r: *const u8,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        if e.out == OutputKind::F32 {
            for (v, acc) in acc.iter().enumerate() {
                store_f32(*acc, c, v * LANES, e, y.cast(), r);
            }
            return;
        }
        match NV {
            4 => quad([acc[0], acc[1], acc[2], acc[3]], c, e, y, r),
            2 => pair([acc[0], acc[1]], c, e, y, r),
            _ => single(acc[0], c, e, y, r),
        }
    }
}

/// Stores `NV` vectors of accumulators as u8 by a [`Path`] that is not the general one.
///
/// # Safety
/// AVX-512 is enabled in the caller, which this is inlined into; otherwise as for [`store`].
#[inline(always)]
pub(super) unsafe fn store_by<const NV: usize, const PATH: u8>(
    acc: &[__m512i; NV],
    c: &Columns,
    e: &Epilogue,
    y: *mut u8,
    r: *const u8,
) {
    // SAFETY: by the caller's promise; stores are masked by the width.
    unsafe {
        let mut x = [_mm512_setzero_ps(); NV];
        for v in 0..NV {
            x[v] = scaled_by::<PATH>(acc[v], c, v * LANES);
        }
        if let (true, Some((m, z))) = (PATH == Path::Residual as u8, e.residual) {
            let r = shifted_residual::<NV>(r, c.width);
            let (shift, m) = (_mm512_set1_ps(SHIFT + z as f32), _mm512_set1_ps(m));
            for v in 0..NV {
                x[v] = _mm512_add_ps(x[v], _mm512_mul_ps(_mm512_sub_ps(r[v], shift), m));
            }
        }
        if NV == 4 {
            let (low, high) = ([x[0], x[NV.min(2) - 1]], [x[NV.min(3) - 1], x[NV - 1]]);
            let q = bounded(_mm512_packus_epi16(words::<PATH>(low, e), words::<PATH>(high, e)), e);
            if c.width >= 64 {
                _mm512_storeu_si512(y.cast(), q);
            } else {
                _mm512_mask_storeu_epi8(y.cast(), mask(c.width, 64), q);
            }
            return;
        }
        if NV == 2 {
            let w = bounded_words(words::<PATH>([x[0], x[NV - 1]], e), e);
            _mm256_mask_storeu_epi8(y.cast(), mask(c.width, 32) as u32, _mm512_cvtepi16_epi8(w));
        } else {
            let w = words::<PATH>([x[0], x[0]], e);
            // A dword of each lane: the others repeat it.
            let each = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            let q = _mm512_permutexvar_epi32(each, bounded(_mm512_packus_epi16(w, w), e));
            _mm_mask_storeu_epi8(y.cast(), mask(c.width, LANES) as u16, _mm512_castsi512_si128(q));
        }
    }
}

/// `f32(acc)·m`, or before an activation `f32(acc)·m + b` rounded once, of the vector at column `at`.
#[inline(always)]
pub(in crate::qconv) unsafe fn scaled_by<const PATH: u8>(acc: __m512i, c: &Columns, at: usize) -> __m512 {
    // SAFETY: columns are padded to whole vectors.
    unsafe {
        let (acc, m) = (_mm512_cvtepi32_ps(acc), _mm512_loadu_ps(c.scale.add(at)));
        match PATH == Path::Activation as u8 {
            true => _mm512_fmadd_ps(acc, m, _mm512_loadu_ps(c.float_bias.add(at))),
            false => _mm512_mul_ps(acc, m),
        }
    }
}

/// Two vectors of values rounded, after the activation if there is one, with the zero point: words in the order of
/// `vpackssdw`, bounded by i16 alone.
#[inline(always)]
pub(in crate::qconv) unsafe fn words<const PATH: u8>(x: [__m512; 2], e: &Epilogue) -> __m512i {
    // SAFETY: the caller enables the features.
    unsafe {
        let zero = _mm512_set1_epi16(e.zero_point as i16);
        match &e.activation {
            Some(form) if PATH == Path::Activation as u8 => levels(form, x, zero),
            _ => _mm512_adds_epi16(rounded_words(x), zero),
        }
    }
}

/// Stores two rows of 32 channels or four of 16, from row `i` on, by a [`Path`] that is not the general one.
///
/// # Safety
/// AVX-512 is enabled in the caller, which this is inlined into; the tile has these rows.
#[inline(always)]
pub(super) unsafe fn store_side<const NV: usize, const MR: usize, const PATH: u8>(
    acc: &[[__m512i; NV]; MR],
    i: usize,
    t: &Tile<'_>,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let (c, e) = (&t.columns, t.epilogue);
        let mut x = [_mm512_setzero_ps(); 4];
        for k in 0..4 {
            x[k] = scaled_by::<PATH>(acc[i + k / NV][k % NV], c, k % NV * LANES);
        }
        if let (true, Some((m, z))) = (PATH == Path::Residual as u8, e.residual) {
            let (shift, m) = (_mm512_set1_ps(SHIFT + z as f32), _mm512_set1_ps(m));
            for row in 0..4 / NV {
                let r = shifted_residual::<NV>(t.r_at(i + row), c.width);
                for v in 0..NV {
                    let x = &mut x[row * NV + v];
                    *x = _mm512_add_ps(*x, _mm512_mul_ps(_mm512_sub_ps(r[v], shift), m));
                }
            }
        }
        let (low, high) = (words::<PATH>([x[0], x[1]], e), words::<PATH>([x[2], x[3]], e));
        let q = bounded(_mm512_packus_epi16(low, high), e);
        // Each 128-bit lane holds a part of every row: row after row.
        let q = match NV {
            2 => _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), q),
            _ => {
                let rows = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
                _mm512_permutexvar_epi32(rows, q)
            }
        };
        let channels = NV * LANES;
        if c.width == channels && t.table.is_none() && t.y_step == channels {
            _mm512_storeu_si512(t.y_at(i).cast(), q);
            return;
        }
        let mask = mask(c.width, channels) as u32;
        if NV == 2 {
            _mm256_mask_storeu_epi8(t.y_at(i).cast(), mask, _mm512_castsi512_si256(q));
            _mm256_mask_storeu_epi8(t.y_at(i + 1).cast(), mask, _mm512_extracti64x4_epi64::<1>(q));
        } else {
            let mask = mask as u16;
            _mm_mask_storeu_epi8(t.y_at(i).cast(), mask, _mm512_castsi512_si128(q));
            _mm_mask_storeu_epi8(t.y_at(i + 1).cast(), mask, _mm512_extracti32x4_epi32::<1>(q));
            _mm_mask_storeu_epi8(t.y_at(i + 2).cast(), mask, _mm512_extracti32x4_epi32::<2>(q));
            _mm_mask_storeu_epi8(t.y_at(i + 3).cast(), mask, _mm512_extracti32x4_epi32::<3>(q));
        }
    }
}

/// Stores pixels of `nv` vectors whose accumulators are in memory.
///
/// # Safety
/// AVX-512 is enabled in the caller, which this is inlined into; `sums` are valid for the pixels, which the tile has.
#[inline(always)]
pub(in crate::qconv) unsafe fn store_row(sums: *const i32, nv: usize, pixels: usize, t: &Tile<'_>) {
    // SAFETY: by the caller's promise.
    unsafe {
        match nv {
            4 => store_pixels::<4>(sums, pixels, t),
            2 => store_pixels::<2>(sums, pixels, t),
            _ => store_pixels::<1>(sums, pixels, t),
        }
    }
}

#[inline(always)]
unsafe fn store_pixels<const NV: usize>(sums: *const i32, pixels: usize, t: &Tile<'_>) {
    let (c, e) = (&t.columns, t.epilogue);
    for i in 0..pixels {
        // SAFETY: by the caller's promise.
        unsafe {
            let (y, r) = (t.y_at(i), t.r_at(i));
            let mut acc = [_mm512_setzero_si512(); NV];
            for v in 0..NV {
                acc[v] = _mm512_loadu_si512(sums.add((i * NV + v) * LANES).cast());
            }
            match e.path {
                Path::Plain => store_by::<NV, { Path::Plain as u8 }>(&acc, c, e, y, r),
                Path::Residual => store_by::<NV, { Path::Residual as u8 }>(&acc, c, e, y, r),
                Path::Activation => store_by::<NV, { Path::Activation as u8 }>(&acc, c, e, y, r),
                Path::General => store(&acc, c, e, y, r),
            }
        }
    }
}

/// Bytes within the output's bounds.
#[inline(always)]
pub(in crate::qconv) unsafe fn bounded(q: __m512i, e: &Epilogue) -> __m512i {
    // SAFETY: the caller enables the features.
    unsafe {
        if e.qmin == 0 && e.qmax == 255 {
            return q;
        }
        _mm512_max_epu8(_mm512_min_epu8(q, _mm512_set1_epi8(e.qmax as i8)), _mm512_set1_epi8(e.qmin as i8))
    }
}

/// Words within the output's bounds.
#[inline(always)]
unsafe fn bounded_words(q: __m512i, e: &Epilogue) -> __m512i {
    // SAFETY: the caller enables the features.
    unsafe { _mm512_max_epi16(_mm512_min_epi16(q, _mm512_set1_epi16(e.qmax as i16)), _mm512_set1_epi16(e.qmin as i16)) }
}

/// `SHIFT + r` of a residual's bytes, in the order of the columns.
#[inline(always)]
unsafe fn shifted_residual<const NV: usize>(r: *const u8, width: usize) -> [__m512; NV] {
    // SAFETY: as in `store_by`; loads are masked by the width.
    unsafe {
        let high = _mm512_set1_epi16(0x4b00);
        let mut out = [_mm512_setzero_ps(); NV];
        if NV == 4 {
            let all = shifted(_mm512_maskz_loadu_epi8(mask(width, 64), r.cast()));
            (out[0], out[NV.min(2) - 1], out[NV.min(3) - 1], out[NV - 1]) = (all[0], all[1], all[2], all[3]);
            return out;
        }
        if NV == 2 {
            let r = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask(width, 32) as u32, r.cast()));
            out[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(r, high));
            out[NV - 1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(r, high));
        } else {
            let r = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask(width, LANES) as u16, r.cast()));
            out[0] = _mm512_castsi512_ps(_mm512_or_si512(r, _mm512_set1_epi32(0x4b00_0000)));
        }
        out
    }
}

/// `f32(acc)·m [+ bias]` of the vector at column `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn scaled(acc: __m512i, c: &Columns, at: usize, e: &Epilogue) -> __m512 {
    // SAFETY: columns are padded to whole vectors.
    unsafe {
        let v = _mm512_mul_ps(_mm512_cvtepi32_ps(acc), _mm512_loadu_ps(c.scale.add(at)));
        if e.float_bias { _mm512_add_ps(v, _mm512_loadu_ps(c.float_bias.add(at))) } else { v }
    }
}

/// `v + f32(r - zr)·mr`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
fn with_residual(v: __m512, r: __m512i, (m, z): (f32, i32)) -> __m512 {
    let r = _mm512_cvtepi32_ps(_mm512_sub_epi32(r, _mm512_set1_epi32(z)));
    _mm512_add_ps(v, _mm512_mul_ps(r, _mm512_set1_ps(m)))
}

/// `rne(min(v, qmax - zero_point))`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
fn rounded(v: __m512, e: &Epilogue) -> __m512i {
    _mm512_cvtps_epi32(_mm512_min_ps(v, _mm512_set1_ps((e.qmax - e.zero_point) as f32)))
}

/// Bits of the first `width` of `lanes` lanes.
#[inline(always)]
fn mask(width: usize, lanes: usize) -> u64 {
    ones(width.min(lanes))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn quad(acc: [__m512i; 4], c: &Columns, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: columns are padded to whole vectors; loads and stores are masked by the width.
    unsafe {
        let mut v = [_mm512_setzero_ps(); 4];
        for j in 0..4 {
            v[j] = scaled(acc[j], c, j * LANES, e);
        }
        if let Some(residual) = e.residual {
            let zero = _mm512_setzero_si512();
            let r = _mm512_maskz_loadu_epi8(mask(c.width, 64), r.cast());
            let (low, high) = (_mm512_unpacklo_epi8(r, zero), _mm512_unpackhi_epi8(r, zero));
            v[0] = with_residual(v[0], _mm512_unpacklo_epi16(low, zero), residual);
            v[1] = with_residual(v[1], _mm512_unpackhi_epi16(low, zero), residual);
            v[2] = with_residual(v[2], _mm512_unpacklo_epi16(high, zero), residual);
            v[3] = with_residual(v[3], _mm512_unpackhi_epi16(high, zero), residual);
        }
        let zp = _mm512_set1_epi16(e.zero_point as i16);
        let low = _mm512_adds_epi16(_mm512_packs_epi32(rounded(v[0], e), rounded(v[1], e)), zp);
        let high = _mm512_adds_epi16(_mm512_packs_epi32(rounded(v[2], e), rounded(v[3], e)), zp);
        let q = _mm512_max_epu8(_mm512_packus_epi16(low, high), _mm512_set1_epi8(e.qmin as i8));
        let q = if let Some(t) = &e.table { lookup(q, t.as_ptr()) } else { q };
        if c.width >= 64 {
            _mm512_storeu_si512(y.cast(), q);
        } else {
            _mm512_mask_storeu_epi8(y.cast(), mask(c.width, 64), q);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn pair(acc: [__m512i; 2], c: &Columns, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: as in `quad`.
    unsafe {
        let mut v = [scaled(acc[0], c, 0, e), scaled(acc[1], c, LANES, e)];
        let mask = mask(c.width, 32) as u32;
        if let Some(residual) = e.residual {
            let zero = _mm512_setzero_si512();
            let r = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, r.cast()));
            v[0] = with_residual(v[0], _mm512_unpacklo_epi16(r, zero), residual);
            v[1] = with_residual(v[1], _mm512_unpackhi_epi16(r, zero), residual);
        }
        let q = _mm512_packs_epi32(rounded(v[0], e), rounded(v[1], e));
        let q = _mm512_adds_epi16(q, _mm512_set1_epi16(e.zero_point as i16));
        let q = _mm512_cvtepi16_epi8(_mm512_max_epi16(q, _mm512_set1_epi16(e.qmin as i16)));
        let q = if let Some(t) = &e.table {
            _mm512_castsi512_si256(lookup(_mm512_castsi256_si512(q), t.as_ptr()))
        } else {
            q
        };
        if c.width >= 32 {
            _mm256_storeu_si256(y.cast(), q);
        } else {
            _mm256_mask_storeu_epi8(y.cast(), mask, q);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
unsafe fn single(acc: __m512i, c: &Columns, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: as in `quad`.
    unsafe {
        let mut v = scaled(acc, c, 0, e);
        let mask = mask(c.width, LANES) as u16;
        if let Some(residual) = e.residual {
            v = with_residual(v, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, r.cast())), residual);
        }
        let v = _mm512_max_ps(v, _mm512_set1_ps((e.qmin - e.zero_point) as f32));
        let q = _mm512_add_epi32(rounded(v, e), _mm512_set1_epi32(e.zero_point));
        let q = _mm512_cvtepi32_epi8(q);
        let q = if let Some(t) = &e.table {
            _mm512_castsi512_si128(lookup(_mm512_castsi128_si512(q), t.as_ptr()))
        } else {
            q
        };
        if mask == u16::MAX {
            _mm_storeu_si128(y.cast(), q);
        } else {
            _mm_mask_storeu_epi8(y.cast(), mask, q);
        }
    }
}

/// Stores the 16 channels at column `at`, in natural order, as floats.
///
/// # Safety
/// The columns are valid from `at`; `y` and `r` point to the block's first element.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
pub(in crate::qconv) unsafe fn store_f32(
    acc: __m512i,
    c: &Columns,
    at: usize,
    e: &Epilogue,
    y: *mut f32,
    r: *const u8,
) {
    // SAFETY: as in `quad`.
    unsafe {
        let mut v = scaled(acc, c, at, e);
        let mask = mask(c.width - at, LANES) as u16;
        if let Some(residual) = e.residual {
            let r = _mm_maskz_loadu_epi8(mask, r.wrapping_add(at).cast());
            v = with_residual(v, _mm512_cvtepu8_epi32(r), residual);
        }
        _mm512_mask_storeu_ps(y.add(at), mask, v);
    }
}

/// `table[q]` of 64 bytes.
///
/// # Safety
/// The table has 256 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
pub(in crate::qconv) unsafe fn lookup(q: __m512i, table: *const u8) -> __m512i {
    // SAFETY: by the caller's promise.
    unsafe {
        let low = _mm512_loadu_si512(table.cast());
        let low = _mm512_permutex2var_epi8(low, q, _mm512_loadu_si512(table.add(64).cast()));
        let high = _mm512_loadu_si512(table.add(128).cast());
        let high = _mm512_permutex2var_epi8(high, q, _mm512_loadu_si512(table.add(192).cast()));
        _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), low, high)
    }
}
