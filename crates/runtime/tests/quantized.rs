//! Quantized graphs on the CPU backend: the integers that the arithmetic of a unit defines, the same everywhere,
//! and within a step of the graph's float meaning.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_ir::{Graph, Tensor};
use cleave_numerics::{multiplier, requantize, requantize_residual};
use cleave_runtime::{Options, Session};
use common::{Random, check_quantized, graph, kernels};

/// `q`, `dq` and dequantized weights, spelled once.
fn expand(src: &str) -> String {
    let mut out = String::new();
    for line in src.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let line = match words.as_slice() {
            ["Q", y, x, s, z, shape] => {
                format!("  %{y} = quantized_decomposed.quantize_per_tensor(%{x}, {s}, {z}, 0, 255, u8): u8[{shape}]\n")
            }
            ["DQ", y, x, s, z, shape] => format!(
                "  %{y} = quantized_decomposed.dequantize_per_tensor(%{x}, {s}, {z}, 0, 255, u8): f32[{shape}]\n"
            ),
            ["W", y, shape, axis, c] => format!(
                "  %{y}_q = param \"{y}_q\": i8[{shape}]\n  %{y}_scale = buffer \"{y}_scale\": f32[{c}]\n  \
                 %{y}_zp = buffer \"{y}_zp\": i64[{c}]\n  %{y} = quantized_decomposed.dequantize_per_channel(%{y}_q, \
                 %{y}_scale, %{y}_zp, {axis}, -127, 127, i8): f32[{shape}]\n"
            ),
            _ => format!("{line}\n"),
        };
        out += &line.replace("·", ", ");
    }
    out
}

fn quantized(src: &str) -> Graph {
    graph(&expand(src))
}

const RESIDUAL: &str = r#"graph(%x: f32[N, 4, 9, 7]) where 1 <= N with quantize = "divide" {
  Q x_q x 0.01 120 N·4·9·7
  DQ x_1 x_q 0.01 120 N·4·9·7
  DQ x_2 x_q 0.01 120 N·4·9·7
  W w 4·4·3·3 0 4
  %conv2d = aten.conv2d(%x_1, %w, none, [1, 1], [1, 1]): f32[N, 4, 9, 7]
  %add = aten.add.Tensor(%conv2d, %x_2): f32[N, 4, 9, 7]
  %relu = aten.relu(%add): f32[N, 4, 9, 7]
  Q y_q relu 0.012 3 N·4·9·7
  DQ y y_q 0.012 3 N·4·9·7
  return %y
}
"#;

/// One output element of the unit in `RESIDUAL`, or without the residual.
fn naive(g: &Graph, xq: &[i32], n: usize, at: [usize; 3], residual: bool) -> i32 {
    let w = g.constants["w_q"].to_i64();
    let sw = g.constants["w_scale"].to_f32();
    let [o, row, col] = at;
    let mut acc = 0;
    for c in 0..4 {
        for (kr, kc) in (0..3).flat_map(|r| (0..3).map(move |c| (r, c))) {
            let (r, k) = (row + kr, col + kc);
            if (1..=9).contains(&r) && (1..=7).contains(&k) {
                let x = xq[((n * 4 + c) * 9 + r - 1) * 7 + k - 1];
                acc += (x - 120) * w[((o * 4 + c) * 3 + kr) * 3 + kc] as i32;
            }
        }
    }
    let m = multiplier(0.01, sw[o], 0.012);
    let r = xq[((n * 4 + o) * 9 + row) * 7 + col];
    if residual { requantize_residual(acc, m, r, 120, 0.01 / 0.012, 3, 3, 255) } else { requantize(acc, m, 3, 3, 255) }
}

#[test]
fn a_residual_unit_gives_the_integers_of_the_definition() {
    let src = RESIDUAL.replace("return %y\n", "return %y_q, %x_q\n").replace("  DQ y y_q 0.012 3 N·4·9·7\n", "");
    let g = quantized(&src);
    let x = Random::new(1).floats(&[2, 4, 9, 7], 1.3);
    assert_eq!(kernels(&g, std::slice::from_ref(&x)), ["poi_fused_quantize_0", "conv2d_u8s8_add_relu_1"]);
    check_quantized(&g, std::slice::from_ref(&x), 1.0, 1.0);
    let got = Session::new(&g, Options::default()).unwrap().run(&[x]).unwrap();
    let xq: Vec<i32> = got[1].to_i64().iter().map(|v| *v as i32).collect();
    let y = got[0].to_i64();
    for (i, y) in y.iter().enumerate() {
        let at = [i / 63 % 4, i / 7 % 9, i % 7];
        assert_eq!(*y as i32, naive(&g, &xq, i / 252, at, true), "element {i}");
    }
}

#[test]
fn signed_activations_give_the_same_integers() {
    let src = RESIDUAL.replace("return %y\n", "return %y_q\n").replace("  DQ y y_q 0.012 3 N·4·9·7\n", "");
    let unsigned = quantized(&src);
    let signed = expand(&src)
        .replace("0.01, 120, 0, 255, u8): u8", "0.01, -8, -128, 127, i8): i8")
        .replace("0.012, 3, 0, 255, u8): u8", "0.012, -125, -128, 127, i8): i8")
        .replace("0.01, 120, 0, 255, u8)", "0.01, -8, -128, 127, i8)");
    let x = Random::new(2).floats(&[1, 4, 9, 7], 1.3);
    let run =
        |g: &Graph| Session::new(g, Options::default()).unwrap().run(std::slice::from_ref(&x)).unwrap()[0].to_i64();
    let (a, b) = (run(&unsigned), run(&graph(&signed)));
    assert!(a.iter().zip(&b).all(|(u, s)| *u - 128 == *s));
}

#[test]
fn a_network_of_all_units_is_within_steps_of_its_float_meaning() {
    let g = quantized(
        r#"graph(%x: f32[N, 3, 16, 16]) where 1 <= N with quantize = "divide" {
  Q x_q x 0.01 128 N·3·16·16
  DQ x_1 x_q 0.01 128 N·3·16·16
  W w1 16·3·3·3 0 16
  %b1 = param "b1": f32[16]
  %conv2d = aten.conv2d(%x_1, %w1, %b1, [2, 2], [1, 1]): f32[N, 16, 8, 8]
  %hardswish = aten.hardswish(%conv2d): f32[N, 16, 8, 8]
  Q h_q hardswish 0.02 20 N·16·8·8
  DQ h_1 h_q 0.02 20 N·16·8·8
  DQ h_2 h_q 0.02 20 N·16·8·8
  DQ h_3 h_q 0.02 20 N·16·8·8
  W w2 16·1·5·5 0 16
  %conv2d_1 = aten.conv2d(%h_1, %w2, none, [1, 1], [2, 2], [1, 1], 16): f32[N, 16, 8, 8]
  %relu = aten.relu(%conv2d_1): f32[N, 16, 8, 8]
  Q d_q relu 0.03 0 N·16·8·8
  DQ d_1 d_q 0.03 0 N·16·8·8
  DQ d_2 d_q 0.03 0 N·16·8·8
  DQ d_3 d_q 0.03 0 N·16·8·8
  %mean = aten.mean.dim(%d_1, [2, 3], true): f32[N, 16, 1, 1]
  Q m_q mean 0.03 0 N·16·1·1
  DQ m m_q 0.03 0 N·16·1·1
  %sig = aten.hardsigmoid(%m): f32[N, 16, 1, 1]
  Q g_q sig 0.00392 0 N·16·1·1
  DQ g g_q 0.00392 0 N·16·1·1
  %mul = aten.mul.Tensor(%d_2, %g): f32[N, 16, 8, 8]
  Q s_q mul 0.02 0 N·16·8·8
  DQ s s_q 0.02 0 N·16·8·8
  %add = aten.add.Tensor(%s, %h_2): f32[N, 16, 8, 8]
  Q a_q add 0.04 20 N·16·8·8
  DQ a a_q 0.04 20 N·16·8·8
  %cat = aten.cat([%a, %d_3, %h_3], 1): f32[N, 48, 8, 8]
  Q c_q cat 0.04 20 N·48·8·8
  DQ c c_q 0.04 20 N·48·8·8
  %pool = aten.max_pool2d(%c, [3, 3], [2, 2], [1, 1]): f32[N, 48, 4, 4]
  Q p_q pool 0.04 20 N·48·4·4
  DQ p p_q 0.04 20 N·48·4·4
  %avg = aten.adaptive_avg_pool2d(%p, [1, 1]): f32[N, 48, 1, 1]
  Q v_q avg 0.02 10 N·48·1·1
  DQ v v_q 0.02 10 N·48·1·1
  %flat = aten.view(%v, [<N>, 48]): f32[N, 48]
  Q f_q flat 0.02 10 N·48
  DQ f f_q 0.02 10 N·48
  W w3 10·48 0 10
  %linear = aten.linear(%f, %w3): f32[N, 10]
  Q y_q linear 0.05 100 N·10
  DQ y y_q 0.05 100 N·10
  return %y
}
"#,
    );
    for n in [1, 2] {
        check_quantized(&g, &[Random::new(n as u64 + 3).floats(&[n, 3, 16, 16], 1.2)], 0.05, 2.0);
    }
}

#[test]
fn edges_quantized_at_their_consumers_run_too() {
    // As torch's x86 quantizer has them: a float value with several quantized users.
    let g = quantized(
        r#"graph(%x: f32[2, 4, 6, 6]) {
  Q x_q x 0.01 128 2·4·6·6
  DQ x_1 x_q 0.01 128 2·4·6·6
  W w1 8·4·3·3 0 8
  %b1 = param "b1": f32[8]
  %conv2d = aten.conv2d(%x_1, %w1, %b1, [1, 1], [1, 1]): f32[2, 8, 6, 6]
  %relu = aten.relu(%conv2d): f32[2, 8, 6, 6]
  Q r_q relu 0.02 0 2·8·6·6
  DQ r_1 r_q 0.02 0 2·8·6·6
  W w2 8·8·1·1 0 8
  %conv2d_1 = aten.conv2d(%r_1, %w2): f32[2, 8, 6, 6]
  %add = aten.add.Tensor(%conv2d_1, %relu): f32[2, 8, 6, 6]
  %relu_1 = aten.relu(%add): f32[2, 8, 6, 6]
  Q y_q relu_1 0.03 0 2·8·6·6
  DQ y y_q 0.03 0 2·8·6·6
  return %y
}
"#,
    );
    check_quantized(&g, &[Random::new(8).floats(&[2, 4, 6, 6], 1.2)], 0.03, 1.0);
}

#[test]
fn joined_levels_are_written_in_place() {
    let g = quantized(
        r#"graph(%x: f32[1, 4, 6, 6]) with quantize = "divide" {
  Q x_q x 0.01 128 1·4·6·6
  DQ x_1 x_q 0.01 128 1·4·6·6
  DQ x_2 x_q 0.01 128 1·4·6·6
  W w1 8·4·1·1 0 8
  W w2 6·4·3·3 0 6
  %conv2d = aten.conv2d(%x_1, %w1): f32[1, 8, 6, 6]
  %relu = aten.relu(%conv2d): f32[1, 8, 6, 6]
  Q a_q relu 0.02 0 1·8·6·6
  DQ a a_q 0.02 0 1·8·6·6
  %conv2d_1 = aten.conv2d(%x_2, %w2, none, [1, 1], [1, 1]): f32[1, 6, 6, 6]
  %relu_1 = aten.relu(%conv2d_1): f32[1, 6, 6, 6]
  Q b_q relu_1 0.02 0 1·6·6·6
  DQ b b_q 0.02 0 1·6·6·6
  %cat = aten.cat([%a, %b], 1): f32[1, 14, 6, 6]
  Q c_q cat 0.02 0 1·14·6·6
  return %c_q
}
"#,
    );
    let x = Random::new(8).floats(&[1, 4, 6, 6], 1.2);
    assert_eq!(
        kernels(&g, std::slice::from_ref(&x)),
        ["poi_fused_quantize_0", "conv2d_u8s8_relu_1", "conv2d_u8s8_relu_2"]
    );
    check_quantized(&g, &[x], 1.0, 1.0);
}

#[test]
fn transposed_and_one_dimensional_convolutions_are_units() {
    let g = quantized(
        r#"graph(%x: f32[1, 4, 5, 6], %z: f32[2, 4, 9]) with quantize = "divide" {
  Q x_q x 0.01 128 1·4·5·6
  DQ x_1 x_q 0.01 128 1·4·5·6
  W w1 4·6·2·2 1 6
  %up = aten.conv_transpose2d.input(%x_1, %w1, none, [2, 2]): f32[1, 6, 10, 12]
  Q a_q up 0.02 128 1·6·10·12
  Q z_q z 0.01 128 2·4·9
  DQ z_1 z_q 0.01 128 2·4·9
  W w2 6·2·3 0 6
  %conv1d = aten.conv1d(%z_1, %w2, none, [1], [1], [1], 2): f32[2, 6, 9]
  Q b_q conv1d 0.02 128 2·6·9
  return %a_q, %b_q
}
"#,
    );
    let mut r = Random::new(11);
    let inputs = [r.floats(&[1, 4, 5, 6], 1.2), r.floats(&[2, 4, 9], 1.2)];
    let names = kernels(&g, &inputs);
    assert!(
        names.contains(&"conv_transpose2d_u8s8_1".to_string()) && names.contains(&"conv2d_u8s8_3".into()),
        "{names:?}"
    );
    check_quantized(&g, &inputs, 1.0, 1.0);
}

#[test]
fn infinities_saturate() {
    let g = quantized(RESIDUAL);
    let mut v = vec![0.1f32; 252];
    (v[3], v[100]) = (f32::INFINITY, f32::NEG_INFINITY);
    check_quantized(&g, &[Tensor::new(&[1, 4, 9, 7], v)], 0.012, 1.0);
}

#[test]
fn sums_that_may_leave_32_bits_are_computed_in_float() {
    let g = |n: usize| {
        let src = r#"graph(%x: f32[2, N]) {
  Q x_q x 0.01 0 2·N
  DQ x_1 x_q 0.01 0 2·N
  W w 3·N 0 3
  %linear = aten.linear(%x_1, %w): f32[2, 3]
  %relu = aten.relu(%linear): f32[2, 3]
  Q y_q relu 400.0 0 2·3
  DQ y y_q 400.0 0 2·3
  W v 4·3 0 4
  %linear_1 = aten.linear(%y, %v): f32[2, 4]
  return %linear_1
}
"#;
        let mut g = quantized(&src.replace('N', &n.to_string()));
        g.constants.insert("w_q".into(), Tensor::new(&[3, n], vec![127i8; 3 * n]));
        g
    };
    for (n, first) in [(66_000, "linear_u8s8_relu_1"), (67_000, "linear_f32_relu_2")] {
        let (g, x) = (g(n), Tensor::new(&[2, n], vec![2.0f32; 2 * n]));
        let all = kernels(&g, std::slice::from_ref(&x));
        assert_eq!(all[all.len() - 2], first, "{n}");
        check_quantized(&g, &[x], 1.0, 1.0);
    }
}

#[test]
fn a_session_for_another_graph_takes_over_what_is_the_same() {
    let g = quantized(RESIDUAL);
    let x = Random::new(1).floats(&[2, 4, 9, 7], 1.3);
    let run = |mut s: Session| s.run(std::slice::from_ref(&x)).unwrap()[0].to_f32().into_owned();
    let fresh = |g: &Graph| Session::new(g, Options::default()).unwrap();
    let mut first = fresh(&g);
    let before = first.run(std::slice::from_ref(&x)).unwrap()[0].to_f32().into_owned();
    // Other weights under the name, other scales, another zero point.
    let mut other_weights = g.clone();
    let turned: Vec<i8> = g.constants["w_q"].to_i64().iter().map(|w| -*w as i8).collect();
    other_weights.constants.insert("w_q".into(), Tensor::new(&[4, 4, 3, 3], turned));
    let mut other_scales = g.clone();
    other_scales.constants.insert("w_scale".into(), Tensor::new(&[4], vec![0.003f32, 0.002, 0.001, 0.004]));
    let mut other_zero = quantized(&RESIDUAL.replace("x 0.01 120", "x 0.01 90").replace("x_q 0.01 120", "x_q 0.01 90"));
    other_zero.constants = g.constants.clone();
    for other in [g, other_weights, other_scales, other_zero] {
        assert_eq!(run(first.for_another(&other).unwrap()), run(fresh(&other)));
    }
    assert_eq!(run(first), before);
}
