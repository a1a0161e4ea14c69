//! The right-hand side in panels: for each, its biases and then its rows, in the order in which a tile reads them.

use super::{Kernel, kernel};
use crate::{AlignedVec, Isa};

/// The width of the panel that starts at column `col`: `nr`, or half of it where that holds the rest.
pub(crate) fn width(kernel: &Kernel, n: usize, col: usize) -> usize {
    if n - col <= kernel.nr / 2 { kernel.nr / 2 } else { kernel.nr }
}

/// Elements of a packed `[k, n]`.
pub(crate) fn packed_len(kernel: &Kernel, k: usize, n: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let last = (n - 1) / kernel.nr * kernel.nr;
    (k + 1) * (last + width(kernel, n, last))
}

/// Packs `b[k, n] = at(k, n)` with `bias(n)`; columns past `n` are zeros.
pub(crate) fn pack_into(
    kernel: &Kernel,
    k: usize,
    n: usize,
    bias: impl Fn(usize) -> f32,
    at: impl Fn(usize, usize) -> f32,
    out: &mut [f32],
) {
    let mut rest = out;
    for col in (0..n).step_by(kernel.nr) {
        let width = width(kernel, n, col);
        let (panel, next) = std::mem::take(&mut rest).split_at_mut((k + 1) * width);
        rest = next;
        for (row, to) in panel.chunks_exact_mut(width).enumerate() {
            for (c, to) in to.iter_mut().enumerate() {
                *to = match (col + c < n, row) {
                    (false, _) => 0.0,
                    (true, 0) => bias(col + c),
                    (true, row) => at(row - 1, col + c),
                };
            }
        }
    }
}

/// Packs the weights of `groups` products one after the other: column `c` of group `g` is channel
/// `g · n + c`, its elements `at(channel, k)`.
pub(crate) fn packed_groups(
    isa: Isa,
    groups: usize,
    k: usize,
    n: usize,
    bias: Option<&[f32]>,
    at: impl Fn(usize, usize) -> f32,
) -> AlignedVec<f32> {
    let kernel = kernel(isa);
    let each = packed_len(&kernel, k, n);
    let mut data = AlignedVec::zeroed(each * groups);
    for (g, out) in data.chunks_exact_mut(each.max(1)).enumerate() {
        let bias = |c: usize| bias.map_or(0.0, |b| b[g * n + c]);
        pack_into(&kernel, k, n, bias, |row, c| at(g * n + c, row), out);
    }
    data
}
