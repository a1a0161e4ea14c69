//! Functions between scaling and rounding: what follows a convolution and is rounded once with it.

use crate::pointwise::{Quantize, Unary};

/// Pieces of a curve.
pub(super) const PIECES: usize = 64;
/// Bits of a magnitude below the number of its piece.
pub(super) const PIECE_BITS: u32 = 9;

/// A function of a convolution's value `v`, given in the function's own unit, `v / unit`: its level less the output's zero
/// point. It has the same bits on every instruction set.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    pub(super) form: Form,
    unit: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// `v · clamp(v + 3, 0, 6) · factor`, the factor `1 / (6·sy)`, in f32.
    HardSwish(f32),
    /// `v/2 + g(|v|)`.
    Curve(Box<Curve>),
}

/// `v/2 + g(|v|)` in 16-bit integers: `v` by the unit, levels with some bits for fractions; `g` is linear in pieces.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Curve {
    /// `g` where a piece begins, in fractions of a level.
    pub base: [i16; PIECES],
    /// How much it rises until the next begins.
    pub rise: [u16; PIECES],
    /// Low and high bytes of `base`, then of `rise`, for tables of bytes.
    pub bytes: [[u8; PIECES]; 4],
    /// Fractions of a level that 2¹⁵ units are, halved.
    pub half: i16,
    /// `2^(15 - f)` for `f` bits of fractions: what rounds to a level.
    pub round: i16,
}

impl Activation {
    /// A function whose result is quantized so. None where there is no such kernel, or where it would be too coarse.
    ///
    /// SiLU and both GELUs are lines in 64 pieces: they differ from the function by at most 0.31 levels, and by 0.13 where it reaches less than 16.
    pub fn new(op: Unary, to: &Quantize) -> Option<Activation> {
        let (form, unit) = match op {
            Unary::HardSwish => (Form::HardSwish((1.0 / (6.0 * f64::from(to.scale))) as f32), 1.0),
            Unary::Silu => Curve::of(op, 8.0, to)?,
            Unary::Gelu | Unary::GeluTanh => Curve::of(op, 4.0, to)?,
            _ => return None,
        };
        Some(Activation { form, unit })
    }

    /// The unit in which it takes its argument.
    pub fn unit(&self) -> f32 {
        self.unit
    }

    /// One value, given in [`Activation::unit`]: the level less the zero point, before it is rounded and bounded.
    pub fn eval(&self, v: f32) -> f32 {
        self.form.eval(v)
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
            Form::Curve(c) => f32::from(c.eval(v.round_ties_even() as i16)),
        }
    }
}

/// `(a·b + 2¹⁴) / 2¹⁵`, rounded down: `vpmulhrsw`.
fn product(a: i16, b: i16) -> i16 {
    ((i32::from(a) * i32::from(b) + (1 << 14)) >> 15) as i16
}

impl Curve {
    /// Of a function `v/2 + g(|v|)`, `g` convex, that is nearly 0 below `-reach`; and its unit.
    fn of(op: Unary, reach: f32, to: &Quantize) -> Option<(Form, f32)> {
        // Results past the greatest level are of no interest, and there the function is nearly the identity.
        let most = f64::from(to.scale) * f64::from((to.qmax - to.zero_point).max(1));
        let reach = (most + 0.3).max(f64::from(reach)).log2().ceil().exp2();
        let unit = reach / 32768.0;
        // Half the reach, in fractions of a level, fits an i16.
        let levels = reach / 2.0 / f64::from(to.scale);
        let bits = (32767.0 / levels).log2().floor().min(6.0);
        if bits.is_nan() || bits < 4.0 {
            return None;
        }
        let fractions = bits.exp2() / f64::from(to.scale);
        let g = |i: f64| {
            let u = i * reach / PIECES as f64;
            (f64::from(op.eval(u as f32)) - u / 2.0) * fractions
        };
        let mut c = Curve {
            base: [0; PIECES],
            rise: [0; PIECES],
            bytes: [[0; PIECES]; 4],
            half: 0,
            round: 1 << (15 - bits as u32),
        };
        c.half = (reach / 2.0 * fractions).round() as i16;
        for i in 0..PIECES {
            let (low, mid, high) = (g(i as f64), g(i as f64 + 0.5), g(i as f64 + 1.0));
            // The chord lies above; half way down the error is the same on both sides. Half a fraction makes up for
            // what a product that is rounded down loses.
            c.base[i] = (low - ((low + high) / 2.0 - mid) / 2.0 + 0.5).round() as i16;
            c.rise[i] = (high - low).round() as u16;
            let ([b0, b1], [r0, r1]) = (c.base[i].to_le_bytes(), c.rise[i].to_le_bytes());
            c.bytes.iter_mut().zip([b0, b1, r0, r1]).for_each(|(part, byte)| part[i] = byte);
        }
        Some((Form::Curve(Box::new(c)), unit as f32))
    }

    fn eval(&self, x: i16) -> i16 {
        let u = x.unsigned_abs().min(32767);
        let piece = usize::from(u >> PIECE_BITS);
        let along = u << (16 - PIECE_BITS);
        let rise = ((u32::from(self.rise[piece]) * u32::from(along)) >> 16) as i16;
        product(product(x, self.half).saturating_add(self.base[piece]).saturating_add(rise), self.round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointwise::Rounding;

    fn to(most: f32, least: f32) -> Quantize {
        let scale = (most - least) / 255.0;
        Quantize::u8(scale, (-least / scale).round() as i32, Rounding::Recip)
    }

    /// Levels that `f` differs from a function by before rounding, and at most after it.
    fn errors(op: Unary, q: &Quantize) -> (f64, i32) {
        let f = Activation::new(op, q).unwrap();
        let (mut far, mut steps) = (0.0f64, 0);
        for i in -200_000..=200_000 {
            let v = i as f32 * 2e-4;
            let want = f64::from(op.eval(v)) / f64::from(q.scale);
            let got = f.eval(v / f.unit()).round_ties_even();
            // What is out of the range is bounded later.
            let range = f64::from(q.qmin - q.zero_point)..=f64::from(q.qmax - q.zero_point);
            let clamp = |x: f64| x.clamp(*range.start(), *range.end());
            far = far.max((clamp(f64::from(got)) - clamp(want)).abs() - 0.5);
            steps = steps.max((clamp(f64::from(got)) - clamp(want.round_ties_even())).abs() as i32);
        }
        (far, steps)
    }

    #[test]
    fn errors_are_as_stated() {
        for (op, least) in
            [(Unary::Silu, -0.2785), (Unary::Gelu, -0.17), (Unary::GeluTanh, -0.17), (Unary::HardSwish, -0.375)]
        {
            for most in [1.3, 3.0, 6.0, 7.9, 9.0, 15.0, 33.0] {
                let (far, steps) = errors(op, &to(most, least));
                let bound = if most > 16.0 { 0.31 } else { 0.13 };
                assert!(far < bound && steps <= 1, "{op:?} up to {most}: {far} levels, {steps}");
            }
        }
        assert!(Activation::new(Unary::Silu, &to(0.02, -0.02)).is_none());
        assert!(Activation::new(Unary::Relu, &to(1.0, 0.0)).is_none());
    }

    #[test]
    fn what_is_out_of_range_stays_there() {
        let q = to(6.0, -0.2785);
        let f = Activation::new(Unary::Silu, &q).unwrap();
        assert!(f.eval(1e30) + q.zero_point as f32 >= 255.0);
        assert_eq!(f.eval(-1e30), 0.0);
        assert_eq!(f.eval(0.0), 0.0);
    }
}
