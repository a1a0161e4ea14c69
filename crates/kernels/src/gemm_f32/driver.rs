//! The loops around the tiles: blocks of rows are gathered once, then every panel passes over them.

use super::pack::{columns, width};
use super::{Addend, Element, KB, Kernel, LDA, LINE, Lines, Task, kernel};
use crate::buffer::ALIGN;
use crate::pointwise::{Program, Residual, Tile, TileInput, TileOutput};
use crate::{Isa, KernelError, SharedMut, ThreadPool};
use std::ops::Range;

/// Bytes of gathered rows that are kept while the panels pass over them: a part of L2.
const BLOCK_BYTES: usize = 448 * 1024;
/// Most tiles of a block.
const MAX_TILES: usize = 8;
/// Most rows of a block.
const MAX_ROWS: usize = 14 * MAX_TILES;
/// As many zeros as the widest panel has columns.
const NO_BIAS: [f32; 64] = [0.0; 64];
/// Weights of more bytes than this are fetched ahead.
const FETCHED_BYTES: usize = 512 * 1024;
/// Below this many multiply-adds a second thread does not pay.
const SERIAL: usize = 100_000;

/// Where the rows of the left-hand side come from, and where the result's go.
pub(crate) trait Rows: Sync {
    /// Writes row `row` of group `group`, all of its depth.
    fn gather(&self, group: usize, row: usize, sink: &mut RowSink<'_>);

    /// `count` rows from `row` on where they lie, if it is better to read them there.
    fn lines(&self, _group: usize, _row: usize, _count: usize) -> Option<Lines<'_>> {
        None
    }

    /// Where the first column of each row from `row` on lies in the result.
    fn place(&self, row: usize, at: &mut [usize]);
}

/// Takes one row in pieces and spreads it over the blocks of its tile.
pub(crate) struct RowSink<'a> {
    blocks: &'a mut [f32],
    mr: usize,
    row: usize,
    k: usize,
}

impl RowSink<'_> {
    /// The next elements.
    #[inline]
    pub(crate) fn push(&mut self, mut from: &[f32]) {
        while !from.is_empty() {
            let (len, to) = self.room(from.len());
            to.copy_from_slice(&from[..len]);
            from = &from[len..];
        }
    }

    /// The next elements are zeros.
    #[inline]
    pub(crate) fn zeros(&mut self, mut count: usize) {
        while count > 0 {
            let (len, to) = self.room(count);
            to.fill(0.0);
            count -= len;
        }
    }

    #[inline]
    fn room(&mut self, wanted: usize) -> (usize, &mut [f32]) {
        let (block, inner) = (self.k / KB, self.k % KB);
        let len = wanted.min(KB - inner);
        let start = (block * self.mr + self.row) * LDA + inner;
        self.k += len;
        (len, &mut self.blocks[start..start + len])
    }
}

/// What is added to a result before it is bounded.
#[derive(Clone, Copy)]
pub(crate) enum Added<'a> {
    Nothing,
    /// What the output holds.
    Output,
    Residual(Residual<'a>),
}

/// What becomes of a tile.
#[derive(Clone, Copy)]
pub(crate) enum Finish<'a> {
    /// With what is added, bounded and stored as f32.
    Store { clamp: (f32, f32), out: SharedMut<'a, f32>, added: Added<'a> },
    /// Run through a program, which stores it.
    Program { program: &'a Program, inputs: &'a [TileInput<'a>], outputs: &'a [TileOutput<'a>] },
}

/// A product `[m, k] · [k, n]` for each of `groups`, side by side in the result's columns.
pub(crate) struct Driver<'a> {
    pub(crate) isa: Isa,
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
    pub(crate) groups: usize,
    pub(crate) finish: Finish<'a>,
}

/// Tiles of a block: as many as the cache holds.
fn block_tiles<E>(kernel: &Kernel<E>, k: usize) -> usize {
    (BLOCK_BYTES / (tile_len(kernel, k) * size_of::<f32>()).max(1)).clamp(1, MAX_TILES)
}

/// Elements of one gathered tile.
fn tile_len<E>(kernel: &Kernel<E>, k: usize) -> usize {
    k.div_ceil(KB) * kernel.mr * LDA
}

/// Elements of one thread's scratch: a block and its results in one panel, in whole cache lines.
fn thread_len<E>(kernel: &Kernel<E>, k: usize) -> usize {
    (block_tiles(kernel, k) * (tile_len(kernel, k) + kernel.mr * kernel.nr)).next_multiple_of(ALIGN / 4)
}

impl Driver<'_> {
    /// Bytes of scratch that a product of depth `k` needs.
    pub(crate) fn scratch_bytes(isa: Isa, k: usize, threads: usize) -> usize {
        thread_len(&kernel(isa), k) * size_of::<f32>() * threads.max(1) + ALIGN
    }

    /// Runs it: `packed` is one `[k, n]` after the other, with a bias for each of their columns, if any.
    ///
    /// # Errors
    /// Too little scratch.
    pub(crate) fn run<E: Element>(
        &self,
        pool: &ThreadPool,
        packed: &[E],
        bias: Option<&[f32]>,
        rows: &dyn Rows,
        scratch: &mut [u8],
    ) -> Result<(), KernelError> {
        let kernel = E::kernel(self.isa);
        let each = thread_len(&kernel, self.k);
        let panels = self.n.div_ceil(kernel.nr) * self.groups;
        let tiles = self.m.div_ceil(kernel.mr);
        let macs = self.m * self.n * self.k * self.groups;
        let threads = if macs < SERIAL { 1 } else { pool.threads() };
        // Rows are split where there are enough of them, else columns: weights are then read once in all.
        let by_rows = tiles >= 6 * threads || tiles >= panels;
        let tasks = threads.min(if by_rows { tiles } else { panels });
        let scratch = super::TaskScratch::new("scratch of a matrix product, in bytes", scratch, each, pool.threads())?;
        pool.run(tasks, &|task| {
            let own = scratch.of(task);
            let product = Product { driver: self, kernel, packed, bias, rows };
            let part = |count: usize| task * count / tasks..(task + 1) * count / tasks;
            if by_rows {
                let t = part(tiles);
                product.run(t.start * kernel.mr..self.m.min(t.end * kernel.mr), 0..panels, own);
            } else {
                product.run(0..self.m, part(panels), own);
            }
        });
        Ok(())
    }
}

/// A product with its operands.
struct Product<'a, E: Element> {
    driver: &'a Driver<'a>,
    kernel: Kernel<E>,
    packed: &'a [E],
    bias: Option<&'a [f32]>,
    rows: &'a dyn Rows,
}

impl<E: Element> Product<'_, E> {
    /// The rows of a range over some of the panels.
    fn run(&self, range: Range<usize>, panels: Range<usize>, scratch: &mut [f32]) {
        let (&Driver { n, k, .. }, kernel) = (self.driver, &self.kernel);
        let each = n.div_ceil(kernel.nr);
        let tile_len = tile_len(kernel, k);
        let block_rows = block_tiles(kernel, k) * kernel.mr;
        let (block, results) = scratch.split_at_mut(block_tiles(kernel, k) * tile_len);
        for start in range.clone().step_by(block_rows) {
            let count = block_rows.min(range.end - start);
            let mut at = [0; MAX_ROWS];
            self.rows.place(start, &mut at[..count]);
            let mut panel = panels.start;
            while panel < panels.end {
                let group = panel / each;
                let end = panels.end.min((group + 1) * each);
                let mut tiles = [Lines { data: &[], pitch: LDA, depth: KB, step: kernel.mr * LDA }; MAX_TILES];
                let mut room = &mut block[..];
                for (tile, first) in tiles.iter_mut().zip((0..count).step_by(kernel.mr)) {
                    let (blocks, rest) = std::mem::take(&mut room).split_at_mut(tile_len);
                    room = rest;
                    let rows = kernel.mr.min(count - first);
                    if let Some(lines) = self.rows.lines(group, start + first, rows) {
                        *tile = lines;
                        continue;
                    }
                    for row in 0..rows {
                        let mut sink = RowSink { blocks, mr: kernel.mr, row, k: 0 };
                        self.rows.gather(group, start + first + row, &mut sink);
                    }
                    tile.data = blocks;
                }
                for p in panel..end {
                    let ahead = self.ahead(group, p + 1 - group * each);
                    self.run_panel(start, &at[..count], (group, p - group * each), ahead, &tiles, results);
                }
                panel = end;
            }
        }
    }

    /// The weights of a panel of a group, and its columns.
    fn panel(&self, group: usize, panel: usize) -> (&[E], Range<usize>) {
        let (&Driver { n, k, .. }, kernel) = (self.driver, &self.kernel);
        let col = panel * kernel.nr;
        let first = group * columns(kernel, n) + col;
        let width = width(kernel, n, col);
        (&self.packed[first * k..][..k * width], first..first + width)
    }

    /// The weights of a panel that comes next, if there are more than stay in the cache; none behind the last.
    fn ahead(&self, group: usize, panel: usize) -> &[E] {
        let far = size_of_val(self.packed) > FETCHED_BYTES && panel * self.kernel.nr < self.driver.n;
        if far { self.panel(group, panel).0 } else { &[] }
    }

    /// One panel over all tiles of a block.
    fn run_panel(
        &self,
        start: usize,
        at: &[usize],
        (group, panel): (usize, usize),
        ahead: &[E],
        tiles: &[Lines<'_>],
        results: &mut [f32],
    ) {
        let (&Driver { isa, n, k, finish, .. }, kernel) = (self.driver, &self.kernel);
        let col = panel * kernel.nr;
        let (b, place) = self.panel(group, panel);
        let (width, cols) = (place.len(), kernel.nr.min(n - col));
        let bias = self.bias.map_or(&NO_BIAS[..width], |bias| &bias[place]);
        let channel = group * n + col;
        // The last tiles, which find this panel in the cache, fetch the next one, a line a step.
        let (lines, count) = (size_of_val(ahead).div_ceil(LINE), at.len().div_ceil(kernel.mr));
        let fetching = lines.div_ceil(k.max(1));
        let kept: [usize; MAX_ROWS / MAX_TILES] = std::array::from_fn(|r| r * width);
        for (t, (at, &a)) in at.chunks(kernel.mr).zip(tiles).enumerate() {
            let first = start + t * kernel.mr;
            let part = (t + fetching).checked_sub(count).map_or(0..0, |i| i * k..(i + 1) * k);
            let each = LINE / size_of::<E>();
            let ahead = &ahead[(part.start * each).min(ahead.len())..(part.end * each).min(ahead.len())];
            let rows = at.len();
            let task = |clamp, add, out, at| Task { rows, cols, width, k, a, add, bias, b, ahead, clamp, out, at };
            match finish {
                Finish::Store { clamp, out, added } => {
                    let from: [usize; MAX_ROWS / MAX_TILES];
                    let add = match added {
                        Added::Nothing => Addend::Nothing,
                        Added::Output => Addend::Stored,
                        Added::Residual(Residual { data, stride, offset }) => {
                            from = std::array::from_fn(|r| (first + r) * stride + offset + channel);
                            Addend::Rows(data, &from[..rows])
                        }
                    };
                    (kernel.run)(&task(clamp, add, out.tail(channel), at));
                }
                Finish::Program { .. } => {
                    let none = (f32::NEG_INFINITY, f32::INFINITY);
                    let out = SharedMut::new(&mut results[t * kernel.mr * width..]);
                    (kernel.run)(&task(none, Addend::Nothing, out, &kept[..rows]));
                }
            }
        }
        if let Finish::Program { program, inputs, outputs } = finish {
            let tile = Tile { values: results, pitch: width, rows: at.len(), cols, row0: start, col0: channel };
            super::share::run_epilogue(isa, program, &tile, inputs, outputs);
        }
    }
}
