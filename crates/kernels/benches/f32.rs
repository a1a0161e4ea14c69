//! Float kernels: products and convolutions, and what goes over rows and elements.

mod common;

use cleave_kernels::conv_f32::{ConvF32, EpilogueF32};
use cleave_kernels::gemm_f32::{MatMulF32, MatStrides};
use cleave_kernels::layer_norm::LayerNorm;
use cleave_kernels::pointwise::{Data, DataMut, Input, Output, Pointwise, Program, Unary};
use cleave_kernels::reduce::{Reduction, reduce};
use cleave_kernels::softmax::softmax;
use cleave_kernels::{AlignedVec, ConvShape, Isa, ThreadPool};
use common::{Case, Run, VALID, Work, family, floats_of};
use criterion::{Criterion, criterion_group, criterion_main};

fn conv(name: &str, s: ConvShape) -> Case {
    let name = format!("{name} {}x{}x{}-{} k{}s{}", s.h, s.w, s.c_in, s.c_out, s.kh, s.stride[0]);
    Case::new(name, Work::Float(s.macs()), move |isa| {
        let (x, w, mut y) = (floats_of(s.in_len()), floats_of(s.weight_len()), AlignedVec::zeroed(s.out_len()));
        let conv = ConvF32::new(isa, &s, &w, None, EpilogueF32::RELU).expect(VALID);
        let (pool, mut scratch) = (ThreadPool::new(1), vec![0; conv.scratch_bytes(1)]);
        Box::new(move || conv.run(&pool, &x, &mut y, &mut scratch).expect(VALID))
    })
}

fn matmul(batch: usize, [m, k, n]: [usize; 3]) -> Case {
    Case::new(format!("matmul {batch}x{m}x{k}x{n}"), Work::Float(batch * m * k * n), move |isa| {
        let (a, b, mut c) = (floats_of(batch * m * k), floats_of(batch * k * n), AlignedVec::zeroed(batch * m * n));
        let (strides, pool) = ((MatStrides::dense(m, k), MatStrides::dense(k, n)), ThreadPool::new(1));
        let product = MatMulF32::new(isa, batch, [m, k, n], strides.0, strides.1).expect(VALID);
        let mut scratch = vec![0; product.scratch_bytes(1)];
        Box::new(move || product.run(&pool, &a, &b, &mut c, &mut scratch).expect(VALID))
    })
}

/// Elements of a kernel that goes over rows of 768.
const ROWS: [usize; 2] = [128, 768];

/// A kernel from floats to as many floats: `f(isa, pool, x, y)`.
fn over(name: impl Into<String>, f: impl Fn(Isa, &ThreadPool, &[f32], &mut [f32]) + Copy + 'static) -> Case {
    let n = ROWS[0] * ROWS[1];
    Case::new(name, Work::Bytes(8 * n), move |isa| {
        let (pool, x, mut y) = (ThreadPool::new(1), floats_of(n), AlignedVec::zeroed(n));
        Box::new(move || f(isa, &pool, &x, &mut y)) as Run
    })
}

fn unary(op: Unary) -> Case {
    let n = ROWS[0] * ROWS[1];
    Case::new(format!("{op:?}"), Work::Bytes(8 * n), move |isa| {
        let program = Program::unary(Input::F32, op, Output::F32).expect(VALID);
        let (run, pool) = (Pointwise::flat(isa, program, n).expect(VALID), ThreadPool::new(1));
        let (x, mut y) = (floats_of(n), AlignedVec::zeroed(n));
        Box::new(move || run.run(&pool, &[Data::F32(&x)], &mut [DataMut::F32(&mut y)]).expect(VALID))
    })
}

fn bench(c: &mut Criterion) {
    let depthwise = |side, c: usize, k: usize| ConvShape::new(side, side, c, c, k).with_pad(k / 2).with_groups(c);
    let convs = vec![
        conv("stem", ConvShape::new(224, 224, 3, 64, 7).with_stride(2).with_pad(3)),
        conv("dense", ConvShape::new(28, 28, 128, 128, 3).with_pad(1)),
        conv("1x1", ConvShape::new(14, 14, 256, 1024, 1)),
        conv("1x1", ConvShape::new(112, 112, 16, 96, 1)),
        conv("depthwise", depthwise(112, 32, 3)),
        conv("depthwise", depthwise(14, 384, 5)),
        conv("linear", ConvShape::linear(1, 2048, 1000)),
    ];
    let rows = vec![
        over("softmax", |isa, pool, x, y| softmax(isa, pool, ROWS, x, y).expect(VALID)),
        over("layer norm", |isa, pool, x, y| {
            LayerNorm::new(isa, ROWS[1], 1e-5, None, None).and_then(|n| n.run(pool, x, y)).expect(VALID);
        }),
        over("sum of rows", |isa, pool, x, y| {
            reduce(isa, pool, Reduction::Sum, [ROWS[0], ROWS[1], 1], x, &mut y[..ROWS[0]]).expect(VALID);
        }),
    ];
    let unaries = [Unary::Exp, Unary::Erf, Unary::Tanh, Unary::Rsqrt, Unary::Sigmoid, Unary::Gelu, Unary::Log];
    family(c, "gemm_f32", vec![matmul(1, [512, 512, 512]), matmul(12, [197, 64, 197])]);
    family(c, "conv2d_f32", convs);
    family(c, "rows_f32", rows);
    family(c, "pointwise_f32", unaries.into_iter().map(unary).collect());
}

criterion_group!(benches, bench);
criterion_main!(benches);
