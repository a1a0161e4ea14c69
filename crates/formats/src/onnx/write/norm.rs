//! Normalizations and softmax.

use super::Entry;
use super::args::{float, int};
use super::out::Out;
use cleave_ir::{Dim, Tensor};
use cleave_numerics::DType;

pub(super) const OPS: &[Entry] = &[
    ("aten.batch_norm", 14, |o| batch_norm(o, false)),
    ("aten._native_batch_norm_legit_no_training", 14, |o| batch_norm(o, true)),
    ("aten.layer_norm", 17, layer_norm),
    ("aten.native_layer_norm", 17, layer_norm),
    ("aten.group_norm", 13, group_norm),
    ("aten.softmax.int", 13, |o| softmax(o, "Softmax")),
    ("aten._softmax", 13, |o| softmax(o, "Softmax")),
    ("aten.log_softmax.int", 13, |o| softmax(o, "LogSoftmax")),
    ("aten._log_softmax", 13, |o| softmax(o, "LogSoftmax")),
];

type Step = Result<(), String>;

/// A parameter that is not given, as what it stands for.
fn or_fill(o: &mut Out<'_, '_>, name: &str, n: &[usize], value: f32) -> Result<String, String> {
    if o.args.given(name) {
        return o.input(name);
    }
    let wish = format!("{}_{name}", o.node.name);
    Ok(o.w.constant(&wish, Tensor::new(n, vec![value; n.iter().product()])))
}

fn batch_norm(o: &mut Out<'_, '_>, tuple: bool) -> Step {
    if !tuple && o.args.bool("training")? {
        return Err("batch norm in training mode".into());
    }
    let x = o.args.tensor("input")?;
    if o.dtype(x)? != DType::F32 {
        return Err(format!("batch norm of {} is not supported", o.dtype(x)?));
    }
    let channels = o.shape(x)?.get(1).and_then(Dim::as_const).and_then(|n| usize::try_from(n).ok());
    let n = [channels.ok_or("input without a known number of channels")?];
    let inputs = vec![
        o.input("input")?,
        or_fill(o, "weight", &n, 1.0)?,
        or_fill(o, "bias", &n, 0.0)?,
        or_fill(o, "running_mean", &n, 0.0)?,
        or_fill(o, "running_var", &n, 1.0)?,
    ];
    let attrs = vec![float("epsilon", o.args.float("eps")?), float("momentum", 1.0 - o.args.float("momentum")?)];
    if tuple {
        o.done_tuple("BatchNormalization", inputs, 1, attrs);
        return Ok(());
    }
    o.done("BatchNormalization", inputs, attrs)
}

fn layer_norm(o: &mut Out<'_, '_>) -> Step {
    let over = o.args.dims("normalized_shape")?;
    let sizes = over.iter().map(|d| d.as_const().and_then(|v| usize::try_from(v).ok())).collect::<Option<Vec<_>>>();
    let sizes = sizes.ok_or("normalization over an unknown size")?;
    let axis = -i64::try_from(sizes.len()).map_err(|e| e.to_string())?;
    let inputs = vec![o.input("input")?, or_fill(o, "weight", &sizes, 1.0)?, o.opt_input("bias")?];
    let attrs = vec![int("axis", axis), float("epsilon", o.args.float("eps")?)];
    if o.node.op().is_some_and(|op| op.base() == "native_layer_norm") {
        let inputs = inputs.into_iter().filter(|i| !i.is_empty()).collect();
        o.done_tuple("LayerNormalization", inputs, 1, attrs);
        return Ok(());
    }
    o.done("LayerNormalization", inputs, attrs)
}

fn softmax(o: &mut Out<'_, '_>, op: &str) -> Step {
    let to = o.dtype(o.id)?;
    let x = o.operand("self", to)?;
    let axis = int("axis", o.args.int("dim")?);
    o.done(op, vec![x], vec![axis])
}

/// A group norm as exporters spell it: groups become the channels of an instance norm.
fn group_norm(o: &mut Out<'_, '_>) -> Step {
    let x = o.args.tensor("input")?;
    if o.dtype(x)? != DType::F32 {
        return Err(format!("group norm of {} is not supported", o.dtype(x)?));
    }
    let shape = o.shape(x)?.to_vec();
    let groups = usize::try_from(o.args.int("num_groups")?).map_err(|e| e.to_string())?;
    let folded = o.ints(&[0, groups as i64, -1]);
    let ones = o.w.constant(&format!("{}_ones", o.node.name), Tensor::new(&[groups], vec![1f32; groups]));
    let zeros = o.w.constant(&format!("{}_zeros", o.node.name), Tensor::new(&[groups], vec![0f32; groups]));
    let input = o.input("input")?;
    let mut y = o.push("Reshape", vec![input, folded], vec![]);
    y = o.push("InstanceNormalization", vec![y, ones, zeros], vec![float("epsilon", o.args.float("eps")?)]);
    let sizes = o.sizes(&shape)?;
    let mut per_channel = vec![1i64; shape.len().saturating_sub(1)];
    if let Some(first) = per_channel.first_mut() {
        *first = -1;
    }
    let mut steps = vec![("Reshape", sizes)];
    for (name, op) in [("weight", "Mul"), ("bias", "Add")] {
        if o.args.given(name) {
            let (v, wide) = (o.input(name)?, o.ints(&per_channel));
            let v = o.push("Reshape", vec![v, wide], vec![]);
            steps.push((op, v));
        }
    }
    let last = steps.len() - 1;
    for (i, (op, v)) in steps.into_iter().enumerate() {
        if i == last {
            return o.done(op, vec![y, v], vec![]);
        }
        y = o.push(op, vec![y, v], vec![]);
    }
    Ok(())
}
