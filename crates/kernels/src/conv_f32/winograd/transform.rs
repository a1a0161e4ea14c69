//! The transforms of F(4×4, 3×3) over the points 0, ±a, ±b and ∞, in lanes of channels.
//!
//! For six inputs d and three weights g of one line, the four results are `Aᵀ[(G g) ⊙ (Bᵀ d)]`, with a row for each
//! point p, after Toom and Cook:
//! - `G`: `1 p p²` over the product of p's differences from the other finite points; for ∞ `0 0 1`;
//! - `Bᵀ`: the coefficients of the product of `x - q` over the other finite points q; for ∞ over all finite points;
//! - `Aᵀ` (a column): `1 p p² p³`; for ∞ `0 0 0 1`.
//!
//! Squares do the same over columns, then rows. With a = 5/8 and b = 3/2 the constants are near 1: the error of random
//! data is 1.6 to 1.8 times that of the direct sum, where the customary points 0, ±1, ±2, ∞ take it to four times.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::super::vector::Vector;
use super::{DEPTH, PATCH, SIDE, TERMS};
use crate::{Isa, Level, SharedMut};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256, __m512};

const A: f32 = 0.625;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;
/// One over the product of a's differences from the other points, and of -a's.
const WEIGHT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const WEIGHT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// `G g`
///
/// # Safety
/// The machine has the instruction set.
#[inline(always)]
pub(super) unsafe fn weights_line<V: Vector>(g: [V; 3]) -> [V; PATCH] {
    // SAFETY: the caller's promise: the instruction set.
    unsafe {
        let even_a = V::splat(WEIGHT_A * A2).fma(g[2], V::splat(WEIGHT_A).mul(g[0]));
        let even_b = V::splat(WEIGHT_B * B2).fma(g[2], V::splat(WEIGHT_B).mul(g[0]));
        [
            V::splat(1.0 / (A2 * B2)).mul(g[0]),
            V::splat(WEIGHT_A * A).fma(g[1], even_a),
            V::splat(-WEIGHT_A * A).fma(g[1], even_a),
            V::splat(WEIGHT_B * B).fma(g[1], even_b),
            V::splat(-WEIGHT_B * B).fma(g[1], even_b),
            g[2],
        ]
    }
}

/// `Bᵀ d`
#[inline(always)]
unsafe fn input_line<V: Vector>(d: [V; PATCH]) -> [V; PATCH] {
    // SAFETY: as above.
    unsafe {
        let (a2, b2, both) = (V::splat(-A2), V::splat(-B2), V::splat(-(A2 + B2)));
        let (even_a, odd_a) = (b2.fma(d[2], d[4]), b2.fma(d[1], d[3]));
        let (even_b, odd_b) = (a2.fma(d[2], d[4]), a2.fma(d[1], d[3]));
        [
            V::splat(A2 * B2).fma(d[0], both.fma(d[2], d[4])),
            V::splat(A).fma(odd_a, even_a),
            V::splat(-A).fma(odd_a, even_a),
            V::splat(B).fma(odd_b, even_b),
            V::splat(-B).fma(odd_b, even_b),
            V::splat(A2 * B2).fma(d[1], both.fma(d[3], d[5])),
        ]
    }
}

/// `Aᵀ m`
#[inline(always)]
unsafe fn output_line<V: Vector>(m: [V; PATCH]) -> [V; SIDE] {
    // SAFETY: as above.
    unsafe {
        let (even_a, odd_a) = (m[1].add(m[2]), m[1].sub(m[2]));
        let (even_b, odd_b) = (m[3].add(m[4]), m[3].sub(m[4]));
        [
            m[0].add(even_a).add(even_b),
            V::splat(A).fma(odd_a, V::splat(B).mul(odd_b)),
            V::splat(A2).fma(even_a, V::splat(B2).mul(even_b)),
            V::splat(A2 * A).fma(odd_a, V::splat(B2 * B).fma(odd_b, m[5])),
        ]
    }
}

/// Nine taps of weights, `step` elements apart, and their terms, `plane` apart.
pub(super) struct WeightsTask<'a> {
    pub(super) g: &'a [f32],
    pub(super) step: usize,
    pub(super) lanes: usize,
    /// How far behind those that are needed next lie.
    pub(super) ahead: usize,
    pub(super) u: &'a mut [f32],
    pub(super) plane: usize,
}

/// A slice of a patch's channels, and its terms.
pub(super) struct InputTask<'a> {
    pub(super) patch: [&'a [f32]; TERMS],
    pub(super) channels: usize,
    pub(super) v: &'a mut [[f32; DEPTH]; TERMS],
}

/// The sums of a tile, and where its results go.
pub(super) struct OutputTask<'a> {
    /// `[term][bias.len()]`
    pub(super) m: &'a [f32],
    pub(super) bias: &'a [f32],
    pub(super) out: SharedMut<'a, f32>,
    /// Where the first pixel's first channel goes.
    pub(super) at: usize,
    /// Elements from row to row, and from pixel to pixel.
    pub(super) step: [usize; 2],
    /// Rows, columns and channels that there are.
    pub(super) size: [usize; 3],
    pub(super) clamp: (f32, f32),
}

/// A task that is run in lanes, and checked once before.
pub(super) trait Task {
    /// Holds every access to its slice.
    fn check(&self);

    /// Lanes from which on there is nothing to do.
    fn end(&self) -> usize;

    /// Runs the lanes from `lane` on that a register holds.
    ///
    /// # Safety
    /// The machine has the instruction set, `check` has passed, and the lanes end before `end`.
    unsafe fn run<V: Vector>(&mut self, lane: usize);
}

impl Task for WeightsTask<'_> {
    fn check(&self) {
        assert!(8 * self.step + self.lanes <= self.g.len() && (TERMS - 1) * self.plane + self.lanes <= self.u.len());
    }

    fn end(&self) -> usize {
        self.lanes
    }

    /// `G g Gᵀ`
    #[inline(always)]
    unsafe fn run<V: Vector>(&mut self, lane: usize) {
        let (g, u) = (self.g.as_ptr(), self.u.as_mut_ptr());
        // SAFETY: the caller's promise.
        unsafe {
            let mut columns = [[V::splat(0.0); PATCH]; 3];
            for j in 0..3 {
                let mut column = [V::splat(0.0); 3];
                for i in 0..3 {
                    let from = g.add((i * 3 + j) * self.step + lane);
                    column[i] = V::load(from);
                    V::fetch(from.wrapping_add(self.ahead));
                }
                columns[j] = weights_line(column);
            }
            for i in 0..PATCH {
                let line = weights_line([columns[0][i], columns[1][i], columns[2][i]]);
                for j in 0..PATCH {
                    line[j].store(u.add((i * PATCH + j) * self.plane + lane));
                }
            }
        }
    }
}

impl Task for InputTask<'_> {
    fn check(&self) {
        assert!(self.channels <= DEPTH && self.patch.iter().all(|pixel| self.channels <= pixel.len()));
    }

    fn end(&self) -> usize {
        self.channels
    }

    /// `Bᵀ d B`
    #[inline(always)]
    unsafe fn run<V: Vector>(&mut self, lane: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut columns = [[V::splat(0.0); PATCH]; PATCH];
            for j in 0..PATCH {
                let mut column = [V::splat(0.0); PATCH];
                for i in 0..PATCH {
                    column[i] = V::load(self.patch[i * PATCH + j].as_ptr().add(lane));
                }
                columns[j] = input_line(column);
            }
            for i in 0..PATCH {
                let c = &columns;
                let line = input_line([c[0][i], c[1][i], c[2][i], c[3][i], c[4][i], c[5][i]]);
                for j in 0..PATCH {
                    line[j].store(self.v[i * PATCH + j].as_mut_ptr().add(lane));
                }
            }
        }
    }
}

impl Task for OutputTask<'_> {
    fn check(&self) {
        let [rows, cols, channels] = self.size;
        assert!(self.m.len() >= TERMS * self.bias.len() && channels <= self.bias.len());
        assert!((1..=SIDE).contains(&rows) && (1..=SIDE).contains(&cols));
        let last = self.at + (rows - 1) * self.step[0] + (cols - 1) * self.step[1];
        assert!(last + channels <= self.out.len());
    }

    fn end(&self) -> usize {
        self.size[2]
    }

    /// `Aᵀ m A + bias`
    #[inline(always)]
    unsafe fn run<V: Vector>(&mut self, lane: usize) {
        let (m, width) = (self.m.as_ptr(), self.bias.len());
        // SAFETY: the caller's promise.
        unsafe {
            let mut columns = [[V::splat(0.0); SIDE]; PATCH];
            for j in 0..PATCH {
                let mut column = [V::splat(0.0); PATCH];
                for i in 0..PATCH {
                    column[i] = V::load(m.add((i * PATCH + j) * width + lane));
                }
                columns[j] = output_line(column);
            }
            let bias = V::load(self.bias.as_ptr().add(lane));
            let (lo, hi) = (V::splat(self.clamp.0), V::splat(self.clamp.1));
            for i in 0..SIDE {
                let c = &columns;
                let line = output_line([c[0][i], c[1][i], c[2][i], c[3][i], c[4][i], c[5][i]]);
                for j in 0..SIDE {
                    if i < self.size[0] && j < self.size[1] {
                        let at = self.at + i * self.step[0] + j * self.step[1] + lane;
                        line[j].add(bias).clamp(lo, hi).store(self.out.as_mut_ptr().add(at));
                    }
                }
            }
        }
    }
}

/// All lanes of a task: whole registers, of which the last one repeats some lanes; one by one where they fill none.
#[inline(always)]
unsafe fn lanes<V: Vector, T: Task>(task: &mut T) {
    let (mut lane, end) = (0, task.end());
    // SAFETY: the caller's promise: the instruction set and `check`.
    unsafe {
        while lane + V::LANES <= end {
            task.run::<V>(lane);
            lane += V::LANES;
        }
        if lane < end && end >= V::LANES {
            return task.run::<V>(end - V::LANES);
        }
        while lane < end {
            task.run::<f32>(lane);
            lane += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<T: Task>(task: &mut T) {
    // SAFETY: the caller's promise.
    unsafe { lanes::<__m512, T>(task) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<T: Task>(task: &mut T) {
    // SAFETY: the caller's promise.
    unsafe { lanes::<__m256, T>(task) }
}

/// Runs a task with the given instructions.
pub(super) fn run<T: Task>(isa: Isa, mut task: T) {
    task.check();
    match isa.level() {
        // SAFETY: the token proves the features; `check` has bounded every pointer.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(&mut task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::AvxVnni => unsafe { avx2(&mut task) },
        // SAFETY: as above; floats need no features.
        _ => unsafe { lanes::<f32, T>(&mut task) },
    }
}
