//! Elements joined, padded and picked.

use super::Calls;
use cleave_ir::{Arg, NodeId};
use cleave_numerics::DType;

/// A tensor with elements of one value put around it.
#[derive(Clone, Debug)]
pub(crate) struct Pad {
    /// The tensor.
    pub(crate) x: NodeId,
    /// Elements before and behind it in each dimension.
    pub(crate) around: Vec<[usize; 2]>,
    /// Their value.
    pub(crate) value: f32,
}

impl Pad {
    /// The zeros that a convolution can put around the rows and columns itself: top, left, bottom, right; none if the pad
    /// is another one.
    pub(crate) fn frame(&self) -> Option<[usize; 4]> {
        match self.around.as_slice() {
            [[0, 0], [0, 0], [top, bottom], [left, right]] if self.value == 0.0 => Some([*top, *left, *bottom, *right]),
            _ => None,
        }
    }
}

impl Calls<'_> {
    /// The dimension along which a call joins tensors of its own type, and these.
    pub(crate) fn joined(&self, id: NodeId) -> Option<(usize, Vec<NodeId>)> {
        let parts = self.g.node(id).args.first().filter(|_| self.op(id) == "aten.cat.default").map(Arg::nodes)?;
        let dtype = |n: NodeId| self.g.tensor_meta(n).ok().map(|m| m.dtype);
        let dim = self.args(id).axis("dim", self.shape(id).ok()?.len())?;
        parts.iter().all(|p| dtype(*p) == dtype(id)).then_some((dim, parts))
    }

    /// The table whose rows a call picks, and their indices.
    pub(crate) fn picked(&self, id: NodeId) -> Option<(NodeId, NodeId)> {
        let a = self.args(id);
        let (table, indices) = (a.tensor("weight")?, a.tensor("indices")?);
        let fits = self.g.tensor_meta(indices).ok()?.dtype == DType::I64 && self.shape(table).ok()?.len() == 2;
        fits.then_some((table, indices))
    }

    /// The pad that a call is; none if it takes elements away.
    pub(crate) fn pad(&self, id: NodeId) -> Option<Pad> {
        let a = self.args(id);
        let (x, pads, value) = (a.tensor("self")?, a.ints("pad")?, a.float("value")?);
        let size = |p: i64| usize::try_from(p).ok();
        // The last dimension comes first.
        let mut around = pads.chunks(2).map(|p| Some([size(p[0])?, size(*p.get(1)?)?])).collect::<Option<Vec<_>>>()?;
        around.resize(self.shape(x).ok()?.len(), [0, 0]);
        around.reverse();
        Some(Pad { x, around, value })
    }
}
