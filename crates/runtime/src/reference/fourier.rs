//! Fourier transforms by their definition.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, Axis, IxDyn, Slice};
use std::f64::consts::TAU;

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten._fft_r2c.default", complex),
    ("aten._fft_c2r.default", complex),
    ("prims.fft_c2c.default", complex),
    ("prims.fft_r2c.default", complex),
    ("prims.fft_c2r.default", complex),
    ("prims.imag.default", complex),
    ("aten.fft_irfft.default", |c| real(c, 1.0)),
    ("aten.fft_irfft2.default", |c| real(c, 1.0)),
    ("aten.fft_irfftn.default", |c| real(c, 1.0)),
    ("aten.fft_hfft.default", |c| real(c, -1.0)),
    ("aten.fft_hfft2.default", |c| real(c, -1.0)),
    ("aten.fft_hfftn.default", |c| real(c, -1.0)),
];

/// What inference refuses.
fn complex(c: &Ctx<'_>) -> Result<Value> {
    Err(c.err("complex numbers, for which there is no type"))
}

/// Most products that one transform may take.
const MOST: usize = 1 << 31;

/// Real and imaginary parts.
type Complex = [ArrayD<f64>; 2];

/// The axes of a call and the sizes that its result has along them.
fn plan(c: &Ctx<'_>, shape: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let rank = shape.len();
    let sizes = match c.op.schema.index("s") {
        Some(_) => c.opt_ints("s")?,
        None => c.opt_int("n")?.map(|n| vec![n]),
    };
    let axes = match (c.arg("dim")?, &sizes) {
        (Value::None, None) => (0..rank).collect(),
        (Value::None, Some(s)) if s.len() <= rank => (rank - s.len()..rank).collect(),
        _ => c.ints("dim")?.into_iter().map(|d| c.axis(d, rank)).collect::<Result<Vec<_>>>()?,
    };
    let twice = axes.iter().enumerate().any(|(i, a)| axes[..i].contains(a));
    let Some(last) = axes.last().copied().filter(|_| rank > 0 && !twice) else {
        return Err(c.err(format!("a transform along dimensions {axes:?}")));
    };
    let natural = |a: &usize| if *a == last { 2 * shape[last].saturating_sub(1) } else { shape[*a] };
    let mut to: Vec<usize> = axes.iter().map(natural).collect();
    if let Some(s) = sizes {
        if s.len() != to.len() {
            return Err(c.err(format!("sizes {s:?} of {} dimensions", to.len())));
        }
        for (to, n) in to.iter_mut().zip(s).filter(|(_, n)| *n != -1) {
            *to = usize::try_from(n).map_err(|_| c.err(format!("size {n}")))?;
        }
    }
    if to.contains(&0) {
        return Err(c.err(format!("a transform of sizes {to:?}")));
    }
    Ok((axes, to))
}

/// The elements along an axis cut off, or zeros added, so that there are `n`.
fn sized(c: &Ctx<'_>, x: &ArrayD<f64>, axis: usize, n: usize) -> Result<ArrayD<f64>> {
    let mut shape = x.shape().to_vec();
    let kept = shape[axis].min(n);
    shape[axis] = n;
    bounded(c, &shape)?;
    let mut y = ArrayD::zeros(IxDyn(&shape));
    let part = Slice::from(0..kept);
    y.slice_axis_mut(Axis(axis), part).assign(&x.slice_axis(Axis(axis), part));
    Ok(y)
}

fn afford(c: &Ctx<'_>, x: &ArrayD<f64>, n: usize) -> Result<()> {
    let cost = x.len().checked_mul(n).filter(|v| *v <= MOST);
    cost.map(|_| ()).ok_or_else(|| c.err(format!("a transform of {n} by {} elements", x.len())))
}

/// `y[t] = Σ x[k]·exp(sign·2πi·k·t/n)` along an axis.
fn whole(c: &Ctx<'_>, [re, im]: &Complex, axis: usize, sign: f64) -> Result<Complex> {
    let n = re.shape()[axis];
    afford(c, re, n)?;
    let mut y = [ArrayD::zeros(re.raw_dim()), ArrayD::zeros(re.raw_dim())];
    for (t, k) in (0..n).flat_map(|t| (0..n).map(move |k| (t, k))) {
        let (sin, cos) = (sign * TAU * (t * k % n) as f64 / n as f64).sin_cos();
        let (p, q) = (re.index_axis(Axis(axis), k), im.index_axis(Axis(axis), k));
        let mut to = y[0].index_axis_mut(Axis(axis), t);
        to.scaled_add(cos, &p);
        to.scaled_add(-sin, &q);
        let mut to = y[1].index_axis_mut(Axis(axis), t);
        to.scaled_add(cos, &q);
        to.scaled_add(sin, &p);
    }
    Ok(y)
}

/// The `n` real numbers of a symmetric spectrum of which `n / 2 + 1` are given.
fn halved(c: &Ctx<'_>, [re, im]: &Complex, axis: usize, n: usize, sign: f64) -> Result<ArrayD<f64>> {
    afford(c, re, n)?;
    let mut shape = re.shape().to_vec();
    shape[axis] = n;
    bounded(c, &shape)?;
    let mut y = ArrayD::zeros(IxDyn(&shape));
    for (t, k) in (0..n).flat_map(|t| (0..n / 2 + 1).map(move |k| (t, k))) {
        let (sin, cos) = (sign * TAU * (t * k % n) as f64 / n as f64).sin_cos();
        // All but the first, and the middle one of an even number, stand for two.
        let twice = if k == 0 || 2 * k == n { 1.0 } else { 2.0 };
        let mut to = y.index_axis_mut(Axis(axis), t);
        to.scaled_add(twice * cos, &re.index_axis(Axis(axis), k));
        to.scaled_add(-twice * sin, &im.index_axis(Axis(axis), k));
    }
    Ok(y)
}

/// The inverse transform (`sign` 1) or the transform (-1), along the last axis of a half.
fn real(c: &Ctx<'_>, sign: f64) -> Result<Value> {
    let x = c.array("self")?.to_f64();
    let (axes, to) = plan(c, x.shape())?;
    let Some(((last, others), (n, sizes))) = axes.split_last().zip(to.split_last()) else {
        return Err(c.err("a transform along no dimension"));
    };
    let mut x = sized(c, &x, *last, n / 2 + 1)?;
    for (axis, n) in others.iter().zip(sizes) {
        x = sized(c, &x, *axis, *n)?;
    }
    let mut x = [x.clone(), ArrayD::zeros(x.raw_dim())];
    for axis in others {
        x = whole(c, &x, *axis, sign)?;
    }
    let y = halved(c, &x, *last, *n, sign)?;
    let count = to.iter().product::<usize>() as f64;
    let scale = match (c.arg("norm")?, sign > 0.0) {
        (Value::Str(s), _) if s == "ortho" => 1.0 / count.sqrt(),
        (Value::Str(s), inverse) if s == "forward" => {
            if inverse {
                1.0
            } else {
                1.0 / count
            }
        }
        (_, inverse) => {
            if inverse {
                1.0 / count
            } else {
                1.0
            }
        }
    };
    Ok(Array::from_f64(c.dtype(), y * scale).into())
}
