//! What calibration data do to other tools without a word: each is told, and harms nothing.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Graph, NodeId, Tensor, text};
use cleave_quantize::observe::Observer;
use cleave_quantize::{
    BoxError, CalibrateOptions, Converted, Evaluator, NonFinite, Prepared, QuantizeError, Selection, Statistics,
    Status, TomlQuantizer, annotate, calibrate, convert, prepare,
};

/// A head of attention as a quantizer sees it that quantizes sums: scores, a mask added to them, a softmax.
const ATTENTION: &str = r#"graph(%x: f32[N, 2], %mask: f32[N, 2]) {
  %w = param "w": f32[2, 2]
  %scores = aten.linear(%x, %w): f32[N, 2]
  %masked = aten.add.Tensor(%scores, %mask): f32[N, 2]
  %softmax = aten.softmax.int(%masked, 1): f32[N, 2]
  return %softmax
}
"#;

const PAIR: &str = r#"graph(%x: f32[N, 2]) {
  %w = param "w": f32[2, 2]
  %v = param "v": f32[2, 2]
  %first = aten.linear(%x, %w): f32[N, 2]
  %second = aten.linear(%first, %v): f32[N, 2]
  return %second
}
"#;

/// Shows, in one sample after the other, what stands here for each value; other values are a ramp over [-1, 3].
struct Given(Vec<Vec<(&'static str, Vec<f32>)>>, usize);

impl Evaluator for Given {
    fn run(
        &mut self,
        graph: &Graph,
        _: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>, BoxError> {
        for id in taps {
            let name = &graph.node(*id).name;
            let given = self.0[self.1].iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            let v = given.unwrap_or((0..=40).map(|i| i as f32 / 10.0 - 1.0).collect());
            sink(*id, &Tensor::new(&[v.len()], v));
        }
        self.1 += 1;
        Ok(vec![])
    }
}

fn prepared(net: &str, quantizer: &str) -> Prepared {
    let mut g = text::parse(net).unwrap();
    for name in ["w", "v"] {
        g.constants.insert(name.into(), Tensor::new(&[2, 2], vec![0.5f32, -1.0, 0.25, 1.0]));
    }
    let quantizer = TomlQuantizer::load(quantizer).unwrap();
    prepare(&g, &annotate(&g, &quantizer, &Selection::default()).unwrap()).unwrap()
}

type Samples = Vec<Vec<(&'static str, Vec<f32>)>>;

fn stats(p: &Prepared, samples: &Samples, non_finite: NonFinite) -> Result<Statistics, QuantizeError> {
    let inputs = samples.iter().map(|_| Ok(vec![]));
    calibrate(p, &mut Given(samples.clone(), 0), inputs, CalibrateOptions { non_finite }, &mut |_| {})
}

fn converted(net: &str, quantizer: &str, samples: &Samples) -> Converted {
    let p = prepared(net, quantizer);
    convert(&p, &stats(&p, samples, NonFinite::Error).unwrap()).unwrap()
}

/// ONNX Runtime: a mask of -3.4e38 makes the scale 1e36, and attention uniform.
#[test]
fn sentinel_masks_stay_float_with_their_sum_and_softmax() {
    for least in [-3.4e38, -65504.0, -1e4, f32::NEG_INFINITY] {
        let mask = vec![0.0, least, 0.0, least];
        let sum = vec![1.0, least, 2.0, least];
        let c = converted(ATTENTION, "xnnpack", &vec![vec![("mask", mask), ("masked", sum)]]);
        let row = c.plan.row("masked").unwrap();
        assert_eq!(row.status, Status::Float, "{least}");
        assert!(row.reason.as_deref().unwrap().ends_with("a mask, not an activation"), "{least}: {row:?}");
        assert_eq!(c.plan.row("softmax").unwrap().status, Status::Float);
        assert_eq!(c.plan.row("scores").unwrap().status, Status::Quantized, "{least}");
        assert!(c.graph.find("masked_q").is_none() && c.graph.find("mask_q").is_none());
        assert!(c.plan.notes.iter().any(|n| n.contains("a mask, left float")), "{least}: {:?}", c.plan.notes);
    }
    // Scores as they are without a mask are quantized.
    let c = converted(ATTENTION, "xnnpack", &vec![vec![("mask", vec![0.0, 1.0]), ("masked", vec![-30.0, 2.0])]]);
    assert_eq!(c.plan.row("masked").unwrap().status, Status::Quantized);
}

/// ONNX Runtime: an infinity in calibration makes the scale infinite and the output NaN.
#[test]
fn infinities_and_nan_are_errors_or_left_out_as_asked() {
    let p = prepared(PAIR, "cpu");
    for (bad, what) in [(f32::INFINITY, "an infinity"), (f32::NEG_INFINITY, "an infinity"), (f32::NAN, "NaN")] {
        let ramp = || vec![("x", vec![-2.0, 2.0])];
        let samples = vec![ramp(), vec![("x", vec![7.0]), ("first", vec![1.0, bad, 50.0])], ramp()];
        let e = stats(&p, &samples, NonFinite::Error).unwrap_err().to_string();
        assert_eq!(e, format!("calibration sample 1: {what} in the value of node 'first' (aten.linear)"));
        let skipped = stats(&p, &samples, NonFinite::Skip).unwrap();
        assert_eq!((skipped.samples, skipped.skipped), (2, 1));
        let good = stats(&p, &vec![ramp(), ramp()], NonFinite::Error).unwrap();
        assert_eq!(skipped.observed, good.observed, "nothing of a skipped sample is left");
        let notes = convert(&p, &skipped).unwrap().plan.notes;
        assert_eq!(notes[0], "1 of 3 calibration samples were left out for NaN or infinities");
        let clipped = stats(&p, &samples, NonFinite::Clip).unwrap();
        let first = clipped.observed.iter().find(|g| g.values == ["first"]).unwrap();
        assert_eq!((first.left_out, first.observer.extrema()), (1, Some((-1.0, 50.0))));
        let notes = convert(&p, &clipped).unwrap().plan.notes;
        assert_eq!(notes[0], "first: 1 values that are NaN or infinite were left out of its range");
    }
    let all = vec![vec![("x", vec![f32::NAN])]; 3];
    let e = stats(&p, &all, NonFinite::Skip).unwrap_err().to_string();
    assert!(e.starts_with("all 3 calibration samples were skipped"), "{e}");
}

/// ONNX Runtime: a tensor that is always 0 in calibration has scale 1, which rounds later values to integers.
#[test]
fn dead_tensors_stay_float_and_constant_ones_are_exact() {
    let c = converted(PAIR, "cpu", &vec![vec![("first", vec![0.0; 9])]]);
    let reason = |c: &Converted, n: &str| c.plan.row(n).unwrap().reason.clone();
    assert_eq!(reason(&c, "first").unwrap(), "dead tensor: first is always 0 in calibration");
    assert_eq!(c.plan.notes, ["first is always 0 in calibration: a dead tensor, left float"]);
    let c = converted(PAIR, "cpu", &vec![vec![("first", vec![3.0; 9])]]);
    assert_eq!(c.plan.notes, ["first is always 3 in calibration: a constant"]);
    let q = c.plan.row("first").unwrap().qparams.clone().unwrap();
    assert_eq!((q.scale, q.zero_point), (3.0 / 255.0, 0));
}

/// ONNX Runtime drops calibration data when its store of intermediate results is full.
#[test]
fn every_sample_counts() {
    let p = prepared(PAIR, "cpu");
    let samples: Samples = (0..300).map(|i| vec![("first", vec![i as f32, -1.0, 0.5])]).collect();
    let s = stats(&p, &samples, NonFinite::Error).unwrap();
    let first = s.observed.iter().find(|g| g.values == ["first"]).unwrap();
    let Observer::Histogram(h) = &first.observer else { unreachable!() };
    assert_eq!((s.samples, h.count(), h.extrema()), (300, 900, Some((-1.0, 299.0))));
}

/// ONNX Runtime: histogram and entropy calibration fail when shapes differ from sample to sample.
#[test]
fn shapes_may_differ_from_sample_to_sample() {
    let samples = || (1..20).map(|n| vec![("first", vec![n as f32 / 4.0; n])]).collect::<Samples>();
    for observer in ["histogram", "entropy", "percentile", "mse", "torch_histogram", "moving_average", "minmax"] {
        let text = format!(
            "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n[spec.activation]\ndtype = \"u8\"\nscheme = \"per_tensor_affine\"\nobserver = \"{observer}\"\n"
        );
        let mut p = prepared(PAIR, "cpu");
        p.specs = prepare_with(&text).specs;
        let c = convert(&p, &stats(&p, &samples(), NonFinite::Error).unwrap()).unwrap();
        let scale = c.plan.row("first").unwrap().qparams.clone().unwrap().scale;
        assert!((0.5 / 255.0..5.0 / 255.0).contains(&scale), "{observer}: {scale}");
    }
}

fn prepare_with(quantizer: &str) -> Prepared {
    let g = text::parse(PAIR).unwrap();
    let quantizer = TomlQuantizer::parse(quantizer, "mine.toml").unwrap();
    prepare(&g, &annotate(&g, &quantizer, &Selection::default()).unwrap()).unwrap()
}

#[test]
fn outliers_are_told() {
    let mut values: Vec<f32> = (0..20_000).map(|i| (i % 100) as f32 / 50.0 - 1.0).collect();
    values[77] = 300.0;
    let c = converted(PAIR, "cpu", &vec![vec![("first", values)]]);
    let note = c.plan.notes[0].as_str();
    assert!(
        note.starts_with("first has outliers: it reaches 300 where 99.99 % lie within [-0.9999, 1.0000]"),
        "{note}"
    );
}

#[test]
fn statistics_of_something_else_are_refused_by_name() {
    let (a, b) = (prepared(PAIR, "cpu"), prepared(ATTENTION, "xnnpack"));
    let one = || vec![vec![]];
    let mut of_a = stats(&a, &one(), NonFinite::Error).unwrap();
    let of_b = stats(&b, &one(), NonFinite::Error).unwrap();
    let e = convert(&b, &of_a).unwrap_err().to_string();
    assert_eq!(e, "statistics: x was observed by histogram; torch histogram is asked for");
    let e = convert(&prepared(PAIR, "onnx"), &stats(&prepared(ATTENTION, "onnx"), &one(), NonFinite::Error).unwrap());
    let e = e.unwrap_err().to_string();
    assert_eq!(e, "statistics: first was not observed: the graph or its selection differs");
    assert!(of_a.merge(&of_b).unwrap_err().to_string().starts_with("statistics: they are of other values"));
    let e = stats(&b, &one(), NonFinite::Error).unwrap().merge(&of_b).unwrap_err().to_string();
    assert!(e.contains("torch's histogram depends on the order of the data and cannot be merged"), "{e}");
}
