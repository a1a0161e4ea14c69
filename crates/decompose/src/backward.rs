//! Reverse mode: a graph with the gradients of its inputs and parameters.

use crate::error::{DecomposeError, Result};
use crate::functional::{functionalize, resolve_sizes};
use cleave_ir::derivative::{Slope, gradients};
use cleave_ir::graph::{Arg, ConstKind, Graph, Kind, Meta, Node, NodeId};
use cleave_ir::op::Op;
use cleave_ir::ops::control;
use cleave_ir::transform::{self, Replace};
use cleave_ir::{Builder, IrError, Levels, Value, verify};
use indexmap::IndexMap;
use std::sync::Arc;

/// Rules are run until every op that gradients flow through has a derivative; this many rounds must be enough.
const ROUNDS: usize = 32;

/// The joint graph: what `src` computes, and the gradients of its float inputs and parameters.
///
/// Its inputs are those of `src`, then `grad_<name>` for each float result. Its results are those of `src`, then
/// `grad_<name>` for each float input and each float parameter: the sum over all results of gradient times derivative,
/// zeros for those on which no float result depends. Ops that gradients flow through and that have no derivative of their
/// own are broken up by their rules; all others stay as they are, and any table may be run on the graph.
///
/// # Errors
/// An op that gradients flow through and that has neither derivative nor rule, or what a rule or derivative met.
pub fn backward(src: &Graph) -> Result<Graph> {
    let mut g = resolve_sizes(&functionalize(src)?)?;
    for _ in 0..ROUNDS {
        let path = path(&g);
        if first(&g, &path).is_none() {
            let joint = transform::prune(&joint(&g, &path)?);
            verify::verify(&joint, Levels::ALL)?;
            return Ok(joint);
        }
        g = round(&g, &path)?;
    }
    let left = first(&g, &path(&g));
    let (op, node) = left.map(|n| (n.op().map_or("", |o| o.short()).into(), n.name.clone())).unwrap_or_default();
    Err(DecomposeError::Rule { op, node, why: "rules lead in circles".into() })
}

/// The rules of all calls on the path that have no derivative; what they call is left for the next round.
fn round(g: &Graph, path: &[bool]) -> Result<Graph> {
    let mut failed = None;
    let out = transform::transform(g, |b, id, node, args| match node.op() {
        Some(o) if path[id.index()] && broken(o) => {
            b.apply_rule(o, args, &node.name).map(Replace::With).inspect_err(|e| {
                let (op, node, why) = (o.short().into(), node.name.clone(), e.to_string());
                failed.get_or_insert(DecomposeError::Rule { op, node, why });
            })
        }
        _ => Ok(Replace::Copy),
    });
    failed.map_or(Ok(()), Err)?;
    Ok(out?)
}

fn broken(o: &Op) -> bool {
    o.derivative.is_none() && o.rule.is_some()
}

fn first<'g>(g: &'g Graph, path: &[bool]) -> Option<&'g Node> {
    g.nodes().filter(|(id, _)| path[id.index()]).map(|(_, n)| n).find(|n| n.op().is_some_and(broken))
}

fn is_float(m: &Meta) -> bool {
    match m {
        Meta::Tensor(t) => t.dtype.is_float(),
        Meta::Tuple(items) => items.iter().any(is_float),
        Meta::None | Meta::Int(_) => false,
    }
}

/// Which nodes gradients flow through: those that depend on a float input or parameter, and on which a float result
/// depends, by floats all the way. Ops that are refused count whatever their results are, so that they are not passed over.
fn path(g: &Graph) -> Vec<bool> {
    let mut active = vec![false; g.len()];
    for (id, node) in g.nodes() {
        active[id.index()] = match node.kind {
            Kind::Placeholder | Kind::GetAttr(ConstKind::Param) => is_float(&node.meta),
            Kind::GetAttr(_) | Kind::Output => false,
            Kind::Call(op) => {
                let flows = match op.derivative.map(|d| d.slope) {
                    Some(Slope::Zero(_)) => false,
                    Some(Slope::Refused(_)) => true,
                    _ => is_float(&node.meta),
                };
                flows && node.args.iter().flat_map(Arg::nodes).any(|a| active[a.index()])
            }
        };
    }
    let mut needed = vec![false; g.len()];
    g.results().into_iter().for_each(|id| needed[id.index()] = is_float(&g.node(id).meta));
    for (id, node) in g.nodes().rev() {
        needed[id.index()] &= active[id.index()];
        if needed[id.index()] && node.op().is_some() {
            node.args.iter().flat_map(Arg::nodes).for_each(|a| needed[a.index()] = true);
        }
    }
    needed
}

/// Gradients found so far, by the value and the number of its result; several are to be added.
type Found<'b> = IndexMap<(NodeId, usize), Vec<Value<'b>>>;

fn sum<'b>(found: &Found<'b>, id: NodeId, i: usize) -> Option<Value<'b>> {
    found.get(&(id, i))?.iter().copied().reduce(|a, b| a + b)
}

/// The graph with its gradients: the calls in order, then their derivatives in reverse order.
fn joint(g: &Graph, path: &[bool]) -> Result<Graph> {
    let b = Builder::from_graph(g.shell());
    let mut map = vec![NodeId::end(); g.len()];
    let mut copy = |inputs: bool| {
        for (id, node) in g.nodes().filter(|(_, n)| n.kind != Kind::Output && (n.kind == Kind::Placeholder) == inputs) {
            let args = node.args.iter().map(|a| a.map_nodes(&mut |n| map[n.index()].into())).collect();
            map[id.index()] = b.edit(|new| new.push(Node { args, ..node.clone() }));
        }
    };
    copy(true);
    let results: Vec<(String, NodeId)> = g.output_names.iter().cloned().zip(g.results()).collect();
    let mut names = g.input_names.clone();
    let seeds: Vec<(NodeId, Value<'_>)> = results
        .iter()
        .filter(|(_, id)| g.node(*id).meta.as_tensor().is_some_and(|t| t.dtype.is_float()))
        .map(|(name, id)| (*id, b.placeholder(&grad_name(name, &mut names), g.node(*id).meta.clone())))
        .collect();
    copy(false);
    let mut found = Found::new();
    for (id, seed) in seeds {
        found.entry((map[id.index()], 0)).or_default().push(seed);
    }
    for (id, node) in g.nodes().rev().filter(|(id, _)| path[id.index()]) {
        let Some(op) = node.op() else { continue };
        let results = if let Meta::Tuple(items) = &node.meta { items.len() } else { 1 };
        let new = map[id.index()];
        b.set_origin(node.origin.clone());
        let flows: Vec<_> = (0..results).map(|i| sum(&found, new, i)).collect();
        let (Some(_), args) = (flows.iter().flatten().next(), node.args.iter().flat_map(Arg::nodes)) else { continue };
        if let ("getitem", Some(Arg::Node(of)), Some(Arg::Int(i))) = (op.name, node.args.first(), node.args.get(1)) {
            found.entry((map[of.index()], *i as usize)).or_default().extend(flows[0]);
            continue;
        }
        let wanted: Vec<NodeId> = args.filter(|a| path[a.index()]).map(|a| map[a.index()]).collect();
        let fail = |why: String| DecomposeError::Derivative { op: op.short().into(), node: node.name.clone(), why };
        if op.name == control::COND.name {
            for (of, gradient) in conditional(b.value(new), &flows, wanted)? {
                found.entry((of, 0)).or_default().push(gradient);
            }
            continue;
        }
        let derivative = op.derivative.ok_or_else(|| fail("it has neither derivative nor rule".into()))?;
        let given = gradients(&derivative.slope, b.value(new), flows, wanted).map_err(|e| match e {
            IrError::Call { op: o, why, .. } if o == op.name => fail(why),
            e => fail(e.to_string()),
        })?;
        for (of, gradient) in given {
            found.entry((of, 0)).or_default().push(gradient);
        }
    }
    b.set_origin(cleave_ir::Origin::default());
    let mut outputs: Vec<(String, Value<'_>)> =
        results.into_iter().map(|(name, id)| (name, b.value(map[id.index()]))).collect();
    let mut names = g.output_names.clone();
    for (name, nodes) in leaves(g) {
        let parts = nodes.iter().filter_map(|id| sum(&found, map[id.index()], 0));
        let zeros = || match &g.node(nodes[0]).meta {
            Meta::Tensor(t) => b.call("aten.full", vec![t.shape.clone().into(), 0i64.into(), t.dtype.into()]),
            _ => b.value(map[nodes[0].index()]),
        };
        outputs.push((grad_name(&name, &mut names), parts.reduce(|a, b| a + b).unwrap_or_else(zeros)));
    }
    b.output(&outputs);
    Ok(b.finish()?)
}

/// The gradients of a branch's operands are those of the branch that was taken.
fn conditional<'b>(
    result: Value<'b>,
    flows: &[Option<Value<'b>>],
    wanted: Vec<NodeId>,
) -> Result<Vec<(NodeId, Value<'b>)>> {
    let b = result.builder();
    let node = b.with_graph(|g| g.node(result.id()).clone());
    let [pred, Arg::Graph(yes), Arg::Graph(no), Arg::List(operands)] = node.args.as_slice() else { return Ok(vec![]) };
    let places: Vec<usize> =
        (0..operands.len()).filter(|i| matches!(&operands[*i], Arg::Node(n) if wanted.contains(n))).collect();
    let (yes, no) = (gradients_of(yes, &places, &node)?, gradients_of(no, &places, &node)?);
    let Meta::Tuple(items) = &node.meta else { return Ok(vec![]) };
    let seeds = items.iter().zip(flows).enumerate().filter(|(_, (m, _))| is_float(m)).map(|(i, (_, flow))| {
        Arg::from(flow.unwrap_or_else(|| b.getitem(result, i).op("aten.full_like", vec![0i64.into()])))
    });
    let all = operands.iter().cloned().chain(seeds).collect();
    let args = vec![pred.clone(), Arg::Graph(Arc::new(yes)), Arg::Graph(Arc::new(no)), Arg::List(all)];
    let made = b.call(control::COND.name, args);
    let of = |place: usize| operands[place].nodes().first().copied();
    Ok(places.iter().enumerate().filter_map(|(i, p)| Some((of(*p)?, b.getitem(made, i)))).collect())
}

/// The graph of the gradients of these inputs of a branch.
fn gradients_of(branch: &Graph, places: &[usize], call: &Node) -> Result<Graph> {
    let joint = backward(branch)?;
    let inputs = branch.placeholders();
    let float = |i: &usize| is_float(&branch.node(inputs[*i]).meta);
    let floats: Vec<usize> = (0..inputs.len()).filter(float).collect();
    let results = joint.results();
    let gradients = &results[branch.results().len()..];
    if gradients.len() != floats.len() {
        return Err(DecomposeError::Derivative {
            op: control::COND.name.into(),
            node: call.name.clone(),
            why: "a branch has parameters that are no operands".into(),
        });
    }
    let b = Builder::from_graph(joint.shell());
    let mut map: Vec<NodeId> = vec![];
    for (_, node) in joint.nodes().filter(|(_, n)| n.kind != Kind::Output) {
        let args = node.args.iter().map(|a| a.map_nodes(&mut |n| map[n.index()].into())).collect();
        map.push(b.edit(|g| g.push(Node { args, ..node.clone() })));
    }
    let kept = floats.iter().zip(gradients).filter(|(i, _)| places.contains(i));
    let named: Vec<_> = kept.map(|(i, id)| (format!("grad_{i}"), b.value(map[id.index()]))).collect();
    b.output(&named);
    Ok(transform::prune(&b.finish()?))
}

/// What gradients are taken of, by name: float inputs, then float parameters, of which several nodes may stand for one.
fn leaves(g: &Graph) -> Vec<(String, Vec<NodeId>)> {
    let float = |id: &NodeId| is_float(&g.node(*id).meta);
    let inputs = g.input_names.iter().cloned().zip(g.placeholders()).filter(|(_, id)| float(id));
    let mut params: IndexMap<&str, Vec<NodeId>> = IndexMap::new();
    for (id, node) in g.nodes().filter(|(id, n)| n.kind == Kind::GetAttr(ConstKind::Param) && float(id)) {
        params.entry(&node.target).or_default().push(id);
    }
    let params = params.into_iter().map(|(name, ids)| (name.to_string(), ids));
    inputs.map(|(name, id)| (name, vec![id])).chain(params).collect()
}

/// `grad_<name>`, with a number behind it if it is taken.
fn grad_name(name: &str, taken: &mut Vec<String>) -> String {
    let wish = format!("grad_{name}");
    let free = |n: &String| !taken.contains(n);
    let found = Some(wish.clone()).filter(free).or_else(|| (1..).map(|i| format!("{wish}_{i}")).find(free));
    let found = found.expect("invariant: there are more numbers than names");
    taken.push(found.clone());
    found
}
