//! Quantize and dequantize, in f32 as `cleave-numerics` defines them.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::{
    DType, QRange, QScheme, choose_qparams, dequantize, quantize_div, quantize_recip, reciprocal_per_channel,
    reciprocal_per_tensor,
};
use ndarray::{ArrayD, Axis};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("quantized_decomposed.quantize_per_tensor.default", quantize),
    ("quantized_decomposed.quantize_per_tensor.tensor", quantize),
    ("quantized_decomposed.quantize_per_tensor.tensor2", quantize),
    ("quantized_decomposed.dequantize_per_tensor.default", dequantized),
    ("quantized_decomposed.dequantize_per_tensor.tensor", dequantized),
    ("quantized_decomposed.dequantize_per_tensor.tensor2", dequantized),
    ("quantized_decomposed.quantize_per_channel.default", |c| {
        let q = per_channel(c, |c, lane, scale, zp| to_int(c, lane, scale, reciprocal_per_channel(scale), zp))?;
        Ok(Value::Array(Array::from_f64(c.dtype(), q)))
    }),
    ("quantized_decomposed.dequantize_per_channel.default", |c| {
        let x = per_channel(c, |_, lane, scale, zp| {
            lane.mapv_inplace(|q| f64::from(dequantize(q as i32, scale, zp)));
            Ok(())
        })?;
        Ok(Value::Array(Array::float(c.dtype(), x)))
    }),
    ("quantized_decomposed.choose_qparams.tensor", |c| chosen(c, QScheme::Affine)),
    ("quantized_decomposed.choose_qparams_symmetric.tensor", |c| chosen(c, QScheme::Symmetric)),
];

fn quantize(c: &Ctx<'_>) -> Result<Value> {
    let (scale, zp) = (c.float("scale")? as f32, c.int("zero_point")? as i32);
    let mut q = c.array("input")?.to_f64();
    to_int(c, &mut q.view_mut(), scale, reciprocal_per_tensor(scale), zp)?;
    Ok(Value::Array(Array::from_f64(c.dtype(), q)))
}

fn dequantized(c: &Ctx<'_>) -> Result<Value> {
    let (scale, zp) = (c.float("scale")? as f32, c.int("zero_point")? as i32);
    let x = c.array("input")?.to_f64().mapv(|q| f64::from(dequantize(q as i32, scale, zp)));
    Ok(Value::Array(Array::float(c.dtype(), x)))
}

/// Scale and zero point for the values of the input.
fn chosen(c: &Ctx<'_>, scheme: QScheme) -> Result<Value> {
    let level = |name: &str| Ok::<_, crate::RuntimeError>(c.int(name)? as i32);
    let Value::DType(dtype) = c.arg("dtype")? else { return Err(c.err("argument 'dtype': expected an element type")) };
    let range = QRange { dtype: *dtype, min: level("quant_min")?, max: level("quant_max")? };
    if range.min >= range.max {
        return Err(c.err(format!("levels from {} to {}", range.min, range.max)));
    }
    let x = c.array("input")?.to_f64();
    let (lo, hi) = x.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(*v), hi.max(*v)));
    if x.is_empty() {
        return Err(c.err("no values to choose a scale for"));
    }
    let mut q = choose_qparams(lo as f32, hi as f32, range, scheme, c.float("eps")? as f32);
    if (scheme, *dtype) == (QScheme::Symmetric, DType::U8) {
        // Whatever the range is, unlike in observers.
        q.zero_point = 128;
    }
    Ok(Value::List(vec![
        Value::Array(Array::float(DType::F64, ArrayD::from_elem(vec![1], f64::from(q.scale)))),
        Value::Array(Array::int(DType::I64, ArrayD::from_elem(vec![1], i64::from(q.zero_point)))),
    ]))
}

type Lane<'a> = ndarray::ArrayViewMutD<'a, f64>;

fn to_int(c: &Ctx<'_>, lane: &mut Lane<'_>, scale: f32, inv: f32, zp: i32) -> Result<()> {
    let (lo, hi) = (c.int("quant_min")? as i32, c.int("quant_max")? as i32);
    if lo > hi {
        return Err(c.err(format!("levels from {lo} to {hi}")));
    }
    if c.divide {
        lane.mapv_inplace(|x| f64::from(quantize_div(x as f32, scale, zp, lo, hi)));
    } else {
        lane.mapv_inplace(|x| f64::from(quantize_recip(x as f32, inv, zp, lo, hi)));
    }
    Ok(())
}

fn per_channel(c: &Ctx<'_>, f: impl Fn(&Ctx<'_>, &mut Lane<'_>, f32, i32) -> Result<()>) -> Result<ArrayD<f64>> {
    let mut x = c.array("input")?.to_f64();
    let scales = c.array("scales")?.to_f64();
    let zps = c.opt_array("zero_points")?.map(|z| z.to_i64());
    let axis = c.axis(c.int("axis")?, x.ndim())?;
    if x.ndim() == 0 || x.shape()[axis] != scales.len() || zps.as_ref().is_some_and(|z| z.len() != scales.len()) {
        return Err(c.err(format!("{} scales for dimension {axis} of {:?}", scales.len(), x.shape())));
    }
    for (i, mut lane) in x.axis_iter_mut(Axis(axis)).enumerate() {
        f(c, &mut lane, scales[[i]] as f32, zps.as_ref().map_or(0, |z| z[[i]] as i32))?;
    }
    Ok(x)
}
