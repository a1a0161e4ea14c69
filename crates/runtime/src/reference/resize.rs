//! Images resized: each output element is a weighted sum of input elements, found for each axis apart.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, Axis, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.upsample_nearest2d.vec", |c| resize(c, nearest)),
    ("aten._upsample_nearest_exact2d.vec", |c| resize(c, exact)),
    ("aten.upsample_bilinear2d.vec", |c| resize(c, linear)),
    ("aten.upsample_bicubic2d.vec", |c| resize(c, cubic)),
    ("aten._upsample_bilinear2d_aa.default", |c| resize(c, smooth_linear)),
    ("aten._upsample_bicubic2d_aa.default", |c| resize(c, smooth_cubic)),
    ("aten.upsample_nearest1d_backward.default", |c| backward(c, nearest)),
    ("aten.upsample_nearest2d_backward.default", |c| backward(c, nearest)),
    ("aten.upsample_nearest3d_backward.default", |c| backward(c, nearest)),
    ("aten._upsample_nearest_exact1d_backward.default", |c| backward(c, exact)),
    ("aten._upsample_nearest_exact2d_backward.default", |c| backward(c, exact)),
    ("aten._upsample_nearest_exact3d_backward.default", |c| backward(c, exact)),
    ("aten.upsample_linear1d_backward.default", |c| backward(c, linear)),
    ("aten.upsample_bilinear2d_backward.default", |c| backward(c, linear)),
    ("aten.upsample_trilinear3d_backward.default", |c| backward(c, linear)),
    ("aten.upsample_bicubic2d_backward.default", |c| backward(c, cubic)),
    ("aten._upsample_bilinear2d_aa_backward.default", |c| backward(c, smooth_linear)),
    ("aten._upsample_bicubic2d_aa_backward.default", |c| backward(c, smooth_cubic)),
];

/// One axis: sizes, and how many input elements an output element stands for.
struct Side {
    n: usize,
    out: usize,
    ratio: f64,
    corners: bool,
    /// Whether torch finds places in f64; else in f32.
    double: bool,
}

impl Side {
    fn round(&self, v: f64) -> f64 {
        if self.double { v } else { f64::from(v as f32) }
    }

    /// Where an output element lies, in input elements from the first one's centre.
    fn source(&self, o: usize) -> f64 {
        let at = if self.corners { o as f64 } else { o as f64 + 0.5 };
        let at = self.round(at * self.ratio);
        if self.corners { at } else { self.round(at - 0.5) }
    }

    fn inside(&self, i: i64) -> usize {
        i.clamp(0, self.n as i64 - 1) as usize
    }
}

/// Input elements and their weights.
type Taps = Vec<(usize, f64)>;

fn nearest(p: &Side, o: usize) -> Taps {
    // torch looks at the sizes alone where they are equal or one is twice the other.
    if p.out == p.n || p.out == 2 * p.n {
        return vec![(o * p.n / p.out, 1.0)];
    }
    vec![(p.inside(p.round(o as f64 * p.ratio).floor() as i64), 1.0)]
}

fn exact(p: &Side, o: usize) -> Taps {
    vec![(p.inside(p.round((o as f64 + 0.5) * p.ratio).floor() as i64), 1.0)]
}

fn linear(p: &Side, o: usize) -> Taps {
    let at = p.source(o).max(0.0);
    let i = p.inside(at as i64);
    let w = (at - i as f64).clamp(0.0, 1.0);
    vec![(i, 1.0 - w), (p.inside(i as i64 + 1), w)]
}

/// Keys' cubic convolution.
fn keys(x: f64, a: f64) -> f64 {
    match x.abs() {
        x if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((x - 5.0) * x + 8.0) * x * a - 4.0 * a,
        _ => 0.0,
    }
}

fn cubic(p: &Side, o: usize) -> Taps {
    let at = p.source(o);
    let i = at.floor();
    let tap = |k: i64| (p.inside((i as i64).saturating_add(k)), keys(at - i - k as f64, -0.75));
    [-1, 0, 1, 2].map(tap).to_vec()
}

fn smooth_linear(p: &Side, o: usize) -> Taps {
    smooth(p, o, 1.0, |x| (1.0 - x.abs()).max(0.0))
}

fn smooth_cubic(p: &Side, o: usize) -> Taps {
    smooth(p, o, 2.0, |x| keys(x, -0.5))
}

/// A kernel that reaches `reach` elements to each side, of the input or, if that is coarser, of the output.
fn smooth(p: &Side, o: usize, reach: f64, kernel: fn(f64) -> f64) -> Taps {
    let wide = p.ratio.max(1.0);
    let centre = p.round(p.ratio * (o as f64 + 0.5));
    let bound = |v: f64| p.round(v + 0.5).clamp(0.0, p.n as f64) as usize;
    let taps = bound(centre - reach * wide)..bound(centre + reach * wide);
    let taps: Taps = taps.map(|i| (i, kernel((i as f64 - centre + 0.5) / wide))).collect();
    let sum: f64 = taps.iter().map(|t| t.1).sum();
    taps.into_iter().map(|(i, w)| (i, if sum == 0.0 { w } else { w / sum })).collect()
}

/// Scales, for each of `n` axes, if they were given.
fn scales(c: &Ctx<'_>, n: usize) -> Result<Vec<Option<f64>>> {
    let number = |v: &Value| match v {
        Value::Float(f) => Ok((*f > 0.0).then_some(*f)),
        Value::Int(i) => Ok((*i > 0).then_some(*i as f64)),
        Value::None => Ok(None),
        _ => Err(c.err("expected scale factors")),
    };
    let singles = c.op.schema.params.iter().filter(|p| p.name.starts_with("scales"));
    let singles = singles.map(|p| number(c.arg(&p.name)?)).collect::<Result<Vec<_>>>()?;
    let found = match c.op.schema.index("scale_factors").map(|_| c.arg("scale_factors")).transpose()? {
        None => singles,
        Some(Value::List(l)) => l.iter().map(number).collect::<Result<_>>()?,
        Some(_) => vec![None; n],
    };
    if found.len() == n { Ok(found) } else { Err(c.err(format!("{} scales of {n} axes", found.len()))) }
}

/// The axes of space, of these sizes.
fn sides(c: &Ctx<'_>, from: &[usize]) -> Result<Vec<Side>> {
    let corners = c.op.schema.index("align_corners").is_some() && c.bool("align_corners")?;
    let scales = scales(c, from.len())?;
    let scaled = || from.iter().zip(&scales).map(|(n, s)| Some((*n as f64 * (*s)?).floor() as usize)).collect();
    let given = if matches!(c.arg("output_size")?, Value::None) { scaled() } else { Some(c.sizes("output_size")?) };
    let out: Vec<usize> = given.ok_or_else(|| c.err("expected an output size or scale factors"))?;
    if out.len() != from.len() {
        return Err(c.err(format!("sizes {out:?} of {} axes", from.len())));
    }
    let side = |i: usize| {
        let (n, out) = (from[i], out[i]);
        let ratio = match scales[i] {
            // A single output element with aligned corners is the first one.
            _ if corners && out <= 1 => 0.0,
            _ if corners => n.saturating_sub(1) as f64 / (out - 1) as f64,
            Some(s) => 1.0 / s,
            None => n as f64 / out as f64,
        };
        let double = c.dtype() == DType::F64;
        Side { n, out, ratio: if double { ratio } else { f64::from(ratio as f32) }, corners, double }
    };
    Ok((0..from.len()).map(side).collect())
}

/// One axis mapped, each place of it given as a sum over the taps; or the other way round.
fn mapped(x: &ArrayD<f64>, axis: usize, taps: &[Taps], to: usize, back: bool) -> ArrayD<f64> {
    let mut shape = x.shape().to_vec();
    shape[axis] = to;
    let mut y = ArrayD::zeros(IxDyn(&shape));
    for (o, (i, w)) in taps.iter().enumerate().flat_map(|(o, t)| t.iter().map(move |t| (o, *t))) {
        let (from, to) = if back { (o, i) } else { (i, o) };
        y.index_axis_mut(Axis(axis), to).scaled_add(w, &x.index_axis(Axis(axis), from));
    }
    y
}

fn table(p: &Side, taps: fn(&Side, usize) -> Taps) -> Vec<Taps> {
    (0..p.out).map(|o| taps(p, o).into_iter().filter(|t| t.1 != 0.0).collect()).collect()
}

fn resize(c: &Ctx<'_>, taps: fn(&Side, usize) -> Taps) -> Result<Value> {
    let x = c.array(c.op.schema.params.first().map_or("input", |p| p.name.as_str()))?;
    let Some(from) = x.shape().get(2..) else { return Err(c.err(format!("rank {}", x.shape().len()))) };
    let sides = sides(c, from)?;
    let shape = [&x.shape()[..2], &sides.iter().map(|s| s.out).collect::<Vec<_>>()].concat();
    if bounded(c, &shape)? > 0 && from.contains(&0) {
        return Err(c.err(format!("an empty image of sizes {from:?}")));
    }
    let mut y = x.to_f64();
    for (i, side) in sides.iter().enumerate().rev() {
        y = mapped(&y, i + 2, &table(side, taps), side.out, false);
    }
    Ok(rounded(&x, y).into())
}

/// The result in the image's type; integers are rounded and held inside.
fn rounded(x: &Array, y: ArrayD<f64>) -> Array {
    match x.dtype {
        d if d.is_float() => Array::float(d, y),
        DType::U8 => Array::from_f64(DType::U8, y.mapv(|v| v.round().clamp(0.0, 255.0))),
        d => Array::from_f64(d, y.mapv(f64::round)),
    }
}

/// Gradient of the image.
fn backward(c: &Ctx<'_>, taps: fn(&Side, usize) -> Taps) -> Result<Value> {
    let (gy, size) = (c.array("grad_output")?.to_f64(), c.sizes("input_size")?);
    let Some(from) = size.get(2..) else { return Err(c.err(format!("an image of sizes {size:?}"))) };
    let sides = sides(c, from)?;
    let shape = [&size[..2], &sides.iter().map(|s| s.out).collect::<Vec<_>>()].concat();
    if gy.shape() != shape || bounded(c, &size)? == 0 {
        return Err(c.err(format!("a gradient of shape {:?}, expected {shape:?}", gy.shape())));
    }
    let mut g = gy;
    for (i, side) in sides.iter().enumerate() {
        g = mapped(&g, i + 2, &table(side, taps), side.n, true);
    }
    Ok(Array::from_f64(c.dtype(), g).into())
}
