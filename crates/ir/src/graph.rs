//! The graph: nodes in topological order, arguments with values, constants by name.
//!
//! A graph is only ever appended to. A rewrite builds a new one (see [`crate::transform`]), so the
//! order of insertion is a topological order, and everything printed or stored follows it.

use crate::dim::{Bindings, Dim};
use crate::error::{IrError, Result};
use crate::op::Op;
use crate::tensor::Tensor;
use cleave_numerics::DType;
use indexmap::IndexMap;
use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use std::borrow::Cow;
use std::sync::Arc;

/// A node of a graph.
pub type NodeId = NodeIndex<u32>;

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Nothing given to an optional parameter.
    None,
    /// The value of a node.
    Node(NodeId),
    /// An integer.
    Int(i64),
    /// A size that is not a number.
    Dim(Dim),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A list.
    List(Vec<Arg>),
    /// A graph to be run on other arguments (see [`crate::subgraph`]).
    Graph(Arc<Graph>),
}

impl Arg {
    /// The nodes in the argument, in order; those inside a graph are not its own.
    pub fn nodes(&self) -> Vec<NodeId> {
        match self {
            Arg::Node(n) => vec![*n],
            Arg::List(l) => l.iter().flat_map(Arg::nodes).collect(),
            _ => vec![],
        }
    }

    /// The sizes in the argument that are not numbers, in order.
    pub fn dims(&self) -> Vec<Dim> {
        match self {
            Arg::Dim(d) => vec![d.clone()],
            Arg::List(l) => l.iter().flat_map(Arg::dims).collect(),
            _ => vec![],
        }
    }

    /// The argument with other sizes in place of its own.
    pub fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Arg {
        match self {
            Arg::Dim(d) => f(d).into(),
            Arg::List(l) => Arg::List(l.iter().map(|a| a.map_dims(f)).collect()),
            other => other.clone(),
        }
    }

    /// The argument with other nodes in place of its own.
    pub fn map_nodes(&self, f: &mut dyn FnMut(NodeId) -> Arg) -> Arg {
        match self {
            Arg::Node(n) => f(*n),
            Arg::List(l) => Arg::List(l.iter().map(|a| a.map_nodes(f)).collect()),
            other => other.clone(),
        }
    }
}

impl From<Dim> for Arg {
    fn from(d: Dim) -> Arg {
        d.as_const().map_or(Arg::Dim(d), Arg::Int)
    }
}

/// Element type and sizes of a tensor value.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: DType,
    /// Sizes, outermost first.
    pub shape: Vec<Dim>,
}

/// What is known of a node's value before it is run.
#[derive(Clone, Debug, PartialEq)]
pub enum Meta {
    /// No value: the output node, asserts.
    None,
    /// A tensor.
    Tensor(TensorMeta),
    /// Several values, taken apart by `getitem`.
    Tuple(Vec<Meta>),
    /// An integer with this value.
    Int(Dim),
}

impl Meta {
    /// A tensor of this type and shape.
    pub fn tensor(dtype: DType, shape: Vec<Dim>) -> Meta {
        Meta::Tensor(TensorMeta { dtype, shape })
    }

    /// Every size in it replaced.
    pub fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Meta {
        match self {
            Meta::None => Meta::None,
            Meta::Int(d) => Meta::Int(f(d)),
            Meta::Tuple(items) => Meta::Tuple(items.iter().map(|m| m.map_dims(f)).collect()),
            Meta::Tensor(t) => Meta::tensor(t.dtype, t.shape.iter().map(f).collect()),
        }
    }

    /// Every size in it, in order.
    pub fn dims(&self) -> Vec<Dim> {
        let mut all = vec![];
        self.map_dims(&mut |d| {
            all.push(d.clone());
            d.clone()
        });
        all
    }

    /// With the sizes that another statement of the same value has for those that inference does not know.
    pub fn settled(&self, stated: &Meta) -> Meta {
        let named = stated.dims();
        if self.dims().len() != named.len() {
            return self.clone();
        }
        let mut named = named.into_iter();
        self.map_dims(&mut |d| match named.next() {
            Some(other) if d.is_unknown() => other,
            _ => d.clone(),
        })
    }

    /// The tensor's type and shape, if it is one tensor.
    pub fn as_tensor(&self) -> Option<&TensorMeta> {
        match self {
            Meta::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

/// How a constant came into the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConstKind {
    /// A trained parameter.
    Param,
    /// A buffer that is stored with the model.
    Buffer,
    /// A buffer that is not, or a literal tensor.
    Constant,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An input.
    Placeholder,
    /// A constant: [`Node::target`] names it in the graph's store.
    GetAttr(ConstKind),
    /// The call of an op.
    Call(&'static Op),
    /// The results.
    Output,
}

/// Where a node came from, through every stage.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Origin {
    /// Names of the nodes in the source file.
    pub sources: Vec<String>,
    /// Path of the module that they stood in, dotted; empty if unknown.
    pub module: String,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Unique in its graph; letters, digits and underscores.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// For a constant, its name in the store (dotted, as in the source); else empty.
    pub target: String,
    /// One argument for each parameter of the op's schema; the output node's are the results.
    pub args: Vec<Arg>,
    /// What is known of its value.
    pub meta: Meta,
    /// Where it came from.
    pub origin: Origin,
}

impl Node {
    /// The op, if the node is a call.
    pub fn op(&self) -> Option<&'static Op> {
        match self.kind {
            Kind::Call(op) => Some(op),
            _ => None,
        }
    }

    /// The argument for a named parameter of the op called.
    pub fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.get(self.op()?.schema.index(name)?)
    }
}

/// What may be said of a symbol's value: inclusive bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolRange {
    /// Least value.
    pub min: i64,
    /// Greatest value, if bounded.
    pub max: Option<i64>,
}

/// A program: a directed acyclic graph of nodes. Equal are graphs with equal nodes, constants, symbols and names.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    dag: DiGraph<Node, u32>,
    by_name: IndexMap<String, NodeId>,
    /// For stems of names with a number, up to which number they are taken without gap.
    numbered: IndexMap<String, usize>,
    /// Constants by name. Tied ones share their bytes.
    pub constants: IndexMap<String, Tensor>,
    /// Symbols of the inputs' shapes with their ranges.
    pub symbols: IndexMap<String, SymbolRange>,
    /// Facts about the whole program by key, as `quantize = "divide"` (see [`Graph::quantizes_by_division`]).
    pub metadata: IndexMap<String, String>,
    /// The names that inputs have for the outside, in order of the placeholders.
    pub input_names: Vec<String>,
    /// The names that results have for the outside, in order.
    pub output_names: Vec<String>,
}

/// A name's stem and the number behind it.
fn numbered(name: &str) -> Option<(&str, usize)> {
    let (stem, n) = name.rsplit_once('_')?;
    let digits = !stem.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| n.parse().ok())?.map(|n| (stem, n))
}

impl PartialEq for Graph {
    fn eq(&self, o: &Graph) -> bool {
        self.nodes().eq(o.nodes())
            && (&self.constants, &self.symbols, &self.metadata) == (&o.constants, &o.symbols, &o.metadata)
            && (&self.input_names, &self.output_names) == (&o.input_names, &o.output_names)
    }
}

impl Graph {
    /// Appends a node; its arguments must be in the graph already. The name is made unique and clean.
    pub fn push(&mut self, mut node: Node) -> NodeId {
        node.name = self.fresh_name(&node.name);
        let edges: Vec<(NodeId, u32)> =
            node.args.iter().enumerate().flat_map(|(i, a)| a.nodes().into_iter().map(move |n| (n, i as u32))).collect();
        let name = node.name.clone();
        if let Some((stem, n)) = numbered(&name) {
            let last = self.numbered.entry(stem.into()).or_insert(0);
            // Numbers follow one another; a far one does not hide those before it.
            *last += usize::from(n == *last + 1);
        }
        let id = self.dag.add_node(node);
        for (from, slot) in edges {
            self.dag.add_edge(from, id, slot);
        }
        self.by_name.insert(name, id);
        id
    }

    /// A name that no node has yet: the wish with forbidden characters replaced, and a number behind it if it is taken.
    pub fn fresh_name(&self, wish: &str) -> String {
        let mut base: String = wish.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        if base.is_empty() || base.as_bytes()[0].is_ascii_digit() {
            base.insert(0, '_');
        }
        if !self.by_name.contains_key(&base) {
            return base;
        }
        let stem = numbered(&base).map_or(base.as_str(), |(stem, _)| stem).to_string();
        let from = self.numbered.get(&stem).map_or(1, |n| n + 1);
        let free = (from..).find(|n| !self.by_name.contains_key(&format!("{stem}_{n}")));
        format!("{stem}_{}", free.expect("invariant: there are more numbers than names"))
    }

    /// The node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.dag[id]
    }

    /// Whether quantize ops divide by the scale, as ONNX does; torch multiplies by the reciprocal.
    pub fn quantizes_by_division(&self) -> bool {
        self.metadata.get("quantize").is_some_and(|v| v == "divide")
    }

    /// Whether products with a gate may be computed in fixed point, within a level of the exact ones.
    pub fn fixes_gates(&self) -> bool {
        self.metadata.get("gates").is_some_and(|v| v == "fixed")
    }

    /// An empty graph with the constants, symbols, metadata and names for the outside of this one.
    pub fn shell(&self) -> Graph {
        Graph {
            dag: DiGraph::default(),
            by_name: IndexMap::new(),
            numbered: IndexMap::new(),
            constants: self.constants.clone(),
            symbols: self.symbols.clone(),
            metadata: self.metadata.clone(),
            input_names: self.input_names.clone(),
            output_names: self.output_names.clone(),
        }
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.dag.node_count()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ids in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.dag.node_count() as u32).map(NodeId::from)
    }

    /// Nodes in topological order.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (NodeId, &Node)> {
        self.ids().map(|id| (id, &self.dag[id]))
    }

    /// The node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The distinct nodes that use a value, in topological order.
    pub fn users(&self, id: NodeId) -> Vec<NodeId> {
        let mut users: Vec<NodeId> = self.dag.neighbors_directed(id, Direction::Outgoing).collect();
        users.sort();
        users.dedup();
        users
    }

    /// How often a value is used: one for each place in an argument.
    pub fn use_count(&self, id: NodeId) -> usize {
        self.dag.edges_directed(id, Direction::Outgoing).count()
    }

    /// Users with the argument slot of each use.
    pub fn uses(&self, id: NodeId) -> Vec<(NodeId, usize)> {
        let mut uses: Vec<_> =
            self.dag.edges_directed(id, Direction::Outgoing).map(|e| (e.target(), *e.weight() as usize)).collect();
        uses.sort();
        uses
    }

    /// The inputs.
    pub fn placeholders(&self) -> Vec<NodeId> {
        self.nodes().filter(|(_, n)| n.kind == Kind::Placeholder).map(|(id, _)| id).collect()
    }

    /// The output node.
    pub fn output(&self) -> Option<NodeId> {
        self.nodes().rev().find(|(_, n)| n.kind == Kind::Output).map(|(id, _)| id)
    }

    /// The results, in order.
    pub fn results(&self) -> Vec<NodeId> {
        self.output().map(|o| self.node(o).args.iter().flat_map(Arg::nodes).collect()).unwrap_or_default()
    }

    /// The constant that a node stands for.
    pub fn constant(&self, id: NodeId) -> Option<&Tensor> {
        match self.node(id).kind {
            Kind::GetAttr(_) => self.constants.get(&self.node(id).target),
            _ => None,
        }
    }

    /// Sets where a node came from.
    pub fn set_origin(&mut self, id: NodeId, origin: Origin) {
        self.dag[id].origin = origin;
    }

    /// Gives a symbol another name in every node from the `from`-th on.
    pub(crate) fn rename_symbol(&mut self, from: usize, old: &str, new: &Dim) {
        let with = |s: &str| (s == old).then(|| new.clone());
        for i in from..self.dag.node_count() {
            let node = &mut self.dag[NodeId::new(i)];
            node.meta = node.meta.map_dims(&mut |d| d.substitute(&with));
            node.args = node.args.iter().map(|a| a.map_dims(&mut |d| d.substitute(&with))).collect();
        }
        self.symbols.shift_remove(old);
    }

    /// Sets what is known of a node's value: for readers, whose files state it.
    pub fn set_meta(&mut self, id: NodeId, meta: Meta) {
        self.dag[id].meta = meta;
    }

    /// Type and shape of a node's value.
    ///
    /// # Errors
    /// A node whose value is not one tensor.
    pub fn tensor_meta(&self, id: NodeId) -> Result<&TensorMeta> {
        let n = self.node(id);
        n.meta.as_tensor().ok_or_else(|| IrError::Call {
            op: n.op().map_or("node", |o| o.def.name).into(),
            node: n.name.clone(),
            why: "expected one tensor".into(),
        })
    }

    /// The graph with every graph among its arguments replaced.
    ///
    /// # Errors
    /// What `f` met.
    pub fn map_subgraphs<E>(
        &self,
        f: &mut dyn FnMut(&Graph) -> std::result::Result<Graph, E>,
    ) -> std::result::Result<Cow<'_, Graph>, E> {
        let mut out = Cow::Borrowed(self);
        for (id, node) in self.nodes() {
            for (slot, arg) in node.args.iter().enumerate() {
                if let Arg::Graph(g) = arg {
                    out.to_mut().dag[id].args[slot] = Arg::Graph(Arc::new(f(g)?));
                }
            }
        }
        Ok(out)
    }

    /// The graph with every size in types and arguments replaced; its symbols are left to the caller.
    pub fn map_dims(&self, f: &mut dyn FnMut(&Dim) -> Dim) -> Graph {
        let mut g = self.clone();
        for node in g.dag.node_weights_mut() {
            node.meta = node.meta.map_dims(f);
            node.args = node.args.iter().map(|a| a.map_dims(f)).collect();
        }
        g
    }

    /// How often each op is called, in order of first use; ops by full name, Python's functions on sizes by their
    /// bare one (`mul`), as torch counts them. Calls inside graphs that are arguments do not count.
    pub fn op_counts(&self) -> IndexMap<&'static str, usize> {
        let mut counts = IndexMap::new();
        for name in self.nodes().filter_map(|(_, n)| n.op()).map(|op| op.def.name) {
            let of_python = ["_operator.", "torch."].iter().find_map(|module| name.strip_prefix(module));
            *counts.entry(of_python.unwrap_or(name)).or_insert(0) += 1;
        }
        counts
    }

    /// Binds the symbols of the inputs' shapes to the sizes of concrete inputs, in order of the placeholders.
    ///
    /// # Errors
    /// A rank or size that the input does not admit, naming the input.
    pub fn bind(&self, shapes: &[Vec<usize>]) -> Result<Bindings> {
        let mut bound = Bindings::new();
        for (i, (id, got)) in self.placeholders().into_iter().zip(shapes).enumerate() {
            let Some(meta) = self.node(id).meta.as_tensor() else { continue };
            let name = self.input_names.get(i).unwrap_or(&self.node(id).name);
            let wrong = || IrError::Call {
                op: "input".into(),
                node: name.clone(),
                why: format!("expected shape {:?}, found {got:?}", meta.shape),
            };
            if meta.shape.len() != got.len() {
                return Err(wrong());
            }
            for (d, &g) in meta.shape.iter().zip(got) {
                let g = g as i64;
                if let Some(s) = d.as_symbol() {
                    let range = self.symbols.get(s);
                    let outside = range.is_some_and(|r| g < r.min || r.max.is_some_and(|m| g > m));
                    if outside || *bound.entry(s.to_string()).or_insert(g) != g {
                        return Err(wrong());
                    }
                } else if d.as_const().is_some_and(|c| c != g) {
                    return Err(wrong());
                }
            }
        }
        Ok(bound)
    }
}
