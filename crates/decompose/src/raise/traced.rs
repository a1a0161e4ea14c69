//! Rules traced: an op's rule, run on its example, is the pattern by which the op is found again.
//!
//! Each example of a raisable op is one variant: which optional arguments are there, which mode. A rule is traced as it
//! is, as Core ATen and as the prims break it up further, each time also as raising puts parts of that together again.
//! Tensors become captures by the names of their parameters, and so do numbers: a number in the trace that is one of
//! the call's stands for it. Sizes, dimensions and odd numbers of the example are left open ([`Writer`]); what was
//! matched is therefore held against the trace of the call that is to take its place ([`retrace`]).

use super::retrace::{self, Form, Raised};
use cleave_ir::Value;
use cleave_ir::example::{self, Example};
use cleave_ir::graph::{Arg, Graph, Kind, NodeId};
use cleave_ir::op::{self, Op};
use cleave_ir::schema::{Param, Type};
use cleave_numerics::DType;
use cleave_rewrite::{Alternatives, Bound, Pattern, Rule};
use std::collections::HashMap;

/// Longest pattern that a trace may become, in characters: a value used twice is written twice.
const MOST: usize = 8_000;

/// The traces that are patterns, a line each: op, number of its example, form, pattern. Made by
/// [`lines`]; making them anew for each program that raises would take a fifth of a second.
const TRACES: &str = include_str!("traces.txt");

/// The rules of the traces that are raised in one of these ways, the longest first. Raisable ops without a trace are for
/// rules that are written.
///
/// # Errors
/// A line that is none.
pub(super) fn rules(raised: &[Raised]) -> Result<Vec<Rule>, String> {
    let mut all = vec![];
    let mut examples: HashMap<&str, Vec<Example>> = HashMap::new();
    for line in TRACES.lines() {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        let [name, number, form, text] = parts[..] else { return Err(format!("'{line}'")) };
        let form: Form = form.parse()?;
        if !raised.contains(&form.raised) {
            continue;
        }
        let o = op::find(name).map_err(|e| e.to_string())?;
        if !examples.contains_key(name) {
            examples.insert(name, example::of(o, DType::F32).map_err(|e| e.to_string())?);
        }
        let e = number.parse().ok().and_then(|n: usize| examples[name].get(n));
        let e = e.ok_or_else(|| format!("{name} has no example {number}"))?;
        all.push(rule(o, &called(o, e)?, &e.graph, text, form)?);
    }
    all.sort_by_key(|r| std::cmp::Reverse(r.pattern.text().len()));
    Ok(all)
}

/// What the list of traces is to be.
#[cfg(test)]
pub(super) fn lines() -> String {
    let mut text = String::new();
    for o in op::all().filter(|o| o.raisable) {
        for (i, e) in example::of(o, DType::F32).unwrap_or_default().iter().enumerate() {
            for (pattern, form) in texts(o, e).unwrap_or_default() {
                text += &format!("{} {i} {form} {pattern}\n", o.name);
            }
        }
    }
    text
}

/// The arguments of an example's call.
fn called(o: &'static Op, e: &Example) -> Result<Vec<Arg>, String> {
    let call = e.graph.nodes().find(|(_, n)| n.op() == Some(o)).map(|(_, n)| n.args.clone());
    call.ok_or_else(|| "its example does not call it".into())
}

/// The patterns by which one variant of an op is found again.
///
/// # Errors
/// Why none of its traces is a pattern.
pub fn of(o: &'static Op, e: &Example) -> Result<Vec<String>, String> {
    Ok(texts(o, e)?.into_iter().map(|(text, _)| text).collect())
}

fn texts(o: &'static Op, e: &Example) -> Result<Vec<(String, Form)>, String> {
    let call = called(o, e)?;
    let (mut texts, mut failed): (Vec<(String, Form)>, Option<String>) = (vec![], None);
    for form in Form::all() {
        let traced = form.of(o, &e.graph)?;
        // Some find the op by themselves.
        if traced.nodes().any(|(_, n)| n.op() == Some(o)) {
            continue;
        }
        let found = pattern(&traced, o, &call).and_then(|text| rule(o, &call, &e.graph, &text, form).map(|_| text));
        match found {
            Ok(text) if texts.iter().all(|(t, _)| *t != text) => texts.push((text, form)),
            Ok(_) => {}
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    match failed {
        Some(why) if texts.is_empty() => Err(why),
        _ => Ok(texts),
    }
}

/// The traced graph as the text of a pattern.
fn pattern(g: &Graph, o: &'static Op, call: &[Arg]) -> Result<String, String> {
    let results = g.results();
    let root = *results.first().filter(|_| results.len() == 1).ok_or("it has several results")?;
    if g.node(root).op().is_none() {
        return Err("its rule makes nothing".into());
    }
    let mut w = Writer { g, o, call, text: String::new() };
    w.value(root)?;
    Ok(w.text)
}

/// Writes a traced graph as a pattern: what comes of the example's sizes is `_`.
struct Writer<'a> {
    g: &'a Graph,
    o: &'static Op,
    call: &'a [Arg],
    text: String,
}

impl Writer<'_> {
    fn value(&mut self, id: NodeId) -> Result<(), String> {
        if self.text.len() > MOST {
            return Err("its trace is too long".into());
        }
        let node = self.g.node(id);
        let op = match node.kind {
            Kind::Call(op) => op,
            Kind::Placeholder => {
                self.text += &node.name;
                return Ok(());
            }
            _ => return Err(format!("its trace holds {}", node.name)),
        };
        self.text += if retrace::is_shaping(op) { "shaped" } else { op.short() };
        self.text += "(";
        // What is left at its default need not be said.
        let params = op.schema.params.iter().zip(&node.args);
        let given = params.clone().rposition(|(p, a)| {
            let default = p.default.as_ref().unwrap_or(&Arg::None);
            default != a || p.default.is_none() && !p.optional
        });
        for (i, (p, a)) in params.take(given.map_or(0, |i| i + 1)).enumerate() {
            self.text += if i > 0 { ", " } else { "" };
            self.arg(&p.ty, a)?;
        }
        self.text += ")";
        Ok(())
    }

    fn arg(&mut self, ty: &Type, a: &Arg) -> Result<(), String> {
        if let Some(name) = self.given(a) {
            self.text += name;
            return Ok(());
        }
        match a {
            Arg::Node(n) => self.value(*n)?,
            Arg::None => self.text += "none",
            Arg::Bool(b) => self.text += if *b { "true" } else { "false" },
            Arg::Str(s) => self.text += &format!("\"{s}\""),
            Arg::Int(i) if *ty != Type::Int && is_plain(a) => self.text += &i.to_string(),
            Arg::Float(f) if is_plain(a) => self.text += &f.to_string(),
            Arg::List(items) if items.iter().any(|a| !a.nodes().is_empty()) => {
                self.text += "[";
                for (i, a) in items.iter().enumerate() {
                    self.text += if i > 0 { ", " } else { "" };
                    self.arg(&Type::Tensor, a)?;
                }
                self.text += "]";
            }
            Arg::Graph(_) => return Err("its trace holds a graph".into()),
            _ => self.text += "_",
        }
        Ok(())
    }

    /// The parameter of the op whose number this is.
    fn given(&self, a: &Arg) -> Option<&'static str> {
        let number = |a: &Arg| match a {
            Arg::Int(i) => Some(*i as f64),
            Arg::Float(f) => Some(*f),
            _ => None,
        };
        let n = number(a).filter(|_| !is_plain(a) || *a == Arg::Float(0.5))?;
        let mut params = self.call.iter().zip(&self.o.schema.params);
        params.find(|(c, p)| number(c) == Some(n) && p.ty != Type::Int).map(|(_, p)| p.name.as_str())
    }
}

/// Numbers that stand in too many formulas to be somebody's, or to come of a size.
fn is_plain(a: &Arg) -> bool {
    matches!(a, Arg::Int(-1..=2)) || matches!(a, Arg::Float(f) if [0.0, 0.5, 1.0, 2.0].contains(f))
}

/// The rule that puts the call in the place of its trace.
fn rule(o: &'static Op, call: &[Arg], g: &Graph, text: &str, form: Form) -> Result<Rule, String> {
    let shaped: Alternatives =
        [("shaped".to_string(), retrace::SHAPING.map(String::from).to_vec())].into_iter().collect();
    let pattern = Pattern::parse(text, &shaped).map_err(|e| format!("{text}: {e}"))?;
    let captured: Vec<String> = pattern.captures().map(String::from).collect();
    // Every tensor of the call must come out of the match; numbers that do not are the example's, or found by trying.
    let name = |n: NodeId| g.node(n).name.clone();
    if let Some(lost) = call.iter().flat_map(Arg::nodes).map(name).find(|n| !captured.contains(n)) {
        return Err(format!("its trace does not use {lost}"));
    }
    let given = |(p, a): (&Param, &Arg)| {
        let tensors: Vec<String> = a.nodes().into_iter().map(name).collect();
        match (tensors.is_empty(), captured.contains(&p.name)) {
            (false, _) => Given::Tensors(a.clone(), tensors),
            (true, true) => Given::Number(p.name.clone()),
            (true, false) => Given::Example(a.clone()),
        }
    };
    let variant: Vec<Given> = o.schema.params.iter().zip(call).map(given).collect();
    Ok(Rule::new(o.short(), pattern, move |m| rebuilt(o, &variant, form, m)))
}

/// Where an argument of the call that is raised comes from.
enum Given {
    /// Captured tensors, in the places of the example's.
    Tensors(Arg, Vec<String>),
    /// A captured number.
    Number(String),
    /// The example, or the matched nodes, if it is a size.
    Example(Arg),
}

/// The first of the calls that a match may stand for which gives what was matched.
fn rebuilt<'b>(o: &'static Op, variant: &[Given], form: Form, m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let mut choices: Vec<Vec<Arg>> = vec![];
    for (given, p) in variant.iter().zip(&o.schema.params) {
        choices.push(match given {
            Given::Tensors(example, names) => vec![tensors(example, names, m)?],
            Given::Number(name) => match m.found.captures.get(name) {
                Some(Arg::Node(_)) | None => return Err(format!("{name} is a tensor, expected a number")),
                Some(number) => vec![number.clone()],
            },
            Given::Example(a) => retrace::candidates(a, &p.ty, p.default.as_ref(), m),
        });
    }
    let mut why = "no arguments give what was matched".to_string();
    for args in retrace::combinations(&choices) {
        match retrace::same(o, args.clone(), form, m) {
            Ok(()) => {
                let args = args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(m.mapped(n)))).collect();
                return Ok(m.b.call_op(o, args, None));
            }
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// The example's argument with captured tensors of the matched graph in it.
fn tensors(example: &Arg, names: &[String], m: &Bound<'_, '_>) -> Result<Arg, String> {
    let ids = names.iter().map(|n| m.found.value(n).ok_or_else(|| format!("{n} is not a tensor")));
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?.into_iter();
    Ok(example.map_nodes(&mut |_| ids.next().map_or(Arg::None, Arg::Node)))
}
