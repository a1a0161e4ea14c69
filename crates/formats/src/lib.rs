//! Readers and writers: .pt2, .onnx, .clv, .npy/.npz, images, ONNX test directories.
//!
//! The only crate that knows zip, protobuf or the JSON of model files. Rewriting is deliberately absent: a
//! reader gives the graph as the file has it, a writer takes a graph that is already at the target's level.
//! Nothing from a file is executed or unpickled, and no path in it leaves its folder.

mod archive;
pub mod atomic;
pub mod clv;
mod codec;
pub mod data;
pub mod error;
pub mod fingerprint;
pub mod mapped;
pub mod npy;
pub mod onnx;
pub mod pt2;
pub mod record;

pub use clv::{read_clv, write_clv};
pub use data::{Dataset, ImageOptions, InputSpec};
pub use error::{FormatError, Problem, Problems, Result};
pub use pt2::{read_pt2, write_pt2};

use archive::Archive;
use cleave_ir::Graph;
use mapped::Mapped;
use std::path::Path;

/// Reads a model of any of the formats; its bytes tell which, not its name.
///
/// # Errors
/// [`FormatError`]: what the format's reader found, or a file that is none of them.
pub fn read(path: &Path) -> Result<Graph> {
    read_with(path, onnx::ReadOptions::default())
}

/// [`read`] with more known of an ONNX model than its file says; other formats say all themselves.
///
/// # Errors
/// As [`read`].
pub fn read_with(path: &Path, options: onnx::ReadOptions<'_>) -> Result<Graph> {
    let file = Mapped::open(path)?;
    let bytes = file.bytes();
    match bytes {
        b if b.starts_with(&clv::MAGIC) => clv::read_mapped(&file).map(|(g, _)| g),
        b if b.starts_with(b"PK") => pt2::read_archive(Archive::open(file)?),
        b if b.starts_with(b"\x93NUMPY") => Err(FormatError::malformed(path, "an array, expected a model")),
        // A protobuf message has no signature, but begins with the tag of one of its fields.
        [0x08 | 0x12 | 0x1a | 0x22 | 0x28 | 0x32 | 0x3a | 0x42 | 0x72 | 0xa2 | 0xca, ..] => {
            onnx::read_model_with(path, &onnx::decode(path)?, options)
        }
        _ => Err(FormatError::malformed(path, "not a model; expected a .pt2, .onnx or .clv file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_models_are_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.onnx");
        for (bytes, why) in [
            (&b""[..], "not a model; expected a .pt2, .onnx or .clv file"),
            (b"{\"a\": 1}", "not a model; expected a .pt2, .onnx or .clv file"),
            (b"\xff\xd8\xff\xe0", "not a model; expected a .pt2, .onnx or .clv file"),
            (b"\x93NUMPY\x01\x00", "an array, expected a model"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let e = read(&path).unwrap_err().to_string();
            assert_eq!(e, format!("{}: {why}", path.display()));
        }
    }
}
