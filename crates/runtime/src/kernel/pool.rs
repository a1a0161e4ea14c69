//! Pooling of levels and of floats.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use cleave_kernels::pointwise::Quantize;
use cleave_kernels::pool::{AvgPool, MaxPool};
use cleave_kernels::quant::Dequantize;

/// Greatest elements of windows.
pub(crate) struct MaxPoolKernel {
    /// The windows.
    pub(crate) body: MaxPool,
    /// Whether the elements are bytes.
    pub(crate) bytes: bool,
    /// Elements from pixel to pixel of the output.
    pub(crate) stride: usize,
}

impl Kernel for MaxPoolKernel {
    fn name(&self) -> String {
        format!("max_pool2d_{}", if self.bytes { "u8" } else { "f32" })
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let y = &mut *io.writes[0];
        if self.bytes {
            self.body.run_u8(io.pool, io.reads[0], y, self.stride)?;
        } else {
            self.body.run_f32(io.pool, floats(io.reads[0]), floats_mut(y), self.stride)?;
        }
        Ok(())
    }
}

/// Means of windows.
pub(crate) struct AvgPoolKernel {
    /// The windows.
    pub(crate) body: AvgPool,
    /// What the input's levels mean; none if it is float.
    pub(crate) from: Option<Dequantize>,
    /// The output's levels; none if it is float.
    pub(crate) to: Option<Quantize>,
    /// Elements from pixel to pixel of the output.
    pub(crate) stride: usize,
}

impl Kernel for AvgPoolKernel {
    fn name(&self) -> String {
        let name = |bytes: bool| if bytes { "u8" } else { "f32" };
        format!("avg_pool2d_{}_{}", name(self.from.is_some()), name(self.to.is_some()))
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (x, y) = (io.reads[0], &mut *io.writes[0]);
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => self.body.run_u8(io.pool, x, from, y, to, self.stride)?,
            (Some(from), None) => self.body.run_u8_f32(io.pool, x, from, floats_mut(y), self.stride)?,
            (None, _) => self.body.run_f32(io.pool, floats(x), floats_mut(y), self.stride)?,
        }
        Ok(())
    }
}
