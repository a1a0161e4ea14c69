//! Quantize and dequantize, as PT2E's converted graphs have them (formulas: `cleave-numerics`).

use crate::builder::Call;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Quantize, levels: Levels::ALL, ..OpDef::BASE };

/// Float to integers with one scale.
pub static QUANTIZE_PER_TENSOR: OpDef = OpDef {
    name: "quantized_decomposed.quantize_per_tensor.default",
    schema: "(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    infer: Some(quantize),
    ..BASE
};

/// Integers to float with one scale.
pub static DEQUANTIZE_PER_TENSOR: OpDef = OpDef {
    name: "quantized_decomposed.dequantize_per_tensor.default",
    schema: "(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
    infer: Some(dequantize),
    ..BASE
};

/// Float to integers with a scale for each channel.
pub static QUANTIZE_PER_CHANNEL: OpDef = OpDef {
    name: "quantized_decomposed.quantize_per_channel.default",
    schema: "(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    infer: Some(quantize),
    ..BASE
};

/// Integers to float with a scale for each channel.
pub static DEQUANTIZE_PER_CHANNEL: OpDef = OpDef {
    name: "quantized_decomposed.dequantize_per_channel.default",
    schema: "(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
    infer: Some(dequantize),
    ..BASE
};

fn quantize(c: &Call<'_>) -> Result<Meta> {
    let dtype = c.opt_dtype("dtype").ok_or_else(|| c.err("no dtype"))?;
    Ok(Meta::tensor(dtype, c.meta("input")?.shape))
}

fn dequantize(c: &Call<'_>) -> Result<Meta> {
    Ok(Meta::tensor(c.opt_dtype("out_dtype").unwrap_or(DType::F32), c.meta("input")?.shape))
}

/// The family.
pub static OPS: &[&OpDef] =
    &[&QUANTIZE_PER_TENSOR, &DEQUANTIZE_PER_TENSOR, &QUANTIZE_PER_CHANNEL, &DEQUANTIZE_PER_CHANNEL];
