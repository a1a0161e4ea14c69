//! Transposed convolution as one ordinary convolution for each residue of the output's position modulo the
//! stride: every output is computed once, nothing is scattered or added up.

use super::EpilogueF32;
use super::geometry::{Geometry, Placement, Windows};
use crate::gemm_f32::{Driver, Element, Finish, Packed};
use crate::pointwise::{Sink, TileOutput};
use crate::{ConvShape, Isa, KernelError, SharedMut, ThreadPool};
use half::f16;
use std::sync::Arc;

/// A transposed convolution: `x [n, h, w, c_in]`, weights `[c_out, kh, kw, c_in / groups]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransposeShape {
    /// Its input, channels, kernel, stride, padding, dilation and groups. `oh()` and `ow()` of it mean nothing.
    pub conv: ConvShape,
    /// Rows and columns added at the bottom and the right of the output.
    pub output_padding: [usize; 2],
}

impl TransposeShape {
    /// Rows and columns of the output: `(h - 1)·stride - pads + dilation·(kh - 1) + 1 + output_padding`.
    pub fn out_size(&self) -> [usize; 2] {
        let c = &self.conv;
        let size = |h: usize, k: usize, axis: usize| {
            let whole =
                h.saturating_sub(1) * c.stride[axis] + c.dilation[axis] * (k - 1) + 1 + self.output_padding[axis];
            if h == 0 { 0 } else { whole.saturating_sub(c.pad[axis] + c.pad[axis + 2]) }
        };
        [size(c.h, c.kh, 0), size(c.w, c.kw, 1)]
    }
}

/// A transposed convolution with its weights packed.
///
/// An output is one chain of fused multiply-adds from the bias over the taps that reach it, in order of input
/// row, input column and channel.
#[derive(Clone)]
pub struct ConvTransposeF32 {
    isa: Isa,
    shape: TransposeShape,
    clamp: (f32, f32),
    phases: Arc<Vec<Phase>>,
}

/// The outputs of one residue.
struct Phase {
    residue: [usize; 2],
    axes: [Axis; 2],
    packed: Packed,
}

/// The taps of one axis that reach a residue, by rising input position.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    taps: Vec<usize>,
    /// Input position of the first tap for output `residue`.
    origin: isize,
    /// Input positions from tap to tap.
    step: usize,
}

/// Output `residue + stride·q` gets tap `k` from input `q + (residue + pad - k·dilation) / stride`.
fn axis(residue: usize, stride: usize, pad: usize, dilation: usize, kernel: usize) -> Axis {
    let reach = |k: usize| (residue + pad).cast_signed() - (k * dilation).cast_signed();
    let stride = stride.cast_signed();
    let taps: Vec<usize> = (0..kernel).rev().filter(|k| reach(*k) % stride == 0).collect();
    let at = |i: usize| taps.get(i).map_or(0, |k| reach(*k) / stride);
    let step = if taps.len() > 1 { (at(1) - at(0)).cast_unsigned() } else { 1 };
    Axis { origin: at(0), step, taps }
}

impl ConvTransposeF32 {
    /// Packs `weights [c_out, kh, kw, c_in / groups]` and `bias [c_out]`.
    ///
    /// # Errors
    /// A shape that makes no sense, weights or biases of another length, or an epilogue that is a program.
    pub fn new(
        isa: Isa,
        shape: &TransposeShape,
        weights: &[f32],
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvTransposeF32, KernelError> {
        ConvTransposeF32::pack(isa, shape, weights, bias, epilogue)
    }

    /// [`ConvTransposeF32::new`] with weights that stay halves in memory.
    ///
    /// # Errors
    /// As [`ConvTransposeF32::new`].
    pub fn with_halves(
        isa: Isa,
        shape: &TransposeShape,
        weights: &[f16],
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvTransposeF32, KernelError> {
        ConvTransposeF32::pack(isa, shape, weights, bias, epilogue)
    }

    fn pack<E: Element>(
        isa: Isa,
        shape: &TransposeShape,
        weights: &[E],
        bias: Option<&[f32]>,
        epilogue: EpilogueF32,
    ) -> Result<ConvTransposeF32, KernelError> {
        let c = &shape.conv;
        c.check()?;
        KernelError::exactly("transposed convolution weights", c.weight_len(), weights.len())?;
        if let Some(bias) = bias {
            KernelError::exactly("transposed convolution bias", c.c_out, bias.len())?;
        }
        let EpilogueF32::Clamp { lo, hi } = epilogue else {
            return Err(KernelError::invalid("transposed convolution", "expected no program as its epilogue"));
        };
        let each = c.c_in / c.groups;
        let mut phases = Vec::with_capacity(c.stride[0] * c.stride[1]);
        for ry in 0..c.stride[0] {
            for rx in 0..c.stride[1] {
                let y = axis(ry, c.stride[0], c.pad[0], c.dilation[0], c.kh);
                let x = axis(rx, c.stride[1], c.pad[1], c.dilation[1], c.kw);
                let taps = y.taps.len() * x.taps.len();
                let at = |channel: usize, tap: usize, input: usize| {
                    let (ky, kx) = (y.taps[tap / x.taps.len()], x.taps[tap % x.taps.len()]);
                    weights[((channel * c.kh + ky) * c.kw + kx) * each + input]
                };
                let packed = Packed::new(isa, [c.groups, taps, each, c.c_out / c.groups], bias, at);
                phases.push(Phase { residue: [ry, rx], axes: [y, x], packed });
            }
        }
        Ok(ConvTransposeF32 { isa, shape: *shape, clamp: (lo, hi), phases: Arc::new(phases) })
    }

    /// The same weights over images of another number or size.
    pub fn resized(&self, n: usize, h: usize, w: usize) -> ConvTransposeF32 {
        let conv = ConvShape { n, h, w, ..self.shape.conv };
        ConvTransposeF32 { shape: TransposeShape { conv, ..self.shape }, ..self.clone() }
    }

    /// The shape.
    pub fn shape(&self) -> &TransposeShape {
        &self.shape
    }

    /// `conv_transpose2d_f32_14x32_avx512`, say.
    pub fn kernel_name(&self) -> String {
        let suffix = self.phases.first().map_or("", |p| p.packed.suffix());
        format!("conv_transpose2d_f32{suffix}_{}", crate::gemm_f32::kernel(self.isa).name)
    }

    /// Bytes of scratch for a pool of `threads`.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        let bytes = |p: &Phase| Driver::scratch_bytes(self.isa, self.depth(p), threads);
        self.phases.iter().map(bytes).max().unwrap_or(0)
    }

    fn depth(&self, p: &Phase) -> usize {
        p.axes[0].taps.len() * p.axes[1].taps.len() * (self.shape.conv.c_in / self.shape.conv.groups)
    }

    /// Runs it: `x [n, h, w, c_in]`, `y [n, oh, ow, c_out]` dense.
    ///
    /// # Errors
    /// As [`ConvTransposeF32::run_into`].
    pub fn run(&self, pool: &ThreadPool, x: &[f32], y: &mut [f32], scratch: &mut [u8]) -> Result<(), KernelError> {
        let output = TileOutput { data: Sink::F32(SharedMut::new(y)), stride: self.shape.conv.c_out, offset: 0 };
        self.run_into(pool, x, &output, scratch)
    }

    /// Runs it into an output with a stride and an offset.
    ///
    /// # Errors
    /// An operand or a scratch that is too short or of the wrong type.
    pub fn run_into(
        &self,
        pool: &ThreadPool,
        x: &[f32],
        output: &TileOutput<'_>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let (c, [oh, ow]) = (&self.shape.conv, self.shape.out_size());
        KernelError::at_least("input of a transposed convolution", c.in_len(), x.len())?;
        let epilogue = EpilogueF32::Clamp { lo: self.clamp.0, hi: self.clamp.1 };
        let outputs = std::slice::from_ref(output);
        let (finish, stride, offset) = epilogue.bind([c.n * oh * ow, c.c_out], false, &[], outputs)?;
        let Finish::Store { .. } = finish else { return Ok(()) };
        for phase in self.phases.iter() {
            let ([ry, rx], [ay, ax]) = (phase.residue, &phase.axes);
            let [sy, sx] = c.stride;
            let geometry = Geometry {
                n: c.n,
                h: c.h,
                w: c.w,
                channels: c.c_in,
                groups: c.groups,
                kh: ay.taps.len(),
                kw: ax.taps.len(),
                stride: [1, 1],
                dilation: [ay.step, ax.step],
                origin: [ay.origin, ax.origin],
                oh: oh.saturating_sub(ry).div_ceil(sy),
                ow: ow.saturating_sub(rx).div_ceil(sx),
            };
            if geometry.pixels() == 0 {
                continue;
            }
            let place = Placement {
                offset: offset + (ry * ow + rx) * stride,
                image: oh * ow * stride,
                row: sy * ow * stride,
                pixel: sx * stride,
            };
            let (k, n) = (self.depth(phase), c.c_out / c.groups);
            let product = Driver { isa: self.isa, m: geometry.pixels(), k, n, groups: c.groups, finish };
            phase.packed.run(&product, pool, &Windows { x, geometry, place }, scratch)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_of_a_residue_rise_with_the_input() {
        assert_eq!(axis(0, 2, 0, 1, 2), Axis { taps: vec![0], origin: 0, step: 1 });
        assert_eq!(axis(0, 2, 1, 1, 4), Axis { taps: vec![3, 1], origin: -1, step: 1 });
        assert_eq!(axis(1, 2, 1, 1, 4), Axis { taps: vec![2, 0], origin: 0, step: 1 });
        assert_eq!(axis(1, 3, 0, 1, 1), Axis { taps: vec![], origin: 0, step: 1 });
        assert_eq!(axis(0, 1, 0, 2, 3), Axis { taps: vec![2, 1, 0], origin: -4, step: 2 });
    }
}
