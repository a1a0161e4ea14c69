//! Sums, differences and products of two u8 tensors, in registers from load to store.
//!
//! `quantize(dequantize(a) ∘ dequantize(b))` with `dequantize(q) = (f32(q) - zero_point) · scale`, all in f32
//! and without contraction: the meaning of the QDQ graph, to the bit, and that of the same
//! [pointwise program](crate::pointwise), which takes about twice as long.

use crate::pointwise::{Quantize, Quantizer, Rounding};
use crate::quant::Dequantize;
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};
use cleave_numerics::reciprocal_per_tensor;

/// What is done with the two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a · b`
    Mul,
}

/// An op on two u8 tensors. A clamp after it (ReLU, ReLU6) is in the bounds of its quantization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QBinary {
    isa: Isa,
    op: QOp,
    a: Dequantize,
    b: Dequantize,
    y: Quantize,
}

versions! {
    fn binary_on(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) => binary
}

#[inline(always)]
fn binary(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    match one.op {
        QOp::Add => apply(one, a, b, y, |a, b| a + b),
        QOp::Sub => apply(one, a, b, y, |a, b| a - b),
        QOp::Mul => apply(one, a, b, y, |a, b| a * b),
    }
}

#[inline(always)]
fn apply(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8], f: impl Fn(f32, f32) -> f32) {
    let (to, scale, inv) = (Quantizer::new(&one.y), one.y.scale, reciprocal_per_tensor(one.y.scale));
    let ab = y.iter_mut().zip(a.iter().zip(b));
    match one.y.rounding {
        Rounding::Div => ab.for_each(|(y, (a, b))| *y = to.round_number(f(one.a.eval(*a), one.b.eval(*b)) / scale)),
        Rounding::Recip => ab.for_each(|(y, (a, b))| *y = to.round_number(f(one.a.eval(*a), one.b.eval(*b)) * inv)),
    }
}

impl QBinary {
    /// # Errors
    /// A quantization outside u8, or a scale that is not positive and finite.
    pub fn new(isa: Isa, op: QOp, a: Dequantize, b: Dequantize, y: Quantize) -> Result<QBinary, KernelError> {
        y.check()?;
        // Sums and products of finite values are no NaN, and the kernels count on it.
        if let Some(bad) = [a.scale, b.scale, y.scale].iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            return Err(KernelError::invalid(
                "binary op on u8",
                format!("a scale is {bad}, expected a positive number"),
            ));
        }
        Ok(QBinary { isa, op, a, b, y })
    }

    /// `qadd_u8_avx512`, say.
    pub fn kernel_name(&self) -> String {
        let op = match self.op {
            QOp::Add => "qadd",
            QOp::Sub => "qsub",
            QOp::Mul => "qmul",
        };
        format!("{op}_u8_{}", self.isa.level().name())
    }

    /// Tensors of one length.
    ///
    /// # Errors
    /// Slices of different lengths.
    pub fn run(&self, pool: &ThreadPool, a: &[u8], b: &[u8], y: &mut [u8]) -> Result<(), KernelError> {
        KernelError::exactly("second operand", a.len(), b.len())?;
        KernelError::exactly("result", a.len(), y.len())?;
        split_rows(pool, y, a.len(), 1, &|r, y| binary_on(self.isa, self, &a[r.clone()], &b[r], y));
        Ok(())
    }

    /// `a [n, pixels, c]` with `b [n, c]`: a gate, repeated over the pixels. `dims = [n, pixels, c]`.
    ///
    /// # Errors
    /// Slices of another length.
    pub fn run_gate(
        &self,
        pool: &ThreadPool,
        dims: [usize; 3],
        a: &[u8],
        b: &[u8],
        y: &mut [u8],
    ) -> Result<(), KernelError> {
        let [n, pixels, c] = dims;
        KernelError::exactly("first operand", n * pixels * c, a.len())?;
        KernelError::exactly("gate", n * c, b.len())?;
        KernelError::exactly("result", a.len(), y.len())?;
        split_rows(pool, y, n * pixels, c, &|range, y| {
            for (row, y) in range.zip(y.chunks_exact_mut(c.max(1))) {
                binary_on(self.isa, self, &a[row * c..(row + 1) * c], &b[row / pixels * c..][..c], y);
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(n: usize, step: usize) -> Vec<u8> {
        (0..n).map(|i| (i * step % 256) as u8).collect()
    }

    #[test]
    fn every_isa_gives_the_bits_of_the_qdq_graph() -> Result<(), KernelError> {
        // All pairs of bytes.
        let (a, b) = (bytes(65536, 1), (0..65536).map(|i| (i >> 8) as u8).collect::<Vec<u8>>());
        let (da, db) = (Dequantize { scale: 0.05, zero_point: 3 }, Dequantize { scale: 0.0371, zero_point: 250 });
        for isa in Isa::all() {
            for rounding in [Rounding::Div, Rounding::Recip] {
                for op in [QOp::Add, QOp::Sub, QOp::Mul] {
                    let q = Quantize { scale: 0.071, zero_point: 40, qmin: 40, qmax: 230, rounding };
                    let mut y = vec![0; a.len()];
                    QBinary::new(isa, op, da, db, q)?.run(&ThreadPool::new(2), &a, &b, &mut y)?;
                    for i in 0..a.len() {
                        let (x, z) = (da.eval(a[i]), db.eval(b[i]));
                        let v = match op {
                            QOp::Add => x + z,
                            QOp::Sub => x - z,
                            QOp::Mul => x * z,
                        };
                        assert_eq!(y[i], q.eval(v), "{} {op:?} {} on {isa:?}", a[i], b[i]);
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn gates_are_repeated_over_pixels() -> Result<(), KernelError> {
        let dims = [2, 9, 21];
        let (a, b) = (bytes(2 * 9 * 21, 37), bytes(2 * 21, 91));
        let wide: Vec<u8> = (0..a.len()).map(|i| b[i / (9 * 21) * 21 + i % 21]).collect();
        let d = Dequantize { scale: 0.02, zero_point: 5 };
        for isa in Isa::all() {
            let mul = QBinary::new(isa, QOp::Mul, d, d, Quantize::u8(0.03, 7, Rounding::Div))?;
            let (mut y, mut z) = (vec![0; a.len()], vec![0; a.len()]);
            mul.run_gate(&ThreadPool::new(1), dims, &a, &b, &mut y)?;
            mul.run(&ThreadPool::new(1), &a, &wide, &mut z)?;
            assert_eq!(y, z);
            assert!(mul.run_gate(&ThreadPool::new(1), dims, &a, &b[1..], &mut y).is_err());
        }
        Ok(())
    }
}
