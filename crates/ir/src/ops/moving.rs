//! Elements joined, padded and resized.

use super::infer::{ensure, promote};
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, Meta};
use crate::op::{Accuracy, Class, Levels, OpDef};

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
    infer: Some(|c| {
        let mut m = c.meta("self")?;
        let pad = c.dims("pad");
        ensure(c, pad.len() % 2 == 0 && pad.len() / 2 <= m.shape.len(), || {
            format!("{} pads for {} dimensions", pad.len(), m.shape.len())
        })?;
        for (i, p) in pad.chunks(2).enumerate() {
            let at = m.shape.len() - 1 - i;
            m.shape[at] = m.shape[at].clone() + p[0].clone() + p[1].clone();
        }
        Ok(Meta::Tensor(m))
    }),
    ..BASE
};

/// Nearest element: source index `floor(i / scale)`.
pub static UPSAMPLE_NEAREST2D: OpDef = OpDef {
    name: "aten.upsample_nearest2d.vec",
    schema: "(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
    levels: Levels::ALL,
    infer: Some(upsample),
    ..BASE
};

/// Bilinear interpolation.
pub static UPSAMPLE_BILINEAR2D: OpDef = OpDef {
    name: "aten.upsample_bilinear2d.vec",
    schema: "(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
    levels: Levels::ALL,
    accuracy: Accuracy::Approximate,
    infer: Some(upsample),
    ..BASE
};

fn upsample(c: &Call<'_>) -> Result<Meta> {
    let m = c.meta("input")?;
    ensure(c, m.shape.len() == 4, || format!("rank {}, expected 4", m.shape.len()))?;
    let mut shape = m.shape[..2].to_vec();
    match (c.arg("output_size"), c.arg("scale_factors")) {
        (Arg::List(_), _) => shape.extend(c.dims("output_size")),
        (_, Arg::List(scales)) => {
            for (n, s) in m.shape[2..].iter().zip(scales) {
                let s = match s {
                    Arg::Float(f) => *f,
                    Arg::Int(i) => *i as f64,
                    other => return Err(c.err(&format!("scale {other:?}"))),
                };
                ensure(c, s > 0.0 && s.is_finite(), || format!("scale {s}"))?;
                shape.push(match n.as_const() {
                    Some(n) => ((n as f64 * s).floor() as i64).into(),
                    None if s.fract() == 0.0 => n.clone() * (s as i64).into(),
                    None if (1.0 / s).fract() == 0.0 => n.floor_div(&Dim::from((1.0 / s) as i64)),
                    None => return Err(c.err(&format!("scale {s} of a size that is not known"))),
                });
            }
        }
        _ => return Err(c.err("neither output_size nor scale_factors given")),
    }
    ensure(c, shape.len() == 4, || "expected two sizes".into())?;
    Ok(Meta::tensor(m.dtype, shape))
}

/// The family.
pub static OPS: &[&OpDef] = &[&CAT, &CONSTANT_PAD, &UPSAMPLE_NEAREST2D, &UPSAMPLE_BILINEAR2D];
