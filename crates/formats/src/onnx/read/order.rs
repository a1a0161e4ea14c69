//! The order in which nodes are read: only those that a result needs, arguments before users.

use crate::error::Problems;
use crate::onnx::proto::{GraphProto, NodeProto};
use indexmap::IndexMap;

/// The most problems that are noted.
const MOST_PROBLEMS: usize = 1000;

/// The nodes that the results need, each after those that it takes its arguments from; otherwise in the
/// order of the file. Values defined twice, values that nobody defines and cycles are noted as problems.
pub fn order<'m>(graph: &GraphProto, nodes: &'m [NodeProto], problems: &mut Problems) -> Vec<&'m NodeProto> {
    let mut producers: IndexMap<&str, usize> = IndexMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for out in n.output.iter().filter(|o| !o.is_empty()) {
            if producers.insert(out, i).is_some() && problems.len() < MOST_PROBLEMS {
                problems.push(&n.name, &n.op_type, format!("value '{out}' is defined twice"));
            }
        }
    }
    let given: std::collections::BTreeSet<&str> =
        graph.input.iter().map(|v| v.name.as_str()).chain(graph.initializer.iter().map(|t| t.name.as_str())).collect();
    let mut state = vec![State::New; nodes.len()];
    let mut done = vec![];
    for out in &graph.output {
        match producers.get(out.name.as_str()) {
            Some(&p) => visit(p, nodes, &producers, &given, &mut state, &mut done, problems),
            None if given.contains(out.name.as_str()) => {}
            None => problems.push("", "", format!("result '{}' is defined nowhere", out.name)),
        }
    }
    // The file's own order, where it is one.
    let sorted = |list: &[usize]| {
        let mut s = list.to_vec();
        s.sort_unstable();
        s
    };
    let by_file = sorted(&done);
    let mut at = vec![usize::MAX; nodes.len()];
    by_file.iter().enumerate().for_each(|(place, i)| at[*i] = place);
    let in_order = by_file
        .iter()
        .all(|&i| nodes[i].input.iter().filter_map(|x| producers.get(x.as_str())).all(|p| at[*p] < at[i]));
    let chosen = if in_order { by_file } else { done };
    chosen.into_iter().map(|i| &nodes[i]).collect()
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}

/// Depth first with a stack of its own, so that long chains do not overflow.
fn visit(
    root: usize,
    nodes: &[NodeProto],
    producers: &IndexMap<&str, usize>,
    given: &std::collections::BTreeSet<&str>,
    state: &mut [State],
    done: &mut Vec<usize>,
    problems: &mut Problems,
) {
    if state[root] != State::New {
        return;
    }
    state[root] = State::Open;
    let mut stack = vec![(root, 0)];
    while let Some(top) = stack.last_mut() {
        let (i, slot) = *top;
        let n = &nodes[i];
        let Some(name) = n.input.get(slot) else {
            state[i] = State::Done;
            done.push(i);
            stack.pop();
            continue;
        };
        top.1 += 1;
        match producers.get(name.as_str()) {
            Some(&p) if state[p] == State::New => {
                state[p] = State::Open;
                stack.push((p, 0));
            }
            Some(&p) if state[p] == State::Open => {
                problems.push(&n.name, &n.op_type, format!("value '{name}' depends on itself"));
            }
            Some(_) => {}
            None if name.is_empty() || given.contains(name.as_str()) => {}
            None if problems.len() >= MOST_PROBLEMS => {}
            None => problems.push(&n.name, &n.op_type, format!("value '{name}' is defined nowhere")),
        }
    }
}
