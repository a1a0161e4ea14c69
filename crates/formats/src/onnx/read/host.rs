//! Values that are known while the graph is built: constants of the file, and sizes.

use cleave_ir::{Builder, ConstKind, Dim, Tensor, Value};
use cleave_numerics::DType;
use indexmap::IndexMap;
use std::cell::RefCell;

/// The most elements that are kept as sizes.
const MAX_DIMS: usize = 1 << 16;

/// Constants that are nodes of the graph already, by name.
pub type Made<'b> = RefCell<IndexMap<String, Value<'b>>>;

/// What is known of an ONNX value.
#[derive(Clone)]
pub enum Known<'b> {
    /// It is computed when the model is run.
    Value(Value<'b>),
    /// It is there already.
    Host(Host),
}

/// A constant or a computed size.
#[derive(Clone)]
pub struct Host {
    /// The name that it has as a constant of the graph.
    pub name: String,
    /// What it becomes there.
    pub kind: ConstKind,
    /// The elements.
    pub data: Data,
}

/// Elements of a [`Host`].
#[derive(Clone)]
pub enum Data {
    /// Numbers.
    Tensor(Tensor),
    /// Sizes, some of them symbolic, with the element type that the file gives them.
    Dims(DType, Vec<usize>, Vec<Dim>),
}

impl Host {
    /// Computed numbers.
    pub fn tensor(name: &str, t: Tensor) -> Host {
        Host { name: name.into(), kind: ConstKind::Constant, data: Data::Tensor(t) }
    }

    /// Computed sizes; plain numbers become a tensor.
    pub fn dims(name: &str, dtype: DType, shape: Vec<usize>, dims: Vec<Dim>) -> Host {
        let data = match dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>() {
            Some(numbers) => Data::Tensor(cast(&Tensor::new(&shape, numbers), dtype)),
            None => Data::Dims(dtype, shape, dims),
        };
        Host { name: name.into(), kind: ConstKind::Constant, data }
    }

    /// Sizes of the value.
    pub fn shape(&self) -> &[usize] {
        match &self.data {
            Data::Tensor(t) => t.shape(),
            Data::Dims(_, shape, _) => shape,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape().iter().product()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        match &self.data {
            Data::Tensor(t) => t.dtype(),
            Data::Dims(d, ..) => *d,
        }
    }

    /// The numbers, if all are.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match &self.data {
            Data::Tensor(t) => Some(t),
            Data::Dims(..) => None,
        }
    }

    /// The elements as sizes, if they are whole numbers and not too many.
    pub fn as_dims(&self) -> Option<Vec<Dim>> {
        match &self.data {
            Data::Dims(_, _, d) => Some(d.clone()),
            Data::Tensor(t) if t.len() > MAX_DIMS => None,
            Data::Tensor(t) if t.dtype().is_float() => {
                let whole = |v: &f64| v.fract() == 0.0 && v.abs() < 9.0e15;
                let numbers = t.to_f64();
                numbers.iter().all(whole).then(|| numbers.iter().map(|v| Dim::from(*v as i64)).collect())
            }
            Data::Tensor(t) => Some(t.to_i64().into_iter().map(Dim::from).collect()),
        }
    }

    /// The elements as integers.
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        self.as_dims()?.iter().map(Dim::as_const).collect()
    }

    /// The one element as a float, in the shortest decimal form of its own type.
    pub fn as_scalar(&self) -> Option<f64> {
        let t = self.as_tensor().filter(|t| t.len() == 1)?;
        Some(match t.dtype() {
            DType::F32 => widen(t.to_f32()[0]),
            _ => t.to_f64()[0],
        })
    }

    /// The value as a node of the graph: one for each constant, however many use it.
    pub fn materialise<'b>(&self, b: &'b Builder, made: &Made<'b>) -> Value<'b> {
        match &self.data {
            Data::Tensor(t) => {
                if let Some(v) = made.borrow().get(&self.name) {
                    let same = b.with_graph(|g| g.constant(v.id()).is_some_and(|old| old.same_place(t)));
                    if same {
                        return *v;
                    }
                }
                let v = b.constant(&self.name, self.kind, t.clone());
                made.borrow_mut().insert(self.name.clone(), v);
                v
            }
            Data::Dims(dtype, shape, dims) => {
                let one = |d: &Dim| {
                    let size = vec![1i64];
                    b.call("aten.full", vec![size.into(), d.clone().into(), (*dtype).into()])
                };
                let parts: Vec<Value<'b>> = dims.iter().map(one).collect();
                let flat = if parts.len() == 1 { parts[0] } else { b.call("aten.cat", vec![parts.into()]) };
                if shape.len() == 1 { flat } else { flat.view(shape.iter().map(|n| Dim::from(*n)).collect()) }
            }
        }
    }
}

/// An f32 as the f64 with the same shortest decimal form: 0.1f32 is 0.1, not 0.10000000149.
pub fn widen(v: f32) -> f64 {
    v.to_string().parse().unwrap_or(f64::from(v))
}

/// The elements in another type, as ONNX's Cast: floats are truncated towards zero and saturate, other
/// integers wrap.
pub fn cast(t: &Tensor, dtype: DType) -> Tensor {
    if t.dtype() == dtype {
        return t.clone();
    }
    let shape = t.shape();
    if dtype.is_float() {
        let v = t.to_f64();
        return match dtype {
            DType::F64 => Tensor::new(shape, v),
            DType::F16 => Tensor::new(shape, v.into_iter().map(half::f16::from_f64).collect()),
            DType::BF16 => Tensor::new(shape, v.into_iter().map(half::bf16::from_f64).collect()),
            _ => Tensor::new(shape, v.into_iter().map(|v| v as f32).collect()),
        };
    }
    if dtype == DType::Bool {
        return Tensor::from_bools(shape, &t.to_f64().into_iter().map(|v| v != 0.0).collect::<Vec<_>>());
    }
    let v = t.to_i64();
    match dtype {
        DType::U8 => Tensor::new(shape, v.into_iter().map(|v| v as u8).collect()),
        DType::I8 => Tensor::new(shape, v.into_iter().map(|v| v as i8).collect()),
        DType::U16 => Tensor::new(shape, v.into_iter().map(|v| v as u16).collect()),
        DType::I16 => Tensor::new(shape, v.into_iter().map(|v| v as i16).collect()),
        DType::U32 => Tensor::new(shape, v.into_iter().map(|v| v as u32).collect()),
        DType::I32 => Tensor::new(shape, v.into_iter().map(|v| v as i32).collect()),
        DType::U64 => Tensor::new(shape, v.into_iter().map(|v| v as u64).collect()),
        _ => Tensor::new(shape, v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_one_kind_of_value() {
        let h = Host::dims("s", DType::I64, vec![2], vec![3.into(), 4.into()]);
        assert_eq!(h.as_tensor().map(Tensor::to_i64), Some(vec![3, 4]));
        let n = Host::dims("s", DType::F32, vec![1], vec![Dim::symbol("N")]);
        assert!(n.as_tensor().is_none() && n.as_ints().is_none());
        assert_eq!(n.as_dims(), Some(vec![Dim::symbol("N")]));
        assert_eq!(Host::tensor("c", Tensor::scalar(0.1f32)).as_scalar(), Some(0.1));
        assert!(Host::tensor("c", Tensor::scalar(0.5f32)).as_dims().is_none());
    }

    #[test]
    fn casts_truncate_floats_and_wrap_integers() {
        let t = Tensor::new(&[3], vec![-1.7f32, 2.9, 300.0]);
        assert_eq!(cast(&t, DType::I64).to_i64(), [-1, 2, 300]);
        assert_eq!(cast(&Tensor::scalar(300i64), DType::U8).to_i64(), [44]);
        assert_eq!(cast(&t, DType::Bool).to_bytes().as_ref(), [1, 1, 1]);
    }
}
