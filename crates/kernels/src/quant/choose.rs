//! Scale and zero point for the values that a tensor has.

use crate::reduce::sum::fold;
use crate::share::tasks;
use crate::versions::versions;
use crate::{Isa, KernelError, SharedMut, ThreadPool};
use cleave_numerics::{QParams, QRange, QScheme, choose_qparams};

/// Most parts that are searched at once.
const PARTS: usize = 64;

#[inline(always)]
fn extremes(x: &[f32], out: &mut [f32; 2]) {
    // A comparison with NaN is false: NaN is passed over.
    *out = [
        fold(x, f32::INFINITY, |a, b| if b < a { b } else { a }),
        fold(x, f32::NEG_INFINITY, |a, b| if b > a { b } else { a }),
    ];
}

versions! {
    fn extremes_on(x: &[f32], out: &mut [f32; 2]) => extremes
}

/// torch's `choose_qparams`: [`choose_qparams`] of the least and the greatest value. NaN is passed over.
///
/// # Errors
/// A tensor without elements.
pub fn choose(
    isa: Isa,
    pool: &ThreadPool,
    x: &[f32],
    range: QRange,
    scheme: QScheme,
    eps: f32,
) -> Result<QParams, KernelError> {
    if x.is_empty() {
        return Err(KernelError::invalid("choice of a scale", "no values to choose it for"));
    }
    let count = tasks(pool, x.len(), PARTS);
    let mut found = [[0.0; 2]; PARTS];
    let parts = SharedMut::new(&mut found);
    pool.run(count, &|task| {
        let range = task * x.len() / count..(task + 1) * x.len() / count;
        if let [part] = crate::share::row_part(&parts, task..task + 1) {
            extremes_on(isa, &x[range], part);
        }
    });
    let (lo, hi) =
        found[..count].iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), [lo, hi]| (a.min(*lo), b.max(*hi)));
    Ok(choose_qparams(lo, hi, range, scheme, eps))
}
