//! How a model was made, carried by it: in the metadata of its graph, which every format keeps.
//!
//! Nothing in it depends on when, where or by whom it was made, so that the same inputs give the same bytes.

use crate::calibration::{Identity, Run};
use crate::error::{Error, Result};
use crate::metrics::Similarity;
use crate::pipeline::{Gain, Quantized, Settings, plan_counts};
use cleave_ir::Graph;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::Path;

/// Under which key of [`Graph::metadata`] it stands, as JSON.
pub const KEY: &str = "provenance";

/// How a quantized model was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// Name and version of the program.
    pub tool: String,
    /// The float model.
    pub source: Source,
    /// The quantizer's name.
    pub quantizer: String,
    /// Selectors of nodes that were to stay float.
    pub float: Vec<String>,
    /// Selectors of the only units to be quantized; none for all.
    pub only: Vec<String>,
    /// Compute nodes, and how many of them are quantized.
    pub nodes: [usize; 2],
    /// What calibration saw.
    pub calibration: Calibrated,
    /// What the check before writing found.
    pub check: Checked,
}

/// The file that a model was made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its name, without folders.
    pub name: String,
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// XXH3 of its graph and weights, those in other files too.
    pub graph: String,
}

impl Source {
    /// A model's file with its fingerprints.
    pub fn new(model: &Identity, sha256: String) -> Source {
        Source { name: model.name.clone(), sha256, graph: format!("{:016x}", model.hash) }
    }

    /// The SHA-256 of a file, in hexadecimal digits.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn sha256(path: &Path) -> Result<String> {
        let fail = |e| Error::other(format!("{}: cannot be read: {e}", path.display()));
        let mut digest = Sha256::new();
        std::io::copy(&mut std::fs::File::open(path).map_err(fail)?, &mut digest).map_err(fail)?;
        Ok(digest.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }
}

/// What calibration saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibrated {
    /// Samples that count.
    pub samples: usize,
    /// Samples that were left out for values that are not finite.
    pub skipped: usize,
    /// Where they come from.
    pub data: Vec<Run>,
}

/// Float and quantized outputs side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// On so many samples; on none, nothing is known.
    pub samples: usize,
    /// SQNR of each output in dB; none where the outputs are equal.
    pub sqnr_db: Vec<(String, Option<f64>)>,
    /// What was tried to make them better.
    pub gains: Vec<Gain>,
}

impl Provenance {
    /// What is known of a model that was just quantized.
    pub fn new(source: Source, q: &Quantized, settings: &Settings, data: Vec<Run>) -> Provenance {
        let (all, quantized) = plan_counts(&q.converted.plan);
        let decibels = |s: &Similarity| s.sqnr_db.is_finite().then_some((s.sqnr_db * 100.0).round() / 100.0);
        Provenance {
            tool: format!("cleave {}", env!("CARGO_PKG_VERSION")),
            source,
            quantizer: q.converted.plan.quantizer.clone(),
            float: settings.float.clone(),
            only: settings.only.clone(),
            nodes: [all, quantized],
            calibration: Calibrated {
                samples: q.learnt.statistics.samples,
                skipped: q.learnt.statistics.skipped,
                data,
            },
            check: Checked {
                samples: q.check.samples,
                sqnr_db: q.check.outputs.iter().map(|(n, s)| (n.clone(), decibels(s))).collect(),
                gains: q.check.gains.clone(),
            },
        }
    }

    /// That of a graph; none if it has none, or none that this version can read.
    pub fn of(g: &Graph) -> Option<Provenance> {
        serde_json::from_str(g.metadata.get(KEY)?).ok()
    }

    /// Puts it into a graph.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn stamp(&self, g: &mut Graph) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| Error::other(e.to_string()))?;
        g.metadata.insert(KEY.into(), text);
        Ok(())
    }
}

impl std::fmt::Display for Provenance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Provenance { tool, source, quantizer, nodes: [all, quantized], calibration: c, check, .. } = self;
        writeln!(f, "{:12}{} (SHA-256 {}) by {tool}", "made of", source.name, &source.sha256)?;
        let mut how = format!("'{quantizer}': {quantized} of {all} compute nodes");
        for (name, selectors) in [("float", &self.float), ("only", &self.only)] {
            if !selectors.is_empty() {
                how += &format!("; --{name} {}", selectors.join(&format!(" --{name} ")));
            }
        }
        writeln!(f, "{:12}{how}", "quantized")?;
        let data: Vec<String> = c.data.iter().map(|r| format!("{} [{}..{}]", r.data.name, r.from, r.to)).collect();
        if c.samples > 0 {
            writeln!(f, "{:12}{} samples of {}", "calibrated", c.samples, data.join(", "))?;
        }
        if check.samples > 0 {
            let one = |(name, db): &(String, Option<f64>)| match db {
                Some(db) => format!("{name} {db:.1} dB"),
                None => format!("{name} equal"),
            };
            let outputs: Vec<String> = check.sqnr_db.iter().map(one).collect();
            writeln!(f, "{:12}{} on {} samples", "checked", outputs.join(", "), check.samples)?;
        }
        Ok(())
    }
}
