//! Values of the interpreter: arrays in f64 or i64, rounded to their element type after every op.
//!
//! Sums, products, quotients and square roots computed in f64 and rounded once to f32, f16 or bf16 are the
//! correctly rounded results of those types, so one representation serves all of them.

use crate::error::{Result, RuntimeError};
use cleave_ir::{Graph, Tensor};
use cleave_numerics::{DType, float8};
use half::{bf16, f16};
use ndarray::{ArrayD, Axis, IxDyn};
use std::sync::Arc;

/// Elements of an [`Array`].
#[derive(Clone, Debug)]
pub enum Data {
    /// Of a float type.
    Float(ArrayD<f64>),
    /// Of an integer type or bool.
    Int(ArrayD<i64>),
}

/// A typed array.
#[derive(Clone, Debug)]
pub struct Array {
    /// Element type.
    pub dtype: DType,
    /// Elements, representable in `dtype`.
    pub data: Data,
}

/// An argument or result.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    None,
    /// A tensor.
    Array(Array),
    /// A list or tuple.
    List(Vec<Value>),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A bool.
    Bool(bool),
    /// A string.
    Str(String),
    /// An element type.
    DType(DType),
    /// A graph.
    Graph(Arc<Graph>),
}

impl From<Array> for Value {
    fn from(a: Array) -> Value {
        Value::Array(a)
    }
}

/// `v` rounded to a float type.
pub fn round_to(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(v as f32),
        DType::F16 => f64::from(f16::from_f64(v)),
        DType::BF16 => f64::from(bf16::from_f64(v)),
        DType::F8E4M3 | DType::F8E5M2 => float8::decode(dtype, float8::encode(dtype, v)),
        _ => v,
    }
}

/// `v` as an integer type holds it: wrapped, as torch does.
fn wrap_to(dtype: DType, v: i64) -> i64 {
    match dtype {
        DType::U8 => i64::from(v as u8),
        DType::I8 => i64::from(v as i8),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::I32 => i64::from(v as i32),
        DType::U32 => i64::from(v as u32),
        DType::Bool => i64::from(v != 0),
        _ => v,
    }
}

impl Array {
    /// Float elements, rounded to `dtype`.
    pub fn float(dtype: DType, mut data: ArrayD<f64>) -> Array {
        if dtype != DType::F64 {
            data.mapv_inplace(|v| round_to(dtype, v));
        }
        Array { dtype, data: Data::Float(data) }
    }

    /// Integer elements, wrapped to `dtype`.
    pub fn int(dtype: DType, mut data: ArrayD<i64>) -> Array {
        if dtype != DType::I64 {
            data.mapv_inplace(|v| wrap_to(dtype, v));
        }
        Array { dtype, data: Data::Int(data) }
    }

    /// f64 elements as `dtype`, truncated where that is an integer type.
    pub fn from_f64(dtype: DType, data: ArrayD<f64>) -> Array {
        match dtype {
            d if d.is_float() => Array::float(d, data),
            DType::Bool => Array::int(DType::Bool, data.mapv(|v| i64::from(v != 0.0))),
            d => Array::int(d, data.mapv(|v| v as i64)),
        }
    }

    /// One slice along the first dimension.
    pub fn row(&self, at: usize) -> Array {
        let data = match &self.data {
            Data::Float(a) => Data::Float(a.index_axis(Axis(0), at).to_owned()),
            Data::Int(a) => Data::Int(a.index_axis(Axis(0), at).to_owned()),
        };
        Array { dtype: self.dtype, data }
    }

    /// Arrays of one shape and kind along a new first dimension; none if they are not.
    pub fn stacked(all: &[Array]) -> Option<Array> {
        let first = all.first()?;
        let data = if first.dtype.is_float() {
            let views: Option<Vec<_>> =
                all.iter().map(|a| if let Data::Float(d) = &a.data { Some(d.view()) } else { None }).collect();
            Data::Float(ndarray::stack(Axis(0), &views?).ok()?)
        } else {
            let views: Option<Vec<_>> =
                all.iter().map(|a| if let Data::Int(d) = &a.data { Some(d.view()) } else { None }).collect();
            Data::Int(ndarray::stack(Axis(0), &views?).ok()?)
        };
        Some(Array { dtype: first.dtype, data })
    }

    /// Sizes.
    pub fn shape(&self) -> &[usize] {
        match &self.data {
            Data::Float(a) => a.shape(),
            Data::Int(a) => a.shape(),
        }
    }

    /// The elements as f64.
    pub fn to_f64(&self) -> ArrayD<f64> {
        match &self.data {
            Data::Float(a) => a.clone(),
            Data::Int(a) => a.mapv(|v| v as f64),
        }
    }

    /// The elements as i64, truncated.
    pub fn to_i64(&self) -> ArrayD<i64> {
        match &self.data {
            Data::Float(a) => a.mapv(|v| v as i64),
            Data::Int(a) => a.clone(),
        }
    }

    /// The array as another type.
    pub fn cast(&self, dtype: DType) -> Array {
        match &self.data {
            Data::Int(a) if !dtype.is_float() => Array::int(dtype, a.clone()),
            _ => Array::from_f64(dtype, self.to_f64()),
        }
    }

    /// The same function on elements of either kind that only moves them.
    ///
    /// # Errors
    /// What the function gives.
    pub fn moved(
        &self,
        f: impl Fn(&ArrayD<f64>) -> Result<ArrayD<f64>>,
        i: impl Fn(&ArrayD<i64>) -> Result<ArrayD<i64>>,
    ) -> Result<Array> {
        let data = match &self.data {
            Data::Float(a) => Data::Float(f(a)?),
            Data::Int(a) => Data::Int(i(a)?),
        };
        Ok(Array { dtype: self.dtype, data })
    }

    /// From a host tensor.
    pub fn from_tensor(t: &Tensor) -> Array {
        let shape = IxDyn(t.shape());
        let data = if t.dtype().is_float() {
            Data::Float(
                ArrayD::from_shape_vec(shape, t.to_f64()).expect("invariant: as many elements as the shape says"),
            )
        } else {
            Data::Int(ArrayD::from_shape_vec(shape, t.to_i64()).expect("invariant: as many elements as the shape says"))
        };
        Array { dtype: t.dtype(), data }
    }

    /// To a host tensor.
    ///
    /// # Errors
    /// Elements of another kind than their type.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let shape = self.shape().to_vec();
        fn floats<T: cleave_ir::tensor::Element>(a: &ArrayD<f64>, shape: &[usize], f: impl Fn(f64) -> T) -> Tensor {
            Tensor::new(shape, a.iter().map(|v| f(*v)).collect())
        }
        fn ints<T: cleave_ir::tensor::Element>(a: &ArrayD<i64>, shape: &[usize], f: impl Fn(i64) -> T) -> Tensor {
            Tensor::new(shape, a.iter().map(|v| f(*v)).collect())
        }
        Ok(match (&self.data, self.dtype) {
            (Data::Float(a), DType::F32) => floats(a, &shape, |v| v as f32),
            (Data::Float(a), DType::F64) => floats(a, &shape, |v| v),
            (Data::Float(a), DType::F16) => floats(a, &shape, f16::from_f64),
            (Data::Float(a), DType::BF16) => floats(a, &shape, bf16::from_f64),
            (Data::Float(a), d @ (DType::F8E4M3 | DType::F8E5M2)) => {
                let codes: Vec<u8> = a.iter().map(|v| float8::encode(d, *v)).collect();
                Tensor::from_bytes(d, shape, Arc::new(codes))?
            }
            (Data::Int(a), DType::U8) => ints(a, &shape, |v| v as u8),
            (Data::Int(a), DType::I8) => ints(a, &shape, |v| v as i8),
            (Data::Int(a), DType::I16) => ints(a, &shape, |v| v as i16),
            (Data::Int(a), DType::U16) => ints(a, &shape, |v| v as u16),
            (Data::Int(a), DType::I32) => ints(a, &shape, |v| v as i32),
            (Data::Int(a), DType::U32) => ints(a, &shape, |v| v as u32),
            (Data::Int(a), DType::I64) => ints(a, &shape, |v| v),
            (Data::Int(a), DType::U64) => ints(a, &shape, |v| v as u64),
            (Data::Int(a), DType::Bool) => Tensor::from_bools(&shape, &a.iter().map(|v| *v != 0).collect::<Vec<_>>()),
            (_, d) => {
                return Err(RuntimeError::Unsupported {
                    op: "tensor".into(),
                    node: String::new(),
                    why: format!("element type {d}"),
                });
            }
        })
    }
}
