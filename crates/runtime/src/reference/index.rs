//! Elements picked and put by index, and what orders or sums along one dimension.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::{bounded, broadcast, flat, pick, places, put, steps};
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::ArrayD;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.index.Tensor", index),
    ("aten.index_select.default", index_select),
    ("aten.gather.default", gather),
    ("aten.embedding.default", embedding),
    ("aten.scatter.src", scatter),
    ("aten.slice_scatter.default", slice_scatter),
    ("aten.select_scatter.default", select_scatter),
];

/// An index into `n` places.
fn within(c: &Ctx<'_>, i: i64, n: usize) -> Result<usize> {
    usize::try_from(i).ok().filter(|i| *i < n).ok_or_else(|| c.err(format!("index {i} of {n}")))
}

/// An index into `n` places, counted from the end if negative.
pub fn wrapped(c: &Ctx<'_>, i: i64, n: usize) -> Result<usize> {
    within(c, if i < 0 { i.saturating_add(n as i64) } else { i }, n)
}

/// An index tensor, in row-major order.
fn index_of(c: &Ctx<'_>, name: &str) -> Result<(Vec<usize>, Vec<i64>)> {
    let a = c.array(name)?;
    match &a.data {
        Data::Int(v) => Ok((a.shape().to_vec(), v.iter().copied().collect())),
        Data::Float(_) => Err(c.err(format!("argument '{name}': expected integers, found {}", a.dtype))),
    }
}

/// Dimensions and, for each, where its index tensor points.
type Picks = Vec<(usize, Vec<usize>)>;

/// The common shape of the index tensors, and where they point.
fn indices_of(c: &Ctx<'_>, shape: &[usize]) -> Result<(Vec<usize>, Picks)> {
    let Value::List(items) = c.arg("indices")? else { return Err(c.err("expected a list of indices")) };
    let mut given: Vec<(usize, ArrayD<i64>)> = vec![];
    for (axis, item) in items.iter().enumerate() {
        match item {
            Value::None => {}
            Value::Array(Array { dtype, data: Data::Int(a) }) if !matches!(dtype, DType::Bool | DType::U8) => {
                given.push((axis, a.clone()));
            }
            _ => return Err(c.err("expected integer indices")),
        }
    }
    let shapes: Vec<&[usize]> = given.iter().map(|(_, a)| a.shape()).collect();
    let common = broadcast(c, &shapes)?;
    let mut out = vec![];
    for (axis, a) in &given {
        let n = *shape.get(*axis).ok_or_else(|| c.err(format!("{} indices for {shape:?}", items.len())))?;
        let wide = a.broadcast(common.clone()).ok_or_else(|| c.err("indices do not broadcast"))?;
        out.push((*axis, wide.iter().map(|i| wrapped(c, *i, n)).collect::<Result<_>>()?));
    }
    Ok((common, out))
}

fn index(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (common, given) = indices_of(c, x.shape())?;
    let rest: Vec<usize> = (0..x.shape().len()).filter(|i| given.iter().all(|(axis, _)| axis != i)).collect();
    // Neighbouring index tensors put their dimensions in their own place, others put them first.
    let together = given.windows(2).all(|w| w[0].0 + 1 == w[1].0);
    let lead = given.first().map_or(0, |(axis, _)| if together { *axis } else { 0 });
    let whole = |part: &[usize]| part.iter().map(|i| x.shape()[*i]).collect::<Vec<_>>();
    let shape = [whole(&rest[..lead]), common.clone(), whole(&rest[lead..])].concat();
    let (from, within) = (steps(x.shape()), steps(&common));
    let y = pick(c, &x, &shape, |at| {
        let place = flat(&at[lead..lead + common.len()], &within);
        let picked: usize = given.iter().map(|(axis, v)| v[place] * from[*axis]).sum();
        let kept = at[..lead].iter().chain(&at[lead + common.len()..]).zip(&rest).map(|(i, axis)| i * from[*axis]);
        Ok(picked + kept.sum::<usize>())
    })?;
    Ok(y.into())
}

fn index_select(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (index_shape, index) = index_of(c, "index")?;
    let axis = c.axis(c.int("dim")?, x.shape().len())?;
    if index_shape.len() > 1 {
        return Err(c.err(format!("an index of shape {index_shape:?}")));
    }
    let mut shape = x.shape().to_vec();
    let n = shape.get(axis).copied().unwrap_or(1);
    let index = index.into_iter().map(|i| within(c, i, n)).collect::<Result<Vec<_>>>()?;
    if let Some(size) = shape.get_mut(axis) {
        *size = index.len();
    }
    let from = steps(x.shape());
    Ok(pick(c, &x, &shape, |at| Ok(moved_to(at, axis, &from, |i| index[i])))?.into())
}

/// The place of an index that has another number on one dimension.
fn moved_to(at: &[usize], axis: usize, from: &[usize], to: impl Fn(usize) -> usize) -> usize {
    at.iter().zip(from).enumerate().map(|(d, (i, s))| s * if d == axis { to(*i) } else { *i }).sum()
}

/// Places in `x` of an index tensor's elements along the dimension `dim`.
fn along_index(c: &Ctx<'_>, x: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let (shape, index) = index_of(c, "index")?;
    let axis = c.axis(c.int("dim")?, x.len())?;
    let small = x.len() <= 1 && shape.len() <= 1;
    let inside = shape.len() == x.len() && (0..x.len()).all(|d| d == axis || shape[d] <= x[d]);
    if !(index.is_empty() || small || inside) {
        return Err(c.err(format!("an index of shape {shape:?} along dimension {axis} of {x:?}")));
    }
    let (from, own, n) = (steps(x), steps(&shape), x.get(axis).copied().unwrap_or(1));
    let at = places(c, &shape, |at| {
        let i = within(c, index[flat(at, &own)], n)?;
        Ok(if at.is_empty() { i } else { moved_to(at, axis, &from, |_| i) })
    })?;
    Ok((shape, at))
}

fn gather(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (shape, at) = along_index(c, x.shape())?;
    let own = steps(&shape);
    Ok(pick(c, &x, &shape, |i| Ok(at[flat(i, &own)]))?.into())
}

fn scatter(c: &Ctx<'_>) -> Result<Value> {
    let (x, src) = (c.array("self")?, c.array("src")?);
    let (shape, at) = along_index(c, x.shape())?;
    let fits = shape.len() == src.shape().len() && shape.iter().zip(src.shape()).all(|(a, b)| a <= b);
    if !fits && !at.is_empty() {
        return Err(c.err(format!("an index of shape {shape:?} into a source of shape {:?}", src.shape())));
    }
    let from = steps(src.shape());
    let src = pick(c, &src, &shape, |i| Ok(flat(i, &from)))?;
    Ok(put(c, &x, &at, &src)?.into())
}

fn embedding(c: &Ctx<'_>) -> Result<Value> {
    let (w, (shape, index)) = (c.array("weight")?, index_of(c, "indices")?);
    let &[rows, width] = w.shape() else { return Err(c.err(format!("weight of shape {:?}", w.shape()))) };
    let index = index.into_iter().map(|i| within(c, i, rows)).collect::<Result<Vec<_>>>()?;
    let own = steps(&shape);
    let y = pick(c, &w, &[shape.clone(), vec![width]].concat(), |at| {
        let (row, column) = at.split_at(shape.len());
        Ok(index[flat(row, &own)] * width + column[0])
    })?;
    Ok(y.into())
}

/// Puts `src` into `self` where `to` moves the numbers of one dimension.
fn put_along(c: &Ctx<'_>, shape: &[usize], axis: usize, to: impl Fn(usize) -> usize) -> Result<Value> {
    let (x, src) = (c.array("self")?, c.array("src")?);
    if src.shape().iter().product::<usize>() != bounded(c, shape)? {
        return Err(c.err(format!("a source of shape {:?}, expected {shape:?}", src.shape())));
    }
    let from = steps(x.shape());
    let at = places(c, shape, |at| Ok(moved_to(at, axis, &from, &to)))?;
    Ok(put(c, &x, &at, &src)?.into())
}

fn select_scatter(c: &Ctx<'_>) -> Result<Value> {
    let mut shape = c.array("self")?.shape().to_vec();
    let axis = c.axis(c.int("dim")?, shape.len())?;
    let n = shape.get(axis).copied().ok_or_else(|| c.err("a tensor without dimensions"))?;
    let i = wrapped(c, c.int("index")?, n)?;
    shape[axis] = 1;
    put_along(c, &shape, axis, |_| i)
}

fn slice_scatter(c: &Ctx<'_>) -> Result<Value> {
    let mut shape = c.array("self")?.shape().to_vec();
    let (axis, start, end, step) = super::view::range(c, &shape)?;
    shape[axis] = (end - start).div_ceil(step);
    put_along(c, &shape, axis, |i| start + i * step)
}
