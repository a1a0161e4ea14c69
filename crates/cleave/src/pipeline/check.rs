//! Float and quantized values side by side.

use super::seen::Seen;
use super::{Samples, Settings, batch_size};
use crate::error::{Error, Result};
use crate::metrics::{Comparison, Similarity};
use cleave_ir::{Graph, NodeId, Tensor};
use cleave_quantize::NonFinite;
use cleave_runtime::Session;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Float and quantized values on a few calibration samples.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// How many samples.
    pub samples: usize,
    /// Each output by name.
    pub outputs: Vec<(String, Similarity)>,
    /// Results of quantized units on the first of these samples, those with the least SQNR first. Of results of more than
    /// 65,536 elements as many are compared, evenly spaced.
    pub worst: Vec<(String, Similarity)>,
    /// SQNR in dB by which each output is judged; none of those that are integers, of which differences say nothing.
    pub judged: Vec<Option<f64>>,
    /// What was tried to make the outputs better, in order.
    pub gains: Vec<Gain>,
}

/// Root mean square that a probability counts as at least: differences of less than it hardly matter.
pub const LEAST_PROBABILITY: f64 = 0.1;

/// What a method of making outputs better does for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// `bias_correction` or `equalization`.
    pub method: String,
    /// Biases that are corrected; pairs of layers that are equalized.
    pub places: usize,
    /// SQNR of the outputs in dB, their mean, without and with it.
    pub sqnr_db: [f64; 2],
    /// Whether the model has it: where it helps.
    pub kept: bool,
}

impl Check {
    /// The output that is worst off, with the SQNR in dB by which it is judged; none where nothing was checked. A
    /// probability that is near 0 throughout, as where there is nothing to detect, counts as one of
    /// [`LEAST_PROBABILITY`]; NaN is as bad as can be.
    pub fn worst_output(&self) -> Option<(&str, f64)> {
        let all = self.outputs.iter().zip(&self.judged).filter_map(|((name, _), db)| Some((name.as_str(), (*db)?)));
        all.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// SQNR in dB of [`Check::worst_output`]; infinite where nothing was checked.
    pub fn least_sqnr(&self) -> f64 {
        self.worst_output().map_or(f64::INFINITY, |(_, db)| db)
    }

    /// SQNR of the outputs in dB, their mean; of exact ones 200 dB.
    pub(super) fn mean_sqnr(&self) -> f64 {
        let sum: f64 = self.outputs.iter().map(|(_, s)| s.sqnr_db.min(200.0)).sum();
        sum / self.outputs.len().max(1) as f64
    }
}

/// Runs a quantized graph on samples for which the float graph was seen, and compares outputs.
pub(super) fn outputs(
    seen: &Seen,
    float: &Graph,
    session: &mut Session,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
) -> Result<Check> {
    let mut outputs = vec![Comparison::default(); float.output_names.len()];
    let mut runs = 0;
    for (run, inputs) in first_inputs(float, samples, settings.check, settings) {
        let Some(want) = seen.outputs.get(&run) else { continue };
        let got = session.run(&inputs?)?;
        for (c, (a, b)) in outputs.iter_mut().zip(want.iter().zip(&got)) {
            c.add(a, b).map_err(Error::Other)?;
        }
        runs += 1;
    }
    let outputs: Vec<_> = float.output_names.iter().cloned().zip(outputs.iter().map(Comparison::finish)).collect();
    let judged = float.results().iter().zip(&outputs).map(|(id, (_, s))| judge(float, *id, s)).collect();
    Ok(Check { samples: runs * batch_size(float), outputs, judged, ..Check::default() })
}

/// Runs a quantized graph on a sample or two and compares the results of units by node name with what was seen of the float
/// graph, those with the least SQNR first.
pub(super) fn layers(
    seen: &Seen,
    float: &Graph,
    session: &mut Session,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
) -> Result<Vec<(String, Similarity)>> {
    let quantized = &session.graph().clone();
    let of: IndexMap<NodeId, NodeId> = quantized_values(float, quantized).into_iter().map(|(f, q)| (q, f)).collect();
    let mut layers: IndexMap<NodeId, Comparison> = IndexMap::new();
    let mut wrong = None;
    for (run, inputs) in first_inputs(float, samples, settings.check, settings) {
        let Some(values) = seen.values.get(&run) else { continue };
        let taps: Vec<NodeId> = of.iter().filter(|(_, f)| values.contains_key(*f)).map(|(q, _)| *q).collect();
        session.run_with_taps(&inputs?, &taps, &mut |q, t| {
            let Some(want) = values.get(&of[&q]) else { return };
            let got = dequantized(quantized, q, &want.same_of(t));
            let all = layers.entry(of[&q]).or_insert_with(Comparison::without_means);
            wrong = wrong.take().or(all.add(&want.elements, &got).err());
        })?;
    }
    if let Some(why) = wrong {
        return Err(Error::other(format!("float and quantized values do not compare: {why}")));
    }
    let mut worst: Vec<_> = layers.iter().map(|(id, c)| (float.node(*id).name.clone(), c.finish())).collect();
    worst.sort_by(|a, b| a.1.sqnr_db.total_cmp(&b.1.sqnr_db));
    Ok(worst)
}

/// The SQNR in dB by which an output is judged.
fn judge(g: &Graph, output: NodeId, s: &Similarity) -> Option<f64> {
    g.tensor_meta(output).ok().filter(|t| t.dtype.is_float())?;
    let db = match is_probability(g, output) {
        true => s.sqnr_db.max(20.0 * (LEAST_PROBABILITY / s.rms).log10()),
        false => s.sqnr_db,
    };
    Some(if db.is_nan() { f64::NEG_INFINITY } else { db })
}

/// Whether a value is that of a sigmoid or softmax, perhaps in another shape.
fn is_probability(g: &Graph, mut id: NodeId) -> bool {
    loop {
        let node = g.node(id);
        let Some(op) = node.op() else { return false };
        match (op.base(), node.args.first()) {
            ("sigmoid" | "hardsigmoid" | "softmax" | "_softmax", _) => return true,
            (_, Some(cleave_ir::Arg::Node(of))) if op.class == cleave_ir::Class::View => id = *of,
            _ => return false,
        }
    }
}

/// The first runs, of `count` samples or a few more where batches are fixed, each with its number and inputs. Samples that
/// are not finite are left out where that is asked for.
pub(crate) fn first_inputs(
    g: &Graph,
    samples: &(impl Samples + ?Sized),
    count: usize,
    settings: &Settings,
) -> impl Iterator<Item = (usize, Result<Vec<Tensor>>)> {
    let step = batch_size(g);
    let count = (count.clamp(1, samples.len().max(1)).div_ceil(step) * step).min(samples.len() / step * step);
    let errors = settings.non_finite == NonFinite::Error;
    (0..count).step_by(step).filter_map(move |start| {
        let inputs = match samples.batch(start, start + step) {
            Ok(inputs) => inputs,
            Err(e) => return Some((start / step, Err(Error::other(e.to_string())))),
        };
        (errors || samples.check_finite(start, &inputs).is_ok()).then_some((start / step, Ok(inputs)))
    })
}

/// The levels of values that a float graph has under the same name: (value, its quantize in the quantized graph).
pub fn quantized_values(float: &Graph, quantized: &Graph) -> IndexMap<NodeId, NodeId> {
    let is_quantize = |n: &NodeId| quantized.node(*n).op().is_some_and(|o| o.base() == "quantize_per_tensor");
    let named = float.nodes().filter_map(|(id, n)| Some((id, quantized.find(&n.name)?)));
    named.filter_map(|(id, q)| Some((id, quantized.users(q).into_iter().find(is_quantize)?))).collect()
}

/// What the levels of a quantize mean.
pub fn dequantized(g: &Graph, quantize: NodeId, levels: &Tensor) -> Tensor {
    let number = |name: &str| match g.node(quantize).arg(name) {
        Some(cleave_ir::Arg::Float(f)) => *f,
        Some(cleave_ir::Arg::Int(i)) => *i as f64,
        _ => 0.0,
    };
    let (scale, zero_point) = (number("scale") as f32, number("zero_point") as i32);
    let meaning = |q: i32| cleave_numerics::dequantize(q, scale, zero_point);
    let values = match (levels.elements::<u8>(), levels.elements::<i8>()) {
        (Some(q), _) => q.iter().map(|q| meaning(i32::from(*q))).collect(),
        (_, Some(q)) => q.iter().map(|q| meaning(i32::from(*q))).collect(),
        _ => levels.to_f32().iter().map(|q| meaning(*q as i32)).collect(),
    };
    Tensor::new(levels.shape(), values)
}
