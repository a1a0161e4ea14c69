//! Reading models for what is to be done with them.

use crate::error::Result;
use cleave_formats::onnx::{self, ReadOptions};
use cleave_ir::transform::{self, Replace};
use cleave_ir::{ConstKind, Graph, Node, Tensor};
use cleave_numerics::DType;
use cleave_runtime::reference;
use std::borrow::Cow;
use std::path::Path;

/// Reads a model and brings it to the semantic level, on which backends run and quantizers work. A model that is
/// quantized already is taken as it is.
///
/// # Errors
/// A file that cannot be read, or a graph that cannot be raised.
pub fn read_runnable(path: &Path) -> Result<Graph> {
    read_for(path, &[])
}

/// [`read_runnable`] for these values of inputs: those of an ONNX model that decide sizes, axes or branches become
/// constants of the graph, the others are left as its inputs.
///
/// # Errors
/// As [`read_runnable`].
pub fn read_for(path: &Path, values: &[(String, Tensor)]) -> Result<Graph> {
    let evaluate = |g: &Graph| reference::run(g, &[]).map_err(|e| e.to_string());
    let g = cleave_formats::read_with(path, ReadOptions { values, evaluate: Some(&evaluate) })?;
    if is_clv(path) { Ok(g) } else { Ok(raise(&g)?) }
}

/// The names of an ONNX model's inputs that are no initializers.
///
/// # Errors
/// A file that is no ONNX model.
pub fn input_names(path: &Path) -> Result<Vec<String>> {
    let model = onnx::decode(path)?;
    let Some(g) = &model.graph else { return Ok(vec![]) };
    let own = |name: &String| !g.initializer.iter().any(|t| t.name == *name);
    Ok(g.input.iter().map(|v| v.name.clone()).filter(own).collect())
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

/// [`raise`] for a quantizer: what its own patterns name is left for them, and weights that are stored as
/// half-precision numbers are the floats that they widen to.
///
/// # Errors
/// What a rule met.
pub fn raise_for(g: &Graph, quantizer: &dyn cleave_quantize::Quantizer) -> Result<Graph> {
    let g = widened(g)?;
    Ok(cleave_decompose::raise_for(&g, &quantizer.names(), &quantizer.inert())?.0)
}

/// The graph with constants of half-precision numbers that are cast to f32 as constants of f32.
fn widened(g: &Graph) -> Result<Cow<'_, Graph>> {
    let half = |node: &Node| {
        let casts = node.op().is_some_and(|o| matches!(o.base(), "_to_copy" | "to"));
        let source = node.args.first().and_then(|a| a.nodes().first().copied()).filter(|_| casts)?;
        let t = g.constant(source).filter(|t| matches!(t.dtype(), DType::F16 | DType::BF16))?;
        node.meta.as_tensor().filter(|m| m.dtype == DType::F32).map(|_| (source, t))
    };
    if !g.nodes().any(|(_, n)| half(n).is_some()) {
        return Ok(Cow::Borrowed(g));
    }
    let wide = transform::transform(g, |b, _, node, _| {
        let Some((source, t)) = half(node) else { return Ok(Replace::Copy) };
        let t = Tensor::new(t.shape(), t.to_f32().into_owned());
        Ok(Replace::With(vec![b.constant(&format!("{}.f32", g.node(source).target), ConstKind::Param, t)]))
    })?;
    Ok(Cow::Owned(wide))
}
