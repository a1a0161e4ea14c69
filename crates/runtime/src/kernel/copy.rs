//! Elements copied between strided windows: what a view becomes that strides cannot express.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use crate::memory::Value;
use cleave_kernels::quant::transpose;

/// A copy between two windows of one shape and storage.
pub(crate) struct CopyKernel {
    /// Bytes of an element.
    size: usize,
    /// Sizes with the steps of source and destination, in elements; merged, outermost first; at least two.
    dims: Vec<[usize; 3]>,
    /// Batch, rows and columns of the source, if the copy is a transposition of dense matrices.
    transposed: Option<[usize; 3]>,
}

impl CopyKernel {
    /// From `src` to `dst`.
    pub(crate) fn new(src: &Value, dst: &Value) -> CopyKernel {
        let mut dims: Vec<[usize; 3]> = Vec::new();
        for d in dst.order().into_iter().filter(|d| dst.shape[*d] != 1) {
            let (n, s, t) = (dst.shape[d], src.strides[d], dst.strides[d]);
            match dims.last_mut() {
                Some(last) if last[1] == s * n && last[2] == t * n => *last = [last[0] * n, s, t],
                _ => dims.push([n, s, t]),
            }
        }
        while dims.len() < 2 {
            dims.insert(0, [1, 0, 0]);
        }
        let transposed = dense_transposition(&dims);
        // A transposition walks its source's contiguous dimension in the second place.
        let last = dims.len() - 1;
        if dims[last][1] != 1
            && let Some(at) = (0..last).find(|i| dims[*i][1] == 1)
        {
            let d = dims.remove(at);
            dims.insert(last - 1, d);
        }
        CopyKernel { size: dst.storage.size(), dims, transposed }
    }

    /// Copies; both slices start at their window's first element.
    pub(crate) fn run_on(&self, from: &[u8], to: &mut [u8]) {
        if self.dims.iter().any(|d| d[0] == 0) {
            return;
        }
        match self.size {
            1 => self.run_as::<u8>(from, to),
            2 => self.run_as::<[u8; 2]>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
            4 => self.run_as::<[u8; 4]>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
            _ => self.run_as::<[u8; 8]>(bytemuck::cast_slice(from), bytemuck::cast_slice_mut(to)),
        }
    }

    fn run_as<T: bytemuck::Pod>(&self, from: &[T], to: &mut [T]) {
        let (outer, inner) = self.dims.split_at(self.dims.len() - 2);
        let count: usize = outer.iter().map(|d| d[0]).product();
        for i in 0..count {
            let (mut rest, mut s, mut t) = (i, 0, 0);
            for [n, src, dst] in outer.iter().rev() {
                let at = rest % n;
                rest /= n;
                s += at * src;
                t += at * dst;
            }
            plane(&from[s..], &mut to[t..], inner[0], inner[1]);
        }
    }
}

/// Batch, rows and columns of the source, if these dimensions (as the destination stores them) are so.
fn dense_transposition(dims: &[[usize; 3]]) -> Option<[usize; 3]> {
    let (batch, [[cols, 1, into], [rows, from, 1]]) = dims.split_last_chunk::<2>()? else { return None };
    let matrix = rows * cols;
    let batch = match batch {
        [] => 1,
        [[n, s, t]] if *s == matrix && *t == matrix => *n,
        _ => return None,
    };
    (from == cols && into == rows).then_some([batch, *rows, *cols])
}

/// Side of the squares in which planes are transposed.
const BLOCK: usize = 16;

/// Copies two dimensions.
fn plane<T: Copy>(from: &[T], to: &mut [T], rows: [usize; 3], cols: [usize; 3]) {
    let ([n, rs, rt], [m, cs, ct]) = (rows, cols);
    if cs == 1 && ct == 1 {
        for r in 0..n {
            to[r * rt..r * rt + m].copy_from_slice(&from[r * rs..r * rs + m]);
        }
        return;
    }
    for r0 in (0..n).step_by(BLOCK) {
        for c0 in (0..m).step_by(BLOCK) {
            for r in r0..n.min(r0 + BLOCK) {
                for c in c0..m.min(c0 + BLOCK) {
                    to[r * rt + c * ct] = from[r * rs + c * cs];
                }
            }
        }
    }
}

impl Kernel for CopyKernel {
    fn name(&self) -> String {
        if self.transposed.is_some() { "transpose".into() } else { "copy".into() }
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (from, to) = (io.reads[0], &mut *io.writes[0]);
        match (self.transposed, self.size) {
            (Some(dims), 1) => transpose(io.pool, dims, from, to)?,
            (Some(dims), 4) => transpose(io.pool, dims, floats(from), floats_mut(to))?,
            _ => self.run_on(from, to),
        }
        Ok(())
    }
}
