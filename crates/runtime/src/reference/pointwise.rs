//! Pointwise ops: computed in f64 (or i64), rounded to the result's type.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Data, Value, round_to};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Zip};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.add.Tensor", |c| scaled(c, 1)),
    ("aten.sub.Tensor", |c| scaled(c, -1)),
    ("aten.mul.Tensor", |c| arith(c, |a, b| a * b, i64::wrapping_mul)),
    ("aten.div.Tensor", |c| float2(c, |a, b| a / b)),
    ("aten.maximum.default", |c| arith(c, max, i64::max)),
    ("aten.minimum.default", |c| arith(c, min, i64::min)),
    ("aten.pow.Tensor_Scalar", |c| {
        let e = c.float("exponent")?;
        float1(c, |v| v.powf(e))
    }),
    ("aten.exp.default", |c| float1(c, f64::exp)),
    ("aten.log.default", |c| float1(c, f64::ln)),
    ("aten.erf.default", |c| float1(c, erf)),
    ("aten.tanh.default", |c| float1(c, f64::tanh)),
    ("aten.sigmoid.default", |c| float1(c, |v| 1.0 / (1.0 + (-v).exp()))),
    ("aten.sqrt.default", |c| float1(c, f64::sqrt)),
    ("aten.rsqrt.default", |c| float1(c, |v| 1.0 / v.sqrt())),
    ("aten.reciprocal.default", |c| float1(c, |v| 1.0 / v)),
    ("aten.neg.default", |c| float1(c, |v| -v)),
    ("aten.abs.default", |c| float1(c, f64::abs)),
    ("aten.floor.default", |c| float1(c, f64::floor)),
    ("aten.ceil.default", |c| float1(c, f64::ceil)),
    ("aten.round.default", |c| float1(c, f64::round_ties_even)),
    ("aten.relu.default", |c| float1(c, |v| max(v, 0.0))),
    ("aten.hardtanh.default", |c| {
        let (lo, hi) = (c.float("min_val")?, c.float("max_val")?);
        float1(c, |v| min(max(v, lo), hi))
    }),
    ("aten.clamp.default", |c| {
        let (lo, hi) = (c.opt_float("min")?, c.opt_float("max")?);
        float1(c, |v| {
            let v = lo.map_or(v, |l| max(v, l));
            hi.map_or(v, |h| min(v, h))
        })
    }),
    ("aten.leaky_relu.default", |c| {
        let k = c.float("negative_slope")?;
        let k = round_to(c.dtype(), k);
        float1(c, |v| if v > 0.0 { v } else { v * k })
    }),
];

/// The greater one; NaN where either is, as in torch.
fn max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The lesser one; NaN where either is, as in torch.
fn min(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn float1(c: &Ctx<'_>, f: impl Fn(f64) -> f64) -> Result<Value> {
    let name = &c.op.schema.params[0].name;
    Ok(Value::Array(Array::from_f64(c.dtype(), c.array(name)?.to_f64().mapv(f))))
}

/// Both operands in the result's type, broadcast.
fn operands(c: &Ctx<'_>, a: &str, b: &str) -> Result<(Array, Array)> {
    let cast = |x: Array| if c.dtype() == DType::Bool { x } else { x.cast(c.dtype()) };
    Ok((cast(c.array(a)?), cast(c.array(b)?)))
}

/// Applies `f` to two arrays, broadcast against one another.
pub fn zip<A: Clone, B: Clone, R: Clone>(
    c: &Ctx<'_>,
    a: &ArrayD<A>,
    b: &ArrayD<B>,
    f: impl Fn(&A, &B) -> R,
) -> Result<ArrayD<R>> {
    let rank = a.ndim().max(b.ndim());
    let size = |s: &[usize], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    let mut shape = vec![];
    for i in 0..rank {
        let (m, n) = (size(a.shape(), i), size(b.shape(), i));
        shape.push(match (m, n) {
            (1, n) => n,
            (m, 1) => m,
            (m, n) if m == n => m,
            _ => return Err(c.err(format!("shapes {:?} and {:?} do not broadcast", a.shape(), b.shape()))),
        });
    }
    let (a, b) = (a.broadcast(shape.clone()), b.broadcast(shape));
    let (a, b) = a.zip(b).ok_or_else(|| c.err("shapes do not broadcast"))?;
    Ok(Zip::from(a).and(b).map_collect(f))
}

fn float2(c: &Ctx<'_>, f: impl Fn(f64, f64) -> f64) -> Result<Value> {
    let (a, b) = operands(c, "self", "other")?;
    Ok(Value::Array(Array::from_f64(c.dtype(), zip(c, &a.to_f64(), &b.to_f64(), |a, b| f(*a, *b))?)))
}

fn arith(c: &Ctx<'_>, f: impl Fn(f64, f64) -> f64, i: impl Fn(i64, i64) -> i64) -> Result<Value> {
    let (a, b) = operands(c, "self", "other")?;
    Ok(Value::Array(match (&a.data, &b.data) {
        (Data::Int(x), Data::Int(y)) => Array::int(c.dtype(), zip(c, x, y, |a, b| i(*a, *b))?),
        _ => Array::from_f64(c.dtype(), zip(c, &a.to_f64(), &b.to_f64(), |a, b| f(*a, *b))?),
    }))
}

/// `self ± alpha·other`.
fn scaled(c: &Ctx<'_>, sign: i64) -> Result<Value> {
    let alpha = c.float("alpha")?;
    let dtype = c.dtype();
    // The product is rounded before the sum, as a kernel without contraction has it.
    arith(
        c,
        |a, b| a + sign as f64 * round_to(dtype, alpha * b),
        |a, b| a.wrapping_add(sign * (alpha as i64).wrapping_mul(b)),
    )
}

/// The error function: its Taylor series near zero, a continued fraction of erfc elsewhere; both to f64's precision.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() && n < 200.0 {
            n += 1.0;
            term *= -a * a / n;
            sum += term / (2.0 * n + 1.0);
        }
        return (sum * std::f64::consts::FRAC_2_SQRT_PI).copysign(x);
    }
    if a > 6.0 {
        return 1f64.copysign(x);
    }
    let mut f = 0.0;
    for k in (1..=60).rev() {
        f = f64::from(k) / 2.0 / (a + f);
    }
    (1.0 - (-a * a).exp() / std::f64::consts::PI.sqrt() / (a + f)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::erf;

    #[test]
    fn erf_has_its_tabled_values() {
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.0, 0.9953222650189527),
            (3.0, 0.9999779095030014),
            (-1.0, -0.8427007929497149),
            (9.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 2e-15, "erf({x}) = {}", erf(x));
        }
    }
}
