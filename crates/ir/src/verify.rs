//! What every graph must fulfil. The verifier collects all violations.
//!
//! 1. Arguments are nodes that stand earlier.
//! 2. Names are unique, and the graph finds nodes by them.
//! 3. Every call has one argument for each parameter of its schema, and stands on a level that its stage admits.
//! 4. A constant node names a constant whose type and shape are the node's.
//! 5. There is one output node, the last, and as many names as results.
//! 6. There are as many input names as placeholders.
//! 7. The type and shape on a node are what its op infers from its arguments, but for sizes that only running tells.
//! 8. The value of a call with several results is used by getitem only.
//! 9. All of this holds of graphs that are arguments.

use crate::builder::Builder;
use crate::error::{IrError, Result};
use crate::graph::{Arg, Graph, Kind, Meta, Node, NodeId};
use crate::op::Levels;

/// Checks all invariants; each op must be admitted on one of `levels`.
///
/// # Errors
/// [`IrError::Invalid`] with every violation.
pub fn verify(g: &Graph, levels: Levels) -> Result<()> {
    let mut bad = vec![];
    for (id, node) in g.nodes() {
        node_invariants(g, id, node, levels, &mut bad);
    }
    let outputs = g.nodes().filter(|(_, n)| n.kind == Kind::Output).count();
    if outputs != 1 || g.output().is_none_or(|o| o.index() + 1 != g.len()) {
        bad.push(format!("expected one output node, the last; found {outputs}"));
    }
    for (what, names, nodes) in
        [("input", g.input_names.len(), g.placeholders().len()), ("output", g.output_names.len(), g.results().len())]
    {
        if names != nodes {
            bad.push(format!("{names} {what} names for {nodes} {what}s"));
        }
    }
    if bad.is_empty() { Ok(()) } else { Err(IrError::Invalid(bad)) }
}

fn node_invariants(g: &Graph, id: NodeId, node: &Node, levels: Levels, bad: &mut Vec<String>) {
    let name = &node.name;
    if node.args.iter().flat_map(Arg::nodes).any(|a| a >= id) {
        bad.push(format!("{name}: an argument stands later"));
        return;
    }
    if g.find(name) != Some(id) {
        bad.push(format!("{name}: the name leads to another node"));
    }
    match node.kind {
        Kind::GetAttr(_) => match g.constants.get(&node.target) {
            None => bad.push(format!("{name}: no constant '{}'", node.target)),
            Some(t) => {
                let fits = node.meta.as_tensor().is_some_and(|m| {
                    m.dtype == t.dtype()
                        && m.shape.len() == t.shape().len()
                        && m.shape.iter().zip(t.shape()).all(|(a, b)| a.is(*b as i64))
                });
                if !fits {
                    bad.push(format!("{name}: constant {:?} under meta {:?}", t.shape(), node.meta));
                }
            }
        },
        Kind::Call(op) => {
            // What no rule breaks up stands wherever it is.
            if !op.levels.meets(levels) && op.rule.is_some() {
                bad.push(format!("{name}: {} does not stand on this level", op.name));
            }
            if node.args.len() != op.schema.params.len() {
                bad.push(format!("{name}: {} arguments for {} parameters", node.args.len(), op.schema.params.len()));
                return;
            }
            if matches!(node.meta, Meta::Tuple(_))
                && g.users(id).iter().any(|u| g.node(*u).op().is_none_or(|o| o.name != "getitem"))
            {
                bad.push(format!("{name}: several results used as one"));
            }
            for arg in &node.args {
                if let (Arg::Graph(inner), slot) = (arg, bad.len()) {
                    bad.extend(verify(inner, levels).err().map(|e| format!("{name}: {e}")));
                    bad[slot..].iter_mut().for_each(|e| *e = e.replace('\n', &format!("\n{name}: ")));
                }
            }
            infer_again(g, node, bad);
        }
        Kind::Placeholder | Kind::Output => {}
    }
}

fn infer_again(g: &Graph, node: &Node, bad: &mut Vec<String>) {
    let Some(op) = node.op() else { return };
    let scratch = Builder::new();
    let args: Vec<Arg> = node
        .args
        .iter()
        .map(|a| a.map_nodes(&mut |n| scratch.placeholder("x", g.node(n).meta.clone()).into()))
        .collect();
    match scratch.infer(op, &args, &node.name) {
        Ok(m) if m.settled(&node.meta) == node.meta => {}
        Ok(m) => bad.push(format!("{}: {} gives {m:?}, the node says {:?}", node.name, op.name, node.meta)),
        Err(e) => bad.push(e.to_string()),
    }
}
