//! Products of few tiles: the weights' terms are made in registers, multiplied there and never stored, which takes longer
//! than to make them.
#![allow(unsafe_code, reason = "vector loads and stores through pointers")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::super::vector::Vector;
use super::transform::{Task, weights_line};
use super::{DEPTH, PATCH, TERMS};

/// Most tiles: a line of their terms fills 24 of 32 registers.
pub(super) const FEW: usize = 4;

/// A slice of a panel's weights, and the tiles that it is multiplied with.
pub(super) struct FewTask<'a> {
    /// Nine taps, `step` elements apart, each `[channel][width]`.
    pub(super) g: &'a [f32],
    pub(super) step: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// How far behind those that are needed next lie.
    pub(super) ahead: usize,
    /// The patches' terms, of 1 to [`FEW`] tiles.
    pub(super) v: &'a [[[f32; DEPTH]; TERMS]],
    /// The sums, `[tile][term][width]`.
    pub(super) m: &'a mut [f32],
    /// Whether sums of other slices are there, to which these are added.
    pub(super) add: bool,
}

impl FewTask<'_> {
    /// Line `I` of the terms.
    ///
    /// # Safety
    /// As [`Task::run`].
    #[inline(always)]
    unsafe fn line<V: Vector, const I: usize>(&mut self, lane: usize) {
        let last = self.v.len() - 1;
        let mut patches = [self.v[0].as_ptr().cast::<f32>(); FEW];
        for r in 0..FEW {
            patches[r] = self.v[r.min(last)][I * PATCH].as_ptr();
        }
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [[V::splat(0.0); PATCH]; FEW];
            for k in 0..self.channels {
                let g = self.g.as_ptr().add(k * self.width + lane);
                let mut columns = [V::splat(0.0); 3];
                for j in 0..3 {
                    let mut column = [V::splat(0.0); 3];
                    for i in 0..3 {
                        let from = g.add((i * 3 + j) * self.step);
                        column[i] = V::load(from);
                        // Each line fetches its share.
                        if (i * 3 + j) % PATCH == I {
                            V::fetch(from.wrapping_add(self.ahead));
                        }
                    }
                    columns[j] = weights_line(column)[I];
                }
                let line = weights_line(columns);
                for r in 0..FEW {
                    for j in 0..PATCH {
                        sums[r][j] = V::splat(*patches[r].add(j * DEPTH + k)).fma(line[j], sums[r][j]);
                    }
                }
            }
            for r in 0..self.v.len() {
                for j in 0..PATCH {
                    let m = self.m.as_mut_ptr().add((r * TERMS + I * PATCH + j) * self.width + lane);
                    let sum = sums[r][j];
                    (if self.add { sum.add(V::load(m)) } else { sum }).store(m);
                }
            }
        }
    }
}

impl Task for FewTask<'_> {
    fn check(&self) {
        assert!((1..=FEW).contains(&self.v.len()) && (1..=DEPTH).contains(&self.channels));
        assert!(8 * self.step + self.channels * self.width <= self.g.len());
        assert!(self.v.len() * TERMS * self.width <= self.m.len());
    }

    fn end(&self) -> usize {
        self.width
    }

    /// `m += v ⊙ (G g Gᵀ)`, summed over the channels.
    #[inline(always)]
    unsafe fn run<V: Vector>(&mut self, lane: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            self.line::<V, 0>(lane);
            self.line::<V, 1>(lane);
            self.line::<V, 2>(lane);
            self.line::<V, 3>(lane);
            self.line::<V, 4>(lane);
            self.line::<V, 5>(lane);
        }
    }
}
