//! Calibration: samples stream through the prepared graph, and each group's observer takes in what it sees.

use crate::error::{QuantizeError, Result};
use crate::observe::{Observer, scan};
use crate::prepare::Prepared;
use cleave_ir::{Graph, NodeId, Tensor};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Any error, as evaluators and sources of samples have them.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whoever can run a graph.
pub trait Evaluator {
    /// Runs `graph` on inputs in order of its placeholders and returns its results. Values of the nodes in
    /// `taps` are shown to `sink` while they are at hand, each once, in any order.
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

/// What to do with infinite values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Infinities {
    /// An error that names tensor and sample.
    #[default]
    Refuse,
    /// They are left out of the statistics, as torch's histogram does; when run, they saturate.
    Ignore,
}

/// How calibration is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CalibrateOptions {
    /// What to do with infinite values. NaN is always refused.
    pub infinities: Infinities,
}

/// What calibration learnt; one observer for each group of [`Prepared::groups`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many samples were seen.
    pub samples: usize,
    /// For each group, the names of its values; by this statistics know their graph.
    pub values: Vec<Vec<String>>,
    /// For each group, what its observer remembers.
    pub observers: Vec<Observer>,
}

impl Statistics {
    /// Observers that have seen nothing but the graph's constants.
    pub fn new(p: &Prepared) -> Statistics {
        let names = |g: &crate::prepare::Group| g.values.iter().map(|v| p.graph.node(*v).name.clone()).collect();
        let mut observers: Vec<Observer> = p.groups.iter().map(|g| Observer::new(p.specs[g.spec].observer)).collect();
        for (group, o) in p.groups.iter().zip(&mut observers) {
            for t in group.values.iter().filter_map(|v| p.graph.constant(*v)) {
                let x = t.to_f32();
                let s = scan(&x);
                if !s.nan && s.min.is_finite() && s.max.is_finite() {
                    o.update(&x, &s);
                }
            }
        }
        Statistics { samples: 0, values: p.groups.iter().map(names).collect(), observers }
    }

    /// Adds statistics of other samples.
    ///
    /// # Errors
    /// Statistics of another graph, and observers that depend on the order of the data.
    pub fn merge(&mut self, other: &Statistics) -> Result<()> {
        if self.values != other.values {
            return Err(QuantizeError::Statistics("they belong to another graph or quantizer".into()));
        }
        for (a, b) in self.observers.iter_mut().zip(&other.observers) {
            a.merge(b).map_err(QuantizeError::Statistics)?;
        }
        self.samples += other.samples;
        Ok(())
    }

    /// Fails unless these are statistics of this graph under this quantizer.
    ///
    /// # Errors
    /// They are not, or they have seen nothing.
    pub fn check(&self, p: &Prepared) -> Result<()> {
        let fresh = Statistics::new(p);
        if self.values != fresh.values || self.observers.len() != fresh.observers.len() {
            return Err(QuantizeError::Statistics("they belong to another graph or quantizer".into()));
        }
        if self.samples == 0 { Err(QuantizeError::NoSamples) } else { Ok(()) }
    }
}

/// Runs all samples and collects statistics. `progress` hears the number of samples done.
///
/// # Errors
/// No samples; one that cannot be read or run; a value that is NaN, or infinite where that is refused.
pub fn calibrate(
    p: &Prepared,
    evaluator: &mut dyn Evaluator,
    samples: impl Iterator<Item = std::result::Result<Vec<Tensor>, BoxError>>,
    options: CalibrateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Statistics> {
    let mut stats = Statistics::new(p);
    let taps = p.taps();
    let mut of_node: Vec<Vec<usize>> = vec![vec![]; p.graph.len()];
    for (i, group) in p.groups.iter().enumerate() {
        group.observed.iter().for_each(|v| of_node[v.index()].push(i));
    }
    for (sample, inputs) in samples.enumerate() {
        let inputs = inputs.map_err(|e| QuantizeError::Sample { sample, why: e.to_string() })?;
        let mut bad = None;
        let mut sink = |id: NodeId, t: &Tensor| {
            if bad.is_none() {
                bad = observe(&mut stats.observers, &of_node[id.index()], t, options).err().map(|e| (id, e));
            }
        };
        let run = evaluator.run(&p.graph, &inputs, &taps, &mut sink);
        if let Some((id, (what, hint))) = bad {
            return Err(QuantizeError::Value { sample, node: p.graph.node(id).name.clone(), what, hint });
        }
        run.map_err(|e| QuantizeError::Sample { sample, why: e.to_string() })?;
        stats.samples += 1;
        progress(stats.samples);
    }
    if stats.samples == 0 { Err(QuantizeError::NoSamples) } else { Ok(stats) }
}

fn observe(
    observers: &mut [Observer],
    groups: &[usize],
    t: &Tensor,
    options: CalibrateOptions,
) -> std::result::Result<(), (&'static str, &'static str)> {
    let mut x = t.to_f32();
    let mut s = scan(&x);
    if s.nan {
        return Err(("NaN", ""));
    }
    if s.min == f32::NEG_INFINITY || s.max == f32::INFINITY {
        match options.infinities {
            Infinities::Refuse => return Err(("an infinity", "; it may be ignored if that is asked for")),
            Infinities::Ignore => {
                x = Cow::Owned(x.iter().copied().filter(|v| v.is_finite()).collect());
                s = scan(&x);
            }
        }
    }
    for g in groups {
        observers[*g].update(&x, &s);
    }
    Ok(())
}
