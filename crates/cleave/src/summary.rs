//! What a graph is, in a few lines.

use crate::provenance::Provenance;
use crate::text::{bytes, count, flow, quantity};
use cleave_ir::text::meta_text;
use cleave_ir::{Bindings, ConstKind, Graph, Kind, NodeId, macs};
use indexmap::{IndexMap, IndexSet};
use std::fmt::{Display, Formatter, Result};

/// Constants of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Constants {
    /// How many elements they have; of tied ones, once.
    pub elements: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// What a graph takes, holds, does and gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Names for the outside with type and shape.
    pub inputs: Vec<(String, String)>,
    /// Names for the outside with type and shape.
    pub outputs: Vec<(String, String)>,
    /// Ranges of the symbols in shapes, as text.
    pub symbols: Vec<String>,
    /// How often each op is called, by bare name, the most frequent first.
    pub ops: Vec<(String, usize)>,
    /// Trained parameters.
    pub parameters: Constants,
    /// Other constants: running statistics, literals.
    pub buffers: Constants,
    /// Multiply-accumulates by op, the most first, with every symbol at [`Summary::sizes`].
    pub macs: Vec<(String, u64)>,
    /// The sizes of symbols for which multiply-accumulates are counted: their least, 1 or more.
    pub sizes: Bindings,
    /// How the model was made, where it says so.
    pub provenance: Option<Provenance>,
}

impl Summary {
    /// Summarizes a graph.
    pub fn of(g: &Graph) -> Summary {
        let sizes = sizes(g);
        let mut work: IndexMap<&str, u64> = IndexMap::new();
        let mut calls: IndexMap<&str, usize> = IndexMap::new();
        for (id, op) in g.nodes().filter_map(|(id, n)| Some((id, n.op()?))) {
            *calls.entry(op.base()).or_default() += 1;
            if let Some(n) = macs::macs(g, id, &sizes) {
                let sum = work.entry(op.base()).or_default();
                *sum = sum.saturating_add(n);
            }
        }
        let range = |(s, r): (&String, &cleave_ir::SymbolRange)| match r.max {
            Some(max) => format!("{} <= {s} <= {max}", r.min),
            None => format!("{} <= {s}", r.min),
        };
        Summary {
            inputs: named(g, &g.placeholders(), &g.input_names),
            outputs: named(g, &g.results(), &g.output_names),
            symbols: g.symbols.iter().map(range).collect(),
            ops: descending(calls),
            parameters: constants(g, |k| k == ConstKind::Param),
            buffers: constants(g, |k| k != ConstKind::Param),
            macs: descending(work),
            sizes,
            provenance: Provenance::of(g),
        }
    }

    /// Multiply-accumulates of the whole as text, with the sizes for which they are counted: `1.242 MMAC at N = 1`.
    pub fn work(&self) -> Option<String> {
        let total = quantity(self.total_macs(), "MAC");
        let at: Vec<String> = self.sizes.iter().map(|(s, v)| format!("{s} = {v}")).collect();
        let at = if at.is_empty() { total } else { format!("{total} at {}", at.join(", ")) };
        (self.total_macs() > 0).then_some(at)
    }

    /// Multiply-accumulates of the whole.
    pub fn total_macs(&self) -> u64 {
        self.macs.iter().fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// Sizes for which a graph's work is counted: each symbol's least, 1 or more.
pub fn sizes(g: &Graph) -> Bindings {
    let inputs = g.placeholders().into_iter().flat_map(|p| g.node(p).meta.dims());
    let symbols: IndexSet<String> = inputs.flat_map(|d| d.symbols()).collect();
    let least = |s: &String| g.symbols.get(s).map_or(1, |r| r.min.max(1));
    symbols.iter().map(|s| (s.clone(), least(s))).collect()
}

fn named(g: &Graph, ids: &[NodeId], names: &[String]) -> Vec<(String, String)> {
    let name = |(i, id): (usize, &NodeId)| {
        let node = g.node(*id);
        (names.get(i).unwrap_or(&node.name).clone(), meta_text(&node.meta))
    };
    ids.iter().enumerate().map(name).collect()
}

fn constants(g: &Graph, wanted: impl Fn(ConstKind) -> bool) -> Constants {
    let mut met = IndexSet::new();
    let mut all = Constants::default();
    for (id, n) in g.nodes() {
        let Kind::GetAttr(kind) = n.kind else { continue };
        let Some(t) = g.constant(id).filter(|_| wanted(kind)) else { continue };
        if met.insert(&n.target) && met_place(g, &met, id) {
            all.elements += t.len() as u64;
            all.bytes += (t.len() * t.dtype().size()) as u64;
        }
    }
    all
}

/// Whether no constant met before lies in the same place.
fn met_place(g: &Graph, met: &IndexSet<&String>, id: NodeId) -> bool {
    let Some(t) = g.constant(id) else { return false };
    let before = met.iter().take(met.len() - 1);
    !before.filter_map(|name| g.constants.get(*name)).any(|other| other.same_place(t))
}

fn descending<N: Ord + Copy>(counts: IndexMap<&str, N>) -> Vec<(String, N)> {
    let mut all: Vec<(String, N)> = counts.into_iter().map(|(op, n)| (op.to_string(), n)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let items = |f: &mut Formatter<'_>, head: &str, before: &str, items: &[String]| {
            let indent = " ".repeat(before.len());
            for (i, l) in flow(items, 96).iter().enumerate() {
                let (head, before) = if i == 0 { (head, before) } else { ("", indent.as_str()) };
                writeln!(f, "{head:12}{before}{l}")?;
            }
            Ok(())
        };
        for (head, values) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            for (i, (name, meta)) in values.iter().enumerate() {
                writeln!(f, "{:12}{name}: {meta}", if i == 0 { head } else { "" })?;
            }
        }
        items(f, "sizes", "", &self.symbols)?;
        let ops: Vec<String> = self.ops.iter().map(|(op, n)| format!("{n} {op}")).collect();
        let calls: usize = self.ops.iter().map(|(_, n)| n).sum();
        items(f, "ops", &format!("{calls}: "), &ops)?;
        // ONNX does not say which of its constants were trained.
        let others = if self.parameters.elements > 0 { "buffers" } else { "constants" };
        for (head, c) in [("parameters", self.parameters), (others, self.buffers)] {
            if c.elements > 0 {
                writeln!(f, "{head:12}{} ({})", count(c.elements), bytes(c.bytes))?;
            }
        }
        if let Some(work) = self.work() {
            let by: Vec<String> = self.macs.iter().map(|(op, n)| format!("{op} {}", count(*n))).collect();
            items(f, "work", &format!("{work}: "), &by)?;
        }
        self.provenance.iter().try_for_each(|p| write!(f, "{p}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_network_in_a_few_lines() {
        let g = crate::demo::model().expect("the model is embedded");
        insta::assert_snapshot!(Summary::of(&g).to_string(), @r"
        inputs      x: f32[s77, 1, 28, 28]
        outputs     linear: f32[s77, 10]
        sizes       1 <= s77 <= 1024
        ops         18: 4 batch_norm, 4 conv2d, 4 relu, 2 max_pool2d, 1 adaptive_avg_pool2d, 1 add, 1 flatten, 1 linear
        parameters  9.850 k (38.5 KiB)
        buffers     164 (672 B)
        work        1.242 MMAC at s77 = 1: conv2d 1.242 M, linear 320
        ");
    }

    #[test]
    fn tied_constants_count_once() {
        let mut g = cleave_ir::text::parse("graph(%x: f32[2, 2]) {\n%a = param \"a\": f32[2, 2]\n%b = param \"b\": f32[2, 2]\n%y = aten.mm(%x, %a)\n%z = aten.mm(%y, %b)\nreturn %z\n}").expect("a valid graph");
        assert_eq!(Summary::of(&g).parameters, Constants { elements: 8, bytes: 32 });
        g.constants["b"] = g.constants["a"].clone();
        assert_eq!(Summary::of(&g).parameters, Constants { elements: 4, bytes: 16 });
    }
}
