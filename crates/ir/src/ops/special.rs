//! Special functions: gamma, error and Bessel functions, orthogonal polynomials.

use super::expr::{choose, compare, elementwise, isnan, log, log1p, neg};
use super::promote::Kind;
use super::{infer, prims};
use crate::graph::Meta;
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef {
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    schema: "(Tensor self) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(infer::same_float),
    rule: Some(|c| prims::lower(c, Kind::IntToFloat)),
    example: "f32[2, 3]",
    ..OpDef::BASE
};
/// What has no prim: evaluated as it is.
const ANCHOR: OpDef = OpDef { levels: Levels::ALL, rule: None, example: "", ..BASE };
const COMPOSITE: OpDef = OpDef { levels: Levels::TORCH.and(Levels::ATEN), infer: None, ..BASE };
const BINARY: OpDef = OpDef {
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(infer::binary),
    rule: Some(|c| prims::lower(c, Kind::Default)),
    example: "f32[2, 3]>0, f32[3]>0",
    ..BASE
};
const ZETA_BASE: OpDef = OpDef {
    infer: Some(infer::binary_float),
    rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.zeta")),
    example: "i64[2, 3], f32[3]>0",
    ..BINARY
};

records! { FUNCTIONS:
    /// `log|Γ(x)|`.
    LGAMMA = "aten.lgamma.default", BASE { example: "f32[2, 3]>0" };
    /// The derivative of [`LGAMMA`].
    DIGAMMA = "aten.digamma.default", BASE { example: "f32[2, 3]>0" };
    /// The derivative of order `n` of [`DIGAMMA`].
    POLYGAMMA = "aten.polygamma.default", ANCHOR {
        schema: "(int n, Tensor self) -> Tensor",
        infer: Some(|c| {
            let m = c.meta("self")?;
            Ok(Meta::tensor(infer::to_float(m.dtype), m.shape))
        }),
    };
    /// [`POLYGAMMA`] in place.
    POLYGAMMA_ = "aten.polygamma_.default", COMPOSITE {
        schema: "(Tensor(a!) self, int n) -> Tensor(a!)",
        levels: Levels::TORCH,
        functional: Functional::Always,
        rule: Some(|c| {
            let x = c.tensor("self");
            vec![c.b.call("aten.polygamma", vec![c.arg("n").clone(), x.into()]).to(x.dtype())]
        }),
        example: "f32[2, 3]>0, 1",
    };
    /// The logarithm of the gamma function of `p` dimensions.
    MVLGAMMA = "aten.mvlgamma.default", COMPOSITE {
        schema: "(Tensor self, int p) -> Tensor",
        rule: Some(|c| {
            let p = c.int("p");
            if !(1..=1024).contains(&p) {
                c.fail(&format!("p of {p}, expected a positive number"));
                return vec![c.tensor("self")];
            }
            elementwise(c, ["self"], Kind::IntToFloat, |[x]| {
                let constant = 0.25 * (p * (p - 1)) as f64 * std::f64::consts::PI.ln();
                let args = vec![(1 - p).into(), 1i64.into(), 1i64.into(), x.dtype().into()];
                let shifts = c.b.call("aten.arange.start_step", args) * 0.5;
                let parts = (x.op("aten.unsqueeze", vec![(-1i64).into()]) + shifts).op("aten.lgamma", vec![]);
                parts.op("aten.sum.dim_IntList", vec![vec![-1i64].into()]) + constant
            })
        }),
        example: "f32[2, 3]>0, 1",
    };
    /// Regularized lower incomplete gamma function.
    IGAMMA = "aten.igamma.default", BINARY { example: "i64[2, 3], f32[3]>0" };
    /// Regularized upper incomplete gamma function.
    IGAMMAC = "aten.igammac.default", BINARY { example: "i64[2, 3], f32[3]>0" };
    /// Hurwitz zeta function: `Σ (k + other)^-self`.
    ZETA = "aten.special_zeta.default", ZETA_BASE {};
    /// [`ZETA`] of a tensor and a number.
    ZETA_SCALAR = "aten.special_zeta.other_scalar", ZETA_BASE {
        schema: "(Tensor self, Scalar other) -> Tensor",
        example: "i64[2, 3], 1.5",
    };
    /// [`ZETA`] of a number and a tensor.
    ZETA_NUMBER = "aten.special_zeta.self_scalar", ZETA_BASE {
        schema: "(Scalar self, Tensor other) -> Tensor",
        example: "2.5, f32[2, 3]>0",
    };
    /// The inverse of erf.
    ERFINV = "aten.erfinv.default", BASE {
        rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.erf_inv")),
        example: "f32[2, 3]<1",
    };
    /// `exp(x²) · erfc(x)`.
    ERFCX = "aten.special_erfcx.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.erfcx")) };
    /// Probability of the standard normal distribution below x.
    NDTR = "aten.special_ndtr.default", COMPOSITE {
        rule: Some(|c| {
            let erf = c.tensor("self").op("aten.mul.Scalar", vec![std::f64::consts::FRAC_1_SQRT_2.into()]).erf();
            vec![erf.op("aten.add.Scalar", vec![1i64.into()]).op("aten.mul.Scalar", vec![0.5.into()])]
        }),
    };
    /// The inverse of [`NDTR`].
    NDTRI = "aten.special_ndtri.default", BASE {
        rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.ndtri")),
        example: "f32[2, 3]>0<1",
    };
    /// `log(ndtr(x))`, accurate far below 0.
    LOG_NDTR = "aten.special_log_ndtr.default", COMPOSITE {
        rule: Some(|c| {
            elementwise(c, ["self"], Kind::IntToFloat, |[x]| {
                let t = x * std::f64::consts::FRAC_1_SQRT_2;
                let below = log(neg(t).op("aten.special_erfcx", vec![]) / 2i64) - t * t;
                let above = log1p(neg(t.op("aten.erfc", vec![])) / 2i64);
                choose(compare(x, "lt", 1.0), below, above)
            })
        }),
    };
    /// `-x · log(x)`, 0 at 0 and -inf below.
    ENTR = "aten.special_entr.default", COMPOSITE {
        rule: Some(|c| {
            elementwise(c, ["self"], Kind::IntToFloat, |[x]| {
                let edge = choose(compare(x, "eq", 0i64), 0i64, f64::NEG_INFINITY);
                choose(isnan(x), x, choose(compare(x, "gt", 0i64), neg(x) * log(x), edge))
            })
        }),
        example: "f32[2, 3]>0",
    };
    /// Modified Bessel function of the first kind, order 0.
    I0 = "aten.i0.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_i0")) };
    /// [`I0`] times `exp(-|x|)`.
    I0E = "aten.special_i0e.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_i0e")) };
    /// Modified Bessel function of the first kind, order 1.
    I1 = "aten.special_i1.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_i1")) };
    /// [`I1`] times `exp(-|x|)`.
    I1E = "aten.special_i1e.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_i1e")) };
    /// Bessel function of the first kind, order 0.
    J0 = "aten.special_bessel_j0.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_j0")) };
    /// Bessel function of the first kind, order 1.
    J1 = "aten.special_bessel_j1.default", BASE { rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.bessel_j1")) };
    /// `sin(x) / x`.
    SPHERICAL_J0 = "aten.special_spherical_bessel_j0.default", BASE {
        schema: "(Tensor x) -> Tensor",
        rule: Some(|c| prims::lower_to(c, Kind::IntToFloat, "prims.spherical_bessel_j0")),
    };
    /// Bessel function of the second kind, order 0.
    Y0 = "aten.special_bessel_y0.default", ANCHOR {};
    /// Bessel function of the second kind, order 1.
    Y1 = "aten.special_bessel_y1.default", ANCHOR {};
    /// Modified Bessel function of the first kind, order 0.
    MODIFIED_I0 = "aten.special_modified_bessel_i0.default", ANCHOR {};
    /// Modified Bessel function of the first kind, order 1.
    MODIFIED_I1 = "aten.special_modified_bessel_i1.default", ANCHOR {};
    /// Modified Bessel function of the second kind, order 0.
    K0 = "aten.special_modified_bessel_k0.default", ANCHOR {};
    /// Modified Bessel function of the second kind, order 1.
    K1 = "aten.special_modified_bessel_k1.default", ANCHOR {};
    /// [`K0`] times `exp(x)`.
    SCALED_K0 = "aten.special_scaled_modified_bessel_k0.default", ANCHOR { schema: "(Tensor x) -> Tensor" };
    /// [`K1`] times `exp(x)`.
    SCALED_K1 = "aten.special_scaled_modified_bessel_k1.default", ANCHOR { schema: "(Tensor x) -> Tensor" };
    /// Airy function.
    AIRY = "aten.special_airy_ai.default", ANCHOR { schema: "(Tensor x) -> Tensor" };
}

/// The three overloads of an orthogonal polynomial of degree `n`.
macro_rules! polynomials {
    ($($name:literal),* $(,)?) => {
        static POLYNOMIALS: &[&OpDef] = &[$(
            &OpDef { name: concat!("aten.special_", $name, ".default"), schema: "(Tensor x, Tensor n) -> Tensor", ..POLYNOMIAL },
            &OpDef { name: concat!("aten.special_", $name, ".x_scalar"), schema: "(Scalar x, Tensor n) -> Tensor", ..POLYNOMIAL },
            &OpDef { name: concat!("aten.special_", $name, ".n_scalar"), schema: "(Tensor x, Scalar n) -> Tensor", ..POLYNOMIAL },
        )*];
    };
}

const POLYNOMIAL: OpDef = OpDef {
    infer: Some(|c| {
        let m = infer::pointwise(c, &["x", "n"])?;
        Ok(Meta::tensor(infer::to_float(m.dtype), m.shape))
    }),
    ..ANCHOR
};

polynomials! {
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
}

/// The families.
pub static OPS: &[&[&OpDef]] = &[FUNCTIONS, POLYNOMIALS];
