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

pub(crate) use driver::{Added, Driver, Finish, RowSink, Rows};
pub(crate) use element::Element;
pub use matmul::{MatMulF32, MatStrides};
pub(crate) use pack::{Packed, Panels};
pub(crate) use share::{TaskScratch, run_epilogue as epilogue};

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
        // Most have one piece, and a division takes time.
        let pieces = if k <= self.depth { 0 } else { (k - 1) / self.depth };
        pieces * self.step + (rows - 1) * self.pitch + k.min(self.depth)
    }
}

/// What is added to sums before they are bounded and stored.
#[derive(Clone, Copy)]
pub(crate) enum Addend<'a> {
    Nothing,
    /// What is stored already.
    Stored,
    /// Of another tensor, the rows whose first columns lie there.
    Rows(&'a [f32], &'a [usize]),
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
    /// What is added to the sums.
    pub(crate) add: Addend<'a>,
    /// One for each column of the panel.
    pub(crate) bias: &'a [f32],
    /// `[k][width]`.
    pub(crate) b: &'a [E],
    /// What is fetched into L2 meanwhile, if it is not empty: at each step of the depth a cache line.
    pub(crate) ahead: &'a [E],
    /// Bounds of the result.
    pub(crate) clamp: (f32, f32),
    /// The result's tensor.
    pub(crate) out: SharedMut<'a, f32>,
    /// Where each row's first column lies in it.
    pub(crate) at: &'a [usize],
}

/// Bytes of a cache line.
const LINE: usize = 64;

impl<E> Task<'_, E> {
    /// Where to fetch from, and the elements from one line to the next.
    #[cfg(target_arch = "x86_64")]
    fn fetched(&self) -> (*const E, usize) {
        // Whoever has nothing to fetch fetches what is there.
        if self.ahead.is_empty() { (self.b.as_ptr(), 0) } else { (self.ahead.as_ptr(), LINE / size_of::<E>()) }
    }

    /// What is added, and where each row's first column lies in it.
    #[cfg(target_arch = "x86_64")]
    fn added(&self) -> Option<(*const f32, &[usize])> {
        match self.add {
            Addend::Nothing => None,
            Addend::Stored => Some((self.out.as_mut_ptr().cast_const(), self.at)),
            Addend::Rows(data, at) => Some((data.as_ptr(), at)),
        }
    }

    /// Holds the packed operands and the stores to their slices, for kernels that go by pointers.
    fn check(&self, mr: usize) {
        assert!((1..=mr).contains(&self.rows) && self.cols <= self.width && self.rows <= self.at.len());
        assert!(self.a.reach(self.rows, self.k) <= self.a.data.len());
        if let Addend::Rows(data, at) = self.add {
            assert!(at[..self.rows].iter().all(|at| at + self.cols <= data.len()));
        }
        assert!(self.bias.len() >= self.width && self.b.len() >= self.k * self.width);
        assert!(self.at[..self.rows].iter().all(|at| at + self.cols <= self.out.len()));
    }
}

/// The kernel of an instruction set, for right-hand sides of floats.
pub(crate) fn kernel(isa: Isa) -> Kernel {
    f32::kernel(isa)
}
