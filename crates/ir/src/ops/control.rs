//! Control flow: ops that run graphs.

use crate::builder::Call;
use crate::dim::Dim;
use crate::error::{IrError, Result};
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use crate::subgraph::{operand_meta, sizes_of_symbols};
use crate::text::meta_text;

/// The results of one graph or of another on the same operands, as a predicate says.
pub static COND: OpDef = OpDef {
    name: "higher_order.cond",
    schema: "(Tensor pred, Graph true_graph, Graph false_graph, Tensor[] operands) -> Tensor[]",
    class: Class::Structural,
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(cond),
    ..OpDef::BASE
};

fn cond(c: &Call<'_>) -> Result<Meta> {
    let operands: Vec<Meta> = match c.arg("operands") {
        Arg::List(l) => l.iter().map(|a| operand_meta(c.b, a)).collect(),
        _ => return Err(c.err("expected a list of operands")),
    };
    let mut unknown = 0;
    let yes = branch(c, "true_graph", &operands, &mut unknown)?;
    let no = branch(c, "false_graph", &operands, &mut unknown)?;
    if yes.len() != no.len() {
        return Err(c.err(&format!("one branch has {} results, the other {}", yes.len(), no.len())));
    }
    let both = |(i, (y, n)): (usize, (Meta, Meta))| {
        let differ = || {
            let (y, n) = (meta_text(&y), meta_text(&n));
            c.err(&format!("result {i} is {y} in one branch and {n} in the other"))
        };
        joined(&y, &n, &mut unknown).ok_or_else(differ)
    };
    Ok(Meta::Tuple(yes.into_iter().zip(no).enumerate().map(both).collect::<Result<_>>()?))
}

/// One graph on its own results, for as long as another says so of them. What is carried starts as
/// `carried_inputs`; both graphs take `additional_inputs` after it. Sizes of what is carried may change.
pub static WHILE_LOOP: OpDef = OpDef {
    name: "higher_order.while_loop",
    schema: "(Graph cond_graph, Graph body_graph, Tensor[] carried_inputs, Tensor[] additional_inputs) -> Tensor[]",
    infer: Some(while_loop),
    ..COND
};

fn while_loop(c: &Call<'_>) -> Result<Meta> {
    let (carried, additional) = (listed(c, "carried_inputs")?, listed(c, "additional_inputs")?);
    let (operands, mut unknown) = ([carried.clone(), additional].concat(), 0);
    if branch(c, "cond_graph", &operands, &mut unknown)?.len() != 1 {
        return Err(c.err("argument 'cond_graph': expected one result"));
    }
    let next = branch(c, "body_graph", &operands, &mut unknown)?;
    if next.len() != carried.len() {
        return Err(c.err(&format!("the body gives {} results for {} carried values", next.len(), carried.len())));
    }
    Ok(Meta::Tuple(carries(c, &carried, &next, &mut unknown)?))
}

/// A graph on each slice of `xs` along their first dimension, with results carried from one to the next: those come
/// first, then what the graph gives besides, stacked.
pub static SCAN: OpDef = OpDef {
    name: "higher_order.scan",
    schema: "(Graph combine_graph, Tensor[] init, Tensor[] xs, Tensor[] additional_inputs) -> Tensor[]",
    infer: Some(scan),
    ..COND
};

fn scan(c: &Call<'_>) -> Result<Meta> {
    let (init, xs, additional) = (listed(c, "init")?, listed(c, "xs")?, listed(c, "additional_inputs")?);
    let mut length = None;
    let mut slices = vec![];
    for x in &xs {
        let m = x.as_tensor().filter(|t| !t.shape.is_empty());
        let m = m.ok_or_else(|| c.err(&format!("argument 'xs': {} has no first dimension", meta_text(x))))?;
        length.get_or_insert(m.shape[0].clone());
        slices.push(Meta::tensor(m.dtype, m.shape[1..].to_vec()));
    }
    let length = length.ok_or_else(|| c.err("argument 'xs': expected at least one tensor"))?;
    let (operands, mut unknown) = ([init.clone(), slices, additional].concat(), 0);
    let results = branch(c, "combine_graph", &operands, &mut unknown)?;
    if results.len() < init.len() {
        return Err(c.err(&format!("the graph gives {} results for {} carried values", results.len(), init.len())));
    }
    let (next, outs) = results.split_at(init.len());
    let mut all = carries(c, &init, next, &mut unknown)?;
    for o in outs {
        let t = o.as_tensor().ok_or_else(|| c.err(&format!("a result that is {}", meta_text(o))))?;
        all.push(Meta::tensor(t.dtype, [vec![length.clone()], t.shape.clone()].concat()));
    }
    Ok(Meta::Tuple(all))
}

/// What is known of a list of operands.
fn listed(c: &Call<'_>, name: &str) -> Result<Vec<Meta>> {
    match c.arg(name) {
        Arg::List(l) => Ok(l.iter().map(|a| operand_meta(c.b, a)).collect()),
        _ => Err(c.err(&format!("argument '{name}': expected a list of operands"))),
    }
}

/// What holds of carried values after any number of steps: sizes that a step changes are not known.
fn carries(c: &Call<'_>, before: &[Meta], after: &[Meta], unknown: &mut usize) -> Result<Vec<Meta>> {
    let both = |(i, (b, a)): (usize, (&Meta, &Meta))| match (b.as_tensor(), a.as_tensor()) {
        (Some(x), Some(y)) if x.dtype == y.dtype && x.shape.len() == y.shape.len() => {
            let pairs = x.shape.iter().zip(&y.shape);
            let shape = pairs.map(|(x, y)| if x == y { x.clone() } else { fresh(unknown) }).collect();
            Ok(Meta::tensor(x.dtype, shape))
        }
        _ => Err(c.err(&format!("carried value {i} is {} and becomes {}", meta_text(b), meta_text(a)))),
    };
    before.iter().zip(after).enumerate().map(both).collect()
}

/// What a branch gives, in the caller's sizes.
fn branch(c: &Call<'_>, name: &str, operands: &[Meta], unknown: &mut usize) -> Result<Vec<Meta>> {
    let Arg::Graph(g) = c.arg(name) else { return Err(c.err(&format!("argument '{name}': expected a graph"))) };
    let takes = g.placeholders();
    let fail = |why: String| -> IrError { c.err(&format!("argument '{name}': {why}")) };
    if takes.len() != operands.len() {
        return Err(fail(format!("the graph takes {} operands, not {}", takes.len(), operands.len())));
    }
    for (i, (p, operand)) in takes.iter().zip(operands).enumerate() {
        let own = &g.node(*p).meta;
        if joined(own, operand, &mut 0).is_none() {
            return Err(fail(format!("operand {i}: the graph takes {}, not {}", meta_text(own), meta_text(operand))));
        }
    }
    let sizes = sizes_of_symbols(g, operands);
    let mut outer = |d: &Dim| {
        if d.symbols().iter().all(|s| sizes.contains_key(s)) {
            return d.substitute(&|s| sizes.get(s).cloned());
        }
        fresh(unknown)
    };
    Ok(g.results().into_iter().map(|r| g.node(r).meta.map_dims(&mut outer)).collect())
}

/// What holds of a value that is one or the other; none if types or ranks differ, or sizes that are numbers.
fn joined(a: &Meta, b: &Meta, unknown: &mut usize) -> Option<Meta> {
    let mut size = |x: &Dim, y: &Dim| match (x.as_const(), y.as_const()) {
        _ if x == y => Some(x.clone()),
        (Some(_), Some(_)) => None,
        _ => Some(fresh(unknown)),
    };
    match (a, b) {
        (Meta::Tensor(x), Meta::Tensor(y)) if x.dtype == y.dtype && x.shape.len() == y.shape.len() => {
            let shape = x.shape.iter().zip(&y.shape).map(|(x, y)| size(x, y)).collect::<Option<_>>()?;
            Some(Meta::tensor(x.dtype, shape))
        }
        (Meta::Int(x), Meta::Int(y)) => Some(Meta::Int(size(x, y)?)),
        (Meta::None, Meta::None) => Some(Meta::None),
        _ => None,
    }
}

fn fresh(unknown: &mut usize) -> Dim {
    *unknown += 1;
    Dim::unknown(*unknown - 1)
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&COND, &WHILE_LOOP, &SCAN]];
