//! Specs beyond eight bits and one scale: weights of four bits with zero points, 16-bit activations, halves.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{self, Quantized};
use cleave_formats::onnx::decode;
use cleave_ir::{Graph, Tensor, text};
use cleave_quantize::Status;
use cleave_runtime::{Options, Session};
use cleave_tests::quantized::{Numbers, quantized, range, results, through_onnx, worst};

const NET: &str = r#"graph(%x: f32[N, 16]) {
  %w = param "w": f32[24, 16]
  %b = param "b": f32[24]
  %v = param "v": f32[6, 24]
  %first = aten.linear(%x, %w, %b): f32[N, 24]
  %relu = aten.relu(%first): f32[N, 24]
  %second = aten.linear(%relu, %v): f32[N, 6]
  return %second
}
"#;

fn net() -> Graph {
    let mut g = text::parse(NET).unwrap();
    let mut n = Numbers(17);
    for (name, scale) in [("w", 0.6), ("b", 0.3), ("v", 0.5)] {
        let shape = g.constants[name].shape().to_vec();
        let t = n.tensor(&shape, scale);
        // Not symmetric, so that zero points tell.
        let t = Tensor::new(&shape, t.to_f32().iter().map(|v| v + 0.3 * scale).collect());
        g.constants.insert(name.into(), t);
    }
    g
}

fn samples() -> Tensor {
    Numbers(23).tensor(&[16, 16], 2.0)
}

/// Quantizes by `cpu` with other specs.
fn by(specs: &str) -> Quantized {
    by_file(&format!("[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n{specs}"))
}

fn by_file(text: &str) -> Quantized {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    quantized(&net(), file.path().to_str().unwrap(), &[], &samples()).unwrap()
}

fn kernels(g: &Graph) -> Vec<String> {
    let plan = Session::new(g, Options::default()).unwrap().plan(&[vec![4, 16]]).unwrap();
    plan.kernels.iter().map(|k| k.kernel.clone()).collect()
}

/// Holds interpreted results, those of kernels and those of an ONNX file against float; within a share of its range.
fn close(q: &Quantized, share: f32) {
    let x = samples().narrow(0, 0, 4).contiguous();
    let want = results(&q.raised, &x)[0].remove(0);
    let limit = share * range(&want);
    let g = &q.converted.graph;
    let [slow, fast] = results(g, &x).map(|mut r| r.remove(0));
    assert!(worst(&want, &slow) <= limit, "{} of {limit}", worst(&want, &slow));
    assert!(worst(&slow, &fast) <= limit / 4.0, "{} of {limit}", worst(&slow, &fast));
    let [_, read] = results(&through_onnx(g), &x).map(|mut r| r.remove(0));
    assert!(worst(&fast, &read) <= 1e-6 * range(&want), "{}", worst(&fast, &read));
}

/// The operator set, and how many constants have a type of ONNX.
fn written(q: &Quantized, data_type: i32) -> (i64, usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("q.onnx");
    pipeline::write(&path, &q.converted.graph).unwrap();
    let model = decode(&path).unwrap();
    let constants = &model.graph.as_ref().unwrap().initializer;
    (model.opset_import[0].version, constants.iter().filter(|t| t.data_type == data_type).count())
}

#[test]
fn weights_of_four_bits_are_packed_in_onnx_and_run_on_integers() {
    for (dtype, scheme, code) in
        [("u4", "per_channel_affine", 21), ("s4", "per_channel_affine", 22), ("s4", "per_channel_symmetric", 22)]
    {
        let q = by(&format!("[spec.weight]\ndtype = \"{dtype}\"\nscheme = \"{scheme}\"\n"));
        let int8 = kernels(&q.converted.graph).iter().filter(|k| k.contains("u8s8")).count();
        assert_eq!(int8, 2, "{dtype} {scheme}");
        close(&q, 0.15);
        // Two weights, and two zero points.
        assert_eq!(written(&q, code), (21, 4), "{dtype} {scheme}");
    }
    let eight = by("[spec.weight]\ndtype = \"u8\"\nscheme = \"per_channel_affine\"\n");
    close(&eight, 0.03);
    assert_eq!(written(&eight, 22), (14, 0));
}

#[test]
fn sixteen_bit_activations_run_in_float_and_the_plan_says_so() {
    for (dtype, scheme) in [("s16", "per_tensor_symmetric"), ("u16", "per_tensor_affine")] {
        let q = by(&format!("[spec.activation]\ndtype = \"{dtype}\"\nscheme = \"{scheme}\"\nobserver = \"minmax\"\n"));
        let note = "first and 1 other units: the CPU backend dequantizes 16-bit levels and computes in float";
        assert!(q.converted.plan.notes.iter().any(|n| n == note), "{:?}", q.converted.plan.notes);
        assert!(!kernels(&q.converted.graph).iter().any(|k| k.contains("u8s8")));
        // The weights have eight bits.
        close(&q, 0.02);
        assert_eq!(written(&q, if dtype == "s16" { 5 } else { 4 }).0, 21);
    }
}

#[test]
fn halves_are_written_as_casts() {
    for (dtype, code, share) in [("f16", 10, 1e-3), ("bf16", 16, 2e-2)] {
        let q = by_file(&format!(
            "[quantizer]\nname = \"mine\"\n[spec.half]\ndtype = \"{dtype}\"\n[[pattern]]\nname = \"linear_act\"\nmatch = \"linear(x, w, b?)\"\n\
             where = [\"constant(w)\"]\ninputs = {{ x = \"half\", w = \"half\", b = \"half\" }}\n"
        ));
        assert_eq!(q.converted.plan.row("first").unwrap().status, Status::Quantized);
        let counts = q.converted.graph.op_counts();
        // Three constants to f32; two activations to half and back.
        assert_eq!(counts.get("aten._to_copy.default"), Some(&7), "{}", q.converted.graph);
        close(&q, share);
        assert_eq!(written(&q, code), (14, 3));
        for ending in ["clv", "pt2"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(format!("q.{ending}"));
            pipeline::write(&path, &q.converted.graph).unwrap();
            let back = cleave_formats::read(&path).unwrap();
            let x = samples();
            assert_eq!(results(&back, &x)[1], results(&q.converted.graph, &x)[1], "{ending}");
        }
    }
}
