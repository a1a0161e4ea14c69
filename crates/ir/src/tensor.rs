//! Host tensors: typed, strided windows on shared bytes, owned or memory-mapped.

use crate::error::{IrError, Result};
use bytemuck::Pod;
use cleave_numerics::{DType, float8};
use half::{bf16, f16};
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes that several tensors may share: a vector, or a region of a mapped file.
pub trait Bytes: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

impl Bytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Elements kept in a vector of their own type, so that they are aligned.
struct Typed<T>(Vec<T>);

impl<T: Pod + Send + Sync> Bytes for Typed<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// A tensor in host memory. Cloning shares the bytes.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
    storage: Arc<dyn Bytes>,
}

/// A Rust type that is the element type of tensors.
pub trait Element: Pod + Send + Sync {
    /// The element type it stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
elements!(u8 => U8, i8 => I8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

/// Row-major strides of a shape, in elements.
pub fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

impl Tensor {
    /// A contiguous tensor of these elements.
    ///
    /// # Panics
    /// If the shape does not have as many elements: that is a mistake in the caller.
    pub fn new<T: Element>(shape: &[usize], data: Vec<T>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "tensor of {shape:?}");
        let strides = contiguous_strides(shape);
        Tensor { dtype: T::DTYPE, shape: shape.to_vec(), strides, offset: 0, storage: Arc::new(Typed(data)) }
    }

    /// A contiguous bool tensor.
    pub fn from_bools(shape: &[usize], data: &[bool]) -> Tensor {
        let mut t = Tensor::new::<u8>(shape, data.iter().map(|b| u8::from(*b)).collect());
        t.dtype = DType::Bool;
        t
    }

    /// A tensor of no dimensions.
    pub fn scalar<T: Element>(v: T) -> Tensor {
        Tensor::new(&[], vec![v])
    }

    /// A window on shared bytes; strides and offset in elements.
    ///
    /// # Errors
    /// A window that leaves the bytes, or a shape whose size overflows.
    pub fn view(
        dtype: DType,
        shape: Vec<usize>,
        strides: Vec<usize>,
        offset: usize,
        storage: Arc<dyn Bytes>,
    ) -> Result<Tensor> {
        let fail = |why: String| IrError::Tensor { shape: shape.clone(), why };
        if strides.len() != shape.len() {
            return Err(fail(format!("{} strides", strides.len())));
        }
        let count = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b));
        let count = count.ok_or_else(|| fail("its size overflows".into()))?;
        let last = shape
            .iter()
            .zip(&strides)
            .try_fold(offset, |a, (n, s)| a.checked_add(n.saturating_sub(1).checked_mul(*s)?));
        let end = last.and_then(|l| l.checked_add(1)?.checked_mul(dtype.size()));
        let have = storage.bytes().len();
        if count > 0 && end.is_none_or(|e| e > have) {
            return Err(fail(format!("{dtype} elements reach past the {have} bytes stored")));
        }
        Ok(Tensor { dtype, shape, strides, offset, storage })
    }

    /// A contiguous window from the start of shared bytes.
    ///
    /// # Errors
    /// Fewer bytes than the shape needs.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, storage: Arc<dyn Bytes>) -> Result<Tensor> {
        let strides = contiguous_strides(&shape);
        Tensor::view(dtype, shape, strides, 0, storage)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements between neighbours in each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let expected = contiguous_strides(&self.shape);
        self.is_empty()
            || self.shape.iter().zip(self.strides.iter().zip(&expected)).all(|(n, (s, e))| *n == 1 || s == e)
    }

    /// Whether both are the same window on the same bytes: tied, not merely equal.
    pub fn same_place(&self, other: &Tensor) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.storage), Arc::as_ptr(&other.storage))
            && (self.offset, &self.shape, &self.strides, self.dtype)
                == (other.offset, &other.shape, &other.strides, other.dtype)
    }

    /// A key that tied tensors share and others do not, while both are alive.
    pub fn place(&self) -> (usize, usize, Vec<usize>, Vec<usize>) {
        let p = Arc::as_ptr(&self.storage).cast::<()>() as usize;
        (p, self.offset, self.shape.clone(), self.strides.clone())
    }

    /// The elements' bytes in row-major order; borrowed where they lie so.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        let size = self.dtype.size();
        let all = self.storage.bytes();
        if self.is_empty() {
            return Cow::Borrowed(&[]);
        }
        if self.is_contiguous() {
            return Cow::Borrowed(&all[self.offset * size..(self.offset + self.len()) * size]);
        }
        let mut out = Vec::with_capacity(self.len() * size);
        let (inner, step) = self.shape.last().zip(self.strides.last()).map_or((1, 0), |(n, s)| (*n, *s));
        let mut index = vec![0usize; self.shape.len().saturating_sub(1)];
        for _ in 0..self.len() / inner {
            let at = self.offset + index.iter().zip(&self.strides).map(|(i, s)| i * s).sum::<usize>();
            for at in (0..inner).map(|i| at + i * step) {
                out.extend_from_slice(&all[at * size..(at + 1) * size]);
            }
            for d in (0..index.len()).rev() {
                index[d] += 1;
                if index[d] < self.shape[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        Cow::Owned(out)
    }

    /// The elements, if they are of this type; copied only where they are strided or unaligned.
    pub fn elements<T: Element>(&self) -> Option<Cow<'_, [T]>> {
        if self.dtype != T::DTYPE {
            return None;
        }
        Some(match self.to_bytes() {
            Cow::Borrowed(b) => match bytemuck::try_cast_slice(b) {
                Ok(s) => Cow::Borrowed(s),
                Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(b)),
            },
            Cow::Owned(b) => Cow::Owned(bytemuck::pod_collect_to_vec(&b)),
        })
    }

    /// The elements as f32, converted where they are of another type (64-bit ones lose digits).
    pub fn to_f32(&self) -> Cow<'_, [f32]> {
        if let Some(v) = self.elements::<f32>() {
            return v;
        }
        Cow::Owned(self.to_f64().into_iter().map(|v| v as f32).collect())
    }

    /// Hands over the elements in row-major order as f32, `len` at a time, each with the number of those before it: without
    /// a copy of them all where [`Tensor::to_f32`] makes one for their alignment.
    pub fn for_each_f32(&self, len: usize, mut f: impl FnMut(usize, &[f32])) {
        let len = len.max(1);
        if self.dtype != DType::F32 || !self.is_contiguous() {
            return self.to_f32().chunks(len).enumerate().for_each(|(i, part)| f(i * len, part));
        }
        let mut room = vec![0.0; len.min(self.len())];
        for (i, bytes) in self.to_bytes().chunks(len * size_of::<f32>()).enumerate() {
            match bytemuck::try_cast_slice(bytes) {
                Ok(part) => f(i * len, part),
                Err(_) => {
                    let part = &mut room[..bytes.len() / size_of::<f32>()];
                    bytemuck::cast_slice_mut(part).copy_from_slice(bytes);
                    f(i * len, part);
                }
            }
        }
    }

    /// The elements as f64, converted where they are of another type.
    pub fn to_f64(&self) -> Vec<f64> {
        fn get<T: Element>(t: &Tensor, f: impl Fn(T) -> f64) -> Vec<f64> {
            t.elements::<T>().expect("invariant: matched on dtype").iter().map(|v| f(*v)).collect()
        }
        match self.dtype {
            DType::U8 => get::<u8>(self, f64::from),
            DType::I8 => get::<i8>(self, f64::from),
            DType::I16 => get::<i16>(self, f64::from),
            DType::U16 => get::<u16>(self, f64::from),
            DType::I32 => get::<i32>(self, f64::from),
            DType::U32 => get::<u32>(self, f64::from),
            DType::I64 => get::<i64>(self, |v| v as f64),
            DType::U64 => get::<u64>(self, |v| v as f64),
            DType::F16 => get::<f16>(self, f64::from),
            DType::BF16 => get::<bf16>(self, f64::from),
            DType::F32 => get::<f32>(self, f64::from),
            DType::F64 => get::<f64>(self, |v| v),
            DType::Bool => self.to_bytes().iter().map(|b| f64::from(*b != 0)).collect(),
            DType::F8E4M3 | DType::F8E5M2 => self.to_bytes().iter().map(|b| float8::decode(self.dtype, *b)).collect(),
        }
    }

    /// The elements as i64, truncated where they are fractions.
    pub fn to_i64(&self) -> Vec<i64> {
        match self.elements::<i64>() {
            Some(v) => v.into_owned(),
            None => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }

    /// The dimensions in the order in which the elements lie, outermost first: where there are no gaps, the window with
    /// its dimensions so ([`Tensor::permute`]) is contiguous.
    pub fn stored_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.shape.len()).collect();
        order.sort_by_key(|d| std::cmp::Reverse(self.strides[*d]));
        order
    }

    /// The same window with its dimensions in another order.
    ///
    /// # Panics
    /// If `order` is not a permutation of the dimensions.
    pub fn permute(&self, order: &[usize]) -> Tensor {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..self.shape.len()), "permutation {order:?} of {:?}", self.shape);
        let mut t = self.clone();
        t.shape = order.iter().map(|i| self.shape[*i]).collect();
        t.strides = order.iter().map(|i| self.strides[*i]).collect();
        t
    }

    /// `len` places of one dimension, from `start` on; the bytes are shared.
    ///
    /// # Panics
    /// If the dimension has fewer places.
    pub fn narrow(&self, axis: usize, start: usize, len: usize) -> Tensor {
        assert!(start + len <= self.shape[axis], "places {start}..{} of {:?}", start + len, self.shape);
        let mut t = self.clone();
        t.offset += start * self.strides[axis];
        t.shape[axis] = len;
        t
    }

    /// The same elements in another shape of the same size; shares the bytes where they are contiguous.
    ///
    /// # Panics
    /// If the sizes differ.
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        assert_eq!(self.len(), shape.iter().product::<usize>(), "reshape of {:?} to {shape:?}", self.shape);
        let mut t = self.contiguous();
        t.shape = shape.to_vec();
        t.strides = contiguous_strides(shape);
        t
    }

    /// The tensor with its elements in row-major order.
    pub fn contiguous(&self) -> Tensor {
        if self.is_contiguous() {
            return self.clone();
        }
        let storage: Arc<dyn Bytes> = Arc::new(self.to_bytes().into_owned());
        let strides = contiguous_strides(&self.shape);
        Tensor { dtype: self.dtype, shape: self.shape.clone(), strides, offset: 0, storage }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 { write!(f, " {:?}", self.to_f64()) } else { Ok(()) }
    }
}

impl PartialEq for Tensor {
    /// Same type, shape and bytes.
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype
            && self.shape == other.shape
            && (self.same_place(other) || self.to_bytes() == other.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_windows_give_their_elements_in_order() {
        let t = Tensor::new(&[2, 3], vec![1f32, 2., 3., 4., 5., 6.]);
        let p = t.permute(&[1, 0]);
        assert_eq!(p.to_f32().as_ref(), [1., 4., 2., 5., 3., 6.]);
        assert!(!p.is_contiguous() && p.contiguous().is_contiguous());
        assert!(t.same_place(&t.clone()) && !t.same_place(&p));
        assert_eq!(p.stored_order(), [1, 0]);
        assert!(p.permute(&p.stored_order()).same_place(&t));
        let twice = Tensor::view(DType::F32, vec![2, 2], vec![1, 0], 1, t.storage.clone()).unwrap();
        assert_eq!(twice.to_f32().as_ref(), [2., 2., 3., 3.]);
        assert_eq!(p.reshape(&[6]).to_f32().as_ref(), [1., 4., 2., 5., 3., 6.]);
        assert_eq!(p.narrow(0, 1, 2).to_f32().as_ref(), [2., 5., 3., 6.]);
    }

    #[test]
    fn parts_are_handed_over_in_order_wherever_they_lie() {
        let numbers: Vec<f32> = (0..7).map(|i| i as f32).collect();
        let bytes: Vec<u8> = std::iter::once(0).chain(numbers.iter().flat_map(|v| v.to_le_bytes())).collect();
        let whole: Arc<dyn Bytes> = Arc::new(bytes);
        struct Behind(Arc<dyn Bytes>, usize);
        impl Bytes for Behind {
            fn bytes(&self) -> &[u8] {
                &self.0.bytes()[self.1..][..28]
            }
        }
        let aligned = Tensor::new(&[7], numbers.clone());
        let odd = Tensor::from_bytes(DType::F32, vec![7], Arc::new(Behind(whole, 1))).unwrap();
        let strided = aligned.reshape(&[1, 7]).permute(&[1, 0]);
        let ints = Tensor::new(&[7], (0..7i32).collect());
        for t in [aligned, odd, strided, ints] {
            let (mut got, mut starts) = (vec![], vec![]);
            t.for_each_f32(3, |at, part| {
                starts.push(at);
                got.extend_from_slice(part);
            });
            assert_eq!((got, starts), (numbers.clone(), vec![0, 3, 6]));
        }
    }

    #[test]
    fn windows_past_their_bytes_are_refused() {
        let bytes: Arc<dyn Bytes> = Arc::new(vec![0u8; 16]);
        assert!(Tensor::view(DType::F32, vec![4], vec![1], 0, bytes.clone()).is_ok());
        for (shape, strides, offset) in
            [(vec![5], vec![1], 0), (vec![4], vec![1], 1), (vec![usize::MAX, 3], vec![1, 1], 0)]
        {
            assert!(Tensor::view(DType::F32, shape, strides, offset, bytes.clone()).is_err());
        }
        assert!(Tensor::view(DType::F32, vec![0], vec![1], 9, bytes).is_ok());
    }

    #[test]
    fn eight_bit_floats_have_torchs_values() {
        assert_eq!([0x38, 0x7e, 0x01, 0xb8].map(|b| float8::decode(DType::F8E4M3, b)), [1.0, 448.0, 0.001953125, -1.0]);
        assert_eq!([0x3c, 0x7b, 0x7c].map(|b| float8::decode(DType::F8E5M2, b)), [1.0, 57344.0, f64::INFINITY]);
    }
}
