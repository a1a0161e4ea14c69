//! Elements joined and padded. Producers write into a concatenation where they can.

use super::{Deferred, Lower, Rules, State, quantized};
use crate::calls::{Pad, Quant};
use crate::error::Result;
use crate::kernel::{GatherKernel, PadKernel};
use crate::memory::{Storage, Value, channels_last, row_major};
use cleave_ir::NodeId;

/// The ops lowered here.
pub(super) const RULES: Rules =
    &[("aten.cat.default", cat), ("aten.constant_pad_nd.default", pad), ("aten.embedding.default", embedding)];

/// The window of a concatenation that is to hold a value, if that is the value's only use: then its producer
/// writes there. `node` is the value's node, a quantize or a float; channels must be joined and lie innermost.
pub(super) fn slot(l: &mut Lower<'_>, node: NodeId, storage: Storage, order: &[usize]) -> Option<Value> {
    let mut user = l.calls.only_user(node)?;
    let mut part = node;
    if storage != Storage::F32 {
        if l.calls.op(user) != "quantized_decomposed.dequantize_per_tensor.default" {
            return None;
        }
        (part, user) = (user, l.calls.only_user(user)?);
    }
    let (dim, parts) = l.calls.joined(user)?;
    // What levels mean is said by the dequantize of each part.
    let quant = |id: NodeId| l.calls.quant(id).filter(|_| l.calls.base(id) == "dequantize_per_tensor");
    let alike = parts.iter().all(|p| quant(*p) == quant(part));
    let once = parts.len() > 1 && parts.iter().filter(|p| **p == part).count() == 1;
    if !once || !alike || order.last() != Some(&dim) {
        return None;
    }
    let whole = match l.cats.get(&user) {
        // Levels were put there, and the whole is wanted in floats after all.
        Some(v) if v.storage != storage => return None,
        Some(v) => v.clone(),
        None => {
            let v = l.steps.alloc(&l.calls.shape(user).ok()?, storage, order);
            l.cats.insert(user, v.clone());
            v
        }
    };
    let sizes = parts.iter().map(|p| l.calls.shape(*p).ok().map(|s| s[dim])).collect::<Option<Vec<_>>>()?;
    let at = parts.iter().position(|p| *p == part)?;
    Some(whole.slice(dim, sizes[..at].iter().sum(), sizes[at], 1))
}

/// The levels that all parts share, or that the quantize behind the concatenation asks for.
fn common(l: &Lower<'_>, id: NodeId, parts: &[NodeId]) -> Option<Quant> {
    let quants = parts.iter().map(|p| match l.state(*p) {
        State::Dequant(_, q) => Some(*q),
        _ => None,
    });
    let quants: Vec<Quant> = quants.collect::<Option<_>>()?;
    let first = *quants.first()?;
    if quants.iter().all(|q| q.same_levels(&first)) {
        return Some(first);
    }
    let user = l.calls.only_user(id).filter(|u| l.calls.base(*u) == "quantize_per_tensor")?;
    l.calls.quant(user)
}

fn cat(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((dim, parts)) = l.calls.joined(id) else { return Ok(None) };
    let shape = l.calls.shape(id)?;
    let quant = common(l, id, &parts);
    let mut values = vec![];
    for p in &parts {
        values.push(match (l.state(*p).clone(), quant) {
            (State::Dequant(v, q), Some(want)) if q.same_levels(&want) => v,
            (State::Dequant(..), Some(want)) => quantized::requantize(l, *p, want)?,
            _ => l.value(*p)?,
        });
    }
    let storage = values[0].storage;
    let reserved = l.cats.get(&id).filter(|v| v.storage == storage).cloned();
    let whole = reserved.unwrap_or_else(|| {
        let last =
            values.iter().any(Value::is_channels_last) || (shape.len() == 4 && !values[0].is_dense(&row_major(4)));
        let order = if last { channels_last(shape.len()) } else { row_major(shape.len()) };
        l.steps.alloc(&shape, storage, &order)
    });
    let mut at = 0;
    for v in &values {
        let window = whole.slice(dim, at, v.shape[dim], 1);
        at += v.shape[dim];
        if window != *v && v.len() > 0 {
            l.copy(v, &window, &[id]);
        }
    }
    Ok(Some(State::of(whole, quant)))
}

fn pad(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some(pad) = l.calls.pad(id) else { return Ok(None) };
    l.settle(pad.x)?;
    if let Some(zeros) = pad.frame().filter(|_| is_left_to_convolutions(l, id)) {
        return Ok(Some(State::Deferred(Deferred::Pad(pad.x, zeros))));
    }
    if let State::Dequant(v, q) = l.state(pad.x).clone() {
        let fill = q.q.eval(pad.value);
        if cleave_numerics::dequantize(fill.into(), q.q.scale, q.q.zero_point) == pad.value {
            let out = filled(l, id, &v, &pad, [fill; 4])?;
            return Ok(Some(State::Dequant(out, q)));
        }
    }
    let v = l.value(pad.x)?;
    if v.storage != Storage::F32 {
        return Ok(None);
    }
    filled(l, id, &v, &pad, pad.value.to_ne_bytes()).map(|out| Some(State::Stored(out)))
}

/// Whether all that uses a pad are convolutions that can have the zeros put around their input.
fn is_left_to_convolutions(l: &Lower<'_>, id: NodeId) -> bool {
    let users = l.g.users(id);
    let takes =
        |n: &NodeId| l.calls.op(*n) == "aten.conv2d.default" && l.calls.convolution(*n).is_some_and(|c| c.x == id);
    !users.is_empty() && users.iter().all(takes)
}

/// A deferred pad that something other than a convolution needs.
pub(super) fn emit_pad(l: &mut Lower<'_>, id: NodeId) -> Result<Option<Value>> {
    let Some(pad) = l.calls.pad(id) else { return Ok(None) };
    let v = l.value(pad.x)?;
    filled(l, id, &v, &pad, pad.value.to_ne_bytes()).map(Some)
}

fn filled(l: &mut Lower<'_>, id: NodeId, v: &Value, pad: &Pad, fill: [u8; 4]) -> Result<Value> {
    let out = l.steps.alloc(&l.calls.shape(id)?, v.storage, &v.order());
    let windows = pad.around.iter().enumerate();
    let inner = windows.fold(out.clone(), |inner, (dim, [before, _])| inner.slice(dim, *before, v.shape[dim], 1));
    l.step(Box::new(PadKernel::new(v, &inner, fill)), &[v], &[&out], "pad", &[id]);
    Ok(out)
}

fn embedding(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((table, indices)) = l.calls.picked(id) else { return Ok(None) };
    let halves = l.calls.halves(table).filter(|_| l.calls.is_meant(table));
    let widens = halves.is_some();
    let table = match halves {
        Some(t) => l.steps.upload(t),
        None => l.value(table)?,
    };
    let indices = l.value(indices)?;
    let (table, indices) = (l.dense(&table, &row_major(2)), l.dense(&indices, &row_major(indices.shape.len())));
    let shape = l.calls.shape(id)?;
    let storage = if widens { Storage::F32 } else { table.storage };
    let out = l.steps.alloc(&shape, storage, &row_major(shape.len()));
    let (rows, width) = (table.shape[0], table.shape[1] * table.storage.size());
    let kernel = GatherKernel { rows, width, widens, node: l.g.node(id).name.clone(), op: l.calls.op(id) };
    l.step(Box::new(kernel), &[&table, &indices], &[&out], "embedding", &[id]);
    Ok(Some(State::Stored(out)))
}
