//! Matrix products.

use super::infer::{broadcast, ensure};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Accuracy, Class, Levels, OpDef};

const BASE: OpDef = OpDef { class: Class::Strategic, accuracy: Accuracy::Approximate, ..OpDef::BASE };

/// `input · weightᵀ + bias`; weight `[out, in]`, input `[…, in]`.
pub static LINEAR: OpDef = OpDef {
    name: "aten.linear.default",
    schema: "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    weight_axis: Some(0),
    infer: Some(linear),
    rule: Some(|c| {
        let (x, w, bias) = (c.tensor("input"), c.tensor("weight"), c.opt_tensor("bias"));
        let (shape, out) = (x.shape(), w.shape());
        let (Some(inner), Some(features)) = (shape.last().cloned(), out.first().cloned()) else { return vec![] };
        let rows = shape[..shape.len() - 1].iter().cloned().product();
        let flat = if shape.len() == 2 { x } else { reshape(x, vec![rows, inner]) };
        let t = w.permute(vec![1, 0]);
        let y = match bias {
            Some(b) => b.op("aten.addmm", vec![flat.into(), t.into()]),
            None => flat.op("aten.mm", vec![t.into()]),
        };
        let mut back = shape[..shape.len() - 1].to_vec();
        back.push(features);
        vec![if shape.len() == 2 { y } else { y.view(back) }]
    }),
    ..BASE
};

fn linear(c: &Call<'_>) -> Result<Meta> {
    let (x, w) = (c.meta("input")?, c.meta("weight")?);
    let inner = x.shape.last().ok_or_else(|| c.err("input without dimensions"))?;
    ensure(c, w.shape.len() == 2 && inner.as_const().is_none_or(|n| w.shape[1].is(n)), || {
        format!("input {:?}, weight {:?}", x.shape, w.shape)
    })?;
    let mut shape = x.shape[..x.shape.len() - 1].to_vec();
    shape.push(w.shape[0].clone());
    Ok(Meta::tensor(x.dtype, shape))
}

/// Product of two matrices.
pub static MM: OpDef = OpDef {
    name: "aten.mm.default",
    schema: "(Tensor self, Tensor mat2) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| product(c, "self", "mat2")),
    ..BASE
};

/// Product of two batches of matrices.
pub static BMM: OpDef = OpDef {
    name: "aten.bmm.default",
    schema: "(Tensor self, Tensor mat2) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| product(c, "self", "mat2")),
    ..BASE
};

/// `beta·self + alpha·(mat1 · mat2)`.
pub static ADDMM: OpDef = OpDef {
    name: "aten.addmm.default",
    schema: "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    levels: Levels::ALL,
    must_default: &["beta", "alpha"],
    infer: Some(|c| product(c, "mat1", "mat2")),
    ..BASE
};

/// Product of the last two dimensions, the others broadcast.
pub static MATMUL: OpDef = OpDef {
    name: "aten.matmul.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(|c| product(c, "self", "other")),
    rule: Some(|c| vec![matmul(c.tensor("self"), c.tensor("other"))]),
    ..BASE
};

fn matmul<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (a, b) = (x.shape(), y.shape());
    match (a.len(), b.len()) {
        (2, 2) => x.op("aten.mm", vec![y.into()]),
        (1, _) => {
            let rows = x.op("aten.unsqueeze", vec![0i64.into()]);
            let place = if b.len() == 1 { 0i64 } else { -2 };
            matmul(rows, y).op("aten.squeeze.dims", vec![vec![place].into()])
        }
        (_, 1) => {
            let column = y.op("aten.unsqueeze", vec![1i64.into()]);
            matmul(x, column).op("aten.squeeze.dims", vec![vec![-1i64].into()])
        }
        (n, 2) if n > 2 => {
            let rows = a[..n - 1].iter().cloned().product();
            let flat = reshape(x, vec![rows, a[n - 1].clone()]).op("aten.mm", vec![y.into()]);
            flat.op("aten._unsafe_view", vec![[&a[..n - 1], &b[1..]].concat().into()])
        }
        (n, m) => {
            let lead = broadcast(&[&a[..n - 2], &b[..m - 2]]).unwrap_or_default();
            let batch: Dim = lead.iter().cloned().product();
            let spread = |v: Value<'b>, last: &[Dim]| {
                let wide = v.op("aten.expand", vec![[lead.as_slice(), last].concat().into()]);
                reshape(wide, [std::slice::from_ref(&batch), last].concat())
            };
            let product = spread(x, &a[n - 2..]).op("aten.bmm", vec![spread(y, &b[m - 2..]).into()]);
            product.view([lead.as_slice(), &a[n - 2..n - 1], &b[m - 1..]].concat())
        }
    }
}

/// `beta·self + alpha·(batch1 · batch2)`.
pub static BADDBMM: OpDef = OpDef {
    name: "aten.baddbmm.default",
    schema: "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    must_default: &["beta", "alpha"],
    infer: Some(|c| product(c, "batch1", "batch2")),
    rule: Some(|c| {
        let product = c.tensor("batch1").op("aten.bmm", vec![c.arg("batch2").clone()]);
        vec![scaled(product, c.float("alpha")) + scaled(c.tensor("self"), c.float("beta"))]
    }),
    ..BASE
};

fn scaled(x: Value<'_>, by: f64) -> Value<'_> {
    if by == 1.0 { x } else { x * by }
}

fn product(c: &Call<'_>, a: &str, b: &str) -> Result<Meta> {
    let (x, y) = (c.meta(a)?, c.meta(b)?);
    let (n, m) = (x.shape.len(), y.shape.len());
    ensure(c, n >= 1 && m >= 1, || "an operand without dimensions".into())?;
    let (inner_x, inner_y) = (&x.shape[n - 1], &y.shape[m.saturating_sub(2)]);
    let fits = match (inner_x.as_const(), inner_y.as_const()) {
        (Some(p), Some(q)) => p == q,
        _ => true,
    };
    ensure(c, fits, || format!("{:?} by {:?}", x.shape, y.shape))?;
    let mut shape =
        broadcast(&[&x.shape[..n.saturating_sub(2)], &y.shape[..m.saturating_sub(2)]]).map_err(|why| c.err(&why))?;
    if n > 1 {
        shape.push(x.shape[n - 2].clone());
    }
    if m > 1 {
        shape.push(y.shape[m - 1].clone());
    }
    Ok(Meta::tensor(x.dtype, shape))
}

/// The family.
pub static OPS: &[&OpDef] = &[&LINEAR, &MM, &BMM, &ADDMM, &MATMUL, &BADDBMM];
