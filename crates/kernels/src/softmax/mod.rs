//! softmax and log_softmax over the last axis.
//!
//! `e = exp(x - max)`, `softmax = e / Σ e`, `log_softmax = (x - max) - log(Σ e)`; the sum has sixteen lanes in a
//! fixed order (see [`crate::reduce`]), so that all instruction sets agree.

use crate::pointwise::math::{exp, log, maximum};
use crate::reduce::sum::{fold, sum_of};
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};

#[inline(always)]
fn softmax_rows(x: &[f32], n: usize, logarithm: bool, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(n).zip(y.chunks_exact_mut(n)) {
        let max = fold(x, f32::NEG_INFINITY, maximum);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = exp(x - max));
        let sum = sum_of(y, |e| e);
        if logarithm {
            let log_sum = log(sum);
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - max) - log_sum);
        } else {
            y.iter_mut().for_each(|y| *y /= sum);
        }
    }
}

versions! {
    fn softmax_on(x: &[f32], n: usize, logarithm: bool, y: &mut [f32]) => softmax_rows
}

fn run(
    isa: Isa,
    pool: &ThreadPool,
    [rows, n]: [usize; 2],
    logarithm: bool,
    x: &[f32],
    y: &mut [f32],
) -> Result<(), KernelError> {
    KernelError::exactly("input of softmax", rows * n, x.len())?;
    KernelError::exactly("output of softmax", rows * n, y.len())?;
    if n > 0 {
        split_rows(pool, y, rows, n, &|r, y| softmax_on(isa, &x[r.start * n..r.end * n], n, logarithm, y));
    }
    Ok(())
}

/// `y[r, i] = exp(x[r, i]) / Σ exp(x[r, ·])`; `dims = [rows, n]`. A row of -inf alone is NaN, as in torch.
///
/// # Errors
/// Slices of another length.
pub fn softmax(isa: Isa, pool: &ThreadPool, dims: [usize; 2], x: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
    run(isa, pool, dims, false, x, y)
}

/// The logarithm of [`softmax`], computed without it.
///
/// # Errors
/// Slices of another length.
pub fn log_softmax(isa: Isa, pool: &ThreadPool, dims: [usize; 2], x: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
    run(isa, pool, dims, true, x, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_isa_gives_the_same_bits_near_the_true_value() -> Result<(), KernelError> {
        for dims in [[3, 197], [1, 1], [40, 1000], [7, 15]] {
            let x: Vec<f32> = (0..dims[0] * dims[1]).map(|i| (i * 7919 % 1009) as f32 * 0.03 - 15.0).collect();
            let mut first = None;
            for (isa, threads) in Isa::all().into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
                let (mut y, mut z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                softmax(isa, &ThreadPool::new(threads), dims, &x, &mut y)?;
                log_softmax(isa, &ThreadPool::new(threads), dims, &x, &mut z)?;
                for (r, row) in x.chunks(dims[1]).enumerate() {
                    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    let sum: f64 = row.iter().map(|x| f64::from(x - max).exp()).sum();
                    for (i, x) in row.iter().enumerate() {
                        let (at, want) = (r * dims[1] + i, f64::from(x - max).exp() / sum);
                        assert!((f64::from(y[at]) / want - 1.0).abs() < 2e-6);
                        assert!((f64::from(z[at]) - want.ln()).abs() < 1e-5);
                    }
                }
                assert_eq!(first.get_or_insert_with(|| (y.clone(), z.clone())), &(y, z), "{dims:?} on {isa:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn masked_rows_behave_as_in_torch() -> Result<(), KernelError> {
        let (inf, pool) = (f32::INFINITY, ThreadPool::new(1));
        for isa in Isa::all() {
            let mut y = [0.0; 6];
            softmax(isa, &pool, [2, 3], &[-inf, 0.0, 0.0, -inf, -inf, -inf], &mut y)?;
            assert_eq!(&y[..3], [0.0, 0.5, 0.5]);
            assert!(y[3..].iter().all(|y| y.is_nan()));
            assert!(softmax(isa, &pool, [2, 2], &[0.0; 6], &mut y).is_err());
        }
        Ok(())
    }
}
