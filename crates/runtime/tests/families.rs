//! Pooling, norms, products, resizing and what falls back, against the reference interpreter.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_ir::Tensor;
use cleave_runtime::{Options, Session};
use common::{Random, check_float, check_quantized, graph, kernels};

#[test]
fn pools_of_all_kinds_match() {
    let g = graph(
        r#"graph(%x: f32[2, 5, 11, 9]) {
  %tanh = aten.tanh(%x): f32[2, 5, 11, 9]
  %max = aten.max_pool2d(%tanh, [3, 3], [2, 2], [1, 1], [1, 1], true): f32[2, 5, 6, 5]
  %avg = aten.avg_pool2d(%tanh, [3, 2], [2, 2], [1, 1], true, false): f32[2, 5, 6, 5]
  %pad = aten.avg_pool2d(%tanh, [3, 3], [1, 1], [1, 1]): f32[2, 5, 11, 9]
  %ada = aten.adaptive_avg_pool2d(%tanh, [4, 3]): f32[2, 5, 4, 3]
  %mean = aten.mean.dim(%tanh, [-1, -2]): f32[2, 5]
  return %max, %avg, %pad, %ada, %mean
}
"#,
    );
    let x = [Random::new(1).floats(&[2, 5, 11, 9], 1.0)];
    check_float(&g, &x, 1e-5);
    assert!(kernels(&g, &x).iter().all(|k| !k.starts_with("reference")), "{:?}", kernels(&g, &x));
}

/// As files of operators on levels have it: no dequantize says what the bytes mean.
#[test]
fn the_greatest_of_bytes_are_those_of_the_interpreter() {
    let g = graph(
        r#"graph(%x: f32[2, 5, 11, 9], %y: u8[2, 5, 11, 9]) {
  %s = quantized_decomposed.quantize_per_tensor(%x, 0.01, -3, -128, 127, i8): i8[2, 5, 11, 9]
  %signed = aten.max_pool2d(%s, [3, 3], [2, 2], [1, 1], [1, 1], true): i8[2, 5, 6, 5]
  %both = aten.max_pool2d_with_indices(%y, [2, 3], [1, 2], [1, 1]): (u8[2, 5, 12, 5], i64[2, 5, 12, 5])
  %bytes = getitem(%both, 0): u8[2, 5, 12, 5]
  %again = aten.max_pool2d(%bytes, [2, 2], [2, 2]): u8[2, 5, 6, 2]
  %means = quantized_decomposed.dequantize_per_tensor(%again, 0.02, 7, 0, 255, u8): f32[2, 5, 6, 2]
  return %signed, %again, %means
}
"#,
    );
    let mut r = Random::new(4);
    let levels = (0..990).map(|_| (r.unit() * 127.0 + 128.0) as u8).collect();
    let x = [r.floats(&[2, 5, 11, 9], 1.5), Tensor::new::<u8>(&[2, 5, 11, 9], levels)];
    check_quantized(&g, &x, 1.0, 0.0);
    let names = kernels(&g, &x);
    assert_eq!(names.iter().filter(|n| n.starts_with("max_pool2d_u8")).count(), 3, "{names:?}");
    assert!(names.iter().all(|k| !k.starts_with("reference")), "{names:?}");
}

#[test]
fn attention_and_its_norms_match() {
    let g = graph(
        r#"graph(%x: f32[N, 7, 12]) where 1 <= N {
  %g = param "gamma": f32[12]
  %b = param "beta": f32[12]
  %w = param "w": f32[36, 12]
  %norm = aten.layer_norm(%x, [12], %g, %b): f32[N, 7, 12]
  %qkv = aten.linear(%norm, %w): f32[N, 7, 36]
  %split = aten.split_with_sizes(%qkv, [12, 12, 12], 2): (f32[N, 7, 12], f32[N, 7, 12], f32[N, 7, 12])
  %q = getitem(%split, 0): f32[N, 7, 12]
  %k = getitem(%split, 1): f32[N, 7, 12]
  %v = getitem(%split, 2): f32[N, 7, 12]
  %q1 = aten.view(%q, [<N>, 7, 3, 4]): f32[N, 7, 3, 4]
  %k1 = aten.view(%k, [<N>, 7, 3, 4]): f32[N, 7, 3, 4]
  %v1 = aten.view(%v, [<N>, 7, 3, 4]): f32[N, 7, 3, 4]
  %q2 = aten.permute(%q1, [0, 2, 1, 3]): f32[N, 3, 7, 4]
  %k2 = aten.permute(%k1, [0, 2, 3, 1]): f32[N, 3, 4, 7]
  %v2 = aten.permute(%v1, [0, 2, 1, 3]): f32[N, 3, 7, 4]
  %scores = aten.matmul(%q2, %k2): f32[N, 3, 7, 7]
  %scaled = aten.mul.Tensor(%scores, 0.5): f32[N, 3, 7, 7]
  %soft = aten.softmax.int(%scaled, -1): f32[N, 3, 7, 7]
  %mix = aten.matmul(%soft, %v2): f32[N, 3, 7, 4]
  %back = aten.permute(%mix, [0, 2, 1, 3]): f32[N, 7, 3, 4]
  %flat = aten.reshape(%back, [<N>, 7, 12]): f32[N, 7, 12]
  %add = aten.add.Tensor(%flat, %x): f32[N, 7, 12]
  %gelu = aten.gelu(%add): f32[N, 7, 12]
  %mid = aten.softmax.int(%gelu, 1): f32[N, 7, 12]
  %red = aten.mean.dim(%gelu, [1], true): f32[N, 1, 12]
  %max = aten.amax(%gelu, [-1]): f32[N, 7]
  return %gelu, %mid, %red, %max
}
"#,
    );
    for n in [1, 2] {
        let x = [Random::new(n as u64).floats(&[n, 7, 12], 1.0)];
        check_float(&g, &x, 1e-5);
        assert!(kernels(&g, &x).iter().all(|k| !k.starts_with("reference")), "{:?}", kernels(&g, &x));
    }
}

#[test]
fn resized_images_match() {
    let g = graph(
        r#"graph(%x: f32[1, 3, 4, 5]) {
  %near = aten.upsample_nearest2d.vec(%x, none, [2.0, 3.0]): f32[1, 3, 8, 15]
  %line = aten.upsample_bilinear2d.vec(%x, [7, 11], false, none): f32[1, 3, 7, 11]
  %corner = aten.upsample_bilinear2d.vec(%x, [7, 11], true, none): f32[1, 3, 7, 11]
  %q = quantized_decomposed.quantize_per_tensor(%near, 0.01, 128, 0, 255, u8): u8[1, 3, 8, 15]
  %dq = quantized_decomposed.dequantize_per_tensor(%q, 0.01, 128, 0, 255, u8): f32[1, 3, 8, 15]
  %again = aten.upsample_nearest2d.vec(%dq, [16, 15], none): f32[1, 3, 16, 15]
  %q1 = quantized_decomposed.quantize_per_tensor(%again, 0.01, 128, 0, 255, u8): u8[1, 3, 16, 15]
  return %near, %line, %corner, %q1
}
"#,
    );
    check_float(&g, &[Random::new(3).floats(&[1, 3, 4, 5], 1.0)], 1e-5);
}

#[test]
fn tables_and_requantized_joins_are_within_a_step() {
    let g = graph(
        r#"graph(%x: f32[1, 4, 5, 5]) with quantize = "divide" {
  %a = quantized_decomposed.quantize_per_tensor(%x, 0.03, 128, 0, 255, u8): u8[1, 4, 5, 5]
  %a1 = quantized_decomposed.dequantize_per_tensor(%a, 0.03, 128, 0, 255, u8): f32[1, 4, 5, 5]
  %a2 = quantized_decomposed.dequantize_per_tensor(%a, 0.03, 128, 0, 255, u8): f32[1, 4, 5, 5]
  %silu = aten.silu(%a1): f32[1, 4, 5, 5]
  %b = quantized_decomposed.quantize_per_tensor(%silu, 0.02, 20, 0, 255, u8): u8[1, 4, 5, 5]
  %b1 = quantized_decomposed.dequantize_per_tensor(%b, 0.02, 20, 0, 255, u8): f32[1, 4, 5, 5]
  %cat = aten.cat([%a2, %b1], 1): f32[1, 8, 5, 5]
  %c = quantized_decomposed.quantize_per_tensor(%cat, 0.025, 100, 0, 255, u8): u8[1, 8, 5, 5]
  %c1 = quantized_decomposed.dequantize_per_tensor(%c, 0.025, 100, 0, 255, u8): f32[1, 8, 5, 5]
  %pad = aten.constant_pad_nd(%c1, [1, 1]): f32[1, 8, 5, 7]
  %avg = aten.avg_pool2d(%pad, [2, 2], [2, 2]): f32[1, 8, 2, 3]
  %d = quantized_decomposed.quantize_per_tensor(%avg, 0.02, 90, 0, 255, u8): u8[1, 8, 2, 3]
  return %b, %c, %d
}
"#,
    );
    let x = [Random::new(5).floats(&[1, 4, 5, 5], 3.0)];
    check_quantized(&g, &x, 1.0, 1.0);
    let names = kernels(&g, &x);
    assert!(names.iter().any(|n| n.starts_with("lut_silu_quantize")), "{names:?}");
    assert!(names.iter().any(|n| n.starts_with("avg_pool2d_u8")), "{names:?}");
}

#[test]
fn what_has_no_kernel_is_interpreted_and_named() {
    let g = graph(
        r#"graph(%x: f32[1, 2, 4, 4]) {
  %exp = aten.exp(%x): f32[1, 2, 4, 4]
  %pool = aten.max_pool2d_with_indices(%exp, [2, 2]): (f32[1, 2, 2, 2], i64[1, 2, 2, 2])
  %most = getitem(%pool, 0): f32[1, 2, 2, 2]
  %where = getitem(%pool, 1): i64[1, 2, 2, 2]
  %neg = aten.neg(%most): f32[1, 2, 2, 2]
  return %neg, %where
}
"#,
    );
    let x = [Random::new(6).floats(&[1, 2, 4, 4], 1.0)];
    check_float(&g, &x, 1e-6);
    let mut s = Session::new(&g, Options::default()).unwrap();
    let plan = s.plan(&[vec![1, 2, 4, 4]]).unwrap();
    assert_eq!(plan.nodes["pool"], "reference.max_pool2d_with_indices_1");
    assert_eq!((plan.nodes["neg"].as_str(), plan.nodes["where"].as_str()), ("poi_fused_neg_2", "view"));
    assert_eq!(s.profile(&x).unwrap().len(), plan.kernels.len());
}

#[test]
fn embeddings_pick_rows_and_name_what_is_out_of_range() {
    let g = graph(
        r#"graph(%i: i64[2, 3]) {
  %w = param "w": f32[5, 4]
  %embedding = aten.embedding(%w, %i): f32[2, 3, 4]
  %relu = aten.relu(%embedding): f32[2, 3, 4]
  return %relu
}
"#,
    );
    let mut s = Session::new(&g, Options::default()).unwrap();
    let y = s.run(&[Tensor::new(&[2, 3], vec![0i64, 4, 1, 1, 2, 3])]).unwrap();
    let w = g.constants["w"].to_f32();
    assert_eq!(y[0].to_f32()[4], w[16].max(0.0));
    let e = s.run(&[Tensor::new(&[2, 3], vec![0i64, 5, 1, 1, 2, 3])]).unwrap_err().to_string();
    assert_eq!(e, "aten.embedding.default at node 'embedding': index 5 of 5 rows");
}

#[test]
fn attention_runs_as_products_and_a_softmax() {
    let g = graph(
        r#"graph(%q: f32[N, 2, 5, 4], %k: f32[N, 2, 6, 4], %v: f32[N, 2, 6, 3], %m: f32[5, 6]) where 1 <= N {
  %a = aten.scaled_dot_product_attention(%q, %k, %v): f32[N, 2, 5, 3]
  %b = aten.scaled_dot_product_attention(%q, %k, %v, %m): f32[N, 2, 5, 3]
  %c = aten.scaled_dot_product_attention(%q, %k, %v, none, 0.0, true): f32[N, 2, 5, 3]
  return %a, %b, %c
}
"#,
    );
    let mut r = Random::new(13);
    let x = [
        r.floats(&[2, 2, 5, 4], 2.0),
        r.floats(&[2, 2, 6, 4], 2.0),
        r.floats(&[2, 2, 6, 3], 1.0),
        r.floats(&[5, 6], 1.0),
    ];
    check_float(&g, &x, 1e-5);
    assert!(kernels(&g, &x).iter().all(|k| !k.starts_with("reference")), "{:?}", kernels(&g, &x));
}
