//! What can go wrong with a file.

use cleave_ir::IrError;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result with a [`FormatError`].
pub type Result<T> = std::result::Result<T, FormatError>;

/// An error about a file that was read or written. Every message begins with the file.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The system refused to read or write a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: "read", "create", …
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Bytes that are not what the format asks for there.
    #[error("{}: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, what was expected and what was found.
        what: String,
    },
    /// Something that the format allows and this reader or writer does not handle.
    #[error("{}: {what}; {remedy}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// Everything that a reader or writer found wrong with the nodes of a model, in order.
    #[error("{}: {}", path.display(), listed(problems))]
    Nodes {
        /// The file.
        path: PathBuf,
        /// One or more problems.
        problems: Vec<Problem>,
    },
    /// Data that the model's inputs do not admit.
    #[error("{}: {why}", path.display())]
    Data {
        /// The file or folder.
        path: PathBuf,
        /// Which array and sample, what was expected, what was found and what to do.
        why: String,
    },
}

/// What is wrong with one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The node's name in the file; empty if it concerns no single node.
    pub node: String,
    /// The op's name in the file; empty if unknown.
    pub op: String,
    /// What was expected, what was found.
    pub why: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.node.as_str(), self.op.as_str()) {
            ("", "") => f.write_str(&self.why),
            ("", op) => write!(f, "{op}: {}", self.why),
            (node, "") => write!(f, "node '{node}': {}", self.why),
            (node, op) => write!(f, "node '{node}' ({op}): {}", self.why),
        }
    }
}

/// One problem on the line itself; several below it, the first twenty of them.
fn listed(problems: &[Problem]) -> String {
    const SHOWN: usize = 20;
    if let [one] = problems {
        return one.to_string();
    }
    let mut text = format!("{} problems", problems.len());
    for p in problems.iter().take(SHOWN) {
        text.push_str(&format!("\n  {p}"));
    }
    if problems.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", problems.len() - SHOWN));
    }
    text
}

impl FormatError {
    /// An error of the system.
    pub fn io(path: &Path, action: &'static str, source: std::io::Error) -> FormatError {
        FormatError::Io { path: path.into(), action, source }
    }

    /// Bytes that are not what was expected.
    pub fn malformed(path: &Path, what: impl Into<String>) -> FormatError {
        FormatError::Malformed { path: path.into(), what: what.into() }
    }

    /// Something that is not handled, and what to do about it.
    pub fn unsupported(path: &Path, what: impl Into<String>, remedy: impl Into<String>) -> FormatError {
        FormatError::Unsupported { path: path.into(), what: what.into(), remedy: remedy.into() }
    }

    /// Data that does not fit.
    pub fn data(path: &Path, why: impl Into<String>) -> FormatError {
        FormatError::Data { path: path.into(), why: why.into() }
    }

    /// An error of one node.
    pub fn node(path: &Path, node: &str, op: &str, why: impl Into<String>) -> FormatError {
        let problem = Problem { node: node.into(), op: op.into(), why: why.into() };
        FormatError::Nodes { path: path.into(), problems: vec![problem] }
    }

    /// An error of the graph, found while a file was read or written.
    pub fn ir(path: &Path, e: IrError) -> FormatError {
        FormatError::Nodes { path: path.into(), problems: problems_of(e) }
    }
}

/// An error of the graph as problems of its nodes.
fn problems_of(e: IrError) -> Vec<Problem> {
    match e {
        IrError::Call { op, node, why } => vec![Problem { node, op, why }],
        IrError::Invalid(list) => {
            list.into_iter().map(|why| Problem { node: String::new(), op: String::new(), why }).collect()
        }
        other => vec![Problem { node: String::new(), op: String::new(), why: other.to_string() }],
    }
}

/// Collects what is wrong with a model, so that one run shows all of it.
#[derive(Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// None yet.
    pub fn new() -> Problems {
        Problems::default()
    }

    /// Notes a problem of a node; the same one is noted once.
    pub fn push(&mut self, node: &str, op: &str, why: impl Into<String>) {
        let problem = Problem { node: node.into(), op: op.into(), why: why.into() };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
    }

    /// Takes over what was noted elsewhere.
    pub fn append(&mut self, other: Problems) {
        self.0.extend(other.0);
    }

    /// Notes an error of the graph.
    pub fn push_ir(&mut self, e: IrError) {
        self.0.extend(problems_of(e));
    }

    /// Whether nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first that was noted.
    pub fn first(&self) -> Option<&Problem> {
        self.0.first()
    }

    /// How many were noted.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Nothing, or the error that lists all.
    ///
    /// # Errors
    /// [`FormatError::Nodes`], if anything was noted.
    pub fn finish(self, path: &Path) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(FormatError::Nodes { path: path.into(), problems: self.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_problem_stands_on_the_line_and_several_below_it() {
        let path = Path::new("m.pt2");
        assert_eq!(
            FormatError::node(path, "conv", "aten.conv2d", "no input").to_string(),
            "m.pt2: node 'conv' (aten.conv2d): no input"
        );
        let mut all = Problems::new();
        all.push("a", "x.y", "unknown op");
        all.push("a", "x.y", "unknown op");
        all.push("b", "", "no value");
        assert_eq!(all.len(), 2);
        let text = all.finish(path).map_err(|e| e.to_string());
        assert_eq!(text, Err("m.pt2: 2 problems\n  node 'a' (x.y): unknown op\n  node 'b': no value".into()));
        assert!(Problems::new().finish(path).is_ok());
    }
}
