//! Functions of one element: computed in f64, rounded to the result's type.

use super::EvalFn;
use super::ctx::Ctx;
use super::pointwise::{combined, max, min};
use super::value::{Array, Data, Value, round_to};
use crate::error::Result;
use cleave_ir::schema::Type;
use cleave_numerics::DType;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.exp.default", |c| float(c, f64::exp)),
    ("aten.expm1.default", |c| float(c, f64::exp_m1)),
    ("aten.log.default", |c| float(c, f64::ln)),
    ("aten.log1p.default", |c| float(c, f64::ln_1p)),
    ("aten.log2.default", |c| float(c, f64::log2)),
    ("aten.log10.default", |c| float(c, f64::log10)),
    ("aten.exp2.default", |c| float(c, f64::exp2)),
    ("aten.sigmoid.default", |c| float(c, |v| 1.0 / (1.0 + (-v).exp()))),
    ("aten.sqrt.default", |c| float(c, f64::sqrt)),
    ("aten.rsqrt.default", |c| float(c, |v| 1.0 / v.sqrt())),
    ("aten.reciprocal.default", |c| float(c, |v| 1.0 / v)),
    ("aten.sin.default", |c| float(c, f64::sin)),
    ("aten.cos.default", |c| float(c, f64::cos)),
    ("aten.tan.default", |c| float(c, f64::tan)),
    ("aten.asin.default", |c| float(c, f64::asin)),
    ("aten.acos.default", |c| float(c, f64::acos)),
    ("aten.atan.default", |c| float(c, f64::atan)),
    ("aten.sinh.default", |c| float(c, f64::sinh)),
    ("aten.cosh.default", |c| float(c, f64::cosh)),
    ("aten.tanh.default", |c| float(c, f64::tanh)),
    ("aten.asinh.default", |c| float(c, f64::asinh)),
    ("aten.acosh.default", |c| float(c, f64::acosh)),
    ("aten.atanh.default", |c| float(c, f64::atanh)),
    ("aten.neg.default", |c| either(c, |v| -v, i64::wrapping_neg)),
    ("aten.abs.default", |c| either(c, f64::abs, i64::wrapping_abs)),
    // Of NaN torch's sign is 0.
    ("aten.sign.default", |c| either(c, |v| f64::from(i8::from(v > 0.0) - i8::from(v < 0.0)), i64::signum)),
    ("aten.floor.default", |c| either(c, f64::floor, |v| v)),
    ("aten.ceil.default", |c| either(c, f64::ceil, |v| v)),
    ("aten.round.default", |c| either(c, f64::round_ties_even, |v| v)),
    ("aten.trunc.default", |c| either(c, f64::trunc, |v| v)),
    ("aten.relu.default", |c| either(c, |v| max(v, 0.0), |v| v.max(0))),
    ("aten.hardtanh.default", |c| {
        let x = operand(c)?;
        Ok(held(c, x, Some(c.array("min_val")?), Some(c.array("max_val")?))?.into())
    }),
    ("aten.clamp.default", clamp),
    ("aten.clamp.Tensor", clamp),
    ("aten.leaky_relu.default", |c| {
        let k = c.float("negative_slope")?;
        let k = round_to(c.dtype(), k);
        float(c, |v| if v > 0.0 { v } else { v * k })
    }),
    ("aten.bitwise_not.default", bitwise_not),
    ("aten.logical_not.default", |c| test(c, |v| v == 0.0)),
    ("aten.isnan.default", |c| test(c, f64::is_nan)),
    ("aten.isinf.default", |c| test(c, f64::is_infinite)),
    ("aten.frexp.Tensor", |c| {
        let x = operand(c)?.to_f64();
        let parts = x.mapv(libm::frexp);
        let mantissa = Array::float(c.dtype(), parts.mapv(|(m, _)| m));
        let exponent = Array::int(DType::I32, parts.mapv(|(_, e)| i64::from(e)));
        Ok(Value::List(vec![mantissa.into(), exponent.into()]))
    }),
    ("aten.signbit.default", |c| test(c, f64::is_sign_negative)),
];

fn clamp(c: &Ctx<'_>) -> Result<Value> {
    Ok(held(c, c.array("self")?, c.opt_array("min")?, c.opt_array("max")?)?.into())
}

/// Elements held between bounds, in the result's type.
fn held(c: &Ctx<'_>, x: Array, low: Option<Array>, high: Option<Array>) -> Result<Array> {
    let mut y = x.cast(c.dtype());
    for (bound, float, int) in [
        (low, max as fn(f64, f64) -> f64, Ord::max as fn(i64, i64) -> i64),
        (high, min as fn(f64, f64) -> f64, Ord::min as fn(i64, i64) -> i64),
    ] {
        let Some(bound) = bound.map(|b| b.cast(c.dtype())) else { continue };
        y = combined(c, (y, bound), float, int)?;
    }
    Ok(y)
}

/// The first tensor among the arguments.
fn operand(c: &Ctx<'_>) -> Result<Array> {
    let tensor = c.op.schema.params.iter().find(|p| p.ty == Type::Tensor);
    c.array(tensor.map_or("self", |p| p.name.as_str()))
}

/// A function of the first argument in the result's type.
pub fn float(c: &Ctx<'_>, f: impl Fn(f64) -> f64) -> Result<Value> {
    // Compiled once for all of them.
    let f: &dyn Fn(f64) -> f64 = &f;
    Ok(Array::from_f64(c.dtype(), operand(c)?.cast(c.dtype()).to_f64().mapv(f)).into())
}

fn either(c: &Ctx<'_>, f: fn(f64) -> f64, i: fn(i64) -> i64) -> Result<Value> {
    let x = operand(c)?;
    Ok(match &x.data {
        Data::Int(a) => Array::int(c.dtype(), a.mapv(i)),
        Data::Float(a) => Array::float(c.dtype(), a.mapv(f)),
    }
    .into())
}

fn test(c: &Ctx<'_>, f: fn(f64) -> bool) -> Result<Value> {
    Ok(Array::int(DType::Bool, operand(c)?.to_f64().mapv(|v| i64::from(f(v)))).into())
}

fn bitwise_not(c: &Ctx<'_>) -> Result<Value> {
    match operand(c)? {
        Array { dtype: DType::Bool, data: Data::Int(a) } => Ok(Array::int(DType::Bool, a.mapv(|v| 1 - v)).into()),
        Array { dtype, data: Data::Int(a) } => Ok(Array::int(dtype, a.mapv(|v| !v)).into()),
        x => Err(c.err(format!("bits of {}", x.dtype))),
    }
}
