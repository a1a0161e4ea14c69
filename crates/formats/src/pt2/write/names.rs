//! Names as Python and torch admit them.

use super::super::names::TAKEN;
use cleave_ir::{Arg, Graph, Kind, NodeId};
use indexmap::{IndexMap, IndexSet};

/// The names that a graph's values and constants have in the file.
pub(super) struct Names {
    nodes: Vec<String>,
    targets: IndexMap<NodeId, String>,
    /// The name of each result that a getitem takes.
    items: IndexMap<(NodeId, usize), String>,
}

impl Names {
    pub(super) fn new(g: &Graph) -> Names {
        let taken: IndexSet<&str> = TAKEN.split_whitespace().collect();
        let mut used: IndexSet<String> = IndexSet::new();
        let mut wishes: IndexMap<NodeId, &str> = IndexMap::new();
        for (id, name) in g.results().into_iter().zip(&g.output_names) {
            wishes.entry(id).or_insert(name);
        }
        // An input's name outranks that of a result that is this input.
        for (id, name) in g.placeholders().into_iter().zip(&g.input_names) {
            wishes.insert(id, name);
        }
        let mut names: IndexMap<NodeId, String> = IndexMap::new();
        for (id, wish) in wishes {
            names.insert(id, unique(&identifier(wish), &taken, &mut used));
        }
        let mut out = Names { nodes: vec![], targets: targets(g), items: IndexMap::new() };
        for (id, n) in g.nodes() {
            let item = item(g, id);
            let same = item.and_then(|i| out.items.get(&i).cloned());
            let name = match (same, names.get(&id)) {
                (Some(first), _) => first,
                (None, Some(name)) => name.clone(),
                // A constant may be called as Python has it: it is an attribute.
                (None, None) => unique(&identifier(&n.name), &taken, &mut used),
            };
            if let Some(i) = item {
                out.items.entry(i).or_insert(name.clone());
            }
            out.nodes.push(name);
        }
        out
    }

    /// A value's name.
    pub(super) fn node(&self, id: NodeId) -> &str {
        &self.nodes[id.index()]
    }

    /// The wish, or with a number behind it the first that no value has.
    pub(super) fn free(&self, wish: &str) -> String {
        let taken = |n: &String| self.nodes.contains(n) || self.items.values().any(|i| i == n);
        let numbered = (1u64..).map(|i| format!("{wish}_{i}"));
        let free = std::iter::once(wish.to_string()).chain(numbered).find(|n| !taken(n));
        free.expect("invariant: numbers do not run out")
    }

    /// The name of one of several results, if a getitem takes it.
    pub(super) fn item(&self, id: NodeId, index: usize) -> Option<&str> {
        self.items.get(&(id, index)).map(String::as_str)
    }

    /// A constant's dotted name; of another node, nothing.
    pub(super) fn target(&self, id: NodeId) -> &str {
        self.targets.get(&id).map_or("", String::as_str)
    }
}

/// Of which call a getitem takes which result.
fn item(g: &Graph, id: NodeId) -> Option<(NodeId, usize)> {
    let n = g.node(id);
    n.op().filter(|o| o.name == "getitem")?;
    match n.args.as_slice() {
        [Arg::Node(of), Arg::Int(i)] => Some((*of, usize::try_from(*i).ok()?)),
        _ => None,
    }
}

fn identifier(wish: &str) -> String {
    let mut name: String = wish.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        name.insert(0, '_');
    }
    name
}

fn unique(wish: &str, taken: &IndexSet<&str>, used: &mut IndexSet<String>) -> String {
    let free = |n: &str| !taken.contains(n) && !used.contains(n);
    let name = if free(wish) {
        wish.to_string()
    } else {
        (1u64..).map(|i| format!("{wish}_{i}")).find(|n| free(n)).expect("invariant: numbers do not run out")
    };
    used.insert(name.clone());
    name
}

/// Attribute paths of the constants: parts that Python takes, none the beginning of another.
fn targets(g: &Graph) -> IndexMap<NodeId, String> {
    let mut used: IndexSet<String> = IndexSet::new();
    let mut folders: IndexSet<String> = IndexSet::new();
    let mut by_constant: IndexMap<&str, String> = IndexMap::new();
    let mut out = IndexMap::new();
    for (id, n) in g.nodes().filter(|(_, n)| matches!(n.kind, Kind::GetAttr(_))) {
        if let Some(path) = by_constant.get(n.target.as_str()) {
            out.insert(id, path.clone());
            continue;
        }
        let parts: Vec<String> = n.target.split('.').map(part).collect();
        let above = |p: &str| -> Vec<String> { p.match_indices('.').map(|(i, _)| p[..i].to_string()).collect() };
        let free = |p: &str| !used.contains(p) && !folders.contains(p) && above(p).iter().all(|f| !used.contains(f));
        let plain = parts.join(".");
        let flat = parts.join("_");
        let numbered = (1u64..).map(|i| format!("{flat}_{i}"));
        let path = [plain, flat.clone()].into_iter().chain(numbered).find(|p| free(p));
        let path = path.expect("invariant: numbers do not run out");
        folders.extend(above(&path));
        used.insert(path.clone());
        by_constant.insert(&n.target, path.clone());
        out.insert(id, path);
    }
    out
}

/// One part of a path. Module lists have numbers for parts.
fn part(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if clean.is_empty() { "_".into() } else { clean }
}
