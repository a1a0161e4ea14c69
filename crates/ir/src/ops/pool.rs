//! Pooling.

use super::infer::ensure;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
use crate::strides;
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Pool, ..OpDef::BASE };

/// Greatest element of each window; an empty stride means the kernel size.
pub static MAX_POOL2D: OpDef = OpDef {
    name: "aten.max_pool2d.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| vec![c.b.getitem(c.b.call("aten.max_pool2d_with_indices", c.args.to_vec()), 0)]),
    example: "f32[1, 2, 4, 4]!, [2, 2] | f32[2, 5, 4]!, [3, 2], [2, 1], [1, 0], [1, 2], true",
    raisable: true,
    ..BASE
};

/// [`MAX_POOL2D`] and where the elements were.
pub static MAX_POOL2D_WITH_INDICES: OpDef = OpDef {
    name: "aten.max_pool2d_with_indices.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
    levels: Levels::ALL,
    infer: Some(|c| with_indices(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    ..BASE
};

/// Mean of each window.
pub static AVG_POOL2D: OpDef = OpDef {
    name: "aten.avg_pool2d.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    ..BASE
};

/// Mean over a grid of this size; to 1×1 it is the mean over both dimensions.
pub static ADAPTIVE_AVG_POOL2D: OpDef = OpDef {
    name: "aten.adaptive_avg_pool2d.default",
    schema: "(Tensor self, SymInt[2] output_size) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 2)),
    rule: Some(|c| adaptive_avg(c, "aten._adaptive_avg_pool2d")),
    example: "f32[1, 2, 4, 5], [2, 3] | f32[2, 3, 4], [1, 1]",
    raisable: true,
    ..BASE
};

/// torch's way: to a size of 1 the mean, else the op.
fn adaptive_avg<'b>(c: &Call<'b>, op: &str) -> Vec<Value<'b>> {
    let (x, sizes) = (c.tensor("self"), c.dims("output_size"));
    if sizes.iter().any(|d| !d.is(1)) {
        return vec![x.op(op, vec![sizes.into()])];
    }
    let axes: Vec<i64> = (1..=sizes.len() as i64).map(|i| -i).collect();
    let mean = x.op("aten.mean.dim", vec![axes.into(), true.into()]);
    // torch keeps the memory format of its input.
    let shape = mean.shape();
    if !strides::is_channels_last(&x.shape(), &x.strides()) {
        return vec![mean];
    }
    let mut steps = vec![shape[1].clone(); shape.len()];
    steps[1] = Dim::from(1i64);
    vec![mean.op("aten.as_strided", vec![shape.into(), steps.into()])]
}

/// [`ADAPTIVE_AVG_POOL2D`] over three dimensions.
pub static ADAPTIVE_AVG_POOL3D: OpDef = OpDef {
    name: "aten.adaptive_avg_pool3d.default",
    schema: "(Tensor self, SymInt[3] output_size) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 3)),
    rule: Some(|c| adaptive_avg(c, "aten._adaptive_avg_pool3d")),
    example: "f32[1, 1, 2, 3, 4], [2, 2, 2] | f32[1, 2, 2, 2, 2], [1, 1, 1]",
    raisable: true,
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL2D`] over one dimension.
pub static ADAPTIVE_AVG_POOL1D: OpDef = OpDef {
    name: "aten.adaptive_avg_pool1d.default",
    schema: "(Tensor self, int[1] output_size) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 1)),
    rule: Some(|c| {
        let size = [vec![Dim::from(1i64)], c.dims("output_size")].concat();
        flat(vec![upright(c).op("aten.adaptive_avg_pool2d", vec![size.into()])])
    }),
    example: "f32[1, 2, 5], [2] | f32[2, 5], [1]",
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL3D`] as Core ATen has it.
pub static CORE_ADAPTIVE_AVG_POOL3D: OpDef = OpDef {
    name: "aten._adaptive_avg_pool3d.default",
    schema: "(Tensor self, SymInt[3] output_size) -> Tensor",
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 3)),
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL2D`] as Core ATen has it.
pub static CORE_ADAPTIVE_AVG_POOL2D: OpDef = OpDef {
    name: "aten._adaptive_avg_pool2d.default",
    schema: "(Tensor self, SymInt[2] output_size) -> Tensor",
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 2)),
    ..BASE
};

/// Greatest elements over a grid of this size, and where they were.
pub static ADAPTIVE_MAX_POOL2D: OpDef = OpDef {
    name: "aten.adaptive_max_pool2d.default",
    schema: "(Tensor self, int[2] output_size) -> (Tensor, Tensor)",
    levels: Levels::ALL,
    infer: Some(|c| with_indices(adaptive(c, 2)?)),
    ..BASE
};

/// [`ADAPTIVE_MAX_POOL2D`] over three dimensions.
pub static ADAPTIVE_MAX_POOL3D: OpDef = OpDef {
    name: "aten.adaptive_max_pool3d.default",
    schema: "(Tensor self, int[3] output_size) -> (Tensor, Tensor)",
    infer: Some(|c| with_indices(adaptive(c, 3)?)),
    ..ADAPTIVE_MAX_POOL2D
};

/// [`ADAPTIVE_MAX_POOL2D`] over one dimension.
pub static ADAPTIVE_MAX_POOL1D: OpDef = OpDef {
    name: "aten.adaptive_max_pool1d.default",
    schema: "(Tensor self, int[1] output_size) -> (Tensor, Tensor)",
    levels: Levels::TORCH.and(Levels::ATEN),
    infer: Some(|c| with_indices(adaptive(c, 1)?)),
    rule: Some(|c| {
        let size = [vec![1], c.ints("output_size")].concat();
        let both = upright(c).op("aten.adaptive_max_pool2d", vec![size.into()]);
        flat(vec![c.b.getitem(both, 0), c.b.getitem(both, 1)])
    }),
    example: "f32[1, 2, 5]!, [2] | f32[2, 5]!, [1]",
    ..BASE
};

/// Values of this type and shape, and where they were.
fn with_indices(values: Meta) -> Result<Meta> {
    let shape = values.dims();
    Ok(Meta::Tuple(vec![values, Meta::tensor(DType::I64, shape)]))
}

/// Greatest elements of windows that lie where random numbers say, and where they were.
pub static FRACTIONAL_MAX_POOL2D: OpDef = OpDef {
    name: "aten.fractional_max_pool2d.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples) -> (Tensor, Tensor)",
    ..ADAPTIVE_MAX_POOL2D
};

/// [`FRACTIONAL_MAX_POOL2D`] over three dimensions.
pub static FRACTIONAL_MAX_POOL3D: OpDef = OpDef {
    name: "aten.fractional_max_pool3d.default",
    schema: "(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples) -> (Tensor, Tensor)",
    ..ADAPTIVE_MAX_POOL3D
};

fn adaptive(c: &Call<'_>, n: usize) -> Result<Meta> {
    let (m, size) = (c.meta("self")?, c.dims("output_size"));
    let lead = m.shape.len().checked_sub(n).filter(|_| size.len() == n);
    let lead = lead.ok_or_else(|| c.err(&format!("sizes {size:?} of {:?}", m.shape)))?;
    Ok(Meta::tensor(m.dtype, [&m.shape[..lead], &size].concat()))
}

/// Output shape of a window op over the last dimensions, as many as the kernel has.
fn pooled(c: &Call<'_>) -> Result<Vec<Dim>> {
    let m = c.meta("self")?;
    let (k, p) = (c.ints("kernel_size"), c.ints("padding"));
    let s = match c.arg("stride") {
        Arg::List(l) if l.is_empty() => k.clone(),
        _ => c.ints("stride"),
    };
    let n = k.len();
    let d = if c.op.schema.index("dilation").is_some() { c.ints("dilation") } else { vec![1; n] };
    ensure(c, [&s, &p, &d].iter().all(|v| v.len() == n), || {
        format!("kernel {k:?}, stride {s:?}, padding {p:?}, dilation {d:?}")
    })?;
    ensure(
        c,
        k.iter().chain(&s).chain(&d).all(|v| (1..1 << 20).contains(v)) && p.iter().all(|v| (0..1 << 20).contains(v)),
        || "kernel, stride and dilation must be positive".into(),
    )?;
    let lead = m.shape.len().checked_sub(n).ok_or_else(|| c.err(&format!("kernel {k:?} on {:?}", m.shape)))?;
    let mut shape = m.shape[..lead].to_vec();
    for i in 0..n {
        let n = &m.shape[lead + i];
        let span = n.clone() + (2 * p[i] - d[i] * (k[i] - 1) - 1).into();
        let stride = Dim::from(s[i]);
        let mut out = if c.bool("ceil_mode") {
            (span + (s[i] - 1).into()).floor_div(&stride) + 1i64.into()
        } else {
            span.floor_div(&stride) + 1i64.into()
        };
        // A window must start inside the input or its left padding.
        if let (true, Some(o), Some(n)) = (c.bool("ceil_mode"), out.as_const(), n.as_const())
            && (o - 1) * s[i] >= n + p[i]
        {
            out = (o - 1).into();
        }
        ensure(c, out.as_const().is_none_or(|v| v > 0), || format!("window {k:?} does not fit into {:?}", m.shape))?;
        shape.push(out);
    }
    Ok(shape)
}

/// [`MAX_POOL2D`] over one dimension.
pub static MAX_POOL1D: OpDef = OpDef {
    name: "aten.max_pool1d.default",
    schema: "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| flat(vec![over_two(c, "aten.max_pool2d", &[("padding", 0), ("dilation", 1)])])),
    example: "f32[1, 2, 6]!, [2] | f32[2, 6]!, [3], [2], [1], [1], true",
    ..BASE
};

/// [`AVG_POOL2D`] over one dimension.
pub static AVG_POOL1D: OpDef = OpDef {
    name: "aten.avg_pool1d.default",
    schema: "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| flat(vec![over_two(c, "aten.avg_pool2d", &[("padding", 0)])])),
    example: "f32[1, 2, 6], [2] | f32[2, 6], [3], [2], [1], true, false",
    ..BASE
};

/// The input with a dimension of size 1 before the last.
fn upright<'b>(c: &Call<'b>) -> Value<'b> {
    c.tensor("self").op("aten.unsqueeze", vec![(-2i64).into()])
}

/// [`upright`] undone.
fn flat(results: Vec<Value<'_>>) -> Vec<Value<'_>> {
    results.into_iter().map(|y| y.op("aten.squeeze.dims", vec![vec![-2i64].into()])).collect()
}

/// A pooling op over one dimension by the one over two, the other of size 1; its lists after kernel and stride.
fn over_two<'b>(c: &Call<'b>, op: &str, lists: &[(&str, i64)]) -> Value<'b> {
    let pair = |name: &str, other: i64| -> Arg { [vec![other], c.ints(name)].concat().into() };
    let kernel = pair("kernel_size", 1);
    let stride = if c.ints("stride").is_empty() { kernel.clone() } else { pair("stride", 1) };
    let mut args = vec![kernel, stride];
    args.extend(lists.iter().map(|(name, other)| pair(name, *other)));
    args.push(c.arg("ceil_mode").clone());
    if c.op.schema.index("count_include_pad").is_some() {
        args.push(c.arg("count_include_pad").clone());
    }
    upright(c).op(op, args)
}

/// [`MAX_POOL1D`] and where the elements were.
pub static MAX_POOL1D_WITH_INDICES: OpDef = OpDef {
    name: "aten.max_pool1d_with_indices.default",
    schema: "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
    infer: Some(|c| with_indices(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| {
        let both = over_two(c, "aten.max_pool2d_with_indices", &[("padding", 0), ("dilation", 1)]);
        flat(vec![c.b.getitem(both, 0), c.b.getitem(both, 1)])
    }),
    example: "f32[1, 2, 6]!, [2] | f32[2, 6]!, [3], [2], [1], [1], true",
    ..BASE
};

/// [`MAX_POOL2D`] over three dimensions.
pub static MAX_POOL3D: OpDef = OpDef {
    name: "aten.max_pool3d.default",
    schema: "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| vec![c.b.getitem(c.b.call("aten.max_pool3d_with_indices", c.args.to_vec()), 0)]),
    example: "f32[1, 1, 2, 4, 4]!, [2, 2, 2]",
    ..BASE
};

/// [`MAX_POOL3D`] and where the elements were.
pub static MAX_POOL3D_WITH_INDICES: OpDef = OpDef {
    name: "aten.max_pool3d_with_indices.default",
    schema: "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
    ..MAX_POOL2D_WITH_INDICES
};

/// [`AVG_POOL2D`] over three dimensions.
pub static AVG_POOL3D: OpDef = OpDef {
    name: "aten.avg_pool3d.default",
    schema: "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    ..AVG_POOL2D
};

/// Elements put back where the indices of a [`MAX_POOL2D_WITH_INDICES`] say, zeros elsewhere.
pub static MAX_UNPOOL2D: OpDef = OpDef {
    name: "aten.max_unpool2d.default",
    schema: "(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor",
    infer: Some(|c| adaptive(c, 2)),
    rule: Some(|c| unpool(c, 2)),
    example: "f32[1, 2, 1, 2], i64[1, 2, 1, 2]<2!, [2, 4]",
    ..BASE
};

/// [`MAX_UNPOOL2D`] over three dimensions.
pub static MAX_UNPOOL3D: OpDef = OpDef {
    name: "aten.max_unpool3d.default",
    schema: "(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
    infer: Some(|c| adaptive(c, 3)),
    rule: Some(|c| unpool(c, 3)),
    example: "f32[1, 2, 1, 1, 2], i64[1, 2, 1, 1, 2]<2!, [1, 2, 4], [2, 2, 2], [0, 0, 0]",
    ..BASE
};

fn unpool<'b>(c: &Call<'b>, n: usize) -> Vec<Value<'b>> {
    let (x, at, size) = (c.tensor("self"), c.tensor("indices"), c.dims("output_size"));
    let shape = x.shape();
    let Some(lead) = shape.len().checked_sub(n).filter(|_| size.len() == n && at.shape() == shape) else {
        c.fail(&format!("{shape:?} by indices of shape {:?} to {size:?}", at.shape()));
        return vec![x];
    };
    // Over three dimensions torch forgets how its input lies.
    let last = n == 2 && strides::is_channels_last(&shape, &x.strides());
    let restored = |y: Value<'b>| if last { y.op("aten.clone", vec!["channels_last".into()]) } else { y };
    let to = [&shape[..lead], &size].concat();
    let zeros = x.op("aten.new_zeros", vec![to.clone().into()]);
    if to.iter().any(|d| d.is(0)) {
        return vec![restored(zeros)];
    }
    let (planes, volume): (Dim, Dim) = (shape[..lead].iter().cloned().product(), size.iter().cloned().product());
    let plane = c.b.call("aten.arange.default", vec![planes.clone().into()]);
    let plane = plane.view([&shape[..lead], &vec![Dim::from(1i64); n]].concat());
    let row = |x: Value<'b>| x.op("aten.reshape", vec![vec![-1i64].into()]);
    let at = row(at + plane.op("aten.mul.Tensor", vec![volume.into()]));
    let y = row(zeros).op("aten.index_put", vec![vec![at].into(), row(x).into()]);
    vec![restored(y.view(to))]
}

/// A gradient: of the type and shape of the pooling's input.
const BACKWARD: OpDef = OpDef {
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(|c| Ok(Meta::Tensor(c.meta("self")?))),
    ..BASE
};

/// Gradient of [`MAX_POOL2D`]'s input.
pub static MAX_POOL2D_BACKWARD: OpDef = OpDef {
    name: "aten.max_pool2d_with_indices_backward.default",
    schema: "(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor",
    ..BACKWARD
};

/// Gradient of [`MAX_POOL3D`]'s input.
pub static MAX_POOL3D_BACKWARD: OpDef = OpDef {
    name: "aten.max_pool3d_with_indices_backward.default",
    schema: "(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices) -> Tensor",
    ..BACKWARD
};

/// Gradient of [`AVG_POOL2D`]'s input.
pub static AVG_POOL2D_BACKWARD: OpDef = OpDef {
    name: "aten.avg_pool2d_backward.default",
    schema: "(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
    ..BACKWARD
};

/// Gradient of [`AVG_POOL3D`]'s input.
pub static AVG_POOL3D_BACKWARD: OpDef = OpDef {
    name: "aten.avg_pool3d_backward.default",
    schema: "(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
    ..BACKWARD
};

/// Gradient of [`CORE_ADAPTIVE_AVG_POOL2D`]'s input.
pub static ADAPTIVE_AVG_POOL2D_BACKWARD: OpDef = OpDef {
    name: "aten._adaptive_avg_pool2d_backward.default",
    schema: "(Tensor grad_output, Tensor self) -> Tensor",
    ..BACKWARD
};

/// Gradient of [`CORE_ADAPTIVE_AVG_POOL3D`]'s input.
pub static ADAPTIVE_AVG_POOL3D_BACKWARD: OpDef =
    OpDef { name: "aten._adaptive_avg_pool3d_backward.default", ..ADAPTIVE_AVG_POOL2D_BACKWARD };

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &MAX_POOL1D,
    &MAX_POOL1D_WITH_INDICES,
    &MAX_POOL2D,
    &MAX_POOL2D_WITH_INDICES,
    &MAX_POOL3D,
    &MAX_POOL3D_WITH_INDICES,
    &AVG_POOL1D,
    &AVG_POOL2D,
    &AVG_POOL3D,
    &ADAPTIVE_AVG_POOL1D,
    &ADAPTIVE_AVG_POOL2D,
    &ADAPTIVE_AVG_POOL3D,
    &CORE_ADAPTIVE_AVG_POOL2D,
    &CORE_ADAPTIVE_AVG_POOL3D,
    &ADAPTIVE_MAX_POOL1D,
    &ADAPTIVE_MAX_POOL2D,
    &ADAPTIVE_MAX_POOL3D,
    &FRACTIONAL_MAX_POOL2D,
    &FRACTIONAL_MAX_POOL3D,
    &MAX_UNPOOL2D,
    &MAX_UNPOOL3D,
    &MAX_POOL2D_BACKWARD,
    &MAX_POOL3D_BACKWARD,
    &AVG_POOL2D_BACKWARD,
    &AVG_POOL3D_BACKWARD,
    &ADAPTIVE_AVG_POOL2D_BACKWARD,
    &ADAPTIVE_AVG_POOL3D_BACKWARD,
]];
