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
            Scheme::Symmetric | Scheme::PerChannelSymmetric => QScheme::Symmetric,
            _ => QScheme::Affine,
        }
    }

    /// Whether a range has to be observed.
    pub fn observed(&self) -> bool {
        matches!(self.scheme, Scheme::Affine | Scheme::Symmetric)
    }

    /// A short description: `u8[0, 255] affine, histogram`.
    pub fn describe(&self) -> String {
        let QRange { dtype, min, max } = self.range;
        let observer = self.observer.describe();
        match &self.scheme {
            Scheme::Affine => format!("{dtype}[{min}, {max}] affine, {observer}"),
            Scheme::Symmetric => format!("{dtype}[{min}, {max}] symmetric, {observer}"),
            Scheme::PerChannelSymmetric => match self.observer {
                ObserverKind::Minmax => format!("{dtype}[{min}, {max}] symmetric per channel"),
                _ => format!("{dtype}[{min}, {max}] symmetric per channel, {observer}"),
            },
            Scheme::Fixed { scale, zero_point } => {
                format!("{dtype}[{min}, {max}] scale {scale}, zero point {zero_point}")
            }
            Scheme::Derived { from } => format!("{dtype} at the scales of {} and {}", from[0], from[1]),
        }
    }
}

/// The element type that a file names: XNNPACK's codes (`u8`, `s8`, `s16`, `s32`).
pub(crate) fn dtype_code(name: &str) -> Option<DType> {
    match name {
        "u8" => Some(DType::U8),
        "s8" => Some(DType::I8),
        "u16" => Some(DType::U16),
        "s16" => Some(DType::I16),
        "s32" => Some(DType::I32),
        _ => None,
    }
}

/// The least scale that a file names: `torch` for 2^-12, `f32` for 2^-23, or a number.
pub(crate) fn named_eps(name: &str) -> Option<f32> {
    match name {
        "torch" => Some(cleave_numerics::EPS_TORCH),
        "f32" => Some(EPS_F32),
        _ => None,
    }
}
