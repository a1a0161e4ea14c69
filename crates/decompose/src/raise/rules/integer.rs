//! Products of integers that a scale makes floats again are layers of quantized values.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived, per_channel};
use cleave_ir::graph::{Arg, Graph, NodeId};
use cleave_ir::{Tensor, Value};
use cleave_numerics::DType;
use cleave_rewrite::Bound;

/// The value before casts and views of its one element.
fn behind(g: &Graph, id: NodeId) -> NodeId {
    let node = g.node(id);
    let same = node.op().is_some_and(|o| matches!(o.base(), "_to_copy" | "to" | "view" | "reshape"));
    match node.args.first() {
        Some(Arg::Node(x)) if same => behind(g, *x),
        _ => id,
    }
}

/// A captured value of one element, before casts and views.
fn single<'b>(m: &Bound<'b, '_>, capture: &str) -> Result<Value<'b>, String> {
    let id = m.found.value(capture).ok_or_else(|| format!("{capture} is not a tensor"))?;
    let one = |id: NodeId| m.source.tensor_meta(id).is_ok_and(|t| t.shape.iter().all(|d| d.is(1)));
    let from = behind(m.source, id);
    if !one(from) {
        return Err(format!("{capture} is not one number"));
    }
    Ok(m.b.value(m.mapped(from)))
}

/// The input's levels with their scale and zero point, dequantized.
fn input<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let q = m.value("q")?;
    let Some((low, high)) = q.dtype().int_range().filter(|_| matches!(q.dtype(), DType::U8 | DType::I8)) else {
        return Err(format!("q is {}, not u8 or i8", q.dtype()));
    };
    let (s, z) = (single(m, "s")?, single(m, "z")?);
    let args = vec![s.into(), z.into(), i64::from(low).into(), i64::from(high).into(), q.dtype().into()];
    Ok(q.op("quantized_decomposed.dequantize_per_tensor.tensor", args))
}

/// The constant weight as i8 with a scale for each output channel, dequantized. `behind` dimensions stand behind the
/// scale's channels; `turned` is a matrix `[in, out]`.
fn weight<'b>(m: &Bound<'b, '_>, turned: bool, behind: usize) -> Result<Value<'b>, String> {
    let w = constant(m, "w")?;
    let w = if turned { w.permute(&[1, 0]) } else { w.clone() };
    let levels: Result<Vec<i8>, _> = w.to_f64().iter().map(|v| i8::try_from(*v as i64)).collect();
    let levels = levels.map_err(|_| "the weight does not fit i8 around its zero point")?;
    let channels = w.shape().first().copied().unwrap_or(0);
    let scales = per_channel(m, "sw", channels, behind)?;
    let q = derived(m, "w", "i8", Tensor::new(w.shape(), levels));
    let scales = derived(m, "w", "scale", Tensor::new(&[channels], scales));
    let zeros = derived(m, "w", "zero_point", Tensor::new(&[channels], vec![0i64; channels]));
    let range = [(-128i64).into(), 127i64.into(), DType::I8.into()];
    let args = [vec![scales.into(), zeros.into(), 0i64.into()], range.to_vec()].concat();
    Ok(q.op("quantized_decomposed.dequantize_per_channel", args))
}

/// Types on the way: levels as integers, their product as f32.
fn typed(m: &Bound<'_, '_>) -> Result<(), String> {
    match m.root().meta.as_tensor() {
        Some(t) if t.dtype == DType::F32 => Ok(()),
        _ => Err("the result is not f32".into()),
    }
}

/// `f32(Σ (q - z)·w)·(s·sw)` over a matrix.
pub static LINEAR: RuleDef = RuleDef {
    name: "integer_linear",
    doc: "MatMulInteger, and the scales behind it: a linear layer of levels whose scale is computed.",
    spellings: &[
        "mul(_to_copy(linear(sub(_to_copy(q), _to_copy(z)), w, none)), mul(s, sw))",
        "mul(_to_copy(p:matmul(sub(_to_copy(q), _to_copy(z)), w)), mul(s, sw))",
    ],
    any: &[],
    conditions: &["constant(w)", "constant(sw)", "not constant(s)", "rank(w) == 2"],
    build: |m| {
        typed(m)?;
        Ok(input(m)?.op("aten.linear", vec![weight(m, m.node("p").is_some(), 0)?.into()]))
    },
    example: (
        "graph(%q: u8[2, 3], %z: u8[], %s: f32[]) {
  %w = param \"w\": i32[4, 3]
  %sw = param \"sw\": f32[1]
  %a = aten._to_copy(%q, i32)
  %b = aten._to_copy(%z, i32)
  %c = aten.sub.Tensor(%a, %b)
  %d = aten.linear(%c, %w)
  %e = aten._to_copy(%d, f32)
  %f = aten.mul.Tensor(%s, %sw)
  %y = aten.mul.Tensor(%e, %f)
  return %y
}",
        "graph(%q: u8[2, 3], %z: u8[], %s: f32[]) {
  %dequantize_per_tensor = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %z, 0, 255, u8): f32[2, 3]
  %w_i8 = param \"w.i8\": i8[4, 3]
  %w_scale = param \"w.scale\": f32[4]
  %w_zero_point = param \"w.zero_point\": i64[4]
  %dequantize_per_channel = quantized_decomposed.dequantize_per_channel(%w_i8, %w_scale, %w_zero_point, 0, -128, 127, i8): f32[4, 3]
  %linear = aten.linear(%dequantize_per_tensor, %dequantize_per_channel): f32[2, 4]
  return %linear \"y\"
}",
    ),
};

/// The same over windows.
pub static CONV: RuleDef = RuleDef {
    name: "integer_conv",
    doc: "ConvInteger, and the scales behind it: a convolution of levels whose scale is computed.",
    spellings: &[
        "mul(_to_copy(_to_copy(conv(_to_copy(sub(_to_copy(q), _to_copy(z))), w, none))), mul(s, sw))",
        "mul(_to_copy(_to_copy(conv(_to_copy(sub(_to_copy(q), _to_copy(z))), _to_copy(w), none))), mul(s, sw))",
    ],
    any: &[("conv", &["conv1d", "conv2d"])],
    conditions: &["constant(w)", "constant(sw)", "not constant(s)"],
    build: |m| {
        typed(m)?;
        let node = m.node("conv").ok_or("no convolution")?;
        let op = node.op().ok_or("no convolution")?;
        let rank = constant(m, "w")?.shape().len();
        let (x, w) = (input(m)?, weight(m, false, rank.saturating_sub(2))?);
        let args = op.schema.params.iter().map(|p| match p.name.as_str() {
            "input" => x.into(),
            "weight" => w.into(),
            name => m.arg_of("conv", name),
        });
        Ok(m.b.call_op(op, args.collect(), None))
    },
    example: (
        "graph(%q: u8[1, 3, 8, 8], %z: u8[], %s: f32[]) {
  %w = param \"w\": i32[4, 3, 3, 3]
  %sw = param \"sw\": f32[4, 1, 1]
  %a = aten._to_copy(%q, i32)
  %b = aten._to_copy(%z, i32)
  %c = aten.sub.Tensor(%a, %b)
  %xf = aten._to_copy(%c, f64)
  %wf = aten._to_copy(%w, f64)
  %d = aten.conv2d(%xf, %wf, none, [1, 1], [1, 1])
  %e = aten._to_copy(%d, i32)
  %f = aten._to_copy(%e, f32)
  %g = aten.mul.Tensor(%s, %sw)
  %y = aten.mul.Tensor(%f, %g)
  return %y
}",
        "graph(%q: u8[1, 3, 8, 8], %z: u8[], %s: f32[]) {
  %dequantize_per_tensor = quantized_decomposed.dequantize_per_tensor.tensor(%q, %s, %z, 0, 255, u8): f32[1, 3, 8, 8]
  %w_i8 = param \"w.i8\": i8[4, 3, 3, 3]
  %w_scale = param \"w.scale\": f32[4]
  %w_zero_point = param \"w.zero_point\": i64[4]
  %dequantize_per_channel = quantized_decomposed.dequantize_per_channel(%w_i8, %w_scale, %w_zero_point, 0, -128, 127, i8): f32[4, 3, 3, 3]
  %conv2d = aten.conv2d(%dequantize_per_tensor, %dequantize_per_channel, none, [1, 1], [1, 1]): f32[1, 4, 8, 8]
  return %conv2d \"y\"
}",
    ),
};
