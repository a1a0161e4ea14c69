//! Matrices taken apart and solved, over the last two dimensions; those before are batches.

use super::infer::{broadcast, ensure};
use crate::builder::Call;
use crate::dim::Dim;
use crate::error::Result;
use crate::graph::Meta;
use crate::op::{Accuracy, Class, Levels, OpDef};
use cleave_numerics::DType;

const BASE: OpDef =
    OpDef { class: Class::Strategic, levels: Levels::ALL, accuracy: Accuracy::Approximate, ..OpDef::BASE };

macro_rules! family {
    ($($(#[$doc:meta])* $id:ident = $name:literal, $schema:literal, $infer:expr;)*) => {
        $($(#[$doc])* pub static $id: OpDef =
            OpDef { name: $name, schema: $schema, infer: Some($infer), ..BASE };)*
        /// The family.
        pub static OPS: &[&[&OpDef]] = &[&[$(&$id),*]];
    };
}

family! {
    /// Determinant, and the factors of the transpose that gave it.
    LINALG_DET = "aten._linalg_det.default", "(Tensor A) -> (Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "A")?;
        Ok(Meta::Tuple(vec![m.each(&[]), m.all(), m.whole(std::slice::from_ref(&m.rows))]))
    };
    /// Sign of the determinant and logarithm of its absolute value, and the factors of the transpose.
    LINALG_SLOGDET = "aten._linalg_slogdet.default", "(Tensor A) -> (Tensor, Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "A")?;
        Ok(Meta::Tuple(vec![m.each(&[]), m.each(&[]), m.all(), m.whole(std::slice::from_ref(&m.rows))]))
    };
    /// Inverse, and the number of the first pivot that is zero (0 if none is).
    LINALG_INV_EX = "aten.linalg_inv_ex.default", "(Tensor A, *, bool check_errors=False) -> (Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "A")?;
        Ok(Meta::Tuple(vec![m.all(), m.whole(&[])]))
    };
    /// `L` of `L·Lᵀ` (or `U` of `Uᵀ·U`), and the order of the first minor that is not positive (0 if all are).
    LINALG_CHOLESKY_EX = "aten.linalg_cholesky_ex.default",
        "(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "self")?;
        Ok(Meta::Tuple(vec![m.all(), m.whole(&[])]))
    };
    /// `X` of `A·X = B` (or `X·A = B`), the factors of `Aᵀ`, and the number of the first pivot that is zero.
    LINALG_SOLVE_EX = "aten._linalg_solve_ex.default",
        "(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor, Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "A")?;
        let x = solved(c, &m, "B")?;
        Ok(Meta::Tuple(vec![x, m.all(), m.whole(std::slice::from_ref(&m.rows)), m.whole(&[])]))
    };
    /// Both factors of `P·L·U` in one matrix, the rows exchanged (from 1 on), and the first pivot that is zero.
    LINALG_LU_FACTOR_EX = "aten.linalg_lu_factor_ex.default",
        "(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::new(c, "A")?;
        Ok(Meta::Tuple(vec![m.all(), m.whole(&[m.least()]), m.whole(&[])]))
    };
    /// `X` of `A·X = B` (or `X·A = B`), `A` by its [`LINALG_LU_FACTOR_EX`].
    LINALG_LU_SOLVE = "aten.linalg_lu_solve.default",
        "(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor", |c| {
        let (m, b) = (Matrix::square(c, "LU")?, Matrix::new(c, "B")?);
        let lead = broadcast(&[&m.lead, &b.lead]).map_err(|why| c.err(&why))?;
        Ok(Meta::tensor(m.dtype, [lead, vec![b.rows, b.columns]].concat()))
    };
    /// `X` of `A·X = B` (or `X·A = B`), `A` a triangle.
    LINALG_SOLVE_TRIANGULAR = "aten.linalg_solve_triangular.default",
        "(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor", |c| {
        let (m, b) = (Matrix::square(c, "self")?, Matrix::new(c, "B")?);
        let lead = broadcast(&[&m.lead, &b.lead]).map_err(|why| c.err(&why))?;
        Ok(Meta::tensor(m.dtype, [lead, vec![b.rows, b.columns]].concat()))
    };
    /// Both factors of `L·D·Lᵀ` of a symmetric matrix in one, how rows were exchanged, and the first pivot that is zero.
    LINALG_LDL_FACTOR_EX = "aten.linalg_ldl_factor_ex.default",
        "(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "self")?;
        Ok(Meta::Tuple(vec![m.all(), m.whole(std::slice::from_ref(&m.rows)), m.whole(&[])]))
    };
    /// `U`, `S` and `Vᵀ` of `U·S·Vᵀ`, `S` descending.
    LINALG_SVD = "aten._linalg_svd.default",
        "(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor, Tensor, Tensor)", |c| {
        let m = Matrix::new(c, "A")?;
        let (least, none) = (m.least(), Dim::from(0i64));
        let (u, v) = match (c.bool("compute_uv"), c.bool("full_matrices")) {
            (false, _) => (Meta::tensor(m.dtype, vec![none.clone()]), Meta::tensor(m.dtype, vec![none])),
            (_, true) => (m.each(&[m.rows.clone(), m.rows.clone()]), m.each(&[m.columns.clone(), m.columns.clone()])),
            _ => (m.each(&[m.rows.clone(), least.clone()]), m.each(&[least.clone(), m.columns.clone()])),
        };
        Ok(Meta::Tuple(vec![u, m.each(&[least]), v]))
    };
    /// Eigenvalues of a symmetric matrix, ascending, and eigenvectors; one triangle is looked at.
    LINALG_EIGH = "aten._linalg_eigh.default",
        "(Tensor A, str UPLO='L', bool compute_v=True) -> (Tensor, Tensor)", |c| {
        let m = Matrix::square(c, "A")?;
        let vectors = if c.bool("compute_v") { m.all() } else { Meta::tensor(m.dtype, vec![Dim::from(0i64)]) };
        Ok(Meta::Tuple(vec![m.each(std::slice::from_ref(&m.rows)), vectors]))
    };
    /// `Q` and `R` of `Q·R`; mode `"reduced"`, `"complete"` or `"r"`.
    LINALG_QR = "aten.linalg_qr.default", "(Tensor A, str mode='reduced') -> (Tensor, Tensor)", |c| {
        let m = Matrix::new(c, "A")?;
        let inner = if c.str("mode") == "complete" { m.rows.clone() } else { m.least() };
        let q = match c.str("mode") {
            "r" => Meta::tensor(m.dtype, vec![Dim::from(0i64)]),
            _ => m.each(&[m.rows.clone(), inner.clone()]),
        };
        Ok(Meta::Tuple(vec![q, m.each(&[inner, m.columns.clone()])]))
    };
    /// `Σ Aᵏ / k!`.
    LINALG_MATRIX_EXP = "aten.linalg_matrix_exp.default", "(Tensor self) -> Tensor",
        |c| Ok(Matrix::square(c, "self")?.all());
    /// The pseudoinverse, singular values up to `max(atol, rtol·S₀)` counted as zero.
    LINALG_PINV = "aten.linalg_pinv.atol_rtol_tensor",
        "(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", |c| {
        let m = Matrix::new(c, "self")?;
        Ok(m.each(&[m.columns.clone(), m.rows.clone()]))
    };
}

/// A tensor as matrices.
struct Matrix {
    dtype: DType,
    lead: Vec<Dim>,
    rows: Dim,
    columns: Dim,
}

impl Matrix {
    fn new(c: &Call<'_>, name: &str) -> Result<Matrix> {
        let m = c.meta(name)?;
        let [lead @ .., rows, columns] = m.shape.as_slice() else {
            return Err(c.err(&format!("argument '{name}': {:?}, expected matrices", m.shape)));
        };
        ensure(c, m.dtype.is_float(), || format!("argument '{name}': matrices of {}", m.dtype))?;
        Ok(Matrix { dtype: m.dtype, lead: lead.to_vec(), rows: rows.clone(), columns: columns.clone() })
    }

    fn square(c: &Call<'_>, name: &str) -> Result<Matrix> {
        let m = Matrix::new(c, name)?;
        let square = m.rows.as_const().zip(m.columns.as_const()).is_none_or(|(a, b)| a == b);
        ensure(c, square, || format!("argument '{name}': {} by {}, expected as many rows", m.rows, m.columns))?;
        Ok(m)
    }

    fn least(&self) -> Dim {
        self.rows.min_of(&self.columns)
    }

    /// Elements of the matrices' type, of this shape for each.
    fn each(&self, shape: &[Dim]) -> Meta {
        Meta::tensor(self.dtype, [&self.lead, shape].concat())
    }

    fn all(&self) -> Meta {
        self.each(&[self.rows.clone(), self.columns.clone()])
    }

    /// Numbers of this shape for each.
    fn whole(&self, shape: &[Dim]) -> Meta {
        Meta::tensor(DType::I32, [&self.lead, shape].concat())
    }
}

/// The shape of what solves `A·X = B`: `B` holds a vector for each matrix if it has a dimension less and fits so.
fn solved(c: &Call<'_>, a: &Matrix, name: &str) -> Result<Meta> {
    let b = c.meta(name)?.shape;
    let vector = b.len() == 1 || b.len() == a.lead.len() + 1 && b[..b.len() - 1] == a.lead && b[b.len() - 1] == a.rows;
    let inner = if vector { 1 } else { 2 };
    ensure(c, b.len() >= inner, || format!("argument '{name}': {b:?}"))?;
    let (own, tail) = b.split_at(b.len() - inner);
    let side = if vector || c.bool("left") { &tail[0] } else { &tail[1] };
    let fits = side.as_const().zip(a.rows.as_const()).is_none_or(|(p, q)| p == q);
    ensure(c, fits, || format!("argument '{name}': {b:?} for matrices of {} rows", a.rows))?;
    let lead = broadcast(&[&a.lead, own]).map_err(|why| c.err(&why))?;
    Ok(Meta::tensor(a.dtype, [lead, tail.to_vec()].concat()))
}
