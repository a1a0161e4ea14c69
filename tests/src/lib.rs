//! What the stage, conformance and tidy tests share: where things lie, small ONNX models, quantizing them.

use std::path::PathBuf;

/// The top of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: tests/ lies in the repository").to_path_buf()
}

/// A file under `tests/fixtures/`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

pub mod onnx;
pub mod quantized;
