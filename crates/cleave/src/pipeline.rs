//! The stages in order: from an exported graph and samples to a quantized, checked model.

use crate::backend::{Backend, CpuEvaluator};
use crate::error::{Error, Result};
use crate::metrics::{Comparison, Similarity};
use crate::model::is_quantized;
use cleave_decompose::{Table, decompose, materialise_dims, plain_attention};
use cleave_formats::{clv, onnx, pt2};
use cleave_ir::{Graph, NodeId, Tensor};
use cleave_quantize::{
    Annotations, BoxError, CalibrateOptions, Converted, Equalized, Evaluator, NonFinite, ObserverKind, Plan, Prepared,
    QuantizeError, Quantizer, Selection, Statistics, Status,
};
use cleave_runtime::{Options, Session};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

/// How a model is quantized.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The quantizer: a built-in name or a file; several, separated by commas, each take what those before left.
    pub quantizer: String,
    /// The observer that takes the place of those that the quantizer names for activations.
    pub observer: Option<ObserverKind>,
    /// Selectors of nodes that stay float.
    pub float: Vec<String>,
    /// Selectors of the only units that are quantized; none for all.
    pub only: Vec<String>,
    /// What to do with values in calibration that are NaN or infinite.
    pub non_finite: NonFinite,
    /// Samples on which float and quantized outputs are compared.
    pub check: usize,
    /// How models run.
    pub run: Options,
}

impl Default for Settings {
    /// The `cpu` quantizer, nothing left float, eight samples compared, one thread.
    fn default() -> Settings {
        Settings {
            quantizer: "cpu".into(),
            observer: None,
            float: vec![],
            only: vec![],
            non_finite: NonFinite::Error,
            check: 8,
            run: Options::default(),
        }
    }
}

/// What a model is written as: the ending of its file's name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.clv`: Cleave itself.
    Clv,
    /// `.onnx`: other runtimes.
    Onnx,
    /// `.pt2`: torch and ExecuTorch.
    Pt2,
}

impl Format {
    /// The format that a file's name asks for.
    ///
    /// # Errors
    /// A name with another ending.
    pub fn of(path: &Path) -> Result<Format> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("clv") => Ok(Format::Clv),
            Some("onnx") => Ok(Format::Onnx),
            Some("pt2") => Ok(Format::Pt2),
            _ => Err(Error::other(format!("{}: expected a name that ends in .clv, .onnx or .pt2", path.display()))),
        }
    }

    /// The quantizer that it implies where none is named.
    pub fn quantizer(self) -> &'static str {
        match self {
            Format::Clv => "cpu",
            Format::Onnx => "onnx",
            Format::Pt2 => "xnnpack",
        }
    }

    /// What of a graph's arithmetic the format cannot say.
    pub fn caveat(self, g: &Graph) -> Option<&'static str> {
        match (self, is_quantized(g), g.quantizes_by_division()) {
            (Format::Onnx, true, false) => Some(
                "ONNX quantizes by division, this graph by the reciprocal: values half way between two levels may differ",
            ),
            (Format::Pt2, true, true) => Some(
                "torch quantizes by the reciprocal, this graph by division: values half way between two levels may differ",
            ),
            _ => None,
        }
    }
}

/// Where samples come from: as many as [`Samples::len`] says, each with one tensor for each input.
pub trait Samples {
    /// How many.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inputs of samples `from..to`, joined along the first dimension.
    ///
    /// # Errors
    /// A sample that cannot be read or does not fit.
    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError>;

    /// Looks for NaN and infinities in a batch that began with sample `from`.
    ///
    /// # Errors
    /// Where the first one is.
    fn check_finite(&self, _from: usize, batch: &[Tensor]) -> std::result::Result<(), BoxError> {
        match batch.iter().any(|t| cleave_formats::data::first_not_finite(t).is_some()) {
            true => Err("an input is NaN or infinite".into()),
            false => Ok(()),
        }
    }

    /// Where a sample comes from, for errors.
    fn place(&self, sample: usize) -> String {
        format!("sample {sample}")
    }
}

impl Samples for cleave_formats::Dataset {
    fn len(&self) -> usize {
        cleave_formats::Dataset::len(self)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        Ok(cleave_formats::Dataset::batch(self, from..to)?)
    }

    fn check_finite(&self, from: usize, batch: &[Tensor]) -> std::result::Result<(), BoxError> {
        Ok(cleave_formats::Dataset::check_finite(self, from, batch)?)
    }

    fn place(&self, sample: usize) -> String {
        format!("{}, sample {sample}", self.file_of(sample).display())
    }
}

/// Samples in memory: one tensor for each input, samples along the first dimension.
impl Samples for [Tensor] {
    fn len(&self) -> usize {
        self.first().and_then(|t| t.shape().first().copied()).unwrap_or(0)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        Ok(self.iter().map(|t| t.narrow(0, from, to - from)).collect())
    }
}

/// Samples in memory: for each one tensor for each input, samples along the first dimension, of one sample or more.
impl Samples for [Vec<Tensor>] {
    fn len(&self) -> usize {
        <[Vec<Tensor>]>::len(self)
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        let samples = &self[from..to];
        let inputs = samples.first().map_or(0, Vec::len);
        if samples.iter().any(|s| s.len() != inputs) {
            return Err(format!("samples {from} to {} differ in their number of inputs", to - 1).into());
        }
        let input = |i: usize| crate::backend::join(&samples.iter().map(|s| &s[i]).collect::<Vec<_>>());
        (0..inputs).map(|i| Ok(input(i)?)).collect()
    }
}

/// A quantized model, and all that is known of it.
pub struct Quantized {
    /// The float graph at the semantic level.
    pub raised: Graph,
    /// What the quantizer decided.
    pub annotations: Annotations,
    /// The float graph with batch norms folded, and layers equalized where that helps.
    pub prepared: Prepared,
    /// Whether layers are equalized.
    pub equalized: bool,
    /// What calibration learnt.
    pub statistics: Statistics,
    /// The quantized graph and the plan.
    pub converted: Converted,
    /// Outputs beside those of the float graph.
    pub check: Check,
    /// Seconds that each stage took.
    pub seconds: IndexMap<&'static str, f64>,
}

impl Quantized {
    /// The statistics of [`Quantized::prepared`]: those of the equalized graph where that is it.
    pub fn used_statistics(&self) -> &Statistics {
        self.statistics.equalized.as_ref().filter(|_| self.equalized).map_or(&self.statistics, |e| &e.statistics)
    }
}

/// Float and quantized values on a few calibration samples.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// How many samples.
    pub samples: usize,
    /// Each output by name.
    pub outputs: Vec<(String, Similarity)>,
    /// Results of quantized units, those with the least SQNR first.
    pub worst: Vec<(String, Similarity)>,
    /// Outputs that lie between 0 and 1 whatever the input: those of a sigmoid or softmax.
    pub probabilities: Vec<String>,
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
    /// The output that is worst off, with its SQNR in dB; none where nothing was checked. A probability that is near 0
    /// throughout, as where there is nothing to detect, counts as one of [`LEAST_PROBABILITY`].
    pub fn worst_output(&self) -> Option<(&str, f64)> {
        let judged = |(name, s): &(String, Similarity)| match self.probabilities.contains(name) {
            true => s.sqnr_db.max(20.0 * (LEAST_PROBABILITY / s.rms).log10()),
            false => s.sqnr_db,
        };
        let all = self.outputs.iter().map(|o| (o.0.as_str(), judged(o)));
        all.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// SQNR in dB of [`Check::worst_output`]; infinite where nothing was checked.
    pub fn least_sqnr(&self) -> f64 {
        self.worst_output().map_or(f64::INFINITY, |(_, db)| db)
    }

    /// SQNR of the outputs in dB, their mean; of exact ones 200 dB.
    fn mean_sqnr(&self) -> f64 {
        let sum: f64 = self.outputs.iter().map(|(_, s)| s.sqnr_db.min(200.0)).sum();
        sum / self.outputs.len().max(1) as f64
    }
}

/// A float graph with everything decided that no data is needed for.
pub struct Ready {
    /// The float graph at the semantic level.
    pub raised: Graph,
    /// What the quantizer decided.
    pub annotations: Annotations,
    /// The float graph with batch norms folded, and what is to be observed in it.
    pub prepared: Prepared,
    /// The same with neighbouring layers equalized, and the pairs of them, where that promises to help.
    pub equalized: Option<(Prepared, Vec<String>)>,
    corrects_biases: bool,
    evaluator: CpuEvaluator,
    clock: Clock,
}

/// Quantizes an exported graph: raise, annotate, prepare, calibrate, convert, check. `progress` hears the stage,
/// what is done of it and how much there is.
///
/// # Errors
/// A graph that is quantized already, a quantizer that finds nothing, samples that do not fit, or what a stage met.
pub fn quantize(
    export: &Graph,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
    progress: &mut dyn FnMut(&'static str, usize, usize),
) -> Result<Quantized> {
    let quantizer = cleave_quantize::load_observing(&settings.quantizer, settings.observer)?;
    quantize_by(quantizer.as_ref(), export, samples, settings, progress)
}

/// [`quantize`] by a quantizer at hand; that of the settings, and their observer, are not looked at.
///
/// # Errors
/// As [`quantize`].
pub fn quantize_by(
    quantizer: &dyn Quantizer,
    export: &Graph,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
    progress: &mut dyn FnMut(&'static str, usize, usize),
) -> Result<Quantized> {
    let mut ready = prepare_by(quantizer, export, settings)?;
    let statistics = calibrate(&mut ready, samples, settings, progress)?;
    finish(ready, statistics, Some(samples), settings)
}

/// The stages before calibration.
///
/// # Errors
/// A graph that is quantized already, or a quantizer that finds nothing.
pub fn prepare(export: &Graph, settings: &Settings) -> Result<Ready> {
    let quantizer = cleave_quantize::load_observing(&settings.quantizer, settings.observer)?;
    prepare_by(quantizer.as_ref(), export, settings)
}

fn prepare_by(quantizer: &dyn Quantizer, export: &Graph, settings: &Settings) -> Result<Ready> {
    let mut clock = Clock::default();
    if is_quantized(export) {
        return Err(Error::other("the model is quantized already; quantize the float model"));
    }
    let raised = crate::model::raise_for(export, quantizer)?;
    clock.lap("raise");
    let selection = Selection::new(&settings.float, &settings.only)?;
    let annotations = cleave_quantize::annotate(&raised, quantizer, &selection)?;
    clock.lap("annotate");
    let prepared = cleave_quantize::prepare(&raised, &annotations)?;
    clock.lap("prepare");
    let equalized = quantizer.equalizes().then(|| cleave_quantize::equalize(&prepared)).flatten();
    let (corrects_biases, evaluator) = (quantizer.corrects_biases(), CpuEvaluator::new(settings.run));
    Ok(Ready { raised, annotations, prepared, equalized, corrects_biases, evaluator, clock })
}

/// Streams samples through a prepared graph.
///
/// # Errors
/// Samples that do not fit, or values that are not finite where that is an error; the message names the file.
pub fn calibrate(
    ready: &mut Ready,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
    progress: &mut dyn FnMut(&'static str, usize, usize),
) -> Result<Statistics> {
    let n = samples.len();
    let step = batch_size(&ready.prepared.graph);
    if !n.is_multiple_of(step) {
        let some = n / step * step;
        return Err(Error::other(format!("{n} samples are no multiple of the model's batch of {step}; use {some}")));
    }
    let graphs = [Some(&ready.prepared), ready.equalized.as_ref().map(|(p, _)| p)];
    let total = n * graphs.iter().flatten().count();
    let mut all = vec![];
    for (pass, p) in graphs.into_iter().flatten().enumerate() {
        let batches = (0..n / step).map(|i| samples.batch(i * step, (i + 1) * step));
        let options = CalibrateOptions { non_finite: settings.non_finite };
        let done = cleave_quantize::calibrate(p, &mut ready.evaluator, batches, options, &mut |done| {
            progress("calibrate", pass * n + done * step, total)
        });
        all.push(done.map_err(|e| unfit_sample(e, samples, step))?);
    }
    ready.clock.lap("calibrate");
    let equalized = ready.equalized.as_ref().zip(if all.len() > 1 { all.pop() } else { None });
    let equalized = equalized.map(|((_, pairs), statistics)| Equalized { pairs: pairs.clone(), statistics });
    Ok(Statistics { equalized: equalized.map(Box::new), ..all.remove(0) })
}

/// Names the file of a value that is not finite, and the ways out.
fn unfit_sample(e: QuantizeError, samples: &(impl Samples + ?Sized), step: usize) -> Error {
    let QuantizeError::Value { sample, node, op, what } = e else { return e.into() };
    let from = sample * step;
    let of_input = || samples.check_finite(from, &samples.batch(from, from + step).ok()?).err();
    let what = match of_input().filter(|_| op == "input") {
        Some(e) => e.to_string(),
        None => format!("{}: {what} in the value of node '{node}' ({op})", samples.place(from)),
    };
    Error::other(format!("{what}; --on-nan skip leaves such samples out, --on-nan clip such values"))
}

/// The stages behind calibration. Without samples nothing is checked, and no bias corrected.
///
/// # Errors
/// Statistics of something else, or what running the two graphs side by side met.
pub fn finish(
    ready: Ready,
    statistics: Statistics,
    samples: Option<&(impl Samples + ?Sized)>,
    settings: &Settings,
) -> Result<Quantized> {
    let Ready { raised, annotations, prepared, equalized, corrects_biases, mut evaluator, mut clock } = ready;
    // What rounding does on average is known where inputs have been seen.
    let corrects_biases = corrects_biases && statistics.samples > 0;
    let mut attempt = |prepared: Prepared, statistics: &Statistics| {
        let a = Attempt::new(prepared, None, statistics, &mut evaluator, samples, settings)?;
        if corrects_biases { a.corrected(statistics, &mut evaluator, samples, settings) } else { Ok(a) }
    };
    let mut best = attempt(prepared, &statistics)?;
    clock.lap("convert");
    match (equalized, &statistics.equalized) {
        (Some((p, pairs)), Some(s)) if s.pairs == pairs => {
            let other = Attempt { equalized: true, ..attempt(p, &s.statistics)? };
            best = best.or(other, "equalization", pairs.len());
            clock.lap("equalize");
        }
        (Some(_), _) => {
            let why = "equalization is not tried: other layers were equalized when the statistics were made";
            best.converted.plan.notes.push(why.into());
        }
        (None, _) => {}
    }
    let Attempt { prepared, converted, check, equalized } = best;
    Ok(Quantized { raised, annotations, prepared, equalized, statistics, converted, check, seconds: clock.laps })
}

/// A way to quantize a graph, and how well it does.
struct Attempt {
    /// The float graph that it is measured by.
    prepared: Prepared,
    converted: Converted,
    check: Check,
    equalized: bool,
}

impl Attempt {
    /// Converts a graph, `prepared` or that with other biases, and measures the result by `prepared`.
    fn new(
        prepared: Prepared,
        graph: Option<&Prepared>,
        statistics: &Statistics,
        evaluator: &mut CpuEvaluator,
        samples: Option<&(impl Samples + ?Sized)>,
        settings: &Settings,
    ) -> Result<Attempt> {
        let converted = cleave_quantize::convert(graph.unwrap_or(&prepared), statistics)?;
        if converted.plan.count(Status::Quantized) == 0 {
            // What a pattern had taken says more than what none did.
            let mut rows = converted.plan.rows.iter().filter(|r| r.reason.is_some()).collect::<Vec<_>>();
            rows.sort_by_key(|r| r.pattern.is_none());
            let first = rows.first().and_then(|r| Some((&r.node, r.reason.as_ref()?)));
            let why = first.map_or(String::new(), |(n, why)| format!("; {n}: {why}"));
            return Err(Error::other(format!("nothing is left to quantize after calibration{why}")));
        }
        let check = match samples {
            Some(samples) => check(&prepared, &converted.graph, evaluator, samples, settings)?,
            None => Check::default(),
        };
        Ok(Attempt { prepared, converted, check, equalized: false })
    }

    /// With biases corrected, if that is better.
    fn corrected(
        self,
        statistics: &Statistics,
        evaluator: &mut CpuEvaluator,
        samples: Option<&(impl Samples + ?Sized)>,
        settings: &Settings,
    ) -> Result<Attempt> {
        let better = cleave_quantize::correct_biases(&self.prepared, &self.converted.graph, statistics);
        let Some((other, biases)) = better else { return Ok(self) };
        let other = Attempt::new(self.prepared.clone(), Some(&other), statistics, evaluator, samples, settings)?;
        Ok(self.or(other, "bias_correction", biases))
    }

    /// The other, for which this was done, if its outputs are better. Where nothing is checked, what usually helps is
    /// done.
    fn or(self, mut other: Attempt, method: &'static str, places: usize) -> Attempt {
        let done = match method {
            "equalization" => "pairs of layers share out the ranges of the channels between them",
            _ => "biases make up for what rounding the weights does on average",
        };
        if self.check.samples == 0 {
            other.converted.plan.notes.push(format!("{method}: {places} {done}"));
            return other;
        }
        let sqnr_db = [self.check.mean_sqnr(), other.check.mean_sqnr()];
        let [was, is] = sqnr_db;
        let kept = is > was;
        let mut best = if kept { other } else { self };
        best.converted.plan.notes.push(match kept {
            true => format!("{method}: {places} {done}; outputs {was:.1} → {is:.1} dB"),
            false => format!("{method} is not used: where {places} {done}, outputs go from {was:.1} to {is:.1} dB"),
        });
        best.check.gains.push(Gain { method: method.into(), places, sqnr_db, kept });
        best
    }
}

struct Clock {
    last: Instant,
    laps: IndexMap<&'static str, f64>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { last: Instant::now(), laps: IndexMap::new() }
    }
}

impl Clock {
    fn lap(&mut self, stage: &'static str) {
        self.laps.insert(stage, self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }
}

/// Samples of one run of the graph: its batch where that is a number, else one.
pub(crate) fn batch_size(g: &Graph) -> usize {
    match crate::backend::batch_of(g) {
        crate::backend::Batch::Fixed(n) => n,
        _ => 1,
    }
}

/// Runs both graphs on the first samples and compares outputs, and the results of units by node name.
fn check(
    float: &Prepared,
    quantized: &Graph,
    evaluator: &mut CpuEvaluator,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
) -> Result<Check> {
    let step = batch_size(&float.graph);
    let count = (settings.check.clamp(1, samples.len().max(1)).div_ceil(step) * step).min(samples.len() / step * step);
    let mut session = Backend::Cpu(Box::new(Session::new(quantized, settings.run)?));
    let pairs = quantized_values(&float.graph, quantized);
    let taps: Vec<NodeId> = pairs.keys().copied().collect();
    let mut check = Check::default();
    let mut outputs = vec![Comparison::default(); float.graph.output_names.len()];
    let mut layers: IndexMap<NodeId, Comparison> = IndexMap::new();
    let other: Vec<NodeId> = pairs.values().copied().collect();
    let mut wrong = None;
    for start in (0..count).step_by(step) {
        let inputs = samples.batch(start, start + step).map_err(|e| Error::other(e.to_string()))?;
        if settings.non_finite != NonFinite::Error && samples.check_finite(start, &inputs).is_err() {
            continue;
        }
        check.samples += step;
        let mut seen: IndexMap<NodeId, Tensor> = IndexMap::new();
        let want = evaluator.run(&float.graph, &inputs, &taps, &mut |id, t| {
            if let Some(q) = pairs.get(&id) {
                seen.insert(*q, t.clone());
            }
        });
        let want = want.map_err(|e| Error::other(e.to_string()))?;
        let got = session.run(&inputs, &other, &mut |id, t| {
            if let Some(f) = seen.get(&id) {
                wrong = wrong.take().or(layers.entry(id).or_default().add(f, &dequantized(quantized, id, t)).err());
            }
        })?;
        if let Some(why) = wrong.take() {
            return Err(Error::other(format!("float and quantized values do not compare: {why}")));
        }
        for (c, (a, b)) in outputs.iter_mut().zip(want.iter().zip(&got)) {
            c.add(a, b).map_err(Error::Other)?;
        }
    }
    check.outputs = float.graph.output_names.iter().cloned().zip(outputs.iter().map(Comparison::finish)).collect();
    check.probabilities = probabilities(&float.graph);
    let of: IndexMap<NodeId, NodeId> = pairs.iter().map(|(f, q)| (*q, *f)).collect();
    check.worst = layers.iter().map(|(q, c)| (float.graph.node(of[q]).name.clone(), c.finish())).collect();
    check.worst.sort_by(|a, b| a.1.sqnr_db.total_cmp(&b.1.sqnr_db));
    Ok(check)
}

/// Outputs that are a sigmoid or softmax, perhaps in another shape.
fn probabilities(g: &Graph) -> Vec<String> {
    let bounded = |mut id: NodeId| loop {
        let node = g.node(id);
        let Some(op) = node.op() else { return false };
        match (op.base(), node.args.first()) {
            ("sigmoid" | "hardsigmoid" | "softmax" | "_softmax", _) => return true,
            (_, Some(cleave_ir::Arg::Node(of))) if op.class == cleave_ir::Class::View => id = *of,
            _ => return false,
        }
    };
    let all = g.output_names.iter().zip(g.results());
    all.filter(|(_, id)| bounded(*id)).map(|(name, _)| name.clone()).collect()
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

/// For every compute node of a graph, the kernel that runs it at these shapes.
///
/// # Errors
/// What compiling met.
pub fn kernels(g: &Graph, shapes: &[Vec<usize>], options: Options) -> Result<cleave_runtime::Plan> {
    Ok(Session::new(g, options)?.plan(shapes)?)
}

/// Writes a graph as its file's ending says: .clv, .onnx or .pt2. The file is whole or not there.
///
/// # Errors
/// Another ending, an op that the format does not have, or a file that cannot be written.
pub fn write(path: &Path, g: &Graph) -> Result<()> {
    write_with(path, g, None)
}

/// [`write`] with the plan kept where the format has room for it (.clv).
///
/// # Errors
/// As [`write`].
pub fn write_with(path: &Path, g: &Graph, plan: Option<&Plan>) -> Result<()> {
    match Format::of(path)? {
        Format::Clv => {
            let mut extra = IndexMap::new();
            if let Some(plan) = plan {
                extra.insert("plan".to_string(), serde_json::to_string(plan).map_err(|e| Error::other(e.to_string()))?);
            }
            clv::write_clv(path, g, &extra)?;
        }
        Format::Onnx => onnx::write_onnx(path, &for_onnx(g)?)?,
        Format::Pt2 => pt2::write_pt2(path, &materialise_dims(g)?)?,
    }
    Ok(())
}

/// The graph in ops that ONNX files can hold.
fn for_onnx(g: &Graph) -> Result<Graph> {
    let table = Table::semantic().without(onnx::can_write, "no operator that runtimes know says the same");
    Ok(decompose(&plain_attention(g)?, &table)?)
}

/// The plan that a .clv carries.
///
/// # Errors
/// A file that cannot be read, or that carries none.
pub fn read_plan(path: &Path) -> Result<Plan> {
    let (_, extra) = clv::read_clv(path)?;
    let text = extra.get("plan").ok_or_else(|| Error::other(format!("{}: carries no plan", path.display())))?;
    serde_json::from_str(text).map_err(|e| Error::other(format!("{}: its plan cannot be read: {e}", path.display())))
}

/// How many compute nodes a plan has, and how many are quantized (folded ones among them).
pub fn plan_counts(p: &Plan) -> (usize, usize) {
    (p.rows.len(), p.count(Status::Quantized) + p.count(Status::Folded))
}

/// Breaks a graph down as the CPU backend's table says.
///
/// # Errors
/// What a rule met.
pub fn lower(g: &Graph) -> Result<Graph> {
    Ok(decompose(g, &cleave_decompose::Table::named("cpu")?)?)
}
