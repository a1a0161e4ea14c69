//! Images padded for a maximum: what stands for "nothing" is no value to be observed.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{Settings, quantize};
use cleave_ir::{Tensor, text};
use cleave_runtime::{Options, Session, reference};

#[test]
fn infinities_around_an_image_are_the_least_level() {
    let src = "graph(%x: f32[N, 2, 6, 6]) {
  %w = param \"w\": f32[4, 2, 3, 3]
  %c = aten.conv2d(%x, %w)
  %p = aten.constant_pad_nd(%c, [0, 1, 0, 1], -inf)
  %m = aten.max_pool2d(%p, [2, 2], [1, 1])
  %v = param \"v\": f32[3, 4, 1, 1]
  %y = aten.conv2d(%m, %v)
  return %y
}";
    let mut g = text::parse(src).unwrap();
    for (name, shape) in [("w", vec![4, 2, 3, 3]), ("v", vec![3, 4, 1, 1])] {
        let n: usize = shape.iter().product();
        let t = Tensor::new::<f32>(&shape, (0..n).map(|i| ((i * 29 % 17) as f32 - 8.0) / 9.0).collect());
        g.constants.insert(name.into(), t);
    }
    let x = [Tensor::new::<f32>(&[4, 2, 6, 6], (0..288).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect())];
    for quantizer in ["cpu", "onnx", "x86", "xnnpack"] {
        let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
        let done = quantize(&g, &x[..], &settings, &mut |_, _, _| {}).unwrap_or_else(|e| panic!("{quantizer}: {e}"));
        let want = reference::run(&g, &x).unwrap();
        let got = reference::run(&done.converted.graph, &x).unwrap();
        let fast = Session::new(&done.converted.graph, Options::default()).unwrap().run(&x).unwrap();
        let scale = want[0].to_f64().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        for ((a, b), c) in want[0].to_f64().iter().zip(got[0].to_f64()).zip(fast[0].to_f64()) {
            assert!((a - b).abs() < 0.04 * scale && (b - c).abs() < 0.02 * scale, "{quantizer}: {a} {b} {c}");
        }
    }
}
