//! Decompositions of matrices, and Fourier transforms. What looks at one triangle of a matrix has gradients of that triangle alone.

use super::product::transposed;
use crate::builder::Value;
use crate::derivative::{Derivative, Gradient};
use crate::dim::Dim;
use crate::graph::Arg;

const PACKED: &str = "its factors lie in one matrix; take gradients of what solves by the matrix itself";
const COMPLEX: &str = "its derivative is a transform to complex numbers";
const SIGNS: &str = "its factors are unique up to signs";

pub(super) static TABLE: &[Derivative] = &[
    Derivative::new("aten._linalg_det.default", "", |d| {
        without(d, &[1]);
        let a = d.tensor("A");
        d.give("A", each(d.g() * d.ys(0)) * transposed(inverse(a)));
    }),
    Derivative::new("aten._linalg_slogdet.default", "", |d| {
        without(d, &[2]);
        d.give("A", each(d.gs(1)) * transposed(inverse(d.tensor("A"))));
    }),
    Derivative::new("aten.linalg_inv_ex.default", "f32[2, 2] | f32[2, 3, 3]", |d| {
        let y = transposed(d.ys(0));
        d.give("A", minus(product(product(y, d.g()), y)));
    }),
    Derivative::new("aten.linalg_cholesky_ex.default", "f32[1, 1]>0, true | f32[2, 1, 1]>0", |d| {
        let upper = d.bool("upper");
        let (l, g) = (turned(d.ys(0), upper), turned(d.g(), upper));
        // Of L·Lᵀ = A: Lᵀ·g, its lower triangle with half of the diagonal, between L⁻ᵀ and L⁻¹.
        let inner = halved(product(transposed(l), g));
        let back = inverse(l);
        let whole = product(product(transposed(back), inner), back);
        d.give("self", turned(folded(whole), upper));
    }),
    Derivative::new("aten._linalg_solve_ex.default", "", |d| {
        without(d, &[1]);
        let (a, b, x, left) = (d.tensor("A"), d.tensor("B"), d.ys(0), d.bool("left"));
        let vector = b.rank() == 1 || b.rank() + 1 == a.rank() && b.shape() == a.shape()[..b.rank()];
        let (g, x) = if vector { (column(d.g()), column(x)) } else { (d.g(), x) };
        let left = left || vector;
        let args = vec![transposed(a).into(), g.into(), left.into()];
        let gb = d.b.getitem(d.b.call("aten._linalg_solve_ex", args), 0);
        let ga = if left { product(gb, transposed(x)) } else { product(transposed(x), gb) };
        d.give("A", minus(ga));
        d.give("B", if vector { gb.op("aten.squeeze.dims", vec![vec![-1i64].into()]) } else { gb });
    }),
    Derivative::new(
        "aten.linalg_solve_triangular.default",
        "f32[2, 2]>0, f32[2, 3], true | f32[2, 2]>0, f32[3, 2], false, false | f32[2, 2, 2], f32[2, 2], true, true, true",
        |d| {
            let (upper, left, unit) = (d.bool("upper"), d.bool("left"), d.bool("unitriangular"));
            let args =
                vec![transposed(d.tensor("self")).into(), d.g().into(), (!upper).into(), left.into(), unit.into()];
            let (gb, x) = (d.b.call("aten.linalg_solve_triangular", args), transposed(d.y()));
            let ga = minus(if left { product(gb, x) } else { product(x, gb) });
            d.give("self", triangle(ga, upper, unit));
            d.give("B", gb);
        },
    ),
    Derivative::new("aten._linalg_eigh.default", "f32[2, 2]! | f32[2, 2, 2]!, \"U\"", eigh),
    Derivative::new("aten._linalg_svd.default", "", |d| {
        without(d, &[0, 2]);
        let all = d.tensor("A").op("aten._linalg_svd", vec![]);
        let (u, v) = (d.b.getitem(all, 0), d.b.getitem(all, 2));
        d.give("A", product(u * row(d.gs(1)), v));
    }),
    // The exponential of a block matrix holds the derivative in its corner.
    Derivative::new("aten.linalg_matrix_exp.default", "f32[2, 2] | f32[2, 2, 2]", |d| {
        let (a, g) = (transposed(d.tensor("self")), d.g());
        let zero = a.op("aten.full_like", vec![0i64.into()]);
        let whole = beside(beside(a, g, -1), beside(zero, a, -1), -2).op("aten.linalg_matrix_exp", vec![]);
        let n = a.shape().last().cloned().unwrap_or(Dim::from(0i64));
        let rows = part(whole, -2, Dim::from(0i64), n.clone());
        d.give("self", part(rows, -1, n.clone(), n.clone() + n));
    }),
    Derivative::new("aten.linalg_pinv.atol_rtol_tensor", "f32[2, 3] | f32[3, 2]", |d| {
        let (a, p, g) = (d.tensor("self"), d.y(), transposed(d.g()));
        let pt = transposed(p);
        let second = product(product(g - product(product(a, p), g), p), pt);
        let third = product(product(pt, p), g - product(g, product(p, a)));
        d.give("self", second + third - product(product(pt, d.g()), pt));
    }),
    Derivative::refused("aten.linalg_lu_factor_ex.default", PACKED),
    Derivative::refused("aten.linalg_lu_solve.default", PACKED),
    Derivative::refused("aten.linalg_ldl_factor_ex.default", PACKED),
    Derivative::refused("aten.linalg_qr.default", SIGNS),
    Derivative::refused("aten._fft_r2c.default", COMPLEX),
    Derivative::refused("aten._fft_c2r.default", COMPLEX),
    Derivative::refused("prims.fft_c2c.default", COMPLEX),
    Derivative::refused("prims.fft_r2c.default", COMPLEX),
    Derivative::refused("prims.fft_c2r.default", COMPLEX),
    Derivative::refused("prims.imag.default", COMPLEX),
    Derivative::refused("aten.fft_irfft.default", COMPLEX),
    Derivative::refused("aten.fft_irfft2.default", COMPLEX),
    Derivative::refused("aten.fft_irfftn.default", COMPLEX),
    Derivative::refused("aten.fft_hfft.default", COMPLEX),
    Derivative::refused("aten.fft_hfft2.default", COMPLEX),
    Derivative::refused("aten.fft_hfftn.default", COMPLEX),
];

/// Fails if a gradient flows into one of these results, which are unique up to signs, or packed.
fn without(d: &Gradient<'_>, results: &[usize]) {
    if results.iter().any(|i| d.flow(*i).is_some()) {
        d.fail("gradients of its factors");
    }
}

fn product<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    a.op("aten.matmul", vec![b.into()])
}

fn minus(v: Value<'_>) -> Value<'_> {
    v.op("aten.neg", vec![])
}

fn turned(v: Value<'_>, yes: bool) -> Value<'_> {
    if yes { transposed(v) } else { v }
}

fn column(v: Value<'_>) -> Value<'_> {
    v.op("aten.unsqueeze", vec![(-1i64).into()])
}

fn row(v: Value<'_>) -> Value<'_> {
    v.op("aten.unsqueeze", vec![(-2i64).into()])
}

fn beside<'b>(a: Value<'b>, b: Value<'b>, axis: i64) -> Value<'b> {
    a.builder().call("aten.cat", vec![vec![a, b].into(), axis.into()])
}

fn part(v: Value<'_>, axis: i64, from: Dim, to: Dim) -> Value<'_> {
    v.op("aten.slice.Tensor", vec![axis.into(), from.into(), to.into()])
}

fn inverse(a: Value<'_>) -> Value<'_> {
    a.builder().getitem(a.op("aten.linalg_inv_ex", vec![]), 0)
}

/// A number for each matrix, to be multiplied with all its elements.
fn each(v: Value<'_>) -> Value<'_> {
    column(column(v))
}

/// One triangle, without the diagonal if `strict`.
fn triangle(v: Value<'_>, upper: bool, strict: bool) -> Value<'_> {
    let aside = i64::from(strict);
    if upper { v.op("aten.triu", vec![aside.into()]) } else { v.op("aten.tril", vec![(-aside).into()]) }
}

/// The lower triangle, with half of the diagonal.
fn halved(v: Value<'_>) -> Value<'_> {
    (triangle(v, false, false) + triangle(v, false, true)) * 0.5
}

/// What a symmetric matrix's gradient is in the lower triangle, where each element stands for two.
fn folded(v: Value<'_>) -> Value<'_> {
    triangle(v, false, false) + triangle(transposed(v), false, true)
}

/// Of `A·V = V·λ`: the gradient of λ between V and Vᵀ, that of V divided by the differences of eigenvalues.
fn eigh<'b>(d: &Gradient<'b>) {
    let upper = matches!(d.arg("UPLO"), Arg::Str(s) if s == "U");
    let a = d.tensor("A");
    let all = a.op("aten._linalg_eigh", vec![d.arg("UPLO").clone()]);
    let (values, v) = (d.b.getitem(all, 0), d.b.getitem(all, 1));
    let mut inner = d.flow(0).map(|g| product(v * row(g), transposed(v)));
    if let Some(g) = d.flow(1) {
        let apart = row(values) - column(values);
        let same = apart.op("aten.eq.Scalar", vec![0i64.into()]);
        let zero = |x: Value<'b>| x.op("aten.masked_fill.Scalar", vec![same.into(), 0i64.into()]);
        let apart = apart.op("aten.masked_fill.Scalar", vec![same.into(), 1i64.into()]);
        let inside = zero(product(transposed(v), g) / apart);
        let g = product(product(v, inside), transposed(v));
        inner = Some(inner.map_or(g, |i| i + g));
    }
    let Some(whole) = inner else { return };
    d.give("A", turned(folded(turned(whole, upper)), upper));
}
