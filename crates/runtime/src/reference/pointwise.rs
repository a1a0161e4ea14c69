//! Arithmetic of two operands: computed in f64 (or i64), rounded to the result's type.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::broadcast;
use super::value::{Array, Data, Value, round_to};
use crate::error::Result;
use cleave_numerics::DType;
use half::{bf16, f16};
use ndarray::{ArrayD, Zip};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.add.Tensor", |c| scaled(c, 1)),
    ("aten.add.Scalar", |c| scaled(c, 1)),
    ("aten.sub.Tensor", |c| scaled(c, -1)),
    ("aten.sub.Scalar", |c| scaled(c, -1)),
    ("aten.mul.Tensor", |c| arith(c, |a, b| a * b, i64::wrapping_mul)),
    ("aten.mul.Scalar", |c| arith(c, |a, b| a * b, i64::wrapping_mul)),
    ("aten.div.Tensor", quotient),
    ("aten.div.Scalar", quotient),
    ("aten.div.Tensor_mode", rounded),
    ("aten.div.Scalar_mode", rounded),
    ("aten.fmax.default", |c| arith(c, f64::max, i64::max)),
    ("aten.fmin.default", |c| arith(c, f64::min, i64::min)),
    ("aten.hypot.default", |c| arith(c, f64::hypot, |_, _| 0)),
    ("aten.nextafter.default", |c| {
        let dtype = c.dtype();
        arith(c, |a, b| next_after(dtype, a, b), |a, _| a)
    }),
    ("aten.gcd.default", |c| arith(c, |a, _| a, gcd)),
    ("aten.remainder.Tensor", remainder),
    ("aten.remainder.Scalar", remainder),
    ("aten.fmod.Tensor", |c| divided(c, |_, a, b| a % b, i64::wrapping_rem)),
    ("aten.fmod.Scalar", |c| divided(c, |_, a, b| a % b, i64::wrapping_rem)),
    ("aten.pow.Tensor_Scalar", power),
    ("aten.pow.Tensor_Tensor", power),
    ("aten.pow.Scalar", power),
    ("aten.atan2.default", |c| arith(c, f64::atan2, |_, _| 0)),
    ("aten.maximum.default", |c| arith(c, max, i64::max)),
    ("aten.minimum.default", |c| arith(c, min, i64::min)),
];

/// The greater one; NaN where either is, as in torch.
pub fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The lesser one; NaN where either is, as in torch.
pub fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

/// Applies `f` to two arrays, broadcast against one another.
pub fn zip<A: Clone, B: Clone, R: Clone>(
    c: &Ctx<'_>,
    a: &ArrayD<A>,
    b: &ArrayD<B>,
    f: impl Fn(&A, &B) -> R,
) -> Result<ArrayD<R>> {
    zip_by(c, a, b, &f)
}

/// [`zip`], compiled once for all functions of these types.
fn zip_by<A: Clone, B: Clone, R: Clone>(
    c: &Ctx<'_>,
    a: &ArrayD<A>,
    b: &ArrayD<B>,
    f: &dyn Fn(&A, &B) -> R,
) -> Result<ArrayD<R>> {
    let shape = broadcast(c, &[a.shape(), b.shape()])?;
    let (a, b) = (a.broadcast(shape.clone()), b.broadcast(shape));
    let (a, b) = a.zip(b).ok_or_else(|| c.err("shapes do not broadcast"))?;
    Ok(Zip::from(a).and(b).map_collect(f))
}

/// Both operands in the result's type.
fn operands(c: &Ctx<'_>, a: &str, b: &str) -> Result<(Array, Array)> {
    Ok((c.array(a)?.cast(c.dtype()), c.array(b)?.cast(c.dtype())))
}

/// Two arrays combined, as the result's type.
pub fn combined(
    c: &Ctx<'_>,
    (a, b): (Array, Array),
    f: impl Fn(f64, f64) -> f64,
    i: impl Fn(i64, i64) -> i64,
) -> Result<Array> {
    Ok(match (&a.data, &b.data) {
        (Data::Int(x), Data::Int(y)) => Array::int(c.dtype(), zip(c, x, y, |a, b| i(*a, *b))?),
        _ => Array::from_f64(c.dtype(), zip(c, &a.to_f64(), &b.to_f64(), |a, b| f(*a, *b))?),
    })
}

/// Both operands in the result's type, combined.
pub fn arith(c: &Ctx<'_>, f: impl Fn(f64, f64) -> f64, i: impl Fn(i64, i64) -> i64) -> Result<Value> {
    Ok(combined(c, operands(c, "self", "other")?, f, i)?.into())
}

/// `self ± alpha·other`.
fn scaled(c: &Ctx<'_>, sign: i64) -> Result<Value> {
    let alpha = c.float("alpha")?;
    let dtype = c.dtype();
    // The product is rounded before the sum, as a kernel without contraction has it.
    arith(
        c,
        |a, b| a + sign as f64 * round_to(dtype, alpha * b),
        |a, b| a.wrapping_add(sign.wrapping_mul(alpha as i64).wrapping_mul(b)),
    )
}

fn quotient(c: &Ctx<'_>) -> Result<Value> {
    arith(c, |a, b| a / b, |_, _| 0)
}

/// [`arith`], refusing integer divisors of 0. `f` is told the type in which torch computes.
fn divided(c: &Ctx<'_>, f: fn(DType, f64, f64) -> f64, i: fn(i64, i64) -> i64) -> Result<Value> {
    let (a, b) = operands(c, "self", "other")?;
    if matches!(&b.data, Data::Int(d) if d.iter().any(|v| *v == 0)) {
        return Err(c.err("an integer divided by zero"));
    }
    let wide = if c.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    Ok(combined(c, (a, b), |a, b| f(wide, a, b), i)?.into())
}

/// A quotient rounded as asked.
fn rounded(c: &Ctx<'_>) -> Result<Value> {
    match c.arg("rounding_mode")? {
        Value::None => quotient(c),
        Value::Str(s) if s == "trunc" => divided(c, |_, a, b| (a / b).trunc(), i64::wrapping_div),
        Value::Str(s) if s == "floor" => divided(c, floored, |a, b| a.wrapping_sub(modulo(a, b)).wrapping_div(b)),
        mode => Err(c.err(format!("rounding mode {mode:?}"))),
    }
}

/// The number of a float type that comes after `a` on the way to `b`.
fn next_after(dtype: DType, a: f64, b: f64) -> f64 {
    if a == b || a.is_nan() || b.is_nan() {
        return if a == b { b } else { f64::NAN };
    }
    let up = b > a;
    // Of the 16-bit types the bits of the magnitude count up, or down towards zero.
    let near = |bits: u16| match bits & 0x7fff {
        0 => 1 | if up { 0 } else { 0x8000 },
        _ if up == (bits & 0x8000 == 0) => bits + 1,
        _ => bits - 1,
    };
    match dtype {
        DType::F16 => f64::from(f16::from_bits(near(f16::from_f64(a).to_bits()))),
        DType::BF16 => f64::from(bf16::from_bits(near(bf16::from_f64(a).to_bits()))),
        DType::F32 if up => f64::from((a as f32).next_up()),
        DType::F32 => f64::from((a as f32).next_down()),
        _ if up => a.next_up(),
        _ => a.next_down(),
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.wrapping_abs(), b.wrapping_abs());
    while b != 0 {
        (a, b) = (b, a.wrapping_rem(b));
    }
    a.wrapping_abs()
}

/// torch's `div_floor_floating`: steps rounded to the type in which they are computed.
fn floored(dtype: DType, a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = round_to(dtype, round_to(dtype, a - rest) / b);
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// The remainder with the divisor's sign.
fn modulo(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

fn remainder(c: &Ctx<'_>) -> Result<Value> {
    let float = |_, a: f64, b: f64| {
        let rest = a % b;
        if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
    };
    divided(c, float, modulo)
}

fn power(c: &Ctx<'_>) -> Result<Value> {
    let fixed = !matches!(c.arg("exponent")?, Value::Array(_));
    let float = |a: f64, e: f64| match e {
        // torch takes square roots for these, so that -inf gives NaN.
        0.5 if fixed => a.sqrt(),
        -0.5 if fixed => 1.0 / a.sqrt(),
        _ => a.powf(e),
    };
    let (a, e) = operands(c, "self", "exponent")?;
    if fixed && matches!(&e.data, Data::Int(v) if v.iter().any(|v| *v < 0)) {
        return Err(c.err("an integer to a negative power"));
    }
    Ok(combined(c, (a, e), float, int_power)?.into())
}

/// `a` to the power of `e`, wrapped; of negative powers what an integer can hold.
pub fn int_power(mut a: i64, e: i64) -> i64 {
    if e < 0 {
        return match a {
            1 => 1,
            -1 => 1 - 2 * (e & 1),
            _ => 0,
        };
    }
    let (mut left, mut y) = (e, 1i64);
    while left > 0 {
        if left & 1 == 1 {
            y = y.wrapping_mul(a);
        }
        a = a.wrapping_mul(a);
        left >>= 1;
    }
    y
}
