//! What several kinds of observers find in one histogram: the range to quantize.

use super::grid::{BINS, GridHistogram, SIDE};
use crate::spec::{ObserverKind, Scheme, Spec};
use cleave_numerics::{QParams, choose_qparams};

/// The range that a spec's observer finds; none if nothing was seen. A search that would leave less than
/// a bin gives way to the extrema.
pub(super) fn range(h: &GridHistogram, spec: &Spec) -> Option<(f32, f32)> {
    let (min, max) = h.extrema()?;
    let (steps, symmetric) = (spec.range.max.saturating_sub(spec.range.min), spec.scheme != Scheme::Affine);
    let found = match spec.observer {
        ObserverKind::Percentile(percent) => percentile(h, percent, symmetric),
        ObserverKind::Entropy => entropy(h, steps.saturating_add(1), symmetric),
        ObserverKind::Mse => mse(h, spec, symmetric),
        _ => h.range(steps, symmetric)?,
    };
    let width = h.width() as f32;
    let nothing = |(lo, hi): (f32, f32)| lo > -width && hi < width;
    Some(if nothing(found) { (min, max) } else { found })
}

/// The range of so many percent of the values, half of the rest on either side, or of magnitudes. Values are
/// taken to lie evenly in their bins.
pub(super) fn percentile(h: &GridHistogram, percent: f64, symmetric: bool) -> (f32, f32) {
    let (first, last) = h.edges();
    let inside = percent / 100.0;
    if symmetric {
        let magnitudes: Vec<u64> = (0..SIDE).map(|i| h.bin(i) + h.bin(-1 - i)).collect();
        let a = quantile(&magnitudes, inside) * h.width();
        let a = a.min(h.at(last).max(-h.at(first))) as f32;
        return (-a, a);
    }
    let bins: Vec<u64> = (-SIDE..SIDE).map(|i| h.bin(i)).collect();
    let at = |q: f64| (quantile(&bins, q) - f64::from(SIDE)) * h.width();
    let (lo, hi) = (at(0.5 - 0.5 * inside).min(0.0), at(0.5 + 0.5 * inside).max(0.0));
    (lo.max(h.at(first)) as f32, hi.min(h.at(last)) as f32)
}

/// The place, in bins, below which the fraction `q` of all counts lies.
fn quantile(bins: &[u64], q: f64) -> f64 {
    let total: u64 = bins.iter().sum();
    let target = q * total as f64;
    let mut below = 0u64;
    let mut last = 0.0;
    for (i, n) in bins.iter().enumerate().filter(|(_, n)| **n > 0) {
        let (from, to) = (below as f64, (below + n) as f64);
        if to >= target {
            return i as f64 + (target - from).max(0.0) / *n as f64;
        }
        below += n;
        last = i as f64 + 1.0;
    }
    last
}

/// Candidates of the entropy search are this many bins apart.
const ENTROPY_STRIDE: i32 = 8;
/// What a level counts for that holds nothing where the clipped data do.
const LEAST_MASS: f64 = 1e-9;

/// The range `[-t, t]`, cut where the data end, of least Kullback-Leibler divergence between the clipped
/// histogram and its quantized form, over all `t` (every eighth bin) that have a bin for each level. Exact zeros
/// are a level of every range and left out. Where there are fewer bins than levels, nothing is clipped.
fn entropy(h: &GridHistogram, levels: i32, symmetric: bool) -> (f32, f32) {
    let (first, last) = h.edges();
    let reach = last.max(-first);
    let bounds = |t: i32| if symmetric { (-t, t) } else { (first.max(-t), last.min(t)) };
    let width = |t: i32| bounds(t).1 - bounds(t).0;
    let start = (1..=reach).find(|t| width(*t) >= levels).unwrap_or(reach);
    let mut best = (reach, f64::INFINITY);
    for t in (start..reach).step_by(ENTROPY_STRIDE as usize).chain([reach]) {
        let (lo, hi) = bounds(t);
        let d = divergence(h, lo, hi, levels);
        if d < best.1 {
            best = (t, d);
        }
    }
    if symmetric {
        let a = (f64::from(best.0) * h.width()).min(h.at(last).max(-h.at(first))) as f32;
        return (-a, a);
    }
    let (lo, hi) = bounds(best.0);
    (h.at(lo) as f32, h.at(hi) as f32)
}

/// The divergence of the bins `lo..hi`, those outside added to the outermost, from what is left of them when
/// each level spreads its sum evenly over its bins that hold anything.
fn divergence(h: &GridHistogram, lo: i32, hi: i32, levels: i32) -> f64 {
    let count = |i: i32| if (-SIDE..SIDE).contains(&i) { h.bin(i) - if i == 0 { h.zeros() } else { 0 } } else { 0 };
    let kept: Vec<f64> = (lo..hi).map(|i| count(i) as f64).collect();
    let sum = |from: i32, to: i32| (from..to).map(count).sum::<u64>() as f64;
    let n = kept.len();
    let mut p = kept.clone();
    p[0] += sum(-SIDE, lo);
    p[n - 1] += sum(hi, SIDE);
    let (all, inside) = (p.iter().sum::<f64>(), kept.iter().sum::<f64>());
    if inside == 0.0 {
        return f64::INFINITY;
    }
    let levels = levels as usize;
    let mut d = 0.0;
    let mut i = 0;
    while i < n {
        let level = i * levels / n;
        let end = (i..n).find(|k| k * levels / n != level).unwrap_or(n);
        let holding = p[i..end].iter().filter(|v| **v > 0.0).count() as f64;
        let q = (kept[i..end].iter().sum::<f64>() / holding / inside).max(LEAST_MASS);
        d += p[i..end].iter().filter(|v| **v > 0.0).map(|v| v / all * (v / all / q).ln()).sum::<f64>();
        i = end;
    }
    d
}

/// Candidates for a side of the MSE search: this many, then all between the neighbours of the best.
const MSE_CANDIDATES: i32 = 128;

/// The range of least mean squared error of the values, taken to lie evenly in their bins, as the scale and zero
/// point of the range would quantize them: each side in turn until neither moves.
fn mse(h: &GridHistogram, spec: &Spec, symmetric: bool) -> (f32, f32) {
    let (first, last) = h.edges();
    let mass = Mass::new(h);
    let cost = |lo: f64, hi: f64| {
        let q = choose_qparams(lo as f32, hi as f32, spec.range, spec.qscheme(), spec.eps);
        mass.error(q, spec.range.min, spec.range.max)
    };
    if symmetric {
        let bound = h.at(last).max(-h.at(first));
        let at = |j: i32| (f64::from(j) * h.width()).min(bound);
        let a = at(least(last.max(-first), &|j| cost(-at(j), at(j)))) as f32;
        return (-a, a);
    }
    let (mut lo, mut hi) = (first, last);
    for _ in 0..8 {
        let before = (lo, hi);
        hi = least(last, &|j| cost(h.at(lo), h.at(j)));
        lo = -least(-first, &|j| cost(h.at(-j), h.at(hi)));
        if before == (lo, hi) {
            break;
        }
    }
    (h.at(lo) as f32, h.at(hi) as f32)
}

/// The place from 0 to `last` of least cost, coarsely first; the outermost of equals.
fn least(last: i32, cost: &dyn Fn(i32) -> f64) -> i32 {
    let stride = (last / MSE_CANDIDATES).max(1);
    let best = |candidates: &mut dyn Iterator<Item = i32>| {
        let costs = candidates.map(|j| (j, cost(j)));
        costs.fold((last, f64::INFINITY), |a, b| if b.1 < a.1 { b } else { a }).0
    };
    let coarse = best(&mut (0..=last).rev().step_by(stride as usize));
    best(&mut ((coarse - stride).max(0)..=(coarse + stride).min(last)).rev())
}

/// Runs of evenly distributed values: start, end, how many. Exact zeros have no error and are left out; the
/// outermost runs end at the extrema.
struct Mass(Vec<(f64, f64, f64)>);

impl Mass {
    fn new(h: &GridHistogram) -> Mass {
        let (min, max) = h.extrema().map_or((0.0, 0.0), |(a, b)| (f64::from(a), f64::from(b)));
        let mut runs = Vec::with_capacity(BINS);
        for i in -SIDE..SIDE {
            let n = h.bin(i) - if i == 0 { h.zeros() } else { 0 };
            if n > 0 {
                let from = f64::from(i) * h.width();
                runs.push((from.max(min), (from + h.width()).min(max), n as f64));
            }
        }
        Mass(runs)
    }

    /// Sum of squared errors under a scale and zero point.
    fn error(&self, q: QParams, qmin: i32, qmax: i32) -> f64 {
        let s = f64::from(q.scale);
        let (low, high) = (f64::from(qmin - q.zero_point), f64::from(qmax - q.zero_point));
        // With k the level and e = x - k·s the error, d/dx (k·s³/12 + e³/3) = e², and it is continuous.
        let level = |x: f64| (x / s).round_ties_even().clamp(low, high);
        let integral = |x: f64| level(x) * s * s * s / 12.0 + (x - level(x) * s).powi(3) / 3.0;
        let of_run = |(from, to, n): &(f64, f64, f64)| {
            if to > from {
                n * (integral(*to) - integral(*from)) / (to - from)
            } else {
                n * (from - level(*from) * s).powi(2)
            }
        };
        self.0.iter().map(of_run).sum()
    }
}
