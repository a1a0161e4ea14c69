//! Losses.

use super::host::Known;
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Dim, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("NegativeLogLikelihoodLoss", |c| {
        let x = c.value(0)?;
        c.one(nll(c, x)?)
    }),
    ("SoftmaxCrossEntropyLoss", |c| {
        let logs = c.value(0)?.op("aten.log_softmax.int", vec![1i64.into()]);
        Ok(vec![Known::Value(nll(c, logs)?), Known::Value(logs)])
    }),
];

/// The mean, sum or list of `-w[t] · x[n, t, …]` over all places whose class is not to be ignored; torch's op knows
/// inputs of two and four dimensions.
fn nll<'b>(c: &Ctx<'b, '_>, x: Value<'b>) -> Step<Value<'b>> {
    let target = c.value(1)?.to(DType::I64);
    let weight = c.opt_value(2);
    let ignore = c.int("ignore_index", -100)?;
    let how = match c.str("reduction", "mean")? {
        "none" => 0i64,
        "mean" => 1,
        "sum" => 2,
        other => return Err(format!("attribute 'reduction': found '{other}'")),
    };
    let op = |x: Value<'b>, t: Value<'b>| {
        let args = vec![x.into(), t.into(), weight.into(), Arg::Int(how), Arg::Int(ignore)];
        c.call("aten.nll_loss_nd", args)
    };
    let shape = x.shape();
    if matches!(shape.len(), 1 | 2 | 4) {
        return Ok(op(x, target));
    }
    if shape.len() < 2 {
        return Err(format!("input of rank {}, expected at least 2", shape.len()));
    }
    let (n, places): (Dim, Dim) = (shape[0].clone(), shape[2..].iter().cloned().product());
    let flat = x.op("aten.reshape", vec![vec![n.clone(), shape[1].clone(), 1.into(), places.clone()].into()]);
    let classes = target.op("aten.reshape", vec![vec![n.clone(), 1.into(), places].into()]);
    let y = op(flat, classes);
    if how != 0 {
        return Ok(y);
    }
    let sizes = [vec![n], shape[2..].to_vec()].concat();
    Ok(y.op("aten.reshape", vec![sizes.into()]))
}
