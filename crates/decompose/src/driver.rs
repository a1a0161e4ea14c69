//! Running a table's rules.

use crate::error::{DecomposeError, Result};
use crate::functional::{functionalize, resolve_sizes};
use crate::sizes::materialise_dims;
use crate::table::Table;
use cleave_ir::graph::{Arg, Graph, Node, NodeId};
use cleave_ir::op::Op;
use cleave_ir::transform::{self, Replace};
use cleave_ir::{Builder, IrError, Levels, verify};

/// Rules that call ops which the table also names are run again; this many rounds must be enough.
const ROUNDS: usize = 32;

/// The graph without the ops that the table breaks up: a new graph in functional form; `src` is left alone.
///
/// # Errors
/// A rule that fails, rules that lead in circles, a write that cannot be expressed as a value.
pub fn decompose(src: &Graph, table: &Table) -> Result<Graph> {
    let mut g = resolve_sizes(&functionalize(src)?)?;
    for _ in 0..ROUNDS {
        if first(&g, table).is_none() {
            g = transform::prune_rewritten(src, &g);
            if table.sizes_as_nodes {
                g = materialise_dims(&g)?;
            }
            verify::verify(&g, Levels::ALL)?;
            return Ok(g);
        }
        g = round(&g, &|o| table.decomposes(o))?;
    }
    let left = first(&g, table).map_or(String::new(), |o| o.short().into());
    Err(DecomposeError::Circle(left, ROUNDS))
}

fn first(g: &Graph, table: &Table) -> Option<&'static Op> {
    g.nodes().filter_map(|(_, n)| n.op()).find(|o| table.decomposes(o))
}

/// One pass: the rule of every call that `named` says.
pub(crate) fn round(g: &Graph, named: &dyn Fn(&Op) -> bool) -> Result<Graph> {
    let mut failed = None;
    let out = transform::transform(g, |b, _: NodeId, node, args| match node.op() {
        Some(o) if named(o) => match apply(b, o, node, args) {
            Ok(r) => Ok(r),
            Err(e) => {
                failed.get_or_insert(DecomposeError::Rule {
                    op: o.short().into(),
                    node: node.name.clone(),
                    why: e.to_string(),
                });
                Err(e)
            }
        },
        _ => Ok(Replace::Copy),
    });
    match (out, failed) {
        (_, Some(e)) => Err(e),
        (out, None) => Ok(out?),
    }
}

/// Runs a rule, with the results for those who read them by getitem.
fn apply<'b>(b: &'b Builder, o: &'static Op, node: &Node, args: &[Arg]) -> std::result::Result<Replace<'b>, IrError> {
    Ok(Replace::With(b.apply_rule(o, args, &node.name)?))
}
