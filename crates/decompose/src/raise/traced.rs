//! Rules traced: an op's rule, run on its example, is the pattern by which the op is found again.
//!
//! Each example of a raisable op is one variant: which optional arguments are there, which mode, which rank. Tensors
//! become captures by the names of their parameters, and so do numbers: a number in the trace that is one of the
//! call's stands for it. A rule is traced as it is, and as Core ATen and the prims break it up
//! further.

use crate::driver::expand;
use crate::error::Result;
use crate::table::Table;
use cleave_ir::example::{self, Example};
use cleave_ir::graph::{Arg, Graph, Kind, NodeId};
use cleave_ir::op::{self, Op, RuleFn};
use cleave_ir::{Builder, Value};
use cleave_numerics::DType;
use cleave_rewrite::{Alternatives, Bound, Pattern, Rule};
use std::rc::Rc;

/// Longest pattern that a trace may become, in characters: a value used twice is written twice.
const MOST: usize = 4_000;

/// Ops that say of what size their result is: as patterns they would fit the example alone.
const SIZED: [&str; 7] = ["view", "_unsafe_view", "reshape", "expand", "repeat", "slice", "native_group_norm"];

/// The rules of all raisable ops whose traces are patterns. The others are for rules that are written.
///
/// # Errors
/// An example that is none.
pub(super) fn rules() -> Result<Vec<Rule>> {
    let mut all = vec![];
    for o in op::all().filter(|o| o.raisable) {
        for e in example::of(o, DType::F32)? {
            all.extend(of(o, &e).unwrap_or_default());
        }
    }
    Ok(all)
}

/// The rules that find one variant of an op again.
///
/// # Errors
/// Why none of its traces is a pattern.
pub fn of(o: &'static Op, e: &Example) -> std::result::Result<Vec<Rule>, String> {
    let call = e.graph.nodes().find(|(_, n)| n.op() == Some(o)).map(|(_, n)| n.args.clone());
    let call = call.ok_or("its example does not call it")?;
    let core = Table::core();
    let once: cleave_ir::builder::Rules = Rc::new(move |p: &Op| p.rule.filter(|_| p == o));
    let deep: cleave_ir::builder::Rules = Rc::new(move |p: &Op| -> Option<RuleFn> {
        if p == o { p.rule } else { core.rule(p) }
    });
    let prims = Table::prims();
    let deepest: cleave_ir::builder::Rules = Rc::new(move |p: &Op| if p == o { p.rule } else { prims.rule(p) });
    let (mut texts, mut failed): (Vec<String>, Option<String>) = (vec![], None);
    for rules in [once, deep, deepest] {
        let traced = expand(&e.graph, rules).map_err(|e| e.to_string())?;
        // By the time that this rule is tried, others may have raised parts of what it looks for.
        let raised = super::raise_by(&traced, &super::WRITTEN).map_err(|e| e.to_string())?.0;
        for g in [traced, raised] {
            // Some find the op by themselves.
            if g.nodes().any(|(_, n)| n.op() == Some(o)) {
                continue;
            }
            match pattern(&g, o, &call) {
                Ok(text) if !texts.contains(&text) => texts.push(text),
                Ok(_) => {}
                Err(why) => failed = failed.or(Some(why)),
            }
        }
    }
    match failed {
        Some(why) if texts.is_empty() => Err(why),
        _ => texts.iter().map(|text| rule(o, &call, &e.graph, text)).collect(),
    }
}

/// The traced graph as the text of a pattern.
fn pattern(g: &Graph, o: &'static Op, call: &[Arg]) -> std::result::Result<String, String> {
    let results = g.results();
    let root = *results.first().filter(|_| results.len() == 1).ok_or("it has several results")?;
    if g.node(root).op().is_none() {
        return Err("its rule makes nothing".into());
    }
    let mut w = Writer { g, o, call, text: String::new() };
    w.value(root)?;
    Ok(w.text)
}

struct Writer<'a> {
    g: &'a Graph,
    o: &'static Op,
    call: &'a [Arg],
    text: String,
}

impl Writer<'_> {
    fn value(&mut self, id: NodeId) -> std::result::Result<(), String> {
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
        if SIZED.contains(&op.base()) {
            return Err(format!("its trace holds the sizes of the example, in {}", op.short()));
        }
        self.text += op.short();
        self.text += "(";
        // What is left at its default need not be said.
        let given = op.schema.params.iter().zip(&node.args).rposition(|(p, a)| {
            let default = p.default.as_ref().unwrap_or(&Arg::None);
            default != a || p.default.is_none() && !p.optional
        });
        for (i, a) in node.args[..given.map_or(0, |i| i + 1)].iter().enumerate() {
            self.text += if i > 0 { ", " } else { "" };
            self.arg(a)?;
        }
        self.text += ")";
        Ok(())
    }

    fn arg(&mut self, a: &Arg) -> std::result::Result<(), String> {
        if let Some(name) = self.given(a) {
            self.text += name;
            return Ok(());
        }
        match a {
            Arg::Node(n) => self.value(*n)?,
            Arg::None => self.text += "none",
            Arg::Bool(b) => self.text += if *b { "true" } else { "false" },
            Arg::Int(i) => self.text += &i.to_string(),
            Arg::Float(f) => self.text += &f.to_string(),
            Arg::Str(s) => self.text += &format!("\"{s}\""),
            Arg::List(items) => {
                self.text += "[";
                for (i, a) in items.iter().enumerate() {
                    self.text += if i > 0 { ", " } else { "" };
                    self.arg(a)?;
                }
                self.text += "]";
            }
            Arg::Dim(_) | Arg::DType(_) => return Err(format!("its trace holds {a:?}")),
            #[allow(unreachable_patterns, reason = "arguments of further kinds are none of a pattern")]
            _ => return Err("its trace holds an argument that no pattern has".into()),
        }
        Ok(())
    }

    /// The parameter of the op whose number this is. 0, 1 and 2 stand in too many formulas to be somebody's.
    fn given(&self, a: &Arg) -> Option<&'static str> {
        let plain = matches!(a, Arg::Int(-1..=2)) || matches!(a, Arg::Float(f) if [0.0, 1.0, 2.0].contains(f));
        let number = |a: &Arg| match a {
            Arg::Int(i) => Some(*i as f64),
            Arg::Float(f) => Some(*f),
            _ => None,
        };
        let n = number(a).filter(|_| !plain)?;
        let at = self.call.iter().position(|c| number(c) == Some(n))?;
        Some(self.o.schema.params.get(at)?.name.as_str())
    }
}

/// The rule that puts the call in the place of its trace.
fn rule(o: &'static Op, call: &[Arg], g: &Graph, text: &str) -> std::result::Result<Rule, String> {
    let pattern = Pattern::parse(text, &Alternatives::default()).map_err(|e| format!("{text}: {e}"))?;
    let captured: Vec<String> = pattern.captures().map(String::from).collect();
    // Every tensor of the call must come out of the match; numbers that do not are those of the example.
    let name = |n: NodeId| g.node(n).name.clone();
    if let Some(lost) = call.iter().flat_map(Arg::nodes).map(name).find(|n| !captured.contains(n)) {
        return Err(format!("its trace does not use {lost}"));
    }
    let args: Vec<(String, Arg, Vec<String>)> = o
        .schema
        .params
        .iter()
        .zip(call)
        .map(|(p, a)| (p.name.clone(), a.clone(), a.nodes().into_iter().map(name).collect()))
        .collect();
    Ok(Rule::new(o.short(), pattern, move |m| rebuilt(o, &args, &captured, m)))
}

fn rebuilt<'b>(
    o: &'static Op,
    args: &[(String, Arg, Vec<String>)],
    captured: &[String],
    m: &Bound<'b, '_>,
) -> std::result::Result<Value<'b>, String> {
    let mut given = vec![];
    for (param, example, tensors) in args {
        let mut tensors = tensors.iter();
        given.push(match example {
            Arg::Node(_) | Arg::List(_) if !example.nodes().is_empty() => {
                let mut failed = None;
                let arg = example.map_nodes(&mut |_| match tensors.next().map(|t| m.value(t)) {
                    Some(Ok(v)) => v.into(),
                    Some(Err(why)) => {
                        failed.get_or_insert(why);
                        Arg::None
                    }
                    None => Arg::None,
                });
                match failed {
                    Some(why) => return Err(why),
                    None => arg,
                }
            }
            _ if captured.contains(param) => match m.arg(param) {
                Arg::Node(_) => return Err(format!("{param} is a tensor, expected a number")),
                number => number,
            },
            other => other.clone(),
        });
    }
    // The op must say of these operands what the trace said: same type, same sizes.
    let b: &'b Builder = m.b;
    let meta = b.resolve(o, given.clone(), o.base()).map_err(|e| e.to_string())?.1;
    if meta != m.root().meta {
        return Err("the op gives another type or shape".into());
    }
    Ok(b.call_op(o, given, Some(&m.root().name)))
}
