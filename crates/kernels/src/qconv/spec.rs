//! What a quantized convolution is told: bias, requantization, and where its output goes.

use super::Activation;
use crate::KernelError;

/// Element type of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// Quantized: `clamp(rne(v) + zero_point)`, with `v` as [`Requant`] defines it.
    U8,
    /// `v` itself; zero point, clamp and table are not used.
    F32,
}

/// The bias, one element per output channel.
#[derive(Clone, Debug, PartialEq)]
pub enum Bias {
    /// No bias.
    None,
    /// In units of `sx·sw`, added to the accumulator.
    I32(Vec<i32>),
    /// In units of the scaled accumulator: `b / sy` where the output is quantized, `b` where it is float, and `b` over the
    /// unit of an activation.
    /// Added after the accumulator was multiplied: `f32(acc)·m + b`, rounded twice.
    F32(Vec<f32>),
}

/// A quantized tensor of the output's shape that is added before rounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// `sr / sy` (`sr` where the output is float).
    pub multiplier: f32,
    /// Zero point of the residual.
    pub zero_point: i32,
}

/// From accumulator to output: `v = f32(acc)·m [+ bias] [+ f32(r - zr)·mr]`, each step rounded to f32 in this
/// order, then `q = clamp(rne(v) + zero_point, qmin, qmax)`, and `table[q]`. Before an activation it is
/// `v = f32(acc)·m + (bias + offset)`, its sum of products rounded once, and `activation(v)` what is rounded.
///
/// Without activation the same bits as `cleave_numerics::{requantize, requantize_residual}` on every instruction set.
#[derive(Clone, Debug, PartialEq)]
pub struct Requant {
    /// One per output channel: `f32(f32(sx·sw) / sy)`; `f32(sx·sw)` for a float output, and that
    /// over the unit of an activation.
    pub multiplier: Vec<f32>,
    /// Zero point of the output, 0 to 255.
    pub zero_point: i32,
    /// Least output, 0 to 255; with `qmax` it absorbs relu and relu6.
    pub qmin: i32,
    /// Greatest output, 0 to 255.
    pub qmax: i32,
    /// A residual, given to `run`.
    pub residual: Option<Residual>,
    /// A function of the value before it is rounded; for outputs of bytes, without residual and table.
    pub activation: Option<Activation>,
    /// A unary function of the quantized output, as a table.
    pub table: Option<Box<[u8; 256]>>,
}

impl Requant {
    /// One multiplier per channel, a zero point, the whole range of u8, nothing else.
    pub fn new(multiplier: Vec<f32>, zero_point: i32) -> Requant {
        Requant { multiplier, zero_point, qmin: 0, qmax: 255, residual: None, activation: None, table: None }
    }

    pub(super) fn check(&self, what: &'static str, c_out: usize, out: OutputKind) -> Result<(), KernelError> {
        let alone = self.residual.is_none() && self.table.is_none() && out == OutputKind::U8;
        if self.activation.is_some() && !alone {
            let why = "an activation stands before bytes alone: without residual and table";
            return Err(KernelError::invalid(what, why));
        }
        KernelError::exactly("multiplier", c_out, self.multiplier.len())?;
        let scales = self.multiplier.iter().chain(self.residual.iter().map(|r| &r.multiplier));
        for m in scales {
            // Larger ones could make an infinite product, and two of them a NaN.
            if !m.is_finite() || m.abs() > 1.0e20 {
                return Err(KernelError::invalid(what, format!("multiplier is {m}; expected a magnitude up to 1e20")));
            }
        }
        let byte = |v: i32| (0..=255).contains(&v);
        if !byte(self.zero_point) || !byte(self.qmin) || !byte(self.qmax) || self.qmin > self.qmax {
            let (z, a, b) = (self.zero_point, self.qmin, self.qmax);
            return Err(KernelError::invalid(what, format!("zero point {z} and range {a}..={b} must lie in 0..=255")));
        }
        match self.residual {
            Some(r) if !byte(r.zero_point) => {
                let why = format!("zero point of the residual is {}; expected 0..=255", r.zero_point);
                Err(KernelError::invalid(what, why))
            }
            _ => Ok(()),
        }
    }
}

/// Scale and zero point of an input that are known only as the model runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputLevels {
    /// `sx`.
    pub scale: f32,
    /// `zx`.
    pub zero_point: u8,
}

/// An input, and its levels where the convolution does not know them.
#[derive(Clone, Copy, Debug)]
pub struct QInput<'a> {
    /// `[n, h, w, c_in]`.
    pub data: &'a [u8],
    /// Scale and zero point, for convolutions that were made without.
    pub levels: Option<InputLevels>,
}

impl<'a> From<&'a [u8]> for QInput<'a> {
    fn from(data: &'a [u8]) -> QInput<'a> {
        QInput { data, levels: None }
    }
}

/// Elements of a channels-last tensor that are read: pixel `p`, channel `c` stands at `offset + p·stride + c`.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    /// The whole tensor.
    pub data: &'a [T],
    /// Element of the first pixel's first channel.
    pub offset: usize,
    /// Elements from a pixel to the next.
    pub stride: usize,
}

impl<'a, T> View<'a, T> {
    /// Pixels of `channels` elements, one after another.
    pub fn dense(data: &'a [T], channels: usize) -> View<'a, T> {
        View { data, offset: 0, stride: channels }
    }
}

/// Where the output goes.
#[derive(Debug)]
pub enum OutData<'a> {
    /// Bytes, for [`OutputKind::U8`].
    U8(&'a mut [u8]),
    /// Floats, for [`OutputKind::F32`].
    F32(&'a mut [f32]),
}

/// The output: pixel `p`, channel `c` is written at `offset + p·stride + c`, so that a concat writes in place.
#[derive(Debug)]
pub struct Out<'a> {
    /// The whole tensor.
    pub data: OutData<'a>,
    /// Element of the first pixel's first channel.
    pub offset: usize,
    /// Elements from a pixel to the next; at least the output channels.
    pub stride: usize,
}

impl<'a> Out<'a> {
    /// A dense u8 output of `channels` channels.
    pub fn u8(data: &'a mut [u8], channels: usize) -> Out<'a> {
        Out { data: OutData::U8(data), offset: 0, stride: channels }
    }

    /// A dense f32 output of `channels` channels.
    pub fn f32(data: &'a mut [f32], channels: usize) -> Out<'a> {
        Out { data: OutData::F32(data), offset: 0, stride: channels }
    }
}

/// Elements that a strided tensor needs.
pub(super) fn strided_len(offset: usize, stride: usize, pixels: usize, channels: usize) -> usize {
    if pixels == 0 { 0 } else { offset + (pixels - 1) * stride + channels }
}
