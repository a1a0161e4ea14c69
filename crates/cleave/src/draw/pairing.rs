//! Which nodes of two stages are the same.

use cleave_ir::{Graph, Kind, Node, NodeId, Op};
use indexmap::IndexMap;

/// For each node of the first graph, its match in the second: a call of the same op that came from the same node of the
/// source file, first of the same name; inputs and output by their order. Constants have none.
pub fn pair(a: &Graph, b: &Graph) -> Vec<Option<NodeId>> {
    let mut pairs = vec![None; a.len()];
    let mut taken = vec![false; b.len()];
    let mut take = |pairs: &mut Vec<Option<NodeId>>, x: NodeId, y: NodeId| {
        let free = pairs[x.index()].is_none() && !taken[y.index()];
        if free {
            (pairs[x.index()], taken[y.index()]) = (Some(y), true);
        }
        free
    };
    for (x, y) in a.placeholders().into_iter().zip(b.placeholders()).chain(a.output().into_iter().zip(b.output())) {
        take(&mut pairs, x, y);
    }
    for (x, n) in a.nodes() {
        if let Some(y) = b.find(&n.name).filter(|y| same_call(n, b.node(*y)) && related(n, b.node(*y))) {
            take(&mut pairs, x, y);
        }
    }
    let mut by_source: IndexMap<(&str, &str), Vec<NodeId>> = IndexMap::new();
    for (y, n) in b.nodes() {
        for (op, source) in keys(n) {
            by_source.entry((op, source)).or_default().push(y);
        }
    }
    for (x, n) in a.nodes() {
        let candidates = keys(n).filter_map(|k| by_source.get(&k)).flatten();
        for y in candidates {
            if take(&mut pairs, x, *y) {
                break;
            }
        }
    }
    pairs
}

/// Pairs that keep the order of both graphs: the longest such sequence. Joined along these alone, two acyclic graphs
/// stay acyclic.
pub fn in_order(pairs: &[Option<NodeId>]) -> Vec<Option<NodeId>> {
    let all: Vec<(usize, NodeId)> = pairs.iter().enumerate().filter_map(|(x, y)| Some((x, (*y)?))).collect();
    // Patience sorting: the last pair of the best sequence of each length, and before each pair the one that it follows.
    let mut ends: Vec<usize> = vec![];
    let mut before: Vec<Option<usize>> = vec![];
    for (i, (_, y)) in all.iter().enumerate() {
        let at = ends.partition_point(|e| all[*e].1 < *y);
        before.push(at.checked_sub(1).map(|k| ends[k]));
        match ends.get_mut(at) {
            Some(e) => *e = i,
            None => ends.push(i),
        }
    }
    let mut kept = vec![None; pairs.len()];
    let mut next = ends.last().copied();
    while let Some(i) = next {
        kept[all[i].0] = Some(all[i].1);
        next = before[i];
    }
    kept
}

fn same_call(a: &Node, b: &Node) -> bool {
    matches!((a.kind, b.kind), (Kind::Call(x), Kind::Call(y)) if x == y)
}

/// Whether two nodes may have come from one: they share a source, or one does not say.
fn related(a: &Node, b: &Node) -> bool {
    let (a, b) = (&a.origin.sources, &b.origin.sources);
    a.is_empty() || b.is_empty() || a.iter().any(|s| b.contains(s))
}

fn keys(n: &Node) -> impl Iterator<Item = (&'static str, &str)> {
    let op: Option<&'static Op> = n.op();
    n.origin.sources.iter().filter_map(move |s| Some((op?.def.name, s.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;

    fn graph(body: &str) -> Graph {
        text::parse(&format!("graph(%x: f32[2]) {{\n{body}\n}}")).expect("a valid graph")
    }

    #[test]
    fn the_same_op_of_the_same_name_is_a_match() {
        let a = graph("%r = aten.relu(%x)\n%s = aten.sigmoid(%r)\nreturn %s");
        let b = graph("%r = aten.relu(%x)\n%s = aten.tanh(%r)\nreturn %s");
        let names: Vec<_> = pair(&a, &b).into_iter().map(|y| y.map(|y| b.node(y).name.as_str())).collect();
        assert_eq!(names, [Some("x"), Some("r"), None, Some("output")]);
    }

    #[test]
    fn the_longest_sequence_in_order_is_kept() {
        let at = |v: &[i32]| v.iter().map(|i| u32::try_from(*i).ok().map(NodeId::from)).collect::<Vec<_>>();
        assert_eq!(in_order(&at(&[0, 3, 1, -1, 2, 9])), at(&[0, -1, 1, -1, 2, 9]));
        assert_eq!(in_order(&at(&[5, 0, 1])), at(&[-1, 0, 1]));
    }
}
