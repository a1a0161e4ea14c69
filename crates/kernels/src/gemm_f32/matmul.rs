//! Products of two activations: the right-hand side is packed as it comes.

use super::pack::{columns, pack_into};
use super::{Added, Driver, Finish, RowSink, Rows, kernel};
use crate::buffer::{ALIGN, align_scratch};
use crate::{Isa, KernelError, SharedMut, ThreadPool};

/// One side of a batched product: where its elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatStrides {
    /// Elements from matrix to matrix; 0 uses one matrix for all.
    pub batch: usize,
    /// Elements from row to row.
    pub row: usize,
    /// Elements from column to column.
    pub col: usize,
}

impl MatStrides {
    /// Dense `[batch, rows, cols]`.
    pub fn dense(rows: usize, cols: usize) -> MatStrides {
        MatStrides { batch: rows * cols, row: cols, col: 1 }
    }

    /// Dense `[batch, cols, rows]`, read transposed as `rows × cols`.
    pub fn transposed(rows: usize, cols: usize) -> MatStrides {
        MatStrides { batch: rows * cols, row: 1, col: rows }
    }

    fn reach(&self, batch: usize, rows: usize, cols: usize) -> usize {
        if batch == 0 || rows == 0 || cols == 0 {
            return 0;
        }
        (batch - 1) * self.batch + (rows - 1) * self.row + (cols - 1) * self.col + 1
    }
}

/// `c[i] = a[i] · b[i]` for `i` in a batch: `[m, k] · [k, n]`, f32, `c` dense. The bits are those of
/// [the crate's products](crate::gemm_f32): one chain of fused multiply-adds over k from 0.
#[derive(Clone, Debug)]
pub struct MatMulF32 {
    isa: Isa,
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    a: MatStrides,
    b: MatStrides,
}

/// The rows of one strided matrix.
struct Strided<'a> {
    a: &'a [f32],
    strides: MatStrides,
    k: usize,
    n: usize,
    /// Where the result's matrix begins.
    base: usize,
}

impl Rows for Strided<'_> {
    fn gather(&self, _: usize, row: usize, sink: &mut RowSink<'_>) {
        let from = &self.a[row * self.strides.row..];
        if self.strides.col == 1 {
            sink.push(&from[..self.k]);
        } else {
            from.iter().step_by(self.strides.col).take(self.k).for_each(|x| sink.push(std::slice::from_ref(x)));
        }
    }

    fn place(&self, row: usize, at: &mut [usize]) {
        (row..).zip(at).for_each(|(row, at)| *at = self.base + row * self.n);
    }
}

impl MatMulF32 {
    /// `batch` products of `dims = [m, k, n]`.
    ///
    /// # Errors
    /// A column stride of 0 with more than one column, or none at all where strides are needed.
    pub fn new(
        isa: Isa,
        batch: usize,
        dims: [usize; 3],
        a: MatStrides,
        b: MatStrides,
    ) -> Result<MatMulF32, KernelError> {
        let [m, k, n] = dims;
        if k > 1 && (a.col == 0 || b.row == 0) {
            return Err(KernelError::invalid("matrix product", format!("strides over k are 0: {a:?}, {b:?}")));
        }
        Ok(MatMulF32 { isa, batch, m, k, n, a, b })
    }

    /// Elements of the packed right-hand side, in whole cache lines.
    fn packed(&self) -> usize {
        (self.k * columns(&kernel(self.isa), self.n)).next_multiple_of(ALIGN / 4)
    }

    /// Bytes of scratch.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        self.packed() * 4 + ALIGN + Driver::scratch_bytes(self.isa, self.k, threads)
    }

    /// Runs it; `c` is `[batch, m, n]`.
    ///
    /// # Errors
    /// An operand or a scratch that is too short.
    pub fn run(
        &self,
        pool: &ThreadPool,
        a: &[f32],
        b: &[f32],
        c: &mut [f32],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (m, k, n) = (self.m, self.k, self.n);
        KernelError::at_least("left-hand side", self.a.reach(self.batch, m, k), a.len())?;
        KernelError::at_least("right-hand side", self.b.reach(self.batch, k, n), b.len())?;
        KernelError::at_least("matrix product", self.batch * m * n, c.len())?;
        KernelError::at_least("scratch, in bytes", self.scratch_bytes(pool.threads()), scratch.len())?;
        if self.batch * m * n == 0 {
            return Ok(());
        }
        let (packed, rest) = align_scratch(scratch).split_at_mut(self.packed() * 4);
        let packed: &mut [f32] = bytemuck::cast_slice_mut(packed);
        let out = SharedMut::new(c);
        for i in 0..self.batch {
            if i == 0 || self.b.batch != 0 {
                let b = &b[i * self.b.batch..];
                let at = |row: usize, col: usize| b[row * self.b.row + col * self.b.col];
                pack_into(&kernel(self.isa), k, n, at, packed);
            }
            let a = if k == 0 { a } else { &a[i * self.a.batch..] };
            let rows = Strided { a, strides: self.a, k, n, base: i * m * n };
            let finish = Finish::Store { clamp: (f32::NEG_INFINITY, f32::INFINITY), out, added: Added::Nothing };
            let driver = Driver { isa: self.isa, m, k, n, groups: 1, finish };
            driver.run(pool, &*packed, None, &rows, rest)?;
        }
        Ok(())
    }
}
