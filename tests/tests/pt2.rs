//! Exported programs of several versions of torch: the same graphs and the recorded results, on both backends.
//!
//! `fixtures/pt2` holds each network as torch 2.15 (raw storages), 2.8 (`data/weights/model.pt`) and 2.7, 2.5 and 2.4
//! (everything at the root) write it; `fixtures/generate/pt2.py` wrote them. `fixtures/pt2e` holds what torchao made of
//! two networks; `fixtures/generate/pt2e.py` wrote that.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::Backend;
use cleave_decompose::{Table, decompose, raise::raise};
use cleave_formats::{npy::read_npz, read, write_clv, write_pt2};
use cleave_ir::{Graph, Levels, Tensor, text, verify::verify};
use cleave_runtime::Options;
use cleave_tests::fixture;
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

/// The files of a network, newest first.
fn versions(network: &str) -> Vec<(String, PathBuf)> {
    let versions = ["2.15", "2.8", "2.7", "2.5", "2.5.functional", "2.4"];
    let paths = versions.map(|v| (format!("{network} {v}"), fixture(&format!("pt2/{network}.{v}.pt2"))));
    paths.into_iter().filter(|(_, p)| p.exists()).collect()
}

/// Recorded inputs and results.
fn recorded(network: &str) -> (Vec<Tensor>, Vec<Tensor>) {
    let arrays = read_npz(&fixture(&format!("{network}.npz"))).unwrap();
    let pick = |prefix: &str| arrays.iter().filter(|(n, _)| n.starts_with(prefix)).map(|(_, t)| t.clone()).collect();
    (pick("in"), pick("out"))
}

fn run(backend: &str, g: &Graph, inputs: &[Tensor]) -> Vec<Tensor> {
    Backend::new(backend, g, Options::default()).unwrap().run(inputs, &[], &mut |_, _| {}).unwrap()
}

/// Holds results against those recorded, within this share.
fn assert_close(what: &str, got: &[Tensor], want: &[Tensor], share: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (g, w) in got.iter().zip(want) {
        assert_eq!((g.dtype(), g.shape()), (w.dtype(), w.shape()), "{what}");
        for (a, b) in g.to_f64().iter().zip(w.to_f64()) {
            assert!(*a == b || (a - b).abs() <= 1e-5 + share * b.abs(), "{what}: {a}, torch has {b}");
        }
    }
}

fn check(network: &str, share: f64) {
    let (inputs, want) = recorded(&format!("pt2/{network}"));
    let files = versions(network);
    assert!(files.len() >= 3, "{network}: {files:?}");
    for (what, path) in files {
        let g = read(&path).unwrap();
        verify(&g, Levels::ALL).unwrap();
        assert_eq!(text::parse(&g.to_string()).unwrap().to_string(), g.to_string(), "{what}");
        for backend in ["reference", "cpu"] {
            assert_close(&format!("{what} on {backend}"), &run(backend, &g, &inputs), &want, share);
        }
        let raised = raise(&g).unwrap().0;
        assert_close(&format!("{what} raised"), &run("cpu", &raised, &inputs), &want, share);
        for table in ["empty", "core", "prims"] {
            let g = decompose(&g, &Table::named(table).unwrap()).unwrap();
            assert_close(&format!("{what} at {table}"), &run("reference", &g, &inputs), &want, share);
        }
        let dir = tempfile::tempdir().unwrap();
        let clv = dir.path().join("m.clv");
        write_clv(&clv, &g, &IndexMap::new()).unwrap();
        assert_eq!(read(&clv).unwrap().to_string(), g.to_string(), "{what}");
        let pt2 = dir.path().join("m.pt2");
        write_pt2(&pt2, &decompose(&g, &Table::empty()).unwrap()).unwrap();
        assert_close(&format!("{what} written"), &run("cpu", &read(&pt2).unwrap(), &inputs), &want, share);
    }
}

/// The graph's text without what versions of torch say differently: the batch's name, whether cuDNN may be used, and
/// asserts.
fn plain(path: &Path) -> String {
    let text = read(path).unwrap().to_string().replace("s77", "s0").replace("1e-5, true)", "1e-5, false)");
    text.lines().filter(|l| !l.contains("_assert_tensor_metadata")).collect::<Vec<_>>().join("\n")
}

#[test]
fn storages_of_every_kind_are_read_in_every_layout() {
    check("storages", 1e-6);
    let files = versions("storages");
    let new = read(&files[0].1).unwrap();
    for (what, path) in &files {
        let g = read(path).unwrap();
        for (name, t) in &new.constants {
            assert_eq!(g.constants.get(name), Some(t), "{what}: {name}");
        }
        let place = |n: &str| g.constants[n].to_bytes().as_ptr();
        assert_eq!(place("conv.weight"), place("again.weight"), "{what}: tied");
        assert_eq!(g.constants["turned"].strides(), [1, 4], "{what}");
        assert!(g.constants["nothing"].is_empty() && g.constants["wide"].strides() == [1, 0], "{what}");
    }
    let whole = ["2.15", "2.8", "2.7", "2.5"].map(|v| plain(&fixture(&format!("pt2/storages.{v}.pt2"))));
    assert!(whole.iter().all(|t| *t == whole[0]), "{}", whole.join("\n"));
}

#[test]
fn branches_run_one_graph_or_the_other() {
    check("branches", 1e-6);
    let g = read(&fixture("pt2/branches.2.15.pt2")).unwrap();
    assert_eq!(g.op_counts().get("higher_order.cond"), Some(&3));
    let wave = |n: usize, sign: f32| Tensor::new(&[n, 4], (0..4 * n).map(|i| sign * (i as f32 * 0.3).cos()).collect());
    for x in [wave(3, 1.0), wave(3, -1.0), wave(5, 1.0), wave(5, -1.0), wave(2, -0.1)] {
        let want = run("reference", &g, std::slice::from_ref(&x));
        assert_close("cpu", &run("cpu", &g, std::slice::from_ref(&x)), &want, 1e-6);
    }
    for v in ["2.8", "2.7"] {
        assert_eq!(plain(&fixture(&format!("pt2/branches.{v}.pt2"))), plain(&fixture("pt2/branches.2.15.pt2")), "{v}");
    }
}

#[test]
fn parts_under_other_settings_are_parts_of_the_graph() {
    check("wrapped", 1e-2);
    let g = read(&fixture("pt2/wrapped.2.15.pt2")).unwrap().to_string();
    let want = r"graph(%x: f32[s77, 4]) where 2 <= s77 <= 64 {
  %p_fc_weight = param";
    assert!(g.starts_with(want), "{g}");
}

#[test]
fn results_have_the_keys_of_dictionaries_and_what_is_no_tensor_is_named() {
    check("outputs", 1e-6);
    for (what, path) in versions("outputs") {
        let g = read(&path).unwrap();
        assert_eq!(g.input_names, ["x"], "{what}");
        assert_eq!(g.output_names, ["top", "parts.0", "parts.1", "lit"], "{what}");
        assert_eq!(g.metadata["dropped"], "output 3, output none", "{what}");
    }
}

#[test]
fn a_model_in_training_mode_says_so() {
    let g = read(&fixture("pt2/training.2.15.pt2")).unwrap();
    assert_eq!(g.metadata["dropped"], "write to buffer bn.num_batches_tracked");
    let e = raise(&g).unwrap_err().to_string();
    assert!(e.ends_with("in training mode; export the model after .eval()"), "{e}");
}

#[test]
fn programs_that_torchao_quantized_run_and_come_back() {
    for name in ["static", "channels", "x86", "dynamic"] {
        let (inputs, want) = recorded(&format!("pt2e/{name}"));
        let g = read(&fixture(&format!("pt2e/{name}.pt2"))).unwrap();
        verify(&g, Levels::ALL).unwrap();
        // One level more or less where torch sums in another order.
        let step = want[0].to_f32().iter().fold(0f32, |m, v| m.max(v.abs())) / 100.0;
        let close = |what: &str, got: &[Tensor]| {
            let far =
                got[0].to_f32().iter().zip(want[0].to_f32().iter()).filter(|(a, b)| (*a - *b).abs() > step).count();
            assert_eq!((got[0].shape(), far), (want[0].shape(), 0), "{name} {what}: {got:?}\n{want:?}");
        };
        for backend in ["reference", "cpu"] {
            close(backend, &run(backend, &g, &inputs));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.pt2");
        let functional = decompose(&raise(&g).unwrap().0, &Table::empty()).unwrap();
        write_pt2(&path, &functional).unwrap();
        let back = read(&path).unwrap();
        assert_eq!(back.op_counts(), functional.op_counts(), "{name}");
        assert_eq!(run("cpu", &back, &inputs), run("cpu", &functional, &inputs), "{name}");
        let mut session = cleave_runtime::Session::new(&g, Options::default()).unwrap();
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
        let plan = session.plan(&shapes).unwrap();
        let int8 = plan.kernels.iter().filter(|k| k.kernel.contains("u8s8")).count();
        let layers = if name == "dynamic" { 2 } else { 3 };
        assert!(int8 >= layers, "{name}: {:?}", plan.kernels.iter().map(|k| &k.kernel).collect::<Vec<_>>());
    }
}
