//! Sums and products of two u8 tensors, in registers from load to store: [`QSum`] and [`QProduct`] to the bit.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod gate;

pub use gate::Gate;

use crate::pointwise::{Quantize, Quantizer, fma};
use crate::quant::Dequantize;
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, Level, ThreadPool};
use cleave_numerics::{QParams, QProduct, QSum};

/// Bytes of a gate that is repeated.
const GATES: usize = 4096;

/// What is done with the two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QOp {
    /// `a + b`
    Add,
    /// `a · b`
    Mul,
}

/// An op on two u8 tensors. A clamp after it (ReLU, ReLU6) is in the bounds of its quantization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QBinary {
    isa: Isa,
    formula: Formula,
    /// The output's bounds; the zero point is in the formula.
    y: Quantize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Formula {
    Sum(QSum),
    Product(QProduct),
}

versions! {
    fn binary_fused(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) => binary_with_fma
}

fn binary_on(isa: Isa, one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::binary(isa, one, a, b, y),
        // Without the instruction it is spelled out, to the same bits.
        Level::Portable => binary(one, a, b, y, fma),
        _ => binary_fused(isa, one, a, b, y),
    }
}

#[inline(always)]
fn binary_with_fma(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8]) {
    binary(one, a, b, y, f32::mul_add);
}

#[inline(always)]
fn binary(one: &QBinary, a: &[u8], b: &[u8], y: &mut [u8], fma: impl Fn(f32, f32, f32) -> f32) {
    let to = Quantizer::new(&one.y);
    let ab = y.iter_mut().zip(a.iter().zip(b));
    match one.formula {
        Formula::Sum(QSum { ra, rb, fixed }) => {
            ab.for_each(|(y, (a, b))| *y = to.round_number(fma(f32::from(*a), ra, fma(f32::from(*b), rb, fixed))));
        }
        Formula::Product(QProduct { m, zeros: [za, zb], zero_point }) => ab.for_each(|(y, (a, b))| {
            // Both factors have at most nine bits: their product is exact in f32.
            let p = (i32::from(*a) - za) as f32 * (i32::from(*b) - zb) as f32;
            *y = to.round_number(p * m + zero_point);
        }),
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
        let params = |scale, zero_point| QParams { scale, zero_point };
        let (a, b) = (params(a.scale, a.zero_point), params(b.scale, b.zero_point));
        let to = params(y.scale, y.zero_point);
        let formula = match op {
            QOp::Add => Formula::Sum(QSum::new(a, b, to)),
            QOp::Mul => Formula::Product(QProduct::new(a, b, to)),
        };
        Ok(QBinary { isa, formula, y: Quantize { scale: 1.0, zero_point: 0, ..y } })
    }

    /// `qadd_u8_avx512`, say.
    pub fn kernel_name(&self) -> String {
        let op = match self.formula {
            Formula::Sum(_) => "qadd",
            Formula::Product(_) => "qmul",
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
        let most = (GATES / dims[2].max(1)).max(1);
        over_images(
            pool,
            dims,
            a,
            b,
            y,
            most,
            || ([0; GATES], None),
            |(gates, known), gate, times, a, y| {
                let c = gate.0.len();
                let gates = match gates.get_mut(..times * c) {
                    Some(repeated) => {
                        if known.replace(gate.1) != Some(gate.1) {
                            repeated.chunks_exact_mut(c).for_each(|g| g.copy_from_slice(gate.0));
                        }
                        &repeated[..a.len()]
                    }
                    None => gate.0,
                };
                binary_on(self.isa, self, a, gates, y);
            },
        )
    }
}

/// A gate's channels, and the image that it is of.
type OfImage<'a> = (&'a [u8], usize);

/// Calls `f(state, gate, times, a, y)` for rows of pixels `a`, at most `most` and all of one image, beside which its gate
/// stands; no call for that image has more than `times` rows. Each thread has a state that `start` gives it.
/// `dims = [n, pixels, c]`.
#[allow(clippy::too_many_arguments, reason = "the operands, and what is done with them")]
fn over_images<S>(
    pool: &ThreadPool,
    dims: [usize; 3],
    a: &[u8],
    b: &[u8],
    y: &mut [u8],
    most: usize,
    start: impl Fn() -> S + Sync,
    f: impl Fn(&mut S, OfImage<'_>, usize, &[u8], &mut [u8]) + Sync,
) -> Result<(), KernelError> {
    let [n, pixels, c] = dims;
    KernelError::exactly("first operand", n * pixels * c, a.len())?;
    KernelError::exactly("gate", n * c, b.len())?;
    KernelError::exactly("result", a.len(), y.len())?;
    if a.is_empty() {
        return Ok(());
    }
    split_rows(pool, y, n * pixels, c, &|range, y| {
        let (mut row, mut y, mut state) = (range.start, y, start());
        while row < range.end {
            let image = row / pixels;
            let left = range.end.min((image + 1) * pixels) - row;
            let rows = most.min(left);
            let (now, later) = y.split_at_mut(rows * c);
            let gate = (&b[image * c..(image + 1) * c], image);
            f(&mut state, gate, most.min(pixels), &a[row * c..(row + rows) * c], now);
            (row, y) = (row + rows, later);
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointwise::Rounding;

    fn bytes(n: usize, step: usize) -> Vec<u8> {
        (0..n).map(|i| (i * step % 256) as u8).collect()
    }

    #[test]
    fn every_isa_gives_the_bits_of_the_definition() -> Result<(), KernelError> {
        // All pairs of bytes.
        let (a, b) = (bytes(65536, 1), (0..65536).map(|i| (i >> 8) as u8).collect::<Vec<u8>>());
        let q = |d: &Dequantize| QParams { scale: d.scale, zero_point: d.zero_point };
        for (sa, sb, sy) in [(0.05, 0.0371, 0.071), (0.25, 0.25, 0.5)] {
            let (da, db) = (Dequantize { scale: sa, zero_point: 3 }, Dequantize { scale: sb, zero_point: 250 });
            let to = Quantize { scale: sy, zero_point: 41, qmin: 41, qmax: 230, rounding: Rounding::Div };
            let y = QParams { scale: sy, zero_point: 41 };
            let (sum, product) = (QSum::new(q(&da), q(&db), y), QProduct::new(q(&da), q(&db), y));
            for isa in Isa::all() {
                let (mut s, mut p) = (vec![0; a.len()], vec![0; a.len()]);
                QBinary::new(isa, QOp::Add, da, db, to)?.run(&ThreadPool::new(2), &a, &b, &mut s)?;
                QBinary::new(isa, QOp::Mul, da, db, to)?.run(&ThreadPool::new(2), &a, &b, &mut p)?;
                for i in 0..a.len() {
                    let (x, z) = (i32::from(a[i]), i32::from(b[i]));
                    assert_eq!(i32::from(s[i]), sum.eval(x, z, 41, 230), "{x} + {z} on {isa:?}");
                    assert_eq!(i32::from(p[i]), product.eval(x, z, 41, 230), "{x} · {z} on {isa:?}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn gates_are_repeated_over_pixels() -> Result<(), KernelError> {
        let d = Dequantize { scale: 0.02, zero_point: 5 };
        for (isa, (n, pixels, c)) in
            Isa::all().into_iter().flat_map(|isa| [(isa, (2, 9, 21)), (isa, (3, 50, 1000)), (isa, (1, 2, 5000))])
        {
            let dims = [n, pixels, c];
            let (a, b) = (bytes(n * pixels * c, 37), bytes(n * c, 91));
            let wide: Vec<u8> = (0..a.len()).map(|i| b[i / (pixels * c) * c + i % c]).collect();
            let mul = QBinary::new(isa, QOp::Mul, d, d, Quantize::u8(0.03, 7, Rounding::Div))?;
            let (mut y, mut z) = (vec![0; a.len()], vec![0; a.len()]);
            mul.run_gate(&ThreadPool::new(2), dims, &a, &b, &mut y)?;
            mul.run(&ThreadPool::new(1), &a, &wide, &mut z)?;
            assert_eq!(y, z);
            assert!(mul.run_gate(&ThreadPool::new(1), dims, &a, &b[1..], &mut y).is_err());
        }
        Ok(())
    }
}
