//! `x86` beside torchao's X86InductorQuantizer on recorded networks (tests/fixtures/generate/x86.py made the records).

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::CpuEvaluator;
use cleave::{demo, model};
use cleave_formats::npy;
use cleave_ir::{Arg, Graph, Tensor};
use cleave_quantize::observe::{Observer, scan};
use cleave_quantize::{Converted, Prepared, TomlQuantizer, annotate, calibrate, convert, prepare};
use cleave_tests::fixture;
use serde_json::Value;

fn record(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(&format!("x86/{name}.json"))).unwrap()).unwrap()
}

/// Python's `float.hex` of a number that an f32 holds.
fn hex(v: &Value) -> f32 {
    let text = v.as_str().unwrap().strip_prefix("0x1.").unwrap();
    let (mantissa, exponent) = text.split_once('p').unwrap();
    let m = u64::from_str_radix(mantissa, 16).unwrap() as f64 / 16f64.powi(mantissa.len() as i32);
    ((1.0 + m) * 2f64.powi(exponent.parse().unwrap())) as f32
}

fn prepared(g: &Graph) -> Prepared {
    let q = TomlQuantizer::load("x86").unwrap();
    prepare(g, &annotate(g, &q, &cleave_quantize::Selection::default()).unwrap()).unwrap()
}

fn calibrated(p: &Prepared, batches: Vec<Vec<Tensor>>) -> Converted {
    let mut e = CpuEvaluator::new(cleave_runtime::Options::default());
    let stats = calibrate(p, &mut e, batches.into_iter().map(Ok), Default::default(), &mut |_| {}).unwrap();
    convert(p, &stats).unwrap()
}

/// Scale and zero point of the quantize behind what a node of the source became.
fn qparams(g: &Graph, after: &str) -> Option<(f32, i64)> {
    let came = |n: &cleave_ir::Node| n.name == after || n.origin.sources.iter().any(|s| s == after);
    let users = g.nodes().filter(|(_, n)| came(n)).flat_map(|(id, _)| g.users(id));
    let q = users.into_iter().find(|u| g.node(*u).op().is_some_and(|o| o.base() == "quantize_per_tensor"))?;
    match (g.node(q).arg("scale")?, g.node(q).arg("zero_point")?) {
        (Arg::Float(s), Arg::Int(z)) => Some((*s as f32, *z)),
        _ => None,
    }
}

/// The scales of every weight, in order of the convolutions and linears.
fn weight_scales(g: &Graph) -> Vec<Vec<f32>> {
    let weighted = g.nodes().filter_map(|(_, n)| n.arg("weight"));
    let dq = weighted.filter_map(|w| w.nodes().first().copied()).filter(|w| g.node(*w).arg("scales").is_some());
    dq.map(|w| g.constant(g.node(w).arg("scales").unwrap().nodes()[0]).unwrap().to_f32().into_owned()).collect()
}

fn check_weights(name: &str, g: &Graph, record: &Value) {
    let want: Vec<Vec<f32>> = record["weights"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| w["scales"].as_array().unwrap().iter().map(hex).collect())
        .collect();
    let got = weight_scales(g);
    assert_eq!(got.len(), want.len(), "{name}: weights");
    for (i, (g, w)) in got.iter().zip(&want).enumerate() {
        assert!(
            g.iter().map(|v| v.to_bits()).eq(w.iter().map(|v| v.to_bits())),
            "{name}: scales of weight {i}: {g:?}, torch {w:?}"
        );
    }
}

#[test]
fn observers_fed_torchs_tensors_give_its_numbers() {
    let record = record("tiny_fashion");
    let arrays = npy::read_npz(&fixture("x86/tiny_fashion.npz")).unwrap();
    let q = TomlQuantizer::load("x86").unwrap();
    let spec = cleave_quantize::Quantizer::specs(&q).iter().find(|s| s.name == "activation").unwrap().clone();
    let mut fed = 0;
    for (i, a) in record["activations"].as_array().unwrap().iter().enumerate() {
        let batches: Vec<&Tensor> = (0..).map_while(|k| arrays.get(&format!("act/{i}/{k}"))).collect();
        // A value that shares the observer of an earlier one has its tensors recorded there.
        if batches.is_empty() {
            continue;
        }
        fed += 1;
        let mut o = Observer::new(spec.observer);
        for x in batches.into_iter().map(Tensor::to_f32) {
            o.update(&x, &scan(&x));
        }
        let got = o.qparams(&spec).unwrap();
        let after = &a["after"];
        assert_eq!(
            (got.scale.to_bits(), i64::from(got.zero_point)),
            (hex(&a["scale"]).to_bits(), a["zero_point"].as_i64().unwrap()),
            "{after}"
        );
    }
    assert_eq!(fed, 5);
}

#[test]
fn the_tiny_network_gets_torchs_numbers_end_to_end() {
    let record = record("tiny_fashion");
    let p = prepared(&model::raise(&demo::model().unwrap()).unwrap());
    let x = demo::calibration(4);
    let c = calibrated(&p, vec![vec![x.narrow(0, 0, 2)], vec![x.narrow(0, 2, 2)]]);
    check_weights("tiny_fashion", &c.graph, &record);
    for a in record["activations"].as_array().unwrap() {
        let after = a["after"].as_str().unwrap();
        let (scale, zero_point) = qparams(&c.graph, after).unwrap_or_else(|| panic!("{after} is not quantized"));
        let (s, z) = (hex(&a["scale"]), a["zero_point"].as_i64().unwrap());
        assert!(
            (scale / s - 1.0).abs() <= 0.02 && (zero_point - z).abs() <= 1,
            "{after}: {scale} {zero_point}, torch {s} {z}"
        );
    }
}
