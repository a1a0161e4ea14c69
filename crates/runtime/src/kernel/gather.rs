//! Rows of a table, picked by indices: embeddings.

use super::{Io, Kernel, floats_mut};
use crate::error::{Result, RuntimeError};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Reads a dense table of `rows × width` bytes and i64 indices, writes one row for each: as it is, or halves as floats.
pub(crate) struct GatherKernel {
    /// Rows of the table.
    pub(crate) rows: usize,
    /// Bytes of a row.
    pub(crate) width: usize,
    /// Whether the table is of halves and the result of floats.
    pub(crate) widens: bool,
    /// The node, for errors.
    pub(crate) node: String,
    /// The op, for errors.
    pub(crate) op: &'static str,
}

impl Kernel for GatherKernel {
    fn name(&self) -> String {
        if self.widens { "gather_f16".into() } else { "gather".into() }
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (table, indices) = (io.reads[0], io.reads[1]);
        let width = if self.widens { 2 * self.width } else { self.width };
        let rows = io.writes[0].chunks_exact_mut(width.max(1));
        for (to, index) in rows.zip(indices.chunks_exact(8)) {
            let index = i64::from_ne_bytes(index.try_into().expect("invariant: chunks of eight bytes"));
            let at = if index < 0 { index + self.rows as i64 } else { index };
            let at =
                usize::try_from(at).ok().filter(|at| *at < self.rows).ok_or_else(|| RuntimeError::Unsupported {
                    op: self.op.into(),
                    node: self.node.clone(),
                    why: format!("index {index} of {} rows", self.rows),
                })?;
            let from = &table[at * self.width..(at + 1) * self.width];
            if self.widens {
                let halves: &[f16] = bytemuck::cast_slice(from);
                halves.convert_to_f32_slice(floats_mut(to));
            } else {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}
