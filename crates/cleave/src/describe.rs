//! A call in few words, for outlines and drawings. The exact form is [`cleave_ir::text`]'s.

use cleave_ir::text::{arg_text, meta_text};
use cleave_ir::{Arg, Class, Graph, Kind, NodeId};

/// Parameters that say nothing about an inference result, or are alike in every network.
const QUIET: [&str; 6] = ["training", "train", "momentum", "eps", "cudnn_enabled", "cudnn_enable"];
/// Parameters for each axis of space, where one number stands for several alike.
const SPATIAL: [&str; 5] = ["kernel_size", "stride", "padding", "dilation", "output_padding"];

/// What a call takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Values that are computed, or inputs.
    pub operands: Vec<NodeId>,
    /// Constants of rank 2 or more, with the parameter's name: `weight f32[16, 1, 3, 3]`.
    pub weights: Vec<(String, NodeId)>,
    /// Constants of one element.
    pub numbers: Vec<String>,
    /// Other arguments that are not at their default: name and text.
    pub words: Vec<(String, String)>,
}

/// Describes a call; of a node that is none, nothing.
pub fn call(g: &Graph, id: NodeId) -> Call {
    let n = g.node(id);
    let mut call = Call::default();
    let Some(op) = n.op() else { return call };
    for (arg, p) in n.args.iter().zip(&op.schema.params) {
        match arg {
            Arg::Node(x) if !matches!(g.node(*x).kind, Kind::GetAttr(_)) => call.operands.push(*x),
            Arg::Node(c) => match g.constant(*c) {
                Some(t) if t.len() == 1 && t.dtype().is_float() => call.numbers.push(number(t.to_f64()[0])),
                Some(t) if t.shape().len() > 1 => call.weights.push((p.name.clone(), *c)),
                _ => {}
            },
            Arg::List(l) if l.iter().all(|a| matches!(a, Arg::Node(_))) => {
                call.operands.extend(arg.nodes().into_iter().filter(|x| !matches!(g.node(*x).kind, Kind::GetAttr(_))))
            }
            Arg::None | Arg::Graph(_) => {}
            // The result's shape says it.
            Arg::List(_) if op.class == Class::View && matches!(p.name.as_str(), "size" | "shape") => {}
            _ if QUIET.contains(&p.name.as_str()) => {}
            a if p.default.as_ref().is_some_and(|d| d == a || Some(d) == repeated(a)) => {}
            a => {
                let one = repeated(a).filter(|_| SPATIAL.contains(&p.name.as_str()));
                call.words.push((p.name.clone(), arg_text(g, one.unwrap_or(a))));
            }
        }
    }
    call
}

/// Shape and type of a weight: `f32[16, 1, 3, 3]`.
pub fn weight(g: &Graph, id: NodeId) -> String {
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
