//! Images read at places that a tensor gives.

use super::infer::ensure;
use super::promote::Kind;
use super::resize::{cubic_weights, weighted};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Move,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    schema: "(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
    infer: Some(sampled),
    ..OpDef::BASE
};

/// The image at places in [-1, 1], the first coordinate that of the last dimension. Modes of interpolation: linear,
/// nearest, cubic; of padding: zeros, the border, reflection.
pub static GRID_SAMPLER_2D: OpDef = OpDef {
    name: "aten.grid_sampler_2d.default",
    rule: Some(sample),
    example: "f32[1, 2, 3, 4], f32[1, 2, 2, 2]<1, 0, 0, true | f32[1, 2, 3, 4], f32[1, 2, 2, 2]<1, 0, 2, false \
              | f32[1, 1, 3, 4], f32[1, 2, 2, 2]<1, 1, 1, false | f32[1, 1, 3, 4], f32[1, 2, 2, 2]<1, 2, 0, false",
    ..BASE
};

/// [`GRID_SAMPLER_2D`] over three dimensions, without cubic interpolation.
pub static GRID_SAMPLER_3D: OpDef = OpDef {
    name: "aten.grid_sampler_3d.default",
    rule: Some(sample),
    example: "f32[1, 1, 2, 3, 2], f32[1, 2, 1, 2, 3]<1, 0, 0, true",
    ..BASE
};

/// Either of the two above.
pub static GRID_SAMPLER: OpDef = OpDef {
    name: "aten.grid_sampler.default",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let two = c.tensor("input").rank() == 4;
        vec![c.b.call(if two { "aten.grid_sampler_2d" } else { "aten.grid_sampler_3d" }, c.args.to_vec())]
    }),
    example: "f32[1, 2, 3, 4], f32[1, 2, 2, 2]<1, 0, 0, true | f32[1, 1, 2, 3, 2], f32[1, 2, 1, 2, 3]<1, 0, 1, true",
    ..BASE
};

fn sampled(c: &Call<'_>) -> Result<Meta> {
    let (x, grid) = (c.meta("input")?, c.meta("grid")?);
    let rank = x.shape.len();
    let n = rank.saturating_sub(2);
    let fits = (2..=3).contains(&n)
        && grid.shape.len() == rank
        && grid.shape[n + 1].as_const().is_none_or(|k| k == n as i64)
        && x.shape[0].as_const().zip(grid.shape[0].as_const()).is_none_or(|(a, b)| a == b);
    ensure(c, fits, || format!("{:?} at places of shape {:?}", x.shape, grid.shape))?;
    ensure(c, x.shape[2..].iter().all(|d| !d.is(0)), || format!("an empty image of shape {:?}", x.shape))?;
    Ok(Meta::tensor(x.dtype, [&x.shape[..2], &grid.shape[1..n + 1]].concat()))
}

/// `-1` to `1` as element numbers.
fn unnormalized<'b>(x: Value<'b>, n: &Dim, corners: bool) -> Value<'b> {
    let times = |n: Dim| ((x + 1.0).op("aten.mul.Tensor", vec![n.into()])) * 0.5;
    if corners { times(n.clone() - Dim::from(1i64)) } else { times(n.clone()) - 0.5 }
}

/// Places outside brought inside as the padding mode says.
fn padded<'b>(c: &Call<'b>, x: Value<'b>, n: &Dim) -> Value<'b> {
    let last = n.clone() - Dim::from(1i64);
    let clamped = |x: Value<'b>| x.op("aten.clamp", vec![0i64.into(), last.clone().into()]);
    match c.int("padding_mode") {
        0 => x,
        1 => clamped(x),
        2 => {
            let corners = c.bool("align_corners");
            let (low, span) = if corners { (0.0, last.clone()) } else { (-0.5, n.clone()) };
            if span.is(0) {
                return clamped(x);
            }
            let by = |op: &str, x: Value<'b>| x.op(op, vec![span.clone().into()]);
            let away = (x - low).abs();
            let rest = by("aten.fmod.Scalar", away);
            let turns = by("aten.div.Tensor", away).op("aten.floor", vec![]);
            let even = turns.op("aten.fmod.Scalar", vec![2i64.into()]).op("aten.eq.Scalar", vec![0i64.into()]);
            let back = by("aten.sub.Tensor", rest).op("aten.neg", vec![]);
            clamped(even.op("aten.where.self", vec![rest.into(), back.into()]) + low)
        }
        other => {
            c.fail(&format!("padding mode {other}"));
            x
        }
    }
}

/// The image and what its elements are counted by.
struct Image<'b> {
    x: Value<'b>,
    sizes: Vec<Dim>,
    /// Numbers of batch and channel.
    lead: [Value<'b>; 2],
    /// The shape of a tensor of places, which all channels share.
    shape: Vec<Dim>,
}

impl<'b> Image<'b> {
    /// Elements at these whole places, zero outside, times a weight.
    fn at(&self, places: &[Value<'b>], weight: Option<Value<'b>>) -> Value<'b> {
        let b = self.x.builder();
        let mut inside: Option<Value<'b>> = None;
        for (p, n) in places.iter().zip(&self.sizes) {
            for (op, bound) in [("aten.ge.Scalar", Dim::from(0i64)), ("aten.lt.Scalar", n.clone())] {
                let holds = p.op(op, vec![bound.into()]);
                inside = Some(inside.map_or(holds, |i| i.op("aten.logical_and", vec![holds.into()])));
            }
        }
        let kept = |v: Value<'b>| {
            let kept = match inside {
                Some(inside) => inside.op("aten.where.ScalarOther", vec![v.into(), 0i64.into()]),
                None => v,
            };
            kept.view(self.shape.clone())
        };
        let mut indices: Vec<Arg> = self.lead.iter().map(|l| Arg::from(*l)).collect();
        indices.extend(places.iter().map(|p| Arg::from(kept(p.to(DType::I64)))));
        let picked = b.call("aten.index.Tensor", vec![self.x.into(), Arg::List(indices)]);
        let one = || b.call("aten.full_like", vec![places[0].into(), 1i64.into()]);
        picked * kept(weight.unwrap_or_else(one))
    }
}

fn sample<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let input = c.tensor("input");
    if let Err(e) = sampled(c) {
        c.b.fail(e);
        return vec![input];
    }
    let types = Kind::Default.of(input.dtype());
    let (x, grid) = (input.to(types.compute), c.tensor("grid").to(types.compute));
    let (shape, out) = (x.shape(), grid.shape());
    let n = shape.len() - 2;
    let number = |axis: usize| {
        let mut column = vec![Dim::from(1i64); n + 2];
        column[axis] = shape[axis].clone();
        c.b.call("aten.arange.default", vec![shape[axis].clone().into()]).view(column)
    };
    let places = [&out[..1], &[Dim::from(1i64)], &out[1..n + 1]].concat();
    let image = Image { x, sizes: shape[2..].to_vec(), lead: [number(0), number(1)], shape: places };
    let at = |i: usize| {
        let at = grid.op("aten.select.int", vec![(-1i64).into(), (n - 1 - i).into()]);
        unnormalized(at, &image.sizes[i], c.bool("align_corners"))
    };
    let raw: Vec<Value<'b>> = (0..n).map(at).collect();
    let brought = |at: &[Value<'b>]| -> Vec<Value<'b>> {
        at.iter().zip(&image.sizes).map(|(p, size)| padded(c, *p, size)).collect()
    };
    let y = match c.int("interpolation_mode") {
        0 => linear(&image, &brought(&raw)),
        1 => {
            let whole: Vec<_> = brought(&raw).into_iter().map(|p| p.op("aten.round", vec![])).collect();
            image.at(&whole, None)
        }
        2 if n == 2 => {
            let low: Vec<_> = raw.iter().map(|p| p.op("aten.floor", vec![])).collect();
            let weights = |i: usize| cubic_weights((raw[i] - low[i]).view(image.shape.clone()));
            let (down, across) = (weights(0), weights(1));
            let row = |dy: f64| {
                weighted([-1.0, 0.0, 1.0, 2.0].map(|dx| image.at(&brought(&[low[0] + dy, low[1] + dx]), None)), &across)
            };
            weighted([-1.0, 0.0, 1.0, 2.0].map(row), &down)
        }
        other => {
            c.fail(&format!("interpolation mode {other} over {n} dimensions"));
            x
        }
    };
    vec![y.to(types.result)]
}

/// The weighted sum of the elements around each place.
fn linear<'b>(image: &Image<'b>, at: &[Value<'b>]) -> Value<'b> {
    let sides: Vec<[(Value<'b>, Value<'b>); 2]> = at
        .iter()
        .map(|p| {
            let low = p.op("aten.floor", vec![]);
            let high = low + 1.0;
            [(low, high - *p), (high, *p - low)]
        })
        .collect();
    let corner = |k: usize| {
        let sides = sides.iter().enumerate().map(|(i, s)| s[k >> i & 1]);
        let (places, weights): (Vec<_>, Vec<_>) = sides.unzip();
        image.at(&places, weights.into_iter().reduce(|a, b| a * b))
    };
    (1..1 << at.len()).map(corner).fold(corner(0), |a, b| a + b)
}

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[&GRID_SAMPLER_2D, &GRID_SAMPLER_3D, &GRID_SAMPLER]];
