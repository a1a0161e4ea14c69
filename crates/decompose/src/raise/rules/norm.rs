//! Layer norm as exporters spell it.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived};
use cleave_ir::graph::{Arg, NodeId};
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

/// The operand of a square, if the node is one: `x·x` or `x²`.
fn squared(m: &Bound<'_, '_>, id: NodeId) -> Option<NodeId> {
    let node = m.source.node(id);
    let first = *node.args.first()?.nodes().first()?;
    let square = match node.op()?.base() {
        "pow" => node.args.get(1).is_some_and(|a| matches!(a, Arg::Int(2)) || *a == Arg::Float(2.0)),
        "mul" => node.args.get(1).map(Arg::nodes)? == [first],
        "square" => true,
        _ => false,
    };
    square.then_some(first)
}

/// What a captured reduction goes over.
fn reduced(m: &Bound<'_, '_>, capture: &str) -> Option<NodeId> {
    m.source.node(m.found.value(capture)?).args.first()?.nodes().first().copied()
}

/// Whether two nodes are one, or the same call of the same operands.
fn alike(m: &Bound<'_, '_>, a: NodeId, b: NodeId) -> bool {
    let (x, y) = (m.source.node(a), m.source.node(b));
    a == b || x.op().is_some() && x.op() == y.op() && x.args == y.args
}

fn spelled<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let x = m.value("x")?;
    let shape = x.shape();
    let n = last_dimensions(m, "m", shape.len())?;
    if reduced(m, "m") != m.found.value("x") {
        return Err("the mean is another value's".into());
    }
    // The variance is E[(x - m)²], or E[x²] - m²; what is the same may be spelled twice, once for each use.
    let same = match m.found.captures.contains_key("q") {
        true => {
            if last_dimensions(m, "q", shape.len())? != n {
                return Err("the means go over different dimensions".into());
            }
            let squares = reduced(m, "q").and_then(|id| squared(m, id));
            let mean = m.found.value("s").and_then(|id| squared(m, id));
            squares == m.found.value("x") && mean.zip(m.found.value("m")).is_some_and(|(a, b)| alike(m, a, b))
        }
        false => {
            if last_dimensions(m, "v", shape.len())? != n {
                return Err("mean and variance go over different dimensions".into());
            }
            let centred = reduced(m, "v").and_then(|id| squared(m, id));
            centred.zip(m.found.node("c")).is_some_and(|(a, b)| alike(m, a, b))
        }
    };
    if !same {
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

/// A captured constant with one element for each normalized place; dimensions of one element before them go.
fn fitting<'b>(m: &Bound<'b, '_>, norm: &str, capture: &str) -> Result<Value<'b>, String> {
    let Arg::List(over) = m.arg_of(norm, "normalized_shape") else { return Err("no shape".into()) };
    let shape = m.value(capture)?.shape();
    let have: Vec<Arg> = shape.iter().cloned().map(Arg::from).collect();
    if have == over {
        return m.value(capture);
    }
    let lead = have.len().checked_sub(over.len()).filter(|n| shape[..*n].iter().all(|d| d.is(1)) && have[*n..] == over);
    let lead = lead.ok_or_else(|| format!("{capture} of shape {have:?} for {over:?}"))?;
    let t = constant(m, capture)?;
    Ok(derived(m, capture, "flat", t.reshape(&t.shape()[lead..])))
}

/// Names of ops under which a constant may get dimensions of one element.
const SHAPED: &[(&str, &[&str])] = &[("shaped", &["aten.view", "reshape", "unsqueeze"])];

/// `layer_norm(x)·w`.
pub static LAYER_NORM_SCALE: RuleDef = RuleDef {
    name: "layer_norm_scale",
    doc: "A product with a constant behind a layer norm without weight is its weight.",
    spellings: &["mul(layer_norm(x, n, none, none), shaped?(w))"],
    any: SHAPED,
    conditions: &["constant(w)", "single_use(layer_norm)"],
    build: |m| {
        let pick = |n: &str| m.arg_of("layer_norm", n);
        let w = fitting(m, "layer_norm", "w")?;
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
    spellings: &["add(layer_norm(x, n, w?, none), shaped?(b))"],
    any: SHAPED,
    conditions: &["constant(b)", "single_use(layer_norm)"],
    build: |m| {
        let pick = |n: &str| m.arg_of("layer_norm", n);
        let (w, b) = (m.arg("w"), fitting(m, "layer_norm", "b")?);
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

/// A layer norm between views that fold and unfold the leading dimensions.
pub static LAYER_NORM_VIEWS: RuleDef = RuleDef {
    name: "layer_norm_views",
    doc: "A layer norm of rows, between views that fold the leading dimensions and unfold them again.",
    spellings: &["shaped(layer_norm(folded(x), n, w?, b?))"],
    any: &[("shaped", &["aten.view", "reshape"]), ("folded", &["aten.view", "reshape"])],
    conditions: &["single_use(layer_norm)"],
    build: |m| {
        let x = m.value("x")?;
        let Arg::List(over) = m.arg_of("layer_norm", "normalized_shape") else { return Err("no shape".into()) };
        let shape: Vec<Arg> = x.shape().into_iter().map(Arg::from).collect();
        if x.meta() != m.root().meta || !shape.ends_with(&over) {
            return Err(format!("{:?} is not normalized over {over:?} and given back", x.shape()));
        }
        Ok(x.op("aten.layer_norm", vec![Arg::List(over), m.arg("w"), m.arg("b"), m.arg_of("layer_norm", "eps")]))
    },
    example: (
        "graph(%x: f32[N, 5, 3]) {
  %v = aten.view(%x, [<5*N>, 3])
  %n = aten.layer_norm(%v, [3])
  %y = aten.view(%n, [<N>, 5, 3])
  return %y
}",
        "graph(%x: f32[N, 5, 3]) {
  %layer_norm = aten.layer_norm(%x, [3]): f32[N, 5, 3]
  return %layer_norm \"y\"
}",
    ),
};

/// [`LAYER_NORM_SPELLED`] with the variance as ONNX's own definition spells it.
pub static LAYER_NORM_MOMENTS: RuleDef = RuleDef {
    name: "layer_norm_moments",
    doc: "(x - mean(x)) / sqrt(mean(x²) - mean(x)² + eps) over the last dimensions.",
    example: (
        "graph(%x: f32[2, 4]) {
  %m = aten.mean.dim(%x, [1], true)
  %x2 = aten.mul.Tensor(%x, %x)
  %q = aten.mean.dim(%x2, [1], true)
  %m2 = aten.mul.Tensor(%m, %m)
  %v = aten.sub.Tensor(%q, %m2)
  %e = aten.add.Tensor(%v, 1e-5)
  %s = aten.sqrt(%e)
  %c = aten.sub.Tensor(%x, %m)
  %y = aten.div.Tensor(%c, %s)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %layer_norm = aten.layer_norm(%x, [4]): f32[2, 4]\n  return %layer_norm \"y\"\n}",
    ),
    spellings: &[
        "div(c:sub(x, m), sqrt(add(sub(q, s), eps)))",
        "mul(c:sub(x, m), rsqrt(add(sub(q, s), eps)))",
        "mul(c:sub(x, m), reciprocal(sqrt(add(sub(q, s), eps))))",
    ],
    conditions: &["scalar(eps)"],
    ..LAYER_NORM_SPELLED
};

/// `x/√(mean(x²) + eps)`.
pub static RMS_NORM_SPELLED: RuleDef = RuleDef {
    name: "rms_norm_spelled",
    doc: "x / sqrt(mean(x²) + eps) over the last dimensions.",
    spellings: &[
        "div(x, sqrt(add(v, eps)))",
        "mul(x, rsqrt(add(v, eps)))",
        "mul(x, reciprocal(sqrt(add(v, eps))))",
        "div(x, pow(add(v, eps), 0.5))",
        "mul(x, pow(add(v, eps), -0.5))",
    ],
    any: &[],
    conditions: &["scalar(eps)"],
    build: |m| {
        let x = m.value("x")?;
        let shape = x.shape();
        let n = last_dimensions(m, "v", shape.len())?;
        if reduced(m, "v").and_then(|id| squared(m, id)) != m.found.value("x") {
            return Err("it is not the mean of the squares of what is divided".into());
        }
        let over: Vec<Dim> = shape[shape.len() - n..].to_vec();
        Ok(x.op("aten.rms_norm", vec![over.into(), Arg::None, m.number("eps")?.into()]))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %p = aten.pow.Tensor_Scalar(%x, 2)
  %v = aten.mean.dim(%p, [-1], true)
  %e = aten.add.Tensor(%v, 1e-5)
  %s = aten.sqrt(%e)
  %y = aten.div.Tensor(%x, %s)
  return %y
}",
        "graph(%x: f32[2, 4]) {\n  %rms_norm = aten.rms_norm(%x, [4], none, 1e-5): f32[2, 4]\n  return %rms_norm \"y\"\n}",
    ),
};

/// `rms_norm(x)·w`.
pub static RMS_NORM_SCALE: RuleDef = RuleDef {
    name: "rms_norm_scale",
    doc: "A product with a constant behind an RMS norm without weight is its weight.",
    spellings: &["mul(n:rms_norm(x, _, none), shaped?(w))"],
    any: SHAPED,
    conditions: &["constant(w)", "single_use(n)"],
    build: |m| {
        let w = fitting(m, "n", "w")?;
        let pick = |p: &str| m.arg_of("n", p);
        Ok(m.value("x")?.op("aten.rms_norm", vec![pick("normalized_shape"), w.into(), pick("eps")]))
    },
    example: (
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %n = aten.rms_norm(%x, [4], none, 1e-5)
  %y = aten.mul.Tensor(%w, %n)
  return %y
}",
        "graph(%x: f32[2, 4]) {
  %w = param \"w\": f32[4]
  %rms_norm = aten.rms_norm(%x, [4], %w, 1e-5): f32[2, 4]
  return %rms_norm \"y\"
}",
    ),
};
