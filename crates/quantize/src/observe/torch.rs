//! torch's `HistogramObserver`, bit for bit: 2048 f32 bins over the range of the first batch.
//!
//! Source: torchao `quantization/pt2e/observer.py` and the kernels that it calls (`histc`, `linspace`,
//! `bincount`, `sum`, `cumsum`) as torch's CPU build runs them: `linspace` contracts its products and sums,
//! `sum` adds in eight lanes over four rows, `cumsum` keeps its running sum in f64.

use super::tally::tally;
use serde::{Deserialize, Serialize};

const BINS: usize = 2048;
const UPSAMPLE: usize = 16;
/// torch takes 2 to the bits of the dtype, whatever quant_min and quant_max are.
const LEVELS: f64 = 256.0;

/// State of torch's histogram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TorchHistogram {
    bins: Vec<f32>,
    min: f32,
    max: f32,
}

impl Default for TorchHistogram {
    fn default() -> TorchHistogram {
        TorchHistogram { bins: vec![0.0; BINS], min: f32::INFINITY, max: f32::NEG_INFINITY }
    }
}

impl TorchHistogram {
    /// Least and greatest value seen.
    pub fn extrema(&self) -> Option<(f32, f32)> {
        (self.min <= self.max).then_some((self.min, self.max))
    }

    /// The bins, each `(max - min) / 2048` wide.
    pub fn bins(&self) -> &[f32] {
        &self.bins
    }

    /// Whether this is what observing can lead to: for what comes from a file.
    pub(crate) fn is_valid(&self) -> bool {
        let empty = *self == TorchHistogram::default();
        let range = self.min.is_finite() && self.max.is_finite() && self.min <= self.max;
        self.bins.len() == BINS && self.bins.iter().all(|v| v.is_finite() && *v >= 0.0) && (empty || range)
    }

    /// Takes in finite elements with these extrema.
    pub fn update(&mut self, x: &[f32], min: f32, max: f32) {
        if self.min > self.max {
            self.bins = histc(x, min, max);
            (self.min, self.max) = (min, max);
            return;
        }
        let (new_min, new_max) = (self.min.min(min), self.max.max(max));
        let mut update = histc(x, new_min, new_max);
        let old = if (new_min, new_max) == (self.min, self.max) {
            std::mem::take(&mut self.bins)
        } else if self.min == self.max {
            let count = sum(&self.bins);
            histc(&[self.min], new_min, new_max).iter().map(|v| v * count).collect()
        } else {
            upscale(&self.bins, (self.min, self.max), (new_min, new_max))
        };
        update.iter_mut().zip(&old).for_each(|(a, b)| *a += b);
        (self.bins, self.min, self.max) = (update, new_min, new_max);
    }

    /// The range that torch's search finds.
    pub fn range(&self) -> Option<(f32, f32)> {
        self.extrema()?;
        let width = (self.max - self.min) / BINS as f32;
        let (start, end) = self.search();
        Some((self.min + width * start as f32, self.min + width * (end + 1) as f32))
    }

    /// `_non_linear_param_search`: moves the side that jumps further until the error rises.
    fn search(&self) -> (usize, usize) {
        let total = f64::from(sum(&self.bins));
        let mut running = 0.0f64;
        let cumulative: Vec<f32> = self
            .bins
            .iter()
            .map(|v| {
                running += f64::from(*v);
                running as f32
            })
            .collect();
        let (mut alpha, mut beta) = (0.0f64, 1.0f64);
        let (mut start, mut end) = (0, BINS - 1);
        let mut least = f64::INFINITY;
        while alpha < beta {
            let (next_alpha, next_beta) = (alpha + 1e-5, beta - 1e-5);
            let (mut l, mut r) = (start, end);
            // Tensors are compared with the bound in their own type.
            while l < end && cumulative[l] < (next_alpha * total) as f32 {
                l += 1;
            }
            while r > start && cumulative[r] > (next_beta * total) as f32 {
                r -= 1;
            }
            let (mut next_start, mut next_end) = (start, end);
            if l - start > end - r {
                (next_start, alpha) = (l, next_alpha);
            } else {
                (next_end, beta) = (r, next_beta);
            }
            if (next_start, next_end) == (start, end) {
                continue;
            }
            let error = self.error(next_start, next_end);
            if error > least {
                break;
            }
            (least, start, end) = (error, next_start, next_end);
        }
        (start, end)
    }

    /// `_compute_quantization_error`: the L2 error of quantizing the histogram over these bins.
    fn error(&self, start: usize, end: usize) -> f64 {
        let width = (f64::from(self.max) - f64::from(self.min)) / BINS as f64;
        let step = width * (end as f64 - start as f64 + 1.0) / LEVELS;
        if step == 0.0 {
            return 0.0;
        }
        let (w, s, half, minus_half) = (width as f32, step as f32, (step / 2.0) as f32, (-step / 2.0) as f32);
        let bucket = |v: f32| floor_div(v, s).clamp(0.0, LEVELS as f32 - 1.0);
        let cube = |from: f32, to: f32| (to * to * to - from * from * from) / 3.0;
        let middle = cube(minus_half, half);
        let norms: Vec<f32> = self
            .bins
            .iter()
            .enumerate()
            .map(|(i, n)| {
                let begin = (i as f32 - start as f32) * w;
                let stop = begin + w;
                let (first, last) = (bucket(begin), bucket(stop));
                let density = n / w;
                let mut norm = density * cube(begin - (first + 0.5) * s, half);
                norm += (last - first - 1.0) * (density * middle);
                norm + density * cube(minus_half, stop - (last * s + half))
            })
            .collect();
        f64::from(sum(&norms))
    }
}

/// torch's floor division of floats.
fn floor_div(a: f32, b: f32) -> f32 {
    let m = a % b;
    let mut d = (a - m) / b;
    if m != 0.0 && (b < 0.0) != (m < 0.0) {
        d -= 1.0;
    }
    if d == 0.0 {
        return 0.0f32.copysign(a / b);
    }
    let floor = d.floor();
    if d - floor > 0.5 { floor + 1.0 } else { floor }
}

/// `torch.histc` over `[min, max]`; a range without width is made two wide.
fn histc(x: &[f32], min: f32, max: f32) -> Vec<f32> {
    let (lo, hi) = if min == max { ((f64::from(min) - 1.0) as f32, (f64::from(max) + 1.0) as f32) } else { (min, max) };
    let span = hi - lo;
    let mut counts = vec![0u64; BINS];
    // All elements lie within the bounds; the last bin holds its upper bound.
    tally::<BINS>(x, &mut counts, 0.0, |v| ((v - lo) / span * BINS as f32).min(BINS as f32 - 1.0));
    // torch counts in f32, which stops at 2^24.
    counts.iter().map(|n| (*n).min(1 << 24) as f32).collect()
}

/// `torch.linspace`; its CPU kernel is compiled with contraction.
fn linspace(start: f32, end: f32, steps: usize) -> Vec<f32> {
    let step = (end - start) / (steps - 1) as f32;
    let value = |i: usize| {
        if i < steps / 2 { step.mul_add(i as f32, start) } else { (-step).mul_add((steps - i - 1) as f32, end) }
    };
    (0..steps).map(value).collect()
}

/// `_upscale_histogram`: each bin is split, and the parts' midpoints are put into the wider range's bins.
fn upscale(bins: &[f32], old: (f32, f32), new: (f32, f32)) -> Vec<f32> {
    let part = (old.1 - old.0) / (BINS * UPSAMPLE) as f32;
    let edges = linspace(old.0, old.1, BINS * UPSAMPLE + 1);
    let bounds = linspace(new.0, new.1, BINS + 1);
    let mut out = vec![0.0f32; BINS];
    let mut at = 0;
    for (i, edge) in edges[..BINS * UPSAMPLE].iter().enumerate() {
        let middle = edge + 0.5 * part;
        while at < bounds.len() && bounds[at] <= middle {
            at += 1;
        }
        out[at.saturating_sub(1).min(BINS - 1)] += bins[i / UPSAMPLE] / UPSAMPLE as f32;
    }
    out
}

/// `torch.sum` of contiguous f32: four rows of eight lanes, partial sums cascaded every 16 rows.
fn sum(x: &[f32]) -> f32 {
    const LANES: usize = 8;
    const ROWS: usize = 4;
    const LEVELS: usize = 4;
    let vectors = x.len() / LANES;
    let rounds = vectors / ROWS;
    let power = (rounds.max(1).next_power_of_two().ilog2() as usize / LEVELS).max(4);
    let step = 1usize << power;
    let mut acc = [[[0.0f32; LANES]; ROWS]; LEVELS];
    let add = |acc: &mut [[f32; LANES]; ROWS], i: usize| {
        for (k, row) in acc.iter_mut().enumerate() {
            let from = (i * ROWS + k) * LANES;
            row.iter_mut().zip(&x[from..from + LANES]).for_each(|(a, v)| *a += v);
        }
    };
    let mut i = 0;
    while i + step <= rounds {
        for _ in 0..step {
            add(&mut acc[0], i);
            i += 1;
        }
        for j in 1..LEVELS {
            let (below, above) = acc.split_at_mut(j);
            for (a, b) in above[0].iter_mut().flatten().zip(below[j - 1].iter_mut().flatten()) {
                *a += std::mem::take(b);
            }
            if i & ((step - 1) << (j * power)) != 0 {
                break;
            }
        }
    }
    while i < rounds {
        add(&mut acc[0], i);
        i += 1;
    }
    let mut total = acc[0];
    for level in &acc[1..] {
        total.iter_mut().flatten().zip(level.iter().flatten()).for_each(|(a, b)| *a += b);
    }
    let mut lanes = total[0];
    for v in rounds * ROWS..vectors {
        lanes.iter_mut().zip(&x[v * LANES..]).for_each(|(a, b)| *a += b);
    }
    for row in &total[1..] {
        lanes.iter_mut().zip(row).for_each(|(a, b)| *a += b);
    }
    let rest = x[vectors * LANES..].iter().fold(0.0, |a, v| a + v);
    lanes.iter().fold(rest, |a, v| a + v)
}
