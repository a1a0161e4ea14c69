//! The order in which nodes are read: only those that a result needs, arguments before users.

use super::scope::label;
use crate::error::Problems;
use crate::onnx::proto::{GraphProto, NodeProto};
use indexmap::IndexMap;
use std::collections::BTreeSet;

/// The most problems that are noted.
const MOST_PROBLEMS: usize = 1000;

/// What a node takes: its arguments, and what graphs in its attributes take from around.
pub fn uses(n: &NodeProto) -> Vec<&str> {
    let graphs = n.attribute.iter().filter_map(|a| a.g.as_deref());
    let inner = graphs.flat_map(free_names);
    n.input.iter().map(String::as_str).filter(|i| !i.is_empty()).chain(inner).collect()
}

/// The names that a graph uses and does not define.
pub fn free_names(g: &GraphProto) -> Vec<&str> {
    let mut own: BTreeSet<&str> = g.input.iter().map(|v| v.name.as_str()).collect();
    own.extend(g.initializer.iter().map(|t| t.name.as_str()));
    own.extend(g.sparse_initializer.iter().filter_map(|s| Some(s.values.as_ref()?.name.as_str())));
    own.extend(g.node.iter().flat_map(|n| &n.output).map(String::as_str));
    let used = g.node.iter().flat_map(uses).chain(g.output.iter().map(|o| o.name.as_str()));
    let mut seen = BTreeSet::new();
    used.filter(|n| !own.contains(n) && seen.insert(*n)).collect()
}

/// The nodes that these results need, each after those that it takes its arguments from; otherwise in the
/// order of the file. Values defined twice, values that nobody defines and cycles are noted as problems.
pub fn order<'m>(
    nodes: &'m [NodeProto],
    outputs: impl Iterator<Item = &'m str>,
    given: &dyn Fn(&str) -> bool,
    problems: &mut Problems,
) -> Vec<&'m NodeProto> {
    let mut producers: IndexMap<&str, usize> = IndexMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for out in n.output.iter().filter(|o| !o.is_empty()) {
            if producers.insert(out, i).is_some() && problems.len() < MOST_PROBLEMS {
                problems.push(label(n), &n.op_type, format!("value '{out}' is defined twice"));
            }
        }
    }
    let takes: Vec<Vec<&str>> = nodes.iter().map(uses).collect();
    let mut walk = Walk { nodes, takes: &takes, producers: &producers, given, state: vec![], done: vec![], problems };
    walk.state = vec![State::New; nodes.len()];
    for out in outputs {
        match producers.get(out) {
            Some(&p) => walk.visit(p),
            None if given(out) => {}
            None => walk.problems.push("", "", format!("result '{out}' is defined nowhere")),
        }
    }
    // The file's own order, where it is one.
    let done = walk.done;
    let mut by_file = done.clone();
    by_file.sort_unstable();
    let mut at = vec![usize::MAX; nodes.len()];
    by_file.iter().enumerate().for_each(|(place, i)| at[*i] = place);
    let in_order = by_file.iter().all(|&i| takes[i].iter().filter_map(|x| producers.get(x)).all(|p| at[*p] < at[i]));
    let chosen = if in_order { by_file } else { done };
    chosen.into_iter().map(|i| &nodes[i]).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

struct Walk<'a, 'm> {
    nodes: &'m [NodeProto],
    takes: &'a [Vec<&'m str>],
    producers: &'a IndexMap<&'m str, usize>,
    given: &'a dyn Fn(&str) -> bool,
    state: Vec<State>,
    done: Vec<usize>,
    problems: &'a mut Problems,
}

impl Walk<'_, '_> {
    /// Depth first with a stack of its own, so that long chains do not overflow.
    fn visit(&mut self, root: usize) {
        if self.state[root] != State::New {
            return;
        }
        self.state[root] = State::Open;
        let mut stack = vec![(root, 0)];
        while let Some(top) = stack.last_mut() {
            let (i, slot) = *top;
            let Some(name) = self.takes[i].get(slot) else {
                self.state[i] = State::Done;
                self.done.push(i);
                stack.pop();
                continue;
            };
            top.1 += 1;
            let n = &self.nodes[i];
            match self.producers.get(name) {
                Some(&p) if self.state[p] == State::New => {
                    self.state[p] = State::Open;
                    stack.push((p, 0));
                }
                Some(&p) if self.state[p] == State::Open => {
                    self.problems.push(label(n), &n.op_type, format!("value '{name}' depends on itself"));
                }
                Some(_) => {}
                None if (self.given)(name) || self.problems.len() >= MOST_PROBLEMS => {}
                None => self.problems.push(label(n), &n.op_type, format!("value '{name}' is defined nowhere")),
            }
        }
    }
}
