//! Views: windows where strides can express them, copies where not.

use super::{Lower, State};
use crate::calls::View;
use crate::error::Result;
use crate::memory::{Value, row_major};
use cleave_ir::{Meta, NodeId};

/// Lowers a view of what lies in memory, or of levels that do, and an item of several values.
pub(super) fn lower(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    if let Some((tuple, index)) = l.calls.item(id) {
        let State::Tuple(parts) = l.state(tuple) else { return Ok(None) };
        return Ok(parts.get(index).cloned());
    }
    let Some((x, views)) = l.calls.views(id) else { return Ok(None) };
    l.settle(x)?;
    let Some(v) = l.state(x).place().cloned() else { return Ok(None) };
    let Some(windows) = views.iter().map(|view| window(l, &v, view)).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut states: Vec<State> = windows.into_iter().map(|w| l.state(x).moved(w)).collect();
    Ok(if let Meta::Tuple(_) = l.g.node(id).meta { Some(State::Tuple(states)) } else { states.pop() })
}

fn window(l: &mut Lower<'_>, v: &Value, view: &View) -> Option<Value> {
    match view {
        View::Same => Some(v.clone()),
        View::Reshape(shape) => v.reshape(shape).or_else(|| l.dense(v, &row_major(v.shape.len())).reshape(shape)),
        View::Permute(order) => Some(v.permute(order)),
        View::Broadcast(shape) => v.broadcast(shape),
        View::Slice { dim, start, len, step } => Some(v.slice(*dim, *start, *len, *step)),
        View::Select { dim, at } => Some(v.select(*dim, *at)),
    }
}
