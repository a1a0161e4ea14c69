//! A register of lanes, of each instruction set: what the transforms of tiles and depthwise convolutions are written in.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::pointwise::math;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Lanes that are calculated with at once. Lane by lane all implementations give the same bits.
///
/// # Safety
/// Every function needs the instruction set, and `load` and `store` as many elements as there are lanes.
pub(super) trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    /// `self · b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// Asks for the cache line, perhaps; the address may be anything.
    fn fetch(from: *const f32);
    /// [`math::clamp`]
    unsafe fn clamp(self, lo: Self, hi: Self) -> Self;
}

impl Vector for f32 {
    const LANES: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> f32 {
        x
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { *from }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { *to = self }
    }

    #[inline(always)]
    unsafe fn add(self, b: f32) -> f32 {
        self + b
    }

    #[inline(always)]
    unsafe fn sub(self, b: f32) -> f32 {
        self - b
    }

    #[inline(always)]
    unsafe fn mul(self, b: f32) -> f32 {
        self * b
    }

    #[inline(always)]
    unsafe fn fma(self, b: f32, c: f32) -> f32 {
        math::fma(self, b, c)
    }

    #[inline(always)]
    fn fetch(_: *const f32) {}

    #[inline(always)]
    unsafe fn clamp(self, lo: f32, hi: f32) -> f32 {
        math::clamp(self, lo, hi)
    }
}

/// A register of x86, by its intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! vector {
    ($type:ty, $lanes:literal, $features:literal, $splat:ident $load:ident $store:ident
     $add:ident $sub:ident $mul:ident $fma:ident $min:ident $max:ident) => {
        #[cfg(target_arch = "x86_64")]
        impl Vector for $type {
            const LANES: usize = $lanes;

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn splat(x: f32) -> Self {
                $splat(x)
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller's promise.
                unsafe { $load(from) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the caller's promise.
                unsafe { $store(to, self) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn add(self, b: Self) -> Self {
                $add(self, b)
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn sub(self, b: Self) -> Self {
                $sub(self, b)
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn mul(self, b: Self) -> Self {
                $mul(self, b)
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn fma(self, b: Self, c: Self) -> Self {
                $fma(self, b, c)
            }

            #[inline(always)]
            fn fetch(from: *const f32) {
                // SAFETY: a hint, which every machine of the architecture takes.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
            }

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn clamp(self, lo: Self, hi: Self) -> Self {
                $min(hi, $max(lo, self))
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(__m256, 8, "avx2,fma", _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps
    _mm256_add_ps _mm256_sub_ps _mm256_mul_ps _mm256_fmadd_ps _mm256_min_ps _mm256_max_ps);
#[cfg(target_arch = "x86_64")]
vector!(__m512, 16, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", _mm512_set1_ps _mm512_loadu_ps _mm512_storeu_ps
    _mm512_add_ps _mm512_sub_ps _mm512_mul_ps _mm512_fmadd_ps _mm512_min_ps _mm512_max_ps);

/// Registers of which the first lanes alone can be loaded and stored.
///
/// # Safety
/// As [`Vector`]'s functions; as many elements are there as are asked for, at most as many as there are lanes.
#[cfg(target_arch = "x86_64")]
pub(super) trait Partial: Vector {
    /// The other lanes are zeros.
    unsafe fn load_first(count: usize, from: *const f32) -> Self;
    unsafe fn store_first(self, count: usize, to: *mut f32);
}

#[cfg(target_arch = "x86_64")]
impl Partial for __m512 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn load_first(count: usize, from: *const f32) -> Self {
        // SAFETY: the caller's promise; other lanes are not touched.
        unsafe { _mm512_maskz_loadu_ps(((1u32 << count) - 1) as __mmask16, from) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn store_first(self, count: usize, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_ps(to, ((1u32 << count) - 1) as __mmask16, self) };
    }
}

#[cfg(target_arch = "x86_64")]
impl Partial for __m256 {
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn load_first(count: usize, from: *const f32) -> Self {
        // SAFETY: the caller's promise; other lanes are not touched.
        unsafe { _mm256_maskload_ps(from, first(count)) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn store_first(self, count: usize, to: *mut f32) {
        // SAFETY: as above.
        unsafe { _mm256_maskstore_ps(to, first(count), self) };
    }
}

/// All bits of the first lanes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
fn first(count: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}
