//! Specs: how a value is to be quantized, before anything is known of its range.

use cleave_numerics::{DType, EPS_F32, QRange, QScheme};
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ObserverKind {
    /// A histogram on a power-of-two grid through zero, searched for the range of least squared error.
    Histogram,
    /// Least and greatest value.
    Minmax,
    /// torch's moving average of each batch's least and greatest value.
    MovingAverage,
    /// torch's histogram of 2048 bins between least and greatest value, with its own search.
    TorchHistogram,
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
        let observer = match self.observer {
            ObserverKind::Histogram => "histogram",
            ObserverKind::Minmax => "min-max",
            ObserverKind::MovingAverage => "moving average",
            ObserverKind::TorchHistogram => "torch histogram",
        };
        match &self.scheme {
            Scheme::Affine => format!("{dtype}[{min}, {max}] affine, {observer}"),
            Scheme::Symmetric => format!("{dtype}[{min}, {max}] symmetric, {observer}"),
            Scheme::PerChannelSymmetric => format!("{dtype}[{min}, {max}] symmetric per channel"),
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
