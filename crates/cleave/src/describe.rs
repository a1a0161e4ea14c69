//! A call in few words, for outlines and drawings. The exact form is [`cleave_ir::text`]'s.

use cleave_ir::schema::Param;
use cleave_ir::text::{arg_text, meta_text};
use cleave_ir::{Arg, Class, Graph, Kind, NodeId};

/// Parameters that say nothing about an inference result, or are alike in every network.
const QUIET: [&str; 7] = ["training", "train", "momentum", "eps", "cudnn_enabled", "cudnn_enable", "pin_memory"];
/// Parameters for each axis of space, where one number stands for several alike.
const SPATIAL: [&str; 5] = ["kernel_size", "stride", "padding", "dilation", "output_padding"];

/// What a parameter without default means to most calls.
const IMPLIED: [(&str, Arg); 6] = [
    ("stride", Arg::Int(1)),
    ("padding", Arg::Int(0)),
    ("dilation", Arg::Int(1)),
    ("transposed", Arg::Bool(false)),
    ("output_padding", Arg::Int(0)),
    ("groups", Arg::Int(1)),
];

/// An argument that says something.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A value that is computed, or an input.
    Value(NodeId),
    /// A constant, with the parameter's name.
    Constant(String, NodeId),
    /// A constant of one element.
    Number(String),
    /// The shape of the result.
    Shape(String),
    /// The parameter's name, and text.
    Word(String, String),
}

/// The arguments of a call in order, without those at their default, biases and the like; of a node that is no call, none.
pub fn call(g: &Graph, id: NodeId) -> Vec<Item> {
    let n = g.node(id);
    let mut call = vec![];
    let Some(op) = n.op() else { return call };
    // Their vectors (biases, statistics, scales) go without saying.
    let least_rank = if matches!(op.class, Class::Strategic | Class::Norm | Class::Quantize) { 2 } else { 1 };
    for (arg, p) in n.args.iter().zip(&op.schema.params) {
        match arg {
            Arg::Node(x) if !matches!(g.node(*x).kind, Kind::GetAttr(_)) => call.push(Item::Value(*x)),
            Arg::Node(c) => match g.constant(*c) {
                Some(t) if t.len() == 1 && t.dtype().is_float() => call.push(Item::Number(number(t.to_f64()[0]))),
                Some(t) if t.shape().len() >= least_rank => call.push(Item::Constant(p.name.clone(), *c)),
                _ => {}
            },
            Arg::List(l) if !l.is_empty() && l.iter().all(|a| matches!(a, Arg::Node(_))) => {
                let constant = |x: NodeId| matches!(g.node(x).kind, Kind::GetAttr(_));
                let item = |x| if constant(x) { Item::Constant(p.name.clone(), x) } else { Item::Value(x) };
                call.extend(arg.nodes().into_iter().map(item));
            }
            Arg::None | Arg::Graph(_) => {}
            Arg::List(_) if op.class == Class::View && matches!(p.name.as_str(), "size" | "shape") => {
                call.push(Item::Shape(arg_text(g, arg)));
            }
            // To the end of an axis.
            Arg::Int(i64::MAX) => {}
            _ if QUIET.contains(&p.name.as_str()) => {}
            a if default(p).is_some_and(|d| d == a || Some(d) == repeated(a)) => {}
            a => {
                let one = repeated(a).filter(|_| SPATIAL.contains(&p.name.as_str()));
                call.push(Item::Word(p.name.clone(), arg_text(g, one.unwrap_or(a))));
            }
        }
    }
    call
}

fn default(p: &Param) -> Option<&Arg> {
    let implied = || IMPLIED.iter().find(|(name, _)| *name == p.name).map(|(_, a)| a);
    p.default.as_ref().or_else(implied)
}

/// Type and shape of a constant: `f32[16, 1, 3, 3]`.
pub fn constant(g: &Graph, id: NodeId) -> String {
    meta_text(&g.node(id).meta)
}

/// The number that a list repeats: a default of 1 stands for `[1, 1]`.
fn repeated(a: &Arg) -> Option<&Arg> {
    match a {
        Arg::List(l) if l.windows(2).all(|w| w[0] == w[1]) => l.first(),
        _ => None,
    }
}

fn number(v: f64) -> String {
    let exact = v.to_string();
    if exact.len() <= 9 { exact } else { format!("{v:.6}") }
}
