//! The stages in order: from an exported graph and samples to a quantized, checked model.

mod attempt;
mod check;
mod learnt;
mod output;
mod samples;
mod seen;

pub(crate) use check::first_inputs;
pub use check::{Check, Gain, LEAST_PROBABILITY, dequantized, quantized_values};
pub use learnt::{Equalized, Learnt};
pub use output::{Format, kernels, lower, plan_counts, read_plan, write, write_with};
pub use samples::Samples;

use crate::backend::CpuEvaluator;
use crate::error::{Error, Result};
use crate::model::is_quantized;
use attempt::Attempt;
use cleave_ir::Graph;
use cleave_quantize::{
    Annotations, CalibrateOptions, Converted, NonFinite, ObserverKind, Prepared, QuantizeError, Quantizer, Selection,
    Statistics,
};
use cleave_runtime::Options;
use indexmap::IndexMap;
use seen::{Seen, Watching};
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
    pub learnt: Learnt,
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
        let equalized = self.learnt.equalized.as_ref().filter(|_| self.equalized);
        equalized.map_or(&self.learnt.statistics, |e| &e.statistics)
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
    /// What calibration saw of the float graph, and of the equalized one.
    seen: [Option<Seen>; 2],
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
    let learnt = calibrate(&mut ready, samples, settings, progress)?;
    finish(ready, learnt, Some(samples), settings)
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
    let equalized = if quantizer.equalizes() { cleave_quantize::equalize(&prepared)? } else { None };
    let (corrects_biases, seen) = (quantizer.corrects_biases(), [None, None]);
    Ok(Ready { raised, annotations, prepared, equalized, corrects_biases, seen, clock })
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
) -> Result<Learnt> {
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
        let progress = &mut |done: usize| progress("calibrate", pass * n + done * step, total);
        let alone = n == step || cleave_quantize::depends_on_order(p);
        let mut evaluator = CpuEvaluator::new(settings.run);
        let evaluators = if alone { vec![evaluator] } else { evaluator.side_by_side(&p.graph)? };
        let mut each: Vec<_> = evaluators.into_iter().map(|e| Watching::new(e, &p.graph, settings)).collect();
        let done = cleave_quantize::calibrate_side_by_side(p, &mut each, batches, options, progress);
        all.push(done.map_err(|e| unfit_sample(e, samples, step))?);
        ready.seen[pass] = Some(Seen::of(each));
    }
    ready.clock.lap("calibrate");
    let equalized = ready.equalized.as_ref().zip(if all.len() > 1 { all.pop() } else { None });
    let equalized = equalized.map(|((_, pairs), statistics)| Equalized { pairs: pairs.clone(), statistics });
    Ok(Learnt { statistics: all.remove(0), equalized })
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
    learnt: Learnt,
    samples: Option<&(impl Samples + ?Sized)>,
    settings: &Settings,
) -> Result<Quantized> {
    let Ready { raised, annotations, prepared, equalized, corrects_biases, seen, mut clock } = ready;
    // What rounding does on average is known where inputs have been seen.
    let corrects_biases = corrects_biases && learnt.statistics.samples > 0;
    let float = |seen: Option<Seen>, p: &Prepared| match (samples, seen) {
        (Some(s), None) => Seen::by_running(p, CpuEvaluator::new(settings.run), s, settings).map(Some),
        (_, seen) => Ok(seen),
    };
    let attempt = |prepared: Prepared, statistics: &Statistics, seen: Option<&Seen>| {
        let a = Attempt::new(prepared, (None, None), statistics, seen, samples, settings)?;
        if corrects_biases { a.corrected(statistics, seen, samples, settings) } else { Ok(a) }
    };
    let [seen, equalized_seen] = seen;
    let mut seen = float(seen, &prepared)?;
    let mut best = attempt(prepared, &learnt.statistics, seen.as_ref())?;
    clock.lap("convert");
    match (equalized, &learnt.equalized) {
        (Some((p, pairs)), Some(s)) if s.pairs == pairs => {
            let other_seen = float(equalized_seen, &p)?;
            let other = Attempt { equalized: true, ..attempt(p, &s.statistics, other_seen.as_ref())? };
            best = best.or(other, "equalization", pairs.len());
            if best.equalized {
                seen = other_seen;
            }
            clock.lap("equalize");
        }
        (Some(_), _) => {
            let why = "equalization is not tried: nothing was learnt with these layers equalized";
            best.converted.plan.notes.push(why.into());
        }
        (None, _) => {}
    }
    let Attempt { prepared, converted, mut check, equalized, session } = best;
    if let (Some(samples), Some(seen), Some(mut session)) = (samples, seen, session) {
        check.worst = check::layers(&seen, &prepared.graph, &mut session, samples, settings)?;
        clock.lap("check");
    }
    Ok(Quantized { raised, annotations, prepared, equalized, learnt, converted, check, seconds: clock.laps })
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
