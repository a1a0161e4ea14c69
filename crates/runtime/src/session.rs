//! A model on the CPU backend: compiled on first use for the shapes of its inputs, then run without allocation.

use crate::compile::{Arena, Compiled, InputBytes, Workspace};
use crate::error::{Result, RuntimeError, check_inputs};
use crate::kernel::floats;
use crate::packing::PackedWeights;
use crate::plan::Plan;
use crate::reference;
use cleave_decompose::{Table, decompose, plain_attention};
use cleave_ir::subgraph::take_branches;
use cleave_ir::{Arg, Bindings, Class, Graph, Kind, Meta, Node, NodeId, Tensor, transform};
use cleave_kernels::quant::has_nan;
use cleave_kernels::{AlignedVec, Isa, ThreadPool};
use cleave_numerics::DType;
use std::sync::Arc;
use std::time::Duration;

/// How a session runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Instruction set.
    pub isa: Isa,
    /// Threads, the caller's among them.
    pub threads: usize,
}

impl Default for Options {
    /// The best instruction set of the machine, one thread.
    fn default() -> Options {
        Options { isa: Isa::best(), threads: 1 }
    }
}

/// Most shapes that a session stays compiled for; the oldest goes first.
const MAX_PROGRAMS: usize = 16;

/// A model to be run.
pub struct Session {
    graph: Graph,
    /// Of its inputs.
    types: Vec<DType>,
    /// The graph as far broken up as the backend wants it.
    lowered: Graph,
    table: Table,
    /// Whether values are rounded to levels, among which there is none for NaN.
    quantized: bool,
    options: Options,
    pool: ThreadPool,
    packed: PackedWeights,
    programs: Vec<Program>,
    arena: Arc<Arena>,
    scratch: AlignedVec<u8>,
}

/// The model compiled for some shapes and taps.
struct Program {
    shapes: Vec<Vec<usize>>,
    taps: Vec<NodeId>,
    body: Body,
}

enum Body {
    Compiled(Box<Compiled>),
    /// Sizes that depend on data: the reference interpreter runs the whole.
    Reference,
}

impl Session {
    /// A session for a graph, float or quantized, at the semantic level. Nothing is compiled yet.
    ///
    /// # Errors
    /// A graph without results, or one that the backend's table cannot break up.
    pub fn new(graph: &Graph, options: Options) -> Result<Session> {
        Session::with_table(graph, options, Table::cpu())
    }

    /// [`Session::new`], with the graph broken up as another table says before it is put together again.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn with_table(graph: &Graph, options: Options, table: Table) -> Result<Session> {
        if graph.output().is_none() {
            return Err(RuntimeError::Ir(cleave_ir::IrError::Invalid(vec!["the graph has no results".into()])));
        }
        Ok(Session::empty(graph.clone(), lowered(graph, &table)?, table, options))
    }

    fn empty(graph: Graph, lowered: Graph, table: Table, options: Options) -> Session {
        let quantized = graph.nodes().filter_map(|(_, n)| n.op()).any(|op| op.class == Class::Quantize);
        let types = graph.placeholders().into_iter().filter_map(|id| Some(graph.tensor_meta(id).ok()?.dtype)).collect();
        Session {
            quantized,
            types,
            graph,
            lowered,
            table,
            options,
            pool: ThreadPool::new(options.threads),
            packed: PackedWeights::default(),
            programs: vec![],
            arena: Arc::default(),
            scratch: AlignedVec::default(),
        }
    }

    /// Another session for the same graph, with so many threads: packed weights are shared, all else is its own.
    pub fn beside(&self, threads: usize) -> Session {
        let options = Options { threads, ..self.options };
        let other = Session::empty(self.graph.clone(), self.lowered.clone(), self.table.clone(), options);
        Session { packed: self.packed.clone(), ..other }
    }

    /// A session for another graph, as this one runs: packed weights of levels are shared where they are the same.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn for_another(&self, graph: &Graph) -> Result<Session> {
        let other = Session::with_table(graph, self.options, self.table.clone())?;
        Ok(Session { packed: self.packed.for_another(), ..other })
    }

    /// The graph that it runs, as it was given.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the model; results are row-major.
    ///
    /// # Errors
    /// Inputs of another number, type or shape than the graph admits, with NaN for a quantized graph; what compiling
    /// met.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.execute(inputs, &[], &mut |_, _| {}, None)
    }

    /// [`Session::run`], handing over the values of the tapped nodes as they are computed, their elements in
    /// any order ([`Tensor::stored_order`]). Most are lent where they lie: who keeps one keeps the memory of all.
    ///
    /// # Errors
    /// As [`Session::run`]; a tapped node whose value is not one tensor.
    pub fn run_with_taps(
        &mut self,
        inputs: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>> {
        let nodes = taps.to_vec();
        self.execute(inputs, taps, &mut |index, t| sink(nodes[index], t), None)
    }

    /// Runs the model and measures each kernel, in the order of the plan.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn profile(&mut self, inputs: &[Tensor]) -> Result<Vec<Duration>> {
        let mut times = vec![];
        self.execute(inputs, &[], &mut |_, _| {}, Some(&mut times))?;
        Ok(times)
    }

    /// What runs for inputs of these shapes, in order of the placeholders.
    ///
    /// # Errors
    /// Shapes that the graph does not admit; what compiling met.
    pub fn plan(&mut self, shapes: &[Vec<usize>]) -> Result<Plan> {
        let at = self.program(shapes, &[])?;
        Ok(match &self.programs[at].body {
            Body::Compiled(c) => c.plan.clone(),
            Body::Reference => interpreted(&self.lowered),
        })
    }

    fn execute(
        &mut self,
        inputs: &[Tensor],
        taps: &[NodeId],
        tap: &mut dyn FnMut(usize, &Tensor),
        timed: Option<&mut Vec<Duration>>,
    ) -> Result<Vec<Tensor>> {
        let fits = |p: &Program| p.shapes.iter().map(Vec::as_slice).eq(inputs.iter().map(Tensor::shape));
        let typed = inputs.iter().map(Tensor::dtype).eq(self.types.iter().copied());
        let at = match self.programs.iter().position(|p| typed && p.taps == taps && fits(p)) {
            Some(at) => at,
            None => {
                check_inputs(&self.graph, inputs)?;
                let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
                self.program(&shapes, taps)?
            }
        };
        let bytes: Vec<InputBytes<'_>> = inputs.iter().map(InputBytes::of).collect();
        if self.quantized {
            self.refuse_nan(inputs, &bytes)?;
        }
        match &self.programs[at].body {
            Body::Compiled(c) => {
                let Session { arena, scratch, pool, .. } = self;
                let mut work = Workspace { arena, scratch, pool };
                c.run(&mut work, &bytes, tap, timed)
            }
            Body::Reference => reference::run_with_taps(&self.graph, inputs, taps, &mut |id, t| {
                taps.iter().enumerate().filter(|(_, n)| **n == id).for_each(|(i, _)| tap(i, t));
            }),
        }
    }

    fn refuse_nan(&self, inputs: &[Tensor], bytes: &[InputBytes<'_>]) -> Result<()> {
        for (i, b) in bytes.iter().enumerate().filter(|(i, _)| inputs[*i].dtype() == DType::F32) {
            let v = floats(b.bytes());
            if has_nan(self.options.isa, &self.pool, v)
                && let Some(at) = v.iter().position(|x| x.is_nan())
            {
                let name = self.graph.input_names.get(i).cloned().unwrap_or_default();
                return Err(RuntimeError::Input {
                    name,
                    expected: "numbers".into(),
                    found: format!("NaN at element {at}"),
                });
            }
        }
        Ok(())
    }

    /// Index of the program for these shapes and taps; compiled now if there is none.
    fn program(&mut self, shapes: &[Vec<usize>], taps: &[NodeId]) -> Result<usize> {
        if let Some(at) = self.programs.iter().position(|p| p.shapes == shapes && p.taps == taps) {
            return Ok(at);
        }
        let bound = self.graph.bind(shapes)?;
        let results = self.graph.results().len();
        let tapped;
        let graph = if taps.is_empty() {
            &self.lowered
        } else {
            tapped = lowered(&with_results(&self.graph, taps), &self.table)?;
            &tapped
        };
        let body = match specialise(graph, &bound)? {
            Some(g) => {
                let g = Arc::new(g);
                let mut c = Compiled::new(&g, self.options.isa, &self.pool, results, &self.packed)?;
                name_broken_up(&self.graph, &g, &mut c.plan);
                if self.arena.0.len() < c.plan.arena_bytes {
                    self.arena = Arc::new(Arena(AlignedVec::zeroed(c.plan.arena_bytes)));
                }
                if self.scratch.len() < c.scratch_bytes {
                    self.scratch = AlignedVec::zeroed(c.scratch_bytes);
                }
                Body::Compiled(Box::new(c))
            }
            None => Body::Reference,
        };
        if self.programs.len() >= MAX_PROGRAMS {
            self.programs.remove(0);
        }
        self.programs.push(Program { shapes: shapes.to_vec(), taps: taps.to_vec(), body });
        Ok(self.programs.len() - 1)
    }
}

/// The graph as far broken up as the backend wants it.
fn lowered(graph: &Graph, table: &Table) -> Result<Graph> {
    Ok(decompose(&plain_attention(graph)?, table)?)
}

/// The graph for these sizes, with the branches that they decide taken. None if sizes depend on data.
fn specialise(graph: &Graph, bound: &Bindings) -> Result<Option<Graph>> {
    let g = take_branches(&transform::bind(graph, bound)?)?;
    let sized = g.nodes().flat_map(|(_, n)| n.meta.dims()).all(|d| d.as_const().is_some())
        && g.results().iter().all(|r| g.node(*r).meta != Meta::None);
    Ok(if sized { Some(g) } else { None })
}

/// Adds the nodes of `source` that the table broke up: each by the kernel of the last of its parts.
fn name_broken_up(source: &Graph, lowered: &Graph, plan: &mut Plan) {
    for (_, node) in source.nodes().filter(|(_, n)| n.op().is_some() && lowered.find(&n.name).is_none()) {
        let part = |n: &Node| n.op().is_some() && n.origin == node.origin && source.find(&n.name).is_none();
        let kernel = lowered.nodes().rev().filter(|(_, n)| part(n)).find_map(|(_, n)| plan.nodes.get(&n.name));
        if let Some(k) = kernel.cloned() {
            plan.nodes.insert(node.name.clone(), k);
        }
    }
}

/// The plan of a graph that the reference interpreter runs as a whole.
fn interpreted(g: &Graph) -> Plan {
    let calls = g.nodes().filter_map(|(_, n)| n.op().map(|op| (n.name.clone(), format!("reference.{}", op.base()))));
    Plan { nodes: calls.collect(), ..Plan::default() }
}

/// The graph with further results.
fn with_results(graph: &Graph, more: &[NodeId]) -> Graph {
    let mut g = graph.shell();
    for (_, node) in graph.nodes() {
        let mut node: Node = node.clone();
        if node.kind == Kind::Output {
            node.args.extend(more.iter().map(|n| Arg::Node(*n)));
        }
        g.push(node);
    }
    g.output_names.extend(more.iter().map(|n| graph.node(*n).name.clone()));
    g
}
