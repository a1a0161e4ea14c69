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
    ("aten.ne", 13, |o| {
        let to = compared(o)?;
        let (a, b) = (o.operand("self", to)?, o.operand("other", to)?);
        let same = o.push("Equal", vec![a, b], vec![]);
        o.done("Not", vec![same], vec![])
    }),
    ("aten.lt", 13, |o| compare(o, "Less")),
    ("aten.le", 13, |o| compare(o, "LessOrEqual")),
    ("aten.gt", 13, |o| compare(o, "Greater")),
    ("aten.ge", 13, |o| compare(o, "GreaterOrEqual")),
    ("aten.logical_and", 13, |o| truth(o, "And")),
    ("aten.logical_or", 13, |o| truth(o, "Or")),
    ("aten.logical_xor", 13, |o| truth(o, "Xor")),
    ("aten.logical_not", 13, |o| {
        let x = o.operand("self", DType::Bool)?;
        o.done("Not", vec![x], vec![])
    }),
    ("aten.where.self", 13, choose),
    ("aten.where.ScalarSelf", 13, choose),
    ("aten.where.ScalarOther", 13, choose),
    ("aten.where.Scalar", 13, choose),
    ("aten.isnan", 13, |o| test(o, "IsNaN")),
    ("aten.isinf", 13, |o| test(o, "IsInf")),
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
    ("aten.tan", 13, |o| unary(o, "Tan")),
    ("aten.asin", 13, |o| unary(o, "Asin")),
    ("aten.acos", 13, |o| unary(o, "Acos")),
    ("aten.atan", 13, |o| unary(o, "Atan")),
    ("aten.sinh", 13, |o| unary(o, "Sinh")),
    ("aten.cosh", 13, |o| unary(o, "Cosh")),
    ("aten.asinh", 13, |o| unary(o, "Asinh")),
    ("aten.acosh", 13, |o| unary(o, "Acosh")),
    ("aten.atanh", 13, |o| unary(o, "Atanh")),
    ("aten.fmod", 13, |o| {
        let to = o.dtype(o.id)?;
        let (a, b) = (o.operand("self", to)?, o.operand("other", to)?);
        o.done("Mod", vec![a, b], vec![int("fmod", 1)])
    }),
    // Exact to the last bits only away from 0, where ONNX has no operator for them.
    ("aten.log1p", 13, |o| {
        let to = o.dtype(o.id)?;
        let (x, one) = (o.operand("self", to)?, o.number(1.0, to));
        let sum = o.push("Add", vec![x, one], vec![]);
        o.done("Log", vec![sum], vec![])
    }),
    ("aten.expm1", 13, |o| {
        let to = o.dtype(o.id)?;
        let (x, one) = (part(o, "Exp")?, o.number(1.0, to));
        o.done("Sub", vec![x, one], vec![])
    }),
    ("aten.softplus", 13, softplus),
    ("aten.selu", 13, |o| unary(o, "Selu")),
    ("aten.celu", 13, |o| {
        let (x, alpha) = (o.input("self")?, o.args.float("alpha")?);
        o.done("Celu", vec![x], vec![float("alpha", alpha)])
    }),
    ("aten.hardshrink", 13, |o| {
        let (x, lambd) = (o.input("self")?, o.args.float("lambd")?);
        o.done("Shrink", vec![x], vec![float("lambd", lambd)])
    }),
    ("aten.softshrink", 13, |o| {
        let (x, lambd) = (o.input("self")?, o.args.float("lambd")?);
        o.done("Shrink", vec![x], vec![float("lambd", lambd), float("bias", lambd)])
    }),
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

/// A scale goes over the positive part too, an input's scale over the negative one only.
fn elu(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("self")?;
    let to = o.dtype(o.id)?;
    let (scale, input) = (o.args.float("scale")?, o.args.float("input_scale")?);
    let alpha = float("alpha", o.args.float("alpha")?);
    if scale == 1.0 && input == 1.0 {
        return o.done("Elu", vec![x], vec![alpha]);
    }
    let mut y = x.clone();
    if input != 1.0 {
        let factor = o.number(input, to);
        let zero = o.number(0.0, to);
        let below = o.push("Min", vec![x.clone(), zero.clone()], vec![]);
        let scaled = o.push("Mul", vec![below, factor], vec![]);
        let above = o.push("Max", vec![x, zero], vec![]);
        y = o.push("Add", vec![above, scaled], vec![]);
    }
    let y = o.push("Elu", vec![y], vec![alpha]);
    let factor = o.number(scale, to);
    o.done("Mul", vec![y, factor], vec![])
}

/// ONNX's has neither factor nor threshold; above torch's the result is the argument in f32 all the same.
fn softplus(o: &mut Out<'_, '_>) -> Step {
    let to = o.dtype(o.id)?;
    let (beta, threshold) = (o.args.float("beta")?, o.args.float("threshold")?);
    let x = o.operand("self", to)?;
    if beta == 1.0 && threshold == 20.0 {
        return o.done("Softplus", vec![x], vec![]);
    }
    let (factor, limit) = (o.number(beta, to), o.number(threshold, to));
    let scaled = o.push("Mul", vec![x.clone(), factor.clone()], vec![]);
    let soft = o.push("Softplus", vec![scaled.clone()], vec![]);
    let soft = o.push("Div", vec![soft, factor], vec![]);
    let far = o.push("Greater", vec![scaled, limit], vec![]);
    o.done("Where", vec![far, x, soft], vec![])
}

fn test(o: &mut Out<'_, '_>, op: &str) -> Step {
    let x = o.input("self")?;
    o.done(op, vec![x], vec![])
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
