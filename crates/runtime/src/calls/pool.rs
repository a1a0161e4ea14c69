//! Windows of pools.

use super::Calls;
use cleave_ir::NodeId;
use cleave_kernels::Isa;
use cleave_kernels::pool::{AvgPool, PoolShape};

impl Calls<'_> {
    /// The tensor that a call pools, and its windows over the last two of four dimensions.
    pub(crate) fn windows(&self, id: NodeId) -> Option<(NodeId, PoolShape)> {
        let a = self.args(id);
        let x = a.tensor("self")?;
        let [n, c, h, w] = *self.shape(x).ok()?.as_slice() else { return None };
        let pair = |name: &str| a.sizes(name, 2).map(|v| [v[0], v[1]]);
        let kernel = pair("kernel_size")?;
        let stride = if a.ints("stride")?.is_empty() { kernel } else { pair("stride")? };
        let [rows, cols] = pair("padding")?;
        let dilation = pair("dilation").unwrap_or([1, 1]);
        let [_, _, oh, ow] = *self.result_shapes(id)?.first()?.as_slice() else { return None };
        let pad = [rows, cols, rows, cols];
        Some((x, PoolShape { n, h, w, c, kernel, stride, pad, dilation, out: [oh, ow] }))
    }

    /// The tensor whose means a call computes, and of which windows.
    pub(crate) fn means(&self, isa: Isa, id: NodeId) -> Option<(NodeId, AvgPool)> {
        let a = self.args(id);
        let x = a.tensor("self")?;
        let [n, c, h, w] = *self.shape(x).ok()?.as_slice() else { return None };
        if !self.is_float(x) || !self.is_float(id) || [n, c, h, w].contains(&0) {
            return None;
        }
        let pool = match self.base(id) {
            "avg_pool2d" => {
                let divisor = match a.is_none("divisor_override") {
                    true => None,
                    false => Some(usize::try_from(a.int("divisor_override")?).ok()?),
                };
                AvgPool::new(isa, &self.windows(id)?.1, a.bool("count_include_pad"), divisor)
            }
            "mean" => {
                let mut axes = a.axes("dim", 4)?;
                axes.sort_unstable();
                if axes != [2, 3] {
                    return None;
                }
                AvgPool::global(isa, [n, h, w, c])
            }
            _ => {
                let out = a.sizes("output_size", 2)?;
                AvgPool::adaptive(isa, [n, h, w, c], [out[0], out[1]])
            }
        };
        Some((x, pool.ok()?))
    }
}
