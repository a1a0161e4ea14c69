//! Arithmetic and functions of one element.

use super::Entry;
use super::args::{float, int, text};
use super::out::Out;
use crate::onnx::tensor::code_of;
use cleave_ir::{Arg, Meta};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("aten.add.Tensor", 13, |o| binary(o, "Add")),
    ("aten.sub.Tensor", 13, |o| binary(o, "Sub")),
    ("aten.mul.Tensor", 13, |o| binary(o, "Mul")),
    ("aten.div.Tensor", 13, |o| binary(o, "Div")),
    ("aten.add.Scalar", 13, |o| binary(o, "Add")),
    ("aten.sub.Scalar", 13, |o| binary(o, "Sub")),
    ("aten.mul.Scalar", 13, |o| binary(o, "Mul")),
    ("aten.div.Scalar", 13, |o| binary(o, "Div")),
    ("aten.maximum", 13, |o| binary(o, "Max")),
    ("aten.minimum", 13, |o| binary(o, "Min")),
    ("aten.rsub.Scalar", 13, rsub),
    ("aten.pow.Tensor_Scalar", 13, pow),
    ("aten.pow.Tensor_Tensor", 13, pow),
    ("aten.eq", 13, |o| compare(o, "Equal")),
    ("aten.lt", 13, |o| compare(o, "Less")),
    ("aten.le", 13, |o| compare(o, "LessOrEqual")),
    ("aten.gt", 13, |o| compare(o, "Greater")),
    ("aten.ge", 13, |o| compare(o, "GreaterOrEqual")),
    ("aten.logical_and", 13, |o| truth(o, "And")),
    ("aten.logical_or", 13, |o| truth(o, "Or")),
    ("aten.logical_not", 13, |o| unary(o, "Not")),
    ("aten.where.self", 13, choose),
    ("aten.relu", 14, |o| unary(o, "Relu")),
    ("aten.sigmoid", 13, |o| unary(o, "Sigmoid")),
    ("aten.tanh", 13, |o| unary(o, "Tanh")),
    ("aten.erf", 13, |o| unary(o, "Erf")),
    ("aten.exp", 13, |o| unary(o, "Exp")),
    ("aten.log", 13, |o| unary(o, "Log")),
    ("aten.sqrt", 13, |o| unary(o, "Sqrt")),
    ("aten.reciprocal", 13, |o| unary(o, "Reciprocal")),
    ("aten.neg", 13, |o| unary(o, "Neg")),
    ("aten.abs", 13, |o| unary(o, "Abs")),
    ("aten.floor", 13, |o| unary(o, "Floor")),
    ("aten.ceil", 13, |o| unary(o, "Ceil")),
    ("aten.round", 13, |o| unary(o, "Round")),
    ("aten.sign", 13, |o| unary(o, "Sign")),
    ("aten.sin", 13, |o| unary(o, "Sin")),
    ("aten.cos", 13, |o| unary(o, "Cos")),
    ("aten.rsqrt", 13, |o| {
        let root = part(o, "Sqrt")?;
        o.done("Reciprocal", vec![root], vec![])
    }),
    ("aten.clamp", 13, |o| clip(o, "min", "max")),
    ("aten.hardtanh", 13, |o| clip(o, "min_val", "max_val")),
    ("aten.relu6", 13, |o| bounded(o, Some(0.0), Some(6.0))),
    ("aten.hardswish", 14, |o| unary(o, "HardSwish")),
    ("aten.hardsigmoid", 13, |o| {
        let x = o.input("self")?;
        o.done("HardSigmoid", vec![x], vec![float("alpha", 1.0 / 6.0), float("beta", 0.5)])
    }),
    ("aten.silu", 13, |o| {
        let (x, gate) = (o.input("self")?, part(o, "Sigmoid")?);
        o.done("Mul", vec![x, gate], vec![])
    }),
    ("aten.mish", 18, |o| unary(o, "Mish")),
    ("aten.gelu", 20, gelu),
    ("aten.leaky_relu", 13, |o| {
        let (x, slope) = (o.input("self")?, o.args.float("negative_slope")?);
        o.done("LeakyRelu", vec![x], vec![float("alpha", slope)])
    }),
    ("aten.elu", 13, elu),
    ("aten.softplus", 13, softplus),
    ("aten.prelu", 13, prelu),
    ("aten._to_copy", 13, cast),
    ("aten.to.dtype", 13, cast),
    ("aten.clone", 13, same),
    ("aten.alias", 13, same),
    ("aten.detach", 13, same),
    ("aten.contiguous", 13, same),
    ("aten.lift_fresh_copy", 13, same),
    ("aten.dropout", 13, |o| {
        if o.args.bool("train")? {
            return Err("dropout in training mode".into());
        }
        let x = o.input("input")?;
        o.alias(x)
    }),
];

type Step = Result<(), String>;

fn same(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    o.alias(x)
}

fn unary(o: &mut Out<'_, '_>, op: &str) -> Step {
    let to = if matches!(op, "Not") { DType::Bool } else { o.dtype(o.id)? };
    let x = o.operand("self", to)?;
    o.done(op, vec![x], vec![])
}

/// A function of the argument on the way to the result.
fn part(o: &mut Out<'_, '_>, op: &str) -> Result<String, String> {
    let to = o.dtype(o.id)?;
    let x = o.operand("self", to)?;
    Ok(o.push(op, vec![x], vec![]))
}

/// Both operands in the result's type; `alpha` multiplies the second.
fn binary(o: &mut Out<'_, '_>, op: &str) -> Step {
    let to = o.dtype(o.id)?;
    let (a, mut b) = (o.operand("self", to)?, o.operand("other", to)?);
    if let Some(alpha) = o.args.opt_float("alpha").unwrap_or(None).filter(|a| *a != 1.0) {
        let alpha = o.number(alpha, to);
        b = o.push("Mul", vec![b, alpha], vec![]);
    }
    o.done(op, vec![a, b], vec![])
}

fn rsub(o: &mut Out<'_, '_>) -> Step {
    o.args.only("alpha", &Arg::Int(1))?;
    let to = o.dtype(o.id)?;
    let (a, b) = (o.operand("self", to)?, o.operand("other", to)?);
    o.done("Sub", vec![b, a], vec![])
}

fn pow(o: &mut Out<'_, '_>) -> Step {
    let to = o.dtype(o.id)?;
    let (a, e) = (o.operand("self", to)?, o.operand("exponent", to)?);
    o.done("Pow", vec![a, e], vec![])
}

/// The type in which operands are compared: a tensor's, the wider one's of two.
fn compared(o: &Out<'_, '_>) -> Result<DType, String> {
    let of = |name: &str| match o.args.get(name) {
        Ok(Arg::Node(id)) => match &o.w.g.node(*id).meta {
            Meta::Tensor(t) => Some(t.dtype),
            _ => None,
        },
        Ok(Arg::Float(v)) if v.fract() != 0.0 => Some(DType::F32),
        _ => None,
    };
    let found = [of("self"), of("other")].into_iter().flatten();
    found.reduce(cleave_ir::ops::infer::promote).ok_or_else(|| "no tensor to compare".into())
}

fn compare(o: &mut Out<'_, '_>, op: &str) -> Step {
    let to = compared(o)?;
    let (a, b) = (o.operand("self", to)?, o.operand("other", to)?);
    o.done(op, vec![a, b], vec![])
}

fn truth(o: &mut Out<'_, '_>, op: &str) -> Step {
    let (a, b) = (o.operand("self", DType::Bool)?, o.operand("other", DType::Bool)?);
    o.done(op, vec![a, b], vec![])
}

fn choose(o: &mut Out<'_, '_>) -> Step {
    let to = o.dtype(o.id)?;
    let inputs = vec![o.operand("condition", DType::Bool)?, o.operand("self", to)?, o.operand("other", to)?];
    o.done("Where", inputs, vec![])
}

fn clip(o: &mut Out<'_, '_>, min: &str, max: &str) -> Step {
    let (min, max) = (o.args.opt_float(min)?, o.args.opt_float(max)?);
    bounded(o, min, max)
}

fn bounded(o: &mut Out<'_, '_>, min: Option<f64>, max: Option<f64>) -> Step {
    let to = o.dtype(o.id)?;
    let x = o.operand("self", to)?;
    let mut bound = |v: Option<f64>| v.map_or(String::new(), |v| o.number(v, to));
    let inputs = vec![x, bound(min), bound(max)];
    o.done("Clip", inputs, vec![])
}

fn gelu(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    let how = if *o.args.get("approximate")? == Arg::Str("tanh".into()) { "tanh" } else { "none" };
    o.done("Gelu", vec![x], vec![text("approximate", how)])
}

fn elu(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    if o.args.float("scale")? != 1.0 || o.args.float("input_scale")? != 1.0 {
        return Err("a scaled ELU cannot be written".into());
    }
    let alpha = float("alpha", o.args.float("alpha")?);
    o.done("Elu", vec![x], vec![alpha])
}

/// Above the threshold, 20, torch's is `x`, which is what f32 makes of ONNX's.
fn softplus(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    if o.args.float("beta")? != 1.0 || o.args.float("threshold")? != 20.0 {
        return Err("a scaled Softplus cannot be written; decompose it first".into());
    }
    o.done("Softplus", vec![x], vec![])
}

/// ONNX broadcasts slopes from the last dimension, torch puts them on dimension 1.
fn prelu(o: &mut Out<'_, '_>) -> Step {
    let (x, mut slope) = (o.input("self")?, o.input("weight")?);
    let rank = o.shape(o.args.tensor("self")?)?.len();
    let one = o.shape(o.args.tensor("weight")?)?.iter().all(|d| d.is(1));
    if !one && rank > 2 {
        let mut shape = vec![1i64; rank - 1];
        shape[0] = -1;
        let shape = o.ints(&shape);
        slope = o.push("Reshape", vec![slope, shape], vec![]);
    }
    o.done("PRelu", vec![x, slope], vec![])
}

fn cast(o: &mut Out<'_, '_>) -> Step {
    let (x, to) = (o.input("self")?, o.dtype(o.id)?);
    if o.dtype(o.args.tensor("self")?)? == to {
        return o.alias(x);
    }
    o.done("Cast", vec![x], vec![int("to", i64::from(code_of(to)))])
}
