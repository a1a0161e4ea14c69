//! The same elements under another shape or order.

use super::infer::ensure;
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::ALL, ..OpDef::BASE };

/// Another shape; one size may be -1.
pub static VIEW: OpDef = OpDef {
    name: "aten.view.default",
    schema: "(Tensor self, SymInt[] size) -> Tensor",
    infer: Some(|c| reshaped(c, "size")),
    ..BASE
};

/// [`VIEW`], copying where it must.
pub static RESHAPE: OpDef = OpDef {
    name: "aten.reshape.default",
    schema: "(Tensor self, SymInt[] shape) -> Tensor",
    levels: Levels::TORCH,
    infer: Some(|c| reshaped(c, "shape")),
    rule: Some(|c| vec![c.tensor("self").view(c.dims("shape"))]),
    functional: Functional::Always,
    ..BASE
};

fn reshaped(c: &Call<'_>, name: &str) -> Result<Meta> {
    let m = c.meta("self")?;
    let mut shape = c.dims(name);
    let total: Dim = m.shape.iter().cloned().product();
    let known: Dim = shape.iter().filter(|d| !d.is(-1)).cloned().product();
    match shape.iter().filter(|d| d.is(-1)).count() {
        0 => {}
        1 => {
            ensure(c, !known.is(0), || format!("-1 in {shape:?} of an empty tensor"))?;
            let rest = total.floor_div(&known);
            shape.iter_mut().filter(|d| d.is(-1)).for_each(|d| *d = rest.clone());
        }
        n => return Err(c.err(&format!("{n} sizes of -1 in {shape:?}"))),
    }
    let size: Dim = shape.iter().cloned().product();
    let fits = match (size.as_const(), total.as_const()) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    ensure(c, fits && shape.iter().all(|d| d.as_const().is_none_or(|v| v >= 0)), || {
        format!("{:?} as {shape:?}", m.shape)
    })?;
    Ok(Meta::tensor(m.dtype, shape))
}

/// Several dimensions as one.
pub static FLATTEN: OpDef = OpDef {
    name: "aten.flatten.using_ints",
    schema: "(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
    levels: Levels::TORCH,
    infer: Some(|c| {
        let m = c.meta("self")?;
        Ok(Meta::tensor(m.dtype, flattened(c, &m.shape)?))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        match flattened(c, &x.shape()) {
            Ok(shape) if shape != x.shape() => vec![x.view(shape)],
            Ok(_) => vec![x],
            Err(e) => {
                c.b.fail(e);
                vec![x]
            }
        }
    }),
    functional: Functional::Always,
    ..BASE
};

fn flattened(c: &Call<'_>, shape: &[Dim]) -> Result<Vec<Dim>> {
    let (a, b) = (c.axis("start_dim", shape.len())?, c.axis("end_dim", shape.len())?);
    ensure(c, a <= b, || format!("dimensions {a} to {b}"))?;
    if shape.is_empty() {
        return Ok(vec![1i64.into()]);
    }
    let middle: Dim = shape[a..=b].iter().cloned().product();
    Ok([&shape[..a], &[middle], &shape[b + 1..]].concat())
}

/// Dimensions in another order.
pub static PERMUTE: OpDef = OpDef {
    name: "aten.permute.default",
    schema: "(Tensor self, int[] dims) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        let order = c.ints("dims").iter().map(|d| c.wrap(*d, m.shape.len())).collect::<Result<Vec<_>>>()?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        ensure(c, sorted.into_iter().eq(0..m.shape.len()), || {
            format!("{order:?} is no order of {} dimensions", m.shape.len())
        })?;
        Ok(Meta::tensor(m.dtype, order.iter().map(|i| m.shape[*i].clone()).collect()))
    }),
    ..BASE
};

/// Two dimensions exchanged.
pub static TRANSPOSE: OpDef = OpDef {
    name: "aten.transpose.int",
    schema: "(Tensor self, int dim0, int dim1) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let x = c.tensor("self");
        let rank = x.rank();
        let mut order: Vec<i64> = (0..rank as i64).collect();
        match (c.axis("dim0", rank), c.axis("dim1", rank)) {
            (Ok(a), Ok(b)) if rank > 0 => order.swap(a, b),
            (Err(e), _) | (_, Err(e)) => c.b.fail(e),
            _ => {}
        }
        vec![x.permute(order)]
    }),
    ..BASE
};

/// A dimension of size 1 put in.
pub static UNSQUEEZE: OpDef = OpDef {
    name: "aten.unsqueeze.default",
    schema: "(Tensor self, int dim) -> Tensor",
    infer: Some(|c| {
        let mut m = c.meta("self")?;
        m.shape.insert(c.axis("dim", m.shape.len() + 1)?, 1i64.into());
        Ok(Meta::Tensor(m))
    }),
    ..BASE
};

/// Dimensions of size 1 taken out; others are left.
pub static SQUEEZE: OpDef = OpDef {
    name: "aten.squeeze.dims",
    schema: "(Tensor self, int[] dim) -> Tensor",
    infer: Some(|c| {
        let m = c.meta("self")?;
        let axes = c.ints("dim").iter().map(|d| c.wrap(*d, m.shape.len())).collect::<Result<Vec<_>>>()?;
        let kept = m.shape.iter().enumerate().filter(|(i, d)| !(axes.contains(i) && d.is(1))).map(|(_, d)| d.clone());
        Ok(Meta::tensor(m.dtype, kept.collect()))
    }),
    ..BASE
};

/// Sizes of 1 repeated; -1 leaves a size as it is.
pub static EXPAND: OpDef = OpDef {
    name: "aten.expand.default",
    schema: "(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
    infer: Some(expand),
    ..BASE
};

fn expand(c: &Call<'_>) -> Result<Meta> {
    let (m, mut size) = (c.meta("self")?, c.dims("size"));
    let lead = size.len().checked_sub(m.shape.len()).ok_or_else(|| c.err(&format!("{:?} to {size:?}", m.shape)))?;
    for (to, from) in size[lead..].iter_mut().zip(&m.shape) {
        if to.is(-1) {
            *to = from.clone();
        }
        let fits = from.is(1) || from.as_const().zip(to.as_const()).is_none_or(|(a, b)| a == b);
        ensure(c, fits, || format!("size {from} to {to}"))?;
    }
    Ok(Meta::tensor(m.dtype, size))
}

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
        if c.arg(name).nodes().is_empty() && *c.arg(name) == crate::Arg::None {
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

/// The family.
pub static OPS: &[&OpDef] = &[&VIEW, &RESHAPE, &FLATTEN, &PERMUTE, &TRANSPOSE, &UNSQUEEZE, &SQUEEZE, &EXPAND, &SLICE];
