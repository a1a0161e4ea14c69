//! Norms of vectors and matrices, and distances.

use super::infer::ensure;
use super::promote::Kind;
use super::view::reshape;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, Functional, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef { class: Class::Reduction, accuracy: Accuracy::Approximate, ..OpDef::BASE };
const CORE: Levels = Levels::TORCH.and(Levels::ATEN).and(Levels::CORE);

/// `(Σ |x|^ord)^(1/ord)` over dimensions; for ±inf the greatest or least |x|, for 0 how many are not 0.
pub static VECTOR_NORM: OpDef = OpDef {
    name: "aten.linalg_vector_norm.default",
    schema: "(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
    rule: Some(|c| vec![vector_norm(c)]),
    example: "f32[2, 3] | f32[2, 3], 3, [1], true | f32[2, 3]!, inf, [0] | f32[2, 3], 2, none, false, f64",
    ..BASE
};

fn vector_norm<'b>(c: &Call<'b>) -> Value<'b> {
    let (x, order, keep) = (c.tensor("self"), c.float("ord"), c.bool("keepdim"));
    let shape = x.shape();
    let types = Kind::Default.of(c.opt_dtype("dtype").unwrap_or(x.dtype()));
    if let Err(e) = ensure(c, x.dtype().is_float(), || format!("an input of type {}", x.dtype())) {
        c.b.fail(e);
        return x;
    }
    let dims = match c.opt_ints("dim") {
        Some(d) if !d.is_empty() => d.iter().map(|d| c.wrap(*d, shape.len())).collect(),
        _ => Ok((0..shape.len()).collect::<Vec<_>>()),
    };
    let dims = dims.unwrap_or_else(|e| {
        c.b.fail(e);
        vec![]
    });
    let whole = c.opt_ints("dim").is_none_or(|d| d.is_empty());
    let over = |x: Value<'b>, op: &str, more: Vec<Arg>| {
        let named = if whole { Arg::List(vec![]) } else { dims.clone().into() };
        x.op(op, [vec![named, keep.into()], more].concat())
    };
    if order == 0.0 {
        let some = x.op("aten.ne.Scalar", vec![0.0f64.into()]);
        return over(some, "aten.sum.dim_IntList", vec![types.result.into()]);
    }
    if order.is_infinite() {
        let op = if order > 0.0 { "aten.amax" } else { "aten.amin" };
        return over(x.abs(), op, vec![]).to(types.result);
    }
    let x = x.to(types.compute);
    // What is reduced has one element.
    if (whole || !shape.is_empty()) && dims.iter().all(|i| shape.get(*i).is_none_or(|d| d.is(1))) {
        let y = x.abs().to(types.result);
        let left: Vec<Dim> = (0..shape.len()).filter(|i| !dims.contains(i)).map(|i| shape[i].clone()).collect();
        return match () {
            () if keep || shape.is_empty() => contiguous(y),
            () if whole => reshape(y, vec![1i64.into()]).op("aten.select.int", vec![0i64.into(), 0i64.into()]),
            () => contiguous(y.view(left)),
        };
    }
    let size = if order % 2.0 == 0.0 { x } else { x.abs() };
    let power = size.op("aten.pow.Tensor_Scalar", vec![c.arg("ord").clone()]);
    let total = over(power, "aten.sum.dim_IntList", vec![]);
    total.op("aten.pow.Tensor_Scalar", vec![(1.0 / order).into()]).to(types.result)
}

/// The value as torch's `contiguous` gives it.
pub(super) fn contiguous(x: Value<'_>) -> Value<'_> {
    if x.is_contiguous() { x } else { x.op("aten.clone", vec!["contiguous_format".into()]) }
}

/// A vector norm of another tensor than the call's, with the call's `keepdim` and `dtype`.
fn norm_of<'b>(c: &Call<'b>, x: Value<'b>, order: Arg, dims: Arg) -> Value<'b> {
    let has = |n: &str| c.op.schema.index(n).is_some();
    let keep = has("keepdim") && c.bool("keepdim");
    let dtype = if has("dtype") { c.arg("dtype").clone() } else { Arg::None };
    x.op("aten.linalg_vector_norm", vec![order, dims, keep.into(), dtype])
}

/// The call's exponent: 2, if none is given.
fn exponent(c: &Call<'_>) -> Arg {
    match c.arg("p") {
        Arg::None => Arg::Int(2),
        p => p.clone(),
    }
}

macro_rules! norms {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $example:literal, $rule:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, example: $example, rule: Some($rule), ..BASE };)*
        static NORMS: &[&OpDef] = &[$(&$id),*];
    };
}

norms! {
    /// [`VECTOR_NORM`] of all elements.
    NORM = "aten.norm.Scalar", "(Tensor self, Scalar p=2) -> Tensor", "f32[2, 3]",
        |c| vec![norm_of(c, c.tensor("self"), exponent(c), Arg::None)];
    /// [`VECTOR_NORM`] of all elements, in this type.
    NORM_DTYPE = "aten.norm.ScalarOpt_dtype", "(Tensor self, Scalar? p, *, ScalarType dtype) -> Tensor",
        "f32[2, 3], none, f64", |c| vec![norm_of(c, c.tensor("self"), exponent(c), Arg::None)];
    /// [`VECTOR_NORM`].
    NORM_DIM = "aten.norm.ScalarOpt_dim", "(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
        "f32[2, 3], 3, [1], true", |c| vec![norm_of(c, c.tensor("self"), exponent(c), c.arg("dim").clone())];
    /// [`VECTOR_NORM`], in this type.
    NORM_DIM_DTYPE = "aten.norm.ScalarOpt_dim_dtype",
        "(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
        "f32[2, 3], 2, [1], true, f64", |c| vec![norm_of(c, c.tensor("self"), exponent(c), c.arg("dim").clone())];
    /// Root of the sum of squares over dimensions.
    FROBENIUS_NORM = "aten.frobenius_norm.dim", "(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
        "f32[2, 3], [0, 1]", |c| vec![norm_of(c, c.tensor("self"), 2.0f64.into(), c.arg("dim").clone())];
    /// [`VECTOR_NORM`], or the norm of a matrix if two dimensions and an order are given.
    LINALG_NORM = "aten.linalg_norm.default",
        "(Tensor self, Scalar? ord=None, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "f32[2, 3] | f32[2, 3], 3, [1]", |c| {
            let (x, dims) = (c.tensor("self"), c.opt_ints("dim"));
            let rank = dims.as_ref().map_or(x.rank(), Vec::len);
            let dims_arg = c.arg("dim").clone();
            vec![match c.arg("ord") {
                Arg::None => norm_of(c, x, 2i64.into(), dims_arg),
                order if rank == 2 => matrix_norm_of(c, "aten.linalg_matrix_norm", order),
                order => norm_of(c, x, order.clone(), dims_arg),
            }]
        };
    /// The norm of matrices by name: `"fro"` or `"nuc"`.
    LINALG_NORM_NAMED = "aten.linalg_norm.ord_str",
        "(Tensor self, str ord, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "f32[2, 3], \"fro\" | f32[2, 3, 2], \"nuc\", [0, 1], true", |c| vec![matrix_norm_of(c, "aten.linalg_matrix_norm.str_ord", c.arg("ord"))];
}

fn matrix_norm_of<'b>(c: &Call<'b>, op: &str, order: &Arg) -> Value<'b> {
    let dims = if *c.arg("dim") == Arg::None { vec![0i64, 1].into() } else { c.arg("dim").clone() };
    c.tensor("self").op(op, vec![order.clone(), dims, c.arg("keepdim").clone(), c.arg("dtype").clone()])
}

/// Slices along a dimension whose norm is above `maxnorm` shortened to it.
pub static RENORM: OpDef = OpDef {
    name: "aten.renorm.default",
    schema: "(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor",
    class: Class::Norm,
    infer: Some(super::infer::same),
    rule: Some(|c| {
        let x = c.tensor("self");
        let types = Kind::Default.of(x.dtype());
        let Ok(axis) = c.axis("dim", x.rank()).map_err(|e| c.b.fail(e)) else { return vec![x] };
        let over: Vec<usize> = (0..x.rank()).filter(|i| *i != axis).collect();
        let dtype = (types.compute != x.dtype()).then_some(types.compute);
        let args = vec![c.arg("p").clone(), over.into(), true.into(), dtype.into()];
        let norm = x.op("aten.linalg_vector_norm", args);
        let most = c.arg("maxnorm").clone();
        let factor = (norm + 1e-7).reciprocal().op("aten.mul.Tensor", vec![most.clone()]);
        let one = c.b.call("aten.scalar_tensor", vec![1.0f64.into(), factor.dtype().into()]);
        let factor = norm.op("aten.gt.Scalar", vec![most]).op("aten.where.self", vec![factor.into(), one.into()]);
        vec![contiguous(x * factor.to(x.dtype()))]
    }),
    example: "f32[2, 3], 2, 0, 0.5 | f32[2, 3], 3, 1, 9",
    ..BASE
};

/// [`RENORM`] in place.
pub static RENORM_: OpDef = OpDef {
    name: "aten.renorm_.default",
    schema: "(Tensor(a!) self, Scalar p, int dim, Scalar maxnorm) -> Tensor(a!)",
    levels: Levels::TORCH,
    rule: Some(|c| vec![c.b.call("aten.renorm", c.args.to_vec())]),
    functional: Functional::Always,
    ..RENORM
};

/// [`VECTOR_NORM`] of a difference.
pub static DIST: OpDef = OpDef {
    name: "aten.dist.default",
    schema: "(Tensor self, Tensor other, Scalar p=2) -> Tensor",
    rule: Some(|c| vec![(c.tensor("self") - c.tensor("other")).op("aten.norm.Scalar", vec![c.arg("p").clone()])]),
    example: "f32[2, 3], f32[2, 3] | f32[2, 3], f32[3], 3",
    ..BASE
};

/// Distances of all rows of one matrix from all rows of another; many rows, or on demand, by a matrix product.
pub static CDIST: OpDef = OpDef {
    name: "aten.cdist.default",
    schema: "(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor",
    rule: Some(|c| {
        let (x, y, p) = (c.tensor("x1"), c.tensor("x2"), c.float("p"));
        let mode = c.opt_int("compute_mode").unwrap_or(0);
        let rows = |v: Value<'_>| v.rank().checked_sub(2).map(|i| v.shape()[i].clone());
        let many = |n: Option<Dim>| n.and_then(|n| n.as_const()).is_some_and(|n| n > 25);
        if p == 2.0 && (mode == 1 || mode == 0 && (many(rows(x)) || many(rows(y)))) {
            return vec![by_product(c, x, y)];
        }
        let args = vec![y.into(), p.into(), c.arg("compute_mode").clone()];
        vec![x.op("aten._cdist_forward", args)]
    }),
    example: "f32[2, 3], f32[4, 3] | f32[2, 2, 3], f32[4, 3], 2, 1",
    ..BASE
};

fn by_product<'b>(c: &Call<'b>, x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (a, b) = (x.shape(), y.shape());
    let (Some(n), Some(m)) = (a.len().checked_sub(2), b.len().checked_sub(2)) else {
        c.fail("operands of rank 2 or more expected");
        return x;
    };
    let lead = match super::infer::broadcast(&[&a[..n], &b[..m]]) {
        Ok(lead) => lead,
        Err(why) => {
            c.fail(&why);
            return x;
        }
    };
    let batch: Dim = lead.iter().cloned().product();
    let to = [lead.as_slice(), &a[n..n + 1], &b[m..m + 1]].concat();
    let (rows, width) = (to.iter().any(|d| d.is(0)), &a[n + 1]);
    if rows || width.is(0) {
        return c.b.call("aten.full", vec![to.into(), 0i64.into(), x.dtype().into()]);
    }
    let spread = |v: Value<'b>, last: &[Dim]| {
        let wide = v.op("aten.expand", vec![[lead.as_slice(), last].concat().into()]);
        contiguous(wide).view([std::slice::from_ref(&batch), last].concat())
    };
    let (x, y) = if batch.is(1) { (x, y) } else { (spread(x, &a[n..]), spread(y, &b[m..])) };
    x.op("aten._euclidean_dist", vec![y.into()]).view(to)
}

/// Distances of rows by `|x|² - 2·x·y + |y|²`, as one matrix product.
pub static EUCLIDEAN_DIST: OpDef = OpDef {
    name: "aten._euclidean_dist.default",
    schema: "(Tensor x1, Tensor x2) -> Tensor",
    rule: Some(euclidean),
    example: "f32[2, 3], f32[4, 3]",
    ..BASE
};

fn euclidean<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, y) = (c.tensor("x1"), c.tensor("x2"));
    let square = |v: Value<'b>| {
        let sum = v.op("aten.pow.Tensor_Scalar", vec![2i64.into()]);
        let sum = sum.op("aten.sum.dim_IntList", vec![vec![-1i64].into(), true.into()]);
        (sum, sum.op("aten.full_like", vec![1i64.into()]))
    };
    let ((a, one), (b, also)) = (square(x), square(y));
    let join = |parts: [Value<'b>; 3]| c.b.call("aten.cat", vec![parts.to_vec().into(), (-1i64).into()]);
    let (left, right) = (join([x * -2i64, a, one]), join([y, also, b]));
    let turned = right.op("aten.transpose.int", vec![(-2i64).into(), (-1i64).into()]);
    vec![left.op("aten.matmul", vec![turned.into()]).op("aten.clamp_min", vec![0i64.into()]).sqrt()]
}

/// [`VECTOR_NORM`] of the differences of all rows of one matrix and all rows of another.
pub static CDIST_FORWARD: OpDef = OpDef {
    name: "aten._cdist_forward.default",
    schema: "(Tensor x1, Tensor x2, float p, int? compute_mode) -> Tensor",
    levels: CORE,
    rule: Some(|c| {
        let apart = |n: &str, at: i64| c.tensor(n).op("aten.unsqueeze", vec![at.into()]);
        vec![length(c, apart("x1", -2) - apart("x2", -3))]
    }),
    example: "f32[2, 3], f32[4, 3], 2, none | f32[2, 2, 3], f32[4, 3], 3, none",
    ..BASE
};

/// The norm along the last dimension; of nothing, 0.
fn length<'b>(c: &Call<'b>, x: Value<'b>) -> Value<'b> {
    let shape = x.shape();
    match shape.split_last() {
        Some((last, lead)) if last.is(0) => {
            c.b.call("aten.full", vec![lead.to_vec().into(), 0i64.into(), x.dtype().into()])
        }
        _ => x.op("aten.linalg_vector_norm", vec![c.arg("p").clone(), vec![-1i64].into()]),
    }
}

/// Distances of each two rows.
pub static PDIST: OpDef = OpDef {
    name: "aten.pdist.default",
    schema: "(Tensor self, float p=2.) -> Tensor",
    rule: Some(|c| vec![contiguous(c.tensor("self")).op("aten._pdist_forward", vec![c.arg("p").clone()])]),
    example: "f32[3, 2]",
    ..BASE
};

/// [`PDIST`] as Core ATen has it.
pub static PDIST_FORWARD: OpDef = OpDef {
    name: "aten._pdist_forward.default",
    schema: "(Tensor self, float p=2.) -> Tensor",
    levels: CORE,
    rule: Some(|c| {
        let x = c.tensor("self");
        let [n, _] = x.shape().try_into().unwrap_or_else(|_| {
            c.fail("a matrix expected");
            [Dim::from(0i64), Dim::from(0i64)]
        });
        let (i, j) = pairs(c, &n);
        let [left, right] = [i, j].map(|at| x.op("aten.index_select", vec![0i64.into(), at.into()]));
        vec![length(c, left - right)]
    }),
    example: "f32[3, 2] | f32[4, 2], 3",
    ..BASE
};

/// Rows and columns of the places above the diagonal of a square, in order: the `k`-th stands in row
/// `n - ½ - √((n - ½)² - 2k - 1)`, rounded down.
fn pairs<'b>(c: &Call<'b>, n: &Dim) -> (Value<'b>, Value<'b>) {
    let count = (n.clone() * (n.clone() - Dim::from(1i64))).floor_div(&Dim::from(2i64));
    let k = c.b.call("aten.arange.start_step", vec![0i64.into(), count.into()]);
    let whole = |d: Dim| c.b.call("aten.scalar_tensor", vec![d.into(), DType::F64.into()]);
    let half = whole(n.clone()) - 0.5;
    let row = (half - (half * half - (k * 2i64 + 1i64)).sqrt()).op("aten.floor", vec![]).to(DType::I64);
    let before = row.op("aten.mul.Tensor", vec![n.clone().into()]);
    let passed = (row * (row + 1i64)).op("aten.div.Tensor_mode", vec![2i64.into(), "floor".into()]);
    (row, k - before + passed + row + 1i64)
}

/// The product of two vectors' elements, summed along a dimension.
pub static VECDOT: OpDef = OpDef {
    name: "aten.linalg_vecdot.default",
    schema: "(Tensor x, Tensor y, *, int dim=-1) -> Tensor",
    rule: Some(|c| {
        let dim = Arg::List(vec![c.arg("dim").clone()]);
        vec![(c.tensor("x") * c.tensor("y")).op("aten.sum.dim_IntList", vec![dim])]
    }),
    example: "f32[2, 3], f32[2, 3] | f32[2, 3], f32[2, 1], 0",
    ..BASE
};

static PLAIN: &[&OpDef] =
    &[&VECTOR_NORM, &RENORM, &RENORM_, &DIST, &CDIST, &EUCLIDEAN_DIST, &CDIST_FORWARD, &PDIST, &PDIST_FORWARD, &VECDOT];

/// The families.
pub static OPS: &[&[&OpDef]] = &[PLAIN, NORMS];
