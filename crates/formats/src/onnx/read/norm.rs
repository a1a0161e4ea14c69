//! Normalizations and softmax.

use super::host::Known;
use super::node::{Ctx, Map, Step, axis_of};
use cleave_ir::{Arg, Dim, Value};

pub(super) const OPS: &[(&str, Map)] = &[
    ("BatchNormalization", batch_norm),
    ("InstanceNormalization", instance_norm),
    ("LayerNormalization", layer_norm),
    ("GroupNormalization", group_norm),
    ("RMSNormalization", rms_norm),
    ("Softmax", |c| softmax(c, "aten.softmax.int")),
    ("LogSoftmax", |c| softmax(c, "aten.log_softmax.int")),
];

fn batch_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    c.only(1)?;
    let eps = c.float("epsilon", 1e-5)?;
    // ONNX's momentum is the share of the old value, torch's that of the new one.
    let momentum = super::host::widen((1.0 - c.float("momentum", 0.9)?) as f32);
    if c.flag("training_mode", false)? {
        return Err("batch norm in training mode; export the model for inference".into());
    }
    c.ignore(&["spatial"]);
    let mut args: Vec<Arg> = (0..5).map(|i| c.value(i).map(Arg::from)).collect::<Step<_>>()?;
    args.extend([false.into(), momentum.into(), eps.into(), true.into()]);
    c.one(c.call("aten.batch_norm", args))
}

fn instance_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let eps = c.float("epsilon", 1e-5)?;
    let (x, w, b) = (c.value(0)?, c.value(1)?, c.value(2)?);
    let channels = x.shape().get(1).and_then(Dim::as_const).ok_or("input without a known number of channels")?;
    let args = vec![x.into(), channels.into(), w.into(), b.into(), eps.into()];
    c.one(c.call("aten.group_norm", args))
}

fn group_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (eps, groups) = (c.float("epsilon", 1e-5)?, c.opt_int("num_groups")?.ok_or("'num_groups' is missing")?);
    c.ignore(&["stash_type"]);
    if c.opset < 21 {
        return Err("GroupNormalization of an operator set before 21 is not supported".into());
    }
    let (x, w, b) = (c.value(0)?, c.value(1)?, c.value(2)?);
    c.one(c.call("aten.group_norm", vec![x.into(), groups.into(), w.into(), b.into(), eps.into()]))
}

fn layer_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    c.only(1)?;
    let (eps, axis) = (c.float("epsilon", 1e-5)?, c.int("axis", -1)?);
    c.ignore(&["stash_type"]);
    let (x, w, b) = (c.value(0)?, c.value(1)?, c.opt_value(2));
    let shape = x.shape();
    let over = shape[axis_of(axis, shape.len())?..].to_vec();
    let whole = |v: Value<'_>| v.shape() == over;
    if whole(w) && b.is_none_or(whole) {
        return c.one(c.call("aten.layer_norm", vec![x.into(), over.into(), w.into(), b.into(), eps.into()]));
    }
    let y = c.call("aten.layer_norm", vec![x.into(), over.into(), Arg::None, Arg::None, eps.into()]) * w;
    c.one(b.map_or(y, |b| y + b))
}

/// `x / sqrt(mean(x²) + eps) · scale`.
fn rms_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (eps, axis) = (c.float("epsilon", 1e-5)?, c.int("axis", -1)?);
    c.ignore(&["stash_type"]);
    let (x, w) = (c.value(0)?, c.value(1)?);
    let first = axis_of(axis, x.rank())?;
    let over: Vec<i64> = (0i64..).take(x.rank()).skip(first).collect();
    let mean = (x * x).op("aten.mean.dim", vec![over.into(), true.into()]);
    c.one(c.call("aten.mul.Tensor", vec![(x * (mean + eps).rsqrt()).into(), w.into()]))
}

/// Before operator set 13 the axis divides a matrix: all dimensions from there on are one.
fn softmax<'b>(c: &Ctx<'b, '_>, op: &str) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let (shape, old) = (x.shape(), c.opset < 13);
    let axis = axis_of(c.int("axis", if old { 1 } else { -1 })?, shape.len())?;
    let call = |x: Value<'b>, axis: usize| c.call(op, vec![x.into(), axis.into()]);
    if !old || shape[axis + 1..].iter().all(|d| d.is(1)) {
        return c.one(call(x, axis));
    }
    // Leading sizes of 1 in what is put together change nothing; the rest is reshaped.
    let rows: Dim = shape[..axis].iter().cloned().product();
    let columns: Dim = shape[axis..].iter().cloned().product();
    let flat = x.op("aten.reshape", vec![vec![rows, columns].into()]);
    c.one(call(flat, 1).op("aten.reshape", vec![shape.into()]))
}
