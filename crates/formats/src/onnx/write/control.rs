//! Control flow: graphs that are arguments, as graphs that are attributes.
//!
//! ONNX's graphs see the values around them by name, so that operands which no step changes are not passed at all.
//! Constants among them, and what is computed from constants, are taken inside first: how an op is written depends on
//! its weights, and OpenVINO lets a Scan see no other values.

use super::Entry;
use super::args::int;
use super::model::{calls, info, prune};
use super::out::{Out, Writer};
use crate::onnx::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, ValueInfoProto};
use cleave_ir::{Arg, Dim, Graph, Kind, Meta, NodeId, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::collections::BTreeSet;

pub(super) const OPS: &[Entry] =
    &[("higher_order.cond", 13, cond), ("higher_order.while_loop", 13, while_loop), ("higher_order.scan", 13, scan)];

type Step = Result<(), String>;

/// An operand of a graph by its name; `fixed` where it is the same in every step.
#[derive(Clone)]
struct Operand {
    name: String,
    fixed: Option<Arg>,
}

impl Operand {
    fn changing(name: &str) -> Operand {
        Operand { name: name.into(), fixed: None }
    }
}

/// The elements of a list of operands.
fn list<'g>(o: &Out<'_, 'g>, name: &str) -> Result<&'g [Arg], String> {
    match o.args.get(name)? {
        Arg::List(l) => Ok(l),
        other => Err(format!("argument '{name}': expected a list of operands, found {other:?}")),
    }
}

fn graph<'g>(o: &Out<'_, 'g>, name: &str) -> Result<&'g Graph, String> {
    match o.args.get(name)? {
        Arg::Graph(g) => Ok(g),
        other => Err(format!("argument '{name}': expected a graph, found {other:?}")),
    }
}

/// The names of operands; sizes are values of one element.
fn names(o: &mut Out<'_, '_>, args: &[Arg]) -> Result<Vec<String>, String> {
    let name = |a: &Arg| match a {
        Arg::Node(n) => match &o.w.g.node(*n).meta {
            Meta::Int(d) => o.size(d),
            _ => o.w.name(*n),
        },
        Arg::Int(i) => o.size(&Dim::from(*i)),
        Arg::Dim(d) => o.size(d),
        other => Err(format!("operand {other:?} cannot be written")),
    };
    args.iter().map(name).collect()
}

fn fixed(o: &mut Out<'_, '_>, name: &str) -> Result<Vec<Operand>, String> {
    let args = list(o, name)?;
    let names = names(o, args)?;
    Ok(names.into_iter().zip(args).map(|(name, a)| Operand { name, fixed: Some(a.clone()) }).collect())
}

/// For each node, whether its value is a constant, or computed from constants alone.
fn constants(g: &Graph) -> Vec<bool> {
    let known = |dims: Vec<Dim>| dims.iter().all(|d| d.as_const().is_some());
    let mut all: Vec<bool> = Vec::with_capacity(g.len());
    for (id, node) in g.nodes() {
        all.push(match node.kind {
            Kind::GetAttr(_) => g.constant(id).is_some(),
            Kind::Call(_) if !known(node.meta.dims()) || !node.args.iter().all(|a| known(a.dims())) => false,
            Kind::Call(_) => node.args.iter().flat_map(Arg::nodes).all(|n| all[n.index()]),
            _ => false,
        });
    }
    all
}

/// Appends a constant of another graph, and what it is made of; `done` has what is there.
fn copy(from: &Graph, id: NodeId, to: &mut Graph, done: &mut IndexMap<NodeId, NodeId>) -> NodeId {
    if let Some(there) = done.get(&id) {
        return *there;
    }
    let mut node = from.node(id).clone();
    node.args = node.args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(copy(from, n, to, done)))).collect();
    if let Some(t) = from.constant(id) {
        let taken = |g: &Graph, name: &str| g.constants.get(name).is_some_and(|own: &Tensor| !own.same_place(t));
        while taken(to, &node.target) {
            node.target.push('_');
        }
        to.constants.insert(node.target.clone(), t.clone());
    }
    let copied = to.push(node);
    done.insert(id, copied);
    copied
}

/// A graph in which constants of the graph around it stand for the operands that they are.
fn closed(around: &Graph, g: &Graph, operands: &[Operand]) -> Graph {
    let mut out = g.shell();
    let mut map: Vec<NodeId> = Vec::with_capacity(g.len());
    let (constant, mut done) = (constants(around), IndexMap::new());
    let mut operands = operands.iter().peekable();
    for (_, node) in g.nodes() {
        let args = node.args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(map[n.index()]))).collect();
        let id = out.push(cleave_ir::Node { args, ..node.clone() });
        let operand = operands.next_if(|_| node.kind == Kind::Placeholder).and_then(|o| o.fixed.as_ref());
        map.push(match operand {
            Some(Arg::Node(n)) if constant[n.index()] => copy(around, *n, &mut out, &mut done),
            _ => id,
        });
    }
    out
}

/// Writes the calls of a graph on these operands behind those of the writer; the names of its results.
fn inline(w: &mut Writer<'_>, g: &Graph, operands: &[Operand]) -> Result<Vec<String>, String> {
    let g = closed(w.g, g, operands);
    let mut inner = w.inside(&g);
    for (id, operand) in g.placeholders().into_iter().zip(operands) {
        match &g.node(id).meta {
            Meta::Int(d) => inner.read_off(d, &operand.name),
            _ => inner.set(id, vec![operand.name.clone()]),
        }
    }
    let done = calls(&mut inner).map_err(|p| format!("node '{}' ({}): {}", p.node, p.op, p.why));
    let results = done.and_then(|()| g.results().into_iter().map(|r| inner.name(r)).collect());
    inner.leave(w);
    results
}

/// A graph for an attribute: what `write` writes, and its results by names and metas.
fn nested(
    w: &mut Writer<'_>,
    name: &str,
    input: Vec<ValueInfoProto>,
    write: impl FnOnce(&mut Writer<'_>) -> Result<Vec<(String, Meta)>, String>,
) -> Result<GraphProto, String> {
    let around = std::mem::take(&mut w.nodes);
    let results = write(w);
    let mut output: Vec<ValueInfoProto> = vec![];
    for (value, meta) in results.iter().flatten() {
        // A result is a value of the graph's own, and of its own name.
        let made = w.nodes.iter().any(|n| n.output.contains(value));
        let own = if made && output.iter().all(|o| o.name != *value) {
            value.clone()
        } else {
            let own = w.fresh(&format!("{name}_result"));
            w.call("Identity", &own, vec![value.clone()], &own, vec![]);
            own
        };
        output.push(info(&own, meta));
    }
    let mut node = std::mem::replace(&mut w.nodes, around);
    results?;
    prune(&mut node, output.iter().map(|o| o.name.clone()).collect());
    Ok(GraphProto { node, name: name.into(), input, output, ..GraphProto::default() })
}

fn attribute(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Graph.into(),
        g: Some(Box::new(g)),
        ..Default::default()
    }
}

fn metas(g: &Graph) -> Vec<Meta> {
    g.results().into_iter().map(|r| g.node(r).meta.clone()).collect()
}

/// Inputs of a nested graph like the first placeholders of `g`.
fn inputs(w: &mut Writer<'_>, name: &str, g: &Graph, count: usize) -> Vec<ValueInfoProto> {
    let ids = g.placeholders().into_iter().take(count);
    ids.map(|id| info(&w.fresh(&format!("{name}_{}", g.node(id).name)), &g.node(id).meta)).collect()
}

fn cond(o: &mut Out<'_, '_>) -> Step {
    let (pred, operands) = (o.input("pred")?, fixed(o, "operands")?);
    let mut attrs = vec![];
    let mut count = 0;
    for (arg, attr) in [("true_graph", "then_branch"), ("false_graph", "else_branch")] {
        let g = graph(o, arg)?;
        count = g.results().len();
        let write = |w: &mut Writer<'_>| Ok(inline(w, g, &operands)?.into_iter().zip(metas(g)).collect());
        attrs.push(attribute(attr, nested(o.w, &format!("{}_{attr}", o.node.name), vec![], write)?));
    }
    o.done_tuple("If", vec![pred], count, attrs);
    Ok(())
}

/// A loop without a count, whose condition is told before it and at the end of each step.
fn while_loop(o: &mut Out<'_, '_>) -> Step {
    let (again, step) = (graph(o, "cond_graph")?, graph(o, "body_graph")?);
    let start = list(o, "carried_inputs")?;
    let (start, rest) = (names(o, start)?, fixed(o, "additional_inputs")?);
    let on = |carried: &[String]| -> Vec<Operand> {
        carried.iter().map(|n| Operand::changing(n)).chain(rest.iter().cloned()).collect()
    };
    let one = |r: Vec<String>| r.into_iter().next().ok_or("a condition without result");
    let keep = one(inline(o.w, again, &on(&start))?)?;
    let name = o.node.name.clone();
    let scalar =
        |w: &mut Writer<'_>, what: &str, dtype| info(&w.fresh(&format!("{name}_{what}")), &Meta::tensor(dtype, vec![]));
    let mut input = vec![scalar(o.w, "iteration", DType::I64), scalar(o.w, "again", DType::Bool)];
    let carried = inputs(o.w, &name, step, start.len());
    let own: Vec<String> = carried.iter().map(|v| v.name.clone()).collect();
    input.extend(carried);
    let write = |w: &mut Writer<'_>| {
        let next = inline(w, step, &on(&own))?;
        let keep = one(inline(w, again, &on(&next))?)?;
        let results = [keep].into_iter().chain(next);
        Ok(results.zip([Meta::tensor(DType::Bool, vec![])].into_iter().chain(metas(step))).collect())
    };
    let body = nested(o.w, &format!("{name}_body"), input, write)?;
    let count = start.len();
    let inputs = [vec![String::new(), keep], start].concat();
    o.done_tuple("Loop", inputs, count, vec![attribute("body", body)]);
    Ok(())
}

fn scan(o: &mut Out<'_, '_>) -> Step {
    let step = graph(o, "combine_graph")?;
    let (init, xs) = (list(o, "init")?, list(o, "xs")?);
    let (start, rest) = (names(o, &[init, xs].concat())?, fixed(o, "additional_inputs")?);
    let name = o.node.name.clone();
    let input = inputs(o.w, &name, step, start.len());
    let operands: Vec<Operand> = input.iter().map(|v| Operand::changing(&v.name)).chain(rest).collect();
    let write = |w: &mut Writer<'_>| Ok(inline(w, step, &operands)?.into_iter().zip(metas(step)).collect());
    let body = nested(o.w, &format!("{name}_body"), input, write)?;
    let slices = int("num_scan_inputs", xs.len() as i64);
    o.done_tuple("Scan", start, step.results().len(), vec![slices, attribute("body", body)]);
    Ok(())
}

/// The names that a call reads, graphs among its attributes included.
pub(super) fn reads(n: &NodeProto) -> BTreeSet<String> {
    let inner = n.attribute.iter().filter_map(|a| a.g.as_ref()).flat_map(|g| g.node.iter().flat_map(reads));
    n.input.iter().cloned().chain(inner).collect()
}
