//! Control flow.

use super::ctx::Ctx;
use super::value::{Array, Value};
use super::{EvalFn, execute, learn};
use crate::error::Result;
use cleave_ir::{Bindings, Meta};

/// The most steps of a loop whose end its results decide.
const MOST_STEPS: usize = 100_000;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("higher_order.cond", |c| {
        let holds = c.float("pred")? != 0.0;
        run(c, if holds { "true_graph" } else { "false_graph" }, operands(c, "operands")?).map(Value::List)
    }),
    ("higher_order.while_loop", while_loop),
    ("higher_order.scan", scan),
];

fn while_loop(c: &Ctx<'_>) -> Result<Value> {
    let (mut carried, additional) = (operands(c, "carried_inputs")?, operands(c, "additional_inputs")?);
    let count = carried.len();
    for _ in 0..MOST_STEPS {
        carried.truncate(count);
        let all = [carried.as_slice(), &additional].concat();
        let holds = match run(c, "cond_graph", all.clone())?.as_slice() {
            [Value::Array(a)] if a.to_f64().len() == 1 => a.to_f64().iter().any(|v| *v != 0.0),
            _ => return Err(c.err("the condition is not one number")),
        };
        if !holds {
            return Ok(Value::List(carried));
        }
        carried = run(c, "body_graph", all)?;
    }
    Err(c.err(format!("the loop does not end within {MOST_STEPS} steps")))
}

fn scan(c: &Ctx<'_>) -> Result<Value> {
    let (mut carried, xs, additional) = (operands(c, "init")?, c.arrays("xs")?, operands(c, "additional_inputs")?);
    let count = carried.len();
    let steps = xs.first().and_then(|x| x.shape().first().copied()).unwrap_or(0);
    if xs.iter().any(|x| x.shape().first() != Some(&steps)) {
        return Err(c.err("argument 'xs': expected the same first size of all"));
    }
    let mut outs: Vec<Vec<Array>> = vec![];
    for t in 0..steps {
        let slices = xs.iter().map(|x| Value::Array(x.row(t))).collect();
        let mut results = run(c, "combine_graph", [carried, slices, additional.clone()].concat())?;
        let rest = results.split_off(count.min(results.len()));
        carried = results;
        outs.resize(rest.len(), vec![]);
        for (all, v) in outs.iter_mut().zip(rest) {
            match v {
                Value::Array(a) => all.push(a),
                _ => return Err(c.err("a result is not a tensor")),
            }
        }
    }
    if steps == 0 {
        return Ok(Value::List([carried, nothing(c, count)?].concat()));
    }
    let stacked =
        outs.iter().map(|all| Array::stacked(all).map(Value::Array).ok_or_else(|| c.err("results differ in shape")));
    Ok(Value::List(carried.into_iter().map(Ok).chain(stacked).collect::<Result<_>>()?))
}

/// What stacks of no results come to: their types are known, and their sizes where they are numbers.
fn nothing(c: &Ctx<'_>, carried: usize) -> Result<Vec<Value>> {
    let Meta::Tuple(all) = c.meta else { return Err(c.err("expected several results")) };
    let empty = |m: &Meta| {
        let m = m.as_tensor().ok_or_else(|| c.err("a result is not a tensor"))?;
        let inner = m.shape.iter().skip(1).map(|d| d.as_const().and_then(|n| usize::try_from(n).ok()));
        let shape = std::iter::once(Some(0)).chain(inner).collect::<Option<Vec<_>>>();
        let shape = shape.ok_or_else(|| c.err("no steps, and results of unknown size"))?;
        Ok(Value::Array(Array::from_f64(m.dtype, ndarray::ArrayD::zeros(shape))))
    };
    all.iter().skip(carried).map(empty).collect()
}

fn operands(c: &Ctx<'_>, name: &str) -> Result<Vec<Value>> {
    match c.arg(name)? {
        Value::List(l) => Ok(l.clone()),
        _ => Err(c.err(format!("argument '{name}': expected a list of operands"))),
    }
}

/// The results of the graph that is this argument.
fn run(c: &Ctx<'_>, graph: &str, operands: Vec<Value>) -> Result<Vec<Value>> {
    let Value::Graph(g) = c.arg(graph)? else { return Err(c.err(format!("argument '{graph}': expected a graph"))) };
    let takes = g.placeholders();
    if takes.len() != operands.len() {
        return Err(c.err(format!("{} operands for {} inputs", operands.len(), takes.len())));
    }
    let mut bound = Bindings::new();
    takes.iter().zip(&operands).for_each(|(p, v)| learn(&g.node(*p).meta, v, &mut bound));
    execute(g, operands, bound, &mut |_, _| Ok(()))
}
