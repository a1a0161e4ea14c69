//! Building a graph out of another: the one way in which graphs are rewritten.

use crate::builder::{Builder, Value};
use crate::dim::{Bindings, Dim};
use crate::error::{IrError, Result};
use crate::graph::{Arg, Graph, Kind, Meta, Node, NodeId};
use crate::op::Class;
use crate::schema::Returns;
use crate::subgraph::bind_operands;
use indexmap::IndexMap;

/// What a node becomes.
pub enum Replace<'b> {
    /// A copy of itself on the mapped arguments.
    Copy,
    /// This value; for an op with several results, these in order.
    With(Vec<Value<'b>>),
}

/// Walks `src` in order and builds a new graph: `f` sees each call with its arguments mapped and says what
/// it becomes. Inputs, constants, names, symbols and origins are carried over; values that no result needs
/// are dropped (inputs and asserts stay, and constants that `src` does not use either: they are the program's own).
///
/// # Errors
/// What `f` or a call in it met.
pub fn transform<F>(src: &Graph, f: F) -> Result<Graph>
where
    F: for<'b> FnMut(&'b Builder, NodeId, &Node, &[Arg]) -> Result<Replace<'b>>,
{
    Ok(prune_rewritten(src, &transform_all(src, f)?))
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
    // A call with several results that became values is read through getitem only.
    let mut map: Vec<Vec<NodeId>> = Vec::with_capacity(src.len());
    for (id, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        let before = b.with_graph(Graph::len);
        let args: Vec<Arg> = node
            .args
            .iter()
            .map(|a| a.map_nodes(&mut |n| map[n.index()].first().map_or(Arg::None, |v| Arg::Node(*v))))
            .collect();
        let replaced = match (node.op(), node.args.first()) {
            (Some(op), Some(Arg::Node(t))) if op.name == "getitem" && !is_tuple(&b, map[t.index()].first()) => {
                let index = match node.args.get(1) {
                    Some(Arg::Int(i)) => usize::try_from(*i).ok(),
                    _ => None,
                };
                let item = index.and_then(|i| map[t.index()].get(i).copied());
                map.push(vec![item.ok_or_else(|| IrError::Call {
                    op: op.name.into(),
                    node: node.name.clone(),
                    why: format!("result {index:?} of a call that became {} values", map[t.index()].len()),
                })?]);
                continue;
            }
            (Some(_), _) => f(&b, id, node, &args)?,
            _ => Replace::Copy,
        };
        if let Some(e) = b.error() {
            return Err(e);
        }
        let ids = match replaced {
            Replace::With(values) => {
                keep_names(&b, before, &node.meta, &values);
                values.into_iter().map(Value::id).collect()
            }
            Replace::Copy => vec![b.edit(|g| g.push(Node { args, ..node.clone() }))],
        };
        map.push(ids);
    }
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(g)
}

/// Sizes that only running tells keep the names that the node had for them.
fn keep_names(b: &Builder, before: usize, old: &Meta, values: &[Value<'_>]) {
    let mut new: Vec<Dim> = values.iter().flat_map(|v| v.meta().dims()).collect();
    let old = old.dims();
    if old.len() != new.len() {
        return;
    }
    for (i, was) in old.iter().enumerate() {
        let Some(name) = new[i].as_symbol().filter(|_| new[i] != *was).map(str::to_string) else { continue };
        b.edit(|g| g.rename_symbol(before, &name, was));
        new = new.iter().map(|d| d.substitute(&|s| (s == name).then(|| was.clone()))).collect();
    }
}

fn is_tuple(b: &Builder, id: Option<&NodeId>) -> bool {
    id.is_some_and(|id| b.with_graph(|g| matches!(g.node(*id).meta, Meta::Tuple(_))))
}

fn start(src: &Graph) -> Builder {
    Builder::from_graph(src.shell())
}

/// The graph for these values of its symbols: every size is a number, in types as in arguments, and nodes
/// that compute sizes are gone unless they are results. Symbols without a value stay.
///
/// # Errors
/// A call that these sizes do not admit.
pub fn bind(src: &Graph, with: &Bindings) -> Result<Graph> {
    let lookup = |s: &str| with.get(s).map(|v| Dim::from(*v));
    let b = start(src);
    b.edit(|g| g.symbols.retain(|s, _| !with.contains_key(s)));
    // The value of each node for its users, and the node itself.
    let mut map: Vec<(Arg, NodeId)> = Vec::with_capacity(src.len());
    for (_, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        let of =
            |n: NodeId| if node.kind == Kind::Output { Arg::Node(map[n.index()].1) } else { map[n.index()].0.clone() };
        let mut args: Vec<Arg> = node.args.iter().map(|a| bind_arg(&a.map_nodes(&mut |n| of(n)), &lookup)).collect();
        bind_operands(&b, &mut args)?;
        let meta = match node.kind {
            Kind::Call(op) => {
                let known = bind_meta(&node.meta, &lookup);
                b.infer(op, &args, &node.name)?.settled(&known)
            }
            _ => bind_meta(&node.meta, &lookup),
        };
        let value = match &meta {
            Meta::Int(d) => d.as_const().map(Arg::Int),
            _ => None,
        };
        let id = b.edit(|g| g.push(Node { args, meta, ..node.clone() }));
        map.push((value.unwrap_or(Arg::Node(id)), id));
    }
    Ok(prune(&b.finish()?))
}

fn bind_arg(a: &Arg, lookup: &dyn Fn(&str) -> Option<Dim>) -> Arg {
    a.map_dims(&mut |d| d.substitute(lookup))
}

fn bind_meta(m: &Meta, lookup: &dyn Fn(&str) -> Option<Dim>) -> Meta {
    m.map_dims(&mut |d| d.substitute(lookup))
}

/// The graph without calls and constants that no result needs; what is only asserted goes too.
pub fn prune(src: &Graph) -> Graph {
    keep(src, &|_| false)
}

/// [`prune`] for what became of `src`: asserts stay, and constants that `src` did not use either.
pub fn prune_rewritten(src: &Graph, g: &Graph) -> Graph {
    let idle = |n: &Node| src.find(&n.name).is_some_and(|o| src.constant(o).is_some() && src.use_count(o) == 0);
    keep(g, &|n| match n.kind {
        Kind::GetAttr(_) => idle(n),
        Kind::Call(op) => op.schema.returns == Returns::None,
        _ => false,
    })
}

/// Sizes that only running tells, each with the first node whose value has it.
fn sizes_told(g: &Graph) -> IndexMap<String, NodeId> {
    let mut told = IndexMap::new();
    if g.symbols.keys().any(|s| Dim::symbol(s).depends_on_data()) {
        for (id, node) in g.nodes().filter(|(_, n)| n.op().is_some_and(|o| o.class != Class::Structural)) {
            for s in node.meta.dims().iter().filter(|d| d.depends_on_data()).filter_map(Dim::as_symbol) {
                told.entry(s.to_string()).or_insert(id);
            }
        }
    }
    told
}

/// [`prune`], sparing some nodes.
fn keep(src: &Graph, spared: &dyn Fn(&Node) -> bool) -> Graph {
    let mut live = vec![false; src.len()];
    let told = sizes_told(src);
    for (id, node) in src.nodes().rev() {
        if live[id.index()] || matches!(node.kind, Kind::Output | Kind::Placeholder) || spared(node) {
            live[id.index()] = true;
            let sizes = node.args.iter().flat_map(Arg::dims).flat_map(|d| d.symbols());
            let tellers = sizes.filter_map(|s| told.get(&s).copied()).filter(|n| *n < id);
            for n in node.args.iter().flat_map(Arg::nodes).chain(tellers) {
                live[n.index()] = true;
            }
        }
    }
    let mut g = src.shell();
    g.constants.clear();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{op, text};

    const SRC: &str = r#"graph(%x: f32[N, 4, 8, 8], %unused: f32[1]) where 1 <= N with quantize = "divide" {
  %w = param "w": f32[2, 4, 1, 1]
  %gone = param "gone": f32[9]
  %conv2d = aten.conv2d(%x, %w): f32[N, 2, 8, 8]
  %relu_ = aten.relu_(%conv2d): f32[N, 2, 8, 8]
  %split = aten.max_pool2d_with_indices(%relu_, [2, 2]): (f32[N, 2, 4, 4], i64[N, 2, 4, 4])
  %getitem = getitem(%split, 0): f32[N, 2, 4, 4]
  return %getitem "y"
}
"#;

    #[test]
    fn rules_run_into_a_new_graph_and_idle_constants_stay() {
        let src = text::parse(SRC).unwrap();
        let out = transform(&src, |b, _, n, args| match n.op() {
            Some(o) if o.name == "aten.relu_.default" => Ok(Replace::With(b.apply_rule(o, args, &n.name)?)),
            _ => Ok(Replace::Copy),
        });
        let want = SRC.replace("aten.relu_(", "aten.relu(").replace("%relu_", "%relu");
        assert_eq!(out.unwrap().to_string(), want);
        assert_eq!(src.to_string(), SRC);
    }

    #[test]
    fn binding_symbols_leaves_numbers_only() {
        let src = r#"graph(%x: f32[N, 4, H]) where 1 <= N, 2 <= H <= 64 {
  %n = aten.sym_size.int(%x, 0): int<N>
  %view = aten.view(%x, [%n, <4*H>]): f32[N, 4*H]
  %slice = aten.slice.Tensor(%view, 1, 0, <H>): f32[N, H]
  return %slice
}
"#;
        let want = r#"graph(%x: f32[3, 4, 8]) {
  %view = aten.view(%x, [3, 32]): f32[3, 32]
  %slice = aten.slice.Tensor(%view, 1, 0, 8): f32[3, 8]
  return %slice
}
"#;
        let src = text::parse(src).unwrap();
        let with = src.bind(&[vec![3, 4, 8]]).unwrap();
        assert_eq!(bind(&src, &with).unwrap().to_string(), want);
    }

    #[test]
    fn what_tells_a_size_stays() {
        let src = "graph(%x: i64[], %y: f32[6]) where 0 <= u0 {
  %item = aten.item(%x): int<u0>
  %narrow = aten.slice.Tensor(%y, 0, 1, <1 + u0>): f32[u0]
  return %narrow
}
";
        let out = transform(&text::parse(src).unwrap(), |_, _, _, _| Ok(Replace::Copy)).unwrap();
        assert_eq!(out.to_string().matches("aten.item").count(), 1);
    }

    #[test]
    fn a_call_with_several_results_may_become_several_values() {
        let src = text::parse(SRC).unwrap();
        let out = transform(&src, |b, _, n, args| match n.op() {
            Some(o) if o.base() == "max_pool2d_with_indices" => {
                let x = b.value(args[0].nodes()[0]);
                Ok(Replace::With(vec![x.relu(), x]))
            }
            _ => Ok(Replace::Copy),
        });
        let counts = out.unwrap().op_counts();
        assert_eq!(counts.get("aten.relu.default"), Some(&1));
        assert_eq!(counts.get("getitem"), None);
        assert!(op::find("aten.relu").is_ok());
    }
}
