//! Arguments as one-key objects.

use super::names::Names;
use super::node_of;
use cleave_ir::schema::{Param, Type};
use cleave_ir::{Arg, Graph, Meta, Node, NodeId, Op};
use indexmap::IndexMap;
use serde_json::{Value, json};

/// How torch's deserializer passes an argument.
const POSITIONAL: i64 = 1;
const KEYWORD: i64 = 2;

/// The arguments of a call by name. Keyword arguments at their defaults are left out, positional ones only
/// behind the last that is not.
///
/// Ops of higher order take all by position; their `graphs` have been written, by place.
pub(super) fn inputs(
    g: &Graph,
    names: &Names,
    n: &Node,
    op: &Op,
    graphs: &IndexMap<usize, Value>,
) -> Result<Vec<Value>, String> {
    let higher = op.name.starts_with("higher_order.");
    let params = &op.schema.params;
    // An optional parameter without a default has to be given.
    let plain = |p: &Param, a: &Arg| p.default.as_ref() == Some(a);
    let last = params.iter().zip(&n.args).rposition(|(p, a)| !p.keyword_only && !plain(p, a));
    let mut out = vec![];
    for (i, (p, a)) in params.iter().zip(&n.args).enumerate() {
        let given = if p.keyword_only { !plain(p, a) } else { last.is_some_and(|l| i <= l) };
        if given {
            let arg = graphs.get(&i).cloned().map_or_else(|| argument(g, names, p, a), Ok);
            let arg = arg.map_err(|why| format!("argument '{}': {why}", p.name))?;
            let kind = if p.keyword_only { KEYWORD } else { POSITIONAL };
            let name = if higher { "" } else { &p.name };
            out.push(json!({"name": name, "arg": arg, "kind": kind}));
        }
    }
    Ok(out)
}

fn argument(g: &Graph, names: &Names, p: &Param, a: &Arg) -> Result<Value, String> {
    Ok(match (p.ty, a) {
        (_, Arg::None) => json!({"as_none": true}),
        (_, Arg::Dim(d)) => return Err(size_expression(d)),
        (_, Arg::Node(id)) => node(g, names, *id),
        (Type::Float, Arg::Int(i)) => json!({"as_float": *i as f64}),
        (_, Arg::Int(i)) if p.name == "memory_format" => json!({"as_memory_format": i + 1}),
        (_, Arg::Int(i)) => json!({ "as_int": i }),
        (_, Arg::Float(f)) => json!({"as_float": float(*f)}),
        (_, Arg::Bool(b)) => json!({ "as_bool": b }),
        (_, Arg::DType(d)) => json!({"as_scalar_type": d.torch_code()}),
        (_, Arg::Str(s)) => string(&p.name, s)?,
        (ty, Arg::List(items)) => list(g, names, ty, items)?,
        (_, Arg::Graph(_)) => return Err("a graph cannot be written here".into()),
    })
}

fn size_expression(d: &cleave_ir::Dim) -> String {
    format!("the size {d} is an expression; sizes have to be nodes before a program is written")
}

fn node(g: &Graph, names: &Names, id: NodeId) -> Value {
    let name = names.node(id);
    match g.node(id).meta {
        Meta::Int(_) => json!({"as_sym_int": {"as_name": name}}),
        Meta::None => json!({"as_sym_bool": {"as_name": name}}),
        _ => json!({"as_tensor": {"name": name}}),
    }
}

/// JSON has no infinities and NaN; the file has their names.
fn float(f: f64) -> Value {
    match f {
        f if f.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        f => f.into(),
    }
}

/// A string, or a member of one of torch's closed sets by its number.
fn string(param: &str, s: &str) -> Result<Value, String> {
    let number = |names: &[&str]| names.iter().position(|n| *n == s).ok_or_else(|| format!("'{s}' has no number"));
    Ok(match param {
        "memory_format" => {
            let names = ["", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"];
            json!({"as_memory_format": number(&names)?})
        }
        "layout" => {
            let names =
                ["", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided"];
            json!({"as_layout": number(&names)?})
        }
        "device" => {
            let (kind, index) = s.split_once(':').map_or((s, None), |(k, i)| (k, i.parse::<i64>().ok()));
            json!({"as_device": {"type": kind, "index": index}})
        }
        _ => json!({ "as_string": s }),
    })
}

fn list(g: &Graph, names: &Names, ty: Type, items: &[Arg]) -> Result<Value, String> {
    let all = |f: fn(&Arg) -> bool| items.iter().all(f);
    let expression = items.iter().find_map(|a| if let Arg::Dim(d) = a { Some(size_expression(d)) } else { None });
    if let Some(why) = expression {
        return Err(why);
    }
    let plain = |a: &Arg| match a {
        Arg::Int(i) => json!(i),
        Arg::Bool(b) => json!(b),
        Arg::Float(f) => float(*f),
        _ => Value::Null,
    };
    let values = || -> Vec<Value> { items.iter().map(plain).collect() };
    Ok(match ty {
        Type::TensorList if all(|a| node_of(a).is_some()) => {
            let list: Vec<Value> = items.iter().filter_map(node_of).map(|id| json!({"name": names.node(id)})).collect();
            json!({ "as_tensors": list })
        }
        Type::TensorList if all(|a| matches!(a, Arg::Node(_) | Arg::None)) => {
            let one = |a: &Arg| {
                node_of(a).map_or(json!({"as_none": true}), |id| json!({"as_tensor": {"name": names.node(id)}}))
            };
            json!({"as_optional_tensors": items.iter().map(one).collect::<Vec<_>>()})
        }
        Type::IntList(_) if all(|a| matches!(a, Arg::Int(_))) => json!({"as_ints": values()}),
        Type::IntList(_) if all(|a| matches!(a, Arg::Int(_) | Arg::Node(_))) => {
            let one = |a: &Arg| match node_of(a) {
                Some(id) if matches!(g.node(id).meta, Meta::Int(_)) => Ok(json!({"as_name": names.node(id)})),
                Some(id) => Err(format!("'{}' is not a size", names.node(id))),
                None => Ok(json!({"as_int": plain(a)})),
            };
            json!({"as_sym_ints": items.iter().map(one).collect::<Result<Vec<_>, _>>()?})
        }
        Type::FloatList if all(|a| matches!(a, Arg::Float(_) | Arg::Int(_))) => {
            let number = |a: &Arg| if let Arg::Int(i) = a { float(*i as f64) } else { plain(a) };
            json!({"as_floats": items.iter().map(number).collect::<Vec<_>>()})
        }
        Type::BoolList if all(|a| matches!(a, Arg::Bool(_))) => json!({"as_bools": values()}),
        _ => return Err(format!("a list {items:?} cannot be written")),
    })
}
