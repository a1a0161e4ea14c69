//! Building a graph out of another: the one way in which graphs are rewritten.

use crate::builder::{Builder, Value};
use crate::error::Result;
use crate::graph::{Arg, Graph, Kind, Node, NodeId};

/// What a node becomes.
pub enum Replace<'b> {
    /// A copy of itself on the mapped arguments.
    Copy,
    /// This value; for an op with several results, these in order.
    With(Vec<Value<'b>>),
}

/// Walks `src` in order and builds a new graph: `f` sees each call with its arguments mapped and says what
/// it becomes. Inputs, constants, names, symbols and origins are carried over; values that no result needs
/// are dropped (inputs stay).
///
/// # Errors
/// What `f` or a call in it met.
pub fn transform<F>(src: &Graph, f: F) -> Result<Graph>
where
    F: for<'b> FnMut(&'b Builder, NodeId, &Node, &[Arg]) -> Result<Replace<'b>>,
{
    Ok(prune(&transform_all(src, f)?))
}

/// [`transform`] without dropping what no result needs.
///
/// # Errors
/// What `f` or a call in it met.
pub fn transform_all<F>(src: &Graph, mut f: F) -> Result<Graph>
where
    F: for<'b> FnMut(&'b Builder, NodeId, &Node, &[Arg]) -> Result<Replace<'b>>,
{
    let b = start(src);
    // A node that became several values is read through getitem only.
    let mut map: Vec<Vec<NodeId>> = Vec::with_capacity(src.len());
    for (id, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        let args: Vec<Arg> = node.args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(map[n.index()][0]))).collect();
        let replaced = match (node.op(), node.args.first()) {
            (Some(op), Some(Arg::Node(t))) if op.name == "getitem" && map[t.index()].len() > 1 => {
                let index = node.args.get(1).map_or(0, |a| if let Arg::Int(i) = a { *i as usize } else { 0 });
                map.push(vec![map[t.index()][index]]);
                continue;
            }
            (Some(_), _) => f(&b, id, node, &args)?,
            _ => Replace::Copy,
        };
        if let Some(e) = b.error() {
            return Err(e);
        }
        let ids = match replaced {
            Replace::With(values) => values.into_iter().map(Value::id).collect(),
            Replace::Copy => vec![b.edit(|g| g.push(Node { args, ..node.clone() }))],
        };
        map.push(ids);
    }
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(g)
}

fn start(src: &Graph) -> Builder {
    let b = Builder::new();
    b.edit(|g| {
        g.constants.clone_from(&src.constants);
        g.symbols.clone_from(&src.symbols);
        g.input_names.clone_from(&src.input_names);
        g.output_names.clone_from(&src.output_names);
    });
    b
}

/// The graph without calls and constants that no result needs.
pub fn prune(src: &Graph) -> Graph {
    let mut live = vec![false; src.len()];
    for (id, node) in src.nodes().rev() {
        if live[id.index()] || matches!(node.kind, Kind::Output | Kind::Placeholder) {
            live[id.index()] = true;
            for n in node.args.iter().flat_map(Arg::nodes) {
                live[n.index()] = true;
            }
        }
    }
    let mut g = Graph::default();
    g.symbols.clone_from(&src.symbols);
    g.input_names.clone_from(&src.input_names);
    g.output_names.clone_from(&src.output_names);
    let mut map = vec![NodeId::end(); src.len()];
    for (id, node) in src.nodes().filter(|(id, _)| live[id.index()]) {
        let args = node.args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(map[n.index()]))).collect();
        if let Some(t) = src.constants.get(&node.target) {
            g.constants.insert(node.target.clone(), t.clone());
        }
        map[id.index()] = g.push(Node { args, ..node.clone() });
    }
    g
}
