//! Convolutions and linear layers, and the float ones with their epilogues.

use super::pointwise::compile;
use super::{Deferred, Lower, Region, State, qconv};
use crate::calls::{Affine, Convolution, Weights};
use crate::error::Result;
use crate::kernel::{ConvKernel, ConvTransposeKernel, Side};
use crate::memory::{Storage, Value};
use cleave_ir::NodeId;
use cleave_kernels::conv_f32::{ConvF32, ConvTransposeF32, EpilogueF32, TransposeShape};
use cleave_kernels::pointwise::{Input, Program};
use std::sync::PoisonError;

/// Defers a convolution.
pub(super) fn defer(l: &mut Lower<'_>, id: NodeId) -> Result<Option<State>> {
    let Some(mut c) = l.calls.convolution(id) else { return Ok(None) };
    if let State::Deferred(Deferred::Pad(x, zeros)) = l.state(c.x) {
        c = c.padded(*x, *zeros);
    }
    // What comes before cannot share a kernel with it: done now, chains stay shallow.
    l.settle(c.x)?;
    let c = Box::new(c);
    Ok(Some(State::Deferred(if qconv::fits(l, &c) { Deferred::Quantized(c) } else { Deferred::Convolution(c) })))
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
    if c.transposed.is_some() {
        let body = transposed(l, c, &affine, epilogue)?;
        let out = l.steps.alloc(&shape, Storage::F32, &order);
        l.step(Box::new(ConvTransposeKernel { body }), &[&x], &[&out], &name, &region.covers());
        return Ok(Some(out));
    }
    let body = packed(l, c, &affine, epilogue)?;
    let (out, stride) = l.pixels(region, &order)?;
    let kernel = ConvKernel { body, sides, stride, bytes: region.quantize.is_some() };
    let reads: Vec<&Value> = std::iter::once(&x).chain(&operands).collect();
    l.step(Box::new(kernel), &reads, &[&out], &name, &region.covers());
    Ok(Some(out))
}

/// The convolution with its weights packed, once for all shapes.
fn packed(l: &Lower<'_>, c: &Convolution, affine: &Affine, epilogue: EpilogueF32) -> Result<ConvF32> {
    // With other taps another part of what follows may be in the weights.
    let name = l.g.node(affine.last).name.clone();
    let s = &c.shape;
    // Held while they are packed: another session that compiles the same model waits for them.
    let mut all = l.packed.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((conv, known)) = all.get(&name) {
        let resized = conv.resized(s.n, s.h, s.w);
        if *known == epilogue && resized.shape() == s {
            return Ok(resized);
        }
    }
    let (weights, bias) = l.calls.weights(c, affine)?;
    let conv = match &weights {
        Weights::Floats(w) => ConvF32::new(l.isa, s, w, bias.as_deref(), epilogue.clone())?,
        Weights::Halves(w) => ConvF32::with_halves(l.isa, s, w, bias.as_deref(), epilogue.clone())?,
    };
    all.insert(name, (conv.clone(), epilogue));
    Ok(conv)
}

fn transposed(l: &Lower<'_>, c: &Convolution, affine: &Affine, epilogue: EpilogueF32) -> Result<ConvTransposeF32> {
    let (weights, bias) = l.calls.weights(c, affine)?;
    let shape = TransposeShape { conv: c.shape, output_padding: c.transposed.unwrap_or_default() };
    Ok(match &weights {
        Weights::Floats(w) => ConvTransposeF32::new(l.isa, &shape, w, bias.as_deref(), epilogue)?,
        Weights::Halves(w) => ConvTransposeF32::with_halves(l.isa, &shape, w, bias.as_deref(), epilogue)?,
    })
}
