//! Functions of two elements, and choices between them.

use super::{drop, keep, neg, operand, times};
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;

const TWO: &str = "f32[2, 3], f32[3]";
const POSITIVE: &str = "f32[2, 3]>0, f32[3]>0";
const DISTINCT: &str = "f32[2, 3], f32[2, 1]";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten.add.Tensor", "f32[2, 3], f32[3] | f32[2, 1], f32[2, 3], 0.5", |d| sum(d, 1.0)),
    Derivative::new("aten.add.Scalar", "f32[2, 3], 2.0", |d| d.give("self", d.g())),
    Derivative::new("aten.sub.Tensor", "f32[2, 3], f32[3] | f32[2, 1], f32[2, 3], 0.5", |d| sum(d, -1.0)),
    Derivative::new("aten.sub.Scalar", "f32[2, 3], 2.0", |d| d.give("self", d.g())),
    Derivative::new("aten.mul.Tensor", TWO, product),
    Derivative::new("aten.mul.Scalar", "f32[2, 3], 2.0", |d| d.give("self", times(d.g(), d.arg("other")))),
    Derivative::new("aten.div.Tensor", POSITIVE, quotient),
    Derivative::new("aten.div.Scalar", "f32[2, 3], 2.0", |d| d.give("self", over(d.g(), d.arg("other")))),
    Derivative::new("aten.div.Tensor_mode", "f32[2, 3]>0, f32[3]>0, none | f32[2, 3]>0, f32[3]>0, \"floor\"", |d| {
        if *d.arg("rounding_mode") == Arg::None {
            quotient(d);
        }
    }),
    Derivative::new("aten.div.Scalar_mode", "f32[2, 3], 0.7, none | f32[2, 3], 0.7, \"trunc\"", |d| {
        if *d.arg("rounding_mode") == Arg::None {
            d.give("self", over(d.g(), d.arg("other")));
        }
    }),
    Derivative::new("aten.pow.Tensor_Scalar", "f32[2, 3]>0, 2.5 | f32[2, 3], 2 | f32[2, 3], 0 | f32[2, 3], 1", |d| {
        let (x, e) = (d.tensor("self"), d.float("exponent"));
        if e != 0.0 {
            let slope = match d.arg("exponent") {
                Arg::Int(1) => return d.give("self", d.g()),
                Arg::Int(2) => x * 2i64,
                _ => x.op("aten.pow.Tensor_Scalar", vec![(e - 1.0).into()]) * e,
            };
            d.give("self", d.g() * slope);
        }
    }),
    Derivative::new("aten.pow.Tensor_Tensor", POSITIVE, |d| power(d, "exponent")),
    Derivative::new("aten.pow.Scalar", "2.5, f32[2, 3] | 0, f32[2]>0", |d| {
        let base = d.float("self");
        let slope = d.g() * (d.y() * base.ln());
        let flat = d.tensor("exponent").op("aten.ge.Scalar", vec![0i64.into()]);
        d.give("exponent", if base == 0.0 { drop(slope, flat) } else { slope });
    }),
    Derivative::new("aten.maximum.default", DISTINCT, maximum),
    Derivative::new("aten.minimum.default", DISTINCT, minimum),
    Derivative::new("aten.fmax.default", DISTINCT, greater_number),
    Derivative::new("aten.fmin.default", DISTINCT, lesser_number),
    Derivative::new("aten.remainder.Tensor", "f32[2, 3]>0, f32[3]>0", |d| remainder(d, "floor")),
    Derivative::new("aten.remainder.Scalar", "f32[2, 3], 0.7", |d| d.give("self", d.g())),
    Derivative::new("aten.fmod.Tensor", "f32[2, 3]>0, f32[3]>0", |d| remainder(d, "trunc")),
    Derivative::new("aten.fmod.Scalar", "f32[2, 3], 0.7", |d| d.give("self", d.g())),
    Derivative::new("aten.atan2.default", TWO, angle),
    Derivative::new("aten.hypot.default", TWO, hypotenuse),
    Derivative::new("aten.where.self", "bool[2, 3], f32[2, 3], f32[3]", |d| {
        let mask = d.tensor("condition");
        d.give("self", keep(d.g(), mask));
        d.give("other", drop(d.g(), mask));
    }),
];

/// A power with an exponent for each element.
pub(super) fn power(d: &Gradient<'_>, exponent: &str) {
    let (x, e) = (operand(d, "self"), operand(d, exponent));
    let slope = x.op("aten.pow.Tensor_Tensor", vec![(e - 1i64).into()]) * e;
    d.give("self", drop(d.g() * slope, e.op("aten.eq.Scalar", vec![0i64.into()])));
    if d.wants(exponent) {
        let flat = x.op("aten.eq.Scalar", vec![0i64.into()]);
        let flat = flat.op("aten.logical_and", vec![e.op("aten.ge.Scalar", vec![0i64.into()]).into()]);
        d.give(exponent, drop(d.g() * (d.y() * x.op("aten.log", vec![])), flat));
    }
}

/// `self ± alpha·other`.
fn sum(d: &Gradient<'_>, sign: f64) {
    d.give("self", d.g());
    let alpha = d.float("alpha") * sign;
    d.give("other", if alpha == -1.0 { neg(d.g()) } else { times(d.g(), &Arg::Float(alpha)) });
}

pub(super) fn product(d: &Gradient<'_>) {
    d.give("self", times(d.g(), d.arg("other")));
    d.give("other", times(d.g(), d.arg("self")));
}

pub(super) fn angle(d: &Gradient<'_>) {
    let (y, x) = (operand(d, "self"), operand(d, "other"));
    let g = d.g() / (x * x + y * y);
    d.give("self", g * x);
    d.give("other", neg(g * y));
}

pub(super) fn hypotenuse(d: &Gradient<'_>) {
    d.give("self", d.g() * (d.tensor("self") / d.y()));
    d.give("other", d.g() * (d.tensor("other") / d.y()));
}

pub(super) fn greater_number(d: &Gradient<'_>) {
    first_number(d, "aten.ge.Tensor");
}

pub(super) fn lesser_number(d: &Gradient<'_>) {
    first_number(d, "aten.le.Tensor");
}

pub(super) fn maximum(d: &Gradient<'_>) {
    greater(d, "aten.lt.Tensor", "aten.gt.Tensor");
}

pub(super) fn minimum(d: &Gradient<'_>) {
    greater(d, "aten.gt.Tensor", "aten.lt.Tensor");
}

/// The quotient by a tensor or a number.
fn over<'b>(v: Value<'b>, by: &Arg) -> Value<'b> {
    v.op("aten.div.Tensor", vec![by.clone()])
}

pub(super) fn quotient(d: &Gradient<'_>) {
    let by = d.arg("other");
    d.give("self", over(d.g(), by));
    if d.wants("other") {
        d.give("other", neg(d.g()) * over(d.y(), by));
    }
}

/// All of the gradient to the operand chosen, half to each of equal ones.
fn greater(d: &Gradient<'_>, lost: &str, won: &str) {
    let (a, b) = (operand(d, "self"), operand(d, "other"));
    let equal = a.op("aten.eq.Tensor", vec![b.into()]);
    let shared = equal.op("aten.where.self", vec![(d.g() * 0.5).into(), d.g().into()]);
    d.give("self", drop(shared, a.op(lost, vec![b.into()])));
    d.give("other", drop(shared, a.op(won, vec![b.into()])));
}

/// All of the gradient to the first operand if it holds the test or the other is no number.
fn first_number(d: &Gradient<'_>, test: &str) {
    let (a, b) = (d.tensor("self"), d.tensor("other"));
    let first = a.op(test, vec![b.into()]).op("aten.logical_or", vec![b.op("aten.isnan", vec![]).into()]);
    d.give("self", keep(d.g(), first));
    d.give("other", drop(d.g(), first));
}

pub(super) fn remainder(d: &Gradient<'_>, mode: &str) {
    d.give("self", d.g());
    if d.wants("other") {
        let whole = operand(d, "self").op("aten.div.Tensor_mode", vec![d.arg("other").clone(), mode.into()]);
        d.give("other", neg(d.g()) * whole);
    }
}
