//! Elements in another order, repeated, and in windows.

use super::infer::{ensure, same, window};
use super::promote::Kind;
use super::view::{axis_or_fail, contiguous, reshape};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Levels, OpDef};
use crate::strides;
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };

/// The name of the layout in which torch makes what takes after a value.
fn layout(x: Value<'_>) -> &'static str {
    if !strides::is_channels_last(&x.shape(), &x.strides()) {
        "contiguous_format"
    } else if x.rank() == 4 {
        "channels_last"
    } else {
        "channels_last_3d"
    }
}

/// The last three dimensions, channels and space, of a tensor that has them, and a factor that is positive.
fn image<'b>(c: &Call<'b>, factor: &str) -> Option<(Value<'b>, Vec<Dim>, [Dim; 3], i64)> {
    let (x, r) = (c.tensor("self"), c.int(factor));
    match x.shape().as_slice() {
        [lead @ .., channels, h, w] if (1..1 << 15).contains(&r) => {
            Some((x, lead.to_vec(), [channels.clone(), h.clone(), w.clone()], r))
        }
        shape => {
            c.fail(&format!("{shape:?} by a factor of {r}"));
            None
        }
    }
}

/// Space into parts, dimensions in another order, parts joined.
fn shuffled<'b>(x: Value<'b>, lead: &[Dim], parts: [Dim; 5], order: [i64; 5], joined: [Dim; 3]) -> Vec<Value<'b>> {
    let n = lead.len() as i64;
    let order = (0..n).chain(order.map(|d| n + d)).collect();
    let split = x.view([lead, &parts[..]].concat()).permute(order);
    vec![reshape(split, [lead, &joined[..]].concat()).op("aten.clone", vec![layout(x).into()])]
}

/// Channels to space: `[…, C·r², H, W]` to `[…, C, H·r, W·r]`.
pub static PIXEL_SHUFFLE: OpDef = OpDef {
    name: "aten.pixel_shuffle.default",
    schema: "(Tensor self, int upscale_factor) -> Tensor",
    rule: Some(|c| {
        let Some((x, lead, [channels, h, w], r)) = image(c, "upscale_factor") else { return vec![] };
        let (r, channels) = (Dim::from(r), channels.floor_div(&Dim::from(r * r)));
        let joined = [channels.clone(), h.clone() * r.clone(), w.clone() * r.clone()];
        shuffled(x, &lead, [channels, r.clone(), r, h, w], [0, 3, 1, 4, 2], joined)
    }),
    example: "f32[1, 4, 2, 3], 2 | f32[4, 2, 1], 2",
    raisable: true,
    ..BASE
};

/// Space to channels: `[…, C, H·r, W·r]` to `[…, C·r², H, W]`.
pub static PIXEL_UNSHUFFLE: OpDef = OpDef {
    name: "aten.pixel_unshuffle.default",
    schema: "(Tensor self, int downscale_factor) -> Tensor",
    rule: Some(|c| {
        let Some((x, lead, [channels, h, w], r)) = image(c, "downscale_factor") else { return vec![] };
        let more = channels.clone() * Dim::from(r * r);
        let r = Dim::from(r);
        let (h, w) = (h.floor_div(&r), w.floor_div(&r));
        shuffled(x, &lead, [channels, h.clone(), r.clone(), w.clone(), r], [0, 2, 4, 1, 3], [more, h, w])
    }),
    example: "f32[1, 2, 2, 4], 2",
    raisable: true,
    ..BASE
};

/// Channels by groups and places in the group to channels by places and groups.
pub static CHANNEL_SHUFFLE: OpDef = OpDef {
    name: "aten.channel_shuffle.default",
    schema: "(Tensor self, SymInt groups) -> Tensor",
    infer: Some(same),
    rule: Some(|c| {
        let (x, groups) = (c.tensor("self"), c.dim("groups"));
        let shape = x.shape();
        let [n, channels, space @ ..] = shape.as_slice() else {
            c.fail(&format!("{shape:?}, which has no channels"));
            return vec![x];
        };
        if space.is_empty() || groups.as_const().is_some_and(|g| g < 1) || !divides(channels, &groups) {
            c.fail(&format!("{shape:?} in {groups} groups"));
            return vec![x];
        }
        if shape.iter().any(|d| d.is(0)) {
            return vec![x.view(shape)];
        }
        let split = [&[n.clone(), groups.clone(), channels.floor_div(&groups)], space].concat();
        let turned = reshape(x, split).op("aten.transpose.int", vec![1i64.into(), 2i64.into()]);
        vec![contiguous(reshape(turned, shape))]
    }),
    example: "f32[1, 4, 2], 2",
    raisable: true,
    ..BASE
};

fn divides(n: &Dim, by: &Dim) -> bool {
    n.as_const().zip(by.as_const()).is_none_or(|(n, by)| by != 0 && n % by == 0)
}

/// [`CHANNEL_SHUFFLE`].
pub static NATIVE_CHANNEL_SHUFFLE: OpDef = OpDef { name: "aten.native_channel_shuffle.default", raisable: false, ..CHANNEL_SHUFFLE };

/// Dimensions turned around.
pub static FLIP: OpDef = OpDef {
    name: "aten.flip.default",
    schema: "(Tensor self, int[] dims) -> Tensor",
    levels: Levels::ALL,
    infer: Some(same),
    ..BASE
};

/// Columns turned around.
pub static FLIPLR: OpDef = OpDef {
    name: "aten.fliplr.default",
    schema: "(Tensor self) -> Tensor",
    infer: Some(same),
    rule: Some(|c| vec![c.tensor("self").op("aten.flip", vec![vec![1i64].into()])]),
    example: "f32[2, 3]",
    ..BASE
};

/// Rows turned around.
pub static FLIPUD: OpDef = OpDef {
    name: "aten.flipud.default",
    schema: "(Tensor self) -> Tensor",
    infer: Some(same),
    rule: Some(|c| vec![c.tensor("self").op("aten.flip", vec![vec![0i64].into()])]),
    example: "f32[2, 3]",
    ..BASE
};

/// Quarter turns in the plane of two dimensions, from the first to the second.
pub static ROT90: OpDef = OpDef {
    name: "aten.rot90.default",
    schema: "(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor",
    rule: Some(|c| {
        let (x, dims) = (c.tensor("self"), c.ints("dims"));
        let axes: Vec<i64> = dims.iter().filter_map(|d| c.wrap(*d, x.rank()).ok()).map(|d| d as i64).collect();
        let &[a, b] = axes.as_slice() else {
            c.fail(&format!("dimensions {dims:?} of {}", x.rank()));
            return vec![x];
        };
        if a == b {
            c.fail(&format!("dimensions {dims:?}, which are one"));
        }
        let flip = |dims: &[i64]| x.op("aten.flip", vec![dims.to_vec().into()]);
        let turn = |y: Value<'_>| c.b.call("aten.transpose.int", vec![y.into(), a.into(), b.into()]);
        vec![match c.int("k").rem_euclid(4) {
            1 => turn(flip(&[b])),
            2 => flip(&[a, b]),
            3 => turn(flip(&[a])),
            _ => x.op("aten.clone", vec!["contiguous_format".into()]),
        }]
    }),
    example: "f32[2, 3] | f32[2, 3], 2 | f32[2, 3], -1, [1, 0] | f32[2, 3], 0",
    ..BASE
};

/// Elements pushed along dimensions, those that leave come in at the other end.
pub static ROLL: OpDef = OpDef {
    name: "aten.roll.default",
    schema: "(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor",
    infer: Some(same),
    rule: Some(|c| {
        let (mut x, shifts, dims) = (c.tensor("self"), c.dims("shifts"), c.ints("dims"));
        let shape = x.shape();
        if shape.iter().any(|d| d.is(0)) {
            return vec![x.op("aten.clone", vec![])];
        }
        if let ([shift], []) = (shifts.as_slice(), dims.as_slice()) {
            let flat = x.op("aten.flatten.using_ints", vec![]);
            let shifts = vec![shift.clone()];
            return vec![flat.op("aten.roll", vec![shifts.into(), vec![0i64].into()]).view(shape)];
        }
        if shifts.len() != dims.len() || shifts.is_empty() {
            c.fail(&format!("shifts {shifts:?} along dimensions {dims:?}"));
            return vec![x];
        }
        for (shift, dim) in shifts.into_iter().zip(dims) {
            let size = c.wrap(dim, shape.len()).map_err(|e| c.b.fail(e)).ok().and_then(|axis| shape.get(axis));
            let Some(n) = size else {
                c.fail("a tensor without dimensions");
                return vec![x];
            };
            let start = match (n.as_const(), shift.as_const()) {
                (Some(n), Some(shift)) => (n - shift.rem_euclid(n)).rem_euclid(n).into(),
                _ => (n.clone() - shift).modulo(n),
            };
            let places = c.b.call("aten.arange", vec![n.clone().into()]).op("aten.add.Tensor", vec![start.into()]);
            let places = places.op("aten.fmod.Scalar", vec![n.clone().into()]);
            x = x.op("aten.index_select", vec![dim.into(), places.into()]);
        }
        vec![x]
    }),
    example: "f32[2, 3], 1 | f32[2, 3], [1, -2], [0, 1]",
    raisable: true,
    ..BASE
};

/// [`ROLL`] by a share of each size.
fn shifted<'b>(c: &Call<'b>, share: fn(Dim) -> Dim) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let shape = x.shape();
    let dims = c.opt_ints("dim").unwrap_or((0..shape.len() as i64).collect());
    let size =
        |d: &i64| c.wrap(*d, shape.len()).map_err(|e| c.b.fail(e)).ok().and_then(|axis| shape.get(axis)).cloned();
    let shifts: Option<Vec<Dim>> = dims.iter().map(|d| size(d).map(share)).collect();
    let Some(shifts) = shifts else {
        c.fail("a tensor without dimensions");
        return vec![x];
    };
    vec![x.op("aten.roll", vec![shifts.into(), dims.into()])]
}

/// The zero frequency moved to the middle.
pub static FFTSHIFT: OpDef = OpDef {
    name: "aten.fft_fftshift.default",
    schema: "(Tensor self, int[1]? dim=None) -> Tensor",
    infer: Some(same),
    rule: Some(|c| shifted(c, |n| n.floor_div(&Dim::from(2i64)))),
    example: "f32[2, 3] | f32[2, 3], [1]",
    ..BASE
};

/// The zero frequency moved from the middle to the start.
pub static IFFTSHIFT: OpDef = OpDef {
    name: "aten.fft_ifftshift.default",
    rule: Some(|c| shifted(c, |n| (n + Dim::from(1i64)).floor_div(&Dim::from(2i64)))),
    ..FFTSHIFT
};

/// A tensor repeated along its dimensions, and along new ones before them.
pub static REPEAT: OpDef = OpDef {
    name: "aten.repeat.default",
    schema: "(Tensor self, SymInt[] repeats) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(|c| {
        let (m, repeats) = (c.meta("self")?, c.dims("repeats"));
        let lead = repeats.len().checked_sub(m.shape.len());
        let lead = lead.ok_or_else(|| c.err(&format!("{} repeats of {:?}", repeats.len(), m.shape)))?;
        let size = |(i, r): (usize, &Dim)| match i.checked_sub(lead) {
            Some(j) => m.shape[j].clone() * r.clone(),
            None => r.clone(),
        };
        Ok(Meta::tensor(m.dtype, repeats.iter().enumerate().map(size).collect()))
    }),
    rule: Some(|c| {
        let (x, repeats) = (c.tensor("self"), c.dims("repeats"));
        let Some(lead) = repeats.len().checked_sub(x.rank()) else {
            c.fail(&format!("{} repeats of {:?}", repeats.len(), x.shape()));
            return vec![x];
        };
        let own = [vec![Dim::from(1i64); lead], x.shape()].concat();
        let one = Dim::from(1i64);
        let narrow: Vec<Dim> = own.iter().flat_map(|n| [one.clone(), n.clone()]).collect();
        let wide: Vec<Dim> = own.iter().zip(&repeats).flat_map(|(n, r)| [r.clone(), n.clone()]).collect();
        let joined: Vec<Dim> = own.into_iter().zip(repeats).map(|(n, r)| n * r).collect();
        let spread = reshape(x, narrow).op("aten.expand", vec![wide.into()]);
        vec![spread.op("aten.clone", vec!["contiguous_format".into()]).view(joined)]
    }),
    example: "f32[2, 3], [2, 1, 2]",
    ..BASE
};

/// [`REPEAT`] where fewer numbers than dimensions stand for the last ones.
pub static TILE: OpDef = OpDef {
    name: "aten.tile.default",
    schema: "(Tensor self, SymInt[] dims) -> Tensor",
    rule: Some(|c| {
        let (x, dims) = (c.tensor("self"), c.dims("dims"));
        let ones = vec![Dim::from(1i64); x.rank().saturating_sub(dims.len())];
        vec![x.op("aten.repeat", vec![[ones, dims].concat().into()])]
    }),
    example: "f32[2, 3], [2] | f32[2], [2, 2]",
    ..BASE
};

/// Each element along a dimension repeated; without a dimension, each element of the flat tensor.
pub static REPEAT_INTERLEAVE: OpDef = OpDef {
    name: "aten.repeat_interleave.self_int",
    schema: "(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
    rule: Some(|c| {
        let Some((x, axis)) = flat_or_along(c) else { return vec![] };
        let mut shape = x.shape();
        shape.insert(axis + 1, c.dim("repeats"));
        let wide = x.op("aten.unsqueeze", vec![(axis + 1).into()]).op("aten.expand", vec![shape.into()]);
        let copies = wide.op("aten.clone", vec!["contiguous_format".into()]);
        vec![copies.op("aten.flatten.using_ints", vec![axis.into(), (axis + 1).into()])]
    }),
    example: "f32[2, 3], 2 | f32[2, 3], 2, -1",
    ..BASE
};

/// The tensor and the number of the dimension `dim`; the flat tensor and 0 if none is given.
fn flat_or_along<'b>(c: &Call<'b>) -> Option<(Value<'b>, usize)> {
    let x = c.tensor("self");
    match c.arg("dim") {
        Arg::None => Some((x.op("aten.flatten.using_ints", vec![]), 0)),
        _ if x.rank() == 0 => {
            c.fail("a tensor without dimensions");
            None
        }
        _ => axis_or_fail(c, "dim", x.rank()).map(|axis| (x, axis)),
    }
}

/// The number of each element of `repeats`, as often as that says.
pub static REPEAT_INTERLEAVE_TENSOR: OpDef = OpDef {
    name: "aten.repeat_interleave.Tensor",
    schema: "(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| {
        let m = c.meta("repeats")?;
        ensure(c, m.shape.len() == 1 && m.dtype.is_int(), || format!("repeats {}{:?}", m.dtype, m.shape))?;
        let size = if *c.arg("output_size") == Arg::None { Dim::unknown(0) } else { c.dim("output_size") };
        Ok(Meta::tensor(m.dtype, vec![size]))
    }),
    ..BASE
};

/// Each element along a dimension repeated by a number of its own.
pub static REPEAT_INTERLEAVE_SELF_TENSOR: OpDef = OpDef {
    name: "aten.repeat_interleave.self_Tensor",
    schema: "(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor",
    rule: Some(|c| {
        let Some((x, axis)) = flat_or_along(c) else { return vec![] };
        let mut repeats = c.tensor("repeats");
        if repeats.shape().iter().all(|d| d.is(1)) && repeats.rank() < 2 {
            let n = vec![x.shape()[axis].clone()];
            repeats = reshape(repeats, vec![Dim::from(1i64)]).op("aten.expand", vec![n.into()]);
        }
        let places = repeats.op("aten.repeat_interleave.Tensor", vec![c.arg("output_size").clone()]);
        vec![x.op("aten.index_select", vec![axis.into(), places.into()])]
    }),
    example: "f32[2, 3], i64[3], 1 | f32[3], i64[1]",
    ..BASE
};

/// Two numbers of a parameter, all at least as great as this.
fn pair(c: &Call<'_>, name: &str, least: i64) -> Option<[i64; 2]> {
    match c.ints(name).as_slice() {
        &[a, b] if a.min(b) >= least && a.max(b) < 1 << 31 => Some([a, b]),
        other => {
            c.fail(&format!("argument '{name}': expected two numbers of at least {least}, found {other:?}"));
            None
        }
    }
}

/// The geometry of windows over two dimensions: kernel, dilation, padding, stride.
fn windows(c: &Call<'_>) -> Option<[[i64; 2]; 4]> {
    Some([pair(c, "kernel_size", 1)?, pair(c, "dilation", 1)?, pair(c, "padding", 0)?, pair(c, "stride", 1)?])
}

/// Places in the padded dimension `i`, by kernel element and window.
fn window_places<'b>(c: &Call<'b>, n: &Dim, geometry: &[[i64; 2]; 4], i: usize) -> Value<'b> {
    let [kernel, dilation, padding, stride] = geometry.map(|g| g[i]);
    let end = n.clone() + (2 * padding - dilation * (kernel - 1)).into();
    let range = |end: Dim, step: i64| {
        c.b.call("aten.arange.start_step", vec![0i64.into(), end.into(), step.into(), DType::I64.into()])
    };
    let starts = range(end, stride).op("aten.unsqueeze", vec![0i64.into()]);
    starts + range((kernel * dilation).into(), dilation).op("aten.unsqueeze", vec![(-1i64).into()])
}

fn with_batch(x: Value<'_>, rank: usize) -> Value<'_> {
    if x.rank() == rank { x } else { x.op("aten.unsqueeze", vec![0i64.into()]) }
}

fn without_batch(x: Value<'_>, batched: bool) -> Value<'_> {
    if batched { x } else { x.op("aten.squeeze.dim", vec![0i64.into()]) }
}

/// Windows over two dimensions as columns: `[N, C·kh·kw, windows]`.
pub static IM2COL: OpDef = OpDef {
    name: "aten.im2col.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
    rule: Some(|c| {
        let (image, Some(geometry)) = (c.tensor("self"), windows(c)) else { return vec![] };
        let [kernel, dilation, padding, stride] = geometry;
        let x = with_batch(image, 4);
        let shape = x.shape();
        let [n, channels, h, w] = shape.as_slice() else {
            c.fail(&format!("{:?}, expected an image", image.shape()));
            return vec![image];
        };
        let count = |n: &Dim, i: usize| window(n, 2 * padding[i], kernel[i], stride[i], dilation[i]);
        let (rows, columns) = (count(h, 0), count(w, 1));
        if [&rows, &columns].iter().any(|n| n.as_const().is_some_and(|n| n < 1)) {
            c.fail(&format!("windows of {kernel:?} do not fit into {shape:?}"));
            return vec![image];
        }
        let [at_rows, at_columns] = [(h, 0), (w, 1)].map(|(n, i)| window_places(c, n, &geometry, i));
        let pad = vec![padding[1], padding[1], padding[0], padding[0]];
        let padded = x.op("aten.constant_pad_nd", vec![pad.into(), 0.0.into()]);
        let at_rows = at_rows.op("aten.unsqueeze", vec![(-1i64).into()]).op("aten.unsqueeze", vec![(-1i64).into()]);
        let index = vec![Arg::None, Arg::None, at_rows.into(), at_columns.into()];
        let picked = padded.op("aten.index.Tensor", vec![Arg::List(index)]).permute(vec![0, 1, 2, 4, 3, 5]);
        let depth = channels.clone() * Dim::from(kernel[0] * kernel[1]);
        vec![without_batch(reshape(picked, vec![n.clone(), depth, rows * columns]), image.rank() == 4)]
    }),
    example: "f32[1, 2, 3, 4], [2, 2], [1, 1], [0, 1], [1, 2] | f32[1, 4, 4], [2, 1], [2, 1], [0, 0], [1, 1]",
    ..BASE
};

/// Sums of the columns of [`IM2COL`] where they came from.
pub static COL2IM: OpDef = OpDef {
    name: "aten.col2im.default",
    schema: "(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
    rule: Some(|c| {
        let (columns, Some(geometry)) = (c.tensor("self"), windows(c)) else { return vec![] };
        let [kernel, dilation, padding, stride] = geometry;
        let x = with_batch(columns.to(Kind::Default.of(columns.dtype()).compute), 3);
        let (shape, size) = (x.shape(), c.dims("output_size"));
        let ([n, depth, _], [h, w]) = (shape.as_slice(), size.as_slice()) else {
            c.fail(&format!("{:?} to {size:?}, expected columns and two sizes", columns.shape()));
            return vec![columns];
        };
        let count = |n: &Dim, i: usize| window(n, 2 * padding[i], kernel[i], stride[i], dilation[i]);
        let channels = depth.floor_div(&Dim::from(kernel[0] * kernel[1]));
        let parts = vec![n.clone(), channels.clone(), kernel[0].into(), kernel[1].into(), count(h, 0), count(w, 1)];
        let x = reshape(x, parts).permute(vec![0, 1, 2, 4, 3, 5]);
        let [at_rows, at_columns] = [(h, 0), (w, 1)].map(|(n, i)| window_places(c, n, &geometry, i));
        let at_rows = at_rows.op("aten.unsqueeze", vec![(-1i64).into()]).op("aten.unsqueeze", vec![(-1i64).into()]);
        let whole = |n: &Dim, i: usize| n.clone() + Dim::from(2 * padding[i]);
        let size = vec![n.clone(), channels, whole(h, 0), whole(w, 1)];
        let zeros = x.op("aten.new_zeros", vec![size.into()]);
        let index = vec![Arg::None, Arg::None, at_rows.into(), at_columns.into()];
        let sums = zeros.op("aten.index_put", vec![Arg::List(index), x.into(), true.into()]);
        let cut = vec![-padding[1], -padding[1], -padding[0], -padding[0]];
        let image = sums.op("aten.constant_pad_nd", vec![cut.into(), 0.0.into()]);
        vec![without_batch(image, columns.rank() == 3).to(columns.dtype())]
    }),
    example: "f32[1, 4, 6], [3, 4], [2, 2], [1, 1], [0, 0], [1, 1] | f32[4, 4], [3, 3], [2, 2], [1, 1], [1, 1], [3, 3]",
    ..BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &PIXEL_SHUFFLE,
    &PIXEL_UNSHUFFLE,
    &CHANNEL_SHUFFLE,
    &NATIVE_CHANNEL_SHUFFLE,
    &FLIP,
    &FLIPLR,
    &FLIPUD,
    &ROT90,
    &ROLL,
    &FFTSHIFT,
    &IFFTSHIFT,
    &REPEAT,
    &TILE,
    &REPEAT_INTERLEAVE,
    &REPEAT_INTERLEAVE_TENSOR,
    &REPEAT_INTERLEAVE_SELF_TENSOR,
    &IM2COL,
    &COL2IM,
]];
