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
    ..BASE
};

/// [`MAX_POOL2D`] and where the elements were.
pub static MAX_POOL2D_WITH_INDICES: OpDef = OpDef {
    name: "aten.max_pool2d_with_indices.default",
    schema: "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
    levels: Levels::ATEN.and(Levels::CORE),
    infer: Some(|c| {
        let shape = pooled(c)?;
        Ok(Meta::Tuple(vec![Meta::tensor(c.meta("self")?.dtype, shape.clone()), Meta::tensor(DType::I64, shape)]))
    }),
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
    rule: Some(|c| {
        let x = c.tensor("self");
        if c.dims("output_size").iter().any(|d| !d.is(1)) {
            return vec![x.op("aten._adaptive_avg_pool2d", vec![c.arg("output_size").clone()])];
        }
        let last = strides::is_channels_last(&x.shape(), &x.strides());
        let mean = x.op("aten.mean.dim", vec![vec![-1i64, -2].into(), true.into()]);
        // torch keeps the memory format of its input.
        let shape = mean.shape();
        let [_, channels, _, _] = shape.as_slice() else { return vec![mean] };
        let steps = vec![channels.clone(), Dim::from(1i64), channels.clone(), channels.clone()];
        vec![if last { mean.op("aten.as_strided", vec![shape.clone().into(), steps.into()]) } else { mean }]
    }),
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL2D`] over three dimensions.
pub static ADAPTIVE_AVG_POOL3D: OpDef = OpDef {
    name: "aten.adaptive_avg_pool3d.default",
    schema: "(Tensor self, SymInt[3] output_size) -> Tensor",
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 3)),
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![match c.dims("output_size").iter().all(|d| d.is(1)) {
            true => x.op("aten.mean.dim", vec![vec![-1i64, -2, -3].into(), true.into()]),
            false => x.op("aten._adaptive_avg_pool3d", vec![c.arg("output_size").clone()]),
        }]
    }),
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL2D`] over one dimension.
pub static ADAPTIVE_AVG_POOL1D: OpDef = OpDef {
    name: "aten.adaptive_avg_pool1d.default",
    schema: "(Tensor self, int[1] output_size) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    accuracy: Accuracy::Approximate,
    infer: Some(|c| adaptive(c, 1)),
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
    rule: Some(|c| vec![over_two(c, "aten.max_pool2d", &[("padding", 0), ("dilation", 1)])]),
    ..BASE
};

/// [`AVG_POOL2D`] over one dimension.
pub static AVG_POOL1D: OpDef = OpDef {
    name: "aten.avg_pool1d.default",
    schema: "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor",
    accuracy: Accuracy::Approximate,
    levels: Levels::TORCH.and(Levels::ATEN).and(Levels::CORE),
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| vec![over_two(c, "aten.avg_pool2d", &[("padding", 0)])]),
    ..BASE
};

/// A pooling op over one dimension as the one over two, the other of size 1.
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
    c.tensor("self")
        .op("aten.unsqueeze", vec![(-2i64).into()])
        .op(op, args)
        .op("aten.squeeze.dims", vec![vec![-2i64].into()])
}

/// [`MAX_POOL2D`] over three dimensions.
pub static MAX_POOL3D: OpDef = OpDef {
    name: "aten.max_pool3d.default",
    schema: "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor",
    infer: Some(|c| Ok(Meta::tensor(c.meta("self")?.dtype, pooled(c)?))),
    rule: Some(|c| vec![c.b.getitem(c.b.call("aten.max_pool3d_with_indices", c.args.to_vec()), 0)]),
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

/// The family.
pub static OPS: &[&OpDef] = &[
    &MAX_POOL1D,
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
];
