//! Special functions.

use super::{complement, drop, neg, operand, times};
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI};

const ANY: &str = "f32[2, 3]";
const POSITIVE: &str = "f32[2, 3]>0";
const UNIT: &str = "f32[2, 3]>0<1";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::unary("aten.erfc.default", ANY, |g, x, _| g * (neg(x * x).exp() * -FRAC_2_SQRT_PI)),
    Derivative::unary("aten.erfinv.default", "f32[2, 3]<1", |g, _, y| g * ((y * y).exp() * (1.0 / FRAC_2_SQRT_PI))),
    Derivative::unary("aten.special_erfcx.default", ANY, |g, x, y| g * (x * y * 2i64 - FRAC_2_SQRT_PI)),
    Derivative::unary("aten.special_ndtri.default", UNIT, |g, _, y| g * ((y * y * 0.5).exp() * (2.0 * PI).sqrt())),
    Derivative::unary("aten.special_log_ndtr.default", ANY, |g, x, _| {
        g / (x * -FRAC_1_SQRT_2).op("aten.special_erfcx", vec![]) * (2.0 / PI).sqrt()
    }),
    Derivative::unary("aten.lgamma.default", POSITIVE, |g, x, _| g * x.op("aten.digamma", vec![])),
    Derivative::unary("aten.digamma.default", POSITIVE, |g, x, _| g * polygamma(1, x)),
    Derivative::new("aten.polygamma.default", "1, f32[2, 3]>0 | 2, f32[2, 3]>0", |d| {
        d.give("self", d.g() * polygamma(d.int("n") + 1, d.tensor("self")));
    }),
    Derivative::unary("aten.i0.default", ANY, |g, x, _| g * x.op("aten.special_i1", vec![])),
    Derivative::unary("aten.special_i0e.default", ANY, |g, x, y| {
        g * (x.op("aten.special_i1e", vec![]) - x.op("aten.sign", vec![]) * y)
    }),
    Derivative::unary("aten.special_i1.default", ANY, |g, x, y| g * over(x, x.op("aten.i0", vec![]), y)),
    Derivative::unary("aten.special_i1e.default", ANY, |g, x, y| {
        g * (over(x, x.op("aten.special_i0e", vec![]), y) - x.op("aten.sign", vec![]) * y)
    }),
    Derivative::unary("aten.special_bessel_j0.default", ANY, |g, x, _| neg(g) * x.op("aten.special_bessel_j1", vec![])),
    Derivative::unary("aten.special_bessel_j1.default", ANY, |g, x, y| {
        g * over(x, x.op("aten.special_bessel_j0", vec![]), y)
    }),
    Derivative::unary("aten.special_bessel_y0.default", POSITIVE, |g, x, _| {
        neg(g) * x.op("aten.special_bessel_y1", vec![])
    }),
    Derivative::unary("aten.special_bessel_y1.default", POSITIVE, |g, x, y| {
        g * (x.op("aten.special_bessel_y0", vec![]) - y / x)
    }),
    Derivative::unary("aten.special_modified_bessel_i0.default", ANY, |g, x, _| {
        g * x.op("aten.special_modified_bessel_i1", vec![])
    }),
    Derivative::unary("aten.special_modified_bessel_i1.default", ANY, |g, x, y| {
        g * over(x, x.op("aten.special_modified_bessel_i0", vec![]), y)
    }),
    Derivative::unary("aten.special_modified_bessel_k0.default", POSITIVE, |g, x, _| {
        neg(g) * x.op("aten.special_modified_bessel_k1", vec![])
    }),
    Derivative::unary("aten.special_modified_bessel_k1.default", POSITIVE, |g, x, y| {
        neg(g) * (x.op("aten.special_modified_bessel_k0", vec![]) + y / x)
    }),
    Derivative::unary("aten.special_scaled_modified_bessel_k0.default", POSITIVE, |g, x, y| {
        g * (y - x.op("aten.special_scaled_modified_bessel_k1", vec![]))
    }),
    Derivative::unary("aten.special_scaled_modified_bessel_k1.default", POSITIVE, |g, x, y| {
        g * (y - x.op("aten.special_scaled_modified_bessel_k0", vec![]) - y / x)
    }),
    Derivative::unary("aten.special_spherical_bessel_j0.default", ANY, |g, x, y| {
        g * drop((x.op("aten.cos", vec![]) - y) / x, zero(x))
    }),
    Derivative::unary("aten.special_entr.default", POSITIVE, |g, x, _| neg(g * (x.op("aten.log", vec![]) + 1i64))),
    Derivative::unary("aten.sinc.default", ANY, |g, x, y| g * drop(((x * PI).op("aten.cos", vec![]) - y) / x, zero(x))),
    Derivative::new("aten.logit.default", "f32[2, 3]>0<1 | f32[2, 3]>0<1, 0.3", |d| {
        let x = d.tensor("self");
        let g = d.g() / (x * complement(x));
        d.give(
            "self",
            match d.opt_float("eps") {
                Some(eps) => {
                    let low = x.op("aten.lt.Scalar", vec![eps.into()]);
                    let high = x.op("aten.gt.Scalar", vec![(1.0 - eps).into()]);
                    drop(g, low.op("aten.logical_or", vec![high.into()]))
                }
                None => g,
            },
        );
    }),
    Derivative::new("aten.xlogy.Tensor", "f32[2, 3], f32[3]>0", |d| logarithm(d, "aten.log")),
    Derivative::new("aten.xlogy.Scalar_Self", "0.7, f32[3]>0", |d| logarithm(d, "aten.log")),
    Derivative::new("aten.xlogy.Scalar_Other", "f32[2, 3], 0.7", |d| logarithm(d, "aten.log")),
    Derivative::new("aten.special_xlog1py.default", "f32[2, 3], f32[3]>0", |d| logarithm(d, "aten.log1p")),
    Derivative::new("aten.special_xlog1py.self_scalar", "0.7, f32[3]>0", |d| logarithm(d, "aten.log1p")),
    Derivative::new("aten.special_xlog1py.other_scalar", "f32[2, 3], 0.7", |d| logarithm(d, "aten.log1p")),
    Derivative::new("aten.igamma.default", "", |d| incomplete(d, 1.0)),
    Derivative::new("aten.igammac.default", "", |d| incomplete(d, -1.0)),
    Derivative::new("aten.special_zeta.default", "", |d| {
        if d.wants("self") {
            return d.fail("zeta has a derivative by its second argument only");
        }
        let x = operand(d, "self");
        d.give("other", neg(d.g() * x) * (x + 1i64).op("aten.special_zeta", vec![d.arg("other").clone()]));
    }),
    Derivative::new("aten.copysign.Tensor", "f32[2, 3], f32[3]", |d| {
        let x = d.tensor("self");
        d.give("self", drop(d.g() * (d.y() / x), zero(x)));
    }),
    Derivative::new("aten.copysign.Scalar", "f32[2, 3], -0.5", |d| {
        let x = d.tensor("self");
        d.give("self", drop(d.g() * (d.y() / x), zero(x)));
    }),
    Derivative::new("aten.nextafter.default", "f32[3], f32[3]", |d| d.give("self", d.g())),
];

fn zero(x: Value<'_>) -> Value<'_> {
    x.op("aten.eq.Scalar", vec![0i64.into()])
}

fn polygamma(n: i64, x: Value<'_>) -> Value<'_> {
    x.builder().call("aten.polygamma", vec![n.into(), x.into()])
}

/// `a - y / x`, which for Bessel functions is 1/2 at 0.
fn over<'b>(x: Value<'b>, a: Value<'b>, y: Value<'b>) -> Value<'b> {
    let away = zero(x).op("aten.logical_not", vec![]);
    away.op("aten.where.ScalarOther", vec![(a - y / x).into(), 0.5.into()])
}

/// `self · log(other)`, or of `1 + other`; 0 where `self` is.
fn logarithm(d: &Gradient<'_>, log: &str) {
    let other = operand(d, "other");
    if d.wants("self") {
        let outside = other.op("aten.le.Scalar", vec![0i64.into()]);
        let flat = zero(d.tensor("self")).op("aten.logical_and", vec![outside.into()]);
        d.give("self", drop(d.g() * other.op(log, vec![]), flat));
    }
    let under = if log == "aten.log" { other } else { other + 1i64 };
    d.give("other", times(d.g(), d.arg("self")) / under);
}

/// `x^(a - 1)·e^-x / Γ(a)` by the second argument.
fn incomplete(d: &Gradient<'_>, sign: f64) {
    if d.wants("self") {
        return d.fail("an incomplete gamma function has a derivative by its second argument only");
    }
    let (a, x) = (d.tensor("self"), d.tensor("other"));
    let density = ((a - 1i64) * x.op("aten.log", vec![]) - x - a.op("aten.lgamma", vec![])).exp();
    d.give("other", times(d.g() * density, &Arg::Float(sign)));
}
