//! Constants made of constants. The old ones are left alone: other users may need them.

use cleave_ir::graph::{ConstKind, Kind, NodeId};
use cleave_ir::{Tensor, Value};
use cleave_numerics::DType;
use cleave_rewrite::Bound;

/// A captured constant.
pub(super) fn constant<'a>(m: &Bound<'_, 'a>, capture: &str) -> Result<&'a Tensor, String> {
    let id = m.found.value(capture).ok_or_else(|| format!("{capture} is not a tensor"))?;
    tensor(m, id).ok_or_else(|| format!("{capture} is not a constant"))
}

/// The constant that a node of the source graph stands for.
pub(super) fn tensor<'a>(m: &Bound<'_, 'a>, id: NodeId) -> Option<&'a Tensor> {
    m.source.constant(id)
}

/// A new constant, named after the one that is captured.
pub(super) fn derived<'b>(m: &Bound<'b, '_>, capture: &str, suffix: &str, t: Tensor) -> Value<'b> {
    let node = m.found.value(capture).map(|id| m.source.node(id));
    let (target, kind) = match node {
        Some(n) => match n.kind {
            Kind::GetAttr(k) => (n.target.as_str(), k),
            _ => (n.name.as_str(), ConstKind::Constant),
        },
        None => (capture, ConstKind::Constant),
    };
    m.b.constant(&format!("{target}.{suffix}"), kind, t)
}

/// A captured number, or the elements of a captured constant, one for each of `channels` places along the
/// dimension that is `behind` dimensions before the last; in f32.
pub(super) fn per_channel(
    m: &Bound<'_, '_>,
    capture: &str,
    channels: usize,
    behind: usize,
) -> Result<Vec<f32>, String> {
    if let Ok(n) = m.number(capture) {
        return Ok(vec![n as f32; channels]);
    }
    let t = constant(m, capture)?;
    if t.dtype() != DType::F32 {
        return Err(format!("{capture} is {}, not f32", t.dtype()));
    }
    let place = t.shape().len().checked_sub(behind + 1);
    let fits = place.is_some_and(|p| t.shape()[p] == channels && t.len() == channels);
    if !fits {
        return Err(format!("{capture} of shape {:?} is not one value for each of {channels} channels", t.shape()));
    }
    Ok(t.to_f32().into_owned())
}
