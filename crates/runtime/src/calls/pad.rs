//! Elements put around a tensor.

use super::Calls;
use cleave_ir::NodeId;

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
