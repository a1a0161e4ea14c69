//! Orthogonal polynomials by their recurrences.

/// Rounds to the type in which the recurrence runs. What is added to a product is rounded, the product is not: torch's
/// kernels fuse the two.
pub type Round<'a> = &'a dyn Fn(f64) -> f64;

/// A polynomial of x and its degree.
pub type Polynomial = fn(f64, u64, Round<'_>) -> f64;

/// The greatest degree.
pub const MOST: f64 = 1_000_000.0;

/// By name, without `special_`.
pub const FAMILIES: &[(&str, Polynomial)] = &[
    ("chebyshev_polynomial_t", |x, n, r| chebyshev(|x| x, x, n, r)),
    ("chebyshev_polynomial_u", |x, n, r| chebyshev(|x| 2.0 * x, x, n, r)),
    ("chebyshev_polynomial_v", |x, n, r| chebyshev(|x| 2.0 * x - 1.0, x, n, r)),
    ("chebyshev_polynomial_w", |x, n, r| chebyshev(|x| 2.0 * x + 1.0, x, n, r)),
    ("shifted_chebyshev_polynomial_t", |x, n, r| chebyshev(|x| x, r(2.0 * x - 1.0), n, r)),
    ("shifted_chebyshev_polynomial_u", |x, n, r| chebyshev(|x| 2.0 * x, r(2.0 * x - 1.0), n, r)),
    ("shifted_chebyshev_polynomial_v", |x, n, r| chebyshev(|x| 2.0 * x - 1.0, r(2.0 * x - 1.0), n, r)),
    ("shifted_chebyshev_polynomial_w", |x, n, r| chebyshev(|x| 2.0 * x + 1.0, r(2.0 * x - 1.0), n, r)),
    ("hermite_polynomial_h", |x, n, r| recur(2.0 * x, n, r, |k, p, before| 2.0 * x * p - r(2.0 * k * before))),
    ("hermite_polynomial_he", |x, n, r| recur(x, n, r, |k, p, before| x * p - r(k * before))),
    ("laguerre_polynomial_l", |x, n, r| {
        recur(1.0 - x, n, r, |k, p, before| r(r(2.0 * k + r(1.0 - x)) * p - r(k * before)) / (k + 1.0))
    }),
    ("legendre_polynomial_p", |x, n, r| {
        recur(x, n, r, |k, p, before| r(r((2.0 * k + 1.0) * x) * p - r(k * before)) / (k + 1.0))
    }),
];

/// The polynomial of degree `n`: 1, then `first`, then what `next` makes of a degree, its polynomial and the one before.
fn recur(first: f64, n: u64, round: Round<'_>, next: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let (mut before, mut p) = (1.0, round(first));
    if n == 0 {
        return before;
    }
    for k in 1..n {
        (before, p) = (p, round(next(k as f64, p, before)));
        if p.is_nan() {
            break;
        }
    }
    p
}

/// The four kinds of Chebyshev's differ in their first polynomial only.
fn chebyshev(first: fn(f64) -> f64, x: f64, n: u64, round: Round<'_>) -> f64 {
    recur(first(x), n, round, |_, p, before| 2.0 * x * p - before)
}

#[cfg(test)]
mod tests {
    use super::FAMILIES;

    #[test]
    fn polynomials_of_degree_three_are_right() {
        let x = 0.25f64;
        let s = 2.0 * x - 1.0;
        let want = [
            ("chebyshev_polynomial_t", 4.0 * x.powi(3) - 3.0 * x),
            ("chebyshev_polynomial_u", 8.0 * x.powi(3) - 4.0 * x),
            ("chebyshev_polynomial_v", 8.0 * x.powi(3) - 4.0 * x.powi(2) - 4.0 * x + 1.0),
            ("chebyshev_polynomial_w", 8.0 * x.powi(3) + 4.0 * x.powi(2) - 4.0 * x - 1.0),
            ("shifted_chebyshev_polynomial_t", 4.0 * s.powi(3) - 3.0 * s),
            ("shifted_chebyshev_polynomial_u", 8.0 * s.powi(3) - 4.0 * s),
            ("shifted_chebyshev_polynomial_v", 8.0 * s.powi(3) - 4.0 * s.powi(2) - 4.0 * s + 1.0),
            ("shifted_chebyshev_polynomial_w", 8.0 * s.powi(3) + 4.0 * s.powi(2) - 4.0 * s - 1.0),
            ("hermite_polynomial_h", 8.0 * x.powi(3) - 12.0 * x),
            ("hermite_polynomial_he", x.powi(3) - 3.0 * x),
            ("laguerre_polynomial_l", 1.0 - 3.0 * x + 1.5 * x.powi(2) - x.powi(3) / 6.0),
            ("legendre_polynomial_p", 2.5 * x.powi(3) - 1.5 * x),
        ];
        for ((name, f), (same, want)) in FAMILIES.iter().zip(want) {
            assert_eq!(*name, same);
            assert!((f(x, 3, &|v| v) - want).abs() < 1e-15, "{name}: {} {want}", f(x, 3, &|v| v));
            assert_eq!(f(x, 0, &|v| v), 1.0);
        }
    }
}
