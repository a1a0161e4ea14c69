//! Specs: how a value is to be quantized, before anything is known of its range.

use cleave_numerics::{DType, EPS_F32, QRange, QScheme};

/// A spec by its place in [`crate::Annotations::specs`].
pub type SpecId = usize;

/// The least scale of a spec that names no `eps`: small enough to flatten nothing, and so large that the
/// product of two scales is a normal f32.
pub const LEAST_SCALE: f32 = 1.0 / (1u64 << 60) as f32;

/// Where scale and zero point come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Scheme {
    /// One scale, any zero point, from the observed range.
    Affine,
    /// One scale, the zero point in the middle, from the observed range.
    Symmetric,
    /// A scale for each output channel, zero point 0, from a constant's range.
    PerChannelSymmetric,
    /// A scale for each run of so many elements along a constant's last axis, zero point 0.
    PerGroupSymmetric(usize),
    /// A scale and zero point for each output channel, from a constant's range.
    PerChannelAffine,
    /// The same for each run of so many elements along a constant's last axis.
    PerGroupAffine(usize),
    /// The elements as another floating-point type, that of the spec's range; no levels.
    Cast,
    /// One scale for the values that a tensor has, computed as the model runs.
    Dynamic(QScheme),
    /// Given numbers.
    Fixed {
        /// Scale.
        scale: f32,
        /// Zero point.
        zero_point: i32,
    },
    /// A bias at the accumulator's scale: the product of the scales of two captures.
    Derived {
        /// The captures.
        from: [String; 2],
        /// Whether the integers are stored as the floats that they stand for, for runtimes that round a float bias so
        /// themselves.
        as_float: bool,
    },
}

/// How a range is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ObserverKind {
    /// A histogram on a power-of-two grid through zero, searched for the range of least squared error.
    Histogram,
    /// Least and greatest value.
    Minmax,
    /// The same histogram; so many percent of the values lie within the range.
    Percentile(f64),
    /// The same histogram, searched for the range of least Kullback-Leibler divergence.
    Entropy,
    /// The same histogram, searched with the very scale and zero point that each range would have.
    Mse,
    /// torch's moving average of each batch's least and greatest value.
    MovingAverage,
    /// torch's histogram of 2048 bins between least and greatest value, with its own search.
    TorchHistogram,
}

impl ObserverKind {
    /// How they are named in files and on the command line.
    pub const NAMES: &str =
        "histogram, minmax, percentile (or percentile:99.9), entropy, mse, moving_average or torch_histogram";

    /// The observer of a name.
    ///
    /// # Errors
    /// No such observer, or a percentage that is none.
    pub fn parse(name: &str) -> Result<ObserverKind, String> {
        Ok(match name {
            "histogram" => ObserverKind::Histogram,
            "minmax" => ObserverKind::Minmax,
            "percentile" => ObserverKind::Percentile(99.99),
            "entropy" => ObserverKind::Entropy,
            "mse" => ObserverKind::Mse,
            "moving_average" => ObserverKind::MovingAverage,
            "torch_histogram" => ObserverKind::TorchHistogram,
            _ => {
                let Some(percent) = name.strip_prefix("percentile:") else {
                    return Err(format!("no observer '{name}'; expected {}", ObserverKind::NAMES));
                };
                let percent = percent.parse::<f64>().ok().filter(|p| (50.0..=100.0).contains(p));
                ObserverKind::Percentile(percent.ok_or(format!("'{name}': expected a percentage from 50 to 100"))?)
            }
        })
    }

    /// Its name in prose.
    pub fn describe(self) -> String {
        match self {
            ObserverKind::Histogram => "histogram".into(),
            ObserverKind::Minmax => "min-max".into(),
            ObserverKind::Percentile(p) => format!("percentile {p}"),
            ObserverKind::Entropy => "entropy".into(),
            ObserverKind::Mse => "mse".into(),
            ObserverKind::MovingAverage => "moving average".into(),
            ObserverKind::TorchHistogram => "torch histogram".into(),
        }
    }

    /// Whether what it learns depends on the order of the data, so that shards cannot be merged.
    pub fn depends_on_order(self) -> bool {
        matches!(self, ObserverKind::MovingAverage | ObserverKind::TorchHistogram)
    }
}

/// How a value is to be quantized.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Its name in the quantizer's file.
    pub name: String,
    /// The integers used.
    pub range: QRange,
    /// Where scale and zero point come from.
    pub scheme: Scheme,
    /// How the range is found.
    pub observer: ObserverKind,
    /// The least scale.
    pub eps: f32,
}

impl PartialEq for Spec {
    /// Equal in all but the name: such specs share observers.
    fn eq(&self, o: &Spec) -> bool {
        self.range == o.range && self.scheme == o.scheme && self.observer == o.observer && self.eps == o.eps
    }
}

impl Spec {
    /// The scheme of the scale's formula.
    pub fn qscheme(&self) -> QScheme {
        match self.scheme {
            Scheme::Dynamic(scheme) => scheme,
            Scheme::Symmetric | Scheme::PerChannelSymmetric | Scheme::PerGroupSymmetric(_) => QScheme::Symmetric,
            _ => QScheme::Affine,
        }
    }

    /// Whether a range has to be observed.
    pub fn observed(&self) -> bool {
        matches!(self.scheme, Scheme::Affine | Scheme::Symmetric)
    }

    /// Whether it is for constants, which have many scales.
    pub fn of_weights(&self) -> bool {
        self.per_channel() || self.group_size().is_some()
    }

    /// Whether each output channel has a scale.
    pub fn per_channel(&self) -> bool {
        matches!(self.scheme, Scheme::PerChannelSymmetric | Scheme::PerChannelAffine)
    }

    /// Elements that have one scale, if it is of runs along the last axis.
    pub fn group_size(&self) -> Option<usize> {
        match self.scheme {
            Scheme::PerGroupSymmetric(n) | Scheme::PerGroupAffine(n) => Some(n),
            _ => None,
        }
    }

    /// Whether values have to be seen while the graph runs: for their range, or to know that they fit.
    pub fn watched(&self) -> bool {
        self.observed() || (self.scheme == Scheme::Cast && self.range.dtype == DType::F16)
    }

    /// A short description: `u8[0, 255] affine, histogram`.
    pub fn describe(&self) -> String {
        let QRange { dtype, min, max } = self.range;
        let observer = self.observer.describe();
        match &self.scheme {
            Scheme::Affine => format!("{dtype}[{min}, {max}] affine, {observer}"),
            Scheme::Symmetric => format!("{dtype}[{min}, {max}] symmetric, {observer}"),
            Scheme::Dynamic(QScheme::Affine) => format!("{dtype}[{min}, {max}] affine, dynamic"),
            Scheme::Dynamic(QScheme::Symmetric) => format!("{dtype}[{min}, {max}] symmetric, dynamic"),
            Scheme::PerChannelSymmetric
            | Scheme::PerGroupSymmetric(_)
            | Scheme::PerChannelAffine
            | Scheme::PerGroupAffine(_) => {
                let of = self.group_size().map_or("channel".into(), |n| format!("group of {n}"));
                let kind = if self.qscheme() == QScheme::Symmetric { "symmetric" } else { "affine" };
                match self.observer {
                    ObserverKind::Minmax => format!("{dtype}[{min}, {max}] {kind} per {of}"),
                    _ => format!("{dtype}[{min}, {max}] {kind} per {of}, {observer}"),
                }
            }
            Scheme::Cast => format!("{dtype}"),
            Scheme::Fixed { scale, zero_point } => {
                format!("{dtype}[{min}, {max}] scale {scale}, zero point {zero_point}")
            }
            Scheme::Derived { from, as_float } => {
                let stored = if *as_float { ", as floats" } else { "" };
                format!("{dtype} at the scales of {} and {}{stored}", from[0], from[1])
            }
        }
    }
}

/// The integers that a file names: XNNPACK's codes. Four bits are stored in eight; floating-point types have none.
pub(crate) fn dtype_code(name: &str) -> Option<QRange> {
    let (dtype, range) = match name {
        "s4" => (DType::I8, Some((-8, 7))),
        "u4" => (DType::U8, Some((0, 15))),
        "u8" => (DType::U8, None),
        "s8" => (DType::I8, None),
        "u16" => (DType::U16, None),
        "s16" => (DType::I16, None),
        "s32" => (DType::I32, None),
        "f16" => (DType::F16, Some((0, 0))),
        "bf16" => (DType::BF16, Some((0, 0))),
        _ => return None,
    };
    let (min, max) = range.or(dtype.int_range())?;
    Some(QRange { dtype, min, max })
}

/// The least scale that a file names: `torch` for 2^-12, `f32` for 2^-23, or a number.
pub(crate) fn named_eps(name: &str) -> Option<f32> {
    match name {
        "torch" => Some(cleave_numerics::EPS_TORCH),
        "f32" => Some(EPS_F32),
        _ => None,
    }
}
