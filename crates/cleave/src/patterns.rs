//! Patterns under examination: what each finds in a model and what it nearly finds, and the tests of a quantizer's
//! file.

use crate::error::{Error, Result};
use crate::pipeline::{Quantized, Settings, quantize_by};
use cleave_ir::{Dim, Graph, Tensor};
use cleave_quantize::{Annotations, MissRow, PatternTest, Selection, Status, TomlQuantizer, annotate};
use cleave_runtime::Session;

/// What one pattern found in a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The pattern.
    pub pattern: String,
    /// Its units: names of their nodes.
    pub units: Vec<Vec<String>>,
    /// Nodes that it keeps float.
    pub floats: Vec<String>,
    /// Where it began to match and failed, in nodes that no pattern took.
    pub declined: Vec<(String, MissRow)>,
}

/// What each pattern of a quantizer, in order, finds in a graph once it is raised.
///
/// # Errors
/// A graph that is quantized already, what raising or annotating met; that nothing is found is none.
pub fn check(quantizer: &TomlQuantizer, export: &Graph) -> Result<Vec<Found>> {
    if crate::model::is_quantized(export) {
        return Err(Error::other("the model is quantized already; check patterns on the float model"));
    }
    let g = &crate::model::raise_for(export, quantizer)?;
    let a = match annotate(g, quantizer, &Selection::default()) {
        Err(cleave_quantize::QuantizeError::Nothing { .. }) => None,
        other => Some(other?),
    };
    let found = |p: &cleave_quantize::UnitPattern| Found {
        pattern: p.name.clone(),
        units: a.iter().flat_map(|a| units_of(a, &p.name)).map(|u| names(g, &u.nodes)).collect(),
        floats: match (&a, &p.float) {
            (Some(a), Some(why)) => {
                a.floats.iter().filter(|f| f.reason == *why).map(|f| g.node(f.node).name.clone()).collect()
            }
            _ => vec![],
        },
        declined: match &a {
            Some(a) => declined(g, a, &p.name),
            None => misses(g, p),
        },
    };
    Ok(quantizer.patterns().iter().map(found).collect())
}

fn units_of<'a>(a: &'a Annotations, pattern: &'a str) -> impl Iterator<Item = &'a cleave_quantize::Unit> {
    a.units.iter().filter(move |u| u.pattern == pattern)
}

fn names(g: &Graph, nodes: &[cleave_ir::NodeId]) -> Vec<String> {
    nodes.iter().map(|n| g.node(*n).name.clone()).collect()
}

fn declined(g: &Graph, a: &Annotations, pattern: &str) -> Vec<(String, MissRow)> {
    let own = a.misses.iter().filter(|(_, m)| m.pattern == pattern);
    own.map(|(n, m)| (g.node(*n).name.clone(), m.clone())).collect()
}

/// Where a pattern alone begins to match a graph and fails.
fn misses(g: &Graph, p: &cleave_quantize::UnitPattern) -> Vec<(String, MissRow)> {
    let at = |id| match p.pattern.match_at(g, id) {
        Err(m) if m.matched > 0 => {
            let row = MissRow { pattern: p.name.clone(), step: m.step, why: m.why, matched: m.matched };
            Some((g.node(id).name.clone(), row))
        }
        _ => None,
    };
    g.ids().filter_map(at).collect()
}

/// What came of one test of a quantizer's file.
#[derive(Clone, Debug, PartialEq)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// The units that were found, as `pattern: node node`.
    pub found: Vec<String>,
    /// The kernels that run the quantized graph.
    pub kernels: Vec<String>,
    /// What does not hold; none if all does.
    pub failure: Option<String>,
}

/// Runs the tests of a quantizer's file: the units must be those that the test says, and the graph, quantized with
/// numbers made up for its constants and inputs, must give what it gives in float, within 8 of 255 steps.
pub fn test(quantizer: &TomlQuantizer) -> Vec<TestResult> {
    quantizer.tests().iter().map(|t| run_test(quantizer, t)).collect()
}

fn run_test(quantizer: &TomlQuantizer, t: &PatternTest) -> TestResult {
    let mut r = TestResult { name: t.name.clone(), found: vec![], kernels: vec![], failure: None };
    match quantized(quantizer, &t.graph) {
        Err(e) => r.failure = Some(e.to_string()),
        Ok((q, kernels)) => {
            let line = |u: &cleave_quantize::Unit| format!("{}: {}", u.pattern, names(&q.raised, &u.nodes).join(" "));
            r.found = q.annotations.units.iter().map(line).collect();
            r.kernels = kernels;
            r.failure = verdict(t, &r.found, &q);
        }
    }
    r
}

fn verdict(t: &PatternTest, found: &[String], q: &Quantized) -> Option<String> {
    if *found != t.units {
        let floats = q.converted.plan.rows.iter().filter(|r| r.status == Status::Float);
        let why: Vec<String> =
            floats.map(|r| format!("{}: {}", r.node, r.reason.as_deref().unwrap_or("float"))).collect();
        let why = if why.is_empty() { String::new() } else { format!("; {}", why.join("; ")) };
        return Some(format!("expected {:?}, found {found:?}{why}", t.units));
    }
    let off = q.check.outputs.iter().find(|(_, s)| s.sqnr_db < 25.0);
    off.map(|(n, s)| format!("output {n}: {:.1} dB between float and quantized, expected 25", s.sqnr_db))
}

/// A graph quantized on made-up numbers, and the kernels that run it.
fn quantized(quantizer: &TomlQuantizer, graph: &Graph) -> Result<(Quantized, Vec<String>)> {
    let mut numbers = Numbers(1);
    let mut g = graph.clone();
    for (name, t) in &graph.constants {
        // Positive where a variance may be asked for; weights have both signs.
        let low = if name.contains("var") { 0.5 } else { -1.0 };
        g.constants.insert(name.clone(), numbers.tensor(t.shape(), low));
    }
    let (mut samples, mut shapes) = (vec![], vec![]);
    for p in g.placeholders() {
        let meta = g.tensor_meta(p).map_err(|e| Error::other(e.to_string()))?;
        if !meta.dtype.is_float() {
            return Err(Error::other(format!(
                "input {} is {}: a test's inputs are floats",
                g.node(p).name,
                meta.dtype
            )));
        }
        let mut shape: Vec<usize> =
            meta.shape.iter().map(|d: &Dim| d.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(1)).collect();
        shapes.push(shape.clone());
        if let Some(batch) = shape.first_mut() {
            *batch *= 16;
        }
        samples.push(numbers.tensor(&shape, -1.0));
    }
    let settings = Settings::default();
    let q = quantize_by(quantizer, &g, samples.as_slice(), &settings, &mut |_, _, _| {})?;
    let plan = Session::new(&q.converted.graph, settings.run)?.plan(&shapes)?;
    Ok((q, plan.kernels.iter().map(|k| k.name.clone()).collect()))
}

/// A small generator: the numbers are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn tensor(&mut self, shape: &[usize], low: f32) -> Tensor {
        let mut next = || {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 40) as f32 / (1u64 << 24) as f32
        };
        let n: usize = shape.iter().product();
        Tensor::new(shape, (0..n).map(|_| low + (1.0 - low) * next()).collect::<Vec<f32>>())
    }
}
