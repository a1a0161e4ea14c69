//! Control flow.

use super::ctx::Ctx;
use super::value::Value;
use super::{EvalFn, execute, learn};
use crate::error::Result;
use cleave_ir::Bindings;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[("higher_order.cond", |c| {
    let holds = c.float("pred")? != 0.0;
    run(c, if holds { "true_graph" } else { "false_graph" })
})];

/// The results of the graph that is this argument, on the call's operands.
fn run(c: &Ctx<'_>, graph: &str) -> Result<Value> {
    let Value::Graph(g) = c.arg(graph)? else { return Err(c.err(format!("argument '{graph}': expected a graph"))) };
    let Value::List(operands) = c.arg("operands")? else { return Err(c.err("expected a list of operands")) };
    let takes = g.placeholders();
    if takes.len() != operands.len() {
        return Err(c.err(format!("{} operands for {} inputs", operands.len(), takes.len())));
    }
    let mut bound = Bindings::new();
    takes.iter().zip(operands).for_each(|(p, v)| learn(&g.node(*p).meta, v, &mut bound));
    let results = execute(g, operands.clone(), bound, &mut |_, _| Ok(()));
    Ok(Value::List(results?))
}
