//! Parts of a tensor: slices, selections, splits, and writing them back.

use super::infer::ensure;
use super::view::axis_or_fail;
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::ALL, ..OpDef::BASE };
const SUGAR: OpDef = OpDef { levels: Levels::TORCH, functional: Functional::Always, ..BASE };

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
    ..BASE
};

/// Parts of one size, the last one smaller if it must be.
pub static SPLIT: OpDef = OpDef {
    name: "aten.split.Tensor",
    schema: "(Tensor self, SymInt split_size, int dim=0) -> Tensor[]",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let (x, size) = (c.tensor("self"), c.dim("split_size"));
        let Some(sizes) = axis_or_fail(c, "dim", x.rank()).and_then(|a| parts(c, &x.shape()[a], &size)) else {
            return vec![];
        };
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
    ..BASE
};

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
    ..BASE
};

/// As many parts as asked, of size `ceil(n / chunks)`.
pub static CHUNK: OpDef = OpDef {
    name: "aten.chunk.default",
    schema: "(Tensor self, int chunks, int dim=0) -> Tensor[]",
    rule: Some(|c| {
        let (x, chunks) = (c.tensor("self"), c.int("chunks"));
        if chunks <= 0 {
            c.fail(&format!("{chunks} chunks"));
            return vec![];
        }
        let Some(axis) = axis_or_fail(c, "dim", x.rank()).filter(|_| x.rank() > 0) else { return vec![] };
        let n = x.shape()[axis].clone();
        let size = (n.clone() + Dim::from(chunks - 1)).floor_div(&Dim::from(chunks));
        // A multiple of the count has exact parts.
        let exact = n.floor_div(&Dim::from(chunks));
        let size = if exact.clone() * Dim::from(chunks) == n { exact } else { size };
        let split = x.op("aten.split.Tensor", vec![size.into(), c.arg("dim").clone()]);
        let Meta::Tuple(items) = split.meta() else { return vec![] };
        (0..items.len()).map(|i| c.b.getitem(split, i)).collect()
    }),
    ..SUGAR
};

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
    ..BASE
};

/// The first tensor with a slice of it replaced by the second.
pub static SLICE_SCATTER: OpDef = OpDef {
    name: "aten.slice_scatter.default",
    schema: "(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
    class: Class::Move,
    infer: Some(super::infer::same),
    ..BASE
};

/// The first tensor with one place along a dimension replaced by the second.
pub static SELECT_SCATTER: OpDef = OpDef {
    name: "aten.select_scatter.default",
    schema: "(Tensor self, Tensor src, int dim, SymInt index) -> Tensor",
    class: Class::Move,
    infer: Some(super::infer::same),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] =
    &[&SLICE, &NARROW, &SELECT, &SPLIT, &SPLIT_WITH_SIZES, &CHUNK, &UNBIND, &SLICE_SCATTER, &SELECT_SCATTER];
