//! Sums along a row with sixteen partial sums: lane `i` takes elements `i, i + 16, …` in order, and the lanes are
//! added in halves. The order is part of the meaning: every instruction set gives these bits.

/// Partial sums.
pub(crate) const LANES: usize = 16;

/// `Σ f(x)` in the fixed order.
#[inline(always)]
pub(crate) fn sum_of(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane += f(*x));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, x)| *lane += f(*x));
    halves(lanes, |a, b| a + b)
}

/// Folds a row with an op whose order matters to no bit but a NaN's: `max`, `min`.
#[inline(always)]
pub(crate) fn fold(x: &[f32], start: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for x in whole {
        lanes.iter_mut().zip(x).for_each(|(lane, x)| *lane = f(*lane, *x));
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, x)| *lane = f(*lane, *x));
    halves(lanes, f)
}

#[inline(always)]
fn halves(mut lanes: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}
