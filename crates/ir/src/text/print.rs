//! Printing.

use crate::graph::{Arg, ConstKind, Graph, Kind, Meta, Node, NodeId};
use std::fmt::Write;

/// Prints a graph; comments may stand behind its nodes.
#[derive(Default)]
pub struct Printer<'a> {
    comment: Option<&'a dyn Fn(NodeId) -> Option<String>>,
}

impl<'a> Printer<'a> {
    /// Prints what the function gives behind a node, after `#`.
    pub fn with_comments(comment: &'a dyn Fn(NodeId) -> Option<String>) -> Printer<'a> {
        Printer { comment: Some(comment) }
    }

    /// The text.
    pub fn print(&self, g: &Graph) -> String {
        let inputs: Vec<String> = g
            .placeholders()
            .into_iter()
            .enumerate()
            .map(|(i, id)| {
                format!(
                    "%{}{}: {}",
                    g.node(id).name,
                    outside(g.input_names.get(i), &g.node(id).name),
                    meta_text(&g.node(id).meta)
                )
            })
            .collect();
        let ranges: Vec<String> = g
            .symbols
            .iter()
            .map(|(s, r)| match r.max {
                Some(m) => format!("{} <= {s} <= {m}", r.min),
                None => format!("{} <= {s}", r.min),
            })
            .collect();
        let ranges = if ranges.is_empty() { String::new() } else { format!(" where {}", ranges.join(", ")) };
        let facts: Vec<String> = g.metadata.iter().map(|(k, v)| format!("{k} = {v:?}")).collect();
        let facts = if facts.is_empty() { String::new() } else { format!(" with {}", facts.join(", ")) };
        let mut out = format!("graph({}){ranges}{facts} {{\n", inputs.join(", "));
        for (id, node) in g.nodes().filter(|(_, n)| n.kind != Kind::Placeholder) {
            let line = line(g, node);
            let comment = self.comment.and_then(|f| f(id)).map(|c| format!("   # {c}")).unwrap_or_default();
            writeln!(out, "  {line}{comment}").expect("invariant: writing to a string");
        }
        out.push_str("}\n");
        out
    }
}

impl std::fmt::Display for Graph {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Printer::default().print(self))
    }
}

fn outside(name: Option<&String>, node: &str) -> String {
    name.filter(|n| *n != node).map(|n| format!(" {n:?}")).unwrap_or_default()
}

/// A node's line in the text form: `%r = aten.relu(%x): f32[2]`; an input as it stands among the parameters.
pub fn node_text(g: &Graph, id: NodeId) -> String {
    let node = g.node(id);
    match node.kind {
        Kind::Placeholder => format!("%{}: {}", node.name, meta_text(&node.meta)),
        _ => line(g, node),
    }
}

fn line(g: &Graph, node: &Node) -> String {
    let meta = meta_text(&node.meta);
    match node.kind {
        Kind::Output => {
            let results: Vec<_> = g
                .results()
                .into_iter()
                .enumerate()
                .map(|(i, id)| format!("%{}{}", g.node(id).name, outside(g.output_names.get(i), &g.node(id).name)))
                .collect();
            format!("return {}", results.join(", "))
        }
        Kind::GetAttr(k) => {
            let kind = match k {
                ConstKind::Param => "param",
                ConstKind::Buffer => "buffer",
                ConstKind::Constant => "const",
            };
            format!("%{} = {kind} {:?}: {meta}", node.name, node.target)
        }
        Kind::Call(op) => {
            let mut n = node.args.len();
            while n > 0
                && op.schema.params.get(n - 1).is_some_and(|p| is_default(p.default.as_ref(), &node.args[n - 1]))
            {
                n -= 1;
            }
            let args: Vec<_> = node.args[..n].iter().map(|a| arg_text(g, a)).collect();
            format!("%{} = {}({}): {meta}", node.name, op.short(), args.join(", "))
        }
        Kind::Placeholder => String::new(),
    }
}

fn is_default(default: Option<&Arg>, a: &Arg) -> bool {
    match default {
        Some(d) => d == a,
        None => false,
    }
}

/// An argument as text.
pub fn arg_text(g: &Graph, a: &Arg) -> String {
    match a {
        Arg::None => "none".into(),
        Arg::Node(n) => format!("%{}", g.node(*n).name),
        Arg::Int(i) => i.to_string(),
        Arg::Dim(d) => format!("<{d}>"),
        Arg::Float(f) => format!("{f:?}"),
        Arg::Bool(b) => b.to_string(),
        Arg::Str(s) => format!("{s:?}"),
        Arg::DType(d) => d.name().into(),
        Arg::List(l) => format!("[{}]", l.iter().map(|a| arg_text(g, a)).collect::<Vec<_>>().join(", ")),
        Arg::Graph(inner) => inner.to_string().trim_end().replace('\n', "\n  "),
    }
}

/// Type and shape as text: `f32[N, 16]`.
pub fn meta_text(m: &Meta) -> String {
    match m {
        Meta::None => "none".into(),
        Meta::Tensor(t) => {
            let dims: Vec<_> = t.shape.iter().map(ToString::to_string).collect();
            format!("{}[{}]", t.dtype, dims.join(", "))
        }
        Meta::Tuple(items) => format!("({})", items.iter().map(meta_text).collect::<Vec<_>>().join(", ")),
        Meta::Int(d) => format!("int<{d}>"),
    }
}
