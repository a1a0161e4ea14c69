//! Float convolutions (layers of ResNet-50 and MobileNetV2) and pointwise programs, one thread.
//! Throughput is in multiply-adds, or in elements.

use cleave_kernels::conv_f32::{ConvF32, EpilogueF32};
use cleave_kernels::pointwise::{
    Binary, Builder, Data, DataMut, Input, Output, Pointwise, Program, Quantize, Rounding, Unary,
};
use cleave_kernels::{AlignedVec, ConvShape, Isa, KernelError, ThreadPool};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;

/// Name, side, channels in and out, kernel, stride, groups.
const LAYERS: [(&str, usize, usize, usize, usize, usize, usize); 12] = [
    ("resnet stem 7x7", 224, 3, 64, 7, 2, 1),
    ("resnet 56 3x3 64", 56, 64, 64, 3, 1, 1),
    ("resnet 56 1x1 64-256", 56, 64, 256, 1, 1, 1),
    ("resnet 28 3x3 128", 28, 128, 128, 3, 1, 1),
    ("resnet 14 3x3 256", 14, 256, 256, 3, 1, 1),
    ("resnet 14 1x1 256-1024", 14, 256, 1024, 1, 1, 1),
    ("resnet 7 3x3 512", 7, 512, 512, 3, 1, 1),
    ("resnet 7 1x1 2048-512", 7, 2048, 512, 1, 1, 1),
    ("mobilenet 112 1x1 16-96", 112, 16, 96, 1, 1, 1),
    ("mobilenet 14 1x1 64-384", 14, 64, 384, 1, 1, 1),
    ("mobilenet 112 dw3x3 32", 112, 32, 32, 3, 1, 32),
    ("mobilenet 14 dw3x3 384", 14, 384, 384, 3, 1, 384),
];

fn ramp(n: usize) -> AlignedVec<f32> {
    let values: Vec<f32> = (0..n).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect();
    AlignedVec::from_slice(&values)
}

fn convolutions(c: &mut Criterion) {
    let mut group = c.benchmark_group("conv_f32");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    let pool = ThreadPool::new(1);
    for (name, side, c_in, c_out, kernel, stride, groups) in LAYERS {
        let shape = ConvShape {
            n: 1,
            h: side,
            w: side,
            c_in,
            c_out,
            kh: kernel,
            kw: kernel,
            stride: [stride; 2],
            pad: [kernel / 2; 4],
            dilation: [1, 1],
            groups,
        };
        let (x, w) = (ramp(shape.in_len()), ramp(shape.weight_len()));
        let conv =
            ConvF32::new(Isa::best(), &shape, &w, None, EpilogueF32::RELU).expect("invariant: the layers are valid");
        let (mut y, mut scratch) = (ramp(shape.out_len()), vec![0; conv.scratch_bytes(1)]);
        group.throughput(Throughput::Elements(shape.macs() as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| conv.run(&pool, &x, &mut y, &mut scratch));
        });
    }
    group.finish();
}

/// `quantize(hardswish(dequantize(x)) + dequantize(r))`, the like of which stands between int8 kernels.
fn between() -> Result<Program, KernelError> {
    let mut b = Builder::default();
    let x = b.input(Input::U8 { scale: 0.1, zero_point: 10 });
    let r = b.input(Input::U8 { scale: 0.2, zero_point: 20 });
    let active = b.unary(Unary::HardSwish, x);
    let sum = b.binary(Binary::Add, active, r);
    b.store(sum, Output::U8(Quantize::u8(0.15, 3, Rounding::Div)));
    b.build()
}

fn programs(c: &mut Criterion) {
    let mut group = c.benchmark_group("pointwise");
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_millis(400));
    let (pool, n) = (ThreadPool::new(1), 100_000);
    group.throughput(Throughput::Elements(n as u64));
    let (x, mut y) = (ramp(n), ramp(n));
    for op in [Unary::Relu, Unary::Sigmoid, Unary::Silu, Unary::Gelu, Unary::Tanh, Unary::Log] {
        let program = Program::unary(Input::F32, op, Output::F32).expect("invariant: one op");
        let run = Pointwise::flat(Isa::best(), program, n).expect("invariant: dense operands");
        group.bench_function(format!("{op:?}"), |b| {
            b.iter(|| run.run(&pool, &[Data::F32(&x)], &mut [DataMut::F32(&mut y)]));
        });
    }
    let run = between().and_then(|p| Pointwise::flat(Isa::best(), p, n)).expect("invariant: a valid program");
    let (q, mut z) = (vec![77u8; n], vec![0u8; n]);
    group.bench_function("u8 hardswish + u8", |b| {
        b.iter(|| run.run(&pool, &[Data::U8(&q), Data::U8(&q)], &mut [DataMut::U8(&mut z)]));
    });
    group.finish();
}

criterion_group!(benches, convolutions, programs);
criterion_main!(benches);
