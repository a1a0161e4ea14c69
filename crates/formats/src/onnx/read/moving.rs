//! Elements joined, taken apart, picked and padded.

use super::fold::{limited, pick, positions};
use super::host::{Data, Host, Known};
use super::node::{Ctx, Map, Step, axis_of, dim_of};
use super::scatter::from_start;
use super::shape::shape_of;
use cleave_ir::{Arg, Dim, Value};
use ndarray::{ArrayD, Axis, IxDyn};

pub(super) const OPS: &[(&str, Map)] = &[
    ("Concat", concat),
    ("Split", split),
    ("Slice", slice),
    ("Gather", gather),
    ("GatherElements", |c| {
        let x = c.value(0)?;
        let axis = axis_of(c.int("axis", 0)?, x.rank())?;
        let index = from_start(c, 1, &dim_of(x, axis))?;
        c.one(c.call("aten.gather", vec![x.into(), axis.into(), index.into()]))
    }),
    ("Pad", pad),
    ("Tile", tile),
    ("CenterCropPad", center_crop_pad),
    ("DepthToSpace", depth_to_space),
    ("SpaceToDepth", space_to_depth),
];

fn int(v: usize) -> Step<i64> {
    i64::try_from(v).map_err(|e| e.to_string())
}

fn concat<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    // It was 1 before operator set 4.
    let axis = c.opt_int("axis")?.or((c.opset < 4).then_some(1)).ok_or("attribute 'axis' is missing")?;
    if c.len() == 1 {
        return Ok(vec![c.known(0)?.clone()]);
    }
    if let Some(hosts) = c.hosts()
        && let Some(h) = joined(c, &hosts, axis)?
    {
        return Ok(vec![Known::Host(h)]);
    }
    let values = (0..c.len()).map(|i| c.value(i)).collect::<Step<Vec<_>>>()?;
    c.one(c.call("aten.cat", vec![values.into(), axis.into()]))
}

/// Known values joined.
fn joined(c: &Ctx<'_, '_>, hosts: &[&Host], axis: i64) -> Step<Option<Host>> {
    let Some(first) = hosts.first() else { return Err("no inputs".into()) };
    let axis = axis_of(axis, first.shape().len())?;
    let mut start = 0;
    let mut parts = vec![];
    for h in hosts {
        limited(h.shape())?;
        parts.push(positions(h.shape()).mapv(|p| p + start));
        start += h.len();
        limited(&[start])?;
    }
    let views: Vec<_> = parts.iter().map(|p: &ArrayD<usize>| p.view()).collect();
    let at = ndarray::concatenate(Axis(axis), &views).map_err(|e| e.to_string())?;
    limited(at.shape())?;
    let all: Host = if hosts.iter().any(|h| matches!(h.data, Data::Dims(..))) {
        let dims = hosts.iter().map(|h| h.as_dims()).collect::<Option<Vec<_>>>().ok_or("expected integers")?;
        Host::dims("", first.dtype(), vec![start], dims.concat())
    } else {
        let mut bytes = vec![];
        for h in hosts {
            match h.as_tensor() {
                Some(t) if t.dtype() == first.dtype() => bytes.extend_from_slice(&t.to_bytes()),
                _ => return Err("inputs of different types".into()),
            }
        }
        let t = cleave_ir::Tensor::from_bytes(first.dtype(), vec![start], std::sync::Arc::new(bytes));
        Host::tensor("", t.map_err(|e| e.to_string())?)
    };
    pick(c.output_name(0), &all, &at).map(Some)
}

fn split<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let axis = c.int("axis", 0)?;
    let shape = shape_of(c.known(0)?);
    let at = axis_of(axis, shape.len())?;
    let given = if c.opset < 13 { c.opt_list("split")? } else { c.opt_ints(1)? };
    let count = match c.opt_int("num_outputs")? {
        Some(n) => n,
        None => int(given.as_ref().map_or(c.outputs(), Vec::len))?,
    };
    if !(1..=1 << 16).contains(&count) {
        return Err(format!("{count} parts"));
    }
    let sizes = match (given, shape[at].as_const()) {
        (Some(sizes), _) => sizes,
        (None, Some(n)) => {
            // All alike; the last is smaller where they do not divide.
            let one = (n + count - 1) / count;
            (0..count).map(|i| one.min(n - i * one).max(0)).collect()
        }
        (None, None) => return Err(format!("parts of size {} of axis {axis}", shape[at])),
    };
    let total = sizes.iter().try_fold(0i64, |a, b| if *b < 0 { None } else { a.checked_add(*b) });
    if total.is_none() || shape[at].as_const().is_some_and(|n| Some(n) != total) {
        return Err(format!("parts {sizes:?} of size {}", shape[at]));
    }
    if let Some(h) = c.host(0) {
        limited(h.shape())?;
        let all = positions(h.shape());
        let mut start = 0;
        let mut out = vec![];
        for (i, n) in sizes.iter().enumerate() {
            let n = usize::try_from(*n).map_err(|e| e.to_string())?;
            let part = all.slice_axis(Axis(at), ndarray::Slice::from(start..start + n)).to_owned();
            out.push(Known::Host(pick(c.output_name(i), h, &part)?));
            start += n;
        }
        return Ok(out);
    }
    let x = c.value(0)?;
    let parts = c.call("aten.split_with_sizes", vec![x.into(), sizes.clone().into(), axis.into()]);
    let wanted = (0..sizes.len()).map(|i| if c.wants(i) { c.b.getitem(parts, i) } else { x });
    Ok(wanted.map(Known::Value).collect())
}

/// One dimension's part: start, end and step.
struct Part {
    axis: usize,
    start: Dim,
    end: Dim,
    step: i64,
}

fn parts(c: &Ctx<'_, '_>, rank: usize) -> Step<Vec<Part>> {
    let to_dims = |l: Vec<i64>| l.into_iter().map(Dim::from).collect::<Vec<_>>();
    let (starts, ends, axes, steps) = if c.opset < 10 {
        let need = |name: &str| c.opt_list(name)?.ok_or_else(|| format!("attribute '{name}' is missing"));
        (to_dims(need("starts")?), to_dims(need("ends")?), c.opt_list("axes")?, None)
    } else {
        (c.dims(1)?, c.dims(2)?, c.opt_ints(3)?, c.opt_ints(4)?)
    };
    let axes = axes.unwrap_or((0i64..).take(starts.len()).collect());
    let steps = steps.unwrap_or(vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|n| *n != starts.len()) {
        return Err(format!(
            "{} starts, {} ends, {} axes, {} steps",
            starts.len(),
            ends.len(),
            axes.len(),
            steps.len()
        ));
    }
    let mut out = vec![];
    for (((start, end), axis), step) in starts.into_iter().zip(ends).zip(axes).zip(steps) {
        if step == 0 {
            return Err("a step of 0".into());
        }
        out.push(Part { axis: axis_of(axis, rank)?, start, end, step });
    }
    Ok(out)
}

impl Part {
    /// First index and number of elements in a dimension of known size; ONNX clamps as Python does.
    fn resolve(&self, n: i64) -> Option<(i64, i64)> {
        let (start, end) = (self.start.as_const()?, self.end.as_const()?);
        let wrap = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        Some(if self.step > 0 {
            let (a, z) = (wrap(start).clamp(0, n), wrap(end).clamp(0, n));
            (a, (z - a).max(0).saturating_add(self.step - 1) / self.step)
        } else {
            let (a, z) = (wrap(start).clamp(-1, n - 1), wrap(end).clamp(-1, n - 1));
            (a, (a - z).max(0).saturating_add(-1 - self.step) / self.step.saturating_neg())
        })
    }
}

fn slice<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let shape = shape_of(c.known(0)?);
    let parts = parts(c, shape.len())?;
    let sizes_known = parts.iter().all(|p| p.resolve(0).is_some());
    if let Some(h) = c.host(0).filter(|_| sizes_known) {
        limited(h.shape())?;
        let mut at = positions(h.shape());
        for p in &parts {
            let n = int(at.len_of(Axis(p.axis)))?;
            let (start, count) = p.resolve(n).ok_or("a part of a constant that depends on sizes")?;
            let index = (0..count).map(|i| usize::try_from(start + i * p.step).unwrap_or(0)).collect::<Vec<_>>();
            at = at.select(Axis(p.axis), &index);
        }
        return Ok(vec![Known::Host(pick(c.output_name(0), h, &at)?)]);
    }
    let mut x = c.value(0)?;
    for p in parts {
        x = sliced(c, x, &p)?;
    }
    c.one(x)
}

fn sliced<'b>(c: &Ctx<'b, '_>, x: Value<'b>, p: &Part) -> Step<Value<'b>> {
    let shape = x.shape();
    let n = shape.get(p.axis).ok_or("too many axes")?;
    if p.step > 0 {
        // Ends far outside mean the end, as exporters write it.
        let end = if p.end.as_const().is_some_and(|v| v >= i64::from(i32::MAX)) {
            Dim::from(i64::MAX)
        } else {
            p.end.clone()
        };
        let args = vec![x.into(), p.axis.into(), p.start.clone().into(), end.into(), p.step.into()];
        return Ok(c.call("aten.slice.Tensor", args));
    }
    let flipped = x.op("aten.flip", vec![vec![p.axis].into()]);
    let step = p.step.saturating_neg();
    let far = i64::from(i32::MAX);
    let bounds = p.start.as_const().zip(p.end.as_const());
    if bounds.is_some_and(|(start, end)| (start == -1 || start >= far) && end <= -far) {
        let all = vec![flipped.into(), p.axis.into(), 0i64.into(), i64::MAX.into(), step.into()];
        return Ok(if step == 1 { flipped } else { c.call("aten.slice.Tensor", all) });
    }
    let n = n.as_const().ok_or("a negative step over an unknown size is not supported")?;
    let (start, count) = p.resolve(n).ok_or("a negative step with unknown bounds is not supported")?;
    let first = n - 1 - start;
    let end = if count == 0 { first } else { first + (count - 1) * step + 1 };
    Ok(c.call("aten.slice.Tensor", vec![flipped.into(), p.axis.into(), first.into(), end.into(), step.into()]))
}

fn gather<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let axis = c.int("axis", 0)?;
    let from = shape_of(c.known(0)?);
    let at = axis_of(axis, from.len())?;
    let index = c.host(1).and_then(|h| Some((h.shape().to_vec(), h.as_ints()?)));
    if let (Some(h), Some((shape, index))) = (c.host(0), &index) {
        limited(h.shape())?;
        let n = int(h.shape()[at])?;
        let index = index.iter().map(|i| wrapped(*i, n)).collect::<Step<Vec<_>>>()?;
        let picked = positions(h.shape()).select(Axis(at), &index);
        let full = [&h.shape()[..at], shape, &h.shape()[at + 1..]].concat();
        let picked = picked.into_shape_with_order(IxDyn(&full)).map_err(|e| e.to_string())?;
        return Ok(vec![Known::Host(pick(c.output_name(0), h, &picked)?)]);
    }
    let x = c.value(0)?;
    match index {
        Some((shape, index)) if shape.is_empty() => {
            c.one(c.call("aten.select.int", vec![x.into(), at.into(), index[0].into()]))
        }
        _ => {
            let i = from_start(c, 1, &from[at])?;
            if at == 0 && from.len() == 2 && i.rank() > 1 {
                return c.one(c.call("aten.embedding", vec![x.into(), i.into()]));
            }
            if i.rank() == 1 {
                return c.one(c.call("aten.index_select", vec![x.into(), at.into(), i.into()]));
            }
            let index_shape = i.shape();
            let flat = i.op("aten.reshape", vec![vec![-1i64].into()]);
            let y = x.op("aten.index_select", vec![at.into(), flat.into()]);
            let shape = [&from[..at], &index_shape, &from[at + 1..]].concat();
            c.one(c.call("aten.reshape", vec![y.into(), shape.into()]))
        }
    }
}

fn wrapped(i: i64, n: i64) -> Step<usize> {
    let at = if i < 0 { i.saturating_add(n) } else { i };
    usize::try_from(at).ok().filter(|_| at < n).ok_or_else(|| format!("index {i} of {n}"))
}

fn pad<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let rank = x.rank();
    let (pads, value, axes) = if c.opset < 11 {
        let pads = c.opt_list(if c.opset < 2 { "paddings" } else { "pads" })?.ok_or("attribute 'pads' is missing")?;
        (pads.into_iter().map(Dim::from).collect(), c.float("value", 0.0)?, None)
    } else {
        (c.dims(1)?, c.opt_scalar(2)?.unwrap_or(0.0), c.opt_ints(3)?)
    };
    let axes = match axes {
        Some(a) => a.into_iter().map(|a| axis_of(a, rank)).collect::<Step<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    let mut around = vec![(Dim::from(0), Dim::from(0)); rank];
    for (i, a) in axes.iter().enumerate() {
        around[*a] = (pads[i].clone(), pads[axes.len() + i].clone());
    }
    // Dimensions in front that are not padded are not named.
    let first = around.iter().position(|(b, a)| !(b.is(0) && a.is(0)));
    let Some(first) = first else { return c.one(x) };
    let list: Vec<Dim> = around[first..].iter().rev().flat_map(|(b, a)| [b.clone(), a.clone()]).collect();
    match c.str("mode", "constant")? {
        "constant" => {
            let value = if x.dtype().is_float() { Arg::Float(value) } else { Arg::Int(value as i64) };
            c.one(c.call("aten.constant_pad_nd", vec![x.into(), list.into(), value]))
        }
        "reflect" => c.one(c.call("aten.pad", vec![x.into(), list.into(), "reflect".into()])),
        "edge" => c.one(c.call("aten.pad", vec![x.into(), list.into(), "replicate".into()])),
        "wrap" => c.one(c.call("aten.pad", vec![x.into(), list.into(), "circular".into()])),
        other => Err(format!("attribute 'mode': found '{other}'")),
    }
}

fn tile<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (x, times) = (c.value(0)?, c.dims(1)?);
    c.one(c.call("aten.repeat", vec![x.into(), times.into()]))
}

/// Each dimension cropped or filled up on both sides.
fn center_crop_pad<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (mut x, sizes) = (c.value(0)?, c.opt_ints(1)?.ok_or("input 1 is missing")?);
    let rank = x.rank();
    let axes = c.opt_list("axes")?.unwrap_or((0i64..).take(rank).collect());
    if axes.len() != sizes.len() {
        return Err(format!("{} sizes for {} axes", sizes.len(), axes.len()));
    }
    let mut pads = vec![0i64; 2 * rank];
    for (a, want) in axes.iter().zip(&sizes) {
        let at = axis_of(*a, rank)?;
        let have = dim_of(x, at).as_const().ok_or_else(|| format!("size {} of axis {at}", dim_of(x, at)))?;
        if !(0..1 << 31).contains(want) {
            return Err(format!("size {want}"));
        }
        if *want < have {
            let start = (have - want) / 2;
            x = x.op("aten.slice.Tensor", vec![at.into(), start.into(), (start + want).into()]);
        } else {
            let before = (want - have) / 2;
            pads[2 * (rank - 1 - at)] = before;
            pads[2 * (rank - 1 - at) + 1] = want - have - before;
        }
    }
    let value = if x.dtype().is_float() { Arg::Float(0.0) } else { Arg::Int(0) };
    c.one(if pads.iter().all(|p| *p == 0) {
        x
    } else {
        c.call("aten.constant_pad_nd", vec![x.into(), pads.into(), value])
    })
}

/// Batch, channels, height and width, and the block's size.
fn blocks(c: &Ctx<'_, '_>, x: Value<'_>) -> Step<([Dim; 4], Dim)> {
    let size = c.opt_int("blocksize")?.filter(|b| *b > 0).ok_or("attribute 'blocksize' is missing")?;
    let shape: [Dim; 4] = x.shape().try_into().map_err(|s: Vec<Dim>| format!("rank {}, expected 4", s.len()))?;
    Ok((shape, size.into()))
}

fn depth_to_space<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let ([n, ch, h, w], b) = blocks(c, x)?;
    let deep = ch.floor_div(&(b.clone() * b.clone()));
    let (split, order) = match c.str("mode", "DCR")? {
        "DCR" => (vec![n.clone(), b.clone(), b.clone(), deep.clone(), h.clone(), w.clone()], vec![0i64, 3, 4, 1, 5, 2]),
        "CRD" => (vec![n.clone(), deep.clone(), b.clone(), b.clone(), h.clone(), w.clone()], vec![0, 1, 4, 2, 5, 3]),
        other => return Err(format!("attribute 'mode': found '{other}'")),
    };
    let y = x.op("aten.reshape", vec![split.into()]).permute(order);
    let shape = vec![n, deep, h * b.clone(), w * b];
    c.one(c.call("aten.reshape", vec![y.into(), shape.into()]))
}

fn space_to_depth<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let ([n, ch, h, w], b) = blocks(c, x)?;
    let (rows, columns) = (h.floor_div(&b), w.floor_div(&b));
    let split = vec![n.clone(), ch.clone(), rows.clone(), b.clone(), columns.clone(), b.clone()];
    let order = match c.str("mode", "DCR")? {
        "DCR" => vec![0, 3, 5, 1, 2, 4],
        "CRD" => vec![0, 1, 3, 5, 2, 4],
        other => return Err(format!("attribute 'mode': found '{other}'")),
    };
    let y = x.op("aten.reshape", vec![split.into()]).permute(order);
    let shape = vec![n, ch * b.clone() * b, rows, columns];
    c.one(c.call("aten.reshape", vec![y.into(), shape.into()]))
}
