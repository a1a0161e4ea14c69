//! Levels whose scale and zero point are computed as the model runs.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use cleave_kernels::pointwise::{Quantize, Rounding};
use cleave_kernels::qconv::InputLevels;
use cleave_kernels::quant::{Dequantize, choose, dequantize, quantize};
use cleave_kernels::{Isa, KernelError};
use cleave_numerics::{DType, QRange, QScheme};

/// Scale and zero point for the values of the input: an f64 and an i64.
pub(crate) struct ChooseKernel {
    /// Instruction set.
    pub(crate) isa: Isa,
    /// The levels.
    pub(crate) range: QRange,
    /// Where the zero point may lie.
    pub(crate) scheme: QScheme,
    /// The least scale.
    pub(crate) eps: f32,
}

impl Kernel for ChooseKernel {
    fn name(&self) -> String {
        "choose_qparams_f32".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let q = choose(self.isa, io.pool, floats(io.reads[0]), self.range, self.scheme, self.eps)?;
        io.writes[0].copy_from_slice(&f64::from(q.scale).to_ne_bytes());
        io.writes[1].copy_from_slice(&i64::from(q.zero_point).to_ne_bytes());
        Ok(())
    }
}

/// How a scale and a zero point lie in two reads of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RunLevels {
    /// f32 or f64.
    pub(crate) scale: DType,
    /// An integer type.
    pub(crate) zero: DType,
    /// What is added to levels as they are stored: 128 for signed ones.
    pub(crate) up: i64,
}

impl RunLevels {
    /// Scale and zero point, in terms of the bytes stored.
    ///
    /// # Errors
    /// A zero point that is no level.
    pub(crate) fn read(&self, reads: &[&[u8]]) -> Result<InputLevels> {
        let scale = match self.scale {
            DType::F64 => bytemuck::pod_read_unaligned::<f64>(&reads[0][..8]) as f32,
            _ => bytemuck::pod_read_unaligned::<f32>(&reads[0][..4]),
        };
        let zero = match self.zero {
            DType::I64 => bytemuck::pod_read_unaligned::<i64>(&reads[1][..8]),
            DType::I32 => bytemuck::pod_read_unaligned::<i32>(&reads[1][..4]).into(),
            DType::I8 => i64::from(reads[1][0].cast_signed()),
            _ => reads[1][0].into(),
        };
        let outside = |_| KernelError::Invalid { what: "zero point", why: format!("{zero} is none of the 256 levels") };
        let zero_point = u8::try_from(zero.saturating_add(self.up)).map_err(outside)?;
        Ok(InputLevels { scale, zero_point })
    }
}

/// Floats to levels: reads the floats, scale and zero point.
pub(crate) struct QuantizeKernel {
    /// Instruction set.
    pub(crate) isa: Isa,
    /// Where scale and zero point are found.
    pub(crate) levels: RunLevels,
    /// Least and greatest level, as they are stored.
    pub(crate) bounds: [i32; 2],
    /// Whether to divide by the scale.
    pub(crate) rounding: Rounding,
}

impl Kernel for QuantizeKernel {
    fn name(&self) -> String {
        "quantize_f32u8".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let InputLevels { scale, zero_point } = self.levels.read(&io.reads[1..])?;
        let ([qmin, qmax], zero_point) = (self.bounds, zero_point.into());
        let q = Quantize { scale, zero_point, qmin, qmax, rounding: self.rounding };
        Ok(quantize(self.isa, io.pool, &q, floats(io.reads[0]), io.writes[0])?)
    }
}

/// Levels to floats: reads the levels, scale and zero point.
pub(crate) struct DequantizeKernel {
    /// Instruction set.
    pub(crate) isa: Isa,
    /// Where scale and zero point are found.
    pub(crate) levels: RunLevels,
}

impl Kernel for DequantizeKernel {
    fn name(&self) -> String {
        "dequantize_u8f32".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let InputLevels { scale, zero_point } = self.levels.read(&io.reads[1..])?;
        let q = Dequantize { scale, zero_point: zero_point.into() };
        Ok(dequantize(self.isa, io.pool, &q, io.reads[0], floats_mut(io.writes[0]))?)
    }
}
