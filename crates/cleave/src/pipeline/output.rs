//! What a graph is written as, and what of it runs where.

use crate::error::{Error, Result};
use crate::model::is_quantized;
use cleave_decompose::{Table, decompose, materialise_dims, plain_attention};
use cleave_formats::{clv, onnx, pt2};
use cleave_ir::Graph;
use cleave_quantize::{Plan, Status};
use cleave_runtime::{Options, Session};
use indexmap::IndexMap;
use std::path::Path;

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
