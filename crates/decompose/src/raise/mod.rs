//! Raising: a graph as a file has it becomes functional, without inert ops, with semantic ops in the place of
//! what the file spelled out.
//!
//! First what mutates, aliases or does nothing is resolved, sizes become expressions and numbers that hide in
//! constants come out ([`normal`]); then the rules of [`rules`] are applied until none fires. One rule is one
//! [`RuleDef`] with spellings, a replacement and an example that is run as a test.

mod fold;
mod normal;
mod prims;
mod retrace;
mod rules;
pub mod traced;

use retrace::Raised;
pub use rules::RULES;

use crate::error::{DecomposeError, Result};
use crate::functional::{functionalize, resolve_sizes};
use cleave_ir::graph::{Graph, Node};
use cleave_ir::subgraph::take_branches;
use cleave_ir::transform;
use cleave_ir::{Class, Levels, NodeId, Value, verify};
pub use cleave_rewrite::Trace;
use cleave_rewrite::{AdmitFn, Alternatives, Bound, Pattern, Rule};
use indexmap::IndexMap;
use std::sync::LazyLock;

/// What a rule builds in the place of a match, or why it declines.
pub type BuildFn = for<'b> fn(&Bound<'b, '_>) -> std::result::Result<Value<'b>, String>;

/// A rule that puts a semantic op in the place of its spellings.
pub struct RuleDef {
    /// Name, as the trace prints it.
    pub name: &'static str,
    /// What it recognises.
    pub doc: &'static str,
    /// Patterns of `cleave-rewrite`, tried in order.
    pub spellings: &'static [&'static str],
    /// Names in the patterns that stand for several ops.
    pub any: &'static [(&'static str, &'static [&'static str])],
    /// Conditions of all spellings.
    pub conditions: &'static [&'static str],
    /// The replacement.
    pub build: BuildFn,
    /// A graph before and after, in text form.
    pub example: (&'static str, &'static str),
}

impl RuleDef {
    fn compile(&self) -> Result<Vec<Rule>> {
        let bad = |why: String| DecomposeError::BadRule { rule: self.name.into(), why };
        let owned = |(n, ops): &(&str, &[&str])| (n.to_string(), ops.iter().map(ToString::to_string).collect());
        let any: Alternatives = self.any.iter().map(owned).collect();
        self.spellings
            .iter()
            .map(|text| {
                let mut p = Pattern::parse(text, &any).map_err(|e| bad(format!("{text}: {e}")))?;
                for c in self.conditions {
                    p = p.with_condition(c).map_err(|e| bad(format!("{c}: {e}")))?;
                }
                Ok(Rule::new(self.name, p, self.build))
            })
            .collect()
    }
}

/// The rules of [`RULES`].
fn written() -> Vec<Rule> {
    let compiled = RULES.iter().map(|r| r.compile()).collect::<Result<Vec<_>>>();
    compiled.expect("invariant: the rules' spellings are patterns").into_iter().flatten().collect()
}

static WRITTEN: LazyLock<Vec<Rule>> = LazyLock::new(written);

/// Traces of raisable ops that nothing but the written rules has raised.
static SIMPLE: LazyLock<Vec<Rule>> = LazyLock::new(|| traces(&[Raised::No, Raised::Written]));

/// Those parts of which other traces have raised.
static JOINT: LazyLock<Vec<Rule>> = LazyLock::new(|| traces(&[Raised::Traced]));

fn traces(raised: &[Raised]) -> Vec<Rule> {
    traced::rules(raised).expect("invariant: the list of traces is one, see the test")
}

/// All rules, in the order in which they are tried.
static ALL: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| WRITTEN.iter().chain(&*JOINT).chain(&*SIMPLE).collect());

/// The graph raised, and what fired or nearly fired on the way. `src` is left alone.
///
/// # Errors
/// A write that cannot be expressed as a value, dropout or batch norm in training mode, and what building a
/// replacement meets.
pub fn raise(src: &Graph) -> Result<(Graph, Trace)> {
    raise_by(src, &ALL)
}

/// Rules that fold constants into what stands before them: they take arithmetic away that a pattern may name.
const FOLDING: [&str; 4] = ["channel_affine", "conv_scale", "conv_shift", "linear_bias"];

/// [`raise`], but where `patterns` match what they name stays: a unit of `mul(conv(x, w), s)` can be spoken of though
/// `s` could be folded into `w`. Where `inert` match, the dropouts that they name stay too.
///
/// # Errors
/// As [`raise`].
pub fn raise_for(src: &Graph, patterns: &[&Pattern], inert: &[&Pattern]) -> Result<(Graph, Trace)> {
    if patterns.is_empty() {
        return raise_admitted(src, &ALL, &|_, _| Ok(()), inert);
    }
    let folds = |r: &Rule| FOLDING.contains(&r.name.as_str());
    let no = |r: &Rule, _: &Node| if folds(r) { Err("folding comes later".into()) } else { Ok(()) };
    let (g, _) = raise_admitted(src, &ALL, &no, inert)?;
    let mut named: IndexMap<&str, &str> = IndexMap::new();
    for p in patterns {
        for m in g.ids().filter_map(|id| p.match_at(&g, id).ok()) {
            // It is the arithmetic that a fold takes away.
            let arithmetic = |n: &NodeId| g.node(*n).op().is_some_and(|o| o.class == Class::Pointwise);
            let nodes = p.named_nodes(&m).into_iter().filter(arithmetic);
            named.extend(nodes.map(|n| (g.node(n).name.as_str(), p.text())));
        }
    }
    let admit = |r: &Rule, n: &Node| match named.get(n.name.as_str()).filter(|_| folds(r)) {
        Some(p) => Err(format!("{} is named by the pattern {p}", n.name)),
        None => Ok(()),
    };
    raise_admitted(src, &ALL, &admit, inert)
}

/// The rules applied to any node.
fn raise_by(src: &Graph, rules: &[&Rule]) -> Result<(Graph, Trace)> {
    raise_admitted(src, rules, &|_, _| Ok(()), &[])
}

fn raise_admitted(src: &Graph, rules: &[&Rule], admit: &AdmitFn<'_>, inert: &[&Pattern]) -> Result<(Graph, Trace)> {
    let mut inner = Trace::default();
    let functional = functionalize(src)?;
    let g = functional.map_subgraphs(&mut |g| {
        let (g, trace) = raise_admitted(g, rules, admit, inert)?;
        inner.applied.extend(trace.applied);
        inner.declined.extend(trace.declined);
        Ok::<_, DecomposeError>(g)
    })?;
    let g = take_branches(&normal::resolve(&prims::lifted(&resolve_sizes(&g)?)?, inert)?)?;
    let g = normal::literals(&normal::pads(&g)?)?;
    let (g, mut trace) = cleave_rewrite::rewrite_admitted(&g, rules, admit)?;
    trace.applied.splice(0..0, inner.applied);
    trace.declined.splice(0..0, inner.declined);
    let g = transform::prune(&g);
    verify::verify(&g, Levels::ALL)?;
    Ok((g, trace))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;
    use std::collections::BTreeSet;

    #[test]
    fn every_rule_turns_its_example_into_what_it_says() {
        for rule in RULES {
            let (before, after) = rule.example;
            let src = text::parse(before).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
            let (g, trace) = raise(&src).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
            assert_eq!(g.to_string().trim(), after.trim(), "{}", rule.name);
            assert!(trace.applied.iter().any(|a| a.rule == rule.name), "{} did not fire: {trace:?}", rule.name);
            // Raising is idempotent.
            assert_eq!(raise(&g).unwrap().0.to_string(), g.to_string(), "{}", rule.name);
        }
    }

    #[test]
    fn rules_have_names_of_their_own_and_say_what_they_do() {
        for (i, r) in RULES.iter().enumerate() {
            assert!(RULES[..i].iter().all(|o| o.name != r.name), "{} is listed twice", r.name);
            assert!(!r.doc.is_empty() && !r.spellings.is_empty(), "{}", r.name);
        }
    }

    /// `UPDATE_TRACES=1 cargo test -p cleave-decompose` writes the list anew; where traces raise parts of other traces,
    /// do it until nothing changes.
    #[test]
    fn the_list_of_traces_is_that_of_the_rules() {
        let want = traced::lines();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/raise/traces.txt");
        if std::env::var_os("UPDATE_TRACES").is_some() {
            std::fs::write(path, &want).unwrap();
        }
        let have = std::fs::read_to_string(path).unwrap();
        for (have, want) in have.lines().zip(want.lines()) {
            assert_eq!(have, want);
        }
        assert_eq!(have.lines().count(), want.lines().count());
    }

    /// A class takes in ops that compute something else: `view` is also every permutation.
    #[test]
    fn rules_name_ops_and_no_classes() {
        for r in RULES {
            for p in r.compile().unwrap() {
                for label in p.pattern.labels() {
                    let bases: BTreeSet<_> = p.pattern.ops(label).iter().map(|o| o.base()).collect();
                    let most = r.any.iter().map(|(_, ops)| ops.len()).max().unwrap_or(1);
                    assert!(bases.len() <= most, "{}: {label} stands for {bases:?}", r.name);
                }
            }
        }
    }

    #[test]
    fn a_graph_is_functional_without_inert_ops_and_keeps_its_semantic_ones() {
        let src = r#"graph(%x: f32[N, 3, 8, 8]) where 1 <= N {
  %w = param "w": f32[4, 3, 3, 3]
  %m = buffer "m": f32[4]
  %conv2d = aten.conv2d(%x, %w)
  %batch_norm = aten.batch_norm(%conv2d, none, none, %m, %m, false, 0.1, 1e-5, false)
  %relu_ = aten.relu_(%batch_norm)
  %dropout = aten.dropout(%relu_, 0.5, false)
  %contiguous = aten.contiguous(%dropout)
  %n = aten.sym_size.int(%contiguous, 0)
  %reshape = aten.reshape(%contiguous, [%n, -1])
  return %reshape
}"#;
        let want = r#"graph(%x: f32[N, 3, 8, 8]) where 1 <= N {
  %w = param "w": f32[4, 3, 3, 3]
  %m = buffer "m": f32[4]
  %conv2d = aten.conv2d(%x, %w): f32[N, 4, 6, 6]
  %batch_norm = aten.batch_norm(%conv2d, none, none, %m, %m, false, 0.1, 1e-5, false): f32[N, 4, 6, 6]
  %relu = aten.relu(%batch_norm): f32[N, 4, 6, 6]
  %reshape = aten.reshape(%relu, [<N>, -1]): f32[N, 144]
  return %reshape
}
"#;
        assert_eq!(raise(&text::parse(src).unwrap()).unwrap().0.to_string(), want);
    }

    #[test]
    fn a_dropout_stays_where_a_pattern_names_it() {
        let src = r#"graph(%x: f32[2, 3, 4]) {
  %flatten = aten.flatten.using_ints(%x, 1)
  %dropout_ = aten.dropout_(%flatten, 0.5, false)
  %dropout = aten.dropout(%dropout_, 0.5, false)
  %relu = aten.relu(%dropout)
  return %relu
}"#;
        let g = text::parse(src).unwrap();
        let p = Pattern::parse("dropout(flatten(x))", &Alternatives::default()).unwrap();
        let ops = |inert: &[&Pattern]| {
            let (g, _) = raise_for(&g, &[], inert).unwrap();
            g.nodes().filter_map(|(_, n)| n.op()).map(|o| o.base()).collect::<Vec<_>>()
        };
        assert_eq!(ops(&[]), ["flatten", "relu"]);
        assert_eq!(ops(&[&p]), ["flatten", "dropout", "relu"]);
    }

    #[test]
    fn branches_are_raised_and_those_decided_are_taken() {
        let src = r#"graph(%x: f32[N, 4], %p: bool[]) where 1 <= N {
  %yes = const "yes": bool[]
  %cond = higher_order.cond(%p, graph(%a: f32[n, 4]) where 1 <= n {
    %s = aten.add.Tensor(%a, 3): f32[n, 4]
    %h = aten.clamp(%s, 0, 6): f32[n, 4]
    %m = aten.mul.Tensor(%a, %h): f32[n, 4]
    %d = aten.div.Tensor(%m, 6): f32[n, 4]
    return %d
  }, graph(%a: f32[n, 4]) where 1 <= n {
    return %a
  }, [%x]): (f32[N, 4])
  %y = getitem(%cond, 0): f32[N, 4]
  %other = higher_order.cond(%yes, graph(%a: f32[n, 4]) where 1 <= n {
    return %a
  }, graph(%a: f32[n, 4]) where 1 <= n {
    %relu_ = aten.relu_(%clone): f32[n, 4]
    return %relu_
  }, [%y]): (f32[N, 4])
  %z = getitem(%other, 0): f32[N, 4]
  return %z
}
"#;
        let src = src.replace("    %relu_ = ", "    %clone = aten.clone(%a)\n    %relu_ = ");
        let want = r#"graph(%x: f32[N, 4], %p: bool[]) where 1 <= N {
  %cond = higher_order.cond(%p, graph(%a: f32[n, 4]) where 1 <= n {
    %hardswish = aten.hardswish(%a): f32[n, 4]
    return %hardswish "d"
  }, graph(%a: f32[n, 4]) where 1 <= n {
    return %a
  }, [%x]): (f32[N, 4])
  %y = getitem(%cond, 0): f32[N, 4]
  %relu = aten.relu(%y): f32[N, 4]
  return %relu "z"
}
"#;
        // The constant is 0.
        let (g, trace) = raise(&text::parse(&src).unwrap()).unwrap();
        assert_eq!(g.to_string(), want);
        assert!(trace.applied.iter().any(|a| a.rule == "hardswish"), "{trace:?}");
    }

    #[test]
    fn what_a_pattern_names_is_not_folded_away() {
        let src = r#"graph(%x: f32[1, 3, 8, 8]) {
  %w = param "w": f32[4, 3, 1, 1]
  %s = param "s": f32[1, 4, 1, 1]
  %c = aten.conv2d(%x, %w)
  %m = aten.mul.Tensor(%c, %s)
  %r = aten.relu(%m)
  %d = aten.conv2d(%r, %w_1)
  %n = aten.mul.Tensor(%d, %s)
  return %n
}"#;
        let src = src.replace("  %c =", "  %w_1 = param \"w1\": f32[4, 4, 1, 1]\n  %c =");
        let src = text::parse(&src).unwrap();
        let kept = |pattern: &str| {
            let p = Pattern::parse(pattern, &Alternatives::new()).unwrap();
            raise_for(&src, &[&p], &[]).unwrap().0.op_counts().get("aten.mul.Tensor").copied().unwrap_or(0)
        };
        assert_eq!(kept("relu(mul(conv2d(x, w), s))"), 1, "one product is named, the other folded");
        assert_eq!(kept("mul(conv2d(x, w), s)"), 2);
        assert_eq!(kept("relu(conv2d(x, w))"), 0, "no match, no exception");
        assert_eq!(kept("pointwise*(conv2d(x, w), s…)"), 0, "a chain names nothing");
    }

    #[test]
    fn near_misses_say_why() {
        let src = "graph(%x: f32[1, 2, 1, 1], %t: f32[1, 2, 1, 1]) {
 %w = param \"w\": f32[2, 2, 1, 1]
 %c = aten.conv2d(%x, %w)
 %a = aten.add.Tensor(%c, %t)
 %l = aten.clamp(%a, -1, 5)
 %s = aten.add.Tensor(%l, 3)
 %h = aten.clamp(%s, 0, 5)
 %d = aten.div.Tensor(%h, 6)
 return %d
}";
        let (g, trace) = raise(&text::parse(src).unwrap()).unwrap();
        assert_eq!(g.op_counts().get("aten.hardsigmoid.default"), None);
        let why = |rule: &str, node: &str| {
            let d = trace.declined.iter().find(|d| d.rule == rule && d.node == node);
            d.map(|d| format!("{}: {}", d.step, d.why))
        };
        assert!(why("hardsigmoid", "d").is_some());
        assert_eq!(why("conv_shift", "a").as_deref(), Some("replacement: t is not a constant"));
    }
}
