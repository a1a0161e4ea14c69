//! Readers and writers: .pt2, .onnx, .clv, .npy/.npz, images, ONNX test directories.
//!
//! The only crate that knows zip, protobuf or the JSON of model files. Rewriting is deliberately absent: a
//! reader gives the graph as the file has it, a writer takes a graph that is already at the target's level.
//! Nothing from a file is executed or unpickled, and no path in it leaves its folder.

mod archive;
pub mod atomic;
pub mod data;
pub mod error;
pub mod mapped;
pub mod npy;
pub mod onnx;
pub mod pt2;

pub use data::{Dataset, ImageOptions, InputSpec};
pub use error::{FormatError, Problem, Problems, Result};
pub use pt2::read_pt2;
