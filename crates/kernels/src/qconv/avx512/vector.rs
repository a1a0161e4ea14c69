//! The three vector widths as one trait, for kernels whose blocks are 64, 32 or 16 channels wide.
//!
//! Methods are inlined into functions that enable the instruction set.
#![allow(unsafe_code, reason = "intrinsics of an instruction set that the caller enables")]
#![allow(unused_unsafe, reason = "of the three widths, one needs no cast")]

use std::arch::x86_64::*;

/// A vector of bytes, with AVX-512 VL, BW and VNNI operations.
///
/// # Safety
/// Methods are called only from functions that enable these features.
pub(in crate::qconv) trait Vector: Copy {
    /// Bytes; a block's channels.
    const BYTES: usize;
    unsafe fn zero() -> Self;
    /// Whole or, with a mask, the first bytes; the rest is zero.
    unsafe fn load(p: *const u8, mask: u64) -> Self;
    unsafe fn load_all(p: *const u8) -> Self;
    /// As often as it fits 512 bits.
    unsafe fn spread(p: *const u8) -> __m512i;
    unsafe fn splat8(v: u8) -> Self;
    unsafe fn unpack_lo8(self, b: Self) -> Self;
    unsafe fn unpack_hi8(self, b: Self) -> Self;
    unsafe fn unpack_lo16(self, b: Self) -> Self;
    unsafe fn unpack_hi16(self, b: Self) -> Self;
    /// `self + Σ x·w` by dword; x unsigned, w signed.
    unsafe fn dot(self, x: Self, w: Self) -> Self;
    /// `rne(min(f32(self)·scale + bias + residual, top))`: bias null for none; residual is a dword and `(mr, zr)`.
    unsafe fn requantize(self, scale: *const f32, bias: *const f32, r: Option<(Self, f32, i32)>, top: f32) -> Self;
    /// Saturated i32 to i16, plus `zp`, to u8, at least `qmin`.
    unsafe fn pack(v: [Self; 4], zp: i32, qmin: i32) -> Self;
    /// The halves of [`Vector::pack`].
    unsafe fn pack_words(self, b: Self, zp: i32) -> Self;
    unsafe fn pack_bytes(self, b: Self, qmin: i32) -> Self;
    unsafe fn widen(self) -> __m512i;
    unsafe fn narrow(v: __m512i) -> Self;
    unsafe fn store(self, p: *mut u8, mask: u64);
}

macro_rules! vector {
    ($v:ident, $bytes:literal, $mask:ty, zero: $zero:ident, load: $load:ident, $loadm:ident, spread: $spread:path, splat: $splat:ident,
     $splat16:ident, $splat32:ident, unpack: $lo8:ident $hi8:ident $lo16:ident $hi16:ident, dot: $dot:ident,
     float: $cvt:ident $cvti:ident $mul:ident $add:ident $min:ident $splatf:ident $loadf:ident, sub: $sub:ident,
     pack: $packs:ident $adds:ident $packus:ident $max:ident, cast: $widen:expr, $narrow:expr,
     store: $store:ident, $storem:ident) => {
        impl Vector for $v {
            const BYTES: usize = $bytes;
            #[inline(always)]
            unsafe fn zero() -> Self {
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn load(p: *const u8, mask: u64) -> Self {
                unsafe { $loadm(mask as $mask, p.cast()) }
            }
            #[inline(always)]
            unsafe fn load_all(p: *const u8) -> Self {
                unsafe { $load(p.cast()) }
            }
            #[inline(always)]
            unsafe fn spread(p: *const u8) -> __m512i {
                unsafe { $spread(Self::load_all(p)) }
            }
            #[inline(always)]
            unsafe fn splat8(v: u8) -> Self {
                unsafe { $splat(v as i8) }
            }
            #[inline(always)]
            unsafe fn unpack_lo8(self, b: Self) -> Self {
                unsafe { $lo8(self, b) }
            }
            #[inline(always)]
            unsafe fn unpack_hi8(self, b: Self) -> Self {
                unsafe { $hi8(self, b) }
            }
            #[inline(always)]
            unsafe fn unpack_lo16(self, b: Self) -> Self {
                unsafe { $lo16(self, b) }
            }
            #[inline(always)]
            unsafe fn unpack_hi16(self, b: Self) -> Self {
                unsafe { $hi16(self, b) }
            }
            #[inline(always)]
            unsafe fn dot(self, x: Self, w: Self) -> Self {
                unsafe { $dot(self, x, w) }
            }
            #[inline(always)]
            unsafe fn requantize(
                self,
                scale: *const f32,
                bias: *const f32,
                r: Option<(Self, f32, i32)>,
                top: f32,
            ) -> Self {
                unsafe {
                    let mut v = $mul($cvt(self), $loadf(scale));
                    if !bias.is_null() {
                        v = $add(v, $loadf(bias));
                    }
                    if let Some((r, m, z)) = r {
                        v = $add(v, $mul($cvt($sub(r, $splat32(z))), $splatf(m)));
                    }
                    $cvti($min(v, $splatf(top)))
                }
            }
            #[inline(always)]
            unsafe fn pack(v: [Self; 4], zp: i32, qmin: i32) -> Self {
                unsafe { v[0].pack_words(v[1], zp).pack_bytes(v[2].pack_words(v[3], zp), qmin) }
            }
            #[inline(always)]
            unsafe fn pack_words(self, b: Self, zp: i32) -> Self {
                unsafe { $adds($packs(self, b), $splat16(zp as i16)) }
            }
            #[inline(always)]
            unsafe fn pack_bytes(self, b: Self, qmin: i32) -> Self {
                unsafe { $max($packus(self, b), $splat(qmin as i8)) }
            }
            #[inline(always)]
            unsafe fn widen(self) -> __m512i {
                unsafe { $widen(self) }
            }
            #[inline(always)]
            unsafe fn narrow(v: __m512i) -> Self {
                unsafe { $narrow(v) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut u8, mask: u64) {
                unsafe {
                    if mask as $mask == <$mask>::MAX {
                        $store(p.cast(), self)
                    } else {
                        $storem(p.cast(), mask as $mask, self)
                    }
                }
            }
        }
    };
}

vector!(__m512i, 64, u64, zero: _mm512_setzero_si512, load: _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
    spread: std::convert::identity, splat: _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    unpack: _mm512_unpacklo_epi8 _mm512_unpackhi_epi8 _mm512_unpacklo_epi16 _mm512_unpackhi_epi16,
    dot: _mm512_dpbusd_epi32,
    float: _mm512_cvtepi32_ps _mm512_cvtps_epi32 _mm512_mul_ps _mm512_add_ps _mm512_min_ps _mm512_set1_ps _mm512_loadu_ps,
    sub: _mm512_sub_epi32,
    pack: _mm512_packs_epi32 _mm512_adds_epi16 _mm512_packus_epi16 _mm512_max_epu8,
    cast: std::convert::identity, std::convert::identity, store: _mm512_storeu_si512, _mm512_mask_storeu_epi8);
vector!(__m256i, 32, u32, zero: _mm256_setzero_si256, load: _mm256_loadu_si256, _mm256_maskz_loadu_epi8,
    spread: _mm512_broadcast_i64x4, splat: _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32,
    unpack: _mm256_unpacklo_epi8 _mm256_unpackhi_epi8 _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
    dot: _mm256_dpbusd_epi32,
    float: _mm256_cvtepi32_ps _mm256_cvtps_epi32 _mm256_mul_ps _mm256_add_ps _mm256_min_ps _mm256_set1_ps _mm256_loadu_ps,
    sub: _mm256_sub_epi32,
    pack: _mm256_packs_epi32 _mm256_adds_epi16 _mm256_packus_epi16 _mm256_max_epu8,
    cast: _mm512_castsi256_si512, _mm512_castsi512_si256, store: _mm256_storeu_si256, _mm256_mask_storeu_epi8);
vector!(__m128i, 16, u16, zero: _mm_setzero_si128, load: _mm_loadu_si128, _mm_maskz_loadu_epi8,
    spread: _mm512_broadcast_i32x4, splat: _mm_set1_epi8, _mm_set1_epi16, _mm_set1_epi32,
    unpack: _mm_unpacklo_epi8 _mm_unpackhi_epi8 _mm_unpacklo_epi16 _mm_unpackhi_epi16,
    dot: _mm_dpbusd_epi32,
    float: _mm_cvtepi32_ps _mm_cvtps_epi32 _mm_mul_ps _mm_add_ps _mm_min_ps _mm_set1_ps _mm_loadu_ps,
    sub: _mm_sub_epi32,
    pack: _mm_packs_epi32 _mm_adds_epi16 _mm_packus_epi16 _mm_max_epu8,
    cast: _mm512_castsi128_si512, _mm512_castsi512_si128, store: _mm_storeu_si128, _mm_mask_storeu_epi8);
