//! Prims as the ATen ops that they came from: what they make explicit becomes implicit again.

use crate::error::Result;
use cleave_ir::graph::{Arg, Graph, Meta, Node, NodeId};
use cleave_ir::op::{self, Op};
use cleave_ir::transform::{self, Replace};
use cleave_ir::{Builder, IrError, Value};
use indexmap::IndexMap;

/// The graph without prims for which ATen has an op.
pub(super) fn lifted(src: &Graph) -> Result<Graph> {
    if !src.nodes().filter_map(|(_, n)| n.op()).any(|o| o.name.starts_with("prims.")) {
        return Ok(src.clone());
    }
    // What was broadcast, by the node that holds the result.
    let mut spread: IndexMap<NodeId, NodeId> = IndexMap::new();
    Ok(transform::transform(src, |b, _: NodeId, node, args| {
        let Some(o) = node.op().filter(|o| o.name.starts_with("prims.")) else { return Ok(Replace::Copy) };
        let value = |name: &str| o.schema.index(name).and_then(|i| args.get(i)).cloned().unwrap_or(Arg::None);
        let call = |name: &str, args: Vec<Arg>| -> std::result::Result<Replace<'_>, IrError> {
            Ok(Replace::With(vec![b.call_op(op::find(name)?, args, Some(&node.name))]))
        };
        match o.base() {
            "broadcast_in_dim" => broadcast(b, node, args, &mut spread),
            "convert_element_type" => call("aten._to_copy", vec![value("a"), value("dtype")]),
            "transpose" => call("aten.permute", vec![value("a"), value("permutation")]),
            "reshape" => call("aten.view", vec![value("a"), value("shape")]),
            "where" => {
                let tensor = |a: Arg| match (&a, node.meta.as_tensor()) {
                    (Arg::Node(_), _) | (_, None) => a,
                    (_, Some(m)) => b.call("aten.scalar_tensor", vec![a, m.dtype.into()]).into(),
                };
                let given = vec![value("pred"), tensor(value("a")), tensor(value("b"))];
                elementwise(b, "aten.where.self", node, given, &spread)
            }
            "sum" | "prod" | "amax" | "amin" | "var" => reduction(b, o, node, args),
            base => match aten(base, args) {
                Some(name) => elementwise(b, &name, node, args.to_vec(), &spread),
                None => Ok(Replace::Copy),
            },
        }
    })?)
}

/// The ATen op of a prim's name that takes these operands.
fn aten(base: &str, args: &[Arg]) -> Option<String> {
    let tensor = |i: usize| matches!(args.get(i), Some(Arg::Node(_)));
    let overloads: &[&str] = match (tensor(0), tensor(1)) {
        (false, _) => &["Scalar"],
        (_, true) => &["Tensor", "Tensor_Tensor", "default"],
        // torch writes `x + 1` as add.Tensor with a number in the tensor's place.
        _ if matches!(base, "add" | "sub" | "mul" | "div") => &["Tensor"],
        _ => &["Tensor_Scalar", "Scalar", "default"],
    };
    let names = overloads.iter().map(|o| format!("aten.{base}.{o}"));
    names.into_iter().find(|n| op::find(n).is_ok())
}

/// An elementwise call on what stood before it was broadcast, where the op broadcasts it by itself.
fn elementwise<'b>(
    b: &'b Builder,
    name: &str,
    node: &Node,
    args: Vec<Arg>,
    spread: &IndexMap<NodeId, NodeId>,
) -> std::result::Result<Replace<'b>, IrError> {
    let o = op::find(name)?;
    let narrow = args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(spread.get(&n).copied().unwrap_or(n)))).collect();
    for args in [narrow, args] {
        if b.resolve(o, Vec::clone(&args), &node.name).is_ok_and(|(_, m)| m == node.meta) {
            return Ok(Replace::With(vec![b.call_op(o, args, Some(&node.name))]));
        }
    }
    Ok(Replace::Copy)
}

/// `expand`, of a view where dimensions go in between.
fn broadcast<'b>(
    b: &'b Builder,
    node: &Node,
    args: &[Arg],
    spread: &mut IndexMap<NodeId, NodeId>,
) -> std::result::Result<Replace<'b>, IrError> {
    let (Some(Arg::Node(x)), Some(shape), Some(Arg::List(to))) = (args.first(), args.get(1), args.get(2)) else {
        return Ok(Replace::Copy);
    };
    let (x, rank) = (b.value(*x), node.meta.as_tensor().map_or(0, |m| m.shape.len()));
    if let Some(kept) = kept(b, x, to)? {
        if kept.meta() == node.meta {
            return Ok(Replace::With(vec![kept]));
        }
        let wide = b.call_op(op::find("aten.expand")?, vec![kept.into(), shape.clone()], Some(&node.name));
        spread.insert(wide.id(), kept.id());
        return Ok(Replace::With(vec![wide]));
    }
    let aligned = to.iter().rev().zip((0..rank as i64).rev()).all(|(a, i)| *a == Arg::Int(i));
    let spaced: Value<'b> = if aligned {
        x
    } else {
        let mut view = vec![cleave_ir::Dim::from(1i64); rank];
        for (d, a) in x.shape().into_iter().zip(to) {
            if let Arg::Int(i) = a
                && let Some(v) = usize::try_from(*i).ok().and_then(|i| view.get_mut(i))
            {
                *v = d;
            }
        }
        x.view(view)
    };
    let wide = b.call_op(op::find("aten.expand")?, vec![spaced.into(), shape.clone()], Some(&node.name));
    spread.insert(wide.id(), spaced.id());
    Ok(Replace::With(vec![wide]))
}

/// What [`reduction`] makes.
const REDUCTIONS: [&str; 4] = ["aten.sum.dim_IntList", "aten.amax.default", "aten.amin.default", "aten.var.correction"];

/// A reduction whose result is spread over the dimensions that it went over: that keeps them, with one element.
fn kept<'b>(b: &'b Builder, x: Value<'b>, to: &[Arg]) -> std::result::Result<Option<Value<'b>>, IrError> {
    let reduced = b.with_graph(|g| {
        let node = g.node(x.id());
        let o = node.op().filter(|o| REDUCTIONS.contains(&o.def.name))?;
        let rank = node.args[0].nodes().first().and_then(|i| g.node(*i).meta.as_tensor()).map(|m| m.shape.len())?;
        let Some(Arg::List(dims)) = node.arg("dim") else { return None };
        let mut rest = (0..rank as i64).map(Arg::Int).filter(|d| !dims.contains(d));
        let back = to.iter().all(|d| rest.next().as_ref() == Some(d)) && rest.next().is_none();
        Some((o, node.args.clone())).filter(|_| back)
    });
    let Some((o, mut args)) = reduced else { return Ok(None) };
    let Some(keepdim) = o.schema.index("keepdim") else { return Ok(None) };
    args[keepdim] = true.into();
    Ok(Some(b.call_op(o, args, None)))
}

fn reduction<'b>(b: &'b Builder, o: &Op, node: &Node, args: &[Arg]) -> std::result::Result<Replace<'b>, IrError> {
    let pick = |n: &str| o.schema.index(n).and_then(|i| args.get(i)).cloned().unwrap_or(Arg::None);
    let (x, dims, dtype) = (pick("inp"), pick("dims"), pick("output_dtype"));
    let (name, rest) = match o.base() {
        "sum" => ("aten.sum.dim_IntList", vec![dims.clone(), Arg::Bool(false), dtype]),
        "amax" => ("aten.amax", vec![dims.clone(), Arg::Bool(false)]),
        "amin" => ("aten.amin", vec![dims.clone(), Arg::Bool(false)]),
        "var" => ("aten.var.correction", vec![dims.clone(), pick("correction"), Arg::Bool(false)]),
        _ => return Ok(Replace::Copy),
    };
    if dims == Arg::List(vec![]) {
        return Ok(Replace::Copy);
    }
    let o = op::find(name)?;
    let args = [vec![x], rest].concat();
    Ok(match b.resolve(o, args.clone(), &node.name) {
        Ok((_, m)) if m == node.meta && !matches!(m, Meta::Tuple(_)) => {
            Replace::With(vec![b.call_op(o, args, Some(&node.name))])
        }
        _ => Replace::Copy,
    })
}
