//! Elements put around a tensor.

use super::infer::ensure;
use super::promote::Kind;
use super::view::contiguous;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };

fn padded(c: &Call<'_>, name: &str) -> Result<Meta> {
    let mut m = c.meta("self")?;
    let pad = c.dims(name);
    ensure(c, pad.len().is_multiple_of(2) && pad.len() / 2 <= m.shape.len(), || {
        format!("{} pads for {} dimensions", pad.len(), m.shape.len())
    })?;
    for (i, p) in pad.chunks(2).enumerate() {
        let at = m.shape.len() - 1 - i;
        let size = m.shape[at].clone() + p[0].clone() + p[1].clone();
        ensure(c, size.as_const().is_none_or(|n| n >= 0), || format!("pads {p:?} of {}", m.shape[at]))?;
        m.shape[at] = size;
    }
    Ok(Meta::Tensor(m))
}

/// One number put around the last dimensions: pairs (before, after), the last dimension first; negative ones cut.
pub static CONSTANT_PAD: OpDef = OpDef {
    name: "aten.constant_pad_nd.default",
    schema: "(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(|c| padded(c, "pad")),
    rule: Some(|c| {
        let (x, pad) = (c.tensor("self"), c.dims("pad"));
        let Some(lead) = x.rank().checked_sub(pad.len() / 2).filter(|_| pad.len().is_multiple_of(2)) else {
            c.fail(&format!("{} pads for {} dimensions", pad.len(), x.rank()));
            return vec![x];
        };
        let negative = |d: &Dim| d.as_const().is_some_and(|v| v < 0);
        let ends = |dim: usize| {
            let at = 2 * (x.rank() - dim - 1);
            (pad[at].clone(), pad[at + 1].clone())
        };
        let mut y = x;
        for dim in lead..x.rank() {
            let (before, after) = ends(dim);
            let start = if negative(&before) { Dim::from(0i64) - before.clone() } else { Dim::from(0i64) };
            let size = y.shape()[dim].clone();
            let end = if negative(&after) { size.clone() + after } else { size.clone() };
            if !start.is(0) || end != size {
                y = y.op("aten.slice.Tensor", vec![dim.into(), start.into(), end.into()]);
            }
        }
        for dim in lead..x.rank() {
            let (before, after) = ends(dim);
            let filled = |n: &Dim| {
                let mut shape = y.shape();
                shape[dim] = n.clone();
                c.b.call("aten.full", vec![shape.into(), c.arg("value").clone(), x.dtype().into()])
            };
            let put = |n: &Dim| !negative(n) && !n.is(0);
            let parts = [put(&before).then(|| filled(&before)), Some(y), put(&after).then(|| filled(&after))];
            let parts: Vec<_> = parts.into_iter().flatten().collect();
            if parts.len() > 1 {
                y = c.b.call("aten.cat", vec![parts.into(), dim.into()]);
            }
        }
        vec![if y.id() == x.id() { x.op("aten.clone", vec![]) } else { y }]
    }),
    example: "f32[2, 3], [1, 2, -1, 1], 0.5 | f32[3], [-1, -1]",
    ..BASE
};

/// Elements put around: a constant, or by mode `reflect`, `replicate` or `circular`.
pub static PAD: OpDef = OpDef {
    name: "aten.pad.default",
    schema: "(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor",
    rule: Some(|c| by_mode(c, c.str("mode"))),
    example: "f32[2, 3], [1, 2] | f32[1, 3], [1, 2], \"reflect\" | f32[1, 2, 3], [1, 0, 1, 2], \"replicate\" | f32[1, 3], [1, 2], \"circular\"",
    ..BASE
};

/// [`PAD`] with the mode as a number: 0 reflect, 1 replicate, 2 circular, 3 constant.
pub static PAD_ENUM: OpDef = OpDef {
    name: "aten._pad_enum.default",
    schema: "(Tensor self, SymInt[] pad, int mode, float? value=None) -> Tensor",
    rule: Some(|c| {
        let modes = ["reflect", "replicate", "circular", "constant"];
        let mode = usize::try_from(c.int("mode")).ok().and_then(|i| modes.get(i));
        by_mode(c, mode.copied().unwrap_or("of another number"))
    }),
    example: "f32[1, 3], [1, 2], 0",
    ..BASE
};

fn by_mode<'b>(c: &Call<'b>, mode: &str) -> Vec<Value<'b>> {
    let (x, pad) = (c.tensor("self"), c.arg("pad").clone());
    let dims = c.dims("pad").len() / 2;
    if mode == "constant" {
        return vec![x.op("aten.constant_pad_nd", vec![pad, c.opt_float("value").unwrap_or(0.0).into()])];
    }
    let op = match mode {
        "circular" => "aten._pad_circular".to_string(),
        "reflect" => format!("aten.reflection_pad{dims}d"),
        "replicate" => format!("aten.replication_pad{dims}d"),
        other => {
            c.fail(&format!("mode '{other}'"));
            return vec![x];
        }
    };
    if !(1..4).contains(&dims) || !(dims + 1..dims + 3).contains(&x.rank()) || c.dims("pad").len() != 2 * dims {
        c.fail(&format!("mode '{mode}' with {} pads of {} dimensions", c.dims("pad").len(), x.rank()));
        return vec![x];
    }
    vec![x.op(&op, vec![pad])]
}

/// Elements of the other end put around, as if the tensor were repeated.
pub static PAD_CIRCULAR: OpDef = OpDef {
    name: "aten._pad_circular.default",
    schema: "(Tensor self, SymInt[] pad) -> Tensor",
    infer: Some(|c| padded(c, "pad")),
    rule: Some(circular),
    example: "f32[1, 3], [1, 2] | f32[1, 2, 3, 4], [2, 0, -1, 1]",
    ..BASE
};

/// The tensor in the middle of an empty one; then, dimension by dimension, what of the other end stands there is
/// copied before and behind.
fn circular<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, pad) = (c.tensor("self"), c.dims("pad"));
    let shape = match padded(c, "pad").map(|m| m.as_tensor().map(|t| t.shape.clone())) {
        Ok(Some(shape)) => shape,
        Ok(None) => return vec![x],
        Err(e) => {
            c.b.fail(e);
            return vec![x];
        }
    };
    let zero = Dim::from(0i64);
    let positive = |d: &Dim| d.as_const().map_or(d.clone(), |v| v.max(0).into());
    let cut = |d: &Dim| d.as_const().map_or(zero.clone(), |v| (-v).max(0).into());
    let slice = |x: Value<'b>, (dim, start, end): &(usize, Dim, Dim)| {
        x.op("aten.slice.Tensor", vec![(*dim).into(), start.clone().into(), end.clone().into()])
    };
    let scatter = |x: Value<'b>, src: Value<'b>, (dim, start, end): &(usize, Dim, Dim)| {
        let rest = vec![src.into(), (*dim).into(), start.clone().into(), end.clone().into()];
        x.op("aten.slice_scatter", rest)
    };
    let copy = |to: Value<'b>, from: Value<'b>| to.op("aten.copy", vec![from.into()]);
    let dims: Vec<(usize, Dim, Dim)> =
        pad.chunks(2).enumerate().map(|(i, p)| (x.rank() - 1 - i, p[0].clone(), p[1].clone())).collect();

    let mut out = c.b.call("aten.empty.memory_format", vec![shape.clone().into(), x.dtype().into()]);
    let (mut inner, mut source) = (vec![], x);
    for (dim, before, after) in &dims {
        inner.push((*dim, positive(before), shape[*dim].clone() - positive(after)));
        source = slice(source, &(*dim, cut(before), x.shape()[*dim].clone() - cut(after)));
    }
    let Some((innermost, outer)) = inner.split_last() else { return vec![x] };
    let mut bases = vec![out];
    for range in outer {
        bases.push(slice(bases[bases.len() - 1], range));
    }
    let mut value = copy(slice(bases[bases.len() - 1], innermost), source);
    // What is written back is taken from the whole once more.
    let mut bases = vec![out];
    for range in outer {
        bases.push(slice(bases[bases.len() - 1], range));
    }
    for (range, base) in inner.iter().zip(bases).rev() {
        value = scatter(base, value, range);
    }
    out = value;
    for (dim, before, after) in &dims {
        let (dim, end) = (*dim, shape[*dim].clone());
        for (put, to, from) in [
            (before, zero.clone(), end.clone() - before.clone() - positive(after)),
            (after, end - after.clone(), positive(before)),
        ] {
            if put.as_const().is_some_and(|v| v <= 0) {
                continue;
            }
            let to = (dim, to.clone(), to + put.clone());
            let from = (dim, from.clone(), from + put.clone());
            out = scatter(out, copy(slice(out, &to), slice(out, &from)), &to);
        }
    }
    vec![out]
}

/// Elements picked along the last dimensions: the places for `(before, size, after)` are those that `places` gives.
fn picked<'b>(c: &Call<'b>, places: impl Fn(Value<'b>, &Dim) -> Value<'b>) -> Vec<Value<'b>> {
    let (x, pad) = (c.tensor("self"), c.dims("padding"));
    let dims = pad.len() / 2;
    let shape = x.shape();
    if !(dims + 1..dims + 3).contains(&shape.len()) {
        c.fail(&format!("{} pads of {shape:?}", pad.len()));
        return vec![x];
    }
    let lead = shape.len() - dims;
    let mut y = x.to(Kind::Default.of(x.dtype()).compute);
    for i in 0..dims {
        let at = 2 * (dims - 1 - i);
        let n = &shape[lead + i];
        let start = Dim::from(0i64) - pad[at].clone();
        let range = c.b.call("aten.arange.start", vec![start.into(), (n.clone() + pad[at + 1].clone()).into()]);
        let mut index = vec![Arg::None; shape.len()];
        index[lead + i] = places(range, n).into();
        y = y.op("aten.index.Tensor", vec![Arg::List(index)]);
    }
    vec![contiguous(y).to(x.dtype())]
}

/// `n - 1`.
fn last(n: &Dim) -> Arg {
    (n.clone() - Dim::from(1i64)).into()
}

/// [`picked`] by [`mirrored`], which reaches as far as there are elements.
fn reflected<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (shape, pad) = (c.tensor("self").shape(), c.dims("padding"));
    let reaches = |(i, p): (usize, &Dim)| {
        let n = shape.len().checked_sub(i / 2 + 1).and_then(|at| shape.get(at)).and_then(Dim::as_const);
        p.as_const().zip(n).is_none_or(|(p, n)| p < n)
    };
    if !pad.iter().enumerate().all(reaches) {
        c.fail(&format!("padding of {shape:?} by {pad:?}, expected less than its sizes"));
    }
    picked(c, mirrored)
}

/// Places mirrored at 0 and at the last one: `(n - 1) - |(n - 1) - |i||`.
fn mirrored<'b>(i: Value<'b>, n: &Dim) -> Value<'b> {
    let less = |x: Value<'b>| x.builder().call("aten.sub.Tensor", vec![last(n), x.into()]);
    less(less(i.abs()).abs())
}

fn nearest<'b>(i: Value<'b>, n: &Dim) -> Value<'b> {
    i.op("aten.clamp", vec![0i64.into(), last(n)])
}

macro_rules! pads {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $n:literal, $rule:expr, $example:literal;)*) => {
        $($(#[$doc])* pub static $id: OpDef = OpDef {
            name: $name,
            schema: concat!("(Tensor self, SymInt[", $n, "] padding) -> Tensor"),
            infer: Some(|c| padded(c, "padding")),
            rule: Some($rule),
            example: $example,
            ..BASE
        };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[&CONSTANT_PAD, &PAD, &PAD_ENUM, &PAD_CIRCULAR, $(&$id),*]];
    };
}

pads! {
    /// Elements mirrored at the edges of the last dimension.
    REFLECTION_PAD1D = "aten.reflection_pad1d.default", 2, reflected, "f32[1, 3], [1, 2]";
    /// Elements mirrored at the edges of the last two dimensions.
    REFLECTION_PAD2D = "aten.reflection_pad2d.default", 4, reflected, "f32[1, 3, 4], [1, 2, 0, 2]";
    /// Elements mirrored at the edges of the last three dimensions.
    REFLECTION_PAD3D = "aten.reflection_pad3d.default", 6, reflected, "f32[1, 2, 3, 2], [1, 1, 0, 2, 1, 0]";
    /// Elements at the edges of the last dimension repeated.
    REPLICATION_PAD1D = "aten.replication_pad1d.default", 2, |c| picked(c, nearest), "f32[1, 3], [1, -1]";
    /// Elements at the edges of the last two dimensions repeated.
    REPLICATION_PAD2D = "aten.replication_pad2d.default", 4, |c| picked(c, nearest), "f32[1, 3, 4], [1, 2, 0, 5]";
    /// Elements at the edges of the last three dimensions repeated.
    REPLICATION_PAD3D = "aten.replication_pad3d.default", 6, |c| picked(c, nearest), "f32[1, 2, 3, 2], [1, 1, 0, 2, 1, 0]";
}
