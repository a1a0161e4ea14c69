//! Products of matrices and vectors.

use super::infer::{broadcast, ensure};
use super::promote::{self, Kind};
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::{Arg, ConstKind, Kind as Node, Meta};
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Strategic, accuracy: Accuracy::Approximate, ..OpDef::BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);
const IN_PLACE: OpDef =
    OpDef { levels: Levels::TORCH, functional: Functional::Always, infer: Some(super::infer::same), ..BASE };

/// `input · weightᵀ + bias`; weight `[out, in]` or `[in]`, input `[…, in]`.
pub static LINEAR: OpDef = OpDef {
    name: "aten.linear.default",
    schema: "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    weight_axis: Some(0),
    infer: Some(|c| {
        let (x, w) = (c.meta("input")?, c.meta("weight")?);
        let (inner, lead) = x.shape.split_last().ok_or_else(|| c.err("an input without dimensions"))?;
        let (out, width) = match w.shape.as_slice() {
            [n, k] => (vec![n.clone()], k),
            [k] => (vec![], k),
            _ => return Err(c.err(&format!("a weight of shape {:?}", w.shape))),
        };
        ensure(c, same_size(inner, width), || format!("input {:?}, weight {:?}", x.shape, w.shape))?;
        Ok(Meta::tensor(x.dtype, [lead, &out].concat()))
    }),
    rule: Some(linear),
    example: "f32[2, 3], f32[4, 3], f32[4] | f32[2, 2, 3], f32[4, 3], f32[4] | f32[2, 2, 3], f32[4, 3] | f32[3], f32[4, 3]",
    raisable: true,
    ..BASE
};

/// Whether two sizes may be equal.
fn same_size(a: &Dim, b: &Dim) -> bool {
    a.as_const().zip(b.as_const()).is_none_or(|(a, b)| a == b)
}

fn linear<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, w, bias) = (c.tensor("input"), c.tensor("weight"), c.opt_tensor("bias"));
    let (shape, rank) = (x.shape(), x.rank());
    let t = if w.rank() == 2 { w.permute(vec![1, 0]) } else { w.op("aten.alias", vec![]) };
    let Some((inner, lead)) = shape.split_last() else { return vec![x] };
    let Some(bias) = bias else { return vec![matmul(x, t, false)] };
    if rank == 2 && w.rank() == 2 {
        return vec![bias.op("aten.addmm", vec![x.into(), t.into()])];
    }
    if bias.rank() != 1 || w.rank() != 2 || !x.is_contiguous() {
        return vec![matmul(x, t, false) + bias];
    }
    let flat = reshape(x, vec![lead.iter().cloned().product(), inner.clone()]);
    let y = bias.op("aten.addmm", vec![flat.into(), t.into()]);
    vec![y.view([lead, &w.shape()[..1]].concat())]
}

/// Product of two matrices.
pub static MM: OpDef = OpDef {
    name: "aten.mm.default",
    schema: "(Tensor self, Tensor mat2) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| product(c, "self", "mat2", Some(2))),
    ..BASE
};

/// Product of two batches of matrices.
pub static BMM: OpDef = OpDef {
    name: "aten.bmm.default",
    schema: "(Tensor self, Tensor mat2) -> Tensor",
    levels: Levels::ALL,
    infer: Some(|c| product(c, "self", "mat2", Some(3))),
    ..BASE
};

/// `beta·self + alpha·(mat1 · mat2)`.
pub static ADDMM: OpDef = OpDef {
    name: "aten.addmm.default",
    schema: "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    levels: Levels::ALL,
    must_default: &["beta", "alpha"],
    infer: Some(|c| product(c, "mat1", "mat2", Some(2))),
    ..BASE
};

/// [`ADDMM`] in place.
pub static ADDMM_: OpDef = OpDef {
    name: "aten.addmm_.default",
    schema: "(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.addmm", c.args.to_vec())]),
    ..IN_PLACE
};

/// Product of the last two dimensions, the others broadcast; a vector counts as a row or a column.
pub static MATMUL: OpDef = OpDef {
    name: "aten.matmul.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    infer: Some(|c| product(c, "self", "other", None)),
    rule: Some(|c| {
        let (x, y) = (c.tensor("self"), c.tensor("other"));
        let small = if x.rank() >= y.rank() { y } else { x };
        vec![matmul(x, y, is_trained(small))]
    }),
    example: "f32[2, 3], f32[3, 4] | f32[3], f32[3] | f32[2, 3], f32[3] | f32[3], f32[3, 2] | f32[2, 2, 3], f32[3, 4] | f32[2, 1, 3], f32[2, 3, 2] | f32[3], f32[2, 3, 2] | f32[2, 2, 3], f32[3]",
    raisable: true,
    ..BASE
};

/// [`MATMUL`].
pub static LINALG_MATMUL: OpDef = OpDef {
    name: "aten.linalg_matmul.default", raisable: false,
    rule: Some(|c| vec![c.b.call("aten.matmul", c.args.to_vec())]),
    ..MATMUL
};

/// Whether a value is made from a trained parameter, so that torch keeps track of its gradient.
fn is_trained(x: Value<'_>) -> bool {
    x.builder().with_graph(|g| {
        let (mut open, mut seen) = (vec![x.id()], vec![]);
        while let Some(id) = open.pop() {
            if seen.contains(&id) {
                continue;
            }
            seen.push(id);
            let node = g.node(id);
            if node.kind == Node::GetAttr(ConstKind::Param) {
                return true;
            }
            open.extend(node.args.iter().flat_map(Arg::nodes));
        }
        false
    })
}

/// torch's matmul: one matrix product of the larger operand's rows where its strides, or a gradient, allow it, else
/// a batch of products.
fn matmul<'b>(x: Value<'b>, y: Value<'b>, trained: bool) -> Value<'b> {
    let (a, b) = (x.shape(), y.shape());
    let (n, m) = (a.len(), b.len());
    match (n, m) {
        (0, _) | (_, 0) => x.op("aten.mm", vec![y.into()]),
        (1, 1) => x.op("aten.dot", vec![y.into()]),
        (2, 1) => x.op("aten.mv", vec![y.into()]),
        (1, 2) => {
            let rows = x.op("aten.unsqueeze", vec![0i64.into()]);
            rows.op("aten.mm", vec![y.into()]).op("aten.squeeze.dims", vec![vec![0i64].into()])
        }
        (2, 2) => x.op("aten.mm", vec![y.into()]),
        (_, 1 | 2) if trained || has_empty(&a) || x.is_contiguous() => folded(x, y),
        (2, _) if trained => {
            let turned = folded(transposed(y), transposed(x));
            super::distance::contiguous(transposed(turned))
        }
        (1, _) if trained || has_empty(&b) || y.is_contiguous() => folded(transposed(y), x),
        _ => batched(x, y),
    }
}

fn has_empty(shape: &[Dim]) -> bool {
    shape.iter().any(|d| d.is(0))
}

fn transposed(x: Value<'_>) -> Value<'_> {
    x.op("aten.transpose.int", vec![(-2i64).into(), (-1i64).into()])
}

/// All rows of a batch of matrices by one matrix or vector.
fn folded<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let shape = x.shape();
    let Some((inner, lead)) = shape.split_last() else { return x };
    let flat = reshape(x, vec![lead.iter().cloned().product(), inner.clone()]);
    let (op, columns) = if y.rank() == 2 { ("aten.mm", y.shape()[1..].to_vec()) } else { ("aten.mv", vec![]) };
    flat.op(op, vec![y.into()]).op("aten._unsafe_view", vec![[lead, &columns].concat().into()])
}

fn batched<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (a, b) = (x.shape(), y.shape());
    let (n, m) = (a.len(), b.len());
    let of = |s: &[Dim]| s[..s.len().saturating_sub(2)].to_vec();
    let lead = broadcast(&[&of(&a), &of(&b)]).unwrap_or_default();
    let batch: Dim = lead.iter().cloned().product();
    let spread = |v: Value<'b>, wide: &[Dim], flat: &[Dim]| {
        let v = v.op("aten.expand", vec![[lead.as_slice(), wide].concat().into()]);
        reshape(v, [std::slice::from_ref(&batch), flat].concat())
    };
    let rows = if n > 1 { a[n - 2..].to_vec() } else { vec![Dim::from(1i64), a[0].clone()] };
    let left = spread(x, &rows, &rows);
    let mut out = lead.clone();
    out.extend((n > 1).then(|| rows[0].clone()));
    if m == 1 {
        let column = spread(y, &b, &b).op("aten.unsqueeze", vec![2i64.into()]);
        let y = left.op("aten.bmm", vec![column.into()]);
        return y.op("aten.squeeze.dims", vec![vec![-1i64].into()]).view(out);
    }
    out.push(b[m - 1].clone());
    left.op("aten.bmm", vec![spread(y, &b[m - 2..], &b[m - 2..]).into()]).view(out)
}

/// Shape and type of a product; the ranks of both operands, if they are given.
fn product(c: &Call<'_>, a: &str, b: &str, rank: Option<usize>) -> Result<Meta> {
    let (x, y) = (c.meta(a)?, c.meta(b)?);
    let (n, m) = (x.shape.len(), y.shape.len());
    ensure(c, n >= 1 && m >= 1, || "an operand without dimensions".into())?;
    ensure(c, rank.is_none_or(|r| n == r && m == r), || {
        format!("{:?} by {:?}: operands of rank {} expected", x.shape, y.shape, rank.unwrap_or(0))
    })?;
    ensure(c, same_size(&x.shape[n - 1], &y.shape[m.saturating_sub(2)]) && x.dtype == y.dtype, || {
        format!("{}{:?} by {}{:?}", x.dtype, x.shape, y.dtype, y.shape)
    })?;
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

/// `beta·self + alpha·(batch1 · batch2)`.
pub static BADDBMM: OpDef = OpDef {
    name: "aten.baddbmm.default",
    schema: "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    must_default: &["beta", "alpha"],
    infer: Some(|c| product(c, "batch1", "batch2", Some(3))),
    rule: Some(|c| {
        let (v, types) = promote::together(&["self", "batch1", "batch2"].map(|n| c.tensor(n)), Kind::Default);
        vec![blend(c, v[0], v[1].op("aten.bmm", vec![v[2].into()])).to(types.result)]
    }),
    example: "f32[2, 2, 3], f32[2, 2, 4], f32[2, 4, 3] | f32[3], f32[2, 2, 4], f32[2, 4, 3], 2, 0.5 | f32[3], f32[2, 2, 4], f32[2, 4, 3], 0, 2",
    ..BASE
};

/// [`BADDBMM`] in place.
pub static BADDBMM_: OpDef = OpDef {
    name: "aten.baddbmm_.default",
    schema: "(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.baddbmm", c.args.to_vec())]),
    ..IN_PLACE
};

/// `beta·self + alpha·(Σ batch1 · batch2)`.
pub static ADDBMM: OpDef = OpDef {
    name: "aten.addbmm.default",
    schema: "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    levels: CORE,
    must_default: &["beta", "alpha"],
    rule: Some(|c| {
        let (v, types) = promote::together(&["self", "batch1", "batch2"].map(|n| c.tensor(n)), Kind::Default);
        let product = v[1].op("aten.bmm", vec![v[2].into()]);
        let total = product.op("aten.sum.dim_IntList", vec![vec![0i64].into(), false.into(), types.compute.into()]);
        vec![blend(c, v[0], total).to(types.result)]
    }),
    example: "f32[2, 3], f32[2, 2, 4], f32[2, 4, 3] | f32[3], f32[2, 2, 4], f32[2, 4, 3], 2, 0.5",
    ..BASE
};

/// [`ADDBMM`] in place.
pub static ADDBMM_: OpDef = OpDef {
    name: "aten.addbmm_.default",
    schema: "(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.addbmm", c.args.to_vec())]),
    ..IN_PLACE
};

/// `beta·self + alpha·(mat · vec)`.
pub static ADDMV: OpDef = OpDef {
    name: "aten.addmv.default",
    schema: "(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    levels: CORE,
    must_default: &["beta", "alpha"],
    rule: Some(|c| {
        let (v, types) = promote::together(&["self", "mat", "vec"].map(|n| c.tensor(n)), Kind::Default);
        vec![blend(c, v[0], v[1].op("aten.mv", vec![v[2].into()])).to(types.result)]
    }),
    example: "f32[2], f32[2, 3], f32[3] | f32[], f32[2, 3], f32[3], 2, 0.5",
    ..BASE
};

/// [`ADDMV`] in place.
pub static ADDMV_: OpDef = OpDef {
    name: "aten.addmv_.default",
    schema: "(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
    rule: Some(|c| vec![c.b.call("aten.addmv", c.args.to_vec())]),
    ..IN_PLACE
};

/// `beta·x + alpha·product`; with a beta of 0, `x` is not looked at.
fn blend<'b>(c: &Call<'b>, x: Value<'b>, product: Value<'b>) -> Value<'b> {
    let by = |v: Value<'b>, name: &str| {
        let factor = match c.arg(name) {
            Arg::Float(f) if !v.dtype().is_float() => Arg::Int(*f as i64),
            other => other.clone(),
        };
        if c.float(name) == 1.0 { v } else { v.op("aten.mul.Tensor", vec![factor]) }
    };
    let product = by(product, "alpha");
    if c.float("beta") == 0.0 { product } else { by(x, "beta") + product }
}

/// Product of two vectors.
pub static DOT: OpDef = OpDef {
    name: "aten.dot.default",
    schema: "(Tensor self, Tensor tensor) -> Tensor",
    infer: Some(|c| {
        let (x, y) = (c.meta("self")?, c.meta(&c.op.schema.params[1].name)?);
        let fits = x.shape.len() == 1 && y.shape.len() == 1 && same_size(&x.shape[0], &y.shape[0]);
        ensure(c, fits && x.dtype == y.dtype, || format!("{}{:?} by {}{:?}", x.dtype, x.shape, y.dtype, y.shape))?;
        Ok(Meta::tensor(x.dtype, vec![]))
    }),
    rule: Some(|c| vec![summed(c, ["self", "tensor"], None)]),
    example: "f32[3], f32[3]",
    ..BASE
};

/// [`DOT`]; of complex vectors, with the first conjugated.
pub static VDOT: OpDef = OpDef {
    name: "aten.vdot.default",
    schema: "(Tensor self, Tensor other) -> Tensor",
    rule: Some(|c| vec![summed(c, ["self", "other"], None)]),
    ..DOT
};

/// Product of a matrix and a vector.
pub static MV: OpDef = OpDef {
    name: "aten.mv.default",
    schema: "(Tensor self, Tensor vec) -> Tensor",
    infer: Some(|c| {
        let (x, y) = (c.meta("self")?, c.meta("vec")?);
        let fits = x.shape.len() == 2 && y.shape.len() == 1 && same_size(&x.shape[1], &y.shape[0]);
        ensure(c, fits && x.dtype == y.dtype, || format!("{}{:?} by {}{:?}", x.dtype, x.shape, y.dtype, y.shape))?;
        Ok(Meta::tensor(x.dtype, x.shape[..1].to_vec()))
    }),
    rule: Some(|c| vec![summed(c, ["self", "vec"], Some(1))]),
    example: "f32[2, 3], f32[3]",
    ..BASE
};

/// The product of two operands, summed along a dimension or whole.
fn summed<'b>(c: &Call<'b>, names: [&str; 2], dim: Option<i64>) -> Value<'b> {
    let (v, types) = promote::together(&names.map(|n| c.tensor(n)), Kind::Default);
    let dims: Vec<i64> = dim.into_iter().collect();
    (v[0] * v[1]).op("aten.sum.dim_IntList", vec![dims.into()]).to(types.result)
}

/// The sum of a matrix's diagonal.
pub static TRACE: OpDef = OpDef {
    name: "aten.trace.default",
    schema: "(Tensor self) -> Tensor",
    class: Class::Reduction,
    infer: Some(|c| {
        let m = c.meta("self")?;
        ensure(c, m.shape.len() == 2, || format!("a matrix expected, found {:?}", m.shape))?;
        Ok(Meta::tensor(if m.dtype.is_float() { m.dtype } else { DType::I64 }, vec![]))
    }),
    rule: Some(|c| {
        let diagonal = c.tensor("self").op("aten.diagonal", vec![]);
        vec![diagonal.op("aten.clone", vec!["contiguous_format".into()]).op("aten.sum", vec![])]
    }),
    example: "f32[2, 3]",
    ..BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &LINEAR,
    &MM,
    &BMM,
    &ADDMM,
    &ADDMM_,
    &MATMUL,
    &LINALG_MATMUL,
    &BADDBMM,
    &BADDBMM_,
    &ADDBMM,
    &ADDBMM_,
    &ADDMV,
    &ADDMV_,
    &DOT,
    &VDOT,
    &MV,
    &TRACE,
]];
