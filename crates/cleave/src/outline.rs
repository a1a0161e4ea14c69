//! A graph for reading: chains of ops on one line, repeated blocks once.
//!
//! A line is a chain of calls, each the one user of the one before it and of its type, or a view or quantized form of
//! it; it has the name of the last. A block of lines that follows itself unchanged, but for names and constants, is printed once with its
//! count. For the exact text see [`cleave_ir::text`].

use crate::describe::{self, Item};
use crate::sizes::SizeNames;
use crate::summary::sizes;
use crate::text::{char_width, count, flow, shorten, tail};
use cleave_ir::text::meta_text;
use cleave_ir::{Arg, Class, Graph, Meta, Node, NodeId, macs};
use indexmap::IndexMap;
use std::fmt::Write;

/// Calls on one line at most.
const STEPS: usize = 6;
const NAME: usize = 24;
const CALLS: usize = 116;
/// Lines of a block that can be found to repeat.
const BLOCK: usize = 400;

/// The outline, with comments behind lines.
pub fn outline(g: &Graph, comment: &dyn Fn(NodeId) -> Option<String>) -> String {
    let mut names = SizeNames::new([g]);
    let lines = lines(g, comment, &mut names);
    let parts = fold(&lines, 0, lines.len());
    let width = |of: &dyn Fn(&Line) -> usize, most: usize| lines.iter().map(of).max().unwrap_or(0).min(most);
    let sheet = Sheet {
        lines: &lines,
        name: width(&|l| char_width(&l.name), usize::MAX),
        calls: width(&|l| char_width(&l.calls), CALLS),
        meta: width(&|l| char_width(&l.meta), 48),
    };
    let mut out = String::new();
    sheet.print(&parts, "", &mut out);
    for (i, l) in flow(&names.definitions(), 120).iter().enumerate() {
        writeln!(out, "{}{l}", if i == 0 { "\nwhere  " } else { "       " }).expect("invariant: writing to a string");
    }
    out
}

/// A chain of calls.
struct Line {
    /// Of its last call, with %.
    name: String,
    calls: String,
    meta: String,
    macs: u64,
    module: String,
    comment: String,
    /// All that must be alike in repetitions.
    key: String,
    /// The lines whose values it uses; inputs are the lines before the first, from -1.
    uses: Vec<i64>,
}

fn lines(g: &Graph, comment: &dyn Fn(NodeId) -> Option<String>, names: &mut SizeNames) -> Vec<Line> {
    let mut chains: Vec<Vec<NodeId>> = vec![];
    let mut ends: IndexMap<NodeId, usize> = IndexMap::new();
    for (id, n) in g.nodes().filter(|(id, n)| n.op().is_some() && !describe::is_constant(g, *id)) {
        let first = n.args.iter().flat_map(Arg::nodes).find(|a| !describe::is_constant(g, *a));
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
    let inputs = g.placeholders().into_iter().zip(1i64..).map(|(id, k)| (id, -k));
    let called = chains.iter().zip(0i64..).flat_map(|(c, i)| c.iter().map(move |id| (*id, i)));
    let line_of: IndexMap<NodeId, i64> = inputs.chain(called).collect();
    let sizes = sizes(g);
    let short = short_names(g);
    let mut line = |(i, chain): (usize, &Vec<NodeId>)| {
        let steps: Vec<String> =
            chain.iter().enumerate().map(|(k, id)| step(g, *id, &short, k > 0, k + 1 == chain.len())).collect();
        let last = chain[chain.len() - 1];
        let comments: Vec<String> = chain.iter().filter_map(|id| comment(*id)).collect();
        let meta = shorten(&names.meta(&g.node(last).meta), 48);
        let operands = |id: &NodeId| g.node(*id).args.iter().flat_map(Arg::nodes).collect::<Vec<_>>();
        let uses = chain.iter().flat_map(operands).filter_map(|a| line_of.get(&a).copied().filter(|l| *l != i as i64));
        let whole: Vec<String> = chain.iter().map(|id| key(g, *id)).collect();
        Line {
            name: short[last.index()].clone(),
            calls: steps.join(" → "),
            key: format!("{}: {meta} # {}", whole.join(" → "), comments.last().map_or("", |c| c)),
            meta,
            macs: chain.iter().filter_map(|id| macs::macs(g, *id, &sizes)).sum(),
            module: common_module(chain.iter().map(|id| g.node(*id).origin.module.as_str())),
            comment: comments.last().cloned().unwrap_or_default(),
            uses: uses.collect(),
        }
    };
    chains.iter().enumerate().map(&mut line).collect()
}

/// Names as `%conv2d`; of long ones the end, with a number behind it where several end alike.
fn short_names(g: &Graph) -> Vec<String> {
    let mut met: IndexMap<String, usize> = IndexMap::new();
    let mut short = |name: &str| {
        if name.len() < NAME {
            return format!("%{name}");
        }
        let end = tail(name, NAME - 4);
        let times = met.entry(end.clone()).or_default();
        *times += 1;
        if *times > 1 { format!("%{end}~{times}") } else { format!("%{end}") }
    };
    g.nodes().map(|(_, n)| short(&n.name)).collect()
}

/// Whether a call goes on the line of its first operand.
fn follows(g: &Graph, before: NodeId, id: NodeId) -> bool {
    fn one(m: &Meta) -> &Meta {
        match m {
            Meta::Tuple(items) => items.first().unwrap_or(m),
            m => m,
        }
    }
    let class = |id: NodeId| g.node(id).op().map(|o| o.class);
    let same = one(&g.node(before).meta) == one(&g.node(id).meta);
    let alone = g.use_count(before) == 1 && (same || matches!(class(id), Some(Class::View | Class::Quantize)));
    let values = |id| describe::call(g, id).iter().filter(|i| matches!(i, Item::Value(_))).count();
    match class(id) {
        Some(Class::Strategic) | None => false,
        // A normalization begins a line, as in a transformer's block, unless it is that of a convolution.
        Some(Class::Norm) => alone && class(before) == Some(Class::Strategic),
        Some(Class::Pointwise | Class::Quantize) => alone,
        // Where branches join, a block may end.
        Some(_) => alone && !(class(before) == Some(Class::Pointwise) && values(before) > 1),
    }
}

/// A call: the value of the one before it is left out where it is all that it takes, else a dot. The shape of the last
/// is the line's.
fn step(g: &Graph, id: NodeId, short: &[String], follows: bool, last: bool) -> String {
    let node = g.node(id);
    let op = node.op().map_or("", |o| if o.name.starts_with("prims.") { o.short() } else { o.base() });
    let dtype = node.meta.as_tensor().map_or("", |t| t.dtype.name());
    let quantize = |n: &Node| n.op().is_some_and(|o| o.class == Class::Quantize);
    let mut first = follows;
    let word = |item| match item {
        Item::Value(_) if std::mem::take(&mut first) => Some("·".into()),
        Item::Value(v) => Some(short[v.index()].clone()),
        // The type is said where it is not the result's.
        Item::Constant(_, c) => {
            let text = describe::constant(g, c);
            Some(text.strip_prefix(dtype).unwrap_or(&text).to_string())
        }
        Item::Number(n) => Some(n),
        Item::Shape(s) => Some(s).filter(|_| !last),
        Item::Word(_, text) if quantize(node) => Some(text),
        Item::Word(name, text) => Some(format!("{name}={text}")),
    };
    // What is dequantized where it was quantized has the same scale and zero point.
    let before = node.args.first().and_then(|a| a.nodes().first().copied());
    if follows && quantize(node) && before.is_some_and(|b| quantize(g.node(b))) {
        return op.into();
    }
    let words: Vec<String> = describe::call(g, id).into_iter().filter_map(word).collect();
    if words == ["·"] || op == "getitem" { op.into() } else { format!("{op}({})", words.join(", ")) }
}

/// A call without names of values.
fn key(g: &Graph, id: NodeId) -> String {
    let n = g.node(id);
    let constant = |a: &NodeId| describe::is_constant(g, *a);
    let constants = n.args.iter().flat_map(Arg::nodes).filter(constant).map(|a| meta_text(&g.node(a).meta));
    let said = describe::call(g, id).into_iter().filter_map(|item| match item {
        Item::Number(n) => Some(n),
        Item::Word(name, text) => Some(format!("{name}={text}")).filter(|t| !t.contains('%')),
        Item::Value(_) | Item::Constant(..) | Item::Shape(_) => None,
    });
    format!("{:?} {:?} {:?}", n.op(), constants.collect::<Vec<_>>(), said.collect::<Vec<_>>())
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
        let same = |(u, v): (&i64, &i64)| u == v || v - u == (b - a) as i64;
        x.key == y.key && x.uses.len() == y.uses.len() && x.uses.iter().zip(&y.uses).all(same)
    };
    let mut found = vec![];
    for length in 1..=((to - from) / 2).min(BLOCK) {
        let mut at = from;
        while at + length < to {
            let run = (at..to - length).take_while(|i| alike(*i, i + length)).count();
            // Each block must work on what the one before it gives; blocks side by side keep their names.
            let before = at as i64..(at + length) as i64;
            let linked =
                lines[at + length..(at + 2 * length).min(to)].iter().any(|l| l.uses.iter().any(|u| before.contains(u)));
            let times = run / length + 1;
            if times > 1 && linked && plain(lines, at, length, times) {
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

/// Whether each value from above a block has one role in it, and keeps it: handed on from block to block, or the same for
/// all.
fn plain(lines: &[Line], at: usize, length: usize, times: usize) -> bool {
    let pairs = |block: usize| {
        let start = at + block * length;
        (start..start + length).flat_map(move |i| lines[i].uses.iter().zip(&lines[i + length].uses))
    };
    let mut role: IndexMap<i64, i64> = IndexMap::new();
    let above = pairs(0).filter(|(u, _)| **u < at as i64);
    let one = above.into_iter().all(|(u, v)| role.insert(*u, *v).is_none_or(|before| before == *v));
    one && (1..times - 1).all(|k| pairs(0).zip(pairs(k)).all(|((a, b), (c, d))| (a == b) == (c == d)))
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
                    writeln!(out, "{margin}└ {}", self.leaving(from + length, from + times * length).join(", "))
                        .expect("invariant: writing to a string");
                }
            }
        }
    }

    /// Names of the values that repetitions from one line to before another give to what follows; the last in any case.
    fn leaving(&self, from: usize, to: usize) -> Vec<String> {
        let used = |i: &usize| i + 1 == to || self.lines[to..].iter().any(|l| l.uses.contains(&(*i as i64)));
        (from..to).filter(used).map(|i| self.lines[i].name.clone()).collect()
    }

    fn line(&self, l: &Line, margin: &str, out: &mut String) {
        let name = &l.name;
        let calls = shorten(&l.calls, self.calls);
        let work = if l.macs > 0 { count(l.macs) } else { String::new() };
        let comment = if l.comment.is_empty() { String::new() } else { format!("  # {}", l.comment) };
        let room = (self.calls + 8).saturating_sub(char_width(margin));
        let pad = |s: &str, width: usize| " ".repeat(width.saturating_sub(char_width(s)));
        let text = format!(
            "{margin}{name}{}  {calls}{}  {}{}  {work:>7}{comment}",
            pad(name, self.name),
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
        insta::assert_snapshot!(outline(&g, &|_| None), @r"
        %relu          conv2d(%x, [16, 1, 3, 3], padding=1) → batch_norm → relu                                      f32[s77, 16, 28, 28]  112.9 k
        %max_pool2d    max_pool2d(%relu, kernel_size=2, stride=2)                                                    f32[s77, 16, 14, 14]
        %relu_1        conv2d(%max_pool2d, [16, 16, 3, 3], padding=1) → batch_norm → relu                            f32[s77, 16, 14, 14]  451.6 k
        %add           conv2d(%relu_1, [16, 16, 3, 3], padding=1) → batch_norm → relu → add(·, %max_pool2d)          f32[s77, 16, 14, 14]  451.6 k
        %max_pool2d_1  max_pool2d(%add, kernel_size=2, stride=2)                                                     f32[s77, 16, 7, 7]
        %relu_3        conv2d(%max_pool2d_1, [32, 16, 3, 3], padding=1) → batch_norm → relu                          f32[s77, 32, 7, 7]    225.8 k
        %flatten       adaptive_avg_pool2d(%relu_3, output_size=[1, 1]) → flatten(·, start_dim=1)                    f32[s77, 32]
        %linear        linear(%flatten, [10, 32])                                                                    f32[s77, 10]              320
        ");
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
        insta::assert_snapshot!(of(&src), @r"
        ┌ × 3
        │ ┌ × 2
        │ │ %a0  mm(%x, %m)                             f32[2, 2]        8
        │ └ %b0
        │ %d0  softmax(%b0, dim=1) → add(·, %b0)        f32[2, 2]
        └ %d2
        ");
    }

    #[test]
    fn what_differs_is_not_folded() {
        let src =
            "graph(%x: f32[4, 4]) {\n%a = aten.mm(%x, %x)\n%b = aten.mm(%a, %x)\n%c = aten.mm(%b, %b)\nreturn %c\n}";
        assert!(!of(src).contains('×'), "{}", of(src));
    }
}
