//! Calls without a kernel: the reference interpreter computes them when the model runs.

use super::{Lower, State};
use crate::calls::nest;
use crate::error::Result;
use crate::kernel::{Operand, ReferenceKernel};
use crate::memory::carve::MAX_WRITES;
use crate::memory::{Storage, Value, row_major};
use cleave_ir::{Meta, NodeId};
use cleave_numerics::DType;

/// Leaves a call to the reference interpreter.
pub(super) fn lower(l: &mut Lower<'_>, id: NodeId) -> Result<State> {
    let node = l.g.node(id);
    let (mut args, mut reads) = (vec![], vec![]);
    for n in l.calls.reads(id) {
        if l.calls.is_constant(n) {
            args.push(Operand::Constant(l.calls.tensor(n)?));
            continue;
        }
        let value = l.value(n)?;
        let value = l.dense(&value, &row_major(value.shape.len()));
        args.push(Operand::Read(value.clone()));
        reads.push(value);
    }
    let mut results = vec![];
    allocate(l, id, &node.meta, &mut results)?;
    if results.is_empty() {
        return Err(l.calls.unsupported(id, "it has no result"));
    }
    let stem = format!("reference.{}", l.calls.base(id));
    let reads: Vec<&Value> = reads.iter().collect();
    // A step writes so many at most; others are computed again.
    for (i, part) in results.chunks(MAX_WRITES).enumerate() {
        let (graph, args, first) = (l.g.clone(), args.clone(), i * MAX_WRITES);
        let kernel = Box::new(ReferenceKernel { graph, node: id, args, first, results: part.to_vec() });
        l.step(kernel, &reads, &part.iter().collect::<Vec<_>>(), &stem, &[id]);
    }
    let mut results = results.into_iter().map(State::Stored);
    nest(&node.meta, &mut results, State::Tuple).ok_or_else(|| l.calls.unsupported(id, "a result is missing"))
}

/// Values for the results of a call in order, also those in lists; one that was not asked for has no elements.
fn allocate(l: &mut Lower<'_>, id: NodeId, meta: &Meta, results: &mut Vec<Value>) -> Result<()> {
    if let Meta::Tuple(items) = meta {
        return items.iter().try_for_each(|m| allocate(l, id, m, results));
    }
    let (dtype, shape) = match meta {
        Meta::None => (DType::F32, Some(vec![0])),
        Meta::Tensor(t) => (t.dtype, crate::calls::sizes(meta)),
        _ => return Err(l.calls.unsupported(id, "its value is no tensor")),
    };
    let shape = shape.ok_or_else(|| l.calls.unsupported(id, "its sizes depend on data"))?;
    // Levels that come from here are signed bytes like others.
    let storage = match (dtype, l.calls.base(id)) {
        (DType::I8, "quantize_per_tensor") => Storage::S8,
        _ => Storage::of(dtype),
    };
    results.push(l.steps.alloc(&shape, storage, &row_major(shape.len())));
    Ok(())
}
