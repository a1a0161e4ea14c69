//! What is drawn of several stages, and in which rows.
//!
//! The stages' graphs are joined along their matching nodes. Rows are the layers of the joint graph, so that what two
//! stages have in common stands side by side.

use super::pairing::{in_order, pair};
use crate::describe::is_constant;
use crate::error::Result;
use crate::focus::in_focus;
use cleave_ir::{Arg, Graph, Kind, Meta, Node, NodeId};
use std::collections::BTreeSet;

/// A node, or what is left out at one place.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// For each stage the nodes that it stands for there: at most one, unless it is a mark.
    pub members: Vec<Vec<NodeId>>,
    /// Whether it marks what is left out.
    pub mark: bool,
    /// The layer, from 0.
    pub row: usize,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub struct Selection {
    /// In a topological order of the joint graph.
    pub items: Vec<Item>,
    /// For each stage, edges between items that it has.
    pub edges: Vec<Vec<(usize, usize)>>,
    /// For each stage, which nodes call an op in focus; all calls where none is named.
    pub focus: Vec<Vec<bool>>,
    /// For each stage, which nodes the next one no longer has.
    pub gone: Vec<Vec<bool>>,
    /// For each stage, which nodes the one before it did not have.
    pub new: Vec<Vec<bool>>,
}

/// Selects what is in focus (see [`in_focus`]), what replaces them or was replaced by them in the next stage, what lies within
/// `hops` of these, and inputs and outputs; with nothing named, everything. Constants are no nodes here: they are shown in
/// the boxes of their users.
///
/// # Errors
/// A name of no op and no node.
pub fn select(graphs: &[&Graph], ops: &[String], hops: usize) -> Result<Selection> {
    let focus = in_focus(graphs, ops)?;
    // Constants are shown in the boxes of their users, unless they are asked for.
    let is_node = |g: &Graph, focus: &[bool], id: NodeId| {
        !is_constant(g, id) || (!ops.is_empty() && focus[id.index()] && g.node(id).op().is_some())
    };
    let nodes: Vec<Vec<bool>> =
        graphs.iter().zip(&focus).map(|(g, f)| g.ids().map(|id| is_node(g, f, id)).collect()).collect();
    let pairs: Vec<_> = graphs.windows(2).map(|w| pair(w[0], w[1])).collect();
    let mut gone: Vec<Vec<bool>> = graphs.iter().map(|g| vec![false; g.len()]).collect();
    let mut new = gone.clone();
    for (s, pairs) in pairs.iter().enumerate() {
        new[s + 1].clone_from(&nodes[s + 1]);
        for id in graphs[s].ids() {
            match pairs[id.index()] {
                Some(y) => new[s + 1][y.index()] = false,
                None => gone[s][id.index()] = nodes[s][id.index()],
            }
        }
    }
    let mut shown = focus.clone();
    replacements(graphs, &gone, &new, &mut shown);
    for ((g, nodes), shown) in graphs.iter().zip(&nodes).zip(&mut shown) {
        if !ops.is_empty() {
            (0..hops).for_each(|_| widen(g, nodes, shown));
        }
        for (id, n) in g.nodes() {
            let end = matches!(n.kind, Kind::Placeholder | Kind::Output);
            shown[id.index()] = nodes[id.index()] && (shown[id.index()] || end || ops.is_empty());
        }
    }
    // With ops in focus, how sizes are computed is no part of the picture.
    let counts = |s: usize, id: NodeId| {
        let size = matches!(graphs[s].node(id).meta, Meta::Int(_));
        nodes[s][id.index()] && (ops.is_empty() || !size)
    };
    let union = Union::new(graphs, &pairs, &counts);
    let (items, edges) = union.items(graphs, &shown);
    Ok(Selection { items, edges, focus, gone, new })
}

/// Shows what came from the same source nodes as a shown node that the next stage, or the one before, has not.
fn replacements(graphs: &[&Graph], gone: &[Vec<bool>], new: &[Vec<bool>], shown: &mut [Vec<bool>]) {
    let seeds = shown.to_vec();
    let sources = |s: usize, of: &[bool]| -> BTreeSet<&str> {
        let of_node = |(id, _): &(NodeId, &Node)| seeds[s][id.index()] && of[id.index()];
        graphs[s].nodes().filter(of_node).flat_map(|(_, n)| n.origin.sources.iter().map(String::as_str)).collect()
    };
    let mut show = |s: usize, of: &[bool], sources: &BTreeSet<&str>| {
        for (id, n) in graphs[s].nodes() {
            shown[s][id.index()] |= of[id.index()] && n.origin.sources.iter().any(|x| sources.contains(x.as_str()));
        }
    };
    for s in 0..graphs.len().saturating_sub(1) {
        show(s + 1, &new[s + 1], &sources(s, &gone[s]));
        show(s, &gone[s], &sources(s + 1, &new[s + 1]));
    }
}

/// Adds what is one edge away.
fn widen(g: &Graph, nodes: &[bool], shown: &mut [bool]) {
    let before = shown.to_vec();
    for (id, n) in g.nodes() {
        for arg in n.args.iter().flat_map(Arg::nodes).filter(|a| nodes[a.index()]) {
            shown[arg.index()] |= before[id.index()];
            shown[id.index()] |= before[arg.index()];
        }
    }
}

/// The stages' graphs joined: its nodes are classes of matching nodes.
struct Union {
    /// For each stage, the class of each node; constants have none.
    class: Vec<Vec<Option<usize>>>,
    above: Vec<BTreeSet<usize>>,
    below: Vec<BTreeSet<usize>>,
    /// Topological.
    order: Vec<usize>,
}

impl Union {
    fn new(graphs: &[&Graph], pairs: &[Vec<Option<NodeId>>], counts: &dyn Fn(usize, NodeId) -> bool) -> Union {
        let mut class: Vec<Vec<Option<usize>>> = graphs.iter().map(|g| vec![None; g.len()]).collect();
        let mut n = 0;
        for (s, g) in graphs.iter().enumerate() {
            if s > 0 {
                for (x, y) in in_order(&pairs[s - 1]).into_iter().enumerate() {
                    if let Some(y) = y {
                        class[s][y.index()] = class[s - 1][x];
                    }
                }
            }
            for id in g.ids().filter(|id| counts(s, *id)) {
                let own = &mut class[s][id.index()];
                if own.is_none() {
                    *own = Some(n);
                    n += 1;
                }
            }
        }
        let mut union =
            Union { class, above: vec![BTreeSet::new(); n], below: vec![BTreeSet::new(); n], order: vec![] };
        for (s, g) in graphs.iter().enumerate() {
            for (from, to) in union.edges_of(s, g) {
                union.below[from].insert(to);
                union.above[to].insert(from);
            }
        }
        union.order = topological(&union.above, &union.below);
        union
    }

    fn edges_of(&self, s: usize, g: &Graph) -> Vec<(usize, usize)> {
        let mut all = vec![];
        for (id, n) in g.nodes() {
            for arg in n.args.iter().flat_map(Arg::nodes) {
                all.extend(self.class[s][arg.index()].zip(self.class[s][id.index()]));
            }
        }
        all
    }

    fn items(&self, graphs: &[&Graph], shown: &[Vec<bool>]) -> (Vec<Item>, Vec<Vec<(usize, usize)>>) {
        let mut drawn = vec![false; self.above.len()];
        for (class, shown) in self.class.iter().zip(shown) {
            for (c, shown) in class.iter().zip(shown) {
                if let Some(c) = c {
                    drawn[*c] |= shown;
                }
            }
        }
        // How many drawn nodes lie on the way to a class at most. What is left out is put together where it hangs
        // together and this is the same: merged so, the graph stays acyclic, as every way out of such a group and back
        // would pass a drawn node.
        let mut rank = vec![0usize; drawn.len()];
        for c in &self.order {
            let above = self.above[*c].iter().map(|p| rank[*p]).max().unwrap_or(0);
            rank[*c] = above + usize::from(drawn[*c]);
        }
        let mut item_of = vec![usize::MAX; drawn.len()];
        let mut items: Vec<Item> = vec![];
        for c in &self.order {
            if item_of[*c] != usize::MAX {
                continue;
            }
            let mark = !drawn[*c];
            let mut open = vec![*c];
            while let Some(d) = open.pop() {
                if item_of[d] == usize::MAX {
                    item_of[d] = items.len();
                    let near = self.above[d].iter().chain(&self.below[d]);
                    open.extend(near.filter(|e| mark && !drawn[**e] && rank[**e] == rank[d]));
                }
            }
            items.push(Item { members: vec![vec![]; graphs.len()], mark, row: 0 });
        }
        for (s, class) in self.class.iter().enumerate() {
            for (i, c) in class.iter().enumerate() {
                if let Some(c) = c {
                    items[item_of[*c]].members[s].push(NodeId::from(i as u32));
                }
            }
        }
        let edges: Vec<Vec<(usize, usize)>> = graphs
            .iter()
            .enumerate()
            .map(|(s, g)| {
                let all = self.edges_of(s, g).into_iter().map(|(a, b)| (item_of[a], item_of[b]));
                all.filter(|(a, b)| a != b).collect::<BTreeSet<_>>().into_iter().collect()
            })
            .collect();
        assign_rows(&mut items, &edges);
        (items, edges)
    }
}

/// Kahn's order, the least number first.
fn topological(above: &[BTreeSet<usize>], below: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut waits: Vec<usize> = above.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..above.len()).filter(|c| waits[*c] == 0).collect();
    let mut order = vec![];
    while let Some(c) = ready.pop_first() {
        order.push(c);
        for d in &below[c] {
            waits[*d] -= 1;
            if waits[*d] == 0 {
                ready.insert(*d);
            }
        }
    }
    order
}

/// Each item below all that it uses; then inputs and the like, which have more below them than above, as far down as
/// that admits.
fn assign_rows(items: &mut [Item], edges: &[Vec<(usize, usize)>]) {
    let mut above = vec![BTreeSet::new(); items.len()];
    let mut below = above.clone();
    for (a, b) in edges.iter().flatten() {
        below[*a].insert(*b);
        above[*b].insert(*a);
    }
    let order = topological(&above, &below);
    for i in &order {
        items[*i].row = above[*i].iter().map(|p| items[*p].row + 1).max().unwrap_or(0);
    }
    for i in order.iter().rev() {
        if below[*i].len() > above[*i].len() {
            items[*i].row = below[*i].iter().map(|c| items[*c].row - 1).min().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::text;

    fn graph(body: &str) -> Graph {
        text::parse(&format!("graph(%x: f32[2]) {{\n{body}\n}}")).expect("a valid graph")
    }

    fn names(s: &Selection, g: &Graph, stage: usize) -> Vec<String> {
        let of = |i: &Item| i.members[stage].iter().map(|n| g.node(*n).name.clone()).collect::<Vec<_>>().join("+");
        let text = |i: &Item| format!("{}{}@{}", if i.mark { "…" } else { "" }, of(i), i.row);
        s.items.iter().filter(|i| !i.members[stage].is_empty()).map(text).collect()
    }

    #[test]
    fn what_is_out_of_reach_is_put_together_by_place() {
        let g = graph(
            "%a = aten.exp(%x)\n%b = aten.exp(%a)\n%r = aten.relu(%b)\n%c = aten.exp(%r)\n%d = aten.add.Tensor(%c, %b)\nreturn %d",
        );
        let s = select(&[&g], &["relu".into()], 0).expect("relu is an op");
        assert_eq!(names(&s, &g, 0), ["x@0", "…a+b@1", "r@2", "…c+d@3", "output@4"]);
        let s = select(&[&g], &["relu".into()], 1).expect("relu is an op");
        assert_eq!(names(&s, &g, 0), ["x@0", "…a@1", "b@2", "r@3", "c@4", "…d@5", "output@6"]);
    }

    #[test]
    fn matching_nodes_share_a_row() {
        let g = graph("%a = aten.exp(%x)\n%r = aten.relu(%a)\nreturn %r");
        let h = graph("%m = aten.neg(%x)\n%n = aten.sigmoid(%m)\n%r = aten.relu(%n)\nreturn %r");
        let s = select(&[&g, &h], &[], 1).expect("nothing is named");
        assert_eq!(names(&s, &g, 0), ["x@0", "a@1", "r@3", "output@4"]);
        assert_eq!(names(&s, &h, 1), ["x@0", "m@1", "n@2", "r@3", "output@4"].map(String::from));
        assert_eq!(s.gone[0], [false, true, false, false]);
        assert_eq!(s.new[1], [false, true, true, false, false]);
    }

    #[test]
    fn ops_that_are_not_there_are_said() {
        let g = graph("%r = aten.relu(%x)\nreturn %r");
        let say = |op: &str| select(&[&g], &[op.into()], 1).expect_err("no such op").to_string();
        assert!(say("rellu").contains("no op 'rellu'"));
        assert!(say("exp").contains("called are relu"));
    }
}
