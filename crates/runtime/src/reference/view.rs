//! The same elements under another shape or order.

use super::EvalFn;
use super::create::spread;
use super::ctx::Ctx;
use super::index::wrapped;
use super::places::{bounded, flat, pick, places, steps};
use super::value::{Array, Value};
use crate::error::Result;
use cleave_ir::Tensor;
use ndarray::{ArrayD, Axis, IxDyn, Slice};
use std::sync::Arc;

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
    ("aten.alias.default", |c| Ok(c.array("self")?.into())),
    ("aten.detach.default", |c| Ok(c.array("self")?.into())),
    ("aten.select.int", select),
    ("aten.as_strided.default", as_strided),
    ("aten.as_strided_copy.default", as_strided),
    ("aten.resize.default", |c| {
        let (x, size) = (c.array("self")?, c.sizes("size")?);
        let count: usize = x.shape().iter().product();
        let own = steps(&size);
        // Elements that are too many are left out; where there are too few, anything stands: zeros.
        let more = bounded(c, &size)?.saturating_sub(count);
        let Value::Array(rest) = super::create::zeros(c, &[more])? else { return Err(c.err("no tensor")) };
        let all = x.moved(
            |a| Ok(a.iter().copied().chain(rest.to_f64()).collect::<ndarray::Array1<f64>>().into_dyn()),
            |a| Ok(a.iter().copied().chain(rest.to_i64()).collect::<ndarray::Array1<i64>>().into_dyn()),
        )?;
        Ok(pick(c, &all, &size, |at| Ok(flat(at, &own)))?.into())
    }),
    ("aten.view.dtype", view_dtype),
];

/// The bits of the elements as elements of another type.
fn view_dtype(c: &Ctx<'_>) -> Result<Value> {
    let t = c.array("self")?.to_tensor()?;
    let dtype = c.dtype();
    let mut shape = t.shape().to_vec();
    let wrong = || c.err(format!("{} {:?} as {dtype}", t.dtype(), t.shape()));
    if let Some(last) = shape.last_mut() {
        let bytes = *last * t.dtype().size();
        *last = if bytes.is_multiple_of(dtype.size()) { bytes / dtype.size() } else { return Err(wrong()) };
    } else if dtype.size() != t.dtype().size() {
        return Err(wrong());
    }
    let bits = Tensor::from_bytes(dtype, shape, Arc::new(t.to_bytes().into_owned()))?;
    Ok(Array::from_tensor(&bits).into())
}

/// The array in this shape; one size may be -1.
pub fn shaped(c: &Ctx<'_>, x: &Array, size: &[i64]) -> Result<Array> {
    let total: usize = x.shape().iter().product();
    let wrong = || c.err(format!("{:?} as {size:?}", x.shape()));
    let known = size.iter().filter(|v| **v >= 0).try_fold(1i64, |a, b| a.checked_mul(*b)).ok_or_else(wrong)?;
    let fill = if known > 0 { total as i64 / known } else { 0 };
    let shape: Vec<usize> = size.iter().map(|v| if *v < 0 { fill } else { *v } as usize).collect();
    if bounded(c, &shape)? != total {
        return Err(wrong());
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
    let wrong = || c.err(format!("{:?} to {size:?}", x.shape()));
    let lead = size.len().checked_sub(x.shape().len()).ok_or_else(wrong)?;
    let to = |(i, v): (usize, &i64)| match (*v, i.checked_sub(lead)) {
        (-1, Some(j)) => Ok(x.shape()[j]),
        (v, _) => usize::try_from(v).map_err(|_| wrong()),
    };
    spread(c, &x, &size.iter().enumerate().map(to).collect::<Result<Vec<_>>>()?)
}

/// Dimension, start, end and step of a slice; the end is not before the start.
pub fn range(c: &Ctx<'_>, shape: &[usize]) -> Result<(usize, usize, usize, usize)> {
    let axis = c.axis(c.int("dim")?, shape.len())?;
    let n = *shape.get(axis).ok_or_else(|| c.err("a tensor without dimensions"))? as i64;
    let at = |v: i64| (if v < 0 { v.saturating_add(n) } else { v }).clamp(0, n);
    let start = at(c.opt_int("start")?.unwrap_or(0));
    let end = at(c.opt_int("end")?.unwrap_or(n)).max(start);
    let step = c.int("step")?;
    if step < 1 {
        return Err(c.err(format!("step {step}")));
    }
    Ok((axis, start as usize, end as usize, step as usize))
}

fn slice(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (axis, start, end, step) = range(c, x.shape())?;
    let range = Slice::new(start as isize, Some(end as isize), step as isize);
    fn cut<T: Clone>(a: &ArrayD<T>, axis: usize, range: Slice) -> ArrayD<T> {
        a.slice_axis(Axis(axis), range).to_owned()
    }
    Ok(x.moved(|a| Ok(cut(a, axis, range)), |a| Ok(cut(a, axis, range)))?.into())
}

fn select(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    let n = *x.shape().get(axis).ok_or_else(|| c.err("a tensor without dimensions"))?;
    let i = wrapped(c, c.int("index")?, n)?;
    let axis = Axis(axis);
    Ok(x.moved(|a| Ok(a.index_axis(axis, i).to_owned()), |a| Ok(a.index_axis(axis, i).to_owned()))?.into())
}

/// Sizes that the call states, and for each element of that shape its place in the input, by its place in the
/// storage: there the input may lie in any order, but without gaps.
pub fn stored(c: &Ctx<'_>, x: &Array) -> Result<(Vec<usize>, Vec<usize>)> {
    let (size, stride) = (c.sizes("size")?, c.sizes("stride")?);
    let offset = c.opt_int("storage_offset")?.unwrap_or(0);
    let offset = usize::try_from(offset).map_err(|_| c.err(format!("offset {offset}")))?;
    let count: usize = x.shape().iter().product();
    let strides = c.strides.clone().filter(|s| s.len() == x.shape().len()).unwrap_or_else(|| steps(x.shape()));
    let mut stored = vec![None; count];
    for (i, place) in places(c, x.shape(), |at| Ok(flat(at, &strides)))?.into_iter().enumerate() {
        match stored.get_mut(place) {
            Some(s @ None) => *s = Some(i),
            _ => return Err(c.err(format!("strides {strides:?} of its input {:?} leave gaps or overlap", x.shape()))),
        }
    }
    let outside = || c.err(format!("an element outside of the {count} stored"));
    let at = places(c, &size, |at| {
        let place = flat(at, &stride).saturating_add(offset);
        stored.get(place).copied().flatten().ok_or_else(outside)
    })?;
    Ok((size, at))
}

fn as_strided(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (size, at) = stored(c, &x)?;
    let own = steps(&size);
    Ok(pick(c, &x, &size, |i| Ok(at[flat(i, &own)]))?.into())
}
