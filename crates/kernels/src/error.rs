//! The one error type of the crate.

/// Why a kernel was not built or not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// A slice is shorter than its shape says.
    #[error("{what}: expected at least {expected} elements, found {found}")]
    TooShort {
        /// Which operand.
        what: &'static str,
        /// Elements that the shape calls for.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// A slice's length is not what the shape says.
    #[error("{what}: expected {expected} elements, found {found}")]
    Length {
        /// Which operand.
        what: &'static str,
        /// Elements that the shape calls for.
        expected: usize,
        /// Elements given.
        found: usize,
    },
    /// A shape or parameter that makes no sense or is not supported.
    #[error("{what}: {why}")]
    Invalid {
        /// Which kernel or operand.
        what: &'static str,
        /// What was expected and what was found.
        why: String,
    },
    /// The sum of an output channel may leave the range of its accumulator.
    #[error("{what}: output channel {channel} may reach {bound}, which an i32 accumulator does not hold")]
    Overflow {
        /// Which kernel.
        what: &'static str,
        /// Output channel.
        channel: usize,
        /// The greatest magnitude that the sum may reach.
        bound: i64,
    },
    /// An operand of the wrong element type.
    #[error("{what}: expected {expected} elements")]
    DType {
        /// Which operand.
        what: &'static str,
        /// The element type expected.
        expected: &'static str,
    },
}

impl KernelError {
    pub(crate) fn invalid(what: &'static str, why: impl Into<String>) -> KernelError {
        KernelError::Invalid { what, why: why.into() }
    }

    /// `Ok` if `found >= expected`.
    pub(crate) fn at_least(what: &'static str, expected: usize, found: usize) -> Result<(), KernelError> {
        if found >= expected { Ok(()) } else { Err(KernelError::TooShort { what, expected, found }) }
    }

    /// `Ok` if `found == expected`.
    pub(crate) fn exactly(what: &'static str, expected: usize, found: usize) -> Result<(), KernelError> {
        if found == expected { Ok(()) } else { Err(KernelError::Length { what, expected, found }) }
    }
}
