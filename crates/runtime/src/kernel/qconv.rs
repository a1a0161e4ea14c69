//! Quantized convolutions and linear layers.

use super::conv::{bind_sides, tile_output};
use super::{Io, Kernel, RunLevels, Side, floats_mut};
use crate::error::Result;
use cleave_kernels::pointwise::{Output, Program};
use cleave_kernels::qconv::{Out, OutData, QConv, QConvTranspose, QInput, View};

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

/// What becomes of a convolution's results.
pub(crate) enum Then {
    /// They are stored, with a residual if there is one.
    Store(QSides),
    /// They are added to what the output holds.
    Add(QSides),
    /// Floats, they are input 0 of a program; `sides` are its other operands, `stride` that of the output.
    Run { program: Program, sides: Vec<Side>, stride: usize },
}

/// A quantized convolution: it reads the input, its levels if they are computed, and what follows needs.
pub(crate) struct QConvKernel {
    /// The packed convolution.
    pub(crate) body: QConv,
    /// Where scale and zero point of the input are found if they are computed: the step's second and third read.
    pub(crate) levels: Option<RunLevels>,
    /// What follows.
    pub(crate) then: Then,
}

impl Kernel for QConvKernel {
    fn name(&self) -> String {
        self.body.kernel_name()
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        match self.then {
            Then::Store(_) | Then::Add(_) => self.body.scratch_bytes(threads),
            Then::Run { .. } => self.body.program_scratch_bytes(threads),
        }
    }

    fn adds_to(&self) -> Option<usize> {
        match &self.then {
            Then::Store(QSides { residual: Some(from), stride, .. }) if from == stride => {
                self.body.adds_in_place().then_some(1)
            }
            _ => None,
        }
    }

    fn add_in_place(&mut self) {
        if let Then::Store(sides) = self.then {
            self.then = Then::Add(QSides { residual: None, ..sides });
        }
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let levels = self.levels.map(|l| l.read(&io.reads[1..])).transpose()?;
        let x = QInput { data: io.reads[0], levels };
        match &self.then {
            Then::Store(sides) => {
                let (residual, y) = sides.bind(io.reads, io.writes[0]);
                self.body.run_levels(io.pool, x, residual, y, io.scratch)?;
            }
            Then::Add(sides) => {
                let (_, y) = sides.bind(io.reads, io.writes[0]);
                self.body.run_onto(io.pool, io.reads[0], y, io.scratch)?;
            }
            Then::Run { program, sides, stride } => {
                let inputs = bind_sides(sides, &io.reads[if levels.is_some() { 3 } else { 1 }..]);
                let output = tile_output(io.writes[0], !matches!(program.outputs(), [Output::F32]), *stride);
                self.body.run_program(io.pool, x, program, &inputs[..sides.len()], &[output], io.scratch)?;
            }
        }
        Ok(())
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
