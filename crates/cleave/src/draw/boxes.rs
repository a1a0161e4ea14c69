//! What stands in a box.

use super::select::Selection;
use super::{Box, Stage};
use crate::describe::{self, Item};
use crate::sizes::SizeNames;
use crate::text::{char_width, flow, shorten, tail, wrap};
use cleave_ir::text::node_text;
use cleave_ir::{Class, Graph, Kind, Meta, NodeId};

/// Widths of a character, in a monospaced font, of the first line and of the others.
pub const HEAD_WIDTH: f64 = 7.4;
pub const SMALL_WIDTH: f64 = 6.2;
/// Heights of lines.
pub const HEAD_HEIGHT: f64 = 16.0;
pub const SMALL_HEIGHT: f64 = 13.0;
/// Between the text and the border, on each side.
pub const PADDING: f64 = 9.0;
const LINE: usize = 38;

/// The box of a node, at no place yet.
pub fn node(stage: &Stage<'_>, s: usize, selection: &Selection, id: NodeId, sizes: &mut SizeNames) -> Box {
    let g = stage.graph;
    let n = g.node(id);
    let (op, class, mut lines) = match n.kind {
        Kind::Placeholder => ("input".to_string(), "input", vec![n.name.clone(), "input".into()]),
        Kind::Output => ("output".to_string(), "output", vec!["output".into()]),
        Kind::GetAttr(_) => ("constant".to_string(), "input", vec![n.name.clone()]),
        Kind::Call(op) => {
            let base = if op.name.starts_with("prims.") { op.short() } else { op.base() };
            let mut lines = vec![base.to_string()];
            lines.extend((n.name != base).then(|| n.name.clone()));
            (op.base().to_string(), class_name(op.class), lines)
        }
    };
    lines.extend(details(g, id));
    let lines = lines.iter().map(|l| if *l == n.name { tail(l, LINE) } else { shorten(l, LINE + 6) }).collect();
    let comment = stage.comment(id).map(|c| wrap(c, LINE)).unwrap_or_default();
    let at = id.index();
    let mut b = Box {
        name: n.name.clone(),
        op,
        class,
        comments: comment.len(),
        lines: [lines, comment].concat(),
        text: node_text(g, id),
        focus: selection.focus[s][at] && !stage.plain.contains(&id),
        gone: selection.gone[s][at],
        new: selection.new[s][at],
        x: 0.0,
        y: 0.0,
        width: 0.0,
        height: 0.0,
        label: label(&n.meta, sizes),
    };
    measure(&mut b);
    b
}

/// The box of a mark, from its members in order. It has a label where one value alone is used outside.
pub fn mark(g: &Graph, members: &[NodeId], sizes: &mut SizeNames) -> Box {
    let names: Vec<&str> = members.iter().map(|id| g.node(*id).name.as_str()).collect();
    let ops: Vec<&str> = members.iter().filter_map(|id| Some(g.node(*id).op()?.base())).collect();
    let text = match ops.as_slice() {
        few @ ([_] | [_, _]) => few.join(", "),
        many => format!("{} ops", many.len()),
    };
    let leaves = |id: &&NodeId| g.users(**id).iter().any(|u| members.binary_search(u).is_err());
    let mut out = members.iter().filter(leaves);
    let label = match (out.next(), out.next()) {
        (Some(one), None) => label(&g.node(*one).meta, sizes),
        _ => None,
    };
    let mut b = Box {
        name: names.join(" "),
        op: String::new(),
        class: "mark",
        comments: 0,
        lines: vec![format!("⋯ {text}")],
        text: format!("left out: {}", shorten(&names.join(", "), 400)),
        focus: false,
        gone: false,
        new: false,
        x: 0.0,
        y: 0.0,
        width: 0.0,
        height: 0.0,
        label,
    };
    measure(&mut b);
    b
}

fn measure(b: &mut Box) {
    let width = |i: usize, l: &String| char_width(l) as f64 * if i == 0 { HEAD_WIDTH } else { SMALL_WIDTH };
    let text = b.lines.iter().enumerate().map(|(i, l)| width(i, l)).fold(0.0, f64::max);
    b.width = (text + 2.0 * PADDING).ceil();
    b.height = HEAD_HEIGHT + (b.lines.len() - 1) as f64 * SMALL_HEIGHT + if b.is_mark() { 4.0 } else { 8.0 };
}

/// Width of a label.
pub fn label_width(b: &Box) -> f64 {
    b.label.as_ref().map_or(0.0, |l| (char_width(l) as f64 * SMALL_WIDTH + 6.0).ceil())
}

fn label(m: &Meta, sizes: &mut SizeNames) -> Option<String> {
    (*m != Meta::None).then(|| shorten(&sizes.meta(m), LINE))
}

/// Constants, then numbers and arguments that are not at their default.
fn details(g: &Graph, id: NodeId) -> Vec<String> {
    let (mut constants, mut words) = (vec![], vec![]);
    for item in describe::call(g, id) {
        match item {
            Item::Value(_) | Item::Shape(_) => {}
            Item::Constant(name, c) => constants.push(format!("{name} {}", describe::constant(g, c))),
            Item::Number(n) => words.push(n),
            Item::Word(name, text) => words.push(format!("{name} {text}")),
        }
    }
    constants.into_iter().chain(flow(&words, LINE).into_iter().take(2)).collect()
}

fn class_name(c: Class) -> &'static str {
    match c {
        Class::Strategic => "strategic",
        Class::Pointwise => "pointwise",
        Class::Norm => "norm",
        Class::Quantize => "quantize",
        Class::Pool | Class::Reduction => "reduction",
        Class::View | Class::Move | Class::Creation | Class::Structural | Class::Inert => "other",
    }
}
