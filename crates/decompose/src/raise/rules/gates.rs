//! Activations that gate their input: HardSigmoid, HardSwish, SiLU.

use crate::raise::RuleDef;

/// `clamp(x + 3, 0, 6)/6`, in ONNX also `clamp(x/6 + ½, 0, 1)`.
pub static HARDSIGMOID: RuleDef = RuleDef {
    name: "hardsigmoid",
    doc: "clamp(x + 3, 0, 6) / 6; another slope than 1/6 is not HardSigmoid as torch has it.",
    spellings: &[
        "div(hardtanh(add(x, 3), 0, 6), 6)",
        "mul(hardtanh(add(x, 3), 0, 6), 0.16666666666)",
        "hardtanh(add(mul(x, 0.16666666666), 0.5), 0, 1)",
        "hardtanh(add(div(x, 6), 0.5), 0, 1)",
        "hardtanh(div(add(x, 3), 6), 0, 1)",
    ],
    any: &[],
    conditions: &["floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.hardsigmoid", vec![])),
    example: (
        "graph(%x: f32[2]) {
  %a = aten.mul.Tensor(%x, 0.1666666716337204)
  %b = aten.add.Tensor(%a, 0.5)
  %y = aten.clamp(%b, 0, 1)
  return %y
}",
        "graph(%x: f32[2]) {\n  %hardsigmoid = aten.hardsigmoid(%x): f32[2]\n  return %hardsigmoid \"y\"\n}",
    ),
};

/// `x·hardsigmoid(x)`.
pub static HARDSWISH: RuleDef = RuleDef {
    name: "hardswish",
    doc: "x · clamp(x + 3, 0, 6) / 6, the division anywhere.",
    spellings: &[
        "mul(x, hardsigmoid(x))",
        "div(mul(x, hardtanh(add(x, 3), 0, 6)), 6)",
        "mul(mul(x, hardtanh(add(x, 3), 0, 6)), 0.16666666666)",
        "mul(div(x, 6), hardtanh(add(x, 3), 0, 6))",
        "mul(mul(x, 0.16666666666), hardtanh(add(x, 3), 0, 6))",
    ],
    any: &[],
    conditions: &["floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.hardswish", vec![])),
    example: (
        "graph(%x: f32[2]) {
  %a = aten.add.Tensor(%x, 3)
  %c = aten.clamp(%a, 0, 6)
  %m = aten.mul.Tensor(%c, %x)
  %y = aten.div.Tensor(%m, 6)
  return %y
}",
        "graph(%x: f32[2]) {\n  %hardswish = aten.hardswish(%x): f32[2]\n  return %hardswish \"y\"\n}",
    ),
};

/// `x·sigmoid(x)`.
pub static SILU: RuleDef = RuleDef {
    name: "silu",
    doc: "x · sigmoid(x).",
    spellings: &["mul(x, sigmoid(x))"],
    any: &[],
    conditions: &["floating(x)"],
    build: |m| Ok(m.value("x")?.op("aten.silu", vec![])),
    example: (
        "graph(%x: f32[2]) {
  %o = aten.mul.Tensor(%x, 1.0)
  %s = aten.sigmoid(%o)
  %y = aten.mul.Tensor(%s, %x)
  return %y
}",
        "graph(%x: f32[2]) {\n  %silu = aten.silu(%x): f32[2]\n  return %silu \"y\"\n}",
    ),
};
