//! Reductions and normalizations, summed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Axis, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.mean.dim", |c| fold(c, |lane| lane.iter().sum::<f64>() / lane.len() as f64)),
    ("aten.sum.dim_IntList", sum),
    ("aten.amax.default", |c| fold(c, |lane| lane.iter().copied().fold(f64::NEG_INFINITY, f64::max))),
    ("aten.amin.default", |c| fold(c, |lane| lane.iter().copied().fold(f64::INFINITY, f64::min))),
    ("aten._softmax.default", |c| softmax(c, false)),
    ("aten._log_softmax.default", |c| softmax(c, true)),
    ("aten.layer_norm.default", layer_norm),
    ("aten._native_batch_norm_legit_no_training.default", |c| {
        let empty = Value::Array(Array::float(DType::F32, ArrayD::zeros(IxDyn(&[0]))));
        Ok(Value::List(vec![Value::Array(batch_norm(c)?), empty.clone(), empty]))
    }),
    ("aten.batch_norm.default", |c| {
        if c.bool("training")? {
            return Err(c.err("batch norm in training mode; export the model after .eval()"));
        }
        Ok(Value::Array(batch_norm(c)?))
    }),
];

fn axes(c: &Ctx<'_>, rank: usize) -> Result<Vec<usize>> {
    let mut axes = match c.opt_ints("dim")? {
        None => (0..rank).collect(),
        Some(d) if d.is_empty() => (0..rank).collect(),
        Some(d) => d.iter().map(|a| c.axis(*a, rank)).collect::<Result<Vec<_>>>()?,
    };
    axes.retain(|a| *a < rank);
    axes.sort_unstable();
    Ok(axes)
}

/// Folds the named dimensions, moved last and flattened, to one element.
fn fold(c: &Ctx<'_>, f: impl Fn(&[f64]) -> f64) -> Result<Value> {
    let x = c.array("self")?.to_f64();
    let axes = axes(c, x.ndim())?;
    let keep: Vec<usize> = (0..x.ndim()).filter(|i| !axes.contains(i)).collect();
    let order: Vec<usize> = keep.iter().chain(&axes).copied().collect();
    let kept: Vec<usize> = keep.iter().map(|i| x.shape()[*i]).collect();
    let len = axes.iter().map(|i| x.shape()[*i]).product::<usize>();
    let moved: Vec<f64> = x.view().permuted_axes(IxDyn(&order)).iter().copied().collect();
    let count = kept.iter().product::<usize>();
    let data: Vec<f64> = (0..count).map(|i| f(&moved[i * len..(i + 1) * len])).collect();
    let shape: Vec<usize> = if c.bool("keepdim")? {
        (0..x.ndim()).map(|i| if axes.contains(&i) { 1 } else { x.shape()[i] }).collect()
    } else {
        kept
    };
    let y = ArrayD::from_shape_vec(IxDyn(&shape), data).map_err(|e| c.err(e.to_string()))?;
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
}

fn sum(c: &Ctx<'_>) -> Result<Value> {
    if let Data::Int(x) = c.array("self")?.data {
        let (axes, keep) = (axes(c, x.ndim())?, c.bool("keepdim")?);
        let mut y = x;
        for a in axes.into_iter().rev() {
            y = y.sum_axis(Axis(a));
            if keep {
                y = y.insert_axis(Axis(a));
            }
        }
        return Ok(Value::Array(Array::int(DType::I64, y).cast(c.dtype())));
    }
    fold(c, |lane| lane.iter().sum())
}

fn softmax(c: &Ctx<'_>, log: bool) -> Result<Value> {
    let mut x = c.array("self")?.to_f64();
    let axis = c.axis(c.int("dim")?, x.ndim())?;
    if x.ndim() == 0 {
        return Ok(Value::Array(Array::float(c.dtype(), x.mapv(|_| if log { 0.0 } else { 1.0 }))));
    }
    for mut lane in x.lanes_mut(Axis(axis)) {
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = lane.iter().map(|v| (v - top).exp()).sum();
        lane.mapv_inplace(|v| if log { v - top - total.ln() } else { (v - top).exp() / total });
    }
    Ok(Value::Array(Array::float(c.dtype(), x)))
}

fn layer_norm(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("input")?.to_f64();
    let inner: Vec<usize> = c.ints("normalized_shape")?.iter().map(|v| *v as usize).collect();
    let len: usize = inner.iter().product();
    if !x.shape().ends_with(&inner) || len == 0 {
        return Err(c.err(format!("normalized_shape {inner:?} of {:?}", x.shape())));
    }
    let flat =
        |name: &str| -> Result<Option<Vec<f64>>> { Ok(c.opt_array(name)?.map(|a| a.to_f64().into_iter().collect())) };
    let (w, b, eps) = (flat("weight")?, flat("bias")?, c.float("eps")?);
    let mut data: Vec<f64> = x.iter().copied().collect();
    for row in data.chunks_mut(len) {
        let mean = row.iter().sum::<f64>() / len as f64;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
        for (i, v) in row.iter_mut().enumerate() {
            *v = (*v - mean) / (var + eps).sqrt() * w.as_ref().map_or(1.0, |w| w[i]) + b.as_ref().map_or(0.0, |b| b[i]);
        }
    }
    let y = ArrayD::from_shape_vec(x.raw_dim(), data).map_err(|e| c.err(e.to_string()))?;
    Ok(Value::Array(Array::float(c.dtype(), y)))
}

fn batch_norm(c: &Ctx<'_>) -> Result<Array> {
    let mut x = c.array("input")?.to_f64();
    let get = |name: &str, fill: f64| -> Result<Vec<f64>> {
        let n = x.shape().get(1).copied().unwrap_or(0);
        let v = c.opt_array(name)?.map_or(vec![fill; n], |a| a.to_f64().into_iter().collect());
        if v.len() == n { Ok(v) } else { Err(c.err(format!("{name} of {} for {n} channels", v.len()))) }
    };
    let (w, b) = (get("weight", 1.0)?, get("bias", 0.0)?);
    let (mean, var, eps) = (get("running_mean", 0.0)?, get("running_var", 1.0)?, c.float("eps")?);
    for (i, mut lane) in x.axis_iter_mut(Axis(1)).enumerate() {
        let k = w[i] / (var[i] + eps).sqrt();
        lane.mapv_inplace(|v| (v - mean[i]) * k + b[i]);
    }
    Ok(Array::float(c.dtype(), x))
}
