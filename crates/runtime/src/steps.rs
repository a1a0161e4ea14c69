//! A model as steps on buffers: what lowering appends to, named and counted for the plan, and what is placed and run.

use crate::kernel::{Kernel, PointwiseKernel};
use crate::memory::{Buffer, Home, Span, Storage, Value, row_major, strides_in, upload};
use crate::packing::Making;
use crate::plan::PlannedKernel;
use cleave_ir::macs::macs;
use cleave_ir::{Bindings, Graph, NodeId, Tensor};
use indexmap::IndexMap;

/// One step of a compiled model.
pub(crate) enum Stage<K = Box<dyn Kernel>> {
    /// A kernel.
    Run(Step<K>),
    /// A value is handed to the tap with this index.
    Tap(usize, Value),
}

/// A kernel with its operands.
pub(crate) struct Step<K = Box<dyn Kernel>> {
    /// The kernel.
    pub(crate) kernel: K,
    /// What it reads.
    pub(crate) reads: Vec<Span>,
    /// What it writes.
    pub(crate) writes: Vec<Span>,
    /// Its row of the plan.
    pub(crate) planned: PlannedKernel,
}

/// Steps that compute a graph's nodes.
pub(crate) struct Steps<'g> {
    g: &'g Graph,
    /// In order.
    pub(crate) stages: Vec<Stage<Making>>,
    /// Of all values.
    pub(crate) buffers: Vec<Buffer>,
    /// For every call, the kernel that runs it.
    pub(crate) nodes: IndexMap<String, String>,
    counter: usize,
}

impl<'g> Steps<'g> {
    /// None yet.
    pub(crate) fn of(g: &'g Graph) -> Steps<'g> {
        Steps { g, stages: vec![], buffers: vec![], nodes: IndexMap::new(), counter: 0 }
    }

    /// A new value in the arena, its dimensions stored in this order.
    pub(crate) fn alloc(&mut self, shape: &[usize], storage: Storage, order: &[usize]) -> Value {
        let bytes = shape.iter().product::<usize>() * storage.size();
        self.buffers.push(Buffer { home: Home::Arena, bytes });
        let strides = strides_in(shape, order);
        Value { buffer: self.buffers.len() - 1, storage, offset: 0, shape: shape.to_vec(), strides }
    }

    /// The value of an input, in the input's own memory.
    pub(crate) fn input(&mut self, index: usize, shape: &[usize], storage: Storage) -> Value {
        let value = self.alloc(shape, storage, &row_major(shape.len()));
        self.buffers[value.buffer].home = Home::Input(index);
        value
    }

    /// A constant of the compiled model.
    pub(crate) fn upload(&mut self, t: &Tensor) -> Value {
        let value = self.alloc(t.shape(), Storage::of(t.dtype()), &row_major(t.shape().len()));
        self.buffers[value.buffer].home = Home::Constant(upload(t));
        value
    }

    /// Whether a value lies in an input's own memory.
    pub(crate) fn is_outside(&self, v: &Value) -> bool {
        matches!(self.buffers[v.buffer].home, Home::Input(_))
    }

    /// Says what runs a node, unless that is known.
    pub(crate) fn runs(&mut self, id: NodeId, kernel: &str) {
        self.nodes.entry(self.name(id)).or_insert_with(|| kernel.into());
    }

    fn name(&self, id: NodeId) -> String {
        self.g.node(id).name.clone()
    }

    /// Appends a kernel that computes `out`: for `nodes`, of which it takes `meant` as what they are made from; `stem` is
    /// its name without number.
    pub(crate) fn push(
        &mut self,
        kernel: Making,
        (reads, out): (&[&Value], &[&Value]),
        stem: &str,
        nodes: &[NodeId],
        meant: &[NodeId],
    ) {
        let name = format!("{stem}_{}", self.counter);
        self.counter += 1;
        let mut covered = [nodes, meant].concat();
        covered.sort();
        covered.dedup();
        covered.iter().for_each(|n| self.runs(*n, &name));
        for n in nodes {
            self.nodes.insert(self.name(*n), name.clone());
        }
        let bytes = |v: &[&Value]| v.iter().map(|v| v.len() * v.storage.size()).sum();
        let planned = PlannedKernel {
            name,
            kernel: String::new(),
            nodes: covered.iter().map(|n| self.name(*n)).collect(),
            shape: out.first().map_or(vec![], |v| v.shape.clone()),
            bytes: bytes(out),
            reads: bytes(reads),
            in_place: false,
            macs: nodes.iter().filter_map(|n| macs(self.g, *n, &Bindings::default())).sum(),
        };
        let spans = |v: &[&Value]| v.iter().map(|v| v.span()).collect();
        self.stages.push(Stage::Run(Step { kernel, reads: spans(reads), writes: spans(out), planned }));
    }

    /// Whether these values are what the last kernel wrote, and nothing else.
    pub(crate) fn just_made(&self, reads: &[&Value]) -> bool {
        let Some(Stage::Run(Step { writes, .. })) = self.stages.last() else { return false };
        let [made] = writes.as_slice() else { return false };
        !reads.is_empty() && reads.iter().all(|v| made.covers(&v.span()))
    }

    /// Appends a program to the last kernel, all of whose operands it made: its few results are still at hand.
    pub(crate) fn join(&mut self, then: PointwiseKernel, reads: &[&Value], out: &Value, nodes: &[NodeId]) {
        let Some(Stage::Run(step)) = self.stages.pop() else { return };
        let made = &step.writes[0];
        let parts = reads.iter().map(|v| v.span().range).map(|r| r.start - made.range.start..r.end - made.range.start);
        let kernel = step.kernel.then(parts.collect(), then);
        let (old, mut planned) = (step.planned.name.clone(), step.planned);
        let (stem, number) = old.rsplit_once('_').unwrap_or((&old, "0"));
        planned.name = format!("{}_{number}", self.fused_name(stem, nodes));
        planned.nodes.extend(nodes.iter().map(|n| self.name(*n)));
        planned.bytes += out.len() * out.storage.size();
        for kernel in self.nodes.values_mut().filter(|k| **k == old) {
            kernel.clone_from(&planned.name);
        }
        for n in nodes {
            self.nodes.insert(self.name(*n), planned.name.clone());
        }
        let writes = [step.writes, vec![out.span()]].concat();
        self.stages.push(Stage::Run(Step { kernel, reads: step.reads, writes, planned }));
    }

    /// A kernel's name without number: the stem and the ops that it covers.
    pub(crate) fn fused_name(&self, stem: &str, nodes: &[NodeId]) -> String {
        let ops = nodes.iter().filter_map(|n| self.g.node(*n).op()).map(|op| match op.base() {
            "quantize_per_tensor" => "quantize",
            "dequantize_per_tensor" => "dequantize",
            base => base,
        });
        std::iter::once(stem).chain(ops).collect::<Vec<_>>().join("_")
    }
}
