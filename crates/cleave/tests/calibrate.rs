//! Calibration on the command line: statistics saved, merged and used, and data that are not fit for it.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave::pipeline::{self, Settings};
use cleave_formats::npy;
use cleave_ir::Tensor;
use cleave_quantize::{NonFinite, ObserverKind};
use common::{cleave, json};
use std::path::Path;

const SAMPLES: usize = 19;

/// The error line of a command that must fail with status 1 and leave no file `out`.
fn error(dir: &Path, args: &[&str]) -> String {
    let text = common::error(dir, args);
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    let is_out =
        |n: &std::ffi::OsString| n.to_string_lossy().starts_with("out.") || n.to_string_lossy().ends_with(".part");
    assert!(!left.iter().any(is_out), "{args:?}: {left:?}");
    text
}

/// A folder with the tiny model and 19 samples, one file each.
fn workplace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/fashion");
    for ext in ["pt2", "onnx"] {
        std::fs::copy(fixture.join("tiny_fashion").with_extension(ext), dir.path().join("tiny").with_extension(ext))
            .unwrap();
    }
    let x = cleave::demo::calibration(SAMPLES);
    std::fs::create_dir(dir.path().join("data")).unwrap();
    for i in 0..SAMPLES {
        npy::write_npy(&dir.path().join(format!("data/{i}.npy")), &x.narrow(0, i, 1).contiguous()).unwrap();
    }
    dir
}

fn bytes(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).unwrap()
}

const ORDER: [usize; 8] = [5, 2, 8, 1, 3, 7, 6, 4];

#[test]
fn eight_shards_merged_are_one_run_bit_for_bit() {
    let dir = workplace();
    let dir = dir.path();
    let on = |rest: &[&str]| json(dir, &[&["calibrate", "tiny.pt2", "--calib", "data"], rest].concat());
    let whole = on(&["-o", "whole.cal"]);
    assert_eq!((whole["samples"].as_u64(), whole["quantizer"].as_str()), (Some(19), Some("cpu")));
    let names: Vec<String> = ORDER.iter().map(|i| format!("{i}.cal")).collect();
    let shard =
        |(i, name): (&usize, &String)| on(&["--shard", &format!("{i}/8"), "-o", name])["samples"].as_u64().unwrap();
    assert_eq!(ORDER.iter().zip(&names).map(shard).sum::<u64>(), 19);
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    let merged = json(dir, &[&["calibrate", "merge"][..], &list, &["-o", "merged.cal"]].concat());
    assert_eq!(merged["runs"].as_array().unwrap().len(), 1);
    assert!(bytes(dir, "merged.cal") == bytes(dir, "whole.cal"));
    json(dir, &["quantize", "tiny.pt2", "-o", "stats.clv", "--stats", "merged.cal", "--calib", "data"]);
    json(dir, &["quantize", "tiny.pt2", "-o", "run.clv", "--calib", "data"]);
    assert!(bytes(dir, "stats.clv") == bytes(dir, "run.clv"));
}

#[test]
fn shards_merge_whatever_merges() {
    let x = cleave::demo::calibration(SAMPLES);
    let model = cleave::demo::model().unwrap();
    for observer in ["histogram", "minmax", "percentile", "entropy", "mse"] {
        let settings = Settings { observer: Some(ObserverKind::parse(observer).unwrap()), ..Settings::default() };
        let mut ready = pipeline::prepare(&model, &settings).unwrap();
        let mut on = |from: usize, to: usize| {
            pipeline::calibrate(&mut ready, &[x.narrow(0, from, to - from)][..], &settings, &mut |_, _, _| {}).unwrap()
        };
        let shards = ORDER.map(|i| on(SAMPLES * (i - 1) / 8, SAMPLES * i / 8));
        let merged = shards.iter().skip(1).fold(shards[0].clone(), |mut all, s| {
            all.merge(s).unwrap();
            all
        });
        assert_eq!(merged, on(0, SAMPLES), "{observer}");
    }
}

#[test]
fn samples_side_by_side_give_what_one_after_the_other_give() {
    let model = cleave::demo::model().unwrap();
    let learn = |threads: usize, observer: &str, on_nan: NonFinite, x: &Tensor| {
        let run = cleave_runtime::Options { threads, ..Default::default() };
        let observer = Some(ObserverKind::parse(observer).unwrap());
        let settings = Settings { observer, run, non_finite: on_nan, ..Settings::default() };
        let mut ready = pipeline::prepare(&model, &settings).unwrap();
        let mut heard = vec![];
        let learnt = pipeline::calibrate(&mut ready, &[x.clone()][..], &settings, &mut |_, n, of| heard.push((n, of)));
        (learnt.map_err(|e| e.to_string()), heard.last().copied())
    };
    let x = cleave::demo::calibration(SAMPLES);
    for observer in ["histogram", "minmax", "torch_histogram"] {
        let one = learn(1, observer, NonFinite::Error, &x);
        assert_eq!(one.1, Some((SAMPLES, SAMPLES)));
        assert!(one.0.is_ok());
        for threads in [2, 3, 7] {
            assert_eq!(learn(threads, observer, NonFinite::Error, &x), one, "{observer} on {threads} threads");
        }
    }
    // Of samples that fail the first is told, whoever meets which.
    let mut bad = x.to_f32().into_owned();
    let each = bad.len() / SAMPLES;
    for sample in [11, 6, 7, 8] {
        bad[sample * each] = f32::NAN;
    }
    let bad = Tensor::new(x.shape(), bad);
    for threads in [1, 2, 3, 7] {
        let (e, _) = learn(threads, "minmax", NonFinite::Error, &bad);
        assert!(e.unwrap_err().starts_with("sample 6: "));
        let (skipped, _) = learn(threads, "minmax", NonFinite::Skip, &bad);
        let skipped = skipped.unwrap().statistics;
        assert_eq!((skipped.samples, skipped.skipped), (SAMPLES - 4, 4));
    }
}

#[test]
fn saved_statistics_serve_other_searches_and_selections() {
    let dir = workplace();
    let dir = dir.path();
    let q = |args: &[&str]| json(dir, &[&["quantize", "tiny.pt2", "-o", "a.clv"], args].concat());
    let calibrated = q(&["--calib", "data", "--samples", "5", "--save-stats", "five.cal"]);
    assert_eq!(calibrated["check"]["samples"], 5);
    json(dir, &["calibrate", "tiny.pt2", "--calib", "data", "--samples", "5", "-o", "same.cal"]);
    assert!(bytes(dir, "five.cal") == bytes(dir, "same.cal"));
    // One histogram, searched in other ways, and a graph of which less is quantized.
    let scale = |observer: &str| {
        q(&["--stats", "five.cal", "--observer", observer]);
        let e = json(dir, &["explain", "a.clv"]);
        e["nodes"][0]["qparams"]["scale"].as_f64().unwrap()
    };
    let scales = ["histogram", "entropy", "percentile:95"].map(scale);
    assert!(scales[0] != scales[1] && scales[1] != scales[2] && scales.iter().all(|s| *s > 0.0), "{scales:?}");
    let less = q(&["--stats", "five.cal", "--float", "linear", "--calib", "data"]);
    assert_eq!(
        (!less["plan"]["float"].as_array().unwrap().is_empty(), less["check"]["samples"].as_u64()),
        (true, Some(8))
    );
    // Whichever unit is left float: behind a pool that is, the same values under another shape are quantized.
    let units = q(&["--stats", "five.cal", "--calib", "data", "--sensitivity"])["sensitivity"].take();
    for unit in units.as_array().unwrap() {
        let selector = format!("node:{}", unit["node"].as_str().unwrap());
        q(&["--stats", "five.cal", "--float", &selector]);
    }
    let unchecked = cleave(dir, &["quantize", "tiny.pt2", "-o", "a.clv", "--stats", "five.cal"]);
    let said = String::from_utf8_lossy(&unchecked.stdout);
    assert!(
        said.contains("not checked: float and int8 are compared") && said.contains("bias_correction: 5 biases"),
        "{said}"
    );
}

#[test]
fn a_mismatch_says_which() {
    let dir = workplace();
    let dir = dir.path();
    let calibrate = |rest: &[&str]| json(dir, &[&["calibrate", "tiny.pt2", "--calib", "data"], rest].concat());
    calibrate(&["--samples", "0..4", "-o", "a.cal"]);
    calibrate(&["--samples", "2..6", "-o", "b.cal"]);
    calibrate(&["--samples", "4..6", "--observer", "minmax", "-o", "minmax.cal"]);
    calibrate(&["--samples", "4..6", "--quantizer", "onnx", "-o", "onnx.cal"]);
    calibrate(&["--samples", "4..6", "--float", "linear", "-o", "float.cal"]);
    calibrate(&["--samples", "4..6", "--observer", "torch_histogram", "-o", "torch.cal"]);
    json(dir, &["calibrate", "tiny.onnx", "--calib", "data", "-o", "other.cal"]);
    let merge = |other: &str| error(dir, &["calibrate", "merge", "a.cal", other, "-o", "out.cal"]);
    assert_eq!(merge("b.cal"), "error: b.cal: samples 2 to 3 of data would count twice\n");
    assert_eq!(merge("other.cal"), "error: other.cal: of another model: tiny.onnx, not tiny.pt2\n");
    assert_eq!(merge("onnx.cal"), "error: onnx.cal: for another quantizer: 'onnx', not 'cpu'\n");
    assert!(merge("minmax.cal").contains("histogram and min-max cannot be merged"));
    assert!(merge("float.cal").contains("of other values: the graph or its selection differs"));
    let e = error(dir, &["calibrate", "merge", "torch.cal", "torch.cal", "-o", "out.cal"]);
    assert!(
        e.contains("torch's histogram depends on the order of the data and cannot be merged; calibrate in one run"),
        "{e}"
    );
    let quantize = |rest: &[&str]| error(dir, &[&["quantize", "tiny.pt2", "-o", "out.clv"], rest].concat());
    let e = quantize(&["--stats", "other.cal"]);
    assert!(e.starts_with("error: other.cal: statistics of another model, tiny.onnx ("), "{e}");
    let e = quantize(&["--stats", "onnx.cal"]);
    assert!(e.contains("statistics for the quantizer 'onnx', not for 'cpu'; add --quantizer onnx"), "{e}");
    assert!(quantize(&["--stats", "minmax.cal"]).contains("was observed by min-max; histogram is asked for"));
    assert!(quantize(&["--stats", "float.cal"]).contains("was not observed: the graph or its selection differs"));
    assert!(quantize(&["--stats", "a.cal", "--resize", "28"]).contains("options for images are for --calib DATA"));
    assert!(quantize(&["--stats", "none.cal"]).contains("none.cal: cannot read"));
    assert_eq!(cleave(dir, &["quantize", "tiny.pt2", "-o", "out.clv"]).status.code(), Some(2));
    assert_eq!(
        cleave(dir, &["quantize", "tiny.pt2", "-o", "out.clv", "--calib", "data", "--observer", "kl"]).status.code(),
        Some(2)
    );
    assert_eq!(cleave(dir, &["calibrate", "tiny.pt2", "-o", "out.cal"]).status.code(), Some(2));
}

#[test]
fn shards_and_samples_that_do_not_exist_are_refused() {
    let dir = workplace();
    let on = |rest: &[&str]| {
        error(dir.path(), &[&["calibrate", "tiny.pt2", "--calib", "data", "-o", "out.cal"], rest].concat())
    };
    for bad in ["0/8", "9/8", "1", "a/b", "1/0"] {
        assert!(on(&["--shard", bad]).contains("expected I/N with I from 1 to N"), "{bad}");
    }
    assert!(on(&["--shard", "1/20"]).contains("data has 19 batches, too few for 20 parts"));
    assert!(on(&["--samples", "20"]).contains("data has 19"));
    for bad in ["0", "3..3", "x", "-1"] {
        assert!(on(&[&format!("--samples={bad}")]).contains("expected a number, or A..B"), "{bad}");
    }
}

#[test]
fn hostile_statistics_are_refused() {
    let dir = workplace();
    let dir = dir.path();
    json(dir, &["calibrate", "tiny.pt2", "--calib", "data", "-o", "good.cal"]);
    let good = bytes(dir, "good.cal");
    let quantize = || error(dir, &["quantize", "tiny.pt2", "-o", "out.clv", "--stats", "bad.cal"]);
    let mut step = 1;
    let mut at = 0;
    while at < good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(dir.join("bad.cal"), &bad).unwrap();
        assert!(quantize().starts_with("error: bad.cal: "), "byte {at}");
        std::fs::write(dir.join("bad.cal"), &good[..at]).unwrap();
        assert!(quantize().starts_with("error: bad.cal: "), "{at} bytes");
        at += step;
        step *= 3;
    }
    std::fs::copy(dir.join("tiny.pt2"), dir.join("bad.cal")).unwrap();
    assert_eq!(quantize(), "error: bad.cal: no statistics file\n");
    let e = error(dir, &["quantize", "good.cal", "-o", "out.clv", "--calib", "data"]);
    assert!(e.contains("good.cal: not a model"), "{e}");
}

/// A file that is whole, but whose numbers no calibration can have given.
#[test]
fn impossible_statistics_are_refused() {
    use cleave::calibration::{Calibration, Identity, Run};
    use cleave_quantize::{Observed, Statistics, observe::Observer};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.cal");
    let name = |n: &str| Identity { name: n.into(), hash: 7 };
    let with = |observer: Observer, from: u64, to: u64| {
        let observed = vec![Observed { values: vec!["x".into()], observer, left_out: 0 }];
        let statistics = Statistics { samples: 2, skipped: 0, observed, inputs: vec![] };
        Calibration::new(name("m"), "cpu", Run { data: name("d"), of: 9, from, to }, statistics.into())
            .write(&path)
            .unwrap();
        Calibration::read(&path).map_err(|e| e.to_string())
    };
    let good = || Observer::Minmax(Some((0.0, 1.0)));
    assert_eq!(with(good(), 1, 3).unwrap().runs[0].to, 3);
    for (lo, hi) in [(f32::NAN, 1.0), (0.0, f32::INFINITY), (2.0, 1.0)] {
        for observer in [Observer::Minmax(Some((lo, hi))), Observer::MovingAverage(Some((lo, hi)))] {
            assert!(with(observer, 1, 3).unwrap_err().contains("its numbers are none that calibration could give"));
        }
    }
    for (from, to) in [(3, 3), (4, 3), (0, 10), (u64::MAX, 1)] {
        assert!(with(good(), from, to).is_err(), "{from}..{to}");
    }
}

#[test]
fn what_is_not_finite_is_named_or_left_out_as_asked() {
    let dir = workplace();
    let dir = dir.path();
    let mut v = cleave::demo::calibration(1).to_f32().into_owned();
    v[5] = f32::NAN;
    npy::write_npy(&dir.join("data/4.npy"), &Tensor::new(&[1, 1, 28, 28], v.clone())).unwrap();
    let quantize = ["quantize", "tiny.pt2", "--calib", "data", "-o"];
    let e = error(dir, &[&quantize[..], &["out.clv", "--save-stats", "out.cal"]].concat());
    assert!(e.contains("4.npy: input 'x', sample 4: the element at [0, 0, 5] is NaN; --on-nan skip leaves"), "{e}");
    let e = error(dir, &["calibrate", "tiny.pt2", "--calib", "data", "-o", "out.cal"]);
    assert!(e.contains("input 'x', sample 4"), "{e}");
    let notes = |policy: &str| {
        json(dir, &[&quantize[..], &["a.clv", "--on-nan", policy]].concat())["plan"]["notes"].to_string()
    };
    assert!(notes("skip").contains("1 of 19 calibration samples were left out"));
    assert!(notes("clip").contains("x: 1 values that are NaN or infinite were left out of its range"));
    // A value that is too large for what follows, but not infinite itself: the node is named, with the file.
    v[5] = 3e38;
    npy::write_npy(&dir.join("data/4.npy"), &Tensor::new(&[1, 1, 28, 28], v.iter().map(|x| x * 1e38).collect()))
        .unwrap();
    let e = error(dir, &[&quantize[..], &["out.clv"]].concat());
    assert!(e.contains("4.npy"), "{e}");
}

#[test]
fn data_that_do_not_fit_are_refused_before_a_file_is_written() {
    let dir = workplace();
    let dir = dir.path();
    npy::write_npy(&dir.join("shape.npy"), &Tensor::new(&[8, 1, 20, 28], vec![0f32; 4480])).unwrap();
    npy::write_npy(&dir.join("f64.npy"), &Tensor::new(&[1, 1, 28, 28], vec![0f64; 784])).unwrap();
    npy::write_npy(&dir.join("none.npy"), &Tensor::new(&[0, 1, 28, 28], Vec::<f32>::new())).unwrap();
    let x = cleave::demo::calibration(1);
    npy::write_npz(&dir.join("other.npz"), &[("image".to_string(), x)].into_iter().collect()).unwrap();
    std::fs::create_dir(dir.join("empty")).unwrap();
    for (data, what) in [
        ("shape.npy", "expected samples of shape"),
        ("f64.npy", "expected f32, found f64"),
        ("none.npy", "no samples"),
        ("empty", "the folder holds no"),
        ("other.npz", "array 'image' is no input; the inputs are x"),
        ("missing", "cannot read"),
    ] {
        let e = error(dir, &["calibrate", "tiny.pt2", "--calib", data, "-o", "out.cal"]);
        assert!(e.contains(what), "{data}: {e}");
        let e = error(dir, &["quantize", "tiny.pt2", "--calib", data, "-o", "out.clv", "--save-stats", "out.cal"]);
        assert!(e.contains(what), "{data}: {e}");
    }
}

/// The commands of docs/calibration.md that need nothing but this program, in order.
#[test]
fn the_page_on_calibration_is_true() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calibration.md")).unwrap();
    let dir = workplace();
    std::fs::rename(dir.path().join("tiny.onnx"), dir.path().join("model.onnx")).unwrap();
    std::fs::rename(dir.path().join("data"), dir.path().join("calibration")).unwrap();
    let blocks = page.split("```").skip(1).step_by(2).filter_map(|b| b.strip_prefix("sh\n"));
    let mut ran = 0;
    for line in blocks.flat_map(str::lines).filter(|l| l.starts_with("cleave ") && !l.contains(['*', '$'])) {
        let out = cleave(dir.path(), &line.split_whitespace().skip(1).collect::<Vec<_>>());
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        ran += 1;
    }
    assert_eq!(ran, 8);
}

/// Weights per group beside float activations: on both backends what the dequantized weights give, near the float model.
#[test]
fn weights_alone_are_quantized_per_group() {
    use cleave::backend::Backend;
    let spec = |dtype: &str| {
        format!(
            "[quantizer]\nname = \"mine\"\narithmetic = \"divide\"\n[spec.weight]\ndtype = \"{dtype}\"\nscheme = \"per_group_symmetric\"\ngroup_size = 8\n[[pattern]]\nname = \"linear\"\nmatch = \"linear(x, w, b?)\"\nwhere = [\"constant(w)\"]\ninputs = {{ w = \"weight\" }}\n"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let model = cleave::demo::model().unwrap();
    let x = cleave::demo::calibration(4);
    for (dtype, least) in [("s8", 40.0), ("s4", 15.0)] {
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, spec(dtype)).unwrap();
        let settings = Settings { quantizer: path.display().to_string(), ..Settings::default() };
        let q = pipeline::quantize(&model, &[x.clone()][..], &settings, &mut |_, _, _| {}).unwrap();
        let sqnr = q.check.outputs[0].1.sqnr_db;
        assert!(sqnr > least && sqnr < 80.0, "{dtype}: {sqnr}");
        let run = |backend: &str| {
            let mut b = Backend::new(backend, &q.converted.graph, settings.run).unwrap();
            b.run(std::slice::from_ref(&x), &[], &mut |_, _| {}).unwrap()[0].to_f32().into_owned()
        };
        let (cpu, reference) = (run("cpu"), run("reference"));
        assert!(cpu.iter().zip(&reference).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())), "{dtype}");
    }
}

/// ONNX Runtime: a mask of -3.4e38 added before a softmax makes the scale 1e36 and attention uniform.
#[test]
fn masked_attention_is_not_made_uniform() {
    let text = "graph(%x: f32[N, 8], %mask: f32[N, 8]) {\n  %w = param \"w\": f32[8, 8]\n  %scores = aten.linear(%x, %w): f32[N, 8]\n  %masked = aten.add.Tensor(%scores, %mask): f32[N, 8]\n  %softmax = aten.softmax.int(%masked, 1): f32[N, 8]\n  return %softmax\n}\n";
    let mut model = cleave_ir::text::parse(text).unwrap();
    let noise = |n: usize, seed: usize| -> Vec<f32> {
        (0..n).map(|i| (((i * 7919 + seed * 104_729) % 1009) as f32 / 504.5 - 1.0) * 2.0).collect()
    };
    model.constants.insert("w".into(), Tensor::new(&[8, 8], noise(64, 3)));
    let rows = 16;
    for least in [-3.4e38, -65504.0, -1e4, f32::NEG_INFINITY] {
        let mask = (0..rows * 8).map(|i| if i % 3 == 1 { least } else { 0.0 }).collect();
        let samples = [Tensor::new(&[rows, 8], noise(rows * 8, 1)), Tensor::new(&[rows, 8], mask)];
        for quantizer in ["cpu", "onnx", "x86", "xnnpack"] {
            let settings = Settings { quantizer: quantizer.into(), ..Settings::default() };
            let q = pipeline::quantize(&model, &samples[..], &settings, &mut |_, _, _| {}).unwrap();
            let db = q.check.outputs[0].1.sqnr_db;
            assert!(db > 25.0, "{quantizer}, {least}: {db} dB\n{}", q.converted.graph);
            let row = |n: &str| q.converted.plan.row(n).unwrap().status;
            assert_eq!(row("scores"), cleave_quantize::Status::Quantized, "{quantizer}, {least}");
            assert_eq!(row("softmax"), cleave_quantize::Status::Float, "{quantizer}, {least}");
        }
    }
}
