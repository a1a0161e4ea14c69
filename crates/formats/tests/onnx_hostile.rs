//! ONNX files that are broken on purpose: an error each time, never a panic or a hang.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use cleave_formats::onnx::{self, proto::*};
use prost::Message;
use std::path::Path;

fn fixture() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion/tiny_fashion.onnx")).unwrap()
}

/// Reads bytes as a file; what matters is that it returns.
fn read(bytes: &[u8]) -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.onnx");
    std::fs::write(&path, bytes).unwrap();
    onnx::read_onnx(&path).map(drop).map_err(|e| e.to_string())
}

/// A small generator of numbers that are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }
}

#[test]
fn files_cut_short_are_refused() {
    let whole = fixture();
    assert_eq!(read(&whole), Ok(()));
    for i in 0..150 {
        let at = i * whole.len() / 150;
        assert!(read(&whole[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn flipped_bits_do_not_panic() {
    let whole = fixture();
    let mut numbers = Numbers(7);
    // Most bytes are weights; what is not lies between them, and in the nodes at the front.
    for round in 0..1500 {
        let mut bytes = whole.clone();
        for _ in 0..=round % 4 {
            let at = if round % 2 == 0 { numbers.below(4000) } else { numbers.below(whole.len()) };
            bytes[at] ^= 1 << numbers.below(8);
        }
        let _ = read(&bytes);
    }
}

/// Every number of every message of the model, one after the other, set to extreme values.
#[test]
fn absurd_numbers_do_not_panic() {
    let model = ModelProto::decode(fixture().as_slice()).unwrap();
    let graph = model.graph.as_ref().unwrap();
    let extremes = [i64::MIN, -1, 0, 1 << 20, (1 << 31) - 1, 1 << 40, i64::MAX];
    let mut tried = 0;
    for (n, node) in graph.node.iter().enumerate() {
        for (a, attribute) in node.attribute.iter().enumerate() {
            for e in extremes {
                let mut m = model.clone();
                let target = &mut m.graph.as_mut().unwrap().node[n].attribute[a];
                target.i = attribute.i.map(|_| e);
                target.f = attribute.f.map(|_| f32::NAN);
                target.ints.iter_mut().for_each(|v| *v = e);
                let _ = onnx::read_model(Path::new("m.onnx"), &m);
                let target = &mut m.graph.as_mut().unwrap().node[n].attribute[a];
                target.r#type = i32::try_from(e & 15).unwrap();
                let _ = onnx::read_model(Path::new("m.onnx"), &m);
                tried += 2;
            }
        }
    }
    for (t, tensor) in graph.initializer.iter().enumerate() {
        for e in extremes {
            for d in 0..tensor.dims.len() {
                let mut m = model.clone();
                m.graph.as_mut().unwrap().initializer[t].dims[d] = e;
                assert!(e == tensor.dims[d] || onnx::read_model(Path::new("m.onnx"), &m).is_err());
                tried += 1;
            }
        }
    }
    assert!(tried > 400, "{tried}");
}

fn node(op: &str, input: &[&str], output: &str) -> NodeProto {
    let input = input.iter().map(|s| s.to_string()).collect();
    NodeProto { op_type: op.into(), input, output: vec![output.into()], ..Default::default() }
}

fn graph(node: Vec<NodeProto>, initializer: Vec<TensorProto>) -> ModelProto {
    let output = vec![ValueInfoProto { name: "y".into(), r#type: None }];
    ModelProto {
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 17 }],
        graph: Some(GraphProto { node, initializer, output, ..Default::default() }),
        ..Default::default()
    }
}

fn longs(name: &str, v: &[i64]) -> TensorProto {
    let dims = vec![i64::try_from(v.len()).unwrap()];
    TensorProto { name: name.into(), data_type: 7, dims, int64_data: v.to_vec(), ..Default::default() }
}

#[test]
fn constants_do_not_grow_without_bound() {
    // A constant that doubles with every node.
    let mut nodes = vec![node("Identity", &["c"], "v0")];
    for i in 0..60 {
        let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
        let mut n = node("Concat", &[&from, &from], &to);
        n.attribute.push(AttributeProto { name: "axis".into(), r#type: 2, i: Some(0), ..Default::default() });
        nodes.push(n);
    }
    nodes.push(node("Identity", &["v60"], "y"));
    let e = onnx::read_model(Path::new("m.onnx"), &graph(nodes, vec![longs("c", &[1, 2])])).unwrap_err();
    assert!(e.to_string().contains("too large") || e.to_string().contains("more than"), "{e}");
    for bad in [vec![i64::MAX, i64::MAX], vec![-5, 3], vec![1 << 62, 0, 1 << 62]] {
        for op in ["ConstantOfShape", "Expand", "Reshape"] {
            let n = if op == "ConstantOfShape" { node(op, &["c"], "y") } else { node(op, &["c", "c"], "y") };
            let _ = onnx::read_model(Path::new("m.onnx"), &graph(vec![n], vec![longs("c", &bad)]));
        }
    }
    for (a, z, d) in [(i64::MIN, i64::MAX, 1), (0, i64::MAX, 1), (i64::MAX, i64::MIN, -1), (0, 1, 0)] {
        let scalars = [("a", a), ("z", z), ("d", d)].map(|(n, v)| TensorProto { dims: vec![], ..longs(n, &[v]) });
        let m = graph(vec![node("Range", &["a", "z", "d"], "y")], scalars.to_vec());
        assert!(onnx::read_model(Path::new("m.onnx"), &m).is_err());
    }
}

#[test]
fn a_file_of_nonsense_is_no_model() {
    for bytes in [&b""[..], b"\x08", b"hello, world", &[0xff; 64], &[0x0a; 4096]] {
        let e = read(bytes).unwrap_err();
        assert!(e.contains("ONNX model"), "{e}");
    }
}

fn error(m: &ModelProto) -> String {
    let start = std::time::Instant::now();
    let e = onnx::read_model(Path::new("m.onnx"), m).unwrap_err().to_string();
    assert!(start.elapsed().as_secs() < 5, "{e}");
    e
}

fn ints(name: &str, v: &[i64]) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 7, ints: v.to_vec(), ..Default::default() }
}

#[test]
fn results_far_larger_than_the_model_are_refused() {
    let huge = longs("c", &[1 << 20, 1 << 20]);
    let filled = graph(vec![node("ConstantOfShape", &["c"], "y")], vec![huge.clone()]);
    assert_eq!(
        error(&filled),
        "m.onnx: node 'y' (ConstantOfShape): a result of shape [1048576, 1048576] is too large for the model"
    );
    // The weights of a large layer, as files without weights of their own have them.
    let layer = graph(vec![node("ConstantOfShape", &["c"], "y")], vec![longs("c", &[4096, 25088])]);
    assert!(onnx::read_model(Path::new("m.onnx"), &layer).is_ok());
    let one = TensorProto { dims: vec![1, 1], ..longs("one", &[1]) };
    let wide = graph(vec![node("Expand", &["one", "c"], "y")], vec![one.clone(), huge.clone()]);
    assert!(error(&wide).contains("(Expand): a result of shape [1048576, 1048576] is too large"));
    let tiled = graph(vec![node("Tile", &["one", "c"], "y")], vec![one.clone(), huge]);
    assert!(error(&tiled).contains("(Tile): a result of shape"));
    let pads = longs("c", &[0, 0, 1 << 30, 1 << 30]);
    let padded = graph(vec![node("Pad", &["one", "c"], "y")], vec![one, pads]);
    assert!(error(&padded).contains("(Pad): a result of shape"));
    // Powers of two by way of broadcasting.
    let column = TensorProto { dims: vec![4096, 1], ..longs("a", &vec![1; 4096]) };
    let mut nodes = vec![node("ReduceMax", &["a"], "m"), node("Mul", &["a", "m"], "v0")];
    for i in 0..3 {
        let mut t = node("Unsqueeze", &[&format!("v{i}"), "last"], &format!("t{i}"));
        t.name = format!("t{i}");
        nodes.push(t);
        nodes.push(node("Add", &[&format!("t{i}"), "row"], &format!("v{}", i + 1)));
    }
    nodes.push(node("Identity", &["v3"], "y"));
    let row = TensorProto { dims: vec![4096], ..longs("row", &vec![1; 4096]) };
    let e = error(&graph(nodes, vec![column, row, longs("last", &[-1])]));
    assert!(e.contains("(Add): a result of shape"), "{e}");
}

fn function(name: &str, node: Vec<NodeProto>) -> FunctionProto {
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let (input, output) = (vec!["a".into()], vec!["b".into()]);
    FunctionProto { name: name.into(), domain: "f".into(), input, output, node, opset_import, ..Default::default() }
}

fn call(name: &str, input: &str, output: &str) -> NodeProto {
    NodeProto { domain: "f".into(), ..node(name, &[input], output) }
}

#[test]
fn functions_neither_call_themselves_nor_grow_without_bound() {
    let with = |functions| ModelProto { functions, ..graph(vec![call("f0", "c", "y")], vec![longs("c", &[1])]) };
    assert_eq!(
        error(&with(vec![function("f0", vec![call("f0", "a", "b")])])),
        "m.onnx: function 'f0' calls itself, or one that does"
    );
    let round = vec![function("f0", vec![call("f1", "a", "b")]), function("f1", vec![call("f0", "a", "b")])];
    assert!(error(&with(round)).contains("calls itself"));
    // Each function calls the next ten times.
    let mut all: Vec<FunctionProto> = (0..20)
        .map(|i| {
            let next = format!("f{}", i + 1);
            let calls = (0..10).map(|k| {
                let (from, to) = (if k == 0 { "a".into() } else { format!("v{k}") }, format!("v{}", k + 1));
                call(&next, &from, if k == 9 { "b" } else { &to })
            });
            function(&format!("f{i}"), calls.collect())
        })
        .collect();
    all.push(function("f20", vec![node("Identity", &["a"], "b")]));
    let e = error(&with(all));
    assert!(e.contains("more than 200000 nodes"), "{e}");
    // A chain of functions that is deeper than anybody writes.
    let mut deep: Vec<FunctionProto> =
        (0..100).map(|i| function(&format!("f{i}"), vec![call(&format!("f{}", i + 1), "a", "b")])).collect();
    deep.push(function("f100", vec![node("Identity", &["a"], "b")]));
    assert!(error(&with(deep)).contains("deep"));
}

#[test]
fn loops_and_branches_that_make_no_sense_are_refused() {
    let attribute = |name: &str, g: GraphProto| AttributeProto {
        name: name.into(),
        r#type: 5,
        g: Some(Box::new(g)),
        ..Default::default()
    };
    let named = |name: &str| ValueInfoProto { name: name.into(), r#type: None };
    let truth = TensorProto { name: "k".into(), data_type: 9, int32_data: vec![1], ..Default::default() };
    let empty = GraphProto::default();
    let mut choice = node("If", &["k"], "y");
    choice.attribute = vec![attribute("then_branch", empty.clone()), attribute("else_branch", empty.clone())];
    assert!(error(&graph(vec![choice.clone()], vec![truth.clone()])).contains("result 0 ('y') is not supported"));
    choice.attribute.pop();
    assert!(error(&graph(vec![choice], vec![truth])).contains("attribute 'else_branch' is missing"));
    let mut endless = node("Loop", &["", "", "c"], "y");
    endless.attribute = vec![attribute("body", empty)];
    assert!(error(&graph(vec![endless.clone()], vec![longs("c", &[1])])).contains("a body of 0 inputs and 0 outputs"));
    // A body that uses what nobody defines, and one that leads in a circle.
    for bad in [vec![node("Identity", &["nowhere"], "v")], vec![node("Add", &["v", "a"], "v")]] {
        let body = GraphProto {
            input: ["i", "k", "a"].map(named).to_vec(),
            output: ["k", "v"].map(named).to_vec(),
            node: bad,
            ..Default::default()
        };
        endless.attribute = vec![attribute("body", body)];
        let e = error(&graph(vec![endless.clone()], vec![longs("c", &[1])]));
        assert!(e.contains("defined nowhere") || e.contains("depends on itself"), "{e}");
    }
}

#[test]
fn operators_on_absurd_arguments_do_not_panic() {
    let extremes = [i64::MIN, -7, -1, 0, 1, 3, 1 << 33, i64::MAX];
    let ops = [
        ("ScatterND", 3),
        ("GatherND", 2),
        ("ScatterElements", 3),
        ("OneHot", 3),
        ("Compress", 2),
        ("Trilu", 2),
        ("CumSum", 2),
        ("TopK", 2),
        ("Unique", 1),
        ("NonZero", 1),
        ("ReverseSequence", 2),
        ("CenterCropPad", 2),
        ("Attention", 3),
        ("RotaryEmbedding", 3),
        ("LinearAttention", 6),
        ("CausalConvWithState", 2),
        ("LSTM", 3),
        ("GRU", 3),
        ("RNN", 3),
        ("DFT", 2),
        ("STFT", 4),
        ("HannWindow", 1),
        ("MelWeightMatrix", 5),
        ("GridSample", 2),
        ("AffineGrid", 2),
        ("Col2Im", 3),
        ("DeformConv", 3),
        ("Det", 1),
        ("MaxPool", 1),
        ("AveragePool", 1),
        ("LpPool", 1),
        ("MaxUnpool", 2),
        ("Resize", 4),
        ("Upsample", 2),
        ("LRN", 1),
        ("QuantizeLinear", 3),
        ("DequantizeLinear", 3),
        ("QLinearConv", 8),
        ("QLinearMatMul", 8),
        ("ConvInteger", 2),
        ("BitShift", 2),
        ("EyeLike", 1),
        ("Hardmax", 1),
        ("TensorScatter", 2),
        ("SoftmaxCrossEntropyLoss", 2),
        ("DepthToSpace", 1),
        ("SpaceToDepth", 1),
        ("Split", 2),
        ("Slice", 3),
        ("Pad", 2),
        ("Range", 3),
        ("GroupNormalization", 3),
        ("LayerNormalization", 2),
        ("BatchNormalization", 5),
        ("InstanceNormalization", 3),
        ("Scan", 2),
    ];
    let names = [
        "axis",
        "k",
        "num_heads",
        "q_num_heads",
        "kv_num_heads",
        "rotary_embedding_dim",
        "hidden_size",
        "block_size",
        "blocksize",
        "batch_axis",
        "time_axis",
        "batch_dims",
        "size",
        "p",
        "num_groups",
        "num_scan_inputs",
    ];
    let lists = ["kernel_shape", "strides", "pads", "dilations", "axes"];
    let shapes: [&[i64]; 7] = [&[], &[0], &[2], &[1, 2], &[1, 2, 2, 2], &[2, 0, 3], &[1, 2, 3]];
    let mut numbers = Numbers(11);
    for (op, takes) in ops {
        for _ in 0..150 {
            let e = extremes[numbers.below(extremes.len())];
            let mut tensor = |i: usize| {
                let shape = shapes[numbers.below(shapes.len())];
                let count = usize::try_from(shape.iter().product::<i64>()).unwrap();
                let (kind, v) = (numbers.below(3), if numbers.below(2) == 0 { 1 } else { e });
                let name = format!("c{i}");
                let t = TensorProto { dims: shape.to_vec(), ..longs(&name, &vec![v; count]) };
                match kind {
                    0 => t,
                    _ => TensorProto { data_type: 1, int64_data: vec![], float_data: vec![v as f32; count], ..t },
                }
            };
            let tensors: Vec<TensorProto> = (0..takes).map(&mut tensor).collect();
            let inputs: Vec<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
            let mut n = node(op, &inputs, "y");
            for name in names {
                let i = Some(extremes[numbers.below(extremes.len())]);
                if numbers.below(3) == 0 {
                    n.attribute.push(AttributeProto { name: name.into(), r#type: 2, i, ..Default::default() });
                }
            }
            for name in lists {
                if numbers.below(3) == 0 {
                    n.attribute.push(ints(name, &vec![e; 1 + numbers.below(4)]));
                }
            }
            let mut m = graph(vec![n.clone()], tensors.clone());
            m.opset_import[0].version = [6, 9, 13, 22][numbers.below(4)];
            let _ = onnx::read_model(Path::new("m.onnx"), &m);
            // The same with inputs in the place of constants.
            let g = m.graph.as_mut().unwrap();
            g.initializer.truncate(numbers.below(takes));
            g.input = tensors.iter().map(input).collect();
            let _ = onnx::read_model(Path::new("m.onnx"), &m);
        }
    }
}

fn input(t: &TensorProto) -> ValueInfoProto {
    let dim = t.dims.iter().map(|d| DimensionProto { value: Some(DimensionValue::DimValue(*d)) }).collect();
    let tensor_type = Some(TensorTypeProto { elem_type: t.data_type, shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: t.name.clone(), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}
