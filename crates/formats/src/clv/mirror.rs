//! The stored form of a graph: plain structures in which nothing nests, so that reading cannot recurse.
//!
//! Changing anything here changes the file: raise [`super::VERSION`].

use cleave_numerics::DType;
use serde::{Deserialize, Serialize};

/// All that a file says, but for the elements of tensors.
#[derive(Serialize, Deserialize)]
pub(super) struct Model {
    pub extra: Vec<(String, String)>,
    /// Names of the ops called, each once.
    pub ops: Vec<String>,
    pub sections: Vec<Section>,
    /// The program is the last; arguments of a graph's nodes may be graphs that stand before it.
    pub graphs: Vec<StoredGraph>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredGraph {
    pub metadata: Vec<(String, String)>,
    pub symbols: Vec<(String, i64, Option<i64>)>,
    pub input_names: Vec<String>,
    pub output_names: Vec<String>,
    pub constants: Vec<Constant>,
    pub nodes: Vec<StoredNode>,
}

/// A tensor: a section's bytes in row-major order.
#[derive(Serialize, Deserialize)]
pub(super) struct Constant {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<u64>,
    pub section: u32,
}

/// A run of bytes, from `offset` behind the metadata's end rounded up to the alignment.
#[derive(Serialize, Deserialize)]
pub(super) struct Section {
    pub offset: u64,
    pub len: u64,
    /// XXH3 of the bytes.
    pub hash: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredNode {
    pub name: String,
    pub kind: StoredKind,
    pub args: Vec<StoredArg>,
    pub meta: StoredMeta,
    pub sources: Vec<String>,
    pub module: String,
}

#[derive(Serialize, Deserialize)]
pub(super) enum StoredKind {
    Placeholder,
    /// A constant by number.
    Param(u32),
    Buffer(u32),
    Constant(u32),
    /// An op by number.
    Call(u32),
    Output,
}

#[derive(Serialize, Deserialize)]
pub(super) enum StoredArg {
    One(Atom),
    List(Vec<Atom>),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Atom {
    None,
    Node(u32),
    Int(i64),
    /// A size's text form.
    Dim(String),
    Float(f64),
    Bool(bool),
    Str(String),
    DType(DType),
    /// A graph by number.
    Graph(u32),
}

#[derive(Serialize, Deserialize)]
pub(super) enum StoredMeta {
    None,
    One(AtomMeta),
    Tuple(Vec<AtomMeta>),
}

#[derive(Serialize, Deserialize)]
pub(super) enum AtomMeta {
    None,
    Tensor(DType, Vec<Size>),
    Int(Size),
}

#[derive(Serialize, Deserialize)]
pub(super) enum Size {
    Number(i64),
    /// The text form.
    Expression(String),
}
