//! Depthwise kernels in 256-bit vectors: input rows of a channel are interleaved into one dword, four rows of bytes for
//! `vpdpbusd`, or two of words for `vpmaddwd`.
//!
//! As with 512 bits, columns are staged with their borders, two output rows share them where that is no more, and the packs of the
//! epilogue undo the order of the unpacks.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of an output pixel")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::{Block, Depthwise};
use crate::Level;
use crate::isa::takes_evex;
use crate::qconv::avx2::activation::{after, before};
use crate::qconv::avx2::dot::{Dot, Evex, Vex};
use crate::qconv::avx2::epilogue::{Bounds, scaled, store, store_bytes};
use crate::qconv::dense::Io;
use crate::qconv::pack::LANES;
use crate::qconv::tile::{Columns, Path};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Channels of a block, and bytes of a vector.
const BYTES: usize = 32;

/// How the input rows of a channel share a dword.
///
/// # Safety
/// Methods are inlined into functions that enable the features.
trait Taps {
    /// Rows of a dword.
    const LINES: usize;
    /// Dwords of each channel, as unpacks leave them, of that many rows.
    unsafe fn interleave(x: [__m256i; 4]) -> [__m256i; 4];
    /// Dwords of one value.
    unsafe fn splat(v: u8) -> __m256i;
    /// `acc + Σ x·w` by dword.
    unsafe fn sum(acc: __m256i, x: __m256i, w: __m256i) -> __m256i;
}

impl<D: Dot> Taps for D {
    const LINES: usize = 4;

    #[inline(always)]
    unsafe fn interleave(x: [__m256i; 4]) -> [__m256i; 4] {
        // SAFETY: by the caller's promise.
        unsafe {
            let (a, b) = (_mm256_unpacklo_epi8(x[0], x[1]), _mm256_unpackhi_epi8(x[0], x[1]));
            let (c, d) = (_mm256_unpacklo_epi8(x[2], x[3]), _mm256_unpackhi_epi8(x[2], x[3]));
            [
                _mm256_unpacklo_epi16(a, c),
                _mm256_unpackhi_epi16(a, c),
                _mm256_unpacklo_epi16(b, d),
                _mm256_unpackhi_epi16(b, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn splat(v: u8) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { _mm256_set1_epi8(v as i8) }
    }

    #[inline(always)]
    unsafe fn sum(acc: __m256i, x: __m256i, w: __m256i) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { D::dot(acc, x, w) }
    }
}

/// Rows of words.
struct Words;

impl Taps for Words {
    const LINES: usize = 2;

    #[inline(always)]
    unsafe fn interleave(x: [__m256i; 4]) -> [__m256i; 4] {
        // SAFETY: by the caller's promise.
        unsafe {
            let zero = _mm256_setzero_si256();
            let (a, b) = (_mm256_unpacklo_epi8(x[0], x[1]), _mm256_unpackhi_epi8(x[0], x[1]));
            [
                _mm256_unpacklo_epi8(a, zero),
                _mm256_unpackhi_epi8(a, zero),
                _mm256_unpacklo_epi8(b, zero),
                _mm256_unpackhi_epi8(b, zero),
            ]
        }
    }

    #[inline(always)]
    unsafe fn splat(v: u8) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { _mm256_set1_epi16(i16::from(v)) }
    }

    #[inline(always)]
    unsafe fn sum(acc: __m256i, x: __m256i, w: __m256i) -> __m256i {
        // SAFETY: by the caller's promise.
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(x, w)) }
    }
}

/// Staged columns of one block and strip, and what is computed from them.
struct Strip<'a> {
    dw: &'a Depthwise,
    block: &'a Block,
    staged: *mut u8,
    /// Bytes of a staged column.
    pitch: usize,
    columns: Columns,
    image: usize,
    /// First output row and column.
    oy: usize,
    ox: usize,
    /// Whether there are two rows.
    two: bool,
    /// Output columns.
    count: usize,
}

/// The most pixels whose sums are taken together.
const MOST: usize = 8;

impl Depthwise {
    /// One strip of output rows: as many as share staged columns.
    ///
    /// # Safety
    /// The level's instructions are there; `io` is valid for the geometry; the scratch has [`Depthwise::staged_bytes`].
    pub(super) unsafe fn strip_avx2(&self, image: usize, rows: Range<usize>, io: &Io<'_>, scratch: &mut [u8]) {
        let g = &self.geometry;
        let pitch = self.groups() * 4 * BYTES;
        for block in &self.blocks {
            for ox in (0..g.ow).step_by(self.strip_columns) {
                let count = self.strip_columns.min(g.ow - ox);
                let (staged, columns) = (scratch.as_mut_ptr(), self.columns(block));
                let oy = rows.start;
                let two = rows.len() == 2;
                let strip = Strip { dw: self, block, staged, pitch, columns, image, oy, two, ox, count };
                // SAFETY: as the caller's; the scratch holds a strip.
                unsafe {
                    match self.isa.level() {
                        Level::Avx2 => words::run(&strip, io),
                        _ if takes_evex() => evex::run(&strip, io),
                        _ => vex::run(&strip, io),
                    }
                }
            }
        }
    }
}

macro_rules! instructions {
    ($name:ident, $taps:ident, $features:literal) => {
        mod $name {
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) unsafe fn run(s: &Strip<'_>, io: &Io<'_>) {
                let g = &s.dw.geometry;
                // Sums of words over a larger kernel are reordered by the compiler until registers do not suffice.
                let known = g.kh == g.kw && (g.kw == 3 || $taps::LINES == 4);
                let k = if known { g.kw } else { 0 };
                // SAFETY: as the caller's.
                unsafe {
                    s.stage::<$taps>(io);
                    // Loops over a known kernel unroll: their exits would be mispredicted.
                    match (s.two, k) {
                        (true, 3) => pixels::<2, 3>(s, io),
                        (true, 5) => pixels::<2, 5>(s, io),
                        (true, _) => pixels::<2, 0>(s, io),
                        (false, 3) => pixels::<1, 3>(s, io),
                        (false, 5) => pixels::<1, 5>(s, io),
                        (false, _) => pixels::<1, 0>(s, io),
                    }
                }
            }

            /// All pixels of `RO` output rows.
            #[target_feature(enable = $features)]
            unsafe fn pixels<const RO: usize, const K: usize>(s: &Strip<'_>, io: &Io<'_>) {
                let mut ox = 0;
                // SAFETY: as the caller's.
                unsafe {
                    while ox + 4 <= s.count {
                        s.group::<$taps, RO, 4, K>(ox, io);
                        ox += 4;
                    }
                    if ox + 2 <= s.count {
                        s.group::<$taps, RO, 2, K>(ox, io);
                        ox += 2;
                    }
                    if ox < s.count {
                        s.group::<$taps, RO, 1, K>(ox, io);
                    }
                }
            }
        }
    };
}
instructions!(words, Words, "avx2,fma");
instructions!(vex, Vex, "avx2,fma,avxvnni");
instructions!(evex, Evex, "avx2,fma,avx512vl,avx512vnni");

impl Strip<'_> {
    /// Interleaves the input columns of the strip's outputs.
    #[inline(always)]
    unsafe fn stage<T: Taps>(&self, io: &Io<'_>) {
        let (dw, g, b) = (self.dw, &self.dw.geometry, self.block);
        let columns = dw.columns_of(self.count);
        let x0 = (self.ox * g.stride[1]) as isize + g.origin[1];
        // Columns before, inside and after the input.
        let left = (-x0).clamp(0, columns as isize) as usize;
        let inside = (g.w as isize - x0).clamp(left as isize, columns as isize) as usize;
        let end = io.x.as_ptr_range().end as usize;
        for group in 0..dw.groups() {
            let mut lines = [(dw.border[b.channel..].as_ptr(), 0); 4];
            for i in 0..T::LINES {
                let iy = (self.oy * g.stride[0] + (group * T::LINES + i) * g.dilation[0]) as isize + g.origin[0];
                if (0..g.h as isize).contains(&iy) {
                    let first = (self.image * g.h + iy as usize) * g.w * g.c + b.channel;
                    lines[i] = (io.x.as_ptr().wrapping_add(first).wrapping_offset(x0 * g.c as isize), g.c);
                }
            }
            let to = |column: usize| self.staged.wrapping_add(group * 4 * BYTES + column * self.pitch);
            // Columns of which whole vectors lie in the input; a border has slack.
            let mut whole = inside;
            for (line, step) in lines {
                if step > 0 {
                    let room = (end as isize - BYTES as isize - line as isize).div_euclid(step as isize) + 1;
                    whole = whole.min(room.max(left as isize) as usize);
                }
            }
            // SAFETY: columns outside the input are not read; what lies past the input's end is copied first.
            unsafe {
                let border = T::splat(dw.border[0]);
                for column in 0..left {
                    store_column([border; 4], to(column));
                }
                for column in inside..columns {
                    store_column([border; 4], to(column));
                }
                let mut from = [std::ptr::null(); 4];
                for i in 0..4 {
                    from[i] = lines[i].0.wrapping_add(left * lines[i].1);
                }
                let mut at = to(left);
                for column in left..inside {
                    let mut x = [border; 4];
                    for i in 0..T::LINES {
                        let cut = column >= whole && lines[i].1 > 0;
                        x[i] = if cut { narrow(from[i], b.width) } else { _mm256_loadu_si256(from[i].cast()) };
                        from[i] = from[i].wrapping_add(lines[i].1);
                    }
                    store_column(T::interleave(x), at);
                    at = at.wrapping_add(self.pitch);
                }
            }
        }
    }

    /// `OX` neighbouring pixels of `RO` rows: sums in registers, and from there by memory to the epilogue, which all
    /// kernels share.
    #[inline(always)]
    unsafe fn group<T: Taps, const RO: usize, const OX: usize, const K: usize>(&self, ox: usize, io: &Io<'_>) {
        let g = &self.dw.geometry;
        let mut sums = [const { MaybeUninit::<[__m256i; 4]>::uninit() }; MOST];
        let out = sums.as_mut_ptr().cast::<__m256i>();
        let first = (self.image * g.oh + self.oy) * g.ow + self.ox + ox;
        // SAFETY: all sums are written before they are read; pixels lie in the output.
        unsafe {
            for j in 0..4 {
                let acc = self.sums::<T, RO, OX, K>(ox, j);
                for row in 0..RO {
                    for i in 0..OX {
                        out.add((row * OX + i) * 4 + j).write(acc[row][i]);
                    }
                }
            }
            for row in 0..RO {
                let (y, r) = io.at(first + row * g.ow, self.block.channel);
                let sums = out.add(row * OX * 4).cast();
                match self.dw.epilogue.path {
                    Path::Plain => self.finish::<{ Path::Plain as u8 }>(sums, OX, y, io),
                    Path::Activation => self.finish::<{ Path::Activation as u8 }>(sums, OX, y, io),
                    _ => self.finish_general(sums, OX, y, r, io),
                }
            }
        }
    }

    /// Accumulators of vector `j`, for a `K`×`K` kernel or, where `K` is 0, for any.
    #[inline(always)]
    unsafe fn sums<T: Taps, const RO: usize, const OX: usize, const K: usize>(
        &self,
        ox: usize,
        j: usize,
    ) -> [[__m256i; OX]; RO] {
        let g = &self.dw.geometry;
        let (step, across) = (g.stride[1] * self.pitch, g.dilation[1] * self.pitch);
        // SAFETY: staged columns reach as far as the last tap of the last pixel.
        unsafe {
            let mut acc = [[_mm256_loadu_si256(self.columns.bias.add(8 * j).cast()); OX]; RO];
            let mut w = self.dw.weights.as_ptr().add(self.block.start + j * BYTES);
            let first = self.staged.add(ox * step + j * BYTES);
            let (groups, kw) = if K == 0 { (self.dw.groups(), g.kw) } else { (K.div_ceil(T::LINES), K) };
            for group in 0..groups {
                let mut x = first.add(group * 4 * BYTES);
                for _ in 0..kw {
                    let mut taps = [_mm256_setzero_si256(); RO];
                    for row in 0..RO {
                        taps[row] = _mm256_loadu_si256(w.add(row * 4 * BYTES).cast());
                    }
                    w = w.add(self.dw.rows * 4 * BYTES);
                    for i in 0..OX {
                        let x = _mm256_loadu_si256(x.add(i * step).cast());
                        for row in 0..RO {
                            acc[row][i] = T::sum(acc[row][i], x, taps[row]);
                        }
                    }
                    x = x.add(across);
                }
            }
            acc
        }
    }

    /// The epilogue of so many neighbouring pixels, by a path without residual.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn finish<const PATH: u8>(&self, sums: *const [__m256i; 4], n: usize, y: *mut u8, io: &Io<'_>) {
        let (e, c) = (&self.dw.epilogue, &self.columns);
        // SAFETY: columns are padded to a whole block; no more is stored than the width.
        unsafe {
            let bounds = Bounds::of(e);
            for i in 0..n {
                let (acc, y) = (*sums.add(i), y.add(i * io.y_stride));
                let mut x = [_mm256_setzero_ps(); 4];
                for v in 0..4 {
                    x[v] = scaled::<PATH>(acc[v], c, 8 * v);
                }
                let form = e.activation.as_ref();
                let words = [before::<PATH>(form, [x[0], x[1]]), before::<PATH>(form, [x[2], x[3]])];
                let q = bounds.apply(after::<PATH>(form, words));
                if c.width >= BYTES {
                    _mm256_storeu_si256(y.cast(), q);
                    continue;
                }
                store_bytes(_mm256_castsi256_si128(q), y, c.width.min(LANES));
                if c.width > LANES {
                    store_bytes(_mm256_extracti128_si256::<1>(q), y.add(LANES), c.width - LANES);
                }
            }
        }
    }

    /// The general epilogue of so many neighbouring pixels, whose operands stand in natural order.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn finish_general(&self, sums: *const [__m256i; 4], n: usize, y: *mut u8, r: *const u8, io: &Io<'_>) {
        let (e, c) = (&self.dw.epilogue, &self.columns);
        let (scale, float_bias) = (c.scale.wrapping_add(LANES), c.float_bias.wrapping_add(LANES));
        // SAFETY: columns are padded to a whole block; no more is stored than the width.
        unsafe {
            for i in 0..n {
                let (acc, y, r) = (*sums.add(i), y.add(i * io.y_stride * io.size), r.wrapping_add(i * io.r_stride));
                let low = [
                    _mm256_permute2x128_si256::<0x20>(acc[0], acc[1]),
                    _mm256_permute2x128_si256::<0x20>(acc[2], acc[3]),
                ];
                store(low, &Columns { width: c.width.min(LANES), ..*c }, e, y, r);
                if c.width > LANES {
                    let high = [
                        _mm256_permute2x128_si256::<0x31>(acc[0], acc[1]),
                        _mm256_permute2x128_si256::<0x31>(acc[2], acc[3]),
                    ];
                    let c = Columns { bias: c.bias, scale, float_bias, width: c.width - LANES };
                    store(high, &c, e, y.add(LANES * io.size), r.wrapping_add(LANES));
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn store_column(x: [__m256i; 4], to: *mut u8) {
    // SAFETY: the caller has room for four vectors.
    unsafe {
        for j in 0..4 {
            _mm256_storeu_si256(to.add(j * BYTES).cast(), x[j]);
        }
    }
}

/// The first bytes; the rest is zero.
#[inline(never)]
#[target_feature(enable = "avx2")]
unsafe fn narrow(p: *const u8, n: usize) -> __m256i {
    let mut bytes = [0u8; BYTES];
    // SAFETY: the caller has `n` bytes, at most 32.
    unsafe {
        std::ptr::copy_nonoverlapping(p, bytes.as_mut_ptr(), n);
        _mm256_loadu_si256(bytes.as_ptr().cast())
    }
}
