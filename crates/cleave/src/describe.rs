//! A call in few words, for outlines and drawings. The exact form is [`cleave_ir::text`]'s.

use cleave_ir::schema::Param;
use cleave_ir::text::{arg_text, meta_text};
use cleave_ir::{Arg, Class, Graph, Kind, NodeId};

/// Parameters that say nothing about an inference result, or are alike in every network.
const QUIET: [&str; 7] = ["training", "train", "momentum", "eps", "cudnn_enabled", "cudnn_enable", "pin_memory"];
/// Parameters of quantize and dequantize that repeat the type's range.
const LEVELS: [&str; 4] = ["quant_min", "quant_max", "dtype", "out_dtype"];
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
    let constant = |p: &Param, x: NodeId| {
        let c = stored(g, x);
        match g.constant(c) {
            Some(t) if t.len() == 1 && t.dtype().is_float() => Some(Item::Number(number(t.to_f64()[0]))),
            Some(t) if t.shape().len() >= least_rank => Some(Item::Constant(p.name.clone(), c)),
            _ => None,
        }
    };
    for (arg, p) in n.args.iter().zip(&op.schema.params) {
        match arg {
            Arg::Node(x) if is_constant(g, *x) => call.extend(constant(p, *x)),
            Arg::Node(x) => call.push(Item::Value(*x)),
            Arg::List(l) if !l.is_empty() && l.iter().all(|a| matches!(a, Arg::Node(_))) => {
                let stored = |x| Item::Constant(p.name.clone(), stored(g, x));
                let item = |x| if is_constant(g, x) { stored(x) } else { Item::Value(x) };
                call.extend(arg.nodes().into_iter().map(item));
            }
            Arg::None | Arg::Graph(_) => {}
            Arg::List(_) if op.class == Class::View && matches!(p.name.as_str(), "size" | "shape") => {
                call.push(Item::Shape(arg_text(g, arg)));
            }
            // To the end of an axis.
            Arg::Int(i64::MAX) => {}
            _ if QUIET.contains(&p.name.as_str()) => {}
            // The type says it.
            _ if op.class == Class::Quantize && LEVELS.contains(&p.name.as_str()) => {}
            a if default(p).is_some_and(|d| d == a || Some(d) == repeated(a)) => {}
            Arg::Float(v) => call.push(Item::Word(p.name.clone(), number(*v))),
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

/// With five digits where it has more.
fn number(v: f64) -> String {
    let exact = format!("{v:?}");
    if exact.len() <= 9 || !v.is_finite() {
        return exact;
    }
    let before = v.abs().log10().floor() as i32;
    match usize::try_from(4 - before) {
        Ok(digits) if digits <= 8 => format!("{v:.digits$}"),
        _ => format!("{v:.4e}"),
    }
}

/// Whether a node is a constant, or a quantized one made float again.
pub fn is_constant(g: &Graph, id: NodeId) -> bool {
    let n = g.node(id);
    match n.kind {
        Kind::GetAttr(_) => true,
        Kind::Call(op) if op.class == Class::Quantize => {
            n.args.iter().flat_map(Arg::nodes).all(|a| matches!(g.node(a).kind, Kind::GetAttr(_)))
        }
        _ => false,
    }
}

/// The constant behind a node that is one.
fn stored(g: &Graph, id: NodeId) -> NodeId {
    match g.node(id).kind {
        Kind::Call(_) => g.node(id).args.iter().flat_map(Arg::nodes).next().unwrap_or(id),
        _ => id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let all = [0.5, 3.0, 0.007666972931474447, 1e-5, 1.234567e-9, 123456789.123, -0.1767766952966369].map(number);
        assert_eq!(all, ["0.5", "3.0", "0.0076670", "1e-5", "1.2346e-9", "1.2346e8", "-0.17678"]);
        assert_eq!(number(f64::INFINITY), "inf");
    }
}
