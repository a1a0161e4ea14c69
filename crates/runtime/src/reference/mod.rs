//! The reference interpreter: slow, exact, and the oracle of every kernel.
//!
//! It evaluates a set of anchors (pointwise arithmetic, convolution, matrix product, pooling, reductions,
//! moving of elements, quantize and dequantize). Every other op means its rule: it is run on fresh inputs
//! and the graph that it makes is interpreted in turn.

mod compare;
mod control;
mod conv;
mod create;
mod ctx;
mod decompose;
mod detect;
mod factor;
mod fourier;
mod histogram;
mod index;
mod matmul;
mod moving;
mod norm;
mod order;
mod places;
mod pointwise;
mod pool;
mod prims;
mod quantized;
mod random;
mod reduce;
mod resize;
mod scan;
mod scatter;
mod sift;
mod sizes;
mod special;
#[cfg(test)]
mod tests;
mod unary;
mod value;
mod view;

pub use value::{Array, Data, Value};

use crate::error::{Result, RuntimeError};
use cleave_ir::{Arg, Bindings, Builder, Dim, Graph, Kind, Meta, NodeId, Op, Tensor};
use ctx::Ctx;
use indexmap::IndexMap;
use std::sync::LazyLock;

/// Evaluates one op on concrete arguments.
type EvalFn = fn(&Ctx<'_>) -> Result<Value>;

/// The anchors by op name.
static ANCHORS: LazyLock<IndexMap<&'static str, EvalFn>> = LazyLock::new(|| {
    let families = [
        compare::EVALS,
        control::EVALS,
        conv::EVALS,
        create::EVALS,
        detect::EVALS,
        factor::EVALS,
        fourier::EVALS,
        histogram::EVALS,
        index::EVALS,
        matmul::EVALS,
        moving::EVALS,
        norm::EVALS,
        order::EVALS,
        pointwise::EVALS,
        pool::EVALS,
        prims::EVALS,
        quantized::EVALS,
        random::EVALS,
        reduce::EVALS,
        resize::EVALS,
        scan::EVALS,
        scatter::EVALS,
        sift::EVALS,
        sizes::EVALS,
        special::EVALS,
        unary::EVALS,
        view::EVALS,
    ];
    let mut all: IndexMap<&str, EvalFn> = families.iter().flat_map(|f| f.iter().copied()).collect();
    let unruled = cleave_ir::op::all().filter(|o| o.rule.is_none()).map(|o| o.def.name);
    for name in unruled.filter(|n| !all.contains_key(n)).collect::<Vec<_>>() {
        let same = prims::namesake(name).and_then(|names| names.iter().find_map(|n| all.get(n.as_str()).copied()));
        all.extend(same.or_else(|| special::polynomial(name)).map(|eval| (name, eval)));
    }
    all
});

/// Runs a graph on inputs in order of its placeholders.
///
/// # Errors
/// Inputs that the graph does not admit, or an op that has neither anchor nor rule.
pub fn run(g: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    run_with_taps(g, inputs, &[], &mut |_, _| {})
}

/// [`run`], handing over the values of the tapped nodes as they are computed.
///
/// # Errors
/// As [`run`].
pub fn run_with_taps(
    g: &Graph,
    inputs: &[Tensor],
    taps: &[NodeId],
    sink: &mut dyn FnMut(NodeId, &Tensor),
) -> Result<Vec<Tensor>> {
    crate::error::check_inputs(g, inputs)?;
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
    let bound = g.bind(&shapes)?;
    let given = inputs.iter().map(|t| Value::Array(Array::from_tensor(t))).collect();
    let mut sink = |id: NodeId, v: &Value| match taps.contains(&id) {
        true => as_tensor(v, &g.node(id).name).map(|t| sink(id, &t)),
        false => Ok(()),
    };
    let results = execute(g, given, bound, &mut sink)?;
    results.iter().zip(g.results()).map(|(v, id)| as_tensor(v, &g.node(id).name)).collect()
}

/// Runs a graph on the values of its placeholders, under these sizes; `seen` is shown every value.
fn execute(
    g: &Graph,
    given: Vec<Value>,
    mut bound: Bindings,
    seen: &mut dyn FnMut(NodeId, &Value) -> Result<()>,
) -> Result<Vec<Value>> {
    let mut last_use: Vec<usize> = (0..g.len()).collect();
    for (id, node) in g.nodes() {
        node.args.iter().flat_map(Arg::nodes).for_each(|a| last_use[a.index()] = id.index());
    }
    let mut values: Vec<Option<Value>> = vec![None; g.len()];
    let mut given = given.into_iter();
    let mut results = vec![];
    for (id, node) in g.nodes() {
        let value = match node.kind {
            Kind::Placeholder => given.next().expect("invariant: counted by the caller"),
            Kind::GetAttr(_) => Value::Array(Array::from_tensor(g.constant(id).expect("invariant: verified graph"))),
            Kind::Call(op) => {
                let value = call_node(g, id, op, &values, &bound)?;
                learn(&node.meta, &value, &mut bound);
                value
            }
            Kind::Output => {
                for n in node.args.iter().flat_map(Arg::nodes) {
                    let value = values[n.index()].clone();
                    results.push(value.ok_or_else(|| unsupported("output", &g.node(n).name, "has no value"))?);
                }
                Value::None
            }
        };
        seen(id, &value)?;
        values[id.index()] = Some(value);
        for a in node.args.iter().flat_map(Arg::nodes).filter(|a| last_use[a.index()] == id.index()) {
            values[a.index()] = None;
        }
    }
    Ok(results)
}

/// Gives symbols that only running tells the sizes that a value has.
fn learn(meta: &Meta, value: &Value, bound: &mut Bindings) {
    let mut note = |d: &Dim, n: i64| {
        if let Some(s) = d.as_symbol().filter(|s| !bound.contains_key(*s)) {
            bound.insert(s.into(), n);
        }
    };
    match (meta, value) {
        (Meta::Tensor(t), Value::Array(a)) => {
            t.shape.iter().zip(a.shape()).for_each(|(d, n)| note(d, *n as i64));
        }
        (Meta::Int(d), Value::Int(n)) => note(d, *n),
        (Meta::Tuple(metas), Value::List(values)) => metas.iter().zip(values).for_each(|(m, v)| learn(m, v, bound)),
        _ => {}
    }
}

/// Evaluates one call on host tensors: what a backend without a kernel for an op falls back to.
/// `args` are those of the node, with its tensors in the order in which they stand there.
///
/// # Errors
/// An op that has neither anchor nor rule, or arguments that it does not admit.
pub fn eval_node(g: &Graph, id: NodeId, tensors: &[Tensor], bound: &Bindings) -> Result<Vec<Tensor>> {
    let node = g.node(id);
    let op = node.op().ok_or_else(|| unsupported("node", &node.name, "is no call"))?;
    let mut values: Vec<Option<Value>> = vec![None; g.len()];
    for (n, t) in node.args.iter().flat_map(Arg::nodes).zip(tensors) {
        values[n.index()] = Some(Value::Array(Array::from_tensor(t)));
    }
    let mut out = vec![];
    results(&call_node(g, id, op, &values, bound)?, &node.name, &mut out)?;
    Ok(out)
}

/// A call's results in order, also those in lists; one that was not asked for has no elements.
fn results(v: &Value, node: &str, out: &mut Vec<Tensor>) -> Result<()> {
    match v {
        Value::List(items) => items.iter().try_for_each(|v| results(v, node, out))?,
        Value::None => out.push(Tensor::new(&[0], Vec::<f32>::new())),
        v => out.push(as_tensor(v, node)?),
    }
    Ok(())
}

fn unsupported(op: &str, node: &str, why: &str) -> RuntimeError {
    RuntimeError::Unsupported { op: op.into(), node: node.into(), why: why.into() }
}

/// A value as a tensor; a number is one without dimensions.
fn as_tensor(v: &Value, node: &str) -> Result<Tensor> {
    match v {
        Value::Array(a) => a.to_tensor(),
        Value::Int(i) => Ok(Tensor::scalar(*i)),
        Value::Float(f) => Ok(Tensor::scalar(*f)),
        Value::Bool(b) => Ok(Tensor::from_bools(&[], &[*b])),
        _ => Err(unsupported("output", node, "its value is not one tensor")),
    }
}

fn concrete(a: &Arg, values: &[Option<Value>], bound: &Bindings) -> Result<Value> {
    Ok(match a {
        Arg::None => Value::None,
        Arg::Node(n) => values[n.index()].clone().ok_or_else(|| unsupported("argument", "", "has no value"))?,
        Arg::Int(i) => Value::Int(*i),
        Arg::Dim(d) => Value::Int(d.eval(bound)?),
        Arg::Float(f) => Value::Float(*f),
        Arg::Bool(b) => Value::Bool(*b),
        Arg::Str(s) => Value::Str(s.clone()),
        Arg::DType(d) => Value::DType(*d),
        Arg::List(l) => Value::List(l.iter().map(|a| concrete(a, values, bound)).collect::<Result<_>>()?),
        Arg::Graph(g) => Value::Graph(g.clone()),
    })
}

/// Evaluates the call at a node.
fn call_node(g: &Graph, id: NodeId, op: &'static Op, values: &[Option<Value>], bound: &Bindings) -> Result<Value> {
    let node = g.node(id);
    let args = node.args.iter().map(|a| concrete(a, values, bound)).collect::<Result<Vec<_>>>()?;
    let strides = if op.base().starts_with("as_strided") { storage(g, &node.args[0], bound)? } else { None };
    let divide = g.quantizes_by_division();
    call(&Ctx { op, args: &args, meta: &node.meta, node: &node.name, divide, strides })
}

/// The strides under which torch would lay a value; values here are row-major.
fn storage(g: &Graph, a: &Arg, bound: &Bindings) -> Result<Option<Vec<usize>>> {
    let Arg::Node(id) = a else { return Ok(None) };
    let b = Builder::from_graph(g.clone());
    let strides = b.value(*id).strides();
    let known = strides.iter().map(|d| d.eval(bound)).collect::<std::result::Result<Vec<i64>, _>>()?;
    Ok(known.into_iter().map(|v| usize::try_from(v).ok()).collect())
}

/// Evaluates a call: by its anchor, or by its rule.
fn call(c: &Ctx<'_>) -> Result<Value> {
    if let Some(eval) = ANCHORS.get(c.op.name) {
        return eval(c);
    }
    if c.op.rule.is_none() {
        return Err(c.err("the interpreter has no evaluation for it, and it has no rule"));
    }
    let b = Builder::new();
    let mut inputs = vec![];
    let args: Vec<Arg> = c.args.iter().map(|v| symbolic(v, &b, &mut inputs)).collect();
    let results = b.apply_rule(c.op, &args, c.node)?;
    let results: Vec<_> = results.into_iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect();
    b.output(&results);
    let tensors = inputs.into_iter().map(Array::to_tensor).collect::<Result<Vec<_>>>()?;
    let mut out: Vec<Value> =
        run(&b.finish()?, &tensors)?.iter().map(|t| Value::Array(Array::from_tensor(t))).collect();
    match (c.meta, out.len()) {
        (Meta::Tuple(_), _) => Ok(Value::List(out)),
        (_, 1) => Ok(out.remove(0)),
        _ => Ok(Value::List(out)),
    }
}

/// A concrete argument as one of a graph, its arrays as inputs.
fn symbolic<'v>(v: &'v Value, b: &Builder, inputs: &mut Vec<&'v Array>) -> Arg {
    match v {
        Value::None => Arg::None,
        Value::Array(a) => {
            inputs.push(a);
            let shape = a.shape().iter().map(|n| (*n).into()).collect();
            b.placeholder("x", Meta::tensor(a.dtype, shape)).into()
        }
        Value::List(l) => Arg::List(l.iter().map(|v| symbolic(v, b, inputs)).collect()),
        Value::Int(i) => Arg::Int(*i),
        Value::Float(f) => Arg::Float(*f),
        Value::Bool(x) => Arg::Bool(*x),
        Value::Str(s) => Arg::Str(s.clone()),
        Value::DType(d) => Arg::DType(*d),
        Value::Graph(g) => Arg::Graph(g.clone()),
    }
}
