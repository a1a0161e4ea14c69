//! 3×3 convolutions of stride 1 with a quarter of the products, and the same bits: Winograd's F(4×4, 3×3) in integers.
//!
//! A tile of 4×4 outputs `Y` of one input channel is `Aᵀ((G g Gᵀ) ⊙ (Bᵀ d B))A`, with 36 products instead of 144 (Lavin and
//! Gray, 2015, <https://arxiv.org/abs/1509.09308>). `B` is of integers; of `G` each row is scaled to integers, and what
//! it was scaled by is made good after the sum over the channels:
//!
//! ```text
//! U = Gs g Gsᵀ      Gs = 6 0 0 | 1 1 1 | 1 -1 1 | 1 2 4 | 1 -2 4 | 0 0 6     |U| ≤ 49·128
//! V = Bᵀ (d - zx) B                                                         |V| ≤ 100·255
//! M = Σ U·V                                                                  modulo 2³²
//! As M Asᵀ = (s sᵀ) ⊙ Y    s = 24, 12, 6, 6
//! ```
//!
//! `U` and `V` fit words, and everything is exact modulo 2³², so that `M` may pass what an i32 holds: 9 has an inverse there,
//! and what is left of `s sᵀ` is at most 2⁶. So `Y` is exact if it is below 2²⁵, which the weights' magnitudes tell
//! ([`fits`]). Padding is `d = zx`, which is 0.
//!
//! The 36 products of matrices, of tiles by channels, are `vpdpwssd` or `vpmaddwd`, half as many products at once as there
//! are of bytes: all in all half the time.
#![allow(unsafe_code, reason = "threads write disjoint parts of the output through one pointer")]

#[cfg(target_arch = "x86_64")]
mod lanes;
mod weights;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::dense::Io;
use super::geometry::Geometry;
use super::pack::{self, Block, Layout, Order, Packed, Source};
use super::spec::OutputKind;
use super::tile::{Columns, Epilogue};
use crate::buffer::{ALIGN, apart};
use crate::{AlignedVec, Isa, KernelError, Level, SharedMut, ThreadPool};
use std::ops::Range;
use std::sync::Arc;

/// Outputs of a side of a tile.
const SIDE: usize = 4;
/// Inputs of a side of a tile.
const REACH: usize = SIDE + 2;
/// Products for a tile and a channel.
const PLANES: usize = REACH * REACH;
/// Input channels come in so many: those of one vector of words.
const DEEP: usize = 32;
/// Bytes of transformed tiles that a thread has at a time: a part of L2.
const CHUNK_BYTES: usize = 512 << 10;
/// Tiles of a thread below which channels are split over threads instead, so that each reads a part of the weights.
const FEW_TILES: usize = 14;
/// Bytes between planes, so that what a tile reads and writes of all of them does not meet in a few sets of L1.
const GAP: usize = 64;

/// A packed 3×3 convolution.
#[derive(Clone, Debug)]
pub(super) struct Winograd {
    isa: Isa,
    loops: Loops,
    geometry: Geometry,
    /// Blocks and columns; their biases have no zero point folded in. No weights.
    packed: Packed,
    /// Of each block `[36][columns / together][c / 2][together][2]`.
    weights: Arc<AlignedVec<i16>>,
    epilogue: Epilogue,
    zx: u8,
}

/// The loops of an instruction set.
#[derive(Clone, Copy, Debug)]
struct Loops {
    /// Transforms the tiles of a chunk.
    inputs: unsafe fn(&mut Chunk<'_>),
    /// Multiplies them with the weights of a block, transforms the sums back, and stores what they yield.
    outputs: unsafe fn(&mut Chunk<'_>, &Outputs<'_>),
}

impl Loops {
    /// None where plain Rust has to do.
    fn of(isa: Isa) -> Option<Loops> {
        #[cfg(target_arch = "x86_64")]
        return x86::loops(isa);
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = isa;
            None
        }
    }
}

/// Columns of a block whose sums are in registers at the same time.
fn together(isa: Isa, b: &Block) -> usize {
    if isa.level() == Level::Avx512 { pack::LANES * b.nv.min(2) } else { pack::LANES }
}

/// What the loops of an instruction set read and write: one chunk of tiles of one task.
struct Chunk<'a> {
    geometry: &'a Geometry,
    tiles: Range<usize>,
    x: &'a [u8],
    /// The zero point for each channel: a pixel of padding.
    border: &'a [u8],
    /// `[36][tiles][c]`, with gaps.
    inputs: &'a mut [i16],
    /// `[36][tiles][columns of a block]`, with gaps.
    sums: &'a mut [i32],
    /// Accumulators of a tile: `[16][columns of a block]`.
    results: &'a mut [i32],
}

impl Chunk<'_> {
    /// Words from a plane of inputs to the next.
    fn inputs_plane(&self) -> usize {
        self.tiles.len() * self.geometry.c + GAP / 2
    }

    /// Sums from a plane of so many columns to the next.
    fn sums_plane(&self, columns: usize) -> usize {
        self.tiles.len() * columns + GAP / 4
    }
}

/// A block of output channels.
struct Outputs<'a> {
    block: Block,
    weights: &'a [i16],
    columns: Columns,
    epilogue: &'a Epilogue,
    io: &'a Io<'a>,
}

/// Rows and columns of tiles of an image.
fn grid(g: &Geometry) -> [usize; 2] {
    [g.oh, g.ow].map(|o| o.div_ceil(SIDE))
}

/// Tiles of all images.
fn tiles_of(g: &Geometry) -> usize {
    g.n * grid(g).iter().product::<usize>()
}

/// Whether a convolution can be taken so: a shape of this kind, and sums that its scaled form holds.
fn fits(g: &Geometry, src: &Source<'_>, zx: u8, out: OutputKind) -> bool {
    let window = (g.kh, g.kw) == (3, 3) && g.stride == [1, 1] && g.dilation == [1, 1];
    let reach = i64::from(zx.max(255 - zx));
    let exact = src.sums.iter().all(|(_, magnitude)| reach * magnitude < 1 << 25);
    window && src.groups == 1 && g.c.is_multiple_of(DEEP) && out == OutputKind::U8 && exact
}

/// Whether it is quicker than the tiles of the dense kernels: measured.
fn pays(g: &Geometry, c_out: usize) -> bool {
    // Of the outputs of all tiles, those that there are.
    let used = g.pixels() as f64 / (tiles_of(g) * SIDE * SIDE) as f64;
    tiles_of(g) >= 9 && c_out >= 32 && used > 0.6
}

impl Winograd {
    /// The convolution, if it can be taken so and that is quicker.
    ///
    /// # Errors
    /// As for the dense kernels.
    pub fn new(
        isa: Isa,
        geometry: &Geometry,
        src: &Source<'_>,
        epilogue: &Epilogue,
        like: Option<&Winograd>,
    ) -> Result<Option<Winograd>, KernelError> {
        let (Some(loops), Some(zx)) = (Loops::of(isa), src.zx) else { return Ok(None) };
        if !fits(geometry, src, zx, epilogue.out) || !pays(geometry, src.c_out) {
            return Ok(None);
        }
        let unfolded = Source { zx: Some(0), sums: src.sums.clone(), ..*src };
        let order = Order::of(isa, epilogue.out);
        let packed = pack::columns(&unfolded, isa, (Layout::Fours, order), PLANES * src.c_group)?;
        let pack = || {
            let mut weights = AlignedVec::zeroed(packed.bias.len() * PLANES * src.c_group);
            for b in &packed.blocks {
                weights::pack_block(isa, src, order, b, together(isa, b), &mut weights[b.start..]);
            }
            Arc::new(weights)
        };
        let weights = like.map_or_else(pack, |like| Arc::clone(&like.weights));
        let (geometry, epilogue) = (geometry.clone(), epilogue.clone());
        Ok(Some(Winograd { isa, loops, geometry, packed, weights, epilogue, zx }))
    }

    /// The same for another number of images.
    pub fn set_batch(&mut self, n: usize) {
        self.geometry.n = n;
    }

    /// The kernel that runs.
    pub fn kernel_name(&self) -> String {
        format!("conv2d_u8s8_winograd_{}", super::tile::isa_name(self.isa))
    }

    /// Columns of the widest block.
    fn widest(&self) -> usize {
        self.packed.blocks.iter().map(|b| b.nv * pack::LANES).max().unwrap_or(0)
    }

    /// Most tiles of a chunk; all of them would go in chunks of even sizes.
    fn chunk(&self) -> usize {
        let each = PLANES * (2 * self.geometry.c + 4 * self.widest());
        let tiles = tiles_of(&self.geometry);
        tiles.div_ceil(tiles.div_ceil((CHUNK_BYTES / each).max(1)).max(1)).max(1)
    }

    /// Bytes of a task's buffers: transformed inputs, sums, accumulators of a tile, and a pixel of padding.
    fn task_bytes(&self) -> [usize; 4] {
        let (tiles, c, columns) = (self.chunk(), self.geometry.c, self.widest());
        let bytes =
            [PLANES * (tiles * c * 2 + GAP), PLANES * (tiles * columns * 4 + GAP), SIDE * SIDE * columns * 4, c];
        bytes.map(|b| b.next_multiple_of(ALIGN))
    }

    /// Bytes of scratch that a run on so many threads needs.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        threads * self.task_bytes().iter().sum::<usize>()
    }

    /// Runs all images. The caller has checked the lengths of everything.
    pub fn run(&self, pool: &ThreadPool, io: &Io<'_>, scratch: &mut [u8]) {
        let (tiles, parts, blocks) = (tiles_of(&self.geometry), pool.threads(), &self.packed.blocks[..]);
        let by_block = blocks.len() >= parts && tiles < FEW_TILES * parts;
        let each = self.task_bytes().iter().sum::<usize>();
        let apart = apart(scratch.len(), pool.threads(), each);
        let scratch = SharedMut::new(scratch);
        pool.run(parts, &|task| {
            let part = |n: usize| task * n / parts..(task + 1) * n / parts;
            let (tiles, blocks) =
                if by_block { (0..tiles, &blocks[part(blocks.len())]) } else { (part(tiles), blocks) };
            // SAFETY: each task has its own part.
            let buffers = unsafe { scratch.slice(task * apart..task * apart + each) };
            self.task(io, tiles, blocks, buffers);
        });
    }

    fn task(&self, io: &Io<'_>, tiles: Range<usize>, blocks: &[Block], buffers: &mut [u8]) {
        let [inputs, sums, results, _] = self.task_bytes();
        let (inputs, rest) = buffers.split_at_mut(inputs);
        let (sums, rest) = rest.split_at_mut(sums);
        let (results, border) = rest.split_at_mut(results);
        border.fill(self.zx);
        let most = self.chunk();
        let count = tiles.len().div_ceil(most).max(1);
        for i in 0..count {
            let part = |i: usize| tiles.start + i * tiles.len() / count;
            let mut chunk = Chunk {
                geometry: &self.geometry,
                tiles: part(i)..part(i + 1),
                x: io.x,
                border,
                inputs: bytemuck::cast_slice_mut(inputs),
                sums: bytemuck::cast_slice_mut(sums),
                results: bytemuck::cast_slice_mut(results),
            };
            self.compute(io, &mut chunk, blocks);
        }
    }

    /// Computes a chunk of tiles.
    fn compute(&self, io: &Io<'_>, chunk: &mut Chunk<'_>, blocks: &[Block]) {
        // SAFETY: the token proves the instruction set; buffers and operands are as long as the chunk asks for.
        unsafe { (self.loops.inputs)(chunk) };
        for block in blocks {
            let p = &self.packed;
            let outputs = Outputs {
                block: *block,
                weights: &self.weights[block.start..][..block.nv * pack::LANES * PLANES * self.geometry.c],
                columns: p.columns(block, &p.bias, &p.scale),
                epilogue: &self.epilogue,
                io,
            };
            // SAFETY: as above; tasks have tiles or blocks of their own.
            unsafe { (self.loops.outputs)(chunk, &outputs) };
        }
    }
}
