//! Random numbers: always the same, by splitmix64. Those of torch come from its generator's state, which no program
//! records.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[("aten.rand.default", rand)];

/// The `i`-th number from 0 to below 1.
fn number(i: u64) -> f64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // As many bits as the shortest type holds, so that none rounds to 1.
    f64::from(((z ^ (z >> 31)) >> 56) as u8) / 256.0
}

fn rand(c: &Ctx<'_>) -> Result<Value> {
    let shape = c.sizes("size")?;
    let n = bounded(c, &shape)?;
    let numbers: Vec<f64> = (0..n as u64).map(number).collect();
    let a = ArrayD::from_shape_vec(IxDyn(&shape), numbers).map_err(|e| c.err(e.to_string()))?;
    Ok(Array::from_f64(c.dtype(), a).into())
}
