//! `--dtype fp16`: weights as half-precision numbers, arithmetic in f32.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave::model::read_runnable;
use cleave_formats::npy;
use cleave_ir::{Graph, Tensor, text};
use cleave_numerics::DType;
use cleave_runtime::{Options, Session, reference};
use common::{cleave, error, json};
use half::f16;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// A folder with the tiny model and data for it.
fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["tiny_fashion.pt2", "tiny_fashion.onnx"] {
        std::fs::copy(fixture("fashion").join(name), dir.path().join(name)).unwrap();
    }
    npy::write_npy(&dir.path().join("calib.npy"), &cleave::demo::calibration(8)).unwrap();
    dir
}

fn run(g: &Graph, x: &Tensor) -> Vec<f32> {
    Session::new(g, Options::default()).unwrap().run(std::slice::from_ref(x)).unwrap()[0].to_f32().into_owned()
}

fn farthest(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Halves among a graph's constants, in order of their bits.
fn halves(g: &Graph) -> Vec<Vec<u16>> {
    let of = |t: &Tensor| {
        let mut bits: Vec<u16> = t.elements::<f16>().unwrap().iter().map(|v| v.to_bits()).collect();
        bits.sort_unstable();
        bits
    };
    let mut all: Vec<_> = g.constants.values().filter(|t| t.dtype() == DType::F16).map(of).collect();
    all.sort();
    all
}

#[test]
fn files_shrink_and_results_are_those_of_rounded_weights() {
    let dir = workplace();
    let dir = dir.path();
    let at = |name: &str| dir.join(name);
    let float = read_runnable(&at("tiny_fashion.pt2")).unwrap();
    let x = cleave::demo::calibration(4);
    let want = run(&float, &x);
    let scale = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    let mut stored = vec![];
    for out in ["h.clv", "h.onnx", "h.pt2"] {
        let q = json(dir, &["quantize", "tiny_fashion.pt2", "-o", out, "--dtype", "fp16"]);
        assert_eq!((&q["overflow"], q["plan"]["quantized"].as_u64()), (&Value::Array(vec![]), Some(9)), "{q}");
        let g = read_runnable(&at(out)).unwrap();
        assert!(g.nodes().all(|(_, n)| n.op().is_none_or(|o| !o.name.starts_with("quantized_decomposed"))));
        let got = run(&g, &x);
        let off = farthest(&got, &want);
        assert!(off > 0.0 && off < 2e-3 * scale, "{out}: {off} of {scale}");
        let meant = reference::run(&g, std::slice::from_ref(&x)).unwrap();
        assert!(farthest(&got, &meant[0].to_f32()) < 1e-5 * scale, "{out}");
        stored.push(halves(&g));
    }
    assert_eq!(stored[0].len(), 5);
    assert!(stored[0] == stored[1] && stored[0] == stored[2], "the same bits in every format");
    // Two bytes for a weight, four for a bias, and a little for the graph.
    let weights: usize = stored[0].iter().map(Vec::len).sum();
    let size = |name: &str| usize::try_from(std::fs::metadata(at(name)).unwrap().len()).unwrap();
    assert!(size("h.onnx") < 2 * weights + 12_000, "{} for {weights} weights", size("h.onnx"));
    let text =
        String::from_utf8(cleave(dir, &["quantize", "tiny_fashion.pt2", "-o", "h.clv", "--dtype", "fp16"]).stdout);
    assert!(text.unwrap().contains("compute nodes with weights stored as f16 by 'fp16'"));
    // What it says of itself, and that it is used as others are.
    let p = json(dir, &["show", "h.clv", "--stage", "plan"]).to_string();
    assert!(p.contains("conv2d_f32f16_relu") && p.contains("linear_f32f16"), "{p}");
    let e = json(dir, &["explain", "h.clv", "conv2d"]);
    assert!(e["nodes"][0]["kernel"].as_str().unwrap().contains("f32f16"), "{e}");
    let c = json(dir, &["compare", "tiny_fashion.pt2", "h.clv", "--data", "calib.npy"]);
    assert!(c["outputs"][0]["sqnr_db"].as_f64().unwrap() > 50.0, "{c}");
    json(dir, &["bench", "h.clv", "--runs", "2", "--threads", "1", "--profile"]);
}

#[test]
fn weights_of_halves_are_no_floats_in_memory() {
    let dir = workplace();
    let dir = dir.path();
    json(dir, &["quantize", "tiny_fashion.pt2", "-o", "h.clv", "--dtype", "fp16"]);
    let g = read_runnable(&dir.join("h.clv")).unwrap();
    let plan = Session::new(&g, Options::default()).unwrap().plan(&[vec![1, 1, 28, 28]]).unwrap();
    assert_eq!(plan.constant_bytes, 0, "packed by the kernels, shared by none");
    // A table of halves is kept as it is, and its rows widened.
    let mut g = text::parse(
        "graph(%i: i64[N]) {
  %t = param \"t\": f16[50, 8]
  %c = aten._to_copy(%t, f32): f32[50, 8]
  %y = aten.embedding(%c, %i): f32[N, 8]
  return %y
}",
    )
    .unwrap();
    let rows: Vec<f16> = (0..400u16).map(|i| f16::from_f32(f32::from(i) / 7.0 - 20.0)).collect();
    g.constants.insert("t".into(), Tensor::new(&[50, 8], rows.clone()));
    let mut s = Session::new(&g, Options::default()).unwrap();
    let plan = s.plan(&[vec![3]]).unwrap();
    assert_eq!((plan.constant_bytes, plan.kernels[0].kernel.as_str()), (800, "gather_f16"));
    let y = s.run(&[Tensor::new(&[3], vec![49i64, 0, -2])]).unwrap();
    let want: Vec<f32> = [49, 0, 48].iter().flat_map(|r| &rows[r * 8..r * 8 + 8]).map(|v| v.to_f32()).collect();
    assert_eq!(y[0].to_f32().as_ref(), want);
}

/// A network whose first layer has great weights where `far`, tiny ones where `near`, and great results.
fn network(dir: &Path, name: &str, first: f32) {
    let mut g = text::parse(
        "graph(%x: f32[N, 4]) {
  %w = param \"w\": f32[8, 4]
  %b = param \"b\": f32[8]
  %v = param \"v\": f32[3, 8]
  %first = aten.linear(%x, %w, %b): f32[N, 8]
  %relu = aten.relu(%first): f32[N, 8]
  %second = aten.linear(%relu, %v): f32[N, 3]
  %sigmoid = aten.sigmoid(%second): f32[N, 3]
  return %sigmoid \"y\"
}",
    )
    .unwrap();
    let mut w: Vec<f32> = (0..32u8).map(|i| f32::from(i) * 0.1 - 1.5).collect();
    if first.abs() < 1e-3 {
        w.iter_mut().for_each(|v| *v *= first);
    } else {
        w[5] = first;
    }
    g.constants.insert("w".into(), Tensor::new(&[8, 4], w));
    g.constants.insert("b".into(), Tensor::new(&[8], vec![0.5f32; 8]));
    g.constants.insert("v".into(), Tensor::new(&[3, 8], (0..24u8).map(|i| f32::from(i) * 0.01 - 0.1).collect()));
    cleave::pipeline::write(&dir.join(name), &g).unwrap();
    let x: Vec<f32> = (0..32u8).map(|i| f32::from(i) * 0.25).collect();
    npy::write_npy(&dir.join("x.npy"), &Tensor::new(&[8, 4], x)).unwrap();
}

fn of<'a>(q: &'a Value, node: &str) -> &'a str {
    let rows = q["plan"]["float"].as_array().unwrap();
    rows.iter().find(|r| r["node"] == node).map_or("", |r| r["reason"].as_str().unwrap())
}

#[test]
fn weights_that_halves_do_not_hold_stay_floats_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    network(dir, "far.onnx", 70_000.0);
    let q = json(dir, &["quantize", "far.onnx", "-o", "h.clv", "--dtype", "fp16"]);
    assert_eq!(of(&q, "first"), "w reaches 70000, which f16 does not hold");
    assert!(q["plan"]["notes"].to_string().contains("w reaches 70000, which f16 does not hold: left in f32"), "{q}");
    let g = read_runnable(&dir.join("h.clv")).unwrap();
    let types: Vec<_> = g.constants.iter().map(|(n, t)| (n.as_str(), t.dtype().name())).collect();
    assert_eq!(types, [("w", "f32"), ("b", "f32"), ("v_f16", "f16")]);
    network(dir, "near.onnx", 1e-5);
    let q = json(dir, &["quantize", "near.onnx", "-o", "n.clv", "--dtype", "fp16"]);
    assert_eq!(of(&q, "first"), "w has 100 % of its values below 6.1e-5, where f16 loses digits or all");
    let text = String::from_utf8(cleave(dir, &["quantize", "far.onnx", "-o", "h.clv", "--dtype", "fp16"]).stdout);
    assert!(text.unwrap().contains("first  aten.linear  w reaches 70000"));
}

#[test]
fn results_that_halves_do_not_hold_are_told_with_their_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    network(dir, "m.onnx", 60_000.0);
    let args = ["quantize", "m.onnx", "-o", "h.clv", "--dtype", "fp16", "--calib", "x.npy", "--report", "r.html"];
    let q = json(dir, &args);
    // Element [1, 1] of the weight meets inputs of up to 7.25; the bias and the others of its row add a little.
    let all = q["overflow"].as_array().unwrap();
    let nodes: Vec<_> = all.iter().map(|o| (o["node"].as_str().unwrap(), o["op"].as_str().unwrap())).collect();
    assert_eq!(nodes, [("first", "aten.linear"), ("relu", "aten.relu")]);
    let reach = all[0]["reach"].as_f64().unwrap();
    assert!((reach - 435_000.0).abs() < 50.0, "{reach}");
    let note = "2 results exceed 65504";
    assert!(q["plan"]["notes"].to_string().contains(note) && q["check"]["samples"] == 8, "{q}");
    assert!(std::fs::read_to_string(dir.join("r.html")).unwrap().contains(note));
    let g = read_runnable(&dir.join("h.clv")).unwrap();
    assert_eq!(halves(&g).len(), 2, "the weights themselves fit");
    // Statistics know it, too.
    json(dir, &[&args[..8], &["--save-stats", "s.stats"]].concat());
    let again = json(dir, &["quantize", "m.onnx", "-o", "h.clv", "--dtype", "fp16", "--stats", "s.stats"]);
    assert_eq!(again["overflow"], q["overflow"]);
    // Where nothing is stored as halves nobody asks.
    let int8 = json(dir, &["quantize", "m.onnx", "-o", "i.clv", "--calib", "x.npy", "--min-sqnr", "-99"]);
    assert_eq!(int8["overflow"], Value::Array(vec![]));
}

#[test]
fn int8_leaves_to_fp16_what_stays_float() {
    let dir = workplace();
    let dir = dir.path();
    let args = ["quantize", "tiny_fashion.onnx", "--calib", "calib.npy", "--dtype", "int8,fp16", "--float", "linear"];
    for out in ["m.clv", "m.onnx", "m.pt2"] {
        let q = json(dir, &[&args[..], &["-o", out]].concat());
        assert!(q["check"]["outputs"][0]["sqnr_db"].as_f64().unwrap() > 20.0, "{q}");
        let g = read_runnable(&dir.join(out)).unwrap();
        let count = |d: DType| g.constants.values().filter(|t| t.dtype() == d && t.shape().len() > 1).count();
        assert_eq!((count(DType::I8), count(DType::F16), count(DType::F32)), (4, 1, 0), "{out}\n{g}");
    }
    let plain =
        json(dir, &["quantize", "tiny_fashion.onnx", "--calib", "calib.npy", "--float", "linear", "-o", "p.clv"]);
    let [a, b] = ["p.clv", "m.clv"].map(|n| read_runnable(&dir.join(n)).unwrap());
    let x = cleave::demo::calibration(4);
    let (a, b) = (run(&a, &x), run(&b, &x));
    let scale = a.iter().fold(0f32, |m, v| m.max(v.abs()));
    let off = farthest(&a, &b);
    assert!(off > 0.0 && off < 1e-3 * scale, "the integers are the same: {off} of {scale}, {plain}");
}

#[test]
fn models_of_halves_are_quantized_as_floats_are() {
    let dir = workplace();
    let dir = dir.path();
    json(dir, &["quantize", "tiny_fashion.pt2", "-o", "h.onnx", "--dtype", "fp16"]);
    let q = json(dir, &["quantize", "h.onnx", "-o", "i.clv", "--calib", "calib.npy"]);
    assert_eq!(q["plan"]["float"], Value::Array(vec![]), "{q}");
    let before = halves(&read_runnable(&dir.join("h.onnx")).unwrap());
    json(dir, &["quantize", "h.onnx", "-o", "again.onnx", "--dtype", "fp16"]);
    assert_eq!(halves(&read_runnable(&dir.join("again.onnx")).unwrap()), before);
}

#[test]
fn options_that_have_no_use_are_refused() {
    let dir = workplace();
    let dir = dir.path();
    let usage = |more: &[&str]| {
        let out =
            cleave(dir, &[&["quantize", "tiny_fashion.pt2", "-o", "h.clv", "--calib", "calib.npy"], more].concat());
        assert_eq!(out.status.code(), Some(2), "{more:?}");
        String::from_utf8(out.stderr).unwrap()
    };
    for (more, why) in [
        (&["--dtype", "fp16", "--quantizer", "x86"][..], "--quantizer x86 has no use; --dtype int8,fp16"),
        (&["--dtype", "fp16", "--observer", "minmax"], "--observer has no use"),
        (&["--dtype", "fp16", "--sensitivity"], "--sensitivity has nothing to tell"),
        (&["--dtype", "fp16,fp16"], "a type stands twice"),
        (&["--dtype", "fp8"], "[possible values: int8, fp16]"),
    ] {
        let said = usage(more);
        assert!(said.contains(why), "{more:?}: {said}");
    }
    let twice =
        error(dir, &["quantize", "tiny_fashion.pt2", "-o", "h.clv", "--dtype", "int8,fp16", "--quantizer", "fp16"]);
    assert!(twice.contains("'fp16' stands twice"), "{twice}");
}

#[test]
fn layers_of_every_kind_come_back_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut g = text::parse(
        "graph(%i: i64[2, 5], %x: f32[2, 4, 6, 6]) {
  %t = param \"t\": f32[20, 8]
  %w = param \"w\": f32[12, 8]
  %b = param \"b\": f32[12]
  %p = param \"p\": f32[2, 12, 3]
  %c = param \"c\": f32[6, 4, 3, 3]
  %d = param \"d\": f32[6, 2, 2, 2]
  %embedding = aten.embedding(%t, %i): f32[2, 5, 8]
  %linear = aten.linear(%embedding, %w, %b): f32[2, 5, 12]
  %bmm = aten.bmm(%linear, %p): f32[2, 5, 3]
  %conv2d = aten.conv2d(%x, %c): f32[2, 6, 4, 4]
  %up = aten.conv_transpose2d.input(%conv2d, %d, none, [2, 2]): f32[2, 2, 8, 8]
  return %bmm \"a\", %up \"b\"
}",
    )
    .unwrap();
    let shapes = [
        ("t", &[20, 8][..]),
        ("w", &[12, 8]),
        ("b", &[12]),
        ("p", &[2, 12, 3]),
        ("c", &[6, 4, 3, 3]),
        ("d", &[6, 2, 2, 2]),
    ];
    for (name, shape) in shapes {
        let n = shape.iter().product::<usize>();
        g.constants.insert(name.into(), Tensor::new(shape, (0..n).map(|i| (i * 7 % 31) as f32 / 19.0 - 0.8).collect()));
    }
    let inputs = [
        Tensor::new(&[2, 5], (0..10).map(|i| i * 2 % 20).collect::<Vec<i64>>()),
        Tensor::new(&[2, 4, 6, 6], (0..288).map(|i| (i % 17) as f32 / 8.0 - 1.0).collect::<Vec<f32>>()),
    ];
    cleave::pipeline::write(&dir.join("m.onnx"), &g).unwrap();
    let mut first: Option<(Vec<Vec<u16>>, Vec<Tensor>)> = None;
    for out in ["h.clv", "h.onnx", "h.pt2"] {
        let q = json(dir, &["quantize", "m.onnx", "-o", out, "--dtype", "fp16"]);
        assert_eq!(q["plan"]["quantized"], 5, "{out}: {q}");
        let h = read_runnable(&dir.join(out)).unwrap();
        let mut s = Session::new(&h, Options::default()).unwrap();
        let y = s.run(&inputs).unwrap();
        let names: Vec<String> =
            s.plan(&[vec![2, 5], vec![2, 4, 6, 6]]).unwrap().kernels.into_iter().map(|k| k.kernel).collect();
        for kernel in ["gather_f16", "conv2d_f32f16_", "conv_transpose2d_f32f16_"] {
            assert!(names.iter().any(|n| n.starts_with(kernel)), "{out}: {kernel} is not in {names:?}\n{h}");
        }
        assert_eq!(names.iter().filter(|n| n.starts_with("conv2d_f32f16_")).count(), 2, "{out}: {names:?}");
        let (bits, results) = first.get_or_insert((halves(&h), y.clone()));
        assert_eq!((&halves(&h), &y), (&*bits, &*results), "{out}");
    }
    let [a, b] = ["m.onnx", "h.clv"].map(|n| reference::run(&read_runnable(&dir.join(n)).unwrap(), &inputs).unwrap());
    for ((a, b), y) in a.iter().zip(&b).zip(&first.unwrap().1) {
        assert!(farthest(&a.to_f32(), &b.to_f32()) < 1e-2 && farthest(&y.to_f32(), &b.to_f32()) < 1e-5);
    }
}
