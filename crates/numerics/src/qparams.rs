//! Scale and zero point: how they are chosen from a range, and what they do to a number.
//!
//! The formulas are torch's (`UniformQuantizationObserverBase._calculate_qparams`,
//! `quantized_decomposed.quantize_per_tensor`), to the bit, all in f32.

use crate::{DType, rne};
use serde::{Deserialize, Serialize};

/// The floor under every scale in the default configurations of torch's X86 and XNNPACK quantizers: 2^-12.
pub const EPS_TORCH: f32 = 1.0 / 4096.0;
/// The floor of torch's observers elsewhere: the machine epsilon of f32, 2^-23.
pub const EPS_F32: f32 = f32::EPSILON;

/// The integers that a quantized value may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QRange {
    /// Storage type: u8, i8, i16, u16 or i32.
    pub dtype: DType,
    /// Least integer used.
    pub min: i32,
    /// Greatest integer used.
    pub max: i32,
}

/// How a range of floats becomes scale and zero point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QScheme {
    /// Zero point anywhere in the range.
    Affine,
    /// Zero point at 0 (signed) or in the middle (unsigned).
    Symmetric,
}

/// Scale and zero point of one tensor or one channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QParams {
    /// Step between neighbouring integers, positive.
    pub scale: f32,
    /// The integer that means 0.
    pub zero_point: i32,
}

/// torch's scale and zero point for values in `[min, max]`.
///
/// The range is widened to hold 0; `eps` is the least scale. `min` and `max` must be finite and ordered.
///
/// ```
/// use cleave_numerics::*;
/// let u8 = QRange { dtype: DType::U8, min: 0, max: 255 };
/// let q = choose_qparams(3.0, 3.0, u8, QScheme::Affine, EPS_TORCH);
/// assert_eq!((q.scale, q.zero_point), (3.0 / 255.0, 0));
/// ```
pub fn choose_qparams(min: f32, max: f32, range: QRange, scheme: QScheme, eps: f32) -> QParams {
    let (min_neg, max_pos) = (min.min(0.0), max.max(0.0));
    let (qmin, qmax) = (range.min as f32, range.max as f32);
    match scheme {
        QScheme::Affine => {
            let scale = ((max_pos - min_neg) / (qmax - qmin)).max(eps);
            let zero_point = (range.min as f32 - rne(min_neg / scale)).clamp(qmin, qmax);
            QParams { scale, zero_point: zero_point as i32 }
        }
        QScheme::Symmetric => {
            let scale = ((-min_neg).max(max_pos) / ((qmax - qmin) / 2.0)).max(eps);
            let unsigned = matches!(range.dtype, DType::U8 | DType::U16);
            let whole = range.dtype.int_range() == Some((range.min, range.max));
            let zero_point = match (unsigned, whole) {
                (false, _) => 0,
                (true, true) => (i64::from(range.max) + 1) as i32 / 2,
                (true, false) => (range.min + range.max) / 2,
            };
            QParams { scale, zero_point }
        }
    }
}

/// torch's multiplier for `quantize_per_tensor`: the reciprocal taken in f64, then rounded.
#[inline]
pub fn reciprocal_per_tensor(scale: f32) -> f32 {
    (1.0 / f64::from(scale)) as f32
}

/// torch's multiplier for `quantize_per_channel`: the reciprocal in f32.
#[inline]
pub fn reciprocal_per_channel(scale: f32) -> f32 {
    1.0 / scale
}

/// `clamp(rne(x * inv) + zero_point)`: torch's quantization; `inv` from one of the `reciprocal_` functions.
/// NaN becomes `zero_point`, clamped.
#[inline]
pub fn quantize_recip(x: f32, inv: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    crate::round_clamp(x * inv, zero_point, qmin, qmax)
}

/// `clamp(rne(x / scale) + zero_point)`: ONNX's QuantizeLinear.
#[inline]
pub fn quantize_div(x: f32, scale: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    crate::round_clamp(x / scale, zero_point, qmin, qmax)
}

/// `(f32(q) - zero_point) * scale`.
#[inline]
pub fn dequantize(q: i32, scale: f32, zero_point: i32) -> f32 {
    (q as f32 - zero_point as f32) * scale
}

#[cfg(test)]
mod tests {
    use super::*;
    const U8: QRange = QRange { dtype: DType::U8, min: 0, max: 255 };
    const S8: QRange = QRange { dtype: DType::I8, min: -127, max: 127 };

    #[test]
    fn constants_and_zeros_take_torchs_values() {
        let q = choose_qparams(0.0, 0.0, U8, QScheme::Affine, EPS_TORCH);
        assert_eq!((q.scale, q.zero_point), (EPS_TORCH, 0));
        let q = choose_qparams(-1.0, 1.0, S8, QScheme::Symmetric, EPS_F32);
        assert_eq!((q.scale, q.zero_point), (1.0 / 127.0, 0));
        let q = choose_qparams(-1.0, 1.0, U8, QScheme::Symmetric, EPS_F32);
        assert_eq!((q.scale, q.zero_point), (1.0 / 127.5, 128));
    }

    #[test]
    fn the_zero_point_is_added_after_rounding() {
        let at = |x| quantize_recip(x, reciprocal_per_tensor(1.0), 1, 0, 255);
        assert_eq!([at(0.5), at(1.5), at(2.5)], [1, 3, 3]);
    }

    #[test]
    fn infinities_saturate_and_nan_is_the_zero_point() {
        assert_eq!(quantize_div(f32::INFINITY, 0.1, 7, 0, 255), 255);
        assert_eq!(quantize_div(f32::NEG_INFINITY, 0.1, 7, 0, 255), 0);
        assert_eq!(quantize_div(f32::NAN, 0.1, 7, 0, 255), 7);
        assert_eq!(quantize_div(3e38, 1e-8, 7, 0, 255), 255);
    }
}
