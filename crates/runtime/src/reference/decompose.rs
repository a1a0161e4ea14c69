//! Dense decompositions as LAPACK defines them.

use nalgebra::{DMatrix, SVD, SymmetricEigen};

type Matrix = DMatrix<f64>;

/// `P·L·U`, both triangles in one.
pub struct Lu {
    /// `L` below the diagonal, whose own is 1, and `U`.
    pub packed: Matrix,
    /// The row that each row was exchanged with, in order.
    pub swaps: Vec<usize>,
    /// The number of the first pivot that is zero, from 1 on; 0 if none is.
    pub zero: usize,
}

impl Lu {
    /// With rows exchanged so that pivots are large, or as they stand.
    pub fn new(m: &Matrix, pivot: bool) -> Lu {
        let (mut a, mut swaps, mut zero) = (m.clone(), vec![], 0);
        let (rows, columns) = a.shape();
        for k in 0..rows.min(columns) {
            let larger = |p: usize, i: usize| if a[(i, k)].abs() > a[(p, k)].abs() { i } else { p };
            let p = if pivot { (k + 1..rows).fold(k, larger) } else { k };
            swaps.push(p);
            if a[(p, k)] == 0.0 {
                zero = if zero == 0 { k + 1 } else { zero };
                continue;
            }
            a.swap_rows(p, k);
            for i in k + 1..rows {
                a[(i, k)] /= a[(k, k)];
                for j in k + 1..columns {
                    a[(i, j)] -= a[(i, k)] * a[(k, j)];
                }
            }
        }
        Lu { packed: a, swaps, zero }
    }

    /// Sign of the exchange of rows.
    pub fn sign(&self) -> f64 {
        let odd = self.swaps.iter().enumerate().filter(|(k, p)| k != *p).count() % 2 == 1;
        if odd { -1.0 } else { 1.0 }
    }

    /// The diagonal of `U`.
    pub fn diagonal(&self) -> impl Iterator<Item = f64> {
        (0..self.swaps.len()).map(|i| self.packed[(i, i)])
    }

    /// `X` of `A·X = B`, or of `Aᵀ·X = B`.
    pub fn solve(&self, mut b: Matrix, transposed: bool) -> Matrix {
        let swaps = self.swaps.iter().enumerate();
        if !transposed {
            swaps.for_each(|(k, p)| b.swap_rows(k, *p));
            return triangular(&self.packed, triangular(&self.packed, b, false, true), true, false);
        }
        let a = self.packed.transpose();
        b = triangular(&a, triangular(&a, b, false, false), true, true);
        swaps.rev().for_each(|(k, p)| b.swap_rows(k, *p));
        b
    }
}

/// `X` of `T·X = B`, where `T` is one triangle of a matrix, its diagonal taken as 1 if `unit`.
pub fn triangular(a: &Matrix, mut b: Matrix, upper: bool, unit: bool) -> Matrix {
    let n = a.nrows();
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        for column in 0..b.ncols() {
            let known = if upper { i + 1..n } else { 0..i };
            let sum: f64 = known.map(|j| a[(i, j)] * b[(j, column)]).sum();
            let rest = b[(i, column)] - sum;
            b[(i, column)] = if unit { rest } else { rest / a[(i, i)] };
        }
    }
    b
}

/// `L` of `L·Lᵀ` by the lower triangle, or `U` of `Uᵀ·U` by the upper, and the order of the first minor that is not
/// positive.
pub fn cholesky(m: &Matrix, upper: bool) -> (Matrix, usize) {
    let n = m.nrows();
    let a = if upper { m.transpose() } else { m.clone() };
    let mut l = Matrix::zeros(n, n);
    for j in 0..n {
        let d = a[(j, j)] - (0..j).map(|k| l[(j, k)] * l[(j, k)]).sum::<f64>();
        if d.is_nan() || d <= 0.0 {
            return (l, j + 1);
        }
        l[(j, j)] = d.sqrt();
        for i in j + 1..n {
            let sum: f64 = (0..j).map(|k| l[(i, k)] * l[(j, k)]).sum();
            l[(i, j)] = (a[(i, j)] - sum) / l[(j, j)];
        }
    }
    (if upper { l.transpose() } else { l }, 0)
}

/// `U·S·Vᵀ`.
pub struct Svd {
    /// Left vectors, as columns.
    pub u: Matrix,
    /// Singular values, descending.
    pub s: Vec<f64>,
    /// Right vectors, as rows.
    pub v_t: Matrix,
}

impl Svd {
    /// With vectors for each singular value, or as many as span the space.
    pub fn new(m: &Matrix, full: bool) -> Svd {
        let (rows, columns) = m.shape();
        let least = rows.min(columns);
        let finite = least > 0 && m.iter().all(|v| v.is_finite());
        let f = finite.then(|| SVD::new(m.clone(), true, true));
        let s = f.as_ref().map_or(vec![f64::NAN; least], |f| f.singular_values.iter().copied().collect());
        let (u, v_t) = f.map_or((None, None), |f| (f.u, f.v_t));
        let u = u.unwrap_or_else(|| Matrix::zeros(rows, least));
        let v_t = v_t.unwrap_or_else(|| Matrix::zeros(least, columns));
        match full {
            true => Svd { u: completed(u), s, v_t: completed(v_t.transpose()).transpose() },
            false => Svd { u, s, v_t },
        }
    }
}

/// Orthonormal columns and further ones that make them a basis.
fn completed(mut u: Matrix) -> Matrix {
    let n = u.nrows();
    while u.ncols() < n {
        // What of each axis lies outside of the space so far; the longest is kept.
        let outside = Matrix::identity(n, n) - &u * u.transpose();
        let best = outside.column_iter().map(|c| c.into_owned()).max_by(|a, b| a.norm().total_cmp(&b.norm()));
        let Some(v) = best else { break };
        let v = &v - &u * (u.transpose() * &v);
        let at = u.ncols();
        u = u.insert_column(at, 0.0);
        u.set_column(at, &v.normalize());
    }
    u
}

/// Eigenvalues, ascending, and eigenvectors, as columns, of the symmetric matrix that has this triangle.
pub fn eigh(m: &Matrix, upper: bool) -> (Vec<f64>, Matrix) {
    let n = m.nrows();
    if n == 0 || m.iter().any(|v| !v.is_finite()) {
        return (vec![f64::NAN; n], Matrix::zeros(n, n));
    }
    let whole = Matrix::from_fn(n, n, |i, j| if (i > j) == upper { m[(j, i)] } else { m[(i, j)] });
    let f = SymmetricEigen::new(whole);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| f.eigenvalues[*a].total_cmp(&f.eigenvalues[*b]));
    (order.iter().map(|i| f.eigenvalues[*i]).collect(), f.eigenvectors.select_columns(&order))
}

/// `Q` of so many columns and `R`, by reflections.
pub fn qr(m: &Matrix, inner: usize) -> (Matrix, Matrix) {
    let (rows, columns) = m.shape();
    let (mut r, mut reflections) = (m.clone(), vec![]);
    for k in 0..rows.saturating_sub(1).min(columns) {
        let tail = r.view((k + 1, k), (rows - k - 1, 1)).norm();
        let head = r[(k, k)];
        if tail == 0.0 {
            continue;
        }
        let length = -head.signum() * head.hypot(tail);
        let mut v = Matrix::zeros(rows, 1);
        v[(k, 0)] = 1.0;
        (k + 1..rows).for_each(|i| v[(i, 0)] = r[(i, k)] / (head - length));
        let scale = (length - head) / length;
        r -= &v * (v.transpose() * &r) * scale;
        (k + 1..rows).for_each(|i| r[(i, k)] = 0.0);
        reflections.push((v, scale));
    }
    let mut q = Matrix::identity(rows, inner);
    for (v, scale) in reflections.iter().rev() {
        q -= v * (v.transpose() * &q) * *scale;
    }
    (q, r.rows(0, inner).into_owned())
}

/// `L·D·Lᵀ`, both factors in one.
pub struct Ldl {
    /// `D` on the diagonal, with blocks of two rows, and `L` below.
    pub packed: Matrix,
    /// For a block of one row the row exchanged with it, from 1 on; for one of two, twice that of the second, negative.
    pub pivots: Vec<i64>,
    /// The number of the first pivot that is zero, from 1 on; 0 if none is.
    pub zero: usize,
}

/// Bunch and Kaufman's way, by the lower triangle.
pub fn ldl(m: &Matrix) -> Ldl {
    let n = m.nrows();
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let mut a = m.lower_triangle();
    let (mut pivots, mut zero, mut k) = (vec![0; n], 0, 0);
    // The place of the greatest element of a column or row, and its absolute value.
    let greatest = |v: &mut dyn Iterator<Item = (usize, f64)>| {
        v.fold((0, 0.0), |best, (i, x): (usize, f64)| if x.abs() > best.1 { (i, x.abs()) } else { best })
    };
    while k < n {
        let (mut wide, mut p) = (1, k);
        let own = a[(k, k)].abs();
        let (row, most) = greatest(&mut (k + 1..n).map(|i| (i, a[(i, k)])));
        if own.max(most) == 0.0 {
            zero = if zero == 0 { k + 1 } else { zero };
        } else {
            if own < alpha * most {
                let before = greatest(&mut (k..row).map(|j| (j, a[(row, j)]))).1;
                let across = before.max(greatest(&mut (row + 1..n).map(|i| (i, a[(i, row)]))).1);
                if own < alpha * most * (most / across) {
                    p = row;
                    wide = if a[(row, row)].abs() >= alpha * across { 1 } else { 2 };
                }
            }
            exchange(&mut a, k, k + wide - 1, p);
            if wide == 1 { eliminate(&mut a, k) } else { eliminate_two(&mut a, k) }
        }
        match wide {
            1 => pivots[k] = p as i64 + 1,
            _ => pivots[k..k + 2].fill(-(p as i64 + 1)),
        }
        k += wide;
    }
    Ldl { packed: a, pivots, zero }
}

/// Rows and columns `q` and `p` of the part from `k` on exchanged, in the lower triangle.
fn exchange(a: &mut Matrix, k: usize, q: usize, p: usize) {
    if p == q {
        return;
    }
    let n = a.nrows();
    (p + 1..n).for_each(|i| a.swap((i, q), (i, p)));
    (q + 1..p).for_each(|i| a.swap((i, q), (p, i)));
    a.swap((q, q), (p, p));
    if q > k {
        a.swap((q, k), (p, k));
    }
}

fn eliminate(a: &mut Matrix, k: usize) {
    let n = a.nrows();
    let pivot = a[(k, k)];
    for j in k + 1..n {
        let l = a[(j, k)] / pivot;
        (j..n).for_each(|i| a[(i, j)] -= a[(i, k)] * l);
    }
    (k + 1..n).for_each(|i| a[(i, k)] /= pivot);
}

fn eliminate_two(a: &mut Matrix, k: usize) {
    let n = a.nrows();
    let (p, q, r) = (a[(k, k)], a[(k + 1, k)], a[(k + 1, k + 1)]);
    let det = p * r - q * q;
    for j in k + 2..n {
        let (x, y) = (a[(j, k)], a[(j, k + 1)]);
        let (s, t) = ((r * x - q * y) / det, (p * y - q * x) / det);
        (j..n).for_each(|i| a[(i, j)] -= a[(i, k)] * s + a[(i, k + 1)] * t);
        (a[(j, k)], a[(j, k + 1)]) = (s, t);
    }
}
