//! Pointwise programs: chains of elementwise ops run over chunks that stay in L1.
//!
//! A [`Program`] loads, computes and stores over a few registers, each a chunk of f32: one load and one
//! store an operand, however many ops stand between, and one tight loop an op. [`Pointwise`] runs it over whole
//! tensors with strided, broadcast operands; [`Program::run_tile`] runs it as the epilogue of a matrix kernel.
//!
//! All arithmetic is f32 without contraction and without libm, so that the bits are the same on every
//! instruction set and any number of threads; [`Unary::eval`], [`Binary::eval`] and [`Quantize::eval`] define them.

mod exec;
mod isa;
pub(crate) mod math;
mod ops;
mod program;
mod sink;
mod space;
mod tile;

#[cfg(test)]
mod tests;

pub use exec::Data;
pub(crate) use exec::{Quantizer, quantize_slice};
pub(crate) use math::fma;
pub use ops::{Binary, Unary};
pub use program::{Builder, Input, MAX_INPUTS, MAX_OUTPUTS, MAX_REGISTERS, Output, Program, Quantize, Rounding, Val};
pub use sink::Sink;
pub use space::{DataMut, MAX_RANK, Pointwise, broadcast_strides, dense_strides};
pub(crate) use tile::Residual;
pub use tile::{Layout, Tile, TileInput, TileOutput};
