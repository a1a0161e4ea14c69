//! Statistics as files: what was calibrated, how and on which samples; merging what shards of a data set gave.

use crate::error::{Error, Result};
use crate::pipeline::{Learnt, Ready, Samples};
use cleave_formats::{fingerprint, record};
use cleave_ir::Graph;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const KIND: record::Kind =
    record::Kind { magic: *b"\x89CAL\r\n\x1a\n", version: 2, name: "statistics", remedy: "calibrate again" };

/// Statistics, and all that must agree where they are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The model.
    pub model: Identity,
    /// The quantizer's name.
    pub quantizer: String,
    /// The samples, in order, no two runs of them touching.
    pub runs: Vec<Run>,
    /// What was learnt.
    pub learnt: Learnt,
}

/// What something is called, and what it is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// The name of its file or folder.
    pub name: String,
    /// XXH3 of a model's graph and weights; of the first and the last sample of data.
    pub hash: u64,
}

/// Samples `from..to` of `of`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    /// The data set.
    pub data: Identity,
    /// How many samples it has.
    pub of: u64,
    /// The first sample.
    pub from: u64,
    /// Behind the last.
    pub to: u64,
}

fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// What a model is known by.
pub fn identify(path: &Path, export: &Graph) -> Identity {
    Identity { name: name_of(path), hash: fingerprint::graph(export) }
}

/// Samples `from..to` of data of which `all` are the samples.
///
/// # Errors
/// A first or last sample that cannot be read.
pub fn run_of(path: &Path, all: &impl Samples, from: usize, to: usize) -> Result<Run> {
    let n = all.len();
    let mut ends = vec![];
    for at in [0, n.saturating_sub(1)] {
        ends.extend(all.batch(at, at + 1).map_err(|e| Error::other(e.to_string()))?);
    }
    let data = Identity { name: name_of(path), hash: fingerprint::tensors(&ends) };
    Ok(Run { data, of: n as u64, from: from as u64, to: to as u64 })
}

impl Calibration {
    /// Statistics of a model and samples.
    pub fn new(model: Identity, quantizer: &str, run: Run, learnt: Learnt) -> Calibration {
        Calibration { model, quantizer: quantizer.into(), runs: vec![run], learnt }
    }

    /// Writes a file; it is whole or not there.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(record::write(path, KIND, self)?)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file of another kind or version, a damaged one, and one that no calibration can have led to.
    pub fn read(path: &Path) -> Result<Calibration> {
        let c: Calibration = record::read(path, KIND)?;
        let run = |r: &Run| r.from < r.to && r.to <= r.of;
        let samples = c.runs.iter().try_fold(0u64, |n, r| n.checked_add(r.to.checked_sub(r.from)?));
        if !c.learnt.is_valid() || !c.runs.iter().all(run) || c.runs.is_empty() || samples.is_none() {
            let why = "its numbers are none that calibration could give; calibrate again";
            return Err(Error::other(format!("{}: {why}", path.display())));
        }
        Ok(c)
    }

    /// The statistics, if they are of this model under this quantizer; `path` names them in errors.
    ///
    /// # Errors
    /// Another model or quantizer.
    pub fn check(&self, path: &Path, model: &Identity, ready: &Ready) -> Result<()> {
        let here = path.display();
        if self.model.hash != model.hash {
            let (was, is) = (&self.model, model);
            return Err(Error::other(format!(
                "{here}: statistics of another model, {} ({:016x}), not of {} ({:016x}); calibrate this one",
                was.name, was.hash, is.name, is.hash
            )));
        }
        let (was, is) = (&self.quantizer, &ready.annotations.quantizer);
        if was != is {
            let why = format!("statistics for the quantizer '{was}', not for '{is}'; add --quantizer {was}");
            return Err(Error::other(format!("{here}: {why}, or calibrate for '{is}'")));
        }
        Ok(())
    }

    /// Adds the statistics of other samples.
    ///
    /// # Errors
    /// Another model, quantizer or selection; samples that both have seen; observers that depend on the order of
    /// the data.
    pub fn merge(&mut self, other: &Calibration) -> std::result::Result<(), String> {
        if self.model.hash != other.model.hash {
            return Err(format!("of another model: {}, not {}", other.model.name, self.model.name));
        }
        if self.quantizer != other.quantizer {
            return Err(format!("for another quantizer: '{}', not '{}'", other.quantizer, self.quantizer));
        }
        self.learnt.merge(&other.learnt).map_err(|e| e.to_string())?;
        // Two counts below 2^60 do not overflow; many might.
        if !self.learnt.is_valid() {
            return Err("more values than can be counted".into());
        }
        self.runs.extend(other.runs.iter().cloned());
        self.runs.sort();
        let mut joined: Vec<Run> = vec![];
        for run in self.runs.drain(..) {
            let last = joined.last_mut().filter(|l| l.data == run.data && l.of == run.of);
            match last {
                Some(l) if run.from < l.to => {
                    let name = &run.data.name;
                    return Err(format!(
                        "samples {} to {} of {name} would count twice",
                        run.from,
                        l.to.min(run.to) - 1
                    ));
                }
                Some(l) if run.from == l.to => l.to = run.to,
                _ => joined.push(run),
            }
        }
        self.runs = joined;
        Ok(())
    }

    /// Merges files.
    ///
    /// # Errors
    /// A file that cannot be read or does not go with the first.
    pub fn merge_files(paths: &[PathBuf]) -> Result<Calibration> {
        let (first, rest) = paths.split_first().ok_or_else(|| Error::other("no statistics to merge"))?;
        let mut all = Calibration::read(first)?;
        for path in rest {
            let other = Calibration::read(path)?;
            all.merge(&other).map_err(|why| Error::other(format!("{}: {why}", path.display())))?;
        }
        Ok(all)
    }
}
