//! Normalizations by channels, as exporters spell them.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived, per_channel};
use cleave_ir::graph::{Arg, ConstKind};
use cleave_ir::{Class, Tensor, Value};
use cleave_numerics::DType;
use cleave_rewrite::Bound;

/// How many channels a captured tensor of floats has, and dimensions behind them.
fn channels(m: &Bound<'_, '_>, capture: &str) -> Result<(usize, usize), String> {
    let x = m.value(capture)?;
    let count = x.shape().get(1).and_then(|d| d.as_const()).and_then(|n| usize::try_from(n).ok());
    match count {
        Some(n) if x.rank() >= 3 && x.dtype() == DType::F32 => Ok((n, x.rank() - 2)),
        _ => Err(format!("{capture} is {}{:?}, expected channels of f32", x.dtype(), x.shape())),
    }
}

/// One number for each channel; a difference or a quotient is a sum or a product with others.
fn numbers(m: &Bound<'_, '_>, capture: &str, call: &str, count: usize, behind: usize) -> Result<Vec<f32>, String> {
    constant(m, capture)?;
    let mut v = per_channel(m, capture, count, behind)?;
    match m.node(call).and_then(|n| n.op()).map(|o| o.base()) {
        Some("sub") => v.iter_mut().for_each(|v| *v = -*v),
        Some("div") => v.iter_mut().for_each(|v| *v = 1.0 / *v),
        _ => {}
    }
    if v.iter().all(|v| v.is_finite()) { Ok(v) } else { Err(format!("{capture} is not finite")) }
}

/// `x·s + t` as a batch norm whose statistics change nothing.
fn norm<'b>(m: &Bound<'b, '_>, s: Vec<f32>, t: Vec<f32>) -> Value<'b> {
    let n = s.len();
    let all = |v: f32, name: &str| {
        m.b.constant(&format!("{}.{name}", m.root().name), ConstKind::Buffer, Tensor::new(&[n], vec![v; n]))
    };
    let weight = derived(m, "s", "as_weight", Tensor::new(&[n], s));
    let bias = derived(m, "t", "as_bias", Tensor::new(&[n], t));
    let x = m.b.value(m.mapped(m.found.value("x").unwrap_or(m.found.root)));
    let (mean, var) = (all(0.0, "mean"), all(1.0, "var"));
    let rest: [Arg; 4] = [false.into(), 0.1.into(), 0.0.into(), false.into()];
    x.op("aten.batch_norm", [vec![weight.into(), bias.into(), mean.into(), var.into()], rest.to_vec()].concat())
}

/// Factors and terms for each channel, one behind the other.
pub static AFFINE: RuleDef = RuleDef {
    name: "channel_affine",
    doc: "A constant factor and then a constant term for each channel are a batch norm; what centres and spreads the \
          channels before them belongs to it. Behind a convolution they belong to that.",
    spellings: &[
        "shift(scale(spread(centre(x, a), d), s), t)",
        "shift(scale(centre(x, a), s), t)",
        "shift(scale(x, s), t)",
    ],
    any: &[
        ("shift", &["add", "sub"]),
        ("scale", &["mul", "div"]),
        ("centre", &["add", "sub"]),
        ("spread", &["mul", "div"]),
    ],
    conditions: &["constant(s)", "constant(t)", "single_use(scale)", "not scalar(s)", "not scalar(t)"],
    build: |m| {
        let (count, behind) = channels(m, "x")?;
        // What stands before it may take it up itself.
        let class = |id| m.source.node(id).op().map(|o| o.class);
        let before = m.found.value("x").and_then(|id| match class(id) {
            Some(Class::View) => m.source.node(id).args.first()?.nodes().first().and_then(|n| class(*n)),
            class => class,
        });
        if matches!(before, Some(Class::Strategic | Class::Norm)) {
            return Err("it belongs to what stands before it".into());
        }
        let get = |capture: &str, call: &str, other: f32| match m.found.captures.contains_key(capture) {
            true => numbers(m, capture, call, count, behind),
            false => Ok(vec![other; count]),
        };
        let (a, d) = (get("a", "centre", 0.0)?, get("d", "spread", 1.0)?);
        let (s, t) = (get("s", "scale", 1.0)?, get("t", "shift", 0.0)?);
        let factors: Vec<f32> = s.iter().zip(&d).map(|(s, d)| s * d).collect();
        let terms = t.iter().zip(&a).zip(&factors).map(|((t, a), f)| t + a * f).collect();
        Ok(norm(m, factors, terms))
    },
    example: (
        "graph(%x: f32[N, 4, 8, 8]) {
  %s = param \"s\": f32[4, 1, 1]
  %t = param \"t\": f32[1, 4, 1, 1]
  %m = aten.mul.Tensor(%x, %s)
  %y = aten.add.Tensor(%m, %t)
  return %y
}",
        "graph(%x: f32[N, 4, 8, 8]) {
  %s_as_weight = param \"s.as_weight\": f32[4]
  %t_as_bias = param \"t.as_bias\": f32[4]
  %y_mean = buffer \"y.mean\": f32[4]
  %y_var = buffer \"y.var\": f32[4]
  %batch_norm = aten.batch_norm(%x, %s_as_weight, %t_as_bias, %y_mean, %y_var, false, 0.1, 0.0, false): f32[N, 4, 8, 8]
  return %batch_norm \"y\"
}",
    ),
};

/// Whether a captured constant is there and not full of this number.
fn says(m: &Bound<'_, '_>, capture: &str, neutral: f64) -> bool {
    match m.found.value(capture).map(|id| m.source.constant(id)) {
        Some(Some(t)) => t.to_f64().iter().any(|v| *v != neutral),
        other => other.is_some(),
    }
}

/// A group norm of a tensor whose groups were made channels.
pub static GROUPS: RuleDef = RuleDef {
    name: "group_norm_views",
    doc: "A group norm with one group a channel, of a tensor whose groups were folded into channels, is a group norm.",
    spellings: &["shaped(n:group_norm(folded(x), g, w?, b?))"],
    any: &[("shaped", &["aten.view", "reshape"]), ("folded", &["aten.view", "reshape"])],
    conditions: &["single_use(n)"],
    build: |m| {
        let x = m.value("x")?;
        let folded = m.node("folded").and_then(|n| n.meta.as_tensor()).map(|t| t.shape.clone()).unwrap_or_default();
        let groups = m.arg_of("n", "num_groups");
        let same = x.meta() == m.root().meta && x.rank() >= 3 && folded.first() == x.shape().first();
        if !same || folded.get(1).cloned().map(Arg::from) != Some(groups.clone()) {
            return Err(format!("{folded:?} is not {:?} in groups", x.shape()));
        }
        if says(m, "w", 1.0) || says(m, "b", 0.0) {
            return Err("its weight and bias are of groups".into());
        }
        Ok(x.op("aten.group_norm", vec![groups, Arg::None, Arg::None, m.arg_of("n", "eps")]))
    },
    example: (
        "graph(%x: f32[N, 4, 2, 2]) {
  %f = aten.view(%x, [<N>, 2, 8])
  %n = aten.group_norm(%f, 2)
  %y = aten.view(%n, [<N>, 4, 2, 2])
  return %y
}",
        "graph(%x: f32[N, 4, 2, 2]) {
  %group_norm = aten.group_norm(%x, 2): f32[N, 4, 2, 2]
  return %group_norm \"y\"
}",
    ),
};

fn flat<'b>(m: &Bound<'b, '_>, capture: &str) -> Result<Value<'b>, String> {
    let (count, behind) = channels(m, "x")?;
    constant(m, capture)?;
    Ok(derived(m, capture, "flat", Tensor::new(&[count], per_channel(m, capture, count, behind)?)))
}

/// `group_norm(x)·w`.
pub static GROUP_SCALE: RuleDef = RuleDef {
    name: "group_norm_scale",
    doc: "A product with a constant for each channel behind a group norm without weight is its weight.",
    spellings: &["mul(n:group_norm(x, g, none, none), w)"],
    any: &[],
    conditions: &["constant(w)", "single_use(n)", "not scalar(w)"],
    build: |m| {
        let w = flat(m, "w")?;
        Ok(m.value("x")?.op("aten.group_norm", vec![m.arg("g"), w.into(), Arg::None, m.arg_of("n", "eps")]))
    },
    example: (
        "graph(%x: f32[N, 4, 8, 8]) {
  %w = param \"w\": f32[4, 1, 1]
  %n = aten.group_norm(%x, 2)
  %y = aten.mul.Tensor(%n, %w)
  return %y
}",
        "graph(%x: f32[N, 4, 8, 8]) {
  %w_flat = param \"w.flat\": f32[4]
  %group_norm = aten.group_norm(%x, 2, %w_flat): f32[N, 4, 8, 8]
  return %group_norm \"y\"
}",
    ),
};

/// `group_norm(x, w) + b`.
pub static GROUP_SHIFT: RuleDef = RuleDef {
    name: "group_norm_shift",
    doc: "A sum with a constant for each channel behind a group norm without bias is its bias.",
    spellings: &["add(n:group_norm(x, g, w?, none), b)"],
    any: &[],
    conditions: &["constant(b)", "single_use(n)", "not scalar(b)"],
    build: |m| {
        let b = flat(m, "b")?;
        Ok(m.value("x")?.op("aten.group_norm", vec![m.arg("g"), m.arg("w"), b.into(), m.arg_of("n", "eps")]))
    },
    example: (
        "graph(%x: f32[N, 4, 8, 8]) {
  %w = param \"w\": f32[4]
  %b = param \"b\": f32[1, 4, 1, 1]
  %n = aten.group_norm(%x, 2, %w)
  %y = aten.add.Tensor(%n, %b)
  return %y
}",
        "graph(%x: f32[N, 4, 8, 8]) {
  %w = param \"w\": f32[4]
  %b_flat = param \"b.flat\": f32[4]
  %group_norm = aten.group_norm(%x, 2, %w, %b_flat): f32[N, 4, 8, 8]
  return %group_norm \"y\"
}",
    ),
};
