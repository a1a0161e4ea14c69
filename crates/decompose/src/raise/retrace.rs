//! Whether a match is what a call gives: the call's rule is run on the operands that were matched.

use super::{SIMPLE, WRITTEN};
use crate::driver::expand;
use crate::table::Table;
use cleave_ir::builder::Rules;
use cleave_ir::graph::{Arg, Graph, Kind, NodeId};
use cleave_ir::op::{Op, RuleFn};
use cleave_ir::schema::Type;
use cleave_ir::{Builder, Dim};
use cleave_rewrite::{Bound, Rule};
use std::collections::HashMap;
use std::rc::Rc;

/// Ops that give elements another shape, whichever of them a file has.
pub(super) const SHAPING: [&str; 3] = ["aten.view", "aten.reshape", "aten._unsafe_view"];

pub(super) fn is_shaping(o: &Op) -> bool {
    SHAPING.contains(&o.short())
}

/// Most calls that a match is tried against.
const MOST: usize = 64;

/// How a trace is made: how deep the op is broken up, and how parts are then put together again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    depth: Depth,
    pub(super) raised: Raised,
}

/// By the time that a rule is tried, others may have raised parts of what it looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Raised {
    /// Nothing is raised.
    No,
    /// By the written rules.
    Written,
    /// By the written rules and the traces of other ops.
    Traced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Once,
    Core,
    Prims,
}

const DEPTHS: [(&str, Depth); 3] = [("once", Depth::Once), ("core", Depth::Core), ("prims", Depth::Prims)];
const WAYS: [(&str, Raised); 3] = [("no", Raised::No), ("written", Raised::Written), ("traced", Raised::Traced)];

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let depth = DEPTHS.iter().find(|(_, d)| *d == self.depth).map_or("", |(n, _)| n);
        let way = WAYS.iter().find(|(_, r)| *r == self.raised).map_or("", |(n, _)| n);
        write!(f, "{depth}/{way}")
    }
}

impl std::str::FromStr for Form {
    type Err = String;

    fn from_str(s: &str) -> Result<Form, String> {
        let all = Form::all().find(|f| f.to_string() == s);
        all.ok_or_else(|| format!("no form '{s}'"))
    }
}

impl Form {
    /// Every depth, raised in every way.
    pub(super) fn all() -> impl Iterator<Item = Form> {
        let of = |(_, raised): &(&str, Raised)| DEPTHS.map(|(_, depth)| Form { depth, raised: *raised });
        WAYS.iter().flat_map(of)
    }

    /// The trace of an op in a graph that calls it.
    pub(super) fn of(self, o: &'static Op, g: &Graph) -> Result<Graph, String> {
        let table = match self.depth {
            Depth::Once => None,
            Depth::Core => Some(Table::core()),
            Depth::Prims => Some(Table::prims()),
        };
        let rules: Rules = Rc::new(move |p: &Op| -> Option<RuleFn> {
            if p == o { p.rule } else { table.as_ref().and_then(|t| t.rule(p)) }
        });
        let traced = expand(g, rules).map_err(|e| e.to_string())?;
        let rules: Vec<&Rule> = match self.raised {
            Raised::No => vec![],
            Raised::Written => WRITTEN.iter().collect(),
            Raised::Traced => WRITTEN.iter().chain(SIMPLE.iter().filter(|r| r.name != o.short())).collect(),
        };
        super::raise_by(&traced, &rules).map(|(g, _)| g).map_err(|e| e.to_string())
    }
}

/// What an argument of the example may be of the call that is raised: itself and, if it is a size, what stands among
/// the sizes of the matched nodes.
pub(super) fn candidates(example: &Arg, ty: &Type, default: Option<&Arg>, m: &Bound<'_, '_>) -> Vec<Arg> {
    let mut all = vec![example.clone()];
    let matched = m.found.nodes.iter().flat_map(|n| &m.source.node(*n).args);
    let mut add = |a: Arg| {
        if !all.contains(&a) {
            all.push(a);
        }
    };
    match ty {
        _ if Some(example) == default => {}
        Type::Int => {
            let ints = |a: &Arg| match a {
                Arg::Int(_) | Arg::Dim(_) => vec![a.clone()],
                Arg::List(l) if l.iter().all(is_size) => l.clone(),
                _ => vec![],
            };
            matched.flat_map(ints).for_each(add);
        }
        Type::IntList(_) => {
            // The sizes of the last dimensions of what goes in.
            let shapes = m.found.captures.values().flat_map(Arg::nodes);
            let shapes = shapes.filter_map(|n| m.source.node(n).meta.as_tensor()).map(|t| &t.shape);
            for shape in shapes {
                (1..=shape.len()).for_each(|k| add(sizes(&shape[shape.len() - k..])));
            }
            matched.filter(|a| matches!(a, Arg::List(l) if l.iter().all(is_size))).cloned().for_each(add);
        }
        _ => {}
    }
    all
}

fn is_size(a: &Arg) -> bool {
    matches!(a, Arg::Int(_) | Arg::Dim(_))
}

fn sizes(dims: &[Dim]) -> Arg {
    Arg::List(dims.iter().cloned().map(Arg::from).collect())
}

/// The choices of one for each argument, at most [`MOST`] of them.
pub(super) fn combinations(choices: &[Vec<Arg>]) -> Vec<Vec<Arg>> {
    let mut all: Vec<Vec<Arg>> = vec![vec![]];
    for of_one in choices {
        let longer = |head: &Vec<Arg>| {
            of_one.iter().map(|a| [head.as_slice(), std::slice::from_ref(a)].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).take(MOST).collect();
    }
    all
}

/// Whether the call, its operands in the matched graph, leads to what was matched.
pub(super) fn same(o: &'static Op, args: Vec<Arg>, form: Form, m: &Bound<'_, '_>) -> Result<(), String> {
    let b = Builder::new();
    b.edit(|g| g.symbols.clone_from(&m.source.symbols));
    let mut operands: Vec<NodeId> = vec![];
    let args: Vec<Arg> = args
        .iter()
        .map(|a| {
            a.map_nodes(&mut |n| {
                let at = operands.iter().position(|o| *o == n).unwrap_or(operands.len());
                if at == operands.len() {
                    operands.push(n);
                    b.placeholder(&format!("operand_{at}"), m.source.node(n).meta.clone());
                }
                b.with_graph(|g| Arg::Node(g.placeholders()[at]))
            })
        })
        .collect();
    let meta = b.resolve(o, args.clone(), o.base()).map_err(|e| e.to_string())?.1;
    if meta != m.root().meta {
        return Err("the op gives another type or shape".into());
    }
    b.output(&[("y".into(), b.call_op(o, args, None))]);
    let traced = form.of(o, &b.finish().map_err(|e| e.to_string())?)?;
    let root = *traced.results().first().ok_or("the op gives nothing")?;
    let places = traced.placeholders().into_iter().zip(operands).collect();
    let mut same = Same { traced: &traced, source: m.source, pairs: places };
    if same.nodes(root, m.found.root) { Ok(()) } else { Err(format!("its trace differs from {}", m.root().name)) }
}

/// Nodes of two graphs held against each other.
struct Same<'a> {
    traced: &'a Graph,
    source: &'a Graph,
    pairs: HashMap<NodeId, NodeId>,
}

impl Same<'_> {
    fn nodes(&mut self, t: NodeId, s: NodeId) -> bool {
        if let Some(known) = self.pairs.get(&t) {
            return *known == s;
        }
        let (a, b) = (self.traced.node(t), self.source.node(s));
        let (Kind::Call(o), Kind::Call(p)) = (&a.kind, &b.kind) else { return false };
        if is_shaping(o) && is_shaping(p) {
            return a.meta == b.meta && self.args(&a.args[0], &b.args[0]);
        }
        if o != p || a.args.len() != b.args.len() {
            return false;
        }
        let mut orders = vec![(0..a.args.len()).collect::<Vec<_>>()];
        if o.commutative && a.args.len() >= 2 {
            let mut swapped = orders[0].clone();
            swapped.swap(0, 1);
            orders.push(swapped);
        }
        let known = self.pairs.clone();
        let rank = b
            .args
            .first()
            .map(Arg::nodes)
            .and_then(|n| self.source.node(*n.first()?).meta.as_tensor()?.shape.len().try_into().ok());
        let equal = |same: &mut Self, i: usize, x: &Arg, y: &Arg| match (o.schema.params[i].name.as_str(), rank) {
            ("dim" | "dims", Some(rank)) => wrapped(x, rank) == wrapped(y, rank),
            _ => same.args(x, y),
        };
        for order in orders {
            if order.iter().enumerate().all(|(i, j)| equal(self, i, &a.args[i], &b.args[*j])) {
                self.pairs.insert(t, s);
                return true;
            }
            self.pairs.clone_from(&known);
        }
        false
    }

    fn args(&mut self, a: &Arg, b: &Arg) -> bool {
        let number = |a: &Arg| match a {
            Arg::Int(i) => Some(*i as f64),
            Arg::Float(f) => Some(*f),
            _ => None,
        };
        match (a, b) {
            (Arg::Node(t), Arg::Node(s)) => self.nodes(*t, *s),
            (Arg::List(x), Arg::List(y)) => x.len() == y.len() && x.iter().zip(y).all(|(a, b)| self.args(a, b)),
            _ => match (number(a), number(b)) {
                (Some(x), Some(y)) => x == y || (x - y).abs() <= 1e-6 * x.abs().max(y.abs()),
                _ => a == b,
            },
        }
    }
}

/// Dimensions counted from the first one.
fn wrapped(a: &Arg, rank: i64) -> Arg {
    match a {
        Arg::Int(i) if *i < 0 => Arg::Int(i + rank),
        Arg::List(l) => Arg::List(l.iter().map(|a| wrapped(a, rank)).collect()),
        a => a.clone(),
    }
}
