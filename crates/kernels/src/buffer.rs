//! Aligned storage for activations and packed weights, and slices that several tasks write at once.
#![allow(unsafe_code, reason = "raw allocation with an alignment, and disjoint writes from pool tasks")]

use bytemuck::Pod;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes: one cache line, one 512-bit register.
pub const ALIGN: usize = 64;
/// Readable bytes behind the last element of every buffer.
pub const SLACK: usize = 64;

/// A fixed-length buffer, aligned to [`ALIGN`] bytes, with [`SLACK`] readable bytes after its end.
pub struct AlignedVec<T: Pod> {
    ptr: NonNull<T>,
    len: usize,
}

// SAFETY: the buffer owns its elements, which are plain data.
unsafe impl<T: Pod + Send> Send for AlignedVec<T> {}
// SAFETY: shared access only reads.
unsafe impl<T: Pod + Sync> Sync for AlignedVec<T> {}

impl<T: Pod> AlignedVec<T> {
    fn layout(len: usize) -> Layout {
        const { assert!(align_of::<T>() <= ALIGN) };
        let bytes = len.checked_mul(size_of::<T>()).and_then(|b| b.checked_add(SLACK));
        bytes.and_then(|b| Layout::from_size_align(b, ALIGN).ok()).expect("invariant: a buffer fits the address space")
    }

    /// `len` elements of zero bytes.
    pub fn zeroed(len: usize) -> AlignedVec<T> {
        let layout = Self::layout(len);
        // SAFETY: the layout has at least SLACK bytes.
        let ptr = unsafe { alloc_zeroed(layout) }.cast::<T>();
        let Some(ptr) = NonNull::new(ptr) else { handle_alloc_error(layout) };
        AlignedVec { ptr, len }
    }

    /// A copy of a slice.
    pub fn from_slice(values: &[T]) -> AlignedVec<T> {
        let mut v = AlignedVec::zeroed(values.len());
        v.copy_from_slice(values);
        v
    }
}

impl<T: Pod> Drop for AlignedVec<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout.
        unsafe { dealloc(self.ptr.as_ptr().cast(), Self::layout(self.len)) }
    }
}

impl<T: Pod> Deref for AlignedVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements were allocated, and any bytes are a valid T.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for AlignedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl<T: Pod> Clone for AlignedVec<T> {
    fn clone(&self) -> Self {
        AlignedVec::from_slice(self)
    }
}

impl<T: Pod> Default for AlignedVec<T> {
    fn default() -> Self {
        AlignedVec::zeroed(0)
    }
}

impl<T: Pod + std::fmt::Debug> std::fmt::Debug for AlignedVec<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A mutable slice whose disjoint parts are written by several pool tasks at once.
#[derive(Clone, Copy)]
pub struct SharedMut<'a, T> {
    ptr: *mut T,
    len: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: the parts that tasks take are disjoint by the contract of `slice` and `as_mut_ptr`.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Takes the slice for as long as tasks share it.
    pub fn new(slice: &'a mut [T]) -> SharedMut<'a, T> {
        SharedMut { ptr: slice.as_mut_ptr(), len: slice.len(), life: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One task's part.
    ///
    /// # Panics
    /// If the range leaves the slice.
    ///
    /// # Safety
    /// While the result lives, no other task reads or writes an element of `range`.
    #[allow(clippy::mut_from_ref, reason = "the caller promises that ranges are disjoint")]
    pub unsafe fn slice(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "range leaves the shared slice");
        // SAFETY: in bounds; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(range.start), range.end - range.start) }
    }

    /// The elements from `start` on.
    ///
    /// # Panics
    /// If it lies behind the end.
    pub fn tail(&self, start: usize) -> SharedMut<'a, T> {
        assert!(start <= self.len, "the start lies behind the shared slice");
        SharedMut { ptr: self.ptr.wrapping_add(start), len: self.len - start, life: PhantomData }
    }

    /// The first element, for kernels that write with a stride; each task must write elements of its own only.
    pub fn as_mut_ptr(&self) -> *mut T {
        self.ptr
    }
}

/// How far apart the parts of a scratch of `len` bytes lie, of which each thread has one of `each` bytes for itself: as
/// far as possible, so that all kernels that share a scratch have them in the same places, and lines stay in the caches of
/// their thread.
pub(crate) fn apart(len: usize, threads: usize, each: usize) -> usize {
    (len / threads.max(1) / ALIGN * ALIGN).max(each)
}

/// The part of a byte scratch that starts at a multiple of [`ALIGN`]; at most `ALIGN - 1` bytes are lost.
pub fn align_scratch(scratch: &mut [u8]) -> &mut [u8] {
    let skip = scratch.as_ptr().align_offset(ALIGN).min(scratch.len());
    &mut scratch[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zero() {
        for len in [0, 1, 63, 64, 1000] {
            let v = AlignedVec::<f32>::zeroed(len);
            assert_eq!((v.as_ptr() as usize % ALIGN, v.len()), (0, len));
            assert!(v.iter().all(|x| *x == 0.0));
        }
        let v = AlignedVec::from_slice(&[1u8, 2, 3]);
        assert_eq!(&v.clone()[..], [1, 2, 3]);
    }

    #[test]
    fn parts_of_a_shared_slice_are_written_apart() {
        let mut v = vec![0u32; 10];
        let shared = SharedMut::new(&mut v);
        std::thread::scope(|s| {
            for t in 0..2 {
                // SAFETY: the two ranges are disjoint.
                s.spawn(move || unsafe { shared.slice(t * 5..t * 5 + 5) }.fill(t as u32 + 1));
            }
        });
        assert_eq!(v, [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]);
    }
}
