//! How near one output is to another, streamed over samples.

use cleave_ir::Tensor;
use serde::Serialize;

/// Sums over pairs of outputs. Memory is one number for each output element, however many samples there are; none
/// without means.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    without_means: bool,
    samples: usize,
    elements: usize,
    mean: Vec<f64>,
    signal: f64,
    noise: f64,
    dot: f64,
    other: f64,
    max_abs: f64,
    top1_equal: usize,
}

/// What [`Comparison`] found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Similarity {
    /// `10·log10(Σa² / Σ(a-b)²)`; infinite where all elements are equal.
    pub sqnr_db: f64,
    /// The same with each element's mean over the samples subtracted from the signal, so that an output that
    /// ignores its input scores nothing. Of one sample, and without means, nothing is known: 0.
    pub centred_sqnr_db: f64,
    /// `Σab / √(Σa²·Σb²)`.
    pub cosine: f64,
    /// Greatest `|a-b|`.
    pub max_abs: f64,
    /// Root of the mean of `(a-b)²`.
    pub rms: f64,
    /// Share of samples whose greatest element stands at the same place.
    pub top1_agreement: f64,
}

impl Comparison {
    /// For values of any size: nothing is remembered of their elements.
    pub fn without_means() -> Comparison {
        Comparison { without_means: true, ..Comparison::default() }
    }

    /// Adds a batch: the first dimension counts samples (a value without dimensions is one sample).
    ///
    /// # Errors
    /// Shapes that differ from each other or from earlier batches, or values that are not numbers.
    pub fn add(&mut self, a: &Tensor, b: &Tensor) -> Result<(), String> {
        if a.shape() != b.shape() {
            return Err(format!("shapes {:?} and {:?} differ", a.shape(), b.shape()));
        }
        let rows = a.shape().first().copied().unwrap_or(1).max(1);
        let (a, b) = (a.to_f32(), b.to_f32());
        let width = a.len() / rows;
        if width == 0 {
            return Ok(());
        }
        if self.mean.is_empty() && !self.without_means {
            self.mean = vec![0.0; width];
        }
        // Outputs of several sizes have no mean element by element; what they have in common is compared.
        let centred = self.mean.len() == width;
        for (x, y) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
            self.row(x, y, centred);
        }
        Ok(())
    }

    fn row(&mut self, x: &[f32], y: &[f32], centred: bool) {
        // Sums in lanes, so that the compiler may vectorize them.
        const LANES: usize = 8;
        let (mut signal, mut noise, mut dot, mut other) = ([0f64; LANES], [0f64; LANES], [0f64; LANES], [0f64; LANES]);
        let mut far = [0f32; LANES];
        let mut pair = |i: usize, x: f32, y: f32| {
            let d = x - y;
            far[i] = farther(far[i], d.abs());
            let (x, y, d) = (f64::from(x), f64::from(y), f64::from(d));
            signal[i] += x * x;
            other[i] += y * y;
            dot[i] += x * y;
            noise[i] += d * d;
        };
        let ((whole, rest), (others, other_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
        for (x, y) in whole.iter().zip(others) {
            for i in 0..LANES {
                pair(i, x[i], y[i]);
            }
        }
        rest.iter().zip(other_rest).enumerate().for_each(|(i, (x, y))| pair(i, *x, *y));
        self.signal += signal.iter().sum::<f64>();
        self.other += other.iter().sum::<f64>();
        self.dot += dot.iter().sum::<f64>();
        self.noise += noise.iter().sum::<f64>();
        self.max_abs = far.iter().fold(self.max_abs, |m, f| f64::from(farther(m as f32, *f)));
        if centred {
            self.mean.iter_mut().zip(x).for_each(|(m, x)| *m += f64::from(*x));
        }
        self.samples += 1;
        self.elements += x.len();
        self.top1_equal += usize::from(top1(x) == top1(y));
    }

    /// Samples so far.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The figures.
    pub fn finish(&self) -> Similarity {
        let n = self.samples.max(1) as f64;
        let about_mean = self.signal - self.mean.iter().map(|m| m * m).sum::<f64>() / n;
        let norm = (self.signal * self.other).sqrt();
        Similarity {
            sqnr_db: decibels(self.signal, self.noise),
            centred_sqnr_db: if self.samples < 2 || self.without_means {
                0.0
            } else {
                decibels(about_mean.max(0.0), self.noise)
            },
            cosine: if norm > 0.0 { self.dot / norm } else { f64::from(u8::from(self.signal == self.other)) },
            max_abs: self.max_abs,
            rms: (self.noise / self.elements.max(1) as f64).sqrt(),
            top1_agreement: self.top1_equal as f64 / n,
        }
    }
}

/// The greater one; NaN where either is.
fn farther(a: f32, b: f32) -> f32 {
    if a.is_nan() || b <= a { a } else { b }
}

/// `10·log10(signal / noise)`.
fn decibels(signal: f64, noise: f64) -> f64 {
    match (signal, noise) {
        (_, 0.0) => f64::INFINITY,
        (0.0, _) => f64::NEG_INFINITY,
        (s, n) => 10.0 * (s / n).log10(),
    }
}

/// Place of the greatest element; of equal ones, the first.
pub fn top1(v: &[f32]) -> usize {
    v.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (i, x)| if *x > best.1 { (i, *x) } else { best }).0
}

/// Median of unsorted figures; 0 of none.
pub fn median(v: &[f64]) -> f64 {
    let mut v = v.to_vec();
    v.sort_by(f64::total_cmp);
    match v.len() {
        0 => 0.0,
        n if n % 2 == 1 => v[n / 2],
        n => (v[n / 2 - 1] + v[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &[f32], b: &[f32], rows: usize) -> Similarity {
        let t = |v: &[f32]| Tensor::new(&[rows, v.len() / rows], v.to_vec());
        let mut c = Comparison::default();
        c.add(&t(a), &t(b)).unwrap();
        c.finish()
    }

    #[test]
    fn equal_outputs_have_no_noise() {
        let s = compare(&[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 5.0], 2);
        assert_eq!((s.sqnr_db, s.max_abs, s.top1_agreement), (f64::INFINITY, 0.0, 1.0));
        assert!((s.cosine - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_constant_output_scores_nothing_when_centred() {
        // The second output is the mean of the first over the samples.
        let s = compare(&[1.0, 10.0, 3.0, 14.0], &[2.0, 12.0, 2.0, 12.0], 2);
        assert!(s.centred_sqnr_db.abs() < 1e-9, "{s:?}");
        assert!(s.sqnr_db > 10.0);
    }

    #[test]
    fn noise_is_in_decibels() {
        let s = compare(&[1.0, 1.0, 1.0, 1.0], &[1.1, 0.9, 1.1, 0.9], 2);
        assert!((s.sqnr_db - 20.0).abs() < 1e-4, "{s:?}");
        assert!((s.max_abs - 0.1).abs() < 1e-6);
    }

    #[test]
    fn not_a_number_is_not_hidden() {
        assert!(compare(&[1.0, f32::NAN], &[1.0, 2.0], 2).max_abs.is_nan());
    }

    #[test]
    fn medians_are_of_the_middle() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 2.5));
    }
}
