//! Gamma functions, at their poles as torch has them.

use std::f64::consts::PI;

/// Bernoulli numbers of even index, from the second on.
const BERNOULLI: [f64; 10] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
];

/// From here on asymptotic series are used.
const FAR: f64 = 12.0;

/// `log|Γ(x)|`.
pub fn lgamma(x: f64) -> f64 {
    if x.is_infinite() { f64::INFINITY } else { libm::lgamma(x) }
}

/// The derivative of the logarithm of Γ.
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        return if x == x.trunc() { f64::NAN } else { digamma(1.0 - x) - PI / (PI * x.fract()).tan() };
    }
    let (mut at, mut sum) = (x, 0.0);
    while at < FAR {
        sum -= 1.0 / at;
        at += 1.0;
    }
    let square = at * at;
    let mut power = 1.0;
    for (k, b) in BERNOULLI.iter().enumerate() {
        power /= square;
        sum -= b * power / (2.0 * (k + 1) as f64);
    }
    sum + at.ln() - 0.5 / at
}

/// The derivative of order `n` of [`digamma`]; `round` rounds to the type in which torch multiplies by π.
pub fn polygamma(n: i64, x: f64, round: impl Fn(f64) -> f64) -> f64 {
    match n {
        0 => digamma(x),
        // Near the poles the angle's rounding is seen.
        1 if x < 0.5 => (PI / round(round(PI) * x).sin()).powi(2) - zeta(2.0, 1.0 - x),
        _ => {
            let sign = if n % 2 == 0 { -1.0 } else { 1.0 };
            sign * lgamma(n as f64 + 1.0).exp() * zeta(n as f64 + 1.0, x)
        }
    }
}

/// Hurwitz zeta function: `Σ (k + q)^-s`.
pub fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s < 1.0 || s.is_nan() || q.is_nan() {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        // Far below, the terms before zero would take too long, and powers of negative numbers need integers.
        if s != s.floor() || q < -1e7 {
            return f64::NAN;
        }
    }
    let (mut at, mut sum) = (q, 0.0);
    while at < FAR.max(s) {
        let term = at.powf(-s);
        sum += term;
        at += 1.0;
        if at > 1.0 && term < sum * 1e-17 {
            return sum;
        }
    }
    // Euler and Maclaurin's rest.
    let last = at.powf(-s);
    sum += last * at / (s - 1.0) + last / 2.0;
    let mut factor = last * s / at;
    for (k, b) in BERNOULLI.iter().enumerate() {
        let n = 2.0 * (k + 1) as f64;
        // Here `factor` is s·(s + 1)···(s + n - 2)·at^(1 - s - n), divided by (n - 1)!.
        sum += b * factor / n;
        factor *= (s + n - 1.0) * (s + n) / (at * at * n * (n + 1.0));
    }
    sum
}

/// The most terms of a series or fraction.
const TERMS: u32 = 100_000;

/// Regularized lower incomplete gamma function.
pub fn lower(a: f64, x: f64) -> f64 {
    edge(a, x).unwrap_or_else(|| if x < a + 1.0 { series(a, x) } else { 1.0 - fraction(a, x) })
}

/// Regularized upper incomplete gamma function.
pub fn upper(a: f64, x: f64) -> f64 {
    edge(a, x).map_or_else(|| if x < a + 1.0 { 1.0 - series(a, x) } else { fraction(a, x) }, |lower| 1.0 - lower)
}

/// The lower function where no sum is needed.
fn edge(a: f64, x: f64) -> Option<f64> {
    Some(match (a, x) {
        _ if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 => f64::NAN,
        (0.0, _) if x > 0.0 => 1.0,
        (0.0, _) => f64::NAN,
        (_, 0.0) => 0.0,
        _ if a.is_infinite() => {
            if x.is_infinite() {
                f64::NAN
            } else {
                0.0
            }
        }
        _ if x.is_infinite() => 1.0,
        _ => return None,
    })
}

/// `x^a · exp(-x) / Γ(a)`.
fn front(a: f64, x: f64) -> f64 {
    if a < 50.0 {
        return (a * x.ln() - x - lgamma(a)).exp();
    }
    // By Stirling's series, whose large terms cancel: with x = a·(1 + d) they are a·(log(1 + d) - d).
    let d = (x - a) / a;
    let stirling = 1.0 / (12.0 * a) - 1.0 / (360.0 * a.powi(3)) + 1.0 / (1260.0 * a.powi(5));
    (a * (d.ln_1p() - d) - stirling).exp() * (a / (2.0 * PI)).sqrt()
}

/// The lower function by its power series.
fn series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0 / a, 1.0 / a);
    for k in 1..TERMS {
        term *= x / (a + f64::from(k));
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    front(a, x) * sum
}

/// The upper function by its continued fraction (Lentz).
fn fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / away(b));
    let mut h = d;
    for k in 1..TERMS {
        let k = f64::from(k);
        let n = -k * (k - a);
        b += 2.0;
        d = 1.0 / away(n * d + b);
        c = away(b + n / c);
        h *= c * d;
        if (c * d - 1.0).abs() < 1e-16 {
            break;
        }
    }
    front(a, x) * h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_their_tabled_values() {
        let close = |got: f64, want: f64| assert!((got - want).abs() <= 2e-13 * want.abs(), "{got}, expected {want}");
        close(digamma(1.0), -0.5772156649015329);
        close(digamma(-0.5), 0.03648997397857652);
        close(digamma(100.0), 4.600161852738087);
        close(polygamma(1, 1.0, |v| v), PI * PI / 6.0);
        close(polygamma(1, -0.5, |v| v), 8.934802200544679);
        close(polygamma(2, 1.0, |v| v), -2.4041138063191885);
        close(polygamma(4, 3.0, |v| v), -0.13626612344087823);
        close(zeta(2.0, 1.0), PI * PI / 6.0);
        close(zeta(1.5, 0.25), 10.2130553604666);
        close(zeta(3.0, -1.5), 0.1181020258208637);
        close(lower(1.0, 1.0), 0.6321205588285577);
        close(upper(0.5, 4.0), 0.004677734981047266);
        close(lower(100.0, 90.0), 0.15822098918643018);
        close(upper(1000.0, 1000.0), 0.4957947558197845);
        assert_eq!((lower(2.0, 0.0), upper(2.0, f64::INFINITY), lower(0.0, 1.0)), (0.0, 0.0, 1.0));
        assert!(lower(-1.0, 1.0).is_nan() && digamma(-2.0).is_nan() && zeta(0.5, 1.0).is_nan());
        assert_eq!((digamma(0.0), lgamma(-1.0), zeta(2.0, -3.0)), (f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY));
    }
}
