//! What levels mean: scales, zero points and ranges, and quantized weights.

use super::args::wrap;
use super::{Calls, Convolution};
use crate::error::Result;
use crate::kernel::RunLevels;
use crate::memory::Storage;
use cleave_ir::{NodeId, Tensor};
use cleave_kernels::pointwise::{Quantize, Rounding};
use cleave_kernels::qconv::Bias;
use cleave_kernels::quant::Dequantize;
use cleave_numerics::{DType, QRange, QScheme};
use std::borrow::Cow;

/// Scale, zero point and range of a quantize or dequantize, in terms of the bytes stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quant {
    /// The arithmetic; an i8 tensor's zero point and range are 128 up.
    pub(crate) q: Quantize,
    /// How its levels are stored.
    pub(crate) storage: Storage,
}

impl Quant {
    /// Whether levels of one are levels of the other.
    pub(crate) fn same_levels(&self, other: &Quant) -> bool {
        self.storage == other.storage && self.q.scale == other.q.scale && self.q.zero_point == other.q.zero_point
    }

    /// Floats of its levels.
    pub(crate) fn dequantize(&self) -> Dequantize {
        Dequantize { scale: self.q.scale, zero_point: self.q.zero_point }
    }

    /// With a range that these values bound besides.
    pub(crate) fn within(&self, (lo, hi): (f32, f32)) -> Quantize {
        Quantize { qmin: self.q.eval(lo).into(), qmax: self.q.eval(hi).into(), ..self.q }
    }
}

/// A quantize or dequantize whose scale and zero point are computed as the model runs.
pub(crate) struct RunQuant {
    /// What it converts.
    pub(crate) x: NodeId,
    /// A scale.
    pub(crate) scale: NodeId,
    /// A zero point.
    pub(crate) zero: NodeId,
    /// How these lie in memory.
    pub(crate) how: RunLevels,
    /// How the levels are stored.
    pub(crate) storage: Storage,
    /// The least and the greatest, as they are stored.
    pub(crate) bounds: [i32; 2],
    /// How floats are divided by the scale.
    pub(crate) rounding: Rounding,
}

/// Constant levels with their scales.
pub(crate) struct Levels {
    /// As they are stored.
    pub(crate) tensor: Tensor,
    /// One, or one for each channel.
    scales: Vec<f32>,
    /// As the scales.
    zero_points: Vec<i64>,
    /// The channels' dimension.
    axis: Option<i64>,
}

impl Levels {
    /// A scale for each output channel of a convolution.
    pub(crate) fn per_output(&self, c: &Convolution) -> Vec<f32> {
        (0..c.shape.c_out).map(|o| self.scales[o % self.scales.len()]).collect()
    }

    /// Whether there are [`Levels::signed`] bytes.
    pub(crate) fn are_signed(&self) -> bool {
        self.tensor.dtype() == DType::I8 && self.zero_points.iter().all(|z| *z == 0) || self.signed().is_some()
    }

    /// Signed bytes around 0: those with zero points are shifted, as far as they are bytes then.
    pub(crate) fn signed(&self) -> Option<Cow<'_, [i8]>> {
        let (t, all) = (&self.tensor, |zero: i64| self.zero_points.iter().all(|z| *z == zero));
        match t.dtype() {
            DType::I8 if all(0) => t.elements::<i8>(),
            DType::U8 if all(128) => Some(t.to_bytes().iter().map(|b| (b ^ 0x80).cast_signed()).collect()),
            DType::I8 | DType::U8 => {
                let axis = wrap(self.axis.unwrap_or(0), t.shape().len())?;
                let inner: usize = t.shape()[axis + 1..].iter().product();
                let zero = |i: usize| self.zero_points[i / inner.max(1) % self.zero_points.len()];
                t.to_i64().iter().enumerate().map(|(i, v)| i8::try_from(v - zero(i)).ok()).collect()
            }
            _ => None,
        }
    }
}

/// How levels of a type are stored, and what is added to them for it.
fn stored(dtype: DType) -> Option<(Storage, i32)> {
    match dtype {
        DType::U8 => Some((Storage::U8, 0)),
        DType::I8 => Some((Storage::S8, 128)),
        _ => None,
    }
}

impl Calls<'_> {
    /// What a per-tensor quantize or dequantize says; none if that is not numbers of an 8-bit type.
    pub(crate) fn quant(&self, id: NodeId) -> Option<Quant> {
        let a = self.args(id);
        let (storage, up) = stored(a.dtype("dtype")?)?;
        let level = |name: &str| Some(i32::try_from(a.int(name)?).ok()? + up);
        let q = Quantize {
            scale: a.float("scale")?,
            zero_point: level("zero_point")?,
            qmin: level("quant_min")?,
            qmax: level("quant_max")?,
            rounding: self.rounding(),
        };
        q.check().is_ok().then_some(Quant { q, storage })
    }

    /// How the graph quantizes.
    fn rounding(&self) -> Rounding {
        if self.g.quantizes_by_division() { Rounding::Div } else { Rounding::Recip }
    }

    /// The integers that a call names, if they are of an 8-bit type.
    fn range(&self, id: NodeId) -> Option<QRange> {
        let a = self.args(id);
        let (min, max, dtype) = (a.int("quant_min")?, a.int("quant_max")?, a.dtype("dtype")?);
        let (least, greatest) = dtype.int_range().filter(|_| stored(dtype).is_some())?;
        let fits = |v: i64| i32::try_from(v).ok().filter(|v| (least..=greatest).contains(v));
        Some(QRange { dtype, min: fits(min)?, max: fits(max)? }).filter(|r| r.min < r.max)
    }

    /// What a quantize makes of floats, or a dequantize floats of, and by which levels.
    pub(crate) fn converted(&self, id: NodeId) -> Option<(NodeId, Quant)> {
        let x = self.args(id).tensor("input").filter(|x| self.is_float(*x) != self.is_float(id))?;
        Some((x, self.quant(id)?))
    }

    /// [`Calls::converted`] by levels that are computed.
    pub(crate) fn run_converted(&self, id: NodeId) -> Option<RunQuant> {
        let (a, range) = (self.args(id), self.range(id)?);
        let (storage, up) = stored(range.dtype)?;
        let x = a.tensor("input").filter(|x| self.is_float(*x) != self.is_float(id))?;
        let (scale, zero) = (a.tensor("scale")?, a.tensor("zero_point")?);
        let one = |n: NodeId| self.shape(n).is_ok_and(|s| s.iter().product::<usize>() == 1);
        let types = (self.g.tensor_meta(scale).ok()?.dtype, self.g.tensor_meta(zero).ok()?.dtype);
        let (DType::F32 | DType::F64, DType::I64 | DType::I32 | DType::I8 | DType::U8) = types else { return None };
        if !one(scale) || !one(zero) {
            return None;
        }
        let how = RunLevels { scale: types.0, zero: types.1, up: up.into() };
        let bounds = [range.min + up, range.max + up];
        Some(RunQuant { x, scale, zero, how, storage, bounds, rounding: self.rounding() })
    }

    /// The floats for which a call chooses a scale and a zero point, for which integers, and the least scale.
    pub(crate) fn chosen(&self, id: NodeId, scheme: QScheme) -> Option<(NodeId, QRange, f32)> {
        let (a, range) = (self.args(id), self.range(id)?);
        let x = a.tensor("input").filter(|x| self.is_float(*x))?;
        // The middle of half of u8 is what the reference makes of it.
        let half = scheme == QScheme::Symmetric && range.dtype == DType::U8 && (range.min, range.max) != (0, 255);
        Some((x, range, a.float("eps")?)).filter(|_| !half)
    }

    /// What a dequantize of a constant reads.
    fn levels(&self, id: NodeId) -> Option<Levels> {
        let a = self.args(id);
        let constant = |name: &str| self.constant(a.tensor(name)?);
        let tensor = constant("input")?.clone();
        Some(match self.base(id) {
            "dequantize_per_tensor" => {
                Levels { tensor, scales: vec![a.float("scale")?], zero_points: vec![a.int("zero_point")?], axis: None }
            }
            "dequantize_per_channel" => {
                let scales = constant("scales")?.to_f32().into_owned();
                let zero_points = constant("zero_points").map_or(vec![0; scales.len()], Tensor::to_i64);
                Levels { tensor, scales, zero_points, axis: Some(a.int("axis")?) }
            }
            _ => return None,
        })
    }

    /// The weights of a convolution, if they are levels with a scale for all, or one for each output channel.
    pub(crate) fn weight_levels(&self, c: &Convolution) -> Option<Levels> {
        let w = self.levels(c.weight).filter(|_| self.is_meant(c.weight))?;
        let axis = i64::from(c.transposed.is_some());
        w.axis.is_none_or(|a| a == axis || a - w.tensor.shape().len() as i64 == axis).then_some(w)
    }

    /// The bias of a convolution: in the accumulator's units, at these scales, where it is stored so, else as floats over
    /// `unit`, the output's scale.
    pub(crate) fn bias(&self, c: &Convolution, acc_scale: Option<&[f32]>, unit: f32) -> Result<Bias> {
        let Some(id) = c.bias else { return Ok(Bias::None) };
        let close = |a: f32, b: f32| (a - b).abs() <= 1e-6 * b.abs();
        if let (Some(b), Some(acc_scale)) = (self.levels(id), acc_scale)
            && b.per_output(c).iter().zip(acc_scale).all(|(a, b)| close(*a, *b))
            && b.zero_points.iter().all(|z| *z == 0)
            && let Some(v) = b.tensor.elements::<i32>()
        {
            return Ok(Bias::I32(v.into_owned()));
        }
        Ok(Bias::F32(self.tensor(id)?.to_f32().iter().map(|v| v / unit).collect()))
    }
}
