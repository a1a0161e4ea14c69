//! Depthwise convolution: one input and one output channel per group.
//!
//! The general kernel takes one output pixel at a time, through a list of tap addresses; taps in the padding
//! read a row of zero points. Small kernels have kernels of their own that slide along an output row.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod run;

use super::geometry::Geometry;
use super::pack::{self, LANES, Source};
use super::spec::{Bias, OutputKind};
use super::tile::{Columns, Epilogue};
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
    kernel: Kernel,
}

/// Which kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// Any shape, a pixel at a time.
    Taps,
    /// 3×3 at stride 1, two output rows at a time (512-bit).
    Rows3x3S1,
    /// 3×3 at stride 2, one output row at a time (512-bit).
    Rows3x3S2,
}

/// One output pixel for the general kernel.
struct Pixel<'a> {
    /// First channel of each tap, as addresses; as many as the kernel's layout asks for.
    taps: &'a [usize],
    y: *mut u8,
    r: *const u8,
    /// Bytes of an output element.
    size: usize,
}

impl Depthwise {
    pub fn new(isa: Isa, geometry: Geometry, src: &Source<'_>, epilogue: Epilogue) -> Result<Depthwise, KernelError> {
        let (c, taps) = (geometry.c, geometry.kh * geometry.kw);
        let folded = pack::fold_bias(src, taps)?;
        let kernel = Kernel::choose(isa, &geometry);
        let mut blocks = Vec::new();
        let (mut channel, mut column, mut start) = (0, 0, 0);
        for lanes in split(c, isa) {
            let width = lanes.min(c - channel);
            blocks.push(Block { channel, width, lanes, column, start });
            channel += width;
            column += lanes;
            start += kernel.weight_bytes(isa, taps, lanes);
        }
        let float = matches!(src.bias, Bias::F32(_));
        let mut dw = Depthwise {
            isa,
            blocks,
            weights: AlignedVec::zeroed(start),
            bias: AlignedVec::zeroed(column),
            scale: AlignedVec::zeroed(column),
            float_bias: AlignedVec::zeroed(if float { column } else { 0 }),
            border: AlignedVec::from_slice(&vec![src.zx; c]),
            epilogue,
            kernel,
            geometry,
        };
        for index in 0..dw.blocks.len() {
            dw.pack(dw.blocks[index], src, &folded);
        }
        Ok(dw)
    }

    fn pack(&mut self, b: Block, src: &Source<'_>, folded: &[i32]) {
        let taps = self.geometry.kh * self.geometry.kw;
        for col in 0..b.lanes {
            let within = if self.isa.level() == Level::Avx512 { interleaved(b.lanes, col) } else { col };
            if within >= b.width {
                continue;
            }
            let c = b.channel + within;
            self.bias[b.column + col] = folded[c];
            // Floats are stored in natural order.
            let at = b.column + if self.epilogue.out == OutputKind::F32 { within } else { col };
            self.scale[at] = src.requant.multiplier[c];
            if let Bias::F32(f) = src.bias {
                self.float_bias[at] = f[c];
            }
            let w = &src.weights[c * taps..(c + 1) * taps];
            let out = &mut self.weights[b.start..];
            match (self.kernel, self.isa.level()) {
                (Kernel::Rows3x3S1 | Kernel::Rows3x3S2, _) => pack_3x3(w, out, b.lanes, col, self.kernel),
                (Kernel::Taps, Level::Portable) => (0..taps).for_each(|t| out[t * LANES + col] = w[t]),
                (Kernel::Taps, Level::Avx512) => {
                    (0..taps).for_each(|t| out[(t / 4 * b.lanes + col) * 4 + t % 4] = w[t]);
                }
                (Kernel::Taps, Level::Avx2) => {
                    for (t, w) in w.iter().enumerate() {
                        // Pairs of taps as i16: channels 0-3 and 8-11, then 4-7 and 12-15, as unpacks leave them.
                        let word = [0, 16, 8, 24][col / 4] + col % 4 * 2 + t % 2;
                        let at = (t / 2 * 2 * LANES + word) * 2;
                        out[at..at + 2].copy_from_slice(&i16::from(*w).to_le_bytes().map(|b| b as i8));
                    }
                }
            }
        }
    }

    /// Tap addresses that the general kernel reads for one pixel.
    fn listed_taps(&self) -> usize {
        let taps = self.geometry.kh * self.geometry.kw;
        match self.isa.level() {
            Level::Portable => taps,
            Level::Avx2 => taps.next_multiple_of(2),
            Level::Avx512 => taps.next_multiple_of(4),
        }
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
        threads * self.listed_taps() * size_of::<usize>()
    }

    /// The kernel's name.
    pub fn kernel_name(&self) -> String {
        let isa = match self.isa.level() {
            Level::Avx512 => "avx512vnni",
            level => level.name(),
        };
        match self.kernel {
            Kernel::Taps => format!("dwconv2d_u8s8_{}x{}_taps_{isa}", self.geometry.kh, self.geometry.kw),
            Kernel::Rows3x3S1 => format!("dwconv2d_u8s8_3x3s1_{isa}"),
            Kernel::Rows3x3S2 => format!("dwconv2d_u8s8_3x3s2_{isa}"),
        }
    }

    /// The same for another number of images.
    pub fn set_batch(&mut self, n: usize) {
        self.geometry.n = n;
    }
}

impl Kernel {
    fn choose(isa: Isa, g: &Geometry) -> Kernel {
        let plain = isa.level() == Level::Avx512 && [g.kh, g.kw] == [3, 3] && g.dilation == [1, 1];
        match g.stride {
            [1, 1] if plain => Kernel::Rows3x3S1,
            [2, 2] if plain => Kernel::Rows3x3S2,
            _ => Kernel::Taps,
        }
    }

    fn weight_bytes(self, isa: Isa, taps: usize, lanes: usize) -> usize {
        match (self, isa.level()) {
            (Kernel::Rows3x3S1, _) => 2 * 3 * lanes * 4,
            (Kernel::Rows3x3S2, _) => 3 * lanes * 4,
            (Kernel::Taps, Level::Portable) => taps * LANES,
            (Kernel::Taps, Level::Avx2) => taps.next_multiple_of(2) * LANES * 2,
            (Kernel::Taps, Level::Avx512) => taps.next_multiple_of(4) * lanes,
        }
    }
}

/// Column by column, the rows of a 3×3 kernel in one dword; for two output rows, once from the first byte and
/// once from the second.
fn pack_3x3(w: &[i8], out: &mut [i8], lanes: usize, col: usize, kernel: Kernel) {
    let copies = if kernel == Kernel::Rows3x3S1 { 2 } else { 1 };
    for copy in 0..copies {
        for (tap, w) in w.iter().enumerate() {
            let (ky, kx) = (tap / 3, tap % 3);
            out[((copy * 3 + kx) * lanes + col) * 4 + ky + copy] = *w;
        }
    }
}

/// Channel of column `col` once bytes and words were interleaved within 128-bit lanes.
fn interleaved(lanes: usize, col: usize) -> usize {
    let per_vector = lanes / 4;
    let (vector, lane, d) = (col / per_vector, col % per_vector / 4, col % 4);
    16 * lane + 4 * vector + d
}

/// Channels of each block's kernel.
fn split(channels: usize, isa: Isa) -> Vec<usize> {
    if isa.level() != Level::Avx512 {
        return vec![LANES; channels.div_ceil(LANES)];
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
