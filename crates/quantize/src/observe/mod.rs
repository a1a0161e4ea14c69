//! Observers: what is remembered of a value while samples stream by, and the range that follows from it.
//!
//! An observer's memory does not grow with the data. Inner loops are written for the vectoriser: one pass
//! for extrema ([`cleave_kernels::observe`]), one for bins.

mod channels;
mod grid;
mod search;
mod tally;
mod torch;

pub use channels::ChannelObserver;
pub use cleave_kernels::observe::Scan;
pub use grid::GridHistogram;
pub use torch::TorchHistogram;

use crate::spec::{ObserverKind, Spec};
use cleave_kernels::Isa;
use cleave_numerics::{QParams, choose_qparams};
use serde::{Deserialize, Serialize};

/// Scans elements on the instruction set of this machine; all give the same.
pub fn scan(x: &[f32]) -> Scan {
    cleave_kernels::observe::scan(Isa::best(), x)
}

/// torch's averaging constant.
const MOVING: f32 = 0.01;

/// What is remembered of the values of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observer {
    /// Least and greatest value.
    Minmax(Option<(f32, f32)>),
    /// Moving averages of the batches' least and greatest values.
    MovingAverage(Option<(f32, f32)>),
    /// A histogram on a power-of-two grid, which several kinds of observers search, each in its way.
    Histogram(GridHistogram),
    /// torch's histogram.
    TorchHistogram(TorchHistogram),
}

impl Observer {
    /// An observer that has seen nothing.
    pub fn new(kind: ObserverKind) -> Observer {
        match kind {
            ObserverKind::Minmax => Observer::Minmax(None),
            ObserverKind::MovingAverage => Observer::MovingAverage(None),
            ObserverKind::Histogram | ObserverKind::Percentile(_) | ObserverKind::Entropy | ObserverKind::Mse => {
                Observer::Histogram(GridHistogram::default())
            }
            ObserverKind::TorchHistogram => Observer::TorchHistogram(TorchHistogram::default()),
        }
    }

    /// Takes in a tensor's elements, all finite, whose [`scan`] is `s`.
    pub fn update(&mut self, x: &[f32], s: &Scan) {
        if x.is_empty() {
            return;
        }
        match self {
            Observer::Minmax(seen) => {
                let (lo, hi) = seen.unwrap_or((s.min, s.max));
                *seen = Some((lo.min(s.min), hi.max(s.max)));
            }
            Observer::MovingAverage(seen) => {
                let next = |m: f32, v: f32| m + MOVING * (v - m);
                *seen = Some(seen.map_or((s.min, s.max), |(lo, hi)| (next(lo, s.min), next(hi, s.max))));
            }
            Observer::Histogram(h) => h.update(x, s),
            Observer::TorchHistogram(h) => h.update(x, s.min, s.max),
        }
    }

    /// The range to quantize, for so many integer steps; none if nothing was seen.
    pub fn range(&self, spec: &Spec) -> Option<(f32, f32)> {
        match self {
            Observer::Minmax(seen) | Observer::MovingAverage(seen) => *seen,
            Observer::Histogram(h) => search::range(h, spec),
            Observer::TorchHistogram(h) => h.range(),
        }
    }

    /// Least and greatest value seen, before any search.
    pub fn extrema(&self) -> Option<(f32, f32)> {
        match self {
            Observer::Minmax(seen) | Observer::MovingAverage(seen) => *seen,
            Observer::Histogram(h) => h.extrema(),
            Observer::TorchHistogram(h) => h.extrema(),
        }
    }

    /// Scale and zero point under a spec; none if nothing was seen.
    pub fn qparams(&self, spec: &Spec) -> Option<QParams> {
        self.range(spec).map(|(lo, hi)| choose_qparams(lo, hi, spec.range, spec.qscheme(), spec.eps))
    }

    /// Whether both remember the same kind of thing.
    pub fn is_like(&self, other: &Observer) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// What it remembers, in prose.
    pub fn describe(&self) -> &'static str {
        match self {
            Observer::Minmax(_) => "min-max",
            Observer::MovingAverage(_) => "torch's moving average",
            Observer::Histogram(_) => "histogram",
            Observer::TorchHistogram(_) => "torch's histogram",
        }
    }

    /// Whether this is what observing can lead to: for what comes from a file.
    pub fn is_valid(&self) -> bool {
        match self {
            Observer::Minmax(seen) | Observer::MovingAverage(seen) => {
                seen.is_none_or(|(lo, hi)| lo.is_finite() && hi.is_finite() && lo <= hi)
            }
            Observer::Histogram(h) => h.is_valid(),
            Observer::TorchHistogram(h) => h.is_valid(),
        }
    }

    /// Adds what another observer of the same kind saw of other data.
    ///
    /// # Errors
    /// Observers whose result depends on the order of the data.
    pub fn merge(&mut self, other: &Observer) -> Result<(), String> {
        match (self, other) {
            (Observer::Minmax(a), Observer::Minmax(b)) => {
                *a = match (*a, *b) {
                    (Some((l, h)), Some((m, i))) => Some((l.min(m), h.max(i))),
                    (x, y) => x.or(y),
                };
                Ok(())
            }
            (Observer::Histogram(a), Observer::Histogram(b)) => {
                a.merge(b);
                Ok(())
            }
            (o @ (Observer::MovingAverage(_) | Observer::TorchHistogram(_)), _) => Err(format!(
                "{} depends on the order of the data and cannot be merged; calibrate in one run, or with the \
                 observers histogram or minmax",
                o.describe()
            )),
            (a, b) => Err(format!("{} and {} cannot be merged", a.describe(), b.describe())),
        }
    }
}
