//! Quantize and dequantize, and the quantized units that are no convolutions: tables, sums, products, means.

use super::conv::clamps;
use super::fuse::{Region, Sink};
use super::pointwise::{Compiled, Form, compile, emit_program, form, leaf};
use super::{Lower, Quant, Rules, State};
use crate::error::Result;
use crate::kernel::Dense;
use crate::memory::{Value, row_major};
use cleave_ir::{Arg, NodeId};
use cleave_kernels::ThreadPool;
use cleave_kernels::lut::Lut;
use cleave_kernels::pointwise::{Binary, Builder, Data, DataMut, Input, Output, Pointwise, Quantize};
use cleave_kernels::qbinary::{Gate, QBinary, QOp};
use cleave_kernels::quant::Dequantize;
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
    if let Some(v) = transposed(l, root, region, sink, quant)? {
        return Ok(Some(v));
    }
    match Operands::of(l, region) {
        Some(o) => o.emit(l, root, region, sink, quant),
        None => Ok(None),
    }
}

/// Row-major floats to levels with the channels last, in one pass.
fn transposed(l: &mut Lower<'_>, root: NodeId, region: &Region, sink: &Sink, quant: &Quant) -> Result<Option<Value>> {
    let State::Stored(v) = l.state(root).clone() else { return Ok(None) };
    let last = Lower::spatial_order(v.shape.len());
    let wanted = l.order_for(sink.node(root), std::slice::from_ref(&v), &v.shape) == last;
    if !region.nodes.is_empty()
        || v.shape.len() < 3
        || !wanted
        || v.is_dense(&last)
        || !v.is_dense(&row_major(v.shape.len()))
    {
        return Ok(None);
    }
    let out = l.alloc(&v.shape, sink.storage(), &last);
    let dims = [v.shape[0], v.shape[1], v.shape[2..].iter().product()];
    let kernel = Dense::QuantizeNchw(l.isa, quant.q, dims);
    l.step(Box::new(kernel), &[&v], &out, "poi_fused_quantize", &sink.covers(&[]));
    Ok(Some(out))
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
    l.step(Box::new(Dense::Lut(Lut::new(l.isa, *table))), &[&x], &out, &name, &nodes);
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
        let Form::Binary(op @ (Binary::Add | Binary::Mul), 1.0) = form(l.g, *first)? else { return None };
        let bounds = clamps(l, rest)?;
        let args: Vec<NodeId> = l.g.node(*first).args[..2].iter().flat_map(Arg::nodes).collect();
        let nodes: [NodeId; 2] = args.try_into().ok()?;
        let (State::Dequant(_, qa), State::Dequant(_, qb)) = (l.state(nodes[0]), l.state(nodes[1])) else {
            return None;
        };
        Some(Operands { op, nodes, quants: [*qa, *qb], bounds })
    }

    /// The output's range with the clamps, for values in units of its scale.
    fn unit(&self, quant: &Quant) -> Quantize {
        let bound = |x: f32| i32::from(quant.q.eval(x));
        Quantize { qmin: bound(self.bounds.0), qmax: bound(self.bounds.1), ..quant.unit() }
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
        let mut q = self.unit(quant);
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
    fn emit(
        &self,
        l: &mut Lower<'_>,
        root: NodeId,
        region: &Region,
        sink: &Sink,
        quant: &Quant,
    ) -> Result<Option<Value>> {
        let (a, b) = (leaf(l, self.nodes[0])?, leaf(l, self.nodes[1])?);
        let shape = l.shape(root)?;
        let [qa, qb] = self.quants;
        // Products, as sums, are the same either way round to within what their arithmetic says.
        let swap = a.shape != shape && b.shape == shape;
        let (a, b, qa, qb) = if swap { (b, a, qb, qa) } else { (a, b, qa, qb) };
        let part = |q: &Quant| Dequantize { scale: q.q.scale, zero_point: q.q.zero_point };
        let op = if self.op == Binary::Add { QOp::Add } else { QOp::Mul };
        let to = Quantize { scale: quant.q.scale, ..self.unit(quant) };
        let body = QBinary::new(l.isa, op, part(&qa), part(&qb), to)?;
        let order = a.order();
        let kernel = if a.shape != shape || !a.is_dense(&order) {
            None
        } else if b.shape == shape && b.is_dense(&order) {
            Some(Dense::QBinary(body))
        } else if a.is_channels_last() && b.shape == [shape[0], shape[1], 1, 1] && b.is_dense(&row_major(4)) {
            let dims = [shape[0], shape[2..].iter().product(), shape[1]];
            let gate = Gate::new(l.isa, part(&qa), part(&qb), to);
            let fixed = self.op == Binary::Mul && l.g.fixes_gates() && dims[2] <= Gate::CHANNELS;
            Some(match gate {
                Some(gate) if fixed => Dense::Gate(gate, dims),
                _ => Dense::QGate(body, dims),
            })
        } else {
            None
        };
        let Some(kernel) = kernel else {
            let Some(compiled) = self.program(quant) else { return Ok(None) };
            return emit_program(l, root, region, sink, compiled, "poi_fused").map(Some);
        };
        let out = l.alloc(&shape, sink.storage(), &order);
        let nodes = sink.covers(&region.nodes);
        let stem = l.fused_name("poi_fused", &nodes);
        l.step(Box::new(kernel), &[&a, &b], &out, &stem, &nodes);
        Ok(Some(out))
    }
}
