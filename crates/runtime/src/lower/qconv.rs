//! Quantized convolutions and linear layers: levels in, levels or floats out, by the arithmetic of `numerics`.

use super::computed::Computed;
use super::conv::Epilogue;
use super::{Lower, Region, State};
use crate::calls::{Convolution, Form, Levels, Quant};
use crate::error::Result;
use crate::kernel::{Kernel, QConvKernel, QConvTransposeKernel, QSides, RunLevels, Side, Then};
use crate::memory::Value;
use crate::packing::{Making, Packed, Shared, locked};
use cleave_kernels::pointwise::{Binary, Program, Quantize};
use cleave_kernels::qconv::{
    Activation, Bias, ConvTransposeShape, OutputKind, QConv, QConvTranspose, Requant, Residual,
};
use cleave_kernels::{ConvShape, Isa, KernelError};
use cleave_numerics::multiplier;

/// What the levels of an input mean.
enum Meaning {
    /// What the graph says.
    Known(Quant),
    /// What is computed as the model runs.
    Computed(Box<Computed>),
}

/// The levels that a convolution reads, and what they mean; none if it reads floats.
fn input(l: &Lower<'_>, c: &Convolution) -> Option<(Value, Meaning)> {
    match l.state(c.x) {
        State::Dequant(v, q) => Some((v.clone(), Meaning::Known(*q))),
        State::Computed(x) if c.transposed.is_none() && !c.is_depthwise() => {
            Some((x.levels.clone(), Meaning::Computed(x.clone())))
        }
        _ => None,
    }
}

/// Whether a convolution's input and weight are levels that the kernels take.
pub(super) fn fits(l: &Lower<'_>, c: &Convolution) -> bool {
    input(l, c).is_some() && l.calls.weight_levels(c).is_some_and(|w| w.are_signed())
}

/// What requantization itself does behind the sums: it adds a residual, or applies an activation, and bounds.
struct Absorbed {
    residual: Option<(Value, Quant)>,
    activation: Option<Activation>,
    bounds: (f32, f32),
}

impl Absorbed {
    const NOTHING: Absorbed = Absorbed { residual: None, activation: None, bounds: (f32::NEG_INFINITY, f32::INFINITY) };

    /// A chain `[add(·, dq(r)) | activation] → clamps` from the convolution to the root; none if it is another one.
    fn of(l: &Lower<'_>, c: &Convolution, region: &Region, quant: &Quant) -> Option<Absorbed> {
        let (mut residual, mut activation, mut nodes) = (None, None, region.nodes.as_slice());
        match nodes.split_first().and_then(|(first, rest)| Some((first, l.calls.form(*first)?, rest))) {
            Some((first, Form::Binary(Binary::Add, 1.0), rest)) => {
                let other = match l.calls.reads(*first).as_slice() {
                    [a, b] if *a == c.id => *b,
                    [a, b] if *b == c.id => *a,
                    _ => return None,
                };
                let State::Dequant(v, q) = l.state(other) else { return None };
                if l.calls.shape(other).ok() != l.calls.shape(c.id).ok() {
                    return None;
                }
                (residual, nodes) = (Some((v.clone(), *q)), rest);
            }
            Some((_, Form::Unary(op), rest)) => {
                if let Some(a) = Activation::new(op, &quant.q) {
                    (activation, nodes) = (Some(a), rest);
                }
            }
            _ => {}
        }
        let chained = nodes.windows(2).all(|w| l.calls.reads(w[1]).contains(&w[0]));
        let bounds = l.calls.clamps(nodes).filter(|_| chained)?;
        Some(Absorbed { residual, activation, bounds })
    }
}

/// Emits a quantized convolution with the region behind it: requantized where that is all, else by a program on its
/// results, `f32(acc)·f32(sx·sw)` with the bias. None if no kernel does both.
pub(super) fn emit(l: &mut Lower<'_>, c: &Convolution, region: &Region) -> Result<Option<Value>> {
    let (Some((x, meaning)), Some(w)) = (input(l, c), l.calls.weight_levels(c)) else { return Ok(None) };
    let order = c.order(l.calls.shape(region.root)?.len());
    let absorbed = match (&region.quantize, &meaning) {
        (None, _) if region.nodes.is_empty() => Some(Absorbed::NOTHING),
        (Some((_, quant)), Meaning::Known(_)) => Absorbed::of(l, c, region, quant),
        _ => None,
    };
    let epilogue = match absorbed {
        Some(_) => None,
        None if c.transposed.is_some() => return Ok(None),
        None => match Epilogue::new(l, region, c.id, &order)? {
            None => return Ok(None),
            epilogue => epilogue,
        },
    };
    let mut absorbed = absorbed.unwrap_or(Absorbed::NOTHING);
    let mut residual_stride = None;
    if let Some((v, _)) = &mut absorbed.residual {
        if v.pixel_stride(&order).is_none() {
            *v = l.dense(v, &order);
        }
        let stride = v.pixel_stride(&order);
        residual_stride = Some(stride.ok_or_else(|| l.calls.unsupported(c.id, "its residual has no pixel stride"))?);
    }
    let x = in_arena(l, &x, &c.order(x.shape.len()));
    // A program makes levels of floats itself.
    let to = region.quantize.map(|(_, quant)| quant).filter(|_| epilogue.is_none());
    let (scaling, bias) = Scaling::new(l, c, &w.per_output(c), &meaning, &absorbed, to)?;
    let (out, stride) = l.pixels(region, &order)?;
    let sides = QSides { residual: residual_stride, stride, bytes: to.is_some() };
    let name = l.steps.fused_name(&c.stem("u8s8"), &region.nodes);
    let unit = Unit {
        c: c.clone(),
        isa: l.isa,
        levels: w,
        bias,
        scaling,
        sides,
        program: epilogue.as_ref().map(|e| (e.program.clone(), e.sides.clone())),
        shared: l.packed.of(&l.g.node(c.id).name),
    };
    let mut reads = vec![&x];
    if let Meaning::Computed(x) = &meaning {
        reads.extend([&x.scale, &x.zero]);
    }
    reads.extend(absorbed.residual.iter().map(|(r, _)| r));
    reads.extend(epilogue.iter().flat_map(|e| &e.operands));
    l.step(Making::packing(c.id, move |wait| unit.bind(wait)), &reads, &[&out], &name, &region.covers());
    Ok(Some(out))
}

/// Levels without gaps in this order, in the arena: kernels may read a little past their end.
fn in_arena(l: &mut Lower<'_>, x: &Value, order: &[usize]) -> Value {
    if l.steps.is_outside(x) { l.copied(x, order) } else { l.dense(x, order) }
}

/// What the sums of a convolution are multiplied with.
enum Scaling {
    /// By the input's zero point and the numbers known for it.
    Known(u8, Requant),
    /// A scale for each output channel, times that of the input, which is read as the model runs.
    Computed(Vec<f32>, RunLevels),
}

impl Scaling {
    /// From weights at these scales to floats, or to levels by way of what is absorbed; and the bias that goes with it.
    fn new(
        l: &Lower<'_>,
        c: &Convolution,
        scales: &[f32],
        meaning: &Meaning,
        absorbed: &Absorbed,
        to: Option<Quant>,
    ) -> Result<(Scaling, Bias)> {
        let from = match meaning {
            Meaning::Known(from) => from.q,
            Meaning::Computed(x) => {
                return Ok((Scaling::Computed(scales.to_vec(), x.how), l.calls.bias(c, None, 1.0)?));
            }
        };
        let unit = absorbed.activation.as_ref().map_or(to.map_or(1.0, |to| to.q.scale), Activation::unit);
        let acc_scale: Vec<f32> = scales.iter().map(|sw| from.scale * sw).collect();
        let bias = l.calls.bias(c, Some(&acc_scale), unit)?;
        let requant = match to {
            None => Requant::new(acc_scale, 0),
            Some(to) => {
                let multipliers = scales.iter().map(|sw| multiplier(from.scale, *sw, unit)).collect();
                let Quantize { scale, zero_point, qmin, qmax, .. } = to.within(absorbed.bounds);
                let residual = |r: &Quant| Residual { multiplier: r.q.scale / scale, zero_point: r.q.zero_point };
                let residual = absorbed.residual.as_ref().map(|(_, r)| residual(r));
                let activation = absorbed.activation.clone();
                Requant { qmin, qmax, residual, activation, ..Requant::new(multipliers, zero_point) }
            }
        };
        let zero = u8::try_from(from.zero_point);
        let zero = zero.map_err(|_| l.calls.unsupported(c.id, "the zero point of its input is no byte"))?;
        Ok((Scaling::Known(zero, requant), bias))
    }
}

/// All that the kernel of a quantized convolution is made of.
struct Unit {
    c: Convolution,
    isa: Isa,
    levels: Levels,
    bias: Bias,
    scaling: Scaling,
    sides: QSides,
    /// What runs on its results, and that one's other operands.
    program: Option<(Program, Vec<Side>)>,
    shared: Shared,
}

impl Unit {
    fn bind(&self, wait: bool) -> Option<Result<Box<dyn Kernel>>> {
        Some(self.make(&mut *locked(&self.shared, wait)?))
    }

    fn make(&self, shared: &mut Packed) -> Result<Box<dyn Kernel>> {
        let Unit { c, isa, bias, sides, .. } = self;
        let weights = self.levels.signed().map(|w| c.reorder(w));
        let no_bytes = KernelError::DType { what: "weights of a quantized convolution", expected: "signed bytes" };
        let weights = weights.ok_or(no_bytes)?;
        let out = if sides.bytes { OutputKind::U8 } else { OutputKind::F32 };
        let (body, levels) = match (&self.scaling, c.transposed) {
            (Scaling::Known(zero, requant), None) => {
                let requant = requant.clone();
                let body = match shared {
                    Packed::Quantized(known, of) if of.same_place(&self.levels.tensor) => {
                        known.again(&c.shape, &weights, bias, *zero, requant, out)?
                    }
                    _ => QConv::new(*isa, &c.shape, &weights, bias, *zero, requant, out)?,
                };
                *shared = Packed::Quantized(Box::new(body.clone()), self.levels.tensor.clone());
                (body, None)
            }
            (Scaling::Known(zero, requant), Some(output_pad)) => {
                let ConvShape { n, h, w, c_in, c_out, kh, kw, stride, pad, dilation, groups } = c.shape;
                let shape =
                    ConvTransposeShape { n, h, w, c_in, c_out, kh, kw, stride, pad, output_pad, dilation, groups };
                let body = QConvTranspose::new(*isa, &shape, &weights, bias, *zero, requant.clone(), out)?;
                return Ok(Box::new(QConvTransposeKernel { body, sides: *sides }));
            }
            (Scaling::Computed(scales, levels), _) => {
                (QConv::of_levels(*isa, &c.shape, &weights, bias, scales.clone())?, Some(*levels))
            }
        };
        let then = match &self.program {
            None => Then::Store(*sides),
            Some((program, others)) => {
                Then::Run { program: program.clone(), sides: others.clone(), stride: sides.stride }
            }
        };
        Ok(Box::new(QConvKernel { body, levels, then }))
    }
}
