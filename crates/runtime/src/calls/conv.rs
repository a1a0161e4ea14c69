//! Convolutions and linear layers.

use super::{Affine, Args, Calls};
use crate::error::Result;
use crate::memory::{channels_last, row_major};
use cleave_ir::{NodeId, Tensor};
use cleave_kernels::conv_f32::{ConvF32, EpilogueF32};
use cleave_kernels::{ConvShape, Isa, KernelError};
use cleave_numerics::DType;
use half::f16;
use std::borrow::Cow;

/// The ops read here.
const CONVOLUTIONS: [&str; 6] = [
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.convolution.default",
    "aten.linear.default",
];

/// A convolution of constant weights, or a linear layer as one over rows.
#[derive(Clone, Debug)]
pub(crate) struct Convolution {
    /// The call.
    pub(crate) id: NodeId,
    /// Its input.
    pub(crate) x: NodeId,
    /// A constant, a dequantize of one, or halves that are widened.
    pub(crate) weight: NodeId,
    /// As the weight.
    pub(crate) bias: Option<NodeId>,
    /// Geometry.
    pub(crate) shape: ConvShape,
    /// Output padding, of a transposed one.
    pub(crate) transposed: Option<[usize; 2]>,
    /// Whether rows are the pixels.
    pub(crate) linear: bool,
}

/// Weights in the kernels' order.
pub(crate) enum Weights<'w> {
    /// As they are, or as widened.
    Floats(Cow<'w, [f32]>),
    /// As they are stored.
    Halves(Cow<'w, [f16]>),
}

/// Weights and bias of a float convolution, with what follows it put in.
pub(crate) struct ConvWeights {
    conv: Convolution,
    then: Affine,
    /// Floats, or halves that are widened.
    weights: Tensor,
    /// For each output channel.
    pub(crate) bias: Option<Vec<f32>>,
}

impl ConvWeights {
    /// Packs them, unless it is transposed, from where they lie, aligned or not: no copy is made on the way.
    ///
    /// # Errors
    /// As [`ConvF32::new`].
    pub(crate) fn pack(&self, isa: Isa, s: &ConvShape, epilogue: EpilogueF32) -> Result<ConvF32> {
        let (taps, each, bias) = (s.kh * s.kw, s.c_in / s.groups, self.bias.as_deref());
        let (expected, found) = (s.weight_len(), self.weights.len());
        if expected != found {
            return Err(KernelError::Length { what: "convolution weights", expected, found }.into());
        }
        let at = |channel: usize, tap: usize, input: usize| (channel * each + input) * taps + tap;
        let t = match self.weights.dtype() {
            DType::F16 | DType::F32 => self.weights.contiguous(),
            _ => Tensor::new(self.weights.shape(), self.weights.to_f32().into_owned()),
        };
        let bytes = t.to_bytes();
        if t.dtype() == DType::F16 {
            let halves = bytes.as_chunks::<2>().0;
            let weight = |channel, tap, input| f16::from_le_bytes(halves[at(channel, tap, input)]);
            return Ok(ConvF32::of_halves(isa, s, weight, bias, epilogue)?);
        }
        let (floats, factors) = (bytes.as_chunks::<4>().0, self.then.factors());
        let weight = |channel, tap, input| f32::from_le_bytes(floats[at(channel, tap, input)]) * factors[channel];
        Ok(ConvF32::of_floats(isa, s, weight, bias, epilogue)?)
    }

    /// The weights in the kernels' order, for transposed ones, which are packed in several parts.
    pub(crate) fn ordered(&self) -> Weights<'_> {
        let (c, t) = (&self.conv, &self.weights);
        if let Some(halves) = t.elements::<f16>() {
            return Weights::Halves(c.reorder(halves));
        }
        let mut weights = c.reorder(t.to_f32());
        if !self.then.nodes.is_empty() {
            self.then.scale(weights.to_mut());
        }
        Weights::Floats(weights)
    }
}

impl Convolution {
    /// The order in which its operands are stored.
    pub(crate) fn order(&self, rank: usize) -> Vec<usize> {
        if self.linear { row_major(rank) } else { channels_last(rank) }
    }

    /// What it is called in kernel names.
    pub(crate) fn stem(&self, types: &str) -> String {
        let op = match (self.linear, self.transposed.is_some(), self.is_depthwise()) {
            (true, ..) => "linear",
            (_, true, _) => "conv_transpose2d",
            (.., true) => "dwconv2d",
            _ => "conv2d",
        };
        format!("{op}_{types}")
    }

    /// Whether each group has one channel, and there are several.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.shape.is_depthwise() && self.shape.groups > 1
    }

    /// The same of `x`, around whose rows and columns its own input has zeros: top, left, bottom, right.
    pub(crate) fn padded(mut self, x: NodeId, [top, left, bottom, right]: [usize; 4]) -> Convolution {
        let s = &mut self.shape;
        (s.h, s.w) = (s.h - top - bottom, s.w - left - right);
        s.pad = [s.pad[0] + top, s.pad[1] + left, s.pad[2] + bottom, s.pad[3] + right];
        Convolution { x, ..self }
    }

    /// Weights in the kernels' order, `[c_out, kh, kw, c_in / groups]`, from torch's.
    pub(crate) fn reorder<'w, T: Copy>(&self, w: Cow<'w, [T]>) -> Cow<'w, [T]> {
        let s = &self.shape;
        let (taps, each) = (s.kh * s.kw, s.c_in / s.groups);
        if taps == 1 && self.transposed.is_none() {
            return w;
        }
        let mut out = Vec::with_capacity(w.len());
        let per_group = s.c_out / s.groups;
        for o in 0..s.c_out {
            for tap in 0..taps {
                match self.transposed {
                    None => out.extend(w[o * each * taps..][..each * taps].chunks_exact(taps).map(|c| c[tap])),
                    // torch's transposed weights: [c_in, c_out / groups, kh, kw].
                    Some(_) => {
                        let first = o / per_group * each * per_group + o % per_group;
                        out.extend(w[first * taps + tap..].iter().step_by(per_group * taps).take(each));
                    }
                }
            }
        }
        out.into()
    }
}

impl Calls<'_> {
    /// Whether a call is a convolution or a linear layer.
    pub(super) fn convolves(&self, id: NodeId) -> bool {
        CONVOLUTIONS.contains(&self.op(id))
    }

    /// The convolution that a call is; none where its weights are computed, or kernels know no such geometry.
    pub(crate) fn convolution(&self, id: NodeId) -> Option<Convolution> {
        let a = self.args(id);
        if !self.convolves(id) || self.is_empty(id) {
            return None;
        }
        let (x, weight, bias) = (a.tensor("input")?, a.tensor("weight")?, a.tensor("bias"));
        let constant = self.is_constant(weight) && bias.is_none_or(|b| self.is_constant(b));
        if !constant || !self.is_float(x) || !self.is_float(weight) {
            return None;
        }
        let (xs, w, linear) = (self.shape(x).ok()?, self.shape(weight).ok()?, self.base(id) == "linear");
        let (shape, transposed) = match w.as_slice() {
            [c_out, c_in] if linear => (ConvShape::linear(xs.split_last()?.1.iter().product(), *c_in, *c_out), None),
            [_, _, _] | [_, _, _, _] if !linear => {
                let transposed = self.base(id).starts_with("conv_transpose") || a.bool("transposed");
                spatial(&a, &xs, &w, transposed)?
            }
            _ => return None,
        };
        Some(Convolution { id, x, weight, bias, shape, transposed, linear })
    }

    /// Weights and bias of a float convolution, with what follows it put in.
    ///
    /// # Errors
    /// Weights that are no constants.
    pub(crate) fn weights(&self, c: &Convolution, then: Affine) -> Result<ConvWeights> {
        let bias = c.bias.map(|b| self.tensor(b)).transpose()?;
        let bias = then.shift(bias.map(|b| b.to_f32().into_owned()));
        let weights = match self.halves(c.weight) {
            Some(halves) => halves.clone(),
            None => self.tensor(c.weight)?,
        };
        Ok(ConvWeights { conv: c.clone(), then, weights, bias })
    }
}

/// Geometry from the arguments and the shapes of input and weight; of a transposed one the output padding, too.
fn spatial(a: &Args<'_>, xs: &[usize], w: &[usize], transposed: bool) -> Option<(ConvShape, Option<[usize; 2]>)> {
    let n = w.len() - 2;
    // One dimension is a row.
    let two = |name: &str, fill: usize| a.sizes(name, n).map(|v| if n == 1 { [fill, v[0]] } else { [v[0], v[1]] });
    let ([top, left], groups) = (two("padding", 0)?, usize::try_from(a.int("groups")?).ok()?);
    if xs.len() != n + 2 {
        return None;
    }
    let (h, kh) = if n == 1 { (1, 1) } else { (xs[2], w[2]) };
    let (c_in, c_out) = if transposed { (w[0], w[1] * groups) } else { (w[1] * groups, w[0]) };
    let (stride, dilation, pad) = (two("stride", 1)?, two("dilation", 1)?, [top, left, top, left]);
    let shape = ConvShape { n: xs[0], h, w: xs[n + 1], c_in, c_out, kh, kw: w[n + 1], stride, pad, dilation, groups };
    shape.check().ok()?;
    Some((shape, if transposed { Some(two("output_padding", 0)?) } else { None }))
}
