//! Quantize and dequantize, and the quantized units that are no convolutions: tables, sums, products.

use super::pointwise::{Compiled, compile, emit_program};
use super::{Lower, Region, Rules, State};
use crate::calls::{Form, Quant};
use crate::error::Result;
use crate::kernel::Dense;
use crate::memory::{Value, channels_last, row_major};
use cleave_ir::NodeId;
use cleave_kernels::ThreadPool;
use cleave_kernels::lut::Lut;
use cleave_kernels::pointwise::{Binary, Builder, Data, DataMut, Input, Output, Pointwise, Quantize};
use cleave_kernels::qbinary::{Gate, QBinary, QOp};

/// The ops lowered here.
pub(super) const RULES: Rules = &[
    ("quantized_decomposed.quantize_per_tensor.default", quantize),
    ("quantized_decomposed.dequantize_per_tensor.default", dequantize),
];

fn quantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, quant)) = l.calls.converted(id) else { return Ok(None) };
    Ok(Some(State::Stored(match l.state(x).clone() {
        State::Dequant(v, q) if q == quant => v,
        _ => l.materialise(x, Some((id, quant)))?,
    })))
}

fn dequantize(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some((x, quant)) = l.calls.converted(id) else { return Ok(None) };
    Ok(match l.state(x) {
        State::Stored(v) if v.storage == quant.storage => Some(State::Dequant(v.clone(), quant)),
        _ => None,
    })
}

/// Emits a quantized unit that has arithmetic of its own. None if the region is none.
pub(super) fn emit(l: &mut Lower<'_>, region: &Region) -> Result<Option<Value>> {
    let Some((_, quant)) = &region.quantize else { return Ok(None) };
    if !region.anchors.is_empty() {
        return Ok(None);
    }
    if let Some(v) = table(l, region)? {
        return Ok(Some(v));
    }
    if let Some(v) = transposed(l, region, quant) {
        return Ok(Some(v));
    }
    match Operands::of(l, region) {
        Some(o) => o.emit(l, region, quant),
        None => Ok(None),
    }
}

/// Emits a kernel for all of a region, of levels in this order.
fn emit_dense(
    l: &mut Lower<'_>,
    region: &Region,
    stem: &str,
    kernel: Dense,
    reads: &[&Value],
    order: &[usize],
) -> Value {
    let out = l.steps.alloc(&reads[0].shape, region.storage(), order);
    let nodes = region.covers();
    let name = l.steps.fused_name(stem, &nodes);
    l.step(Box::new(kernel), reads, &[&out], &name, &nodes);
    out
}

/// Row-major floats to levels with the channels last, in one pass.
fn transposed(l: &mut Lower<'_>, region: &Region, quant: &Quant) -> Option<Value> {
    let State::Stored(v) = l.state(region.root).clone() else { return None };
    let (rank, last) = (v.shape.len(), channels_last(v.shape.len()));
    let moves = rank >= 3 && !v.is_dense(&last) && v.is_dense(&row_major(rank));
    if !moves || l.order_for(region.stored(), std::slice::from_ref(&v), &v.shape) != last {
        return None;
    }
    let dims = [v.shape[0], v.shape[1], v.shape[2..].iter().product()];
    Some(emit_dense(l, region, "poi_fused", Dense::QuantizeNchw(l.isa, quant.q, dims), &[&v], &last))
}

/// A function of one quantized tensor of the result's shape as 256 results, computed with the arithmetic of its program.
fn table(l: &mut Lower<'_>, region: &Region) -> Result<Option<Value>> {
    let Some(compiled) = compile(l, region, None) else { return Ok(None) };
    let mut source: Option<&Value> = None;
    for leaf in &compiled.leaves {
        match l.state(*leaf) {
            State::Dequant(v, _) if source.is_none_or(|s| s == v) => source = Some(v),
            _ => return Ok(None),
        }
    }
    let shape = l.calls.shape(region.root)?;
    let Some(x) = source.filter(|x| x.shape == shape).cloned() else { return Ok(None) };
    let levels: [u8; 256] = std::array::from_fn(|i| i as u8);
    let mut table = [0u8; 256];
    let inputs: Vec<Data<'_>> = compiled.leaves.iter().map(|_| Data::U8(&levels)).collect();
    let body = Pointwise::flat(l.isa, compiled.program, 256)?;
    body.run(&ThreadPool::new(1), &inputs, &mut [DataMut::U8(&mut table)])?;
    let (x, lut) = (l.gapless(&x), Dense::Lut(Lut::new(l.isa, table)));
    Ok(Some(emit_dense(l, region, "lut", lut, &[&x], &x.order())))
}

/// A dequantized value at other levels.
pub(super) fn requantize(l: &mut Lower<'_>, id: NodeId, want: Quant) -> Result<Value> {
    let region = Region { root: id, quantize: Some((id, want)), nodes: vec![], anchors: vec![] };
    table(l, &region)?.ok_or_else(|| l.calls.unsupported(id, "its levels have no table"))
}

/// `dq + dq` or `dq · dq` with clamps behind it.
struct Operands {
    op: Binary,
    nodes: [NodeId; 2],
    quants: [Quant; 2],
    bounds: (f32, f32),
}

impl Operands {
    fn of(l: &Lower<'_>, region: &Region) -> Option<Operands> {
        let (first, rest) = region.nodes.split_first()?;
        let Form::Binary(op @ (Binary::Add | Binary::Mul), 1.0) = l.calls.form(*first)? else { return None };
        let bounds = l.calls.clamps(rest)?;
        let nodes: [NodeId; 2] = l.calls.reads(*first).try_into().ok()?;
        let (State::Dequant(_, qa), State::Dequant(_, qb)) = (l.state(nodes[0]), l.state(nodes[1])) else {
            return None;
        };
        Some(Operands { op, nodes, quants: [*qa, *qb], bounds })
    }

    /// With operands that are broadcast otherwise: the same product; of a sum the zero point is added after rounding.
    fn program(&self, quant: &Quant) -> Option<Compiled> {
        let [qa, qb] = &self.quants;
        let mut p = Builder::default();
        let sy = quant.q.scale;
        let (sa, sb) = match self.op {
            Binary::Add => (qa.q.scale / sy, qb.q.scale / sy),
            _ => (1.0, 1.0),
        };
        let x = p.input(Input::U8 { scale: sa, zero_point: qa.q.zero_point });
        let (y, leaves) = if self.nodes[0] == self.nodes[1] {
            (x, vec![self.nodes[0]])
        } else {
            (p.input(Input::U8 { scale: sb, zero_point: qb.q.zero_point }), self.nodes.to_vec())
        };
        let mut z = p.binary(self.op, x, y);
        if self.op == Binary::Mul {
            let scale = p.constant(qa.q.scale * qb.q.scale / sy);
            z = p.binary(Binary::Mul, z, scale);
        }
        // The values are in units of the output's scale.
        let mut q = Quantize { scale: 1.0, ..quant.within(self.bounds) };
        if self.op == Binary::Mul {
            // As `QProduct`: the zero point takes part in the rounding.
            let zero = p.constant(q.zero_point as f32);
            z = p.binary(Binary::Add, z, zero);
            q.zero_point = 0;
        }
        p.store(z, Output::U8(q));
        Some(Compiled { program: p.build().ok()?, leaves })
    }

    /// Two tensors of one shape and order, or a tensor and a gate, by a kernel of their own; all else by a program.
    fn emit(&self, l: &mut Lower<'_>, region: &Region, quant: &Quant) -> Result<Option<Value>> {
        let (a, b) = (l.leaf(self.nodes[0])?, l.leaf(self.nodes[1])?);
        let shape = l.calls.shape(region.root)?;
        let [qa, qb] = self.quants.map(|q| q.dequantize());
        // Products, as sums, are the same either way round to within what their arithmetic says.
        let swap = a.shape != shape && b.shape == shape;
        let (a, b, qa, qb) = if swap { (b, a, qb, qa) } else { (a, b, qa, qb) };
        let op = if self.op == Binary::Add { QOp::Add } else { QOp::Mul };
        let to = quant.within(self.bounds);
        let body = QBinary::new(l.isa, op, qa, qb, to)?;
        let order = a.order();
        let kernel = if a.shape != shape || !a.is_dense(&order) {
            None
        } else if b.shape == shape && b.is_dense(&order) {
            Some(Dense::QBinary(body))
        } else if a.is_channels_last() && b.shape == [shape[0], shape[1], 1, 1] && b.is_dense(&row_major(4)) {
            let dims = [shape[0], shape[2..].iter().product(), shape[1]];
            let fixed = self.op == Binary::Mul && l.g.fixes_gates() && dims[2] <= Gate::CHANNELS;
            Some(match Gate::new(l.isa, qa, qb, to) {
                Some(gate) if fixed => Dense::Gate(gate, dims),
                _ => Dense::QGate(body, dims),
            })
        } else {
            None
        };
        match kernel {
            Some(kernel) => Ok(Some(emit_dense(l, region, "poi_fused", kernel, &[&a, &b], &order))),
            None => self.program(quant).map(|program| emit_program(l, region, program)).transpose(),
        }
    }
}
