//! The greatest of bytes, 64 or 256 channels at a time: of each column once, then of the windows that see it.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::max::Row;
use super::{LANES, Part};
use crate::bytes512::ones;
use crate::{Isa, Level};
use std::arch::x86_64::*;

/// Columns whose greatest bytes are kept: the widest window that is taken.
pub(super) const COLUMNS: usize = 16;

/// An output row, of windows of at most [`COLUMNS`].
pub(super) fn greatest(isa: Isa, r: &Row<'_, u8>, channels: usize, part: Part<'_, u8>) {
    assert!(isa.level() == Level::Avx512 && r.end(channels) <= r.image.len());
    let mut at = 0;
    // SAFETY: the token proves the features; the taps lie in the image.
    unsafe {
        while at + 4 * LANES <= channels {
            block::<4>(r, at, channels, part);
            at += 4 * LANES;
        }
        while at < channels {
            block::<1>(r, at, channels, part);
            at += LANES;
        }
    }
}

/// `V` vectors of channels from `at` on.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn block<const V: usize>(r: &Row<'_, u8>, at: usize, channels: usize, part: Part<'_, u8>) {
    let (mask, rows, line) = (ones(channels - at - (V - 1) * LANES), r.rows.count(), r.rows.step * r.w * r.c);
    let first = r.rows.from * r.w * r.c + r.first + at;
    let mut columns = [[_mm512_setzero_si512(); V]; COLUMNS];
    // Which columns those are.
    let (mut start, mut end) = (0, 0);
    for ox in 0..r.cols.len() {
        let window = &r.cols[ox];
        let taps = window.count();
        if taps > 0 && (window.from < start || window.tap(taps - 1) >= end) {
            (start, end) = (window.from, r.w.min(window.from + COLUMNS));
            for col in start..end {
                let mut most = [_mm512_setzero_si512(); V];
                for row in 0..rows {
                    // SAFETY: the caller has checked the last row and column; masked lanes are not touched.
                    let x = unsafe { r.image.as_ptr().add(first + row * line + col * r.c) };
                    for v in 0..V {
                        let x = unsafe { _mm512_maskz_loadu_epi8(mask, x.add(v * LANES).cast()) };
                        most[v] = _mm512_max_epu8(most[v], x);
                    }
                }
                columns[col - start] = most;
            }
        }
        let mut most = [_mm512_setzero_si512(); V];
        for tap in 0..taps {
            let column = &columns[window.tap(tap) - start];
            for v in 0..V {
                most[v] = _mm512_max_epu8(most[v], column[v]);
            }
        }
        let y = &mut part(ox)[at..];
        assert!(y.len() >= channels - at);
        for v in 0..V {
            // SAFETY: the mask ends with the channels.
            unsafe { _mm512_mask_storeu_epi8(y.as_mut_ptr().add(v * LANES).cast(), mask, most[v]) };
        }
    }
}
