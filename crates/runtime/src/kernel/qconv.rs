//! Quantized convolutions and linear layers.

use super::{Io, Kernel, floats_mut};
use crate::error::Result;
use cleave_kernels::qconv::{Out, OutData, QConv, QConvTranspose, View};

/// Where a quantized convolution's output and residual lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QSides {
    /// Elements from pixel to pixel of the residual, if there is one: the step's second read.
    pub(crate) residual: Option<usize>,
    /// Elements from pixel to pixel of the output.
    pub(crate) stride: usize,
    /// Whether the output holds bytes, not floats.
    pub(crate) bytes: bool,
}

impl QSides {
    fn bind<'x>(&self, reads: &[&'x [u8]], y: &'x mut [u8]) -> (Option<View<'x, u8>>, Out<'x>) {
        let residual = self.residual.map(|stride| View { data: reads[1], offset: 0, stride });
        let data = if self.bytes { OutData::U8(y) } else { OutData::F32(floats_mut(y)) };
        (residual, Out { data, offset: 0, stride: self.stride })
    }
}

/// A quantized convolution.
pub(crate) struct QConvKernel {
    /// The packed convolution.
    pub(crate) body: QConv,
    /// Its other operands.
    pub(crate) sides: QSides,
}

impl Kernel for QConvKernel {
    fn name(&self) -> String {
        self.body.kernel_name()
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        self.body.scratch_bytes(threads)
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (residual, y) = self.sides.bind(io.reads, io.writes[0]);
        Ok(self.body.run(io.pool, io.reads[0], residual, y, io.scratch)?)
    }
}

/// A quantized transposed convolution.
pub(crate) struct QConvTransposeKernel {
    /// The packed convolution.
    pub(crate) body: QConvTranspose,
    /// Its other operands.
    pub(crate) sides: QSides,
}

impl Kernel for QConvTransposeKernel {
    fn name(&self) -> String {
        self.body.kernel_name()
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        self.body.scratch_bytes(threads)
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (residual, y) = self.sides.bind(io.reads, io.writes[0]);
        Ok(self.body.run(io.pool, io.reads[0], residual, y, io.scratch)?)
    }
}
