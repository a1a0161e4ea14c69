//! Reading models for what is to be done with them.

use crate::error::Result;
use cleave_ir::Graph;
use std::path::Path;

/// Reads a model and brings it to the semantic level, on which backends run and quantizers work. A model that is
/// quantized already is taken as it is.
///
/// # Errors
/// A file that cannot be read, or a graph that cannot be raised.
pub fn read_runnable(path: &Path) -> Result<Graph> {
    let g = cleave_formats::read(path)?;
    if is_clv(path) { Ok(g) } else { Ok(raise(&g)?) }
}

/// Whether a path names Cleave's own container.
pub fn is_clv(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "clv")
}

/// Whether a graph holds quantized values.
pub fn is_quantized(g: &Graph) -> bool {
    g.nodes().any(|(_, n)| n.op().is_some_and(|o| o.class == cleave_ir::Class::Quantize))
}

/// Brings a graph to the semantic level: functional, inert ops gone, semantic ops put back.
///
/// # Errors
/// What a rule met.
pub fn raise(g: &Graph) -> Result<Graph> {
    Ok(cleave_decompose::raise(g)?.0)
}
