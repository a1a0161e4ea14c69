//! Counts of elements: by number, and by the part of a range in which they lie.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::{bounded, steps};
use super::value::{Array, Value, round_to};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Axis, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.bincount.default", bincount),
    ("aten.histc.default", histc),
    ("aten.histogram.bin_ct", |c| {
        let (p, edges) = (Points::flat(c)?, vec![c.int("bins")?]);
        let edges = p.edges(c, &edges)?;
        Ok(Value::List(vec![p.counts(c, &edges)?, row(p.dtype, edges[0].clone())]))
    }),
    ("aten.histogram.bins_tensor", |c| {
        let (p, edges) = (Points::flat(c)?, c.array("bins")?);
        let counts = p.counts(c, &[edges.to_f64().into_iter().collect()])?;
        Ok(Value::List(vec![counts, edges.into()]))
    }),
    ("aten._histogramdd_bin_edges.default", |c| {
        let p = Points::new(c)?;
        Ok(Value::List(p.edges(c, &c.ints("bins")?)?.into_iter().map(|e| row(p.dtype, e)).collect()))
    }),
    ("aten._histogramdd_from_bin_cts.default", |c| {
        let p = Points::new(c)?;
        p.counts(c, &p.edges(c, &c.ints("bins")?)?)
    }),
    ("aten.histogramdd.default", |c| by_counts(c, |_| c.ints("bins"))),
    ("aten.histogramdd.int_bins", |c| by_counts(c, |n| Ok(vec![c.int("bins")?; n]))),
    ("aten.histogramdd.TensorList_bins", |c| {
        let (p, edges) = (Points::new(c)?, c.arrays("bins")?);
        let numbers: Vec<Vec<f64>> = edges.iter().map(|e| e.to_f64().into_iter().collect()).collect();
        let edges = edges.into_iter().map(Value::from).collect();
        Ok(Value::List(vec![p.counts(c, &numbers)?, Value::List(edges)]))
    }),
];

/// Counts and edges of as many parts of each coordinate as `bins` says of their number.
fn by_counts(c: &Ctx<'_>, bins: impl Fn(usize) -> Result<Vec<i64>>) -> Result<Value> {
    let p = Points::new(c)?;
    let edges = p.edges(c, &bins(p.coordinates.len())?)?;
    let counts = p.counts(c, &edges)?;
    Ok(Value::List(vec![counts, Value::List(edges.into_iter().map(|e| row(p.dtype, e)).collect())]))
}

fn row(dtype: DType, data: Vec<f64>) -> Value {
    Array::from_f64(dtype, ArrayD::from_shape_fn(IxDyn(&[data.len()]), |i| data[i[0]])).into()
}

fn bincount(c: &Ctx<'_>) -> Result<Value> {
    let (x, least) = (c.array("self")?.to_i64(), c.int("minlength")?);
    let weights = c.opt_array("weights")?.map(|w| w.to_f64());
    if x.iter().any(|v| *v < 0) || least < 0 || weights.as_ref().is_some_and(|w| w.shape() != x.shape()) {
        return Err(c.err("expected numbers from 0 on, each with a weight"));
    }
    let n = x.iter().max().map_or(0, |m| m.saturating_add(1)).max(least) as usize;
    bounded(c, &[n])?;
    let mut counts = vec![0.0; n];
    match &weights {
        Some(w) => x.iter().zip(w).for_each(|(i, w)| counts[*i as usize] += w),
        None => x.iter().for_each(|i| counts[*i as usize] += 1.0),
    }
    Ok(row(c.dtype(), counts))
}

/// Points with as many coordinates as the last dimension has places, and their weights.
struct Points {
    dtype: DType,
    coordinates: Vec<Vec<f64>>,
    weights: Option<Vec<f64>>,
}

impl Points {
    fn new(c: &Ctx<'_>) -> Result<Points> {
        let x = c.array("self")?;
        let rank = x.shape().len().checked_sub(1).ok_or_else(|| c.err("a tensor without dimensions"))?;
        let columns = x.to_f64().axis_iter(Axis(rank)).map(|a| a.iter().copied().collect()).collect();
        Points { dtype: x.dtype, coordinates: columns, weights: None }.weighted(c)
    }

    /// Every element as a point with one coordinate.
    fn flat(c: &Ctx<'_>) -> Result<Points> {
        let x = c.array("self")?;
        let column = x.to_f64().into_iter().collect();
        Points { dtype: x.dtype, coordinates: vec![column], weights: None }.weighted(c)
    }

    fn weighted(mut self, c: &Ctx<'_>) -> Result<Points> {
        self.weights = c.opt_array("weight")?.map(|w| w.to_f64().into_iter().collect());
        let n = self.coordinates.first().map_or(0, Vec::len);
        if self.weights.as_ref().is_some_and(|w| w.len() != n) {
            return Err(c.err(format!("expected {n} weights")));
        }
        Ok(self)
    }

    /// Edges of equal parts of each coordinate's range: the given one, or that of the points.
    fn edges(&self, c: &Ctx<'_>, bins: &[i64]) -> Result<Vec<Vec<f64>>> {
        let range = match c.arg("range")? {
            Value::List(l) => {
                let number = |v: &Value| match v {
                    Value::Float(f) => Ok(*f),
                    Value::Int(i) => Ok(*i as f64),
                    _ => Err(c.err("expected a range of numbers")),
                };
                Some(l.iter().map(number).collect::<Result<Vec<_>>>()?)
            }
            _ => None,
        };
        let n = self.coordinates.len();
        if bins.len() != n || range.as_ref().is_some_and(|r| r.len() != 2 * n) {
            return Err(c.err(format!("bins {bins:?} and range {range:?} of {n} coordinates")));
        }
        let one = |(i, column): (usize, &Vec<f64>)| {
            let bins = usize::try_from(bins[i]).ok().filter(|n| *n > 0).ok_or_else(|| c.err("no bins"))?;
            bounded(c, &[bins])?;
            let (low, high) = match &range {
                Some(r) => (r[2 * i], r[2 * i + 1]),
                None => extent(column).unwrap_or((0.0, 1.0)),
            };
            let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
            if !(low.is_finite() && high.is_finite() && low < high) {
                return Err(c.err(format!("a range from {low} to {high}")));
            }
            // From the nearer end, as torch's linspace does it.
            let round = |v: f64| round_to(self.dtype, v);
            let step = round((high - low) / bins as f64);
            let edge =
                |k: usize| if k < bins.div_ceil(2) { low + step * k as f64 } else { high - step * (bins - k) as f64 };
            Ok((0..=bins).map(|k| round(edge(k))).collect())
        };
        self.coordinates.iter().enumerate().map(one).collect()
    }

    /// How many points, or which sum of weights, lies in each part; the last one holds its upper edge.
    fn counts(&self, c: &Ctx<'_>, edges: &[Vec<f64>]) -> Result<Value> {
        if edges.len() != self.coordinates.len() || edges.iter().any(|e| e.len() < 2) {
            return Err(c.err(format!("edges of {} coordinates, expected {}", edges.len(), self.coordinates.len())));
        }
        let shape: Vec<usize> = edges.iter().map(|e| e.len() - 1).collect();
        let mut counts = vec![0.0; bounded(c, &shape)?];
        let from = steps(&shape);
        let part = |v: f64, edges: &[f64]| {
            let inside = v >= edges[0] && v <= edges[edges.len() - 1];
            inside.then(|| (edges.partition_point(|e| *e <= v) - 1).min(edges.len() - 2))
        };
        for i in 0..self.coordinates.first().map_or(0, Vec::len) {
            let parts = self.coordinates.iter().zip(edges).map(|(column, e)| part(column[i], e));
            if let Some(parts) = parts.collect::<Option<Vec<_>>>() {
                let at: usize = parts.iter().zip(&from).map(|(p, s)| p * s).sum();
                counts[at] += self.weights.as_ref().map_or(1.0, |w| w[i]);
            }
        }
        let mut counts = ArrayD::from_shape_vec(shape, counts).map_err(|e| c.err(e.to_string()))?;
        if c.bool("density")? {
            counts /= counts.sum();
            for (axis, e) in edges.iter().enumerate() {
                for (i, mut slice) in counts.axis_iter_mut(Axis(axis)).enumerate() {
                    slice /= e[i + 1] - e[i];
                }
            }
        }
        Ok(Array::from_f64(self.dtype, counts).into())
    }
}

/// The least and the greatest element.
fn extent(v: &[f64]) -> Option<(f64, f64)> {
    let (first, rest) = v.split_first()?;
    Some(rest.iter().fold((*first, *first), |(low, high), x| (low.min(*x), high.max(*x))))
}

fn histc(c: &Ctx<'_>) -> Result<Value> {
    let x: Vec<f64> = c.array("self")?.to_f64().into_iter().collect();
    let (low, high) = (c.float("min")?, c.float("max")?);
    let bins = usize::try_from(c.int("bins")?).ok().filter(|n| *n > 0).ok_or_else(|| c.err("no bins"))?;
    bounded(c, &[bins])?;
    let (low, high) = if low == high { extent(&x).unwrap_or((low, high)) } else { (low, high) };
    let (low, high) = if low == high { (low - 1.0, high + 1.0) } else { (low, high) };
    if !(low.is_finite() && high.is_finite() && low < high) {
        return Err(c.err(format!("a range from {low} to {high}")));
    }
    let mut counts = vec![0.0; bins];
    let round = |v: f64| round_to(c.dtype(), v);
    for v in x.into_iter().filter(|v| *v >= low && *v <= high) {
        let at = round(round(round(v - low) * bins as f64) / round(high - low));
        counts[(at as usize).min(bins - 1)] += 1.0;
    }
    Ok(row(c.dtype(), counts))
}
