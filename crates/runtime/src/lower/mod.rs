//! From a graph of known sizes to steps: what is fused with what, where values lie, and which kernel runs it.
//!
//! Nodes are visited in order. A pointwise op, or a convolution whose result has one use, is *deferred*: nothing is
//! emitted until something needs its value in memory. What is needed then takes all that was deferred on the way
//! to it into one kernel: a region is one compute op, or none, and the pointwise ops behind it. A quantize is
//! such a need; a dequantize is none, its value *means* the floats and is read by whoever comes next.

mod affine;
mod args;
mod computed;
mod constant;
mod conv;
mod fuse;
mod moving;
mod pointwise;
mod pool;
mod qconv;
mod quantized;
mod rows;
mod state;
mod view;

pub(crate) use args::Args;
pub(crate) use state::{Deferred, Quant, State};

use crate::error::Result;
use crate::kernel::Kernel;
use crate::memory::{Buffer, Home, Span, Storage, Value, channels_last, row_major, strides_in};
use crate::plan::PlannedKernel;
use cleave_ir::macs::macs;
use cleave_ir::{Arg, Bindings, Class, Graph, Kind, Meta, NodeId};
use cleave_kernels::Isa;
use cleave_kernels::conv_f32::{ConvF32, EpilogueF32};
use indexmap::IndexMap;
use std::sync::{Arc, Mutex};

/// Lowers one call; false if it has no kernel for these arguments.
type Rule = fn(&mut Lower<'_>, NodeId) -> Result<bool>;

/// What a family lowers: op by full name.
type Rules = &'static [(&'static str, Rule)];

/// All rules. What none of them takes is pointwise, or falls back to the reference interpreter.
static RULES: &[Rules] =
    &[view::RULES, moving::RULES, conv::RULES, pool::RULES, rows::RULES, quantized::RULES, computed::RULES];

/// One step of a compiled model.
pub(crate) enum Stage {
    /// A kernel.
    Run(Step),
    /// A value is handed to the tap with this index.
    Tap(usize, Value),
}

/// A kernel with its operands.
pub(crate) struct Step {
    /// The kernel.
    pub(crate) kernel: Box<dyn Kernel>,
    /// What it reads.
    pub(crate) reads: Vec<Span>,
    /// What it writes.
    pub(crate) writes: Vec<Span>,
    /// Its row of the plan.
    pub(crate) planned: PlannedKernel,
}

/// Packed weights by node: they serve every shape that a model is compiled for, and every session for it.
pub(crate) type PackedWeights = Arc<Mutex<IndexMap<String, (ConvF32, EpilogueF32)>>>;

/// What lowering yields.
pub(crate) struct Lowered {
    /// Steps in order.
    pub(crate) stages: Vec<Stage>,
    /// Buffers of all values.
    pub(crate) buffers: Vec<Buffer>,
    /// Values of the results, in order.
    pub(crate) results: Vec<Value>,
    /// For every call, the kernel that runs it.
    pub(crate) nodes: IndexMap<String, String>,
}

/// Lowering in progress.
pub(crate) struct Lower<'g> {
    pub(crate) g: &'g Arc<Graph>,
    pub(crate) isa: Isa,
    pub(crate) packed: &'g PackedWeights,
    states: Vec<State>,
    buffers: Vec<Buffer>,
    stages: Vec<Stage>,
    nodes: IndexMap<String, String>,
    /// Values that were dequantized or uploaded for a node on demand.
    floats: IndexMap<NodeId, Value>,
    /// Buffers of concatenations that producers write into.
    cats: IndexMap<NodeId, Value>,
    /// Results from this one on are taps.
    first_tap: usize,
    counter: usize,
}

/// Lowers a graph whose sizes are numbers. Its results from `first_tap` on are handed over as they are computed.
///
/// # Errors
/// A call that neither a kernel nor the reference interpreter admits.
pub(crate) fn lower(g: &Arc<Graph>, isa: Isa, first_tap: usize, packed: &PackedWeights) -> Result<Lowered> {
    let mut l = Lower {
        g,
        isa,
        packed,
        states: vec![State::Unset; g.len()],
        buffers: vec![],
        stages: vec![],
        nodes: IndexMap::new(),
        floats: IndexMap::new(),
        cats: IndexMap::new(),
        first_tap,
        counter: 0,
    };
    let mut results = vec![];
    let mut inputs = 0;
    for (id, node) in g.nodes() {
        match node.kind {
            Kind::Placeholder => {
                l.input(id, inputs)?;
                inputs += 1;
            }
            Kind::GetAttr(_) => {
                let t = g.constant(id).cloned();
                let missing = || l.unsupported(id, "the constant is missing");
                l.states[id.index()] = State::Constant(t.ok_or_else(missing)?);
            }
            Kind::Call(_) => l.call(id)?,
            Kind::Output => results = g.results()[..first_tap].iter().map(|r| l.value(*r)).collect::<Result<_>>()?,
        }
        l.taps(id)?;
    }
    Ok(Lowered { stages: l.stages, buffers: l.buffers, results, nodes: l.nodes })
}

impl Lower<'_> {
    fn input(&mut self, id: NodeId, index: usize) -> Result<()> {
        let meta = self.g.tensor_meta(id)?;
        let (storage, shape) = (Storage::of(meta.dtype), self.shape(id)?);
        let order = row_major(shape.len());
        let value = self.alloc(&shape, storage, &order);
        self.buffers[value.buffer].home = Home::Input(index);
        self.states[id.index()] = State::Stored(value);
        Ok(())
    }

    fn call(&mut self, id: NodeId) -> Result<()> {
        let node = self.g.node(id);
        let Some(op) = node.op() else { return Ok(()) };
        if let Meta::Int(d) = &node.meta {
            let size = d.as_const().ok_or_else(|| self.unsupported(id, "its value depends on data"))?;
            self.nodes.insert(node.name.clone(), "constant".into());
            self.states[id.index()] = State::Constant(cleave_ir::Tensor::scalar(size));
            return Ok(());
        }
        // A dequantize of constants is kept as it is, for kernels that take levels; a view of one costs nothing.
        let mut done = !matches!(op.class, Class::Quantize | Class::View) && self.fold(id)?;
        // Kernels take tensors with elements.
        let taken = matches!(op.class, Class::View | Class::Structural) || !self.is_empty(id);
        for (_, rule) in RULES.iter().flat_map(|r| r.iter()).filter(|(name, _)| taken && *name == op.name) {
            done = done || rule(self, id)?;
        }
        if !done && !self.fold(id)? && !pointwise::defer(self, id)? {
            constant::fallback(self, id)?;
        }
        if matches!(self.states[id.index()], State::Deferred(_)) && !self.may_wait(id) {
            self.value(id)?;
        }
        Ok(())
    }

    /// Whether a call reads or makes a tensor without elements.
    fn is_empty(&self, id: NodeId) -> bool {
        let node = self.g.node(id);
        let none = |n: NodeId| self.shape(n).is_ok_and(|s| s.contains(&0));
        none(id) || node.args.iter().flat_map(Arg::nodes).any(none)
    }

    /// Hands over a node's value if it is tapped.
    fn taps(&mut self, id: NodeId) -> Result<()> {
        let results = self.g.results();
        for index in (self.first_tap..results.len()).filter(|i| results[*i] == id) {
            let value = self.value(id)?;
            self.stages.push(Stage::Tap(index - self.first_tap, value));
        }
        Ok(())
    }

    /// Whether a deferred value may wait: all its uses end up in one value that is not yet computed.
    fn may_wait(&self, id: NodeId) -> bool {
        if self.g.results().contains(&id) {
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
            if !pointwise::is_pointwise(self.g, next) || self.g.results().contains(&next) {
                return false;
            }
            pending.extend(self.g.users(next));
            pending.sort();
            pending.dedup();
        }
        false
    }

    /// Whether one node is the only use of a value, and the value is no result.
    pub(crate) fn only_user(&self, id: NodeId) -> Option<NodeId> {
        match self.g.users(id).as_slice() {
            [one] if !self.g.results().contains(&id) => Some(*one),
            _ => None,
        }
    }

    /// What is known of a node's value.
    pub(crate) fn state(&self, id: NodeId) -> &State {
        &self.states[id.index()]
    }

    pub(crate) fn set(&mut self, id: NodeId, state: State) {
        if let State::Stored(_) | State::Dequant(..) | State::Computed(_) | State::Tuple(_) = state
            && let Some(op) = self.g.node(id).op()
        {
            let free = if op.class == Class::Quantize { "fused" } else { "view" };
            self.nodes.entry(self.g.node(id).name.clone()).or_insert_with(|| free.into());
        }
        self.states[id.index()] = state;
    }

    /// Sizes of a node's value.
    pub(crate) fn shape(&self, id: NodeId) -> Result<Vec<usize>> {
        let meta = self.g.tensor_meta(id)?;
        let sizes = meta.shape.iter().map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()));
        sizes.collect::<Option<_>>().ok_or_else(|| self.unsupported(id, "its sizes depend on data"))
    }

    pub(crate) fn unsupported(&self, id: NodeId, why: &str) -> crate::RuntimeError {
        let node = self.g.node(id);
        let op = node.op().map_or("node", |o| o.name);
        crate::RuntimeError::Unsupported { op: op.into(), node: node.name.clone(), why: why.into() }
    }

    /// A new value in the arena.
    pub(crate) fn alloc(&mut self, shape: &[usize], storage: Storage, order: &[usize]) -> Value {
        let bytes = shape.iter().product::<usize>() * storage.size();
        self.buffers.push(Buffer { home: Home::Arena, bytes });
        let strides = strides_in(shape, order);
        Value { buffer: self.buffers.len() - 1, storage, offset: 0, shape: shape.to_vec(), strides }
    }

    /// Whether a value lies in an input's own memory.
    pub(crate) fn is_outside(&self, v: &Value) -> bool {
        matches!(self.buffers[v.buffer].home, Home::Input(_))
    }

    /// A constant of the compiled model.
    pub(crate) fn upload(&mut self, t: &cleave_ir::Tensor) -> Value {
        let value = self.alloc(t.shape(), Storage::of(t.dtype()), &row_major(t.shape().len()));
        self.buffers[value.buffer].home = Home::Constant(crate::memory::upload(t));
        value
    }

    /// Appends a kernel that computes `out`; `nodes` are those that it covers, `stem` its name without number.
    pub(crate) fn step(
        &mut self,
        kernel: Box<dyn Kernel>,
        reads: &[&Value],
        out: &Value,
        stem: &str,
        nodes: &[NodeId],
    ) {
        self.step_to(kernel, reads, &[out], stem, nodes);
    }

    /// [`Lower::step`] with several results.
    pub(crate) fn step_to(
        &mut self,
        kernel: Box<dyn Kernel>,
        reads: &[&Value],
        out: &[&Value],
        stem: &str,
        nodes: &[NodeId],
    ) {
        let name = format!("{stem}_{}", self.counter);
        self.counter += 1;
        let mut covered: Vec<NodeId> = nodes.to_vec();
        for n in nodes {
            let args = self.g.node(*n).args.iter().flat_map(Arg::nodes);
            let meant =
                |a: &NodeId| matches!(self.state(*a), State::Dequant(..) | State::Computed(_) | State::DequantConstant);
            covered.extend(args.filter(meant));
        }
        covered.sort();
        covered.dedup();
        let names: Vec<String> = covered.iter().map(|n| self.g.node(*n).name.clone()).collect();
        for n in &covered {
            self.nodes.entry(self.g.node(*n).name.clone()).or_insert_with(|| name.clone());
        }
        for n in nodes {
            self.nodes.insert(self.g.node(*n).name.clone(), name.clone());
        }
        let planned = PlannedKernel {
            name,
            kernel: kernel.name(),
            nodes: names,
            shape: out.first().map_or(vec![], |v| v.shape.clone()),
            bytes: out.iter().map(|v| v.len() * v.storage.size()).sum(),
            reads: reads.iter().map(|v| v.len() * v.storage.size()).sum(),
            macs: nodes.iter().filter_map(|n| macs(self.g, *n, &Bindings::default())).sum(),
        };
        let spans = |v: &[&Value]| v.iter().map(|v| v.span()).collect();
        let step = Step { kernel, reads: spans(reads), writes: spans(out), planned };
        self.stages.push(Stage::Run(step));
    }

    /// A node's value in memory as it stands: floats where it is a float, emitted now if it was deferred.
    pub(crate) fn value(&mut self, id: NodeId) -> Result<Value> {
        if let Some(v) = self.floats.get(&id) {
            return Ok(v.clone());
        }
        let value = match self.state(id).clone() {
            State::Stored(v) => return Ok(v),
            State::Deferred(_) => {
                let v = self.materialise(id, &fuse::Sink::Float)?;
                self.states[id.index()] = State::Stored(v.clone());
                return Ok(v);
            }
            State::Dequant(..) => self.materialise(id, &fuse::Sink::Float)?,
            State::Computed(c) => computed::floats(self, id, &c),
            State::Constant(t) => self.upload(&t),
            State::DequantConstant => {
                let t = constant::tensor(self, id)?;
                self.upload(&t)
            }
            State::Tuple(_) | State::Unset => return Err(self.unsupported(id, "its value is not one tensor")),
        };
        self.floats.insert(id, value.clone());
        Ok(value)
    }

    /// The value with its dimensions stored in this order without gaps; copied where it is not.
    pub(crate) fn dense(&mut self, value: &Value, order: &[usize]) -> Value {
        if value.is_dense(order) {
            return value.clone();
        }
        let out = self.alloc(&value.shape, value.storage, order);
        self.copy(value, &out, &[]);
        out
    }

    /// Copies a value into a window of the same shape.
    pub(crate) fn copy(&mut self, from: &Value, to: &Value, nodes: &[NodeId]) {
        let kernel = Box::new(crate::kernel::CopyKernel::new(from, to));
        self.step(kernel, &[from], to, "copy", nodes);
    }

    /// Where a node's value is to be written: into a concatenation that is its only use, or anew.
    pub(crate) fn destination(&mut self, id: NodeId, shape: &[usize], storage: Storage, order: &[usize]) -> Value {
        moving::slot(self, id, storage, order).unwrap_or_else(|| self.alloc(shape, storage, order))
    }

    /// The order in which kernels store this many dimensions.
    pub(crate) fn spatial_order(rank: usize) -> Vec<usize> {
        channels_last(rank)
    }
}
