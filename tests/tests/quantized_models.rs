//! Models that others quantized: read, run on integers, and equal to the runtime that they came from; written out, too.
//!
//! `fixtures/generate/quantized.py` wrote those of `fixtures/ort`, `fixtures/generate/pt2e.py` those of `fixtures/pt2e`.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::{model::read_runnable, pipeline};
use cleave_formats::npy::read_npz;
use cleave_ir::{Graph, Tensor};
use cleave_runtime::{Options, Session, reference};
use cleave_tests::{fixture, quantized::worst};

fn recorded(name: &str) -> (Tensor, Tensor) {
    let arrays = read_npz(&fixture(&format!("{name}.npz"))).unwrap();
    (arrays["in0"].clone(), arrays["out0"].clone())
}

/// Results of the kernels, and the names of those that multiply levels.
fn run(g: &Graph, x: &Tensor) -> (Tensor, Vec<String>) {
    let mut session = Session::new(g, Options { isa: cleave_kernels::Isa::portable(), threads: 1 }).unwrap();
    let plan = session.plan(&[x.shape().to_vec()]).unwrap();
    let names = plan.kernels.iter().map(|k| k.kernel.clone()).filter(|k| k.contains("u8s8")).collect();
    (session.run(std::slice::from_ref(x)).unwrap().remove(0), names)
}

/// Holds a model against its record: interpreted, by kernels, and through every format.
fn check(file: &str, limit: f32, products: usize, endings: &[&str]) {
    let (x, want) = recorded(file.rsplit_once('.').unwrap().0);
    let g = read_runnable(&fixture(file)).unwrap();
    let (got, kernels) = run(&g, &x);
    assert_eq!(kernels.len(), products, "{file}: {kernels:?}\n{g}");
    assert!(worst(&want, &got) <= limit, "{file}: {}", worst(&want, &got));
    let slow = reference::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
    assert!(worst(&want, &slow) <= limit, "{file}, interpreted: {}", worst(&want, &slow));
    let dir = tempfile::tempdir().unwrap();
    for ending in endings {
        let path = dir.path().join(format!("m.{ending}"));
        pipeline::write(&path, &g).unwrap();
        let back = read_runnable(&path).unwrap();
        // ONNX has one rounding; the others say which a file means.
        let divides = *ending == "onnx" || g.quantizes_by_division();
        assert_eq!(back.quantizes_by_division(), divides, "{file} as .{ending}");
        let (got, kernels) = run(&back, &x);
        assert_eq!(kernels.len(), products, "{file} as .{ending}: {kernels:?}");
        assert!(worst(&want, &got) <= limit, "{file} as .{ending}: {}", worst(&want, &got));
    }
}

const ALL: &[&str] = &["onnx", "pt2", "clv"];
/// One step of what a file of ONNX Runtime gives: a softmax, at a scale of 1/256 or 1/255.
const STEP: f32 = 1.0 / 255.0;

#[test]
fn onnx_runtimes_operators_on_levels_give_its_bits() {
    check("ort/qoperator.onnx", 0.0, 5, ALL);
    check("ort/qoperator_channels.onnx", 0.0, 5, ALL);
}

#[test]
fn onnx_runtimes_pairs_give_its_results_within_a_step() {
    check("ort/qdq.onnx", STEP, 5, ALL);
}

/// Weights of unsigned bytes that fit i8 around their zero point are multiplied as such, others as floats.
#[test]
fn unsigned_weights_give_the_same_results() {
    check("ort/qoperator_unsigned.onnx", 0.0, 2, ALL);
    check("ort/qdq_unsigned.onnx", STEP, 2, ALL);
}

#[test]
fn what_nncf_quantized_runs_on_integers() {
    check("ort/nncf.onnx", 1e-4, 5, ALL);
}

#[test]
fn a_dynamically_quantized_lstm_gives_onnx_runtimes_results() {
    // Steps that are written out multiply levels, also those of the state.
    check("ort/lstm_5.onnx", 1e-6, 12, &["onnx", "clv"]);
    // Inside a scan the state meets its weights in float.
    check("ort/lstm.onnx", 1e-6, 2, &["onnx", "clv"]);
}

#[test]
fn what_was_trained_for_quantization_runs_on_integers() {
    check("pt2e/qat.pt2", 1e-6, 2, ALL);
    check("pt2e/qat_x86.pt2", 1e-6, 2, ALL);
}

/// Fake quantization is that of the pair: on halves of a step, beyond the range, of weights and with several scales.
#[test]
fn what_was_prepared_and_not_converted_is_read_as_pairs() {
    check("pt2e/prepared.pt2", 1e-6, 2, ALL);
    // ONNX divides by the scale, which decides halves of a step otherwise.
    check("pt2e/fake.pt2", 1e-5, 1, &["pt2", "clv"]);
    let g = read_runnable(&fixture("pt2e/fake.pt2")).unwrap();
    let levels = g.constants.iter().find(|(name, _)| name.ends_with(".levels")).unwrap();
    assert_eq!((levels.0.as_str(), levels.1.dtype()), ("conv.weight.levels", cleave_numerics::DType::I8));
    let (x, want) = recorded("pt2e/fake");
    let (want, got) = (want.to_f32(), run(&g, &x).0);
    // The first nine channels are the fake-quantized input.
    let per = want.len() / 4;
    for (a, b) in want.chunks(per).zip(got.to_f32().chunks(per)) {
        let n = per / 17 * 9;
        assert!(a[..n].iter().zip(&b[..n]).all(|(a, b)| a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0)));
    }
}
