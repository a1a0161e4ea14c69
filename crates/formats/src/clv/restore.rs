//! From the stored form to a graph. Nothing that it says is taken on trust.

use super::mirror::{Atom, AtomMeta, Model, Size, StoredArg, StoredGraph, StoredKind, StoredMeta, StoredNode};
use cleave_ir::subgraph::MAX_DEPTH;
use cleave_ir::{
    Arg, Bytes, ConstKind, Dim, Graph, Kind, Meta, Node, NodeId, Origin, SymbolRange, Tensor, TensorMeta, op,
};
use indexmap::IndexMap;
use std::sync::Arc;

/// The graph and what was stored with it; `sections` are the bytes, in order.
pub(super) fn restore(model: Model, sections: &[Arc<dyn Bytes>]) -> Result<(Graph, IndexMap<String, String>), String> {
    let mut graphs: Vec<Inner> = vec![];
    for stored in model.graphs {
        let next = graph(stored, &model.ops, sections, &graphs)?;
        graphs.push(next);
    }
    let program = graphs.pop().ok_or("there is no graph")?.graph;
    Ok((Arc::unwrap_or_clone(program), model.extra.into_iter().collect()))
}

/// A graph that may be an argument.
struct Inner {
    graph: Arc<Graph>,
    /// How many graphs stand in one another there, this one among them.
    depth: usize,
}

fn graph(stored: StoredGraph, ops: &[String], sections: &[Arc<dyn Bytes>], inner: &[Inner]) -> Result<Inner, String> {
    let mut g = Graph::default();
    let mut depth = 0;
    g.metadata = stored.metadata.into_iter().collect();
    g.symbols = stored.symbols.into_iter().map(|(s, min, max)| (s, SymbolRange { min, max })).collect();
    g.input_names = stored.input_names;
    g.output_names = stored.output_names;
    for c in &stored.constants {
        let at = |why: String| format!("constant '{}': {why}", c.name);
        let shape = c.shape.iter().map(|n| usize::try_from(*n)).collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|e| at(e.to_string()))?;
        let storage = usize::try_from(c.section).ok().and_then(|i| sections.get(i));
        let storage = storage.ok_or_else(|| at(format!("section {} of {}", c.section, sections.len())))?.clone();
        let t = Tensor::from_bytes(c.dtype, shape, storage).map_err(|e| at(e.to_string()))?;
        if g.constants.insert(c.name.clone(), t).is_some() {
            return Err(at("there is a second one".into()));
        }
    }
    for n in stored.nodes {
        let name = n.name.clone();
        let node = node(&g, n, ops, inner, &mut depth).map_err(|why| format!("node '{name}': {why}"))?;
        if g.fresh_name(&node.name) != node.name {
            return Err(format!("node '{name}': the name is taken or not clean"));
        }
        g.push(node);
    }
    if depth >= MAX_DEPTH {
        return Err(format!("graphs stand in one another more than {MAX_DEPTH} deep"));
    }
    Ok(Inner { graph: Arc::new(g), depth: depth + 1 })
}

fn node(g: &Graph, n: StoredNode, ops: &[String], inner: &[Inner], depth: &mut usize) -> Result<Node, String> {
    let constant = |kind, i: u32| -> Result<(Kind, String), String> {
        let found = usize::try_from(i).ok().and_then(|i| g.constants.get_index(i));
        let (name, _) = found.ok_or_else(|| format!("constant {i} of {}", g.constants.len()))?;
        Ok((Kind::GetAttr(kind), name.clone()))
    };
    let (kind, target) = match n.kind {
        StoredKind::Placeholder => (Kind::Placeholder, String::new()),
        StoredKind::Output => (Kind::Output, String::new()),
        StoredKind::Param(i) => constant(ConstKind::Param, i)?,
        StoredKind::Buffer(i) => constant(ConstKind::Buffer, i)?,
        StoredKind::Constant(i) => constant(ConstKind::Constant, i)?,
        StoredKind::Call(i) => {
            let name = usize::try_from(i).ok().and_then(|i| ops.get(i));
            let name = name.ok_or_else(|| format!("op {i} of {}", ops.len()))?;
            (Kind::Call(op::find(name).map_err(|e| e.to_string())?), String::new())
        }
    };
    let args = n.args.into_iter().map(|a| arg(g, a, inner, depth)).collect::<Result<_, _>>()?;
    let meta = match n.meta {
        StoredMeta::None => Meta::None,
        StoredMeta::One(m) => meta(m)?,
        StoredMeta::Tuple(items) => Meta::Tuple(items.into_iter().map(meta).collect::<Result<_, _>>()?),
    };
    Ok(Node { name: n.name, kind, target, args, meta, origin: Origin { sources: n.sources, module: n.module } })
}

fn arg(g: &Graph, a: StoredArg, inner: &[Inner], depth: &mut usize) -> Result<Arg, String> {
    let mut one = |a| atom(g, a, inner, depth);
    match a {
        StoredArg::One(a) => one(a),
        StoredArg::List(items) => Ok(Arg::List(items.into_iter().map(one).collect::<Result<_, _>>()?)),
    }
}

fn atom(g: &Graph, a: Atom, inner: &[Inner], depth: &mut usize) -> Result<Arg, String> {
    Ok(match a {
        Atom::None => Arg::None,
        Atom::Node(i) => {
            let before = usize::try_from(i).ok().filter(|i| *i < g.len());
            Arg::Node(NodeId::new(before.ok_or_else(|| format!("argument node {i} does not stand before"))?))
        }
        Atom::Int(i) => Arg::Int(i),
        Atom::Dim(text) => Arg::Dim(expression(&text)?),
        Atom::Float(f) => Arg::Float(f),
        Atom::Bool(b) => Arg::Bool(b),
        Atom::Str(s) => Arg::Str(s),
        Atom::DType(d) => Arg::DType(d),
        Atom::Graph(i) => {
            let found = usize::try_from(i).ok().and_then(|i| inner.get(i));
            let found = found.ok_or_else(|| format!("argument graph {i} does not stand before"))?;
            *depth = (*depth).max(found.depth);
            Arg::Graph(found.graph.clone())
        }
    })
}

fn meta(m: AtomMeta) -> Result<Meta, String> {
    Ok(match m {
        AtomMeta::None => Meta::None,
        AtomMeta::Tensor(dtype, sizes) => {
            Meta::Tensor(TensorMeta { dtype, shape: sizes.iter().map(size).collect::<Result<_, _>>()? })
        }
        AtomMeta::Int(d) => Meta::Int(size(&d)?),
    })
}

fn size(s: &Size) -> Result<Dim, String> {
    match s {
        Size::Number(n) => Ok(Dim::from(*n)),
        Size::Expression(text) => expression(text),
    }
}

fn expression(text: &str) -> Result<Dim, String> {
    Dim::parse(text).map_err(|e| e.to_string())
}
