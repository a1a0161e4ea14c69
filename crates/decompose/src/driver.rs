//! Running a table's rules.

use crate::error::{DecomposeError, Result};
use crate::functional::{functionalize, resolve_sizes};
use crate::sizes::materialise_dims;
use crate::table::Table;
use cleave_ir::builder::Rules;
use cleave_ir::graph::{Graph, NodeId};
use cleave_ir::transform::{self, Replace};
use cleave_ir::verify;
use std::rc::Rc;

/// The graph without the ops that the table breaks up: a new graph in functional form; `src` is left alone.
///
/// # Errors
/// A rule that fails, rules that lead in circles, a write that cannot be expressed as a value.
pub fn decompose(src: &Graph, table: &Table) -> Result<Graph> {
    let functional = functionalize(src)?;
    let g = resolve_sizes(&*functional.map_subgraphs(&mut |g| decompose(g, table))?)?;
    let table_rules = table.clone();
    let mut g = expand(&g, Rc::new(move |o| table_rules.rule(o)))?;
    g = transform::prune_rewritten(src, &g);
    if table.sizes_as_nodes {
        g = materialise_dims(&g)?;
    }
    verify::verify(&g, table.level)?;
    Ok(g)
}

/// One pass over the graph: each call for which there is a rule becomes what the rule makes, and so do the calls in
/// that, before the next node is looked at (a rule may depend on the strides of what stands before). A rule declines
/// by making nothing.
pub(crate) fn expand(g: &Graph, rules: Rules) -> Result<Graph> {
    let mut failed = None;
    let out = transform::transform(g, |b, _: NodeId, node, args| {
        let Some(o) = node.op() else { return Ok(Replace::Copy) };
        b.expand_by(rules.clone());
        let made = b.expanded(o, args, &node.name).inspect_err(|e| {
            failed.get_or_insert(DecomposeError::Rule {
                op: o.short().into(),
                node: node.name.clone(),
                why: e.to_string(),
            });
        })?;
        Ok(made.map_or(Replace::Copy, Replace::With))
    });
    match (out, failed) {
        (_, Some(e)) => Err(e),
        (out, None) => Ok(out?),
    }
}
