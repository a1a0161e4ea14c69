//! Tables in registers: four of 512 bits, or sixteen of 128.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]

use crate::{Isa, Level};
use std::arch::x86_64::*;

/// Both slices are of one length.
pub(super) fn avx512(isa: Isa, table: &[u8; 256], x: &[u8], y: &mut [u8]) {
    assert!(isa.level() == Level::Avx512 && x.len() == y.len());
    // SAFETY: the token proves the features; the lengths are equal.
    unsafe { map_avx512(table, x, y) }
}

/// Both slices are of one length.
pub(super) fn avx2(isa: Isa, table: &[u8; 256], x: &[u8], y: &mut [u8]) {
    assert!(isa.level() >= Level::Avx2 && x.len() == y.len());
    // SAFETY: as above.
    unsafe { map_avx2(table, x, y) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn map_avx512(table: &[u8; 256], x: &[u8], y: &mut [u8]) {
    // SAFETY: the table has four times 64 bytes; masked lanes of the last vector are not touched.
    unsafe {
        let t = table.as_ptr();
        let (t0, t1) = (_mm512_loadu_si512(t.cast()), _mm512_loadu_si512(t.add(64).cast()));
        let (t2, t3) = (_mm512_loadu_si512(t.add(128).cast()), _mm512_loadu_si512(t.add(192).cast()));
        for start in (0..x.len()).step_by(64) {
            let left = (x.len() - start).min(64);
            let mask = u64::MAX >> (64 - left);
            let q = _mm512_maskz_loadu_epi8(mask, x.as_ptr().add(start).cast());
            // The low seven bits choose among 128 entries, the eighth among the halves.
            let low = _mm512_permutex2var_epi8(t0, q, t1);
            let high = _mm512_permutex2var_epi8(t2, q, t3);
            let r = _mm512_mask_blend_epi8(_mm512_movepi8_mask(q), low, high);
            _mm512_mask_storeu_epi8(y.as_mut_ptr().add(start).cast(), mask, r);
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn map_avx2(table: &[u8; 256], x: &[u8], y: &mut [u8]) {
    let whole = x.len() / 32 * 32;
    // SAFETY: the table has sixteen times 16 bytes; only whole vectors are touched here.
    unsafe {
        let row = |i: usize| _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().add(i * 16).cast()));
        let rows: [__m256i; 16] = std::array::from_fn(row);
        let (low, nibble) = (_mm256_set1_epi8(0x0f), _mm256_set1_epi8(0xf0u8.cast_signed()));
        for start in (0..whole).step_by(32) {
            let q = _mm256_loadu_si256(x.as_ptr().add(start).cast());
            let (index, high) = (_mm256_and_si256(q, low), _mm256_and_si256(q, nibble));
            let mut r = _mm256_setzero_si256();
            for (i, row) in rows.iter().enumerate() {
                let here = _mm256_cmpeq_epi8(high, _mm256_set1_epi8(((i as u8) << 4).cast_signed()));
                r = _mm256_or_si256(r, _mm256_and_si256(here, _mm256_shuffle_epi8(*row, index)));
            }
            _mm256_storeu_si256(y.as_mut_ptr().add(start).cast(), r);
        }
    }
    super::portable(table, &x[whole..], &mut y[whole..]);
}
