//! Random numbers: always the same, by splitmix64. Those of torch come from its generator's state, which no program
//! records.

use super::EvalFn;
use super::ctx::Ctx;
use super::places::bounded;
use super::value::{Array, Value};
use crate::error::Result;
use cleave_numerics::DType;
use ndarray::{ArrayD, IxDyn};

/// The anchors of this file.
pub const EVALS: &[(&str, EvalFn)] = &[
    ("aten.rand.default", |c| {
        // As many bits as the type holds, so that none rounds to 1.
        let bits = match c.dtype() {
            DType::F64 => 53,
            DType::F16 => 11,
            DType::BF16 => 8,
            _ => 24,
        };
        draw(c, c.sizes("size")?, |i| (bits_of(i) >> (64 - bits)) as f64 / (1u64 << bits) as f64)
    }),
    ("aten.randn.default", |c| {
        // Box and Muller's, of two numbers each.
        let unit = |i: u64| ((bits_of(i) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let normal = |i: u64| (-2.0 * unit(2 * i).ln()).sqrt() * (std::f64::consts::TAU * unit(2 * i + 1)).cos();
        draw(c, c.sizes("size")?, normal)
    }),
    ("aten.randperm.default", |c| {
        let n = usize::try_from(c.int("n")?).map_err(|_| c.err("a negative number of elements"))?;
        let mut order: Vec<i64> = (0..bounded(c, &[n])? as i64).collect();
        order.sort_by_key(|i| bits_of(*i as u64));
        Ok(Array::int(DType::I64, ndarray::Array1::from(order).into_dyn()).cast(c.dtype()).into())
    }),
];

/// The `i`-th 64 bits.
fn bits_of(i: u64) -> u64 {
    let mut z = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn draw(c: &Ctx<'_>, shape: Vec<usize>, number: impl Fn(u64) -> f64) -> Result<Value> {
    let n = bounded(c, &shape)?;
    let numbers: Vec<f64> = (0..n as u64).map(number).collect();
    let a = ArrayD::from_shape_vec(IxDyn(&shape), numbers).map_err(|e| c.err(e.to_string()))?;
    Ok(Array::from_f64(c.dtype(), a).into())
}
