//! Pointwise programs over whole tensors.

use super::{Io, Kernel, floats, floats_mut};
use crate::error::Result;
use cleave_kernels::pointwise::{Data, DataMut, Input, MAX_INPUTS, MAX_OUTPUTS, Output, Pointwise};
use std::ops::Range;

/// A program over strided operands.
pub(crate) struct PointwiseKernel {
    /// The bound program.
    pub(crate) body: Pointwise,
}

impl Kernel for PointwiseKernel {
    fn name(&self) -> String {
        "pointwise".into()
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let program = self.body.program();
        let (ni, no) = (io.reads.len(), io.writes.len());
        let mut inputs = [Data::U8(&[]); MAX_INPUTS];
        for (data, (kind, bytes)) in inputs.iter_mut().zip(program.inputs().iter().zip(io.reads)) {
            *data = match kind {
                Input::F32 => Data::F32(floats(bytes)),
                Input::U8 { .. } => Data::U8(bytes),
            };
        }
        let mut outputs: [DataMut<'_>; MAX_OUTPUTS] = std::array::from_fn(|_| DataMut::U8(&mut []));
        for (data, (kind, bytes)) in outputs.iter_mut().zip(program.outputs().iter().zip(io.writes.iter_mut())) {
            *data = match kind {
                Output::F32 => DataMut::F32(floats_mut(bytes)),
                Output::U8(_) => DataMut::U8(bytes),
            };
        }
        Ok(self.body.run(io.pool, &inputs[..ni], &mut outputs[..no])?)
    }
}

/// A kernel, and a program over what it has just written; the program's result is written behind the kernel's.
pub(crate) struct ThenKernel {
    /// The kernel: it writes one value.
    pub(crate) first: Box<dyn Kernel>,
    /// Bytes of that value that are the program's operands.
    pub(crate) parts: Vec<Range<usize>>,
    /// The program.
    pub(crate) then: PointwiseKernel,
}

impl Kernel for ThenKernel {
    fn name(&self) -> String {
        format!("{} {}", self.first.name(), self.then.name())
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        self.first.scratch_bytes(threads)
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let (made, out) = io.writes.split_at_mut(1);
        self.first.run(&mut Io { pool: io.pool, reads: io.reads, writes: made, scratch: io.scratch })?;
        let mut reads: [&[u8]; MAX_INPUTS] = [&[]; MAX_INPUTS];
        for (read, part) in reads.iter_mut().zip(&self.parts) {
            *read = &made[0][part.clone()];
        }
        let (reads, mut writes) = (&reads[..self.parts.len()], [&mut *out[0]]);
        self.then.run(&mut Io { pool: io.pool, reads, writes: &mut writes, scratch: &mut [] })
    }
}
