//! Diagonals, triangles, and windows that overlap.

use super::infer::{ensure, same};
use super::view::{contiguous, reshape};
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Move, ..OpDef::BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);

/// Two different dimensions of a rank.
fn plane(c: &Call<'_>, rank: usize) -> Result<(usize, usize)> {
    let (a, b) = (c.axis("dim1", rank)?, c.axis("dim2", rank)?);
    ensure(c, a != b && rank > 1, || format!("dimensions {a} and {b} of {rank}"))?;
    Ok((a, b))
}

/// How many elements a diagonal of an `h·w` matrix has.
fn length(h: &Dim, w: &Dim, offset: i64) -> Dim {
    let n = if offset >= 0 { h.min_of(&(w.clone() - offset.into())) } else { (h.clone() + offset.into()).min_of(w) };
    n.max_of(&Dim::from(0i64))
}

fn without(shape: &[Dim], a: usize, b: usize) -> Vec<Dim> {
    shape.iter().enumerate().filter(|(i, _)| *i != a && *i != b).map(|(_, d)| d.clone()).collect()
}

/// Elements of a plane at places `(i, i + offset)`, as the last dimension.
pub static DIAGONAL: OpDef = OpDef {
    name: "aten.diagonal.default",
    schema: "(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
    class: Class::View,
    levels: CORE,
    infer: Some(|c| {
        let m = c.meta("self")?;
        let (a, b) = plane(c, m.shape.len())?;
        let n = length(&m.shape[a], &m.shape[b], c.int("offset"));
        Ok(Meta::tensor(m.dtype, [without(&m.shape, a, b), vec![n]].concat()))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        let Some((turned, [rows, columns], _)) = at_diagonal(c, x) else { return vec![x] };
        let picked = turned.op("aten.index.Tensor", vec![vec![rows, columns].into()]);
        let n = picked.rank() as i64;
        vec![picked.permute((1..n).chain([0]).collect())]
    }),
    example: "f32[2, 3], 1 | f32[2, 3, 4], -1, 0, 2",
    ..BASE
};

/// The tensor with the plane in front, rows and columns of its diagonal, and the order of dimensions that leads back.
fn at_diagonal<'b>(c: &Call<'b>, x: Value<'b>) -> Option<(Value<'b>, [Value<'b>; 2], Vec<i64>)> {
    let (shape, offset) = (x.shape(), c.int("offset"));
    let (a, b) = plane(c, shape.len()).map_err(|e| c.b.fail(e)).ok()?;
    let n = length(&shape[a], &shape[b], offset);
    let places = |start: i64| {
        let start = Dim::from(start.max(0));
        c.b.call("aten.arange.start", vec![start.clone().into(), (start + n.clone()).into()])
    };
    let order: Vec<usize> = [a, b].into_iter().chain((0..shape.len()).filter(|i| *i != a && *i != b)).collect();
    let back = (0..order.len()).map(|i| order.iter().position(|o| *o == i).unwrap_or(0) as i64).collect();
    let turned = x.permute(order.into_iter().map(|i| i as i64).collect());
    Some((turned, [places(-offset), places(offset)], back))
}

/// The first tensor with a diagonal of it replaced by the second.
pub static DIAGONAL_SCATTER: OpDef = OpDef {
    name: "aten.diagonal_scatter.default",
    schema: "(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    levels: CORE,
    infer: Some(same),
    rule: Some(|c| {
        let (x, src) = (c.tensor("self"), c.tensor("src"));
        let Some((turned, [rows, columns], back)) = at_diagonal(c, x) else { return vec![x] };
        let n = src.rank() as i64;
        let src = src.to(x.dtype()).permute([n - 1].into_iter().chain(0..n - 1).filter(|d| *d >= 0).collect());
        let put = turned.op("aten.index_put", vec![vec![rows, columns].into(), src.into()]);
        vec![contiguous(put.permute(back))]
    }),
    example: "f32[2, 3], f32[2], 1 | f32[2, 3, 4], f32[3, 1], -1, 0, 2",
    ..BASE
};

/// Elements where the mask holds, else zeros.
fn masked<'b>(c: &Call<'b>, mask: Value<'b>, x: Value<'b>) -> Value<'b> {
    if x.dtype() == DType::Bool {
        return contiguous(mask.op("aten.logical_and", vec![x.into()]));
    }
    let zero = c.b.call("aten.scalar_tensor", vec![0i64.into(), x.dtype().into()]);
    contiguous(mask.op("aten.where.self", vec![x.into(), zero.into()]))
}

fn range<'b>(c: &Call<'b>, start: &Dim, end: &Dim) -> Value<'b> {
    c.b.call("aten.arange.start", vec![start.clone().into(), end.clone().into(), DType::I64.into()])
}

/// The last dimension as a diagonal of a plane of zeros.
pub static DIAG_EMBED: OpDef = OpDef {
    name: "aten.diag_embed.default",
    schema: "(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    rule: Some(|c| {
        let (mut x, mut offset) = (c.tensor("self"), c.int("offset"));
        let mut shape = x.shape();
        let (a, b) = match plane(c, shape.len() + 1) {
            Ok((a, b)) if !shape.is_empty() => (a, b),
            Ok(_) => {
                c.fail("a tensor without dimensions");
                return vec![x];
            }
            Err(e) => {
                c.b.fail(e);
                return vec![x];
            }
        };
        if a > b {
            offset = -offset;
        }
        let (a, b) = (a.min(b), a.max(b));
        let last = shape.len() - 1;
        let n = shape[last].clone() + offset.abs().into();
        if offset != 0 {
            shape[last] = offset.abs().into();
            let zeros = c.b.call("aten.full", vec![shape.clone().into(), 0i64.into(), x.dtype().into()]);
            let parts = if offset > 0 { vec![zeros, x] } else { vec![x, zeros] };
            x = c.b.call("aten.cat", vec![parts.into(), (-1i64).into()]);
        }
        x = x.op("aten.unsqueeze", vec![a.into()]).op("aten.movedim.int", vec![(-1i64).into(), b.into()]);
        let rows = range(c, &offset.into(), &(n.clone() + offset.into())).op("aten.unsqueeze", vec![(-1i64).into()]);
        let mask = range(c, &0i64.into(), &n).op("aten.eq.Tensor", vec![rows.into()]);
        let own = (0..=last + 1).map(|i| if i == a || i == b { n.clone() } else { 1i64.into() }).collect();
        vec![masked(c, reshape(mask, own), x)]
    }),
    example: "f32[3] | f32[2, 3], 1 | f32[2, 3], -1, 2, 0",
    ..BASE
};

/// The diagonal of a matrix, or a matrix with this diagonal.
pub static DIAG: OpDef = OpDef {
    name: "aten.diag.default",
    schema: "(Tensor self, int diagonal=0) -> Tensor",
    rule: Some(|c| {
        let (x, offset) = (c.tensor("self"), c.arg("diagonal").clone());
        vec![match x.rank() {
            1 => x.op("aten.diag_embed", vec![offset]),
            2 => x.op("aten.diagonal_copy", vec![offset]),
            n => {
                c.fail(&format!("a tensor of rank {n}, expected a vector or a matrix"));
                x
            }
        }]
    }),
    example: "f32[3], 1 | f32[2, 3]",
    ..BASE
};

/// A matrix with all elements on its diagonal.
pub static DIAGFLAT: OpDef = OpDef {
    name: "aten.diagflat.default",
    schema: "(Tensor self, int offset=0) -> Tensor",
    rule: Some(|c| {
        let flat = contiguous(c.tensor("self")).op("aten.view", vec![vec![-1i64].into()]);
        vec![flat.op("aten.diag", vec![c.arg("offset").clone()])]
    }),
    example: "f32[2, 2] | f32[2], -1",
    ..BASE
};

/// Elements where the comparison of column minus row with `diagonal` holds.
fn triangle<'b>(c: &Call<'b>, compare: &str) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let shape = x.shape();
    let [.., h, w] = shape.as_slice() else {
        c.fail(&format!("{shape:?}, expected matrices"));
        return vec![x];
    };
    let axis =
        |n: &Dim, dim: i64| c.b.call("aten.arange", vec![n.clone().into()]).op("aten.unsqueeze", vec![dim.into()]);
    let columns = axis(w, -2);
    let mask = (columns - axis(h, -1)).op(compare, vec![c.dim("diagonal").into()]);
    vec![masked(c, mask, x)]
}

const TRIANGLE: OpDef = OpDef { schema: "(Tensor self, SymInt diagonal=0) -> Tensor", infer: Some(same), ..BASE };
const IN_PLACE: OpDef = OpDef {
    schema: "(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)",
    levels: Levels::TORCH,
    functional: Functional::Always,
    ..TRIANGLE
};

/// The triangle under a diagonal and on it; zeros above.
pub static TRIL: OpDef = OpDef {
    name: "aten.tril.default",
    rule: Some(|c| triangle(c, "aten.le.Scalar")),
    example: "f32[3, 3] | f32[2, 3, 3], 1",
    ..TRIANGLE
};

/// The triangle above a diagonal and on it; zeros under it.
pub static TRIU: OpDef = OpDef {
    name: "aten.triu.default",
    rule: Some(|c| triangle(c, "aten.ge.Scalar")),
    example: "f32[3, 3] | f32[2, 3, 3], -1",
    ..TRIANGLE
};

/// [`TRIL`] in place.
pub static TRIL_: OpDef =
    OpDef { name: "aten.tril_.default", rule: Some(|c| vec![c.b.call("aten.tril", c.args.to_vec())]), ..IN_PLACE };

/// [`TRIU`] in place.
pub static TRIU_: OpDef =
    OpDef { name: "aten.triu_.default", rule: Some(|c| vec![c.b.call("aten.triu", c.args.to_vec())]), ..IN_PLACE };

/// How many places of a `rows·columns` matrix lie on a diagonal or under it.
fn under(rows: i64, columns: i64, offset: i64) -> Option<i64> {
    // Row `i` has `i + 1 + offset` of them, held between 0 and the number of columns.
    let full = rows.checked_add(offset)?.checked_sub(columns)?.clamp(0, rows);
    let empty = (-offset).clamp(0, rows);
    let partial = rows - full - empty;
    if partial <= 0 {
        return columns.checked_mul(full);
    }
    let (first, last) = (empty + 1 + offset, empty + partial + offset);
    columns.checked_mul(full)?.checked_add((first + last).checked_mul(partial)? / 2)
}

fn indices(c: &Call<'_>, count: impl Fn(i64, i64, i64) -> Option<i64>) -> Result<Meta> {
    let (rows, columns, offset) = (c.int("row"), c.int("col"), c.int("offset"));
    let most = 1i64 << 31;
    let fits = (0..most).contains(&rows) && (0..most).contains(&columns) && (-most..most).contains(&offset);
    let n = count(rows, columns, offset).filter(|_| fits);
    let n = n.ok_or_else(|| c.err(&format!("{rows} rows, {columns} columns, offset {offset}")))?;
    Ok(Meta::tensor(c.opt_dtype("dtype").unwrap_or(DType::I64), vec![2i64.into(), n.into()]))
}

const INDICES: OpDef = OpDef {
    schema: "(int row, int col, int offset=0, *, ScalarType? dtype=int64, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    class: Class::Creation,
    levels: Levels::ALL,
    ..BASE
};

/// Rows and columns of the places on a diagonal and under it.
pub static TRIL_INDICES: OpDef =
    OpDef { name: "aten.tril_indices.default", infer: Some(|c| indices(c, under)), ..INDICES };

/// Rows and columns of the places on a diagonal and above it.
pub static TRIU_INDICES: OpDef = OpDef {
    name: "aten.triu_indices.default",
    infer: Some(|c| indices(c, |h, w, offset| h.checked_mul(w)?.checked_sub(under(h, w, offset - 1)?))),
    ..INDICES
};

/// Ones on the diagonal, zeros elsewhere.
fn eye<'b>(c: &Call<'b>, n: &Dim, m: &Dim) -> Vec<Value<'b>> {
    // torch counts in the narrowest type that holds both sizes.
    let narrow = n.as_const().zip(m.as_const()).map(|(n, m)| match n.max(m) {
        ..256 => DType::U8,
        256..65536 => DType::U16,
        65536..2147483648 => DType::I32,
        _ => DType::I64,
    });
    let range = |n: &Dim| {
        let args = vec![n.clone().into(), narrow.unwrap_or(DType::I64).into()];
        c.b.call("aten.arange", args)
    };
    let rows = range(n).op("aten.unsqueeze", vec![(-1i64).into()]);
    vec![rows.op("aten.eq.Tensor", vec![range(m).into()]).to(c.opt_dtype("dtype").unwrap_or(DType::F32))]
}

/// A square identity matrix.
pub static EYE: OpDef = OpDef {
    name: "aten.eye.default",
    schema: "(SymInt n, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    class: Class::Creation,
    rule: Some(|c| eye(c, &c.dim("n"), &c.dim("n"))),
    example: "3, f32",
    ..BASE
};

/// An identity matrix of `n` rows and `m` columns.
pub static EYE_M: OpDef = OpDef {
    name: "aten.eye.m",
    schema: "(SymInt n, SymInt m, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    class: Class::Creation,
    rule: Some(|c| eye(c, &c.dim("n"), &c.dim("m"))),
    example: "2, 3, f32",
    ..BASE
};

/// Windows of one size along a dimension, every `step` elements; what is in a window is the last dimension.
pub static UNFOLD: OpDef = OpDef {
    name: "aten.unfold.default",
    schema: "(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
    class: Class::View,
    levels: CORE,
    infer: Some(|c| {
        let mut m = c.meta("self")?;
        let (size, step) = (c.int("size"), c.int("step"));
        ensure(c, step > 0 && size >= 0, || format!("windows of {size} every {step} elements"))?;
        let axis = c.axis("dimension", m.shape.len())?;
        let whole = m.shape.get(axis).cloned().unwrap_or(Dim::from(1i64));
        ensure(c, whole.as_const().is_none_or(|n| n >= size), || format!("windows of {size} of {whole}"))?;
        if let Some(d) = m.shape.get_mut(axis) {
            *d = (whole - size.into()).floor_div(&step.into()) + Dim::from(1i64);
        }
        m.shape.push(size.into());
        Ok(Meta::Tensor(m))
    }),
    rule: Some(|c| {
        let x = c.tensor("self");
        let (Ok(axis), size, step) = (c.axis("dimension", x.rank()), c.int("size"), c.int("step")) else {
            c.fail("a dimension that there is not");
            return vec![x];
        };
        if x.rank() == 0 {
            return vec![x.op("aten.expand", vec![vec![size].into()])];
        }
        let last = x.shape()[axis].clone() - size.into();
        let range = |end: Dim, step: i64| {
            c.b.call("aten.arange.start_step", vec![0i64.into(), end.into(), step.into(), DType::I64.into()])
        };
        let starts = range(last + Dim::from(1i64), step.max(1)).op("aten.unsqueeze", vec![(-1i64).into()]);
        let mut index = vec![crate::graph::Arg::None; axis];
        index.push((starts + range(size.into(), 1)).into());
        let picked = x.op("aten.index.Tensor", vec![crate::graph::Arg::List(index)]);
        let n = picked.rank() as i64;
        let inside = axis as i64 + 1;
        vec![picked.permute((0..n).filter(|d| *d != inside).chain([inside]).collect())]
    }),
    example: "f32[5], 0, 3, 1 | f32[2, 5, 2], 1, 2, 2 | f32[], 0, 1, 1",
    ..BASE
};

/// The first tensor with the elements at these sizes and strides of its storage replaced by the second.
pub static AS_STRIDED_SCATTER: OpDef = OpDef {
    name: "aten.as_strided_scatter.default",
    schema: "(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
    levels: Levels::ALL,
    infer: Some(same),
    ..BASE
};

/// The family.
pub static OPS: &[&[&OpDef]] = &[&[
    &DIAGONAL,
    &DIAGONAL_SCATTER,
    &DIAG_EMBED,
    &DIAG,
    &DIAGFLAT,
    &TRIL,
    &TRIU,
    &TRIL_,
    &TRIU_,
    &TRIL_INDICES,
    &TRIU_INDICES,
    &EYE,
    &EYE_M,
    &UNFOLD,
    &AS_STRIDED_SCATTER,
]];
