//! Control flow, functions, recurrent layers and odd names of ONNX models: what is read, and what it comes to.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_formats::onnx::proto::*;
use cleave_formats::onnx::tensor::{code_of, proto_of};
use cleave_formats::onnx::{self, ReadOptions};
use cleave_ir::{Graph, Tensor};
use cleave_numerics::DType;
use cleave_runtime::reference;
use std::path::Path;

fn own(l: &[&str]) -> Vec<String> {
    l.iter().map(|s| s.to_string()).collect()
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { op_type: op.into(), input: own(inputs), output: own(outputs), attribute, ..Default::default() }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 2, i: Some(i), ..Default::default() }
}

fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 1, f: Some(f), ..Default::default() }
}

fn graph_of(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: 5, g: Some(Box::new(g)), ..Default::default() }
}

fn value(name: &str, dtype: DType, dims: &[&str]) -> ValueInfoProto {
    let dim = dims.iter().map(|d| DimensionProto {
        value: Some(d.parse().map_or(DimensionValue::DimParam(d.to_string()), DimensionValue::DimValue)),
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: code_of(dtype), shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..Default::default() }) }
}

fn named(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: name.into(), r#type: None }
}

fn body(inputs: &[&str], outputs: &[&str], node: Vec<NodeProto>) -> GraphProto {
    let list = |l: &[&str]| l.iter().map(|n| named(n)).collect();
    GraphProto { node, input: list(inputs), output: list(outputs), ..Default::default() }
}

fn model(input: Vec<ValueInfoProto>, constants: Vec<TensorProto>, node: Vec<NodeProto>, out: &[&str]) -> ModelProto {
    let output = out.iter().map(|n| named(n)).collect();
    ModelProto {
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        graph: Some(GraphProto { node, initializer: constants, input, output, ..Default::default() }),
        ..Default::default()
    }
}

fn read(m: &ModelProto) -> Graph {
    onnx::read_model(Path::new("m.onnx"), m).unwrap()
}

fn run(g: &Graph, inputs: &[Tensor]) -> Vec<(Vec<usize>, Vec<f64>)> {
    reference::run(g, inputs).unwrap().iter().map(|t| (t.shape().to_vec(), t.to_f64())).collect()
}

fn floats(v: &[f32]) -> Tensor {
    Tensor::new(&[v.len()], v.to_vec())
}

/// The graph of the file that it is written as, which gives the same results on these inputs.
fn again(g: &Graph, inputs: &[Tensor]) -> Graph {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("again.onnx");
    cleave::pipeline::write(&path, g).unwrap();
    let back = onnx::read_onnx(&path).unwrap();
    assert_eq!((&back.input_names, &back.output_names), (&g.input_names, &g.output_names));
    for ((a, got), (b, want)) in run(&back, inputs).into_iter().zip(run(g, inputs)) {
        // A bias beside a product of matrices of three dimensions is a sum of its own.
        assert!(a == b && got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-7), "{got:?}, expected {want:?}");
    }
    back
}

fn count(g: &Graph, op: &str) -> usize {
    g.op_counts().get(op).copied().unwrap_or(0)
}

#[test]
fn functions_are_put_in_the_place_of_their_calls() {
    let scale = NodeProto {
        attribute: vec![AttributeProto { ref_attr_name: "by".into(), ..float("value_float", 0.0) }],
        ..node("Constant", &[], &["v"], vec![])
    };
    let scaled = FunctionProto {
        name: "Scaled".into(),
        domain: "own".into(),
        input: own(&["x", "shift"]),
        output: own(&["y"]),
        attribute_proto: vec![float("by", 3.0)],
        node: vec![scale, node("Mul", &["x", "v"], &["t"], vec![]), node("Sum", &["t", "shift"], &["y"], vec![])],
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: 18 }],
        ..Default::default()
    };
    let call = |inputs: &[&str], out: &str, a| NodeProto { domain: "own".into(), ..node("Scaled", inputs, &[out], a) };
    // The names inside, `t` and `y` among them, are not those of the graph.
    let nodes = vec![call(&["x", "x"], "t", vec![]), call(&["t", "x"], "z", vec![float("by", 10.0)])];
    let mut m = model(vec![value("x", DType::F32, &["2"])], vec![], nodes, &["z"]);
    m.functions = vec![scaled];
    assert_eq!(run(&read(&m), &[floats(&[1.0, 2.0])]), [(vec![2], vec![41.0, 82.0])]);
}

fn choice(condition: &str) -> NodeProto {
    let yes = body(&[], &["a"], vec![node("Add", &["x", "x"], &["a"], vec![])]);
    let no = body(&[], &["b"], vec![node("Neg", &["x"], &["b"], vec![])]);
    node("If", &[condition], &["y"], vec![graph_of("then_branch", yes), graph_of("else_branch", no)])
}

#[test]
fn a_known_branch_is_taken_and_an_unknown_one_is_carried() {
    let x = || value("x", DType::F32, &["N"]);
    let known = proto_of("k", &Tensor::from_bools(&[], &[false]));
    let g = read(&model(vec![x()], vec![known], vec![choice("k")], &["y"]));
    assert_eq!((count(&g, "higher_order.cond"), count(&g, "aten.neg.default")), (0, 1));
    assert_eq!(run(&g, &[floats(&[1.0, -2.0])])[0].1, [-1.0, 2.0]);
    let open = model(vec![x(), value("k", DType::Bool, &[])], vec![], vec![choice("k")], &["y"]);
    let g = read(&open);
    assert_eq!(count(&g, "higher_order.cond"), 1);
    for (k, want) in [(true, [2.0, -4.0]), (false, [-1.0, 2.0])] {
        let inputs = [floats(&[1.0, -2.0]), Tensor::from_bools(&[], &[k])];
        assert_eq!(run(&g, &inputs)[0].1, want);
        assert_eq!(count(&again(&g, &inputs), "higher_order.cond"), 1);
    }
}

#[test]
fn branches_of_different_ranks_take_the_sizes_that_are_given() {
    // What torch's exporter makes of squeeze: the branch depends on a size.
    let squeezed = body(&[], &["a"], vec![node("Squeeze", &["x", "axis"], &["a"], vec![])]);
    let kept = body(&[], &["b"], vec![node("Identity", &["x"], &["b"], vec![])]);
    let nodes = vec![
        node("Shape", &["x"], &["s"], vec![int("start", 1)]),
        node("Equal", &["s", "one"], &["k"], vec![]),
        node("If", &["k"], &["y"], vec![graph_of("then_branch", squeezed), graph_of("else_branch", kept)]),
    ];
    let constants =
        vec![proto_of("one", &Tensor::new(&[1], vec![1i64])), proto_of("axis", &Tensor::new(&[1], vec![1i64]))];
    let m = model(vec![value("x", DType::F32, &["2", "N"])], constants, nodes, &["y"]);
    let e = onnx::read_model(Path::new("m.onnx"), &m).unwrap_err().to_string();
    assert!(e.contains("result 0 is f32[2] in one branch and f32[2, N] in the other"), "{e}");
    for (n, shape) in [(1, vec![2]), (3, vec![2, 3])] {
        let x = Tensor::new(&[2, n], vec![1f32; 2 * n]);
        let values = [("x".to_string(), x.clone())];
        let g =
            onnx::read_model_with(Path::new("m.onnx"), &m, ReadOptions { values: &values, evaluate: None }).unwrap();
        assert_eq!(run(&g, &[x])[0].0, shape);
    }
}

/// Doubles `v` for as long as it is less than 50, and gives it before each step.
fn doubling(trips: &str, keep: &str) -> NodeProto {
    let nodes = vec![
        node("Add", &["v", "v"], &["w"], vec![]),
        node("ReduceMax", &["w"], &["most"], vec![int("keepdims", 0)]),
        node("Less", &["most", "fifty"], &["go"], vec![]),
        node("Identity", &["v"], &["before"], vec![]),
    ];
    let b = body(&["i", "k", "v"], &["go", "w", "before"], nodes);
    node("Loop", &[trips, keep, "x"], &["y", "all"], vec![graph_of("body", b)])
}

#[test]
fn loops_run_until_their_condition_or_their_count_ends() {
    let x = || value("x", DType::F32, &["2"]);
    let fifty = proto_of("fifty", &Tensor::scalar(50f32));
    let m = model(vec![x(), value("n", DType::I64, &[])], vec![fifty.clone()], vec![doubling("n", "")], &["y", "all"]);
    let g = read(&m);
    assert_eq!(count(&g, "higher_order.while_loop"), 1);
    let all = [7.0, 1.0, 14.0, 2.0, 28.0, 4.0];
    for (n, y, steps) in [(2i64, [28.0, 4.0], 2), (9, [56.0, 8.0], 3), (0, [7.0, 1.0], 0)] {
        let inputs = [floats(&[7.0, 1.0]), Tensor::scalar(n)];
        let out = run(&g, &inputs);
        assert_eq!(out, [(vec![2], y.to_vec()), (vec![steps, 2], all[..2 * steps].to_vec())], "{n}");
        assert_eq!(count(&again(&g, &inputs), "higher_order.while_loop"), 1);
    }
    // A count that is known, and a condition that is: step by step.
    let b = body(&["i", "k", "v"], &["k", "w"], vec![node("Add", &["v", "v"], &["w"], vec![])]);
    let nodes = vec![node("Loop", &["n", "", "x"], &["y"], vec![graph_of("body", b)])];
    let g = read(&model(vec![x()], vec![proto_of("n", &Tensor::scalar(3i64))], nodes, &["y"]));
    assert_eq!((count(&g, "aten.add.Tensor"), g.op_counts().len()), (3, 1));
    assert_eq!(run(&g, &[floats(&[1.0, -1.0])])[0].1, [8.0, -8.0]);
}

#[test]
fn what_a_loop_carries_may_grow() {
    let b = body(&["i", "k", "v"], &["k", "w"], vec![node("Concat", &["v", "x"], &["w"], vec![int("axis", 0)])]);
    let nodes = vec![node("Loop", &["n", "", "x"], &["y"], vec![graph_of("body", b)])];
    let input = vec![value("x", DType::F32, &["2"]), value("n", DType::I64, &[])];
    let g = read(&model(input, vec![], nodes, &["y"]));
    let inputs = [floats(&[1.0, 2.0]), Tensor::scalar(2i64)];
    assert_eq!(run(&g, &inputs), [(vec![6], vec![1.0, 2.0, 1.0, 2.0, 1.0, 2.0])]);
    again(&g, &inputs);
    // A loop without an end is an error, not a hang.
    let forever = body(&["i", "k", "v"], &["k", "w"], vec![node("Neg", &["v"], &["w"], vec![])]);
    let nodes = vec![node("Loop", &["", "k0", "x"], &["y"], vec![graph_of("body", forever)])];
    let input = vec![value("x", DType::F32, &["1"]), value("k0", DType::Bool, &[])];
    let g = read(&model(input, vec![], nodes, &["y"]));
    let e = reference::run(&g, &[floats(&[1.0]), Tensor::from_bools(&[], &[true])]).unwrap_err().to_string();
    assert!(e.contains("the loop does not end"), "{e}");
}

#[test]
fn scans_give_the_same_step_by_step_and_as_an_op() {
    let b = body(
        &["s", "e"],
        &["t", "o"],
        vec![node("Add", &["s", "e"], &["t"], vec![]), node("Mul", &["t", "two"], &["o"], vec![])],
    );
    let scan = node("Scan", &["start", "x"], &["last", "all"], vec![int("num_scan_inputs", 1), graph_of("body", b)]);
    let constants = || vec![proto_of("start", &floats(&[0.0, 10.0])), proto_of("two", &Tensor::scalar(2f32))];
    let of = |n: &str| {
        read(&model(vec![value("x", DType::F32, &[n, "2"])], constants(), vec![scan.clone()], &["last", "all"]))
    };
    let (known, open) = (of("3"), of("T"));
    assert_eq!((count(&known, "higher_order.scan"), count(&open, "higher_order.scan")), (0, 1));
    let x = Tensor::new(&[3, 2], vec![1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let want = [(vec![2], vec![9.0, 22.0]), (vec![3, 2], vec![2.0, 24.0, 8.0, 32.0, 18.0, 44.0])];
    assert_eq!(run(&known, std::slice::from_ref(&x)), want);
    assert_eq!(run(&open, std::slice::from_ref(&x)), want);
    assert_eq!(count(&again(&open, &[x]), "higher_order.scan"), 1);
}

/// Both directions of a layer, along sequences of different lengths and of any, from states that are given.
#[test]
fn recurrent_layers_of_any_length_are_written_as_scans() {
    let (hidden, input) = (3usize, 2usize);
    for (op, gates) in [("LSTM", 4), ("GRU", 3), ("RNN", 1)] {
        let noise = |name: &str, shape: &[usize]| {
            let v = (0..shape.iter().product()).map(|i: usize| ((i * 7 % 11) as f32 - 5.0) / 8.0).collect();
            proto_of(name, &Tensor::new::<f32>(shape, v))
        };
        let constants = vec![
            noise("w", &[2, gates * hidden, input]),
            noise("r", &[2, gates * hidden, hidden]),
            noise("b", &[2, 2 * gates * hidden]),
            proto_of("n", &Tensor::new(&[2], vec![3i32, 2])),
        ];
        let way = AttributeProto {
            r#type: 3,
            s: Some("bidirectional".into()),
            name: "direction".into(),
            ..Default::default()
        };
        let nodes = vec![node(op, &["x", "w", "r", "b", "n", "h0"], &["y", "h"], vec![way])];
        let inputs = vec![value("x", DType::F32, &["T", "2", "2"]), value("h0", DType::F32, &["2", "2", "3"])];
        let g = read(&model(inputs, constants, nodes, &["y", "h"]));
        let ramp = |shape: &[usize]| {
            Tensor::new::<f32>(shape, (0..shape.iter().product()).map(|i: usize| i as f32 / 9.0 - 0.5).collect())
        };
        let x = [ramp(&[4, 2, 2]), ramp(&[2, 2, 3])];
        let back = again(&g, &x);
        assert_eq!((count(&g, "higher_order.scan"), count(&back, "higher_order.scan")), (2, 2), "{op}");
        assert_eq!(run(&back, &x)[0].0, [4, 2, 2, 3]);
    }
}

/// A recurrent layer of hidden size 1 on an input of size 1, whose weights are all 0.5.
fn layer(op: &str, gates: usize, time: &str, attributes: Vec<AttributeProto>) -> Graph {
    let half = |name: &str, shape: &[usize]| proto_of(name, &Tensor::new(shape, vec![0.5f32; shape.iter().product()]));
    let constants = vec![half("w", &[1, gates, 1]), half("r", &[1, gates, 1]), half("b", &[1, 2 * gates])];
    let nodes = vec![node(op, &["x", "w", "r", "b"], &["y", "h"], attributes)];
    read(&model(vec![value("x", DType::F32, &[time, "1", "1"])], constants, nodes, &["y", "h"]))
}

#[test]
fn recurrent_layers_follow_their_formulas_along_any_length() {
    let sigmoid = |v: f64| 1.0 / (1.0 + (-v).exp());
    let x = [0.25f32, -1.0, 2.0];
    for op in ["LSTM", "GRU", "RNN"] {
        let (mut h, mut cell, mut want) = (0f64, 0f64, vec![]);
        for v in x.map(f64::from) {
            let g = 0.5 * v + 0.5 * h + 1.0;
            h = match op {
                "RNN" => g.tanh(),
                "GRU" => {
                    let (z, r) = (sigmoid(g), sigmoid(g));
                    (1.0 - z) * (0.5 * v + 0.5 * (r * h) + 1.0).tanh() + z * h
                }
                _ => {
                    cell = sigmoid(g) * cell + sigmoid(g) * g.tanh();
                    sigmoid(g) * cell.tanh()
                }
            };
            want.push(h);
        }
        let gates = match op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        };
        let t = Tensor::new(&[3, 1, 1], x.to_vec());
        for time in ["3", "T"] {
            let g = layer(op, gates, time, vec![]);
            assert_eq!(count(&g, "higher_order.scan"), usize::from(time == "T"));
            let out = run(&g, std::slice::from_ref(&t));
            assert_eq!((out[0].0.as_slice(), out[1].0.as_slice()), (&[3, 1, 1, 1][..], &[1, 1, 1][..]));
            let near = out[0].1.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-6);
            assert!(near && (out[1].1[0] - want[2]).abs() < 1e-6, "{op} {time}: {out:?}, expected {want:?}");
        }
    }
}

#[test]
fn names_make_no_difference() {
    // Without names, with the same, with numbers, with letters of other alphabets.
    let mut nodes: Vec<NodeProto> = [("x.1", "1"), ("1", "größe/長さ"), ("größe/長さ", "%a b"), ("%a b", "out:0")]
        .iter()
        .map(|(a, b)| node("Neg", &[a], &[b], vec![]))
        .collect();
    let plain = nodes.clone();
    nodes.iter_mut().for_each(|n| n.name = "same".into());
    let numbered: Vec<NodeProto> =
        plain.iter().enumerate().map(|(i, n)| NodeProto { name: format!("{}", 9 - i), ..n.clone() }).collect();
    for nodes in [plain, nodes, numbered] {
        let g = read(&model(vec![value("x.1", DType::F32, &["1"])], vec![], nodes, &["out:0", "größe/長さ"]));
        assert_eq!(
            (g.input_names.as_slice(), g.output_names.as_slice()),
            (&own(&["x.1"])[..], &own(&["out:0", "größe/長さ"])[..])
        );
        assert_eq!(run(&g, &[floats(&[3.0])]), [(vec![1], vec![3.0]), (vec![1], vec![3.0])]);
    }
}

#[test]
fn constants_come_in_every_form() {
    let narrow = |name: &str, code: i32, bytes: &'static [u8]| TensorProto {
        name: name.into(),
        dims: vec![3],
        data_type: code,
        raw_data: Some(bytes.into()),
        ..Default::default()
    };
    // -1, 7, -8 and 15, 7, 8 in halves of bytes; -2, 1, -1 in quarters.
    let constants = vec![narrow("i4", 22, b"\x7f\x08"), narrow("u4", 21, b"\x7f\x08"), narrow("i2", 26, b"\x36")];
    let cast = |from: &str, to: &str| node("Cast", &[from], &[to], vec![int("to", 1)]);
    let nodes = vec![cast("i4", "a"), cast("u4", "b"), cast("i2", "c"), node("Identity", &["s"], &["d"], vec![])];
    let mut m = model(vec![], constants, nodes, &["a", "b", "c", "d"]);
    let values = TensorProto { name: "s".into(), ..proto_of("s", &floats(&[5.0, 6.0])) };
    let indices = proto_of("", &Tensor::new(&[2, 2], vec![0i64, 1, 1, 0]));
    m.graph.as_mut().unwrap().sparse_initializer =
        vec![SparseTensorProto { values: Some(values), indices: Some(indices), dims: vec![2, 2] }];
    let out: Vec<Vec<f64>> = run(&read(&m), &[]).into_iter().map(|(_, v)| v).collect();
    assert_eq!(out, [vec![-1.0, 7.0, -8.0], vec![15.0, 7.0, 8.0], vec![-2.0, 1.0, -1.0], vec![0.0, 5.0, 6.0, 0.0]]);
}
