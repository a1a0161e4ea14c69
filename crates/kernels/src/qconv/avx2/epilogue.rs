//! From accumulators to stored outputs, 16 channels of a pixel at a time, or of two.
//!
//! Bounds and zero points are applied where [the epilogue of 512 bits](super::super::avx512::epilogue) applies them.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::activation::{after, before};
use crate::qconv::pack::LANES;
use crate::qconv::spec::OutputKind;
use crate::qconv::tile::{Columns, Epilogue, Path, Tile};
use std::arch::x86_64::*;

/// Stores the accumulators of a tile, at most six rows of them.
///
/// # Safety
/// AVX2 is enabled in the caller, which this is inlined into; the tile has these rows.
#[inline(always)]
pub(super) unsafe fn store_tile<const MR: usize>(acc: &[[__m256i; 2]; MR], t: &Tile<'_>) {
    // SAFETY: by the caller's promise.
    let bounds = unsafe { Bounds::of(t.epilogue) };
    // Written out, since a loop that is not unrolled would keep the accumulators in memory.
    macro_rules! pairs {
        ($path:expr, $($i:literal)*) => {
            $(if $i < MR {
                let second = const { if $i + 1 < MR { $i + 1 } else { $i } };
                let (c, e) = (&t.columns, t.epilogue);
                let x = [
                    scaled_by::<{ $path as u8 }>(acc[$i], c, e, t.r_at($i)),
                    scaled_by::<{ $path as u8 }>(acc[second], c, e, t.r_at(second)),
                ];
                let q = bytes::<{ $path as u8 }>(x, e, &bounds);
                store_bytes(_mm256_castsi256_si128(q), t.y_at($i), c.width);
                if second > $i {
                    store_bytes(_mm256_extracti128_si256::<1>(q), t.y_at(second), c.width);
                }
            })*
        };
    }
    macro_rules! rows {
        ($($i:literal)*) => {
            $(if $i < MR {
                store(acc[$i], &t.columns, t.epilogue, t.y_at($i), t.r_at($i));
            })*
        };
    }
    // SAFETY: by the caller's promise.
    unsafe {
        match t.epilogue.path {
            Path::Plain => {
                pairs!(Path::Plain, 0 2 4);
            }
            Path::Residual => {
                pairs!(Path::Residual, 0 2 4);
            }
            Path::Activation => {
                pairs!(Path::Activation, 0 2 4);
            }
            Path::General => {
                rows!(0 1 2 3 4 5);
            }
        }
    }
}

/// Stores up to four pixels of 16 channels whose accumulators are in memory.
///
/// # Safety
/// AVX2 is enabled in the caller, which this is inlined into; `sums` are valid for the pixels, which the tile has.
#[inline(always)]
pub(in crate::qconv) unsafe fn store_row(sums: *const i32, _: usize, pixels: usize, t: &Tile<'_>) {
    // SAFETY: by the caller's promise.
    unsafe {
        match pixels {
            4.. => store_tile(&rows::<4>(sums), t),
            3 => store_tile(&rows::<3>(sums), t),
            2 => store_tile(&rows::<2>(sums), t),
            _ => store_tile(&rows::<1>(sums), t),
        }
    }
}

#[inline(always)]
unsafe fn rows<const MR: usize>(sums: *const i32) -> [[__m256i; 2]; MR] {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut acc = [[_mm256_setzero_si256(); 2]; MR];
        for i in 0..MR {
            for v in 0..2 {
                acc[i][v] = _mm256_loadu_si256(sums.add(i * LANES + v * 8).cast());
            }
        }
        acc
    }
}

/// `f32(acc)·m`, or before an activation `f32(acc)·m + b` rounded once, of the vector at column `at`.
///
/// # Safety
/// AVX2 is enabled in the caller, which this is inlined into; columns are padded to whole blocks.
#[inline(always)]
pub(in crate::qconv) unsafe fn scaled<const PATH: u8>(acc: __m256i, c: &Columns, at: usize) -> __m256 {
    // SAFETY: by the caller's promise.
    unsafe {
        let (acc, m) = (_mm256_cvtepi32_ps(acc), _mm256_loadu_ps(c.scale.add(at)));
        match PATH == Path::Activation as u8 {
            true => _mm256_fmadd_ps(acc, m, _mm256_loadu_ps(c.float_bias.add(at))),
            false => _mm256_mul_ps(acc, m),
        }
    }
}

/// [`scaled`] values of 16 channels, with the residual if [`Path`] has one.
#[inline(always)]
pub(in crate::qconv) unsafe fn scaled_by<const PATH: u8>(
    acc: [__m256i; 2],
    c: &Columns,
    e: &Epilogue,
    r: *const u8,
) -> [__m256; 2] {
    // SAFETY: columns are padded to whole blocks; no more of the residual is read than the width.
    unsafe {
        let mut x = [_mm256_setzero_ps(); 2];
        for v in 0..2 {
            x[v] = scaled::<PATH>(acc[v], c, 8 * v);
        }
        match e.residual {
            Some(residual) if PATH == Path::Residual as u8 => with_residual(x, load_bytes(r, c.width), residual),
            _ => x,
        }
    }
}

/// `v + f32(r - zr)·mr` of 16 channels.
#[inline(always)]
unsafe fn with_residual(x: [__m256; 2], r: __m128i, (m, z): (f32, i32)) -> [__m256; 2] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (z, m) = (_mm256_set1_epi32(z), _mm256_set1_ps(m));
        let (low, high) = (_mm256_cvtepu8_epi32(r), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(r, r)));
        let (low, high) = (_mm256_sub_epi32(low, z), _mm256_sub_epi32(high, z));
        [
            _mm256_add_ps(x[0], _mm256_mul_ps(_mm256_cvtepi32_ps(low), m)),
            _mm256_add_ps(x[1], _mm256_mul_ps(_mm256_cvtepi32_ps(high), m)),
        ]
    }
}

/// Two rows of 16 values as bytes within the bounds, one row after the other.
#[inline(always)]
unsafe fn bytes<const PATH: u8>(x: [[__m256; 2]; 2], e: &Epilogue, bounds: &Bounds) -> __m256i {
    // SAFETY: the caller enables the features.
    unsafe {
        let form = e.activation.as_ref();
        let words = [before::<PATH>(form, x[0]), before::<PATH>(form, x[1])];
        let q = bounds.apply(after::<PATH>(form, words));
        // Of each row the packs leave channels 0-3 and 8-11 in one half, 4-7 and 12-15 in the other.
        _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
    }
}

/// The output's zero point and bounds, in vectors.
#[derive(Clone, Copy)]
pub(in crate::qconv) struct Bounds {
    zero: __m256i,
    qmin: __m256i,
    qmax: __m256i,
}

impl Bounds {
    /// # Safety
    /// AVX2 is enabled in the caller, which this is inlined into.
    #[inline(always)]
    pub(in crate::qconv) unsafe fn of(e: &Epilogue) -> Bounds {
        // SAFETY: by the caller's promise.
        unsafe {
            Bounds {
                zero: _mm256_set1_epi16(e.zero_point as i16),
                qmin: _mm256_set1_epi8(e.qmin as i8),
                qmax: _mm256_set1_epi8(e.qmax as i8),
            }
        }
    }

    /// Words with the zero point, as bytes within the bounds, in the order of `vpackuswb`.
    ///
    /// # Safety
    /// As for [`Bounds::of`].
    #[inline(always)]
    pub(in crate::qconv) unsafe fn apply(&self, words: [__m256i; 2]) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe {
            let (low, high) = (_mm256_adds_epi16(words[0], self.zero), _mm256_adds_epi16(words[1], self.zero));
            let q = _mm256_packus_epi16(low, high);
            _mm256_max_epu8(_mm256_min_epu8(q, self.qmax), self.qmin)
        }
    }
}

/// Up to 16 bytes; the rest is zero.
#[inline(always)]
pub(in crate::qconv) unsafe fn load_bytes(p: *const u8, n: usize) -> __m128i {
    // SAFETY: the caller has `n` bytes.
    unsafe {
        if n >= LANES {
            return _mm_loadu_si128(p.cast());
        }
        let mut bytes = [0u8; LANES];
        std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), n);
        _mm_loadu_si128(bytes.as_ptr().cast())
    }
}

/// The first `n` bytes, at most 16.
#[inline(always)]
pub(in crate::qconv) unsafe fn store_bytes(mut q: __m128i, mut y: *mut u8, n: usize) {
    // SAFETY: the caller has `n` bytes.
    unsafe {
        if n >= LANES {
            return _mm_storeu_si128(y.cast(), q);
        }
        if n & 8 != 0 {
            _mm_storel_epi64(y.cast(), q);
            (q, y) = (_mm_unpackhi_epi64(q, q), y.add(8));
        }
        if n & 4 != 0 {
            y.cast::<i32>().write_unaligned(_mm_cvtsi128_si32(q));
            (q, y) = (_mm_srli_si128::<4>(q), y.add(4));
        }
        if n & 2 != 0 {
            y.cast::<i16>().write_unaligned(_mm_cvtsi128_si32(q) as i16);
            (q, y) = (_mm_srli_si128::<2>(q), y.add(2));
        }
        if n & 1 != 0 {
            y.write(_mm_cvtsi128_si32(q) as u8);
        }
    }
}

/// Stores up to 16 channels in natural order, by the general path.
///
/// # Safety
/// The columns are valid for 16; `y` and `r` for their width.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(in crate::qconv) unsafe fn store(acc: [__m256i; 2], c: &Columns, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: columns are padded to whole blocks; loads and stores are as long as the width.
    unsafe {
        let mut x = [_mm256_setzero_ps(); 2];
        for v in 0..2 {
            x[v] = _mm256_mul_ps(_mm256_cvtepi32_ps(acc[v]), _mm256_loadu_ps(c.scale.add(8 * v)));
            if e.float_bias {
                x[v] = _mm256_add_ps(x[v], _mm256_loadu_ps(c.float_bias.add(8 * v)));
            }
        }
        if let Some(residual) = e.residual {
            x = with_residual(x, load_bytes(r, c.width), residual);
        }
        if e.out == OutputKind::F32 {
            return store_floats(x, c.width, y.cast());
        }
        let mut q = acc;
        for v in 0..2 {
            // Bounds are integers less the zero point: clamping before rounding is clamping after it.
            x[v] = _mm256_min_ps(x[v], _mm256_set1_ps((e.qmax - e.zero_point) as f32));
            x[v] = _mm256_max_ps(x[v], _mm256_set1_ps((e.qmin - e.zero_point) as f32));
            q[v] = _mm256_add_epi32(_mm256_cvtps_epi32(x[v]), _mm256_set1_epi32(e.zero_point));
        }
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(q[0], q[1]));
        let mut q = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
        if let Some(table) = &e.table {
            let mut bytes = [0u8; LANES];
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), q);
            for i in 0..LANES {
                bytes[i] = *table.as_ptr().add(usize::from(bytes[i]));
            }
            q = _mm_loadu_si128(bytes.as_ptr().cast());
        }
        store_bytes(q, y, c.width);
    }
}

#[inline(always)]
unsafe fn store_floats(x: [__m256; 2], width: usize, y: *mut f32) {
    // SAFETY: stores are masked by the width.
    unsafe {
        if width >= LANES {
            _mm256_storeu_ps(y, x[0]);
            _mm256_storeu_ps(y.add(8), x[1]);
            return;
        }
        let width = _mm256_set1_epi32(width as i32);
        let low = _mm256_cmpgt_epi32(width, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        let high = _mm256_cmpgt_epi32(width, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
        _mm256_maskstore_ps(y, low, x[0]);
        _mm256_maskstore_ps(y.wrapping_add(8), high, x[1]);
    }
}
