//! From an i32 accumulator to a quantized integer: the arithmetic of a quantized unit (design law 4).
//!
//! `acc = bias + Σ (qx - zx)·qw` in i32, `m = f32(f32(sx·sw) / sy)`, `q = clamp(rne(f32(acc)·m) + zy)`.
//! With a residual: `f32(acc)·m + f32(r - zr)·mr`, in that order and without fused multiply-add.

use crate::rne;

/// `clamp(rne(v) + zero_point, qmin, qmax)`; NaN counts as 0. Sums saturate far outside i32.
#[inline(always)]
pub fn round_clamp(v: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    // The cast saturates and takes NaN to 0; the bounds keep the sum inside i32.
    let r = rne(v).clamp(-1.0e9, 1.0e9) as i32;
    r.saturating_add(zero_point).clamp(qmin, qmax)
}

/// Bounds and zero points below which [`round_clamp_narrow`] is [`round_clamp`].
pub const NARROW: i64 = 1 << 22;

/// [`round_clamp`] of a number that is no NaN, to bounds within [`NARROW`] of the zero point: adding 1.5·2²³ rounds it, so
/// that loops vectorise on every instruction set.
#[inline(always)]
pub fn round_clamp_narrow(v: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    const MAGIC: f32 = 12_582_912.0;
    let (lo, hi) = ((qmin - zero_point) as f32, (qmax - zero_point) as f32);
    // Bounds are integers: clamping before rounding is clamping after it.
    let v = if v > lo { v } else { lo };
    let v = if v < hi { v } else { hi };
    (v + MAGIC).to_bits().cast_signed().wrapping_sub(MAGIC.to_bits().cast_signed()) + zero_point
}

/// `f32(f32(sx·sw) / sy)`: what an accumulator is multiplied by.
#[inline]
pub fn multiplier(sx: f32, sw: f32, sy: f32) -> f32 {
    (sx * sw) / sy
}

/// The quantized output of a unit.
#[inline(always)]
pub fn requantize(acc: i32, m: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    round_clamp(acc as f32 * m, zero_point, qmin, qmax)
}

/// The float sum of a scaled accumulator and a quantized residual: `f32(acc)·m + f32(r - zr)·mr`.
#[inline(always)]
pub fn add_residual(acc: i32, m: f32, r: i32, zr: i32, mr: f32) -> f32 {
    acc as f32 * m + (r - zr) as f32 * mr
}

/// The quantized output of a unit with a quantized residual; `mr = sr / sy`.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the operands of the formula")]
pub fn requantize_residual(acc: i32, m: f32, r: i32, zr: i32, mr: f32, zero_point: i32, qmin: i32, qmax: i32) -> i32 {
    round_clamp(add_residual(acc, m, r, zr, mr), zero_point, qmin, qmax)
}

/// A float bias at the accumulator's scale, `rne(b / (sx·sw))`, or none where it does not fit an i32.
#[inline]
pub fn bias_to_i32(bias: f32, sx: f32, sw: f32) -> Option<i32> {
    let v = rne(bias / (sx * sw));
    // f32's neighbours of 2^31 are 128 apart: anything at or past it does not fit.
    (v.abs() < 2147483648.0).then_some(v as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_to_even_before_the_zero_point() {
        assert_eq!([1, 3, 5].map(|a| requantize(a, 0.5, 1, 0, 255)), [1, 3, 3]);
        assert_eq!(requantize(i32::MAX, 1.0, 128, 0, 255), 255);
        assert_eq!(requantize(i32::MIN, 1.0, 128, 0, 255), 0);
    }

    #[test]
    fn the_narrow_form_gives_the_same() {
        for (z, min, max) in [(0, -128, 127), (128, 0, 255), (-5, -127, 127), (3, 0, 0), (0, -4_194_303, 4_194_303)] {
            for i in -70_000..70_000 {
                for v in [i as f32 / 2.0, i as f32 * 0.013, i as f32 * 1.0e6, f32::INFINITY, f32::NEG_INFINITY, -0.0] {
                    assert_eq!(round_clamp_narrow(v, z, min, max), round_clamp(v, z, min, max), "{v} {z} {min} {max}");
                }
            }
        }
    }

    #[test]
    fn a_bias_that_does_not_fit_is_refused() {
        assert_eq!(bias_to_i32(1.0, 0.5, 0.5), Some(4));
        assert_eq!(bias_to_i32(3.0e9, 1.0, 1.0), None);
        assert_eq!(bias_to_i32(f32::NAN, 1.0, 1.0), None);
    }
}
