//! How elementwise and row-wise kernels split their outputs over a pool.
#![allow(unsafe_code, reason = "parts of a shared output, disjoint by construction")]

use crate::{SharedMut, ThreadPool};
use std::ops::Range;

/// Below this many elements a second thread does not pay.
const SERIAL: usize = 16 * 1024;

/// Tasks for a kernel of `elements` elements that has `parts` to give away.
pub(crate) fn tasks(pool: &ThreadPool, elements: usize, parts: usize) -> usize {
    if elements < SERIAL { 1 } else { pool.threads().min(parts).max(1) }
}

/// Splits `rows` rows of `width` elements over the pool: `f(rows, part)` with the part of `y` that they fill.
pub(crate) fn split_rows<T: Send>(
    pool: &ThreadPool,
    y: &mut [T],
    rows: usize,
    width: usize,
    f: &(dyn Fn(Range<usize>, &mut [T]) + Sync),
) {
    let tasks = tasks(pool, rows * width, rows);
    let y = SharedMut::new(y);
    pool.run(tasks, &|task| {
        let range = task * rows / tasks..(task + 1) * rows / tasks;
        // SAFETY: the ranges of two tasks are disjoint.
        f(range.clone(), unsafe { y.slice(range.start * width..range.end * width) });
    });
}

/// A row's part of an output that tasks share by rows or by channels.
#[inline]
pub(crate) fn row_part<'a, T>(y: &SharedMut<'a, T>, range: Range<usize>) -> &'a mut [T] {
    // SAFETY: callers give each (row, channels) to one task.
    unsafe { y.slice(range) }
}
