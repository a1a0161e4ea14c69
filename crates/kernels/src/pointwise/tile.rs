//! A program as the epilogue of a matrix kernel: over one tile of its f32 results.
#![allow(unsafe_code, reason = "the caller of `run_tile` promises that tiles are disjoint")]

use super::exec::{CHUNK, Data, Frame, InView, OutView};
use super::isa::execute_on;
use super::math::clamp;
use super::ops::Unary;
use super::program::{Input, MAX_INPUTS, MAX_OUTPUTS, Program};
use super::sink::Sink;
use super::space::{check_types, with_registers};
use crate::versions::versions;
use crate::{Isa, KernelError, SharedMut};

/// A tile of results: `rows` pixels by `cols` channels, at `values[r · pitch + c]`. It is the program's input 0.
#[derive(Clone, Copy, Debug)]
pub struct Tile<'a> {
    /// The results, already `acc · scale`.
    pub values: &'a [f32],
    /// Elements from one row to the next.
    pub pitch: usize,
    /// Pixels.
    pub rows: usize,
    /// Channels.
    pub cols: usize,
    /// The first pixel's index in the whole output (`n · oh · ow` of them).
    pub row0: usize,
    /// The first channel's index.
    pub col0: usize,
}

/// How another operand of an epilogue is addressed, by pixel and channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One value for each pixel and channel: at `pixel · stride + offset + channel`.
    Rows {
        /// Elements from pixel to pixel.
        stride: usize,
        /// Elements before the first pixel's first channel.
        offset: usize,
    },
    /// One value a channel.
    PerChannel,
    /// One value for each image and channel: at `pixel / pixels · stride + channel`.
    PerBatchChannel {
        /// Pixels of one image.
        pixels: usize,
        /// Elements from image to image.
        stride: usize,
    },
    /// One value.
    Scalar,
}

/// An operand of an epilogue: the program's inputs 1 and up.
#[derive(Clone, Copy, Debug)]
pub struct TileInput<'a> {
    /// The whole tensor.
    pub data: Data<'a>,
    /// How it is addressed.
    pub layout: Layout,
}

/// An output of an epilogue: pixel and channel at `pixel · stride + offset + channel`.
#[derive(Clone, Copy)]
pub struct TileOutput<'a> {
    /// The whole tensor.
    pub data: Sink<'a>,
    /// Elements from pixel to pixel.
    pub stride: usize,
    /// Elements before the first pixel's first channel.
    pub offset: usize,
}

impl Layout {
    /// Elements that an operand needs for `pixels` × `channels`.
    fn reach(self, pixels: usize, channels: usize) -> usize {
        if pixels == 0 || channels == 0 {
            return 0;
        }
        match self {
            Layout::Rows { stride, offset } => (pixels - 1) * stride + offset + channels,
            Layout::PerChannel => channels,
            Layout::PerBatchChannel { pixels: each, stride } => (pixels - 1) / each.max(1) * stride + channels,
            Layout::Scalar => 1,
        }
    }

    /// Base, row step and column step at a pixel and channel.
    fn at(self, row: usize, col: usize) -> (usize, usize, usize) {
        match self {
            Layout::Rows { stride, offset } => (row * stride + offset + col, stride, 1),
            Layout::PerChannel => (col, 0, 1),
            Layout::PerBatchChannel { pixels, stride } => (row / pixels.max(1) * stride + col, 0, 1),
            Layout::Scalar => (0, 0, 0),
        }
    }
}

/// A float tensor of as many pixels and channels as a tile's tensor, which is added to it.
#[derive(Clone, Copy)]
pub(crate) struct Residual<'a> {
    pub(crate) data: &'a [f32],
    /// Elements from pixel to pixel.
    pub(crate) stride: usize,
    /// Elements before the first pixel.
    pub(crate) offset: usize,
}

/// `y = bounded(tile + r)`, `r` from element `at.0` on, `at.1` elements from row to row.
#[inline(always)]
fn sum(tile: &Tile<'_>, r: &[f32], at: (usize, usize), y: &TileOutput<'_>, bounds: (f32, f32)) {
    for row in 0..tile.rows {
        let x = &tile.values[row * tile.pitch..][..tile.cols];
        let r = &r[at.0 + row * at.1..][..tile.cols];
        let y = y.data.f32s((tile.row0 + row) * y.stride + y.offset + tile.col0, tile.cols);
        for ((y, x), r) in y.iter_mut().zip(x).zip(r) {
            *y = clamp(x + r, bounds.0, bounds.1);
        }
    }
}

versions! {
    fn sum_on(tile: &Tile<'_>, r: &[f32], at: (usize, usize), y: &TileOutput<'_>, bounds: (f32, f32)) => sum
}

/// `y = op(tile)`, for [`Program::activation`].
#[inline(always)]
fn activated(tile: &Tile<'_>, op: Unary, y: &TileOutput<'_>) {
    macro_rules! each {
        ($($name:ident)*) => {
            match op {
                $(Unary::$name => rows(tile, y, |x| Unary::$name.eval(x)),)*
                _ => unreachable!("invariant: programs keep those that have a loop here"),
            }
        };
    }
    each!(HardSwish Sigmoid Silu Gelu);
}

#[inline(always)]
fn rows(tile: &Tile<'_>, y: &TileOutput<'_>, f: impl Fn(f32) -> f32) {
    for row in 0..tile.rows {
        let x = &tile.values[row * tile.pitch..][..tile.cols];
        let y = y.data.f32s((tile.row0 + row) * y.stride + y.offset + tile.col0, tile.cols);
        y.iter_mut().zip(x).for_each(|(y, x)| *y = f(*x));
    }
}

versions! {
    fn activated_on(tile: &Tile<'_>, op: Unary, y: &TileOutput<'_>) => activated
}

impl Program {
    /// Checks the operands of an epilogue once, before its tiles are run: `pixels` × `channels` in all.
    ///
    /// # Errors
    /// Operands that are missing, too short or of the wrong type; an input 0 that is not f32.
    pub fn check_epilogue(
        &self,
        pixels: usize,
        channels: usize,
        inputs: &[TileInput<'_>],
        outputs: &[TileOutput<'_>],
    ) -> Result<(), KernelError> {
        if self.inputs.first() != Some(&Input::F32) {
            return Err(KernelError::DType { what: "epilogue's input 0", expected: "f32" });
        }
        KernelError::exactly("epilogue's further inputs", self.inputs.len() - 1, inputs.len())?;
        KernelError::exactly("epilogue's outputs", self.outputs.len(), outputs.len())?;
        let first = std::iter::once(Data::F32(&[]));
        check_types(self, first.chain(inputs.iter().map(|i| i.data)), outputs.iter().map(|o| o.data))?;
        for input in inputs {
            KernelError::at_least("epilogue's input", input.layout.reach(pixels, channels), input.data.len())?;
        }
        for output in outputs {
            let rows = Layout::Rows { stride: output.stride, offset: output.offset };
            KernelError::at_least("epilogue's output", rows.reach(pixels, channels), output.data.len())?;
        }
        Ok(())
    }

    /// What the program adds to its input 0, and the bounds of the sum, if it does nothing else; `inputs` are those from 1
    /// on.
    pub(crate) fn residual<'a>(&self, inputs: &[TileInput<'a>]) -> Option<(Residual<'a>, (f32, f32))> {
        match (self.sum, inputs) {
            (Some(bounds), [TileInput { data: Data::F32(data), layout: Layout::Rows { stride, offset } }]) => {
                Some((Residual { data, stride: *stride, offset: *offset }, bounds))
            }
            _ => None,
        }
    }

    /// Runs the program over one tile. `inputs` are its inputs from 1 on.
    ///
    /// # Panics
    /// If the operands do not pass [`Program::check_epilogue`].
    ///
    /// # Safety
    /// While it runs, no other task reads or writes this tile's elements of the outputs.
    pub unsafe fn run_tile(&self, isa: Isa, tile: &Tile<'_>, inputs: &[TileInput<'_>], outputs: &[TileOutput<'_>]) {
        if let (Some((Residual { data, stride, offset }, bounds)), [y]) = (self.residual(inputs), outputs) {
            let at = (tile.row0 * stride + offset + tile.col0, stride);
            return sum_on(isa, tile, data, at, y, bounds);
        }
        if let (Some(op), [y]) = (self.activation, outputs) {
            return activated_on(isa, tile, op, y);
        }
        let images = inputs.iter().filter_map(|i| match i.layout {
            Layout::PerBatchChannel { pixels, .. } => Some(pixels.max(1)),
            _ => None,
        });
        let image = images.min().unwrap_or(usize::MAX);
        with_registers(self.registers, |regs| {
            let mut row = 0;
            while row < tile.rows {
                let to_border = image - (tile.row0 + row) % image;
                let rows = (CHUNK / tile.cols.clamp(1, CHUNK)).min(tile.rows - row).min(to_border);
                for col in (0..tile.cols).step_by(CHUNK) {
                    let part = Tile {
                        values: &tile.values[row * tile.pitch + col..],
                        rows,
                        cols: CHUNK.min(tile.cols - col),
                        row0: tile.row0 + row,
                        col0: tile.col0 + col,
                        ..*tile
                    };
                    self.run_part(isa, &part, inputs, outputs, regs);
                }
                row += rows;
            }
        });
    }

    fn run_part(
        &self,
        isa: Isa,
        part: &Tile<'_>,
        inputs: &[TileInput<'_>],
        outputs: &[TileOutput<'_>],
        regs: &mut [super::exec::Register],
    ) {
        let mut ins = [InView { data: Data::F32(part.values), base: 0, row: part.pitch, col: 1 }; MAX_INPUTS];
        for (view, input) in ins[1..].iter_mut().zip(inputs) {
            let (base, row, col) = input.layout.at(part.row0, part.col0);
            *view = InView { data: input.data, base, row, col };
        }
        let mut outs = [OutView { data: Sink::U8(SharedMut::new(&mut [])), base: 0, row: 0 }; MAX_OUTPUTS];
        for (view, output) in outs.iter_mut().zip(outputs) {
            let base = part.row0 * output.stride + output.offset + part.col0;
            *view = OutView { data: output.data, base, row: output.stride };
        }
        let frame = Frame {
            rows: part.rows,
            cols: part.cols,
            inputs: &ins[..inputs.len() + 1],
            outputs: &outs[..outputs.len()],
        };
        execute_on(isa, self, &frame, regs);
    }
}
