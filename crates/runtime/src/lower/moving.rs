//! Elements joined and padded. Producers write into a concatenation where they can.

use super::{Args, Deferred, Lower, Quant, Rules, State, constant};
use crate::error::Result;
use crate::kernel::{GatherKernel, PadKernel};
use crate::memory::{Storage, Value, row_major};
use cleave_ir::{Arg, NodeId};
use cleave_numerics::DType;

/// The ops lowered here.
pub(crate) const RULES: Rules =
    &[("aten.cat.default", cat), ("aten.constant_pad_nd.default", pad), ("aten.embedding.default", embedding)];

/// The window of a concatenation that is to hold a value, if that is the value's only use: then its producer
/// writes there. `node` is the value's node, a quantize or a float; channels must be joined and lie innermost.
pub(crate) fn slot(l: &mut Lower<'_>, node: NodeId, storage: Storage, order: &[usize]) -> Option<Value> {
    let mut user = l.only_user(node)?;
    let mut part = node;
    if storage != Storage::F32 {
        let dequantize = l.g.node(user);
        if dequantize.op()?.name != "quantized_decomposed.dequantize_per_tensor.default" {
            return None;
        }
        (part, user) = (user, l.only_user(user)?);
    }
    let cat = l.g.node(user);
    if cat.op()?.name != "aten.cat.default" {
        return None;
    }
    let parts = cat.args.first()?.nodes();
    if parts.iter().filter(|p| **p == part).count() != 1 || parts.len() < 2 {
        return None;
    }
    let dim = Args::of(l.g, user).axis("dim", order.len())?;
    let same = |p: &NodeId| part_quant(l, *p) == part_quant(l, part);
    if order.last() != Some(&dim) || !parts.iter().all(same) {
        return None;
    }
    let whole = match l.cats.get(&user) {
        // Levels were put there, and the whole is wanted in floats after all.
        Some(v) if v.storage != storage => return None,
        Some(v) => v.clone(),
        None => {
            let shape = l.shape(user).ok()?;
            let v = l.alloc(&shape, storage, order);
            l.cats.insert(user, v.clone());
            v
        }
    };
    let sizes = parts.iter().map(|p| l.shape(*p).ok().map(|s| s[dim])).collect::<Option<Vec<_>>>()?;
    let at = parts.iter().position(|p| *p == part)?;
    Some(whole.slice(dim, sizes[..at].iter().sum(), sizes[at], 1))
}

/// The scale and zero point that a dequantize has; none for other nodes.
fn part_quant(l: &Lower<'_>, id: NodeId) -> Option<Quant> {
    let node = l.g.node(id);
    let base = node.op()?.base();
    if base == "dequantize_per_tensor" { Quant::of(node, false) } else { None }
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
    let user = l.g.node(l.only_user(id)?);
    if user.op()?.base() == "quantize_per_tensor" { Quant::of(user, l.g.quantizes_by_division()) } else { None }
}

fn cat(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let shape = l.shape(id)?;
    let parts = l.g.node(id).args.first().map(Arg::nodes).unwrap_or_default();
    let Some(dim) = Args::of(l.g, id).axis("dim", shape.len()) else { return Ok(false) };
    let constant = |n: &NodeId| matches!(l.state(*n), State::Constant(_) | State::DequantConstant);
    if parts.iter().all(constant) {
        return Ok(false);
    }
    let dtype = l.g.tensor_meta(id)?.dtype;
    if parts.iter().any(|p| l.g.tensor_meta(*p).is_ok_and(|m| m.dtype != dtype)) {
        return Ok(false);
    }
    let quant = common(l, id, &parts);
    let mut values = vec![];
    for p in &parts {
        values.push(match (l.state(*p).clone(), &quant) {
            (State::Dequant(v, q), Some(want)) if q.same_levels(want) => v,
            (State::Dequant(..), Some(want)) => l.requantize(*p, want)?,
            _ => l.value(*p)?,
        });
    }
    let storage = values[0].storage;
    let reserved = l.cats.get(&id).filter(|v| v.storage == storage).cloned();
    let whole = reserved.unwrap_or_else(|| {
        let last =
            values.iter().any(Value::is_channels_last) || (shape.len() == 4 && !values[0].is_dense(&row_major(4)));
        let order = if last { Lower::spatial_order(shape.len()) } else { row_major(shape.len()) };
        l.alloc(&shape, storage, &order)
    });
    let mut at = 0;
    for v in &values {
        let window = whole.slice(dim, at, v.shape[dim], 1);
        at += v.shape[dim];
        if window != *v && v.len() > 0 {
            l.copy(v, &window, &[id]);
        }
    }
    let state = match quant {
        Some(q) => State::Dequant(whole, q),
        None => State::Stored(whole),
    };
    l.set(id, state);
    Ok(true)
}

fn pad(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(x), Some(pads), Some(value)) = (a.tensor("self"), a.ints("pad"), a.float("value")) else {
        return Ok(false);
    };
    if matches!(l.state(x), State::Constant(_) | State::DequantConstant) || pads.iter().any(|p| *p < 0) {
        return Ok(false);
    }
    l.settle(x)?;
    let size = |i: usize| pads.get(i).map_or(0, |p| usize::try_from(*p).unwrap_or(0));
    let spatial = l.shape(id)?.len() == 4 && pads.len() <= 4;
    let conv = |n: &NodeId| l.g.node(*n).op().is_some_and(|o| o.name == "aten.conv2d.default") && l.takes_pad(*n, id);
    if value == 0.0 && spatial && !l.g.users(id).is_empty() && l.g.users(id).iter().all(conv) {
        // The last dimension comes first: left, right, top, bottom.
        l.set(id, State::Deferred(Deferred::Pad(x, [size(2), size(0), size(3), size(1)])));
        return Ok(true);
    }
    if let State::Dequant(v, q) = l.state(x).clone() {
        let fill = q.q.eval(value);
        let kept = cleave_numerics::dequantize(i32::from(fill), q.q.scale, q.q.zero_point) == value;
        if kept {
            let out = filled(l, id, &v, &pads, [fill; 4])?;
            l.set(id, State::Dequant(out, q));
            return Ok(true);
        }
    }
    let v = l.value(x)?;
    if v.storage != Storage::F32 {
        return Ok(false);
    }
    let out = filled(l, id, &v, &pads, value.to_ne_bytes())?;
    l.set(id, State::Stored(out));
    Ok(true)
}

/// A deferred pad that something other than a convolution needs.
pub(crate) fn emit_pad(l: &mut Lower<'_>, id: NodeId, x: NodeId, pads: [usize; 4]) -> Result<Value> {
    let v = l.value(x)?;
    let pads = [pads[1], pads[3], pads[0], pads[2]].map(|p| p as i64);
    filled(l, id, &v, &pads, 0f32.to_ne_bytes())
}

fn filled(l: &mut Lower<'_>, id: NodeId, v: &Value, pads: &[i64], fill: [u8; 4]) -> Result<Value> {
    let shape = l.shape(id)?;
    let out = l.alloc(&shape, v.storage, &v.order());
    let mut inner = out.clone();
    for (i, pair) in pads.chunks(2).enumerate() {
        let dim = shape.len() - 1 - i;
        let before = usize::try_from(pair[0]).map_err(|_| l.unsupported(id, "a pad is negative"))?;
        inner = inner.slice(dim, before, v.shape[dim], 1);
    }
    l.step(Box::new(PadKernel::new(v, &inner, fill)), &[v], &out, "pad", &[id]);
    Ok(out)
}

fn embedding(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let a = Args::of(l.g, id);
    let (Some(table), Some(indices)) = (a.tensor("weight"), a.tensor("indices")) else { return Ok(false) };
    if l.g.tensor_meta(indices)?.dtype != DType::I64 || l.shape(table)?.len() != 2 {
        return Ok(false);
    }
    let halves = constant::halves(l, table).filter(|_| matches!(l.state(table), State::DequantConstant)).cloned();
    let widens = halves.is_some();
    let table = match halves {
        Some(t) => l.upload(&t),
        None => l.value(table)?,
    };
    let indices = l.value(indices)?;
    let (table, indices) = (l.dense(&table, &row_major(2)), l.dense(&indices, &row_major(indices.shape.len())));
    let shape = l.shape(id)?;
    let storage = if widens { Storage::F32 } else { table.storage };
    let out = l.alloc(&shape, storage, &row_major(shape.len()));
    let node = l.g.node(id);
    let (rows, width) = (table.shape[0], table.shape[1] * table.storage.size());
    let (node, op) = (node.name.clone(), node.op().map_or("", |o| o.name));
    let kernel = GatherKernel { rows, width, widens, node, op };
    l.step(Box::new(kernel), &[&table, &indices], &out, "embedding", &[id]);
    l.set(id, State::Stored(out));
    Ok(true)
}

impl Lower<'_> {
    /// Whether a convolution reads a node as its input and can have the zeros put around it.
    fn takes_pad(&self, conv: NodeId, pad: NodeId) -> bool {
        let a = Args::of(self.g, conv);
        let constant =
            |n: Option<NodeId>| n.is_none_or(|n| matches!(self.state(n), State::Constant(_) | State::DequantConstant));
        a.tensor("input") == Some(pad) && constant(a.tensor("weight")) && constant(a.tensor("bias"))
    }

    /// A dequantized value at other levels.
    fn requantize(&mut self, id: NodeId, want: &Quant) -> Result<Value> {
        super::quantized::requantize(self, id, want)
    }
}
