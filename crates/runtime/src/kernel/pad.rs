//! A tensor with elements of one value put around it.

use super::{CopyKernel, Io, Kernel};
use crate::error::Result;
use crate::memory::Value;

/// Fills the result and copies the source into its window.
pub(crate) struct PadKernel {
    fill: [u8; 4],
    size: usize,
    copy: CopyKernel,
    /// Bytes before the window.
    start: usize,
}

impl PadKernel {
    /// Copies `src` to the window `inner` of a result whose other elements are `fill`.
    pub(crate) fn new(src: &Value, inner: &Value, fill: [u8; 4]) -> PadKernel {
        let size = inner.storage.size();
        PadKernel { fill, size, copy: CopyKernel::new(src, inner), start: inner.offset * size }
    }
}

impl Kernel for PadKernel {
    fn name(&self) -> String {
        "pad".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let out = &mut *io.writes[0];
        if self.size == 1 {
            out.fill(self.fill[0]);
        } else {
            out.chunks_exact_mut(4).for_each(|c| c.copy_from_slice(&self.fill));
        }
        self.copy.run_on(io.reads[0], &mut out[self.start..]);
        Ok(())
    }
}
