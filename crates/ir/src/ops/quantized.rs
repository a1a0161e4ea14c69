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

/// [`QUANTIZE_PER_TENSOR`] with a scale and zero point that were computed.
pub static QUANTIZE_PER_TENSOR_TENSOR: OpDef = OpDef {
    name: "quantized_decomposed.quantize_per_tensor.tensor",
    schema: "(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype) -> Tensor",
    infer: Some(quantize),
    ..BASE
};

/// [`QUANTIZE_PER_TENSOR_TENSOR`] with a range that was computed.
pub static QUANTIZE_PER_TENSOR_TENSOR2: OpDef = OpDef {
    name: "quantized_decomposed.quantize_per_tensor.tensor2",
    schema: "(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype) -> Tensor",
    infer: Some(quantize),
    ..BASE
};

/// [`DEQUANTIZE_PER_TENSOR`] with a scale and zero point that were computed.
pub static DEQUANTIZE_PER_TENSOR_TENSOR: OpDef = OpDef {
    name: "quantized_decomposed.dequantize_per_tensor.tensor",
    schema: "(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
    infer: Some(dequantize),
    ..BASE
};

/// [`DEQUANTIZE_PER_TENSOR_TENSOR`] with a range that was computed.
pub static DEQUANTIZE_PER_TENSOR_TENSOR2: OpDef = OpDef {
    name: "quantized_decomposed.dequantize_per_tensor.tensor2",
    schema: "(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, ScalarType? out_dtype=None) -> Tensor",
    infer: Some(dequantize),
    ..BASE
};

const CHOOSE: OpDef = OpDef {
    schema: "(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
    infer: Some(|_| {
        let one = |d| Meta::tensor(d, vec![1.into()]);
        Ok(Meta::Tuple(vec![one(DType::F64), one(DType::I64)]))
    }),
    ..BASE
};

/// Scale and zero point for the values that a tensor has; the zero point lies anywhere.
pub static CHOOSE_QPARAMS: OpDef = OpDef { name: "quantized_decomposed.choose_qparams.tensor", ..CHOOSE };

/// [`CHOOSE_QPARAMS`] with the zero point in the middle.
pub static CHOOSE_QPARAMS_SYMMETRIC: OpDef =
    OpDef { name: "quantized_decomposed.choose_qparams_symmetric.tensor", ..CHOOSE };

/// The elements as another type, which no quantizer may take for part of a pattern.
pub static CONVERT_NO_FUSE: OpDef = OpDef {
    name: "quantized_decomposed.convert_element_type.no_fuse",
    schema: "(Tensor input, ScalarType dtype) -> Tensor",
    class: Class::Pointwise,
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| vec![c.tensor("input").op("aten._to_copy", vec![c.arg("dtype").clone()])]),
    example: "f32[2, 3], f64",
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
pub static OPS: &[&[&OpDef]] = &[&[
    &QUANTIZE_PER_TENSOR,
    &DEQUANTIZE_PER_TENSOR,
    &QUANTIZE_PER_CHANNEL,
    &DEQUANTIZE_PER_CHANNEL,
    &QUANTIZE_PER_TENSOR_TENSOR,
    &QUANTIZE_PER_TENSOR_TENSOR2,
    &DEQUANTIZE_PER_TENSOR_TENSOR,
    &DEQUANTIZE_PER_TENSOR_TENSOR2,
    &CHOOSE_QPARAMS,
    &CHOOSE_QPARAMS_SYMMETRIC,
    &CONVERT_NO_FUSE,
]];
