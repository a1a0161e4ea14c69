//! What can go wrong in decomposing and raising.

use cleave_ir::IrError;

/// An error of this crate.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum DecomposeError {
    /// What a call in a rewritten graph does not admit.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// A rule that failed.
    #[error("rule of {op} on node '{node}': {why}")]
    Rule {
        /// The op's full name.
        op: String,
        /// The node.
        node: String,
        /// What the rule met.
        why: String,
    },
    /// A gradient that cannot be taken.
    #[error("derivative of {op} on node '{node}': {why}")]
    Derivative {
        /// The op's full name.
        op: String,
        /// The node.
        node: String,
        /// Why there is none.
        why: String,
    },
    /// A table that there is not.
    #[error("unknown table '{name}'; there are: {known}")]
    UnknownTable {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A target that there is not.
    #[error("unknown target '{name}'; there are: {known}")]
    UnknownTarget {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// An op to be decomposed or kept that no record has.
    #[error("unknown op '{0}'; `cleave ops` lists them")]
    UnknownOp(String),
    /// An op to be decomposed that has no rule.
    #[error("op '{0}' has no rule to decompose it by")]
    NoRule(String),
    /// An op to be kept that the table keeps anyway.
    #[error("table '{table}' keeps '{op}' as it is; --keep changes nothing")]
    AlreadyKept {
        /// The table.
        table: String,
        /// The op asked for.
        op: String,
    },
    /// An op to be decomposed that the table breaks up anyway.
    #[error("table '{table}' breaks up '{op}' as it is; --decompose changes nothing")]
    AlreadyDecomposed {
        /// The table.
        table: String,
        /// The op asked for.
        op: String,
    },
    /// An op to be kept that cannot stand in a functional graph.
    #[error("op '{0}' mutates or aliases: a functional graph cannot keep it")]
    NotFunctional(String),
    /// A write through a view, or to what belongs to a caller, that cannot be turned into a value.
    #[error("node '{node}' writes through {op}, which cannot be expressed without mutation")]
    WriteThrough {
        /// The mutating node.
        node: String,
        /// The view op.
        op: String,
    },
    /// A symbol that no input's shape gives.
    #[error("size '{symbol}' stands in no input's shape; it cannot be computed from the inputs")]
    Unbacked {
        /// The symbol.
        symbol: String,
    },
    /// A pattern or a rule of this crate that does not hold.
    #[error("raising rule '{rule}': {why}")]
    BadRule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
}

/// A result with a [`DecomposeError`].
pub type Result<T> = std::result::Result<T, DecomposeError>;
