//! Special functions in f64: gamma, error and Bessel functions, orthogonal polynomials.

mod bessel;
mod error;
mod gamma;
mod polynomial;

use super::EvalFn;
use super::ctx::Ctx;
use super::pointwise::{arith, zip};
use super::unary::float;
use super::value::{Array, Value, round_to};
use crate::error::Result;
use cleave_numerics::DType;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.erf.default", |c| float(c, libm::erf)),
    ("aten.erfc.default", |c| float(c, libm::erfc)),
    ("prims.erfcx.default", |c| float(c, error::erfcx)),
    ("prims.erf_inv.default", |c| float(c, error::erf_inv)),
    ("prims.ndtri.default", |c| float(c, error::ndtri)),
    ("aten.lgamma.default", |c| float(c, gamma::lgamma)),
    ("aten.digamma.default", |c| float(c, gamma::digamma)),
    ("aten.polygamma.default", |c| {
        let n = c.int("n")?;
        if n < 0 {
            return Err(c.err(format!("order {n}")));
        }
        let wide = wide(c.dtype());
        float(c, |v| gamma::polygamma(n, v, |v| round_to(wide, v)))
    }),
    ("prims.zeta.default", |c| arith(c, gamma::zeta, |_, _| 0)),
    ("aten.igamma.default", |c| arith(c, gamma::lower, |_, _| 0)),
    ("aten.igammac.default", |c| arith(c, gamma::upper, |_, _| 0)),
    ("prims.bessel_j0.default", |c| float(c, libm::j0)),
    ("prims.bessel_j1.default", |c| float(c, libm::j1)),
    ("prims.bessel_i0.default", |c| float(c, |x| bessel::i(0, x))),
    ("prims.bessel_i0e.default", |c| float(c, |x| bessel::scaled_i(0, x))),
    ("prims.bessel_i1.default", |c| float(c, |x| bessel::i(1, x))),
    ("prims.bessel_i1e.default", |c| float(c, |x| bessel::scaled_i(1, x))),
    ("prims.spherical_bessel_j0.default", |c| float(c, bessel::spherical_j0)),
    ("aten.special_bessel_y0.default", |c| float(c, libm::y0)),
    ("aten.special_bessel_y1.default", |c| float(c, libm::y1)),
    ("aten.special_modified_bessel_i0.default", |c| float(c, |x| bessel::i(0, x))),
    ("aten.special_modified_bessel_i1.default", |c| float(c, |x| bessel::i(1, x))),
    ("aten.special_modified_bessel_k0.default", |c| float(c, |x| bessel::k(0.0, x))),
    ("aten.special_modified_bessel_k1.default", |c| float(c, |x| bessel::k(1.0, x))),
    ("aten.special_scaled_modified_bessel_k0.default", |c| float(c, |x| bessel::scaled_k(0.0, x))),
    ("aten.special_scaled_modified_bessel_k1.default", |c| float(c, |x| bessel::scaled_k(1.0, x))),
    ("aten.special_airy_ai.default", |c| float(c, bessel::airy)),
];

/// The type in which torch computes.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The anchor of an orthogonal polynomial, if the op is one.
pub fn polynomial(op: &str) -> Option<EvalFn> {
    let name = op.strip_prefix("aten.special_")?.split('.').next()?;
    polynomial::FAMILIES.iter().any(|(family, _)| *family == name).then_some(evaluate as EvalFn)
}

fn evaluate(c: &Ctx<'_>) -> Result<Value> {
    let name = c.op.base().trim_start_matches("special_");
    let of = polynomial::FAMILIES.iter().find(|(family, _)| *family == name).map(|(_, f)| *f);
    let of = of.ok_or_else(|| c.err("no such polynomial"))?;
    let (x, n) = (c.array("x")?.cast(c.dtype()).to_f64(), c.array("n")?.to_f64());
    if n.iter().any(|n| *n > polynomial::MOST) {
        return Err(c.err(format!("a degree above {}", polynomial::MOST)));
    }
    let wide = wide(c.dtype());
    let round = |v| round_to(wide, v);
    // The degree is cut to an integer first.
    let at = |x: &f64, n: &f64| if *n <= -1.0 { 0.0 } else { of(*x, *n as u64, &round) };
    Ok(Array::from_f64(c.dtype(), zip(c, &x, &n, at)?).into())
}
