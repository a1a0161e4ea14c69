//! A node's arguments by name, and attributes of the operators written.

use crate::onnx::proto::{AttributeProto, AttributeType};
use cleave_ir::{Arg, Dim, Graph, Meta, Node, NodeId};
use cleave_numerics::DType;

/// An integer attribute.
pub fn int(name: &str, v: i64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: AttributeType::Int.into(), i: Some(v), ..Default::default() }
}

/// A flag.
pub fn flag(name: &str, v: bool) -> AttributeProto {
    int(name, i64::from(v))
}

/// A list of integers.
pub fn ints(name: &str, v: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: AttributeType::Ints.into(), ints: v, ..Default::default() }
}

/// A float, rounded to f32.
pub fn float(name: &str, v: f64) -> AttributeProto {
    AttributeProto { name: name.into(), r#type: AttributeType::Float.into(), f: Some(v as f32), ..Default::default() }
}

/// A string.
pub fn text(name: &str, v: &'static str) -> AttributeProto {
    let s = Some(prost::bytes::Bytes::from_static(v.as_bytes()));
    AttributeProto { name: name.into(), r#type: AttributeType::String.into(), s, ..Default::default() }
}

/// A node's arguments.
#[derive(Clone, Copy)]
pub struct Args<'g> {
    g: &'g Graph,
    node: &'g Node,
}

impl<'g> Args<'g> {
    /// Of this node.
    pub fn new(g: &'g Graph, node: &'g Node) -> Args<'g> {
        Args { g, node }
    }

    /// The argument.
    pub fn get(&self, name: &str) -> Result<&'g Arg, String> {
        self.node.arg(name).ok_or_else(|| format!("has no parameter '{name}'"))
    }

    fn wrong<T>(&self, name: &str, want: &str) -> Result<T, String> {
        Err(format!("argument '{name}': expected {want}, found {:?}", self.node.arg(name)))
    }

    /// Whether the argument is given.
    pub fn given(&self, name: &str) -> bool {
        !matches!(self.node.arg(name), None | Some(Arg::None))
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<NodeId, String> {
        match self.get(name)? {
            Arg::Node(n) => Ok(*n),
            _ => self.wrong(name, "a tensor"),
        }
    }

    /// A tensor, if given.
    pub fn opt_tensor(&self, name: &str) -> Result<Option<NodeId>, String> {
        if self.given(name) { self.tensor(name).map(Some) } else { Ok(None) }
    }

    fn dim_of(&self, a: &Arg) -> Option<Dim> {
        match a {
            Arg::Int(v) => Some(Dim::from(*v)),
            Arg::Dim(d) => Some(d.clone()),
            Arg::Node(n) => match &self.g.node(*n).meta {
                Meta::Int(d) => Some(d.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// A size.
    pub fn dim(&self, name: &str) -> Result<Dim, String> {
        self.dim_of(self.get(name)?).map_or_else(|| self.wrong(name, "a size"), Ok)
    }

    /// A list of sizes.
    pub fn dims(&self, name: &str) -> Result<Vec<Dim>, String> {
        match self.get(name)? {
            Arg::List(l) => {
                l.iter().map(|a| self.dim_of(a)).collect::<Option<_>>().map_or_else(|| self.wrong(name, "sizes"), Ok)
            }
            _ => self.wrong(name, "a list of sizes"),
        }
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64, String> {
        self.dim(name)?.as_const().map_or_else(|| self.wrong(name, "an integer"), Ok)
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, String> {
        let dims = self.dims(name)?;
        dims.iter().map(Dim::as_const).collect::<Option<_>>().map_or_else(|| self.wrong(name, "integers"), Ok)
    }

    /// A list of integers; `n` times the one that is given.
    pub fn spread(&self, name: &str, n: usize) -> Result<Vec<i64>, String> {
        let v = self.ints(name)?;
        match v.as_slice() {
            [one] => Ok(vec![*one; n]),
            v if v.len() == n => Ok(v.to_vec()),
            _ => self.wrong(name, "one number for each dimension"),
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<f64, String> {
        match self.get(name)? {
            Arg::Float(v) => Ok(*v),
            Arg::Int(v) => Ok(*v as f64),
            Arg::Bool(v) => Ok(f64::from(u8::from(*v))),
            _ => self.wrong(name, "a number"),
        }
    }

    /// A number, if given.
    pub fn opt_float(&self, name: &str) -> Result<Option<f64>, String> {
        if self.given(name) { self.float(name).map(Some) } else { Ok(None) }
    }

    /// A bool.
    pub fn bool(&self, name: &str) -> Result<bool, String> {
        match self.get(name)? {
            Arg::Bool(v) => Ok(*v),
            _ => self.wrong(name, "a bool"),
        }
    }

    /// An element type.
    pub fn dtype(&self, name: &str) -> Result<DType, String> {
        match self.get(name)? {
            Arg::DType(d) => Ok(*d),
            _ => self.wrong(name, "an element type"),
        }
    }

    /// Fails unless an optional argument has been left out or holds this value.
    pub fn only(&self, name: &str, value: &Arg) -> Result<(), String> {
        match self.node.arg(name) {
            None | Some(Arg::None) => Ok(()),
            Some(a) if a == value => Ok(()),
            Some(a) => Err(format!("argument '{name}': {a:?} cannot be written, expected {value:?}")),
        }
    }
}
