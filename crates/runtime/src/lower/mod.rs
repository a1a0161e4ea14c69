//! From a graph of known sizes to steps: what is fused with what, where values lie, and which kernel runs it.
//!
//! Nodes are visited in order. A pointwise op, or a convolution whose result has one use, is *deferred*: nothing is
//! emitted until something needs its value in memory. What is needed then takes all that was deferred on the way
//! to it into one kernel: a region is one compute op, or none, and the pointwise ops behind it. A quantize is
//! such a need; a dequantize is none, its value *means* the floats and is read by whoever comes next.

mod computed;
mod conv;
mod fallback;
mod moving;
mod pointwise;
mod pool;
mod qconv;
mod quantized;
mod region;
mod rows;
mod state;
mod view;

use crate::calls::{Calls, Quant};
use crate::error::Result;
use crate::kernel::CopyKernel;
use crate::memory::{Storage, Value};
use crate::packing::{Making, PackedWeights};
use crate::steps::{Stage, Steps};
use cleave_ir::{Class, Graph, Kind, NodeId};
use cleave_kernels::Isa;
use indexmap::{IndexMap, IndexSet};
use region::Region;
use state::{Deferred, State};
use std::sync::Arc;

/// Lowers one call: what is known of its value then; none if it has no kernel for these arguments.
type Rule = fn(&mut Lower<'_>, NodeId) -> Result<Option<State>>;

/// What a family lowers: op by full name.
type Rules = &'static [(&'static str, Rule)];

/// Rules of single ops.
static RULES: &[Rules] = &[moving::RULES, pool::RULES, rows::RULES, quantized::RULES, computed::RULES];

/// Rules that know by the call whether it is theirs. What none takes falls back to the reference interpreter.
static KINDS: [Rule; 3] = [view::lower, conv::defer, pointwise::defer];

/// Lowering in progress.
struct Lower<'g> {
    g: &'g Arc<Graph>,
    calls: Calls<'g>,
    isa: Isa,
    packed: &'g PackedWeights,
    /// Convolutions that are computed in float, for their sums may leave an i32.
    wide: &'g IndexSet<NodeId>,
    steps: Steps<'g>,
    states: Vec<State>,
    /// Values that were dequantized or uploaded for a node on demand.
    floats: IndexMap<NodeId, Value>,
    /// Buffers of concatenations that producers write into.
    cats: IndexMap<NodeId, Value>,
}

/// Lowers a graph whose sizes are numbers: its steps, and the values of its results. Those from `first_tap` on are
/// handed over as they are computed. The convolutions of `wide` are computed in float.
///
/// # Errors
/// A call that neither a kernel nor the reference interpreter admits.
pub(crate) fn lower<'g>(
    g: &'g Arc<Graph>,
    isa: Isa,
    first_tap: usize,
    packed: &'g PackedWeights,
    wide: &'g IndexSet<NodeId>,
) -> Result<(Steps<'g>, Vec<Value>)> {
    let (floats, cats) = (IndexMap::new(), IndexMap::new());
    let states = vec![State::Unset; g.len()];
    let mut l = Lower { g, calls: Calls::of(g)?, isa, packed, wide, steps: Steps::of(g), states, floats, cats };
    let results = g.results();
    let (results, taps) = results.split_at(first_tap);
    let (mut values, mut inputs) = (vec![], 0);
    for (id, node) in g.nodes() {
        match node.kind {
            Kind::Placeholder => {
                let (shape, storage) = (l.calls.shape(id)?, Storage::of(g.tensor_meta(id)?.dtype));
                l.states[id.index()] = State::Stored(l.steps.input(inputs, &shape, storage));
                inputs += 1;
            }
            Kind::GetAttr(_) => l.states[id.index()] = State::Constant,
            Kind::Call(_) => l.call(id)?,
            Kind::Output => values = results.iter().map(|r| l.value(*r)).collect::<Result<_>>()?,
        }
        for (index, _) in taps.iter().enumerate().filter(|(_, tap)| **tap == id) {
            let value = l.value(id)?;
            l.steps.stages.push(Stage::Tap(index, value));
        }
    }
    Ok((l.steps, values))
}

impl Lower<'_> {
    fn call(&mut self, id: NodeId) -> Result<()> {
        let Some(op) = self.g.node(id).op() else { return Ok(()) };
        if self.calls.is_known(id) {
            // One that is kept as it is belongs to the kernel that reads it.
            if !self.calls.is_meant(id) || self.calls.halves(id).is_some() {
                self.steps.runs(id, "constant");
            }
            self.states[id.index()] = State::Constant;
            return Ok(());
        }
        let state = self.lowered(id)?;
        if let State::Stored(_) | State::Dequant(..) | State::Computed(_) | State::Tuple(_) = state {
            self.steps.runs(id, if op.class == Class::Quantize { "fused" } else { "view" });
        }
        self.states[id.index()] = state;
        if matches!(self.state(id), State::Deferred(_)) && !self.may_wait(id) {
            self.value(id)?;
        }
        Ok(())
    }

    fn lowered(&mut self, id: NodeId) -> Result<State> {
        // Kernels take tensors with elements.
        let (op, full) = (self.calls.op(id), !self.calls.is_empty(id));
        let rules = RULES.iter().flat_map(|r| r.iter()).filter(|(name, _)| full && *name == op).map(|(_, rule)| *rule);
        for rule in KINDS.into_iter().chain(rules) {
            if let Some(state) = rule(self, id)? {
                return Ok(state);
            }
        }
        fallback::lower(self, id)
    }

    /// Whether a deferred value may wait: all its uses end up in one value that is not yet computed.
    fn may_wait(&self, id: NodeId) -> bool {
        let results = self.g.results();
        if results.contains(&id) {
            return false;
        }
        let mut pending = self.g.users(id);
        for _ in 0..16 {
            match pending.as_slice() {
                [] => return false,
                [_] => return true,
                _ => {}
            }
            let next = pending.remove(0);
            if self.calls.form(next).is_none() || results.contains(&next) {
                return false;
            }
            pending.extend(self.g.users(next));
            pending.sort();
            pending.dedup();
        }
        false
    }

    /// What is known of a node's value.
    fn state(&self, id: NodeId) -> &State {
        &self.states[id.index()]
    }

    /// Appends a kernel that computes `out`; `nodes` are those that it covers, `stem` its name without number.
    fn step(&mut self, kernel: impl Into<Making>, reads: &[&Value], out: &[&Value], stem: &str, nodes: &[NodeId]) {
        let meant =
            |a: &NodeId| matches!(self.state(*a), State::Dequant(..) | State::Computed(_)) || self.calls.is_meant(*a);
        let meant: Vec<NodeId> = nodes.iter().flat_map(|n| self.calls.reads(*n)).filter(meant).collect();
        self.steps.push(kernel.into(), (reads, out), stem, nodes, &meant);
    }

    /// A node's value in memory as it stands: floats where it is a float, emitted now if it was deferred.
    fn value(&mut self, id: NodeId) -> Result<Value> {
        if let Some(v) = self.floats.get(&id) {
            return Ok(v.clone());
        }
        let value = match self.state(id).clone() {
            State::Stored(v) => return Ok(v),
            State::Deferred(_) => {
                let v = self.materialise(id, None)?;
                self.states[id.index()] = State::Stored(v.clone());
                return Ok(v);
            }
            State::Dequant(..) => self.materialise(id, None)?,
            State::Computed(c) => computed::floats(self, id, &c),
            State::Constant => self.steps.upload(&self.calls.tensor(id)?),
            State::Tuple(_) | State::Unset => return Err(self.calls.unsupported(id, "its value is not one tensor")),
        };
        self.floats.insert(id, value.clone());
        Ok(value)
    }

    /// A node's value as levels with their meaning where it lies so, else in memory as it stands.
    fn levels_or_value(&mut self, id: NodeId) -> Result<(Value, Option<Quant>)> {
        match self.state(id).clone() {
            State::Dequant(v, q) => Ok((v, Some(q))),
            _ => Ok((self.value(id)?, None)),
        }
    }

    /// The value with its dimensions stored in this order without gaps; copied where it is not.
    fn dense(&mut self, value: &Value, order: &[usize]) -> Value {
        if value.is_dense(order) { value.clone() } else { self.copied(value, order) }
    }

    /// [`Lower::dense`] in the order in which the value lies.
    fn gapless(&mut self, value: &Value) -> Value {
        self.dense(value, &value.order())
    }

    /// A copy with its dimensions stored in this order.
    fn copied(&mut self, value: &Value, order: &[usize]) -> Value {
        let out = self.steps.alloc(&value.shape, value.storage, order);
        self.copy(value, &out, &[]);
        out
    }

    /// Copies a value into a window of the same shape.
    fn copy(&mut self, from: &Value, to: &Value, nodes: &[NodeId]) {
        self.step(Box::new(CopyKernel::new(from, to)), &[from], &[to], "copy", nodes);
    }

    /// Where a node's value is to be written: into a concatenation that is its only use, or anew.
    fn destination(&mut self, id: NodeId, shape: &[usize], storage: Storage, order: &[usize]) -> Value {
        moving::slot(self, id, storage, order).unwrap_or_else(|| self.steps.alloc(shape, storage, order))
    }

    /// Where a region's value is to be written by a kernel that writes pixels, and the elements from one to the next.
    fn pixels(&mut self, region: &Region, order: &[usize]) -> Result<(Value, usize)> {
        let shape = self.calls.shape(region.root)?;
        let out = self.destination(region.stored(), &shape, region.storage(), order);
        let stride = out.pixel_stride(order);
        Ok((out, stride.ok_or_else(|| self.calls.unsupported(region.root, "its output has no pixel stride"))?))
    }
}
