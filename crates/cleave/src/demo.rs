//! The embedded model and data: TinyConvNet on Fashion-MNIST (see `assets/fashion/README.md`).

use crate::error::{Error, Result};
use cleave_ir::{Graph, Tensor};
use std::io::Write;

const MODEL: &[u8] = include_bytes!("../assets/fashion/tiny_fashion.pt2");
const CALIBRATION: &[u8] = include_bytes!("../assets/fashion/calib_images.bin");
const TEST: &[u8] = include_bytes!("../assets/fashion/test_images.bin");
const LABELS: &[u8] = include_bytes!("../assets/fashion/test_labels.bin");

/// Pixels of an image.
const PIXELS: usize = 28 * 28;

/// The exported program.
///
/// # Errors
/// None, unless the temporary folder cannot be written.
pub fn model() -> Result<Graph> {
    let told = |e: std::io::Error| Error::other(format!("the temporary folder cannot be written: {e}"));
    let mut file = tempfile::Builder::new().prefix("tiny_fashion").suffix(".pt2").tempfile().map_err(told)?;
    file.write_all(MODEL).map_err(told)?;
    // The graph keeps the file's pages; the name may go.
    Ok(cleave_formats::read_pt2(file.path())?)
}

/// The bytes of the exported program.
pub fn model_bytes() -> &'static [u8] {
    MODEL
}

/// The first `n` calibration images (128 there are) as the model's input: `(pixel / 255 - 0.2860) / 0.3530`,
/// `[n, 1, 28, 28]`.
pub fn calibration(n: usize) -> Tensor {
    images(CALIBRATION, n)
}

/// The first `n` test images (1,000 there are).
pub fn test_images(n: usize) -> Tensor {
    images(TEST, n)
}

/// The classes of the test images.
pub fn test_labels() -> &'static [u8] {
    LABELS
}

fn images(bytes: &[u8], n: usize) -> Tensor {
    let n = n.min(bytes.len() / PIXELS);
    let pixels = bytes[..n * PIXELS].iter().map(|p| (f32::from(*p) / 255.0 - 0.2860) / 0.3530);
    Tensor::new(&[n, 1, 28, 28], pixels.collect())
}
