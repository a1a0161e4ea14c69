//! Reductions of f32 along one axis of `[outer, axis, inner]`.
//!
//! Along a contiguous axis (`inner` is 1) sums have sixteen lanes (`sum.rs`); along an outer one every
//! column is summed in order, 64 terms at a time. Both orders are fixed.

pub(crate) mod sum;

use crate::pointwise::math::{maximum, minimum};
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};

/// What is computed of the elements along the axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduction {
    /// `Σ x`; 0 of none.
    Sum,
    /// `Σ x / count`
    Mean,
    /// The greatest; NaN if any is; -inf of none.
    Max,
    /// The least; NaN if any is; +inf of none.
    Min,
    /// `Σ x²`
    SumOfSquares,
    /// `Σ |x|`
    SumOfMagnitudes,
    /// `Σ (x - mean)² / (count - correction)`, torch's `var`: two passes.
    Variance {
        /// Degrees of freedom taken off; 1 for the unbiased estimate.
        correction: f32,
    },
}

/// Terms of a column that are summed before they are added to the total.
const RUN: usize = 64;

#[inline(always)]
fn row(op: Reduction, x: &[f32]) -> f32 {
    let count = x.len() as f32;
    match op {
        Reduction::Sum => sum::sum_of(x, |x| x),
        Reduction::Mean => sum::sum_of(x, |x| x) / count,
        Reduction::Max => sum::fold(x, f32::NEG_INFINITY, maximum),
        Reduction::Min => sum::fold(x, f32::INFINITY, minimum),
        Reduction::SumOfSquares => sum::sum_of(x, |x| x * x),
        Reduction::SumOfMagnitudes => sum::sum_of(x, f32::abs),
        Reduction::Variance { correction } => {
            let mean = sum::sum_of(x, |x| x) / count;
            sum::sum_of(x, |x| (x - mean) * (x - mean)) / (count - correction)
        }
    }
}

/// Rows of `x [rows, axis]`, one result each.
#[inline(always)]
fn rows(op: Reduction, x: &[f32], axis: usize, y: &mut [f32]) {
    for (i, y) in y.iter_mut().enumerate() {
        *y = row(op, &x[i * axis..(i + 1) * axis]);
    }
}

/// `y[i] = Σ f(x[k, i], i)` over `k`.
#[inline(always)]
fn column_sums(x: &[f32], inner: usize, y: &mut [f32], f: impl Fn(f32, usize) -> f32) {
    for start in (0..inner).step_by(RUN) {
        let y = &mut y[start..inner.min(start + RUN)];
        let (mut total, mut part) = ([0.0f32; RUN], [0.0f32; RUN]);
        for (k, line) in x.chunks_exact(inner).enumerate() {
            let line = &line[start..start + y.len()];
            part.iter_mut().zip(line).enumerate().for_each(|(i, (a, x))| *a += f(*x, start + i));
            if k % RUN == RUN - 1 {
                total.iter_mut().zip(&mut part).for_each(|(t, a)| *t += std::mem::take(a));
            }
        }
        y.iter_mut().zip(total.iter().zip(part)).for_each(|(y, (t, a))| *y = t + a);
    }
}

/// Columns of one `x [axis, inner]`.
#[inline(always)]
fn columns(op: Reduction, x: &[f32], axis: usize, y: &mut [f32]) {
    let (inner, count) = (y.len(), axis as f32);
    let extreme = |y: &mut [f32], start: f32, f: fn(f32, f32) -> f32| {
        y.fill(start);
        for line in x.chunks_exact(inner) {
            y.iter_mut().zip(line).for_each(|(y, x)| *y = f(*y, *x));
        }
    };
    match op {
        Reduction::Max => extreme(y, f32::NEG_INFINITY, maximum),
        Reduction::Min => extreme(y, f32::INFINITY, minimum),
        Reduction::Sum => column_sums(x, inner, y, |x, _| x),
        Reduction::SumOfSquares => column_sums(x, inner, y, |x, _| x * x),
        Reduction::SumOfMagnitudes => column_sums(x, inner, y, |x, _| x.abs()),
        Reduction::Mean => {
            column_sums(x, inner, y, |x, _| x);
            y.iter_mut().for_each(|y| *y /= count);
        }
        Reduction::Variance { correction } => {
            // In blocks, so that the means have a place without an allocation.
            for start in (0..inner).step_by(RUN) {
                let width = RUN.min(inner - start);
                let (mut means, mut squares) = ([0.0f32; RUN], [0.0f32; RUN]);
                for pass in 0..2 {
                    for line in x.chunks_exact(inner) {
                        let line = &line[start..start + width];
                        if pass == 0 {
                            means.iter_mut().zip(line).for_each(|(m, x)| *m += x);
                        } else {
                            let pairs = squares.iter_mut().zip(line.iter().zip(&means));
                            pairs.for_each(|(s, (x, m))| *s += (x - m) * (x - m));
                        }
                    }
                    if pass == 0 {
                        means.iter_mut().for_each(|m| *m /= count);
                    }
                }
                let y = &mut y[start..start + width];
                y.iter_mut().zip(squares).for_each(|(y, s)| *y = s / (count - correction));
            }
        }
    }
}

versions! {
    fn rows_on(op: Reduction, x: &[f32], axis: usize, y: &mut [f32]) => rows
}

versions! {
    fn columns_on(op: Reduction, x: &[f32], axis: usize, y: &mut [f32]) => columns
}

/// Reduces `x [outer, axis, inner]` to `y [outer, inner]`; `dims = [outer, axis, inner]`.
///
/// # Errors
/// Slices of another length.
pub fn reduce(
    isa: Isa,
    pool: &ThreadPool,
    op: Reduction,
    dims: [usize; 3],
    x: &[f32],
    y: &mut [f32],
) -> Result<(), KernelError> {
    let [outer, axis, inner] = dims;
    KernelError::exactly("input of a reduction", outer * axis * inner, x.len())?;
    KernelError::exactly("output of a reduction", outer * inner, y.len())?;
    if inner == 1 {
        split_rows(pool, y, outer, 1, &|r, y| rows_on(isa, op, &x[r.start * axis..r.end * axis], axis, y));
    } else if inner > 1 {
        split_rows(pool, y, outer, inner, &|r, y| {
            for (o, y) in r.zip(y.chunks_exact_mut(inner)) {
                columns_on(isa, op, &x[o * axis * inner..(o + 1) * axis * inner], axis, y);
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Reduction; 8] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Max,
        Reduction::Min,
        Reduction::SumOfSquares,
        Reduction::SumOfMagnitudes,
        Reduction::Variance { correction: 0.0 },
        Reduction::Variance { correction: 1.0 },
    ];

    /// The definition, in f64.
    fn meant(op: Reduction, x: &[f64]) -> f64 {
        let (count, sum) = (x.len() as f64, x.iter().sum::<f64>());
        match op {
            Reduction::Sum => sum,
            Reduction::Mean => sum / count,
            Reduction::Max => x.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => x.iter().copied().fold(f64::INFINITY, f64::min),
            Reduction::SumOfSquares => x.iter().map(|x| x * x).sum(),
            Reduction::SumOfMagnitudes => x.iter().map(|x| x.abs()).sum(),
            Reduction::Variance { correction } => {
                x.iter().map(|x| (x - sum / count).powi(2)).sum::<f64>() / (count - f64::from(correction))
            }
        }
    }

    #[test]
    fn every_isa_gives_the_same_bits_near_the_true_value() -> Result<(), KernelError> {
        for dims in [[3, 197, 1], [1, 2, 1], [2, 130, 33], [1, 17, 200], [5, 1000, 1], [1, 3, 7]] {
            let [outer, axis, inner] = dims;
            let x: Vec<f32> = (0..outer * axis * inner).map(|i| (i * 7919 % 1009) as f32 * 0.013 - 5.0).collect();
            for op in OPS {
                let mut first: Option<Vec<f32>> = None;
                for (isa, threads) in Isa::all().into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
                    let mut y = vec![f32::NAN; outer * inner];
                    reduce(isa, &ThreadPool::new(threads), op, dims, &x, &mut y)?;
                    for (at, y) in y.iter().enumerate() {
                        let (o, i) = (at / inner, at % inner);
                        let line: Vec<f64> = (0..axis).map(|k| f64::from(x[(o * axis + k) * inner + i])).collect();
                        let want = meant(op, &line);
                        let slack = 1e-5 * line.iter().map(|x| x.abs()).sum::<f64>().max(1.0);
                        assert!((f64::from(*y) - want).abs() < slack, "{op:?} of {dims:?}: {y}, expected {want}");
                    }
                    assert_eq!(first.get_or_insert_with(|| y.clone()), &y, "{op:?} of {dims:?} on {isa:?}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn nan_wins_and_an_empty_sum_is_zero() -> Result<(), KernelError> {
        let mut x = vec![1.0; 40];
        x[33] = f32::NAN;
        for isa in Isa::all() {
            for (dims, len) in [([1, 40, 1], 1), ([1, 20, 2], 2)] {
                let mut y = vec![0.0; len];
                reduce(isa, &ThreadPool::new(1), Reduction::Max, dims, &x, &mut y)?;
                assert!(y[len - 1].is_nan());
            }
            let mut y = [1.0; 2];
            reduce(isa, &ThreadPool::new(1), Reduction::Sum, [2, 0, 1], &[], &mut y)?;
            assert_eq!(y, [0.0; 2]);
            assert!(reduce(isa, &ThreadPool::new(1), Reduction::Sum, [2, 3, 1], &[], &mut y).is_err());
        }
        Ok(())
    }
}
