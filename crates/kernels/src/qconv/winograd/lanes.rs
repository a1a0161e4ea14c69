//! Vectors of words and of sums, 512 or 256 bits wide.
#![allow(unsafe_code, reason = "vector loads and stores")]

use crate::qconv::tile::Tile;
use crate::qconv::{avx2, avx512};
use std::arch::x86_64::*;

/// A vector, of i16 or of i32, and what the loops do with it; arithmetic wraps.
///
/// # Safety
/// For every function, the features of the implementation are enabled in the caller, which it is inlined into; pointers
/// are valid for a whole vector.
pub(super) trait Lanes: Copy {
    /// i32 lanes; of i16 there are twice as many.
    const SUMS: usize;
    /// Rows of the largest tile of products.
    const ROWS: usize;

    unsafe fn load(p: *const i32) -> Self;
    unsafe fn store(self, p: *mut i32);
    /// Bytes as words.
    unsafe fn widen(p: *const u8) -> Self;
    unsafe fn splat16(x: i16) -> Self;
    unsafe fn splat32(x: i32) -> Self;
    unsafe fn add16(self, o: Self) -> Self;
    unsafe fn sub16(self, o: Self) -> Self;
    unsafe fn shl16(self, by: i32) -> Self;
    unsafe fn add32(self, o: Self) -> Self;
    unsafe fn sub32(self, o: Self) -> Self;
    unsafe fn mul32(self, o: Self) -> Self;
    unsafe fn shl32(self, by: i32) -> Self;
    /// With the sign.
    unsafe fn shr32(self, by: i32) -> Self;
    /// `acc + Σ x·w` of the two words of each sum.
    unsafe fn dot(acc: Self, x: Self, w: Self) -> Self;
    /// Stores accumulators, `16·nv` to a pixel, of up to four pixels beside each other.
    unsafe fn finish(sums: *const i32, nv: usize, pixels: usize, t: &Tile<'_>);
}

macro_rules! lanes {
    (
        $(#[$doc:meta])* $name:ident($vector:ty), sums: $sums:literal, rows: $rows:literal,
        load: $load:ident, store: $store:ident, widen: $widen:ident($half:ident), splat: $splat16:ident $splat32:ident,
        words: $add16:ident $sub16:ident $shl16:ident,
        sums: $add32:ident $sub32:ident $mul32:ident $shl32:ident $shr32:ident,
        dot: |$acc:ident, $x:ident, $w:ident| $dot:expr, finish: $finish:path $(,)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name($vector);

        // SAFETY, of all blocks: by the promise of the trait's callers.
        impl Lanes for $name {
            const SUMS: usize = $sums;
            const ROWS: usize = $rows;

            #[inline(always)]
            unsafe fn load(p: *const i32) -> Self {
                unsafe { $name($load(p.cast())) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut i32) {
                unsafe { $store(p.cast(), self.0) }
            }
            #[inline(always)]
            unsafe fn widen(p: *const u8) -> Self {
                unsafe { $name($widen($half(p.cast()))) }
            }
            #[inline(always)]
            unsafe fn splat16(x: i16) -> Self {
                unsafe { $name($splat16(x)) }
            }
            #[inline(always)]
            unsafe fn splat32(x: i32) -> Self {
                unsafe { $name($splat32(x)) }
            }
            #[inline(always)]
            unsafe fn add16(self, o: Self) -> Self {
                unsafe { $name($add16(self.0, o.0)) }
            }
            #[inline(always)]
            unsafe fn sub16(self, o: Self) -> Self {
                unsafe { $name($sub16(self.0, o.0)) }
            }
            #[inline(always)]
            unsafe fn shl16(self, by: i32) -> Self {
                unsafe { $name($shl16(self.0, _mm_cvtsi32_si128(by))) }
            }
            #[inline(always)]
            unsafe fn add32(self, o: Self) -> Self {
                unsafe { $name($add32(self.0, o.0)) }
            }
            #[inline(always)]
            unsafe fn sub32(self, o: Self) -> Self {
                unsafe { $name($sub32(self.0, o.0)) }
            }
            #[inline(always)]
            unsafe fn mul32(self, o: Self) -> Self {
                unsafe { $name($mul32(self.0, o.0)) }
            }
            #[inline(always)]
            unsafe fn shl32(self, by: i32) -> Self {
                unsafe { $name($shl32(self.0, _mm_cvtsi32_si128(by))) }
            }
            #[inline(always)]
            unsafe fn shr32(self, by: i32) -> Self {
                unsafe { $name($shr32(self.0, _mm_cvtsi32_si128(by))) }
            }
            #[inline(always)]
            unsafe fn dot(Self($acc): Self, Self($x): Self, Self($w): Self) -> Self {
                unsafe { $name($dot) }
            }
            #[inline(always)]
            unsafe fn finish(sums: *const i32, nv: usize, pixels: usize, t: &Tile<'_>) {
                unsafe { $finish(sums, nv, pixels, t) }
            }
        }
    };
}

macro_rules! lanes256 {
    ($(#[$doc:meta])* $name:ident, |$acc:ident, $x:ident, $w:ident| $dot:expr) => {
        lanes! {
            $(#[$doc])* $name(__m256i), sums: 8, rows: 6,
            load: _mm256_loadu_si256, store: _mm256_storeu_si256, widen: _mm256_cvtepu8_epi16(_mm_loadu_si128),
            splat: _mm256_set1_epi16 _mm256_set1_epi32,
            words: _mm256_add_epi16 _mm256_sub_epi16 _mm256_sll_epi16,
            sums: _mm256_add_epi32 _mm256_sub_epi32 _mm256_mullo_epi32 _mm256_sll_epi32 _mm256_sra_epi32,
            dot: |$acc, $x, $w| $dot, finish: avx2::epilogue::store_row,
        }
    };
}

lanes! {
    /// AVX-512 with VNNI.
    Zmm(__m512i), sums: 16, rows: 14,
    load: _mm512_loadu_si512, store: _mm512_storeu_si512, widen: _mm512_cvtepu8_epi16(_mm256_loadu_si256),
    splat: _mm512_set1_epi16 _mm512_set1_epi32,
    words: _mm512_add_epi16 _mm512_sub_epi16 _mm512_sll_epi16,
    sums: _mm512_add_epi32 _mm512_sub_epi32 _mm512_mullo_epi32 _mm512_sll_epi32 _mm512_sra_epi32,
    dot: |acc, x, w| _mm512_dpwssd_epi32(acc, x, w), finish: avx512::epilogue::store_row,
}
lanes256! {
    /// AVX2: two instructions for a product.
    Madd, |acc, x, w| _mm256_add_epi32(acc, _mm256_madd_epi16(x, w))
}
lanes256! {
    /// VNNI with 256 bits, in AVX-VNNI's encoding.
    Vex, |acc, x, w| _mm256_dpwssd_avx_epi32(acc, x, w)
}
lanes256! {
    /// The same in AVX-512's.
    Evex, |acc, x, w| _mm256_dpwssd_epi32(acc, x, w)
}
