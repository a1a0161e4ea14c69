//! Constant factors and terms behind a convolution belong to it.

use crate::raise::RuleDef;
use crate::raise::fold::{constant, derived, per_channel};
use cleave_ir::graph::Arg;
use cleave_ir::{Tensor, Value};
use cleave_numerics::DType;
use cleave_rewrite::Bound;

const CONVS: &[(&str, &[&str])] = &[("conv", &["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"])];

/// Output channels, the weight's axis of them, and how many dimensions stand behind the channels.
fn channels(m: &Bound<'_, '_>) -> Result<(usize, usize, usize), String> {
    let node = m.node("conv").ok_or("no convolution")?;
    let op = node.op().ok_or("no convolution")?;
    let axis = op.weight_axis.ok_or("the op has no weight axis")?;
    let groups = match node.arg("groups") {
        Some(Arg::Int(g)) => usize::try_from(*g).unwrap_or(1),
        _ => 1,
    };
    let w = constant(m, "w")?;
    if w.dtype() != DType::F32 {
        return Err(format!("a weight of {}", w.dtype()));
    }
    let count = w.shape().get(axis).copied().unwrap_or(0) * if axis == 1 { groups } else { 1 };
    if axis == 1 && groups != 1 {
        return Err("a transposed convolution in groups".into());
    }
    Ok((count, axis, w.shape().len().saturating_sub(2)))
}

/// The convolution again, with another weight and bias.
fn rebuilt<'b>(m: &Bound<'b, '_>, w: Value<'b>, bias: Value<'b>) -> Result<Value<'b>, String> {
    let node = m.node("conv").ok_or("no convolution")?;
    let op = node.op().ok_or("no convolution")?;
    let args = op.schema.params.iter().map(|p| match p.name.as_str() {
        "weight" => w.into(),
        "bias" => bias.into(),
        name => m.arg_of("conv", name),
    });
    Ok(m.b.call_op(op, args.collect(), None))
}

/// The bias, zeros if there is none.
fn bias(m: &Bound<'_, '_>, count: usize) -> Result<Vec<f32>, String> {
    if m.arg("b") == Arg::None {
        return Ok(vec![0.0; count]);
    }
    let b = constant(m, "b")?;
    if b.dtype() == DType::F32 { Ok(b.to_f32().into_owned()) } else { Err(format!("a bias of {}", b.dtype())) }
}

/// `conv(x, w, b)·s = conv(x, w·s, b·s)`, in f32.
fn scale<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let (count, axis, behind) = channels(m)?;
    let mut s = per_channel(m, "s", count, behind)?;
    if m.root().op().is_some_and(|o| o.base() == "div") {
        s.iter_mut().for_each(|v| *v = 1.0 / *v);
    }
    if s.iter().any(|v| !v.is_finite()) {
        return Err("a factor that is not finite".into());
    }
    let w = constant(m, "w")?;
    let inner: usize = w.shape()[axis + 1..].iter().product();
    let scaled = w.to_f32().iter().enumerate().map(|(i, v)| v * s[i / inner.max(1) % count]).collect();
    let weight = derived(m, "w", "scaled", Tensor::new::<f32>(w.shape(), scaled));
    let b: Vec<f32> = bias(m, count)?.iter().zip(&s).map(|(b, s)| b * s).collect();
    let anchor = if m.arg("b") == Arg::None { "w" } else { "b" };
    rebuilt(m, weight, derived(m, anchor, "scaled_bias", Tensor::new(&[count], b)))
}

/// A factor behind a convolution.
pub static SCALE: RuleDef = RuleDef {
    name: "conv_scale",
    doc: "A constant factor for all or for each channel, behind a convolution that nothing else uses, is in its weight.",
    spellings: &["mul(conv(x, w, b?), s)", "div(conv(x, w, b?), s)"],
    any: CONVS,
    conditions: &["constant(w)", "single_use(conv)", "not rank(w) == 2"],
    build: scale,
    example: (
        "graph(%x: f32[1, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 1, 1]
  %b = param \"b\": f32[4]
  %c = aten.conv2d(%x, %w, %b)
  %y = aten.mul.Tensor(%c, 2.0)
  return %y
}",
        "graph(%x: f32[1, 3, 8, 8]) {
  %w_scaled = param \"w.scaled\": f32[4, 3, 1, 1]
  %b_scaled_bias = param \"b.scaled_bias\": f32[4]
  %conv2d = aten.conv2d(%x, %w_scaled, %b_scaled_bias): f32[1, 4, 8, 8]
  return %conv2d \"y\"
}",
    ),
};

/// `conv(x, w, b) + t = conv(x, w, b + t)`.
fn shift<'b>(m: &Bound<'b, '_>) -> Result<Value<'b>, String> {
    let (count, _, behind) = channels(m)?;
    let mut t = per_channel(m, "t", count, behind)?;
    if m.root().op().is_some_and(|o| o.base() == "sub") {
        t.iter_mut().for_each(|v| *v = -*v);
    }
    let sum: Vec<f32> = bias(m, count)?.iter().zip(&t).map(|(b, t)| b + t).collect();
    let named = ["t", "b", "w"].into_iter().find(|c| m.found.value(c).is_some()).unwrap_or("w");
    let suffix = if named == "w" { "bias" } else { "as_bias" };
    rebuilt(m, m.value("w")?, derived(m, named, suffix, Tensor::new(&[count], sum)))
}

/// A term behind a convolution.
pub static SHIFT: RuleDef = RuleDef {
    name: "conv_shift",
    doc: "A constant term for all or for each channel, behind a convolution that nothing else uses, is in its bias.",
    spellings: &["add(conv(x, w, b?), t)", "sub(conv(x, w, b?), t)"],
    any: CONVS,
    conditions: &["constant(w)", "single_use(conv)"],
    build: shift,
    example: (
        "graph(%x: f32[1, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 1, 1]
  %t = param \"t\": f32[1, 4, 1, 1]
  %c = aten.conv2d(%x, %w)
  %y = aten.add.Tensor(%c, %t)
  return %y
}",
        "graph(%x: f32[1, 3, 8, 8]) {
  %w = param \"w\": f32[4, 3, 1, 1]
  %t_as_bias = param \"t.as_bias\": f32[4]
  %conv2d = aten.conv2d(%x, %w, %t_as_bias): f32[1, 4, 8, 8]
  return %conv2d \"y\"
}",
    ),
};
