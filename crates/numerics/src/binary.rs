//! Sums and products of two quantized tensors, as optimised ONNX Runtime computes QLinearAdd and QLinearMul: unlike
//! in a convolution, the output's zero point takes part in the rounding.

use crate::{QParams, rne};

/// `clamp(rne(fma(a, sa/sy, fma(b, sb/sy, fixed))))` with `fixed = zy - fma(sa/sy, za, (sb/sy)·zb)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QSum {
    /// `sa / sy`.
    pub ra: f32,
    /// `sb / sy`.
    pub rb: f32,
    /// All zero points together.
    pub fixed: f32,
}

impl QSum {
    /// The sum of `a` and `b` in terms of `y`.
    pub fn new(a: QParams, b: QParams, y: QParams) -> QSum {
        let (ra, rb) = (a.scale / y.scale, b.scale / y.scale);
        let zeros = ra.mul_add(a.zero_point as f32, rb * b.zero_point as f32);
        QSum { ra, rb, fixed: y.zero_point as f32 - zeros }
    }

    /// The quantized sum.
    pub fn eval(&self, a: i32, b: i32, qmin: i32, qmax: i32) -> i32 {
        let v = (a as f32).mul_add(self.ra, (b as f32).mul_add(self.rb, self.fixed));
        (rne(v) as i32).clamp(qmin, qmax)
    }
}

/// `clamp(rne(f32((a - za)·(b - zb))·m + zy))` with `m = (sa·sb)/sy`, product and sum rounded one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QProduct {
    /// `(sa·sb)/sy`.
    pub m: f32,
    /// Zero points of both factors.
    pub zeros: [i32; 2],
    /// `zy`.
    pub zero_point: f32,
}

impl QProduct {
    /// The product of `a` and `b` in terms of `y`.
    pub fn new(a: QParams, b: QParams, y: QParams) -> QProduct {
        let m = (a.scale * b.scale) / y.scale;
        QProduct { m, zeros: [a.zero_point, b.zero_point], zero_point: y.zero_point as f32 }
    }

    /// The quantized product.
    pub fn eval(&self, a: i32, b: i32, qmin: i32, qmax: i32) -> i32 {
        let p = ((a - self.zeros[0]) * (b - self.zeros[1])) as f32;
        (rne(p * self.m + self.zero_point) as i32).clamp(qmin, qmax)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zero_point_is_added_before_rounding() {
        let p = |scale, zero_point| QParams { scale, zero_point };
        // Halves: 0.5 + 1 and 1.5 + 1 round to even after the zero point.
        let sum = QSum::new(p(0.5, 0), p(0.5, 0), p(1.0, 1));
        assert_eq!([sum.eval(1, 0, 0, 255), sum.eval(2, 1, 0, 255), sum.eval(9, 0, 0, 4)], [2, 2, 4]);
        let product = QProduct::new(p(0.5, 1), p(1.0, 0), p(1.0, 1));
        assert_eq!([product.eval(2, 1, 0, 255), product.eval(0, 1, 0, 255)], [2, 0]);
    }
}
