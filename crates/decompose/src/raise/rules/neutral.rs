//! Arithmetic that changes nothing.

use crate::raise::RuleDef;
use cleave_ir::{Arg, Value, strides};
use cleave_rewrite::Bound;

fn itself<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let x = m.value("x")?;
    if m.root().arg("rounding_mode").is_some_and(|a| *a != Arg::None) {
        return Err("the quotient is rounded".into());
    }
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

/// `expand` to the sizes that a tensor has.
pub static SAME_SIZES: RuleDef = RuleDef {
    name: "same_sizes",
    doc: "A tensor expanded to the sizes that it has is the tensor itself.",
    spellings: &["expand(x, _)"],
    any: &[],
    conditions: &[],
    build: itself,
    example: (
        "graph(%x: f32[1, 8]) {\n %s = aten.expand(%x, [1, -1])\n %y = aten.neg(%s)\n return %y\n}",
        "graph(%x: f32[1, 8]) {\n  %y = aten.neg(%x): f32[1, 8]\n  return %y\n}",
    ),
};

/// A strided window that is the whole tensor in row-major order.
pub static SAME_STRIDES: RuleDef = RuleDef {
    name: "same_strides",
    doc: "A strided window that shows all elements of a tensor in row-major order is the tensor itself.",
    spellings: &["a:as_strided(x)"],
    any: &[],
    conditions: &[],
    build: |m| {
        let x = m.value("x")?;
        let shape = x.shape();
        let asked = |name: &str| match m.arg_of("a", name) {
            Arg::List(l) => l,
            _ => vec![],
        };
        let sizes: Vec<Arg> = shape.iter().cloned().map(Arg::from).collect();
        let whole = matches!(m.arg_of("a", "storage_offset"), Arg::None | Arg::Int(0)) && asked("size") == sizes;
        let strides = asked("stride");
        let rows = strides::contiguous(&shape);
        let same = rows.into_iter().zip(&strides).zip(&shape).all(|((r, s), n)| n.is(1) || Arg::from(r) == *s);
        if whole && same { itself(m) } else { Err("the window shows something else".into()) }
    },
    example: (
        "graph(%x: f32[1, 8, 1, 1]) {\n %s = aten.as_strided(%x, [1, 8, 1, 1], [8, 1, 8, 8])\n %y = aten.neg(%s)\n return %y\n}",
        "graph(%x: f32[1, 8, 1, 1]) {\n  %y = aten.neg(%x): f32[1, 8, 1, 1]\n  return %y\n}",
    ),
};
