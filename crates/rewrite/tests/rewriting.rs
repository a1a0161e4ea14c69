//! The driver: rules fire until none does, and the trace tells of it.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Arg, Graph, Levels, Origin, text, verify};
use cleave_rewrite::{Alternatives, Pattern, Rule, rewrite};

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text, &Alternatives::new()).unwrap()
}

fn rules() -> Vec<Rule> {
    vec![
        Rule::new("silu", pattern("mul(x, s:sigmoid(x))"), |m| Ok(m.value("x")?.op("aten.silu", vec![]))),
        Rule::new("clamp_is_relu", pattern("clamp(x, 0, none)"), |m| Ok(m.value("x")?.relu())),
        Rule::new("double", pattern("add(x, x)"), |m| Ok(m.value("x")? * 2.0)),
        Rule::new("scale_twice", pattern("mul(mul(x, a), b)"), |m| {
            let product = m.number("a")? * m.number("b")?;
            if product > 100.0 { Err(format!("the product is {product}")) } else { Ok(m.value("x")? * product) }
        }),
    ]
}

fn run(text_in: &str) -> (String, cleave_rewrite::Trace) {
    let g = text::parse(text_in).unwrap();
    let before = g.to_string();
    let (out, trace) = rewrite(&g, &rules().iter().collect::<Vec<_>>()).unwrap();
    verify::verify(&out, Levels::ALL).unwrap();
    assert_eq!(g.to_string(), before, "the source is left alone");
    (out.to_string(), trace)
}

#[test]
fn rules_fire_until_none_does() {
    let (out, trace) = run("graph(%x: f32[4]) {
  %sigmoid = aten.sigmoid(%x): f32[4]
  %mul = aten.mul.Tensor(%x, %sigmoid): f32[4]
  %clamp = aten.clamp(%mul, 0.0): f32[4]
  %mul_1 = aten.mul.Tensor(%clamp, 4.0): f32[4]
  %add = aten.add.Tensor(%mul_1, %mul_1): f32[4]
  return %add
}
");
    assert_eq!(
        out,
        "graph(%x: f32[4]) {
  %silu = aten.silu(%x): f32[4]
  %relu = aten.relu(%silu): f32[4]
  %mul = aten.mul.Tensor(%relu, 8.0): f32[4]
  return %mul \"add\"
}
"
    );
    let fired: Vec<&str> = trace.applied.iter().map(|a| a.rule.as_str()).collect();
    assert_eq!(fired, ["silu", "clamp_is_relu", "double", "scale_twice"]);
    assert_eq!(trace.applied[0].nodes, ["sigmoid", "mul"]);
    assert_eq!(trace.applied[0].into, "silu");
}

#[test]
fn what_is_used_elsewhere_stays() {
    let (out, _) = run("graph(%x: f32[4]) {
  %sigmoid = aten.sigmoid(%x): f32[4]
  %mul = aten.mul.Tensor(%sigmoid, %x): f32[4]
  return %mul, %sigmoid
}
");
    assert!(out.contains("%silu = aten.silu(%x)") && out.contains("return %silu \"mul\", %sigmoid"), "{out}");
}

#[test]
fn declining_is_data() {
    let (out, trace) = run("graph(%x: f32[4]) {
  %mul = aten.mul.Tensor(%x, 20.0): f32[4]
  %mul_1 = aten.mul.Tensor(%mul, 20.0): f32[4]
  return %mul_1
}
");
    assert!(out.contains("%mul_1 = aten.mul.Tensor(%mul, 20.0)"), "{out}");
    let d = trace.declined.iter().find(|d| d.step == "replacement").unwrap();
    assert_eq!((d.rule.as_str(), d.node.as_str(), d.why.as_str()), ("scale_twice", "mul_1", "the product is 400"));
}

#[test]
fn origins_are_joined() {
    let mut g: Graph = text::parse(
        "graph(%x: f32[4]) {
  %sigmoid = aten.sigmoid(%x): f32[4]
  %mul = aten.mul.Tensor(%x, %sigmoid): f32[4]
  return %mul
}
",
    )
    .unwrap();
    for (n, module) in [("sigmoid", "net.act.gate"), ("mul", "net.act")] {
        let id = g.find(n).unwrap();
        g.set_origin(id, Origin { sources: vec![n.into()], module: module.into() });
    }
    let (out, _) = rewrite(&g, &rules().iter().collect::<Vec<_>>()).unwrap();
    let silu = out.node(out.find("silu").unwrap());
    assert_eq!(silu.origin, Origin { sources: vec!["sigmoid".into(), "mul".into()], module: "net.act".into() });
    assert_eq!(silu.args, [Arg::Node(out.find("x").unwrap())]);
}
