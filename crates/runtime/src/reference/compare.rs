//! Comparisons, logic on truth values and bits, and choice between elements.

use super::EvalFn;
use super::ctx::Ctx;
use super::pointwise::zip;
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::ArrayD;
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.eq.Tensor", |c| compare(c, is_eq)),
    ("aten.eq.Scalar", |c| compare(c, is_eq)),
    ("aten.ne.Tensor", |c| compare(c, |o| !is_eq(o))),
    ("aten.ne.Scalar", |c| compare(c, |o| !is_eq(o))),
    ("aten.lt.Tensor", |c| compare(c, is_lt)),
    ("aten.lt.Scalar", |c| compare(c, is_lt)),
    ("aten.le.Tensor", |c| compare(c, |o| is_lt(o) || is_eq(o))),
    ("aten.le.Scalar", |c| compare(c, |o| is_lt(o) || is_eq(o))),
    ("aten.gt.Tensor", |c| compare(c, is_gt)),
    ("aten.gt.Scalar", |c| compare(c, is_gt)),
    ("aten.ge.Tensor", |c| compare(c, |o| is_gt(o) || is_eq(o))),
    ("aten.ge.Scalar", |c| compare(c, |o| is_gt(o) || is_eq(o))),
    ("aten.logical_and.default", |c| logical(c, |a, b| a & b)),
    ("aten.logical_or.default", |c| logical(c, |a, b| a | b)),
    ("aten.logical_xor.default", |c| logical(c, |a, b| a ^ b)),
    ("aten.bitwise_and.Tensor", |c| bits(c, |a, b| a & b)),
    ("aten.bitwise_or.Tensor", |c| bits(c, |a, b| a | b)),
    ("aten.bitwise_xor.Tensor", |c| bits(c, |a, b| a ^ b)),
    ("prims.shift_left.default", |c| bits(c, |a, b| if (0..64).contains(&b) { a << b } else { 0 })),
    ("prims.shift_right_arithmetic.default", |c| bits(c, |a, b| a >> if (0..64).contains(&b) { b } else { 63 })),
    ("aten.where.self", choose),
];

/// How two numbers stand; nothing where one is NaN.
type Standing = Option<Ordering>;

fn is_eq(o: Standing) -> bool {
    o == Some(Equal)
}

fn is_lt(o: Standing) -> bool {
    o == Some(Less)
}

fn is_gt(o: Standing) -> bool {
    o == Some(Greater)
}

fn compare(c: &Ctx<'_>, holds: impl Fn(Standing) -> bool) -> Result<Value> {
    let dtype = c.promoted(&["self", "other"])?;
    let (a, b) = (c.array("self")?.cast(dtype), c.array("other")?.cast(dtype));
    Ok(truth(match (&a.data, &b.data) {
        (Data::Int(x), Data::Int(y)) => zip(c, x, y, |a, b| holds(Some(a.cmp(b))))?,
        _ => zip(c, &a.to_f64(), &b.to_f64(), |a, b| holds(a.partial_cmp(b)))?,
    }))
}

fn truth(a: ArrayD<bool>) -> Value {
    Array::int(DType::Bool, a.mapv(i64::from)).into()
}

fn truths(c: &Ctx<'_>, name: &str) -> Result<ArrayD<bool>> {
    Ok(c.array(name)?.to_f64().mapv(|v| v != 0.0))
}

fn logical(c: &Ctx<'_>, f: fn(bool, bool) -> bool) -> Result<Value> {
    Ok(truth(zip(c, &truths(c, "self")?, &truths(c, "other")?, |a, b| f(*a, *b))?))
}

fn bits(c: &Ctx<'_>, f: fn(i64, i64) -> i64) -> Result<Value> {
    match (c.array("self")?.cast(c.dtype()).data, c.array("other")?.cast(c.dtype()).data) {
        (Data::Int(a), Data::Int(b)) => Ok(Array::int(c.dtype(), zip(c, &a, &b, |a, b| f(*a, *b))?).into()),
        _ => Err(c.err(format!("bits of {}", c.dtype()))),
    }
}

fn choose(c: &Ctx<'_>) -> Result<Value> {
    let condition = truths(c, "condition")?;
    let (a, b) = (c.array("self")?.cast(c.dtype()), c.array("other")?.cast(c.dtype()));
    fn pick<T: Copy>(c: &Ctx<'_>, on: &ArrayD<bool>, a: &ArrayD<T>, b: &ArrayD<T>) -> Result<ArrayD<T>> {
        let pairs = zip(c, a, b, |a, b| (*a, *b))?;
        zip(c, on, &pairs, |on, (a, b)| if *on { *a } else { *b })
    }
    let data = match (&a.data, &b.data) {
        (Data::Int(x), Data::Int(y)) => Data::Int(pick(c, &condition, x, y)?),
        _ => Data::Float(pick(c, &condition, &a.to_f64(), &b.to_f64())?),
    };
    Ok(Array { dtype: c.dtype(), data }.into())
}
