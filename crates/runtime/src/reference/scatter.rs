//! Elements put, added and combined where indices say.

use super::EvalFn;
use super::ctx::Ctx;
use super::index::{along_index, pointed, wrapped};
use super::places::{bounded, flat, pick, places, put, steps};
use super::value::{Array, Data, Value};
use super::view::stored;
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.scatter.src", |c| {
        let (x, at, src) = scattered(c)?;
        Ok(put(c, &x, &at, &src)?.into())
    }),
    ("aten.scatter_add.default", |c| {
        let (x, at, src) = scattered(c)?;
        Ok(combine(c, &x, &at, &src, "sum", true)?.into())
    }),
    ("aten.scatter_reduce.two", |c| {
        let (x, at, src) = scattered(c)?;
        let Value::Str(how) = c.arg("reduce")? else { return Err(c.err("expected the name of a reduction")) };
        Ok(combine(c, &x, &at, &src, how, c.bool("include_self")?)?.into())
    }),
    ("aten.index_put.default", index_put),
    ("aten.slice_scatter.default", slice_scatter),
    ("aten.select_scatter.default", select_scatter),
    ("aten.as_strided_scatter.default", as_strided_scatter),
];

/// The tensor, where in it the index points, and the part of the source that goes there.
fn scattered(c: &Ctx<'_>) -> Result<(Array, Vec<usize>, Array)> {
    let (x, src) = (c.array("self")?, c.array("src")?);
    let (shape, at) = along_index(c, x.shape())?;
    let fits = shape.len() == src.shape().len() && shape.iter().zip(src.shape()).all(|(a, b)| a <= b);
    if !fits && !at.is_empty() && shape.len().max(src.shape().len()) > 1 {
        return Err(c.err(format!("an index of shape {shape:?} into a source of shape {:?}", src.shape())));
    }
    let from = steps(src.shape());
    let src = pick(c, &src, &shape, |i| Ok(flat(i, &from)))?;
    Ok((x, at, src))
}

/// `x` with the elements of `src` combined with what is at these places, or with each other only.
fn combine(c: &Ctx<'_>, x: &Array, at: &[usize], src: &Array, how: &str, include: bool) -> Result<Array> {
    /// Folds values into places; how many went into each.
    fn fold<T: Copy>(x: &mut [T], at: &[usize], src: &[T], include: bool, f: impl Fn(T, T) -> T) -> Vec<usize> {
        let mut count = vec![usize::from(include); x.len()];
        for (p, v) in at.iter().zip(src) {
            x[*p] = if count[*p] == 0 { *v } else { f(x[*p], *v) };
            count[*p] += 1;
        }
        count
    }
    let shape = IxDyn(x.shape());
    if at.iter().any(|p| *p >= bounded(c, x.shape()).unwrap_or(0)) {
        return Err(c.err("an element outside"));
    }
    let fail = |e: ndarray::ShapeError| c.err(e.to_string());
    let src = src.cast(x.dtype);
    let greater = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
    Ok(match (&x.data, &src.data) {
        (Data::Float(a), _) => {
            let (mut a, src): (Vec<f64>, Vec<f64>) = (a.iter().copied().collect(), src.to_f64().into_iter().collect());
            match how {
                "sum" => drop(fold(&mut a, at, &src, include, |p, q| p + q)),
                "prod" => drop(fold(&mut a, at, &src, include, |p, q| p * q)),
                "amax" => drop(fold(&mut a, at, &src, include, greater)),
                "amin" => drop(fold(&mut a, at, &src, include, |p, q| -greater(-p, -q))),
                "mean" => {
                    let count = fold(&mut a, at, &src, include, |p, q| p + q);
                    a.iter_mut().zip(count).filter(|(_, n)| *n > 1).for_each(|(v, n)| *v /= n as f64);
                }
                other => return Err(c.err(format!("reduction '{other}'"))),
            }
            Array::float(x.dtype, ArrayD::from_shape_vec(shape, a).map_err(fail)?)
        }
        (Data::Int(a), _) => {
            let (mut a, src): (Vec<i64>, Vec<i64>) = (a.iter().copied().collect(), src.to_i64().into_iter().collect());
            match how {
                "sum" => drop(fold(&mut a, at, &src, include, i64::wrapping_add)),
                "prod" => drop(fold(&mut a, at, &src, include, i64::wrapping_mul)),
                "amax" => drop(fold(&mut a, at, &src, include, i64::max)),
                "amin" => drop(fold(&mut a, at, &src, include, i64::min)),
                "mean" => {
                    let count = fold(&mut a, at, &src, include, i64::wrapping_add);
                    a.iter_mut().zip(count).filter(|(_, n)| *n > 1).for_each(|(v, n)| {
                        *v = v.div_euclid(i64::try_from(n).unwrap_or(i64::MAX));
                    });
                }
                other => return Err(c.err(format!("reduction '{other}'"))),
            }
            Array::int(x.dtype, ArrayD::from_shape_vec(shape, a).map_err(fail)?)
        }
    })
}

fn index_put(c: &Ctx<'_>) -> Result<Value> {
    let (x, values) = (c.array("self")?, c.array("values")?);
    let (shape, at) = pointed(c, x.shape())?;
    // Leading sizes of 1 count for nothing.
    let lead =
        values.shape().iter().take_while(|n| **n == 1).count().min(values.shape().len().saturating_sub(shape.len()));
    let own = &values.shape()[lead..];
    let wrong = || c.err(format!("values of shape {:?} to {shape:?}", values.shape()));
    let offset = shape.len().checked_sub(own.len()).ok_or_else(wrong)?;
    if own.iter().zip(&shape[offset..]).any(|(n, to)| *n != 1 && n != to) {
        return Err(wrong());
    }
    let from = steps(own);
    let spread = pick(c, &values, &shape, |i| {
        let places = i[offset..].iter().zip(own).zip(&from);
        Ok(places.map(|((i, n), s)| if *n == 1 { 0 } else { i * s }).sum())
    })?;
    Ok(if c.bool("accumulate")? && x.dtype != DType::Bool {
        combine(c, &x, &at, &spread, "sum", true)?
    } else if c.bool("accumulate")? {
        combine(c, &x, &at, &spread, "amax", true)?
    } else {
        put(c, &x, &at, &spread)?
    }
    .into())
}

/// Puts `src` into `self` where `to` moves the numbers of one dimension.
fn put_along(c: &Ctx<'_>, shape: &[usize], axis: usize, to: impl Fn(usize) -> usize) -> Result<Value> {
    let (x, src) = (c.array("self")?, c.array("src")?);
    if src.shape().iter().product::<usize>() != bounded(c, shape)? {
        return Err(c.err(format!("a source of shape {:?}, expected {shape:?}", src.shape())));
    }
    let from = steps(x.shape());
    let at = places(c, shape, |at| Ok(super::index::moved_to(at, axis, &from, &to)))?;
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

fn as_strided_scatter(c: &Ctx<'_>) -> Result<Value> {
    let (x, src) = (c.array("self")?, c.array("src")?);
    let (size, at) = stored(c, &x)?;
    if src.shape() != size {
        return Err(c.err(format!("a source of shape {:?}, expected {size:?}", src.shape())));
    }
    Ok(put(c, &x, &at, &src)?.into())
}
