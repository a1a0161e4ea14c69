//! What calibration asks of every value: one pass over its elements for extrema, and one for sums.

use crate::Isa;
use crate::versions::versions;

/// What a pass over a tensor finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    /// Least element; infinity if there is none.
    pub min: f32,
    /// Greatest element; negative infinity if there is none.
    pub max: f32,
    /// Whether an element is not a number. Extrema are those of the others.
    pub nan: bool,
}

impl Scan {
    /// Whether [`Parts`] hold all elements.
    pub fn fits_parts(&self) -> bool {
        !self.nan && self.min > -PARTS_BELOW && self.max < PARTS_BELOW
    }
}

const LANES: usize = 32;

/// Scans elements.
pub fn scan(isa: Isa, x: &[f32]) -> Scan {
    let mut all = Scan { min: f32::INFINITY, max: f32::NEG_INFINITY, nan: false };
    scan_on(isa, x, &mut all);
    all
}

/// How many elements are exactly 0.
pub fn zeros(isa: Isa, x: &[f32]) -> u64 {
    let mut all = 0;
    zeros_on(isa, x, &mut all);
    all
}

versions! {
    fn scan_on(x: &[f32], all: &mut Scan) => scan_all
}
versions! {
    fn zeros_on(x: &[f32], all: &mut u64) => zeros_of
}

/// `Σ (a - b) · weight`, in eight chains.
pub fn weighted_difference(isa: Isa, a: &[f32], b: &[f32], weights: &[f64]) -> f64 {
    let mut sum = 0.0;
    weighted_difference_on(isa, a, b, weights, &mut sum);
    sum
}

versions! {
    fn weighted_difference_on(a: &[f32], b: &[f32], weights: &[f64], sum: &mut f64) => difference
}

#[inline(always)]
fn difference(a: &[f32], b: &[f32], weights: &[f64], sum: &mut f64) {
    let mut sums = [0.0; 8];
    let ((a, a_rest), (b, b_rest), (w, w_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>(), weights.as_chunks::<8>());
    for ((a, b), w) in a.iter().zip(b).zip(w) {
        for i in 0..8 {
            sums[i] += f64::from(a[i] - b[i]) * w[i];
        }
    }
    let rest = a_rest.iter().zip(b_rest).zip(w_rest).map(|((a, b), w)| f64::from(a - b) * w);
    *sum = sums.iter().sum::<f64>() + rest.sum::<f64>();
}

#[inline(always)]
fn scan_all(x: &[f32], all: &mut Scan) {
    let (mut min, mut max, mut nans) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES], [0u32; LANES]);
    let (rows, rest) = x.as_chunks::<LANES>();
    for row in rows {
        for i in 0..LANES {
            let v = row[i];
            min[i] = if v < min[i] { v } else { min[i] };
            max[i] = if v > max[i] { v } else { max[i] };
            nans[i] |= u32::from(v.is_nan());
        }
    }
    for (i, &v) in rest.iter().enumerate() {
        min[i] = if v < min[i] { v } else { min[i] };
        max[i] = if v > max[i] { v } else { max[i] };
        nans[i] |= u32::from(v.is_nan());
    }
    for i in 0..LANES {
        all.min = all.min.min(min[i]);
        all.max = all.max.max(max[i]);
        all.nan |= nans[i] != 0;
    }
}

#[inline(always)]
fn zeros_of(x: &[f32], all: &mut u64) {
    // Blocks keep counters of 32 bits from overflowing.
    for block in x.chunks(1 << 24) {
        *all += u64::from(block.iter().map(|v| u32::from(*v == 0.0)).sum::<u32>());
    }
}

/// Sums of elements in fixed point, so that they do not depend on the order: one in units of 2⁻⁹, and what that leaves
/// in units of 2⁻³¹. They hold at most [`PARTS_ROWS`] elements, of magnitudes below [`PARTS_BELOW`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Units of 2⁻⁹.
    pub coarse: i32,
    /// Units of 2⁻³¹.
    pub fine: i32,
}

/// Magnitudes that [`Parts`] do not hold begin here.
pub const PARTS_BELOW: f32 = 4096.0;

/// Elements whose [`Parts`] an i32 holds the sum of.
pub const PARTS_ROWS: usize = 512;

/// Adds the sums of the columns of `rows`, of `coarse.len()` elements each, to `coarse` and `fine`. They mean nothing
/// unless the rows [fit](Scan::fits_parts).
pub fn column_parts(isa: Isa, rows: &[f32], coarse: &mut [i32], fine: &mut [i32]) {
    column_parts_on(isa, rows, coarse, fine);
}

/// The sum of all of `x`, if they fit.
pub fn sum_parts(isa: Isa, x: &[f32]) -> Option<Parts> {
    let (mut sum, mut farthest) = (Parts::default(), 0);
    sum_parts_on(isa, x, &mut sum, &mut farthest);
    (farthest < PARTS_BELOW.to_bits()).then_some(sum)
}

versions! {
    fn column_parts_on(rows: &[f32], coarse: &mut [i32], fine: &mut [i32]) => columns
}
versions! {
    fn sum_parts_on(x: &[f32], sum: &mut Parts, farthest: &mut u32) => elements
}

#[inline(always)]
fn columns(rows: &[f32], coarse: &mut [i32], fine: &mut [i32]) {
    let n = coarse.len().max(1);
    // Two rows at once, for which sums are loaded and stored once.
    let mut pairs = rows.chunks_exact(2 * n);
    for pair in &mut pairs {
        let (one, other) = pair.split_at(n);
        for (((v, w), c), f) in one.iter().zip(other).zip(&mut *coarse).zip(&mut *fine) {
            let (p, q) = (parts(*v), parts(*w));
            add(c, f, Parts { coarse: p.coarse.wrapping_add(q.coarse), fine: p.fine.wrapping_add(q.fine) });
        }
    }
    for ((v, c), f) in pairs.remainder().iter().zip(&mut *coarse).zip(&mut *fine) {
        add(c, f, parts(*v));
    }
}

#[inline(always)]
fn elements(x: &[f32], sum: &mut Parts, farthest: &mut u32) {
    let (mut coarse, mut fine, mut far) = (0i32, 0i32, 0);
    for v in x {
        add(&mut coarse, &mut fine, parts(*v));
        far = far.max(magnitude(*v));
    }
    (*sum, *farthest) = (Parts { coarse, fine }, far);
}

#[inline(always)]
fn add(coarse: &mut i32, fine: &mut i32, more: Parts) {
    *coarse = coarse.wrapping_add(more.coarse);
    *fine = fine.wrapping_add(more.fine);
}

/// Bits that compare as magnitudes do; a NaN's are the greatest.
#[inline(always)]
fn magnitude(v: f32) -> u32 {
    v.to_bits() & i32::MAX as u32
}

/// An element as integers of 22 bits that a float's low bits hold, so that it vectorises.
#[inline(always)]
fn parts(v: f32) -> Parts {
    /// 1.5·2²³ units: adding it rounds to a whole number of them, and leaves that in the low bits.
    const COARSE: f32 = 12_582_912.0 / 512.0;
    const FINE: f32 = 12_582_912.0 / 2_147_483_648.0;
    let (nearest, units) = (v + COARSE, |v: f32, magic: f32| (v.to_bits() as i32).wrapping_sub(magic.to_bits() as i32));
    let rest = v - (nearest - COARSE);
    Parts { coarse: units(nearest, COARSE), fine: units(rest + FINE, FINE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extrema_zeros_and_nan_are_found_anywhere() {
        for isa in Isa::all() {
            let mut x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) / 8.0).collect();
            assert_eq!(scan(isa, &x), Scan { min: -62.5, max: 62.375, nan: false });
            assert_eq!((zeros(isa, &x), zeros(isa, &[0.0, -0.0, 1.0, f32::NAN])), (1, 2));
            x[999] = f32::NAN;
            assert_eq!(scan(isa, &x), Scan { min: -62.5, max: 62.25, nan: true });
            x[3] = f32::NEG_INFINITY;
            assert_eq!(scan(isa, &x).min, f32::NEG_INFINITY);
            assert_eq!(scan(isa, &[]).min, f32::INFINITY);
        }
    }

    #[test]
    fn differences_are_weighted() {
        let a: Vec<f32> = (0..21).map(|i| i as f32 / 3.0).collect();
        let b: Vec<f32> = (0..21).map(|i| (i * i) as f32 / 7.0).collect();
        let weights: Vec<f64> = (0..21).map(|i| f64::from(i) - 9.5).collect();
        let want: f64 = a.iter().zip(&b).zip(&weights).map(|((a, b), w)| f64::from(a - b) * w).sum();
        let all: Vec<f64> = Isa::all().into_iter().map(|isa| weighted_difference(isa, &a, &b, &weights)).collect();
        assert!((all[0] - want).abs() < 1e-9 && all.iter().all(|y| y.to_bits() == all[0].to_bits()), "{all:?}");
    }

    #[test]
    fn parts_are_those_of_the_elements() {
        let x: Vec<f32> = (0..510).map(|i| 4095.9 * (1.0 - i as f32 / 255.0)).collect();
        let each: Vec<Parts> = x.iter().map(|v| parts(*v)).collect();
        let total = each.iter().fold((0, 0), |(c, f), p| (c + p.coarse, f + p.fine));
        let value = |(c, f): (i32, i32)| f64::from(c) / 512.0 + f64::from(f) / 2f64.powi(31);
        assert!((value(total) - x.iter().map(|v| f64::from(*v)).sum::<f64>()).abs() < 1e-6);
        for isa in Isa::all() {
            assert_eq!(sum_parts(isa, &x), Some(Parts { coarse: total.0, fine: total.1 }));
            let (mut coarse, mut fine) = (vec![0; 17], vec![0; 17]);
            assert!(scan(isa, &x).fits_parts());
            column_parts(isa, &x, &mut coarse, &mut fine);
            for c in 0..17 {
                let column = each[c..].iter().step_by(17).fold((0, 0), |(c, f), p| (c + p.coarse, f + p.fine));
                assert_eq!((coarse[c], fine[c]), column);
            }
            for far in [4096.0, -1e9, f32::NAN, f32::NEG_INFINITY] {
                let mut x = x.clone();
                x[33] = far;
                assert_eq!(sum_parts(isa, &x), None);
                assert!(!scan(isa, &x).fits_parts());
            }
        }
    }
}
