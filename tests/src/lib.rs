//! What the stage, conformance and tidy tests share: where things lie, small ONNX models, quantizing them.

use globset::{Glob, GlobSet, GlobSetBuilder};
use std::path::PathBuf;

/// The top of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: tests/ lies in the repository").to_path_buf()
}

/// A file under `tests/fixtures/`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// What matches any of these patterns.
pub fn globs<'a>(patterns: impl IntoIterator<Item = &'a str>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for p in patterns {
        set.add(Glob::new(p).expect("invariant: lists of cases hold patterns"));
    }
    set.build().expect("invariant: lists of cases hold patterns")
}

pub mod onnx;
pub mod quantized;
