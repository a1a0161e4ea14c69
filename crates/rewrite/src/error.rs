//! What is wrong with a pattern, and why one did not match.

/// Text that is no pattern, or names something that does not exist.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[error("line {line}, column {column}: {why}")]
pub struct PatternError {
    /// Byte in the text where it went wrong.
    pub offset: usize,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    /// What was expected.
    pub why: String,
}

impl PatternError {
    /// An error at a byte of `text`.
    pub fn at(text: &str, offset: usize, why: impl Into<String>) -> PatternError {
        let offset = offset.min(text.len());
        let before = text.get(..offset).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        PatternError { offset, line, column, why: why.into() }
    }
}

/// How far a pattern got that did not match.
#[derive(Clone, Debug, PartialEq)]
pub struct NearMiss {
    /// Calls matched before the failure; 0 if the root itself is another op.
    pub matched: usize,
    /// The part of the pattern that failed: an op's label, a capture, or a predicate.
    pub step: String,
    /// Why, as `batch_norm has 2 users`.
    pub why: String,
}

impl std::fmt::Display for NearMiss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at {}: {}", self.step, self.why)
    }
}
