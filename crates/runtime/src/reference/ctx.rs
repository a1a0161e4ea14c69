//! A call with concrete arguments, read by the names that the schema gives them.

use super::value::{Array, Value};
use crate::error::{Result, RuntimeError};
use cleave_ir::ops::infer;
use cleave_ir::{Builder, Call, Meta, Op};
use cleave_numerics::DType;
use ndarray::ArrayD;

/// A call with concrete arguments.
pub struct Ctx<'a> {
    /// The op.
    pub op: &'static Op,
    /// One for each parameter.
    pub args: &'a [Value],
    /// What inference says of the result: its type counts, its sizes may be symbolic.
    pub meta: &'a Meta,
    /// The node's name, for errors.
    pub node: &'a str,
    /// Whether quantize divides by the scale.
    pub divide: bool,
    /// Strides of the first argument's storage, for an op that reads that; none if it is contiguous.
    pub strides: Option<Vec<usize>>,
}

impl<'a> Ctx<'a> {
    /// An error of this call.
    pub fn err(&self, why: impl Into<String>) -> RuntimeError {
        RuntimeError::Unsupported { op: self.op.name.into(), node: self.node.into(), why: why.into() }
    }

    /// The argument of a parameter.
    pub fn arg(&self, name: &str) -> Result<&'a Value> {
        let a = self.op.schema.index(name).and_then(|i| self.args.get(i));
        a.ok_or_else(|| self.err(format!("has no parameter '{name}'")))
    }

    fn wrong<T>(&self, name: &str, what: &str) -> Result<T> {
        Err(self.err(format!("argument '{name}': expected {what}")))
    }

    /// An array; a number counts as one without dimensions.
    pub fn array(&self, name: &str) -> Result<Array> {
        Ok(match self.arg(name)? {
            Value::Array(a) => a.clone(),
            Value::Int(i) => Array::int(DType::I64, ArrayD::from_elem(vec![], *i)),
            Value::Bool(b) => Array::int(DType::Bool, ArrayD::from_elem(vec![], i64::from(*b))),
            Value::Float(f) => Array::float(DType::F64, ArrayD::from_elem(vec![], *f)),
            _ => return self.wrong(name, "a tensor"),
        })
    }

    /// An array, if one was given.
    pub fn opt_array(&self, name: &str) -> Result<Option<Array>> {
        if matches!(self.arg(name)?, Value::None) { Ok(None) } else { self.array(name).map(Some) }
    }

    /// A list of arrays.
    pub fn arrays(&self, name: &str) -> Result<Vec<Array>> {
        match self.arg(name)? {
            Value::List(l) => l
                .iter()
                .map(|v| if let Value::Array(a) = v { Ok(a.clone()) } else { self.wrong(name, "a list of tensors") })
                .collect(),
            _ => self.wrong(name, "a list of tensors"),
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<f64> {
        match self.arg(name)? {
            Value::Float(f) => Ok(*f),
            Value::Int(i) => Ok(*i as f64),
            Value::Bool(b) => Ok(f64::from(u8::from(*b))),
            Value::Array(a) if a.to_f64().len() == 1 => Ok(a.to_f64().iter().copied().next().unwrap_or(0.0)),
            _ => self.wrong(name, "a number"),
        }
    }

    /// A number, if one was given.
    pub fn opt_float(&self, name: &str) -> Result<Option<f64>> {
        if matches!(self.arg(name)?, Value::None) { Ok(None) } else { self.float(name).map(Some) }
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64> {
        match self.arg(name)? {
            Value::Int(i) => Ok(*i),
            Value::Array(a) if a.to_i64().len() == 1 => Ok(a.to_i64().iter().copied().next().unwrap_or(0)),
            _ => self.wrong(name, "an integer"),
        }
    }

    /// An integer, if one was given.
    pub fn opt_int(&self, name: &str) -> Result<Option<i64>> {
        if matches!(self.arg(name)?, Value::None) { Ok(None) } else { self.int(name).map(Some) }
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        match self.arg(name)? {
            Value::List(l) => {
                l.iter().map(|v| if let Value::Int(i) = v { Ok(*i) } else { self.wrong(name, "integers") }).collect()
            }
            Value::Int(i) => Ok(vec![*i]),
            _ => self.wrong(name, "a list of integers"),
        }
    }

    /// A list of integers, if one was given.
    pub fn opt_ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        if matches!(self.arg(name)?, Value::None) { Ok(None) } else { self.ints(name).map(Some) }
    }

    /// A bool.
    pub fn bool(&self, name: &str) -> Result<bool> {
        if let Value::Bool(b) = self.arg(name)? { Ok(*b) } else { self.wrong(name, "a bool") }
    }

    /// Sizes: integers that are not negative, of a tensor that a machine may hold.
    pub fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        const MOST: usize = 1 << 31;
        let size = |v: i64| usize::try_from(v).map_err(|_| self.err(format!("argument '{name}': size {v}")));
        let sizes: Vec<usize> = self.ints(name)?.into_iter().map(size).collect::<Result<_>>()?;
        let count = sizes.iter().try_fold(1usize, |a, n| a.checked_mul(*n));
        match count.filter(|c| *c <= MOST) {
            Some(_) => Ok(sizes),
            None => Err(self.err(format!("argument '{name}': a tensor of {sizes:?} is too large"))),
        }
    }

    /// The type to which torch promotes these arguments.
    pub fn promoted(&self, names: &[&str]) -> Result<DType> {
        let b = Builder::new();
        let mut arrays = vec![];
        let args = self.args.iter().map(|v| super::symbolic(v, &b, &mut arrays)).collect();
        let call = Call { b: &b, op: self.op, args, name: self.node.into() };
        Ok(infer::promoted(&call, names)?)
    }

    /// A dimension number, counted from the end if negative.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let n = rank.max(1) as i64;
        let a = if axis < 0 { axis + n } else { axis };
        if (0..n).contains(&a) { Ok(a as usize) } else { Err(self.err(format!("dimension {axis} of rank {rank}"))) }
    }

    /// The element type of the result.
    pub fn dtype(&self) -> DType {
        match self.meta {
            Meta::Tensor(t) => t.dtype,
            Meta::Tuple(items) => items.first().and_then(Meta::as_tensor).map_or(DType::F32, |t| t.dtype),
            _ => DType::F32,
        }
    }
}
