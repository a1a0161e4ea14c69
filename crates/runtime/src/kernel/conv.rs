//! Float convolutions and linear layers with their epilogues.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use crate::memory::Value;
use cleave_kernels::SharedMut;
use cleave_kernels::conv_f32::{ConvF32, ConvTransposeF32};
use cleave_kernels::pointwise::{Data, Layout, MAX_INPUTS, Sink, TileInput, TileOutput};

/// A further operand of an epilogue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Side {
    /// How it is addressed.
    layout: Layout,
    /// Whether it holds bytes, not floats.
    bytes: bool,
}

impl Side {
    /// An operand of a result of this shape, stored in this order; none if an epilogue cannot address it.
    pub(crate) fn new(v: &Value, bytes: bool, shape: &[usize], order: &[usize]) -> Option<Side> {
        let seen = v.broadcast(shape)?;
        let (channel, pixels) = order.split_last()?;
        let repeated = |d: &usize| shape[*d] == 1 || seen.strides[*d] == 0;
        let contiguous = shape[*channel] == 1 || seen.strides[*channel] == 1;
        if pixels.iter().all(repeated) {
            let layout = if repeated(channel) { Layout::Scalar } else { Layout::PerChannel };
            return (repeated(channel) || contiguous).then_some(Side { layout, bytes });
        }
        if !contiguous {
            return None;
        }
        if pixels.len() > 1 && pixels[1..].iter().all(repeated) {
            let each = pixels[1..].iter().map(|d| shape[*d]).product();
            let layout = Layout::PerBatchChannel { pixels: each, stride: seen.strides[pixels[0]] };
            return Some(Side { layout, bytes });
        }
        if pixels.iter().any(|d| shape[*d] > 1 && seen.strides[*d] == 0) {
            return None;
        }
        seen.pixel_stride(order).map(|stride| Side { layout: Layout::Rows { stride, offset: 0 }, bytes })
    }

    fn bind<'a>(&self, bytes: &'a [u8]) -> TileInput<'a> {
        let data = if self.bytes { Data::U8(bytes) } else { Data::F32(floats(bytes)) };
        TileInput { data, layout: self.layout }
    }
}

/// An epilogue's operands, as many as there are sides; the rest are empty.
pub(super) fn bind_sides<'a>(sides: &[Side], reads: &[&'a [u8]]) -> [TileInput<'a>; MAX_INPUTS] {
    let mut inputs = [TileInput { data: Data::U8(&[]), layout: Layout::Scalar }; MAX_INPUTS];
    for (input, (side, bytes)) in inputs.iter_mut().zip(sides.iter().zip(reads)) {
        *input = side.bind(bytes);
    }
    inputs
}

/// An epilogue's output: pixels at a stride.
pub(super) fn tile_output(y: &mut [u8], bytes: bool, stride: usize) -> TileOutput<'_> {
    let data = if bytes { Sink::U8(SharedMut::new(y)) } else { Sink::F32(SharedMut::new(floats_mut(y))) };
    TileOutput { data, stride, offset: 0 }
}

/// A convolution: reads the input and the epilogue's operands, writes pixels at a stride.
pub(crate) struct ConvKernel {
    /// The packed convolution.
    pub(crate) body: ConvF32,
    /// The epilogue's operands.
    pub(crate) sides: Vec<Side>,
    /// Elements from pixel to pixel of the output.
    pub(crate) stride: usize,
    /// Whether the output holds bytes.
    pub(crate) bytes: bool,
    /// Whether its results are added to what the output holds.
    pub(crate) in_place: bool,
}

impl Kernel for ConvKernel {
    fn name(&self) -> String {
        self.body.kernel_name()
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        self.body.scratch_bytes(threads)
    }

    fn adds_to(&self) -> Option<usize> {
        let dense = Side { layout: Layout::Rows { stride: self.stride, offset: 0 }, bytes: self.bytes };
        (self.body.adds_in_place() && self.sides == [dense]).then_some(1)
    }

    fn add_in_place(&mut self) {
        self.sides.clear();
        self.in_place = true;
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let inputs = bind_sides(&self.sides, &io.reads[1..]);
        let output = tile_output(io.writes[0], self.bytes, self.stride);
        let x = floats(io.reads[0]);
        if self.in_place {
            return Ok(self.body.run_onto(io.pool, x, &output, io.scratch)?);
        }
        Ok(self.body.run_into(io.pool, x, &inputs[..self.sides.len()], &[output], io.scratch)?)
    }
}

/// A transposed convolution with a dense f32 output.
pub(crate) struct ConvTransposeKernel {
    /// The packed convolution.
    pub(crate) body: ConvTransposeF32,
}

impl Kernel for ConvTransposeKernel {
    fn name(&self) -> String {
        self.body.kernel_name()
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        self.body.scratch_bytes(threads)
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        Ok(self.body.run(io.pool, floats(io.reads[0]), floats_mut(io.writes[0]), io.scratch)?)
    }
}
