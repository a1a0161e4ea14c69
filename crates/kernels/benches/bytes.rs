//! What stands between quantized convolutions: pools, resizes, tables, sums, gates, and the way to and from floats.

mod common;

use cleave_kernels::lut::Lut;
use cleave_kernels::pointwise::{Quantize, Rounding};
use cleave_kernels::pool::{AvgPool, MaxPool, PoolShape};
use cleave_kernels::qbinary::{Gate, QBinary, QOp};
use cleave_kernels::quant::{Dequantize, dequantize, dequantize_to_nchw, quantize, quantize_from_nchw};
use cleave_kernels::resize::{AxisTable, Coordinates, Resize};
use cleave_kernels::{AlignedVec, Isa, ThreadPool};
use common::{Case, VALID, Work, bytes_of, family, floats_of};
use criterion::{Criterion, criterion_group, criterion_main};

/// A kernel of bytes, from `x` to `y` of them: `f(isa, pool, x, y)`.
fn bytes(name: &str, [x, y]: [usize; 2], f: impl Fn(Isa, &ThreadPool, &[u8], &mut [u8]) + Copy + 'static) -> Case {
    Case::new(name, Work::Bytes(x + y), move |isa| {
        let (pool, x, mut y) = (ThreadPool::new(1), bytes_of(x), AlignedVec::zeroed(y));
        Box::new(move || f(isa, &pool, &x, &mut y))
    })
}

const TO: Quantize = Quantize { scale: 0.05, zero_point: 7, qmin: 0, qmax: 255, rounding: Rounding::Recip };
const FROM: Dequantize = Dequantize { scale: 0.04, zero_point: 3 };
/// Of a gate.
const UNIT: Dequantize = Dequantize { scale: 1.0 / 255.0, zero_point: 0 };

/// Windows of 3×3.
fn windows(side: usize, c: usize, stride: usize) -> PoolShape {
    let out = PoolShape::out_size(side, 3, stride, [1, 1], 1, false);
    let (kernel, stride, dilation) = ([3, 3], [stride, stride], [1, 1]);
    PoolShape { n: 1, h: side, w: side, c, kernel, stride, pad: [1; 4], dilation, out: [out, out] }
}

fn pools() -> Vec<Case> {
    let max = |isa: Isa, pool: &ThreadPool, s: &PoolShape, x: &[u8], y: &mut [u8]| {
        MaxPool::new(isa, s).and_then(|p| p.run_u8(pool, x, y, s.c)).expect(VALID);
    };
    vec![
        bytes("max 3x3s2 112x112x64", [112 * 112 * 64, 56 * 56 * 64], move |isa, pool, x, y| {
            max(isa, pool, &windows(112, 64, 2), x, y);
        }),
        bytes("max 3x3s1 14x14x512", [14 * 14 * 512; 2], move |isa, pool, x, y| {
            max(isa, pool, &windows(14, 512, 1), x, y);
        }),
        bytes("average 3x3s1 28x28x192", [28 * 28 * 192; 2], |isa, pool, x, y| {
            let pooling = AvgPool::new(isa, &windows(28, 192, 1), true, None);
            pooling.and_then(|p| p.run_u8(pool, x, &FROM, y, &TO, 192)).expect(VALID);
        }),
        bytes("global average 7x7x1280", [49 * 1280, 1280], |isa, pool, x, y| {
            AvgPool::global(isa, [1, 7, 7, 1280]).and_then(|p| p.run_u8(pool, x, &FROM, y, &TO, 1280)).expect(VALID);
        }),
        bytes("bilinear 28x28x64 to 56x56", [28 * 28 * 64, 56 * 56 * 64], |isa, pool, x, y| {
            let axis = || AxisTable::linear(28, 56, Coordinates::HalfPixel, None).expect(VALID);
            Resize::new(isa, 1, 64, axis(), axis()).run_u8(pool, x, y).expect(VALID);
        }),
    ]
}

fn elements() -> Vec<Case> {
    const N: usize = 28 * 28 * 120;
    let binary = |op: QOp| {
        move |isa: Isa, pool: &ThreadPool, x: &[u8], y: &mut [u8]| {
            let (a, b) = x.split_at(N);
            QBinary::new(isa, op, FROM, FROM, TO).and_then(|q| q.run(pool, a, b, y)).expect(VALID);
        }
    };
    vec![
        bytes("table", [N; 2], |isa, pool, x, y| {
            Lut::from_fn(isa, |q| q ^ (q >> 3)).run(pool, x, y).expect(VALID);
        }),
        bytes("sum", [2 * N, N], binary(QOp::Add)),
        bytes("product", [2 * N, N], binary(QOp::Mul)),
        bytes("gate", [N + 120, N], |isa, pool, x, y| {
            let gate = QBinary::new(isa, QOp::Mul, FROM, UNIT, TO);
            gate.and_then(|g| g.run_gate(pool, [1, 784, 120], &x[..N], &x[N..], y)).expect(VALID);
        }),
        bytes("gate in fixed point", [N + 120, N], |isa, pool, x, y| {
            let gate = Gate::new(isa, FROM, UNIT, TO).expect(VALID);
            gate.run(pool, [1, 784, 120], &x[..N], &x[N..], y).expect(VALID);
        }),
    ]
}

/// From floats and to them: `[1, 3, 224 · 224]`, as it is and by pixel.
fn conversions() -> Vec<Case> {
    const N: usize = 3 * 224 * 224;
    let to = |name: &str, f: fn(Isa, &ThreadPool, &[f32], &mut [u8])| {
        Case::new(name, Work::Bytes(5 * N), move |isa| {
            let (pool, x, mut y) = (ThreadPool::new(1), floats_of(N), AlignedVec::zeroed(N));
            Box::new(move || f(isa, &pool, &x, &mut y))
        })
    };
    let from = |name: &str, f: fn(Isa, &ThreadPool, &[u8], &mut [f32])| {
        Case::new(name, Work::Bytes(5 * N), move |isa| {
            let (pool, x, mut y) = (ThreadPool::new(1), bytes_of(N), AlignedVec::zeroed(N));
            Box::new(move || f(isa, &pool, &x, &mut y))
        })
    };
    vec![
        to("quantize", |isa, pool, x, y| quantize(isa, pool, &TO, x, y).expect(VALID)),
        to("quantize planes", |isa, pool, x, y| {
            quantize_from_nchw(isa, pool, &TO, [1, 3, N / 3], x, y).expect(VALID);
        }),
        from("dequantize", |isa, pool, x, y| dequantize(isa, pool, &FROM, x, y).expect(VALID)),
        from("dequantize to planes", |isa, pool, x, y| {
            dequantize_to_nchw(isa, pool, &FROM, [1, 3, N / 3], x, y).expect(VALID);
        }),
    ]
}

fn bench(c: &mut Criterion) {
    family(c, "windows_u8", pools());
    family(c, "elements_u8", elements());
    family(c, "conversions", conversions());
}

criterion_group!(benches, bench);
criterion_main!(benches);
