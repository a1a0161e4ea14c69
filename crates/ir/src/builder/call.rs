//! A call's arguments by the names of the schema.

use super::{Builder, Value};
use crate::dim::Dim;
use crate::error::{IrError, Result};
use crate::graph::{Arg, Meta, TensorMeta};
use crate::op::Op;
use cleave_numerics::DType;

/// A call as a rule or shape function sees it. Accessors name parameters as the schema does; asking for
/// one that the schema lacks, or as another type than it holds, is recorded as an error of the call.
pub struct Call<'b> {
    /// Where results are built.
    pub b: &'b Builder,
    /// The op called.
    pub op: &'static Op,
    /// One argument for each parameter.
    pub args: Vec<Arg>,
    /// The node's name.
    pub name: String,
}

impl<'b> Call<'b> {
    /// An error of this call.
    pub fn err(&self, why: &str) -> IrError {
        IrError::Call { op: self.op.name.into(), node: self.name.clone(), why: why.into() }
    }

    /// Records an error of this call.
    pub fn fail(&self, why: &str) {
        self.b.fail(self.err(why));
    }

    /// The argument of a parameter.
    pub fn arg(&self, name: &str) -> &Arg {
        match self.op.schema.index(name).and_then(|i| self.args.get(i)) {
            Some(a) => a,
            None => {
                self.fail(&format!("has no parameter '{name}'"));
                &Arg::None
            }
        }
    }

    fn get<'s, T: Default>(&'s self, name: &str, what: &str, f: impl FnOnce(&'s Arg) -> Option<T>) -> T {
        let a = self.arg(name);
        f(a).unwrap_or_else(|| {
            self.fail(&format!("argument '{name}': expected {what}, found {a:?}"));
            T::default()
        })
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Value<'b> {
        self.opt_tensor(name).unwrap_or_else(|| {
            self.fail(&format!("argument '{name}': expected a tensor"));
            self.b.poison()
        })
    }

    /// A tensor, if one was given.
    pub fn opt_tensor(&self, name: &str) -> Option<Value<'b>> {
        match self.arg(name) {
            Arg::Node(n) => Some(self.b.value(*n)),
            _ => None,
        }
    }

    /// A list of tensors.
    pub fn tensors(&self, name: &str) -> Vec<Value<'b>> {
        self.arg(name).nodes().into_iter().map(|n| self.b.value(n)).collect()
    }

    /// A size: a number, an expression, or the value of a node that is one.
    pub fn dim(&self, name: &str) -> Dim {
        self.get(name, "a size", |a| self.as_dim(a)).unwrap_or(Dim::from(0))
    }

    fn as_dim(&self, a: &Arg) -> Option<Option<Dim>> {
        Some(Some(match a {
            Arg::Int(i) => Dim::from(*i),
            Arg::Dim(d) => d.clone(),
            Arg::Node(n) => match self.b.with_graph(|g| g.node(*n).meta.clone()) {
                Meta::Int(d) => d,
                _ => return None,
            },
            _ => return None,
        }))
    }

    /// A list of sizes.
    pub fn dims(&self, name: &str) -> Vec<Dim> {
        self.get(name, "a list of sizes", |a| match a {
            Arg::List(l) => l.iter().map(|a| self.as_dim(a)?).collect(),
            _ => None,
        })
    }

    /// An integer.
    pub fn int(&self, name: &str) -> i64 {
        self.get(name, "an integer", |a| self.as_dim(a)??.as_const())
    }

    /// An integer, if one was given.
    pub fn opt_int(&self, name: &str) -> Option<i64> {
        (*self.arg(name) != Arg::None).then(|| self.int(name))
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        let dims = self.dims(name);
        dims.iter().map(Dim::as_const).collect::<Option<_>>().unwrap_or_else(|| {
            self.fail(&format!("argument '{name}': expected integers, found {dims:?}"));
            vec![0; dims.len()]
        })
    }

    /// A list of integers, if one was given.
    pub fn opt_ints(&self, name: &str) -> Option<Vec<i64>> {
        (*self.arg(name) != Arg::None).then(|| self.ints(name))
    }

    /// A number.
    pub fn float(&self, name: &str) -> f64 {
        self.get(name, "a number", |a| match a {
            Arg::Float(f) => Some(*f),
            Arg::Int(i) => Some(*i as f64),
            Arg::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        })
    }

    /// A number, if one was given.
    pub fn opt_float(&self, name: &str) -> Option<f64> {
        (*self.arg(name) != Arg::None).then(|| self.float(name))
    }

    /// A bool.
    pub fn bool(&self, name: &str) -> bool {
        self.get(name, "a bool", |a| if let Arg::Bool(b) = a { Some(*b) } else { None })
    }

    /// A string.
    pub fn str(&self, name: &str) -> &str {
        self.get(name, "a string", |a| if let Arg::Str(s) = a { Some(s.as_str()) } else { None })
    }

    /// An element type, if one was given.
    pub fn opt_dtype(&self, name: &str) -> Option<DType> {
        match self.arg(name) {
            Arg::DType(d) => Some(*d),
            _ => None,
        }
    }

    /// Type and shape of a tensor argument.
    ///
    /// # Errors
    /// No tensor there.
    pub fn meta(&self, name: &str) -> Result<TensorMeta> {
        let id = self.arg(name).nodes().first().copied();
        let id = id.ok_or_else(|| self.err(&format!("argument '{name}': expected a tensor")))?;
        self.b.with_graph(|g| g.tensor_meta(id).cloned())
    }

    /// Types and shapes of a list of tensors.
    ///
    /// # Errors
    /// Something else in the list.
    pub fn metas(&self, name: &str) -> Result<Vec<TensorMeta>> {
        self.arg(name).nodes().into_iter().map(|id| self.b.with_graph(|g| g.tensor_meta(id).cloned())).collect()
    }

    /// The argument's dimension number with negative ones counted from the end of `rank`.
    ///
    /// # Errors
    /// A dimension that the rank does not have.
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize> {
        self.wrap(self.int(name), rank)
    }

    /// A dimension number counted from the end if negative; a rank of 0 counts as 1, as in torch.
    ///
    /// # Errors
    /// A dimension that the rank does not have.
    pub fn wrap(&self, axis: i64, rank: usize) -> Result<usize> {
        let n = rank.max(1) as i64;
        let a = if axis < 0 { axis + n } else { axis };
        if (0..n).contains(&a) {
            Ok(a as usize)
        } else {
            Err(self.err(&format!("dimension {axis} of a tensor of rank {rank}")))
        }
    }
}
