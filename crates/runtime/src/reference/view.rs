//! The same elements under another shape or order.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, IxDyn, Slice};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.view.default", |c| reshape(c, "size")),
    ("aten.reshape.default", |c| reshape(c, "shape")),
    ("aten._unsafe_view.default", |c| reshape(c, "size")),
    ("aten.permute.default", permute),
    ("aten.unsqueeze.default", |c| {
        let x = c.array("self")?;
        let axis = Axis(c.axis(c.int("dim")?, x.shape().len() + 1)?);
        Ok(Value::Array(x.moved(|a| Ok(a.clone().insert_axis(axis)), |a| Ok(a.clone().insert_axis(axis)))?))
    }),
    ("aten.squeeze.dims", squeeze),
    ("aten.expand.default", expand),
    ("aten.slice.Tensor", slice),
    ("aten.clone.default", |c| Ok(Value::Array(c.array("self")?))),
    ("getitem", |c| match c.arg("self")? {
        Value::List(l) => {
            let i = c.int("index")?;
            usize::try_from(i)
                .ok()
                .and_then(|i| l.get(i))
                .cloned()
                .ok_or_else(|| c.err(format!("result {i} of {}", l.len())))
        }
        _ => Err(c.err("expected several results")),
    }),
    ("aten.sym_size.int", |c| {
        let x = c.array("self")?;
        let axis = c.axis(c.int("dim")?, x.shape().len())?;
        Ok(Value::Int(x.shape()[axis] as i64))
    }),
];

/// The array in this shape; one size may be -1.
fn shaped(c: &Ctx<'_>, x: &Array, size: &[i64]) -> Result<Array> {
    let total: usize = x.shape().iter().product();
    let known: i64 = size.iter().filter(|v| **v >= 0).product();
    let fill = if known > 0 { total as i64 / known } else { 0 };
    let shape: Vec<usize> = size.iter().map(|v| if *v < 0 { fill } else { *v } as usize).collect();
    if shape.iter().product::<usize>() != total {
        return Err(c.err(format!("{:?} as {size:?}", x.shape())));
    }
    let fail = |e: ndarray::ShapeError| c.err(e.to_string());
    x.moved(
        |a| a.as_standard_layout().into_owned().into_shape_with_order(IxDyn(&shape)).map_err(fail),
        |a| a.as_standard_layout().into_owned().into_shape_with_order(IxDyn(&shape)).map_err(fail),
    )
}

fn reshape(c: &Ctx<'_>, name: &str) -> Result<Value> {
    Ok(Value::Array(shaped(c, &c.array("self")?, &c.ints(name)?)?))
}

fn permute(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let order = c.ints("dims")?.iter().map(|d| c.axis(*d, x.shape().len())).collect::<Result<Vec<_>>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..x.shape().len()) {
        return Err(c.err(format!("{order:?} is no order of {} dimensions", x.shape().len())));
    }
    let order = IxDyn(&order);
    Ok(Value::Array(x.moved(
        |a| Ok(a.clone().permuted_axes(order.clone()).as_standard_layout().into_owned()),
        |a| Ok(a.clone().permuted_axes(order.clone()).as_standard_layout().into_owned()),
    )?))
}

fn squeeze(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let axes = c.ints("dim")?.iter().map(|d| c.axis(*d, x.shape().len())).collect::<Result<Vec<_>>>()?;
    let kept = x.shape().iter().enumerate().filter(|(i, n)| !(axes.contains(i) && **n == 1));
    let size: Vec<i64> = kept.map(|(_, n)| *n as i64).collect();
    Ok(Value::Array(shaped(c, &x, &size)?))
}

fn expand(c: &Ctx<'_>) -> Result<Value> {
    let (x, size) = (c.array("self")?, c.ints("size")?);
    let lead = size.len().checked_sub(x.shape().len()).ok_or_else(|| c.err(format!("{:?} to {size:?}", x.shape())))?;
    let shape: Vec<usize> = size
        .iter()
        .enumerate()
        .map(|(i, v)| if *v < 0 && i >= lead { x.shape()[i - lead] } else { *v as usize })
        .collect();
    let wrong = || c.err(format!("{:?} to {size:?}", x.shape()));
    Ok(Value::Array(x.moved(
        |a| a.broadcast(shape.clone()).map(|v| v.to_owned()).ok_or_else(wrong),
        |a| a.broadcast(shape.clone()).map(|v| v.to_owned()).ok_or_else(wrong),
    )?))
}

fn slice(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    let n = *x.shape().get(axis).ok_or_else(|| c.err("a tensor without dimensions"))? as i64;
    let at = |v: i64| (if v < 0 { v.saturating_add(n) } else { v }).clamp(0, n);
    let start = at(c.opt_int("start")?.unwrap_or(0));
    let end = at(c.opt_int("end")?.unwrap_or(n)).max(start);
    let step = c.int("step")?;
    if step < 1 {
        return Err(c.err(format!("step {step}")));
    }
    let range = Slice::new(start as isize, Some(end as isize), step as isize);
    fn cut<T: Clone>(a: &ArrayD<T>, axis: usize, range: Slice) -> ArrayD<T> {
        a.slice_axis(Axis(axis), range).to_owned()
    }
    Ok(Value::Array(x.moved(|a| Ok(cut(a, axis, range)), |a| Ok(cut(a, axis, range)))?))
}
