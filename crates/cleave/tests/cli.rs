//! The command line as a user meets it: JSON shapes, exit statuses, and one clear line for whatever is wrong.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_formats::npy;
use cleave_ir::Tensor;
use common::{cleave, error, json};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

/// A folder with the tiny model, calibration data, and data that do not fit.
fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |n: &str| dir.path().join(n);
    std::fs::copy(fixture("fashion/tiny_fashion.pt2"), at("tiny.pt2")).unwrap();
    std::fs::copy(fixture("fashion/tiny_fashion.onnx"), at("tiny.onnx")).unwrap();
    let x = cleave::demo::calibration(8);
    npy::write_npy(&at("calib.npy"), &x).unwrap();
    let mut v = x.to_f32().into_owned();
    v[3 * 784 + 5] = f32::NAN;
    npy::write_npy(&at("nan.npy"), &Tensor::new(&[8, 1, 28, 28], v)).unwrap();
    npy::write_npy(&at("shape.npy"), &Tensor::new(&[8, 1, 20, 28], vec![0f32; 4480])).unwrap();
    npy::write_npy(&at("f64.npy"), &Tensor::new(&[1, 1, 28, 28], vec![0f64; 784])).unwrap();
    npy::write_npz(&at("other.npz"), &[("image".to_string(), x)].into_iter().collect()).unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    dir
}

#[test]
fn json_has_the_fields_that_tools_rely_on() {
    let dir = workplace();
    let dir = dir.path();
    let d = json(dir, &["diff", "tiny.pt2", "--from", "export", "--to", "empty"]);
    assert_eq!((d["from"]["nodes"].as_u64(), d["to"]["stage"].as_str()), (Some(46), Some("empty")));
    assert_eq!(d["delta"]["aten.batch_norm.default"], -4);
    assert_eq!(d["to"]["ops"]["getitem"], 4);
    let j = json(dir, &["decompose", "tiny.pt2", "--backward"]);
    assert_eq!(j["backward"]["gradients"], 15);
    assert_eq!(j["ops"]["aten.convolution_backward.default"], 4);
    let s = json(dir, &["show", "tiny.pt2"]);
    assert_eq!(s["ops"]["aten.conv2d.default"], 4);
    let conv = s["nodes"].as_array().unwrap().iter().find(|n| n["name"] == "conv2d").unwrap();
    assert_eq!(
        (conv["op"].as_str(), conv["dtype"].as_str(), &conv["shape"][1]),
        (Some("aten.conv2d.default"), Some("f32"), &Value::from(16))
    );
    let q = json(dir, &["quantize", "tiny.pt2", "-o", "tiny.clv", "--calib", "calib.npy"]);
    assert_eq!((q["plan"]["compute_nodes"].as_u64(), q["plan"]["quantized"].as_u64()), (Some(18), Some(18)));
    assert!(q["check"]["outputs"][0]["sqnr_db"].as_f64().unwrap() > 20.0, "{q}");
    assert!(
        q["bytes_out"].as_u64() < q["bytes_in"].as_u64()
            && q["seconds"]["calibrate"].is_number()
            && q["peak_rss_mib"].is_number()
    );
    let x = json(dir, &["quantize", "tiny.pt2", "-o", "x86.onnx", "--calib", "calib.npy", "--quantizer", "x86"]);
    assert!(x["plan"]["notes"].to_string().contains("quantizes by division"), "{x}");
    let p = json(dir, &["show", "tiny.clv", "--stage", "plan"]);
    assert!(
        p["kernels"].as_array().unwrap().iter().any(|k| k["name"].as_str().unwrap().starts_with("conv2d_u8s8_relu"))
    );
    let e = json(dir, &["explain", "tiny.clv"]);
    let row = &e["nodes"][0];
    assert_eq!(
        (row["node"].as_str(), row["status"].as_str(), row["pattern"].as_str()),
        (Some("conv2d"), Some("quantized"), Some("conv_bn_act"))
    );
    assert!(row["qparams"]["scale"].is_number() && row["kernel"].is_string());
    let c = json(dir, &["compare", "tiny.pt2", "tiny.clv", "--data", "calib.npy", "--layers"]);
    assert_eq!((c["samples"].as_u64(), c["top1_agreement"].as_f64()), (Some(8), Some(1.0)));
    assert!(c["outputs"][0]["centred_sqnr_db"].as_f64().unwrap() > 15.0 && !c["layers"].as_array().unwrap().is_empty());
    let b = json(dir, &["bench", "tiny.clv", "--runs", "3", "--threads", "1"]);
    assert_eq!((b["runs"].as_u64(), b["threads"].as_u64(), b["backend"].as_str()), (Some(3), Some(1), Some("cpu")));
    assert!(b["median_ms"].as_f64().unwrap() > 0.0 && b["kernels"].as_u64().unwrap() > 5);
}

/// Standard output of a command that must succeed.
fn text(dir: &Path, args: &[&str]) -> String {
    let out = cleave(dir, args);
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn show_is_for_reading_and_in_full_for_parsing() {
    let dir = workplace();
    let dir = dir.path();
    let summary = text(dir, &["show", "tiny.pt2"]);
    for line in [
        "inputs      x: f32[s77, 1, 28, 28]",
        "parameters  9.850 k (38.5 KiB)",
        "work        1.242 MMAC at s77 = 1: conv2d 1.242 M, linear 320",
        "conv2d(%x, [16, 1, 3, 3], padding=1) → batch_norm → relu",
    ] {
        assert!(summary.contains(line), "{line}\n{summary}");
    }
    assert!(text(dir, &["show", "tiny.pt2", "--bind", "s77=8"]).contains("9.937 MMAC:"));
    assert!(text(dir, &["show", "tiny.pt2", "--stage", "annotated"]).contains("# conv_add_act: out u8[0, 255]"));
    let full = text(dir, &["show", "tiny.pt2", "--full"]);
    assert_eq!(full, text(dir, &["show", "tiny.pt2", "--format", "text"]));
    assert_eq!(cleave_ir::text::parse(&full).unwrap().len(), 46);
    let focus = text(dir, &["show", "tiny.pt2", "--focus", "%linear", "--hops", "0"]);
    assert!(focus.contains("%linear = aten.linear(") && focus.contains("…") && !focus.contains("conv2d"), "{focus}");
    let s = json(dir, &["show", "tiny.pt2"]);
    assert_eq!((s["macs"].as_u64(), s["parameters"]["elements"].as_u64()), (Some(1_241_856 + 320), Some(9850)));
    assert!(text(dir, &["show", "tiny.pt2", "-o", "tiny.graph"]).starts_with("wrote tiny.graph"));
    assert_eq!(std::fs::read_to_string(dir.join("tiny.graph")).unwrap(), full);
}

#[test]
fn chains_are_walked() {
    let dir = workplace();
    let dir = dir.path();
    let both = text(dir, &["show", "tiny.pt2", "--stage", "export,empty", "--chain", "conv2d"]);
    assert_eq!(
        both,
        "export  conv2d → batch_norm → relu   (then max_pool2d)\nempty   conv2d → _native_batch_norm_legit_no_training → getitem → relu   (then max_pool2d)\n"
    );
    let j = json(dir, &["show", "tiny.pt2", "--stage", "empty", "--chain", "conv2d"]);
    assert_eq!((j["stage"].as_str(), j["chain"][2]["op"].as_str()), (Some("empty"), Some("getitem")));
    assert_eq!(j["chain"][3]["shape"][2], 28);
    let j = json(dir, &["show", "tiny.pt2", "--stage", "export,empty", "--chain", "conv2d"]);
    assert_eq!(j["stages"][0]["chain"].as_array().unwrap().len(), 3);
    assert!(
        error(dir, &["show", "tiny.pt2", "--chain", "conv"]).contains("at export: no node 'conv'; near are conv2d")
    );
}

#[test]
fn drawings_are_files_or_standard_output() {
    let dir = workplace();
    let dir = dir.path();
    let stages = ["show", "tiny.pt2", "--stage", "export,empty", "--focus", "conv2d,batch_norm,relu"];
    let svg = text(dir, &[&stages[..], &["--format", "svg"]].concat());
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    let j = json(dir, &[&stages[..], &["-o", "stages.svg"]].concat());
    assert_eq!(std::fs::read_to_string(dir.join("stages.svg")).unwrap(), svg);
    assert_eq!((j["output"].as_str(), j["stages"][0]["gone"].as_array().unwrap().len()), (Some("stages.svg"), 4));
    assert_eq!(j["stages"][1]["new"][0], "_native_batch_norm_legit_no_training");
    text(dir, &[&stages[..], &["-o", "stages.html"]].concat());
    assert!(
        std::fs::read_to_string(dir.join("stages.html")).unwrap().contains("<title>tiny.pt2: export → empty</title>")
    );
    let fails = |more: &[&str]| error(dir, &[&stages[..], more].concat());
    assert!(fails(&[]).contains("--format svg"));
    assert!(fails(&["--format", "svg", "--json"]).contains("-o FILE"));
    assert!(fails(&["-o", "stages.png"]).contains("stages.png"));
    assert!(fails(&["-o", "no/such/folder.svg"]).contains("no/such/folder.svg"));
    assert!(fails(&["--format", "svg", "--threads", "2"]).contains("--threads is for"));
    let draw = |more: &[&str]| error(dir, &[&["show", "tiny.pt2", "-o", "x.svg"], more].concat());
    assert!(draw(&["--focus", "conv3d"]).contains("'conv3d' is not called here; called are"));
    assert!(draw(&["--focus", "%relu_9"]).contains("no node '%relu_9' here; near are relu"));
    assert!(draw(&["--focus", "hardswsh"]).contains("near are hardswish"));
    assert!(draw(&["--stage", "export,plan"]).contains("plan is no graph"));
    assert!(draw(&["--stage", "export,converted"]).contains("calibration"));
    assert!(!dir.join("x.svg").exists());
}

#[test]
fn runs_write_outputs_by_name_and_join_batches() {
    let dir = workplace();
    json(dir.path(), &["run", "tiny.pt2", "--input", "x=calib.npy", "-o", "y.npz"]);
    let y = npy::read_npz(&dir.path().join("y.npz")).unwrap();
    assert_eq!(y["linear"].shape(), [8, 10]);
    let r = json(dir.path(), &["run", "tiny.pt2", "--input", "calib.npy", "--backend", "reference", "-o", "z.npz"]);
    assert_eq!(r["outputs"][0]["name"], "linear");
    let z = npy::read_npz(&dir.path().join("z.npz")).unwrap();
    let far =
        y["linear"].to_f32().iter().zip(z["linear"].to_f32().iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < 1e-4, "{far}");
}

#[test]
fn damaged_and_wrong_files_are_named_on_one_line() {
    let dir = workplace();
    let at = |n: &str| dir.path().join(n);
    for ext in ["pt2", "onnx"] {
        let whole = std::fs::read(at(&format!("tiny.{ext}"))).unwrap();
        std::fs::write(at(&format!("cut.{ext}")), &whole[..whole.len() / 3]).unwrap();
        let mut flipped = whole.clone();
        (0..flipped.len()).step_by(997).for_each(|i| flipped[i] ^= 0x41);
        std::fs::write(at(&format!("flip.{ext}")), flipped).unwrap();
    }
    std::fs::write(at("text.onnx"), "root:x:0:0\n").unwrap();
    std::fs::write(at("none.pt2"), "").unwrap();
    for f in
        ["cut.pt2", "cut.onnx", "flip.pt2", "flip.onnx", "text.onnx", "none.pt2", "calib.npy", "empty", "missing.clv"]
    {
        assert!(error(dir.path(), &["show", f]).contains(f), "{f} is not named");
    }
    json(dir.path(), &["quantize", "tiny.pt2", "-o", "tiny.clv", "--calib", "calib.npy"]);
    let whole = std::fs::read(at("tiny.clv")).unwrap();
    for i in (0..whole.len()).step_by(whole.len() / 23) {
        let mut flipped = whole.clone();
        flipped[i] ^= 4;
        std::fs::write(at("flip.clv"), flipped).unwrap();
        assert!(error(dir.path(), &["run", "flip.clv", "--input", "calib.npy"]).contains("flip.clv"), "byte {i}");
    }
    std::fs::write(at("cut.clv"), &whole[..whole.len() / 2]).unwrap();
    assert!(error(dir.path(), &["show", "cut.clv"]).contains("cut.clv"));
}

#[test]
fn data_that_do_not_fit_leave_no_file() {
    let dir = workplace();
    let quantize = |calib: &str| error(dir.path(), &["quantize", "tiny.pt2", "-o", "out.clv", "--calib", calib]);
    for (calib, says) in [
        ("nan.npy", "sample 3"),
        ("shape.npy", "[1, 28, 28]"),
        ("f64.npy", "f64"),
        ("other.npz", "the inputs are x"),
        ("empty", "holds no"),
        ("missing.npy", "cannot read"),
        ("tiny.onnx", "tiny.onnx"),
    ] {
        let e = quantize(calib);
        assert!(e.contains(says) && e.contains(calib), "{calib}: {e}");
    }
    for (args, says) in [
        (["--float", "nonsense"], "nonsense"),
        (["--quantizer", "nonsense"], "built in are"),
        (["--samples", "99"], "99"),
    ] {
        let all = [&["quantize", "tiny.pt2", "-o", "out.clv", "--calib", "calib.npy"][..], &args].concat();
        assert!(error(dir.path(), &all).contains(says), "{args:?}");
    }
    for out in ["no/such/folder.clv", "out.bin", "empty"] {
        assert!(error(dir.path(), &["quantize", "tiny.pt2", "-o", out, "--calib", "calib.npy"]).contains(out), "{out}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        left.iter().all(|n| !n.to_string_lossy().contains("out") && !n.to_string_lossy().ends_with(".part")),
        "{left:?}"
    );
}

#[test]
fn wrong_inputs_and_names_are_said() {
    let dir = workplace();
    let dir = dir.path();
    assert!(error(dir, &["run", "tiny.pt2", "--input", "y=calib.npy"]).contains("no input 'y'; it has x"));
    assert!(error(dir, &["run", "tiny.pt2", "--input", "shape.npy"]).contains("'x'"));
    assert!(error(dir, &["show", "tiny.pt2", "--stage", "nonsense"]).contains("stages are export"));
    assert!(error(dir, &["show", "tiny.pt2", "--focus", "nonsense"]).contains("no op 'nonsense'"));
    assert!(error(dir, &["diff", "tiny.pt2", "--to", "converted"]).contains("calibration"));
    assert!(error(dir, &["decompose", "tiny.pt2", "--keep", "nonsense"]).contains("nonsense"));
    assert!(error(dir, &["explain", "tiny.pt2", "conv9"]).contains("no compute node 'conv9'"));
    assert!(error(dir, &["tables", "nonsense"]).contains("nonsense"));
    assert!(error(dir, &["explain", "tiny.pt2", "--bind", "nonsense=1"]).contains("no symbol 'nonsense'"));
    assert!(error(dir, &["diff", "tiny.pt2", "--to", "plan"]).contains("not a graph"));
    assert!(
        error(dir, &["compare", "tiny.pt2", "tiny.onnx", "--data", "calib.npy", "--samples", "99"]).contains("has 8")
    );
    for unused in [&["--quantizer", "x86"][..], &["--bind", "s77=1", "--full"], &["--threads", "1"]] {
        let e = error(dir, &[&["show", "tiny.pt2"][..], unused].concat());
        assert!(e.contains(unused[0]) && e.contains("is for"), "{e}");
    }
    let two = ["show", "tiny.pt2", "--stage", "annotated", "--quantizer", "x86", "--quantizer", "cpu"];
    assert!(error(dir, &two).contains("one graph has one arithmetic"));
    let strangers = ["compare", "tiny.pt2", "tiny.onnx", "--data", "calib.npy", "--layers"];
    assert!(error(dir, &strangers).contains("no value under the same name"));
    assert_eq!(cleave(dir, &["quantize", "tiny.pt2"]).status.code(), Some(2));
    assert_eq!(cleave(dir, &["nonsense"]).status.code(), Some(2));
}

#[test]
fn recorded_cases_are_counted() {
    let dir = workplace();
    let case = dir.path().join("cases/tiny");
    std::fs::create_dir_all(&case).unwrap();
    std::fs::copy(fixture("fashion/tiny_fashion.pt2"), case.join("model.pt2")).unwrap();
    json(dir.path(), &["run", "tiny.pt2", "--input", "calib.npy", "-o", "cases/tiny/outputs.npz"]);
    npy::write_npz(&case.join("inputs.npz"), &[("x".to_string(), cleave::demo::calibration(8))].into_iter().collect())
        .unwrap();
    let t = json(dir.path(), &["test", "cases"]);
    assert_eq!((t["passed"].as_u64(), t["failed"].as_u64(), t["unsupported"].as_u64()), (Some(1), Some(0), Some(0)));
    npy::write_npz(
        &case.join("inputs.npz"),
        &[("x".to_string(), Tensor::new(&[8, 1, 28, 28], vec![0f32; 6272]))].into_iter().collect(),
    )
    .unwrap();
    let out = cleave(dir.path(), &["test", "cases", "--json"]);
    let t: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), t["failed"].as_u64()), (Some(1), Some(1)));
}

/// The README's commands for a model of one's own, and its pattern file, as they stand there.
#[test]
fn the_readme_is_true() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let dir = workplace();
    std::fs::copy(dir.path().join("tiny.onnx"), dir.path().join("model.onnx")).unwrap();
    std::fs::copy(dir.path().join("tiny.pt2"), dir.path().join("model.pt2")).unwrap();
    std::fs::create_dir(dir.path().join("calibration")).unwrap();
    for name in ["calibration/x.npy", "x.npy"] {
        std::fs::copy(dir.path().join("calib.npy"), dir.path().join(name)).unwrap();
    }
    let blocks: Vec<&str> = readme.split("```").skip(1).step_by(2).collect();
    let toml = blocks.iter().find_map(|b| b.strip_prefix("toml\n")).unwrap();
    std::fs::write(dir.path().join("mine.toml"), toml).unwrap();
    let mut ran = 0;
    for line in blocks.iter().filter_map(|b| b.strip_prefix("sh\n")).flat_map(str::lines) {
        let command = line.split('#').next().unwrap().trim();
        let Some(args) = command.strip_prefix("cleave ") else { continue };
        let out = cleave(dir.path(), &args.split_whitespace().collect::<Vec<_>>());
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
        assert!(!out.stdout.is_empty(), "{command} printed nothing");
        ran += 1;
    }
    assert!(ran >= 10, "{ran} commands");
}

/// A file whose pattern is tested in it, and the same with a test that does not hold.
#[test]
fn patterns_are_checked_on_a_model_and_tested() {
    let dir = workplace();
    let (dir, file) = (dir.path(), "mine.toml");
    let out = |o: &Output| String::from_utf8_lossy(&o.stdout).into_owned();
    let text = "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n
[[pattern]]
name = \"conv_silu\"
match = \"silu(conv2d(x, w, b?))\"
where = [\"constant(w)\", \"single_use(conv2d)\"]
inputs = { x = \"activation\", w = \"weight\", b = \"bias\" }
output = \"activation\"

[[test]]
name = \"a pair\"
graph = '''graph(%x: f32[N, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 3, 3]
  %conv2d = aten.conv2d(%x, %w): f32[N, 4, 6, 6]
  %silu = aten.silu(%conv2d): f32[N, 4, 6, 6]
  return %silu
}'''
units = [\"conv_silu: conv2d silu\"]
";
    std::fs::write(dir.join(file), text).unwrap();
    let o = cleave(dir, &["patterns", "test", file]);
    assert!(
        o.status.success() && out(&o).starts_with("ok      a pair: conv_silu: conv2d silu; kernels"),
        "{}",
        out(&o)
    );
    let v = json(dir, &["patterns", "check", file, "tiny.pt2"]);
    assert_eq!(
        (v["patterns"][0]["pattern"].as_str(), v["patterns"][0]["units"].as_array().map(Vec::len)),
        (Some("conv_silu"), Some(0))
    );
    assert!(
        v["patterns"].as_array().unwrap().iter().any(|p| p["pattern"] == "conv_bn_act" && p["units"][0].is_array())
    );
    std::fs::write(dir.join(file), text.replace("units = [\"conv_silu", "units = [\"conv_sulu")).unwrap();
    let o = cleave(dir, &["patterns", "test", file]);
    assert_eq!(o.status.code(), Some(1));
    assert!(out(&o).starts_with("FAILED  a pair: expected [\"conv_sulu: conv2d silu\"]"), "{}", out(&o));
}

#[test]
fn units_are_selected_and_quantizers_composed() {
    let dir = workplace();
    let dir = dir.path();
    let quantized = |more: &[&str]| {
        let args = ["quantize", "tiny.pt2", "-o", "q.clv", "--calib", "calib.npy"];
        json(dir, &[&args[..], more].concat())
    };
    let all = quantized(&[])["plan"]["quantized"].as_u64().unwrap();
    let only = quantized(&["--only", "op:linear"]);
    assert_eq!(only["plan"]["quantized"], 5, "the layer, and four batch norms that are folded: {only}");
    let why = only["plan"]["float"][0]["reason"].as_str().unwrap();
    assert_eq!(why, "not selected: only 'op:linear' is quantized");
    let both = quantized(&["--quantizer", "cpu", "--quantizer", "onnx"]);
    assert_eq!(both["plan"]["quantized"].as_u64(), Some(all));
    let notes = both["plan"]["notes"].to_string();
    assert!(notes.contains("conflict: cpu took") && notes.contains("that onnx would take too"), "{notes}");
    std::fs::remove_file(dir.join("q.clv")).unwrap();
    let args = ["quantize", "tiny.pt2", "-o", "q.clv", "--calib", "calib.npy"];
    for (more, want) in [
        (&["--only", "op:gelu"][..], "error: selector 'op:gelu': it selects no node of the graph"),
        (&["--float", "pattern:cat"][..], "error: selector 'pattern:cat': it selects no node of the graph"),
        (&["--float", "*"][..], "error: quantizer 'cpu' found nothing to quantize"),
        (&["--quantizer", "cpu", "--quantizer", "x86"][..], "error: quantizers: 'cpu' divides by the scale"),
    ] {
        let e = error(dir, &[&args[..], more].concat());
        assert!(e.starts_with(want), "{e}");
        assert!(!dir.join("q.clv").exists(), "{more:?} left a file");
    }
}

#[test]
fn sizes_are_fixed_in_what_is_written() {
    let dir = workplace();
    let dir = dir.path();
    let quantize = ["quantize", "tiny.pt2", "-o", "one.onnx", "--calib", "calib.npy"];
    json(dir, &[&quantize[..], &["--bind", "s77=1"]].concat());
    let shown = text(dir, &["show", "one.onnx"]);
    assert!(shown.contains("f32[1, 1, 28, 28]\n") && shown.contains("f32[1, 10]\n"), "{shown}");
    let e = error(dir, &[&quantize[..], &["--bind", "batch=1"]].concat());
    assert_eq!(e, "error: --bind batch=1: the model has no symbol 'batch'; it has s77\n");
}

#[test]
fn what_observes_nothing_needs_no_data() {
    let dir = workplace();
    let dir = dir.path();
    let q = json(dir, &["quantize", "tiny.pt2", "-o", "tiny.onnx.clv", "--quantizer", "dynamic"]);
    assert_eq!((q["plan"]["quantized"].as_u64(), q["check"]["samples"].as_u64()), (Some(9), Some(0)));
    let q = json(dir, &["quantize", "tiny.pt2", "-o", "d.clv", "--quantizer", "dynamic", "--calib", "calib.npy"]);
    assert!(q["check"]["outputs"][0]["sqnr_db"].as_f64().unwrap() > 25.0, "{q}");
    let out = cleave(dir, &["quantize", "tiny.pt2", "-o", "q.clv"]);
    assert_eq!(out.status.code(), Some(2));
    let why = "error: expected --calib DATA or --stats FILE: 'cpu' observes activations\n";
    assert_eq!(String::from_utf8_lossy(&out.stderr), why);
    assert!(!dir.join("q.clv").exists());
}

#[test]
fn outputs_that_are_not_good_enough_leave_no_file() {
    let dir = workplace();
    let dir = dir.path();
    let quantize = ["quantize", "tiny.pt2", "-o", "bad.clv", "--calib", "calib.npy"];
    let e = error(dir, &[&quantize[..], &["--min-sqnr", "200"]].concat());
    assert!(e.contains("nothing was written: output linear has ") && e.contains("less than --min-sqnr 200"), "{e}");
    assert!(e.contains("alone brings the outputs to") && !dir.join("bad.clv").exists(), "{e}");
    let ranked = json(dir, &[&quantize[..], &["--sensitivity"]].concat());
    let all = ranked["check"]["outputs"][0]["sqnr_db"].as_f64().unwrap();
    let units = ranked["sensitivity"].as_array().unwrap();
    let alone: Vec<f64> = units.iter().map(|u| u["sqnr_db"].as_f64().unwrap()).collect();
    assert!(alone.len() >= 5 && alone.is_sorted() && alone[0] > all, "{alone:?} {all}");
    // A little more than all units give, and less than the worst alone: what is proposed brings it.
    let min = format!("{:.2}", all + 0.1);
    let bad = [&quantize[..], &["--min-sqnr", &min]].concat();
    let e = error(dir, &bad);
    let proposed: Vec<&str> = e.split_whitespace().skip_while(|w| *w != "--float").collect();
    assert!(proposed.len() >= 2, "{e}");
    assert_eq!(json(dir, &[bad, proposed].concat())["remedy"], Value::Null);
}
