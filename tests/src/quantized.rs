//! Quantizing small graphs and holding what comes out against float.

use cleave::error::Result;
use cleave::pipeline::{Quantized, Settings, quantize};
use cleave_ir::{Graph, Tensor};
use cleave_quantize::{Quantizer, Status};
use cleave_runtime::{Options, Session, reference};
use tempfile::tempdir;

/// A small generator: the numbers are the same on every run.
pub struct Numbers(pub u64);

impl Numbers {
    /// A number in [-1, 1).
    pub fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// A tensor of numbers in [-scale, scale).
    pub fn tensor(&mut self, shape: &[usize], scale: f32) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::new(shape, (0..n).map(|_| scale * self.number()).collect::<Vec<f32>>())
    }
}

/// Numbers in [-scale, scale); the seed is the shape's.
pub fn numbers(shape: &[usize], scale: f32) -> Tensor {
    Numbers(shape.iter().fold(7, |h, n| h * 31 + *n as u64)).tensor(shape, scale)
}

/// Sixteen samples of a shape whose first size is the batch.
pub fn samples(shape: &[usize]) -> Tensor {
    let mut shape = shape.to_vec();
    shape[0] *= 16;
    Numbers(99).tensor(&shape, 2.0)
}

/// Quantizes a graph on samples, with selectors of what stays float.
///
/// # Errors
/// What the pipeline met.
pub fn quantized(g: &Graph, quantizer: &str, float: &[&str], samples: &Tensor) -> Result<Quantized> {
    let float = float.iter().map(ToString::to_string).collect();
    let settings = Settings { quantizer: quantizer.into(), float, ..Settings::default() };
    quantize(g, std::slice::from_ref(samples), &settings, &mut |_, _, _| {})
}

/// The graph as an ONNX file holds it.
pub fn through_onnx(g: &Graph) -> Graph {
    let dir = tempdir().unwrap_or_else(|e| panic!("{e}"));
    let path = dir.path().join("q.onnx");
    cleave::pipeline::write(&path, g).unwrap_or_else(|e| panic!("{e}"));
    cleave_formats::read(&path).unwrap_or_else(|e| panic!("{e}"))
}

/// Results of the reference interpreter and of the CPU backend.
pub fn results(g: &Graph, x: &Tensor) -> [Vec<Tensor>; 2] {
    let inputs = std::slice::from_ref(x);
    let slow = reference::run(g, inputs).unwrap_or_else(|e| panic!("{e}\n{g}"));
    let fast = Session::new(g, Options::default()).and_then(|mut s| s.run(inputs));
    [slow, fast.unwrap_or_else(|e| panic!("{e}\n{g}"))]
}

/// The width of a tensor's range, 0 in it.
pub fn range(t: &Tensor) -> f32 {
    let t = t.to_f32();
    t.iter().fold(0.0f32, |m, v| m.max(*v)) - t.iter().fold(0.0f32, |m, v| m.min(*v))
}

/// The greatest difference.
pub fn worst(want: &Tensor, got: &Tensor) -> f32 {
    assert_eq!(want.shape(), got.shape());
    let (a, b) = (want.to_f32(), got.to_f32());
    assert!(b.iter().all(|v| v.is_finite()), "a result is not finite");
    a.iter().zip(b.iter()).fold(0.0f32, |m, (x, y)| m.max((x - y).abs()))
}

/// Quantizes by each quantizer and asserts that float and quantized results of the first samples agree: as converted
/// and as an ONNX file holds it, interpreted and by kernels. They may differ by `limit`, or by 4 of 255 steps of what
/// each output ranges over.
pub fn agrees_by(quantizers: &[&str], g: &Graph, x: &Tensor, float: &[&str], limit: Option<f32>) -> Vec<Quantized> {
    let n = x.shape()[0] / 16;
    let batches: Vec<Tensor> = (0..4).map(|i| x.narrow(0, i * n, n).contiguous()).collect();
    let each = |quantizer: &&str| {
        let q = quantized(g, quantizer, float, x).unwrap_or_else(|e| panic!("{quantizer}: {e}"));
        let wanted: Vec<Vec<Tensor>> = batches.iter().map(|x| results(&q.raised, x)[0].clone()).collect();
        let ranges = (0..wanted[0].len()).map(|i| wanted.iter().map(|w| range(&w[i])).fold(0.0, f32::max));
        let limits: Vec<f32> = ranges.map(|r| limit.unwrap_or(r * 4.0 / 255.0)).collect();
        for (form, graph) in [("converted", q.converted.graph.clone()), ("onnx", through_onnx(&q.converted.graph))] {
            for (x, want) in batches.iter().zip(&wanted) {
                for (how, got) in ["interpreted", "by kernels"].iter().zip(results(&graph, x)) {
                    for (i, (w, r)) in want.iter().zip(&got).enumerate() {
                        let (d, most) = (worst(w, r), limits[i]);
                        assert!(d <= most, "{quantizer}, {form}, {how}: output {i} is {d} off, not {most}\n{graph}");
                    }
                }
            }
        }
        q
    };
    quantizers.iter().map(each).collect()
}

/// [`agrees_by`] all built-in quantizers that observe activations, within 4 steps.
pub fn agrees(g: &Graph, x: &Tensor) -> Vec<Quantized> {
    let observes = |n: &&str| cleave_quantize::load(n).is_ok_and(|q| q.specs().iter().any(|s| s.observed()));
    let quantizers: Vec<&str> = cleave_quantize::BUILT_IN.iter().map(|(n, _)| *n).filter(observes).collect();
    agrees_by(&quantizers, g, x, &[], None)
}

/// A quantizer's file that extends a built-in one and observes least and greatest values: nothing is cut off.
pub fn uncut(base: &str) -> tempfile::NamedTempFile {
    let q = cleave_quantize::TomlQuantizer::load(base).unwrap_or_else(|e| panic!("{e}"));
    let range = q.specs().iter().find(|s| s.name == "activation").map(|s| s.range);
    let dtype = if range.is_some_and(|r| r.min < 0) { "s8" } else { "u8" };
    let spec =
        format!("[spec.activation]\ndtype = \"{dtype}\"\nscheme = \"per_tensor_affine\"\nobserver = \"minmax\"\n");
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap_or_else(|e| panic!("{e}"));
    std::fs::write(file.path(), format!("[quantizer]\nname = \"{base}\"\nextends = \"{base}\"\n{spec}"))
        .unwrap_or_else(|e| panic!("{e}"));
    file
}

/// The status of a node in the plan.
pub fn status(q: &Quantized, node: &str) -> Status {
    q.converted.plan.row(node).unwrap_or_else(|| panic!("no row for {node}: {:#?}", q.converted.plan)).status
}

/// Why a node is float.
pub fn reason(q: &Quantized, node: &str) -> String {
    q.converted.plan.row(node).and_then(|r| r.reason.clone()).unwrap_or_default()
}
