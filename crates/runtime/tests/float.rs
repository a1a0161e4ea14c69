//! Float graphs on the CPU backend against the reference interpreter.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_ir::Tensor;
use cleave_runtime::{Options, RuntimeError, Session};
use common::{Random, check_float, graph, kernels};

const RESIDUAL: &str = r#"graph(%x: f32[N, 3, 17, 15]) where 1 <= N {
  %w1 = param "w1": f32[8, 3, 3, 3]
  %b1 = param "b1": f32[8]
  %w2 = param "w2": f32[8, 8, 3, 3]
  %w3 = param "w3": f32[8, 1, 3, 3]
  %w4 = param "w4": f32[5, 8]
  %conv2d = aten.conv2d(%x, %w1, %b1, [2, 2], [1, 1]): f32[N, 8, 9, 8]
  %relu = aten.relu(%conv2d): f32[N, 8, 9, 8]
  %conv2d_1 = aten.conv2d(%relu, %w2, none, [1, 1], [1, 1]): f32[N, 8, 9, 8]
  %add = aten.add.Tensor(%conv2d_1, %relu): f32[N, 8, 9, 8]
  %hardswish = aten.hardswish(%add): f32[N, 8, 9, 8]
  %conv2d_2 = aten.conv2d(%hardswish, %w3, none, [1, 1], [1, 1], [1, 1], 8): f32[N, 8, 9, 8]
  %mean = aten.mean.dim(%conv2d_2, [2, 3], true): f32[N, 8, 1, 1]
  %sigmoid = aten.sigmoid(%mean): f32[N, 8, 1, 1]
  %mul = aten.mul.Tensor(%conv2d_2, %sigmoid): f32[N, 8, 9, 8]
  %pool = aten.adaptive_avg_pool2d(%mul, [1, 1]): f32[N, 8, 1, 1]
  %view = aten.view(%pool, [<N>, 8]): f32[N, 8]
  %linear = aten.linear(%view, %w4): f32[N, 5]
  return %linear "logits", %mul
}
"#;

#[test]
fn a_residual_network_fuses_and_matches() {
    let g = graph(RESIDUAL);
    for n in [1, 3] {
        check_float(&g, &[Random::new(n as u64).floats(&[n, 3, 17, 15], 2.0)], 1e-5);
    }
    let names = kernels(&g, &[Random::new(1).floats(&[2, 3, 17, 15], 1.0)]);
    assert!(names.iter().any(|n| n.starts_with("conv2d_f32_add_hardswish_")), "{names:?}");
    assert!(names.iter().any(|n| n.starts_with("conv2d_f32_relu_")), "{names:?}");
}

#[test]
fn views_and_joins_match() {
    let g = graph(
        r#"graph(%x: f32[2, 4, 6, 5]) {
  %w = param "w": f32[4, 4, 1, 1]
  %conv2d = aten.conv2d(%x, %w): f32[2, 4, 6, 5]
  %conv2d_1 = aten.conv2d(%conv2d, %w): f32[2, 4, 6, 5]
  %cat = aten.cat([%conv2d_1, %conv2d, %x], 1): f32[2, 12, 6, 5]
  %permute = aten.permute(%cat, [0, 2, 3, 1]): f32[2, 6, 5, 12]
  %view = aten.view(%permute, [2, 30, 12]): f32[2, 30, 12]
  %slice = aten.slice.Tensor(%view, 1, 3, 29, 2): f32[2, 13, 12]
  %flat = aten.view(%slice, [2, 156]): f32[2, 156]
  %pad = aten.constant_pad_nd(%cat, [1, 2, 0, 1], 0.5): f32[2, 12, 7, 8]
  %tanh = aten.tanh(%pad): f32[2, 12, 7, 8]
  return %flat, %tanh, %cat
}
"#,
    );
    check_float(&g, &[Random::new(3).floats(&[2, 4, 6, 5], 1.0)], 1e-5);
}

#[test]
fn padding_becomes_the_convolutions_own() {
    let g = graph(
        r#"graph(%x: f32[1, 3, 8, 8]) {
  %w = param "w": f32[6, 3, 3, 3]
  %pad = aten.constant_pad_nd(%x, [0, 1, 0, 1]): f32[1, 3, 9, 9]
  %conv2d = aten.conv2d(%pad, %w, none, [2, 2]): f32[1, 6, 4, 4]
  return %conv2d
}
"#,
    );
    let x = Random::new(4).floats(&[1, 3, 8, 8], 1.0);
    assert_eq!(kernels(&g, std::slice::from_ref(&x)), ["copy_0", "conv2d_f32_1"]);
    check_float(&g, &[x], 1e-5);
}

#[test]
fn chains_of_pointwise_ops_are_one_kernel() {
    let g = graph(
        r#"graph(%x: f32[2, 3, 4], %y: f32[4]) {
  %add = aten.add.Tensor(%x, %y, 2): f32[2, 3, 4]
  %mul = aten.mul.Tensor(%add, 0.5): f32[2, 3, 4]
  %tanh = aten.tanh(%mul): f32[2, 3, 4]
  %mul_1 = aten.mul.Tensor(%tanh, %add): f32[2, 3, 4]
  return %mul_1
}
"#,
    );
    let mut r = Random::new(5);
    let inputs = [r.floats(&[2, 3, 4], 1.0), r.floats(&[4], 1.0)];
    assert_eq!(kernels(&g, &inputs), ["poi_fused_add_mul_tanh_mul_0"]);
    check_float(&g, &inputs, 1e-6);
}

#[test]
fn taps_see_every_value_row_major() {
    let g = graph(RESIDUAL);
    let x = Random::new(9).floats(&[2, 3, 17, 15], 1.0);
    let taps: Vec<_> =
        ["x", "conv2d", "relu", "hardswish", "mean", "view"].iter().map(|n| g.find(n).unwrap()).collect();
    let (mut got, mut want) = (vec![], vec![]);
    let mut s = Session::new(&g, Options::default()).unwrap();
    let y = s.run_with_taps(std::slice::from_ref(&x), &taps, &mut |n, t| got.push((n, t.clone()))).unwrap();
    let r = cleave_runtime::reference::run_with_taps(&g, std::slice::from_ref(&x), &taps, &mut |n, t| {
        want.push((n, t.clone()))
    });
    assert_eq!(got.len(), 6);
    for ((n, a), (m, b)) in got.iter().zip(&want) {
        assert_eq!((n, a.shape()), (m, b.shape()));
        let close = a.to_f32().iter().zip(b.to_f32().iter()).all(|(x, y)| (x - y).abs() < 1e-5);
        assert!(close, "{}", g.node(*n).name);
    }
    assert_eq!((y.len(), r.unwrap().len()), (2, 2));
    assert_eq!(s.run(&[x]).unwrap(), y);
}

#[test]
fn wrong_inputs_are_named() {
    let g = graph(RESIDUAL);
    let mut s = Session::new(&g, Options::default()).unwrap();
    let text = |e: RuntimeError| e.to_string();
    let e = text(s.run(&[]).unwrap_err());
    assert!(e.contains("expected 1 inputs (x)"), "{e}");
    let e = text(s.run(&[Tensor::new(&[1, 3, 17, 14], vec![0f32; 714])]).unwrap_err());
    assert!(e.contains("'x'") && e.contains("[1, 3, 17, 14]"), "{e}");
    let e = text(s.run(&[Tensor::new(&[1, 3, 17, 15], vec![0u8; 765])]).unwrap_err());
    assert!(e.contains("expected f32, found u8"), "{e}");
}

#[test]
fn nan_goes_through_a_float_graph_and_is_refused_by_a_quantized_one() {
    let g = graph(
        r#"graph(%x: f32[1, 2, 6, 6]) {
  %w = param "w": f32[3, 2, 1, 1]
  %conv2d = aten.conv2d(%x, %w): f32[1, 3, 6, 6]
  %relu = aten.relu(%conv2d): f32[1, 3, 6, 6]
  %pool = aten.max_pool2d(%relu, [2, 2]): f32[1, 3, 3, 3]
  %clamp = aten.hardtanh(%pool, 0.0, 6.0): f32[1, 3, 3, 3]
  %amax = aten.amax(%clamp, [3]): f32[1, 3, 3]
  %softmax = aten.softmax.int(%amax, 2): f32[1, 3, 3]
  return %clamp, %amax, %softmax
}
"#,
    );
    let mut v: Vec<f32> = (0..72).map(|i| i as f32 / 50.0 - 0.7).collect();
    v[7] = f32::NAN;
    let x = Tensor::new(&[1, 2, 6, 6], v);
    let want = cleave_runtime::reference::run(&g, std::slice::from_ref(&x)).unwrap();
    let got = Session::new(&g, Options::default()).unwrap().run(std::slice::from_ref(&x)).unwrap();
    let missing = |t: &Tensor| t.to_f32().iter().map(|v| v.is_nan()).collect::<Vec<_>>();
    assert_eq!(got.iter().map(missing).collect::<Vec<_>>(), want.iter().map(missing).collect::<Vec<_>>());
    // The window, its row, and whoever shares a sum with it, in each of three channels.
    assert_eq!(got.iter().map(|t| missing(t).iter().filter(|m| **m).count()).collect::<Vec<_>>(), [3, 3, 9]);

    let g = graph(
        "graph(%x: f32[4]) {
  %q = quantized_decomposed.quantize_per_tensor(%x, 0.01, 128, 0, 255, u8): u8[4]
  %d = quantized_decomposed.dequantize_per_tensor(%q, 0.01, 128, 0, 255, u8): f32[4]
  return %d
}
",
    );
    let x = Tensor::new(&[4], vec![0.0, f32::INFINITY, f32::NAN, 1.0]);
    let e = Session::new(&g, Options::default()).unwrap().run(&[x]).unwrap_err().to_string();
    assert_eq!(e, "input 'x': expected numbers, found NaN at element 2");
}

#[test]
fn batch_norms_that_were_not_folded_go_into_the_weights() {
    let g = graph(
        r#"graph(%x: f32[2, 3, 6, 6]) {
  %w = param "w": f32[4, 3, 3, 3]
  %t = param "t": f32[4, 2, 2, 2]
  %gamma = param "gamma": f32[4]
  %beta = param "beta": f32[4]
  %mean = buffer "mean": f32[4]
  %var_scale = buffer "var_scale": f32[4]
  %conv2d = aten.conv2d(%x, %w, none, [1, 1], [1, 1]): f32[2, 4, 6, 6]
  %batch_norm = aten.batch_norm(%conv2d, %gamma, %beta, %mean, %var_scale, false, 0.1, 0.01, true): f32[2, 4, 6, 6]
  %relu = aten.relu(%batch_norm): f32[2, 4, 6, 6]
  %up = aten.conv_transpose2d.input(%relu, %t, none, [2, 2], [0, 0], [0, 0], 2): f32[2, 4, 12, 12]
  %sub = aten.sub.Tensor(%up, 0.25): f32[2, 4, 12, 12]
  %mul = aten.mul.Tensor(-2.0, %sub): f32[2, 4, 12, 12]
  return %mul
}
"#,
    );
    let x = [Random::new(12).floats(&[2, 3, 6, 6], 1.0)];
    check_float(&g, &x, 1e-5);
    assert_eq!(kernels(&g, &x), ["copy_0", "conv2d_f32_relu_1", "conv_transpose2d_f32_2"]);
}

#[test]
fn windows_without_elements_and_negative_divisors_match() {
    let empty = graph(
        "graph(%x: f32[5, 0, 5]) {\n  %u = aten.unbind.int(%x)\n  %y = getitem(%u, 1)\n  %z = getitem(%u, 4)\n  return %y, %z\n}\n",
    );
    for mut s in common::sessions(&empty) {
        let got = s.run(&[Tensor::new(&[5, 0, 5], Vec::<f32>::new())]).unwrap();
        assert!(got.iter().all(|t| t.shape() == [0, 5]));
    }
    let pool = graph(
        "graph(%x: f32[1, 1, 4, 4]) {\n  %y = aten.avg_pool2d(%x, [2, 2], [], [0, 0], false, true, -2)\n  return %y\n}\n",
    );
    check_float(&pool, &[Random::new(7).floats(&[1, 1, 4, 4], 3.0)], 1e-6);
}

#[test]
fn tensors_without_elements_are_taken_by_every_op() {
    let none: Vec<f32> = vec![];
    for (decl, shape, call) in [
        ("f32[0, 2, 4, 4]", vec![0, 2, 4, 4], "aten.constant_pad_nd(%x, [1, 1, 1, 1], 0.5)"),
        ("f32[2, 0]", vec![2, 0], "aten.constant_pad_nd(%x, [1, 2], 0.5)"),
        ("f32[0]", vec![0], "aten.cat([%x, %w], 1)"),
        ("f32[0, 3]", vec![0, 3], "aten.softmax.int(%x, 1)"),
        ("f32[3, 0]", vec![3, 0], "aten.sum.dim_IntList(%x, [1])"),
        ("f32[3, 0]", vec![3, 0], "aten.mean.dim(%x, [1], true)"),
        ("f32[0, 3]", vec![0, 3], "aten.linear(%x, %w)"),
        ("f32[2, 0]", vec![2, 0], "aten.mm(%x, %e)"),
        ("f32[0, 3, 4, 4]", vec![0, 3, 4, 4], "aten.max_pool2d(%x, [2, 2])"),
        ("f32[0, 3, 4, 4]", vec![0, 3, 4, 4], "aten.conv2d(%x, %k)"),
        ("f32[0, 3, 4, 4]", vec![0, 3, 4, 4], "aten.upsample_bilinear2d.vec(%x, [8, 8], false, none)"),
        ("f32[0, 3]", vec![0, 3], "aten.layer_norm(%x, [3])"),
        ("f32[0, 3]", vec![0, 3], "aten.gelu(%x)"),
    ] {
        let g = graph(&format!(
            "graph(%x: {decl}) {{\n  %w = param \"w\": f32[2, 3]\n  %e = param \"e\": f32[0, 3]\n  %k = param \"k\": f32[2, 3, 3, 3]\n  %y = {call}\n  return %y\n}}\n"
        ));
        check_float(&g, &[Tensor::new(&shape, none.clone())], 0.0);
    }
}
