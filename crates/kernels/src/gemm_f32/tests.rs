use super::*;
use crate::{KernelError, ThreadPool};

fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 4e6 - 2.0
        })
        .collect()
}

/// The definition: one chain of fused multiply-adds an element.
fn product(a: &[f32], b: &[f32], m: usize, k: usize, n: usize) -> Vec<f32> {
    let mut c = vec![0.0f32; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).fold(0.0, |acc, p| a[i * k + p].mul_add(b[p * n + j], acc));
        }
    }
    c
}

fn transpose(x: &[f32], rows: usize, cols: usize) -> Vec<f32> {
    (0..x.len()).map(|i| x[i % rows * cols + i / rows]).collect()
}

#[test]
fn every_isa_and_thread_count_gives_the_definitions_bits() -> Result<(), KernelError> {
    let sizes = [(1, 1, 1), (1, 300, 70), (14, 16, 32), (15, 5, 33), (6, 256, 16), (29, 513, 17), (120, 700, 49)];
    for (m, k, n) in sizes {
        let (a, b) = (values(m * k, 1), values(k * n, 2));
        let want = product(&a, &b, m, k, n);
        let (at, bt) = (transpose(&a, m, k), transpose(&b, k, n));
        let dense = (MatStrides::dense(m, k), MatStrides::dense(k, n));
        let flipped = (MatStrides::transposed(m, k), MatStrides::transposed(k, n));
        for isa in Isa::all() {
            for threads in [1, 3] {
                let pool = ThreadPool::new(threads);
                for ((sa, sb), a, b) in [(dense, &a, &b), (flipped, &at, &bt)] {
                    let mm = MatMulF32::new(isa, 1, [m, k, n], sa, sb)?;
                    let (mut c, mut scratch) = (vec![f32::NAN; m * n], vec![0; mm.scratch_bytes(threads)]);
                    mm.run(&pool, a, b, &mut c, &mut scratch)?;
                    assert_eq!(c, want, "{m}×{k}×{n} on {isa:?}, {threads} threads");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn batches_advance_or_share_their_operands() -> Result<(), KernelError> {
    let (batch, m, k, n) = (3, 5, 7, 9);
    let (a, b) = (values(batch * m * k, 3), values(k * n, 4));
    let shared = MatStrides { batch: 0, ..MatStrides::dense(k, n) };
    let mm = MatMulF32::new(Isa::best(), batch, [m, k, n], MatStrides::dense(m, k), shared)?;
    let (mut c, mut scratch) = (vec![0.0; batch * m * n], vec![0; mm.scratch_bytes(1)]);
    mm.run(&ThreadPool::new(1), &a, &b, &mut c, &mut scratch)?;
    assert_eq!(c, product(&a, &b, batch * m, k, n));
    assert!(mm.run(&ThreadPool::new(1), &a[1..], &b, &mut c, &mut scratch).is_err());
    assert!(mm.run(&ThreadPool::new(1), &a, &b, &mut c, &mut scratch[..10]).is_err());
    Ok(())
}

#[test]
fn an_empty_sum_is_zero() -> Result<(), KernelError> {
    let mm = MatMulF32::new(Isa::best(), 1, [2, 0, 3], MatStrides::dense(2, 0), MatStrides::dense(0, 3))?;
    let (mut c, mut scratch) = (vec![1.0; 6], vec![0; mm.scratch_bytes(1)]);
    mm.run(&ThreadPool::new(1), &[], &[], &mut c, &mut scratch)?;
    assert_eq!(c, [0.0; 6]);
    Ok(())
}
