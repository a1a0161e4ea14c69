//! The inner loops of a depthwise convolution: one chain of fused multiply-adds a channel and pixel, in the
//! order of the taps, from the bias.
#![allow(unsafe_code, reason = "vector loads and stores through pointers; rows of a shared output")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use crate::pointwise::math::{clamp, fma};
use crate::{Isa, Level, SharedMut};

/// Neighbouring pixels that share their loads of weights.
#[cfg(target_arch = "x86_64")]
const PIXELS: usize = 4;

/// Pixels that have the same taps beside each other, all channels.
pub(super) struct Task<'a> {
    pub(super) x: &'a [f32],
    /// `channels` biases, then `channels` weights a tap.
    pub(super) weights: &'a [f32],
    pub(super) channels: usize,
    /// For each tap: where its first channel lies in `x` for the first pixel, and in `weights`.
    pub(super) taps: &'a [(usize, usize)],
    /// Taps of a row, all of which are there and lie as far apart as the pixels; 0 if they do not.
    pub(super) slides: usize,
    pub(super) pixels: usize,
    /// Elements of `x` from pixel to pixel.
    pub(super) x_step: usize,
    pub(super) clamp: (f32, f32),
    pub(super) out: SharedMut<'a, f32>,
    pub(super) at: usize,
    pub(super) out_step: usize,
}

/// Runs a task with the given instructions.
pub(super) fn run(isa: Isa, t: &Task<'_>) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            t.check();
            // SAFETY: the token proves the features; `check` has bounded every pointer.
            unsafe { x86::avx512(t) }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => {
            t.check();
            // SAFETY: as above.
            unsafe { x86::avx2(t) }
        }
        _ => portable(t),
    }
}

impl Task<'_> {
    fn check(&self) {
        let last = self.pixels - 1;
        assert!(
            self.at + last * self.out_step + self.channels <= self.out.len() && self.channels <= self.weights.len()
        );
        for (x, w) in self.taps {
            assert!(x + last * self.x_step + self.channels <= self.x.len() && w + self.channels <= self.weights.len());
        }
        for row in self.taps.chunks(self.slides.max(1)) {
            let slides = |(i, tap): (usize, &(usize, usize))| tap.0 == row[0].0 + i * self.x_step;
            assert!(self.slides == 0 || row.len() == self.slides && row.iter().enumerate().all(slides));
        }
    }
}

fn portable(t: &Task<'_>) {
    for p in 0..t.pixels {
        let at = t.at + p * t.out_step;
        // SAFETY: each row of an output is written by one task.
        let to = unsafe { t.out.slice(at..at + t.channels) };
        to.copy_from_slice(&t.weights[..t.channels]);
        for (x, w) in t.taps {
            let xs = &t.x[x + p * t.x_step..][..t.channels];
            for ((to, x), w) in to.iter_mut().zip(xs).zip(&t.weights[*w..]) {
                *to = fma(*x, *w, *to);
            }
        }
        to.iter_mut().for_each(|v| *v = clamp(*v, t.clamp.0, t.clamp.1));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PIXELS, Task};
    use std::arch::x86_64::*;

    /// Most inputs of a row of taps that slide.
    const SLIDING: usize = PIXELS + 5 - 1;

    macro_rules! groups {
        ($t:ident, $pixels:ident) => {
            let mut first = 0;
            while first + PIXELS <= $t.pixels {
                $pixels::<PIXELS>($t, first);
                first += PIXELS;
            }
            while first + 2 <= $t.pixels {
                $pixels::<2>($t, first);
                first += 2;
            }
            if first < $t.pixels {
                $pixels::<1>($t, first);
            }
        };
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512(t: &Task<'_>) {
        // SAFETY: `Task::check`.
        unsafe {
            groups!(t, avx512_pixels);
        }
    }

    /// `P` pixels from `first` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512_pixels<const P: usize>(t: &Task<'_>, first: usize) {
        let mut c = 0;
        // SAFETY: `Task::check`.
        unsafe {
            while c + 32 <= t.channels {
                match t.slides {
                    3 => avx512_block::<P, 2, 3>(t, first, c, 0xffff),
                    5 => avx512_block::<P, 2, 5>(t, first, c, 0xffff),
                    _ => avx512_block::<P, 2, 0>(t, first, c, 0xffff),
                }
                c += 32;
            }
            while c < t.channels {
                let left = (t.channels - c).min(16);
                avx512_block::<P, 1, 0>(t, first, c, ((1u32 << left) - 1) as __mmask16);
                c += 16;
            }
        }
    }

    /// `V` vectors of channels from `c`; `mask` holds for each of them. Of `K` taps that slide, if there are any, each
    /// input is loaded once.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    unsafe fn avx512_block<const P: usize, const V: usize, const K: usize>(
        t: &Task<'_>,
        first: usize,
        c: usize,
        mask: __mmask16,
    ) {
        let (x0, w0) = (t.x.as_ptr().wrapping_add(first * t.x_step), t.weights.as_ptr());
        let mut acc = [[_mm512_setzero_ps(); V]; P];
        let (lo, hi) = (_mm512_set1_ps(t.clamp.0), _mm512_set1_ps(t.clamp.1));
        // SAFETY: `Task::check` bounds all channels of every tap, bias and pixel; masked lanes are not touched.
        unsafe {
            for p in 0..P {
                for v in 0..V {
                    acc[p][v] = _mm512_maskz_loadu_ps(mask, w0.add(c + v * 16));
                }
            }
            if K > 0 {
                for row in t.taps.chunks_exact(K) {
                    for v in 0..V {
                        let mut xs = [_mm512_setzero_ps(); SLIDING];
                        for i in 0..P + K - 1 {
                            xs[i] = _mm512_loadu_ps(x0.add(row[0].0 + i * t.x_step + c + v * 16));
                        }
                        for k in 0..K {
                            let w = _mm512_loadu_ps(w0.add(row[k].1 + c + v * 16));
                            for p in 0..P {
                                acc[p][v] = _mm512_fmadd_ps(xs[p + k], w, acc[p][v]);
                            }
                        }
                    }
                }
            } else {
                for (x, w) in t.taps {
                    for v in 0..V {
                        let w = _mm512_maskz_loadu_ps(mask, w0.add(w + c + v * 16));
                        for p in 0..P {
                            let x = _mm512_maskz_loadu_ps(mask, x0.add(x + p * t.x_step + c + v * 16));
                            acc[p][v] = _mm512_fmadd_ps(x, w, acc[p][v]);
                        }
                    }
                }
            }
            for p in 0..P {
                for v in 0..V {
                    let y = _mm512_min_ps(hi, _mm512_max_ps(lo, acc[p][v]));
                    let to = t.out.as_mut_ptr().add(t.at + (first + p) * t.out_step + c + v * 16);
                    _mm512_mask_storeu_ps(to, mask, y);
                }
            }
        }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(t: &Task<'_>) {
        // SAFETY: `Task::check`.
        unsafe {
            groups!(t, avx2_pixels);
        }
    }

    /// `P` pixels from `first` on.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_pixels<const P: usize>(t: &Task<'_>, first: usize) {
        let mut c = 0;
        // SAFETY: `Task::check`.
        unsafe {
            // Inputs that slide leave registers for one vector.
            while !matches!(t.slides, 3 | 5) && c + 16 <= t.channels {
                avx2_block::<P, 2, 0>(t, first, c);
                c += 16;
            }
            while c + 8 <= t.channels {
                match t.slides {
                    3 => avx2_block::<P, 1, 3>(t, first, c),
                    5 => avx2_block::<P, 1, 5>(t, first, c),
                    _ => avx2_block::<P, 1, 0>(t, first, c),
                }
                c += 8;
            }
            if c < t.channels {
                avx2_tail::<P>(t, first, c);
            }
        }
    }

    /// As [`avx512_block`].
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_block<const P: usize, const V: usize, const K: usize>(t: &Task<'_>, first: usize, c: usize) {
        let (x0, w0) = (t.x.as_ptr().wrapping_add(first * t.x_step), t.weights.as_ptr());
        let mut acc = [[_mm256_setzero_ps(); V]; P];
        let (lo, hi) = (_mm256_set1_ps(t.clamp.0), _mm256_set1_ps(t.clamp.1));
        // SAFETY: `Task::check` bounds all channels of every tap, bias and pixel; `c + 8 V <= channels`.
        unsafe {
            for p in 0..P {
                for v in 0..V {
                    acc[p][v] = _mm256_loadu_ps(w0.add(c + v * 8));
                }
            }
            if K > 0 {
                for row in t.taps.chunks_exact(K) {
                    for v in 0..V {
                        let mut xs = [_mm256_setzero_ps(); SLIDING];
                        for i in 0..P + K - 1 {
                            xs[i] = _mm256_loadu_ps(x0.add(row[0].0 + i * t.x_step + c + v * 8));
                        }
                        for k in 0..K {
                            let w = _mm256_loadu_ps(w0.add(row[k].1 + c + v * 8));
                            for p in 0..P {
                                acc[p][v] = _mm256_fmadd_ps(xs[p + k], w, acc[p][v]);
                            }
                        }
                    }
                }
            } else {
                for (x, w) in t.taps {
                    for v in 0..V {
                        let w = _mm256_loadu_ps(w0.add(w + c + v * 8));
                        for p in 0..P {
                            let x = _mm256_loadu_ps(x0.add(x + p * t.x_step + c + v * 8));
                            acc[p][v] = _mm256_fmadd_ps(x, w, acc[p][v]);
                        }
                    }
                }
            }
            for p in 0..P {
                for v in 0..V {
                    let y = _mm256_min_ps(hi, _mm256_max_ps(lo, acc[p][v]));
                    _mm256_storeu_ps(t.out.as_mut_ptr().add(t.at + (first + p) * t.out_step + c + v * 8), y);
                }
            }
        }
    }

    /// The last channels, fewer than a vector, one at a time.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_tail<const P: usize>(t: &Task<'_>, first: usize, c: usize) {
        for p in first..first + P {
            for c in c..t.channels {
                let terms = t.taps.iter().map(|(x, w)| (t.x[x + p * t.x_step + c], t.weights[w + c]));
                let sum = terms.fold(t.weights[c], |acc, (x, w)| x.mul_add(w, acc));
                let y = super::clamp(sum, t.clamp.0, t.clamp.1);
                // SAFETY: `Task::check`.
                unsafe { *t.out.as_mut_ptr().add(t.at + p * t.out_step + c) = y };
            }
        }
    }
}
