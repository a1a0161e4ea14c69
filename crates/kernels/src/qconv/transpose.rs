//! Transposed convolution as one ordinary convolution per phase of the stride, written to every stride-th pixel.
//!
//! Output pixel `o` meets tap `k` of input pixel `(o + pad - k·dilation) / stride` where that is whole: the taps
//! of one phase `(o + pad) mod stride` are the same for all its pixels. The integers are exact.

use super::dense::Dense;
use super::geometry::{Geometry, Placement};
use super::spec::{Bias, Out, OutputKind, Requant, View};
use super::tile::Epilogue;
use super::{WHAT, check_source, io, source};
use crate::buffer::{ALIGN, align_scratch};
use crate::{Isa, KernelError, ThreadPool};

/// A transposed 2-D convolution over channels-last activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeShape {
    /// Batch.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Input channels.
    pub c_in: usize,
    /// Output channels.
    pub c_out: usize,
    /// Kernel rows.
    pub kh: usize,
    /// Kernel columns.
    pub kw: usize,
    /// Upsampling: rows, columns.
    pub stride: [usize; 2],
    /// Rows and columns cut off: top, left, bottom, right.
    pub pad: [usize; 4],
    /// Rows and columns added at the bottom and the right.
    pub output_pad: [usize; 2],
    /// Step between taps: rows, columns.
    pub dilation: [usize; 2],
    /// Channel groups; divides `c_in` and `c_out`.
    pub groups: usize,
}

impl ConvTransposeShape {
    /// Output rows; 0 where the padding cuts everything off.
    pub fn oh(&self) -> usize {
        self.extent(self.h, self.kh, 0)
    }

    /// Output columns; 0 where the padding cuts everything off.
    pub fn ow(&self) -> usize {
        self.extent(self.w, self.kw, 1)
    }

    fn extent(&self, size: usize, k: usize, axis: usize) -> usize {
        let full = (size.max(1) - 1) * self.stride[axis] + self.dilation[axis] * (k.max(1) - 1) + 1;
        (full + self.output_pad[axis]).saturating_sub(self.pad[axis] + self.pad[axis + 2])
    }

    /// Elements of the weights, `[c_out, kh, kw, c_in / groups]`.
    pub fn weight_len(&self) -> usize {
        self.c_out * self.kh * self.kw * (self.c_in / self.groups.max(1))
    }

    fn check(&self) -> Result<(), KernelError> {
        let sizes = [self.n, self.h, self.w, self.c_in, self.c_out, self.kh, self.kw, self.groups];
        let steps = [self.stride[0], self.stride[1], self.dilation[0], self.dilation[1]];
        let whole = |c: usize| c.is_multiple_of(self.groups.max(1));
        if sizes.contains(&0) || steps.contains(&0) || !whole(self.c_in) || !whole(self.c_out) {
            let why = format!("sizes must be positive and groups divide the channels, found {self:?}");
            return Err(KernelError::invalid(WHAT, why));
        }
        if self.oh() * self.ow() == 0 {
            return Err(KernelError::invalid(WHAT, format!("padding {:?} leaves no output", self.pad)));
        }
        Ok(())
    }
}

/// The taps and outputs of one phase along one axis.
struct Phase {
    /// First output and number of outputs.
    first: usize,
    count: usize,
    /// Kernel taps in the order of the input rows that they read; empty where the phase meets none.
    taps: Vec<usize>,
    /// Input rows between taps.
    dilation: usize,
    /// Input row that the first tap of the first output reads.
    origin: isize,
}

/// The phases of one axis that have outputs.
fn phases(out: usize, k: usize, stride: usize, dilation: usize, pad: usize) -> Vec<Phase> {
    let phase = |first: usize| {
        let at = first + pad;
        let mut taps: Vec<usize> = (0..k).filter(|t| at % stride == t * dilation % stride).collect();
        taps.reverse();
        let step = match taps[..] {
            [a, b, ..] => (a - b) * dilation / stride,
            _ => 1,
        };
        let origin = taps.first().map_or(0, |t| (at as isize - (t * dilation) as isize) / stride as isize);
        Phase { first, count: (out - first).div_ceil(stride), taps, dilation: step, origin }
    };
    (0..stride.min(out)).map(phase).collect()
}

/// A quantized transposed convolution, packed for one instruction set.
#[derive(Clone, Debug)]
pub struct QConvTranspose {
    shape: ConvTransposeShape,
    residual: bool,
    out: OutputKind,
    parts: Vec<Dense>,
}

impl QConvTranspose {
    /// Packs `weights`, `[c_out, kh, kw, c_in / groups]` (torch's `[c_in, c_out / groups, kh, kw]` with each group's
    /// axes moved).
    ///
    /// # Errors
    /// As [`QConv::new`](super::QConv::new).
    pub fn new(
        isa: Isa,
        shape: &ConvTransposeShape,
        weights: &[i8],
        bias: &Bias,
        x_zero_point: u8,
        requant: Requant,
        out: OutputKind,
    ) -> Result<QConvTranspose, KernelError> {
        shape.check()?;
        let s = *shape;
        let whole = source(s.c_out, s.groups, s.c_in, weights, bias, &requant, Some(x_zero_point));
        check_source(&whole, s.weight_len(), out)?;
        let cg = s.c_in / s.groups;
        let mut parts = Vec::new();
        for down in &phases(s.oh(), s.kh, s.stride[0], s.dilation[0], s.pad[0]) {
            for right in &phases(s.ow(), s.kw, s.stride[1], s.dilation[1], s.pad[1]) {
                let none = down.taps.is_empty() || right.taps.is_empty();
                let (kh, kw) = if none { (1, 1) } else { (down.taps.len(), right.taps.len()) };
                let mut part = vec![0; s.c_out * kh * kw * cg];
                for (i, run) in part.chunks_exact_mut(cg).enumerate().filter(|_| !none) {
                    let (oc, tap) = (i / (kh * kw), i % (kh * kw));
                    let from = ((oc * s.kh + down.taps[tap / kw]) * s.kw + right.taps[tap % kw]) * cg;
                    run.copy_from_slice(&weights[from..from + cg]);
                }
                let geometry = Geometry {
                    n: s.n,
                    h: s.h,
                    w: s.w,
                    c: s.c_in,
                    oh: down.count,
                    ow: right.count,
                    kh,
                    kw,
                    stride: [1, 1],
                    dilation: [down.dilation, right.dilation],
                    origin: [down.origin, right.origin],
                };
                let placement = Placement {
                    start: down.first * s.ow() + right.first,
                    right: s.stride[1],
                    down: s.stride[0] * s.ow(),
                    image: s.oh() * s.ow(),
                    oh: down.count,
                    ow: right.count,
                };
                let src = source(s.c_out, s.groups, s.c_in, &part, bias, &requant, Some(x_zero_point));
                let epilogue = Epilogue::new(&src, out)?;
                parts.push(Dense::new(isa, geometry, placement, &src, epilogue, None)?);
            }
        }
        Ok(QConvTranspose { shape: s, residual: requant.residual.is_some(), out, parts })
    }

    /// The geometry that it was made for.
    pub fn shape(&self) -> &ConvTransposeShape {
        &self.shape
    }

    /// The same for another number of images, at least 1.
    pub fn set_batch(&mut self, n: usize) {
        self.shape.n = n.max(1);
        self.parts.iter_mut().for_each(|p| p.set_batch(n.max(1)));
    }

    /// Bytes of scratch that [`QConvTranspose::run`] needs on `threads` threads.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        self.parts.iter().map(|p| p.scratch_bytes(threads)).max().unwrap_or(0) + ALIGN
    }

    /// `x` is `[n, h, w, c_in]`; the residual and `y` have the output's pixels and channels. Does not allocate.
    ///
    /// # Errors
    /// As [`QConv::run`](super::QConv::run).
    pub fn run(
        &self,
        pool: &ThreadPool,
        x: &[u8],
        residual: Option<View<'_, u8>>,
        y: Out<'_>,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let s = &self.shape;
        KernelError::exactly("input of the quantized convolution", s.n * s.h * s.w * s.c_in, x.len())?;
        let io = io(x, residual, y, self.residual, self.out, s.n * s.oh() * s.ow(), s.c_out)?;
        KernelError::at_least("scratch", self.scratch_bytes(pool.threads()), scratch.len())?;
        let scratch = align_scratch(scratch);
        self.parts.iter().for_each(|p| p.run(pool, &io, None, scratch));
        Ok(())
    }

    /// The kernel that runs: operation, types, tile and instruction set.
    pub fn kernel_name(&self) -> String {
        let (mr, nr) = self.parts[0].tile();
        format!("conv_transpose2d_u8s8_{mr}x{nr}_{}", self.parts[0].isa_name())
    }
}
