//! Rules: a pattern and what is built in its place. The driver applies a list of them until none fires.

use crate::error::NearMiss;
use crate::matcher::{Match, number};
use crate::pattern::Pattern;
use cleave_ir::builder::Value;
use cleave_ir::transform::{self, Replace};
use cleave_ir::{Arg, Builder, Graph, IrError, Meta, Node, NodeId, Origin};
use std::cell::RefCell;
use std::collections::HashSet;

/// What a rule builds: the value that takes the root's place, or why it declines.
pub type Build = dyn for<'b> Fn(&Bound<'b, '_>) -> Result<Value<'b>, String> + Send + Sync;

/// A pattern and its replacement.
pub struct Rule {
    /// Name, as the trace prints it.
    pub name: String,
    /// What is matched.
    pub pattern: Pattern,
    build: Box<Build>,
}

impl Rule {
    /// A rule. `build` sees the match and returns the new value, or says why it declines.
    pub fn new<F>(name: &str, pattern: Pattern, build: F) -> Rule
    where
        F: for<'b> Fn(&Bound<'b, '_>) -> Result<Value<'b>, String> + Send + Sync + 'static,
    {
        Rule { name: name.into(), pattern, build: Box::new(build) }
    }
}

/// A match as a replacement sees it: captures are values of the graph under construction.
pub struct Bound<'b, 'a> {
    /// Where the replacement is built.
    pub b: &'b Builder,
    /// The graph that was matched.
    pub source: &'a Graph,
    /// The match, in terms of `source`.
    pub found: &'a Match,
    map: &'a dyn Fn(NodeId) -> NodeId,
}

impl<'b> Bound<'b, '_> {
    /// A captured tensor.
    ///
    /// # Errors
    /// The capture is absent or no tensor.
    pub fn value(&self, capture: &str) -> Result<Value<'b>, String> {
        let id = self.found.value(capture).ok_or_else(|| format!("{capture} is not a tensor"))?;
        Ok(self.b.value((self.map)(id)))
    }

    /// What became of a node of the source graph that the match takes in.
    pub fn mapped(&self, id: NodeId) -> NodeId {
        (self.map)(id)
    }

    /// A captured argument; none if it is absent.
    pub fn arg(&self, capture: &str) -> Arg {
        let arg = self.found.captures.get(capture).cloned().unwrap_or(Arg::None);
        arg.map_nodes(&mut |n| Arg::Node((self.map)(n)))
    }

    /// An argument of a matched call.
    pub fn arg_of(&self, label: &str, param: &str) -> Arg {
        let arg = self.node(label).and_then(|n| n.arg(param)).cloned().unwrap_or(Arg::None);
        arg.map_nodes(&mut |n| Arg::Node((self.map)(n)))
    }

    /// A captured number, or the only element of a captured constant.
    ///
    /// # Errors
    /// The capture is neither.
    pub fn number(&self, capture: &str) -> Result<f64, String> {
        let arg = self.found.captures.get(capture);
        arg.and_then(|a| number(self.source, a)).ok_or_else(|| format!("{capture} is not one number"))
    }

    /// A matched node of the source graph.
    pub fn node(&self, label: &str) -> Option<&Node> {
        self.found.node(label).map(|n| self.source.node(n))
    }

    /// The node whose place the replacement takes.
    pub fn root(&self) -> &Node {
        self.source.node(self.found.root)
    }
}

/// A rule that fired.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The rule.
    pub rule: String,
    /// Names of the nodes that were matched.
    pub nodes: Vec<String>,
    /// Name of the node that took their place.
    pub into: String,
}

/// A rule that did not fire although it nearly matched, or matched and declined.
#[derive(Clone, Debug, PartialEq)]
pub struct Declined {
    /// The rule.
    pub rule: String,
    /// Name of the node where it was tried.
    pub node: String,
    /// Which part failed.
    pub step: String,
    /// Why.
    pub why: String,
}

/// What a rewrite did and did not do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// Rules that fired, in order.
    pub applied: Vec<Applied>,
    /// Rules that declined in the last pass.
    pub declined: Vec<Declined>,
}

/// Applies rules until none fires: from the latest node backwards, of the rules in order the first that
/// matches and does not decline. A near miss is traced from two matched calls on.
///
/// # Errors
/// What a replacement met when it was built.
pub fn rewrite(src: &Graph, rules: &[&Rule]) -> Result<(Graph, Trace), IrError> {
    rewrite_admitted(src, rules, &|_, _| Ok(()))
}

/// Whether a rule may match a node; if not, why.
pub type AdmitFn<'a> = dyn Fn(&Rule, &Node) -> Result<(), String> + 'a;

/// [`rewrite`] where rules match only the nodes that `admit` lets them.
///
/// # Errors
/// What a replacement met when it was built.
pub fn rewrite_admitted(src: &Graph, rules: &[&Rule], admit: &AdmitFn<'_>) -> Result<(Graph, Trace), IrError> {
    let mut trace = Trace::default();
    let (mut g, mut refused) = (src.clone(), Refused::new());
    // A pass that fires makes the graph simpler; rules that undo one another must not hang the program.
    for _ in 0..64 {
        let (next, pass, declines) = one_pass(&g, rules, &refused, admit)?;
        trace.declined = pass.declined;
        if pass.applied.is_empty() && declines.is_subset(&refused) {
            break;
        }
        trace.applied.extend(pass.applied);
        (g, refused) = (next, declines);
    }
    Ok((g, trace))
}

/// Rules, by number, that matched at a node of this name and declined: they keep no other rule from what they matched.
type Refused = HashSet<(usize, String)>;

/// The matches at each root, best first.
fn plan(
    g: &Graph,
    rules: &[&Rule],
    refused: &Refused,
    admit: &AdmitFn<'_>,
    trace: &mut Trace,
) -> Vec<Vec<(usize, Match)>> {
    let mut plan: Vec<Vec<(usize, Match)>> = vec![vec![]; g.len()];
    let mut taken = vec![false; g.len()];
    for (id, node) in g.nodes().rev() {
        let Some(op) = node.op() else { continue };
        if taken[id.index()] || matches!(node.meta, Meta::Tuple(_)) {
            continue;
        }
        // A getitem may stand for the call that it takes from.
        let of = node.args.iter().flat_map(Arg::nodes).next().and_then(|n| g.node(n).op());
        for (i, rule) in rules.iter().enumerate() {
            let through = op.name == "getitem" && of.is_some_and(|o| rule.pattern.may_start_at(o));
            if !through && !rule.pattern.may_start_at(op) {
                continue;
            }
            match rule.pattern.match_admitted(g, id, &|n| admit(rule, g.node(n))) {
                Ok(m) => plan[id.index()].push((i, m)),
                Err(miss) if miss.matched >= 2 => trace.declined.push(declined(rule, node, miss)),
                Err(_) => {}
            }
        }
        let takes = |(i, _): &&(usize, Match)| refused.is_empty() || !refused.contains(&(*i, node.name.clone()));
        for (_, m) in plan[id.index()].iter().filter(takes).take(1) {
            for n in &m.nodes {
                taken[n.index()] |= *n != id && m.nodes.iter().any(|u| g.users(*n) == [*u]);
            }
        }
    }
    plan
}

fn declined(rule: &Rule, node: &Node, miss: NearMiss) -> Declined {
    Declined { rule: rule.name.clone(), node: node.name.clone(), step: miss.step, why: miss.why }
}

fn one_pass(
    g: &Graph,
    rules: &[&Rule],
    refused: &Refused,
    admit: &AdmitFn<'_>,
) -> Result<(Graph, Trace, Refused), IrError> {
    let (mut trace, mut declines) = (Trace::default(), Refused::new());
    let plan = plan(g, rules, refused, admit, &mut trace);
    // transform() shows calls only with mapped arguments; what they were mapped to is learnt from those.
    let map = RefCell::new(vec![None; g.len()]);
    let learn = |old: &[Arg], new: &[Arg]| {
        let pairs = old.iter().flat_map(Arg::nodes).zip(new.iter().flat_map(Arg::nodes));
        pairs.for_each(|(o, n)| map.borrow_mut()[o.index()] = Some(n));
    };
    let out = transform::transform(g, |b, id, node, args| {
        learn(&node.args, args);
        for (i, m) in &plan[id.index()] {
            let rule = &rules[*i];
            let lookup = |n: NodeId| map.borrow()[n.index()].unwrap_or(NodeId::end());
            let bound = Bound { b, source: g, found: m, map: &lookup };
            b.set_origin(joint_origin(g, m));
            match (rule.build)(&bound) {
                Ok(v) => {
                    if let Some(e) = b.error() {
                        return Err(e);
                    }
                    let into = b.with_graph(|new| new.node(v.id()).name.clone());
                    let nodes = m.nodes.iter().map(|n| g.node(*n).name.clone()).collect();
                    trace.applied.push(Applied { rule: rule.name.clone(), nodes, into });
                    return Ok(Replace::With(vec![v]));
                }
                Err(why) => {
                    declines.insert((*i, node.name.clone()));
                    let (rule, node) = (rule.name.clone(), node.name.clone());
                    trace.declined.push(Declined { rule, node, step: "replacement".into(), why });
                }
            }
        }
        b.set_origin(node.origin.clone());
        Ok(Replace::Copy)
    })?;
    Ok((out, trace, declines))
}

/// All sources of the matched nodes; the module that all of them stand in.
fn joint_origin(g: &Graph, m: &Match) -> Origin {
    let mut origin = Origin::default();
    let mut module: Option<Vec<&str>> = None;
    for n in &m.nodes {
        let o = &g.node(*n).origin;
        for s in &o.sources {
            if !origin.sources.contains(s) {
                origin.sources.push(s.clone());
            }
        }
        let path: Vec<&str> = o.module.split('.').collect();
        module = Some(match module {
            None => path,
            Some(p) => p.iter().zip(&path).take_while(|(a, b)| a == b).map(|(a, _)| *a).collect(),
        });
    }
    origin.module = module.unwrap_or_default().join(".");
    origin
}
