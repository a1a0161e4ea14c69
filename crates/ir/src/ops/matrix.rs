//! What is said of matrices by taking them apart, and chains of products.

use super::infer::ensure;
use crate::builder::{Call, Value};
use crate::dim::Dim;
use crate::graph::Arg;
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef = OpDef {
    class: Class::Strategic,
    levels: Levels::TORCH.and(Levels::ATEN),
    accuracy: Accuracy::Approximate,
    ..OpDef::BASE
};

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $example:literal, $rule:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, example: $example, rule: Some($rule), ..BASE };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id),*]];
    };
}

family! {
    /// Determinant.
    LINALG_DET = "aten.linalg_det.default", "(Tensor A) -> Tensor", "f32[2, 2] | f32[2, 3, 3]",
        |c| results(c, "aten._linalg_det", &["A"], &[0]);
    /// [`LINALG_DET`].
    DET = "aten.det.default", "(Tensor self) -> Tensor", "f32[2, 2]",
        |c| results(c, "aten._linalg_det", &["self"], &[0]);
    /// Sign of the determinant and logarithm of its absolute value.
    LINALG_SLOGDET = "aten.linalg_slogdet.default", "(Tensor A) -> (Tensor, Tensor)", "f32[2, 2] | f32[2, 3, 3]",
        |c| results(c, "aten._linalg_slogdet", &["A"], &[0, 1]);
    /// [`LINALG_SLOGDET`].
    SLOGDET = "aten.slogdet.default", "(Tensor self) -> (Tensor, Tensor)", "f32[2, 2]",
        |c| results(c, "aten._linalg_slogdet", &["self"], &[0, 1]);
    /// Logarithm of the determinant; not a number if that is negative.
    LOGDET = "aten.logdet.default", "(Tensor self) -> Tensor", "f32[2, 2]", |c| {
        let both = c.b.call("aten.linalg_slogdet", vec![c.arg("self").clone()]);
        let (sign, log) = (c.b.getitem(both, 0), c.b.getitem(both, 1));
        let negative = sign.op("aten.eq.Scalar", vec![(-1.0).into()]);
        let nan = c.b.call("aten.scalar_tensor", vec![f64::NAN.into(), log.dtype().into()]);
        vec![negative.op("aten.where.self", vec![nan.into(), log.into()])]
    };
    /// Inverse.
    LINALG_INV = "aten.linalg_inv.default", "(Tensor A) -> Tensor", "f32[2, 2]",
        |c| results(c, "aten.linalg_inv_ex", &["A"], &[0]);
    /// [`LINALG_INV`].
    INVERSE = "aten.inverse.default", "(Tensor self) -> Tensor", "f32[2, 2]",
        |c| results(c, "aten.linalg_inv_ex", &["self"], &[0]);
    /// `L` of `L·Lᵀ`, or `U` of `Uᵀ·U`.
    LINALG_CHOLESKY = "aten.linalg_cholesky.default", "(Tensor self, *, bool upper=False) -> Tensor", "f32[1, 1]>0",
        |c| results(c, "aten.linalg_cholesky_ex", &["self", "upper"], &[0]);
    /// `X` of `A·X = B`, or of `X·A = B`.
    LINALG_SOLVE = "aten.linalg_solve.default", "(Tensor A, Tensor B, *, bool left=True) -> Tensor",
        "f32[2, 2], f32[2] | f32[2, 2, 2], f32[2, 2, 3] | f32[2, 2], f32[3, 2], false",
        |c| results(c, "aten._linalg_solve_ex", &["A", "B", "left"], &[0]);
    /// [`LINALG_SOLVE`], and the number of the first pivot that is zero.
    LINALG_SOLVE_EX = "aten.linalg_solve_ex.default",
        "(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor, Tensor)", "f32[2, 2], f32[2]",
        |c| results(c, "aten._linalg_solve_ex", &["A", "B", "left"], &[0, 3]);
    /// Inverse of the map from the trailing dimensions to the leading `ind` ones.
    LINALG_TENSORINV = "aten.linalg_tensorinv.default", "(Tensor self, int ind=2) -> Tensor", "f32[2, 2], 1", tensorinv;
    /// `X` of which the product with the trailing dimensions of the first tensor is the second.
    LINALG_TENSORSOLVE = "aten.linalg_tensorsolve.default", "(Tensor self, Tensor other, int[]? dims=None) -> Tensor",
        "f32[2, 1, 2], f32[2, 1] | f32[1, 2, 2], f32[2, 1], [0, 2]", tensorsolve;
    /// Product of several matrices in the cheapest order; the first and the last may be vectors.
    LINALG_MULTI_DOT = "aten.linalg_multi_dot.default", "(Tensor[] tensors) -> Tensor",
        "[f32[2, 3], f32[3, 2]] | [f32[2], f32[2, 3], f32[3]] | [f32[2, 3], f32[3, 1], f32[1, 2], f32[2, 2]]", multi_dot;
    /// Product of equal matrices; a negative exponent asks for those of the inverse.
    LINALG_MATRIX_POWER = "aten.linalg_matrix_power.default", "(Tensor self, int n) -> Tensor",
        "f32[2, 2], 3 | f32[2, 2], 0 | f32[2, 2], -2 | f32[2, 2], 1 | f32[1, 2, 2], 6", power;
    /// [`LINALG_MATRIX_POWER`].
    MATRIX_POWER = "aten.matrix_power.default", "(Tensor self, int n) -> Tensor", "f32[2, 2], 5", power;
    /// The greatest (or, for a negative order, least) sum of a column (1) or row (infinity), or singular value (2).
    LINALG_MATRIX_NORM = "aten.linalg_matrix_norm.default",
        "(Tensor self, Scalar ord, int[] dim=[-2,-1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "f32[2, 3]!, 2 | f32[2, 2, 3]!, -2, [0, -1], true | f32[2, 3]!, 1 | f32[2, 2, 3]!, -inf, [0, -1], true", norm;
    /// Square root of the sum of squares (`"fro"`), or the sum of singular values (`"nuc"`).
    LINALG_MATRIX_NORM_NAMED = "aten.linalg_matrix_norm.str_ord",
        "(Tensor self, str ord='fro', int[] dim=[-2,-1], bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
        "f32[2, 3], \"nuc\" | f32[2, 3] | f32[2, 2, 3], \"fro\", [0, -1], true", named_norm;
    /// How many singular values exceed `max(atol, rtol·S₀)`.
    LINALG_MATRIX_RANK = "aten.linalg_matrix_rank.atol_rtol_tensor",
        "(Tensor input, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", "f32[2, 3] | f32[2, 3, 3], f32[2], f32[], true", rank;
    /// [`LINALG_MATRIX_RANK`] by numbers.
    LINALG_MATRIX_RANK_FLOAT = "aten.linalg_matrix_rank.atol_rtol_float",
        "(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", "f32[2, 3] | f32[3, 3], 0.5, 0.25", |c| {
        let (atol, rtol) = tolerances(c);
        let args = vec![c.arg("self").clone(), atol.into(), rtol.into(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_matrix_rank.atol_rtol_tensor", args)]
    };
    /// [`LINALG_MATRIX_RANK`] by one number, not scaled.
    LINALG_MATRIX_RANK_TOL = "aten.linalg_matrix_rank.default",
        "(Tensor self, float tol, bool hermitian=False) -> Tensor", "f32[2, 3], 0.5", |c| {
        let args = vec![c.arg("self").clone(), c.arg("tol").clone(), 0.0.into(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_matrix_rank.atol_rtol_float", args)]
    };
    /// [`LINALG_MATRIX_RANK`] by one tensor, not scaled.
    LINALG_MATRIX_RANK_TENSOR = "aten.linalg_matrix_rank.tol_tensor",
        "(Tensor input, Tensor tol, bool hermitian=False) -> Tensor", "f32[2, 3], f32[]>0", |c| {
        let zero = c.b.call("aten.zeros", vec![Arg::List(vec![]), c.tensor("tol").dtype().into()]);
        let args = vec![c.arg("input").clone(), c.arg("tol").clone(), zero.into(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_matrix_rank.atol_rtol_tensor", args)]
    };
    /// Norm of a matrix times that of its inverse; of order 2 (also with none) by singular values.
    LINALG_COND = "aten.linalg_cond.default", "(Tensor self, Scalar? p=None) -> Tensor", "f32[2, 2] | f32[2, 2], -2", |c| {
        let x = c.tensor("self");
        match c.opt_float("p").unwrap_or(2.0) {
            2.0 => vec![spread(x, false)],
            -2.0 => vec![spread(x, true)],
            _ => by_inverse(c, "aten.linalg_matrix_norm", c.arg("p")),
        }
    };
    /// [`LINALG_COND`] by a norm of a name.
    LINALG_COND_NAMED = "aten.linalg_cond.p_str", "(Tensor self, str p) -> Tensor", "f32[2, 2], \"fro\" | f32[2, 2], \"nuc\"",
        |c| {
        if c.str("p") != "nuc" {
            return by_inverse(c, "aten.linalg_matrix_norm.str_ord", c.arg("p"));
        }
        let s = singular_values(c.tensor("self"));
        vec![total(s) * total(s.reciprocal())]
    };
    /// The pseudoinverse, singular values up to `max(atol, rtol·S₀)` counted as zero.
    LINALG_PINV_FLOAT = "aten.linalg_pinv.atol_rtol_float",
        "(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False) -> Tensor", "f32[2, 3]", |c| {
        let (atol, rtol) = tolerances(c);
        let args = vec![c.arg("self").clone(), atol.into(), rtol.into(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_pinv.atol_rtol_tensor", args)]
    };
    /// [`LINALG_PINV_FLOAT`] with no least tolerance.
    LINALG_PINV = "aten.linalg_pinv.default", "(Tensor self, float rcond, bool hermitian=False) -> Tensor", "f32[2, 3], 0.001", |c| {
        let args = vec![c.arg("self").clone(), 0.0.into(), c.arg("rcond").clone(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_pinv.atol_rtol_float", args)]
    };
    /// [`LINALG_PINV`] by a tensor.
    LINALG_PINV_TENSOR = "aten.linalg_pinv.rcond_tensor",
        "(Tensor self, Tensor rcond, bool hermitian=False) -> Tensor", "f32[2, 3], f32[]<1", |c| {
        let zero = c.b.call("aten.zeros", vec![Arg::List(vec![]), c.tensor("rcond").dtype().into()]);
        let args = vec![c.arg("self").clone(), zero.into(), c.arg("rcond").clone(), c.arg("hermitian").clone()];
        vec![c.b.call("aten.linalg_pinv.atol_rtol_tensor", args)]
    };
    /// [`LINALG_PINV`].
    PINVERSE = "aten.pinverse.default", "(Tensor self, float rcond=1.0000000000000001e-15) -> Tensor", "f32[3, 2]",
        |c| vec![c.tensor("self").op("aten.linalg_pinv", vec![c.arg("rcond").clone()])];
    /// `U`, `S` and `Vᵀ` of `U·S·Vᵀ`, `S` descending.
    LINALG_SVD = "aten.linalg_svd.default",
        "(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor, Tensor, Tensor)", "f32[2, 3] | f32[2, 3, 2], false", |c| {
        let pick = |n: &str| c.arg(n).clone();
        let args = vec![pick("A"), pick("full_matrices"), true.into(), pick("driver")];
        let all = c.b.call("aten._linalg_svd", args);
        (0..3).map(|i| c.b.getitem(all, i)).collect()
    };
    /// Singular values, descending.
    LINALG_SVDVALS = "aten.linalg_svdvals.default", "(Tensor A, *, str? driver=None) -> Tensor", "f32[2, 3]",
        |c| vec![singular_values(c.tensor("A"))];
    /// [`LINALG_SVD`] with `V` in place of `Vᵀ`, by default without columns that meet no singular value.
    SVD = "aten.svd.default",
        "(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor, Tensor, Tensor)", "f32[2, 3] | f32[3, 2], false", |c| {
        let args = vec![c.arg("self").clone(), (!c.bool("some")).into(), true.into()];
        let all = c.b.call("aten._linalg_svd", args);
        let v = c.b.getitem(all, 2).op("aten.transpose.int", vec![(-2i64).into(), (-1i64).into()]);
        vec![c.b.getitem(all, 0), c.b.getitem(all, 1), v]
    };
    /// Eigenvalues of a symmetric matrix, ascending, and eigenvectors; one triangle is looked at.
    LINALG_EIGH = "aten.linalg_eigh.default", "(Tensor self, str UPLO='L') -> (Tensor, Tensor)", "f32[2, 2]",
        |c| results(c, "aten._linalg_eigh", &["self", "UPLO"], &[0, 1]);
    /// Eigenvalues of a symmetric matrix, ascending.
    LINALG_EIGVALSH = "aten.linalg_eigvalsh.default", "(Tensor self, str UPLO='L') -> Tensor", "f32[2, 2], \"U\"",
        |c| results(c, "aten._linalg_eigh", &["self", "UPLO"], &[0]);
    /// Both factors of `P·L·U` in one matrix, and the rows exchanged (from 1 on).
    LINALG_LU_FACTOR = "aten.linalg_lu_factor.default", "(Tensor A, *, bool pivot=True) -> (Tensor, Tensor)", "f32[2, 3] | f32[2, 2], false",
        |c| results(c, "aten.linalg_lu_factor_ex", &["A", "pivot"], &[0, 1]);
    /// [`LINALG_LU_FACTOR`], and the first pivot that is zero.
    LU_WITH_INFO = "aten._lu_with_info.default",
        "(Tensor self, bool pivot=True, bool check_errors=True) -> (Tensor, Tensor, Tensor)", "f32[2, 2]",
        |c| results(c, "aten.linalg_lu_factor_ex", &["self", "pivot"], &[0, 1, 2]);
    /// `X` of `A·X = B`, `A` by its [`LINALG_LU_FACTOR`].
    LU_SOLVE = "aten.lu_solve.default", "(Tensor self, Tensor LU_data, Tensor LU_pivots) -> Tensor", "f32[2, 1], f32[2, 2], i32[2]>1<3", |c| {
        let args = ["LU_data", "LU_pivots", "self"].map(|n| c.arg(n).clone());
        vec![c.b.call("aten.linalg_lu_solve", args.to_vec())]
    };
    /// Both factors of `L·D·Lᵀ` of a symmetric matrix in one, and how rows were exchanged.
    LINALG_LDL_FACTOR = "aten.linalg_ldl_factor.default",
        "(Tensor self, *, bool hermitian=False) -> (Tensor, Tensor)", "f32[2, 2]",
        |c| results(c, "aten.linalg_ldl_factor_ex", &["self", "hermitian"], &[0, 1]);
    /// `Σ Aᵏ / k!`.
    MATRIX_EXP = "aten.matrix_exp.default", "(Tensor self) -> Tensor", "f32[2, 2]",
        |c| vec![c.tensor("self").op("aten.linalg_matrix_exp", vec![])];
}

/// Some results of another op on these arguments.
fn results<'b>(c: &Call<'b>, op: &str, args: &[&str], which: &[usize]) -> Vec<Value<'b>> {
    let all = c.b.call(op, args.iter().map(|n| c.arg(n).clone()).collect());
    which.iter().map(|i| c.b.getitem(all, *i)).collect()
}

fn singular_values(x: Value<'_>) -> Value<'_> {
    x.builder().getitem(x.op("aten._linalg_svd", vec![false.into(), false.into()]), 1)
}

/// Sums along the last dimension.
fn total(v: Value<'_>) -> Value<'_> {
    v.op("aten.sum.dim_IntList", vec![vec![-1i64].into()])
}

fn product(shape: &[Dim]) -> Dim {
    shape.iter().cloned().product()
}

fn tensorinv<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let shape = x.shape();
    let at = usize::try_from(c.int("ind")).ok().filter(|i| *i > 0 && *i <= shape.len());
    let Some((lead, tail)) = at.map(|i| shape.split_at(i)) else {
        c.fail(&format!("the inverse of {shape:?} at {}", c.int("ind")));
        return vec![x];
    };
    let square = x.op("aten.reshape", vec![vec![product(tail), product(lead)].into()]);
    let inverse = c.b.getitem(square.op("aten.linalg_inv_ex", vec![]), 0);
    vec![inverse.op("aten.reshape", vec![[tail, lead].concat().into()])]
}

fn tensorsolve<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (mut x, other) = (c.tensor("self"), c.tensor("other"));
    let n = x.rank();
    if let Some(dims) = c.opt_ints("dims") {
        let Ok(last) = dims.iter().map(|d| c.wrap(*d, n)).collect::<crate::Result<Vec<_>>>() else {
            c.fail(&format!("dimensions {dims:?} of {n}"));
            return vec![x];
        };
        x = x.permute((0..n).filter(|d| !last.contains(d)).chain(last.iter().copied()).map(|d| d as i64).collect());
    }
    let Some(shape) = x.shape().get(other.rank()..).map(<[Dim]>::to_vec) else {
        c.fail(&format!("{:?} for {:?}", other.shape(), x.shape()));
        return vec![x];
    };
    let size = product(&shape);
    let square = x.op("aten.reshape", vec![vec![size.clone(), size].into()]);
    let row = other.op("aten.flatten.using_ints", vec![]);
    vec![square.op("aten.linalg_solve", vec![row.into()]).op("aten.reshape", vec![shape.into()])]
}

fn multi_dot<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let mut x = c.tensors("tensors");
    let Some(last) = x.len().checked_sub(1).filter(|l| *l > 0) else {
        c.fail("expected two matrices or more");
        return x;
    };
    let mut shape = vec![];
    if x[0].rank() == 1 {
        x[0] = x[0].op("aten.unsqueeze", vec![0i64.into()]);
    } else {
        shape.extend(x[0].shape().first().cloned());
    }
    if x[last].rank() == 1 {
        x[last] = x[last].op("aten.unsqueeze", vec![(-1i64).into()]);
    } else {
        shape.extend(x[last].shape().last().cloned());
    }
    // Sizes that are not known count as large ones.
    let size = |d: Option<&Dim>| d.and_then(Dim::as_const).unwrap_or(1 << 20) as f64;
    let mut sizes: Vec<f64> = x.iter().map(|m| size(m.shape().first())).collect();
    sizes.push(size(x[last].shape().last()));
    vec![chained(&x, &sizes).view(shape)]
}

/// The product of a chain of matrices in the order of least cost; `sizes` are their rows, and the last one's columns.
fn chained<'b>(x: &[Value<'b>], sizes: &[f64]) -> Value<'b> {
    fn cost(sizes: &[f64]) -> (f64, usize) {
        let n = sizes.len() - 1;
        if n < 2 {
            return (0.0, 0);
        }
        let mut least = vec![vec![0.0f64; n]; n];
        let mut split = vec![vec![0usize; n]; n];
        for (len, from) in (1..n).flat_map(|len| (0..n - len).map(move |from| (len, from))) {
            let to = from + len;
            let at = |k: usize| least[from][k] + least[k + 1][to] + sizes[from] * sizes[k + 1] * sizes[to + 1];
            let best = (from..to).fold((f64::INFINITY, from), |b, k| if at(k) < b.0 { (at(k), k) } else { b });
            (least[from][to], split[from][to]) = best;
        }
        (least[0][n - 1], split[0][n - 1])
    }
    match x {
        [one] => *one,
        _ => {
            let k = cost(sizes).1 + 1;
            let (left, right) = (chained(&x[..k], &sizes[..=k]), chained(&x[k..], &sizes[k..]));
            left.op("aten.mm", vec![right.into()])
        }
    }
}

fn power<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (x, n) = (c.tensor("self"), c.int("n"));
    let times = |a: Value<'b>, b: Value<'b>| a.op("aten.matmul", vec![b.into()]);
    if n == 0 {
        let Some(rows) = x.shape().iter().rev().nth(1).cloned() else {
            c.fail("expected matrices");
            return vec![x];
        };
        let one = c.b.call("aten.eye", vec![rows.into(), x.dtype().into()]);
        return vec![x.op("aten.clone", vec!["contiguous_format".into()]).op("aten.copy", vec![one.into()])];
    }
    if n == 1 {
        return vec![x.op("aten.clone", vec![])];
    }
    let base = if n < 0 { x.op("aten.linalg_inv", vec![]) } else { x };
    let mut rest = n.unsigned_abs();
    if rest == 3 {
        return vec![times(times(base, base), base)];
    }
    // Square by square, as the bits of the exponent say.
    let (mut square, mut y): (_, Option<Value<'b>>) = (base, None);
    loop {
        if rest & 1 == 1 {
            y = Some(y.map_or(square, |y| times(y, square)));
        }
        rest >>= 1;
        match (rest, y) {
            (0, Some(y)) => return vec![y],
            _ => square = times(square, square),
        }
    }
}

/// The two dimensions of a matrix norm, counted from the front.
fn sides(c: &Call<'_>, rank: usize) -> Option<[usize; 2]> {
    let dims = c.ints("dim");
    let both = match dims.as_slice() {
        [a, b] => c.wrap(*a, rank).and_then(|a| Ok([a, c.wrap(*b, rank)?])),
        _ => Err(c.err(&format!("dimensions {dims:?}, expected two"))),
    };
    let both = both.and_then(|[a, b]| ensure(c, a != b, || format!("dimensions {dims:?}")).map(|()| [a, b]));
    both.map_err(|e| c.b.fail(e)).ok()
}

/// What `f` makes of the singular values, along the last dimension, of matrices over two dimensions.
fn of_singular_values<'b>(c: &Call<'b>, f: impl Fn(Value<'b>) -> Value<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let x = c.opt_dtype("dtype").map_or(x, |d| x.to(d));
    let Some([a, b]) = sides(c, x.rank()) else { return vec![x] };
    let order: Vec<usize> = (0..x.rank()).filter(|d| ![a, b].contains(d)).chain([a, b]).collect();
    let y = f(singular_values(x.permute(order.iter().map(|d| *d as i64).collect())));
    if !c.bool("keepdim") {
        return vec![y];
    }
    let mut back = vec![0i64; order.len()];
    order.iter().enumerate().for_each(|(i, d)| back[*d] = i as i64);
    vec![y.op("aten.unsqueeze", vec![(-1i64).into()]).permute(back)]
}

fn norm<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let (order, keep) = (c.float("ord"), c.arg("keepdim"));
    let extreme = if order > 0.0 { "aten.amax" } else { "aten.amin" };
    let one = |y: Value<'b>, dim: i64| y.op(extreme, vec![vec![dim].into(), keep.clone()]);
    if order.abs() == 2.0 {
        return of_singular_values(c, |s| one(s, -1));
    }
    let x = c.tensor("self");
    let Some([mut a, mut b]) = sides(c, x.rank()) else { return vec![x] };
    match order.abs() {
        1.0 => {}
        f64::INFINITY => std::mem::swap(&mut a, &mut b),
        _ => {
            c.fail(&format!("a norm of order {order}"));
            return vec![x];
        }
    }
    let sums = x.op("aten.linalg_vector_norm", vec![1.0.into(), vec![a].into(), keep.clone(), c.arg("dtype").clone()]);
    let dim = if !c.bool("keepdim") && a < b { b - 1 } else { b };
    vec![one(sums, dim as i64)]
}

fn named_norm<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let (keep, dtype) = (c.arg("keepdim").clone(), c.arg("dtype").clone());
    match c.str("ord") {
        "fro" => match sides(c, x.rank()) {
            Some(both) => vec![x.op("aten.linalg_vector_norm", vec![2i64.into(), both.to_vec().into(), keep, dtype])],
            None => vec![x],
        },
        "nuc" => of_singular_values(c, |s| s.op("aten.sum.dim_IntList", vec![vec![-1i64].into(), keep.clone()])),
        other => {
            c.fail(&format!("a norm '{other}'"));
            vec![x]
        }
    }
}

/// What torch takes for the relative tolerance: the spacing of numbers at 1 times the greater side.
fn spacing(x: Value<'_>) -> f64 {
    let sides = x.shape().iter().rev().take(2).filter_map(Dim::as_const).max().unwrap_or(1);
    sides as f64 * if x.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

fn scalar<'b>(c: &Call<'b>, v: f64) -> Value<'b> {
    c.b.call("aten.full", vec![Arg::List(vec![]), v.into(), DType::F64.into()])
}

/// Absolute and relative tolerance as tensors, of numbers that may be missing.
fn tolerances<'b>(c: &Call<'b>) -> (Value<'b>, Value<'b>) {
    let atol = c.opt_float("atol");
    let rtol =
        c.opt_float("rtol").unwrap_or(if atol.is_some_and(|a| a > 0.0) { 0.0 } else { spacing(c.tensor("self")) });
    (scalar(c, atol.unwrap_or(0.0)), scalar(c, rtol))
}

fn rank<'b>(c: &Call<'b>) -> Vec<Value<'b>> {
    let x = c.tensor("input");
    let (atol, rtol) = (c.opt_tensor("atol"), c.opt_tensor("rtol"));
    let zeros = || c.b.call("aten.zeros", vec![Arg::List(vec![]), DType::F64.into()]);
    let low = atol.unwrap_or_else(zeros);
    let scale = rtol.unwrap_or_else(|| {
        let usual = scalar(c, spacing(x));
        let instead = |a: Value<'b>| {
            a.op("aten.gt.Scalar", vec![0i64.into()]).op("aten.where.self", vec![zeros().into(), usual.into()])
        };
        atol.map_or(usual, instead)
    });
    if x.shape().iter().any(|d| d.is(0)) {
        let lead = x.shape()[..x.rank().saturating_sub(2)].to_vec();
        let ranks = c.b.call("aten.empty.memory_format", vec![lead.into(), DType::I64.into()]);
        return vec![ranks.op("aten.fill.Scalar", vec![0i64.into()])];
    }
    let (values, greatest) = if c.bool("hermitian") {
        let values = x.op("aten.linalg_eigvalsh", vec![]).abs();
        (values, values.op("aten.amax", vec![vec![-1i64].into(), true.into()]))
    } else {
        let values = singular_values(x);
        (values, values.op("aten.narrow", vec![(-1i64).into(), 0i64.into(), 1i64.into()]))
    };
    let column = |t: Value<'b>| t.op("aten.unsqueeze", vec![(-1i64).into()]);
    let least = column(low).op("aten.maximum", vec![(column(scale) * greatest).into()]);
    vec![total(values.op("aten.gt.Tensor", vec![least.into()]))]
}

/// The greatest singular value divided by the least, or the other way round.
fn spread(x: Value<'_>, inverse: bool) -> Value<'_> {
    let s = singular_values(x);
    let n = s.shape().last().cloned().unwrap_or(Dim::from(1i64));
    let at = |i: Dim| s.op("aten.narrow", vec![(-1i64).into(), i.into(), 1i64.into()]);
    let (high, low) = (at(Dim::from(0i64)), at(n - Dim::from(1i64)));
    (if inverse { low / high } else { high / low }).op("aten.squeeze.dim", vec![(-1i64).into()])
}

/// Norm of a matrix times that of its inverse, infinity where there is none.
fn by_inverse<'b>(c: &Call<'b>, norm: &str, order: &Arg) -> Vec<Value<'b>> {
    let x = c.tensor("self");
    let both = x.op("aten.linalg_inv_ex", vec![]);
    let (inverse, info) = (c.b.getitem(both, 0), c.b.getitem(both, 1));
    let column = |t: Value<'b>| t.op("aten.unsqueeze", vec![(-1i64).into()]);
    let singular = column(column(info)).op("aten.gt.Scalar", vec![0i64.into()]);
    let inverse = inverse.op("aten.masked_fill.Scalar", vec![singular.into(), f64::INFINITY.into()]);
    let of = |m: Value<'b>| m.op(norm, vec![order.clone()]);
    let y = of(x) * of(inverse.op("aten.clone", vec!["contiguous_format".into()]));
    let infinite = f64::INFINITY;
    vec![y.op("aten.nan_to_num", vec![infinite.into(), infinite.into(), (-infinite).into()])]
}
