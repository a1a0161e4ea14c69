//! Reductions, norms and resizing.

use super::Calls;
use crate::error::Result;
use cleave_ir::{Arg, NodeId};
use cleave_kernels::Isa;
use cleave_kernels::layer_norm::LayerNorm;
use cleave_kernels::reduce::Reduction;
use cleave_kernels::resize::{AxisTable, Coordinates, Nearest, Resize};

/// A reduction of neighbouring dimensions.
pub(crate) struct Reduced {
    /// The tensor.
    pub(crate) x: NodeId,
    /// The statistic; of two it is the first.
    pub(crate) op: Reduction,
    /// Sizes before, in and behind the dimensions reduced.
    pub(crate) dims: [usize; 3],
}

impl Calls<'_> {
    /// The floats of which a call makes floats, under these names.
    fn floats<const N: usize>(&self, id: NodeId, names: [&str; N]) -> Option<[NodeId; N]> {
        let nodes: Vec<NodeId> = names.iter().map(|n| self.args(id).tensor(n)).collect::<Option<_>>()?;
        let floats = self.is_float(id) && nodes.iter().all(|n| self.is_float(*n));
        nodes.try_into().ok().filter(|_| floats)
    }

    /// The tensor of which a call computes a softmax, along which dimension, and whether its logarithm is meant.
    pub(crate) fn softmax(&self, id: NodeId) -> Option<(NodeId, usize, bool)> {
        let [x] = self.floats(id, ["self"])?;
        let dim = self.args(id).axis("dim", self.shape(x).ok()?.len())?;
        Some((x, dim, self.base(id).contains("log")))
    }

    /// The two sides of a product of matrices.
    pub(crate) fn product(&self, id: NodeId) -> Option<[NodeId; 2]> {
        self.floats(id, ["self", "mat2"]).or_else(|| self.floats(id, ["self", "other"]))
    }

    /// The reduction that a call is.
    pub(crate) fn reduced(&self, id: NodeId) -> Option<Reduced> {
        let a = self.args(id);
        let op = match self.base(id) {
            "mean" => Reduction::Mean,
            "sum" => Reduction::Sum,
            "amax" => Reduction::Max,
            "amin" => Reduction::Min,
            "var" | "var_mean" => {
                Reduction::Variance { correction: if a.is_none("correction") { 1.0 } else { a.float("correction")? } }
            }
            _ => return None,
        };
        let x = a.tensor("self").filter(|x| self.is_float(*x))?;
        let shape = self.shape(x).ok()?;
        let mut axes = a.axes("dim", shape.len())?;
        axes.sort_unstable();
        let (first, last) = (*axes.first()?, axes.last()? + 1);
        let size = |r: std::ops::Range<usize>| shape[r].iter().product::<usize>();
        let dims = [size(0..first), size(first..last), size(last..shape.len())];
        axes.into_iter().eq(first..last).then_some(Reduced { x, op, dims })
    }

    /// The tensor that a call normalizes, and how; none if the weights are computed.
    ///
    /// # Errors
    /// Weights that do not fit.
    pub(crate) fn layer_norm(&self, isa: Isa, id: NodeId) -> Result<Option<(NodeId, LayerNorm)>> {
        let a = self.args(id);
        let (Some([x]), Some(dims), Some(eps)) =
            (self.floats(id, ["input"]), a.ints("normalized_shape"), a.float("eps"))
        else {
            return Ok(None);
        };
        let mut parts = [None, None];
        for (part, name) in parts.iter_mut().zip(["weight", "bias"]) {
            match a.tensor(name) {
                Some(n) if self.is_constant(n) => *part = Some(self.tensor(n)?.to_f32().into_owned()),
                Some(_) => return Ok(None),
                None => {}
            }
        }
        let n = dims.iter().map(|d| usize::try_from(*d).unwrap_or(0)).product();
        Ok(Some((x, LayerNorm::new(isa, n, eps, parts[0].as_deref(), parts[1].as_deref())?)))
    }

    /// The images that a call resizes, how it does so, and whether elements are interpolated; none if they are no floats.
    ///
    /// # Errors
    /// Sizes that kernels do not admit.
    pub(crate) fn resized(&self, isa: Isa, id: NodeId) -> Result<Option<(NodeId, Resize, bool)>> {
        let a = self.args(id);
        let Some(x) = a.tensor("input").filter(|x| self.is_float(*x)) else { return Ok(None) };
        let (from, to) = (self.shape(x)?, self.shape(id)?);
        let scale = |i: usize| match a.list("scale_factors")?.get(i)? {
            Arg::Float(f) => Some((1.0 / f) as f32),
            _ => None,
        };
        let linear = self.base(id) == "upsample_bilinear2d";
        let mode = if a.bool("align_corners") { Coordinates::AlignCorners } else { Coordinates::HalfPixel };
        let axis = |i: usize| match linear {
            true => AxisTable::linear(from[2 + i], to[2 + i], mode, scale(i)),
            false => AxisTable::nearest(from[2 + i], to[2 + i], Coordinates::Asymmetric, Nearest::Floor, scale(i)),
        };
        Ok(Some((x, Resize::new(isa, to[0], to[1], axis(0)?, axis(1)?), linear)))
    }
}
