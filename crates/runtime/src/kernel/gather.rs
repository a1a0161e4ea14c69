//! Rows of a table, picked by indices: embeddings.

use super::{Io, Kernel};
use crate::error::{Result, RuntimeError};

/// Reads a dense table of `rows × width` bytes and i64 indices, writes one row for each.
pub(crate) struct GatherKernel {
    /// Rows of the table.
    pub(crate) rows: usize,
    /// Bytes of a row.
    pub(crate) width: usize,
    /// The node, for errors.
    pub(crate) node: String,
    /// The op, for errors.
    pub(crate) op: &'static str,
}

impl Kernel for GatherKernel {
    fn name(&self) -> String {
        "gather".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (table, indices) = (io.reads[0], io.reads[1]);
        let rows = io.writes[0].chunks_exact_mut(self.width.max(1));
        for (to, index) in rows.zip(indices.chunks_exact(8)) {
            let index = i64::from_ne_bytes(index.try_into().expect("invariant: chunks of eight bytes"));
            let at = if index < 0 { index + self.rows as i64 } else { index };
            let at =
                usize::try_from(at).ok().filter(|at| *at < self.rows).ok_or_else(|| RuntimeError::Unsupported {
                    op: self.op.into(),
                    node: self.node.clone(),
                    why: format!("index {index} of {} rows", self.rows),
                })?;
            to.copy_from_slice(&table[at * self.width..(at + 1) * self.width]);
        }
        Ok(())
    }
}
