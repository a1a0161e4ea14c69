//! Resize and its predecessor Upsample.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step};
use cleave_ir::{Arg, Dim, Tensor, Value};

pub(super) const OPS: &[(&str, Map)] = &[("Resize", resize), ("Upsample", upsample)];

/// Where a resize takes its elements from.
struct How<'m> {
    linear: bool,
    /// ONNX's coordinate_transformation_mode.
    places: &'m str,
    /// ONNX's nearest_mode.
    rounding: &'m str,
}

/// Factor and result size of each dimension, as the file gives them.
enum To {
    Scales(Vec<f64>),
    Sizes(Vec<Dim>),
}

fn resize<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let mode = c.str("mode", "nearest")?;
    // Before operator set 11 there was one way, and scales came second.
    let (how, scales, sizes) = if c.opset < 11 {
        (How { linear: mode != "nearest", places: "asymmetric", rounding: "floor" }, 1, None)
    } else {
        let places = c.str("coordinate_transformation_mode", "half_pixel")?;
        let rounding = c.str("nearest_mode", "round_prefer_floor")?;
        (How { linear: mode != "nearest", places, rounding }, 2, c.opt_dims(3)?)
    };
    if !matches!(mode, "nearest" | "linear") {
        return Err(format!("mode '{mode}' is not supported, expected nearest or linear"));
    }
    if c.flag("antialias", false)? {
        return Err("antialias is not supported".into());
    }
    if c.opt_str("keep_aspect_ratio_policy")?.is_some_and(|p| p != "stretch") {
        return Err("keep_aspect_ratio_policy is not supported".into());
    }
    // These speak of modes that are refused above.
    c.ignore(&["cubic_coeff_a", "exclude_outside", "extrapolation_value"]);
    let scales = match c.host(scales).and_then(Host::as_tensor) {
        Some(t) => Some(t.to_f32().iter().map(|v| super::host::widen(*v)).collect::<Vec<_>>()),
        None if c.opt(scales).is_some() => return Err("scales are not a constant".into()),
        None => None,
    };
    let axes = c.opt_list("axes")?;
    let to = match (scales.filter(|s| !s.is_empty()), sizes.filter(|s| !s.is_empty())) {
        (Some(s), None) => To::Scales(spread(s, axes, x.rank(), |_| 1.0)?),
        (None, Some(s)) => To::Sizes(spread(s, axes, x.rank(), |i| x.shape()[i].clone())?),
        _ => return Err("expected either scales or sizes".into()),
    };
    resized(c, x, &how, to)
}

fn upsample<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let x = c.value(0)?;
    let linear = match c.str("mode", "nearest")? {
        "nearest" => false,
        "linear" => true,
        other => return Err(format!("mode '{other}' is not supported, expected nearest or linear")),
    };
    let scales = c.constant(1)?.to_f32().iter().map(|v| super::host::widen(*v)).collect();
    let scales = spread(scales, None, x.rank(), |_| 1.0)?;
    resized(c, x, &How { linear, places: "asymmetric", rounding: "floor" }, To::Scales(scales))
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

fn resized<'b>(c: &Ctx<'b, '_>, x: Value<'b>, how: &How<'_>, to: To) -> Step<Vec<Known<'b>>> {
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
    let maps: Option<Vec<Vec<usize>>> = if how.linear { None } else { nearest_maps(&shape, &to, how)? };
    let whole = |s: &[f64]| s.iter().all(|v| v.fract() == 0.0 && *v >= 1.0);
    let same_as_torch = match (&to, &maps) {
        _ if !plain => false,
        _ if how.linear => true,
        // Torch takes `floor(i · n_in / n_out)`.
        (_, Some(maps)) => maps[2..].iter().zip(&shape[2..]).all(|(m, n)| {
            let n = n.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            m.iter().enumerate().all(|(i, at)| i * n / m.len().max(1) == *at)
        }),
        (To::Scales(s), None) => {
            let usual = matches!((how.places, how.rounding), ("asymmetric", "floor"))
                || matches!((how.places, how.rounding), ("half_pixel" | "pytorch_half_pixel", "round_prefer_floor"));
            whole(s) && usual
        }
        (To::Sizes(_), None) => how.places == "asymmetric" && how.rounding == "floor",
    };
    if how.linear && plain {
        let align = match how.places {
            "half_pixel" | "pytorch_half_pixel" | "half_pixel_symmetric" => false,
            "align_corners" => true,
            other => return Err(format!("linear with coordinate_transformation_mode '{other}' is not supported")),
        };
        return c.one(c.call("aten.upsample_bilinear2d.vec", vec![x.into(), sizes, align.into(), scales]));
    }
    if same_as_torch {
        return c.one(c.call("aten.upsample_nearest2d.vec", vec![x.into(), sizes, scales]));
    }
    let Some(maps) = maps else {
        return Err(format!(
            "{} of rank {} with {} is not supported",
            if how.linear { "linear" } else { "nearest" },
            shape.len(),
            how.places
        ));
    };
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
