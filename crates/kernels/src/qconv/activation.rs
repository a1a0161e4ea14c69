//! Functions between scaling and rounding: what follows a convolution and is rounded once with it.

use crate::pointwise::{Quantize, Unary};

/// Pieces of a curve.
pub(super) const PIECES: usize = 64;
/// Bits of an argument below the number of its piece.
pub(super) const PIECE_BITS: u32 = 10;
/// The highest of them: what lies half a piece below the middle is counted from there.
pub(super) const MIDDLE: i16 = 1 << (PIECE_BITS - 1);
/// Bits for fractions of a level.
pub(super) const FRACTION_BITS: u32 = 6;

/// A function of a convolution's value `v`: its level less the output's zero point. It takes `v / unit + offset`, and has
/// the same bits on every instruction set.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    pub(super) form: Form,
    unit: f32,
    offset: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// `v · clamp(v + 3, 0, 6) · factor`, the factor `1 / (6·sy)`, in f32.
    HardSwish(f32),
    /// Lines.
    Curve(Box<Curve>),
}

/// A line for each of 64 pieces of equal width, in 16-bit integers.
///
/// The upper six bits of an argument are the number of its piece, `base` the function in the middle of that, in fractions
/// of a level, with half a level for rounding. The lower bits `t` tell how far from the middle it is.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub(super) struct Curve {
    pub base: [i16; PIECES],
    /// Half of what the function rises over a piece, in fractions of a level.
    pub rise: [i16; PIECES],
    /// Low and high bytes of `base`, then of `rise`, for tables of bytes.
    pub bytes: [[u8; PIECES]; 4],
}

impl Activation {
    /// A function whose result is quantized so. None where there is no such kernel, or where it would be too coarse.
    ///
    /// SiLU and both GELUs are lines in 64 pieces: they differ from the function by at most 0.17 levels before rounding.
    pub fn new(op: Unary, to: &Quantize) -> Option<Activation> {
        match op {
            Unary::HardSwish => {
                let factor = (1.0 / (6.0 * f64::from(to.scale))) as f32;
                Some(Activation { form: Form::HardSwish(factor), unit: 1.0, offset: 0.0 })
            }
            Unary::Silu => curve(op, 0.5, to),
            Unary::Gelu | Unary::GeluTanh => curve(op, 0.8, to),
            _ => None,
        }
    }

    /// The unit in which it takes its argument.
    pub fn unit(&self) -> f32 {
        self.unit
    }

    /// What is added to an argument in that unit.
    pub fn offset(&self) -> f32 {
        self.offset
    }

    /// One value, given as `v / unit + offset`: the level less the zero point, rounded where it is by lines, and not yet
    /// bounded.
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

/// A function that is nearly 0 far below 0 and nearly the identity far above; `bend` is its greatest second derivative.
fn curve(op: Unary, bend: f64, to: &Quantize) -> Option<Activation> {
    let scale = f64::from(to.scale);
    let f = |v: f64| f64::from(op.eval(v as f32));
    // Above the greatest level all is one; the identity is at most 0.28 off.
    let high = scale * f64::from((to.qmax - to.zero_point).max(1)) + scale + 0.28;
    // Half of a chord's distance from the function, which is on both sides then; or all below the first piece.
    let width = |low: f64| (high - low) / PIECES as f64;
    let error = |low: f64| (width(low).powi(2) * bend / 16.0).max(f(low).abs()) / scale;
    let lows = (6..52).map(|i| f64::from(i) / -4.0);
    let low = lows.min_by(|a, b| error(*a).total_cmp(&error(*b)))?;
    let small = error(low) < 0.16;
    small.then(|| {
        let unit = (high - low) / 65536.0;
        let offset = -(high + low) / 2.0 / unit;
        let form = Form::Curve(Box::new(Curve::new(|x| f((x - offset) * unit) / scale)));
        Activation { form, unit: unit as f32, offset: offset as f32 }
    })
}

/// `(a·b + 2¹⁴) / 2¹⁵`, rounded down: `vpmulhrsw`.
fn product(a: i16, b: i16) -> i16 {
    ((i32::from(a) * i32::from(b) + (1 << 14)) >> 15) as i16
}

impl Curve {
    /// Of a function of 16-bit integers, in levels.
    fn new(level: impl Fn(f64) -> f64) -> Curve {
        let (one, width) = (f64::from(1 << FRACTION_BITS), f64::from(1 << PIECE_BITS));
        let mut c = Curve { base: [0; PIECES], rise: [0; PIECES], bytes: [[0; PIECES]; 4] };
        for i in 0..PIECES {
            // The number of a piece has a sign.
            let start = (i as f64 - if i < PIECES / 2 { 0.0 } else { PIECES as f64 }) * width;
            let [low, mid, high] = [0.0, 0.5, 1.0].map(|part| level(start + part * width) * one);
            c.base[i] = ((mid + (low + high) / 2.0) / 2.0).round() as i16;
            c.rise[i] = ((high - low) / 2.0).round() as i16;
        }
        c.moved(one / 2.0)
    }

    /// The same with so many fractions of a level more.
    fn moved(mut self, by: f64) -> Curve {
        for i in 0..PIECES {
            self.base[i] = self.base[i].saturating_add(by as i16);
            let ([b0, b1], [r0, r1]) = (self.base[i].to_le_bytes(), self.rise[i].to_le_bytes());
            self.bytes.iter_mut().zip([b0, b1, r0, r1]).for_each(|(part, byte)| part[i] = byte);
        }
        self
    }

    /// The same that yields levels with this zero point.
    pub fn with_zero_point(self, zero_point: i32) -> Curve {
        self.moved(f64::from(zero_point << FRACTION_BITS))
    }

    fn eval(&self, x: i16) -> i16 {
        // The number of the piece stands in the lowest bits then: far too little to matter there.
        let t = (x ^ MIDDLE).rotate_left(16 - PIECE_BITS);
        let piece = usize::from(t.cast_unsigned()) % PIECES;
        self.base[piece].saturating_add(product(self.rise[piece], t)) >> FRACTION_BITS
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
            let got = f.eval(v / f.unit() + f.offset()).round_ties_even();
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
                assert!(far < 0.17 && steps <= 1, "{op:?} up to {most}: {far} levels, {steps}");
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
        assert_eq!(f.eval(f.offset()), 0.0);
    }
}
