//! Tensors made from nothing, and changes of element type.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{Array1, ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.arange.start_step", arange),
    ("aten.full.default", |c| full(c, &c.sizes("size")?, "fill_value")),
    ("aten.full_like.default", |c| full(c, c.array("self")?.shape(), "fill_value")),
    ("aten.scalar_tensor.default", |c| full(c, &[], "s")),
    ("aten.empty.memory_format", |c| zeros(c, &c.sizes("size")?)),
    ("aten.empty_strided.default", |c| zeros(c, &c.sizes("size")?)),
    ("aten.empty_permuted.default", |c| zeros(c, &c.sizes("size")?)),
    ("aten.copy.default", |c| {
        let shape = c.array("self")?.shape().to_vec();
        spread(c, &c.array("src")?.cast(c.dtype()), &shape)
    }),
    ("aten._to_copy.default", |c| Ok(c.array("self")?.cast(c.dtype()).into())),
];

fn full(c: &Ctx<'_>, shape: &[usize], value: &str) -> Result<Value> {
    let value = c.array(value)?;
    if value.shape().iter().any(|n| *n != 1) {
        return Err(c.err(format!("a value of shape {:?}, expected one number", value.shape())));
    }
    spread(c, &value.cast(c.dtype()), shape)
}

/// Zeros of the result's type.
pub fn zeros(c: &Ctx<'_>, shape: &[usize]) -> Result<Value> {
    spread(c, &Array::from_f64(c.dtype(), ArrayD::zeros(vec![])), shape)
}

/// An array broadcast to this shape.
pub fn spread(c: &Ctx<'_>, x: &Array, shape: &[usize]) -> Result<Value> {
    bounded(c, shape)?;
    fn wide<T: Clone>(c: &Ctx<'_>, a: &ArrayD<T>, shape: &[usize]) -> Result<ArrayD<T>> {
        let view = a.broadcast(IxDyn(shape)).map(|v| v.to_owned());
        view.ok_or_else(|| c.err(format!("{:?} to {shape:?}", a.shape())))
    }
    Ok(x.moved(|a| wide(c, a, shape), |a| wide(c, a, shape))?.into())
}

fn arange(c: &Ctx<'_>) -> Result<Value> {
    if let (Value::Int(start), Value::Int(end), Value::Int(step)) = (c.arg("start")?, c.arg("end")?, c.arg("step")?) {
        let (span, by) = (i128::from(*end) - i128::from(*start), i128::from(*step));
        let count = match by {
            0 => -1,
            _ => (span * by.signum() + by.abs() - 1).div_euclid(by.abs()),
        };
        let at = |i: usize| start.wrapping_add(step.wrapping_mul(i as i64));
        let data: Array1<i64> = (0..length(c, count)?).map(at).collect();
        return Ok(Array::int(DType::I64, data.into_dyn()).cast(c.dtype()).into());
    }
    let [start, end, step] = [c.float("start")?, c.float("end")?, c.float("step")?];
    let count = ((end - start) / step).ceil();
    let count = length(c, if count.is_finite() { count as i128 } else { -1 })?;
    // An integer type takes the whole parts of start and step.
    let whole = |v: f64| if c.dtype().is_float() { v } else { v.trunc() };
    let data: Array1<f64> = (0..count).map(|i| whole(start) + i as f64 * whole(step)).collect();
    Ok(Array::from_f64(c.dtype(), data.into_dyn()).into())
}

fn length(c: &Ctx<'_>, count: i128) -> Result<usize> {
    let n = usize::try_from(count).map_err(|_| c.err("a range that its step does not go through"))?;
    bounded(c, &[n])
}
