//! Symbolic sizes as nodes, as torch's graphs have them.

use crate::error::{DecomposeError, Result};
use cleave_ir::dim::DimOp;
use cleave_ir::graph::{Arg, Graph, Kind, Meta, Node, NodeId};
use cleave_ir::{Builder, Dim, op, transform};
use indexmap::IndexMap;

/// Sizes in arguments become nodes: one `aten.sym_size.int` for each symbol, behind the inputs, and
/// arithmetic on them where an expression is more than a symbol.
///
/// # Errors
/// A symbol that stands in no input's shape by itself.
pub fn materialise_dims(src: &Graph) -> Result<Graph> {
    let src = &*src.map_subgraphs(&mut materialise_dims)?;
    if !src.nodes().any(|(_, n)| n.args.iter().any(|a| !a.dims().is_empty())) {
        return Ok(src.clone());
    }
    let b = Builder::from_graph(src.shell());
    let mut m = Materialise { b: &b, symbols: IndexMap::new(), sizes: IndexMap::new() };
    let inputs = src.nodes().filter(|(_, n)| n.kind == Kind::Placeholder).count();
    let mut map: Vec<NodeId> = Vec::with_capacity(src.len());
    let mut seen = 0;
    let mut symbols: Vec<String> = src.nodes().flat_map(|(_, n)| n.args.iter().flat_map(symbols_of)).collect();
    symbols.sort();
    symbols.dedup();
    for (_, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        let mut args = Vec::with_capacity(node.args.len());
        for a in &node.args {
            args.push(m.arg(&a.map_nodes(&mut |n| Arg::Node(map[n.index()])))?);
        }
        map.push(b.edit(|g| g.push(Node { args, ..node.clone() })));
        seen += usize::from(node.kind == Kind::Placeholder);
        if node.kind == Kind::Placeholder && seen == inputs {
            b.set_origin(cleave_ir::Origin::default());
            let of_inputs = |s: &&String| b.with_graph(|g| g.placeholders().into_iter().any(|p| has_size(g, p, s)));
            symbols.iter().filter(of_inputs).try_for_each(|s| m.symbol(s).map(drop))?;
        }
    }
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(transform::prune_rewritten(src, &g))
}

/// Whether a symbol by itself is a size of the value, or the value.
fn has_size(g: &Graph, id: NodeId, s: &str) -> bool {
    match &g.node(id).meta {
        Meta::Tensor(t) => t.shape.iter().any(|d| d.as_symbol() == Some(s)),
        Meta::Int(d) => d.as_symbol() == Some(s),
        Meta::None | Meta::Tuple(_) => false,
    }
}

fn symbols_of(a: &Arg) -> Vec<String> {
    a.dims().iter().flat_map(Dim::symbols).collect()
}

struct Materialise<'a> {
    b: &'a Builder,
    symbols: IndexMap<String, Arg>,
    sizes: IndexMap<Dim, Arg>,
}

impl Materialise<'_> {
    fn arg(&mut self, a: &Arg) -> Result<Arg> {
        Ok(match a {
            Arg::Dim(d) => self.size(d)?,
            Arg::List(l) => Arg::List(l.iter().map(|a| self.arg(a)).collect::<Result<_>>()?),
            other => other.clone(),
        })
    }

    /// The node that gives a symbol's size.
    fn symbol(&mut self, s: &str) -> Result<Arg> {
        if let Some(a) = self.symbols.get(s) {
            return Ok(a.clone());
        }
        // A size that only running tells is that of the first value that has it.
        let place = self.b.with_graph(|g| {
            let inputs = g.placeholders().into_iter();
            let first = inputs.chain(g.ids()).find(|id| has_size(g, *id, s))?;
            Some((first, g.node(first).meta.as_tensor().map(|t| t.shape.iter().position(|d| d.as_symbol() == Some(s)))))
        });
        let a: Arg = match place.ok_or_else(|| DecomposeError::Unbacked { symbol: s.into() })? {
            (id, Some(dim)) => self.b.call("aten.sym_size.int", vec![id.into(), dim.into()]).into(),
            (id, None) => id.into(),
        };
        self.symbols.insert(s.into(), a.clone());
        Ok(a)
    }

    fn size(&mut self, d: &Dim) -> Result<Arg> {
        if let Some(a) = self.sizes.get(d) {
            return Ok(a.clone());
        }
        for s in d.symbols() {
            self.symbol(&s)?;
        }
        let b = self.b;
        let known = &self.symbols;
        let a = d.lower(&mut |s| known.get(s).cloned().unwrap_or(Arg::None), &mut Arg::Int, &mut |f, x, y| {
            let name = match f {
                DimOp::Add => "_operator.add",
                DimOp::Mul => "_operator.mul",
                DimOp::FloorDiv => "_operator.floordiv",
                DimOp::Mod => "_operator.mod",
                DimOp::Max => "torch.sym_max",
                DimOp::Min => "torch.sym_min",
            };
            match op::find(name) {
                Ok(o) => b.call_op(o, vec![x, y], None).into(),
                Err(e) => {
                    b.fail(e);
                    Arg::None
                }
            }
        });
        if let Some(e) = b.error() {
            return Err(e.into());
        }
        self.sizes.insert(d.clone(), a.clone());
        Ok(a)
    }
}

/// Whether any value of the graph is a size that a node computes.
pub fn has_size_nodes(g: &Graph) -> bool {
    g.nodes().any(|(_, n)| matches!(n.meta, Meta::Int(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functional::resolve_sizes;
    use cleave_ir::{Levels, text, verify};

    #[test]
    fn sizes_become_nodes_and_back() {
        let src = "graph(%x: f32[N, 4, H]) where 1 <= N, 2 <= H {
  %view = aten.view(%x, [<N>, <4*H>]): f32[N, 4*H]
  %relu = aten.relu(%view): f32[N, 4*H]
  %view_1 = aten.view(%relu, [<N>, 4, <H>]): f32[N, 4, H]
  return %view_1
}
";
        let want = "graph(%x: f32[N, 4, H]) where 1 <= N, 2 <= H {
  %sym_size = aten.sym_size.int(%x, 2): int<H>
  %sym_size_1 = aten.sym_size.int(%x, 0): int<N>
  %mul = _operator.mul(4, %sym_size): int<4*H>
  %view = aten.view(%x, [%sym_size_1, %mul]): f32[N, 4*H]
  %relu = aten.relu(%view): f32[N, 4*H]
  %view_1 = aten.view(%relu, [%sym_size_1, 4, %sym_size]): f32[N, 4, H]
  return %view_1
}
";
        let g = text::parse(src).unwrap();
        let nodes = materialise_dims(&g).unwrap();
        assert_eq!(nodes.to_string(), want);
        verify::verify(&nodes, Levels::ALL).unwrap();
        assert_eq!(resolve_sizes(&nodes).unwrap().to_string(), src);
        assert!(has_size_nodes(&nodes) && !has_size_nodes(&g));
    }
}
