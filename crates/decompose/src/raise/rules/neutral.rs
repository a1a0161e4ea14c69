//! Arithmetic that changes nothing.

use crate::raise::RuleDef;
use cleave_ir::Value;
use cleave_rewrite::Bound;

fn itself<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let x = m.value("x")?;
    if x.meta() != m.root().meta {
        return Err("the arithmetic changes shape or type".into());
    }
    Ok(x)
}

/// `x·1 = x/1 = x`.
pub static TIMES_ONE: RuleDef = RuleDef {
    name: "times_one",
    doc: "A product with 1 or a quotient by 1 is the value itself.",
    spellings: &["mul(x, 1)", "div(x, 1)"],
    any: &[],
    conditions: &[],
    build: itself,
    example: (
        "graph(%x: f32[2]) {\n %m = aten.mul.Tensor(%x, 1.0)\n %y = aten.neg(%m)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %y = aten.neg(%x): f32[2]\n  return %y\n}",
    ),
};

/// `x + 0 = x - 0 = x`.
pub static PLUS_ZERO: RuleDef = RuleDef {
    name: "plus_zero",
    doc: "A sum with 0 or a difference from 0 is the value itself.",
    spellings: &["add(x, 0)", "sub(x, 0)"],
    any: &[],
    conditions: &[],
    build: itself,
    example: (
        "graph(%x: f32[2]) {\n %m = aten.sub.Tensor(%x, 0)\n %y = aten.neg(%m)\n return %y\n}",
        "graph(%x: f32[2]) {\n  %y = aten.neg(%x): f32[2]\n  return %y\n}",
    ),
};
