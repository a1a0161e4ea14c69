//! Bias correction: what rounding the weights does on average is taken back.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{Settings, quantize};
use cleave_ir::{Graph, Tensor, text};
use cleave_runtime::reference;

/// A layer of which each row has one large weight and many that are less than half a level.
fn network(op: &str) -> Graph {
    let (src, shape) = match op {
        "linear" => (
            "graph(%x: f32[N, 8]) {\n  %w = param \"w\": f32[4, 8]\n  %b = param \"b\": f32[4]\n  %y = aten.linear(%x, %w, %b)\n  return %y\n}",
            vec![4, 8],
        ),
        "grouped" => (
            "graph(%x: f32[N, 8, 3, 3]) {\n  %w = param \"w\": f32[4, 2, 1, 1]\n  %b = param \"b\": f32[4]\n  %y = aten.conv2d(%x, %w, %b, [1, 1], [0, 0], [1, 1], 4)\n  return %y\n}",
            vec![4, 2, 1, 1],
        ),
        _ => (
            "graph(%x: f32[N, 8, 3, 3]) {\n  %w = param \"w\": f32[4, 8, 1, 1]\n  %b = param \"b\": f32[4]\n  %y = aten.conv2d(%x, %w, %b)\n  return %y\n}",
            vec![4, 8, 1, 1],
        ),
    };
    let mut g = text::parse(src).unwrap();
    let each = shape[1];
    let n: usize = shape.iter().product();
    let w = (0..n).map(|i| if i % each == 0 { 12.7 } else { 0.01 * (1 + i / each) as f32 }).collect();
    g.constants.insert("w".into(), Tensor::new::<f32>(&shape, w));
    g.constants.insert("b".into(), Tensor::new(&[4], vec![0.5f32, -0.5, 0.0, 1.0]));
    g
}

#[test]
fn results_are_right_on_average() {
    for op in ["linear", "conv", "grouped"] {
        let g = network(op);
        let n = 32;
        let shape: Vec<usize> = if op == "linear" { vec![n, 8] } else { vec![n, 8, 3, 3] };
        let len: usize = shape.iter().product();
        // Inputs of mean 3, most of what the small weights see.
        let x = Tensor::new(&shape, (0..len).map(|i| 2.0 + ((i * 37 % 101) as f32) / 50.0).collect());
        let inputs = [x];
        let done = quantize(&g, &inputs[..], &Settings::default(), &mut |_, _, _| {}).unwrap();
        let (want, got) =
            (reference::run(&g, &inputs).unwrap(), reference::run(&done.converted.graph, &inputs).unwrap());
        let means = |t: &Tensor| {
            let inner: usize = t.shape()[2..].iter().product();
            let mut sums = [0.0; 4];
            t.to_f64().iter().enumerate().for_each(|(i, v)| sums[i / inner % 4] += v);
            sums.map(|s| s * 4.0 / t.len() as f64)
        };
        for (a, b) in means(&want[0]).iter().zip(means(&got[0])) {
            // Without correction up to 7·0.04·3 = 0.84 are missing.
            assert!((a - b).abs() < 0.02, "{op}: {a} {b}");
        }
        let [gain] = &done.check.gains[..] else { panic!("{op}: {:?}", done.check.gains) };
        assert_eq!((gain.method.as_str(), gain.places, gain.kept), ("bias_correction", 1, true), "{op}");
        assert!(gain.sqnr_db[1] - gain.sqnr_db[0] > 3.0, "{op}: {gain:?}");
        assert!(done.converted.plan.notes.iter().any(|n| n.starts_with("bias_correction: 1 ")), "{op}");
    }
}

/// A quantizer that is to give another tool's numbers leaves biases as they are.
#[test]
fn torchs_quantizers_correct_nothing() {
    let g = network("linear");
    let inputs = [Tensor::new(&[8, 8], (0..64).map(|i| i as f32 / 9.0).collect())];
    for quantizer in ["x86", "xnnpack"] {
        let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
        let done = quantize(&g, &inputs[..], &settings, &mut |_, _, _| {}).unwrap();
        assert!(done.converted.plan.notes.iter().all(|n| !n.contains("correct")), "{quantizer}");
    }
}
