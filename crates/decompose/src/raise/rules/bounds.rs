//! Clamps: one bound at 0 is `relu`, two bounds are `hardtanh`, clamps of clamps are one.

use crate::raise::RuleDef;
use cleave_ir::{Arg, Value};
use cleave_rewrite::Bound;

/// Numbers from here on do not bound an f32.
const NO_BOUND: f64 = 3.4e38;

/// The lower and the upper bound, where there is one.
type Bounds = (Option<f64>, Option<f64>);

/// The bounds of the call with this label; bounds that hold back nothing are left out.
fn bounds(m: &Bound<'_, '_>, label: &str) -> Result<Bounds, String> {
    let get = |names: [&str; 2]| {
        for name in names {
            match m.arg_of(label, name) {
                Arg::Int(i) => return Ok(Some(i as f64)),
                Arg::Float(f) => return Ok(Some(f)),
                Arg::Node(_) => return Err("its bounds are tensors".to_string()),
                _ => {}
            }
        }
        Ok(None)
    };
    let low = get(["min", "min_val"])?.filter(|v| *v > -NO_BOUND);
    let high = get(["max", "max_val"])?.filter(|v| *v < NO_BOUND);
    Ok((low, high))
}

/// What holds values between these bounds: nothing, `relu`, `hardtanh` or a clamp with one bound.
fn held<'b>(m: &Bound<'b, '_>, low: Option<f64>, high: Option<f64>) -> Result<Value<'b>, String> {
    let x = m.value("x")?;
    if m.root().meta.as_tensor().is_some_and(|t| t.dtype != x.dtype()) {
        return Err("its bounds change the type".into());
    }
    let float = x.dtype().is_float();
    match (low, high) {
        (Some(l), Some(h)) if l > h => Err(format!("bounds {l} and {h} are the wrong way round")),
        (None, None) => Ok(x),
        (Some(0.0), None) => Ok(x.relu()),
        (Some(l), Some(h)) if float => Ok(x.op("aten.hardtanh", vec![l.into(), h.into()])),
        _ => Err("there is no simpler form".into()),
    }
}

/// `clamp(x, 0)` is `relu(x)`; bounds that hold back nothing go.
pub static RELU: RuleDef = RuleDef {
    name: "relu",
    doc: "A clamp from 0 on is relu; one without bounds is the value itself.",
    spellings: &["clamp(x)"],
    any: &[],
    conditions: &[],
    build: |m| match bounds(m, "clamp")? {
        (Some(_), Some(_)) => Err("it has two bounds".into()),
        (low, high) => held(m, low, high),
    },
    example: (
        "graph(%x: f32[2]) {\n %zero = const \"zero\": f32[]\n %y = aten.maximum(%x, %zero)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %relu = aten.relu(%x): f32[2]\n  return %relu \"y\"\n}",
    ),
};

/// `clamp(x, a, b)` is `hardtanh(x, a, b)`.
pub static HARDTANH: RuleDef = RuleDef {
    name: "hardtanh",
    doc: "A clamp of floats with two bounds is hardtanh; ReLU6 is hardtanh(0, 6).",
    spellings: &["clamp(x)"],
    any: &[],
    conditions: &[],
    build: |m| match bounds(m, "clamp")? {
        (Some(l), Some(h)) => held(m, Some(l), Some(h)),
        _ => Err("it has one bound".into()),
    },
    example: (
        "graph(%x: f32[2]) {\n %y = aten.clamp(%x, 0, 6)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %hardtanh = aten.hardtanh(%x, 0.0, 6.0): f32[2]\n  return %hardtanh \"y\"\n}",
    ),
};

/// Both clamps as one: the inner bounds, held between the outer ones.
fn joined<'b>(m: &Bound<'b, '_>, inner: Bounds, outer: Bounds) -> Result<Value<'b>, String> {
    let within = |v: f64| v.max(outer.0.unwrap_or(f64::NEG_INFINITY)).min(outer.1.unwrap_or(f64::INFINITY));
    let low = inner.0.map(within).or(outer.0);
    let high = inner.1.map(within).or(outer.1);
    held(m, low, high)
}

/// `clamp(relu(x), b)`.
pub static CLAMP_OF_RELU: RuleDef = RuleDef {
    name: "clamp_of_relu",
    doc: "A clamp of relu is one clamp.",
    spellings: &["c:clamp(relu(x))", "c:hardtanh(relu(x))"],
    any: &[],
    conditions: &[],
    build: |m| joined(m, (Some(0.0), None), bounds(m, "c")?),
    example: (
        "graph(%x: f32[2]) {\n %r = aten.relu(%x)\n %y = aten.clamp(%r, none, 6)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %hardtanh = aten.hardtanh(%x, 0.0, 6.0): f32[2]\n  return %hardtanh \"y\"\n}",
    ),
};

/// `relu(clamp(x, a, b))`.
pub static RELU_OF_CLAMP: RuleDef = RuleDef {
    name: "relu_of_clamp",
    doc: "Relu of a clamp is one clamp.",
    spellings: &["relu(c:clamp(x))", "relu(c:hardtanh(x))"],
    any: &[],
    conditions: &[],
    build: |m| joined(m, bounds(m, "c")?, (Some(0.0), None)),
    example: (
        "graph(%x: f32[2]) {\n %c = aten.clamp(%x, -1, 6)\n %y = aten.relu(%c)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %hardtanh = aten.hardtanh(%x, 0.0, 6.0): f32[2]\n  return %hardtanh \"y\"\n}",
    ),
};

/// `clamp(clamp(x, …), …)`.
pub static CLAMP_OF_CLAMP: RuleDef = RuleDef {
    name: "clamp_of_clamp",
    doc: "A clamp of a clamp is one clamp.",
    spellings: &[
        "o:clamp(i:clamp(x))",
        "o:clamp(i:hardtanh(x))",
        "o:hardtanh(i:clamp(x))",
        "o:hardtanh(i:hardtanh(x))",
    ],
    any: &[],
    conditions: &[],
    build: |m| joined(m, bounds(m, "i")?, bounds(m, "o")?),
    example: (
        "graph(%x: f32[2]) {\n %c = aten.clamp(%x, 1)\n %y = aten.clamp(%c, none, 6)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %hardtanh = aten.hardtanh(%x, 1.0, 6.0): f32[2]\n  return %hardtanh \"y\"\n}",
    ),
};
