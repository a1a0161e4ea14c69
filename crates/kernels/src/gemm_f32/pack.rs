//! The right-hand side in panels, each with its rows in the order in which a tile reads them, and the biases beside
//! them.

use super::{Driver, Element, Kernel, Rows};
use crate::{AlignedVec, Isa, KernelError, ThreadPool};
use half::f16;

/// The width of the panel that starts at column `col`: `nr`, or half of it where that holds the rest.
pub(crate) fn width<E>(kernel: &Kernel<E>, n: usize, col: usize) -> usize {
    if n - col <= kernel.nr / 2 { kernel.nr / 2 } else { kernel.nr }
}

/// Columns of all panels of a matrix of `n`.
pub(crate) fn columns<E>(kernel: &Kernel<E>, n: usize) -> usize {
    if n == 0 {
        return 0;
    }
    let last = (n - 1) / kernel.nr * kernel.nr;
    last + width(kernel, n, last)
}

/// Packs `b[k, n] = at(k, n)` into `k` times as many elements as there are [`columns`]; those past `n` are zeros.
pub(crate) fn pack_into<E: Element>(
    kernel: &Kernel<E>,
    k: usize,
    n: usize,
    at: impl Fn(usize, usize) -> E,
    out: &mut [E],
) {
    let mut rest = out;
    for col in (0..n).step_by(kernel.nr) {
        let width = width(kernel, n, col);
        let (panel, next) = std::mem::take(&mut rest).split_at_mut(k * width);
        rest = next;
        for (row, to) in panel.chunks_exact_mut(width).enumerate() {
            for (c, to) in to.iter_mut().enumerate() {
                *to = if col + c < n { at(row, col + c) } else { E::zeroed() };
            }
        }
    }
}

/// Inputs of a channel that are read at once.
const INPUTS: usize = 16;

/// Packed weights of several products, one after the other, and their biases.
#[derive(Clone)]
pub(crate) struct Panels<E: Element> {
    data: AlignedVec<E>,
    bias: AlignedVec<f32>,
}

impl<E: Element> Panels<E> {
    /// Packs the weights of `groups` products of `[taps · each, n]`: column `c` of group `g` is channel `g · n + c`, its
    /// elements `at(channel, tap, input)`.
    pub(crate) fn new(
        isa: Isa,
        [groups, taps, each, n]: [usize; 4],
        bias: Option<&[f32]>,
        at: impl Fn(usize, usize, usize) -> E,
    ) -> Panels<E> {
        let (kernel, k) = (E::kernel(isa), taps * each);
        let columns = columns(&kernel, n);
        let (mut data, mut biases) = (AlignedVec::zeroed(k * columns * groups), AlignedVec::zeroed(columns * groups));
        for g in 0..groups {
            for col in (0..n).step_by(kernel.nr) {
                let width = width(&kernel, n, col);
                let panel = &mut data[(g * columns + col) * k..][..k * width];
                for (tap, rows) in panel.chunks_exact_mut((each * width).max(1)).enumerate() {
                    // Inputs in blocks: those of a channel lie side by side, or near one another.
                    for (block, rows) in rows.chunks_mut(INPUTS * width).enumerate() {
                        for c in 0..width.min(n - col) {
                            let to = rows[c..].iter_mut().step_by(width).enumerate();
                            to.for_each(|(i, to)| *to = at(g * n + col + c, tap, block * INPUTS + i));
                        }
                    }
                }
            }
            if let Some(bias) = bias {
                biases[g * columns..][..n].copy_from_slice(&bias[g * n..(g + 1) * n]);
            }
        }
        Panels { data, bias: biases }
    }

    /// The panel of one product that starts at column `col`, `[k][width]`, and its biases.
    pub(crate) fn panel(&self, kernel: &Kernel<E>, [k, n]: [usize; 2], col: usize) -> (&[E], &[f32]) {
        let width = width(kernel, n, col);
        (&self.data[col * k..][..k * width], &self.bias[col..][..width])
    }
}

/// Packed weights of either type.
#[derive(Clone)]
pub(crate) enum Packed {
    F32(Panels<f32>),
    F16(Panels<f16>),
}

impl Packed {
    /// [`Panels::new`]
    pub(crate) fn new<E: Element>(
        isa: Isa,
        dims: [usize; 4],
        bias: Option<&[f32]>,
        at: impl Fn(usize, usize, usize) -> E,
    ) -> Packed {
        E::pack(Panels::new(isa, dims, bias, at))
    }

    /// What the weights are called in kernel names, behind the type of the activations.
    pub(crate) fn suffix(&self) -> &'static str {
        match self {
            Packed::F32(_) => f32::SUFFIX,
            Packed::F16(_) => f16::SUFFIX,
        }
    }

    /// Runs a product with them.
    ///
    /// # Errors
    /// Too little scratch.
    pub(crate) fn run(
        &self,
        product: &Driver<'_>,
        pool: &ThreadPool,
        rows: &dyn Rows,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        match self {
            Packed::F32(p) => product.run(pool, &p.data, Some(&p.bias), rows, scratch),
            Packed::F16(p) => product.run(pool, &p.data, Some(&p.bias), rows, scratch),
        }
    }
}
