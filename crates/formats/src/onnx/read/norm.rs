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
    ("LRN", lrn),
    ("MeanVarianceNormalization", |c| {
        let (x, axes) = (c.value(0)?, c.opt_list("axes")?.unwrap_or(vec![0, 2, 3]));
        let m = x.op("aten.mean.dim", vec![axes.clone().into(), true.into()]);
        let square = (x * x).op("aten.mean.dim", vec![axes.into(), true.into()]);
        c.one((x - m) / ((square - m * m).sqrt() + 1e-9))
    }),
    ("LpNormalization", |c| {
        let (x, axis, p) = (c.value(0)?, c.int("axis", -1)?, c.int("p", 2)?);
        let norm = x.op("aten.linalg_vector_norm", vec![Arg::Float(p as f64), vec![axis].into(), true.into()]);
        // Where all elements are zero they stay so.
        let some = norm.op("aten.eq.Scalar", vec![0.0.into()]);
        c.one(x / (norm + some.to(x.dtype())))
    }),
    ("Softmax", |c| softmax(c, "aten.softmax.int")),
    ("LogSoftmax", |c| softmax(c, "aten.log_softmax.int")),
];

fn batch_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let eps = c.float("epsilon", 1e-5)?;
    // ONNX's momentum is the share of the old value, torch's that of the new one.
    let momentum = super::host::widen((1.0 - c.float("momentum", 0.9)?) as f32);
    if c.flag("training_mode", false)? {
        return trained(c, eps, 1.0 - momentum);
    }
    c.only(1)?;
    c.ignore(&["spatial", "is_test"]);
    let mut args: Vec<Arg> = (0..5).map(|i| c.value(i).map(Arg::from)).collect::<Step<_>>()?;
    args.extend([false.into(), momentum.into(), eps.into(), true.into()]);
    c.one(c.call("aten.batch_norm", args))
}

/// By the statistics of the batch, which are mixed into the running ones.
fn trained<'b>(c: &Ctx<'b, '_>, eps: f64, keep: f64) -> Step<Vec<Known<'b>>> {
    let [x, w, b, mean, var] = [c.value(0)?, c.value(1)?, c.value(2)?, c.value(3)?, c.value(4)?];
    let axes: Vec<i64> = (0i64..).take(x.rank()).filter(|a| *a != 1).collect();
    let sizes: Vec<i64> = (0..x.rank()).map(|i| if i == 1 { -1 } else { 1 }).collect();
    let wide = |v: Value<'b>| v.op("aten.reshape", vec![sizes.clone().into()]);
    let over = |v: Value<'b>| v.op("aten.mean.dim", vec![axes.clone().into(), false.into()]);
    let now = over(x);
    let centred = x - wide(now);
    let spread = over(centred * centred);
    let y = centred * wide((spread + eps).rsqrt() * w) + wide(b);
    let mixed = |old: Value<'b>, new: Value<'b>| old * keep + new * (1.0 - keep);
    Ok(vec![Known::Value(y), Known::Value(mixed(mean, now)), Known::Value(mixed(var, spread))])
}

/// Each element by a power of the sum of squares over the channels around it.
fn lrn<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let size = c.opt_int("size")?.filter(|s| (1..1 << 16).contains(s)).ok_or("attribute 'size' is missing")?;
    let (alpha, beta, bias) = (c.float("alpha", 1e-4)?, c.float("beta", 0.75)?, c.float("bias", 1.0)?);
    let x = c.value(0)?;
    let shape = x.shape();
    let channels = shape.get(1).cloned().ok_or("an input without channels")?;
    let (before, after) = ((size - 1) / 2, size / 2);
    // Channels in a window as rows of an image of two dimensions.
    let rest: Dim = shape[2..].iter().cloned().product();
    let square = (x * x).op("aten.reshape", vec![vec![shape[0].clone(), 1.into(), channels, rest].into()]);
    let padded = square.op("aten.constant_pad_nd", vec![vec![0, 0, before, after].into(), 0.0.into()]);
    let (kernel, stride, none): (Arg, Arg, Arg) = (vec![size, 1].into(), vec![1i64, 1].into(), vec![0i64, 0].into());
    let args = vec![kernel, stride, none, false.into(), true.into(), Arg::None];
    let mean = padded.op("aten.avg_pool2d", args).op("aten.reshape", vec![shape.into()]);
    c.one(x / (mean * alpha + bias).op("aten.pow.Tensor_Scalar", vec![beta.into()]))
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
    let (x, mut w, mut b) = (c.value(0)?, c.value(1)?, c.value(2)?);
    if c.opset < 21 {
        // Scale and bias were those of a group.
        let each = x.shape().get(1).map(|d| d.floor_div(&groups.into())).and_then(|d| d.as_const());
        let each = each.ok_or("input without a known number of channels")?;
        w = w.op("aten.repeat_interleave.self_int", vec![each.into()]);
        b = b.op("aten.repeat_interleave.self_int", vec![each.into()]);
    }
    c.one(c.call("aten.group_norm", vec![x.into(), groups.into(), w.into(), b.into(), eps.into()]))
}

fn layer_norm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (eps, axis) = (c.float("epsilon", 1e-5)?, c.int("axis", -1)?);
    c.ignore(&["stash_type"]);
    let (x, w, b) = (c.value(0)?, c.value(1)?, c.opt_value(2));
    let shape = x.shape();
    let over = shape[axis_of(axis, shape.len())?..].to_vec();
    if c.wants(1) || c.wants(2) {
        let args = vec![x.into(), over.into(), w.into(), b.into(), eps.into()];
        let all = c.call("aten.native_layer_norm", args);
        return Ok((0..3).map(|i| Known::Value(c.b.getitem(all, i))).collect());
    }
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
