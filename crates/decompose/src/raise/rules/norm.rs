//! Layer norm as exporters spell it.

use crate::raise::RuleDef;
use cleave_ir::graph::Arg;
use cleave_ir::{Dim, Value};
use cleave_rewrite::Bound;

/// How many of the last dimensions a mean goes over, if it goes over the last ones and keeps them.
fn last_dimensions(m: &Bound<'_, '_>, capture: &str, rank: usize) -> Result<usize, String> {
    let id = m.found.value(capture).ok_or_else(|| format!("{capture} is not a tensor"))?;
    let node = m.source.node(id);
    if node.op().is_none_or(|o| o.def.name != "aten.mean.dim") || node.arg("keepdim") != Some(&Arg::Bool(true)) {
        return Err(format!("{} is not a mean that keeps its dimensions", node.name));
    }
    let Some(Arg::List(dims)) = node.arg("dim") else { return Err(format!("{} goes over everything", node.name)) };
    let mut axes: Vec<i64> = dims
        .iter()
        .map(|d| match d {
            Arg::Int(i) => Ok(i.rem_euclid(rank.max(1) as i64)),
            other => Err(format!("dimension {other:?}")),
        })
        .collect::<Result<_, _>>()?;
    axes.sort_unstable();
    let first = rank as i64 - axes.len() as i64;
    if axes.is_empty() || !axes.iter().copied().eq(first..rank as i64) {
        return Err(format!("{} goes over dimensions {axes:?} of {rank}", node.name));
    }
    Ok(axes.len())
}

fn spelled<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let x = m.value("x")?;
    let shape = x.shape();
    let n = last_dimensions(m, "m", shape.len())?;
    if last_dimensions(m, "v", shape.len())? != n {
        return Err("mean and variance go over different dimensions".into());
    }
    let input =
        |capture: &str| m.found.value(capture).and_then(|id| m.source.node(id).args[0].nodes().first().copied());
    if input("m") != m.found.value("x") {
        return Err("the mean is another value's".into());
    }
    let square = input("v").map(|id| m.source.node(id)).ok_or("the variance has no input")?;
    let centred = m.found.node("c");
    let args = square.args.first().map(Arg::nodes).unwrap_or_default();
    let squared = match square.op().map(|o| o.base()) {
        Some("pow") => square.args.get(1).is_some_and(|a| matches!(a, Arg::Int(2)) || *a == Arg::Float(2.0)),
        Some("mul") => square.args.get(1).map(Arg::nodes).unwrap_or_default() == args,
        _ => false,
    };
    // The difference may be spelled twice, once for each use.
    let same = args.first().is_some_and(|a| {
        Some(*a) == centred
            || centred.is_some_and(|c| {
                m.source.node(c).args == m.source.node(*a).args && m.source.node(c).op() == m.source.node(*a).op()
            })
    });
    if !squared || !same {
        return Err("the variance is not the mean of the squared differences".into());
    }
    let over: Vec<Dim> = shape[shape.len() - n..].to_vec();
    Ok(x.op("aten.layer_norm", vec![over.into(), Arg::None, Arg::None, m.number("eps")?.into()]))
}

/// `(x - mean)/√(var + eps)`.
pub static LAYER_NORM_SPELLED: RuleDef = RuleDef {
    name: "layer_norm_spelled",
    doc: "(x - mean(x)) / sqrt(mean((x - mean(x))²) + eps) over the last dimensions.",
    spellings: &[
        "div(c:sub(x, m), sqrt(add(v, eps)))",
        "mul(c:sub(x, m), rsqrt(add(v, eps)))",
        "mul(c:sub(x, m), reciprocal(sqrt(add(v, eps))))",
        "div(c:sub(x, m), pow(add(v, eps), 0.5))",
    ],
    any: &[],
    conditions: &["scalar(eps)", "not scalar(v)"],
    build: spelled,
    example: (
        "graph(%x: f32[2, 4]) {
  %m = aten.mean.dim(%x, [-1], true)
  %c = aten.sub.Tensor(%x, %m)
  %p = aten.pow.Tensor_Scalar(%c, 2)
  %v = aten.mean.dim(%p, [-1], true)
  %e = aten.add.Tensor(%v, 1e-5)
  %s = aten.sqrt(%e)
  %y = aten.div.Tensor(%c, %s)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %layer_norm = aten.layer_norm(%x, [4]): f32[2, 4]\n  return %layer_norm \"y\"\n}",
    ),
};

/// Whether a value has one element for each normalized place.
fn fits(m: &Bound<'_, '_>, capture: &str) -> Result<(), String> {
    let Arg::List(over) = m.arg_of("layer_norm", "normalized_shape") else { return Err("no shape".into()) };
    let have: Vec<Arg> = m.value(capture)?.shape().into_iter().map(Arg::from).collect();
    if have == over { Ok(()) } else { Err(format!("{capture} of shape {have:?} for {over:?}")) }
}

/// `layer_norm(x)·w`.
pub static LAYER_NORM_SCALE: RuleDef = RuleDef {
    name: "layer_norm_scale",
    doc: "A product with a constant behind a layer norm without weight is its weight.",
    spellings: &["mul(layer_norm(x, n, none, none), w)"],
    any: &[],
    conditions: &["constant(w)", "single_use(layer_norm)"],
    build: |m| {
        fits(m, "w")?;
        let pick = |n: &str| m.arg_of("layer_norm", n);
        let w = m.value("w")?;
        Ok(m.value("x")?.op("aten.layer_norm", vec![pick("normalized_shape"), w.into(), Arg::None, pick("eps")]))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %n = aten.layer_norm(%x, [4])
  %y = aten.mul.Tensor(%n, %w)
  return %y
}",
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %layer_norm = aten.layer_norm(%x, [4], %w): f32[2, 4]
  return %layer_norm \"y\"
}",
    ),
};

/// `layer_norm(x, w) + b`.
pub static LAYER_NORM_SHIFT: RuleDef = RuleDef {
    name: "layer_norm_shift",
    doc: "A sum with a constant behind a layer norm without bias is its bias.",
    spellings: &["add(layer_norm(x, n, w?, none), b)"],
    any: &[],
    conditions: &["constant(b)", "single_use(layer_norm)"],
    build: |m| {
        fits(m, "b")?;
        let pick = |n: &str| m.arg_of("layer_norm", n);
        let (w, b) = (m.arg("w"), m.value("b")?);
        Ok(m.value("x")?.op("aten.layer_norm", vec![pick("normalized_shape"), w, b.into(), pick("eps")]))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %n = aten.layer_norm(%x, [4], %w)
  %y = aten.add.Tensor(%n, %w)
  return %y
}",
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %layer_norm = aten.layer_norm(%x, [4], %w, %w): f32[2, 4]
  return %layer_norm \"y\"
}",
    ),
};
