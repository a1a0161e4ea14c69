//! Pointwise ops as steps of programs.

use super::{Deferred, Lower, Region, State};
use crate::calls::{Form, Operand, Quant};
use crate::error::Result;
use crate::kernel::PointwiseKernel;
use crate::memory::{Value, channels_last, row_major};
use cleave_ir::NodeId;
use cleave_kernels::pointwise::{Binary, Builder, Input, Pointwise, Program, Val};
use indexmap::IndexMap;

/// Defers a pointwise call.
pub(super) fn defer(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    if l.calls.form(id).is_none() {
        return Ok(None);
    }
    let shape = l.calls.shape(id)?;
    for arg in l.calls.reads(id) {
        // A small value that is repeated is computed once, not for each element.
        if l.calls.shape(arg)? != shape {
            l.settle(arg)?;
        }
    }
    Ok(Some(State::Deferred(Deferred::Pointwise)))
}

/// A program with the nodes that its inputs stand for.
pub(super) struct Compiled {
    pub(super) program: Program,
    pub(super) leaves: Vec<NodeId>,
}

/// Compiles a region; an anchor's result is the program's input 0. None if it exceeds what a program can hold.
pub(super) fn compile(l: &Lower<'_>, region: &Region, anchor: Option<NodeId>) -> Option<Compiled> {
    let mut p = Compiling { l, b: Builder::default(), values: IndexMap::new(), leaves: vec![] };
    if let Some(a) = anchor {
        let results = p.b.input(Input::F32);
        p.values.insert(a, results);
    }
    for id in &region.nodes {
        let form = l.calls.form(*id)?;
        let args: Vec<Val> = l.calls.operands(*id, form)?.into_iter().map(|a| p.operand(a)).collect();
        let value = match form {
            Form::Unary(u) => p.b.unary(u, args[0]),
            Form::Binary(op, alpha) => {
                let factor = if alpha == 1.0 { None } else { Some(p.b.constant(alpha)) };
                let right = factor.map_or(args[1], |f| p.b.binary(Binary::Mul, args[1], f));
                p.b.binary(op, args[0], right)
            }
        };
        p.values.insert(*id, value);
    }
    let result = p.operand(Operand::Node(region.root));
    p.b.store(result, region.output());
    Some(Compiled { program: p.b.build().ok()?, leaves: p.leaves })
}

/// A program that is being compiled: what nodes are in it, and which of them it reads.
struct Compiling<'a, 'g> {
    l: &'a Lower<'g>,
    b: Builder,
    values: IndexMap<NodeId, Val>,
    leaves: Vec<NodeId>,
}

impl Compiling<'_, '_> {
    fn operand(&mut self, operand: Operand) -> Val {
        let id = match operand {
            Operand::Number(f) => return self.b.constant(f),
            Operand::Node(n) => n,
        };
        if let Some(v) = self.values.get(&id) {
            return *v;
        }
        let value = if let Some(t) = self.l.calls.constant(id).filter(|t| t.len() == 1) {
            self.b.constant(t.to_f32()[0])
        } else {
            self.leaves.push(id);
            self.b.input(match self.l.levels(id) {
                Some((_, quant)) => Input::U8 { scale: quant.q.scale, zero_point: quant.q.zero_point },
                None => Input::F32,
            })
        };
        self.values.insert(id, value);
        value
    }
}

/// Emits a region without anchor as one kernel. None if it exceeds what a program can hold.
pub(super) fn emit(l: &mut Lower<'_>, region: &Region) -> Result<Option<Value>> {
    let Some(compiled) = compile(l, region, None) else { return Ok(None) };
    emit_program(l, region, compiled).map(Some)
}

/// Emits a program over whole tensors.
pub(super) fn emit_program(l: &mut Lower<'_>, region: &Region, compiled: Compiled) -> Result<Value> {
    let root = region.root;
    let shape = l.calls.shape(root)?;
    let leaves = compiled.leaves.iter().map(|n| l.leaf(*n)).collect::<Result<Vec<_>>>()?;
    let order = l.order_for(region.stored(), &leaves, &shape);
    let out = l.destination(region.stored(), &shape, region.storage(), &order);
    let order = if out.is_dense(&order) { order } else { out.order() };
    let pick = |v: &[usize]| order.iter().map(|d| v[*d]).collect::<Vec<_>>();
    let mut strides = vec![];
    for v in &leaves {
        let seen = v.broadcast(&shape);
        let seen = seen.ok_or_else(|| l.calls.unsupported(root, "an operand does not broadcast"))?;
        strides.push(pick(&seen.strides));
    }
    let body = Pointwise::new(l.isa, compiled.program, &pick(&shape), &strides, &[pick(&out.strides)])?;
    let nodes = region.covers();
    let kernel = PointwiseKernel { body };
    let reads: Vec<&Value> = leaves.iter().collect();
    if compiled.leaves.iter().all(|n| l.calls.is_reduced(*n)) && l.steps.just_made(&reads) {
        l.steps.join(kernel, &reads, &out, &nodes);
    } else {
        let name = l.steps.fused_name("poi_fused", &nodes);
        l.step(Box::new(kernel), &reads, &[&out], &name, &nodes);
    }
    Ok(out)
}

impl Lower<'_> {
    /// The levels that a program reads for a leaf; none if it reads floats.
    fn levels(&self, id: NodeId) -> Option<(&Value, &Quant)> {
        match self.state(id) {
            State::Dequant(v, q) if !self.floats.contains_key(&id) => Some((v, q)),
            _ => None,
        }
    }

    /// The value that a program reads for a leaf: levels as they are stored, or floats.
    pub(super) fn leaf(&mut self, id: NodeId) -> Result<Value> {
        match self.levels(id) {
            Some((v, _)) => Ok(v.clone()),
            None => self.value(id),
        }
    }

    /// The order in which a pointwise result is stored: that of its operands, channels last if they differ.
    pub(super) fn order_for(&self, stored: NodeId, leaves: &[Value], shape: &[usize]) -> Vec<usize> {
        let whole = || leaves.iter().filter(|v| v.shape == shape);
        let wants = shape.len() >= 3 && self.g.users(stored).iter().any(|u| self.calls.is_spatial(*u));
        if whole().any(Value::is_channels_last) || wants {
            return channels_last(shape.len());
        }
        whole().next().map_or_else(|| row_major(shape.len()), Value::order)
    }
}
