//! What quantizing each unit does to the outputs, and what to leave in float where they come out bad.

use crate::backend::{Backend, CpuEvaluator};
use crate::error::{Error, Result};
use crate::metrics::Comparison;
use crate::pipeline::{Quantized, Samples, Settings, finish, first_inputs, prepare};
use cleave_ir::{Graph, NodeId, Tensor};
use cleave_quantize::{Evaluator, QuantizeError, convert_alone};
use cleave_runtime::Session;
use serde::Serialize;

/// What quantizing one unit and nothing else does to the outputs.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// The node that the unit is named after.
    pub node: String,
    /// All its nodes.
    pub nodes: Vec<String>,
    /// Its pattern.
    pub pattern: String,
    /// Least SQNR of the outputs in dB; 200 where they are equal.
    pub sqnr_db: f64,
}

/// Samples that a unit is judged by.
const SAMPLES: usize = 4;
/// Units that a remedy may leave in float: with more, the quantizer is the wrong one.
const MOST: usize = 16;
/// Nodes that are tried whether they are needed.
const TRIED: usize = 8;
/// SQNR in dB of what is equal.
const EQUAL: f64 = 200.0;

/// Each quantized unit alone, the one that harms the outputs most first. `progress` hears how many are done of how many.
///
/// # Errors
/// What running a graph met.
pub fn sensitivity(
    q: &Quantized,
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Sensitivity>> {
    let p = &q.prepared;
    let mut float = CpuEvaluator::new(settings.run);
    let mut runs: Vec<(Vec<Tensor>, Vec<Tensor>)> = vec![];
    for (_, inputs) in first_inputs(&p.graph, samples, SAMPLES, settings) {
        let inputs = inputs?;
        let want = float.run(&p.graph, &inputs, &[], &mut |_, _| {}).map_err(|e| Error::other(e.to_string()))?;
        runs.push((inputs, want));
    }
    let mut all = vec![];
    for (unit, u) in p.units.iter().enumerate() {
        progress(unit, p.units.len());
        let Some(alone) = convert_alone(p, q.used_statistics(), unit)? else { continue };
        let sqnr_db = least_sqnr(&alone, &runs, settings)?;
        let name = |n: NodeId| p.graph.node(n).name.clone();
        let nodes = u.nodes.iter().map(|n| name(*n)).collect();
        all.push(Sensitivity { node: name(u.compute), nodes, pattern: u.pattern.clone(), sqnr_db });
    }
    progress(p.units.len(), p.units.len());
    all.sort_by(|a, b| a.sqnr_db.total_cmp(&b.sqnr_db));
    Ok(all)
}

fn least_sqnr(g: &Graph, runs: &[(Vec<Tensor>, Vec<Tensor>)], settings: &Settings) -> Result<f64> {
    let mut session = Backend::Cpu(Box::new(Session::new(g, settings.run)?));
    let mut outputs: Vec<Comparison> = vec![];
    for (inputs, want) in runs {
        let got = session.run(inputs, &[], &mut |_, _| {})?;
        outputs.resize(want.len(), Comparison::default());
        for (c, (a, b)) in outputs.iter_mut().zip(want.iter().zip(&got)) {
            c.add(a, b).map_err(Error::Other)?;
        }
    }
    Ok(outputs.iter().map(|c| c.finish().sqnr_db).fold(EQUAL, f64::min))
}

/// What to leave in float so that the outputs are good enough.
#[derive(Clone, Debug, Serialize)]
pub struct Remedy {
    /// Names of nodes.
    pub float: Vec<String>,
    /// Least SQNR of the outputs in dB when they are float.
    pub sqnr_db: f64,
}

/// Finds few nodes which, left in float, bring every output to `min` dB: of those that harm most as few as do, and of
/// them those that are needed. None if that is most of the network.
///
/// # Errors
/// What a stage met.
pub fn remedy(
    export: &Graph,
    q: &Quantized,
    ranking: &[Sensitivity],
    samples: &(impl Samples + ?Sized),
    settings: &Settings,
    min: f64,
) -> Result<Option<Remedy>> {
    let attempt = |float: &[String]| -> Result<Option<f64>> {
        let mut settings = settings.clone();
        settings.float.extend(float.iter().map(|n| format!("node:{n}")));
        let done = prepare(export, &settings).and_then(|r| finish(r, q.learnt.clone(), Some(samples), &settings));
        match done {
            Ok(d) => Ok(Some(d.check.least_sqnr()).filter(|db| *db >= min)),
            Err(Error::NothingLeft(_) | Error::Quantize(QuantizeError::Nothing { .. })) => Ok(None),
            Err(e) => Err(e),
        }
    };
    let most = (ranking.len() / 2).min(MOST);
    let names = |n: usize| ranking[..n].iter().flat_map(|s| s.nodes.clone()).collect::<Vec<_>>();
    let mut n = 1;
    let (mut float, mut sqnr_db) = loop {
        if n > most.max(1) || n > ranking.len() {
            return Ok(None);
        }
        match attempt(&names(n))? {
            Some(db) => break (names(n), db),
            None if n == most => return Ok(None),
            None => n = (n * 2).min(most.max(n + 1)),
        }
    };
    // Those that harm least may do so for the sake of others only.
    for node in float.clone().into_iter().rev().take(TRIED) {
        let without: Vec<String> = float.iter().filter(|f| **f != node).cloned().collect();
        if without.is_empty() {
            break;
        }
        if let Some(db) = attempt(&without)? {
            (float, sqnr_db) = (without, db);
        }
    }
    Ok(Some(Remedy { float, sqnr_db }))
}
