//! Floats of 8 bits, as torch's `float8_e4m3fn` (no infinity) and `float8_e5m2`.

use crate::DType;

/// Bits of the mantissa, bias of the exponent, code of the greatest number, and of what is greater.
fn format(dtype: DType) -> (u32, i32, u32, u8) {
    if dtype == DType::F8E4M3 { (3, 7, 0x7e, 0x7f) } else { (2, 15, 0x7b, 0x7c) }
}

/// The code nearest to a number, half to even. What is too great is infinite, or no number where there is no infinity.
pub fn encode(dtype: DType, v: f64) -> u8 {
    let (man, bias, greatest, beyond) = format(dtype);
    let sign = if v.is_sign_negative() { 0x80 } else { 0 };
    let a = v.abs();
    if a.is_nan() {
        return sign | 0x7f;
    }
    // Far outside, so that the exponent below is a small number.
    if a > 1e6 {
        return sign | beyond;
    }
    let exponent = if a == 0.0 { 1 - bias } else { (a.log2().floor() as i32).max(1 - bias) };
    let steps = (a / f64::powi(2.0, exponent - man as i32)).round_ties_even() as u32;
    let code = (((exponent + bias) as u32) << man) + steps - (1 << man);
    sign | if code > greatest { beyond } else { code as u8 }
}

/// The number that a code stands for.
pub fn decode(dtype: DType, code: u8) -> f64 {
    let (man, bias, greatest, beyond) = format(dtype);
    let sign = if code & 0x80 != 0 { -1.0 } else { 1.0 };
    let code = u32::from(code & 0x7f);
    if code > greatest {
        let infinite = dtype == DType::F8E5M2 && code == u32::from(beyond);
        return if infinite { sign * f64::INFINITY } else { f64::NAN };
    }
    let (exponent, low) = ((code >> man) as i32, f64::from(code & ((1 << man) - 1)));
    let one = f64::from(1u32 << man);
    let (lead, exponent) = if exponent == 0 { (0.0, 1) } else { (one, exponent) };
    sign * (lead + low) * f64::powi(2.0, exponent - bias - man as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back_to_themselves_and_numbers_round_to_even() {
        for dtype in [DType::F8E4M3, DType::F8E5M2] {
            for code in 0..=255u8 {
                let v = decode(dtype, code);
                assert!(v.is_nan() || encode(dtype, v) == code, "{dtype} {code:#x} {v}");
            }
        }
        let e4 = |v| decode(DType::F8E4M3, encode(DType::F8E4M3, v));
        assert_eq!([e4(448.0), e4(17.0), e4(19.0), e4(-0.0009), e4(464.0)], [448.0, 16.0, 20.0, -0.0, 448.0]);
        assert!(e4(465.0).is_nan() && e4(f64::NAN).is_nan());
        let e5 = |v| decode(DType::F8E5M2, encode(DType::F8E5M2, v));
        assert_eq!([e5(57344.0), e5(1e9), e5(-61440.0), e5(1.125)], [57344.0, f64::INFINITY, f64::NEG_INFINITY, 1.0]);
    }
}
