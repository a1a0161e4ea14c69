//! What can go wrong between a graph and its quantized form.

use cleave_ir::IrError;

/// An error of quantization.
#[derive(Debug, thiserror::Error)]
pub enum QuantizeError {
    /// A quantizer file that does not hold.
    #[error("{file}:{line}:{column}: {why}")]
    File {
        /// The file, or the name of a built-in quantizer.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        why: String,
    },
    /// A quantizer that is neither built in nor a file.
    #[error("no quantizer '{name}': built in are {known}; a file ends in .toml ({why})")]
    UnknownQuantizer {
        /// The name asked for.
        name: String,
        /// The built-in names.
        known: String,
        /// Why it could not be read as a file.
        why: String,
    },
    /// Quantizers that do not go together.
    #[error("quantizers: {0}")]
    Compose(String),
    /// A selector that is not written as one.
    #[error("selector '{selector}': {why}")]
    Selector {
        /// The selector.
        selector: String,
        /// What is wrong with it.
        why: String,
    },
    /// A quantizer that found nothing to quantize.
    #[error("quantizer '{quantizer}' found nothing to quantize among {compute} compute nodes{hint}")]
    Nothing {
        /// The quantizer.
        quantizer: String,
        /// Number of compute nodes.
        compute: usize,
        /// The nearest miss, if there was one.
        hint: String,
    },
    /// Calibration without data.
    #[error("no calibration samples: ranges of activations cannot be known without data")]
    NoSamples,
    /// A sample that does not fit, or that the evaluator failed on.
    #[error("calibration sample {sample}: {why}")]
    Sample {
        /// Number of the sample, from 0.
        sample: usize,
        /// What went wrong.
        why: String,
    },
    /// A value that is NaN or infinite, where that is an error.
    #[error("calibration sample {sample}: {what} in the value of node '{node}' ({op})")]
    Value {
        /// Number of the sample, from 0.
        sample: usize,
        /// The node.
        node: String,
        /// Its op.
        op: String,
        /// NaN or an infinity.
        what: &'static str,
    },
    /// Another observer for a quantizer that observes nothing.
    #[error("quantizer '{0}' has no spec whose range is observed, so no observer can be chosen")]
    NothingObserved(String),
    /// Calibration of which no sample is left.
    #[error("all {0} calibration samples were skipped: each leads to NaN or infinities")]
    AllSkipped(usize),
    /// Statistics of another graph or quantizer.
    #[error("statistics: {0}")]
    Statistics(String),
    /// A converted graph that contradicts itself: what convert writes never does.
    #[error("internal error: {0}")]
    Invariant(String),
    /// A graph that cannot be rewritten.
    #[error(transparent)]
    Ir(#[from] IrError),
}

/// A result with a [`QuantizeError`].
pub type Result<T> = std::result::Result<T, QuantizeError>;
