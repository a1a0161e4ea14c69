//! Quantization and what is computed on quantized tensors. ONNX divides by the scale, `rne(x / s) + zp`.

use super::conv::conv_args;
use super::host::{Host, Known, cast};
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use crate::onnx::tensor::{bits_of, dtype_of};
use cleave_ir::{Arg, Dim, Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic),
    ("MatMulInteger", |c| {
        let (a, b) = (shifted(c, 0, 2)?, shifted(c, 1, 3)?);
        c.one(a.op("aten.matmul", vec![b.into()]).to(DType::I32))
    }),
    ("ConvInteger", |c| {
        let (x, w) = (shifted(c, 0, 2)?.to(DType::F64), shifted(c, 1, 3)?.to(DType::F64));
        let (op, args) = conv_args(c, x, w, None)?;
        c.one(c.call(&op, args).to(DType::I32))
    }),
    ("QLinearMatMul", |c| {
        let (a, b) = (restored(c, 0, -2)?, restored(c, 3, -1)?);
        rounded(c, a.op("aten.matmul", vec![b.into()]), 6)
    }),
    ("QLinearConv", |c| {
        let (x, w) = (restored(c, 0, 1)?, restored(c, 3, 0)?);
        let bias = match c.opt_value(8) {
            None => None,
            Some(b) => Some(b.to(DType::F64) * (c.value(1)?.to(DType::F64) * c.value(4)?.to(DType::F64))),
        };
        let (op, args) = conv_args(c, x, w, bias)?;
        rounded(c, c.call(&op, args), 6)
    }),
];

/// Least and greatest level of a type, or of one that is narrower and held by it.
fn range(dtype: DType, bits: Option<u32>) -> Step<(i64, i64)> {
    match (dtype, bits) {
        (DType::I8, Some(bits)) => Ok((-(1 << (bits - 1)), (1 << (bits - 1)) - 1)),
        (_, Some(bits)) => Ok((0, (1 << bits) - 1)),
        _ => {
            let (low, high) = dtype.int_range().ok_or_else(|| format!("quantized type {dtype} is not supported"))?;
            Ok((low.into(), high.into()))
        }
    }
}

/// How a tensor is quantized.
struct Params {
    /// As arguments of torch's ops, if those can say it: for each channel or for the whole tensor.
    torch: Option<(&'static str, Vec<Arg>)>,
    axis: i64,
    block: i64,
}

fn params<'b>(c: &Ctx<'b, '_>, x: Value<'b>, dtype: DType, bits: Option<u32>) -> Step<Params> {
    let (axis, block) = (c.int("axis", 1)?, c.int("block_size", 0)?);
    let (s, z) = (c.value(1)?, c.opt_value(2));
    let single = |v: Value<'b>| v.shape().iter().all(|d| d.is(1));
    if z.is_some_and(|z| z.shape() != s.shape() && !(single(z) && single(s))) {
        return Err(format!("scale of shape {:?}, zero point of another", s.shape()));
    }
    let composed = Ok(Params { torch: None, axis, block });
    if block != 0 || s.rank() > 1 || s.dtype() != DType::F32 || dtype.is_float() {
        return composed;
    }
    let (low, high) = range(dtype, bits)?;
    let range = [low.into(), high.into(), Arg::from(dtype)];
    let torch = |how, args: Vec<Arg>| Ok(Params { torch: Some((how, [args, range.to_vec()].concat())), axis, block });
    let one = |k: &Known<'b>| match k {
        Known::Host(h) => h.as_tensor().filter(|t| t.len() == 1).cloned(),
        Known::Value(_) => None,
    };
    let at = axis_of(axis, x.rank()).unwrap_or(0);
    if s.rank() == 0 || (dim_of(s, 0).is(1) && x.shape().get(at).is_none_or(|d| !d.is(1))) {
        let zero = c.opt(2).map_or(Some(Tensor::scalar(0i64)), one);
        let (Some(scale), Some(zero)) = (one(c.known(1)?), zero) else {
            // Scale and zero point are computed.
            return z.map_or(composed, |z| torch("tensor.tensor", vec![s.into(), z.into()]));
        };
        return torch("tensor", vec![Arg::Float(f64::from(scale.to_f32()[0])), Arg::Int(zero.to_i64()[0])]);
    }
    let at = axis_of(axis, x.rank())?;
    if dim_of(s, 0) != dim_of(x, at) {
        return Err(format!("scales of shape {:?} for axis {axis} of {:?}", s.shape(), x.shape()));
    }
    let (Some(scale), zero) = (c.host(1).and_then(Host::as_tensor), c.host(2).and_then(Host::as_tensor)) else {
        return composed;
    };
    if z.is_some() && zero.is_none() {
        return composed;
    }
    let zeros = zero.map_or_else(|| Tensor::new(&[scale.len()], vec![0i64; scale.len()]), |z| cast(z, DType::I64));
    let name = c.host(2).or(c.host(1)).map_or(String::new(), |h| format!("{}.i64", h.name));
    let zeros = c.node_of(&Known::Host(Host::tensor(&name, zeros)));
    torch("channel", vec![s.into(), zeros.into(), at.into()])
}

/// A scale or zero point in a shape that broadcasts with what it belongs to.
fn spread<'b>(p: &Params, v: Value<'b>, x: Value<'b>) -> Step<Value<'b>> {
    let shape = x.shape();
    if v.rank() == 0 || (v.rank() == 1 && dim_of(v, 0).is(1) && p.block == 0) {
        return Ok(v.op("aten.reshape", vec![Vec::<i64>::new().into()]));
    }
    let at = axis_of(p.axis, shape.len())?;
    if p.block != 0 {
        let wide = v.op("aten.repeat_interleave.self_int", vec![p.block.into(), at.into()]);
        return Ok(match wide.shape().get(at) {
            Some(d) if *d != shape[at] => {
                wide.op("aten.slice.Tensor", vec![at.into(), 0i64.into(), shape[at].clone().into()])
            }
            _ => wide,
        });
    }
    if v.rank() != 1 {
        return Err(format!("scale of shape {:?}, expected one number or one for each channel", v.shape()));
    }
    let sizes: Vec<Dim> = (0..shape.len()).map(|i| if i == at { dim_of(v, 0) } else { 1.into() }).collect();
    Ok(v.op("aten.reshape", vec![sizes.into()]))
}

fn quantize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let (dtype, bits) = match (c.opt_value(2), c.opt_int("output_dtype")?) {
        (Some(z), _) => (z.dtype(), c.bits(2)),
        (None, Some(code)) if code != 0 => (dtype_of(code)?, bits_of(code)),
        (None, _) => (DType::U8, None),
    };
    let precision = c.opt_int("precision")?.filter(|p| *p != 0).map(dtype_of).transpose()?;
    let saturate = c.flag("saturate", true)?;
    c.narrow(0, bits);
    let p = params(c, x, dtype, bits)?;
    if let Some((how, args)) = p.torch {
        let args = [vec![x.into()], args].concat();
        return c.one(c.call(&format!("quantized_decomposed.quantize_per_{how}"), args));
    }
    let scale = spread(&p, c.value(1)?, x)?;
    let scale = scale.to(precision.unwrap_or(scale.dtype()));
    let levels = x.to(scale.dtype()) / scale;
    if let Some(most) = super::elementwise::greatest(dtype) {
        let levels = if saturate { levels.clamp(Some(-most), Some(most)) } else { levels };
        return c.one(levels.to(dtype));
    }
    let levels = levels.to(if levels.dtype() == DType::F64 { DType::F64 } else { DType::F32 }).op("aten.round", vec![]);
    let zero = c.opt_value(2).map(|z| spread(&p, z, x)).transpose()?;
    let levels = zero.map_or(levels, |z| levels + z.to(levels.dtype()));
    let (low, high) = range(dtype, bits)?;
    c.one(levels.clamp(Some(low as f64), Some(high as f64)).to(dtype))
}

fn dequantize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let stated = c.opt_int("output_dtype")?.filter(|d| *d != 0).map(dtype_of).transpose()?;
    let p = params(c, x, x.dtype(), c.bits(0))?;
    match p.torch {
        Some((how, args)) if stated.is_none_or(|d| d == DType::F32) => {
            let args = [vec![x.into()], args].concat();
            c.one(c.call(&format!("quantized_decomposed.dequantize_per_{how}"), args))
        }
        _ => {
            let scale = spread(&p, c.value(1)?, x)?;
            let wide = if x.dtype().is_float() { DType::F32 } else { DType::I32 };
            let zero = c.opt_value(2).map(|z| spread(&p, z, x)).transpose()?;
            let x = x.to(wide);
            let x = zero.map_or(x, |z| x - z.to(wide));
            let dtype = stated.unwrap_or(scale.dtype());
            c.one((x.to(scale.dtype()) * scale).to(dtype))
        }
    }
}

/// Levels 0 to 255 over the range of the data, zero included: torch's `choose_qparams` without a floor that matters.
fn dynamic<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let levels = [0i64.into(), 255i64.into()];
    let floor = Arg::Float(f64::from(f32::MIN_POSITIVE));
    let of = |before: Vec<Arg>, behind: Vec<Arg>| [before, levels.to_vec(), behind].concat();
    let args = of(vec![x.into()], vec![floor, DType::U8.into()]);
    let chosen = c.call("quantized_decomposed.choose_qparams.tensor", args);
    let [scale, zero] = [0i64, 1].map(|i| chosen.op("getitem", vec![i.into()]));
    let args = of(vec![x.into(), scale.into(), zero.into()], vec![DType::U8.into()]);
    let y = c.call("quantized_decomposed.quantize_per_tensor.tensor", args);
    let single = |v: Value<'b>, dtype| v.to(dtype).op("aten.reshape", vec![Vec::<i64>::new().into()]);
    Ok([y, single(scale, DType::F32), single(zero, DType::U8)].map(Known::Value).to_vec())
}

/// Integers minus their zero point, which a vector gives for each row of the first operand or column of the second.
fn shifted<'b>(c: &Ctx<'b, '_>, i: usize, zero: usize) -> Step<Value<'b>> {
    if let Some(folded) = c.host(i).and_then(|h| settled(c, h, zero)) {
        return Ok(c.node_of(&Known::Host(folded)));
    }
    let x = c.value(i)?.to(DType::I32);
    let Some(z) = c.opt_value(zero) else { return Ok(x) };
    let mut z = z.to(DType::I32);
    if z.rank() == 1 && !dim_of(z, 0).is(1) {
        if c.op_type() == "ConvInteger" {
            let sizes: Vec<Dim> = (0..x.rank()).map(|i| if i == 0 { dim_of(z, 0) } else { 1.into() }).collect();
            z = z.op("aten.reshape", vec![sizes.into()]);
        } else if i == 0 {
            z = z.op("aten.unsqueeze", vec![(-1i64).into()]);
        }
    }
    Ok(x - z)
}

/// A constant minus its constant zero point: one, or one for each column or output channel.
fn settled(c: &Ctx<'_, '_>, x: &Host, zero: usize) -> Option<Host> {
    let t = x.as_tensor().filter(|t| t.dtype().int_range().is_some())?;
    let zeros = match c.opt(zero) {
        None => vec![0],
        Some(_) => c.host(zero)?.as_tensor()?.to_i64(),
    };
    let axis = if c.op_type() == "ConvInteger" { 0 } else { t.shape().len().checked_sub(1)? };
    let channels = *t.shape().get(axis)?;
    if zero == 2 || ![1, channels].contains(&zeros.len()) {
        return None;
    }
    let inner: usize = t.shape()[axis + 1..].iter().product();
    let of = |i: usize| zeros[i / inner.max(1) % channels % zeros.len()];
    let less: Option<Vec<i32>> = t.to_i64().iter().enumerate().map(|(i, v)| i32::try_from(v - of(i)).ok()).collect();
    Some(Host::tensor(&format!("{}.i32", x.name), Tensor::new(t.shape(), less?)))
}

/// Argument `i` as the numbers that its levels stand for, in f64, so that sums of products are exact; scale and zero
/// point follow it and belong to an axis if there are several.
fn restored<'b>(c: &Ctx<'b, '_>, i: usize, axis: i64) -> Step<Value<'b>> {
    let (x, s, z) = (c.value(i)?, c.value(i + 1)?, c.value(i + 2)?);
    let p = Params { torch: None, axis, block: 0 };
    let (s, z) = match s.rank() {
        0 | 1 => (spread(&p, s, x)?, spread(&p, z, x)?),
        _ => (s, z),
    };
    Ok((x.to(DType::F64) - z.to(DType::F64)) * s.to(DType::F64))
}

/// Numbers as levels, by scale `i` and the zero point behind it.
fn rounded<'b>(c: &Ctx<'b, '_>, y: Value<'b>, i: usize) -> Step<Vec<Known<'b>>> {
    let (s, z) = (c.value(i)?, c.value(i + 1)?);
    let (low, high) = range(z.dtype(), c.bits(i + 1))?;
    let levels = (y / s.to(DType::F64)).op("aten.round", vec![]) + z.to(DType::F64);
    c.one(levels.clamp(Some(low as f64), Some(high as f64)).to(z.dtype()))
}
