//! ONNX: models (`.onnx`) read and written, and test directories with recorded cases.

pub mod proto;
mod read;
pub mod tensor;

pub use read::{decode, read_model, read_onnx};
