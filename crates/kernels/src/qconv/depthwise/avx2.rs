//! The general depthwise kernel in 256-bit vectors: two taps of a channel are one pair of i16 for `vpmaddwd`.
#![allow(unsafe_code, reason = "vector loads and stores through the addresses of taps")]

use super::{Depthwise, Pixel};
use crate::qconv::avx2::epilogue::store;
use crate::qconv::pack::LANES;
use std::arch::x86_64::*;

impl Depthwise {
    /// All channels of one output pixel.
    ///
    /// # Safety
    /// AVX2 is there; the taps and the output are valid for all channels.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn pixel_avx2(&self, p: &Pixel<'_>) {
        for b in &self.blocks {
            // SAFETY: narrow blocks are staged, so that loads stay within the block's channels.
            unsafe {
                let c = self.columns(b);
                let mut acc = [_mm256_setzero_si256(); 2];
                let mut w = self.weights.as_ptr().add(b.start);
                for two in p.taps.chunks_exact(2) {
                    let x0 = widened(two[0] as *const u8, b.channel, b.width);
                    let x1 = widened(two[1] as *const u8, b.channel, b.width);
                    let low = _mm256_madd_epi16(_mm256_unpacklo_epi16(x0, x1), _mm256_load_si256(w.cast()));
                    let high = _mm256_madd_epi16(_mm256_unpackhi_epi16(x0, x1), _mm256_load_si256(w.add(32).cast()));
                    acc = [_mm256_add_epi32(acc[0], low), _mm256_add_epi32(acc[1], high)];
                    w = w.add(4 * LANES);
                }
                // Lanes hold channels 0-3 and 8-11, 4-7 and 12-15.
                let low = _mm256_permute2x128_si256::<0x20>(acc[0], acc[1]);
                let high = _mm256_permute2x128_si256::<0x31>(acc[0], acc[1]);
                let low = _mm256_add_epi32(low, _mm256_loadu_si256(c.bias.cast()));
                let high = _mm256_add_epi32(high, _mm256_loadu_si256(c.bias.add(8).cast()));
                let (y, r) = (p.y.add(b.channel * p.size), p.r.wrapping_add(b.channel));
                store([low, high], &c, &self.epilogue, y, r);
            }
        }
    }
}

/// 16 channels as i16.
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn widened(pixel: *const u8, channel: usize, width: usize) -> __m256i {
    // SAFETY: a narrow block is copied first.
    unsafe {
        let p = pixel.add(channel);
        if width == LANES {
            return _mm256_cvtepu8_epi16(_mm_loadu_si128(p.cast()));
        }
        let mut staged = [0u8; LANES];
        std::ptr::copy_nonoverlapping(p, staged.as_mut_ptr(), width);
        _mm256_cvtepu8_epi16(_mm_loadu_si128(staged.as_ptr().cast()))
    }
}
