//! QuantizeLinear and DequantizeLinear. ONNX divides by the scale, `rne(x / s) + zp`.

use super::host::{Host, Known, cast};
use super::node::{Ctx, Map, Step, axis_of};
use cleave_ir::{Arg, Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[("QuantizeLinear", quantize), ("DequantizeLinear", dequantize)];

/// Scale and zero point as arguments: numbers for one, constants for each channel of an axis.
fn params<'b>(c: &Ctx<'b, '_>, x: Value<'b>, dtype: DType) -> Step<(bool, Vec<Arg>)> {
    let scale = c.tensor(1)?;
    let zero = c.opt(2).map(|_| c.tensor(2)).transpose()?;
    let (low, high) = dtype.int_range().ok_or_else(|| format!("quantized type {dtype} is not supported"))?;
    let axis = c.int("axis", 1)?;
    if c.int("block_size", 0)? != 0 {
        return Err("blocked quantization is not supported".into());
    }
    let range = [i64::from(low).into(), i64::from(high).into(), dtype.into()];
    if scale.dtype() != DType::F32 {
        return Err(format!("scale of type {}, expected f32", scale.dtype()));
    }
    if zero.is_some_and(|z| z.len() != scale.len()) {
        return Err(format!("{} scales, {} zero points", scale.len(), zero.map_or(0, Tensor::len)));
    }
    if scale.shape().is_empty()
        || (scale.len() == 1 && x.shape().get(axis_or_0(axis, x.rank())).is_none_or(|d| !d.is(1)))
    {
        let zero = zero.map_or(0, |z| z.to_i64()[0]);
        let mut args = vec![Arg::Float(f64::from(scale.to_f32()[0])), Arg::Int(zero)];
        args.extend(range);
        return Ok((false, args));
    }
    if scale.shape().len() != 1 {
        return Err(format!("scale of shape {:?}, expected one number or one for each channel", scale.shape()));
    }
    let axis = axis_of(axis, x.rank())?;
    if x.shape()[axis].as_const().and_then(|n| usize::try_from(n).ok()) != Some(scale.len()) {
        return Err(format!("{} scales for axis {axis} of {:?}", scale.len(), x.shape()));
    }
    let zeros = zero.map_or_else(|| Tensor::new(&[scale.len()], vec![0i64; scale.len()]), |z| cast(z, DType::I64));
    let name = c.host(2).or(c.host(1)).map_or(String::new(), |h| format!("{}.i64", h.name));
    let zeros = c.node_of(&Known::Host(Host::tensor(&name, zeros)));
    let mut args = vec![c.value(1)?.into(), zeros.into(), axis.into()];
    args.extend(range);
    Ok((true, args))
}

fn axis_or_0(axis: i64, rank: usize) -> usize {
    axis_of(axis, rank).unwrap_or(0)
}

fn quantize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let stated = c.opt_dtype("output_dtype")?;
    let dtype = match (c.opt(2), stated) {
        (Some(_), _) => c.tensor(2)?.dtype(),
        (None, Some(d)) => d,
        (None, None) => DType::U8,
    };
    c.ignore(&["saturate", "precision"]);
    let (per_channel, args) = params(c, x, dtype)?;
    let op = if per_channel { "quantize_per_channel" } else { "quantize_per_tensor" };
    let args = [vec![x.into()], args].concat();
    c.one(c.call(&format!("quantized_decomposed.{op}"), args))
}

fn dequantize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    c.ignore(&["output_dtype"]);
    let (per_channel, args) = params(c, x, x.dtype())?;
    let op = if per_channel { "dequantize_per_channel" } else { "dequantize_per_tensor" };
    let args = [vec![x.into()], args].concat();
    c.one(c.call(&format!("quantized_decomposed.{op}"), args))
}
