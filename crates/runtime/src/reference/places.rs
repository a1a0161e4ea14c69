//! Elements by their place in row-major order: what gathering, scattering, padding and repeating share.

use super::ctx::Ctx;
use super::value::{Array, Data};
use crate::error::Result;
use ndarray::{ArrayD, Dimension, IxDyn, indices};

/// The most elements that a result may have.
const MOST: usize = 1 << 31;

/// The number of elements of a result of this shape.
///
/// # Errors
/// More of them than the interpreter makes.
pub fn bounded(c: &Ctx<'_>, shape: &[usize]) -> Result<usize> {
    let span = shape.iter().try_fold(1usize, |a, n| a.checked_mul((*n).max(1))).filter(|n| *n <= MOST);
    span.ok_or_else(|| c.err(format!("a result of shape {shape:?} is too large")))?;
    Ok(shape.iter().product())
}

/// Row-major strides.
pub fn steps(shape: &[usize]) -> Vec<usize> {
    let mut steps = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        steps[i - 1] = steps[i].saturating_mul(shape[i]);
    }
    steps
}

/// Where an index lies under these strides.
pub fn flat(index: &[usize], steps: &[usize]) -> usize {
    index.iter().zip(steps).fold(0, |at, (i, s)| at.saturating_add(i.saturating_mul(*s)))
}

/// What `at` gives for every index of a shape, in row-major order.
///
/// # Errors
/// What `at` meets, or a shape that is too large.
pub fn places(c: &Ctx<'_>, shape: &[usize], at: impl Fn(&[usize]) -> Result<usize>) -> Result<Vec<usize>> {
    bounded(c, shape)?;
    indices(IxDyn(shape)).into_iter().map(|i| at(i.slice())).collect()
}

/// An array of this shape whose element at an index is the one of `x` at the place that `at` gives.
///
/// # Errors
/// A place outside of `x`, or a shape that is too large.
pub fn pick(c: &Ctx<'_>, x: &Array, shape: &[usize], at: impl Fn(&[usize]) -> Result<usize>) -> Result<Array> {
    let places = places(c, shape, at)?;
    fn take<T: Copy>(c: &Ctx<'_>, a: &ArrayD<T>, shape: &[usize], places: &[usize]) -> Result<ArrayD<T>> {
        let flat: Vec<T> = a.iter().copied().collect();
        let data = places.iter().map(|p| flat.get(*p).copied()).collect::<Option<Vec<T>>>();
        let data = data.ok_or_else(|| c.err(format!("an element outside of shape {:?}", a.shape())))?;
        ArrayD::from_shape_vec(IxDyn(shape), data).map_err(|e| c.err(e.to_string()))
    }
    x.moved(|a| take(c, a, shape, &places), |a| take(c, a, shape, &places))
}

/// `x` with the elements of `src`, in row-major order, put at these places; of several the last one stays.
///
/// # Errors
/// A place outside of `x`.
pub fn put(c: &Ctx<'_>, x: &Array, places: &[usize], src: &Array) -> Result<Array> {
    fn set<T: Copy>(c: &Ctx<'_>, a: &ArrayD<T>, places: &[usize], src: &ArrayD<T>) -> Result<ArrayD<T>> {
        let mut flat: Vec<T> = a.iter().copied().collect();
        for (p, v) in places.iter().zip(src) {
            *flat.get_mut(*p).ok_or_else(|| c.err(format!("an element outside of shape {:?}", a.shape())))? = *v;
        }
        ArrayD::from_shape_vec(a.raw_dim(), flat).map_err(|e| c.err(e.to_string()))
    }
    let src = src.cast(x.dtype);
    let data = match (&x.data, &src.data) {
        (Data::Float(a), _) => Data::Float(set(c, a, places, &src.to_f64())?),
        (Data::Int(a), _) => Data::Int(set(c, a, places, &src.to_i64())?),
    };
    Ok(Array { dtype: x.dtype, data })
}

/// The common shape of several, by torch's broadcasting.
///
/// # Errors
/// Two different sizes, neither of them 1.
pub fn broadcast(c: &Ctx<'_>, shapes: &[&[usize]]) -> Result<Vec<usize>> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![1usize; rank];
    for s in shapes {
        for (o, n) in out[rank - s.len()..].iter_mut().zip(s.iter()) {
            match (*o, *n) {
                (_, 1) => {}
                (1, n) => *o = n,
                (m, n) if m == n => {}
                _ => return Err(c.err(format!("shapes {shapes:?} do not broadcast"))),
            }
        }
    }
    bounded(c, &out)?;
    Ok(out)
}
