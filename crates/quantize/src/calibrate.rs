//! Calibration: samples stream through the prepared graph, and each group's observer takes in what it sees.

use crate::annotations::Unit;
use crate::correct::{self, ChannelSums};
use crate::error::{QuantizeError, Result};
use crate::mask;
use crate::observe::{Observer, scan};
use crate::prepare::{Group, Prepared};
use crate::spec::{ObserverKind, Scheme, SpecId};
use cleave_ir::{Arg, Class, Graph, Node, NodeId, Tensor};
use cleave_numerics::DType;
use half::f16;
use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// Any error, as evaluators and sources of samples have them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whoever can run a graph.
pub trait Evaluator {
    /// Told before each sample of a calibration which one comes, counted from 0.
    fn begin(&mut self, sample: usize) {
        let _ = sample;
    }

    /// Runs `graph` on inputs in order of its placeholders and returns its results. Values of the nodes in
    /// `taps` are shown to `sink` while they are at hand, each once, in any order; their elements may lie in any order,
    /// too ([`Tensor::stored_order`]).
    ///
    /// # Errors
    /// Inputs that do not fit, or an op that cannot be run.
    fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> std::result::Result<Vec<Tensor>, BoxError>;
}

/// What to do with values that are NaN or infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// An error that names tensor and sample.
    #[default]
    Error,
    /// The sample is left out.
    Skip,
    /// The values are left out, as torch's histogram does; when run, infinities saturate.
    Clip,
}

/// How calibration is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CalibrateOptions {
    /// What to do with values that are NaN or infinite. Negative infinities on the way into a softmax are a mask
    /// and no matter for it.
    pub non_finite: NonFinite,
}

/// What calibration learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many samples were seen.
    pub samples: usize,
    /// How many were left out for values that are not finite.
    pub skipped: usize,
    /// What is known of the values that are quantized. Observers that merge watch one value each, so that whichever
    /// values have one scale together in the end is open; others watch all values of a group.
    pub observed: Vec<Observed>,
    /// Sums of the inputs of layers, for [`crate::correct_biases`].
    pub inputs: Vec<ChannelSums>,
}

/// What is known of a value, or of the values of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The names of its values; by these statistics know their graph.
    pub values: Vec<String>,
    /// What its observer remembers.
    pub observer: Observer,
    /// How many elements were left out because they are NaN or infinite.
    pub left_out: u64,
}

impl Statistics {
    /// Observers that have seen nothing. Those that depend on the order of the data have seen the graph's
    /// constants; [`Statistics::of_groups`] shows them to the others.
    pub fn new(p: &Prepared) -> Statistics {
        let one = |w: &Watch| {
            let mut observer = Observer::new(w.kind);
            if w.kind.depends_on_order() {
                show_constants(p, &w.values, &mut observer);
            }
            Observed { values: names(p, &w.values), observer, left_out: 0 }
        };
        let inputs = correct::layers(&p.graph).iter().map(|l| ChannelSums::new(&p.graph, l)).collect();
        Statistics { samples: 0, skipped: 0, observed: watches(p).iter().map(one).collect(), inputs }
    }

    /// Adds statistics of other samples.
    ///
    /// # Errors
    /// Statistics of another graph, and observers that depend on the order of the data.
    pub fn merge(&mut self, other: &Statistics) -> Result<()> {
        if !self.observed.iter().map(|g| &g.values).eq(other.observed.iter().map(|g| &g.values)) {
            return Err(QuantizeError::Statistics(
                "they are of other values: the graph or its selection differs".into(),
            ));
        }
        let same = self.inputs.len() == other.inputs.len();
        if !same || !self.inputs.iter().zip(&other.inputs).all(|(a, b)| a.is_like(b)) {
            return Err(QuantizeError::Statistics("they are of other layers: the graph differs".into()));
        }
        self.inputs.iter_mut().zip(&other.inputs).for_each(|(a, b)| a.merge(b));
        for (a, b) in self.observed.iter_mut().zip(&other.observed) {
            let named = |why: String| QuantizeError::Statistics(format!("{}: {why}", a.values.join(", ")));
            a.observer.merge(&b.observer).map_err(named)?;
            a.left_out += b.left_out;
        }
        self.samples += other.samples;
        self.skipped += other.skipped;
        Ok(())
    }

    /// Whether this is what calibration can lead to: for what comes from a file.
    pub fn is_valid(&self) -> bool {
        let small = |n: u64| n < 1 << 60;
        let one = |g: &Observed| g.observer.is_valid() && small(g.left_out);
        small(self.samples as u64) && small(self.skipped as u64) && self.observed.iter().all(one)
    }

    /// What is known of each group of a graph, constants included. Statistics serve a graph of which less is quantized,
    /// too.
    ///
    /// # Errors
    /// No samples where the graph needs them, a value that was not observed, or by an observer that remembers
    /// another thing than its spec asks for.
    pub fn of_groups(&self, p: &Prepared) -> Result<Vec<Observed>> {
        if self.samples == 0 && p.needs_data() {
            return Err(QuantizeError::NoSamples);
        }
        let mut by_values: IndexMap<&[String], Vec<&Observed>> = IndexMap::new();
        self.observed.iter().for_each(|o| by_values.entry(&o.values).or_default().push(o));
        let find = |values: &[String], kind: ObserverKind| {
            let fail = |why: String| QuantizeError::Statistics(format!("{} was {why}", values.join(", ")));
            let known = by_values.get(values);
            let known = known.ok_or_else(|| fail("not observed: the graph or its selection differs".into()))?;
            let (fresh, got) = (Observer::new(kind), known[0].observer.describe());
            let like = known.iter().find(|o| o.observer.is_like(&fresh));
            like.ok_or_else(|| fail(format!("observed by {got}; {} is asked for", kind.describe())))
        };
        let of_group = |g: &Group| {
            let (kind, values) = (p.specs[g.spec].observer, names(p, &g.values));
            if kind.depends_on_order() {
                return find(&values, kind).map(|o| (*o).clone());
            }
            let mut all = Observed { values, observer: Observer::new(kind), left_out: 0 };
            for v in &g.observed {
                // Where more was quantized, a view, which had the scale of what it views, was not observed beside it.
                let seen = |v: &NodeId| by_values.contains_key(&names(p, &[*v])[..]);
                let v = std::iter::successors(Some(*v), |v| viewed(&p.graph, *v)).find(seen).unwrap_or(*v);
                let one = find(&names(p, &[v]), kind)?;
                all.observer.merge(&one.observer).map_err(QuantizeError::Statistics)?;
                all.left_out += one.left_out;
            }
            show_constants(p, &g.values, &mut all.observer);
            Ok(all)
        };
        p.groups.iter().map(of_group).collect()
    }
}

/// A value that exceeded in calibration what f16 holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overflow {
    /// The node.
    pub node: String,
    /// Its op.
    pub op: String,
    /// The value farthest from 0.
    pub reach: f32,
}

/// Results that exceeded in calibration what f16 holds, in order of the nodes, where weights are stored as f16: among
/// those of all nodes that are computed in float.
pub fn overflows(p: &Prepared, stats: &Statistics) -> Vec<Overflow> {
    let of = |id: NodeId| {
        let node = p.graph.node(id);
        let own = |o: &&Observed| o.values.len() == 1 && o.values[0] == node.name;
        let (min, max) = stats.observed.iter().filter(own).find_map(|o| o.observer.extrema())?;
        let reach = if -min > max { min } else { max };
        let op = node.op()?.short().to_string();
        (reach.abs() > f16::MAX.to_f32()).then(|| Overflow { node: node.name.clone(), op, reach })
    };
    half_beside(p).into_iter().filter_map(of).collect()
}

/// The results that would be halves if all that is float were computed in half, as some runtimes do with weights of
/// f16; none where no weight is.
fn half_beside(p: &Prepared) -> Vec<NodeId> {
    let half = |s: SpecId| p.specs[s].scheme == Scheme::Cast && p.specs[s].range.dtype == DType::F16;
    let (halves, others): (Vec<&Unit>, Vec<&Unit>) =
        p.units.iter().partition(|u| u.inputs.iter().all(|i| half(i.spec)) && u.output.is_none_or(half));
    if halves.is_empty() {
        return vec![];
    }
    let mut integer = vec![false; p.graph.len()];
    others.iter().flat_map(|u| &u.nodes).for_each(|n| integer[n.index()] = true);
    let float = |(id, node): &(NodeId, &Node)| {
        let moves = node.op().is_none_or(|o| matches!(o.class, Class::View | Class::Structural | Class::Inert));
        !moves && !integer[id.index()] && node.meta.as_tensor().is_some_and(|t| t.dtype == DType::F32)
    };
    p.graph.nodes().filter(float).map(|(id, _)| id).collect()
}

/// What one observer watches.
struct Watch {
    /// The values by which it is known.
    values: Vec<NodeId>,
    /// Those of them that are shown to it as the graph runs.
    observed: Vec<NodeId>,
    kind: ObserverKind,
    /// Whether values that are not finite are left out of it and no error.
    lenient: bool,
}

/// What is watched for the groups of a graph.
fn watches(p: &Prepared) -> Vec<Watch> {
    let mut all: Vec<Watch> = vec![];
    let mut met = IndexSet::new();
    for g in &p.groups {
        let kind = p.specs[g.spec].observer;
        if kind.depends_on_order() {
            all.push(Watch { values: g.values.clone(), observed: g.observed.clone(), kind, lenient: false });
            continue;
        }
        for v in &g.observed {
            // Searches of one histogram share it.
            if met.insert((*v, std::mem::discriminant(&Observer::new(kind)))) {
                all.push(Watch { values: vec![*v], observed: vec![*v], kind, lenient: false });
            }
        }
    }
    let kind = ObserverKind::Minmax;
    for v in half_beside(p) {
        if met.insert((v, std::mem::discriminant(&Observer::new(kind)))) {
            all.push(Watch { values: vec![v], observed: vec![v], kind, lenient: true });
        }
    }
    all
}

/// What a value has all or some of the elements of: its range is no wider.
fn viewed(g: &Graph, value: NodeId) -> Option<NodeId> {
    let node = g.node(value);
    node.op().filter(|op| op.class == Class::View)?;
    let Some(Arg::Node(of)) = node.args.first() else { return None };
    Some(*of)
}

fn names(p: &Prepared, values: &[NodeId]) -> Vec<String> {
    values.iter().map(|v| p.graph.node(*v).name.clone()).collect()
}

fn show_constants(p: &Prepared, values: &[NodeId], observer: &mut Observer) {
    for t in values.iter().filter_map(|v| p.graph.constant(*v)) {
        let x = finite(t.to_f32());
        observer.update(&x, &scan(&x));
    }
}

fn finite(x: Cow<'_, [f32]>) -> Cow<'_, [f32]> {
    if x.iter().all(|v| v.is_finite()) { x } else { Cow::Owned(x.iter().copied().filter(|v| v.is_finite()).collect()) }
}

/// Runs all samples and collects statistics. `progress` hears the number of samples done.
///
/// # Errors
/// No samples; one that cannot be read or run; a value that is NaN or infinite, where that is an error.
pub fn calibrate(
    p: &Prepared,
    evaluator: &mut dyn Evaluator,
    samples: impl Iterator<Item = std::result::Result<Vec<Tensor>, BoxError>>,
    options: CalibrateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Statistics> {
    let pass = Pass::new(p, options);
    let mut stats = Statistics::new(p);
    for (sample, inputs) in samples.enumerate() {
        pass.sample(&mut stats, evaluator, sample, inputs)?;
        progress(stats.samples + stats.skipped);
    }
    seen(stats)
}

/// [`calibrate`], with samples side by side, each on the evaluator that is free: the same statistics, to the bit. The
/// calling thread is one of those that work, and the one that hears of progress. Where observers depend on the order of
/// the data ([`depends_on_order`]) the first evaluator runs all samples.
///
/// # Errors
/// As [`calibrate`]; of several samples that fail, the first is told.
pub fn calibrate_side_by_side<E: Evaluator + Send>(
    p: &Prepared,
    evaluators: &mut [E],
    samples: impl Iterator<Item = std::result::Result<Vec<Tensor>, BoxError>> + Send,
    options: CalibrateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Statistics> {
    let none = || QuantizeError::Statistics("there is no evaluator to calibrate with".into());
    let (first, others) = evaluators.split_first_mut().ok_or_else(none)?;
    if others.is_empty() || depends_on_order(p) {
        return calibrate(p, first, samples, options, progress);
    }
    let pass = Pass::new(p, options);
    let samples = Mutex::new(samples.enumerate());
    let (done, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let next =
        || if failed.load(SeqCst) { None } else { samples.lock().unwrap_or_else(PoisonError::into_inner).next() };
    let work = |evaluator: &mut E, progress: &mut dyn FnMut(usize)| {
        let mut stats = Statistics::new(p);
        // Samples are taken in order, so that whatever stands before one that fails is run to its end, too.
        while let Some((sample, inputs)) = next() {
            if let Err(e) = pass.sample(&mut stats, evaluator, sample, inputs) {
                failed.store(true, SeqCst);
                return Err((sample, e));
            }
            progress(done.fetch_add(1, SeqCst) + 1);
        }
        Ok(stats)
    };
    let parts = std::thread::scope(|scope| {
        let others: Vec<_> = others.iter_mut().map(|e| scope.spawn(|| work(e, &mut |_| {}))).collect();
        let mut parts: Vec<std::result::Result<Statistics, _>> = vec![work(first, progress)];
        parts.extend(others.into_iter().map(|t| t.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
        parts
    });
    let mut all = Statistics::new(p);
    let mut first: Option<(usize, QuantizeError)> = None;
    for part in parts {
        match part {
            Ok(part) => all.merge(&part)?,
            Err(e) if first.as_ref().is_none_or(|(sample, _)| e.0 < *sample) => first = Some(e),
            Err(_) => {}
        }
    }
    if let Some((_, e)) = first {
        return Err(e);
    }
    progress(all.samples + all.skipped);
    seen(all)
}

/// Whether an observer of the graph depends on the order of the data, so that samples must come one after the other.
pub fn depends_on_order(p: &Prepared) -> bool {
    p.groups.iter().any(|g| p.specs[g.spec].observer.depends_on_order())
}

/// Statistics of at least one sample.
fn seen(stats: Statistics) -> Result<Statistics> {
    match (stats.samples, stats.skipped) {
        (0, 0) => Err(QuantizeError::NoSamples),
        (0, n) => Err(QuantizeError::AllSkipped(n)),
        _ => Ok(stats),
    }
}

/// What is watched while samples run.
struct Pass<'p> {
    p: &'p Prepared,
    options: CalibrateOptions,
    taps: Vec<NodeId>,
    layers: Vec<correct::Layer>,
    /// Of each node, the layers whose input it is.
    of_input: Vec<Vec<usize>>,
    /// Of each node, the observers that watch it.
    of_node: Vec<Vec<usize>>,
    /// Of each node, whether it is watched for its reach alone: what is not finite is no matter.
    lenient: Vec<bool>,
    /// Of each node, whether negative infinities are a mask.
    masked: Vec<bool>,
}

impl Pass<'_> {
    fn new(p: &Prepared, options: CalibrateOptions) -> Pass<'_> {
        let layers = correct::layers(&p.graph);
        let mut of_input: Vec<Vec<usize>> = vec![vec![]; p.graph.len()];
        layers.iter().enumerate().for_each(|(i, l)| of_input[l.x.index()].push(i));
        let watches = watches(p);
        let mut taps = p.taps();
        taps.extend(layers.iter().map(|l| l.x));
        taps.extend(watches.iter().flat_map(|w| &w.observed));
        taps.sort();
        taps.dedup();
        let mut of_node: Vec<Vec<usize>> = vec![vec![]; p.graph.len()];
        let mut lenient = vec![false; p.graph.len()];
        for (i, watch) in watches.iter().enumerate() {
            for v in &watch.observed {
                lenient[v.index()] = watch.lenient && of_node[v.index()].is_empty() && of_input[v.index()].is_empty();
                of_node[v.index()].push(i);
            }
        }
        let masked = mask::may_be_negative_infinity(&p.graph);
        Pass { p, options, taps, layers, of_input, of_node, lenient, masked }
    }

    /// Adds a value to the sums of the layers whose input it is, most of which have its channels on the same dimension.
    fn add_to_sums(&self, stats: &mut Statistics, value: NodeId, t: &Tensor, near: bool) {
        let mut known: Option<(usize, ChannelSums)> = None;
        for i in &self.of_input[value.index()] {
            let (axis, all) = (self.layers[*i].axis, &mut stats.inputs[*i]);
            let (_, sums) = known.take_if(|(a, _)| *a == axis).unwrap_or_else(|| {
                let mut sums = all.alike();
                sums.add(t, axis, near);
                (axis, sums)
            });
            all.merge(&sums);
            known = Some((axis, sums));
        }
    }

    /// Runs a sample, and adds what is seen.
    fn sample(
        &self,
        stats: &mut Statistics,
        evaluator: &mut dyn Evaluator,
        sample: usize,
        inputs: std::result::Result<Vec<Tensor>, BoxError>,
    ) -> Result<()> {
        let (p, options) = (self.p, self.options);
        let inputs = inputs.map_err(|e| QuantizeError::Sample { sample, why: e.to_string() })?;
        // A sample that turns out to be unfit is taken back.
        let before = (options.non_finite == NonFinite::Skip).then(|| (stats.observed.clone(), stats.inputs.clone()));
        let clip = options.non_finite == NonFinite::Clip;
        let unfit = |(id, t): (NodeId, &Tensor)| {
            let float = t.dtype().is_float();
            float.then(|| observe(&mut [], &[], t, clip, self.masked[id.index()]).err())?.map(|what| (id, what))
        };
        // Inputs that nobody observes may not be unfit either.
        let mut bad = p.graph.placeholders().into_iter().zip(&inputs).find_map(unfit);
        let unfit_input = bad.is_some();
        let mut sink = |id: NodeId, t: &Tensor| {
            if bad.is_none() {
                let of = &self.of_node[id.index()];
                let clip = clip || self.lenient[id.index()];
                match observe(&mut stats.observed, of, t, clip, self.masked[id.index()]) {
                    Ok(near) => self.add_to_sums(stats, id, t, near),
                    Err(what) => bad = Some((id, what)),
                }
            }
        };
        let run = if unfit_input {
            Ok(vec![])
        } else {
            evaluator.begin(sample);
            evaluator.run(&p.graph, &inputs, &self.taps, &mut sink)
        };
        match (bad, before) {
            (Some(_), Some(before)) => {
                (stats.observed, stats.inputs) = before;
                stats.skipped += 1;
            }
            (Some((id, what)), None) => {
                let node = p.graph.node(id);
                let op = node.op().map_or("input", |o| o.short());
                return Err(QuantizeError::Value { sample, node: node.name.clone(), op: op.into(), what });
            }
            (None, _) => {
                run.map_err(|e| QuantizeError::Sample { sample, why: e.to_string() })?;
                stats.samples += 1;
            }
        }
        Ok(())
    }
}

/// Shows a value to its groups; whether [`Parts`](cleave_kernels::observe::Parts) hold its elements. The error is what of
/// it is not finite.
fn observe(
    all: &mut [Observed],
    groups: &[usize],
    t: &Tensor,
    clip: bool,
    masked: bool,
) -> std::result::Result<bool, &'static str> {
    // In whatever order they lie.
    let t = t.permute(&t.stored_order());
    let mut x = t.to_f32();
    let mut s = scan(&x);
    let (near, mut left_out) = (s.fits_parts(), 0);
    if s.nan || s.min == f32::NEG_INFINITY || s.max == f32::INFINITY {
        let mask = masked && !s.nan && s.max < f32::INFINITY;
        match s.nan {
            _ if clip || mask => {}
            true => return Err("NaN"),
            false => return Err("an infinity"),
        }
        let all = x.len();
        x = finite(x);
        s = scan(&x);
        left_out = (all - x.len()) as u64;
    }
    for g in groups {
        all[*g].observer.update(&x, &s);
        all[*g].left_out += left_out;
    }
    Ok(near)
}
