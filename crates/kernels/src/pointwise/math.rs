//! Elementary functions in f32 without branches, libm or fused multiply-add: they vectorise, and their
//! bits are the same under every instruction set.
//!
//! The greatest errors, over all of f32 and against f64, are stated with each function and tested.
#![allow(clippy::excessive_precision, reason = "coefficients are written with the digits that f32 prints")]

/// 1.5·2²³: adding it rounds to the nearest integer, half to even, and leaves that integer in the low bits.
pub(crate) const MAGIC: f32 = 12_582_912.0;
const MAGIC_BITS: u32 = MAGIC.to_bits();

/// `a` if it is greater, else `b` (also where either is NaN): one vmaxps.
#[inline(always)]
pub(crate) fn max_ps(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

/// `a` if it is less, else `b` (also where either is NaN): one vminps.
#[inline(always)]
pub(crate) fn min_ps(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// torch's `maximum`: NaN if either is.
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// torch's `minimum`: NaN if either is.
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}

/// `min(max(x, lo), hi)`; NaN stays NaN.
#[inline(always)]
pub(crate) fn clamp(x: f32, lo: f32, hi: f32) -> f32 {
    min_ps(hi, max_ps(lo, x))
}

/// `a · b + c`, rounded once: `f32::mul_add`, without a call of libm where the target has no such instruction.
///
/// The product is exact in f64; the sum is rounded to odd there, after which rounding to f32 is as good as a
/// single rounding (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums").
#[inline(always)]
pub(crate) fn fma(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        return a.mul_add(b, c);
    }
    let (p, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let s = p + c;
    let rest = s - p;
    let error = (p - (s - rest)) + (c - rest);
    let bits = s.to_bits();
    let inexact = error != 0.0 && s.abs() < f64::INFINITY;
    let odd = if (error > 0.0) == (s > 0.0) { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if inexact && bits & 1 == 0 { odd } else { bits }) as f32
}

/// 2^`n` times `y`, for `|n| <= 250`, in two steps so that subnormal results are rounded once more at most.
#[inline(always)]
fn scale_by_power(y: f32, n: i32) -> f32 {
    let half = n >> 1;
    let power = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
    y * power(half) * power(n.wrapping_sub(half))
}

/// `e^x`; at most 2 ulp off. Reduction and polynomial are those of Cephes' `expf`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let x = clamp(x, -104.0, 89.0);
    let t = x * std::f32::consts::LOG2_E + MAGIC;
    let n = t - MAGIC;
    // The high part of ln 2 has nine bits, so that its product with n is exact.
    let r = x - n * 0.693_359_4;
    let r = r - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 5.000_000_1e-1;
    let y = (p * (r * r) + r) + 1.0;
    scale_by_power(y, t.to_bits().wrapping_sub(MAGIC_BITS) as i32)
}

/// The natural logarithm; at most 2 ulp off. -inf at 0, NaN below. Polynomial of Cephes' `logf`.
#[inline(always)]
pub(crate) fn log(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let (scaled, shift) = if subnormal { (x * 8_388_608.0, 23.0) } else { (x, 0.0) };
    let i = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((i as i32) >> 23) as f32 - shift;
    let f = f32::from_bits((i & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0;
    let p = 7.037_683_6e-2;
    let p = p * f + -1.151_461e-1;
    let p = p * f + 1.167_699_9e-1;
    let p = p * f + -1.242_014_1e-1;
    let p = p * f + 1.424_932_3e-1;
    let p = p * f + -1.666_805_8e-1;
    let p = p * f + 2.000_071_5e-1;
    let p = p * f + -2.499_999_4e-1;
    let p = p * f + 3.333_333_1e-1;
    let z = f * f;
    let y = f * z * p + e * -2.121_944_4e-4 - 0.5 * z;
    let y = (f + y) + e * 0.693_359_4;
    // Positive and finite, or one of the four exceptions.
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 || x.is_nan() { f32::NAN } else { y }
}

/// The hyperbolic tangent; at most 3 ulp off. Cephes' `tanhf`, both branches computed.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let z = x * x;
    let p = -5.704_988_7e-3;
    let p = p * z + 2.063_908_9e-2;
    let p = p * z + -5.373_971_6e-2;
    let p = p * z + 1.333_144_2e-1;
    let p = p * z + -3.333_328_2e-1;
    let small = p * z * x + x;
    let big = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { small } else { big.copysign(x) }
}

/// `e^x`, at most 2 ulp off, for what is added to 1: 0 below -87. Fewer steps than [`exp`]: a minimax polynomial of
/// one degree less, and one multiplication by a power of 2.
#[inline(always)]
fn exp_beside_one(x: f32) -> f32 {
    let x = clamp(x, -87.0, 89.0);
    let t = x * std::f32::consts::LOG2_E + MAGIC;
    let n = t - MAGIC;
    let r = x - n * 0.693_359_4;
    let r = r - n * -2.121_944_4e-4;
    let p = 1.381_453_9e-3;
    let p = p * r + 8.368_745e-3;
    let p = p * r + 4.166_839e-2;
    let p = p * r + 1.666_652_1e-1;
    let p = p * r + 4.999_999_4e-1;
    let y = (p * (r * r) + r) + 1.0;
    // 2^(n-1), for n from -126 to 128; 0 at the lower end.
    let power = f32::from_bits(t.to_bits().wrapping_sub(MAGIC_BITS).wrapping_add(126) << 23);
    (y + y) * power
}

/// `1 / (1 + e^-x)`; at most 3 ulp off; 0 below -88.8, where the true value is subnormal.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp_beside_one(-x))
}

/// `x / (1 + e^-x)`, torch's formula.
#[inline(always)]
pub(crate) fn silu(x: f32) -> f32 {
    x / (1.0 + exp_beside_one(-x))
}

/// The error function; at most 3 ulp off. Minimax polynomials of N. Juffa, both branches computed.
#[inline(always)]
pub(crate) fn erf(a: f32) -> f32 {
    let t = a.abs();
    let s = a * a;
    let r = -1.728_534_7e-5 * t + 3.831_974_7e-4;
    let u = -3.883_964_4e-3 * t + 2.425_462_2e-2;
    let r = r * s + u;
    let r = r * t + -1.067_778_8e-1;
    let r = r * t + -6.348_469e-1;
    let r = r * t + -1.287_175_1e-1;
    let big = 1.0 - exp(r * t - t);
    let q = -5.967_617e-4;
    let q = q * s + 4.991_194_2e-3;
    let q = q * s + -2.676_813_5e-2;
    let q = q * s + 1.128_199_3e-1;
    let q = q * s + -3.761_253_4e-1;
    let q = q * s + 1.283_791_7e-1;
    let small = q * a + a;
    // Past 4 the polynomial is no longer needed (erf rounds to 1), and at infinity it would be NaN.
    let big = if t > 4.0 { 1.0 } else { big };
    if t > 0.927_734_4 { big.copysign(a) } else { small }
}

/// `x/2 · (1 + erf(x/√2))`, torch's exact GELU.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    x * 0.5 * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

/// `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`, torch's GELU with `approximate="tanh"`.
#[inline(always)]
pub(crate) fn gelu_tanh(x: f32) -> f32 {
    const BETA: f32 = std::f32::consts::FRAC_2_SQRT_PI * std::f32::consts::FRAC_1_SQRT_2;
    let inner = BETA * (x + 0.044715 * (x * x * x));
    0.5 * x * (1.0 + tanh(inner))
}

/// `clamp(x + 3, 0, 6) / 6`, torch's.
#[inline(always)]
pub(crate) fn hardsigmoid(x: f32) -> f32 {
    clamp(x + 3.0, 0.0, 6.0) / 6.0
}

/// `x · clamp(x + 3, 0, 6) / 6`, torch's.
#[inline(always)]
pub(crate) fn hardswish(x: f32) -> f32 {
    x * clamp(x + 3.0, 0.0, 6.0) / 6.0
}

/// `a^b` with C's special cases; within 1 ulp, by way of f64.
#[inline(always)]
pub(crate) fn pow(a: f32, b: f32) -> f32 {
    let is_integer = b.floor() == b || b.is_infinite();
    let is_odd = b.abs() < 16_777_216.0 && (b * 0.5).floor() != b * 0.5 && is_integer;
    let magnitude = exp2_f64(f64::from(b) * log2_f64(f64::from(a.abs()))) as f32;
    let signed = if is_odd && a.is_sign_negative() { -magnitude } else { magnitude };
    let real = if a < 0.0 && a.is_finite() && !is_integer { f32::NAN } else { signed };
    let one = b == 0.0 || a == 1.0 || (a == -1.0 && b.is_infinite());
    if one { 1.0 } else { real }
}

/// log₂ of a value converted from f32, to about 1e-13; -inf at 0.
#[inline(always)]
fn log2_f64(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let i = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = ((i as i64) >> 52) as f64;
    let m = f64::from_bits((i & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF));
    // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 17.0;
    for k in [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
        p = p * z + 1.0 / k;
    }
    let y = e + 2.0 * s * p * std::f64::consts::LOG2_E;
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x.is_finite() { y } else { x }
}

/// 2^x to about 1e-13, for results within f32's range; saturates far outside it.
#[inline(always)]
fn exp2_f64(x: f64) -> f64 {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    let c = if x < -400.0 { -400.0 } else { x };
    let c = if c > 400.0 { 400.0 } else { c };
    let t = c + MAGIC;
    let n = t - MAGIC;
    let r = (c - n) * std::f64::consts::LN_2;
    let mut p = 1.0;
    for k in [12.0, 11.0, 10.0, 9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0] {
        p = p * (r / k) + 1.0;
    }
    let e = t.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(1023) << 52;
    let y = p * f64::from_bits(e);
    if x.is_nan() { x } else { y }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance in units of the last place of `want` (subnormal results count in the least unit).
    fn ulps(got: f32, want: f64) -> f64 {
        if f64::from(got) == want || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        let near = want as f32;
        if near.is_infinite() && got == near {
            return 0.0;
        }
        let exponent = want.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor();
        (f64::from(got) - want).abs() / (exponent - 23.0).exp2()
    }

    fn worst(range: std::ops::Range<f32>, f: impl Fn(f32) -> f32, g: impl Fn(f64) -> f64) -> f64 {
        let steps = 400_000;
        let at = |i: i32| range.start + (range.end - range.start) * (i as f32 / steps as f32);
        (0..=steps).map(at).map(|x| ulps(f(x), g(f64::from(x)))).fold(0.0, f64::max)
    }

    /// erf in f64: the Taylor series, then Lentz' continued fraction of erfc.
    fn erf64(x: f64) -> f64 {
        let t = x.abs();
        let value = if t < 2.5 {
            let (mut term, mut sum) = (t, t);
            for n in 1..80 {
                term *= -t * t / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let tail = (1..120).rev().fold(t, |acc, k| t + f64::from(k) / 2.0 / acc);
            1.0 - (-t * t).exp() / (tail * std::f64::consts::PI.sqrt())
        };
        value.copysign(x)
    }

    #[test]
    fn errors_are_within_the_stated_ulps() {
        assert!(worst(-110.0..95.0, exp, f64::exp) <= 2.0);
        assert!(worst(-1.0..1.0, exp, f64::exp) <= 2.0);
        assert!(worst(1e-3..3.0, log, f64::ln) <= 2.0);
        assert!(worst(1e-45..1e-37, log, f64::ln) <= 2.0);
        assert!(worst(3.0..3e38, log, f64::ln) <= 2.0);
        assert!(worst(-2.0..2.0, tanh, f64::tanh) <= 3.0);
        assert!(worst(-20.0..20.0, tanh, f64::tanh) <= 3.0);
        let sig = |x: f64| 1.0 / (1.0 + (-x).exp());
        assert!(worst(-87.0..30.0, sigmoid, sig) <= 3.0);
        assert!(worst(-3.0..3.0, erf, erf64) <= 3.0);
        assert!(worst(-10.0..10.0, erf, erf64) <= 3.0);
        assert!(worst(1e-4..50.0, |x| pow(x, 1.7), |x| x.powf(f64::from(1.7f32))) <= 1.0);
        assert!(worst(0.5..40.0, |x| pow(3.25, x), |x| 3.25f64.powf(x)) <= 1.0);
    }

    #[test]
    fn fma_rounds_once() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let near = |u: u32| f32::from_bits(0x3f80_0000 | (u & 0x00ff_ffff) | (u & 0x8000_0000));
        let close = |u: u32| f32::from_bits(0x3380_0000 + (u & 0x0fff_f000));
        for i in 0..2_000_000 {
            let (u, v, w) = (next(), next(), next());
            // Arbitrary bits, values of one size, and sums that lie near the middle of two floats.
            let (a, b, c) = match i % 3 {
                0 => (f32::from_bits(u), f32::from_bits(v), f32::from_bits(w)),
                1 => (near(u), near(v), near(w)),
                _ => (near(u & 0xffff_f000), near(v & 0xffff_f000), close(w)),
            };
            let (got, want) = (fma(a, b, c), a.mul_add(b, c));
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "fma({a:e}, {b:e}, {c:e}) = {got:e}, expected {want:e}");
        }
    }

    #[test]
    fn special_values_are_those_of_c() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!((exp(-inf), exp(inf), exp(0.0)), (0.0, inf, 1.0));
        assert!(exp(nan).is_nan() && tanh(nan).is_nan() && erf(nan).is_nan() && sigmoid(nan).is_nan());
        assert_eq!((log(0.0), log(inf), log(1.0)), (-inf, inf, 0.0));
        assert!(log(-1.0).is_nan() && log(nan).is_nan() && log(-inf).is_nan());
        assert_eq!((tanh(inf), tanh(-inf), erf(inf), erf(-inf)), (1.0, -1.0, 1.0, -1.0));
        assert_eq!((sigmoid(inf), sigmoid(-inf), silu(0.0)), (1.0, 0.0, 0.0));
        for a in [-inf, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0, inf, nan] {
            for b in [-inf, -3.0, -1.5, -0.0, 0.0, 1.0, 1.5, 2.0, 3.0, inf, nan] {
                let (got, want) = (pow(a, b), a.powf(b));
                let same = ulps(got, f64::from(want)) <= 1.0 || (got.is_nan() && want.is_nan());
                assert!(same, "pow({a}, {b}) = {got}, expected {want}");
            }
        }
    }

    #[test]
    fn activations_equal_their_formulas() {
        assert_eq!([hardswish(-4.0), hardswish(0.0), hardswish(1.0), hardswish(5.0)], [-0.0, 0.0, 4.0 / 6.0, 5.0]);
        assert_eq!([hardsigmoid(-3.0), hardsigmoid(0.0), hardsigmoid(9.0)], [0.0, 0.5, 1.0]);
        assert!((gelu(1.0) - 0.841_344_8).abs() < 1e-6 && (gelu_tanh(1.0) - 0.841_192).abs() < 1e-6);
        assert!(maximum(f32::NAN, 1.0).is_nan() && minimum(1.0, f32::NAN).is_nan());
        assert!(clamp(f32::NAN, 0.0, 6.0).is_nan());
        assert_eq!((maximum(1.0, 2.0), minimum(1.0, 2.0)), (2.0, 1.0));
    }
}
