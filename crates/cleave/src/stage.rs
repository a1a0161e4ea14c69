//! The stages of a model by name, and its graph at each.

use crate::error::{Error, Result};
use crate::model::{is_clv, is_quantized};
use cleave_decompose::{Table, tables};
use cleave_ir::Graph;
use cleave_quantize::{Annotations, Selection};
use std::path::{Path, PathBuf};

/// A stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The graph as the file has it.
    Export,
    /// Functional, inert ops gone, semantic ops put back.
    Raised,
    /// Raised, with what the quantizer decided.
    Annotated,
    /// Batch norms folded.
    Prepared,
    /// Quantize and dequantize put in.
    Converted,
    /// Broken down as the table of this name says.
    Table(String),
    /// The kernels that run it.
    Plan,
}

impl Stage {
    /// The stage of this name.
    ///
    /// # Errors
    /// A name that is neither a stage's nor a table's.
    pub fn parse(name: &str) -> Result<Stage> {
        Ok(match name {
            "export" => Stage::Export,
            "raised" => Stage::Raised,
            "annotated" => Stage::Annotated,
            "prepared" => Stage::Prepared,
            "converted" => Stage::Converted,
            "plan" => Stage::Plan,
            t if tables().iter().any(|n| n.name == t) => Stage::Table(t.into()),
            other => {
                let tables: Vec<_> = tables().into_iter().map(|t| t.name).collect();
                return Err(Error::other(format!(
                    "no stage '{other}'; stages are export, raised, annotated, prepared, converted, plan and the tables {}",
                    tables.join(", ")
                )));
            }
        })
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Stage::Export => "export",
            Stage::Raised => "raised",
            Stage::Annotated => "annotated",
            Stage::Prepared => "prepared",
            Stage::Converted => "converted",
            Stage::Table(t) => t,
            Stage::Plan => "plan",
        })
    }
}

/// A model with what its stages need.
pub struct Model {
    path: PathBuf,
    export: Graph,
    quantizer: String,
    float: Vec<String>,
    only: Vec<String>,
}

impl Model {
    /// Reads a model, to be annotated by the default quantizer.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(path: &Path) -> Result<Model> {
        Ok(Model {
            path: path.into(),
            export: cleave_formats::read(path)?,
            quantizer: "cpu".into(),
            float: vec![],
            only: vec![],
        })
    }

    /// The model, to be annotated by this quantizer (a built-in name or a file) with these nodes left in float.
    pub fn with_quantizer(mut self, quantizer: &str, float: &[String]) -> Model {
        self.quantizer = quantizer.into();
        self.float = float.to_vec();
        self
    }

    /// The model, with no other units quantized than those that these selectors speak of.
    pub fn with_only(mut self, only: &[String]) -> Model {
        self.only = only.to_vec();
        self
    }

    /// The graph as the file has it.
    pub fn export(&self) -> &Graph {
        &self.export
    }

    /// The graph at the semantic level.
    ///
    /// # Errors
    /// What raising met.
    pub fn raised(&self) -> Result<Graph> {
        if is_clv(&self.path) { Ok(self.export.clone()) } else { crate::model::raise(&self.export) }
    }

    /// The raised graph with what the quantizer decides.
    ///
    /// # Errors
    /// A model that is quantized already, or what the quantizer met.
    pub fn annotated(&self) -> Result<(Graph, Annotations)> {
        if is_quantized(&self.export) {
            return Err(Error::other(format!(
                "{}: the model is quantized already; annotate the float model",
                self.path.display()
            )));
        }
        let quantizer = cleave_quantize::load(&self.quantizer)?;
        let g = crate::model::raise_for(&self.export, quantizer.as_ref())?;
        let a = cleave_quantize::annotate(&g, quantizer.as_ref(), &Selection::new(&self.float, &self.only)?)?;
        Ok((g, a))
    }

    /// The graph at a stage.
    ///
    /// # Errors
    /// The plan, which is no graph; a stage that needs calibration, or what the stage met.
    pub fn at(&self, stage: &Stage) -> Result<Graph> {
        match stage {
            Stage::Export => Ok(self.export.clone()),
            Stage::Raised => self.raised(),
            Stage::Plan => {
                Err(Error::other("the plan is a list of kernels, not a graph; see cleave show --stage plan"))
            }
            Stage::Annotated => Ok(self.annotated()?.0),
            Stage::Prepared => {
                let (g, a) = self.annotated()?;
                Ok(cleave_quantize::prepare(&g, &a)?.graph)
            }
            Stage::Converted if is_quantized(&self.export) => Ok(self.export.clone()),
            Stage::Converted => Err(Error::other(format!(
                "{}: stage converted needs calibration data; run cleave quantize and name its output here",
                self.path.display()
            ))),
            Stage::Table(name) => self.decomposed(&Table::named(name)?),
        }
    }

    /// The graph broken down as a table says: torch's tables take the exported graph as torch does, a backend's
    /// takes the raised one.
    ///
    /// # Errors
    /// What a rule met.
    pub fn decomposed(&self, table: &Table) -> Result<Graph> {
        Ok(cleave_decompose::decompose(&self.source(table)?, table)?)
    }

    /// The joint graph of results and gradients broken down as a table says.
    ///
    /// # Errors
    /// An op without derivative, or what a rule met.
    pub fn joint(&self, table: &Table) -> Result<Graph> {
        let joint = cleave_decompose::backward(&self.source(table)?)?;
        Ok(cleave_decompose::decompose(&joint, table)?)
    }

    fn source(&self, table: &Table) -> Result<Graph> {
        if table.sizes_as_nodes { Ok(self.export.clone()) } else { self.raised() }
    }
}
