//! f32 matrix products: packed right-hand sides, register tiles, one order of summation.
//!
//! `c[m, n] = clamp(fma(a[m, K-1], b[K-1, n], … fma(a[m, 0], b[0, n], bias[n])))`: every element is one chain
//! of fused multiply-adds over k, on every instruction set and however the work is split, so that the bits
//! are the same everywhere. Convolutions come here too, with rows gathered from an image. The right-hand side may be
//! of half-precision numbers (`element.rs`): half the memory, and the bits of the floats that they widen to.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod driver;
mod element;
mod matmul;
mod pack;
mod portable;
mod share;

#[cfg(test)]
mod tests;

pub(crate) use driver::{Driver, Finish, RowSink, Rows};
pub(crate) use element::Element;
pub use matmul::{MatMulF32, MatStrides};
pub(crate) use pack::{Packed, Panels};
pub(crate) use share::{floats, part as scratch_part, run_epilogue as epilogue};

use crate::{Isa, SharedMut};

/// Depth of a block of the left-hand side.
pub(crate) const KB: usize = 256;
/// Elements from row to row within a gathered block: a little more than its depth, so that rows fall into different
/// sets.
pub(crate) const LDA: usize = KB + 16;

/// A register tile's shape, the same for all elements, and its code.
#[derive(Clone, Copy)]
pub(crate) struct Kernel<E = f32> {
    /// Rows of a tile.
    pub(crate) mr: usize,
    /// Columns of a panel; the last one of a matrix may be half as wide.
    pub(crate) nr: usize,
    /// Runs a tile.
    pub(crate) run: fn(&Task<'_, E>),
    /// What the instruction set is called in kernel names.
    pub(crate) name: &'static str,
}

/// Rows of a left-hand side, in pieces: element k of row r is `data[k / depth · step + r · pitch + k % depth]`.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'a> {
    pub(crate) data: &'a [f32],
    /// Elements from row to row.
    pub(crate) pitch: usize,
    /// Elements of a piece, but for the last one.
    pub(crate) depth: usize,
    /// Elements from piece to piece.
    pub(crate) step: usize,
}

impl Lines<'_> {
    /// Elements up to the last one of the last row, of `rows` by `k`.
    fn reach(&self, rows: usize, k: usize) -> usize {
        if k == 0 {
            return 0;
        }
        (k - 1) / self.depth * self.step + (rows - 1) * self.pitch + (k - 1).min(self.depth - 1) + 1
    }
}

/// One tile: `rows × cols` of the result.
pub(crate) struct Task<'a, E> {
    /// At most the kernel's `mr`.
    pub(crate) rows: usize,
    /// Columns that are stored; at most `width`.
    pub(crate) cols: usize,
    /// Columns of the packed panel.
    pub(crate) width: usize,
    /// Depth.
    pub(crate) k: usize,
    /// Its rows.
    pub(crate) a: Lines<'a>,
    /// Whether sums are added to what is stored.
    pub(crate) add: bool,
    /// One for each column of the panel.
    pub(crate) bias: &'a [f32],
    /// `[k][width]`.
    pub(crate) b: &'a [E],
    /// Bounds of the result.
    pub(crate) clamp: (f32, f32),
    /// The result's tensor.
    pub(crate) out: SharedMut<'a, f32>,
    /// Where each row's first column lies in it.
    pub(crate) at: &'a [usize],
}

impl<E> Task<'_, E> {
    /// Holds the packed operands and the stores to their slices, for kernels that go by pointers.
    fn check(&self, mr: usize) {
        assert!((1..=mr).contains(&self.rows) && self.cols <= self.width && self.rows <= self.at.len());
        assert!(self.a.reach(self.rows, self.k) <= self.a.data.len());
        assert!(!self.add || self.cols == self.width);
        assert!(self.bias.len() >= self.width && self.b.len() >= self.k * self.width);
        assert!(self.at[..self.rows].iter().all(|at| at + self.cols <= self.out.len()));
    }
}

/// The kernel of an instruction set, for right-hand sides of floats.
pub(crate) fn kernel(isa: Isa) -> Kernel {
    f32::kernel(isa)
}
