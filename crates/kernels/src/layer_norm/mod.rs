//! Layer normalization over the last axis.
//!
//! `mean = Σ x / n`, `var = Σ (x - mean)² / n`, `y = ((x - mean) · (1 / √(var + eps))) · weight + bias`, in two
//! passes; sums have sixteen lanes in a fixed order (see [`crate::reduce`]).

use crate::reduce::sum::sum_of;
use crate::share::split_rows;
use crate::versions::versions;
use crate::{Isa, KernelError, ThreadPool};

/// Layer normalization of rows of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    isa: Isa,
    n: usize,
    eps: f32,
    /// Whether the mean is taken off; RMS normalization does not.
    centred: bool,
    weight: Option<Vec<f32>>,
    bias: Option<Vec<f32>>,
}

#[inline(always)]
fn normalize(norm: &LayerNorm, x: &[f32], y: &mut [f32]) {
    let n = norm.n as f32;
    for (x, y) in x.chunks_exact(norm.n).zip(y.chunks_exact_mut(norm.n)) {
        let mean = if norm.centred { sum_of(x, |x| x) / n } else { 0.0 };
        let var = sum_of(x, |x| (x - mean) * (x - mean)) / n;
        let scale = 1.0 / (var + norm.eps).sqrt();
        y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - mean) * scale);
        if let Some(weight) = &norm.weight {
            y.iter_mut().zip(weight).for_each(|(y, w)| *y *= w);
        }
        if let Some(bias) = &norm.bias {
            y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
        }
    }
}

versions! {
    fn normalize_on(norm: &LayerNorm, x: &[f32], y: &mut [f32]) => normalize
}

impl LayerNorm {
    /// Over rows of `n` elements; `weight` and `bias` are `[n]`, or absent.
    ///
    /// # Errors
    /// `n` of 0, or weights or biases of another length.
    pub fn new(
        isa: Isa,
        n: usize,
        eps: f32,
        weight: Option<&[f32]>,
        bias: Option<&[f32]>,
    ) -> Result<LayerNorm, KernelError> {
        if n == 0 {
            return Err(KernelError::invalid("layer norm", "expected at least one element a row"));
        }
        for (what, values) in [("layer norm weight", weight), ("layer norm bias", bias)] {
            KernelError::exactly(what, n, values.map_or(n, <[f32]>::len))?;
        }
        let (weight, bias) = (weight.map(<[f32]>::to_vec), bias.map(<[f32]>::to_vec));
        Ok(LayerNorm { isa, n, eps, centred: true, weight, bias })
    }

    /// Root-mean-square normalization: `x · (1 / √(Σ x² / n + eps)) · weight`.
    ///
    /// # Errors
    /// As [`LayerNorm::new`].
    pub fn rms(isa: Isa, n: usize, eps: f32, weight: Option<&[f32]>) -> Result<LayerNorm, KernelError> {
        Ok(LayerNorm { centred: false, ..LayerNorm::new(isa, n, eps, weight, None)? })
    }

    /// `x` and `y` are `[rows, n]`.
    ///
    /// # Errors
    /// Slices of different lengths, or not of whole rows.
    pub fn run(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
        let rows = x.len() / self.n;
        KernelError::exactly("input of layer norm", rows * self.n, x.len())?;
        KernelError::exactly("output of layer norm", x.len(), y.len())?;
        split_rows(pool, y, rows, self.n, &|r, y| {
            normalize_on(self.isa, self, &x[r.start * self.n..r.end * self.n], y)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_isa_gives_the_same_bits_near_the_true_value() -> Result<(), KernelError> {
        for (rows, n) in [(3, 768), (1, 1), (50, 33), (2, 8)] {
            let value = |i: usize, by: usize| (i * by % 1009) as f32 * 0.01 - 3.0;
            let x: Vec<f32> = (0..rows * n).map(|i| value(i, 7919)).collect();
            let (w, b): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (value(i, 31), value(i, 17))).unzip();
            let mut first = None;
            for (isa, threads) in Isa::all().into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
                let (mut y, mut z) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                LayerNorm::new(isa, n, 1e-5, Some(&w), Some(&b))?.run(&ThreadPool::new(threads), &x, &mut y)?;
                LayerNorm::rms(isa, n, 1e-6, None)?.run(&ThreadPool::new(threads), &x, &mut z)?;
                for (r, row) in x.chunks(n).enumerate() {
                    let row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
                    let mean = row.iter().sum::<f64>() / n as f64;
                    let var = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
                    let square = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
                    for (i, x) in row.iter().enumerate() {
                        let want = (x - mean) / (var + 1e-5).sqrt() * f64::from(w[i]) + f64::from(b[i]);
                        assert!((f64::from(y[r * n + i]) - want).abs() < 2e-5, "row {r}, element {i}");
                        assert!((f64::from(z[r * n + i]) - x / (square + 1e-6).sqrt()).abs() < 2e-5);
                    }
                }
                assert_eq!(first.get_or_insert_with(|| (y.clone(), z.clone())), &(y, z), "{rows}×{n} on {isa:?}");
            }
        }
        Ok(())
    }

    #[test]
    fn bad_lengths_are_refused() -> Result<(), KernelError> {
        let isa = Isa::best();
        assert!(LayerNorm::new(isa, 0, 1e-5, None, None).is_err());
        assert!(LayerNorm::new(isa, 4, 1e-5, Some(&[1.0; 3]), None).is_err());
        let norm = LayerNorm::new(isa, 4, 1e-5, None, None)?;
        assert!(norm.run(&ThreadPool::new(1), &[0.0; 6], &mut [0.0; 6]).is_err());
        Ok(())
    }
}
