//! GELU, exact and by its tanh approximation.

use crate::raise::RuleDef;

/// `x/2·(1 + erf(x/√2))`.
pub static GELU: RuleDef = RuleDef {
    name: "gelu",
    doc: "x/2 · (1 + erf(x/√2)), the half anywhere.",
    spellings: &[
        "mul(mul(x, 0.5), add(erf(mul(x, 0.70710678118)), 1))",
        "mul(mul(x, 0.5), add(erf(div(x, 1.41421356237)), 1))",
        "mul(mul(x, add(erf(mul(x, 0.70710678118)), 1)), 0.5)",
        "mul(mul(x, add(erf(div(x, 1.41421356237)), 1)), 0.5)",
        "mul(x, mul(add(erf(mul(x, 0.70710678118)), 1), 0.5))",
        "mul(x, mul(add(erf(div(x, 1.41421356237)), 1), 0.5))",
        "div(mul(x, add(erf(div(x, 1.41421356237)), 1)), 2)",
        "div(mul(x, add(erf(mul(x, 0.70710678118)), 1)), 2)",
    ],
    any: &[],
    conditions: &["floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.gelu", vec![])),
    example: (
        "graph(%x: f32[2]) {
  %d = aten.div.Tensor(%x, 1.4142135381698608)
  %e = aten.erf(%d)
  %a = aten.add.Tensor(%e, 1)
  %m = aten.mul.Tensor(%x, %a)
  %y = aten.mul.Tensor(%m, 0.5)
  return %y
}",
        "graph(%x: f32[2]) {\n  %gelu = aten.gelu(%x): f32[2]\n  return %gelu \"y\"\n}",
    ),
};

/// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
pub static GELU_TANH: RuleDef = RuleDef {
    name: "gelu_tanh",
    doc: "x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))), the half anywhere.",
    spellings: &[
        "mul(mul(x, 0.5), add(tanh(mul(add(x, mul(pow(x, 3), 0.044715)), 0.79788456080)), 1))",
        "mul(mul(x, add(tanh(mul(add(x, mul(pow(x, 3), 0.044715)), 0.79788456080)), 1)), 0.5)",
        "mul(mul(x, 0.5), add(tanh(mul(add(x, mul(mul(s:mul(x, x), x), 0.044715)), 0.79788456080)), 1))",
        "mul(mul(x, add(tanh(mul(add(x, mul(mul(s:mul(x, x), x), 0.044715)), 0.79788456080)), 1)), 0.5)",
    ],
    any: &[],
    conditions: &["floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.gelu", vec!["tanh".into()])),
    example: (
        "graph(%x: f32[2]) {
  %p = aten.pow.Tensor_Scalar(%x, 3)
  %k = aten.mul.Tensor(%p, 0.044715)
  %a = aten.add.Tensor(%x, %k)
  %s = aten.mul.Tensor(%a, 0.7978845608028654)
  %t = aten.tanh(%s)
  %o = aten.add.Tensor(%t, 1)
  %h = aten.mul.Tensor(%x, 0.5)
  %y = aten.mul.Tensor(%h, %o)
  return %y
}",
        "graph(%x: f32[2]) {\n  %gelu = aten.gelu(%x, \"tanh\"): f32[2]\n  return %gelu \"y\"\n}",
    ),
};
