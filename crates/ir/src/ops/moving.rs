//! Elements joined and padded.

use super::infer::{ensure, promote};
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };

/// Tensors joined along one dimension.
pub static CAT: OpDef = OpDef {
    name: "aten.cat.default",
    schema: "(Tensor[] tensors, int dim=0) -> Tensor",
    levels: Levels::ALL,
    infer: Some(cat),
    ..BASE
};

fn cat(c: &Call<'_>) -> Result<Meta> {
    let metas = c.metas("tensors")?;
    let (first, rest) = metas.split_first().ok_or_else(|| c.err("no tensors"))?;
    let axis = c.axis("dim", first.shape.len())?;
    let (mut shape, mut dtype) = (first.shape.clone(), first.dtype);
    ensure(c, !shape.is_empty(), || "tensors without dimensions".into())?;
    for m in rest {
        ensure(c, m.shape.len() == shape.len(), || format!("ranks {} and {}", shape.len(), m.shape.len()))?;
        let fits = (0..shape.len())
            .all(|i| i == axis || shape[i].as_const().zip(m.shape[i].as_const()).is_none_or(|(a, b)| a == b));
        ensure(c, fits, || format!("{shape:?} and {:?} along dimension {axis}", m.shape))?;
        shape[axis] = shape[axis].clone() + m.shape[axis].clone();
        dtype = promote(dtype, m.dtype);
    }
    Ok(Meta::tensor(dtype, shape))
}

/// Elements put around the last dimensions: pairs (before, after), the last dimension first.
pub static CONSTANT_PAD: OpDef = OpDef {
    name: "aten.constant_pad_nd.default",
    schema: "(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| padded(c, "pad")),
    ..BASE
};

/// Elements put around: a constant, or by mode `reflect` or `replicate`.
pub static PAD: OpDef = OpDef {
    name: "aten.pad.default",
    schema: "(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor",
    rule: Some(|c| {
        let (x, pad) = (c.tensor("self"), c.arg("pad").clone());
        vec![match (c.str("mode"), c.dims("pad").len()) {
            ("constant", _) => x.op("aten.constant_pad_nd", vec![pad, c.opt_float("value").unwrap_or(0.0).into()]),
            ("reflect", 4) => x.op("aten.reflection_pad2d", vec![pad]),
            ("replicate", 4) => x.op("aten.replication_pad2d", vec![pad]),
            (mode, n) => {
                c.fail(&format!("mode '{mode}' with {n} pads"));
                x
            }
        }]
    }),
    ..BASE
};

/// Elements mirrored at the edges of the last two dimensions.
pub static REFLECTION_PAD2D: OpDef = OpDef {
    name: "aten.reflection_pad2d.default",
    schema: "(Tensor self, SymInt[4] padding) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| padded(c, "padding")),
    ..BASE
};

/// Elements at the edges of the last two dimensions repeated.
pub static REPLICATION_PAD2D: OpDef = OpDef { name: "aten.replication_pad2d.default", ..REFLECTION_PAD2D };

fn padded(c: &Call<'_>, name: &str) -> Result<Meta> {
    let mut m = c.meta("self")?;
    let pad = c.dims(name);
    ensure(c, pad.len().is_multiple_of(2) && pad.len() / 2 <= m.shape.len(), || {
        format!("{} pads for {} dimensions", pad.len(), m.shape.len())
    })?;
    for (i, p) in pad.chunks(2).enumerate() {
        let at = m.shape.len() - 1 - i;
        m.shape[at] = m.shape[at].clone() + p[0].clone() + p[1].clone();
    }
    Ok(Meta::Tensor(m))
}

/// Tensors joined along a new dimension.
pub static STACK: OpDef = OpDef {
    name: "aten.stack.default",
    schema: "(Tensor[] tensors, int dim=0) -> Tensor",
    levels: Levels::TORCH.and(Levels::ATEN),
    rule: Some(|c| {
        let dim = c.arg("dim").clone();
        let wide: Vec<_> =
            c.tensors("tensors").into_iter().map(|x| x.op("aten.unsqueeze", vec![dim.clone()])).collect();
        vec![c.b.call("aten.cat", vec![wide.into(), dim])]
    }),
    ..BASE
};

/// A tensor repeated along its dimensions, and along new ones before them.
pub static REPEAT: OpDef = OpDef {
    name: "aten.repeat.default",
    schema: "(Tensor self, SymInt[] repeats) -> Tensor",
    levels: Levels::ALL,
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
    ..BASE
};

/// Dimensions turned around.
pub static FLIP: OpDef = OpDef {
    name: "aten.flip.default",
    schema: "(Tensor self, int[] dims) -> Tensor",
    levels: Levels::ALL,
    infer: Some(super::infer::same),
    ..BASE
};

/// The family.
pub static OPS: &[&OpDef] = &[&CAT, &CONSTANT_PAD, &PAD, &REFLECTION_PAD2D, &REPLICATION_PAD2D, &STACK, &REPEAT, &FLIP];
