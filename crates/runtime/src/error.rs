//! What can go wrong when a graph is compiled or run.

use cleave_decompose::DecomposeError;
use cleave_ir::{Graph, IrError, Tensor};
use cleave_kernels::KernelError;

/// An error of a backend.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum RuntimeError {
    /// A graph that is not valid, or sizes that do not fit it.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// Inputs that the graph does not admit.
    #[error("input '{name}': expected {expected}, found {found}")]
    Input {
        /// The input's name for the outside.
        name: String,
        /// What the graph says.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A call that the backend cannot run.
    #[error("{op} at node '{node}': {why}")]
    Unsupported {
        /// The op.
        op: String,
        /// The node.
        node: String,
        /// What stands against it.
        why: String,
    },
    /// A graph that the backend's table cannot break up.
    #[error(transparent)]
    Decompose(#[from] DecomposeError),
    /// A kernel that refuses its shapes or operands.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A kernel of a compiled model that refuses its operands.
    #[error("kernel '{kernel}': {source}")]
    Step {
        /// Its name in the plan.
        kernel: String,
        /// What it met.
        source: KernelError,
    },
}

/// A result with a [`RuntimeError`].
pub type Result<T> = std::result::Result<T, RuntimeError>;

/// Checks number and element types of inputs; shapes are checked where symbols are bound.
pub(crate) fn check_inputs(g: &Graph, inputs: &[Tensor]) -> Result<()> {
    let placeholders = g.placeholders();
    if placeholders.len() != inputs.len() {
        let name = g.input_names.get(inputs.len()).cloned().unwrap_or_default();
        let expected = format!("{} inputs ({})", placeholders.len(), g.input_names.join(", "));
        return Err(RuntimeError::Input { name, expected, found: inputs.len().to_string() });
    }
    for (i, (id, t)) in placeholders.into_iter().zip(inputs).enumerate() {
        let meta = g.tensor_meta(id)?;
        if meta.dtype != t.dtype() {
            let name = g.input_names.get(i).unwrap_or(&g.node(id).name).clone();
            return Err(RuntimeError::Input { name, expected: meta.dtype.to_string(), found: t.dtype().to_string() });
        }
    }
    Ok(())
}
