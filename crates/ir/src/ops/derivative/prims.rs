//! Prims. Elementwise ones have the derivatives of the ops that they are at the bottom of.

use super::super::view::reshape;
use super::{binary, keep, reduce};
use crate::derivative::{Derivative, sum_to};
use crate::dim::Dim;

/// Prims whose derivatives are those of other ops, which have the same parameters.
pub(super) static SAME: &[(&str, &str)] = &[
    ("prims.abs.default", "aten.abs.default"),
    ("prims.acos.default", "aten.acos.default"),
    ("prims.acosh.default", "aten.acosh.default"),
    ("prims.asin.default", "aten.asin.default"),
    ("prims.asinh.default", "aten.asinh.default"),
    ("prims.atan.default", "aten.atan.default"),
    ("prims.atanh.default", "aten.atanh.default"),
    ("prims.cos.default", "aten.cos.default"),
    ("prims.cosh.default", "aten.cosh.default"),
    ("prims.erf.default", "aten.erf.default"),
    ("prims.exp.default", "aten.exp.default"),
    ("prims.expm1.default", "aten.expm1.default"),
    ("prims.log.default", "aten.log.default"),
    ("prims.log10.default", "aten.log10.default"),
    ("prims.log1p.default", "aten.log1p.default"),
    ("prims.log2.default", "aten.log2.default"),
    ("prims.neg.default", "aten.neg.default"),
    ("prims.reciprocal.default", "aten.reciprocal.default"),
    ("prims.rsqrt.default", "aten.rsqrt.default"),
    ("prims.sin.default", "aten.sin.default"),
    ("prims.sinh.default", "aten.sinh.default"),
    ("prims.sqrt.default", "aten.sqrt.default"),
    ("prims.tan.default", "aten.tan.default"),
    ("prims.tanh.default", "aten.tanh.default"),
    ("prims.bessel_i0.default", "aten.i0.default"),
    ("prims.bessel_i0e.default", "aten.special_i0e.default"),
    ("prims.bessel_i1.default", "aten.special_i1.default"),
    ("prims.bessel_i1e.default", "aten.special_i1e.default"),
    ("prims.bessel_j0.default", "aten.special_bessel_j0.default"),
    ("prims.bessel_j1.default", "aten.special_bessel_j1.default"),
    ("prims.digamma.default", "aten.digamma.default"),
    ("prims.erf_inv.default", "aten.erfinv.default"),
    ("prims.erfc.default", "aten.erfc.default"),
    ("prims.exp2.default", "aten.exp2.default"),
    ("prims.igamma.default", "aten.igamma.default"),
    ("prims.igammac.default", "aten.igammac.default"),
    ("prims.lgamma.default", "aten.lgamma.default"),
    ("prims.nextafter.default", "aten.nextafter.default"),
    ("prims.convert_element_type.default", "aten._to_copy.default"),
    ("prims.erfcx.default", "aten.special_erfcx.default"),
    ("prims.ndtri.default", "aten.special_ndtri.default"),
    ("prims.spherical_bessel_j0.default", "aten.special_spherical_bessel_j0.default"),
    ("prims.zeta.default", "aten.special_zeta.default"),
    ("prims.ceil.default", "aten.ceil.default"),
    ("prims.floor.default", "aten.floor.default"),
    ("prims.round.default", "aten.round.default"),
    ("prims.sign.default", "aten.sign.default"),
    ("prims.trunc.default", "aten.trunc.default"),
];

const SAME_SHAPE: &str = "f32[2, 3], f32[2, 3]";
const POSITIVE: &str = "f32[2, 3]>0, f32[2, 3]>0 | f32[2, 3]>0, 1.7";
const REDUCED: &str = "f32[2, 3, 2], [1] | f32[2, 3], [0, 1] | f32[2, 3], none";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("prims.add.default", SAME_SHAPE, |d| {
        d.give("self", d.g());
        d.give("other", d.g());
    }),
    Derivative::new("prims.sub.default", SAME_SHAPE, |d| {
        d.give("self", d.g());
        d.give("other", super::neg(d.g()));
    }),
    Derivative::new("prims.mul.default", SAME_SHAPE, binary::product),
    Derivative::new("prims.div.default", POSITIVE, binary::quotient),
    Derivative::new("prims.pow.default", POSITIVE, |d| binary::power(d, "other")),
    Derivative::new("prims.maximum.default", SAME_SHAPE, binary::maximum),
    Derivative::new("prims.minimum.default", SAME_SHAPE, binary::minimum),
    Derivative::new("prims.fmax.default", SAME_SHAPE, binary::greater_number),
    Derivative::new("prims.fmin.default", SAME_SHAPE, binary::lesser_number),
    Derivative::new("prims.hypot.default", SAME_SHAPE, binary::hypotenuse),
    Derivative::new("prims.remainder.default", POSITIVE, |d| binary::remainder(d, "floor")),
    Derivative::new("prims.fmod.default", POSITIVE, |d| binary::remainder(d, "trunc")),
    Derivative::new("prims.atan2.default", SAME_SHAPE, binary::angle),
    Derivative::new("prims.where.default", "bool[2, 3], f32[2, 3], f32[2, 3]", |d| {
        let mask = d.tensor("pred");
        d.give("a", keep(d.g(), mask));
        d.give("b", super::drop(d.g(), mask));
    }),
    Derivative::new("prims.cbrt.default", "f32[2, 3]>0", |d| d.give("self", d.g() / (d.y() * d.y() * 3i64))),
    Derivative::new("prims.sum.default", REDUCED, |d| d.give("inp", reduce::kept(d, d.g()))),
    Derivative::new("prims.amax.default", REDUCED, reduce::shared),
    Derivative::new("prims.amin.default", REDUCED, reduce::shared),
    Derivative::new("prims.prod.default", REDUCED, reduce::product),
    Derivative::new("prims.var.default", "f32[2, 3], [1] | f32[2, 3], [0, 1], 0.0", |d| {
        d.give("inp", reduce::spread_out(d, reduce::kept(d, d.g())));
    }),
    Derivative::new("prims.broadcast_in_dim.default", "f32[2, 1], [2, 4, 3], [0, 2]", |d| {
        let (x, to) = (d.tensor("a"), d.ints("broadcast_dimensions"));
        let mut shape = vec![Dim::from(1i64); d.y().rank()];
        for (i, n) in to.into_iter().zip(x.shape()) {
            shape[i as usize] = n;
        }
        d.give("a", reshape(sum_to(d.g(), &shape), x.shape()));
    }),
    Derivative::new("prims.transpose.default", "f32[2, 3, 4], [2, 0, 1]", |d| {
        let order = d.ints("permutation");
        let back = (0..order.len()).map(|i| order.iter().position(|o| *o == i as i64).unwrap_or(i) as i64);
        d.give("a", d.g().permute(back.collect()));
    }),
    Derivative::new(
        "prims._low_memory_max_pool_with_offsets.default",
        "f32[1, 2, 4, 5]!, [2, 3], [1, 2], [0, 1], [1, 1], false",
        |d| {
            // The places that it does not note are found again.
            let op = if d.ints("kernel_size").len() == 3 {
                "aten.max_pool3d_with_indices"
            } else {
                "aten.max_pool2d_with_indices"
            };
            let places = d.b.getitem(d.b.call(op, d.args.clone()), 1);
            d.give("self", d.g().op(&format!("{op}_backward"), [d.args.clone(), vec![places.into()]].concat()));
        },
    ),
    Derivative::new("prims.reshape.default", "f32[2, 3], [3, 2]", |d| {
        d.give("a", reshape(d.g(), d.tensor("a").shape()));
    }),
];
