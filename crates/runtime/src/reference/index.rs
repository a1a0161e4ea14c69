//! Elements picked by index, and what orders or sums along one dimension.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::{broadcast, flat, pick, places, steps};
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

/// The common shape of the index tensors, and where they point. A mask stands for one index tensor for each of its
/// dimensions.
fn indices_of(c: &Ctx<'_>, shape: &[usize]) -> Result<(Vec<usize>, Picks)> {
    let Value::List(items) = c.arg("indices")? else { return Err(c.err("expected a list of indices")) };
    let mut given: Vec<(usize, ArrayD<i64>)> = vec![];
    let mut axis = 0;
    for item in items {
        match item {
            Value::None => axis += 1,
            Value::Array(mask @ Array { dtype: DType::Bool | DType::U8, .. }) => {
                if shape.get(axis..axis + mask.shape().len()) != Some(mask.shape()) {
                    return Err(c.err(format!("a mask of shape {:?} at dimension {axis} of {shape:?}", mask.shape())));
                }
                let places = super::sift::nonzero(mask);
                for d in 0..mask.shape().len() {
                    let along: Vec<i64> = places.iter().map(|p| p[d] as i64).collect();
                    given.push((
                        axis,
                        ArrayD::from_shape_vec(vec![along.len()], along).map_err(|e| c.err(e.to_string()))?,
                    ));
                    axis += 1;
                }
            }
            Value::Array(Array { data: Data::Int(a), .. }) => {
                given.push((axis, a.clone()));
                axis += 1;
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

/// The shape of what the argument `indices` picks of this shape, and the place of each element.
pub fn pointed(c: &Ctx<'_>, x: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let (common, given) = indices_of(c, x)?;
    let rest: Vec<usize> = (0..x.len()).filter(|i| given.iter().all(|(axis, _)| axis != i)).collect();
    // Neighbouring index tensors put their dimensions in their own place, others put them first.
    let together = given.windows(2).all(|w| w[0].0 + 1 == w[1].0);
    let lead = given.first().map_or(0, |(axis, _)| if together { *axis } else { 0 });
    let whole = |part: &[usize]| part.iter().map(|i| x[*i]).collect::<Vec<_>>();
    let shape = [whole(&rest[..lead]), common.clone(), whole(&rest[lead..])].concat();
    let (from, within) = (steps(x), steps(&common));
    let at = places(c, &shape, |at| {
        let place = flat(&at[lead..lead + common.len()], &within);
        let picked: usize = given.iter().map(|(axis, v)| v[place] * from[*axis]).sum();
        let kept = at[..lead].iter().chain(&at[lead + common.len()..]).zip(&rest).map(|(i, axis)| i * from[*axis]);
        Ok(picked + kept.sum::<usize>())
    })?;
    Ok((shape, at))
}

fn index(c: &Ctx<'_>) -> Result<Value> {
    let x = c.array("self")?;
    let (shape, at) = pointed(c, x.shape())?;
    let own = steps(&shape);
    Ok(pick(c, &x, &shape, |i| Ok(at[flat(i, &own)]))?.into())
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
pub fn moved_to(at: &[usize], axis: usize, from: &[usize], to: impl Fn(usize) -> usize) -> usize {
    at.iter().zip(from).enumerate().map(|(d, (i, s))| s * if d == axis { to(*i) } else { *i }).sum()
}

/// Places in `x` of an index tensor's elements along the dimension `dim`.
pub fn along_index(c: &Ctx<'_>, x: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
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
