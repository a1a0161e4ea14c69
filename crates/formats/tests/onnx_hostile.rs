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
