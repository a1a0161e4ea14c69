//! Graph, values, tensors, symbolic dims, the builder, and the op records of all levels with their rules.
//!
//! Reading and writing files, rewriting and policy are deliberately absent: see the crates `formats`,
//! `rewrite`, `decompose` and `quantize`.

pub mod builder;
pub mod derivative;
pub mod dim;
pub mod error;
pub mod example;
pub mod graph;
pub mod macs;
pub mod op;
pub mod ops;
pub mod schema;
pub mod strides;
pub mod subgraph;
pub mod tensor;
pub mod text;
pub mod transform;
pub mod verify;

pub use builder::{Builder, Call, Value};
pub use dim::{Bindings, Dim};
pub use error::{IrError, Result};
pub use graph::{Arg, ConstKind, Graph, Kind, Meta, Node, NodeId, Origin, SymbolRange, TensorMeta};
pub use op::{Accuracy, Class, Levels, Op, OpDef};
pub use tensor::{Bytes, Element, Tensor};
