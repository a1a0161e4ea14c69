//! Products with constant matrices are linear layers.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived};
use cleave_ir::Value;
use cleave_ir::graph::Arg;
use cleave_rewrite::Bound;

/// The weight `[out, in]` of a product with the captured constant `[in, out]`: a strided window on it.
fn transposed<'b>(m: &Bound<'b, '_>, capture: &str) -> Result<Value<'b>, String> {
    let t = constant(m, capture)?;
    if t.shape().len() != 2 {
        return Err(format!("{capture} of shape {:?} is no matrix", t.shape()));
    }
    Ok(derived(m, capture, "t", t.permute(&[1, 0])))
}

/// `w` where the pattern saw `permute(w, [1, 0])`, else the captured matrix transposed.
fn weight<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    if m.found.node("p").is_none() {
        return transposed(m, "w");
    }
    constant(m, "w")?;
    m.value("w")
}

/// `x·w` with a constant matrix.
pub static MM: RuleDef = RuleDef {
    name: "mm_linear",
    doc: "mm with a constant matrix, transposed or not.",
    spellings: &["mm(x, p:permute(w, [1, 0]))", "mm(x, p:t(w))", "mm(x, p:transpose(w, 0, 1))", "mm(x, w)"],
    any: &[],
    conditions: &["constant(w)"],
    build: |m| Ok(m.value("x")?.op("aten.linear", vec![weight(m)?.into()])),
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f32[4, 3]
  %p = aten.permute(%w, [1, 0])
  %y = aten.mm(%x, %p)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f32[4, 3]
  %linear = aten.linear(%x, %w): f32[2, 4]
  return %linear \"y\"
}",
    ),
};

/// `b + x·w` with a constant matrix and a constant vector.
pub static ADDMM: RuleDef = RuleDef {
    name: "addmm_linear",
    doc: "addmm with a constant vector and a constant matrix, transposed or not.",
    spellings: &[
        "addmm(b, x, p:permute(w, [1, 0]))",
        "addmm(b, x, p:t(w))",
        "addmm(b, x, p:transpose(w, 0, 1))",
        "addmm(b, x, w)",
    ],
    any: &[],
    conditions: &["constant(w)", "constant(b)", "rank(b) == 1"],
    build: |m| {
        let (w, b) = (weight(m)?, m.value("b")?);
        if b.shape().first() != w.shape().first() {
            return Err(format!("a bias of shape {:?} for {:?}", b.shape(), w.shape()));
        }
        Ok(m.value("x")?.op("aten.linear", vec![w.into(), b.into()]))
    },
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f32[3, 4]
  %b = param \"b\": f32[4]
  %y = aten.addmm(%b, %x, %w)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %b = param \"b\": f32[4]
  %w_t = param \"w.t\": f32[4, 3]
  %linear = aten.linear(%x, %w_t, %b): f32[2, 4]
  return %linear \"y\"
}",
    ),
};

/// `matmul(x, w)` with a constant matrix.
pub static MATMUL: RuleDef = RuleDef {
    name: "matmul_linear",
    doc: "matmul with a constant matrix on the right, transposed or not.",
    spellings: &[
        "matmul(x, p:permute(w, [1, 0]))",
        "matmul(x, expand(p:permute(w, [1, 0])))",
        "matmul(x, p:t(w))",
        "matmul(x, p:transpose(w, 0, 1))",
        "matmul(x, p:transpose(w, -2, -1))",
        "matmul(x, p:transpose(w, -1, -2))",
        "matmul(x, w)",
    ],
    any: &[],
    conditions: &["constant(w)", "rank(w) == 2", "rank(x) > 1"],
    build: |m| Ok(m.value("x")?.op("aten.linear", vec![weight(m)?.into()])),
    example: (
        "graph(%x: f32[2, 5, 3]) {
  %w = param \"w\": f32[3, 4]
  %y = aten.matmul(%x, %w)
  return %y
}",
        "graph(%x: f32[2, 5, 3]) {
  %w_t = param \"w.t\": f32[4, 3]
  %linear = aten.linear(%x, %w_t): f32[2, 5, 4]
  return %linear \"y\"
}",
    ),
};

/// `matmul(x, dequantize(q))` with constant levels.
pub static MATMUL_LEVELS: RuleDef = RuleDef {
    name: "matmul_levels_linear",
    doc: "matmul with the constant levels of a matrix, dequantized: a linear layer of the levels transposed.",
    spellings: &["matmul(x, d:dequantize_per_tensor(w))", "matmul(x, d:dequantize_per_channel(w))"],
    any: &[],
    conditions: &["constant(w)", "rank(w) == 2", "rank(x) > 1"],
    build: |m| {
        let op = m.node("d").and_then(|n| n.op()).ok_or("no dequantize")?;
        let (x, w) = (m.value("x")?, transposed(m, "w")?);
        let args = op.schema.params.iter().map(|p| match (p.name.as_str(), m.arg_of("d", &p.name)) {
            ("input", _) => Arg::from(w),
            ("axis", Arg::Int(axis)) => Arg::Int(1 - axis.rem_euclid(2)),
            (_, arg) => arg,
        });
        Ok(x.op("aten.linear", vec![m.b.call_op(op, args.collect(), None).into()]))
    },
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": i8[3, 4]
  %d = quantized_decomposed.dequantize_per_tensor(%w, 0.5, 0, -128, 127, i8)
  %y = aten.matmul(%x, %d)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %w_t = param \"w.t\": i8[4, 3]
  %dequantize_per_tensor = quantized_decomposed.dequantize_per_tensor(%w_t, 0.5, 0, -128, 127, i8): f32[4, 3]
  %linear = aten.linear(%x, %dequantize_per_tensor): f32[2, 4]
  return %linear \"y\"
}",
    ),
};

/// `linear(x, w) + b`.
pub static BIAS: RuleDef = RuleDef {
    name: "linear_bias",
    doc: "A sum with a constant vector behind a linear layer without bias is its bias.",
    spellings: &["add(linear(x, w, none), b)"],
    any: &[],
    conditions: &["constant(b)", "single_use(linear)", "rank(b) == 1"],
    build: |m| {
        let (w, b) = (m.value("w")?, m.value("b")?);
        if b.shape().first() != w.shape().first() {
            return Err(format!("a bias of shape {:?} for {:?}", b.shape(), w.shape()));
        }
        Ok(m.value("x")?.op("aten.linear", vec![w.into(), b.into()]))
    },
    example: (
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f32[4, 3]
  %b = param \"b\": f32[4]
  %l = aten.linear(%x, %w)
  %y = aten.add.Tensor(%b, %l)
  return %y
}",
        "graph(%x: f32[2, 3]) {
  %w = param \"w\": f32[4, 3]
  %b = param \"b\": f32[4]
  %linear = aten.linear(%x, %w, %b): f32[2, 4]
  return %linear \"y\"
}",
    ),
};

/// Ops that give elements another shape and leave their order.
const SHAPED: &[&str] = &["aten.view", "reshape", "_unsafe_view", "flatten", "squeeze", "unsqueeze"];

/// A linear layer between views that fold and unfold the leading dimensions.
pub static VIEWS: RuleDef = RuleDef {
    name: "linear_views",
    doc: "A linear layer on rows, between views that fold the leading dimensions and unfold them again.",
    spellings: &["unfolded(linear(folded(x), w, b?))"],
    any: &[("unfolded", SHAPED), ("folded", SHAPED)],
    conditions: &["single_use(linear)"],
    build: |m| {
        let x = m.value("x")?;
        let shape = x.shape();
        let w = m.value("w")?.shape();
        let want = m.root().meta.as_tensor().map(|t| t.shape.clone()).unwrap_or_default();
        let lead = shape.len().saturating_sub(1);
        let fits = shape.last().is_some() && shape.last() == w.get(1) && want.len() == shape.len();
        if !fits || want[..lead] != shape[..lead] {
            return Err(format!("{shape:?} is not what becomes {want:?}"));
        }
        let rest: [Arg; 2] = [m.arg("w"), m.arg("b")];
        Ok(x.op("aten.linear", rest.to_vec()))
    },
    example: (
        "graph(%x: f32[N, 5, 3]) {
  %w = param \"w\": f32[4, 3]
  %v = aten.view(%x, [<5*N>, 3])
  %l = aten.linear(%v, %w)
  %y = aten.view(%l, [<N>, 5, 4])
  return %y
}",
        "graph(%x: f32[N, 5, 3]) {
  %w = param \"w\": f32[4, 3]
  %linear = aten.linear(%x, %w): f32[N, 5, 4]
  return %linear \"y\"
}",
    ),
};
