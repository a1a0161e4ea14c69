//! Images resized: each output element is a weighted sum of input elements, found for each axis apart.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, IxDyn, s};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.upsample_nearest2d.vec", |c| resize(c, |p, o| nearest(p, o as f32 * p.ratio))),
    ("aten._upsample_nearest_exact2d.vec", |c| resize(c, |p, o| nearest(p, (o as f32 + 0.5) * p.ratio))),
    ("aten.upsample_bilinear2d.vec", |c| resize(c, linear)),
    ("aten.upsample_bicubic2d.vec", |c| resize(c, cubic)),
];

/// One axis: sizes, and how many input elements an output element stands for.
struct Axis {
    n: usize,
    out: usize,
    ratio: f32,
    corners: bool,
}

/// Input elements and their weights.
type Taps = Vec<(usize, f64)>;

fn nearest(p: &Axis, at: f32) -> Taps {
    vec![((at.floor() as usize).min(p.n - 1), 1.0)]
}

/// torch's `area_pixel_compute_source_index` in f32, before it is held inside the image.
fn source(p: &Axis, o: usize) -> f32 {
    if p.corners { o as f32 * p.ratio } else { (o as f32 + 0.5) * p.ratio - 0.5 }
}

fn linear(p: &Axis, o: usize) -> Taps {
    let at = source(p, o).max(0.0);
    let i = (at as usize).min(p.n - 1);
    let w = f64::from((at - i as f32).clamp(0.0, 1.0));
    vec![(i, 1.0 - w), ((i + 1).min(p.n - 1), w)]
}

/// Keys' cubic convolution with a = -0.75.
fn cubic(p: &Axis, o: usize) -> Taps {
    const A: f64 = -0.75;
    let at = source(p, o);
    let t = f64::from(at - at.floor());
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let place = |k: i64| (at.floor() as i64).saturating_add(k).clamp(0, p.n as i64 - 1) as usize;
    vec![(place(-1), far(t + 1.0)), (place(0), near(t)), (place(1), near(1.0 - t)), (place(2), far(2.0 - t))]
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

fn axes(c: &Ctx<'_>, from: [usize; 2]) -> Result<[Axis; 2]> {
    let corners = c.op.schema.index("align_corners").is_some() && c.bool("align_corners")?;
    let scales = scales(c)?;
    let given = if matches!(c.arg("output_size")?, Value::None) { None } else { Some(c.sizes("output_size")?) };
    let out = match (given.as_deref(), scales) {
        (Some(&[h, w]), _) => [h, w],
        (None, Some(s)) => [0, 1].map(|i| (from[i] as f64 * s[i]).floor() as usize),
        _ => return Err(c.err("expected an output size or scale factors")),
    };
    let axis = |i: usize| {
        let (n, out) = (from[i], out[i]);
        let ratio = match scales {
            _ if corners => n.saturating_sub(1) as f32 / out.saturating_sub(1).max(1) as f32,
            Some(s) => (1.0 / s[i]) as f32,
            None => n as f32 / out as f32,
        };
        // A single output element with aligned corners is the first one.
        Axis { n, out, ratio: if corners && out <= 1 { 0.0 } else { ratio }, corners }
    };
    Ok([axis(0), axis(1)])
}

fn resize(c: &Ctx<'_>, taps: fn(&Axis, usize) -> Taps) -> Result<Value> {
    let x = c.array("input")?;
    let &[n, channels, h, w] = x.shape() else { return Err(c.err(format!("rank {}, expected 4", x.shape().len()))) };
    let [rows, columns] = axes(c, [h, w])?;
    let shape = [n, channels, rows.out, columns.out];
    if bounded(c, &shape)? > 0 && h * w == 0 {
        return Err(c.err(format!("an empty image of {h} by {w}")));
    }
    let table = |a: &Axis| -> Vec<Taps> { (0..a.out).map(|o| taps(a, o)).collect() };
    let src = x.to_f64();
    let mut y = ArrayD::zeros(IxDyn(&shape));
    if y.is_empty() {
        return Ok(Array::from_f64(c.dtype(), y).into());
    }
    let (rows, columns) = (table(&rows), table(&columns));
    for (i, above) in rows.iter().enumerate() {
        for (j, left) in columns.iter().enumerate() {
            let mut place = y.slice_mut(s![.., .., i, j]);
            for ((a, p), (b, q)) in above.iter().flat_map(|a| left.iter().map(move |b| (a, b))) {
                if p * q != 0.0 {
                    place.scaled_add(p * q, &src.slice(s![.., .., *a, *b]));
                }
            }
        }
    }
    Ok(Array::from_f64(c.dtype(), y).into())
}
