//! Relatives of the error function.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

/// `exp(x²) · erfc(x)`.
pub fn erfcx(x: f64) -> f64 {
    if x < 2.0 {
        return (x * x).exp() * libm::erfc(x);
    }
    let fraction = (1..=100).rev().fold(0.0, |f, k| f64::from(k) / 2.0 / (x + f));
    FRAC_2_SQRT_PI / 2.0 / (x + fraction)
}

/// The inverse of erf.
pub fn erf_inv(y: f64) -> f64 {
    let a = y.abs();
    if a > 0.5 {
        return erfc_inv(1.0 - a).copysign(y);
    }
    let slope = |x: f64| FRAC_2_SQRT_PI * (-x * x).exp();
    (0..8).fold(y / FRAC_2_SQRT_PI, |x, _| halley(x, (libm::erf(x) - y) / slope(x)))
}

/// The inverse of erfc on (0, 1]; infinite at 0 and no number below.
fn erfc_inv(q: f64) -> f64 {
    if q <= 0.0 || q.is_nan() {
        return if q == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    // Winitzki's approximation is close enough for the steps to converge.
    let (a, log) = (0.147, (q * (2.0 - q)).ln());
    let t = 2.0 / (PI * a) + log / 2.0;
    let first = ((t * t - log / a).sqrt() - t).max(0.0).sqrt();
    let slope = |x: f64| FRAC_2_SQRT_PI * (-x * x).exp();
    (0..8).fold(first, |x, _| halley(x, (q - libm::erfc(x)) / slope(x)))
}

/// Halley's step for erf, whose second derivative is `-2x` times the first; `step` is Newton's.
fn halley(x: f64, step: f64) -> f64 {
    x - step / (1.0 + x * step)
}

/// Where the standard normal distribution has probability `p` below.
pub fn ndtri(p: f64) -> f64 {
    if p <= 0.5 { -SQRT_2 * erfc_inv(2.0 * p) } else { SQRT_2 * erfc_inv(2.0 * (1.0 - p)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_their_tabled_values() {
        let close = |got: f64, want: f64| assert!((got - want).abs() <= 1e-14 * want.abs(), "{got}, expected {want}");
        close(erfcx(0.5), 0.6156903441929259);
        close(erfcx(10.0), 0.05614099274382259);
        close(erfcx(-1.0), 5.008980080762283);
        close(erfcx(1e10), 5.641895835477563e-11);
        close(erf_inv(0.1), 0.08885599049425769);
        close(erf_inv(-0.9), -1.1630871536766743);
        close(ndtri(0.025), -1.9599639845400545);
        close(ndtri(1e-300), -37.0470962993612);
        assert_eq!((erf_inv(1.0), erf_inv(-1.0), ndtri(0.0)), (f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY));
        assert!(erf_inv(1.5).is_nan() && ndtri(-0.1).is_nan() && ndtri(1.1).is_nan() && erf_inv(f64::NAN).is_nan());
    }
}
