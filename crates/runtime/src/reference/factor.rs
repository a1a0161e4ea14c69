//! Matrices taken apart and solved, in f64. What is unique up to a sign has one of two.

use super::EvalFn;
use super::ctx::Ctx;
use super::decompose::{Lu, Svd, cholesky, eigh, ldl, qr};
use super::places::{bounded, broadcast};
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use nalgebra::DMatrix;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten._linalg_det.default", |c| {
        let x = Matrices::square(c, "A")?;
        let all = x.transposed_lu();
        let det = x.numbers(&[], all.iter().map(|f| vec![f.diagonal().product::<f64>() * f.sign()]))?;
        let [packed, pivots, _] = x.factors(&all)?;
        Ok(Value::List(vec![det, packed, pivots]))
    }),
    ("aten._linalg_slogdet.default", |c| {
        let x = Matrices::square(c, "A")?;
        let all = x.transposed_lu();
        let sign = |d: f64| if d == 0.0 { 0.0 } else { d.signum() };
        let sign = x.numbers(&[], all.iter().map(|f| vec![f.diagonal().map(sign).product::<f64>() * f.sign()]))?;
        let log = x.numbers(&[], all.iter().map(|f| vec![f.diagonal().map(|d| d.abs().ln()).sum()]))?;
        let [packed, pivots, _] = x.factors(&all)?;
        Ok(Value::List(vec![sign, log, packed, pivots]))
    }),
    ("aten.linalg_inv_ex.default", |c| {
        let x = Matrices::square(c, "A")?;
        let all = x.lu(true);
        let inverse =
            x.matrices(x.rows, x.rows, all.iter().map(|f| f.solve(DMatrix::identity(x.rows, x.rows), false)))?;
        Ok(Value::List(vec![inverse, x.codes(all.iter().map(|f| f.zero))?]))
    }),
    ("aten.linalg_cholesky_ex.default", |c| {
        let (x, upper) = (Matrices::square(c, "self")?, c.bool("upper")?);
        let all: Vec<_> = x.each.iter().map(|m| cholesky(m, upper)).collect();
        let codes = x.codes(all.iter().map(|f| f.1))?;
        Ok(Value::List(vec![x.matrices(x.rows, x.rows, all.into_iter().map(|f| f.0))?, codes]))
    }),
    ("aten._linalg_solve_ex.default", solve),
    ("aten.linalg_lu_factor_ex.default", |c| {
        let x = Matrices::new(c, "A")?;
        Ok(Value::List(x.factors(&x.lu(c.bool("pivot")?))?.to_vec()))
    }),
    ("aten.linalg_lu_solve.default", |c| {
        let (x, pivots, adjoint) = (Matrices::square(c, "LU")?, c.array("pivots")?.to_i64(), c.bool("adjoint")?);
        let n = x.rows;
        if pivots.len() != x.each.len() * n || pivots.iter().any(|p| !(1..=n as i64).contains(p)) {
            return Err(c.err("pivots that are no rows of the matrices"));
        }
        let swaps: Vec<usize> = pivots.iter().map(|p| (*p - 1) as usize).collect();
        let factors: Vec<Lu> = (0..x.each.len())
            .map(|i| Lu { packed: x.each[i].clone(), swaps: swaps[i * n..(i + 1) * n].to_vec(), zero: 0 })
            .collect();
        let left = c.bool("left")?;
        x.solved(&Matrices::new(c, "B")?, left, |i, b| factors[i].solve(b, adjoint == left))
    }),
    ("aten.linalg_solve_triangular.default", |c| {
        let (x, upper, unit, left) =
            (Matrices::square(c, "self")?, c.bool("upper")?, c.bool("unitriangular")?, c.bool("left")?);
        let solve = |i: usize, b: DMatrix<f64>| {
            let m = if left { x.each[i].clone() } else { x.each[i].transpose() };
            super::decompose::triangular(&m, b, upper == left, unit)
        };
        x.solved(&Matrices::new(c, "B")?, left, solve)
    }),
    ("aten.linalg_ldl_factor_ex.default", |c| {
        let x = Matrices::square(c, "self")?;
        let all: Vec<_> = x.each.iter().map(ldl).collect();
        let pivots = x.whole(&[x.rows], all.iter().map(|f| f.pivots.clone()))?;
        let codes = x.codes(all.iter().map(|f| f.zero))?;
        Ok(Value::List(vec![x.matrices(x.rows, x.rows, all.into_iter().map(|f| f.packed))?, pivots, codes]))
    }),
    ("aten._linalg_svd.default", |c| {
        let (x, full) = (Matrices::new(c, "A")?, c.bool("full_matrices")?);
        let all: Vec<Svd> = x.each.iter().map(|m| Svd::new(m, full)).collect();
        let least = x.rows.min(x.columns);
        let s = x.numbers(&[least], all.iter().map(|f| f.s.clone()))?;
        if !c.bool("compute_uv")? {
            return Ok(Value::List(vec![x.nothing(), s, x.nothing()]));
        }
        let (p, q) = if full { (x.rows, x.columns) } else { (least, least) };
        let u = x.matrices(x.rows, p, all.iter().map(|f| f.u.clone()))?;
        Ok(Value::List(vec![u, s, x.matrices(q, x.columns, all.into_iter().map(|f| f.v_t))?]))
    }),
    ("aten._linalg_eigh.default", |c| {
        let x = Matrices::square(c, "A")?;
        let upper = matches!(c.arg("UPLO")?, Value::Str(s) if s == "U");
        let all: Vec<_> = x.each.iter().map(|m| eigh(m, upper)).collect();
        let values = x.numbers(&[x.rows], all.iter().map(|f| f.0.clone()))?;
        let vectors = match c.bool("compute_v")? {
            true => x.matrices(x.rows, x.rows, all.into_iter().map(|f| f.1))?,
            false => x.nothing(),
        };
        Ok(Value::List(vec![values, vectors]))
    }),
    ("aten.linalg_qr.default", |c| {
        let x = Matrices::new(c, "A")?;
        let Value::Str(mode) = c.arg("mode")? else { return Err(c.err("expected a mode")) };
        let inner = if mode == "complete" { x.rows } else { x.rows.min(x.columns) };
        let all: Vec<_> = x.each.iter().map(|m| qr(m, inner)).collect();
        let r = x.matrices(inner, x.columns, all.iter().map(|f| f.1.clone()))?;
        let q = match mode.as_str() {
            "r" => x.nothing(),
            _ => x.matrices(x.rows, inner, all.into_iter().map(|f| f.0))?,
        };
        Ok(Value::List(vec![q, r]))
    }),
    ("aten.linalg_matrix_exp.default", |c| {
        let x = Matrices::square(c, "self")?;
        x.matrices(x.rows, x.rows, x.each.iter().map(|m| if m.is_empty() { m.clone() } else { m.exp() }))
    }),
    ("aten.linalg_pinv.atol_rtol_tensor", pinv),
];

/// A tensor as matrices over its last two dimensions.
struct Matrices<'a> {
    c: &'a Ctx<'a>,
    dtype: DType,
    lead: Vec<usize>,
    rows: usize,
    columns: usize,
    each: Vec<DMatrix<f64>>,
}

impl<'a> Matrices<'a> {
    fn new(c: &'a Ctx<'a>, name: &str) -> Result<Matrices<'a>> {
        let x = c.array(name)?;
        let [lead @ .., rows, columns] = x.shape() else {
            return Err(c.err(format!("argument '{name}': shape {:?}, expected matrices", x.shape())));
        };
        Matrices::of(c, x.dtype, lead, [*rows, *columns], &x.to_f64())
    }

    fn of(c: &'a Ctx<'a>, dtype: DType, lead: &[usize], size: [usize; 2], data: &ArrayD<f64>) -> Result<Matrices<'a>> {
        let [rows, columns] = size;
        let flat: Vec<f64> = data.iter().copied().collect();
        let step = rows * columns;
        let each = (0..lead.iter().product())
            .map(|i| DMatrix::from_row_slice(rows, columns, &flat[i * step..(i + 1) * step]))
            .collect();
        Ok(Matrices { c, dtype, lead: lead.to_vec(), rows, columns, each })
    }

    fn square(c: &'a Ctx<'a>, name: &str) -> Result<Matrices<'a>> {
        let x = Matrices::new(c, name)?;
        if x.rows == x.columns { Ok(x) } else { Err(c.err(format!("{} by {} is not square", x.rows, x.columns))) }
    }

    fn lu(&self, pivot: bool) -> Vec<Lu> {
        self.each.iter().map(|m| Lu::new(m, pivot)).collect()
    }

    /// Factors of the transposed matrices, which torch takes where rows lie together.
    fn transposed_lu(&self) -> Vec<Lu> {
        self.each.iter().map(|m| Lu::new(&m.transpose(), true)).collect()
    }

    /// An array of `tail` for each matrix.
    fn stacked<T>(&self, tail: &[usize], parts: impl Iterator<Item = Vec<T>>) -> Result<ArrayD<T>> {
        let shape = [&self.lead, tail].concat();
        bounded(self.c, &shape)?;
        ArrayD::from_shape_vec(IxDyn(&shape), parts.flatten().collect()).map_err(|e| self.c.err(e.to_string()))
    }

    fn numbers(&self, tail: &[usize], parts: impl Iterator<Item = Vec<f64>>) -> Result<Value> {
        Ok(Array::from_f64(self.dtype, self.stacked(tail, parts)?).into())
    }

    fn whole(&self, tail: &[usize], parts: impl Iterator<Item = Vec<i64>>) -> Result<Value> {
        Ok(Array::int(DType::I32, self.stacked(tail, parts)?).into())
    }

    fn matrices(&self, rows: usize, columns: usize, parts: impl Iterator<Item = DMatrix<f64>>) -> Result<Value> {
        // The library's matrices lie column by column.
        self.numbers(&[rows, columns], parts.map(|m| m.transpose().iter().copied().collect()))
    }

    fn codes(&self, parts: impl Iterator<Item = usize>) -> Result<Value> {
        self.whole(&[], parts.map(|i| vec![i as i64]))
    }

    fn nothing(&self) -> Value {
        Array::from_f64(self.dtype, ArrayD::zeros(IxDyn(&[0]))).into()
    }

    /// Packed factors, rows exchanged (from 1 on) and numbers of zero pivots.
    fn factors(&self, all: &[Lu]) -> Result<[Value; 3]> {
        let swaps = all.iter().map(|f| f.swaps.iter().map(|s| *s as i64 + 1).collect());
        Ok([
            self.matrices(self.rows, self.columns, all.iter().map(|f| f.packed.clone()))?,
            self.whole(&[self.rows.min(self.columns)], swaps)?,
            self.codes(all.iter().map(|f| f.zero))?,
        ])
    }

    /// What `solve` gives for the matrix of a number and each of these (transposed, if they stand to the left).
    fn solved(
        &self,
        b: &Matrices<'_>,
        left: bool,
        solve: impl Fn(usize, DMatrix<f64>) -> DMatrix<f64>,
    ) -> Result<Value> {
        let c = self.c;
        if self.rows != if left { b.rows } else { b.columns } {
            return Err(c.err(format!("{} by {} for matrices of {} rows", b.rows, b.columns, self.rows)));
        }
        let lead = broadcast(c, &[&self.lead, &b.lead])?;
        let (own, other) = (numbered(c, &self.lead, &lead)?, numbered(c, &b.lead, &lead)?);
        let one = |(i, j): (&usize, &usize)| match left {
            true => solve(*i, b.each[*j].clone()),
            false => solve(*i, b.each[*j].transpose()).transpose(),
        };
        let result = Matrices { lead, each: vec![], ..*self };
        result.matrices(b.rows, b.columns, own.iter().zip(&other).map(one))
    }
}

/// The numbers of batches of this shape, as they are repeated in another.
fn numbered(c: &Ctx<'_>, lead: &[usize], to: &[usize]) -> Result<Vec<usize>> {
    let count = lead.iter().product();
    let own = ArrayD::from_shape_vec(IxDyn(lead), (0..count).collect()).map_err(|e| c.err(e.to_string()))?;
    let wide = own.broadcast(IxDyn(to)).ok_or_else(|| c.err(format!("batches {lead:?} as {to:?}")))?;
    Ok(wide.iter().copied().collect())
}

fn solve(c: &Ctx<'_>) -> Result<Value> {
    let (x, b, left) = (Matrices::square(c, "A")?, c.array("B")?, c.bool("left")?);
    let shape = b.shape();
    let vector = shape.len() == 1 || shape.split_last() == Some((&x.rows, &x.lead[..]));
    // A vector for each matrix is a matrix of one column.
    let (lead, size, left) = match shape {
        [lead @ .., n] if vector => (lead, [*n, 1], true),
        [lead @ .., p, q] => (lead, [*p, *q], left),
        _ => return Err(c.err(format!("a right side of shape {shape:?}"))),
    };
    let b = Matrices::of(c, x.dtype, lead, size, &b.to_f64())?;
    let all = x.lu(true);
    let y = x.solved(&b, left, |i, b| all[i].solve(b, !left))?;
    let y = match y {
        Value::Array(y) if vector => {
            let drop = ndarray::Axis(y.shape().len() - 1);
            y.moved(|v| Ok(v.clone().index_axis_move(drop, 0)), |v| Ok(v.clone().index_axis_move(drop, 0)))?.into()
        }
        y => y,
    };
    Ok(Value::List([vec![y], x.factors(&all)?.to_vec()].concat()))
}

fn pinv(c: &Ctx<'_>) -> Result<Value> {
    let (x, hermitian) = (Matrices::new(c, "self")?, c.bool("hermitian")?);
    let given = |name: &str| -> Result<Option<Vec<f64>>> {
        let Some(a) = c.opt_array(name)? else { return Ok(None) };
        let (a, to) = (a.to_f64(), IxDyn(&x.lead));
        let wide = a.broadcast(to).ok_or_else(|| c.err(format!("argument '{name}': shape {:?}", a.shape())))?;
        Ok(Some(wide.iter().copied().collect()))
    };
    let (atol, rtol) = (given("atol")?, given("rtol")?);
    let spacing = if x.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let one = |(i, m): (usize, &DMatrix<f64>)| {
        let low = atol.as_ref().map_or(0.0, |a| a[i]);
        let usual = if low > 0.0 { 0.0 } else { spacing * x.rows.max(x.columns) as f64 };
        let scale = rtol.as_ref().map_or(usual, |r| r[i]);
        let (u, s, v_t) = if hermitian {
            let (values, vectors) = eigh(m, false);
            (vectors.clone(), values, vectors.transpose())
        } else {
            let f = Svd::new(m, false);
            (f.u, f.s, f.v_t)
        };
        let least = low.max(scale * s.iter().fold(0.0, |a: f64, v| a.max(v.abs())));
        let inverse = s.iter().map(|v| if v.abs() > least { 1.0 / v } else { 0.0 });
        v_t.transpose() * DMatrix::from_diagonal(&nalgebra::DVector::from_iterator(s.len(), inverse)) * u.transpose()
    };
    x.matrices(x.columns, x.rows, x.each.iter().enumerate().map(one))
}
