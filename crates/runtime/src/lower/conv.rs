//! Convolutions and linear layers, and the float ones with their epilogues.

use super::pointwise::compile;
use super::{Deferred, Lower, Region, State, qconv};
use crate::calls::{Affine, ConvWeights, Convolution, Weights};
use crate::error::Result;
use crate::kernel::{ConvKernel, ConvTransposeKernel, Kernel, Side};
use crate::memory::{Storage, Value};
use crate::packing::{Making, Packed, locked};
use cleave_ir::NodeId;
use cleave_kernels::conv_f32::{ConvF32, ConvTransposeF32, EpilogueF32, TransposeShape};
use cleave_kernels::pointwise::{Input, Program};
use cleave_kernels::{ConvShape, Isa};

/// Defers a convolution.
pub(super) fn defer(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some(mut c) = l.calls.convolution(id) else { return Ok(None) };
    if let State::Deferred(Deferred::Pad(x, zeros)) = l.state(c.x) {
        c = c.padded(*x, *zeros);
    }
    // What comes before cannot share a kernel with it: done now, chains stay shallow.
    l.settle(c.x)?;
    let c = Box::new(c);
    Ok(Some(State::Deferred(if qconv::fits(l, &c) && !l.wide.contains(&id) {
        Deferred::Quantized(c)
    } else {
        Deferred::Convolution(c)
    })))
}

/// A program behind a compute op, and what it reads but for the op's results.
pub(super) struct Epilogue {
    pub(super) program: Program,
    pub(super) operands: Vec<Value>,
    /// How the kernel addresses the operands.
    pub(super) sides: Vec<Side>,
}

impl Epilogue {
    /// The program from an anchor's results to a region's, stored in this order. None if a program cannot hold it, or an
    /// operand lies so that the kernel cannot address it.
    pub(super) fn new(l: &mut Lower<'_>, region: &Region, anchor: NodeId, order: &[usize]) -> Result<Option<Self>> {
        let Some(compiled) = compile(l, region, Some(anchor)) else { return Ok(None) };
        let shape = l.calls.shape(region.root)?;
        let (mut operands, mut sides) = (vec![], vec![]);
        for (n, input) in compiled.leaves.iter().zip(&compiled.program.inputs()[1..]) {
            let (mut v, bytes) = (l.leaf(*n)?, *input != Input::F32);
            if v.shape == shape && Side::new(&v, bytes, &shape, order).is_none() {
                v = l.dense(&v, order);
            }
            let Some(side) = Side::new(&v, bytes, &shape, order) else { return Ok(None) };
            sides.push(side);
            operands.push(v);
        }
        Ok(Some(Epilogue { program: compiled.program, operands, sides }))
    }
}

/// Emits a float convolution with the region behind it. None if no kernel does both.
pub(super) fn emit(l: &mut Lower<'_>, c: &Convolution, region: &Region) -> Result<Option<Value>> {
    let shape = l.calls.shape(region.root)?;
    let order = c.order(shape.len());
    let affine = Affine::behind(&l.calls, c, &region.nodes);
    let rest = Region { nodes: affine.rest(&region.nodes), ..region.clone() };
    let clamp = l.calls.clamps(&rest.nodes).filter(|_| region.quantize.is_none());
    let (epilogue, operands, sides) = match clamp {
        Some((lo, hi)) => (EpilogueF32::Clamp { lo, hi }, vec![], vec![]),
        None if c.transposed.is_some() => return Ok(None),
        None => match Epilogue::new(l, &rest, affine.last, &order)? {
            Some(e) => (EpilogueF32::Program(e.program), e.operands, e.sides),
            None => return Ok(None),
        },
    };
    let x = l.value(c.x)?;
    let x = l.dense(&x, &c.order(x.shape.len()));
    let types = if l.calls.halves(c.weight).is_some() { "f32f16" } else { "f32" };
    let name = l.steps.fused_name(&c.stem(types), &rest.nodes);
    // With other taps another part of what follows may be in the weights.
    let shared = l.packed.of(&l.g.node(affine.last).name);
    let (isa, s, weights) = (l.isa, c.shape, l.calls.weights(c, affine)?);
    if let Some(output_padding) = c.transposed {
        let form = TransposeShape { conv: s, output_padding };
        let pack = move |_| Some(transposed(isa, &form, &weights, &epilogue));
        let out = l.steps.alloc(&shape, Storage::F32, &order);
        l.step(making(l, c, pack)?, &[&x], &[&out], &name, &region.covers());
        return Ok(Some(out));
    }
    let (out, stride) = l.pixels(region, &order)?;
    let bytes = region.quantize.is_some();
    let pack = move |wait| {
        let mut shared = locked(&shared, wait)?;
        let body = packed(isa, &s, &weights, &epilogue, &mut shared);
        Some(body.map(|body| Box::new(ConvKernel { body, sides: sides.clone(), stride, bytes, in_place: false }) as _))
    };
    let reads: Vec<&Value> = std::iter::once(&x).chain(&operands).collect();
    l.step(making(l, c, pack)?, &reads, &[&out], &name, &region.covers());
    Ok(Some(out))
}

/// The kernel later; at once where weights are computed for it, which are not kept until then.
fn making(
    l: &Lower<'_>,
    c: &Convolution,
    pack: impl Fn(bool) -> Option<Result<Box<dyn Kernel>>> + Send + Sync + 'static,
) -> Result<Making> {
    let computed = l.calls.is_meant(c.weight) && l.calls.halves(c.weight).is_none();
    match if computed { pack(true) } else { None } {
        Some(kernel) => kernel.map(Making::Made),
        None => Ok(Making::packing(c.id, pack)),
    }
}

/// The convolution with its weights packed, once for all shapes.
fn packed(
    isa: Isa,
    s: &ConvShape,
    weights: &ConvWeights,
    epilogue: &EpilogueF32,
    shared: &mut Packed,
) -> Result<ConvF32> {
    if let Packed::Float(conv) = shared {
        let resized = conv.resized(s.n, s.h, s.w);
        if conv.epilogue() == epilogue && resized.shape() == s {
            return Ok(resized);
        }
    }
    let conv = weights.pack(isa, s, epilogue.clone())?;
    *shared = Packed::Float(Box::new(conv.clone()));
    Ok(conv)
}

fn transposed(
    isa: Isa,
    shape: &TransposeShape,
    weights: &ConvWeights,
    epilogue: &EpilogueF32,
) -> Result<Box<dyn Kernel>> {
    let (bias, then) = (weights.bias.as_deref(), epilogue.clone());
    let body = match weights.ordered() {
        Weights::Floats(w) => ConvTransposeF32::new(isa, shape, &w, bias, then)?,
        Weights::Halves(w) => ConvTransposeF32::with_halves(isa, shape, &w, bias, then)?,
    };
    Ok(Box::new(ConvTransposeKernel { body }))
}
