//! Blocks of 16 or 32 channels: four or two neighbouring pixels lie side by side in a vector.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of an output pixel")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::avx512::{ACTIVATION, GENERAL, PLAIN, Staged, column_of, each_rows};
use super::{Block, Depthwise};
use crate::bytes512::ones;
use crate::qconv::avx512::epilogue::{bounded, words};
use crate::qconv::avx512::vector::Vector;
use crate::qconv::dense::Io;
use crate::qconv::tile::{Columns, Path};
use std::arch::x86_64::*;
use std::ops::Range;

/// Taps of a row whose places are known beforehand.
const KNOWN: usize = 16;

/// Staged columns of a strip, one after another for each quarter of the channels, and what is computed from them.
struct Narrow<'a> {
    dw: &'a Depthwise,
    staged: Staged,
    /// Bytes from a pixel's first tap to its others in a row.
    taps: [usize; KNOWN],
    weights: *const u8,
    columns: Columns,
    mask: u64,
    /// First output pixel of the upper row, and how many there are in a row.
    pixel: usize,
    count: usize,
    channel: usize,
}

impl Depthwise {
    /// Whether a block's pixels may lie side by side.
    pub(super) fn is_narrow(&self, b: &Block) -> bool {
        b.lanes < 64 && matches!(self.epilogue.path, Path::Plain | Path::Activation)
    }

    /// Output rows that share staged columns.
    ///
    /// # Safety
    /// AVX-512 is there; `io` is valid for the geometry; the scratch has [`Depthwise::staged_bytes`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    pub(super) unsafe fn strip_narrow<V: Vector>(
        &self,
        image: usize,
        rows: Range<usize>,
        io: &Io<'_>,
        b: &Block,
        scratch: &mut [u8],
    ) {
        let g = &self.geometry;
        let k = if g.kh == g.kw { g.kw } else { 0 };
        for ox in (0..g.ow).step_by(self.strip_columns) {
            let count = self.strip_columns.min(g.ow - ox);
            let staged = Staged::side_by_side(self, count, V::BYTES, scratch.as_mut_ptr());
            let mut n = Narrow {
                dw: self,
                taps: std::array::from_fn(|kx| staged.column(kx * g.dilation[1])),
                staged,
                weights: self.weights[b.start..].as_ptr().cast(),
                columns: self.columns(b),
                mask: ones(b.width),
                pixel: 0,
                count,
                channel: b.channel,
            };
            // SAFETY: the scratch holds a strip; pixels lie in the output.
            unsafe {
                self.stage::<V>(image, rows.start, ox, count, io, b, &n.staged);
                each_rows!(self, rows, k, |row, RO, K, PATH| {
                    n.weights = self.weights[b.start..].as_ptr().cast::<u8>().add(row * 4 * V::BYTES);
                    n.pixel = (image * g.oh + rows.start + row) * g.ow + ox;
                    // Others have no narrow blocks.
                    if PATH != GENERAL {
                        n.pixels::<V, RO, K, PATH>(io);
                    }
                });
            }
        }
    }
}

impl Narrow<'_> {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    unsafe fn pixels<V: Vector, const RO: usize, const K: usize, const PATH: u8>(&self, io: &Io<'_>) {
        let side = 64 / V::BYTES;
        let mut ox = 0;
        // SAFETY: by the caller's promise; what is computed past the last pixel is not stored.
        unsafe {
            while ox + side < self.count {
                self.group::<V, RO, 2, K, PATH>(ox, io);
                ox += 2 * side;
            }
            if ox < self.count {
                self.group::<V, RO, 1, K, PATH>(ox, io);
            }
        }
    }

    /// `OX` vectors of pixels of `RO` rows.
    #[inline(always)]
    unsafe fn group<V: Vector, const RO: usize, const OX: usize, const K: usize, const PATH: u8>(
        &self,
        ox: usize,
        io: &Io<'_>,
    ) {
        let e = &self.dw.epilogue;
        let (side, width) = (64 / V::BYTES, self.dw.geometry.ow);
        // SAFETY: by the caller's promise.
        unsafe {
            let mut halves = [[[_mm512_setzero_si512(); OX]; RO]; 2];
            for half in 0..2 {
                let low = self.values::<V, RO, OX, K, PATH>(ox, 2 * half);
                let high = self.values::<V, RO, OX, K, PATH>(ox, 2 * half + 1);
                for row in 0..RO {
                    for i in 0..OX {
                        halves[half][row][i] = words::<PATH>([low[row][i], high[row][i]], e);
                    }
                }
            }
            for row in 0..RO {
                for i in 0..OX {
                    let first = ox + i * side;
                    let bytes = bounded(_mm512_packus_epi16(halves[0][row][i], halves[1][row][i]), e);
                    let pixels = side.min(self.count - first);
                    let (y, _) = io.at(self.pixel + row * width + first, self.channel);
                    if io.y_stride == V::BYTES && self.columns.width == V::BYTES {
                        bytes.store(y, ones(pixels * V::BYTES));
                        continue;
                    }
                    let mut spilled = [0u8; 64];
                    bytes.store(spilled.as_mut_ptr(), u64::MAX);
                    for p in 0..pixels {
                        V::load_all(spilled.as_ptr().add(p * V::BYTES)).store(y.add(p * io.y_stride), self.mask);
                    }
                }
            }
        }
    }

    /// Scaled sums of quarter `j` of the channels, for a `K`×`K` kernel or, where `K` is 0, for any.
    #[inline(always)]
    unsafe fn values<V: Vector, const RO: usize, const OX: usize, const K: usize, const PATH: u8>(
        &self,
        ox: usize,
        j: usize,
    ) -> [[__m512; OX]; RO] {
        let g = &self.dw.geometry;
        // SAFETY: staged columns reach as far as the last tap of the last pixel, and a vector beyond.
        unsafe {
            let mut acc = [[V::spread(column_of::<V, _>(self.columns.bias, j).cast()); OX]; RO];
            let mut w = self.weights.add(j * V::BYTES);
            let (quads, kw) = if K == 0 { (self.dw.groups(), g.kw) } else { (K.div_ceil(4), K) };
            for quad in 0..quads {
                let first = self.staged.at(quad, j).add(ox * V::BYTES);
                for kx in 0..kw {
                    let mut taps = [_mm512_setzero_si512(); RO];
                    for row in 0..RO {
                        taps[row] = V::spread(w.add(row * 4 * V::BYTES));
                    }
                    w = w.add(self.dw.rows * 4 * V::BYTES);
                    let tap = if kx < KNOWN { self.taps[kx] } else { self.staged.column(kx * g.dilation[1]) };
                    for i in 0..OX {
                        let x = _mm512_loadu_si512(first.add(tap + i * 64).cast());
                        for row in 0..RO {
                            acc[row][i] = _mm512_dpbusd_epi32(acc[row][i], x, taps[row]);
                        }
                    }
                }
            }
            let scale = _mm512_castsi512_ps(V::spread(column_of::<V, _>(self.columns.scale, j).cast()));
            let bias = match PATH == ACTIVATION {
                true => V::spread(column_of::<V, _>(self.columns.float_bias, j).cast()),
                false => _mm512_setzero_si512(),
            };
            let mut v = [[_mm512_setzero_ps(); OX]; RO];
            for row in 0..RO {
                for i in 0..OX {
                    let acc = _mm512_cvtepi32_ps(acc[row][i]);
                    v[row][i] = match PATH == ACTIVATION {
                        true => _mm512_fmadd_ps(acc, scale, _mm512_castsi512_ps(bias)),
                        false => _mm512_mul_ps(acc, scale),
                    };
                }
            }
            v
        }
    }
}
