//! Convolutions and their gradients, summed in f64.
//!
//! A convolution joins places of two grids, a coarse and a fine one, by `fine = coarse·stride + tap·dilation - pad`.
//! It sums over the fine one, a transposed convolution over the coarse one, and the weight's gradient over both.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, IxDyn, s};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.conv1d.default", |c| conv(c, false)),
    ("aten.conv2d.default", |c| conv(c, false)),
    ("aten.conv3d.default", |c| conv(c, false)),
    ("aten.conv_transpose1d.default", |c| conv(c, true)),
    ("aten.conv_transpose2d.input", |c| conv(c, true)),
    ("aten.conv_transpose3d.input", |c| conv(c, true)),
    ("aten.convolution.default", |c| {
        let transposed = c.bool("transposed")?;
        conv(c, transposed)
    }),
    ("aten.convolution_backward.default", backward),
];

/// Parameters over exactly three dimensions; missing ones have size 1.
struct Conv {
    /// How many dimensions there are.
    n: usize,
    stride: [i64; 3],
    pad: [i64; 3],
    dilation: [i64; 3],
    groups: usize,
}

impl Conv {
    fn new(c: &Ctx<'_>, w: &ArrayD<f64>) -> Result<Conv> {
        let n = w.ndim().checked_sub(2).filter(|n| (1..=3).contains(n));
        let n = n.ok_or_else(|| c.err(format!("a weight of shape {:?}", w.shape())))?;
        let sizes = |name: &str, fill| three(c, name, n, fill);
        let groups = usize::try_from(c.int("groups")?).ok().filter(|g| *g > 0 && w.shape()[0].is_multiple_of(*g));
        let groups = groups.ok_or_else(|| c.err(format!("groups of a weight of shape {:?}", w.shape())))?;
        let p =
            Conv { n, stride: sizes("stride", 1)?, pad: sizes("padding", 0)?, dilation: sizes("dilation", 1)?, groups };
        match p.stride.iter().chain(&p.dilation).all(|v| *v > 0) {
            true => Ok(p),
            false => Err(c.err("stride and dilation must be positive")),
        }
    }

    /// The place on the fine grid of size `size` that tap `k` joins to place `o` on the coarse one.
    fn at(&self, d: usize, o: usize, k: usize, size: usize) -> Option<usize> {
        let v = o as i64 * self.stride[d] + k as i64 * self.dilation[d] - self.pad[d];
        usize::try_from(v).ok().filter(|v| *v < size)
    }

    /// Every tap, place on the coarse grid and place on the fine grid that belong together.
    fn joined(
        &self,
        taps: &[usize],
        coarse: &[usize],
        fine: &[usize],
        mut f: impl FnMut([usize; 3], [usize; 3], [usize; 3]),
    ) {
        for (kd, kh, kw) in places(taps) {
            for (d, h) in (0..coarse[0]).flat_map(|d| (0..coarse[1]).map(move |h| (d, h))) {
                let (Some(x), Some(y)) = (self.at(0, d, kd, fine[0]), self.at(1, h, kh, fine[1])) else { continue };
                for w in 0..coarse[2] {
                    if let Some(z) = self.at(2, w, kw, fine[2]) {
                        f([kd, kh, kw], [d, h, w], [x, y, z]);
                    }
                }
            }
        }
    }
}

fn places(n: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let (a, b, c) = (n[0], n[1], n[2]);
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))))
}

/// A list of `n` numbers, or one for all, for three dimensions, the given ones last.
fn three(c: &Ctx<'_>, name: &str, n: usize, fill: i64) -> Result<[i64; 3]> {
    let v = c.ints(name)?;
    let v = if v.len() == 1 { vec![v[0]; n] } else { v };
    if v.len() != n || v.iter().any(|v| v.unsigned_abs() >= 1 << 31) {
        return Err(c.err(format!("argument '{name}': expected {n} numbers, found {v:?}")));
    }
    let mut out = [fill; 3];
    out[3 - n..].copy_from_slice(&v);
    Ok(out)
}

/// Batch, channels and exactly three dimensions.
fn wide(c: &Ctx<'_>, a: &ArrayD<f64>, n: usize) -> Result<ArrayD<f64>> {
    if a.ndim() != n + 2 {
        return Err(c.err(format!("rank {}, expected {}", a.ndim(), n + 2)));
    }
    let mut shape = a.shape()[..2].to_vec();
    shape.extend(vec![1; 3 - n]);
    shape.extend(&a.shape()[2..]);
    a.as_standard_layout().into_owned().into_shape_with_order(IxDyn(&shape)).map_err(|e| c.err(e.to_string()))
}

/// [`wide`] undone.
fn narrow(c: &Ctx<'_>, a: ArrayD<f64>, n: usize) -> Result<ArrayD<f64>> {
    let shape = [&a.shape()[..2], &a.shape()[2 + 3 - n..]].concat();
    a.into_shape_with_order(IxDyn(&shape)).map_err(|e| c.err(e.to_string()))
}

fn conv(c: &Ctx<'_>, transposed: bool) -> Result<Value> {
    let (x, w) = (c.array("input")?.to_f64(), c.array("weight")?.to_f64());
    let p = Conv::new(c, &w)?;
    let batched = x.ndim() == p.n + 2;
    let x = if batched { x } else { x.insert_axis(Axis(0)) };
    let extra = if transposed { three(c, "output_padding", p.n, 0)? } else { [0; 3] };
    let (x, w) = (wide(c, &x, p.n)?, wide(c, &w, p.n)?);
    let size = |i: usize| {
        let (n, reach) = (x.shape()[i + 2] as i64, p.dilation[i] * (w.shape()[i + 2] as i64 - 1));
        let size = match transposed {
            true => (n - 1) * p.stride[i] - 2 * p.pad[i] + reach + extra[i] + 1,
            false => (n + 2 * p.pad[i] - reach - 1).div_euclid(p.stride[i]) + 1,
        };
        size.max(0) as usize
    };
    let to = [size(0), size(1), size(2)];
    let y = if transposed { to_fine(c, &x, &w, &p, to)? } else { to_coarse(c, &x, &w, &p, to)? };
    let mut y = narrow(c, y, p.n)?;
    if let Some(b) = c.opt_array("bias")? {
        let mut lane = vec![1; y.ndim()];
        lane[1] = y.shape()[1];
        y += &b.to_f64().into_shape_with_order(IxDyn(&lane)).map_err(|e| c.err(e.to_string()))?;
    }
    let y = if batched { y } else { y.index_axis_move(Axis(0), 0) };
    Ok(Array::from_f64(c.dtype(), y).into())
}

/// Checks that the weight `[coarse channels, fine channels / groups, …]` joins tensors of these channels.
fn fits(c: &Ctx<'_>, coarse: Option<usize>, fine: Option<usize>, w: &ArrayD<f64>, p: &Conv) -> Result<()> {
    let (a, b) = (w.shape()[0], w.shape()[1] * p.groups);
    match coarse.is_none_or(|n| n == a) && fine.is_none_or(|n| n == b) {
        true => Ok(()),
        false => Err(c.err(format!("a weight of shape {:?} in {} groups does not fit", w.shape(), p.groups))),
    }
}

/// For each place of the coarse grid the sum over its window: `y[n, f, o] = Σ x[n, c, i]·w[f, c, k]`.
fn to_coarse(c: &Ctx<'_>, x: &ArrayD<f64>, w: &ArrayD<f64>, p: &Conv, to: [usize; 3]) -> Result<ArrayD<f64>> {
    fits(c, None, Some(x.shape()[1]), w, p)?;
    let (batch, channels, own) = (x.shape()[0], w.shape()[0], w.shape()[1]);
    let shape = [batch, channels, to[0], to[1], to[2]];
    bounded(c, &shape)?;
    let mut y = ArrayD::zeros(IxDyn(&shape));
    for (n, f) in (0..batch).flat_map(|n| (0..channels).map(move |f| (n, f))) {
        let from = f / (channels / p.groups) * own;
        p.joined(&w.shape()[2..], &to, &x.shape()[2..], |k, o, i| {
            let window = x.slice(s![n, from..from + own, i[0], i[1], i[2]]);
            y[[n, f, o[0], o[1], o[2]]] += window.dot(&w.slice(s![f, .., k[0], k[1], k[2]]));
        });
    }
    Ok(y)
}

/// Each place of the coarse grid added to the window that it reaches: `y[n, c, i] = Σ x[n, f, o]·w[f, c, k]`.
fn to_fine(c: &Ctx<'_>, x: &ArrayD<f64>, w: &ArrayD<f64>, p: &Conv, to: [usize; 3]) -> Result<ArrayD<f64>> {
    fits(c, Some(x.shape()[1]), None, w, p)?;
    let (batch, channels, own) = (x.shape()[0], w.shape()[0], w.shape()[1]);
    let shape = [batch, own * p.groups, to[0], to[1], to[2]];
    bounded(c, &shape)?;
    let mut y = ArrayD::zeros(IxDyn(&shape));
    for (n, f) in (0..batch).flat_map(|n| (0..channels).map(move |f| (n, f))) {
        let from = f / (channels / p.groups) * own;
        p.joined(&w.shape()[2..], &x.shape()[2..], &to, |k, o, i| {
            let mut window = y.slice_mut(s![n, from..from + own, i[0], i[1], i[2]]);
            window.scaled_add(x[[n, f, o[0], o[1], o[2]]], &w.slice(s![f, .., k[0], k[1], k[2]]));
        });
    }
    Ok(y)
}

/// The gradient of the weight: `g[f, c, k] = Σ coarse[n, f, o]·fine[n, c, i]`.
fn to_weight(c: &Ctx<'_>, coarse: &ArrayD<f64>, fine: &ArrayD<f64>, w: &ArrayD<f64>, p: &Conv) -> Result<ArrayD<f64>> {
    fits(c, Some(coarse.shape()[1]), Some(fine.shape()[1]), w, p)?;
    let (channels, own) = (w.shape()[0], w.shape()[1]);
    let mut g = ArrayD::zeros(w.raw_dim());
    for (n, f) in (0..coarse.shape()[0]).flat_map(|n| (0..channels).map(move |f| (n, f))) {
        let from = f / (channels / p.groups) * own;
        p.joined(&w.shape()[2..], &coarse.shape()[2..], &fine.shape()[2..], |k, o, i| {
            let mut lane = g.slice_mut(s![f, .., k[0], k[1], k[2]]);
            lane.scaled_add(coarse[[n, f, o[0], o[1], o[2]]], &fine.slice(s![n, from..from + own, i[0], i[1], i[2]]));
        });
    }
    Ok(g)
}

/// The gradients of input, weight and bias that `output_mask` asks for.
fn backward(c: &Ctx<'_>) -> Result<Value> {
    let (gy, x, w) = (c.array("grad_output")?, c.array("input")?, c.array("weight")?);
    let (w_type, transposed) = (w.dtype, c.bool("transposed")?);
    let w = w.to_f64();
    let p = Conv::new(c, &w)?;
    let (gy, x, w) = (wide(c, &gy.to_f64(), p.n)?, wide(c, &x.to_f64(), p.n)?, wide(c, &w, p.n)?);
    let wanted =
        |i: usize| matches!(c.arg("output_mask"), Ok(Value::List(l)) if matches!(l.get(i), Some(Value::Bool(true))));
    if gy.shape()[0] != x.shape()[0] {
        return Err(c.err(format!("gradients of shape {:?} for {:?}", gy.shape(), x.shape())));
    }
    let to = [x.shape()[2], x.shape()[3], x.shape()[4]];
    let mut out = vec![Value::None; 3];
    if wanted(0) {
        let g = if transposed { to_coarse(c, &gy, &w, &p, to)? } else { to_fine(c, &gy, &w, &p, to)? };
        out[0] = Array::float(c.dtype(), narrow(c, g, p.n)?).into();
    }
    if wanted(1) {
        let (coarse, fine) = if transposed { (&x, &gy) } else { (&gy, &x) };
        out[1] = Array::float(w_type, narrow(c, to_weight(c, coarse, fine, &w, &p)?, p.n)?).into();
    }
    if wanted(2) {
        let places: usize = gy.shape()[2..].iter().product();
        let flat = gy.into_shape_with_order((x.shape()[0], out_channels(&w, &p, transposed), places));
        let sums = flat.map_err(|e| c.err(e.to_string()))?.sum_axis(Axis(2)).sum_axis(Axis(0));
        out[2] = Array::float(w_type, sums.into_dyn()).into();
    }
    Ok(Value::List(out))
}

fn out_channels(w: &ArrayD<f64>, p: &Conv, transposed: bool) -> usize {
    if transposed { w.shape()[1] * p.groups } else { w.shape()[0] }
}
