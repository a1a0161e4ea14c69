//! Matching: goals solved depth first, with backtracking over operand orders, optional wrappers and chains.

use crate::error::NearMiss;
use crate::pattern::{CallPat, Pat, Pattern};
use cleave_ir::{Arg, Graph, Kind, Meta, NodeId, Op};
use indexmap::IndexMap;

/// A use of a captured value by a matched node.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// The capture.
    pub capture: String,
    /// The matched node that uses it.
    pub user: NodeId,
    /// The parameter that it is given to.
    pub slot: usize,
    /// Its place, where the parameter is a list.
    pub index: Option<usize>,
    /// The value.
    pub value: Arg,
}

/// What a pattern matched.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// The outermost node.
    pub root: NodeId,
    /// All matched nodes (not the captured values), in topological order.
    pub nodes: Vec<NodeId>,
    /// Matched calls by label.
    pub labels: IndexMap<String, NodeId>,
    /// Captured values; those that were absent are not in it.
    pub captures: IndexMap<String, Arg>,
    /// Captured lists.
    pub lists: IndexMap<String, Vec<Arg>>,
    /// Every use of a captured value by a matched node.
    pub edges: Vec<Edge>,
}

impl Match {
    /// The node under a label.
    pub fn node(&self, label: &str) -> Option<NodeId> {
        self.labels.get(label).copied()
    }

    /// A captured value that is a node.
    pub fn value(&self, capture: &str) -> Option<NodeId> {
        match self.captures.get(capture) {
            Some(Arg::Node(n)) => Some(*n),
            _ => None,
        }
    }
}

/// Users of a value; those of a tuple are the users of its parts.
pub fn users(g: &Graph, id: NodeId) -> Vec<NodeId> {
    let direct = g.users(id);
    if !matches!(g.node(id).meta, Meta::Tuple(_)) {
        return direct;
    }
    let mut all: Vec<NodeId> = direct.into_iter().flat_map(|u| g.users(u)).collect();
    all.sort();
    all.dedup();
    all
}

/// How many nodes use a value; see [`users`].
pub fn user_count(g: &Graph, id: NodeId) -> usize {
    users(g, id).len()
}

/// The number that an argument is, or that a constant of one element holds.
pub(crate) fn number(g: &Graph, a: &Arg) -> Option<f64> {
    match a {
        Arg::Int(i) => Some(*i as f64),
        Arg::Float(f) => Some(*f),
        Arg::Bool(b) => Some(f64::from(*b)),
        Arg::Dim(d) => d.as_const().map(|v| v as f64),
        Arg::Node(n) => g.constant(*n).filter(|t| t.len() == 1).and_then(|t| t.to_f64().first().copied()),
        _ => None,
    }
}

pub(crate) fn close(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

/// Whether two arguments are one value: the same node, two reads of one constant, or equal literals.
fn same_value(g: &Graph, a: &Arg, b: &Arg) -> bool {
    match (a, b) {
        (Arg::Node(p), Arg::Node(q)) => {
            let (n, m) = (g.node(*p), g.node(*q));
            p == q || (matches!(n.kind, Kind::GetAttr(_)) && n.kind == m.kind && n.target == m.target)
        }
        _ => a == b || number(g, a).zip(number(g, b)).is_some_and(|(x, y)| close(x, y)),
    }
}

#[derive(Clone)]
struct Goal {
    part: usize,
    arg: Arg,
    /// The matched node that uses the argument, the parameter, and the place in a list.
    used_by: Option<(NodeId, usize, Option<usize>)>,
    /// Whether the value stands inside a chain.
    in_chain: bool,
}

#[derive(Clone)]
pub(crate) struct State {
    pub nodes: Vec<NodeId>,
    pub labels: Vec<Option<NodeId>>,
    pub captures: Vec<Option<Arg>>,
    pub lists: Vec<Option<Vec<Arg>>>,
    edges: Vec<Edge>,
}

struct Search<'a> {
    p: &'a Pattern,
    g: &'a Graph,
    root: NodeId,
    admit: &'a dyn Fn(NodeId) -> Result<(), String>,
    best: NearMiss,
    steps: usize,
}

/// A pattern that needs more steps than this at one root is given up there.
const MOST_STEPS: usize = 100_000;

pub(crate) fn run(
    p: &Pattern,
    g: &Graph,
    root: NodeId,
    admit: &dyn Fn(NodeId) -> Result<(), String>,
) -> Result<Match, NearMiss> {
    let best = NearMiss { matched: 0, step: "root".into(), why: "another op".into() };
    let mut s = Search { p, g, root, admit, best, steps: 0 };
    let state = State {
        nodes: vec![],
        labels: vec![None; p.labels.len()],
        captures: vec![None; p.captures.len()],
        lists: vec![None; p.lists.len()],
        edges: vec![],
    };
    let goal = Goal { part: p.root, arg: Arg::Node(root), used_by: None, in_chain: false };
    match s.solve(vec![goal], state) {
        Some(state) if !state.nodes.is_empty() => Ok(finish(p, root, state)),
        _ => Err(s.best),
    }
}

fn finish(p: &Pattern, root: NodeId, mut state: State) -> Match {
    state.nodes.sort();
    Match {
        root,
        nodes: state.nodes,
        labels: p.labels.iter().cloned().zip(state.labels).filter_map(|(n, v)| Some((n, v?))).collect(),
        captures: p.captures.iter().cloned().zip(state.captures).filter_map(|(n, v)| Some((n, v?))).collect(),
        lists: p.lists.iter().cloned().zip(state.lists).map(|(n, v)| (n, v.unwrap_or_default())).collect(),
        edges: state.edges,
    }
}

impl Search<'_> {
    fn fail<T>(&mut self, state: &State, step: &str, why: impl Into<String>) -> Option<T> {
        if !state.nodes.is_empty() && state.nodes.len() >= self.best.matched {
            self.best = NearMiss { matched: state.nodes.len(), step: step.into(), why: why.into() };
        }
        None
    }

    fn describe(&self, a: &Arg) -> String {
        match a {
            Arg::None => "nothing".into(),
            Arg::Node(n) => match self.g.node(*n).kind {
                Kind::Call(op) => format!("{} ({})", op.base(), self.g.node(*n).name),
                Kind::Placeholder => format!("the input {}", self.g.node(*n).name),
                Kind::GetAttr(_) => format!("the constant {}", self.g.node(*n).target),
                Kind::Output => "the output".into(),
            },
            other => cleave_ir::text::arg_text(self.g, other),
        }
    }

    fn solve(&mut self, mut goals: Vec<Goal>, mut state: State) -> Option<State> {
        while let Some(goal) = goals.pop() {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return self.fail(&state, "search", "too many ways to match");
            }
            let p = self.p;
            match &p.parts[goal.part] {
                Pat::Call(c) if c.chain => return self.chain(c, goal, goals, state),
                Pat::Call(c) => {
                    if c.optional
                        && let Some(done) = self.call(c, &goal, goals.clone(), state.clone())
                    {
                        return Some(done);
                    }
                    if !c.optional {
                        return self.call(c, &goal, goals, state);
                    }
                    goals.push(Goal { part: c.args[0], ..goal });
                }
                Pat::Capture { slot, optional } => self.capture(*slot, *optional, goal, &mut state)?,
                Pat::List { items, rest } => self.list(items, *rest, goal, &mut goals, &mut state)?,
                literal => self.literal(literal, &goal, &state)?,
            }
        }
        for condition in &self.p.conditions {
            if let Err(why) = condition.check(self.p, self.g, self.root, &state) {
                return self.fail(&state, condition.text(), why);
            }
        }
        Some(state)
    }

    fn literal(&mut self, part: &Pat, goal: &Goal, state: &State) -> Option<()> {
        let holds = match part {
            Pat::Number(n) => number(self.g, &goal.arg).is_some_and(|v| close(v, *n)),
            Pat::None => goal.arg == Arg::None,
            Pat::Bool(b) => goal.arg == Arg::Bool(*b),
            Pat::Text(t) => matches!(&goal.arg, Arg::Str(s) if s == t),
            _ => true,
        };
        if holds {
            return Some(());
        }
        let want = match part {
            Pat::Number(n) => n.to_string(),
            Pat::Bool(b) => b.to_string(),
            Pat::Text(t) => format!("'{t}'"),
            _ => "none".into(),
        };
        let why = format!("expected {want}, found {}", self.describe(&goal.arg));
        self.fail(state, "literal", why)
    }

    fn edge(&self, name: &str, goal: &Goal, state: &mut State) {
        if let Some((user, slot, index)) = goal.used_by {
            state.edges.push(Edge { capture: name.into(), user, slot, index, value: goal.arg.clone() });
        }
    }

    fn capture(&mut self, slot: usize, optional: bool, goal: Goal, state: &mut State) -> Option<()> {
        let name = self.p.captures[slot].clone();
        if goal.arg == Arg::None {
            return if optional { Some(()) } else { self.fail(state, &name, "the argument is absent") };
        }
        if let Some(before) = &state.captures[slot]
            && !same_value(self.g, before, &goal.arg)
        {
            let why = format!("{} and {} are not one value", self.describe(before), self.describe(&goal.arg));
            return self.fail(state, &name, why);
        }
        self.edge(&name, &goal, state);
        state.captures[slot] = Some(goal.arg);
        Some(())
    }

    fn list(
        &mut self,
        items: &[usize],
        rest: Option<usize>,
        goal: Goal,
        goals: &mut Vec<Goal>,
        state: &mut State,
    ) -> Option<()> {
        let Arg::List(args) = &goal.arg else {
            let why = format!("expected a list, found {}", self.describe(&goal.arg));
            return self.fail(state, "list", why);
        };
        if args.len() < items.len() || (rest.is_none() && args.len() > items.len()) {
            return self.fail(state, "list", format!("expected {} elements, found {}", items.len(), args.len()));
        }
        let used_by = |i: usize| goal.used_by.map(|(user, slot, _)| (user, slot, Some(i)));
        for (i, part) in items.iter().enumerate().rev() {
            goals.push(Goal { part: *part, arg: args[i].clone(), used_by: used_by(i), in_chain: false });
        }
        if let Some(slot) = rest {
            let name = self.p.lists[slot].clone();
            for (i, arg) in args.iter().enumerate().skip(items.len()) {
                let element = Goal { part: 0, arg: arg.clone(), used_by: used_by(i), in_chain: false };
                self.edge(&name, &element, state);
            }
            state.lists[slot] = Some(args[items.len()..].to_vec());
        }
        Some(())
    }

    /// The node whose call is to be matched: what a `getitem 0` takes from stands for it.
    fn called(&mut self, c: &CallPat, arg: &Arg, state: &State) -> Option<(Vec<NodeId>, &'static Op)> {
        let expected = |s: &Self| format!("expected {}, found {}", c.shown, s.describe(arg));
        let Arg::Node(id) = arg else {
            let why = expected(self);
            return self.fail(state, &c.shown, why);
        };
        let mut nodes = vec![*id];
        let mut op = self.g.node(*id).op();
        if let (Some(o), [Arg::Node(tuple), Arg::Int(0)]) = (op, self.g.node(*id).args.as_slice())
            && o.name == "getitem"
            && !c.ops.contains(&o)
        {
            nodes.push(*tuple);
            op = self.g.node(*tuple).op();
        }
        let Some(op) = op.filter(|o| c.ops.contains(o)) else {
            let why = expected(self);
            return self.fail(state, &c.shown, why);
        };
        for n in &nodes {
            if let Err(why) = (self.admit)(*n) {
                return self.fail(state, &c.shown, why);
            }
        }
        Some((nodes, op))
    }

    fn call(&mut self, c: &CallPat, goal: &Goal, goals: Vec<Goal>, mut state: State) -> Option<State> {
        let (nodes, op) = self.called(c, &goal.arg, &state)?;
        let id = *nodes.last().expect("invariant: the call itself is among them");
        if goal.in_chain && user_count(self.g, id) > 1 {
            let why = format!("{} has {} users", c.shown, user_count(self.g, id));
            return self.fail(&state, &c.shown, why);
        }
        let args = self.g.node(id).args.clone();
        let params = &op.schema.params;
        if c.args.len() > params.len() || args.len() != params.len() {
            return self.fail(&state, &c.shown, format!("{} takes fewer arguments", op.base()));
        }
        for n in nodes {
            if !state.nodes.contains(&n) {
                state.nodes.push(n);
            }
        }
        state.labels[c.label] = Some(id);
        self.held_to_default(c, op, &args, &state)?;
        let mut slots: Vec<usize> = (0..c.args.len()).collect();
        let mut orders = vec![slots.clone()];
        if op.commutative && slots.len() >= 2 {
            slots.swap(0, 1);
            orders.push(slots);
            if self.later_second(c, &args) {
                orders.reverse();
            }
        }
        for order in orders {
            let mut next = goals.clone();
            for (name, part) in c.attrs.iter().rev() {
                let Some(slot) = op.schema.index(name) else {
                    return self.fail(&state, &c.shown, format!("{} has no parameter '{name}'", op.base()));
                };
                next.push(Goal {
                    part: *part,
                    arg: args[slot].clone(),
                    used_by: Some((id, slot, None)),
                    in_chain: false,
                });
            }
            for (part, slot) in c.args.iter().zip(&order).rev() {
                let used_by = Some((id, *slot, None));
                next.push(Goal { part: *part, arg: args[*slot].clone(), used_by, in_chain: false });
            }
            if let Some(done) = self.solve(next, state.clone()) {
                return Some(done);
            }
        }
        None
    }

    fn held_to_default(&mut self, c: &CallPat, op: &Op, args: &[Arg], state: &State) -> Option<()> {
        for name in if c.open { &[] } else { op.must_default } {
            let Some(slot) = op.schema.index(name) else { continue };
            let mentioned = slot < c.args.len() || c.attrs.iter().any(|(n, _)| n == name);
            let default = op.schema.params[slot].default.as_ref();
            if mentioned || default.is_none_or(|d| same_value(self.g, d, &args[slot])) {
                continue;
            }
            let why = format!("{name} is {}, not its default", self.describe(&args[slot]));
            return self.fail(state, &c.shown, why);
        }
        Some(())
    }

    /// Whether the first call among the two operands' patterns should meet the second operand first.
    fn later_second(&self, c: &CallPat, args: &[Arg]) -> bool {
        let place = |a: &Arg| if let Arg::Node(n) = a { Some(n.index()) } else { None };
        let called = |part: usize| matches!(self.p.parts[part], Pat::Call(_));
        let second_is_later = place(&args[1]) > place(&args[0]);
        match (called(c.args[0]), called(c.args[1])) {
            (true, _) => second_is_later,
            (false, true) => !second_is_later,
            _ => false,
        }
    }

    /// A chain of single-use calls, the longest first; then what it ends in.
    fn chain(&mut self, c: &CallPat, goal: Goal, goals: Vec<Goal>, state: State) -> Option<State> {
        let link = match &goal.arg {
            Arg::Node(id) => {
                let op = self.g.node(*id).op().filter(|o| c.ops.contains(o));
                op.filter(|_| (*id == self.root || user_count(self.g, *id) == 1) && (self.admit)(*id).is_ok())
                    .map(|_| *id)
            }
            _ => None,
        };
        if let Some(id) = link {
            let args = self.g.node(id).args.clone();
            let operands: Vec<usize> = (0..args.len()).filter(|i| matches!(args[*i], Arg::Node(_))).collect();
            for inner in &operands {
                let mut next = state.clone();
                next.nodes.push(id);
                next.labels[c.label].get_or_insert(id);
                for slot in operands.iter().filter(|o| *o != inner) {
                    let Some(extras) = c.extras else { continue };
                    next.lists[extras].get_or_insert_default().push(args[*slot].clone());
                    let side =
                        Goal { part: 0, arg: args[*slot].clone(), used_by: Some((id, *slot, None)), in_chain: false };
                    self.edge(&self.p.lists[extras].clone(), &side, &mut next);
                }
                let mut more = goals.clone();
                more.push(Goal {
                    part: goal.part,
                    arg: args[*inner].clone(),
                    used_by: Some((id, *inner, None)),
                    in_chain: true,
                });
                if let Some(done) = self.solve(more, next) {
                    return Some(done);
                }
            }
        }
        let mut end = goals;
        end.push(Goal { part: c.args[0], ..goal });
        self.solve(end, state)
    }
}
