//! Matrix products.

use super::host::{Host, Known};
use super::node::{Ctx, Map, Step};
use cleave_ir::{Tensor, Value};
use cleave_numerics::DType;

pub(super) const OPS: &[(&str, Map)] = &[
    ("Gemm", gemm),
    ("Einsum", |c| {
        let equation = c.opt_str("equation")?.ok_or("attribute 'equation' is missing")?;
        let values = (0..c.len()).map(|i| c.value(i)).collect::<Step<Vec<_>>>()?;
        c.one(c.call("aten.einsum", vec![equation.into(), values.into()]))
    }),
    ("MatMul", |c| {
        let (a, b) = (c.value(0)?, c.value(1)?);
        c.one(c.call("aten.matmul", vec![a.into(), b.into()]))
    }),
];

/// `alpha · A·B + beta · C`. With a constant B it is a linear layer: factors are folded into the constants,
/// each by one f32 product. Only a C of shape `[N]` is its bias; any other is added afterwards.
fn gemm<'b>(c: &Ctx<'b, '_>) -> Step<Vec<Known<'b>>> {
    let (alpha, beta) = (c.float("alpha", 1.0)?, c.float("beta", 1.0)?);
    let (trans_a, trans_b) = (c.flag("transA", false)?, c.flag("transB", false)?);
    c.ignore(&["broadcast"]);
    let mut x = c.value(0)?;
    if trans_a {
        x = x.permute(vec![1, 0]);
    }
    let weight = c.host(1).filter(|h| h.dtype() == DType::F32).and_then(|h| h.as_tensor().map(|t| (h, t)));
    let (w, folded) = match weight {
        Some((h, t)) if t.shape().len() == 2 => {
            let t = if trans_b { t.clone() } else { t.permute(&[1, 0]) };
            let name = if trans_b { h.name.clone() } else { format!("{}.transposed", h.name) };
            (scaled(c, h, &name, t, alpha), true)
        }
        _ => {
            let w = c.value(1)?;
            (if trans_b { w } else { w.permute(vec![1, 0]) }, false)
        }
    };
    let rest = if folded { 1.0 } else { alpha };
    let bias = addend(c, beta)?;
    let features = w.shape().first().cloned();
    let fits = |v: Value<'_>| v.shape().len() == 1 && v.shape().first().cloned() == features;
    if let Some(v) = bias.filter(|v| fits(*v) && rest == 1.0) {
        return c.one(c.call("aten.linear", vec![x.into(), w.into(), v.into()]));
    }
    let mut y = c.call("aten.linear", vec![x.into(), w.into()]);
    if rest != 1.0 {
        y = y * rest;
    }
    c.one(bias.map_or(y, |v| y + v))
}

/// `beta · C`, if there is one.
fn addend<'b>(c: &Ctx<'b, '_>, beta: f64) -> Step<Option<Value<'b>>> {
    if c.opt(2).is_none() || beta == 0.0 {
        return Ok(None);
    }
    Ok(Some(match c.host(2).and_then(|h| h.as_tensor().map(|t| (h, t))) {
        Some((h, t)) if beta == 1.0 || t.dtype() == DType::F32 => scaled(c, h, &h.name, t.clone(), beta),
        _ if beta == 1.0 => c.value(2)?,
        _ => c.value(2)? * beta,
    }))
}

/// A constant times a number.
fn scaled<'b>(c: &Ctx<'b, '_>, source: &Host, name: &str, t: Tensor, by: f64) -> Value<'b> {
    let host = if by == 1.0 {
        Host { name: name.into(), kind: source.kind, ..Host::tensor("", t) }
    } else {
        let v = t.to_f32().iter().map(|v| v * by as f32).collect();
        Host { name: format!("{name}.scaled"), kind: source.kind, ..Host::tensor("", Tensor::new(t.shape(), v)) }
    };
    c.node_of(&Known::Host(host))
}
