//! What can go wrong in a pipeline.

/// An error of any stage. Its message is one that a command prints.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that could not be read or written.
    #[error(transparent)]
    Format(#[from] cleave_formats::FormatError),
    /// A graph that is not valid.
    #[error(transparent)]
    Ir(#[from] cleave_ir::IrError),
    /// A quantizer file, a selection, or calibration.
    #[error(transparent)]
    Quantize(#[from] cleave_quantize::QuantizeError),
    /// A table or a raising rule.
    #[error(transparent)]
    Decompose(#[from] cleave_decompose::DecomposeError),
    /// Compiling or running.
    #[error(transparent)]
    Runtime(#[from] cleave_runtime::RuntimeError),
    /// Standard output was closed by its reader: not a failure.
    #[error("standard output is closed")]
    Broken,
    /// Arguments that lack what this model or quantizer needs.
    #[error("{0}")]
    Usage(String),
    /// Every unit turned out to stay float; why the first one does.
    #[error("nothing is left to quantize after calibration{0}")]
    NothingLeft(String),
    /// Anything else: what, where, and what to do.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// An error with this message.
    pub fn other(message: impl Into<String>) -> Error {
        Error::Other(message.into())
    }
}

/// A result with an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
