//! Functions of one element.

use super::{complement, drop, neg, times};
use crate::derivative::{Derivative, Gradient};
use crate::graph::Arg;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, LN_10};

const SMALL: &str = "f32[2, 3]<1";
const POSITIVE: &str = "f32[2, 3]>0";
const ANY: &str = "f32[2, 3]";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::unary("aten.exp.default", ANY, |g, _, y| g * y),
    Derivative::unary("aten.expm1.default", ANY, |g, _, y| g * y + g),
    Derivative::unary("aten.exp2.default", ANY, |g, _, y| g * y * LN_2),
    Derivative::unary("aten.log.default", POSITIVE, |g, x, _| g / x),
    Derivative::unary("aten.log1p.default", POSITIVE, |g, x, _| g / (x + 1i64)),
    Derivative::unary("aten.log2.default", POSITIVE, |g, x, _| g / (x * LN_2)),
    Derivative::unary("aten.log10.default", POSITIVE, |g, x, _| g / (x * LN_10)),
    Derivative::unary("aten.sqrt.default", POSITIVE, |g, _, y| g / (y * 2i64)),
    Derivative::unary("aten.rsqrt.default", POSITIVE, |g, _, y| g * (y * y * y) * -0.5),
    Derivative::unary("aten.reciprocal.default", POSITIVE, |g, _, y| neg(g) * (y * y)),
    Derivative::unary("aten.neg.default", ANY, |g, _, _| neg(g)),
    Derivative::unary("aten.abs.default", ANY, |g, x, _| g * x.op("aten.sign", vec![])),
    Derivative::unary("aten.erf.default", ANY, |g, x, _| g * (neg(x * x).exp() * FRAC_2_SQRT_PI)),
    Derivative::unary("aten.sigmoid.default", ANY, |g, _, y| g * (complement(y) * y)),
    Derivative::unary("aten.sin.default", ANY, |g, x, _| g * x.op("aten.cos", vec![])),
    Derivative::unary("aten.cos.default", ANY, |g, x, _| neg(g) * x.op("aten.sin", vec![])),
    Derivative::unary("aten.tan.default", SMALL, |g, _, y| g * (y * y + 1i64)),
    Derivative::unary("aten.asin.default", SMALL, |g, x, _| g * complement(x * x).rsqrt()),
    Derivative::unary("aten.acos.default", SMALL, |g, x, _| neg(g) * complement(x * x).rsqrt()),
    Derivative::unary("aten.atan.default", ANY, |g, x, _| g / (x * x + 1i64)),
    Derivative::unary("aten.sinh.default", ANY, |g, x, _| g * x.op("aten.cosh", vec![])),
    Derivative::unary("aten.cosh.default", ANY, |g, x, _| g * x.op("aten.sinh", vec![])),
    Derivative::unary("aten.tanh.default", ANY, |g, _, y| g * complement(y * y)),
    Derivative::unary("aten.asinh.default", ANY, |g, x, _| g * (x * x + 1i64).rsqrt()),
    Derivative::unary("aten.acosh.default", "f32[2, 3]>1", |g, x, _| g * (x * x - 1i64).rsqrt()),
    Derivative::unary("aten.atanh.default", SMALL, |g, x, _| g / complement(x * x)),
    Derivative::unary("aten.relu.default", ANY, |g, _, y| drop(g, y.op("aten.le.Scalar", vec![0i64.into()]))),
    Derivative::unary("aten._to_copy.default", "f32[2, 3], f64", |g, _, _| g),
    Derivative::unary("aten.clone.default", ANY, |g, _, _| g),
    Derivative::unary("aten.alias.default", ANY, |g, _, _| g),
    Derivative::new("aten.hardtanh.default", "f32[2, 3] | f32[2, 3], -0.5, 0.7", |d| bounded(d, "min_val", "max_val")),
    Derivative::new("aten.clamp.default", "f32[2, 3], -0.5, 0.7 | f32[2, 3], none, 0.2 | f32[2, 3], 0.1", |d| {
        bounded(d, "min", "max");
    }),
    Derivative::new("aten.leaky_relu.default", "f32[2, 3] | f32[2, 3], 0.3", |d| {
        let positive = d.tensor("self").op("aten.gt.Scalar", vec![0i64.into()]);
        let below = times(d.g(), d.arg("negative_slope"));
        d.give("self", positive.op("aten.where.self", vec![d.g().into(), below.into()]));
    }),
    Derivative::new("aten.elu.default", "f32[2, 3] | f32[2, 3], 0.7, 1.5, 2.0", |d| {
        let x = d.tensor("self");
        let (alpha, scale, inner) = (d.float("alpha"), d.float("scale"), d.float("input_scale"));
        let below = d.g() * ((x * inner).exp() * (alpha * scale * inner));
        let positive = x.op("aten.gt.Scalar", vec![0i64.into()]);
        d.give("self", positive.op("aten.where.self", vec![(d.g() * scale).into(), below.into()]));
    }),
    Derivative::new("aten.frexp.Tensor", "f32[2, 3]", |d| {
        d.give("self", d.g() / d.ys(1).op("aten.exp2", vec![]));
    }),
    Derivative::new("aten.celu.default", "f32[2, 3] | f32[2, 3], 0.7", |d| {
        let x = d.tensor("self");
        let below = d.g() * (x / d.float("alpha")).exp();
        let positive = x.op("aten.gt.Scalar", vec![0i64.into()]);
        d.give("self", positive.op("aten.where.self", vec![d.g().into(), below.into()]));
    }),
    Derivative::unary("aten.mish.default", ANY, |g, x, _| {
        let t = x.op("aten.softplus", vec![]).tanh();
        g * (t + x * x.sigmoid() * complement(t * t))
    }),
    Derivative::new("aten.softplus.default", "f32[2, 3] | f32[2, 3], 2.0, 1.0", |d| {
        let x = d.tensor("self") * d.float("beta");
        let above = x.op("aten.gt.Scalar", vec![d.arg("threshold").clone()]);
        d.give("self", above.op("aten.where.self", vec![d.g().into(), (d.g() * x.sigmoid()).into()]));
    }),
    Derivative::new("aten.gelu.default", "f32[2, 3] | f32[2, 3], \"tanh\"", |d| d.give("self", gelu(d))),
];

/// The gradient between two bounds, of which one may be missing; at a bound it is 0.
fn bounded(d: &Gradient<'_>, min: &str, max: &str) {
    let x = d.tensor("self");
    let mut g = d.g();
    for (bound, beyond) in [(min, "aten.le.Scalar"), (max, "aten.ge.Scalar")] {
        if *d.arg(bound) != Arg::None {
            g = drop(g, x.op(beyond, vec![d.arg(bound).clone()]));
        }
    }
    d.give("self", g);
}

/// `Φ(x) + x·φ(x)`, or the same of the approximation.
fn gelu<'b>(d: &Gradient<'b>) -> crate::Value<'b> {
    let (g, x) = (d.g(), d.tensor("self"));
    let k = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    if d.str("approximate") == "tanh" {
        let t = ((x + x * x * x * 0.044715) * k).tanh();
        let inner = (x * x * (3.0 * 0.044715) + 1i64) * k;
        return g * ((t + 1i64) * 0.5 + x * 0.5 * complement(t * t) * inner);
    }
    let below = ((x * FRAC_1_SQRT_2).erf() + 1i64) * 0.5;
    g * (below + x * ((x * x * -0.5).exp() * (0.5 * k)))
}
