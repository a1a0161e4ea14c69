//! Normalizations and softmax, summed in f64.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten._softmax.default", |c| softmax(c, false)),
    ("aten._log_softmax.default", |c| softmax(c, true)),
    ("aten.layer_norm.default", |c| Ok(layer_norm(c)?.swap_remove(0))),
    ("aten.native_layer_norm.default", |c| Ok(Value::List(layer_norm(c)?))),
    ("aten.native_group_norm.default", group_norm),
    ("aten._native_batch_norm_legit_no_training.default", |c| {
        let empty = Value::Array(Array::float(c.array("running_mean")?.dtype, ArrayD::zeros(IxDyn(&[0]))));
        Ok(Value::List(vec![batch_norm(c)?.into(), empty.clone(), empty]))
    }),
];

fn softmax(c: &Ctx<'_>, log: bool) -> Result<Value> {
    let mut x = c.array("self")?.to_f64();
    let axis = c.axis(c.int("dim")?, x.ndim())?;
    if x.ndim() == 0 {
        return Ok(Array::float(c.dtype(), x.mapv(|_| if log { 0.0 } else { 1.0 })).into());
    }
    for mut lane in x.lanes_mut(Axis(axis)) {
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = lane.iter().map(|v| (v - top).exp()).sum();
        lane.mapv_inplace(|v| if log { v - top - total.ln() } else { (v - top).exp() / total });
    }
    Ok(Array::float(c.dtype(), x).into())
}

/// Weight or bias as a list of `n`, if it was given.
fn affine(c: &Ctx<'_>, name: &str, n: usize) -> Result<Option<Vec<f64>>> {
    let Some(a) = c.opt_array(name)? else { return Ok(None) };
    let v: Vec<f64> = a.to_f64().into_iter().collect();
    if v.len() == n { Ok(Some(v)) } else { Err(c.err(format!("{name} of {} elements, expected {n}", v.len()))) }
}

/// Input, means and reciprocal standard deviations.
struct Standard {
    data: Vec<f64>,
    means: Vec<f64>,
    rstds: Vec<f64>,
}

/// Rows of `len` elements made to have mean 0 and variance 1: `(x - mean) / sqrt(var + eps)`.
fn standardize(c: &Ctx<'_>, x: &ArrayD<f64>, len: usize) -> Result<Standard> {
    let eps = c.float("eps")?;
    let (mut data, mut means, mut rstds): (Vec<f64>, Vec<f64>, Vec<f64>) =
        (x.iter().copied().collect(), vec![], vec![]);
    for row in data.chunks_mut(len.max(1)) {
        let mean = row.iter().sum::<f64>() / len as f64;
        let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
        row.iter_mut().for_each(|v| *v = (*v - mean) / (var + eps).sqrt());
        means.push(mean);
        rstds.push(1.0 / (var + eps).sqrt());
    }
    Ok(Standard { data, means, rstds })
}

impl Standard {
    /// Each element times its weight plus its bias, both found by the element's place.
    fn scale(&mut self, w: Option<Vec<f64>>, b: Option<Vec<f64>>, of: impl Fn(usize) -> usize) {
        for (i, v) in self.data.iter_mut().enumerate() {
            *v = *v * w.as_ref().map_or(1.0, |w| w[of(i)]) + b.as_ref().map_or(0.0, |b| b[of(i)]);
        }
    }

    /// The three results, the first of the input's shape, the others of `stat`.
    fn results(self, c: &Ctx<'_>, shape: &[usize], stat: &[usize]) -> Result<Vec<Value>> {
        let array = |v: Vec<f64>, shape: &[usize]| -> Result<Value> {
            let a = ArrayD::from_shape_vec(IxDyn(shape), v).map_err(|e| c.err(e.to_string()))?;
            Ok(Array::float(c.dtype(), a).into())
        };
        Ok(vec![array(self.data, shape)?, array(self.means, stat)?, array(self.rstds, stat)?])
    }
}

fn layer_norm(c: &Ctx<'_>) -> Result<Vec<Value>> {
    let x = c.array("input")?.to_f64();
    let inner = c.sizes("normalized_shape")?;
    let len: usize = inner.iter().product();
    if !x.shape().ends_with(&inner) || len == 0 {
        return Err(c.err(format!("normalized_shape {inner:?} of {:?}", x.shape())));
    }
    let mut y = standardize(c, &x, len)?;
    y.scale(affine(c, "weight", len)?, affine(c, "bias", len)?, |i| i % len);
    let mut stat = x.shape().to_vec();
    stat[x.ndim() - inner.len()..].fill(1);
    y.results(c, x.shape(), &stat)
}

fn group_norm(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("input")?.to_f64();
    let whole = |name: &str| -> Result<usize> {
        let v = c.int(name)?;
        usize::try_from(v).map_err(|_| c.err(format!("argument '{name}': {v}")))
    };
    let (n, channels, space, groups) = (whole("N")?, whole("C")?, whole("HxW")?, whole("group")?);
    let fits = n.checked_mul(channels).and_then(|v| v.checked_mul(space)) == Some(x.len());
    if !fits || groups == 0 || channels % groups != 0 || x.is_empty() {
        return Err(c.err(format!("{:?} as {n} by {channels} by {space} in {groups} groups", x.shape())));
    }
    let mut y = standardize(c, &x, channels / groups * space)?;
    let (w, b) = (affine(c, "weight", channels)?, affine(c, "bias", channels)?);
    y.scale(w, b, |i| i / space % channels);
    Ok(Value::List(y.results(c, x.shape(), &[n, groups])?))
}

fn batch_norm(c: &Ctx<'_>) -> Result<Array> {
    let mut x = c.array("input")?.to_f64();
    let n = *x.shape().get(1).ok_or_else(|| c.err(format!("an input of shape {:?}", x.shape())))?;
    let get = |name: &str, fill: f64| -> Result<Vec<f64>> { Ok(affine(c, name, n)?.unwrap_or_else(|| vec![fill; n])) };
    let (w, b) = (get("weight", 1.0)?, get("bias", 0.0)?);
    let (mean, var) = (get("running_mean", 0.0)?, get("running_var", 1.0)?);
    let eps = c.float("eps")?;
    for (i, mut lane) in x.axis_iter_mut(Axis(1)).enumerate() {
        let k = w[i] / (var[i] + eps).sqrt();
        lane.mapv_inplace(|v| (v - mean[i]) * k + b[i]);
    }
    Ok(Array::float(c.dtype(), x))
}
