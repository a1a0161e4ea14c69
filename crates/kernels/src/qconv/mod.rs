//! Quantized convolution: u8 activations (channels last), s8 weights with zero point 0, i32 accumulators, and
//! requantization, residual, clamp or table in the same pass.
//!
//! A linear layer is a 1×1 convolution over rows. Signed activations are shifted to u8 by whoever stores them.
//! [`mod@reference`] defines the result; every instruction set gives its bits, whether by tiles of products (`dense.rs`), row by
//! row (`depthwise`) or by Winograd's transforms (`winograd`).

mod activation;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dense;
mod depthwise;
mod geometry;
mod octets;
mod pack;
mod portable;
mod program;
pub mod reference;
mod spec;
#[cfg(test)]
mod tests;
mod tile;
mod transpose;
mod winograd;

pub use activation::Activation;
pub use spec::{Bias, InputLevels, Out, OutData, OutputKind, QInput, Requant, Residual, View};
pub use transpose::{ConvTransposeShape, QConvTranspose};

use crate::buffer::{ALIGN, align_scratch};
use crate::pointwise::{Program, TileInput, TileOutput};
use crate::{ConvShape, Isa, KernelError, SharedMut, ThreadPool};
use dense::{Dense, Io};
use depthwise::Depthwise;
use geometry::{Geometry, Placement};
use pack::Source;
use program::ProgramRun;
use spec::strided_len;
use tile::Epilogue;
use winograd::Winograd;

const WHAT: &str = "quantized convolution";

/// A quantized convolution, packed for one instruction set.
#[derive(Clone, Debug)]
pub struct QConv {
    isa: Isa,
    shape: ConvShape,
    residual: bool,
    /// Whether each run brings the input's scale and zero point.
    levels: bool,
    out: OutputKind,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Dense(Dense),
    Depthwise(Depthwise),
    Winograd(Winograd),
}

impl QConv {
    /// Packs `weights`, `[c_out, kh, kw, c_in / groups]`; padding has the value `x_zero_point`.
    ///
    /// # Errors
    /// A shape that makes no sense or has no output, operands of other lengths than it asks for, a zero point or
    /// range outside u8, a multiplier that is not finite, or sums that may not fit an i32.
    pub fn new(
        isa: Isa,
        shape: &ConvShape,
        weights: &[i8],
        bias: &Bias,
        x_zero_point: u8,
        requant: Requant,
        out: OutputKind,
    ) -> Result<QConv, KernelError> {
        QConv::pack(isa, shape, weights, bias, Some(x_zero_point), (requant, out), None)
    }

    /// [`QConv::new`] with the weights that this one was made of: they are packed once, where both take them in one form.
    ///
    /// # Errors
    /// As [`QConv::new`].
    pub fn again(
        &self,
        shape: &ConvShape,
        weights: &[i8],
        bias: &Bias,
        x_zero_point: u8,
        requant: Requant,
        out: OutputKind,
    ) -> Result<QConv, KernelError> {
        QConv::pack(self.isa, shape, weights, bias, Some(x_zero_point), (requant, out), Some(self))
    }

    /// The same with an input whose scale and zero point each run brings ([`QConv::run_levels`]): float results
    /// `f32(acc)·f32(sx·sw) [+ bias]`. `weight_scales` is `sw`, one for each output channel.
    ///
    /// # Errors
    /// As [`QConv::new`]; also a bias in units of the accumulator, and depthwise convolutions.
    pub fn of_levels(
        isa: Isa,
        shape: &ConvShape,
        weights: &[i8],
        bias: &Bias,
        weight_scales: Vec<f32>,
    ) -> Result<QConv, KernelError> {
        if matches!(bias, Bias::I32(_)) || is_depthwise(shape) {
            let why = "with levels that each run brings it takes a float bias and is not depthwise";
            return Err(KernelError::invalid(WHAT, why));
        }
        let requant = Requant::new(weight_scales, 0);
        QConv::pack(isa, shape, weights, bias, None, (requant, OutputKind::F32), None)
    }

    fn pack(
        isa: Isa,
        shape: &ConvShape,
        weights: &[i8],
        bias: &Bias,
        zx: Option<u8>,
        (requant, out): (Requant, OutputKind),
        like: Option<&QConv>,
    ) -> Result<QConv, KernelError> {
        shape.check()?;
        if shape.pixels() == 0 {
            let s = shape;
            let why = format!("kernel {}×{} leaves no output of {}×{}×{}", s.kh, s.kw, s.n, s.h, s.w);
            return Err(KernelError::invalid(WHAT, why));
        }
        let src = source(shape.c_out, shape.groups, shape.c_in, weights, bias, &requant, zx);
        check_source(&src, shape.weight_len(), out)?;
        let epilogue = Epilogue::new(&src, out)?;
        let geometry = Geometry::new(shape);
        // Images of another number or size take the same weights.
        let like = like.filter(|q| ConvShape { n: shape.n, h: shape.h, w: shape.w, ..q.shape } == *shape);
        let (dense, winograd) = match like.map(|q| &q.body) {
            Some(Body::Dense(d)) => (Some(d), None),
            Some(Body::Winograd(w)) => (None, Some(w)),
            _ => (None, None),
        };
        let body = if is_depthwise(shape) {
            Body::Depthwise(Depthwise::new(isa, geometry, &src, epilogue)?)
        } else if let Some(winograd) = Winograd::new(isa, &geometry, &src, &epilogue, winograd)? {
            Body::Winograd(winograd)
        } else {
            let placement = Placement::dense(geometry.oh, geometry.ow);
            Body::Dense(Dense::new(isa, geometry, placement, &src, epilogue, dense)?)
        };
        Ok(QConv { isa, shape: *shape, residual: requant.residual.is_some(), levels: zx.is_none(), out, body })
    }

    /// The geometry that it was made for.
    pub fn shape(&self) -> &ConvShape {
        &self.shape
    }

    /// The same convolution for another number of images, at least 1.
    pub fn set_batch(&mut self, n: usize) {
        let n = n.max(1);
        self.shape.n = n;
        match &mut self.body {
            Body::Dense(d) => d.set_batch(n),
            Body::Depthwise(d) => d.set_batch(n),
            Body::Winograd(w) => w.set_batch(n),
        }
    }

    /// Bytes of scratch that [`QConv::run`] needs on `threads` threads.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        let bytes = match &self.body {
            Body::Dense(d) => d.scratch_bytes(threads),
            Body::Depthwise(d) => d.scratch_bytes(threads),
            Body::Winograd(w) => w.scratch_bytes(threads),
        };
        bytes + ALIGN
    }

    /// `x` is `[n, h, w, c_in]`; the residual and `y` have the output's pixels and channels. Does not allocate.
    ///
    /// # Errors
    /// Operands shorter than the shape asks for, a missing or an unexpected residual, an output of the other type.
    pub fn run(
        &self,
        pool: &ThreadPool,
        x: &[u8],
        residual: Option<View<'_, u8>>,
        y: Out<'_>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        self.run_levels(pool, x.into(), residual, y, scratch)
    }

    /// [`QConv::run`] with the input's scale and zero point, for convolutions that were made by [`QConv::of_levels`].
    ///
    /// # Errors
    /// As [`QConv::run`], and levels that are missing or not expected.
    pub fn run_levels(
        &self,
        pool: &ThreadPool,
        x: QInput<'_>,
        residual: Option<View<'_, u8>>,
        y: Out<'_>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let QInput { data: x, levels } = x;
        self.check_levels(levels)?;
        let s = &self.shape;
        KernelError::exactly("input of the quantized convolution", s.in_len(), x.len())?;
        let io = io(x, residual, y, self.residual, self.out, s.pixels(), s.c_out)?;
        self.execute(pool, &io, levels, scratch)
    }

    /// Whether [`QConv::run_onto`] is admitted: for convolutions, but not of every kind, that add a residual.
    pub fn adds_in_place(&self) -> bool {
        self.residual && self.out == OutputKind::U8 && matches!(self.body, Body::Dense(_) | Body::Winograd(_))
    }

    /// Runs it where the residual lies: `y` is what is added before it is what results.
    ///
    /// # Errors
    /// As [`QConv::run`]; a convolution that does not add in place.
    pub fn run_onto(&self, pool: &ThreadPool, x: &[u8], y: Out<'_>, scratch: &mut [u8]) -> Result<(), KernelError> {
        if !self.adds_in_place() {
            return Err(KernelError::invalid(WHAT, "it adds nothing in place"));
        }
        let s = &self.shape;
        KernelError::exactly("input of the quantized convolution", s.in_len(), x.len())?;
        let io = io(x, None, y, false, self.out, s.pixels(), s.c_out)?;
        let (r, r_stride) = (io.y.cast_const(), io.y_stride);
        self.execute(pool, &Io { r, r_stride, ..io }, None, scratch)
    }

    fn execute(
        &self,
        pool: &ThreadPool,
        io: &Io<'_>,
        levels: Option<InputLevels>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        KernelError::at_least("scratch", self.scratch_bytes(pool.threads()), scratch.len())?;
        let scratch = align_scratch(scratch);
        match &self.body {
            Body::Dense(d) => d.run(pool, io, levels, scratch),
            Body::Depthwise(d) => d.run(pool, io, scratch),
            Body::Winograd(w) => w.run(pool, io, scratch),
        }
        Ok(())
    }

    /// Bytes of scratch that [`QConv::run_program`] needs on `threads` threads.
    pub fn program_scratch_bytes(&self, threads: usize) -> usize {
        let floats = match &self.body {
            Body::Dense(d) => d.program_floats(),
            Body::Depthwise(d) => d.program_floats(),
            Body::Winograd(_) => 0,
        };
        self.scratch_bytes(threads).next_multiple_of(ALIGN) + threads * floats * size_of::<f32>() + ALIGN
    }

    fn check_levels(&self, levels: Option<InputLevels>) -> Result<(), KernelError> {
        if self.levels == levels.is_some() {
            return Ok(());
        }
        let found = if self.levels { "missing" } else { "given" };
        Err(KernelError::invalid(WHAT, format!("scale and zero point of the input are {found}")))
    }

    /// Runs with a pointwise program as the epilogue: its input 0 is `f32(acc)·m [+ bias]`, and it stores the outputs.
    /// For convolutions that were made with [`OutputKind::F32`] and without a residual. Does not allocate.
    ///
    /// # Errors
    /// Another kind of convolution, operands shorter than the shape asks for or not the program's, and as
    /// [`QConv::run_levels`].
    pub fn run_program(
        &self,
        pool: &ThreadPool,
        x: QInput<'_>,
        program: &Program,
        inputs: &[TileInput<'_>],
        outputs: &[TileOutput<'_>],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let QInput { data: x, levels } = x;
        self.check_levels(levels)?;
        let s = &self.shape;
        if self.out != OutputKind::F32 || self.residual {
            let why = "a program takes float values without residual; expected an F32 output";
            return Err(KernelError::invalid(WHAT, why));
        }
        KernelError::exactly("input of the quantized convolution", s.in_len(), x.len())?;
        program.check_epilogue(s.pixels(), s.c_out, inputs, outputs)?;
        let threads = pool.threads();
        KernelError::at_least("scratch", self.program_scratch_bytes(threads), scratch.len())?;
        let (scratch, floats) =
            align_scratch(scratch).split_at_mut(self.scratch_bytes(threads).next_multiple_of(ALIGN));
        let floats =
            bytemuck::cast_slice_mut(&mut floats[..(self.program_scratch_bytes(threads) - scratch.len() - ALIGN)]);
        let size = floats.len() / threads;
        let buffers = SharedMut::new(floats);
        let run = ProgramRun { isa: self.isa, program, inputs, outputs, x, buffers, size };
        match &self.body {
            Body::Dense(d) => d.run_program(pool, &run, levels, scratch),
            Body::Depthwise(d) => d.run_program(pool, &run, scratch),
            Body::Winograd(_) => unreachable!("its outputs are bytes"),
        }
        Ok(())
    }

    /// The kernel that runs: operation, types, tile and instruction set.
    pub fn kernel_name(&self) -> String {
        match &self.body {
            Body::Dense(d) => {
                let s = &self.shape;
                let op = if s.kh * s.kw * s.oh() == 1 && s.h == 1 { "linear" } else { "conv2d" };
                let ((mr, nr), isa) = (d.tile(), d.isa_name());
                format!("{op}_u8s8_{mr}x{nr}_{isa}")
            }
            Body::Depthwise(d) => d.kernel_name(),
            Body::Winograd(w) => w.kernel_name(),
        }
    }
}

fn is_depthwise(shape: &ConvShape) -> bool {
    shape.is_depthwise() && shape.groups > 1
}

fn source<'a>(
    c_out: usize,
    groups: usize,
    c_in: usize,
    weights: &'a [i8],
    bias: &'a Bias,
    requant: &'a Requant,
    zx: Option<u8>,
) -> Source<'a> {
    let sums = weights.chunks((weights.len() / c_out.max(1)).max(1)).map(pack::sums).collect();
    Source { weights, sums, c_out, groups, c_group: c_in / groups, bias, requant, zx }
}

/// Lengths and ranges of what is packed.
fn check_source(src: &Source<'_>, weights: usize, out: OutputKind) -> Result<(), KernelError> {
    KernelError::exactly("weights of the quantized convolution", weights, src.weights.len())?;
    match src.bias {
        Bias::None => {}
        Bias::I32(b) => KernelError::exactly("bias", src.c_out, b.len())?,
        Bias::F32(b) => {
            KernelError::exactly("bias", src.c_out, b.len())?;
            if let Some(b) = b.iter().find(|b| !b.is_finite()) {
                return Err(KernelError::invalid(WHAT, format!("bias is {b}; expected finite values")));
            }
        }
    }
    src.requant.check(WHAT, src.c_out, out)
}

/// Checks the operands of a run.
fn io<'a>(
    x: &'a [u8],
    residual: Option<View<'a, u8>>,
    y: Out<'a>,
    wants_residual: bool,
    out: OutputKind,
    pixels: usize,
    c_out: usize,
) -> Result<Io<'a>, KernelError> {
    if y.stride < c_out {
        let why = format!("output stride is {}; expected at least {c_out}", y.stride);
        return Err(KernelError::invalid(WHAT, why));
    }
    let needed = strided_len(y.offset, y.stride, pixels, c_out);
    let (data, size) = match (y.data, out) {
        (OutData::U8(d), OutputKind::U8) => {
            KernelError::at_least("output", needed, d.len())?;
            (d[y.offset..].as_mut_ptr(), 1)
        }
        (OutData::F32(d), OutputKind::F32) => {
            KernelError::at_least("output", needed, d.len())?;
            (d[y.offset..].as_mut_ptr().cast(), 4)
        }
        (_, OutputKind::U8) => return Err(KernelError::DType { what: "output", expected: "u8" }),
        (_, OutputKind::F32) => return Err(KernelError::DType { what: "output", expected: "f32" }),
    };
    let (r, r_stride) = match residual {
        Some(v) if wants_residual => {
            KernelError::at_least("residual", strided_len(v.offset, v.stride, pixels, c_out), v.data.len())?;
            (v.data[v.offset..].as_ptr(), v.stride)
        }
        None if !wants_residual => (std::ptr::null(), 0),
        found => {
            let found = if found.is_some() { "given" } else { "missing" };
            return Err(KernelError::invalid(WHAT, format!("residual is {found}, against what it was made for")));
        }
    };
    Ok(Io { x, y: data, y_stride: y.stride, size, r, r_stride })
}
