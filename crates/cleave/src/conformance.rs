//! Recorded cases: a model with inputs and the outputs that it must give.

use crate::backend::Backend;
use crate::error::{Error, Result};
use cleave_formats::npy;
use cleave_formats::onnx::testdir;
use cleave_ir::{Graph, Tensor};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::path::{Path, PathBuf};

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All outputs within tolerance.
    Passed = 0,
    /// An output is not.
    Failed = 1,
    /// The model could not be read or run.
    Unsupported = 2,
}

impl Status {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Unsupported => "unsupported",
        }
    }
}

/// One case's result.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// [`Case::name`].
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// What did not hold, or empty.
    pub why: String,
}

/// A folder with a case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The folder's path below the one that was searched, or its own name.
    pub name: String,
    /// The folder.
    pub dir: PathBuf,
    /// The model in it.
    pub model: PathBuf,
}

/// Cases in a folder: itself, or those at most three folders below it, in order of their names.
///
/// # Errors
/// A folder that cannot be read.
pub fn find_cases(dir: &Path) -> Result<Vec<Case>> {
    fn walk(dir: &Path, below: &[String], out: &mut Vec<Case>) -> std::io::Result<()> {
        let own = || dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        for name in ["model.pt2", "model.onnx"] {
            let model = dir.join(name);
            if model.is_file() {
                let name = if below.is_empty() { own() } else { below.join("/") };
                out.push(Case { name, dir: dir.into(), model });
                return Ok(());
            }
        }
        if below.len() == 3 {
            return Ok(());
        }
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<std::io::Result<_>>()?;
        entries.sort();
        for e in entries.iter().filter(|e| e.is_dir()) {
            let name = e.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            walk(e, &[below, &[name]].concat(), out)?;
        }
        Ok(())
    }
    let mut out = vec![];
    walk(dir, &[], &mut out).map_err(|e| Error::other(format!("{}: {e}", dir.display())))?;
    Ok(out)
}

/// Inputs and outputs of one recorded run.
type Recorded = (IndexMap<String, Tensor>, IndexMap<String, Tensor>);

fn recorded(case: &Case) -> Result<Vec<Recorded>> {
    let inputs = case.dir.join("inputs.npz");
    if inputs.is_file() {
        return Ok(vec![(npy::read_npz(&inputs)?, npy::read_npz(&case.dir.join("outputs.npz"))?)]);
    }
    // Files of unnamed tensors go by their number.
    let by_name = |n: testdir::Named| {
        n.into_iter().enumerate().map(|(i, (k, t))| (if k.is_empty() { i.to_string() } else { k }, t)).collect()
    };
    let sets: Vec<Recorded> = match testdir::read_data_sets(&case.dir) {
        Ok(sets) => sets.into_iter().map(|(i, o)| (by_name(i), by_name(o))).collect(),
        // What no tensor holds is better told of the model.
        Err(e) => crate::model::read_for(&case.model, &[]).and(Err(e.into()))?,
    };
    match sets.is_empty() {
        true => Err(Error::other(format!("{}: no recorded inputs and outputs", case.dir.display()))),
        false => Ok(sets),
    }
}

/// Runs a case on the backend that `make` gives for its graph.
pub fn run_case(case: &Case, make: &mut dyn FnMut(&Graph) -> Result<Backend>) -> CaseResult {
    let name = case.name.clone();
    let outcome = recorded(case).and_then(|sets| {
        let mut problems = vec![];
        for (inputs, outputs) in sets {
            let inputs = named(&case.model, inputs)?;
            let g = crate::model::read_for(&case.model, &inputs)?;
            let given = in_order(&g.input_names, inputs)?;
            let got = make(&g)?.run(&given, &[], &mut |_, _| {})?;
            problems.extend(differences(&got, &outputs));
        }
        Ok(problems)
    });
    match outcome {
        Ok(p) if p.is_empty() => CaseResult { name, status: Status::Passed, why: String::new() },
        Ok(p) => CaseResult { name, status: Status::Failed, why: p.join("; ") },
        Err(e) => CaseResult { name, status: Status::Unsupported, why: e.to_string().replace('\n', " ") },
    }
}

/// Recorded inputs under the names that an ONNX model gives its own, where the files give others: these go by their
/// number.
fn named(model: &Path, inputs: IndexMap<String, Tensor>) -> Result<Vec<(String, Tensor)>> {
    let names = if model.extension().is_some_and(|e| e == "onnx") { crate::model::input_names(model)? } else { vec![] };
    let as_named = inputs.keys().all(|k| names.contains(k));
    let unnamed = inputs.into_iter().enumerate();
    Ok(unnamed.map(|(i, (k, t))| (names.get(i).filter(|_| !as_named).cloned().unwrap_or(k), t)).collect())
}

/// Recorded inputs by the model's names; where the names are others, in the order of the file.
fn in_order(names: &[String], inputs: Vec<(String, Tensor)>) -> Result<Vec<Tensor>> {
    if names.len() > inputs.len() {
        return Err(Error::other(format!("{} recorded inputs for {}", inputs.len(), names.join(", "))));
    }
    let named: Option<Vec<Tensor>> =
        names.iter().map(|n| inputs.iter().find(|(k, _)| k == n).map(|(_, t)| t.clone())).collect();
    Ok(named.unwrap_or_else(|| inputs.into_iter().take(names.len()).map(|(_, t)| t).collect()))
}

/// torch.testing's default tolerances for a type: relative, absolute.
fn tolerance(d: DType) -> (f64, f64) {
    match d {
        DType::F16 => (1e-3, 1e-5),
        DType::BF16 => (1.6e-2, 1e-5),
        DType::F32 => (1.3e-6, 1e-5),
        DType::F64 => (1e-7, 1e-7),
        _ => (0.0, 0.0),
    }
}

/// What outputs differ in from those recorded.
fn differences(got: &[Tensor], want: &IndexMap<String, Tensor>) -> Vec<String> {
    if got.len() != want.len() {
        return vec![format!("{} outputs, {} recorded", got.len(), want.len())];
    }
    got.iter()
        .zip(want)
        .filter_map(|(g, (name, w))| difference(g, w).map(|why| format!("output '{name}': {why}")))
        .collect()
}

fn difference(got: &Tensor, want: &Tensor) -> Option<String> {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        return Some(format!("{}{:?}, recorded {}{:?}", got.dtype(), got.shape(), want.dtype(), want.shape()));
    }
    let (relative, absolute) = tolerance(want.dtype());
    let off =
        |a: f64, b: f64| !(a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= absolute + relative * b.abs());
    let (a, b) = (got.to_f64(), want.to_f64());
    let wrong = a.iter().zip(&b).filter(|(a, b)| off(**a, **b)).count();
    let first = a.iter().zip(&b).position(|(a, b)| off(*a, *b))?;
    Some(format!("{wrong} of {} elements differ, the first at {first}: {} instead of {}", a.len(), a[first], b[first]))
}
