//! What the stage, conformance and tidy tests share: where things lie, small ONNX models, quantizing them.

use glob::Pattern;
use std::path::PathBuf;

/// The top of the repository.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: tests/ lies in the repository").to_path_buf()
}

/// A file under `tests/fixtures/`.
pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// Several patterns.
pub struct Globs(Vec<Pattern>);

impl Globs {
    /// Whether one of them matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.iter().any(|p| p.matches(text))
    }
}

/// What matches any of these patterns.
pub fn globs<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Globs {
    let pattern = |p| Pattern::new(p).expect("invariant: lists of cases hold patterns");
    Globs(patterns.into_iter().map(pattern).collect())
}

pub mod onnx;
pub mod quantized;
