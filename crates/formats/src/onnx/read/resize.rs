//! Resize and its predecessor Upsample.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step, dim_of};
use cleave_ir::{Arg, Dim, Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[("Resize", resize), ("Upsample", upsample)];

/// Where a resize takes its elements from.
struct How<'m> {
    mode: &'m str,
    /// ONNX's coordinate_transformation_mode.
    places: &'m str,
    /// ONNX's nearest_mode.
    rounding: &'m str,
    cubic_a: f64,
    exclude_outside: bool,
    antialias: bool,
    extrapolation: f64,
    /// Where the part to be resized starts and ends in each dimension, in shares of it.
    roi: Vec<(f64, f64)>,
}

impl How<'_> {
    /// What Upsample does, and Resize before operator set 11.
    fn old(mode: &str) -> How<'_> {
        How { mode, places: "asymmetric", rounding: "floor", ..How::plain() }
    }

    fn plain() -> Self {
        let (mode, places, rounding) = ("nearest", "half_pixel", "round_prefer_floor");
        let (cubic_a, extrapolation, roi) = (-0.75, 0.0, vec![]);
        How { mode, places, rounding, cubic_a, exclude_outside: false, antialias: false, extrapolation, roi }
    }
}

/// Factor and result size of each dimension, as the file gives them.
enum To {
    Scales(Vec<f64>),
    Sizes(Vec<Dim>),
}

fn resize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let mode = c.str("mode", "nearest")?;
    if !matches!(mode, "nearest" | "linear" | "cubic") {
        return Err(format!("mode '{mode}' is not known"));
    }
    let axes = c.opt_list("axes")?;
    let mut how = How::old(mode);
    // Before operator set 11 there was one way, and scales came second.
    let (scales, sizes) = if c.opset < 11 {
        (1, None)
    } else {
        how = How {
            mode,
            places: c.str("coordinate_transformation_mode", "half_pixel")?,
            rounding: c.str("nearest_mode", "round_prefer_floor")?,
            cubic_a: c.float("cubic_coeff_a", -0.75)?,
            exclude_outside: c.flag("exclude_outside", false)?,
            antialias: c.flag("antialias", false)?,
            extrapolation: c.float("extrapolation_value", 0.0)?,
            roi: vec![],
        };
        if how.places == "tf_crop_and_resize" {
            let roi = c.constant(1)?.to_f64();
            let (starts, ends) = roi.split_at(roi.len() / 2);
            let pairs = starts.iter().copied().zip(ends.iter().copied()).collect();
            how.roi = spread(pairs, axes.clone(), x.rank(), |_| (0.0, 1.0))?;
        }
        (2, c.opt_dims(3)?)
    };
    let scales = match c.opt(scales) {
        Some(_) => Some(c.constant(scales)?.to_f32().iter().map(|v| super::host::widen(*v)).collect::<Vec<_>>()),
        None => None,
    };
    let mut to = match (scales.filter(|s| !s.is_empty()), sizes.filter(|s| !s.is_empty())) {
        (Some(s), None) => To::Scales(spread(s, axes.clone(), x.rank(), |_| 1.0)?),
        (None, Some(s)) => To::Sizes(spread(s, axes.clone(), x.rank(), |i| dim_of(x, i))?),
        _ => return Err("expected either scales or sizes".into()),
    };
    let policy = c.str("keep_aspect_ratio_policy", "stretch")?;
    let mut kept = None;
    if let (To::Sizes(s), true) = (&to, policy != "stretch") {
        let all: Vec<i64> = axes.unwrap_or((0i64..).take(x.rank()).collect());
        let all = all.into_iter().map(|a| super::node::axis_of(a, x.rank())).collect::<Step<Vec<_>>>()?;
        (to, kept) = in_proportion(s, &x.shape(), &all, policy)?;
    }
    resized(c, x, &how, to, kept)
}

/// The sizes of a resize by one factor for all axes, the least or greatest of those asked for, and that factor.
fn in_proportion(s: &[Dim], shape: &[Dim], axes: &[usize], policy: &str) -> Step<(To, Option<Vec<f64>>)> {
    let number = |d: &Dim| d.as_const().filter(|n| *n > 0).map(|n| n as f64).ok_or("sizes that are not known");
    let mut factor: Option<f64> = None;
    for a in axes {
        let f = number(&s[*a])? / number(&shape[*a])?;
        factor = Some(match (factor, policy) {
            (None, _) => f,
            (Some(g), "not_larger") => g.min(f),
            (Some(g), "not_smaller") => g.max(f),
            _ => return Err(format!("attribute 'keep_aspect_ratio_policy': found '{policy}'")),
        });
    }
    let f = factor.unwrap_or(1.0);
    let mut sizes = shape.to_vec();
    for a in axes {
        sizes[*a] = Dim::from((f * number(&shape[*a])? + 0.5).floor() as i64);
    }
    let factors = (0..shape.len()).map(|i| if axes.contains(&i) { f } else { 1.0 }).collect();
    Ok((To::Sizes(sizes), Some(factors)))
}

fn upsample<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let mode = match c.str("mode", "nearest")? {
        "bilinear" => "linear",
        mode @ ("nearest" | "linear") => mode,
        other => return Err(format!("mode '{other}' is not known")),
    };
    let scales: Vec<f32> = if c.opset < 9 {
        c.opt_floats("scales")?.ok_or("attribute 'scales' is missing")?
    } else {
        c.constant(1)?.to_f32().into_owned()
    };
    let scales = spread(scales.iter().map(|v| super::host::widen(*v)).collect(), None, x.rank(), |_| 1.0)?;
    resized(c, x, &How::old(mode), To::Scales(scales), None)
}

/// Values for all dimensions from those for some.
fn spread<T: Clone>(v: Vec<T>, axes: Option<Vec<i64>>, rank: usize, other: impl Fn(usize) -> T) -> Step<Vec<T>> {
    let Some(axes) = axes else {
        return if v.len() == rank { Ok(v) } else { Err(format!("{} scales for rank {rank}", v.len())) };
    };
    if axes.len() != v.len() {
        return Err(format!("{} scales for {} axes", v.len(), axes.len()));
    }
    let mut all: Vec<T> = (0..rank).map(other).collect();
    for (a, x) in axes.into_iter().zip(v) {
        all[super::node::axis_of(a, rank)?] = x;
    }
    Ok(all)
}

fn resized<'b>(
    c: &Ctx<'b, '_>,
    x: Value<'b>,
    how: &How<'_>,
    to: To,
    factors: Option<Vec<f64>>,
) -> Step<Vec<Known<'b>>> {
    let shape = x.shape();
    let outer_same = match &to {
        To::Scales(s) => s.len() == 4 && s[0] == 1.0 && s[1] == 1.0,
        To::Sizes(s) => s.len() == 4 && s[..2] == shape[..2],
    };
    let plain = outer_same && shape.len() == 4;
    let (sizes, scales) = match &to {
        To::Scales(s) if plain => (Arg::None, Arg::from(s[2..].to_vec())),
        To::Sizes(s) if plain => (Arg::from(s[2..].to_vec()), Arg::None),
        _ => (Arg::None, Arg::None),
    };
    let maps: Option<Vec<Vec<usize>>> =
        if how.mode != "nearest" || how.places == "tf_crop_and_resize" || factors.is_some() {
            None
        } else {
            nearest_maps(&shape, &to, how)?
        };
    let whole = |s: &[f64]| s.iter().all(|v| v.fract() == 0.0 && *v >= 1.0);
    let same_as_torch = match (&to, &maps) {
        _ if !plain => false,
        _ if how.mode != "nearest" || factors.is_some() => false,
        // Torch takes `floor(i · n_in / n_out)`.
        (_, Some(maps)) => {
            maps[2..].iter().zip(&shape[2..]).all(|(m, n)| {
                let n = n.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                m.iter().enumerate().all(|(i, at)| i * n / m.len().max(1) == *at)
            }) && whole_sizes(&to, &shape)
        }
        (To::Scales(s), None) => {
            let usual = matches!((how.places, how.rounding), ("asymmetric", "floor"))
                || matches!((how.places, how.rounding), ("half_pixel" | "pytorch_half_pixel", "round_prefer_floor"));
            whole(s) && usual
        }
        (To::Sizes(_), None) => how.places == "asymmetric" && how.rounding == "floor",
    };
    let bilinear = how.mode == "linear" && !how.antialias && !how.exclude_outside && factors.is_none();
    let single = (2..shape.len()).any(|i| match &to {
        To::Sizes(s) => s[i].is(1),
        To::Scales(s) => shape[i].as_const().is_none_or(|n| (n as f64 * s[i]) < 2.0),
    });
    let align = match how.places {
        "half_pixel" => Some(false),
        "pytorch_half_pixel" if !single => Some(false),
        "align_corners" if whole_sizes(&to, &shape) => Some(true),
        _ => None,
    };
    // A size that is not known leaves only torch's ways.
    let open = shape.iter().any(|d| d.as_const().is_none())
        || matches!(&to, To::Sizes(s) if s.iter().any(|d| d.as_const().is_none()));
    if let (true, Some(align)) = (bilinear && plain, align.or((open && how.places != "asymmetric").then_some(false))) {
        return c.one(c.call("aten.upsample_bilinear2d.vec", vec![x.into(), sizes, align.into(), scales]));
    }
    if same_as_torch {
        return c.one(c.call("aten.upsample_nearest2d.vec", vec![x.into(), sizes, scales]));
    }
    let Some(maps) = maps else { return weighted(c, x, how, &to, factors.as_deref()) };
    // Any other way is a choice of elements in each dimension.
    let mut y = x;
    for (i, (map, n)) in maps.iter().zip(&shape).enumerate() {
        let identity = n.as_const().and_then(|n| usize::try_from(n).ok()).is_some_and(|n| map.iter().copied().eq(0..n));
        if !identity {
            let index: Vec<i64> = map.iter().filter_map(|v| i64::try_from(*v).ok()).collect();
            let host = Host::tensor(&format!("{}.index{i}", c.name), Tensor::new(&[index.len()], index));
            y = c.call("aten.index_select", vec![y.into(), i.into(), c.node_of(&Known::Host(host)).into()]);
        }
    }
    c.one(y)
}

/// Whether the sizes are those asked for, and not rounded from a factor.
fn whole_sizes(to: &To, shape: &[Dim]) -> bool {
    match to {
        To::Sizes(_) => true,
        To::Scales(s) => s.iter().zip(shape).all(|(s, n)| match n.as_const() {
            Some(n) => (n as f64 * s).fract() == 0.0,
            None => s.fract() == 0.0,
        }),
    }
}

/// For each dimension the element that each place of the result takes, if all sizes are known.
fn nearest_maps(shape: &[Dim], to: &To, how: &How<'_>) -> Step<Option<Vec<Vec<usize>>>> {
    let mut maps = vec![];
    for (i, n) in shape.iter().enumerate() {
        let Some(n) = n.as_const().filter(|n| (1..1 << 16).contains(n)).map(|n| n as f64) else { return Ok(None) };
        let (out, scale) = match to {
            To::Scales(s) => ((n * s[i]).floor(), s[i]),
            To::Sizes(s) => match s[i].as_const() {
                Some(o) => (o as f64, o as f64 / n),
                None => return Ok(None),
            },
        };
        if !(out > 0.0 && out < 65_536.0) {
            return Err(format!("result size {out}"));
        }
        let at = |o: f64| -> Option<usize> {
            let place = match how.places {
                "half_pixel" => (o + 0.5) / scale - 0.5,
                "pytorch_half_pixel" if out > 1.0 => (o + 0.5) / scale - 0.5,
                "pytorch_half_pixel" => 0.0,
                "half_pixel_symmetric" => {
                    let offset = n / 2.0 * (1.0 - out / (scale * n));
                    offset + (o + 0.5) / scale - 0.5
                }
                "align_corners" if out > 1.0 => o * (n - 1.0) / (out - 1.0),
                "align_corners" => 0.0,
                "asymmetric" => o / scale,
                _ => return None,
            };
            let place = match how.rounding {
                "floor" => place.floor(),
                "ceil" => place.ceil(),
                "round_prefer_floor" => (place - 0.5).ceil(),
                "round_prefer_ceil" => (place + 0.5).floor(),
                _ => return None,
            };
            Some(place.clamp(0.0, n - 1.0) as usize)
        };
        let map = (0..out as u32).map(|o| at(f64::from(o))).collect::<Option<Vec<_>>>();
        maps.push(map.ok_or_else(|| format!("nearest with '{}' and '{}' is not supported", how.places, how.rounding))?);
    }
    Ok(Some(maps))
}

/// The most numbers in the weights of one dimension.
const MOST_WEIGHTS: f64 = 16_777_216.0;

/// Each dimension as a product with the matrix of weights that its places have.
fn weighted<'b>(
    c: &Ctx<'b, '_>,
    x: Value<'b>,
    how: &How<'_>,
    to: &To,
    factors: Option<&[f64]>,
) -> Step<Vec<Known<'b>>> {
    let shape = x.shape();
    let dtype = x.dtype();
    let mut y = x.to(DType::F32);
    for (i, n) in shape.iter().enumerate() {
        let untouched = match to {
            To::Scales(s) => s[i] == 1.0,
            To::Sizes(s) => s[i] == *n,
        };
        let part = how.roi.get(i).copied();
        if untouched && part.is_none_or(|p| p == (0.0, 1.0)) {
            continue;
        }
        let n = n.as_const().filter(|n| *n > 0).map(|n| n as f64);
        let n =
            n.ok_or_else(|| format!("{} with {} of a size that is not known is not supported", how.mode, how.places))?;
        let (out, scale) = match to {
            To::Scales(s) => ((n * s[i]).floor(), s[i]),
            To::Sizes(s) => {
                let o = s[i].as_const().ok_or("a result size that is not known is not supported")? as f64;
                (o, factors.map_or(o / n, |f| f[i]))
            }
        };
        if !(out > 0.0 && out * n < MOST_WEIGHTS) {
            return Err(format!("from size {n} to {out}"));
        }
        let rows: Vec<(Vec<f64>, bool)> =
            (0..out as u32).map(|o| weights(how, n, out, scale, part, f64::from(o))).collect::<Step<_>>()?;
        let numbers = rows.iter().flat_map(|(w, _)| w.iter().map(|v| *v as f32)).collect();
        let matrix = Tensor::new(&[rows.len(), n as usize], numbers);
        let matrix = c.node_of(&Known::Host(Host::tensor(&format!("{}.weights{i}", c.name), matrix)));
        y = super::signal::along_axis(y, matrix, i);
        if rows.iter().any(|(_, outside)| *outside) {
            let outside = Tensor::from_bools(&[rows.len()], &rows.iter().map(|(_, o)| !*o).collect::<Vec<_>>());
            let inside = c.node_of(&Known::Host(Host::tensor(&format!("{}.inside{i}", c.name), outside)));
            let sizes: Vec<i64> = (0..shape.len()).map(|j| if j == i { -1 } else { 1 }).collect();
            let inside = inside.op("aten.reshape", vec![sizes.into()]);
            y = inside.op("aten.where.ScalarOther", vec![y.into(), how.extrapolation.into()]);
        }
    }
    c.one(if dtype.is_float() { y.to(dtype) } else { y.op("aten.round", vec![]).to(dtype) })
}

/// What each element of a dimension of size `n` weighs at place `o` of the result, and whether that lies outside.
fn weights(how: &How<'_>, n: f64, out: f64, scale: f64, part: Option<(f64, f64)>, o: f64) -> Step<(Vec<f64>, bool)> {
    let width = scale * n;
    let place = match how.places {
        "half_pixel" => (o + 0.5) / scale - 0.5,
        "pytorch_half_pixel" if width == 1.0 => -0.5,
        "pytorch_half_pixel" => (o + 0.5) / scale - 0.5,
        "half_pixel_symmetric" => n / 2.0 * (1.0 - out / width) + (o + 0.5) / scale - 0.5,
        "align_corners" if width == 1.0 => 0.0,
        "align_corners" => o * (n - 1.0) / (width - 1.0),
        "asymmetric" => o / scale,
        "tf_crop_and_resize" => {
            let (start, end) = part.unwrap_or((0.0, 1.0));
            let along = if width == 1.0 {
                (end - start) * (n - 1.0) / 2.0
            } else {
                o * (end - start) * (n - 1.0) / (width - 1.0)
            };
            along + start * (n - 1.0)
        }
        other => return Err(format!("attribute 'coordinate_transformation_mode': found '{other}'")),
    };
    let outside = how.places == "tf_crop_and_resize" && (place < 0.0 || place > n - 1.0);
    let taps = taps(how, place, if how.antialias { scale.min(1.0) } else { 1.0 })?;
    let inside = |at: f64| (0.0..n).contains(&at);
    let mut row = vec![0.0; n as usize];
    for (at, w) in &taps {
        if !how.exclude_outside || inside(*at) {
            row[at.clamp(0.0, n - 1.0) as usize] += w;
        }
    }
    let total: f64 = row.iter().sum();
    if (how.exclude_outside || how.antialias) && total != 0.0 {
        row.iter_mut().for_each(|w| *w /= total);
    }
    Ok((row, outside))
}

/// The elements around a place and what they weigh, under a kernel that is as wide as `scale` is small.
fn taps(how: &How<'_>, place: f64, scale: f64) -> Step<Vec<(f64, f64)>> {
    let a = how.cubic_a;
    let reach = match how.mode {
        "nearest" => {
            let at = match how.rounding {
                "floor" => place.floor(),
                "ceil" => place.ceil(),
                "round_prefer_floor" => (place - 0.5).ceil(),
                "round_prefer_ceil" => (place + 0.5).floor(),
                other => return Err(format!("attribute 'nearest_mode': found '{other}'")),
            };
            return Ok(vec![(at, 1.0)]);
        }
        "linear" => 1.0,
        _ => 2.0,
    };
    let kernel = |d: f64| {
        let d = d.abs();
        match reach {
            1.0 => (1.0 - d).max(0.0),
            _ if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
            _ if d < 2.0 => ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a,
            _ => 0.0,
        }
    };
    let (first, last) = ((place - reach / scale).ceil(), (place + reach / scale).floor());
    let count = (last - first).clamp(0.0, 65_536.0) as u32;
    Ok((0..=count).map(|i| first + f64::from(i)).map(|at| (at, kernel((at - place) * scale))).collect())
}
