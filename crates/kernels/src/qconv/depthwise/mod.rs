//! Depthwise convolution: one input and one output channel per group.
//!
//! The portable kernel takes one output pixel at a time, through a list of tap addresses; taps in the padding
//! read a pixel of zero points. The others take a strip of output rows, from staged columns.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_narrow;
#[cfg(target_arch = "x86_64")]
mod avx512_stride2;
mod portable;
mod run;

use super::geometry::Geometry;
use super::pack::{self, LANES, Source};
use super::spec::OutputKind;
use super::tile::{Columns, Epilogue, Path};
use crate::buffer::ALIGN;
use crate::{AlignedVec, Isa, KernelError, Level};

/// Up to 64 channels.
#[derive(Clone, Copy, Debug)]
struct Block {
    channel: usize,
    /// Channels.
    width: usize,
    /// Channels of the kernel that takes it: 16, 32 or 64.
    lanes: usize,
    /// First column in the per-channel operands.
    column: usize,
    /// First byte of its weights.
    start: usize,
}

/// A packed depthwise convolution.
#[derive(Clone, Debug)]
pub(super) struct Depthwise {
    isa: Isa,
    geometry: Geometry,
    blocks: Vec<Block>,
    weights: AlignedVec<i8>,
    bias: AlignedVec<i32>,
    scale: AlignedVec<f32>,
    float_bias: AlignedVec<f32>,
    /// One pixel of zero points.
    border: AlignedVec<u8>,
    epilogue: Epilogue,
    /// Output rows that share staged columns, at most: one, two or four.
    rows: usize,
    /// Output columns that are staged at once.
    strip_columns: usize,
}

/// Bytes of staged columns: with weights and accumulators they stay in L1.
const STAGED_BYTES: usize = 20 << 10;

/// One output pixel, for the kernel that lists taps.
struct Pixel<'a> {
    /// First channel of each tap, as addresses.
    taps: &'a [usize],
    y: *mut u8,
    r: *const u8,
    /// Bytes of an output element.
    size: usize,
}

impl Depthwise {
    pub fn new(isa: Isa, geometry: Geometry, src: &Source<'_>, epilogue: Epilogue) -> Result<Depthwise, KernelError> {
        let c = geometry.c;
        let folded = pack::fold_bias(src)?;
        // As many output rows as fill no more dwords with their input rows than one does.
        let (g, lines) = (&geometry, lines(isa));
        let fit = |rows: &usize| (g.kh + (rows - 1) * g.stride[0]).div_ceil(lines) == g.kh.div_ceil(lines);
        let most = if isa.level() == Level::Avx512 { 4 } else { 2 };
        let rows = [4, 2]
            .into_iter()
            .filter(|rows| *rows <= most && *rows <= g.oh && g.dilation[0] == 1)
            .find(fit)
            .unwrap_or(1);
        let mut blocks = Vec::new();
        let (mut channel, mut column, mut start) = (0, 0, 0);
        for lanes in split(c, isa) {
            let width = lanes.min(c - channel);
            blocks.push(Block { channel, width, lanes, column, start });
            channel += width;
            column += lanes;
            start += weight_bytes(isa, &geometry, rows, lanes);
        }
        let float = src.has_addend();
        let mut dw = Depthwise {
            isa,
            blocks,
            weights: AlignedVec::zeroed(start),
            bias: AlignedVec::zeroed(column),
            scale: AlignedVec::zeroed(column),
            float_bias: AlignedVec::zeroed(if float { column } else { 0 }),
            border: AlignedVec::from_slice(&vec![src.zx.unwrap_or(0); c]),
            epilogue,
            rows,
            strip_columns: 0,
            geometry,
        };
        let g = &dw.geometry;
        let staged = STAGED_BYTES / (dw.groups() * dw.blocks[0].lanes * 4);
        dw.strip_columns = (staged.saturating_sub((g.kw - 1) * g.dilation[1] + 1) / g.stride[1] / 4 * 4).max(4);
        for index in 0..dw.blocks.len() {
            dw.pack(dw.blocks[index], src, &folded);
        }
        Ok(dw)
    }

    fn pack(&mut self, b: Block, src: &Source<'_>, folded: &[i32]) {
        let taps = self.geometry.kh * self.geometry.kw;
        for col in 0..b.lanes {
            let within = if self.isa.level() == Level::Portable { col } else { interleaved(b.lanes, col) };
            if within >= b.width {
                continue;
            }
            let c = b.channel + within;
            self.bias[b.column + col] = folded[c];
            let at = b.column + if self.is_natural() { within } else { col };
            self.scale[at] = src.requant.multiplier[c];
            if src.has_addend() {
                self.float_bias[at] = src.addend(c);
            }
            let w = &src.weights[c * taps..(c + 1) * taps];
            let out = &mut self.weights[b.start..];
            match self.isa.level() {
                Level::Portable => (0..taps).for_each(|t| out[t * LANES + col] = w[t]),
                Level::Avx512 | Level::AvxVnni => {
                    // By four rows, column and output row: four rows in a dword, further down for the second.
                    for (i, copy) in (0..taps * self.rows).map(|i| (i / self.rows, i % self.rows)) {
                        let (row, kx) = (i / self.geometry.kw + copy * self.geometry.stride[0], i % self.geometry.kw);
                        let at = (row / 4 * self.geometry.kw + kx) * self.rows + copy;
                        out[(at * b.lanes + col) * 4 + row % 4] = w[i];
                    }
                }
                Level::Avx2 => {
                    // The same with two rows of words.
                    for (i, copy) in (0..taps * self.rows).map(|i| (i / self.rows, i % self.rows)) {
                        let (row, kx) = (i / self.geometry.kw + copy * self.geometry.stride[0], i % self.geometry.kw);
                        let at = (row / 2 * self.geometry.kw + kx) * self.rows + copy;
                        let at = (at * b.lanes + col) * 4 + row % 2 * 2;
                        out[at..at + 2].copy_from_slice(&i16::from(w[i]).to_le_bytes().map(u8::cast_signed));
                    }
                }
            }
        }
    }

    /// Tap addresses that are listed for one pixel.
    fn listed_taps(&self) -> usize {
        self.geometry.kh * self.geometry.kw
    }

    /// Input rows of a strip, by those that share a dword.
    fn groups(&self) -> usize {
        self.geometry.kh.div_ceil(lines(self.isa))
    }

    /// Whether the operands of the epilogue stand in natural order, not in that of the accumulators: floats are stored so,
    /// and 256 bits have the general path so.
    fn is_natural(&self) -> bool {
        let plain = matches!(self.epilogue.path, Path::Plain | Path::Activation);
        self.epilogue.out == OutputKind::F32 || (self.isa.level() < Level::Avx512 && !plain)
    }

    /// Input columns of `count` neighbouring outputs.
    fn columns_of(&self, count: usize) -> usize {
        (count - 1) * self.geometry.stride[1] + (self.geometry.kw - 1) * self.geometry.dilation[1] + 1
    }

    /// Bytes of the staged columns of one thread: each quarter of a narrow block has room beside it.
    fn staged_bytes(&self) -> usize {
        let columns = self.columns_of(self.strip_columns.min(self.geometry.ow)) + self.geometry.stride[1];
        (columns * self.blocks[0].lanes + 2 * ALIGN + 128) * 4 * self.groups()
    }

    fn columns(&self, b: &Block) -> Columns {
        let float_bias =
            if self.float_bias.is_empty() { std::ptr::null() } else { self.float_bias[b.column..].as_ptr() };
        Columns {
            bias: self.bias[b.column..].as_ptr(),
            scale: self.scale[b.column..].as_ptr(),
            float_bias,
            width: b.width,
        }
    }

    /// Bytes of scratch that a run on `threads` threads needs.
    pub fn scratch_bytes(&self, threads: usize) -> usize {
        threads * self.scratch_of_thread()
    }

    fn scratch_of_thread(&self) -> usize {
        match self.isa.level() {
            Level::Portable => self.listed_taps() * size_of::<usize>(),
            _ => self.staged_bytes().next_multiple_of(ALIGN),
        }
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> String {
        let isa = match self.isa.level() {
            Level::Avx512 => "avx512vnni",
            level => level.name(),
        };
        let g = &self.geometry;
        format!("dwconv2d_u8s8_{}x{}s{}_{isa}", g.kh, g.kw, g.stride[1])
    }

    /// The same for another number of images.
    pub fn set_batch(&mut self, n: usize) {
        self.geometry.n = n;
    }
}

fn weight_bytes(isa: Isa, g: &Geometry, rows: usize, lanes: usize) -> usize {
    let taps = g.kh * g.kw;
    match isa.level() {
        Level::Portable => taps * LANES,
        _ => g.kh.div_ceil(lines(isa)) * g.kw * rows * lanes * 4,
    }
}

/// Input rows of a channel that share a dword: bytes, or words.
fn lines(isa: Isa) -> usize {
    if isa.level() == Level::Avx2 { 2 } else { 4 }
}

/// Channel of column `col` once bytes and words were interleaved within 128-bit lanes.
fn interleaved(lanes: usize, col: usize) -> usize {
    let per_vector = lanes / 4;
    let (vector, lane, d) = (col / per_vector, col % per_vector / 4, col % 4);
    16 * lane + 4 * vector + d
}

/// Channels of each block's kernel.
fn split(channels: usize, isa: Isa) -> Vec<usize> {
    match isa.level() {
        Level::Portable => return vec![LANES; channels.div_ceil(LANES)],
        Level::Avx2 | Level::AvxVnni => return vec![2 * LANES; channels.div_ceil(2 * LANES)],
        Level::Avx512 => {}
    }
    let mut lanes = vec![64; channels / 64];
    match channels % 64 {
        0 => {}
        1..=16 => lanes.push(16),
        17..=32 => lanes.push(32),
        33..=48 => lanes.extend([32, 16]),
        _ => lanes.push(64),
    }
    lanes
}
