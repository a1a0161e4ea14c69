//! Activations whose scale is computed as the model runs: from torch's and ONNX Runtime's files, and from float models.
//!
//! `fixtures/ort` holds what `onnxruntime.quantization.quantize_dynamic` made of two networks, with its results;
//! `fixtures/generate/ort.py` wrote it.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::model::{raise, read_runnable};
use cleave::pipeline::{self, Settings};
use cleave_formats::{npy::read_npz, onnx::write_onnx, read};
use cleave_ir::{Graph, Tensor, text};
use cleave_kernels::Isa;
use cleave_quantize::Statistics;
use cleave_runtime::{Options, Session, reference};
use cleave_tests::fixture;
use cleave_tests::quantized::{Numbers, through_onnx, worst};

const NET: &str = r#"graph(%x: f32[N, 4, 9, 9]) {
  %w = param "w": f32[6, 4, 3, 3]
  %b = param "b": f32[6]
  %g = param "g": f32[8, 3, 3, 3]
  %d = param "d": f32[8, 1, 3, 3]
  %m = param "m": f32[5, 8]
  %mb = param "mb": f32[5]
  %conv = aten.conv2d(%x, %w, %b, [1, 1], [1, 1]): f32[N, 6, 9, 9]
  %act = aten.relu(%conv): f32[N, 6, 9, 9]
  %groups = aten.conv2d(%act, %g, none, [2, 2], [1, 1], [1, 1], 2): f32[N, 8, 5, 5]
  %depthwise = aten.conv2d(%groups, %d, none, [1, 1], [1, 1], [1, 1], 8): f32[N, 8, 5, 5]
  %mean = aten.mean.dim(%depthwise, [2, 3]): f32[N, 8]
  %linear = aten.linear(%mean, %m, %mb): f32[N, 5]
  return %linear
}
"#;

fn net() -> Graph {
    let mut g = text::parse(NET).unwrap();
    let mut n = Numbers(3);
    for (name, scale) in [("w", 0.4), ("b", 0.3), ("g", 0.3), ("d", 0.4), ("m", 0.5), ("mb", 0.2)] {
        let shape = g.constants[name].shape().to_vec();
        g.constants.insert(name.into(), n.tensor(&shape, scale));
    }
    g
}

/// Quantizes without data.
fn quantized(g: &Graph, quantizer: &str) -> cleave::error::Result<pipeline::Quantized> {
    let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
    let ready = pipeline::prepare(g, &settings)?;
    let statistics = Statistics::new(&ready.prepared);
    pipeline::finish(ready, statistics.into(), None::<&[Tensor]>, &settings)
}

fn session(g: &Graph, isa: Isa, threads: usize) -> Session {
    Session::new(g, Options { isa, threads }).unwrap()
}

/// The kernels of integer products that run for inputs of this shape.
fn int8(g: &Graph, shape: &[usize]) -> Vec<String> {
    let plan = session(g, Isa::portable(), 1).plan(&[shape.to_vec()]).unwrap();
    plan.kernels.iter().map(|k| k.kernel.clone()).filter(|k| k.contains("u8s8")).collect()
}

/// The same bits on every instruction set and number of threads; they are returned.
fn everywhere(g: &Graph, x: &Tensor) -> Tensor {
    let run = |isa, threads| session(g, isa, threads).run(std::slice::from_ref(x)).unwrap().remove(0);
    let first = run(Isa::portable(), 1);
    for (isa, threads) in Isa::all().into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
        let bits = |t: &Tensor| t.to_f32().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&run(isa, threads)), bits(&first), "{isa:?} on {threads} threads");
    }
    first
}

fn recorded(name: &str) -> (Tensor, Tensor) {
    let arrays = read_npz(&fixture(&format!("{name}.npz"))).unwrap();
    (arrays["in0"].clone(), arrays["out0"].clone())
}

#[test]
fn torchs_dynamic_program_runs_on_integers() {
    let (x, want) = recorded("pt2e/dynamic");
    let g = read(&fixture("pt2e/dynamic.pt2")).unwrap();
    assert_eq!(int8(&g, x.shape()).len(), 2);
    assert!(worst(&want, &everywhere(&g, &x)) < 1e-6);
    assert!(worst(&want, &reference::run(&g, &[x]).unwrap()[0]) < 1e-6);
    let dir = tempfile::tempdir().unwrap();
    let why = pipeline::write(&dir.path().join("m.onnx"), &g).unwrap_err().to_string();
    assert!(why.contains("ONNX computes scales for u8 levels 0 to 255 with any zero point only"), "{why}");
}

#[test]
fn what_onnx_runtime_quantized_dynamically_gives_its_results_on_integers() {
    for (name, kernels) in [("mlp", 2), ("channels", 3)] {
        let (x, want) = recorded(&format!("ort/{name}"));
        let path = fixture(&format!("ort/{name}.onnx"));
        let g = read_runnable(&path).unwrap();
        assert_eq!(int8(&g, x.shape()).len(), kernels, "{name}\n{g}");
        assert!(worst(&want, &everywhere(&g, &x)) < 1e-6, "{name}");
        // As the file has it, and as it is written again.
        assert!(
            worst(&want, &reference::run(&read(&path).unwrap(), std::slice::from_ref(&x)).unwrap()[0]) < 1e-6,
            "{name}"
        );
        assert!(worst(&want, &everywhere(&raise(&through_onnx(&g)).unwrap(), &x)) < 1e-6, "{name}");
    }
    // Unsigned weights.
    let (x, want) = recorded("ort/unsigned");
    let g = read_runnable(&fixture("ort/unsigned.onnx")).unwrap();
    assert_eq!(int8(&g, x.shape()).len(), 3, "{g}");
    assert!(worst(&want, &everywhere(&g, &x)) < 1e-5);
}

/// Bytes around a zero point that are wider than i8 are shifted; the shift is a layer of one channel. A bias in the
/// accumulator's units is added behind it.
#[test]
fn wide_weights_are_shifted() {
    let mut g = text::parse(
        "graph(%x: f32[2, 3, 6, 6]) {
  %w = param \"w\": i32[4, 3, 3, 3]
  %bias = param \"bias\": i32[4, 1, 1]
  %c = quantized_decomposed.choose_qparams.tensor(%x, 0, 255, 1e-30, u8)
  %s64 = getitem(%c, 0)
  %z64 = getitem(%c, 1)
  %q = quantized_decomposed.quantize_per_tensor.tensor(%x, %s64, %z64, 0, 255, u8)
  %s = aten._to_copy(%s64, f32)
  %z = aten._to_copy(%z64, i32)
  %a = aten._to_copy(%q, i32)
  %d = aten.sub.Tensor(%a, %z)
  %xf = aten._to_copy(%d, f64)
  %wf = aten._to_copy(%w, f64)
  %conv = aten.conv2d(%xf, %wf, none, [1, 1], [1, 1])
  %e = aten._to_copy(%conv, i32)
  %f = aten.add.Tensor(%e, %bias)
  %h = aten._to_copy(%f, f32)
  %unit = aten.mul.Tensor(%s, 0.01)
  %y = aten.mul.Tensor(%h, %unit)
  return %y
}",
    )
    .unwrap();
    g.constants.insert("bias".into(), Tensor::new(&[4, 1, 1], vec![900, -700, 50, 0]));
    let x = Numbers(8).tensor(&[2, 3, 6, 6], 2.0);
    for (low, kernels) in [(-119, 2), (-140, 2), (-128, 1)] {
        let w = (0..108).map(|i| low + i * 37 % 256).collect::<Vec<i32>>();
        g.constants.insert("w".into(), Tensor::new(&[4, 3, 3, 3], w));
        let want = reference::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
        let raised = raise(&g).unwrap();
        assert_eq!(int8(&raised, x.shape()).len(), kernels, "{low}: {raised}");
        let range = want.to_f32().iter().fold(0f32, |m, v| m.max(v.abs()));
        assert!(worst(&want, &everywhere(&raised, &x)) < range * 1e-6, "{low}");
    }
}

#[test]
fn a_float_model_is_quantized_without_data() {
    let g = net();
    let q = quantized(&g, "dynamic").unwrap();
    let x = Numbers(5).tensor(&[3, 4, 9, 9], 2.0);
    assert_eq!(int8(&q.converted.graph, x.shape()).len(), 3);
    let why = q.converted.plan.row("depthwise").unwrap().reason.clone();
    assert_eq!(why.as_deref(), Some("a depthwise convolution is run in float"));
    let float = reference::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
    let got = everywhere(&q.converted.graph, &x);
    let range = float.to_f32().iter().fold(0f32, |m, v| m.max(v.abs()));
    assert!(worst(&float, &got) < range / 50.0, "{}", worst(&float, &got));
    let slow = reference::run(&q.converted.graph, std::slice::from_ref(&x)).unwrap().remove(0);
    assert!(worst(&slow, &got) < range / 200.0, "a level more or less");
    // The file says the same, and so does what is read of it.
    let back = raise(&through_onnx(&q.converted.graph)).unwrap();
    assert_eq!(int8(&back, x.shape()).len(), 3, "{back}");
    assert!(worst(&got, &everywhere(&back, &x)) < 1e-6);
    for ending in ["clv", "pt2"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("q.{ending}"));
        pipeline::write(&path, &q.converted.graph).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(everywhere(&back, &x), got, "{ending}");
    }
}

#[test]
fn other_quantizers_ask_for_data() {
    let why = quantized(&net(), "cpu").err().unwrap().to_string();
    assert!(why.starts_with("no calibration samples"), "{why}");
}

#[test]
fn onnx_has_integer_products() {
    let q = quantized(&net(), "dynamic").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.onnx");
    pipeline::write(&path, &q.converted.graph).unwrap();
    let model = cleave_formats::onnx::decode(&path).unwrap();
    let graph = model.graph.unwrap();
    let ops: Vec<&str> = graph.node.iter().map(|n| n.op_type.as_str()).collect();
    let count = |op: &str| ops.iter().filter(|o| **o == op).count();
    assert_eq!((count("DynamicQuantizeLinear"), count("ConvInteger"), count("MatMulInteger")), (3, 2, 1), "{ops:?}");
    assert_eq!((count("QuantizeLinear"), count("DequantizeLinear"), count("Reshape")), (0, 0, 0), "{ops:?}");
    let eps = text::parse(
        "graph(%x: f32[2, 4]) {
  %c = quantized_decomposed.choose_qparams.tensor(%x, 0, 255, 0.000244140625, u8)
  %s = getitem(%c, 0)
  return %s
}",
    );
    let why = write_onnx(&path, &eps.unwrap()).unwrap_err().to_string();
    assert!(why.contains("ONNX has no least scale, this one is 0.000244140625"), "{why}");
}
