//! Nodes without a kernel: run by the reference interpreter, and named so in the plan.

use super::{Io, Kernel};
use crate::error::Result;
use crate::memory::{Storage, Value};
use crate::reference;
use cleave_ir::{Bindings, Graph, NodeId, Tensor};
use std::sync::Arc;

/// One call, evaluated by the reference interpreter.
pub(crate) struct ReferenceKernel {
    /// A graph of the call and its inputs.
    pub(crate) graph: Arc<Graph>,
    /// The call.
    pub(crate) node: NodeId,
    /// Its tensors: row-major, or constants.
    pub(crate) args: Vec<Operand>,
    /// Which of its results is written first.
    pub(crate) first: usize,
    /// Element types and shapes of the results written, row-major.
    pub(crate) results: Vec<Value>,
}

/// A tensor among the arguments.
#[derive(Clone)]
pub(crate) enum Operand {
    /// The step's next read, as this value describes it.
    Read(Value),
    /// A constant.
    Constant(Tensor),
}

impl Kernel for ReferenceKernel {
    fn name(&self) -> String {
        format!("reference.{}", self.graph.node(self.node).op().map_or("none", |o| o.base()))
    }

    fn run(&self, io: &mut Io<'_, '_>) -> Result<()> {
        let mut reads = io.reads.iter();
        let tensors = self.args.iter().map(|a| match a {
            Operand::Constant(t) => Ok(t.clone()),
            Operand::Read(v) => {
                let mut bytes = reads.next().map_or(vec![], |b| b.to_vec());
                shift(v.storage, &mut bytes);
                Ok(Tensor::from_bytes(v.storage.dtype(), v.shape.clone(), Arc::new(bytes))?)
            }
        });
        let tensors = tensors.collect::<Result<Vec<_>>>()?;
        let results = reference::eval_node(&self.graph, self.node, &tensors, &Bindings::new())?;
        for ((to, value), t) in io.writes.iter_mut().zip(&self.results).zip(results.iter().skip(self.first)) {
            let bytes = t.to_bytes();
            let n = bytes.len().min(to.len());
            to[..n].copy_from_slice(&bytes[..n]);
            shift(value.storage, &mut to[..n]);
        }
        Ok(())
    }
}

/// Signed levels to the form in which they are stored, and back.
pub(crate) fn shift(storage: Storage, bytes: &mut [u8]) {
    if storage == Storage::S8 {
        bytes.iter_mut().for_each(|b| *b ^= 0x80);
    }
}
