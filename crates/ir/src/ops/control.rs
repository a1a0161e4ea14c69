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
pub static OPS: &[&[&OpDef]] = &[&[&COND]];
