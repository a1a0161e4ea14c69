//! What is done before rules are tried: mutating, aliasing and inert ops resolved, numbers out of constants.

use crate::driver;
use crate::error::Result;
use cleave_ir::graph::{Arg, Graph, Meta, Node, NodeId};
use cleave_ir::op::{self, Class, Functional, Op};
use cleave_ir::transform::{self, Replace};
use cleave_ir::{Builder, IrError};
use cleave_rewrite::Pattern;
use std::rc::Rc;

/// Composites whose semantic form is kept although functional form breaks them up.
const SEMANTIC: [&str; 3] = ["batch_norm", "reshape", "flatten"];

/// Ops of which another op says the same, with their arguments in order.
const SYNONYMS: [(&str, &str); 5] = [
    ("aten._unsafe_view.default", "aten.view"),
    ("aten.add.Scalar", "aten.add.Tensor"),
    ("aten.sub.Scalar", "aten.sub.Tensor"),
    ("aten.mul.Scalar", "aten.mul.Tensor"),
    ("aten.div.Scalar", "aten.div.Tensor"),
];

/// Whether raising runs the op's rule.
fn resolved(o: &Op) -> bool {
    let sugar = o.functional == Functional::Always && !SEMANTIC.contains(&o.base());
    let spelled = matches!(o.base(), "relu6" | "clamp_min" | "clamp_max" | "squeeze") && o.rule.is_some();
    let padding = o.def.name.ends_with(".padding");
    o.rule.is_some() && (sugar && o.class != Class::Inert || spelled || padding)
}

/// The graph without aliases, inert ops and second names. Dropouts that patterns of `kept` name stay.
pub(super) fn resolve(src: &Graph, kept: &[&Pattern]) -> Result<Graph> {
    let g = driver::expand(src, Rc::new(|o| o.rule.filter(|_| resolved(o))))?;
    let matches = kept.iter().flat_map(|p| g.ids().filter_map(|id| Some(p.named_nodes(&p.match_at(&g, id).ok()?))));
    let mut stays = vec![false; g.len()];
    matches.flatten().for_each(|id| stays[id.index()] = g.node(id).op().is_some_and(|o| o.base() == "dropout"));
    Ok(transform::transform(&g, |b, id: NodeId, node, args| {
        let plain = plain(b, node, args)?.filter(|_| !stays[id.index()]);
        Ok(plain.unwrap_or(Replace::Copy))
    })?)
}

fn plain<'b>(b: &'b Builder, node: &Node, args: &[Arg]) -> std::result::Result<Option<Replace<'b>>, IrError> {
    let Some(o) = node.op() else { return Ok(None) };
    let trained = |name: &str| node.arg(name).is_some_and(|a| matches!(a, Arg::Bool(true) | Arg::Node(_)));
    if o.name == "aten.batch_norm.default" && trained("training") && trained("running_mean") {
        let why = "batch norm in training mode; export the model after .eval()".into();
        return Err(IrError::Call { op: o.name.into(), node: node.name.clone(), why });
    }
    let drops = node.arg("p").is_some_and(|p| {
        !matches!(p, Arg::Int(0) | Arg::Int(1)) && !matches!(p, Arg::Float(p) if *p == 0.0 || *p == 1.0)
    });
    if o.base().contains("dropout") && drops && trained("train") {
        let why = "dropout in training mode; export the model after .eval()".into();
        return Err(IrError::Call { op: o.name.into(), node: node.name.clone(), why });
    }
    if o.class == Class::Inert {
        if o.functional == Functional::Always && o.base().contains("dropout") {
            return Ok(Some(Replace::With(b.apply_rule(o, args, &node.name)?)));
        }
        let kept = args.first().and_then(|a| a.nodes().first().copied()).filter(|_| node.meta != Meta::None);
        return Ok(Some(Replace::With(kept.into_iter().map(|n| b.value(n)).collect())));
    }
    if let Some(args) = without_settings(o, args) {
        return Ok(Some(Replace::With(vec![b.call_op(o, args, Some(&node.name))])));
    }
    let Some((_, to)) = SYNONYMS.iter().find(|(from, _)| *from == o.def.name) else { return Ok(None) };
    Ok(Some(Replace::With(vec![b.call_op(op::find(to)?, args.to_vec(), Some(&node.name))])))
}

/// The arguments of a normalization without what no result depends on: the momentum of statistics that stay as they are,
/// and torch's choice of a library.
fn without_settings(o: &Op, args: &[Arg]) -> Option<Vec<Arg>> {
    let mut plain = args.to_vec();
    let fixed = o.schema.index("training").is_some_and(|i| args.get(i) == Some(&Arg::Bool(false)));
    for (name, value) in
        [("momentum", Arg::Float(0.1)), ("cudnn_enabled", false.into()), ("cudnn_enable", false.into())]
    {
        if let Some(i) = o.schema.index(name).filter(|_| o.class == Class::Norm && (fixed || name != "momentum")) {
            plain[i] = o.schema.params[i].default.clone().unwrap_or(value);
        }
    }
    (plain != args).then_some(plain)
}

/// Numbers that hide in constants of one element stand as arguments; a commutative op has its number second;
/// the greater or lesser of a tensor and a number is a clamp; a choice with a number has an overload for it.
pub(super) fn literals(src: &Graph) -> Result<Graph> {
    Ok(transform::transform(src, |b, _, node, args| match node.op() {
        Some(o) if o.class == Class::Pointwise => Ok(literal(b, o, node, args)?.unwrap_or(Replace::Copy)),
        _ => Ok(Replace::Copy),
    })?)
}

fn literal<'b>(
    b: &'b Builder,
    o: &'static Op,
    node: &Node,
    args: &[Arg],
) -> std::result::Result<Option<Replace<'b>>, IrError> {
    let other = match o.base() {
        "where" => return choice(b, node, args),
        "add" | "sub" | "mul" | "div" | "maximum" | "minimum" => "other",
        "pow" => "exponent",
        _ => return Ok(None),
    };
    let (Some(0), Some(second)) = (o.schema.index("self"), o.schema.index(other)) else { return Ok(None) };
    let mut args = args.to_vec();
    if o.commutative && number(b, &args[0]).is_some() && number(b, &args[second]).is_none() {
        args.swap(0, second);
    }
    let Some(n) = number(b, &args[second]) else { return Ok(None) };
    args[second] = n.clone();
    let (to, args) = match (o.base(), o.def.name) {
        ("maximum", _) => ("aten.clamp", vec![args[0].clone(), n]),
        ("minimum", _) => ("aten.clamp", vec![args[0].clone(), Arg::None, n]),
        (_, "aten.pow.Tensor_Tensor") => ("aten.pow.Tensor_Scalar", args),
        (_, name) => (name, args),
    };
    let to = op::find(to)?;
    // Type and shape must stay: a constant of more dimensions or a wider type says something of its own.
    match b.resolve(to, args.clone(), &node.name) {
        Ok((_, m)) if m == node.meta && args[0] != Arg::None => {
            Ok(Some(Replace::With(vec![b.call_op(to, args, Some(&node.name))])))
        }
        _ => Ok(None),
    }
}

/// `where` with a number on one side.
fn choice<'b>(b: &'b Builder, node: &Node, args: &[Arg]) -> std::result::Result<Option<Replace<'b>>, IrError> {
    let [condition, x, y] = args else { return Ok(None) };
    let (name, x, y) = match (number(b, x), number(b, y)) {
        (None, Some(n)) => ("aten.where.ScalarOther", x.clone(), n),
        (Some(n), None) => ("aten.where.ScalarSelf", n, y.clone()),
        _ => return Ok(None),
    };
    let (to, args) = (op::find(name)?, vec![condition.clone(), x, y]);
    match b.resolve(to, args.clone(), &node.name) {
        Ok((_, m)) if m == node.meta => Ok(Some(Replace::With(vec![b.call_op(to, args, Some(&node.name))]))),
        _ => Ok(None),
    }
}

/// The number that an argument is, or of which the tensor behind it is full.
fn number(b: &Builder, a: &Arg) -> Option<Arg> {
    match a {
        Arg::Int(_) | Arg::Float(_) | Arg::Bool(_) => Some(a.clone()),
        Arg::Node(n) => b.with_graph(|g| {
            let node = g.node(*n);
            let filled = match node.op().map(|o| o.base()) {
                Some("full" | "full_like") => node.arg("fill_value"),
                Some("scalar_tensor") => node.arg("s"),
                _ => None,
            };
            if let Some(number @ (Arg::Int(_) | Arg::Float(_))) = filled {
                return Some(number.clone());
            }
            let t = g.constant(*n).filter(|t| t.len() == 1)?;
            Some(if t.dtype().is_float() { Arg::Float(t.to_f64()[0]) } else { Arg::Int(t.to_i64()[0]) })
        }),
        _ => None,
    }
}

/// Padding with a constant as `constant_pad_nd`: one op for it, whoever exported the model.
pub(super) fn pads(src: &Graph) -> Result<Graph> {
    let constant = |n: &Node| n.arg("mode").is_some_and(|m| *m == Arg::Str("constant".into()));
    Ok(transform::transform(src, |b, _, node, args| match node.op() {
        Some(o) if o.name == "aten.pad.default" && constant(node) => {
            Ok(Replace::With(b.apply_rule(o, args, &node.name)?))
        }
        _ => Ok(Replace::Copy),
    })?)
}
