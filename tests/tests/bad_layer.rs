//! One layer that eight bits cannot hold: it is named, and the model is good once it is left in float.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{Settings, quantize};
use cleave::sensitivity::{remedy, sensitivity};
use cleave_ir::{Graph, Tensor, text};

/// A branch of range 0.01 beside one of 1000, under one scale; the head takes the small one for as much as the large.
const NET: &str = r#"graph(%x: f32[N, 3, 8, 8]) {
  %w0 = param "stem.weight": f32[8, 3, 3, 3]
  %w1 = param "small.weight": f32[8, 8, 1, 1]
  %w2 = param "large.weight": f32[8, 8, 1, 1]
  %w3 = param "head.weight": f32[4, 16, 1, 1]
  %w4 = param "last.weight": f32[4, 4, 1, 1]
  %stem = aten.conv2d(%x, %w0, none, [1, 1], [1, 1]): f32[N, 8, 8, 8]
  %relu = aten.relu(%stem): f32[N, 8, 8, 8]
  %small = aten.conv2d(%relu, %w1): f32[N, 8, 8, 8]
  %large = aten.conv2d(%relu, %w2): f32[N, 8, 8, 8]
  %cat = aten.cat([%small, %large], 1): f32[N, 16, 8, 8]
  %head = aten.conv2d(%cat, %w3): f32[N, 4, 8, 8]
  %relu_1 = aten.relu(%head): f32[N, 4, 8, 8]
  %last = aten.conv2d(%relu_1, %w4): f32[N, 4, 8, 8]
  return %last
}
"#;

fn network() -> Graph {
    let mut g = text::parse(NET).unwrap();
    let mut put = |name: &str, shape: &[usize], scale: f32| {
        let n = shape.iter().product();
        let one = |i: usize| ((i * 29 + 7) % 31) as f32 / 15.0 - 1.0;
        g.constants.insert(name.into(), Tensor::new::<f32>(shape, (0..n).map(|i| one(i) * scale).collect()));
    };
    put("stem.weight", &[8, 3, 3, 3], 0.2);
    put("small.weight", &[8, 8, 1, 1], 0.002);
    put("large.weight", &[8, 8, 1, 1], 200.0);
    put("head.weight", &[4, 16, 1, 1], 0.001);
    put("last.weight", &[4, 4, 1, 1], 0.5);
    // The channels of the small branch.
    let head = g.constants["head.weight"].to_f32();
    let head = head.iter().enumerate().map(|(i, w)| if i % 16 < 8 { w * 1e5 } else { *w }).collect();
    g.constants.insert("head.weight".into(), Tensor::new::<f32>(&[4, 16, 1, 1], head));
    g
}

#[test]
fn it_is_named_and_mended() {
    let g = network();
    let x = Tensor::new(&[16, 3, 8, 8], (0..16 * 192).map(|i| ((i * 57) % 101) as f32 / 50.0 - 1.0).collect());
    let inputs = [x];
    let samples = &inputs[..];
    let settings = Settings::default();
    let q = quantize(&g, samples, &settings, &mut |_, _, _| {}).unwrap();
    assert!(q.check.least_sqnr() < 3.0, "{:?}", q.check.outputs);
    let ranking = sensitivity(&q, samples, &settings, &mut |_, _| {}).unwrap();
    // Whoever reads or writes what has the one scale; and nobody else.
    let bad: Vec<&str> = ranking.iter().filter(|s| s.sqnr_db < 20.0).map(|s| s.node.as_str()).collect();
    assert!(bad.contains(&"head") && !bad.contains(&"stem") && !bad.contains(&"last"), "{ranking:?}");
    let found = remedy(&g, &q, &ranking, samples, &settings, 20.0).unwrap().expect("few nodes do the harm");
    assert!(found.sqnr_db >= 20.0 && found.float.len() <= 4, "{found:?}");
    // What it says holds.
    let float = found.float.iter().map(|n| format!("node:{n}")).collect();
    let mended = quantize(&g, samples, &Settings { float, ..settings }, &mut |_, _, _| {}).unwrap();
    assert_eq!(mended.check.least_sqnr(), found.sqnr_db);
}

/// Where there is nothing to detect, probabilities are near 0, and so are all differences.
#[test]
fn probabilities_near_zero_are_good_enough() {
    let net = |last: &str| {
        let src = format!(
            "graph(%x: f32[N, 8]) {{\n  %w = param \"w\": f32[4, 8]\n  %b = param \"b\": f32[4]\n  %linear = aten.linear(%x, %w, %b): f32[N, 4]\n  %y = aten.{last}(%linear): f32[N, 4]\n  return %y\n}}"
        );
        let mut g = text::parse(&src).unwrap();
        g.constants.insert("w".into(), Tensor::new(&[4, 8], (0..32).map(|i| (i % 7) as f32 - 3.0).collect()));
        g.constants.insert("b".into(), Tensor::new(&[4], vec![-50f32; 4]));
        g
    };
    let inputs = [Tensor::new(&[8, 8], (0..64).map(|i| ((i % 11) as f32 - 5.0) / 10.0).collect())];
    let judged = |last: &str| {
        let q = quantize(&net(last), &inputs[..], &Settings::default(), &mut |_, _, _| {}).unwrap();
        (q.check.outputs[0].1.sqnr_db, q.check.least_sqnr())
    };
    let (raw, counted) = judged("sigmoid");
    assert!(raw < 60.0 && counted > raw + 100.0, "{raw} {counted}");
    let (raw, counted) = judged("exp");
    assert_eq!(raw, counted);
}

/// Differences between indices say nothing.
#[test]
fn outputs_of_integers_are_not_judged() {
    let src = "graph(%x: f32[N, 8]) {\n  %w = param \"w\": f32[4, 8]\n  %linear = aten.linear(%x, %w): f32[N, 4]\n  %relu = aten.relu(%linear)\n  %y = aten.linear(%relu, %v): f32[N, 4]\n  %argmax = aten.argmax(%y, 1)\n  return %argmax\n}";
    let src = src.replace("  %linear", "  %v = param \"v\": f32[4, 4]\n  %linear");
    let mut g = text::parse(&src).unwrap();
    g.constants.insert("w".into(), Tensor::new(&[4, 8], (0..32).map(|i| (i % 7) as f32 - 3.0).collect()));
    g.constants.insert("v".into(), Tensor::new(&[4, 4], (0..16).map(|i| (i % 5) as f32 - 2.0).collect()));
    let inputs = [Tensor::new(&[8, 8], (0..64).map(|i| (i % 11) as f32 - 5.0).collect())];
    let q = quantize(&g, &inputs[..], &Settings::default(), &mut |_, _, _| {}).unwrap();
    assert_eq!((q.check.judged.as_slice(), q.check.least_sqnr()), (&[None][..], f64::INFINITY));
}

/// Samples that the check leaves out are left out here, too.
#[test]
fn units_are_judged_by_samples_that_are_fit() {
    let g = network();
    let x = (0..8 * 192).map(|i| if i == 5 { f32::NAN } else { ((i * 57) % 101) as f32 / 50.0 - 1.0 }).collect();
    let inputs = [Tensor::new(&[8, 3, 8, 8], x)];
    let settings = Settings { non_finite: cleave_quantize::NonFinite::Skip, ..Settings::default() };
    let q = quantize(&g, &inputs[..], &settings, &mut |_, _, _| {}).unwrap();
    assert_eq!(q.check.samples, 7);
    let ranking = sensitivity(&q, &inputs[..], &settings, &mut |_, _| {}).unwrap();
    assert!(!ranking.is_empty() && ranking.iter().all(|s| s.sqnr_db.is_finite()), "{ranking:?}");
}
