//! Element types, scale and zero point, and the one definition of rounding and requantization.
//!
//! Every kernel, observer and writer of the workspace takes its arithmetic from here, so that a
//! quantized unit means the same integers everywhere. Tensors and graphs are deliberately absent.

mod binary;
mod dtype;
pub mod float8;
mod qparams;
mod requant;

pub use binary::{QProduct, QSum};
pub use dtype::DType;
pub use qparams::{
    EPS_F32, EPS_TORCH, QParams, QRange, QScheme, choose_qparams, dequantize, quantize_div, quantize_recip,
    reciprocal_per_channel, reciprocal_per_tensor,
};
pub use requant::{
    NARROW, add_residual, bias_to_i32, multiplier, requantize, requantize_residual, round_clamp, round_clamp_narrow,
};

/// Rounds half to even, as IEEE 754's default mode and every quantizer here does.
#[inline(always)]
pub fn rne(x: f32) -> f32 {
    // What has 24 bits before the point is an integer; adding it to what is less rounds that. Unlike
    // `f32::round_ties_even`, which is a call where the target has no such instruction, this vectorises.
    let whole = 8_388_608f32.copysign(x);
    if x.abs() < 8_388_608.0 { ((x + whole) - whole).copysign(x) } else { x }
}
