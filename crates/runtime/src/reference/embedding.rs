//! Rows of tables.

use super::EvalFn;
use super::ctx::Ctx;
use super::index::{index_of, within};
use super::places::{bounded, flat, pick, steps};
use super::value::{Array, Data, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::ArrayD;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.embedding.default", embedding),
    ("aten.embedding_renorm.default", renorm),
    ("aten._embedding_bag_forward_only.default", |c| bags(c, true)),
    ("aten._embedding_bag.default", |c| bags(c, false)),
];

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

fn renorm(c: &Ctx<'_>) -> Result<Value> {
    let (w, (_, index)) = (c.array("self")?, index_of(c, "indices")?);
    let (most, p) = (c.float("max_norm")?, c.float("norm_type")?);
    let &[rows, _] = w.shape() else { return Err(c.err(format!("a table of shape {:?}", w.shape()))) };
    let mut data = w.to_f64();
    let mut index = index.into_iter().map(|i| within(c, i, rows)).collect::<Result<Vec<_>>>()?;
    index.sort_unstable();
    index.dedup();
    for i in index {
        let mut row = data.index_axis_mut(ndarray::Axis(0), i);
        let size = row.iter().map(|v| v.abs());
        let norm = match p {
            p if p == f64::INFINITY => size.fold(0.0, f64::max),
            p if p == 0.0 => size.filter(|v| *v != 0.0).count() as f64,
            p => size.map(|v| v.powf(p)).sum::<f64>().powf(1.0 / p),
        };
        if norm > most {
            row.mapv_inplace(|v| v * (most / (norm + 1e-7)));
        }
    }
    Ok(Array::float(w.dtype, data).into())
}

fn bags(c: &Ctx<'_>, forward_only: bool) -> Result<Value> {
    let w = c.array("weight")?;
    let &[rows, width] = w.shape() else { return Err(c.err(format!("weight of shape {:?}", w.shape()))) };
    let ((_, index), (_, offsets)) = (index_of(c, "indices")?, index_of(c, "offsets")?);
    let (mode, padding) = (c.int("mode")?, c.int("padding_idx")?);
    let scale = c.opt_array("per_sample_weights")?.map(|a| a.to_f64().into_iter().collect::<Vec<f64>>());
    if scale.as_ref().is_some_and(|s| s.len() != index.len() || mode != 0) {
        return Err(c.err("weights of another number than the indices, or for another mode than sums"));
    }
    let count = if c.bool("include_last_offset")? { offsets.len().saturating_sub(1) } else { offsets.len() };
    bounded(c, &[count, width])?;
    let table: Vec<f64> = w.to_f64().into_iter().collect();
    let (mut sums, mut most) = (vec![0.0; count * width], vec![0i64; count * width]);
    let (mut sizes, mut bag_of) = (vec![0i64; count], vec![0i64; index.len()]);
    for bag in 0..count {
        let bound = |i: usize| offsets.get(i).map_or(index.len() as i64, |v| *v).clamp(0, index.len() as i64) as usize;
        let (start, end) = (bound(bag), bound(bag + 1));
        for at in start..end.max(start) {
            bag_of[at] = bag as i64;
            let row = within(c, index[at], rows)?;
            if index[at] == padding {
                continue;
            }
            let factor = scale.as_ref().map_or(1.0, |s| s[at]);
            for column in 0..width {
                let (value, place) = (table[row * width + column], bag * width + column);
                if mode != 2 {
                    sums[place] += value * factor;
                } else if sizes[bag] == 0 || value > sums[place] {
                    (sums[place], most[place]) = (value, index[at]);
                }
            }
            sizes[bag] += 1;
        }
        if mode == 1 && sizes[bag] > 0 {
            sums[bag * width..(bag + 1) * width].iter_mut().for_each(|v| *v /= sizes[bag] as f64);
        }
    }
    let ints = |shape: Vec<usize>, data: Vec<i64>| -> Result<Value> {
        let dtype = c.array("offsets")?.dtype;
        Ok(Array::int(dtype, ArrayD::from_shape_vec(shape, data).map_err(|e| c.err(e.to_string()))?).into())
    };
    let sums = ArrayD::from_shape_vec(vec![count, width], sums).map_err(|e| c.err(e.to_string()))?;
    let float = matches!(w.data, Data::Float(_));
    // What torch's fast path for sums does not note, and where it has room for one bag more.
    if mode == 0 && padding < 0 && matches!(w.dtype, DType::F32 | DType::F16) {
        bag_of.clear();
    }
    let noted = if forward_only { offsets.len() } else { count };
    let most = if mode == 2 { ints(vec![count, width], most)? } else { ints(vec![count], sizes.clone())? };
    sizes.resize(noted, 0);
    let sums = if float { Array::float(w.dtype, sums) } else { Array::from_f64(DType::F32, sums) };
    Ok(Value::List(vec![sums.into(), ints(vec![bag_of.len()], bag_of)?, ints(vec![noted], sizes)?, most]))
}
