//! Ops and nodes in focus, as `--focus` names them.

use crate::error::{Error, Result};
use crate::text::near;
use cleave_ir::{Graph, Node, op};
use std::collections::BTreeSet;

/// For each graph, which nodes are in focus: calls of an op named by its bare name (`conv2d`), and nodes named as in the
/// text form (`%conv2d_1`). With nothing named, every call.
///
/// # Errors
/// A name that no op has, or that occurs in none of the graphs.
pub fn in_focus(graphs: &[&Graph], names: &[String]) -> Result<Vec<Vec<bool>>> {
    for name in names {
        check(graphs, name)?;
    }
    let wanted = |n: &Node| n.op().is_some() && names.is_empty() || names.iter().any(|name| is(n, name));
    Ok(graphs.iter().map(|g| g.nodes().map(|(_, n)| wanted(n)).collect()).collect())
}

fn is(n: &Node, name: &str) -> bool {
    match name.strip_prefix('%') {
        Some(node) => n.name == node,
        // `relu_` writes in place what `relu` computes.
        None => n.op().is_some_and(|o| o.base() == name || o.base().strip_suffix('_') == Some(name)),
    }
}

fn check(graphs: &[&Graph], name: &str) -> Result<()> {
    let nodes = || graphs.iter().flat_map(|g| g.nodes()).map(|(_, n)| n);
    if nodes().any(|n| is(n, name)) {
        return Ok(());
    }
    let (what, names): (_, BTreeSet<&str>) = match name.strip_prefix('%') {
        Some(_) => (format!("no node '{name}' here"), nodes().map(|n| n.name.as_str()).collect()),
        None if op::overloads(name).is_empty() => (
            format!("no op '{name}'; names are bare, as conv2d, or a node's with %"),
            op::all().map(|o| o.base()).collect(),
        ),
        None => {
            let called: BTreeSet<&str> = nodes().filter_map(|n| Some(n.op()?.base())).collect();
            let called: Vec<&str> = called.into_iter().collect();
            return Err(Error::other(format!(
                "--focus: '{name}' is not called here; called are {}",
                called.join(", ")
            )));
        }
    };
    let near = near(name.trim_start_matches('%'), names);
    let near = if near.is_empty() { String::new() } else { format!("; near are {}", near.join(", ")) };
    Err(Error::other(format!("--focus: {what}{near}")))
}
