//! Writing a graph as an ONNX model in ONNX's own operator set.
//!
//! The graph stands at the level of ATen's semantic ops; every op is one function in the file of its family
//! and in that file's `OPS`. The result states the lowest operator set that has all that it uses. Rewriting a
//! graph until it can be written is deliberately absent: an op without a function is an error that names it.
//!
//! # What optimised ONNX Runtime computes from a quantized graph
//!
//! Found by comparing it with f32 arithmetic on all pairs of u8 (1.32, x64); `rne` rounds half to even,
//! results are clamped to the type's range, and `fma` rounds once:
//!
//! * convolution, Gemm, MatMul: `rne(f32(acc) · ((sx·sw) / sy)) + zy`; Gemm without quantized result: `f32(acc) · (sx·sw)`
//! * Add: `rne(fma(a, ra, fma(b, rb, fixed)))` with `ra = sa/sy`, `rb = sb/sy`, `fixed = zy - fma(ra, za, rb·zb)`
//! * Mul: `rne(f32((a - za)·(b - zb)) · ((sa·sb) / sy) + zy)`
//! * GlobalAveragePool: `rne(f32(Σ(q - zx)) · (sx / (sy·n))) + zy`
//! * AveragePool: `rne(Σ(f32(q - zx)·sx) / n / sy + zy)`, the sum in row-major order
//! * Concat: `rne((f32(q - z)·s) / sy) + zy`
//!
//! Relu and Clip between a convolution and its quantization are absorbed where the quantized range ends at
//! their bounds, otherwise the convolution runs in float. ReduceMean is not fused, so a mean over all of
//! space is written as GlobalAveragePool; only Gemm takes a bias into its integer kernel.

mod args;
mod compute;
mod control;
mod dynamic;
mod elementwise;
mod model;
mod norm;
mod out;
mod quantized;
mod shape;

pub use model::{WriteOptions, model_of, write_onnx, write_onnx_with};

use out::Out;

/// Writes one op.
type Emit = fn(&mut Out<'_, '_>) -> Result<(), String>;

/// An op's short name, the operator set that its form needs, and how it is written.
type Entry = (&'static str, i64, Emit);

/// All ops that can be written, by family.
const OPS: &[&[Entry]] =
    &[compute::OPS, control::OPS, dynamic::OPS, elementwise::OPS, norm::OPS, quantized::OPS, shape::OPS];

/// How an op is written; several overloads may share an entry under the bare name.
fn find(op: &cleave_ir::Op) -> Option<&'static Entry> {
    let all = || OPS.iter().flat_map(|f| f.iter());
    let namespace = op.name.split('.').next().unwrap_or_default();
    let bare = |e: &&Entry| e.0.strip_prefix(namespace).and_then(|n| n.strip_prefix('.')) == Some(op.base());
    all().find(|e| e.0 == op.short()).or_else(|| all().find(bare))
}

/// Whether a graph may hold this op and still be written.
pub fn can_write(op: &cleave_ir::Op) -> bool {
    op.name == "getitem" || find(op).is_some()
}
