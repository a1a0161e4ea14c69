//! Graphs as DOT, and the neighbourhood of ops in focus.

use crate::error::Result;
use crate::focus::in_focus;
use cleave_ir::text::{Printer, meta_text};
use cleave_ir::{Arg, Class, Graph, Kind, NodeId};
use std::fmt::Write;

/// Which nodes are shown: those in focus (see [`in_focus`]), and what lies within `hops` of them; with nothing named, all.
///
/// # Errors
/// A name of no op and no node.
pub fn focus(g: &Graph, ops: &[String], hops: usize) -> Result<Vec<bool>> {
    if ops.is_empty() {
        return Ok(vec![true; g.len()]);
    }
    let mut shown = in_focus(&[g], ops)?.remove(0);
    for _ in 0..hops {
        let before = shown.clone();
        for (id, n) in g.nodes() {
            for arg in n.args.iter().flat_map(Arg::nodes) {
                shown[arg.index()] |= before[id.index()];
                shown[id.index()] |= before[arg.index()];
            }
        }
    }
    Ok(shown)
}

/// The shown lines of the printed graph; what is left out between them is an ellipsis.
pub fn lines(g: &Graph, shown: &[bool], printer: &Printer<'_>) -> String {
    let text = printer.print(g);
    let mut lines = text.lines();
    let mut out = String::from(lines.next().unwrap_or_default());
    let mut gap = false;
    let rest = g.nodes().filter(|(_, n)| n.kind != Kind::Placeholder);
    for ((id, _), line) in rest.zip(lines) {
        if shown[id.index()] {
            out.push_str(if gap { "\n  …\n" } else { "\n" });
            out.push_str(line);
        }
        gap = !shown[id.index()];
    }
    out + if gap { "\n  …\n}" } else { "\n}" }
}

/// The shown part of a graph for Graphviz: calls as boxes coloured by class, shapes on the edges.
pub fn dot(g: &Graph, shown: &[bool], comment: &dyn Fn(NodeId) -> Option<String>) -> String {
    let mut out = String::from(
        "digraph {\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\", fontsize=10];\n  edge [fontname=\"sans-serif\", fontsize=8];\n",
    );
    for (id, n) in g.nodes().filter(|(id, _)| shown[id.index()]) {
        let (what, colour) = match n.kind {
            Kind::Placeholder => ("input".into(), "#ffffff"),
            Kind::GetAttr(_) => (n.target.clone(), "#f4f4f4"),
            Kind::Output => ("output".into(), "#ffffff"),
            Kind::Call(o) => (o.short().to_string(), colour(o.class)),
        };
        let note = comment(id).map(|c| format!("\\n{}", escape(&c))).unwrap_or_default();
        let label = format!("{}\\n{}{note}", escape(&n.name), escape(&what));
        writeln!(out, "  n{} [label=\"{label}\", fillcolor=\"{colour}\"];", id.index())
            .expect("invariant: writing to a string");
        for arg in n.args.iter().flat_map(Arg::nodes).filter(|a| shown[a.index()]) {
            let shape = escape(&meta_text(&g.node(arg).meta));
            writeln!(out, "  n{} -> n{} [label=\"{shape}\"];", arg.index(), id.index())
                .expect("invariant: writing to a string");
        }
    }
    out + "}"
}

fn colour(c: Class) -> &'static str {
    match c {
        Class::Strategic => "#c9dcf4",
        Class::Pointwise => "#d9ecd4",
        Class::Norm => "#f4e3c4",
        Class::Quantize => "#f4d0d0",
        Class::Pool | Class::Reduction => "#e2d6f0",
        _ => "#eeeeee",
    }
}

fn escape(s: &str) -> String {
    s.replace('\\', "\\\\").replace('"', "\\\"")
}
