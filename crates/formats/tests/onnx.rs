//! ONNX models read and written: small ones built here, and the recorded fashion networks.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use cleave_formats::onnx::proto::*;
use cleave_formats::onnx::{self, tensor::proto_of};
use cleave_ir::{Graph, Levels, Tensor, text, verify};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion").join(name)
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let own = |l: &[&str]| l.iter().map(|s| s.to_string()).collect();
    NodeProto { op_type: op.into(), input: own(inputs), output: own(outputs), attribute, ..Default::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 2, i: Some(i), ..Default::default() }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 1, f: Some(f), ..Default::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 7, ints: ints.to_vec(), ..Default::default() }
}

fn value(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = dims.iter().map(|d| DimensionProto {
        value: Some(d.parse().map_or(DimensionValue::DimParam(d.to_string()), DimensionValue::DimValue)),
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}

fn floats(name: &str, shape: &[usize], v: &[f32]) -> TensorProto {
    proto_of(name, &Tensor::new(shape, v.to_vec()))
}

fn longs(name: &str, v: &[i64]) -> TensorProto {
    proto_of(name, &Tensor::new(&[v.len()], v.to_vec()))
}

/// A model with input `x` and result `y`.
fn model(opset: i64, x: &[&str], initializer: Vec<TensorProto>, node: Vec<NodeProto>) -> ModelProto {
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    ModelProto {
        ir_version: 8,
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        graph: Some(GraphProto { node, initializer, input: vec![value("x", x)], output, ..Default::default() }),
        ..Default::default()
    }
}

fn read(m: &ModelProto) -> Graph {
    onnx::read_model(Path::new("m.onnx"), m).unwrap()
}

fn refused(m: &ModelProto) -> String {
    onnx::read_model(Path::new("m.onnx"), m).unwrap_err().to_string()
}

/// The lines of a graph's text that call ops.
fn calls(g: &Graph) -> Vec<String> {
    let text = g.to_string();
    text.lines().filter(|l| l.contains("= aten.") || l.contains("= quantized")).map(|l| l.trim().to_string()).collect()
}

#[test]
fn the_fashion_networks_are_read_whole() {
    let g = onnx::read_onnx(&fixture("tiny_fashion.onnx")).unwrap();
    assert_eq!((g.input_names.as_slice(), g.output_names.as_slice()), (&["x".into()][..], &["logits".into()][..]));
    let counts: Vec<(&str, usize)> = g.op_counts().into_iter().collect();
    let expected = [
        ("aten.conv2d.default", 4),
        ("aten.batch_norm.default", 4),
        ("aten.relu.default", 4),
        ("aten.max_pool2d.default", 2),
        ("aten.add.Tensor", 1),
        ("aten.adaptive_avg_pool2d.default", 1),
        ("aten.flatten.using_ints", 1),
        ("aten.linear.default", 1),
    ];
    assert_eq!(counts, expected);
    let conv = g.node(g.find("block_conv1_conv1_0_Conv").unwrap());
    assert_eq!(conv.origin.module, "block.conv1.0");
    assert_eq!(conv.origin.sources, ["/block/conv1/conv1.0/Conv"]);
    let out = g.node(g.results()[0]).meta.as_tensor().unwrap();
    assert_eq!(format!("{:?}", out.shape), "[batch, 10]");
    let deep = onnx::read_onnx(&fixture("depthwise_fashion.onnx")).unwrap();
    assert_eq!(deep.op_counts()["aten.clamp.default"], 10);
}

#[test]
fn written_models_read_back_as_the_same_graph() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("again.onnx");
    for name in ["tiny_fashion.onnx", "depthwise_fashion.onnx"] {
        let g = onnx::read_onnx(&fixture(name)).unwrap();
        onnx::write_onnx(&path, &g).unwrap();
        let again = onnx::read_onnx(&path).unwrap();
        assert_eq!(calls(&again), calls(&g));
        assert!(g.constants.iter().all(|(k, t)| again.constants.get(k) == Some(t)));
        let bytes = std::fs::read(&path).unwrap();
        onnx::write_onnx(&path, &g).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "same graph, same bytes");
    }
}

#[test]
fn large_constants_go_beside_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.onnx");
    let g = onnx::read_onnx(&fixture("tiny_fashion.onnx")).unwrap();
    onnx::write_onnx_with(&path, &g, &onnx::WriteOptions { external_from: 0 }).unwrap();
    assert!(dir.path().join("big.onnx.data").is_file());
    let again = onnx::read_onnx(&path).unwrap();
    assert!(g.constants.iter().all(|(k, t)| again.constants.get(k) == Some(t)));
    std::fs::remove_file(dir.path().join("big.onnx.data")).unwrap();
    assert!(onnx::read_onnx(&path).unwrap_err().to_string().contains("external data at 'big.onnx.data'"));
}

#[test]
fn a_gemm_is_a_linear_layer_and_folds_its_factors() {
    let weight = floats("w", &[2, 3], &[1., 2., 3., 4., 5., 6.]);
    let gemm = |c: TensorProto, attrs| {
        read(&model(17, &["N", "2"], vec![weight.clone(), c], vec![node("Gemm", &["x", "w", "c"], &["y"], attrs)]))
    };
    let g = gemm(floats("c", &[3], &[1., 2., 3.]), vec![float("beta", 2.0), float("alpha", 0.5)]);
    assert_eq!(g.op_counts().into_iter().collect::<Vec<_>>(), [("aten.linear.default", 1)]);
    assert_eq!(g.constants["w.transposed.scaled"].to_f64(), [0.5, 2.0, 1.0, 2.5, 1.5, 3.0]);
    assert_eq!(g.constants["c.scaled"].to_f64(), [2.0, 4.0, 6.0]);
    // Any other shape than [N] is an addition.
    for shape in [vec![1, 3], vec![1]] {
        let g = gemm(floats("c", &shape, &vec![1.0; shape.iter().product()]), vec![]);
        assert_eq!(g.op_counts().keys().copied().collect::<Vec<_>>(), ["aten.linear.default", "aten.add.Tensor"]);
    }
}

#[test]
fn shape_arithmetic_becomes_sizes() {
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![]),
        node("Gather", &["s", "zero"], &["n"], vec![int("axis", 0)]),
        node("Concat", &["n", "rest"], &["t"], vec![int("axis", 0)]),
        node("Reshape", &["x", "t"], &["y"], vec![]),
    ];
    let g = read(&model(13, &["N", "4", "6"], vec![longs("zero", &[0]), longs("rest", &[-1])], nodes));
    assert_eq!(calls(&g), ["%y = aten.reshape(%x, [<N>, -1]): f32[N, 24]"]);
}

#[test]
fn unknown_sizes_equal_nothing() {
    let add = vec![node("Add", &["x", "z"], &["y"], vec![])];
    let mut m = model(13, &["?", "-1", "s0"], vec![], add);
    m.graph.as_mut().unwrap().input.push(value("z", &["?", "-1", "s0"]));
    let g = read(&m);
    let shape = |id| format!("{:?}", g.tensor_meta(id).unwrap().shape);
    assert_eq!(g.placeholders().into_iter().map(shape).collect::<Vec<_>>(), ["[s1, s2, s0]", "[s3, s4, s0]"]);
}

#[test]
fn constants_are_constants_wherever_they_stand() {
    let weight = AttributeProto {
        name: "value".into(),
        r#type: 4,
        t: Some(floats("", &[2, 2], &[1., 2., 3., 4.])),
        ..Default::default()
    };
    let nodes = vec![
        node("MatMul", &["x", "wt"], &["y"], vec![]),
        node("Transpose", &["w"], &["wt"], vec![]),
        node("Constant", &[], &["w"], vec![weight]),
    ];
    // The nodes stand in no order; the transpose is folded.
    let g = read(&model(13, &["N", "2"], vec![], nodes));
    assert_eq!(g.constants["wt"].to_f64(), [1., 3., 2., 4.]);
    assert_eq!(g.op_counts().len(), 1);
    // Up to IR version 3 initializers are inputs too.
    let mut old =
        model(9, &["N", "2"], vec![floats("b", &[2], &[1., 2.])], vec![node("Add", &["x", "b"], &["y"], vec![])]);
    old.graph.as_mut().unwrap().input.push(value("b", &["2"]));
    assert_eq!(read(&old).input_names, ["x"]);
}

#[test]
fn uneven_pads_are_put_around_the_input() {
    let w = floats("w", &[1, 1, 3, 3], &[0.0; 9]);
    let conv = |pads: &[i64]| {
        let conv = node("Conv", &["x", "w"], &["y"], vec![ints("pads", pads), ints("strides", &[2, 2])]);
        calls(&read(&model(13, &["1", "1", "8", "8"], vec![w.clone()], vec![conv])))
    };
    assert_eq!(conv(&[1, 1, 1, 1]), ["%y = aten.conv2d(%x, %w, none, [2, 2], [1, 1]): f32[1, 1, 4, 4]"]);
    let uneven = conv(&[0, 0, 1, 1]);
    assert_eq!(uneven[0], "%constant_pad_nd = aten.constant_pad_nd(%x, [0, 1, 0, 1], 0.0): f32[1, 1, 9, 9]");
    assert_eq!(uneven[1], "%y = aten.conv2d(%constant_pad_nd, %w, none, [2, 2]): f32[1, 1, 4, 4]");
}

#[test]
fn an_old_softmax_divides_the_shape_in_two() {
    let softmax = |opset| {
        let nodes = vec![node("Softmax", &["x"], &["y"], vec![int("axis", 1)])];
        calls(&read(&model(opset, &["2", "3", "4"], vec![], nodes)))
    };
    assert_eq!(softmax(13), ["%y = aten.softmax.int(%x, 1): f32[2, 3, 4]"]);
    assert_eq!(softmax(12)[1], "%y = aten.softmax.int(%reshape, 1): f32[2, 12]");
}

#[test]
fn what_is_not_understood_is_named_all_at_once() {
    let nodes = vec![node("Frob", &["x"], &["a"], vec![]), node("Nicate", &["a"], &["y"], vec![])];
    let e = refused(&model(13, &["1"], vec![], nodes));
    assert_eq!(e, "m.onnx: 2 problems\n  node 'a' (Frob): unknown operator\n  node 'y' (Nicate): unknown operator");
    let odd = vec![node("Relu", &["x"], &["y"], vec![int("inplace", 1)])];
    assert_eq!(
        refused(&model(13, &["1"], vec![], odd)),
        "m.onnx: node 'y' (Relu): attribute 'inplace' is not supported"
    );
    let wrong = vec![node("Flatten", &["x"], &["y"], vec![float("axis", 1.0)])];
    let e = refused(&model(13, &["1", "2"], vec![], wrong));
    assert_eq!(e, "m.onnx: node 'y' (Flatten): attribute 'axis': expected Int, found Float");
    assert!(refused(&model(99, &["1"], vec![], vec![])).contains("operator set 99, expected 1 to 28"));
}

#[test]
fn cycles_and_missing_values_are_refused() {
    let cycle = vec![
        node("Add", &["x", "b"], &["a"], vec![]),
        node("Relu", &["a"], &["b"], vec![]),
        node("Relu", &["b"], &["y"], vec![]),
    ];
    assert!(refused(&model(13, &["1"], vec![], cycle)).contains("depends on itself"));
    let missing = vec![node("Relu", &["nowhere"], &["y"], vec![])];
    assert!(refused(&model(13, &["1"], vec![], missing)).contains("value 'nowhere' is defined nowhere"));
    let twice = vec![node("Relu", &["x"], &["y"], vec![]), node("Relu", &["x"], &["y"], vec![])];
    assert!(refused(&model(13, &["1"], vec![], twice)).contains("value 'y' is defined twice"));
}

#[test]
fn inputs_that_decide_shapes_may_be_given() {
    let m = model(13, &["2", "3"], vec![], vec![node("Reshape", &["x", "s"], &["y"], vec![])]);
    let mut m = m;
    let mut s = value("s", &["2"]);
    s.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().elem_type = 7;
    m.graph.as_mut().unwrap().input.push(s);
    // Without a value the sizes are those that running tells.
    let open = onnx::read_model(Path::new("m.onnx"), &m).unwrap();
    assert_eq!(calls(&open).last().unwrap(), "%y = aten.reshape(%x, [<u0>, <u1>]): f32[u0, u1]");
    let values =
        [("x".to_string(), Tensor::new(&[2, 3], vec![0f32; 6])), ("s".to_string(), Tensor::new(&[2], vec![3i64, 2]))];
    let options = onnx::ReadOptions { values: &values, evaluate: None };
    let g = onnx::read_model_with(Path::new("m.onnx"), &m, options).unwrap();
    assert_eq!(
        (calls(&g), g.input_names),
        (vec!["%y = aten.reshape(%x, [3, 2]): f32[3, 2]".to_string()], vec!["x".to_string()])
    );
}

const QUANTIZED: &str = r#"graph(%x: f32[N, 2, 4, 4]) where 1 <= N with quantize = "divide" {
  %x_q = quantized_decomposed.quantize_per_tensor(%x, 0.5, 3, 0, 255, u8): u8[N, 2, 4, 4]
  %x_d = quantized_decomposed.dequantize_per_tensor(%x_q, 0.5, 3, 0, 255, u8): f32[N, 2, 4, 4]
  %w = param "w": i8[2, 2, 1, 1]
  %s = buffer "s": f32[2]
  %z = buffer "z": i64[2]
  %w_d = quantized_decomposed.dequantize_per_channel(%w, %s, %z, 0, -127, 127, i8): f32[2, 2, 1, 1]
  %conv = aten.conv2d(%x_d, %w_d): f32[N, 2, 4, 4]
  %relu = aten.relu(%conv): f32[N, 2, 4, 4]
  %y_q = quantized_decomposed.quantize_per_tensor(%relu, 0.25, 0, 0, 255, u8): u8[N, 2, 4, 4]
  %y_d = quantized_decomposed.dequantize_per_tensor(%y_q, 0.25, 0, 0, 255, u8): f32[N, 2, 4, 4]
  return %y_d "y"
}
"#;

#[test]
fn quantized_graphs_are_written_with_scales_and_zero_points() {
    let g = text::parse(QUANTIZED).unwrap();
    let m = onnx::model_of(Path::new("q.onnx"), &g).unwrap();
    let graph = m.graph.as_ref().unwrap();
    let ops: Vec<&str> = graph.node.iter().map(|n| n.op_type.as_str()).collect();
    let q = ["QuantizeLinear", "DequantizeLinear"];
    assert_eq!(ops, [q[0], q[1], q[1], "Conv", "Relu", q[0], q[1]]);
    let zero = graph.initializer.iter().find(|t| t.name == graph.node[2].input[2]).unwrap();
    assert_eq!((zero.data_type, zero.dims.as_slice()), (3, &[2][..]), "the weight's zero points are i8");
    let again = onnx::read_model(Path::new("q.onnx"), &m).unwrap();
    assert!(again.quantizes_by_division());
    verify::verify(&again, Levels::ALL).unwrap();
    let expected: Vec<String> = calls(&g).iter().map(|l| l.replace("-127, 127, i8", "-128, 127, i8")).collect();
    let names = |l: &String| l.split_once('=').map(|(_, r)| r.split('(').next().unwrap_or("").to_string());
    assert_eq!(calls(&again).iter().map(names).collect::<Vec<_>>(), expected.iter().map(names).collect::<Vec<_>>());
    assert_eq!(calls(&again)[0], expected[0]);
}

#[test]
fn the_operator_set_is_the_lowest_that_has_all_ops() {
    let opset = |body: &str| {
        let g = text::parse(&format!("graph(%x: f32[N, 2, 4, 4]) where 1 <= N {{\n{body}\n  return %y \"y\"\n}}\n"))
            .unwrap();
        let m = onnx::model_of(Path::new("q.onnx"), &g).unwrap();
        (m.opset_import[0].version, m.ir_version)
    };
    assert_eq!(opset("  %y = aten.sigmoid(%x): f32[N, 2, 4, 4]"), (13, 7));
    assert_eq!(opset("  %y = aten.hardswish(%x): f32[N, 2, 4, 4]"), (14, 7));
    assert_eq!(opset("  %y = aten.layer_norm(%x, [4]): f32[N, 2, 4, 4]"), (17, 8));
    assert_eq!(opset("  %y = aten.gelu(%x): f32[N, 2, 4, 4]"), (20, 9));
    assert_eq!(opset("  %y = aten.mean.dim(%x, [1], true): f32[N, 1, 4, 4]"), (13, 7));
}

#[test]
fn an_op_that_cannot_be_written_is_named() {
    let g = text::parse("graph(%x: f32[4]) {\n  %y = aten.roll(%x, [1], [0]): f32[4]\n  return %y \"y\"\n}\n").unwrap();
    let e = onnx::model_of(Path::new("q.onnx"), &g).unwrap_err().to_string();
    assert_eq!(e, "q.onnx: node 'y' (aten.roll): this op cannot be written as ONNX; decompose it first");
}
