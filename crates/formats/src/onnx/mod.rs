//! ONNX: models (`.onnx`) read and written, and test directories with recorded cases.

pub mod proto;
mod read;
pub mod tensor;
pub mod testdir;
mod write;

pub use read::{Evaluate, ReadOptions, decode, read_model, read_model_with, read_onnx};
pub use write::{WriteOptions, can_write, model_of, write_onnx, write_onnx_with};

/// What stands before the keys of a graph's metadata in a file.
const METADATA_PREFIX: &str = "cleave.";
