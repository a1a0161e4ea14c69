//! f32 convolutions over channels-last activations: implicit matrix products, depthwise, transposed.
//!
//! Every output is one chain of fused multiply-adds from the bias, over the kernel's rows, columns and channels
//! in that order, padding counting as zeros: the same bits on every instruction set and thread count. Where Winograd's
//! transforms pay (`winograd`), sums are others, but the same everywhere too.

mod depthwise;
mod geometry;
mod lanes;
mod transposed;
mod vector;
mod winograd;

#[cfg(test)]
mod tests;

pub use transposed::{ConvTransposeF32, TransposeShape};

use crate::gemm_f32::{Added, Driver, Element, Finish, Packed};
use crate::pointwise::{Program, Sink, TileInput, TileOutput};
use crate::{ConvShape, Isa, KernelError, SharedMut, ThreadPool};
use depthwise::{Depthwise, MAX_TAPS, Weights};
use geometry::{Geometry, Placement, Windows};
use half::f16;
use std::sync::Arc;
use winograd::Winograd;

/// What becomes of a convolution's results.
#[derive(Clone, Debug, PartialEq)]
pub enum EpilogueF32 {
    /// `min(max(y, lo), hi)`, stored as f32.
    Clamp {
        /// Lower bound.
        lo: f32,
        /// Upper bound.
        hi: f32,
    },
    /// A program of which the result is input 0.
    Program(Program),
}

impl EpilogueF32 {
    /// Stored as it is.
    pub const NONE: EpilogueF32 = EpilogueF32::Clamp { lo: f32::NEG_INFINITY, hi: f32::INFINITY };
    /// `max(y, 0)`
    pub const RELU: EpilogueF32 = EpilogueF32::Clamp { lo: 0.0, hi: f32::INFINITY };

    fn is_program(&self) -> bool {
        matches!(self, EpilogueF32::Program(_))
    }

    /// Checks the operands of a run, and binds them; `adds` says whether the kernel adds a residual without a program.
    fn bind<'a>(
        &'a self,
        [pixels, channels]: [usize; 2],
        adds: bool,
        inputs: &'a [TileInput<'a>],
        outputs: &'a [TileOutput<'a>],
    ) -> Result<(Finish<'a>, usize, usize), KernelError> {
        match self {
            EpilogueF32::Program(program) => {
                program.check_epilogue(pixels, channels, inputs, outputs)?;
                let residual = program.residual(inputs).filter(|_| adds);
                if let (Some((r, clamp)), [TileOutput { data: Sink::F32(out), stride, offset }]) = (residual, outputs) {
                    return Ok((Finish::Store { clamp, out: *out, added: Added::Residual(r) }, *stride, *offset));
                }
                Ok((Finish::Program { program, inputs, outputs }, channels, 0))
            }
            EpilogueF32::Clamp { lo, hi } => {
                KernelError::exactly("further inputs of a convolution without program", 0, inputs.len())?;
                let [output] = outputs else {
                    return Err(KernelError::DType { what: "the one output of a convolution", expected: "f32" });
                };
                stored(output, [pixels, channels], (*lo, *hi), Added::Nothing)
            }
        }
    }
}

/// What stores bounded results, and where: elements from pixel to pixel, and before the first one.
fn stored<'a>(
    output: &TileOutput<'a>,
    [pixels, channels]: [usize; 2],
    clamp: (f32, f32),
    added: Added<'a>,
) -> Result<(Finish<'a>, usize, usize), KernelError> {
    let TileOutput { data: Sink::F32(out), stride, offset } = *output else {
        return Err(KernelError::DType { what: "the one output of a convolution", expected: "f32" });
    };
    if stride < channels {
        let why = format!("{channels} channels do not fit a stride of {stride}");
        return Err(KernelError::invalid("output of a convolution", why));
    }
    let reach = if pixels == 0 { 0 } else { (pixels - 1) * stride + offset + channels };
    KernelError::at_least("output of a convolution", reach, out.len())?;
    Ok((Finish::Store { clamp, out, added }, stride, offset))
}

/// Packed weights of either kind.
#[derive(Clone)]
enum Kind {
    Dense(Packed),
    Depthwise(Weights),
}

/// A convolution with its weights packed for one instruction set: immutable, shared by threads.
#[derive(Clone)]
pub struct ConvF32 {
    isa: Isa,
    shape: ConvShape,
    kind: Arc<Kind>,
    epilogue: EpilogueF32,
}

impl std::fmt::Debug for ConvF32 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvF32").field("shape", &self.shape).field("kernel", &self.kernel_name()).finish()
    }
}

impl ConvF32 {
    /// Packs `weights [c_out, kh, kw, c_in / groups]` and `bias [c_out]` (zeros where there is none).
    ///
    /// # Errors
    /// A shape that makes no sense, or weights or biases of another length.
    pub fn new(
        isa: Isa,
        shape: &ConvShape,
        weights: &[f32],
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvF32, KernelError> {
        shape.check()?;
        KernelError::exactly("convolution weights", shape.weight_len(), weights.len())?;
        let (taps, each) = (shape.kh * shape.kw, shape.c_in / shape.groups);
        let weight = |channel, tap, input| weights[(channel * taps + tap) * each + input];
        ConvF32::pack(isa, shape, weight, bias, epilogue)
    }

    /// [`ConvF32::new`] of what `weight(channel, tap, input)` gives: for output channels, the kernel's taps row by row, and
    /// the input channels of a group, wherever weights lie.
    ///
    /// # Errors
    /// A shape that makes no sense, or biases of another length.
    pub fn of_floats(
        isa: Isa,
        shape: &ConvShape,
        weight: impl Fn(usize, usize, usize) -> f32,
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvF32, KernelError> {
        ConvF32::pack(isa, shape, weight, bias, epilogue)
    }

    /// [`ConvF32::of_floats`] of weights that stay halves in memory: the bits are those of the floats that they widen to.
    /// The few of a depthwise convolution are widened.
    ///
    /// # Errors
    /// As [`ConvF32::of_floats`].
    pub fn of_halves(
        isa: Isa,
        shape: &ConvShape,
        weight: impl Fn(usize, usize, usize) -> f16,
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvF32, KernelError> {
        ConvF32::pack(isa, shape, weight, bias, epilogue)
    }

    fn pack<E: Element>(
        isa: Isa,
        shape: &ConvShape,
        weight: impl Fn(usize, usize, usize) -> E,
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvF32, KernelError> {
        shape.check()?;
        if let Some(bias) = bias {
            KernelError::exactly("convolution bias", shape.c_out, bias.len())?;
        }
        let (taps, each) = (shape.kh * shape.kw, shape.c_in / shape.groups);
        let kind = if shape.is_depthwise() && taps <= MAX_TAPS {
            let weights: Vec<E> = (0..shape.c_out * taps).map(|i| weight(i / taps, i % taps, 0)).collect();
            let mut room = vec![0.0; weights.len()];
            Kind::Depthwise(Weights::new(shape.c_out, taps, E::widen(isa, &weights, &mut room), bias))
        } else {
            Kind::Dense(Packed::new(isa, [shape.groups, taps, each, shape.c_out / shape.groups], bias, weight))
        };
        Ok(ConvF32 { isa, shape: *shape, kind: Arc::new(kind), epilogue })
    }

    /// A linear layer `[rows, c_in] · weights [c_out, c_in]ᵀ + bias`.
    ///
    /// # Errors
    /// As [`ConvF32::new`].
    pub fn linear(
        isa: Isa,
        rows: usize,
        c_in: usize,
        weights: &[f32],
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvF32, KernelError> {
        let shape = ConvShape::linear(rows, c_in, weights.len() / c_in.max(1));
        ConvF32::new(isa, &shape, weights, bias, epilogue)
    }

    /// The same weights over images of another number or size.
    pub fn resized(&self, n: usize, h: usize, w: usize) -> ConvF32 {
        ConvF32 { shape: ConvShape { n, h, w, ..self.shape }, ..self.clone() }
    }

    /// What becomes of its results.
    pub fn epilogue(&self) -> &EpilogueF32 {
        &self.epilogue
    }

    /// The shape.
    pub fn shape(&self) -> &ConvShape {
        &self.shape
    }

    /// `conv2d_f32_14x32_avx512`, say, or `conv2d_f32f16_14x32_avx512` where the weights are halves.
    pub fn kernel_name(&self) -> String {
        let tile = crate::gemm_f32::kernel(self.isa).name;
        match &*self.kind {
            Kind::Dense(packed) if winograd::pays(&self.shape) => format!("winograd_f32{}_{tile}", packed.suffix()),
            Kind::Dense(packed) => format!("conv2d_f32{}_{tile}", packed.suffix()),
            Kind::Depthwise(_) => format!("dwconv2d_f32_{}", self.isa.level().name()),
        }
    }

    /// Bytes of scratch for a pool of `threads`.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        let s = &self.shape;
        match *self.kind {
            Kind::Dense(_) if winograd::pays(s) => {
                winograd::scratch_bytes(self.isa, s, self.epilogue.is_program(), threads)
            }
            Kind::Dense(_) => Driver::scratch_bytes(self.isa, s.kh * s.kw * (s.c_in / s.groups), threads),
            Kind::Depthwise(_) => depthwise::scratch_bytes(s.c_out, self.epilogue.is_program(), threads),
        }
    }

    /// Runs it: `x [n, h, w, c_in]`, `y [n, oh, ow, c_out]` dense. For an epilogue that stores one f32.
    ///
    /// # Errors
    /// As [`ConvF32::run_into`].
    pub fn run(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32], scratch: &mut [u8]) -> Result<(), KernelError> {
        let output = TileOutput { data: Sink::F32(SharedMut::new(y)), stride: self.shape.c_out, offset: 0 };
        self.run_into(pool, x, &[], &[output], scratch)
    }

    /// Runs it: `inputs` are the program's from 1 on; outputs may have a stride and an offset, so that a concat
    /// is written in place.
    ///
    /// # Errors
    /// An operand or a scratch that is missing, too short or of the wrong type.
    pub fn run_into(
        &self,
        pool: &ThreadPool,
        x: &[f32],
        inputs: &[TileInput<'_>],
        outputs: &[TileOutput<'_>],
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let sizes = [self.shape.pixels(), self.shape.c_out];
        let (finish, stride, offset) = self.epilogue.bind(sizes, self.adds(), inputs, outputs)?;
        self.execute(pool, x, finish, (stride, offset), scratch)
    }

    /// Whether tiles of products add a residual to their sums.
    fn adds(&self) -> bool {
        matches!(*self.kind, Kind::Dense(_)) && !winograd::pays(&self.shape)
    }

    /// Whether [`ConvF32::run_onto`] is admitted: for convolutions, but not of every kind, behind which a residual is added.
    pub fn adds_in_place(&self) -> bool {
        self.adds() && matches!(&self.epilogue, EpilogueF32::Program(program) if program.sum.is_some())
    }

    /// Runs it where the residual lies: the output is what is added before it is what results.
    ///
    /// # Errors
    /// As [`ConvF32::run_into`]; a convolution that does not add in place.
    pub fn run_onto(
        &self,
        pool: &ThreadPool,
        x: &[f32],
        output: &TileOutput<'_>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let bounds = match &self.epilogue {
            EpilogueF32::Program(program) if self.adds() => program.sum,
            _ => None,
        };
        let clamp = bounds.ok_or_else(|| KernelError::invalid("convolution", "it adds nothing in place"))?;
        let (finish, stride, offset) = stored(output, [self.shape.pixels(), self.shape.c_out], clamp, Added::Output)?;
        self.execute(pool, x, finish, (stride, offset), scratch)
    }

    fn execute(
        &self,
        pool: &ThreadPool,
        x: &[f32],
        finish: Finish<'_>,
        (stride, offset): (usize, usize),
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (s, geometry) = (&self.shape, Geometry::new(&self.shape));
        KernelError::at_least("input of a convolution", s.in_len(), x.len())?;
        if geometry.pixels() == 0 {
            return Ok(());
        }
        let place = Placement::dense(&geometry, stride, offset);
        match &*self.kind {
            Kind::Depthwise(weights) => {
                Depthwise { isa: self.isa, geometry, place, weights, x, finish }.run(pool, scratch)
            }
            Kind::Dense(packed) if winograd::pays(s) => {
                let winograd = Winograd { isa: self.isa, geometry, c_out: s.c_out, place, x, finish };
                match packed {
                    Packed::F32(panels) => winograd.run(pool, panels, scratch),
                    Packed::F16(panels) => winograd.run(pool, panels, scratch),
                }
            }
            Kind::Dense(packed) => {
                let (k, n) = (s.kh * s.kw * (s.c_in / s.groups), s.c_out / s.groups);
                let product = Driver { isa: self.isa, m: geometry.pixels(), k, n, groups: s.groups, finish };
                packed.run(&product, pool, &Windows { x, geometry, place }, scratch)
            }
        }
    }
}
