//! Special functions.

use super::{drop, neg};
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;
use std::f64::consts::{FRAC_2_SQRT_PI, PI};

const ANY: &str = "f32[2, 3]";
const POSITIVE: &str = "f32[2, 3]>0";
/// By which number of terms, or which shape, is told by integers, which have no gradient.
const ORDERED: &str = "i64[2, 3], f32[3]>0";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::unary("aten.lgamma.default", POSITIVE, |g, x, _| g * call(x, "aten.digamma")),
    Derivative::unary("aten.digamma.default", POSITIVE, |g, x, _| g * polygamma(x, 1)),
    Derivative::new("aten.polygamma.default", "0, f32[2, 3]>0 | 2, f32[2, 3]>0", |d| {
        d.give("self", d.g() * polygamma(d.tensor("self"), d.int("n").saturating_add(1)));
    }),
    Derivative::new("prims.zeta.default", ORDERED, |d| {
        unknown(d, "self");
        let (s, q) = (d.tensor("self"), d.tensor("other"));
        d.give("other", d.g() * (neg(s) * (s + 1i64).op("aten.special_zeta", vec![q.into()])));
    }),
    Derivative::new("aten.igamma.default", ORDERED, |d| d.give("other", d.g() * density(d))),
    Derivative::new("aten.igammac.default", ORDERED, |d| d.give("other", neg(d.g() * density(d)))),
    Derivative::unary("prims.erfcx.default", ANY, |g, x, y| g * (x * y * 2i64 - FRAC_2_SQRT_PI)),
    Derivative::unary("prims.ndtri.default", "f32[2, 3]>0<1", |g, _, y| g * ((y * y * 0.5).exp() * (2.0 * PI).sqrt())),
    Derivative::unary("aten.i0.default", ANY, |g, x, _| g * call(x, "aten.special_i1")),
    Derivative::unary("aten.special_i0e.default", ANY, |g, x, y| {
        g * (call(x, "aten.special_i1e") - call(x, "aten.sign") * y)
    }),
    Derivative::unary("aten.special_i1.default", ANY, |g, x, y| g * (call(x, "aten.i0") - over(y, x, 0.5))),
    Derivative::unary("aten.special_i1e.default", ANY, |g, x, y| {
        g * (call(x, "aten.special_i0e") - call(x, "aten.sign") * y - over(y, x, 0.5))
    }),
    Derivative::unary("aten.special_bessel_j0.default", ANY, |g, x, _| neg(g * call(x, "aten.special_bessel_j1"))),
    Derivative::unary("aten.special_bessel_j1.default", ANY, |g, x, y| {
        g * (call(x, "aten.special_bessel_j0") - over(y, x, 0.5))
    }),
    Derivative::unary("prims.spherical_bessel_j0.default", POSITIVE, |g, x, y| {
        g * over(call(x, "aten.cos") - y, x, 0.0)
    }),
    Derivative::unary("aten.special_bessel_y0.default", POSITIVE, |g, x, _| neg(g * call(x, "aten.special_bessel_y1"))),
    Derivative::unary("aten.special_bessel_y1.default", POSITIVE, |g, x, y| {
        g * (call(x, "aten.special_bessel_y0") - y / x)
    }),
    Derivative::unary("aten.special_modified_bessel_i0.default", ANY, |g, x, _| {
        g * call(x, "aten.special_modified_bessel_i1")
    }),
    Derivative::unary("aten.special_modified_bessel_i1.default", ANY, |g, x, y| {
        g * (call(x, "aten.special_modified_bessel_i0") - over(y, x, 0.5))
    }),
    Derivative::unary("aten.special_modified_bessel_k0.default", POSITIVE, |g, x, _| {
        neg(g * call(x, "aten.special_modified_bessel_k1"))
    }),
    Derivative::unary("aten.special_modified_bessel_k1.default", POSITIVE, |g, x, y| {
        neg(g * (call(x, "aten.special_modified_bessel_k0") + y / x))
    }),
];

fn call<'b>(x: Value<'b>, op: &str) -> Value<'b> {
    x.op(op, vec![])
}

fn polygamma(x: Value<'_>, n: i64) -> Value<'_> {
    x.builder().call("aten.polygamma", vec![n.into(), x.into()])
}

/// `y / x`, and its limit at 0.
fn over<'b>(y: Value<'b>, x: Value<'b>, at_0: f64) -> Value<'b> {
    x.op("aten.eq.Scalar", vec![0i64.into()]).op("aten.where.ScalarSelf", vec![at_0.into(), (y / x).into()])
}

/// `exp(-x)·x^(a - 1) / Γ(a)`, the derivative of the lower incomplete gamma function by x.
fn density<'b>(d: &Gradient<'b>) -> Value<'b> {
    unknown(d, "self");
    let (a, x) = (d.tensor("self"), d.tensor("other"));
    let power = (a - 1i64).op("aten.xlogy.Tensor", vec![x.into()]);
    drop((power - x - call(a, "aten.lgamma")).exp(), x.op("aten.lt.Scalar", vec![Arg::Int(0)]))
}

/// Refuses the gradient of an argument, as torch does.
fn unknown(d: &Gradient<'_>, name: &str) {
    if d.wants(name) {
        d.fail(&format!("there is no derivative by '{name}'"));
    }
}
