//! Functions of one element: activations, rounding, casts.

use super::fold;
use super::host::{Data, Host, Known, cast as cast_tensor};
use super::node::{Ctx, Map, Step, dim_of};
use crate::onnx::tensor::{bits_of, code_named, dtype_of};
use cleave_ir::{Arg, Dim, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Relu", |c| plain(c, "aten.relu")),
    ("HardSwish", |c| plain(c, "aten.hardswish")),
    ("Sigmoid", |c| plain(c, "aten.sigmoid")),
    ("Tanh", |c| folded(c, "aten.tanh", f64::tanh)),
    ("Erf", |c| plain(c, "aten.erf")),
    ("Exp", |c| folded(c, "aten.exp", f64::exp)),
    ("Log", |c| folded(c, "aten.log", f64::ln)),
    ("Sqrt", |c| folded(c, "aten.sqrt", f64::sqrt)),
    ("Reciprocal", |c| folded(c, "aten.reciprocal", |v| 1.0 / v)),
    ("Neg", |c| folded(c, "aten.neg", |v| -v)),
    ("Abs", |c| folded(c, "aten.abs", f64::abs)),
    ("Floor", |c| folded(c, "aten.floor", f64::floor)),
    ("Ceil", |c| folded(c, "aten.ceil", f64::ceil)),
    ("Round", |c| folded(c, "aten.round", f64::round_ties_even)),
    ("Sign", |c| folded(c, "aten.sign", |v| if v == 0.0 { 0.0 } else { v.signum() })),
    ("Sin", |c| folded(c, "aten.sin", f64::sin)),
    ("Cos", |c| folded(c, "aten.cos", f64::cos)),
    ("Tan", |c| plain(c, "aten.tan")),
    ("Asin", |c| plain(c, "aten.asin")),
    ("Acos", |c| plain(c, "aten.acos")),
    ("Atan", |c| plain(c, "aten.atan")),
    ("Sinh", |c| plain(c, "aten.sinh")),
    ("Cosh", |c| plain(c, "aten.cosh")),
    ("Asinh", |c| plain(c, "aten.asinh")),
    ("Acosh", |c| plain(c, "aten.acosh")),
    ("Atanh", |c| plain(c, "aten.atanh")),
    ("IsNaN", |c| plain(c, "aten.isnan")),
    ("IsInf", |c| match (c.flag("detect_negative", true)?, c.flag("detect_positive", true)?) {
        (true, true) => plain(c, "aten.isinf"),
        (true, false) => plain(c, "aten.isneginf"),
        (false, true) => plain(c, "aten.isposinf"),
        (false, false) => {
            let x = c.value(0)?;
            c.one(c.call("aten.full_like", vec![x.into(), false.into(), DType::Bool.into()]))
        }
    }),
    ("BitwiseNot", |c| plain(c, "aten.bitwise_not")),
    ("Not", not),
    ("Softsign", |c| {
        let x = c.value(0)?;
        c.one(x / (x.abs() + 1i64))
    }),
    ("Softplus", |c| plain(c, "aten.softplus")),
    ("Mish", |c| plain(c, "aten.mish")),
    ("LeakyRelu", |c| with_number(c, "aten.leaky_relu", "alpha", 0.01)),
    ("Elu", |c| with_number(c, "aten.elu", "alpha", 1.0)),
    ("Celu", |c| {
        // max(x, 0) + min(alpha · (exp(x / alpha) - 1), 0)
        let (x, alpha) = (c.value(0)?, c.float("alpha", 1.0)?);
        c.one(x.relu() + (((x / alpha).exp() - 1i64) * alpha).clamp(None, Some(0.0)))
    }),
    ("Swish", |c| {
        let (x, alpha) = (c.value(0)?, c.float("alpha", 1.0)?);
        c.one(x * (if alpha == 1.0 { x } else { x * alpha }).sigmoid())
    }),
    ("Selu", selu),
    ("ThresholdedRelu", |c| {
        let (x, alpha) = (c.value(0)?, c.float("alpha", 1.0)?);
        let over = x.op("aten.gt.Scalar", vec![alpha.into()]);
        c.one(c.call("aten.where.ScalarOther", vec![over.into(), x.into(), 0.0.into()]))
    }),
    ("Gelu", |c| {
        let (x, how) = (c.value(0)?, c.str("approximate", "none")?);
        c.one(c.call("aten.gelu", vec![x.into(), how.into()]))
    }),
    ("Shrink", |c| {
        // x + bias below -lambd, x - bias above lambd, else 0
        let (x, bias, lambd) = (c.value(0)?, c.float("bias", 0.0)?, c.float("lambd", 0.5)?);
        let low = x.op("aten.lt.Scalar", vec![(-lambd).into()]);
        let high = x.op("aten.gt.Scalar", vec![lambd.into()]);
        let dtype = x.dtype();
        let outer = high.op("aten.where.ScalarOther", vec![(x - bias).to(dtype).into(), 0.0.into()]).to(dtype);
        c.one(c.call("aten.where.self", vec![low.into(), (x + bias).to(dtype).into(), outer.into()]))
    }),
    ("SwiGLU", |c| {
        let (a, b, alpha) = (c.value(0)?, c.value(1)?, c.float("alpha", 1.0)?);
        c.one(a * (if alpha == 1.0 { a } else { a * alpha }).sigmoid() * b)
    }),
    ("BitCast", |c| {
        let to = c.opt_int("to")?.ok_or("attribute 'to' is missing")?;
        let x = c.value(0)?;
        c.one(c.call("aten.view.dtype", vec![x.into(), dtype_of(to)?.into()]))
    }),
    ("Hardmax", |c| {
        let x = c.value(0)?;
        let old = c.opset < 13;
        let axis = super::node::axis_of(c.int("axis", if old { 1 } else { -1 })?, x.rank())?;
        let shape = x.shape();
        let rows: Dim = shape[..axis].iter().cloned().product();
        let y = if old { x.op("aten.reshape", vec![vec![rows, Dim::from(-1)].into()]) } else { x };
        let along = if old { 1 } else { axis };
        let best = y.op("aten.argmax", vec![along.into(), true.into()]);
        let sizes: Vec<Dim> =
            y.shape().iter().enumerate().map(|(i, d)| if i == along { d.clone() } else { 1.into() }).collect();
        let steps = vec![0i64.into(), dim_of(y, along).into(), 1i64.into(), DType::I64.into()];
        let place = c.b.call("aten.arange.start_step", steps).op("aten.reshape", vec![sizes.into()]);
        let hot = place.op("aten.eq.Tensor", vec![best.into()]).to(x.dtype());
        c.one(if old { hot.op("aten.reshape", vec![shape.into()]) } else { hot })
    }),
    ("EyeLike", |c| {
        let x = c.value(0)?;
        let dtype = c.opt_dtype("dtype")?.unwrap_or(x.dtype());
        let k = c.int("k", 0)?;
        let [rows, columns]: [Dim; 2] = x.shape().try_into().map_err(|s| format!("input of shape {s:?}"))?;
        let line =
            |n: Dim| c.b.call("aten.arange.start_step", vec![0i64.into(), n.into(), 1i64.into(), DType::I64.into()]);
        let row = line(rows).op("aten.unsqueeze", vec![1i64.into()]) + k;
        c.one(line(columns).op("aten.eq.Tensor", vec![row.into()]).to(dtype))
    }),
    ("PRelu", prelu),
    ("HardSigmoid", hard_sigmoid),
    ("Clip", clip),
    ("Cast", cast),
    ("CastLike", |c| {
        let to = match c.known(1)? {
            Known::Host(h) => h.dtype(),
            Known::Value(v) => v.dtype(),
        };
        converted(c, to, c.bits(1))
    }),
    ("Identity", |c| Ok(vec![c.known(0)?.clone()])),
    ("Dropout", dropout),
];

fn plain<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    c.one(c.call(op, vec![x.into()]))
}

/// An op that is evaluated where its operand is known.
fn folded<'b>(c: &Ctx<'b, '_>, op: &str, f: fn(f64) -> f64) -> Step<Vec<Known<'b>>> {
    let Some(h) = c.host(0) else { return plain(c, op) };
    if let Some(h) = fold::unary(c.output_name(0), h, f) {
        return Ok(vec![Known::Host(h)]);
    }
    // Sizes are whole and not negative.
    match (c.op_type(), h.as_dims()) {
        ("Floor" | "Ceil" | "Round" | "Abs", Some(d)) => c.sized(h.dtype(), h.shape().to_vec(), d),
        ("Neg", Some(d)) => c.sized(h.dtype(), h.shape().to_vec(), d.into_iter().map(|d| -d).collect()),
        _ => plain(c, op),
    }
}

fn not<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    match c.host(0).and_then(|h| fold::unary(c.output_name(0), h, |v| f64::from(u8::from(v == 0.0)))) {
        Some(h) => Ok(vec![Known::Host(h)]),
        None => plain(c, "aten.logical_not"),
    }
}

fn with_number<'b>(c: &Ctx<'b, '_>, op: &str, name: &str, default: f64) -> Step<Vec<Known<'b>>> {
    let (x, v) = (c.value(0)?, c.float(name, default)?);
    c.one(c.call(op, vec![x.into(), v.into()]))
}

/// `gamma · (x if x > 0 else alpha · (exp(x) - 1))`.
fn selu<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let alpha = c.float("alpha", 1.6732632)?;
    let gamma = c.float("gamma", 1.050701)?;
    let x = c.value(0)?;
    c.one(c.call("aten.elu", vec![x.into(), alpha.into(), gamma.into()]))
}

/// torch's slope is one number or one for each channel; others are spelled out.
fn prelu<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let rank = x.rank();
    if let Some(slope) = c.host(1).and_then(Host::as_tensor) {
        let shape = slope.shape();
        let channel = |(i, n): (usize, &usize)| *n == 1 || i + rank == shape.len() + 1;
        if shape.len() <= rank && rank >= 2 && shape.iter().enumerate().all(channel) {
            let name = c.host(1).map_or(String::new(), |h| h.name.clone());
            let flat = if shape.len() == 1 && shape[0] == 1 { slope.clone() } else { slope.reshape(&[slope.len()]) };
            let w = c.node_of(&Known::Host(Host { name: format!("{name}.flat"), ..Host::tensor("", flat) }));
            return c.one(c.call("aten.prelu", vec![x.into(), w.into()]));
        }
    }
    let slope = c.value(1)?;
    c.one(x.relu() + slope * x.clamp(None, Some(0.0)))
}

/// `clamp(alpha·x + beta, 0, 1)`; torch's has alpha 1/6 and beta 1/2.
fn hard_sigmoid<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (alpha, beta) = (c.float("alpha", 0.2)?, c.float("beta", 0.5)?);
    let x = c.value(0)?;
    if (alpha - 1.0 / 6.0).abs() < 1e-6 && beta == 0.5 {
        return c.one(c.call("aten.hardsigmoid", vec![x.into()]));
    }
    let y = x * alpha + beta;
    c.one(c.call("aten.clamp", vec![y.into(), 0.0.into(), 1.0.into()]))
}

fn clip<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    if c.opset < 11 {
        let bound = |v: Option<f64>| v.filter(|v| v.abs() < f64::from(f32::MAX));
        let (min, max) = (bound(c.opt_float("min")?), bound(c.opt_float("max")?));
        return c.one(if min.is_none() && max.is_none() { x } else { clamp(c, x, min, max) });
    }
    let known = |i| c.opt(i).is_none() || c.host(i).and_then(Host::as_scalar).is_some();
    if known(1) && known(2) {
        let (min, max) = (c.opt_scalar(1)?, c.opt_scalar(2)?);
        return c.one(if min.is_none() && max.is_none() { x } else { clamp(c, x, min, max) });
    }
    let mut y = x;
    if let Some(min) = c.opt_value(1) {
        y = c.call("aten.maximum", vec![y.into(), min.into()]);
    }
    if let Some(max) = c.opt_value(2) {
        y = c.call("aten.minimum", vec![y.into(), max.into()]);
    }
    c.one(y)
}

/// Bounds that are whole are integers for an integer tensor.
fn clamp<'b>(c: &Ctx<'b, '_>, x: cleave_ir::Value<'b>, min: Option<f64>, max: Option<f64>) -> cleave_ir::Value<'b> {
    let float = x.dtype().is_float();
    let arg = |v: Option<f64>| match v {
        None => Arg::None,
        Some(v) if float => Arg::Float(v),
        Some(v) => Arg::Int(v as i64),
    };
    c.call("aten.clamp", vec![x.into(), arg(min), arg(max)])
}

fn cast<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let to = match c.opset < 6 {
        true => code_named(c.str("to", "")?)?,
        false => c.opt_int("to")?.ok_or("attribute 'to' is missing")?,
    };
    converted(c, dtype_of(to)?, bits_of(to))
}

/// The greatest number of a float of 8 bits.
pub(super) fn greatest(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F8E4M3 => Some(448.0),
        DType::F8E5M2 => Some(57344.0),
        _ => None,
    }
}

/// Whether a constant is a weight of half-precision numbers that is used in f32.
fn is_narrow(t: &Tensor, to: DType) -> bool {
    matches!(t.dtype(), DType::F16 | DType::BF16) && to == DType::F32 && t.shape().len() > 1
}

fn converted<'b>(c: &Ctx<'b, '_>, to: DType, bits: Option<u32>) -> Step<Vec<Known<'b>>> {
    c.ignore(&["round_mode"]);
    let saturate = c.flag("saturate", true)?;
    if let Some(most) = greatest(to) {
        let x = c.value(0)?;
        let x = if saturate && x.dtype() != to { x.clamp(Some(-most), Some(most)) } else { x };
        return c.one(c.call("aten._to_copy", vec![x.into(), to.into()]));
    }
    if let Some(bits) = bits {
        // The lowest bits, filled up with the sign or with zeros.
        c.narrow(0, Some(bits));
        let rest = i64::from(8 - bits);
        let x = c.value(0)?;
        let x = if x.dtype().is_float() { x.to(DType::I32) } else { x };
        let high = x.to(to).op("aten.bitwise_left_shift.Tensor_Scalar", vec![rest.into()]);
        return c.one(high.op("aten.bitwise_right_shift.Tensor_Scalar", vec![rest.into()]));
    }
    match c.known(0)? {
        // Weights stay as small as they are stored.
        Known::Host(Host { data: Data::Tensor(t), .. }) if is_narrow(t, to) => {
            c.one(c.call("aten._to_copy", vec![c.value(0)?.into(), to.into()]))
        }
        Known::Host(Host { data: Data::Tensor(t), .. }) => c.folded(cast_tensor(t, to)),
        Known::Host(Host { data: Data::Dims(_, shape, dims), .. }) => {
            let dims: Vec<Dim> = dims.clone();
            c.sized(to, shape.clone(), dims)
        }
        Known::Value(v) if v.dtype() == to => c.one(*v),
        Known::Value(v) => c.one(c.call("aten._to_copy", vec![(*v).into(), to.into()])),
    }
}

fn dropout<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    c.ignore(&["seed", "is_test"]);
    let ratio = match c.opt_float("ratio")? {
        Some(r) => r,
        None => c.opt_scalar(1)?.unwrap_or(0.5),
    };
    if ratio != 0.0 && c.opt_scalar(2)?.is_some_and(|t| t != 0.0) {
        return Err("dropout in training mode; export the model for inference".into());
    }
    let x = c.value(0)?;
    let y = c.call("aten.dropout", vec![x.into(), ratio.into(), false.into()]);
    if !c.wants(1) {
        return c.one(y);
    }
    // The mask is a bool since operator set 10.
    let dtype = if c.opset < 10 { x.dtype() } else { DType::Bool };
    let mask = x.op("aten.full_like", vec![true.into(), dtype.into()]);
    Ok(vec![Known::Value(y), Known::Value(mask)])
}
