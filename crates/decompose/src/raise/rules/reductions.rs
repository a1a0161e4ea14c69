//! Means and softmax as they are spelled by sums and maxima.

use crate::raise::RuleDef;
use cleave_ir::{Arg, Value};
use cleave_rewrite::Bound;

/// The one dimension that a reduction goes over and keeps.
fn over<'m>(m: &'m Bound<'_, '_>, name: &str) -> Result<&'m Arg, String> {
    let id = m.found.node(name).ok_or_else(|| format!("there is no {name}"))?;
    let node = m.source.node(id);
    match (node.arg("dim"), node.arg("keepdim")) {
        (Some(Arg::List(dims)), Some(Arg::Bool(true))) if dims.len() == 1 => Ok(&dims[0]),
        _ => Err(format!("{} does not go over one dimension and keep it", node.name)),
    }
}

fn softmax<'b>(m: &Bound<'b, '_>, to: &str) -> Result<Value<'b>, String> {
    let (most, same, total) = (over(m, "most")?, over(m, "same")?, over(m, "total")?);
    let x = m.value("x")?;
    let axis = |a: &Arg| match a {
        Arg::Int(i) => Some(i.rem_euclid(x.rank().max(1) as i64)),
        _ => None,
    };
    if axis(most) != axis(total) || axis(same) != axis(total) {
        return Err("maximum and sum go over different dimensions".into());
    }
    Ok(x.op(to, vec![total.clone()]))
}

/// `exp(x - max)/Σ exp(x - max)`.
pub static SOFTMAX: RuleDef = RuleDef {
    name: "softmax_spelled",
    doc: "exp(x - max(x)) / Σ exp(x - max(x)) over one dimension, or without the maximum.",
    spellings: &[
        "div(exp(sub(x, most:amax(x))), total:sum(exp(sub(x, same:amax(x)))))",
        "div(exp(x), total:sum(exp(x)))",
    ],
    any: &[],
    conditions: &[],
    build: |m| match m.found.node("most") {
        Some(_) => softmax(m, "aten.softmax.int"),
        None => Ok(m.value("x")?.op("aten.softmax.int", vec![over(m, "total")?.clone()])),
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %most = aten.amax(%x, [-1], true)
  %sub = aten.sub.Tensor(%x, %most)
  %exp = aten.exp(%sub)
  %sum = aten.sum.dim_IntList(%exp, [-1], true)
  %y = aten.div.Tensor(%exp, %sum)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %softmax = aten.softmax.int(%x, -1): f32[2, 4]\n  return %softmax \"y\"\n}",
    ),
};

/// `x - max - log Σ exp(x - max)`.
pub static LOG_SOFTMAX: RuleDef = RuleDef {
    name: "log_softmax_spelled",
    doc: "x - max(x) - log(Σ exp(x - max(x))) over one dimension.",
    spellings: &["sub(sub(x, most:amax(x)), log(total:sum(exp(sub(x, same:amax(x))))))"],
    any: &[],
    conditions: &[],
    build: |m| softmax(m, "aten.log_softmax.int"),
    example: (
        "graph(%x: f32[2, 4]) {
  %most = aten.amax(%x, [-1], true)
  %sub = aten.sub.Tensor(%x, %most)
  %exp = aten.exp(%sub)
  %sum = aten.sum.dim_IntList(%exp, [-1], true)
  %log = aten.log(%sum)
  %y = aten.sub.Tensor(%sub, %log)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %log_softmax = aten.log_softmax.int(%x, -1): f32[2, 4]\n  return %log_softmax \"y\"\n}",
    ),
};

/// A sum by the number of elements that it goes over.
pub static MEAN: RuleDef = RuleDef {
    name: "mean",
    doc: "A sum divided by the number of elements that it goes over.",
    spellings: &["div(s:sum(x), n)"],
    any: &[],
    conditions: &["scalar(n)"],
    build: |m| {
        let (x, n) = (m.value("x")?, m.number("n")?);
        let Arg::List(dims) = m.arg_of("s", "dim") else { return Err("the sum goes over everything".into()) };
        let shape = x.shape();
        let size = |d: &Arg| match d {
            Arg::Int(i) => shape.get(i.rem_euclid(shape.len().max(1) as i64) as usize).and_then(|d| d.as_const()),
            _ => None,
        };
        let elements: i64 =
            dims.iter().map(size).product::<Option<_>>().ok_or("the number of elements is not known")?;
        if dims.is_empty() || n != elements as f64 {
            return Err(format!("{n} for a sum of {elements}"));
        }
        Ok(x.op("aten.mean.dim", vec![Arg::List(dims), m.arg_of("s", "keepdim"), m.arg_of("s", "dtype")]))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %sum = aten.sum.dim_IntList(%x, [-1], true)
  %y = aten.div.Tensor(%sum, 4)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %mean = aten.mean.dim(%x, [-1], true): f32[2, 1]\n  return %mean \"y\"\n}",
    ),
};
