//! A value: a strided window on a buffer. Views of it are computed, not copied, wherever strides allow.

use super::Span;
use cleave_numerics::DType;

/// Index of a buffer of a compiled model.
pub(crate) type BufferId = usize;

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// f32
    F32,
    /// Levels of a u8 tensor.
    U8,
    /// Levels of an i8 tensor, 128 added: kernels know only u8.
    S8,
    /// Any other type, as its bytes.
    Raw(DType),
}

impl Storage {
    /// How an input, a constant or a fallback's result of this type is stored.
    pub(crate) fn of(dtype: DType) -> Storage {
        match dtype {
            DType::F32 => Storage::F32,
            DType::U8 => Storage::U8,
            other => Storage::Raw(other),
        }
    }

    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Storage::F32 => 4,
            Storage::U8 | Storage::S8 => 1,
            Storage::Raw(d) => d.size(),
        }
    }

    /// The element type that it stands for.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Storage::F32 => DType::F32,
            Storage::U8 => DType::U8,
            Storage::S8 => DType::I8,
            Storage::Raw(d) => d,
        }
    }
}

/// Dimensions in the order in which row-major tensors store them.
pub(crate) fn row_major(rank: usize) -> Vec<usize> {
    (0..rank).collect()
}

/// Dimensions with the channels (dimension 1) innermost.
pub(crate) fn channels_last(rank: usize) -> Vec<usize> {
    if rank < 3 {
        return row_major(rank);
    }
    std::iter::once(0).chain(2..rank).chain(std::iter::once(1)).collect()
}

/// Strides of a dense tensor whose dimensions are stored in this order, outermost first.
pub(crate) fn strides_in(shape: &[usize], order: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    let mut step = 1;
    for d in order.iter().rev() {
        strides[*d] = step;
        step *= shape[*d].max(1);
    }
    strides
}

/// A strided window on a buffer; offset and strides in elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Value {
    /// The buffer.
    pub(crate) buffer: BufferId,
    /// How elements are stored.
    pub(crate) storage: Storage,
    /// The first element.
    pub(crate) offset: usize,
    /// Sizes, outermost first.
    pub(crate) shape: Vec<usize>,
    /// Elements between neighbours in each dimension.
    pub(crate) strides: Vec<usize>,
}

impl Value {
    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Elements from the first to behind the last.
    pub(crate) fn reach(&self) -> usize {
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().zip(&self.strides).map(|(n, s)| (n - 1) * s).sum::<usize>() + 1
    }

    /// The bytes that the window reaches over.
    pub(crate) fn span(&self) -> Span {
        let size = self.storage.size();
        // A window without elements may begin past the end of its buffer.
        if self.len() == 0 {
            return Span { buffer: self.buffer, range: 0..0 };
        }
        Span { buffer: self.buffer, range: self.offset * size..(self.offset + self.reach()) * size }
    }

    /// Whether the elements lie without gaps with the dimensions in this order.
    pub(crate) fn is_dense(&self, order: &[usize]) -> bool {
        let want = strides_in(&self.shape, order);
        self.len() == 0 || self.shape.iter().zip(self.strides.iter().zip(&want)).all(|(n, (a, b))| *n == 1 || a == b)
    }

    /// The dimensions in the order in which they are stored, outermost first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let mut order = row_major(self.shape.len());
        // A size of 1 has no place of its own: it stays where the row-major order has it, as far as it can.
        order.sort_by_key(|d| std::cmp::Reverse(if self.shape[*d] == 1 { usize::MAX } else { self.strides[*d] }));
        order
    }

    /// Whether the innermost dimension is the channels' (dimension 1).
    pub(crate) fn is_channels_last(&self) -> bool {
        self.shape.len() > 2 && self.strides[1] == 1 && self.is_dense(&channels_last(self.shape.len()))
    }

    /// Elements from pixel to pixel, if the value is pixels of contiguous channels at one distance: what kernels
    /// with an output stride write. Pixels are all dimensions but `channel`, stored in order.
    pub(crate) fn pixel_stride(&self, order: &[usize]) -> Option<usize> {
        let (channel, pixels) = order.split_last()?;
        if self.shape[*channel] > 1 && self.strides[*channel] != 1 {
            return None;
        }
        let mut stride = None;
        let mut next = 0;
        for d in pixels.iter().rev().filter(|d| self.shape[**d] != 1) {
            match stride {
                None => stride = Some(self.strides[*d]),
                Some(_) if self.strides[*d] != next => return None,
                Some(_) => {}
            }
            next = self.strides[*d] * self.shape[*d];
        }
        Some(stride.unwrap_or(self.shape[*channel]).max(self.shape[*channel]))
    }

    /// The dimensions in another order.
    pub(crate) fn permute(&self, order: &[usize]) -> Value {
        let pick = |v: &[usize]| order.iter().map(|d| v[*d]).collect();
        Value { shape: pick(&self.shape), strides: pick(&self.strides), ..self.clone() }
    }

    /// A range of one dimension; `start + (len - 1) · step` must lie in it.
    pub(crate) fn slice(&self, dim: usize, start: usize, len: usize, step: usize) -> Value {
        let mut v = self.clone();
        v.offset += start * v.strides[dim];
        v.shape[dim] = len;
        v.strides[dim] *= step;
        v
    }

    /// One place of a dimension, without the dimension.
    pub(crate) fn select(&self, dim: usize, at: usize) -> Value {
        let mut v = self.slice(dim, at, 1, 1);
        v.shape.remove(dim);
        v.strides.remove(dim);
        v
    }

    /// Repeated to a larger shape by the rules of broadcasting, if it fits.
    pub(crate) fn broadcast(&self, shape: &[usize]) -> Option<Value> {
        let lead = shape.len().checked_sub(self.shape.len())?;
        let mut strides = vec![0; shape.len()];
        for (i, n) in self.shape.iter().enumerate() {
            match *n {
                n if n == shape[lead + i] => strides[lead + i] = self.strides[i],
                1 => {}
                _ => return None,
            }
        }
        Some(Value { shape: shape.to_vec(), strides, ..self.clone() })
    }

    /// The same elements in another shape, if strides can express it (torch's rule for views).
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Value> {
        if self.len() != shape.iter().product::<usize>() {
            return None;
        }
        if self.len() == 0 {
            return Some(Value {
                shape: shape.to_vec(),
                strides: strides_in(shape, &row_major(shape.len())),
                ..self.clone()
            });
        }
        let mut strides = vec![1; shape.len()];
        let mut to = shape.len();
        let mut d = self.shape.len();
        while d > 0 {
            // A run of dimensions that lie behind one another without gaps.
            let inner = self.strides[d - 1];
            let mut run = self.shape[d - 1];
            d -= 1;
            while d > 0 && (self.shape[d - 1] == 1 || self.strides[d - 1] == run * inner || run == 1) {
                if run == 1 && self.shape[d - 1] != 1 {
                    break;
                }
                run *= self.shape[d - 1];
                d -= 1;
            }
            if run == 1 {
                continue;
            }
            let mut filled = 1;
            while to > 0 && (filled < run || shape[to - 1] == 1) {
                strides[to - 1] = inner * filled;
                filled *= shape[to - 1];
                to -= 1;
            }
            if filled != run {
                return None;
            }
        }
        shape[..to].iter().all(|n| *n == 1).then(|| Value { shape: shape.to_vec(), strides, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(shape: &[usize], order: &[usize]) -> Value {
        let strides = strides_in(shape, order);
        Value { buffer: 0, storage: Storage::F32, offset: 0, shape: shape.to_vec(), strides }
    }

    #[test]
    fn channels_last_values_know_their_order() {
        let v = value(&[2, 3, 4, 5], &channels_last(4));
        assert_eq!(v.strides, [60, 1, 15, 3]);
        assert_eq!(v.order(), [0, 2, 3, 1]);
        assert!(v.is_channels_last() && !v.is_dense(&row_major(4)));
        assert_eq!((v.pixel_stride(&channels_last(4)), v.reach()), (Some(3), 120));
        let part = v.slice(1, 1, 2, 1);
        assert_eq!((part.offset, part.pixel_stride(&channels_last(4))), (1, Some(3)));
        assert_eq!(v.slice(2, 1, 2, 1).pixel_stride(&channels_last(4)), None);
    }

    #[test]
    fn reshapes_are_views_where_strides_allow() {
        let v = value(&[2, 3, 4], &row_major(3));
        assert_eq!(v.reshape(&[6, 4]).map(|v| v.strides), Some(vec![4, 1]));
        assert_eq!(v.reshape(&[2, 1, 12]).map(|v| v.strides[2]), Some(1));
        assert_eq!(v.permute(&[0, 2, 1]).reshape(&[2, 12]), None);
        assert_eq!(v.permute(&[0, 2, 1]).reshape(&[2, 2, 2, 3]).map(|v| v.strides), Some(vec![12, 2, 1, 4]));
        // One pixel: channels last or first is the same.
        let pooled = value(&[2, 8, 1, 1], &channels_last(4));
        assert_eq!(pooled.reshape(&[2, 8]).map(|v| v.strides), Some(vec![8, 1]));
        assert_eq!(value(&[1, 8, 3, 3], &channels_last(4)).reshape(&[1, 72]), None);
        assert_eq!(value(&[], &[]).reshape(&[1, 1]).map(|v| v.strides.len()), Some(2));
    }

    #[test]
    fn small_values_are_repeated() {
        let gate = value(&[2, 8, 1, 1], &channels_last(4)).broadcast(&[2, 8, 3, 3]);
        assert_eq!(gate.map(|v| v.strides), Some(vec![8, 1, 0, 0]));
        assert_eq!(value(&[3], &[0]).broadcast(&[2, 4]), None);
    }
}
