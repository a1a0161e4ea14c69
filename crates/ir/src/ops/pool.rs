//! Pooling.

use super::infer::ensure;
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};
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
    infer: Some(adaptive),
    rule: Some(|c| {
        let x = c.tensor("self");
        vec![match c.ints("output_size").as_slice() {
            [1, 1] => x.op("aten.mean.dim", vec![vec![-1i64, -2].into(), true.into()]),
            _ => x.op("aten._adaptive_avg_pool2d", vec![c.arg("output_size").clone()]),
        }]
    }),
    ..BASE
};

/// [`ADAPTIVE_AVG_POOL2D`] as Core ATen has it.
pub static CORE_ADAPTIVE_AVG_POOL2D: OpDef = OpDef {
    name: "aten._adaptive_avg_pool2d.default",
    schema: "(Tensor self, SymInt[2] output_size) -> Tensor",
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(adaptive),
    ..BASE
};

fn adaptive(c: &Call<'_>) -> Result<Meta> {
    let (m, size) = (c.meta("self")?, c.dims("output_size"));
    let lead = m.shape.len().checked_sub(2).ok_or_else(|| c.err("expected 3 or 4 dimensions"))?;
    Ok(Meta::tensor(m.dtype, [&m.shape[..lead], &size].concat()))
}

/// Output shape of a window op over the last two dimensions.
fn pooled(c: &Call<'_>) -> Result<Vec<Dim>> {
    let m = c.meta("self")?;
    let (k, p) = (c.ints("kernel_size"), c.ints("padding"));
    let s = match c.arg("stride") {
        Arg::List(l) if l.is_empty() => k.clone(),
        _ => c.ints("stride"),
    };
    let d = if c.op.schema.index("dilation").is_some() { c.ints("dilation") } else { vec![1, 1] };
    ensure(c, [&k, &s, &p, &d].iter().all(|v| v.len() == 2), || {
        "expected two numbers for each of kernel, stride and padding".into()
    })?;
    ensure(
        c,
        k.iter().chain(&s).chain(&d).all(|v| (1..1 << 20).contains(v)) && p.iter().all(|v| (0..1 << 20).contains(v)),
        || "kernel, stride and dilation must be positive".into(),
    )?;
    let lead = m.shape.len().checked_sub(2).ok_or_else(|| c.err("expected 3 or 4 dimensions"))?;
    let mut shape = m.shape[..lead].to_vec();
    for i in 0..2 {
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

/// The family.
pub static OPS: &[&OpDef] =
    &[&MAX_POOL2D, &MAX_POOL2D_WITH_INDICES, &AVG_POOL2D, &ADAPTIVE_AVG_POOL2D, &CORE_ADAPTIVE_AVG_POOL2D];
