//! What can go wrong with a graph.

/// An error about a graph, its text form or a call in it.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum IrError {
    /// A call that its op's schema, shapes or types do not admit.
    #[error("{op} at node '{node}': {why}")]
    Call {
        /// The op's full name.
        op: String,
        /// The node, or the name it would have had.
        node: String,
        /// What was expected and what was found.
        why: String,
    },
    /// An op name that no record has.
    #[error("unknown op '{0}'")]
    UnknownOp(String),
    /// Text that is not a graph.
    #[error("line {line}, column {column}: {why}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        why: String,
    },
    /// A symbol without a value, or an expression that has none.
    #[error("size {expr}: {why}")]
    Dim {
        /// The expression.
        expr: String,
        /// Why it has no value.
        why: String,
    },
    /// A constant whose bytes, shape and strides do not go together.
    #[error("tensor of {shape:?}: {why}")]
    Tensor {
        /// The shape.
        shape: Vec<usize>,
        /// What is wrong.
        why: String,
    },
    /// Invariants that do not hold, all of them, one a line.
    #[error("{}", .0.join("\n"))]
    Invalid(Vec<String>),
}

/// A result with an [`IrError`].
pub type Result<T> = std::result::Result<T, IrError>;
