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
    use super::super::vector::Partial;
    use super::{PIXELS, Task};
    use std::arch::x86_64::{__m256, __m512};

    /// Most inputs of a row of taps that slide.
    const SLIDING: usize = PIXELS + 5 - 1;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
    pub(super) unsafe fn avx512(t: &Task<'_>) {
        // SAFETY: `Task::check`.
        unsafe { pixels::<__m512>(t) }
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn avx2(t: &Task<'_>) {
        // SAFETY: `Task::check`.
        unsafe { pixels::<__m256>(t) }
    }

    #[inline(always)]
    unsafe fn pixels<V: Partial>(t: &Task<'_>) {
        let mut first = 0;
        // SAFETY: `Task::check`.
        unsafe {
            while first + PIXELS <= t.pixels {
                channels::<V, PIXELS>(t, first);
                first += PIXELS;
            }
            while first + 2 <= t.pixels {
                channels::<V, 2>(t, first);
                first += 2;
            }
            if first < t.pixels {
                channels::<V, 1>(t, first);
            }
        }
    }

    /// `P` pixels from `first` on. The last register repeats some channels.
    #[inline(always)]
    unsafe fn channels<V: Partial, const P: usize>(t: &Task<'_>, first: usize) {
        let (mut c, end) = (0, t.channels);
        if end < V::LANES {
            // SAFETY: `Task::check`.
            return unsafe { few::<V, P>(t, first) };
        }
        // Of 16 registers inputs that slide leave some for one vector.
        let pairs = V::LANES == 16 || !matches!(t.slides, 3 | 5);
        // SAFETY: `Task::check`.
        unsafe {
            while pairs && c + 2 * V::LANES <= end {
                taps::<V, P, 2>(t, first, c);
                c += 2 * V::LANES;
            }
            while c + V::LANES <= end {
                taps::<V, P, 1>(t, first, c);
                c += V::LANES;
            }
            if c < end {
                taps::<V, P, 1>(t, first, end - V::LANES);
            }
        }
    }

    /// Channels that do not fill a register.
    #[inline(always)]
    unsafe fn few<V: Partial, const P: usize>(t: &Task<'_>, first: usize) {
        let (x0, w0, n) = (t.x.as_ptr().wrapping_add(first * t.x_step), t.weights.as_ptr(), t.channels);
        // SAFETY: `Task::check` bounds all channels of every tap, bias and pixel; others are not touched.
        unsafe {
            let mut acc = [V::load_first(n, w0); P];
            for (x, w) in t.taps {
                let w = V::load_first(n, w0.add(*w));
                for p in 0..P {
                    acc[p] = V::load_first(n, x0.add(x + p * t.x_step)).fma(w, acc[p]);
                }
            }
            let (lo, hi) = (V::splat(t.clamp.0), V::splat(t.clamp.1));
            for p in 0..P {
                acc[p].clamp(lo, hi).store_first(n, t.out.as_mut_ptr().add(t.at + (first + p) * t.out_step));
            }
        }
    }

    /// `N` registers of channels from `c` on.
    #[inline(always)]
    unsafe fn taps<V: Partial, const P: usize, const N: usize>(t: &Task<'_>, first: usize, c: usize) {
        // SAFETY: `Task::check`.
        unsafe {
            match t.slides {
                3 => block::<V, P, N, 3>(t, first, c),
                5 => block::<V, P, N, 5>(t, first, c),
                _ => block::<V, P, N, 0>(t, first, c),
            }
        }
    }

    /// Of `K` taps that slide, if there are any, each input is loaded once.
    #[inline(always)]
    unsafe fn block<V: Partial, const P: usize, const N: usize, const K: usize>(t: &Task<'_>, first: usize, c: usize) {
        let (x0, w0) = (t.x.as_ptr().wrapping_add(first * t.x_step), t.weights.as_ptr());
        // SAFETY: `Task::check` bounds all channels of every tap, bias and pixel; the registers' end with the last.
        unsafe {
            let mut acc = [[V::splat(0.0); N]; P];
            let (lo, hi) = (V::splat(t.clamp.0), V::splat(t.clamp.1));
            for p in 0..P {
                for v in 0..N {
                    acc[p][v] = V::load(w0.add(c + v * V::LANES));
                }
            }
            if K > 0 {
                for row in t.taps.chunks_exact(K) {
                    for v in 0..N {
                        let mut xs = [V::splat(0.0); SLIDING];
                        for i in 0..P + K - 1 {
                            xs[i] = V::load(x0.add(row[0].0 + i * t.x_step + c + v * V::LANES));
                        }
                        for k in 0..K {
                            let w = V::load(w0.add(row[k].1 + c + v * V::LANES));
                            for p in 0..P {
                                acc[p][v] = xs[p + k].fma(w, acc[p][v]);
                            }
                        }
                    }
                }
            } else {
                for (x, w) in t.taps {
                    for v in 0..N {
                        let w = V::load(w0.add(w + c + v * V::LANES));
                        for p in 0..P {
                            let x = V::load(x0.add(x + p * t.x_step + c + v * V::LANES));
                            acc[p][v] = x.fma(w, acc[p][v]);
                        }
                    }
                }
            }
            for p in 0..P {
                for v in 0..N {
                    let to = t.out.as_mut_ptr().add(t.at + (first + p) * t.out_step + c + v * V::LANES);
                    acc[p][v].clamp(lo, hi).store(to);
                }
            }
        }
    }
}
