//! The same elements under another shape or order.

use super::infer::ensure;
use super::prims;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};
use crate::strides;
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::View, levels: Levels::ALL, ..OpDef::BASE };
/// Spelled otherwise in functional form.
const SUGAR: OpDef = OpDef { levels: Levels::TORCH, functional: Functional::Always, ..BASE };

/// Another shape; one size may be -1.
pub static VIEW: OpDef = OpDef {
    name: "aten.view.default",
    schema: "(Tensor self, SymInt[] size) -> Tensor",
    infer: Some(|c| reshaped(c, "size")),
    ..BASE
};

/// [`VIEW`] of a tensor that nothing else sees.
pub static UNSAFE_VIEW: OpDef = OpDef {
    name: "aten._unsafe_view.default",
    schema: "(Tensor self, SymInt[] size) -> Tensor",
    levels: Levels::ATEN,
    infer: Some(|c| reshaped(c, "size")),
    rule: Some(|c| vec![c.tensor("self").op("aten.view", vec![c.arg("size").clone()])]),
    example: "f32[2, 3], [3, -1]",
    ..BASE
};

/// [`VIEW`], copying where the strides do not allow one.
pub static RESHAPE: OpDef = OpDef {
    name: "aten.reshape.default",
    schema: "(Tensor self, SymInt[] shape) -> Tensor",
    infer: Some(|c| reshaped(c, "shape")),
    rule: Some(|c| {
        let Ok(Meta::Tensor(to)) = reshaped(c, "shape") else {
            c.fail("the sizes do not fit");
            return vec![c.tensor("self")];
        };
        vec![reshape(c.tensor("self"), to.shape)]
    }),
    example: "f32[2, 3], [3, -1]",
    ..SUGAR
};

/// The elements in row-major order: itself if they lie so.
pub(super) fn contiguous(x: Value<'_>) -> Value<'_> {
    if x.is_contiguous() { x } else { x.op("aten.clone", vec!["contiguous_format".into()]) }
}

/// A view if torch's strides allow it, else a view of a contiguous copy.
pub(super) fn reshape(x: Value<'_>, to: Vec<Dim>) -> Value<'_> {
    if strides::reshaped(&x.shape(), &x.strides(), &to).is_some() {
        return x.view(to);
    }
    x.op("aten.clone", vec!["contiguous_format".into()]).op("aten._unsafe_view", vec![to.into()])
}

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
    infer: Some(|c| {
        let m = c.meta("self")?;
        Ok(Meta::tensor(m.dtype, flattened(c, &m.shape)?))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        match flattened(c, &x.shape()) {
            Ok(shape) if shape != x.shape() => vec![reshape(x, shape)],
            Ok(_) => vec![x],
            Err(e) => {
                c.b.fail(e);
                vec![x]
            }
        }
    }),
    example: "f32[2, 3, 4], 1 | f32[2, 3], 1, 1 | f32[]",
    ..SUGAR
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

/// One dimension as several; one size may be -1.
pub static UNFLATTEN: OpDef = OpDef {
    name: "aten.unflatten.int",
    schema: "(Tensor self, int dim, SymInt[] sizes) -> Tensor",
    rule: Some(|c| {
        let (x, mut sizes) = (c.tensor("self"), c.dims("sizes"));
        let shape = x.shape();
        let Some(at) = axis_or_fail(c, "dim", shape.len()).filter(|a| *a < shape.len()) else { return vec![x] };
        let known: Dim = sizes.iter().filter(|d| !d.is(-1)).cloned().product();
        sizes.iter_mut().filter(|d| d.is(-1)).for_each(|d| *d = shape[at].floor_div(&known));
        vec![x.view([&shape[..at], &sizes, &shape[at + 1..]].concat())]
    }),
    example: "f32[2, 6], -1, [2, -1]",
    ..SUGAR
};

/// A dimension number; if there is none, the call fails.
pub(super) fn axis_or_fail(c: &Call<'_>, name: &str, rank: usize) -> Option<usize> {
    c.axis(name, rank).map_err(|e| c.b.fail(e)).ok()
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
        let (Some(a), Some(b)) = (axis_or_fail(c, "dim0", rank), axis_or_fail(c, "dim1", rank)) else {
            return vec![x];
        };
        if rank < 2 || c.int("dim0") == c.int("dim1") {
            return vec![x.op("aten.alias", vec![])];
        }
        let mut order: Vec<i64> = (0..rank as i64).collect();
        order.swap(a, b);
        vec![x.permute(order)]
    }),
    example: "f32[2, 3, 4], 0, -1 | f32[2, 3], 1, 1",
    ..BASE
};

/// [`TRANSPOSE`] of a matrix; of a vector, itself.
pub static T: OpDef = OpDef {
    name: "aten.t.default",
    schema: "(Tensor self) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let x = c.tensor("self");
        let dim = i64::from(x.rank() > 1);
        if x.rank() > 2 {
            c.fail(&format!("a tensor of rank {}, expected at most 2", x.rank()));
        }
        vec![x.op("aten.transpose.int", vec![0i64.into(), dim.into()])]
    }),
    example: "f32[2, 3] | f32[2]",
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
    infer: Some(|c| squeezed(c, Some(c.ints("dim")))),
    ..BASE
};

/// [`SQUEEZE`] of one dimension.
pub static SQUEEZE_DIM: OpDef = OpDef {
    name: "aten.squeeze.dim",
    schema: "(Tensor self, int dim) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| squeezed(c, Some(vec![c.int("dim")]))),
    rule: Some(|c| vec![c.tensor("self").op("aten.squeeze.dims", vec![vec![c.int("dim")].into()])]),
    example: "f32[2, 1, 3], 1 | f32[2, 3], 0",
    ..BASE
};

/// [`SQUEEZE`] of all dimensions.
pub static SQUEEZE_ALL: OpDef = OpDef {
    name: "aten.squeeze.default",
    schema: "(Tensor self) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| squeezed(c, None)),
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![x.op("aten.squeeze.dims", vec![(0..x.rank()).collect::<Vec<_>>().into()])]
    }),
    example: "f32[2, 1, 3] | f32[1]",
    ..BASE
};

fn squeezed(c: &Call<'_>, dims: Option<Vec<i64>>) -> Result<Meta> {
    let m = c.meta("self")?;
    let axes = match dims {
        Some(d) => d.iter().map(|d| c.wrap(*d, m.shape.len())).collect::<Result<Vec<_>>>()?,
        None => (0..m.shape.len()).collect(),
    };
    let kept = m.shape.iter().enumerate().filter(|(i, d)| !(axes.contains(i) && d.is(1))).map(|(_, d)| d.clone());
    Ok(Meta::tensor(m.dtype, kept.collect()))
}

/// Sizes of 1 repeated; -1 leaves a size as it is.
pub static EXPAND: OpDef = OpDef {
    name: "aten.expand.default",
    schema: "(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(expand),
    rule: Some(|c| {
        let shape = expand(c).ok().and_then(|m| Some(m.as_tensor()?.shape.clone())).unwrap_or_default();
        vec![prims::in_shape(c.tensor("self"), &shape)]
    }),
    example: "f32[3, 1], [2, -1, 4]",
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

/// Elements at these sizes and strides of the underlying storage.
pub static AS_STRIDED: OpDef = OpDef {
    name: "aten.as_strided.default",
    schema: "(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
    infer: Some(|c| {
        let (size, stride) = (c.dims("size"), c.dims("stride"));
        ensure(c, size.len() == stride.len(), || format!("{} sizes, {} strides", size.len(), stride.len()))?;
        Ok(Meta::tensor(c.meta("self")?.dtype, size))
    }),
    ..BASE
};

/// The bits of the elements as elements of another type; where that has another size, the last dimension has too.
pub static VIEW_DTYPE: OpDef = OpDef {
    name: "aten.view.dtype",
    schema: "(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
    infer: Some(|c| {
        let (mut m, to) = (c.meta("self")?, c.opt_dtype("dtype").unwrap_or(DType::F32));
        let (a, b) = (m.dtype.size() as i64, to.size() as i64);
        ensure(c, a == b || !m.shape.is_empty(), || format!("a number of {a} bytes as {to}"))?;
        if let Some(last) = m.shape.last_mut() {
            *last = (last.clone() * a.into()).floor_div(&b.into());
        }
        Ok(Meta::tensor(to, m.shape))
    }),
    ..BASE
};

/// Another shape; elements that are too many are left out, and where there are too few, anything stands.
pub static RESIZE: OpDef = OpDef {
    name: "aten.resize.default",
    schema: "(Tensor self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor",
    class: Class::Move,
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, c.dims("size")))),
    ..BASE
};

/// [`RESIZE`] to the shape of another tensor.
pub static RESIZE_AS: OpDef = OpDef {
    name: "aten.resize_as.default",
    schema: "(Tensor self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor",
    class: Class::Move,
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| vec![c.tensor("self").op("aten.resize", vec![c.tensor("the_template").shape().into()])]),
    example: "f32[2, 3], f32[6]",
    ..BASE
};

/// [`RESIZE_AS`] in place.
pub static RESIZE_AS_: OpDef = OpDef {
    name: "aten.resize_as_.default",
    schema: "(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)",
    class: Class::Move,
    rule: Some(|c| vec![c.b.call("aten.resize_as", c.args.to_vec())]),
    ..SUGAR
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &VIEW,
    &UNSAFE_VIEW,
    &RESHAPE,
    &FLATTEN,
    &UNFLATTEN,
    &PERMUTE,
    &TRANSPOSE,
    &T,
    &UNSQUEEZE,
    &SQUEEZE,
    &SQUEEZE_DIM,
    &SQUEEZE_ALL,
    &EXPAND,
    &AS_STRIDED,
    &VIEW_DTYPE,
    &RESIZE,
    &RESIZE_AS,
    &RESIZE_AS_,
]];
