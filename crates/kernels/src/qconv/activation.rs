//! Functions between scaling and rounding: what follows a convolution and is rounded once with it.

use crate::pointwise::Unary;

/// Pieces of a curve.
pub(super) const PIECES: usize = 16;
/// Bits of a float below its exponent and the first bit of its significand: each octave has two pieces.
pub(super) const SHIFT: u32 = 22;
/// Where the second piece ends: what lies below 3/32 is in the first.
pub(super) const FIRST: i32 = 2 * (127 - 4);

/// A function of a convolution's float value, in units of its output's scale: `f(v) / sy`. It has the same bits on every
/// instruction set.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation(pub(super) Form);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// `v · clamp(v + 3, 0, 6) · factor`, the factor `1 / (6·sy)`.
    HardSwish(f32),
    /// `v·half + g(|v|)`.
    Curve(Box<Curve>),
}

/// `v·half + ((c2·u + c1)·u + c0)`, `u = |v|`, with coefficients by piece.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Curve {
    pub c0: [f32; PIECES],
    pub c1: [f32; PIECES],
    pub c2: [f32; PIECES],
    pub half: f32,
}

impl Activation {
    /// A function over `scale`; none where there is no such kernel. SiLU and both GELUs are quadratics in pieces, which
    /// differ from them by at most 0.0011 (and near 0, where `|v| < 1/8`, by 1e-5).
    pub fn new(op: Unary, scale: f32) -> Option<Activation> {
        let scale = f64::from(scale);
        Some(Activation(match op {
            Unary::HardSwish => Form::HardSwish((1.0 / (6.0 * scale)) as f32),
            Unary::Silu | Unary::Gelu | Unary::GeluTanh => Form::Curve(Box::new(Curve::new(op, scale))),
            _ => return None,
        }))
    }

    /// One value.
    pub fn eval(&self, v: f32) -> f32 {
        self.0.eval(v)
    }
}

impl Form {
    #[inline(always)]
    pub fn eval(&self, v: f32) -> f32 {
        match self {
            Form::HardSwish(factor) => {
                let gate = v + 3.0;
                let gate = if gate > 0.0 { gate } else { 0.0 };
                v * if gate < 6.0 { gate } else { 6.0 } * factor
            }
            Form::Curve(c) => {
                let u = v.abs();
                let i = ((u.to_bits() >> SHIFT) as i32 - FIRST).clamp(0, PIECES as i32 - 1) as usize;
                v * c.half + ((c.c2[i] * u + c.c1[i]) * u + c.c0[i])
            }
        }
    }
}

impl Curve {
    /// Of a function `v/2 + g(|v|)` that is `max(v, 0)` from 12 on, and from -12 down.
    fn new(op: Unary, scale: f64) -> Curve {
        let g = |u: f64| (f64::from(op.eval(u as f32)) - u / 2.0) / scale;
        let mut c = Curve { c0: [0.0; 16], c1: [0.0; 16], c2: [0.0; 16], half: (0.5 / scale) as f32 };
        let start = |i: usize| if i == 0 { 0.0 } else { (1.0 + (i % 2) as f64 / 2.0) * 2f64.powi(i as i32 / 2 - 4) };
        for i in 0..PIECES - 1 {
            // The parabola through the nodes of Chebyshev's third polynomial.
            let (mid, r) = ((start(i) + start(i + 1)) / 2.0, (start(i + 1) - start(i)) / 2.0);
            let d = r * 0.75f64.sqrt();
            let [low, at, high] = [mid - d, mid, mid + d].map(g);
            let (slope, bend) = ((high - low) / (2.0 * d), (low - 2.0 * at + high) / (2.0 * d * d));
            c.c0[i] = (at - slope * mid + bend * mid * mid) as f32;
            c.c1[i] = (slope - 2.0 * bend * mid) as f32;
            c.c2[i] = bend as f32;
        }
        c.c1[PIECES - 1] = c.half;
        c
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_as_stated() {
        for (op, near) in [(Unary::Silu, 1e-5), (Unary::Gelu, 1e-5), (Unary::GeluTanh, 1e-5), (Unary::HardSwish, 1e-6)]
        {
            let f = Activation::new(op, 1.0).unwrap();
            let error = |range: f32| {
                let at = |i: i32| range * i as f32 / 100_000.0;
                let off = |v: f32| (f64::from(f.eval(v)) - f64::from(op.eval(v))).abs();
                (-100_000..=100_000).map(at).map(off).fold(0.0, f64::max)
            };
            println!("{op:?} {} {}", error(40.0), error(0.125));
            assert!(error(40.0) < if op == Unary::HardSwish { 1e-5 } else { 1.1e-3 }, "{op:?}: {}", error(40.0));
            assert!(error(0.125) < near, "{op:?}: {}", error(0.125));
        }
        assert!(Activation::new(Unary::Relu, 1.0).is_none());
    }

    #[test]
    fn the_scale_is_that_of_the_output() {
        for op in [Unary::Silu, Unary::HardSwish] {
            let (one, small) = (Activation::new(op, 1.0).unwrap(), Activation::new(op, 0.03).unwrap());
            for v in [-20.0, -3.5, -1.0, -0.01, 0.0, 0.07, 2.0, 30.0] {
                assert!((one.eval(v) / 0.03 - small.eval(v)).abs() < 1e-3, "{op:?} {v}");
            }
        }
    }
}
