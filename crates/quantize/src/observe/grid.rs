//! Our default: a histogram on a power-of-two grid through zero.
//!
//! Bin `i` holds `[i·w, (i+1)·w)` with `w = 2^e`. When the range grows, `w` doubles and neighbours add up:
//! bin `i` becomes `floor(i / 2)`. The result therefore depends neither on the order of the data nor on how
//! it was divided, and histograms of shards merge bit for bit.

use super::Scan;
use super::tally::tally;
use cleave_kernels::Isa;
use serde::{Deserialize, Serialize};

/// Bins on either side of zero.
pub(super) const SIDE: i32 = 2048;
pub(super) const BINS: usize = 2 * SIDE as usize;
/// The finest grid: smaller values count as the bin at zero.
const LEAST_EXPONENT: i32 = -100;

/// A histogram on a power-of-two grid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GridHistogram {
    /// The bin width is 2 to this power.
    exponent: i32,
    /// Counts; bin 0 of the grid is in the middle.
    bins: Vec<u64>,
    zeros: u64,
    min: f32,
    max: f32,
}

impl Default for GridHistogram {
    fn default() -> GridHistogram {
        GridHistogram {
            exponent: LEAST_EXPONENT,
            bins: vec![0; BINS],
            zeros: 0,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
        }
    }
}

fn power(e: i32) -> f32 {
    f32::from_bits(((e + 127) as u32) << 23)
}

/// The exponent whose grid reaches a finite magnitude: the least `e` with `m < SIDE · 2^e`.
fn needed(magnitude: f32) -> i32 {
    let floor_log2 = ((magnitude.to_bits() >> 23) & 0xff) as i32 - 127;
    (floor_log2 + 1 - SIDE.ilog2() as i32).max(LEAST_EXPONENT)
}

impl GridHistogram {
    /// Least and greatest value seen.
    pub fn extrema(&self) -> Option<(f32, f32)> {
        (self.min <= self.max).then_some((self.min, self.max))
    }

    /// Number of values seen.
    pub fn count(&self) -> u64 {
        self.bins.iter().sum()
    }

    /// The width of a bin.
    pub fn width(&self) -> f64 {
        f64::from(power(self.exponent))
    }

    /// How many values lie in `[i·w, (i+1)·w)`, for `i` from -2048 to 2047.
    pub fn bin(&self, i: i32) -> u64 {
        self.bins[(i + SIDE) as usize]
    }

    /// How many values are exactly 0.
    pub fn zeros(&self) -> u64 {
        self.zeros
    }

    /// The range of so many percent of the values, half of the rest on either side; none if nothing was seen.
    pub fn percentile(&self, percent: f64) -> Option<(f32, f32)> {
        self.extrema().map(|_| super::search::percentile(self, percent, false))
    }

    /// The edges, in bins, between which all values and zero lie.
    pub(super) fn edges(&self) -> (i32, i32) {
        let at = |v: f32| f64::from(v) / self.width();
        (at(self.min.min(0.0)).floor() as i32, at(self.max.max(0.0)).ceil() as i32)
    }

    /// The value at an edge, no further out than the extrema.
    pub(super) fn at(&self, edge: i32) -> f64 {
        (f64::from(edge) * self.width()).clamp(f64::from(self.min.min(0.0)), f64::from(self.max.max(0.0)))
    }

    /// Whether this is what observing can lead to: for what comes from a file.
    pub(crate) fn is_valid(&self) -> bool {
        let sum = self.bins.iter().try_fold(0u64, |a, b| a.checked_add(*b));
        let (Some(count), true) = (sum.filter(|n| *n < 1 << 60), self.bins.len() == BINS) else { return false };
        let exponent = (LEAST_EXPONENT..=needed(f32::MAX)).contains(&self.exponent);
        let fits = |v: f32| v.is_finite() && needed(v.abs()) <= self.exponent;
        let seen = match count {
            0 => *self == GridHistogram::default(),
            _ => self.min <= self.max && fits(self.min) && fits(self.max) && self.zeros <= self.bin(0),
        };
        exponent && seen
    }

    /// Makes the bins as wide as 2 to this power.
    fn widen(&mut self, exponent: i32) {
        let shift = exponent - self.exponent;
        if shift <= 0 {
            return;
        }
        let mut bins = vec![0; BINS];
        for (i, n) in self.bins.iter().enumerate().filter(|(_, n)| **n > 0) {
            // An arithmetic shift rounds down, as repeated halving does.
            let to = (i as i32 - SIDE) >> shift.min(31);
            bins[(to + SIDE) as usize] += n;
        }
        (self.bins, self.exponent) = (bins, exponent);
    }

    /// Takes in finite elements.
    pub fn update(&mut self, x: &[f32], s: &Scan) {
        self.widen(needed(s.min.abs().max(s.max.abs())));
        self.min = self.min.min(s.min);
        self.max = self.max.max(s.max);
        self.zeros += cleave_kernels::observe::zeros(Isa::best(), x);
        let inverse = power(-self.exponent);
        tally::<BINS>(x, &mut self.bins, SIDE as f32, |v| v * inverse);
    }

    /// Adds what another histogram saw.
    pub fn merge(&mut self, other: &GridHistogram) {
        let mut other = other.clone();
        let exponent = self.exponent.max(other.exponent);
        self.widen(exponent);
        other.widen(exponent);
        self.bins.iter_mut().zip(&other.bins).for_each(|(a, b)| *a += b);
        self.zeros += other.zeros;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The range of least squared error for so many integer steps: what lies outside is off by its distance
    /// to the range, what lies inside by a uniform error of one step, exact zeros by nothing.
    pub fn range(&self, steps: i32, symmetric: bool) -> Option<(f32, f32)> {
        let (min, max) = self.extrema()?;
        let moments = Moments::new(self);
        let steps = f64::from(steps);
        if symmetric {
            let bound = f64::from(max.max(-min));
            let edge = |j: i32| (f64::from(j) * moments.width).min(bound);
            let last = (bound / moments.width).ceil() as i32;
            let best = least(1..=last, |j| moments.error(-edge(j), edge(j), steps));
            let a = edge(best.unwrap_or(1)) as f32;
            return Some((-a, a));
        }
        let (low, high) = (f64::from(min.min(0.0)), f64::from(max.max(0.0)));
        let (first, last) = ((low / moments.width).floor() as i32, (high / moments.width).ceil() as i32);
        let at = |j: i32| (f64::from(j) * moments.width).clamp(low, high);
        let (mut lo, mut hi) = (first, last);
        // Each side in turn until neither moves; the error falls with each move, so this ends.
        for _ in 0..16 {
            let before = (lo, hi);
            hi = least((0..=last).rev(), |j| moments.error(at(lo), at(j), steps)).unwrap_or(hi);
            lo = least(first..=0, |j| moments.error(at(j), at(hi), steps)).unwrap_or(lo);
            if before == (lo, hi) {
                break;
            }
        }
        Some((at(lo) as f32, at(hi) as f32))
    }
}

/// The first candidate of least cost.
fn least(candidates: impl Iterator<Item = i32>, cost: impl Fn(i32) -> f64) -> Option<i32> {
    let mut best: Option<(i32, f64)> = None;
    for j in candidates {
        let c = cost(j);
        if best.is_none_or(|(_, b)| c < b) {
            best = Some((j, c));
        }
    }
    best.map(|(j, _)| j)
}

/// Running sums of 1, x and x² over the bins, with x in the middle of its bin but for the outermost.
struct Moments {
    width: f64,
    sums: Vec<[f64; 3]>,
    zeros: f64,
    min: f64,
}

impl Moments {
    fn new(h: &GridHistogram) -> Moments {
        let width = f64::from(power(h.exponent));
        let (min, max) = (f64::from(h.min), f64::from(h.max));
        let mut sums = vec![[0.0; 3]; BINS + 1];
        for (i, n) in h.bins.iter().enumerate() {
            let start = (i as f64 - f64::from(SIDE)) * width;
            // The outermost bins count as the extrema, so that these are not clipped for half a bin.
            let x = match (min >= start, max < start + width) {
                (true, _) => min,
                (_, true) => max,
                _ => start + 0.5 * width,
            };
            let n = *n as f64;
            sums[i + 1] = [sums[i][0] + n, sums[i][1] + n * x, sums[i][2] + n * x * x];
        }
        Moments { width, sums, zeros: h.zeros as f64, min }
    }

    /// Sums over the bins below one.
    fn below(&self, bin: f64) -> [f64; 3] {
        let i = bin as i64 + i64::from(SIDE);
        self.sums[usize::try_from(i).unwrap_or(0).min(BINS)]
    }

    /// Squared error of quantizing over `[lo, hi]`, bounds that are edges of bins or the extrema. What lies on
    /// the extrema is exact when they are the bounds, as zero always is.
    fn error(&self, lo: f64, hi: f64, steps: f64) -> f64 {
        let all = self.sums[BINS];
        let on_edge = if lo == self.min && lo < 0.0 { 1.0 } else { 0.0 };
        let under = self.below((lo / self.width).floor() + on_edge);
        let to_hi = self.below((hi / self.width).floor());
        let over = [0, 1, 2].map(|k| all[k] - to_hi[k]);
        let beyond = |s: [f64; 3], edge: f64| (s[2] - 2.0 * edge * s[1] + edge * edge * s[0]).max(0.0);
        let step = (hi - lo) / steps;
        let inside = (to_hi[0] - under[0] - self.zeros).max(0.0);
        beyond(under, lo) + beyond(over, hi) + inside * step * step / 12.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::scan;

    fn noise(seed: u32, n: usize, scale: f32) -> Vec<f32> {
        let mut s = seed;
        let mut next = move || {
            s = s.wrapping_mul(1664525).wrapping_add(1013904223);
            (s >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..n).map(|_| (next() + next() + next()) * scale).collect()
    }

    fn seen(parts: &[&[f32]]) -> GridHistogram {
        let mut h = GridHistogram::default();
        parts.iter().for_each(|p| h.update(p, &scan(p)));
        h
    }

    #[test]
    fn order_and_division_of_the_data_do_not_matter() {
        let (a, b, c) = (noise(1, 5000, 0.01), noise(2, 777, 100.0), noise(3, 64, 3.0));
        let whole = [a.clone(), b.clone(), c.clone()].concat();
        let once = seen(&[&whole]);
        assert_eq!(seen(&[&a, &b, &c]), once);
        assert_eq!(seen(&[&c, &b, &a]), once);
        let mut merged = seen(&[&a]);
        merged.merge(&seen(&[&b, &c]));
        assert_eq!(merged, once);
        assert_eq!(once.count(), 5841);
    }

    #[test]
    fn bins_hold_what_they_say() {
        let h = seen(&[&[0.0, -0.001, 1023.9, -1024.0, 5.5]]);
        assert_eq!(h.exponent, 0);
        let at = |i: i32| h.bins[(i + SIDE) as usize];
        assert_eq!([at(0), at(-1), at(1023), at(-1024), at(5)], [1, 1, 1, 1, 1]);
        assert_eq!(h.zeros, 1);
    }

    #[test]
    fn what_observing_cannot_lead_to_is_not_valid() {
        let good = seen(&[&[0.0, 1.5, -3.0]]);
        assert!(good.is_valid() && GridHistogram::default().is_valid());
        let with = |f: &dyn Fn(&mut GridHistogram)| {
            let mut h = good.clone();
            f(&mut h);
            h.is_valid()
        };
        assert!(!with(&|h| h.bins.truncate(7)));
        assert!(!with(&|h| h.bins.push(0)));
        assert!(!with(&|h| h.bins[5] = u64::MAX));
        assert!(!with(&|h| h.bins[5] = 1 << 60));
        assert!(!with(&|h| h.zeros = 2));
        assert!(!with(&|h| h.exponent = 500));
        assert!(!with(&|h| h.exponent = i32::MIN));
        assert!(!with(&|h| h.max = 1e30));
        assert!(!with(&|h| h.min = f32::NAN));
        assert!(!with(&|h| h.bins.fill(0)));
    }

    #[test]
    fn magnitudes_of_all_sizes_fit() {
        for m in [0.0, f32::MIN_POSITIVE, 1e-30, 1.0, 2047.9, 2048.0, 1e20, f32::MAX] {
            for v in [m, -m] {
                let h = seen(&[&[v, v / 2.0]]);
                assert_eq!(h.count(), 2, "{v}");
                let (lo, hi) = h.range(255, false).unwrap();
                assert!(lo <= 0.0 && hi >= 0.0 && lo >= v.min(0.0) && hi <= v.max(0.0), "{v}: {lo} {hi}");
            }
        }
    }

    #[test]
    fn an_outlier_is_clipped_and_a_bounded_distribution_is_not() {
        let mut x = noise(5, 100_000, 1.0);
        let (lo, hi) = seen(&[&x]).range(255, false).unwrap();
        assert!((-1.5..-1.2).contains(&lo) && (1.2..1.5).contains(&hi), "{lo} {hi}");
        x[17] = 3.0;
        let (lo, hi) = seen(&[&x]).range(255, false).unwrap();
        assert!((-1.5..-1.2).contains(&lo) && (1.3..2.9).contains(&hi), "{lo} {hi}");
        let relu6: Vec<f32> = noise(7, 100_000, 8.0).iter().map(|v| v.clamp(0.0, 6.0)).collect();
        assert_eq!(seen(&[&relu6]).range(255, false).unwrap(), (0.0, 6.0));
    }
}
