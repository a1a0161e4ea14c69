//! What is computed when the model is compiled, and what the reference interpreter computes when it runs.

use super::{Lower, State};
use crate::error::Result;
use crate::kernel::{Operand, ReferenceKernel};
use crate::memory::carve::MAX_WRITES;
use crate::memory::{Storage, row_major};
use crate::reference;
use cleave_ir::{Arg, Bindings, Meta, NodeId, Tensor};
use cleave_numerics::DType;
use half::f16;

/// Largest result that is computed beforehand, in elements.
const MAX_FOLDED: i64 = 1 << 26;

impl Lower<'_> {
    /// Computes a call of constants now.
    pub(crate) fn fold(&mut self, id: NodeId) -> Result<bool> {
        let node = self.g.node(id);
        if halves(self, id).is_some() && self.g.users(id).iter().all(|user| widens(self, *user, id)) {
            self.nodes.insert(node.name.clone(), "constant".into());
            self.states[id.index()] = State::DequantConstant;
            return Ok(true);
        }
        let args: Vec<NodeId> = node.args.iter().flat_map(Arg::nodes).collect();
        let constant = |n: &NodeId| matches!(self.state(*n), State::Constant(_) | State::DequantConstant);
        let small = |m: &Meta| {
            let size: Option<i64> =
                m.as_tensor().map(|t| t.shape.iter().map(|d| d.as_const()).product::<Option<i64>>())?;
            Some(size? <= MAX_FOLDED)
        };
        if !args.iter().all(constant) || small(&node.meta) == Some(false) {
            return Ok(false);
        }
        let tensors = args.iter().map(|n| tensor(self, *n)).collect::<Result<Vec<_>>>()?;
        let results = reference::eval_node(self.g, id, &tensors, &Bindings::new())?;
        let state = state(&node.meta, &mut results.into_iter().map(State::Constant));
        self.nodes.insert(node.name.clone(), "constant".into());
        self.states[id.index()] = state;
        Ok(true)
    }
}

/// The constant of half-precision numbers that a node is in f32.
pub(crate) fn halves<'l>(l: &'l Lower<'_>, id: NodeId) -> Option<&'l Tensor> {
    let node = l.g.node(id);
    let casts = matches!(node.op()?.base(), "_to_copy" | "convert_element_type");
    match node.args.first() {
        Some(Arg::Node(x)) if casts && l.g.tensor_meta(id).ok()?.dtype == DType::F32 => match l.state(*x) {
            State::Constant(t) if t.dtype() == DType::F16 => Some(t),
            _ => None,
        },
        _ => None,
    }
}

/// Elements of [`halves`].
pub(crate) fn half_elements(l: &Lower<'_>, id: NodeId) -> Option<Vec<f16>> {
    halves(l, id)?.elements::<f16>().map(|e| e.into_owned())
}

/// Whether a kernel reads this operand of a call as it is stored, and widens it on the way.
fn widens(l: &Lower<'_>, user: NodeId, operand: NodeId) -> bool {
    let node = l.g.node(user);
    let taken = matches!(
        node.op().map_or("", |o| o.name),
        "aten.conv1d.default"
            | "aten.conv2d.default"
            | "aten.conv_transpose1d.default"
            | "aten.conv_transpose2d.input"
            | "aten.convolution.default"
            | "aten.linear.default"
            | "aten.embedding.default"
    );
    let others = node.args.iter().flat_map(Arg::nodes).filter(|n| *n == operand).count();
    taken && others == 1 && matches!(node.arg("weight"), Some(Arg::Node(w)) if *w == operand)
}

/// The tensor of a constant node.
///
/// # Errors
/// A node that is none.
pub(crate) fn tensor(l: &Lower<'_>, id: NodeId) -> Result<Tensor> {
    match l.state(id) {
        State::Constant(t) => Ok(t.clone()),
        State::DequantConstant => {
            let args: Vec<NodeId> = l.g.node(id).args.iter().flat_map(Arg::nodes).collect();
            let tensors = args.iter().map(|n| tensor(l, *n)).collect::<Result<Vec<_>>>()?;
            let mut results = reference::eval_node(l.g, id, &tensors, &Bindings::new())?;
            results.pop().ok_or_else(|| l.unsupported(id, "it has no result"))
        }
        _ => Err(l.unsupported(id, "it is not a constant")),
    }
}

/// Leaves a call to the reference interpreter.
pub(crate) fn fallback(l: &mut Lower<'_>, id: NodeId) -> Result<()> {
    let node = l.g.node(id);
    let (mut args, mut reads) = (vec![], vec![]);
    for n in node.args.iter().flat_map(Arg::nodes) {
        if let State::Constant(_) | State::DequantConstant = l.state(n) {
            args.push(Operand::Constant(tensor(l, n)?));
            continue;
        }
        let value = l.value(n)?;
        let value = l.dense(&value, &row_major(value.shape.len()));
        args.push(Operand::Read(value.clone()));
        reads.push(value);
    }
    let mut metas = vec![];
    leaves(&node.meta, &mut metas);
    let mut results = vec![];
    for m in &metas {
        let Some(t) = m.as_tensor() else { return Err(l.unsupported(id, "its value is no tensor")) };
        let shape = t.shape.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()));
        let shape: Option<Vec<usize>> = shape.collect();
        let shape = shape.ok_or_else(|| l.unsupported(id, "its sizes depend on data"))?;
        // Levels that come from here are signed bytes like others.
        let storage = match (t.dtype, node.op().map(|o| o.base())) {
            (DType::I8, Some("quantize_per_tensor")) => Storage::S8,
            (d, _) => Storage::of(d),
        };
        results.push(l.alloc(&shape, storage, &row_major(shape.len())));
    }
    let stem = format!("reference.{}", node.op().map_or("none", |o| o.base()));
    let reads: Vec<_> = reads.iter().collect();
    if results.is_empty() {
        return Err(l.unsupported(id, "it has no result"));
    }
    // A step writes so many at most; others are computed again.
    for (i, part) in results.chunks(MAX_WRITES).enumerate() {
        let (graph, args, first) = (l.g.clone(), args.clone(), i * MAX_WRITES);
        let kernel = Box::new(ReferenceKernel { graph, node: id, args, first, results: part.to_vec() });
        l.step_to(kernel, &reads, &part.iter().collect::<Vec<_>>(), &stem, &[id]);
    }
    let state = state(&node.meta, &mut results.into_iter().map(State::Stored));
    l.set(id, state);
    Ok(())
}

/// The results of a call in order, also those in lists; one that was not asked for has no elements.
fn leaves(m: &Meta, out: &mut Vec<Meta>) {
    match m {
        Meta::Tuple(items) => items.iter().for_each(|m| leaves(m, out)),
        Meta::None => out.push(Meta::tensor(DType::F32, vec![0i64.into()])),
        m => out.push(m.clone()),
    }
}

/// [`leaves`] put together again.
fn state(m: &Meta, values: &mut dyn Iterator<Item = State>) -> State {
    match m {
        Meta::Tuple(items) => State::Tuple(items.iter().map(|m| state(m, values)).collect()),
        _ => values.next().unwrap_or(State::Unset),
    }
}
