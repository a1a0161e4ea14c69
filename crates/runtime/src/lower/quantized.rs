//! Quantize and dequantize, and the quantized units that are no convolutions: tables, sums, products, means.

use super::conv::clamps;
use super::fuse::{Region, Sink};
use super::pointwise::{Compiled, Form, compile, emit_program, form};
use super::{Deferred, Lower, Quant, Rules, State};
use crate::error::Result;
use crate::kernel::LutKernel;
use crate::memory::Value;
use cleave_ir::{Arg, NodeId};
use cleave_kernels::ThreadPool;
use cleave_kernels::pointwise::{Binary, Builder, Data, DataMut, Input, Output, Pointwise, Quantize};
use cleave_numerics::DType;

/// The ops lowered here.
pub(crate) const RULES: Rules = &[
    ("quantized_decomposed.quantize_per_tensor.default", quantize),
    ("quantized_decomposed.dequantize_per_tensor.default", dequantize),
    ("quantized_decomposed.dequantize_per_channel.default", dequantize),
];

fn quantize(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let node = l.g.node(id);
    let (Some(Arg::Node(x)), Some(quant)) = (node.arg("input"), Quant::of(node, l.g.quantizes_by_division())) else {
        return Ok(false);
    };
    let x = *x;
    if l.g.tensor_meta(x)?.dtype != DType::F32 {
        return Ok(false);
    }
    let value = match l.state(x).clone() {
        State::Constant(_) | State::DequantConstant => return Ok(false),
        State::Dequant(v, q) if q == quant => v,
        _ => l.materialise(x, &Sink::Quantize(id, quant))?,
    };
    l.set(id, State::Stored(value));
    Ok(true)
}

fn dequantize(l: &mut Lower<'_>, id: NodeId) -> Result<bool> {
    let node = l.g.node(id);
    let Some(Arg::Node(x)) = node.arg("input") else { return Ok(false) };
    if l.g.tensor_meta(id)?.dtype != DType::F32 {
        return Ok(false);
    }
    let state = match (l.state(*x), Quant::of(node, false)) {
        (State::Constant(_), _) => State::DequantConstant,
        (State::Stored(v), Some(mut quant)) if v.storage == quant.storage => {
            let divide = l.g.quantizes_by_division();
            quant.q.rounding = Quant::of(node, divide).map_or(quant.q.rounding, |q| q.q.rounding);
            State::Dequant(v.clone(), quant)
        }
        _ => return Ok(false),
    };
    l.set(id, state);
    Ok(true)
}

/// Emits a quantized unit that has arithmetic of its own. None if the region is none.
pub(crate) fn emit(l: &mut Lower<'_>, root: NodeId, region: &Region, sink: &Sink) -> Result<Option<Value>> {
    let Sink::Quantize(_, quant) = sink else { return Ok(None) };
    if !region.anchors.is_empty() {
        return Ok(None);
    }
    if let Some(v) = table(l, root, region, sink)? {
        return Ok(Some(v));
    }
    let Some(compiled) = binary(l, region, quant) else { return Ok(None) };
    let stem = match compiled.leaves.len() {
        1 => "qsquare",
        _ => "poi_fused",
    };
    emit_program(l, root, region, sink, compiled, stem).map(Some)
}

/// A function of one quantized tensor as 256 results, computed with the arithmetic of its program.
fn table(l: &mut Lower<'_>, root: NodeId, region: &Region, sink: &Sink) -> Result<Option<Value>> {
    let Some(compiled) = compile(l, root, region, None, sink) else { return Ok(None) };
    let Some((x, table)) = tabulate(l, root, compiled)? else { return Ok(None) };
    let order = x.order();
    let x = l.dense(&x, &order);
    let out = l.alloc(&x.shape, sink.storage(), &order);
    let nodes = sink.covers(&region.nodes);
    let name = l.fused_name("lut", &nodes);
    l.step(Box::new(LutKernel { table }), &[&x], &out, &name, &nodes);
    Ok(Some(out))
}

/// A program's results for all levels, if all that it reads is one quantized tensor of the result's shape.
fn tabulate(l: &Lower<'_>, root: NodeId, compiled: Compiled) -> Result<Option<(Value, Box<[u8; 256]>)>> {
    let mut source: Option<Value> = None;
    for leaf in &compiled.leaves {
        match l.state(*leaf) {
            State::Dequant(v, _) if source.as_ref().is_none_or(|s| s == v) => source = Some(v.clone()),
            _ => return Ok(None),
        }
    }
    let Some(x) = source.filter(|x| l.shape(root).is_ok_and(|s| s == x.shape)) else { return Ok(None) };
    let levels: [u8; 256] = std::array::from_fn(|i| i as u8);
    let mut results = Box::new([0u8; 256]);
    let inputs: Vec<Data<'_>> = compiled.leaves.iter().map(|_| Data::U8(&levels)).collect();
    let body = Pointwise::flat(l.isa, compiled.program, 256)?;
    body.run(&ThreadPool::new(1), &inputs, &mut [DataMut::U8(&mut *results)])?;
    Ok(Some((x, results)))
}

/// A dequantized value at other levels.
pub(crate) fn requantize(l: &mut Lower<'_>, id: NodeId, want: &Quant) -> Result<Value> {
    let sink = Sink::Quantize(id, *want);
    let v = table(l, id, &Region::default(), &sink)?;
    v.ok_or_else(|| l.unsupported(id, "its levels have no table"))
}

/// `dq + dq` or `dq · dq` with clamps behind it: each operand is scaled to the output's units beforehand.
///
/// Sum: `f32(a - za)·(sa/sy) + f32(b - zb)·(sb/sy)`; product: `f32((a - za)·(b - zb))·(sa·sb/sy)`.
fn binary(l: &Lower<'_>, region: &Region, quant: &Quant) -> Option<Compiled> {
    let (first, rest) = region.nodes.split_first()?;
    let Form::Binary(op @ (Binary::Add | Binary::Mul), alpha) = form(l.g, *first)? else { return None };
    let (lo, hi) = clamps(l, rest)?;
    let args: Vec<NodeId> = l.g.node(*first).args[..2].iter().flat_map(Arg::nodes).collect();
    let [a, b] = args.as_slice() else { return None };
    let (State::Dequant(_, qa), State::Dequant(_, qb)) = (l.state(*a), l.state(*b)) else { return None };
    if alpha != 1.0 {
        return None;
    }
    let mut p = Builder::default();
    let sy = quant.q.scale;
    let (sa, sb) = match op {
        Binary::Add => (qa.q.scale / sy, qb.q.scale / sy),
        _ => (1.0, 1.0),
    };
    let x = p.input(Input::U8 { scale: sa, zero_point: qa.q.zero_point });
    let (y, leaves) = if a == b {
        (x, vec![*a])
    } else {
        (p.input(Input::U8 { scale: sb, zero_point: qb.q.zero_point }), vec![*a, *b])
    };
    let mut z = p.binary(op, x, y);
    if op == Binary::Mul {
        let scale = p.constant(qa.q.scale * qb.q.scale / sy);
        z = p.binary(Binary::Mul, z, scale);
    }
    let bound = |x: f32| i32::from(quant.q.eval(x));
    let q = Quantize { qmin: bound(lo), qmax: bound(hi), ..quant.unit() };
    p.store(z, Output::U8(q));
    Some(Compiled { program: p.build().ok()?, leaves })
}

/// A deferred mean as floats.
pub(crate) fn emit_pool(l: &mut Lower<'_>, root: NodeId) -> Result<Value> {
    l.states[root.index()] = State::Unset;
    super::constant::fallback(l, root)?;
    match l.state(root).clone() {
        State::Stored(v) => {
            l.states[root.index()] = State::Deferred(Deferred::Pool);
            Ok(v)
        }
        _ => Err(l.unsupported(root, "its value is not one tensor")),
    }
}
