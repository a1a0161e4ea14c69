//! Elements joined, padded and resized.

use super::EvalFn;
use super::ctx::Ctx;
use super::value::{Array, Data, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, IxDyn, SliceInfoElem, concatenate, s};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.cat.default", cat),
    ("aten.constant_pad_nd.default", pad),
    ("aten.upsample_nearest2d.vec", |c| {
        let scales = scales(c)?;
        resize(c, &|axis, o, n, out| {
            let ratio = scales.as_ref().map_or(n as f32 / out as f32, |s| (1.0 / s[axis]) as f32);
            let i = ((o as f32 * ratio).floor() as usize).min(n - 1);
            [(i, 1.0), (i, 0.0)]
        })
    }),
    ("aten.upsample_bilinear2d.vec", |c| {
        let (scales, corners) = (scales(c)?, c.bool("align_corners")?);
        resize(c, &|axis, o, n, out| linear(o, n, out, scales.as_ref().map(|s| s[axis]), corners))
    }),
];

fn cat(c: &Ctx<'_>) -> Result<Value> {
    // torch leaves out the legacy empty tensor of shape [0].
    let arrays: Vec<Array> =
        c.arrays("tensors")?.into_iter().filter(|a| a.shape() != [0]).map(|a| a.cast(c.dtype())).collect();
    let first = arrays.first().ok_or_else(|| c.err("no tensors"))?;
    let axis = Axis(c.axis(c.int("dim")?, first.shape().len())?);
    let fail = |e: ndarray::ShapeError| c.err(e.to_string());
    let floats: Vec<_> =
        arrays.iter().filter_map(|a| if let Data::Float(x) = &a.data { Some(x.view()) } else { None }).collect();
    let ints: Vec<_> =
        arrays.iter().filter_map(|a| if let Data::Int(x) = &a.data { Some(x.view()) } else { None }).collect();
    let data = if ints.is_empty() {
        Data::Float(concatenate(axis, &floats).map_err(fail)?)
    } else {
        Data::Int(concatenate(axis, &ints).map_err(fail)?)
    };
    Ok(Value::Array(Array { dtype: c.dtype(), data }))
}

fn pad(c: &Ctx<'_>) -> Result<Value> {
    let (x, pads, value) = (c.array("self")?, c.ints("pad")?, c.float("value")?);
    fn padded<T: Clone>(c: &Ctx<'_>, x: &ArrayD<T>, pads: &[i64], fill: T) -> Result<ArrayD<T>> {
        let rank = x.ndim();
        let mut shape = x.shape().to_vec();
        let (mut from, mut to) = (vec![0..0; rank], vec![0..0; rank]);
        for i in 0..rank {
            let (a, b) = pads.chunks(2).nth(rank - 1 - i).map_or((0, 0), |p| (p[0], p[1]));
            let n = shape[i] as i64;
            let out = n + a + b;
            if out < 0 || out > 1 << 40 {
                return Err(c.err(format!("pads {pads:?} of {:?}", x.shape())));
            }
            shape[i] = out as usize;
            // Negative pads cut.
            from[i] = (-a).clamp(0, n)..(n + b.min(0)).clamp(0, n);
            to[i] = a.max(0)..out - b.max(0);
        }
        if shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).is_none_or(|n| n > 1 << 31) {
            return Err(c.err(format!("pads {pads:?} of {:?}: the result is too large", x.shape())));
        }
        let mut y = ArrayD::from_elem(IxDyn(&shape), fill);
        let index = |r: &[std::ops::Range<i64>]| -> Vec<SliceInfoElem> {
            r.iter().map(|r| (r.start as isize..r.end.max(r.start) as isize).into()).collect()
        };
        y.slice_mut(index(&to).as_slice()).assign(&x.slice(index(&from).as_slice()));
        Ok(y)
    }
    Ok(Value::Array(x.moved(|a| padded(c, a, &pads, value), |a| padded(c, a, &pads, value as i64))?))
}

fn scales(c: &Ctx<'_>) -> Result<Option<[f64; 2]>> {
    let number = |v: &Value| match v {
        Value::Float(f) => Some(*f),
        Value::Int(i) => Some(*i as f64),
        _ => None,
    };
    match c.arg("scale_factors")? {
        Value::List(l) if l.len() == 2 => match (number(&l[0]), number(&l[1])) {
            (Some(a), Some(b)) => Ok(Some([a, b])),
            _ => Err(c.err("expected two scale factors")),
        },
        Value::None => Ok(None),
        _ => Err(c.err("expected two scale factors")),
    }
}

/// Two source places with weights for each output place of one axis: (axis, place, source size, output size).
type Taps<'a> = dyn Fn(usize, usize, usize, usize) -> [(usize, f64); 2] + 'a;

/// torch's `area_pixel_compute_source_index` in f32.
fn linear(o: usize, n: usize, out: usize, scale: Option<f64>, corners: bool) -> [(usize, f64); 2] {
    let at = if corners {
        let ratio = if out > 1 { (n - 1) as f32 / (out - 1) as f32 } else { 0.0 };
        o as f32 * ratio
    } else {
        let ratio = scale.map_or(n as f32 / out as f32, |s| (1.0 / s) as f32);
        ((o as f32 + 0.5) * ratio - 0.5).max(0.0)
    };
    let i = (at as usize).min(n - 1);
    let w = f64::from((at - i as f32).clamp(0.0, 1.0));
    [(i, 1.0 - w), ((i + 1).min(n - 1), w)]
}

fn resize(c: &Ctx<'_>, taps: &Taps<'_>) -> Result<Value> {
    let x = c.array("input")?;
    let shape = x.shape().to_vec();
    let &[n, ch, h, w] = shape.as_slice() else { return Err(c.err(format!("rank {}, expected 4", shape.len()))) };
    let out = match (c.opt_ints("output_size")?, scales(c)?) {
        (Some(v), _) if v.len() == 2 => [v[0] as usize, v[1] as usize],
        (None, Some(s)) => [(h as f64 * s[0]).floor() as usize, (w as f64 * s[1]).floor() as usize],
        _ => return Err(c.err("expected an output size or scale factors")),
    };
    let src = x.to_f64();
    let mut y = ArrayD::zeros(IxDyn(&[n, ch, out[0], out[1]]));
    for i in 0..out[0] {
        for j in 0..out[1] {
            let mut place = y.slice_mut(s![.., .., i, j]);
            for (a, p) in taps(0, i, h, out[0]) {
                for (b, q) in taps(1, j, w, out[1]) {
                    if p * q != 0.0 {
                        place.scaled_add(p * q, &src.slice(s![.., .., a, b]));
                    }
                }
            }
        }
    }
    Ok(Value::Array(Array::from_f64(c.dtype(), y)))
}
