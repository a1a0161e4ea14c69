//! int8 and f32 kernels over slices: packing, selection, and the thread pool that they share.
//!
//! A kernel folder is closed: `mod.rs` has the safe interface, one file per instruction set beside a
//! portable reference of the same bits, and tests that run every instruction set the machine has.
//! Graphs are deliberately absent; `unsafe` stands in the files of one instruction set each.

pub mod buffer;
#[cfg(target_arch = "x86_64")]
mod bytes512;
pub mod conv_f32;
mod error;
pub mod gemm_f32;
pub mod isa;
pub mod layer_norm;
pub mod limit;
pub mod lut;
pub mod observe;
pub mod pointwise;
pub mod pool;
pub mod qbinary;
pub mod qconv;
pub mod quant;
pub mod reduce;
pub mod resize;
mod shape;
mod share;
pub mod softmax;
pub mod threads;
mod versions;

pub use buffer::{AlignedVec, SharedMut};
pub use error::KernelError;
pub use isa::{Isa, Level};
pub use shape::ConvShape;
pub use threads::ThreadPool;
