//! A graph for reading: chains of ops on one line, repeated blocks once.
//!
//! A line is a chain of calls, each the one user of the one before it and of its type; it has the name of the last. A
//! block of lines that follows itself unchanged, but for names and constants, is printed once with its count. For the
//! exact text see [`cleave_ir::text`].

use crate::describe;
use crate::summary::sizes;
use crate::text::{char_width, count, shorten};
use cleave_ir::text::meta_text;
use cleave_ir::{Arg, Class, Graph, Kind, Meta, NodeId, macs};
use indexmap::IndexMap;
use std::fmt::Write;

/// Calls on one line at most.
const STEPS: usize = 6;
const NAME: usize = 24;
const CALLS: usize = 100;
/// Lines of a block that can be found to repeat.
const BLOCK: usize = 400;

/// The outline, with comments behind lines.
pub fn outline(g: &Graph, comment: &dyn Fn(NodeId) -> Option<String>) -> String {
    let lines = lines(g, comment);
    let parts = fold(&lines, 0, lines.len());
    let width = |of: &dyn Fn(&Line) -> usize, most: usize| lines.iter().map(of).max().unwrap_or(0).min(most);
    let sheet = Sheet {
        lines: &lines,
        name: width(&|l| l.name.len() + 1, NAME),
        calls: width(&|l| char_width(&l.calls), CALLS),
        meta: width(&|l| char_width(&l.meta), 48),
    };
    let mut out = String::new();
    sheet.print(&parts, "", &mut out);
    out
}

/// A chain of calls.
struct Line {
    /// Of its last call.
    name: String,
    calls: String,
    meta: String,
    macs: u64,
    module: String,
    comment: String,
    /// All that must be alike in repetitions.
    key: String,
    /// The lines whose values it uses.
    uses: Vec<usize>,
}

fn lines(g: &Graph, comment: &dyn Fn(NodeId) -> Option<String>) -> Vec<Line> {
    let mut chains: Vec<Vec<NodeId>> = vec![];
    let mut ends: IndexMap<NodeId, usize> = IndexMap::new();
    for (id, n) in g.nodes().filter(|(_, n)| n.op().is_some()) {
        let first = n.args.iter().flat_map(Arg::nodes).find(|a| !matches!(g.node(*a).kind, Kind::GetAttr(_)));
        let at = first.and_then(|a| ends.get(&a).copied().filter(|at| chains[*at].len() < STEPS && follows(g, a, id)));
        match at {
            Some(at) => {
                chains[at].push(id);
                ends.insert(id, at);
            }
            None => {
                ends.insert(id, chains.len());
                chains.push(vec![id]);
            }
        }
    }
    // By the last call, so that all that a line uses stands above it.
    chains.sort_by_key(|c| c.last().copied());
    let line_of: IndexMap<NodeId, usize> =
        chains.iter().enumerate().flat_map(|(i, c)| c.iter().map(move |id| (*id, i))).collect();
    let sizes = sizes(g);
    let line = |(i, chain): (usize, &Vec<NodeId>)| {
        let steps: Vec<String> = chain.iter().enumerate().map(|(k, id)| step(g, *id, k > 0)).collect();
        let last = chain[chain.len() - 1];
        let comments: Vec<String> = chain.iter().filter_map(|id| comment(*id)).collect();
        let meta = shorten(&meta_text(&g.node(last).meta), 48);
        let operands = |id: &NodeId| g.node(*id).args.iter().flat_map(Arg::nodes).collect::<Vec<_>>();
        let uses = chain.iter().flat_map(operands).filter_map(|a| line_of.get(&a).copied().filter(|l| *l != i));
        let whole: Vec<String> = chain.iter().map(|id| key(g, *id)).collect();
        Line {
            name: g.node(last).name.clone(),
            calls: steps.join(" → "),
            key: format!("{}: {meta} # {}", whole.join(" → "), comments.last().map_or("", |c| c)),
            meta,
            macs: chain.iter().filter_map(|id| macs::macs(g, *id, &sizes)).sum(),
            module: common_module(chain.iter().map(|id| g.node(*id).origin.module.as_str())),
            comment: comments.last().cloned().unwrap_or_default(),
            uses: uses.collect(),
        }
    };
    chains.iter().enumerate().map(line).collect()
}

/// Whether a call goes on the line of its first operand.
fn follows(g: &Graph, before: NodeId, id: NodeId) -> bool {
    fn one(m: &Meta) -> &Meta {
        match m {
            Meta::Tuple(items) => items.first().unwrap_or(m),
            m => m,
        }
    }
    let alone = g.use_count(before) == 1 && one(&g.node(before).meta) == one(&g.node(id).meta);
    let class = |id: NodeId| g.node(id).op().map(|o| o.class);
    // A normalization begins a line, as in a transformer's block, unless it is that of a convolution.
    match class(id) {
        Some(Class::Strategic) | None => false,
        Some(Class::Norm) => alone && class(before) == Some(Class::Strategic),
        Some(_) => alone,
    }
}

/// A call: the value of the one before it is left out where it is all that it takes, else a dot.
fn step(g: &Graph, id: NodeId, follows: bool) -> String {
    let call = describe::call(g, id);
    let op = g.node(id).op().map_or("", |o| if o.name.starts_with("prims.") { o.short() } else { o.base() });
    let mut words: Vec<String> = call.operands.iter().map(|o| format!("%{}", g.node(*o).name)).collect();
    if follows && let Some(first) = words.first_mut() {
        *first = "·".into();
    }
    let dtype = g.node(id).meta.as_tensor().map_or("", |t| t.dtype.name());
    let weight = |c: NodeId| {
        let text = describe::weight(g, c);
        text.strip_prefix(dtype).unwrap_or(&text).to_string()
    };
    words.extend(call.weights.iter().map(|(_, c)| weight(*c)));
    words.extend(call.numbers);
    words.extend(call.words.iter().map(|(name, text)| format!("{name}={text}")));
    if words == ["·"] || op == "getitem" { op.into() } else { format!("{op}({})", words.join(", ")) }
}

/// A call without names of values.
fn key(g: &Graph, id: NodeId) -> String {
    let call = describe::call(g, id);
    let n = g.node(id);
    let constants: Vec<String> = n
        .args
        .iter()
        .flat_map(Arg::nodes)
        .filter(|a| matches!(g.node(*a).kind, Kind::GetAttr(_)))
        .map(|a| meta_text(&g.node(a).meta))
        .collect();
    let words: Vec<String> = call
        .words
        .iter()
        .filter(|(_, text)| !text.contains('%'))
        .map(|(name, text)| format!("{name}={text}"))
        .collect();
    format!("{:?} {constants:?} {words:?} {:?}", n.op(), call.numbers)
}

fn common_module<'a>(modules: impl Iterator<Item = &'a str>) -> String {
    let mut known = modules.filter(|m| !m.is_empty()).map(|m| m.split('.').collect::<Vec<_>>());
    let Some(mut common) = known.next() else { return String::new() };
    for m in known {
        let same = common.iter().zip(&m).take_while(|(a, b)| a == b).count();
        common.truncate(same);
    }
    common.join(".")
}

/// A line, or a block that is repeated.
enum Part {
    Line(usize),
    Repeat { from: usize, length: usize, times: usize, body: Vec<Part> },
}

/// Folds the lines from one to before another: of all repetitions those that save most lines, as far as they do not
/// overlap; then inside these.
fn fold(lines: &[Line], from: usize, to: usize) -> Vec<Part> {
    let alike = |a: usize, b: usize| {
        let (x, y) = (&lines[a], &lines[b]);
        // An operand is the one that stands as far above, or the very same.
        let same = |(u, v): (&usize, &usize)| u == v || a + v == b + u;
        x.key == y.key && x.uses.len() == y.uses.len() && x.uses.iter().zip(&y.uses).all(same)
    };
    let mut found = vec![];
    for length in 1..=((to - from) / 2).min(BLOCK) {
        let mut at = from;
        while at + length < to {
            let run = (at..to - length).take_while(|i| alike(*i, i + length)).count();
            // Each block must work on what the one before it gives; blocks side by side keep their names.
            let linked = (at + length..at + 2 * length)
                .any(|i| lines.get(i).is_some_and(|l| l.uses.iter().any(|u| (at..at + length).contains(u))));
            let times = run / length + 1;
            if times > 1 && linked {
                found.push((length * (times - 1), length, at, times));
            }
            at += run + 1;
        }
    }
    // What saves most comes first; of equals the shorter block.
    found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut chosen: Vec<(usize, usize, usize)> = vec![];
    for (saved, length, at, times) in found {
        let end = at + length * times;
        if saved > 0 && chosen.iter().all(|(a, l, t)| end <= *a || a + l * t <= at) {
            chosen.push((at, length, times));
        }
    }
    chosen.sort_unstable();
    let mut parts = vec![];
    let mut at = from;
    for (start, length, times) in chosen {
        parts.extend((at..start).map(Part::Line));
        let body = if length > 1 { fold(lines, start, start + length) } else { vec![Part::Line(start)] };
        parts.push(Part::Repeat { from: start, length, times, body });
        at = start + length * times;
    }
    parts.extend((at..to).map(Part::Line));
    parts
}

struct Sheet<'a> {
    lines: &'a [Line],
    name: usize,
    calls: usize,
    meta: usize,
}

impl Sheet<'_> {
    fn print(&self, parts: &[Part], margin: &str, out: &mut String) {
        for part in parts {
            match part {
                Part::Line(i) => self.line(&self.lines[*i], margin, out),
                Part::Repeat { from, length, times, body } => {
                    let module = |k: usize| {
                        let block = &self.lines[from + k * length..from + (k + 1) * length];
                        common_module(block.iter().map(|l| l.module.as_str()))
                    };
                    let (first, last) = (module(0), module(times - 1));
                    let modules = if first.is_empty() || last.is_empty() || first == last {
                        first
                    } else {
                        format!("{first} … {last}")
                    };
                    let head = format!("{margin}┌ × {times}  {modules}");
                    writeln!(out, "{}", head.trim_end()).expect("invariant: writing to a string");
                    self.print(body, &format!("{margin}│ "), out);
                    let last = &self.lines[from + times * length - 1].name;
                    writeln!(out, "{margin}└ %{last}").expect("invariant: writing to a string");
                }
            }
        }
    }

    fn line(&self, l: &Line, margin: &str, out: &mut String) {
        let name = shorten(&format!("%{}", l.name), self.name);
        let calls = shorten(&l.calls, self.calls);
        let work = if l.macs > 0 { count(l.macs) } else { String::new() };
        let comment = if l.comment.is_empty() { String::new() } else { format!("  # {}", l.comment) };
        let room = (self.calls + 8).saturating_sub(char_width(margin));
        let pad = |s: &str, width: usize| " ".repeat(width.saturating_sub(char_width(s)));
        let text = format!(
            "{margin}{name}{}  {calls}{}  {}{}  {work:>7}{comment}",
            pad(&name, self.name),
            pad(&calls, room),
            l.meta,
            pad(&l.meta, self.meta)
        );
        writeln!(out, "{}", text.trim_end()).expect("invariant: writing to a string");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(src: &str) -> String {
        outline(&cleave_ir::text::parse(src).expect("a valid graph"), &|_| None)
    }

    #[test]
    fn the_demo_network() {
        let g = crate::demo::model().expect("the model is embedded");
        insta::assert_snapshot!(outline(&g, &|_| None), @"");
    }

    #[test]
    fn repetitions_stand_inside_one_another() {
        let mut src = String::from("graph(%x: f32[2, 2], %m: f32[2, 2]) {\n");
        let mut last = "x".to_string();
        for i in 0..3 {
            src += &format!(
                "%a{i} = aten.mm(%{last}, %m)\n%b{i} = aten.mm(%a{i}, %m)\n%c{i} = aten.softmax.int(%b{i}, 1)\n%d{i} = aten.add.Tensor(%c{i}, %b{i})\n"
            );
            last = format!("d{i}");
        }
        src += &format!("return %{last}\n}}");
        insta::assert_snapshot!(of(&src), @"");
    }

    #[test]
    fn what_differs_is_not_folded() {
        let src =
            "graph(%x: f32[4, 4]) {\n%a = aten.mm(%x, %x)\n%b = aten.mm(%a, %x)\n%c = aten.mm(%b, %b)\nreturn %c\n}";
        assert!(!of(src).contains('×'), "{}", of(src));
    }
}
