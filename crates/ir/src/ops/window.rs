//! Parts of a tensor: slices, selections, splits, and writing them back.

use super::infer::ensure;
use super::view::axis_or_fail;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::ALL, ..OpDef::BASE };
const SUGAR: OpDef = OpDef { levels: Levels::TORCH, functional: Functional::Always, ..BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);

/// A range of one dimension.
pub static SLICE: OpDef = OpDef {
    name: "aten.slice.Tensor",
    schema: "(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
    infer: Some(slice),
    ..BASE
};

fn slice(c: &Call<'_>) -> Result<Meta> {
    let mut m = c.meta("self")?;
    let axis = c.axis("dim", m.shape.len())?;
    ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
    let step = c.int("step");
    ensure(c, step > 0, || format!("step {step}"))?;
    let n = m.shape[axis].clone();
    let bound = |name: &str, default: Dim| -> Dim {
        if c.arg(name).nodes().is_empty() && *c.arg(name) == Arg::None {
            return default;
        }
        let d = c.dim(name);
        match (d.as_const(), n.as_const()) {
            (Some(v), Some(n)) => Dim::from(if v < 0 { v.saturating_add(n).max(0) } else { v.min(n) }),
            (Some(v), None) if v < 0 => n.clone() + v.into(),
            (Some(v), None) if v >= i64::from(i32::MAX) => n.clone(),
            _ => d,
        }
    };
    let (start, end) = (bound("start", 0i64.into()), bound("end", n.clone()));
    let known = (end.clone() - start.clone()).as_const().is_some_and(|span| span >= 0);
    if !known && (start.depends_on_data() || end.depends_on_data() && end != n) {
        m.shape[axis] = Dim::unknown(0);
        return Ok(Meta::Tensor(m));
    }
    let span = end - start;
    let span = span.as_const().map_or(span, |v| Dim::from(v.max(0)));
    m.shape[axis] = (span + (step - 1).into()).floor_div(&step.into());
    Ok(Meta::Tensor(m))
}

/// `length` elements from `start` on.
pub static NARROW: OpDef = OpDef {
    name: "aten.narrow.default",
    schema: "(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
    rule: Some(|c| {
        let (start, length) = (c.dim("start"), c.dim("length"));
        let end = start.clone() + length;
        vec![c.tensor("self").op("aten.slice.Tensor", vec![c.arg("dim").clone(), start.into(), end.into()])]
    }),
    example: "f32[2, 4], 1, 1, 2",
    ..SUGAR
};

/// [`NARROW`] from where a tensor says.
pub static NARROW_TENSOR: OpDef = OpDef {
    name: "aten.narrow.Tensor",
    schema: "(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)",
    rule: Some(|c| {
        let start = c.tensor("start").op("aten.item", vec![]);
        vec![c.tensor("self").op("aten.narrow", vec![c.arg("dim").clone(), start.into(), c.arg("length").clone()])]
    }),
    example: "f32[6, 2], 0, i64[], 2",
    ..SUGAR
};

/// One place along a dimension, which goes.
pub static SELECT: OpDef = OpDef {
    name: "aten.select.int",
    schema: "(Tensor self, int dim, SymInt index) -> Tensor",
    infer: Some(|c| {
        let mut m = c.meta("self")?;
        ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
        let n = m.shape.remove(c.axis("dim", m.shape.len())?);
        if let (Some(n), Some(i)) = (n.as_const(), c.dim("index").as_const()) {
            ensure(c, (-n..n).contains(&i), || format!("index {i} of {n}"))?;
        }
        Ok(Meta::Tensor(m))
    }),
    levels: CORE,
    rule: Some(|c| {
        let (x, i) = (c.tensor("self"), c.dim("index"));
        let Some(axis) = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0) else { return vec![x] };
        let start = if i.as_const().is_some_and(|v| v < 0) { x.shape()[axis].clone() + i } else { i };
        let end = start.clone() + Dim::from(1i64);
        let one = x.op("aten.slice.Tensor", vec![axis.into(), start.into(), end.into()]);
        vec![one.op("aten.squeeze.dims", vec![vec![axis].into()])]
    }),
    example: "f32[2, 3], 1, -1",
    ..BASE
};

/// Parts of one size, the last one smaller if it must be.
pub static SPLIT: OpDef = OpDef {
    name: "aten.split.Tensor",
    schema: "(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let (x, size) = (c.tensor("self"), c.dim("split_size"));
        let axis = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0);
        if axis.is_some_and(|a| x.shape()[a].is(0)) {
            return vec![x.op("aten.detach", vec![])];
        }
        let Some(sizes) = axis.and_then(|a| parts(c, &x.shape()[a], &size)) else { return vec![] };
        let n = sizes.len();
        let split = x.op("aten.split_with_sizes", vec![sizes.into(), c.arg("dim").clone()]);
        (0..n).map(|i| c.b.getitem(split, i)).collect()
    }),
    infer: Some(|c| {
        let (m, size) = (c.meta("self")?, c.dim("split_size"));
        let axis = c.axis("dim", m.shape.len())?;
        ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
        let sizes = parts(c, &m.shape[axis], &size).ok_or_else(|| c.err("parts of a size that is not known"))?;
        Ok(windows(&m, axis, sizes))
    }),
    example: "f32[5, 2], 2 | f32[2, 4], 2, 1",
    ..BASE
};

/// [`SPLIT`] of a tensor that nothing else sees.
pub static UNSAFE_SPLIT: OpDef = OpDef { name: "aten.unsafe_split.Tensor", class: Class::Move, ..SPLIT };

/// Sizes of the parts of `n` elements that `size` elements go into.
fn parts(c: &Call<'_>, n: &Dim, size: &Dim) -> Option<Vec<Dim>> {
    if let (Some(n), Some(s)) = (n.as_const(), size.as_const()) {
        if s == 0 && n == 0 {
            return Some(vec![Dim::from(0i64)]);
        }
        if s <= 0 || n < 0 || n / s > 1 << 16 {
            c.fail(&format!("{n} elements in parts of {s}"));
            return None;
        }
        let whole = (n / s) as usize;
        let mut sizes = vec![Dim::from(s); whole];
        if n % s != 0 || n == 0 {
            sizes.push(Dim::from(n % s));
        }
        return Some(sizes);
    }
    let count = n.floor_div(size).as_const().filter(|k| n.clone() == size.clone() * Dim::from(*k))?;
    (1..1 << 16).contains(&count).then(|| vec![size.clone(); count as usize])
}

fn windows(m: &crate::TensorMeta, axis: usize, sizes: Vec<Dim>) -> Meta {
    let part = |size: Dim| {
        let mut shape = m.shape.clone();
        shape[axis] = size;
        Meta::tensor(m.dtype, shape)
    };
    Meta::Tuple(sizes.into_iter().map(part).collect())
}

/// Parts of these sizes.
pub static SPLIT_WITH_SIZES: OpDef = OpDef {
    name: "aten.split_with_sizes.default",
    schema: "(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
    infer: Some(|c| {
        let (m, sizes) = (c.meta("self")?, c.dims("split_sizes"));
        let axis = c.axis("dim", m.shape.len())?;
        ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
        let sum = sizes.iter().cloned().fold(Dim::from(0i64), |a, b| a + b);
        let fits = sum.as_const().zip(m.shape[axis].as_const()).is_none_or(|(a, b)| a == b);
        ensure(c, fits, || format!("{sizes:?} of {}", m.shape[axis]))?;
        Ok(windows(&m, axis, sizes))
    }),
    rule: Some(|c| {
        let (x, mut start) = (c.tensor("self"), Dim::from(0i64));
        let part = |size: Dim| {
            let (from, to) = (start.clone(), start.clone() + size);
            start = to.clone();
            x.op("aten.slice.Tensor", vec![c.arg("dim").clone(), from.into(), to.into()])
        };
        c.dims("split_sizes").into_iter().map(part).collect()
    }),
    levels: CORE,
    example: "f32[5, 2], [2, 3] | f32[2, 3], [1, 2], 1",
    ..BASE
};

/// [`SPLIT_WITH_SIZES`] on the same arguments.
fn sized<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let split = c.b.call("aten.split_with_sizes", c.args.to_vec());
    let Meta::Tuple(items) = split.meta() else { return vec![] };
    (0..items.len()).map(|i| c.b.getitem(split, i)).collect()
}

/// [`SPLIT_WITH_SIZES`].
pub static SPLIT_SIZES: OpDef = OpDef {
    name: "aten.split.sizes",
    schema: "(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]",
    rule: Some(sized),
    example: "f32[5, 2], [2, 3]",
    ..SUGAR
};

/// [`SPLIT_WITH_SIZES`] of a tensor that nothing else sees.
pub static UNSAFE_SPLIT_WITH_SIZES: OpDef = OpDef {
    name: "aten.unsafe_split_with_sizes.default",
    schema: "(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
    class: Class::Move,
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(sized),
    example: "f32[5, 2], [2, 3]",
    ..BASE
};

/// As many parts as asked, of size `ceil(n / chunks)`.
pub static CHUNK: OpDef = OpDef {
    name: "aten.chunk.default",
    schema: "(Tensor self, int chunks, int dim=0) -> Tensor[]",
    rule: Some(|c| chunks(c, "aten.split.Tensor", "aten.split_with_sizes")),
    example: "f32[5, 2], 2 | f32[2, 4], 2, 1",
    ..SUGAR
};

/// [`CHUNK`] of a tensor that nothing else sees.
pub static UNSAFE_CHUNK: OpDef = OpDef {
    name: "aten.unsafe_chunk.default",
    schema: "(Tensor self, int chunks, int dim=0) -> Tensor[]",
    rule: Some(|c| chunks(c, "aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes")),
    example: "f32[5, 2], 2",
    ..SUGAR
};

fn chunks<'b>(c: &Call<'b>, split: &str, split_with_sizes: &str) -> Vec<Value<'b>> {
    let (x, chunks) = (c.tensor("self"), c.int("chunks"));
    if !(1..1 << 16).contains(&chunks) {
        c.fail(&format!("{chunks} chunks"));
        return vec![];
    }
    let Some(axis) = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0) else { return vec![] };
    let n = x.shape()[axis].clone();
    let size = (n.clone() + Dim::from(chunks - 1)).floor_div(&Dim::from(chunks));
    // A multiple of the count has exact parts.
    let exact = n.floor_div(&Dim::from(chunks));
    let size = if exact.clone() * Dim::from(chunks) == n { exact } else { size };
    let dim = c.arg("dim").clone();
    let parts = if n.is(0) {
        x.op(split_with_sizes, vec![vec![0i64; chunks as usize].into(), dim])
    } else {
        x.op(split, vec![size.into(), dim])
    };
    let Meta::Tuple(items) = parts.meta() else { return vec![] };
    (0..items.len()).map(|i| c.b.getitem(parts, i)).collect()
}

/// Every place along a dimension, which goes.
pub static UNBIND: OpDef = OpDef {
    name: "aten.unbind.int",
    schema: "(Tensor self, int dim=0) -> Tensor[]",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| {
        let mut m = c.meta("self")?;
        ensure(c, !m.shape.is_empty(), || "a tensor without dimensions".into())?;
        let n = m.shape.remove(c.axis("dim", m.shape.len())?);
        let n = n.as_const().filter(|n| (0..1 << 16).contains(n)).ok_or_else(|| c.err(&format!("{n} results")))?;
        Ok(Meta::Tuple(vec![Meta::Tensor(m); n as usize]))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        let Some(axis) = axis_or_fail(c, "dim", x.rank()) else { return vec![] };
        let n = x.shape().get(axis).and_then(Dim::as_const).unwrap_or(0);
        let dim = || c.arg("dim").clone();
        let part = |i: i64| x.op("aten.slice.Tensor", vec![dim(), i.into(), (i + 1).into()]);
        (0..n).map(|i| part(i).op("aten.squeeze.dims", vec![vec![axis].into()])).collect()
    }),
    example: "f32[2, 3] | f32[2, 3], -1",
    ..BASE
};

/// The slices that start at these places, each up to the next, the last up to the end.
fn slices<'b>(c: &Call<'b>, x: Value<'b>, dim: i64, starts: Vec<Arg>) -> Vec<Value<'b>> {
    let Some(n) = c.wrap(dim, x.rank()).ok().and_then(|axis| x.shape().get(axis).cloned()) else {
        c.fail(&format!("dimension {dim} of {:?}", x.shape()));
        return vec![];
    };
    let ends: Vec<Arg> = starts.iter().skip(1).cloned().chain([n.into()]).collect();
    starts.into_iter().zip(ends).map(|(a, b)| x.op("aten.slice.Tensor", vec![dim.into(), a, b])).collect()
}

/// So many parts; the first ones are one longer where it does not come out even.
fn sections<'b>(c: &Call<'b>, x: Value<'b>, dim: i64, count: i64) -> Vec<Value<'b>> {
    let n = c.wrap(dim, x.rank()).ok().and_then(|axis| x.shape().get(axis).cloned());
    let Some(n) = n.filter(|_| (1..1 << 16).contains(&count)) else {
        c.fail(&format!("{count} parts along dimension {dim} of {:?}", x.shape()));
        return vec![];
    };
    let (size, more) = (n.floor_div(&count.into()), n.modulo(&count.into()));
    let start = |i: i64| size.clone() * i.into() + more.min_of(&i.into());
    slices(c, x, dim, (0..count).map(|i| start(i).into()).collect())
}

fn at_places<'b>(c: &Call<'b>, x: Value<'b>, dim: i64, places: Vec<Arg>) -> Vec<Value<'b>> {
    slices(c, x, dim, [vec![0i64.into()], places].concat())
}

/// Parts of about one size.
pub static TENSOR_SPLIT: OpDef = OpDef {
    name: "aten.tensor_split.sections",
    schema: "(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
    rule: Some(|c| sections(c, c.tensor("self"), c.int("dim"), c.int("sections"))),
    example: "f32[5, 2], 3 | f32[2, 4], 2, -1",
    ..SUGAR
};

/// Parts that end at these places.
pub static TENSOR_SPLIT_INDICES: OpDef = OpDef {
    name: "aten.tensor_split.indices",
    schema: "(Tensor(a -> *) self, SymInt[] indices, int dim=0) -> Tensor(a)[]",
    rule: Some(|c| {
        at_places(c, c.tensor("self"), c.int("dim"), c.dims("indices").into_iter().map(Arg::from).collect())
    }),
    example: "f32[5, 2], [1, 3] | f32[2, 4], [-1], 1",
    ..SUGAR
};

/// Parts that end at the places that a tensor says.
pub static TENSOR_SPLIT_TENSOR: OpDef = OpDef {
    name: "aten.tensor_split.tensor_indices_or_sections",
    schema: "(Tensor(a -> *) self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor(a)[]",
    rule: Some(|c| {
        let places = c.tensor("tensor_indices_or_sections");
        if places.rank() != 1 {
            c.fail("a number of parts that only running tells");
            return vec![];
        }
        let all = places.op("aten.unbind.int", vec![]);
        let Meta::Tuple(items) = all.meta() else { return vec![] };
        let places = (0..items.len()).map(|i| c.b.getitem(all, i).op("aten.item", vec![]).into()).collect();
        at_places(c, c.tensor("self"), c.int("dim"), places)
    }),
    example: "f32[6, 2], i64[1]",
    ..SUGAR
};

macro_rules! splits {
    ($($(#[$doc:meta])* $int:ident, $array:ident = $name:literal, $dim:expr, $example:literal;)*) => {
        $(
            $(#[$doc])* pub static $int: OpDef = OpDef {
                name: concat!("aten.", $name, ".int"),
                schema: "(Tensor(a -> *) self, int sections) -> Tensor(a)[]",
                rule: Some(|c| {
                    let (x, count) = (c.tensor("self"), c.int("sections"));
                    let dim: fn(usize) -> usize = $dim;
                    let dim = dim(x.rank());
                    let n = x.shape().get(dim).and_then(Dim::as_const);
                    if count < 1 || n.is_some_and(|n| n % count != 0) {
                        c.fail(&format!("{:?} into {count} parts along dimension {dim}", x.shape()));
                        return vec![];
                    }
                    sections(c, x, dim as i64, count)
                }),
                example: $example,
                ..SUGAR
            };
            $(#[$doc])* pub static $array: OpDef = OpDef {
                name: concat!("aten.", $name, ".array"),
                schema: "(Tensor(a -> *) self, int[] indices) -> Tensor(a)[]",
                rule: Some(|c| {
                    let x = c.tensor("self");
                    let dim: fn(usize) -> usize = $dim;
                    at_places(c, x, dim(x.rank()) as i64, c.ints("indices").into_iter().map(Arg::Int).collect())
                }),
                example: "f32[2, 2, 2], [1]",
                ..SUGAR
            };
        )*
        static SPLITS: &[&OpDef] = &[$(&$int, &$array),*];
    };
}

splits! {
    /// Parts along the second dimension, of a vector along its only one.
    HSPLIT, HSPLIT_ARRAY = "hsplit", |rank| usize::from(rank > 1), "f32[2, 4], 2 | f32[4], 2";
    /// Parts along the first dimension.
    VSPLIT, VSPLIT_ARRAY = "vsplit", |_| 0, "f32[4, 2], 2";
    /// Parts along the third dimension.
    DSPLIT, DSPLIT_ARRAY = "dsplit", |_| 2, "f32[1, 2, 4], 2";
}

/// The first tensor with a slice of it replaced by the second.
pub static SLICE_SCATTER: OpDef = OpDef {
    name: "aten.slice_scatter.default",
    schema: "(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
    class: Class::Move,
    levels: CORE,
    infer: Some(super::infer::same),
    rule: Some(slice_scatter),
    example: "f32[5], f32[2], 0, 1, 4, 2 | f32[2, 3], f32[2, 3], 1 | f32[4], f32[2], 0, 0, 2",
    ..BASE
};

/// A choice, place by place, between the tensor and the elements of `src` that belong there.
fn slice_scatter<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, src, step) = (c.tensor("self"), c.tensor("src"), c.int("step"));
    let Some(axis) = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0 && step > 0) else { return vec![x] };
    let n = x.shape()[axis].clone();
    let bound = |name: &str, default: Dim| match c.arg(name) {
        Arg::None => default,
        _ => match (c.dim(name).as_const(), n.as_const()) {
            (Some(v), Some(n)) => (if v < 0 { v.saturating_add(n).max(0) } else { v.min(n) }).into(),
            (Some(v), None) if v < 0 => n.clone() + v.into(),
            (Some(v), None) if v >= i64::from(i32::MAX) => n.clone(),
            _ => c.dim(name),
        },
    };
    let start = bound("start", 0i64.into());
    let end = bound("end", n.clone());
    let whole = start.is(0) && end == n;
    let backwards = end.as_const().zip(start.as_const()).is_some_and(|(end, start)| end < start);
    let end = if backwards { start.clone() } else { end };
    let mut shape = x.shape();
    shape[axis] = (end.clone() - start.clone() + (step - 1).into()).floor_div(&step.into());
    let count = shape[axis].clone();
    let src = src.to(x.dtype()).op("aten.expand", vec![shape.into()]);
    if whole && step == 1 {
        return vec![src.op("aten.clone", vec![])];
    }
    if count.is(0) {
        return vec![x.op("aten.clone", vec![])];
    }
    let places = c.b.call("aten.arange", vec![n.into()]);
    let from_start = places.op("aten.sub.Tensor", vec![start.clone().into()]);
    let mut conditions =
        vec![places.op("aten.ge.Scalar", vec![start.into()]), places.op("aten.lt.Scalar", vec![end.into()])];
    let mut picked = from_start;
    if step != 1 {
        conditions
            .push(from_start.op("aten.remainder.Scalar", vec![step.into()]).op("aten.eq.Scalar", vec![0i64.into()]));
        picked = from_start.op("aten.div.Tensor_mode", vec![step.into(), "floor".into()]);
    }
    let picked = picked.op("aten.clamp", vec![0i64.into(), (count - Dim::from(1i64)).into()]);
    let mut own = vec![1i64; x.rank()];
    own[axis] = -1;
    let mask = conditions.into_iter().reduce(|a, b| a.op("aten.logical_and", vec![b.into()]));
    let Some(mask) = mask.map(|m| m.op("aten.view", vec![own.into()])) else { return vec![x] };
    let spread = src.op("aten.index_select", vec![axis.into(), picked.into()]);
    vec![mask.op("aten.where.self", vec![spread.into(), x.into()])]
}

/// The first tensor with one place along a dimension replaced by the second.
pub static SELECT_SCATTER: OpDef = OpDef {
    name: "aten.select_scatter.default",
    schema: "(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
    class: Class::Move,
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(super::infer::same),
    rule: Some(|c| {
        let (x, src, index) = (c.tensor("self"), c.tensor("src"), c.dim("index"));
        let Some(axis) = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0) else { return vec![x] };
        let n = x.shape()[axis].clone();
        let index = if index.as_const().is_some_and(|i| i < 0) { n.clone() + index } else { index };
        let mut own = vec![1i64; x.rank()];
        own[axis] = -1;
        let places = c.b.call("aten.arange", vec![n.into()]).op("aten.view", vec![own.into()]);
        let mask = places.op("aten.eq.Scalar", vec![index.into()]);
        let wide = src.op("aten.unsqueeze", vec![axis.into()]).op("aten.expand", vec![x.shape().into()]);
        vec![mask.op("aten.where.self", vec![wide.into(), x.into()])]
    }),
    example: "f32[2, 3], f32[2], 1, -1",
    ..BASE
};

static PLAIN: &[&OpDef] = &[
    &SLICE,
    &NARROW,
    &NARROW_TENSOR,
    &SELECT,
    &SPLIT,
    &UNSAFE_SPLIT,
    &SPLIT_WITH_SIZES,
    &SPLIT_SIZES,
    &UNSAFE_SPLIT_WITH_SIZES,
    &CHUNK,
    &UNSAFE_CHUNK,
    &UNBIND,
    &TENSOR_SPLIT,
    &TENSOR_SPLIT_INDICES,
    &TENSOR_SPLIT_TENSOR,
    &SLICE_SCATTER,
    &SELECT_SCATTER,
];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, SPLITS];
