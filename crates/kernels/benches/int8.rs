//! Quantized convolutions and linear layers, of ResNet-50, ResNeXt-50, MobileNet and EfficientNet, by kind of kernel.

mod common;

use cleave_kernels::pointwise::{Quantize, Rounding, Unary};
use cleave_kernels::qconv::{Activation, Bias, Out, OutputKind, QConv, Requant, Residual, View, reference};
use cleave_kernels::{AlignedVec, ConvShape, ThreadPool};
use common::{Case, VALID, Work, bytes_of, family};
use criterion::{Criterion, criterion_group, criterion_main};
use std::rc::Rc;

/// What is done with the accumulators.
#[derive(Clone, Copy)]
enum Then {
    Round,
    Add,
    Act(Unary),
}

/// Weights that are spread as those of trained networks are: AVX2 has octets of them.
fn weights(n: usize) -> Vec<i8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 26) as i8 - 32
    };
    (0..n).map(|_| next() + next() + next() + next()).collect()
}

/// A layer whose input has the zero point `zx`: 128 is that of signed bytes, which are stored as unsigned ones.
fn case(name: &str, s: ConvShape, zx: u8, then: Then) -> Case {
    of_weights(name, s, zx, then, weights(s.weight_len()))
}

fn of_weights(name: &str, s: ConvShape, zx: u8, then: Then, weights: Vec<i8>) -> Case {
    let weights: Rc<[i8]> = weights.into();
    let mut requant = Requant::new(vec![1.0e-4; s.c_out], 5);
    match then {
        Then::Round => {}
        Then::Add => requant.residual = Some(Residual { multiplier: 0.7, zero_point: 3 }),
        Then::Act(op) => requant.activation = Activation::new(op, &Quantize::u8(0.05, 8, Rounding::Recip)),
    }
    let r = AlignedVec::<u8>::zeroed(if requant.residual.is_some() { s.out_len() } else { 0 });
    let operands = Rc::new((bytes_of(s.in_len()), r));
    let definition = {
        let (weights, requant, operands) = (weights.clone(), requant.clone(), operands.clone());
        move || {
            let acc = reference::accumulate(&s, &weights, &operands.0, zx);
            let r = requant.residual.map(|_| &operands.1[..]);
            std::hint::black_box(reference::quantized(&reference::scaled(&acc, &Bias::None, &requant, r), &requant));
        }
    };
    let mut case = Case::new(
        format!("{name} {}x{}x{}-{} k{}s{}", s.h, s.w, s.c_in, s.c_out, s.kh, s.stride[0]),
        Work::Int8(s.macs()),
        move |isa| {
            let conv = QConv::new(isa, &s, &weights, &Bias::None, zx, requant.clone(), OutputKind::U8).expect(VALID);
            let mut scratch = AlignedVec::<u8>::zeroed(conv.scratch_bytes(1));
            let (pool, mut y, operands) = (ThreadPool::new(1), AlignedVec::<u8>::zeroed(s.out_len()), operands.clone());
            Box::new(move || {
                let residual = requant.residual.map(|_| View::dense(&operands.1, s.c_out));
                conv.run(&pool, &operands.0, residual, Out::u8(&mut y, s.c_out), &mut scratch).expect(VALID);
            })
        },
    );
    case.reference = Some(Box::new(definition));
    case
}

fn bench(c: &mut Criterion) {
    let plain = |name: &str, shape: ConvShape| case(name, shape, 3, Then::Round);
    let pointwise = |side, c_in, c_out| ConvShape::new(side, side, c_in, c_out, 1);
    let depthwise =
        |side, c: usize, k: usize, s| ConvShape::new(side, side, c, c, k).with_stride(s).with_pad(k / 2).with_groups(c);
    let gemm = vec![
        plain("u8", pointwise(14, 1024, 256)),
        case("s8", pointwise(14, 1024, 256), 128, Then::Round),
        plain("u8", pointwise(112, 16, 96)),
        plain("u8", pointwise(56, 144, 24)),
        plain("u8", pointwise(7, 960, 160)),
        case("u8 add", pointwise(56, 64, 256), 3, Then::Add),
        case("u8 hardswish", pointwise(14, 80, 480), 3, Then::Act(Unary::HardSwish)),
        case("u8 silu", pointwise(28, 40, 240), 3, Then::Act(Unary::Silu)),
        plain("linear", ConvShape::linear(1, 2048, 1000)),
        plain("linear", ConvShape::linear(128, 768, 768)),
        plain("linear", ConvShape::linear(1024, 1024, 1024)),
        of_weights(
            "even",
            pointwise(14, 1024, 256),
            3,
            Then::Round,
            (0..1024 * 256).map(|i| (i * 7919) as i8).collect(),
        ),
    ];
    let conv = vec![
        plain("stem", ConvShape::new(224, 224, 3, 32, 3).with_stride(2).with_pad(1)),
        plain("stem", ConvShape::new(224, 224, 3, 64, 7).with_stride(2).with_pad(3)),
        plain("dense", ConvShape::new(56, 56, 64, 64, 3).with_pad(1)),
        plain("dense", ConvShape::new(7, 7, 512, 512, 3).with_pad(1)),
        plain("strided", ConvShape::new(28, 28, 256, 256, 3).with_stride(2).with_pad(1)),
        plain("grouped", ConvShape::new(28, 28, 256, 256, 3).with_pad(1).with_groups(32)),
    ];
    let dw = vec![
        plain("3x3", depthwise(112, 32, 3, 1)),
        plain("3x3", depthwise(14, 384, 3, 1)),
        plain("3x3", depthwise(112, 96, 3, 2)),
        plain("5x5", depthwise(14, 480, 5, 1)),
        plain("5x5", depthwise(28, 240, 5, 2)),
        case("3x3 silu", depthwise(56, 144, 3, 1), 3, Then::Act(Unary::Silu)),
        case("5x5 hardswish", depthwise(14, 672, 5, 1), 3, Then::Act(Unary::HardSwish)),
    ];
    family(c, "gemm_u8s8", gemm);
    family(c, "conv2d_u8s8", conv);
    family(c, "dwconv2d_u8s8", dw);
}

criterion_group!(benches, bench);
criterion_main!(benches);
