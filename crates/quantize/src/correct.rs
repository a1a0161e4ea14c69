//! Bias correction: what rounding the weights does to a result on average goes into the bias.
//!
//! With weights `w'` in the place of `w`, a channel of a convolution or linear layer is off by `Σ (w' - w)·E[x]` on
//! average, where `E[x]` is the mean of an input channel over samples and places; places in the padding are not told apart.
//! (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019, with means measured.)

use crate::calibrate::{BoxError, Evaluator};
use crate::error::{QuantizeError, Result};
use crate::prepare::Prepared;
use cleave_ir::{Arg, Graph, Kind, NodeId, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;

/// A layer whose bias can be corrected.
struct Layer {
    /// Its input.
    x: NodeId,
    /// Name of its bias.
    bias: String,
    /// What rounding adds to the weights, `[out, in/groups, places]`.
    error: Vec<f32>,
    shape: [usize; 3],
    /// The input's channels.
    channels: usize,
    /// The dimension of the input's channels.
    axis: usize,
}

/// The layers of the float graph whose weights are integers in the quantized one.
fn layers(p: &Prepared, quantized: &Graph) -> Vec<Layer> {
    p.graph.nodes().filter_map(|(id, _)| layer(&p.graph, id, quantized)).collect()
}

fn layer(g: &Graph, id: NodeId, quantized: &Graph) -> Option<Layer> {
    let node = g.node(id);
    let op = node.op().filter(|o| o.weight_axis == Some(0))?;
    let of = |name: &str| node.arg(name).and_then(|a| a.nodes().first().copied());
    let (x, w, b) = (of("input")?, of("weight")?, of("bias")?);
    let bias = g.constant(b).filter(|t| t.dtype() == DType::F32 && t.shape().len() == 1)?;
    let weight = g.constant(w).filter(|t| t.dtype() == DType::F32)?;
    let shared = g.nodes().filter(|(_, n)| n.kind == g.node(b).kind && n.target == g.node(b).target).count() > 1;
    if shared || g.use_count(b) != 1 || !matches!(g.node(b).kind, Kind::GetAttr(_)) {
        return None;
    }
    let rounded = dequantized(quantized, quantized.node(quantized.find(&node.name)?).arg("weight")?)?;
    let sizes = weight.shape();
    let [out, each, rest @ ..] = sizes else { return None };
    let places = rest.iter().product();
    let shape = g.tensor_meta(x).ok()?.shape.clone();
    let axis =
        if op.base() == "linear" { shape.len().checked_sub(1)? } else { shape.len().checked_sub(rest.len() + 1)? };
    let channels = usize::try_from(shape.get(axis)?.as_const()?).ok()?;
    let fits = rounded.len() == weight.len() && bias.len() == *out && *each > 0 && channels % each == 0;
    let error = rounded.iter().zip(weight.to_f32().iter()).map(|(r, w)| r - w).collect();
    let layer = Layer { x, bias: g.node(b).target.clone(), error, shape: [*out, *each, places], channels, axis };
    Some(layer).filter(|_| fits)
}

/// What a dequantize of constants means.
fn dequantized(g: &Graph, a: &Arg) -> Option<Vec<f32>> {
    let node = g.node(*a.nodes().first()?);
    let constant = |name: &str| g.constant(*node.arg(name)?.nodes().first()?);
    let op = node.op().filter(|o| o.base() == "dequantize_per_channel")?;
    let (q, scales) = (constant(op.schema.params[0].name.as_str())?, constant("scales")?.to_f32().into_owned());
    let axis = match node.arg("axis") {
        Some(Arg::Int(a)) => usize::try_from(*a).ok()?,
        _ => return None,
    };
    let inner: usize = q.shape().get(axis + 1..)?.iter().product();
    let n = q.shape()[axis];
    let levels = q.to_i64();
    Some(levels.iter().enumerate().map(|(i, v)| *v as f32 * scales[i / inner.max(1) % n]).collect())
}

/// Sums of an input's channels.
struct Sums {
    sums: Vec<f64>,
    count: u64,
}

impl Sums {
    fn add(&mut self, t: &Tensor, axis: usize) {
        let x = t.to_f32();
        let inner: usize = t.shape()[axis + 1..].iter().product();
        let n = self.sums.len().max(1);
        for (i, row) in x.chunks(inner.max(1)).enumerate() {
            self.sums[i % n] += row.iter().map(|v| f64::from(*v)).sum::<f64>();
        }
        self.count += (x.len() / n) as u64;
    }
}

/// The prepared graph with corrected biases, and how many there are; none if there is none to correct. Inputs are
/// averaged over these samples, in float.
///
/// # Errors
/// A sample that cannot be read or run.
pub fn correct_biases(
    p: &Prepared,
    quantized: &Graph,
    evaluator: &mut dyn Evaluator,
    samples: impl Iterator<Item = std::result::Result<Vec<Tensor>, BoxError>>,
) -> Result<Option<(Prepared, usize)>> {
    let layers = layers(p, quantized);
    let mut means: IndexMap<NodeId, (usize, Sums)> = IndexMap::new();
    for l in &layers {
        means.entry(l.x).or_insert_with(|| (l.axis, Sums { sums: vec![0.0; l.channels], count: 0 }));
    }
    let mut taps: Vec<NodeId> = means.keys().copied().collect();
    taps.sort();
    for (sample, inputs) in samples.enumerate() {
        let failed = |e: BoxError| QuantizeError::Sample { sample, why: e.to_string() };
        let mut sink = |id: NodeId, t: &Tensor| {
            if let Some((axis, sums)) = means.get_mut(&id) {
                sums.add(t, *axis);
            }
        };
        evaluator.run(&p.graph, &inputs.map_err(failed)?, &taps, &mut sink).map_err(failed)?;
    }
    let mut corrected = p.clone();
    let mut count = 0;
    for l in &layers {
        let Some((_, sums)) = means.get(&l.x).filter(|(_, s)| s.count > 0) else { continue };
        let [out, each, places] = l.shape;
        let groups = l.channels / each;
        let Some(old) = p.graph.constants.get(&l.bias) else { continue };
        let shift = |o: usize| -> f64 {
            let first = o / (out / groups).max(1) * each;
            let rows = l.error[o * each * places..(o + 1) * each * places].chunks(places.max(1));
            let mean = |i: usize| sums.sums[first + i] / sums.count as f64;
            rows.enumerate().map(|(i, row)| row.iter().map(|v| f64::from(*v)).sum::<f64>() * mean(i)).sum()
        };
        let bias: Vec<f32> = old.to_f32().iter().enumerate().map(|(o, b)| (f64::from(*b) - shift(o)) as f32).collect();
        if bias.iter().all(|v| v.is_finite()) {
            corrected.graph.constants.insert(l.bias.clone(), Tensor::new(&[out], bias));
            count += 1;
        }
    }
    Ok(Some((corrected, count)).filter(|(_, n)| *n > 0))
}
