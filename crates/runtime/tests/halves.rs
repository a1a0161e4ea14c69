//! Constants of half-precision numbers that are widened to f32: what they are computed with, and by which kernels.

mod common;

use cleave_ir::{ConstKind, Graph, Tensor, text, transform};
use cleave_numerics::DType;
use cleave_runtime::{Options, Session};
use common::{Random, check_float, kernels, sessions};
use half::f16;

/// Parses a graph and fills its constants, those of f16 with halves.
fn graph(src: &str) -> Graph {
    let mut g = text::parse(src).expect("a graph");
    let mut r = Random::new(3);
    let wanted: Vec<_> = g
        .nodes()
        .filter(|(id, n)| n.op().is_none() && g.tensor_meta(*id).is_ok() && !n.target.is_empty())
        .map(|(id, n)| (n.target.clone(), g.tensor_meta(id).expect("a tensor").clone()))
        .filter(|(_, m)| m.shape.iter().all(|d| d.as_const().is_some()))
        .collect();
    for (name, meta) in wanted {
        let shape: Vec<usize> = meta.shape.iter().map(|d| d.as_const().expect("a number") as usize).collect();
        let t = r.floats(&shape, 0.5);
        let half = || Tensor::new(&shape, t.to_f32().iter().map(|v| f16::from_f32(*v)).collect());
        g.constants.insert(name, if meta.dtype == DType::F16 { half() } else { t.clone() });
    }
    g
}

/// The graph with f32 constants in the place of casts of halves.
fn widened(g: &Graph) -> Graph {
    transform::transform(g, |b, _, node, _| {
        let source = node.args.first().and_then(|a| a.nodes().first().copied()).and_then(|n| g.constant(n));
        match source.filter(|t| t.dtype() == DType::F16) {
            Some(t) => {
                let wide = Tensor::new(t.shape(), t.to_f32().into_owned());
                Ok(transform::Replace::With(vec![b.constant("wide", ConstKind::Param, wide)]))
            }
            None => Ok(transform::Replace::Copy),
        }
    })
    .expect("a graph")
}

/// Holds a graph to the reference, and to the bits of the graph of floats on every instruction set.
fn check(g: &Graph, inputs: &[Tensor]) {
    check_float(g, inputs, 1e-5);
    for (mut a, mut b) in sessions(g).into_iter().zip(sessions(&widened(g))) {
        assert_eq!(a.run(inputs).expect("a run"), b.run(inputs).expect("a run"));
    }
}

#[test]
fn layers_take_halves_as_they_are() {
    let g = graph(
        "graph(%x: f32[2, 6, 9, 9]) {
  %w = param \"w\": f16[16, 6, 3, 3]
  %b = param \"b\": f32[16]
  %d = param \"d\": f16[16, 1, 3, 3]
  %t = param \"t\": f16[16, 5, 2, 2]
  %l = param \"l\": f16[7, 5]
  %wf = aten._to_copy(%w, f32): f32[16, 6, 3, 3]
  %df = aten._to_copy(%d, f32): f32[16, 1, 3, 3]
  %tf = aten._to_copy(%t, f32): f32[16, 5, 2, 2]
  %lf = aten._to_copy(%l, f32): f32[7, 5]
  %conv = aten.conv2d(%x, %wf, %b, [1, 1], [1, 1]): f32[2, 16, 9, 9]
  %silu = aten.silu(%conv): f32[2, 16, 9, 9]
  %dw = aten.conv2d(%silu, %df, none, [2, 2], [1, 1], [1, 1], 16): f32[2, 16, 5, 5]
  %up = aten.conv_transpose2d.input(%dw, %tf, none, [2, 2]): f32[2, 5, 10, 10]
  %mean = aten.mean.dim(%up, [2, 3]): f32[2, 5]
  %y = aten.linear(%mean, %lf): f32[2, 7]
  return %y
}
",
    );
    let x = [Random::new(5).floats(&[2, 6, 9, 9], 2.0)];
    check(&g, &x);
    let names = kernels(&g, &x).join(" ");
    for name in ["conv2d_f32f16_silu", "dwconv2d_f32f16", "conv_transpose2d_f32f16", "linear_f32f16"] {
        assert!(names.contains(name), "{name}: {names}");
    }
    let plan = Session::new(&g, Options::default()).and_then(|mut s| s.plan(&[vec![2, 6, 9, 9]])).expect("a plan");
    assert_eq!(plan.constant_bytes, 0);
}

#[test]
fn factors_behind_halves_are_not_put_into_them() {
    let g = graph(
        "graph(%x: f32[1, 4, 8, 8]) {
  %w = param \"w\": f16[8, 4, 3, 3]
  %s = param \"s\": f32[8, 1, 1]
  %o = param \"o\": f32[8, 1, 1]
  %wf = aten._to_copy(%w, f32): f32[8, 4, 3, 3]
  %conv = aten.conv2d(%x, %wf): f32[1, 8, 6, 6]
  %plus = aten.add.Tensor(%conv, %o): f32[1, 8, 6, 6]
  %times = aten.mul.Tensor(%plus, %s): f32[1, 8, 6, 6]
  %relu = aten.relu(%times): f32[1, 8, 6, 6]
  return %relu
}
",
    );
    let x = [Random::new(5).floats(&[1, 4, 8, 8], 2.0)];
    check_float(&g, &x, 1e-5);
    assert_eq!(kernels(&g, &x), ["copy_0", "conv2d_f32f16_mul_relu_1"]);
}

#[test]
fn others_read_the_floats() {
    // A weight that is also added, a table that two read, and a convolution without a kernel.
    let g = graph(
        "graph(%x: f32[3, 4], %i: i64[5], %v: f32[1, 2, 4, 4, 4]) {
  %w = param \"w\": f16[3, 4]
  %t = param \"t\": f16[6, 4]
  %c = param \"c\": f16[2, 2, 3, 3, 3]
  %wf = aten._to_copy(%w, f32): f32[3, 4]
  %tf = aten._to_copy(%t, f32): f32[6, 4]
  %cf = aten._to_copy(%c, f32): f32[2, 2, 3, 3, 3]
  %sum = aten.add.Tensor(%x, %wf): f32[3, 4]
  %y = aten.linear(%sum, %wf): f32[3, 3]
  %e = aten.embedding(%tf, %i): f32[5, 4]
  %z = aten.linear(%e, %tf): f32[5, 6]
  %u = aten.conv3d(%v, %cf): f32[1, 2, 2, 2, 2]
  return %y, %z, %u
}
",
    );
    let mut r = Random::new(5);
    let i = Tensor::new(&[5], vec![0i64, 5, 2, 2, 1]);
    check(&g, &[r.floats(&[3, 4], 1.0), i, r.floats(&[1, 2, 4, 4, 4], 1.0)]);
}
