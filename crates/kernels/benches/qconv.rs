//! Layers of ResNet-50 and MobileNetV2 on one thread: elements per second are multiply-accumulates.

use cleave_kernels::qconv::{Bias, Out, OutputKind, QConv, Requant, Residual, View};
use cleave_kernels::{AlignedVec, ConvShape, Isa, ThreadPool};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

/// One layer, with its name in the report.
struct Layer {
    net: &'static str,
    shape: ConvShape,
    residual: bool,
}

fn layers() -> Vec<Layer> {
    let resnet = |shape| Layer { net: "resnet50", shape, residual: false };
    let mobile = |shape| Layer { net: "mobilenet_v2", shape, residual: false };
    let depthwise = |h, c: usize, s| mobile(ConvShape::new(h, h, c, c, 3).with_stride(s).with_pad(1).with_groups(c));
    vec![
        resnet(ConvShape::new(224, 224, 3, 64, 7).with_stride(2).with_pad(3)),
        resnet(ConvShape::new(56, 56, 64, 64, 3).with_pad(1)),
        resnet(ConvShape::new(56, 56, 64, 256, 1)),
        Layer { residual: true, ..resnet(ConvShape::new(56, 56, 64, 256, 1)) },
        resnet(ConvShape::new(28, 28, 128, 128, 3).with_pad(1)),
        resnet(ConvShape::new(28, 28, 256, 256, 3).with_stride(2).with_pad(1)),
        resnet(ConvShape::new(14, 14, 1024, 256, 1)),
        resnet(ConvShape::new(7, 7, 512, 512, 3).with_pad(1)),
        resnet(ConvShape::linear(1, 2048, 1000)),
        mobile(ConvShape::new(224, 224, 3, 32, 3).with_stride(2).with_pad(1)),
        mobile(ConvShape::new(112, 112, 16, 96, 1)),
        mobile(ConvShape::new(56, 56, 144, 24, 1)),
        mobile(ConvShape::new(14, 14, 64, 384, 1)),
        mobile(ConvShape::new(7, 7, 960, 160, 1)),
        depthwise(112, 32, 1),
        depthwise(112, 96, 2),
        depthwise(56, 144, 1),
        depthwise(14, 384, 1),
        depthwise(7, 960, 1),
    ]
}

fn bench(c: &mut Criterion) {
    let pool = ThreadPool::new(1);
    for layer in layers() {
        let s = layer.shape;
        let weights: Vec<i8> = (0..s.weight_len()).map(|i| (i * 7919 % 255) as i8).collect();
        let x: Vec<u8> = (0..s.in_len()).map(|i| (i * 31 % 256) as u8).collect();
        let (x, mut y) = (AlignedVec::from_slice(&x), AlignedVec::<u8>::zeroed(s.out_len()));
        let r = AlignedVec::<u8>::zeroed(if layer.residual { s.out_len() } else { 0 });
        let mut requant = Requant::new(vec![1.0e-4; s.c_out], 5);
        requant.residual = layer.residual.then_some(Residual { multiplier: 0.7, zero_point: 3 });
        let conv = QConv::new(Isa::best(), &s, &weights, &Bias::None, 3, requant, OutputKind::U8);
        let conv = conv.expect("invariant: the layers are well formed");
        let mut scratch = AlignedVec::<u8>::zeroed(conv.scratch_bytes(1));
        let mut group = c.benchmark_group(layer.net);
        group.throughput(Throughput::Elements(s.macs() as u64));
        let add = if layer.residual { "_add" } else { "" };
        let size = format!("{}x{}x{}_{}k{}s{}", s.h, s.w, s.c_in, s.c_out, s.kh, s.stride[0]);
        group.bench_function(format!("{size}{add}_{}", conv.kernel_name()), |b| {
            b.iter(|| {
                let residual = layer.residual.then(|| View::dense(&r, s.c_out));
                let out = Out::u8(&mut y, s.c_out);
                conv.run(&pool, black_box(&x), residual, out, &mut scratch)
                    .expect("invariant: lengths follow the shape");
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = bench
}
criterion_main!(benches);
