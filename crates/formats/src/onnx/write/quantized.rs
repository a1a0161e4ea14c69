//! Quantize and dequantize as QuantizeLinear and DequantizeLinear.

use super::Entry;
use super::args::{Args, int};
use super::out::Out;
use cleave_ir::{Graph, NodeId, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("quantized_decomposed.quantize_per_tensor", 13, |o| quantize(o, false)),
    ("quantized_decomposed.quantize_per_channel", 13, |o| quantize(o, true)),
    ("quantized_decomposed.dequantize_per_tensor", 13, dequantize),
    ("quantized_decomposed.dequantize_per_channel", 13, dequantize),
];

type Step = Result<(), String>;

/// The operator set that a quantization asks for: 19 has scales of 16-bit floats, 21 has integers of 4 and 16 bits.
pub(super) fn since(g: &Graph, id: NodeId) -> i64 {
    let dtype = Args::new(g, g.node(id)).dtype("dtype");
    let quantized = g.node(id).op().is_some_and(|o| o.name.starts_with("quantized_decomposed."));
    match dtype {
        Ok(DType::U16 | DType::I16) if quantized => 21,
        _ if four_bits(g, id) => 21,
        _ if quantized && float_type(g, id) != DType::F32 => 19,
        _ => 13,
    }
}

/// Whether a call dequantizes constants of four bits.
fn four_bits(g: &Graph, id: NodeId) -> bool {
    let node = g.node(id);
    let args = Args::new(g, node);
    let range = (args.dtype("dtype"), args.int("quant_min"), args.int("quant_max"));
    let four = matches!(range, (Ok(DType::I8), Ok(-8), Ok(7)) | (Ok(DType::U8), Ok(0), Ok(15)));
    let constant = || args.tensor("input").is_ok_and(|q| g.constant(q).is_some());
    four && constant() && node.op().is_some_and(|o| o.base().starts_with("dequantize"))
}

/// The name of a zero point for node `id`. That of weights is its own: where ONNX Runtime makes them unsigned for CPUs
/// without VNNI (`session.x64quantprecision`), it names what it makes of a zero point by it, and fails at the second.
fn zero_point(o: &mut Out<'_, '_>, id: NodeId, zero: Tensor) -> String {
    let g = o.w.g;
    let wish = format!("{}_zero_point", g.node(id).name);
    let weight =
        zero.dtype() == DType::I8 && Args::new(g, g.node(id)).tensor("input").is_ok_and(|q| g.constant(q).is_some());
    let four = four_bits(g, id);
    if !weight && !four {
        return o.w.literal(&wish, zero);
    }
    let name = o.w.constant(&wish, zero);
    if four {
        o.w.whole.narrow.insert(name.clone());
    }
    name
}

/// The floating-point type on the one side of a quantization; its scale has that type.
fn float_type(g: &Graph, id: NodeId) -> DType {
    let of = |id| g.tensor_meta(id).map(|m| m.dtype).ok().filter(|d| d.is_float());
    let input = || Args::new(g, g.node(id)).tensor("input").ok();
    of(id).or_else(|| input().and_then(of)).unwrap_or(DType::F32)
}

/// A zero point in the type that it belongs to.
fn zeros(shape: &[usize], v: &[i64], dtype: DType) -> Result<Tensor, String> {
    let (low, high) = dtype.int_range().ok_or_else(|| format!("quantized type {dtype} cannot be written"))?;
    if let Some(z) = v.iter().find(|z| **z < i64::from(low) || **z > i64::from(high)) {
        return Err(format!("zero point {z} does not fit {dtype}"));
    }
    Ok(crate::onnx::read::cast(&Tensor::new(shape, v.to_vec()), dtype))
}

/// Names of scale and zero point, and the axis if there is one for each channel.
fn params(o: &mut Out<'_, '_>, id: NodeId) -> Result<(String, String, Option<i64>), String> {
    let g = o.w.g;
    let node = g.node(id);
    let args = Args::new(g, node);
    let dtype = args.dtype("dtype")?;
    if node.op().is_some_and(|op| op.base().ends_with("per_tensor")) {
        let scale = args.float("scale")? as f32;
        let zero = zeros(&[], &[args.int("zero_point")?], dtype)?;
        let scale = crate::onnx::read::cast(&Tensor::scalar(scale), float_type(g, id));
        let scale = o.w.literal(&format!("{}_scale", node.name), scale);
        return Ok((scale, zero_point(o, id, zero), None));
    }
    let scales = args.tensor("scales")?;
    let count = g.constant(scales).map(Tensor::len).ok_or("scales that are not constant cannot be written")?;
    let zero = match args.opt_tensor("zero_points")? {
        None => zeros(&[count], &vec![0; count], dtype)?,
        Some(z) => {
            let t = g.constant(z).ok_or("zero points that are not constant cannot be written")?;
            zeros(&[t.len()], &t.to_i64(), dtype)?
        }
    };
    let rank = i64::try_from(g.tensor_meta(id).map_or(0, |m| m.shape.len())).map_err(|e| e.to_string())?;
    let axis = args.int("axis")?;
    let axis = if axis < 0 { axis + rank } else { axis };
    let float = float_type(g, id);
    let scales = match g.constant(scales) {
        Some(t) if t.dtype() != float => {
            let t = crate::onnx::read::cast(t, float);
            o.w.literal(&format!("{}_scale", node.name), t)
        }
        _ => o.w.name(scales)?,
    };
    Ok((scales, zero_point(o, id, zero), Some(axis)))
}

/// What the ends of a range of levels mean, in the input's type; of channels along their dimension.
fn bounds(o: &Out<'_, '_>, range: (i64, i64), per_channel: bool) -> Result<[Tensor; 2], String> {
    let (g, float) = (o.w.g, float_type(o.w.g, o.id));
    let numbers = |id: Option<NodeId>| id.and_then(|id| g.constant(id)).map(Tensor::to_f64);
    let (scales, zeros, shape) = if per_channel {
        let scales = numbers(Some(o.args.tensor("scales")?)).ok_or("scales that are not constant cannot be written")?;
        let zeros = numbers(Some(o.args.tensor("zero_points")?)).ok_or("zero points that are not constant")?;
        let rank = o.shape(o.id)?.len();
        let axis = super::shape::front(o.args.int("axis")?, rank)?;
        let shape: Vec<usize> = (0..rank).map(|d| if d == axis { scales.len() } else { 1 }).collect();
        (scales, zeros, shape)
    } else {
        (vec![o.args.float("scale")?], vec![o.args.int("zero_point")? as f64], vec![])
    };
    let bound = |q: i64| {
        let v: Vec<f64> = scales.iter().zip(&zeros).map(|(s, z)| (q as f64 - z) * s).collect();
        crate::onnx::read::cast(&Tensor::new(&shape, v), float)
    };
    Ok([bound(range.0), bound(range.1)])
}

fn quantize(o: &mut Out<'_, '_>, per_channel: bool) -> Step {
    let dtype = o.args.dtype("dtype")?;
    let mut x = o.input("input")?;
    let range = (o.args.int("quant_min")?, o.args.int("quant_max")?);
    let whole = dtype.int_range().map(|(a, b)| (i64::from(a), i64::from(b)));
    if Some(range) != whole {
        // QuantizeLinear saturates at the ends of its type: a narrower range is cut before.
        let bounds = bounds(o, range, per_channel)?;
        let [low, high] = bounds.map(|t| o.w.literal(&format!("{}_bound", o.node.name), t));
        x = match per_channel {
            // Clip takes numbers only.
            true => {
                let x = o.push("Max", vec![x, low], vec![]);
                o.push("Min", vec![x, high], vec![])
            }
            false => o.push("Clip", vec![x, low, high], vec![]),
        };
    }
    let (scale, zero, axis) = params(o, o.id)?;
    let attrs = axis.map(|a| int("axis", a)).into_iter().collect();
    o.done("QuantizeLinear", vec![x, scale, zero], attrs)
}

fn dequantize(o: &mut Out<'_, '_>) -> Step {
    let x = o.input("input")?;
    if !matches!(o.dtype(o.id)?, DType::F32 | DType::F16 | DType::BF16) {
        return Err(format!("dequantizing to {} cannot be written", o.dtype(o.id)?));
    }
    let (scale, zero, axis) = params(o, o.id)?;
    if four_bits(o.w.g, o.id) {
        o.w.whole.narrow.insert(x.clone());
    }
    let attrs = axis.map(|a| int("axis", a)).into_iter().collect();
    o.done("DequantizeLinear", vec![x, scale, zero], attrs)
}

/// The dequantization of another value by the parameters of node `id`, its axis mapped.
pub(super) fn dequantize_as(
    o: &mut Out<'_, '_>,
    id: NodeId,
    value: String,
    axis: impl Fn(i64) -> i64,
) -> Result<String, String> {
    let (scale, zero, at) = params(o, id)?;
    if four_bits(o.w.g, id) {
        o.w.whole.narrow.insert(value.clone());
    }
    let attrs = at.map(|a| int("axis", axis(a))).into_iter().collect();
    Ok(o.push("DequantizeLinear", vec![value, scale, zero], attrs))
}
