//! Files for other runtimes: how they are built, and that ONNX Runtime computes from them what Cleave does.
//!
//! `fixtures/exports` holds what `cleave quantize` wrote, with ONNX Runtime's results; `fixtures/generate/exports.py` made
//! it. `docs/exports.md` says what fuses where.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{Format, Settings, quantize, write};
use cleave::{demo, model};
use cleave_decompose::target;
use cleave_formats::npy::read_npz;
use cleave_formats::onnx::model_of;
use cleave_formats::onnx::proto::{GraphProto, ModelProto, NodeProto};
use cleave_ir::{Arg, Graph};
use cleave_kernels::Isa;
use cleave_runtime::{Options, Session};
use cleave_tests::{fixture, root};
use std::collections::BTreeMap;
use std::path::Path;

const NETWORKS: [&str; 2] = ["tiny_fashion", "depthwise_fashion"];

fn quantized(network: &str, quantizer: &str) -> Graph {
    let export = cleave_formats::read(&fixture(&format!("fashion/{network}.onnx"))).unwrap();
    let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
    quantize(&export, [demo::calibration(16)].as_slice(), &settings, &mut |_, _, _| {}).unwrap().converted.graph
}

/// A model's nodes and constants by the names of values.
struct Model<'m> {
    graph: &'m GraphProto,
    makers: BTreeMap<&'m str, &'m NodeProto>,
}

impl<'m> Model<'m> {
    fn new(model: &'m ModelProto) -> Model<'m> {
        let graph = model.graph.as_ref().unwrap();
        let makers = graph.node.iter().flat_map(|n| n.output.iter().map(move |o| (o.as_str(), n))).collect();
        Model { graph, makers }
    }

    /// The call of an op that makes a value.
    fn maker(&self, value: &str, op: &str) -> &'m NodeProto {
        let n = self.makers[value];
        assert_eq!(n.op_type, op, "{value}");
        n
    }

    fn readers(&self, value: &str) -> Vec<&'m NodeProto> {
        self.graph.node.iter().filter(|n| n.input.iter().any(|i| i == value)).collect()
    }

    /// Element type and bytes of a constant.
    fn constant(&self, name: &str) -> (i32, Vec<u8>) {
        let t = self.graph.initializer.iter().find(|t| t.name == name).unwrap();
        (t.data_type, t.raw_data.as_ref().unwrap().to_vec())
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let (dtype, bytes) = self.constant(name);
        assert_eq!(dtype, FLOAT, "{name}");
        bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

const FLOAT: i32 = 1;
const UINT8: i32 = 2;
const INT8: i32 = 3;
const INT32: i32 = 6;

#[test]
fn every_layer_stands_between_dequantize_and_quantize() {
    for (network, opset, layers) in [("tiny_fashion", 14, 5), ("depthwise_fashion", 13, 15)] {
        let export = cleave_formats::read(&fixture(&format!("fashion/{network}.onnx"))).unwrap();
        let g = quantized(network, "onnx");
        let proto = model_of(Path::new("m.onnx"), &g).unwrap();
        let m = Model::new(&proto);
        assert_eq!(proto.opset_import[0].version, opset, "{network}");
        let names =
            |v: &[cleave_formats::onnx::proto::ValueInfoProto]| v.iter().map(|i| i.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&m.graph.input), names(&m.graph.output)), (export.input_names, export.output_names));
        let metadata: Vec<_> = proto.metadata_props.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
        assert_eq!(metadata, [("cleave.quantize", "divide")]);

        let found: Vec<_> = m.graph.node.iter().filter(|n| matches!(n.op_type.as_str(), "Conv" | "Gemm")).collect();
        assert_eq!(found.len(), layers, "{network}");
        for n in found {
            let [x, w, b] = [0, 1, 2].map(|i| m.maker(&n.input[i], "DequantizeLinear"));
            assert_eq!(m.constant(&x.input[2]).0, UINT8, "{}", n.name);
            assert_eq!((m.constant(&w.input[0]).0, m.constant(&w.input[2]).0), (INT8, INT8), "{}", n.name);
            assert_eq!((m.constant(&b.input[0]).0, m.constant(&b.input[2]).0), (INT32, INT32), "{}", n.name);
            // ONNX Runtime's option for CPUs without VNNI takes no zero point of weights twice.
            assert_eq!(m.readers(&w.input[2]).len(), 1, "{}", n.name);
            let (sx, sw) = (m.floats(&x.input[1])[0], m.floats(&w.input[1]));
            assert_eq!(m.floats(&b.input[1]), sw.iter().map(|s| sx * s).collect::<Vec<_>>(), "{}", n.name);
            // Behind it: a clamp at most, then quantize. The last Gemm's result is a float.
            let mut value = &n.output[0];
            while let [r] = m.readers(value).as_slice()
                && matches!(r.op_type.as_str(), "Relu" | "Clip")
            {
                value = &r.output[0];
            }
            let readers: Vec<_> = m.readers(value).iter().map(|r| r.op_type.as_str()).collect();
            if n.op_type == "Gemm" {
                assert_eq!((readers.len(), value), (0, &m.graph.output[0].name));
            } else {
                assert_eq!(readers, ["QuantizeLinear"], "{}", n.name);
            }
        }
    }
}

#[test]
fn onnx_runtime_computes_the_same_bits() {
    for network in NETWORKS {
        let arrays = read_npz(&fixture(&format!("exports/{network}.npz"))).unwrap();
        let g = model::read_runnable(&fixture(&format!("exports/{network}.onnx"))).unwrap();
        for isa in Isa::all() {
            let mut s = Session::new(&g, Options { isa, threads: 1 }).unwrap();
            let y = s.run(&[arrays["in0"].clone()]).unwrap().remove(0);
            let bits = |t: &cleave_ir::Tensor| t.to_f32().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&y), bits(&arrays["out0"]), "{network} on {isa:?}");
        }
    }
}

/// torch wants float biases. Every convolution has quantized operands and a quantized result.
#[test]
fn programs_for_torch_have_float_biases_and_quantized_layers() {
    let dir = tempfile::tempdir().unwrap();
    for network in NETWORKS {
        let path = dir.path().join("m.pt2");
        assert_eq!(Format::of(&path).unwrap().quantizer(), "xnnpack");
        write(&path, &quantized(network, "xnnpack")).unwrap();
        let g = cleave_formats::read(&path).unwrap();
        let mut layers = 0;
        for (id, n) in g.nodes().filter(|(_, n)| n.op().is_some_and(|o| matches!(o.base(), "conv2d" | "linear"))) {
            let operands: Vec<_> = n.args.iter().take(3).flat_map(|a| a.nodes()).collect();
            let base = |i: usize| g.node(operands[i]).op().map(|o| o.base());
            assert_eq!([base(0), base(1)], ["dequantize_per_tensor", "dequantize_per_channel"].map(Some), "{}", n.name);
            // ExecuTorch rounds a bias to the scale sx·sw: it is rounded already.
            let bias = g.constant(operands[2]).unwrap().to_f32();
            let [x, w] = [operands[0], operands[1]].map(|id| g.node(id));
            let (Some(Arg::Float(sx)), Some(Arg::Node(sw))) = (x.arg("scale"), w.arg("scales")) else {
                panic!("{x:?}")
            };
            for (b, sw) in bias.iter().zip(g.constant(*sw).unwrap().to_f32().iter()) {
                let levels = b / (*sx as f32 * sw);
                assert!((levels - levels.round()).abs() <= levels.abs() * 1e-6, "{}: {levels}", n.name);
            }
            let mut behind = g.users(id);
            while behind.len() == 1 && g.node(behind[0]).op().is_some_and(|o| o.base() == "relu") {
                behind = g.users(behind[0]);
            }
            let ops: Vec<_> = behind.iter().filter_map(|u| Some(g.node(*u).op()?.base())).collect();
            assert_eq!(ops, ["quantize_per_tensor"], "{}", n.name);
            layers += 1;
        }
        assert_eq!(layers, if network == "tiny_fashion" { 5 } else { 15 });
    }
}

/// What stands behind a layer in one unit is what the quantizer's target fuses.
#[test]
fn units_hold_what_their_target_fuses() {
    let g = cleave_ir::text::parse(
        r#"graph(%x: f32[N, 3, 8, 8]) {
  %w = param "w": f32[4, 3, 3, 3]
  %v = param "v": f32[4, 4, 1, 1]
  %conv2d = aten.conv2d(%x, %w): f32[N, 4, 6, 6]
  %hardswish = aten.hardswish(%conv2d): f32[N, 4, 6, 6]
  %conv2d_1 = aten.conv2d(%hardswish, %v): f32[N, 4, 6, 6]
  %relu = aten.relu(%conv2d_1): f32[N, 4, 6, 6]
  return %relu
}
"#,
    )
    .unwrap();
    for t in cleave_decompose::targets().filter(|t| t.name() != "reference") {
        let quantizer = cleave_quantize::TomlQuantizer::load(t.quantizer()).unwrap();
        let a = cleave_quantize::annotate(&g, &quantizer, &Default::default()).unwrap();
        let layers = a.units.iter().filter(|u| g.node(u.compute).op().is_some_and(|o| o.base() == "conv2d"));
        let with: Vec<_> = layers.flat_map(|u| u.nodes.iter().filter(move |n| **n != u.compute)).collect();
        for op in ["hardswish", "relu"] {
            let (id, node) = g.nodes().find(|(_, n)| n.op().is_some_and(|o| o.base() == op)).unwrap();
            assert_eq!(with.contains(&&id), t.fuses(node.op().unwrap()), "{op} for {}", t.name());
        }
    }
    assert_eq!(target("openvino").unwrap().quantizer(), "openvino");
}

/// The page names every built-in target that is a file, its quantizer, and commands that exist.
#[test]
fn the_page_on_exports_names_every_target() {
    let page = std::fs::read_to_string(root().join("docs/exports.md")).unwrap();
    for t in cleave_decompose::targets().filter(|t| !t.runs_here()) {
        assert!(page.contains(&format!("`{}`", t.name())), "{}", t.name());
        assert!(page.contains(&format!("--quantizer {}", t.quantizer())), "{}", t.quantizer());
    }
    let files: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|s| s.split("```").next()).collect();
    assert_eq!(files.len(), 1);
    let fine = cleave_quantize::TomlQuantizer::parse(files[0], "mine.toml").unwrap();
    let specs = cleave_quantize::Quantizer::specs(&fine);
    assert!(specs.iter().filter(|s| s.of_weights()).all(|s| s.eps < cleave_numerics::EPS_TORCH));
}
