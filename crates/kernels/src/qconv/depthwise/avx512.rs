//! Depthwise kernels with `vpdpbusd`: four input rows of a channel are interleaved into one dword.
//!
//! Columns are staged, interleaved and with their borders, in a scratch that stays in L1; output rows share them where
//! their input rows fill no more dwords than those of one. The unpacks that interleave leave channels in the order that the packs of the epilogue undo.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of an output pixel")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
#![allow(clippy::manual_map, reason = "a closure would not have the caller's instruction set")]

use super::{Block, Depthwise};
use crate::buffer::ALIGN;
use crate::bytes512::ones;
use crate::qconv::avx512::epilogue::{bounded, lookup, scaled_by, store_f32, words};
use crate::qconv::avx512::vector::Vector;
use crate::qconv::dense::Io;
use crate::qconv::spec::OutputKind;
use crate::qconv::tile::{Columns, Epilogue, Path};
use std::arch::x86_64::*;
use std::ops::Range;

/// Dwords of four bytes of a channel, one from each vector.
#[inline(always)]
pub(super) unsafe fn interleave<V: Vector>(x: [V; 4]) -> [V; 4] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (a, b) = (x[0].unpack_lo8(x[1]), x[0].unpack_hi8(x[1]));
        let (c, d) = (x[2].unpack_lo8(x[3]), x[2].unpack_hi8(x[3]));
        [a.unpack_lo16(c), a.unpack_hi16(c), b.unpack_lo16(d), b.unpack_hi16(d)]
    }
}

/// Bytes that may be read beyond a quarter's columns: two vectors.
pub(super) const BESIDE: usize = 128;

/// The four vectors at column `j·BYTES / 4` of a per-channel operand.
#[inline(always)]
pub(super) unsafe fn column_of<V: Vector, T>(p: *const T, j: usize) -> *const T {
    // SAFETY: columns are padded to a whole block.
    unsafe { p.add(j * V::BYTES / 4) }
}

/// The epilogue of one output pixel of a block.
#[inline(always)]
pub(super) unsafe fn finish<V: Vector>(acc: [V; 4], c: &Columns, mask: u64, e: &Epilogue, y: *mut u8, r: *const u8) {
    // SAFETY: columns are padded to a whole block; loads and stores are masked.
    unsafe {
        if e.out == OutputKind::F32 {
            return finish_f32(acc, c, e, y.cast(), r);
        }
        let top = (e.qmax - e.zero_point) as f32;
        let mut q = acc;
        let r = match e.residual {
            Some(_) => interleave([V::load(r, mask), V::zero(), V::zero(), V::zero()]),
            None => acc,
        };
        for j in 0..4 {
            let bias = if e.float_bias { column_of::<V, _>(c.float_bias, j) } else { std::ptr::null() };
            let residual = match e.residual {
                Some((m, z)) => Some((r[j], m, z)),
                None => None,
            };
            q[j] = acc[j].requantize(column_of::<V, _>(c.scale, j), bias, residual, top);
        }
        let q = V::pack(q, e.zero_point, e.qmin);
        let q = if let Some(t) = &e.table { V::narrow(lookup(q.widen(), t.as_ptr())) } else { q };
        q.store(y, mask);
    }
}

/// Floats are stored in natural order, as their multipliers are: the accumulators are put back by way of memory.
#[inline(always)]
unsafe fn finish_f32<V: Vector>(acc: [V; 4], c: &Columns, e: &Epilogue, y: *mut f32, r: *const u8) {
    let mut spilled = [[0i32; 16]; 4];
    for (j, acc) in acc.iter().enumerate() {
        let mut lanes = [[0i32; 4]; 4];
        // SAFETY: a vector has at most the 64 bytes of `lanes`; a mask of ones stores all of them.
        unsafe { acc.store(lanes.as_mut_ptr().cast(), u64::MAX) };
        for (lane, dwords) in lanes.iter().enumerate() {
            spilled[lane][4 * j..4 * j + 4].copy_from_slice(dwords);
        }
    }
    for (v, acc) in spilled.iter().enumerate().take(c.width.div_ceil(16)) {
        // SAFETY: by the caller's promise.
        unsafe { store_f32(_mm512_loadu_si512(acc.as_ptr().cast()), c, v * 16, e, y, r) };
    }
}

/// Words of outputs, zero points included, of vectors `j` and `j + 1` of the accumulators, by a path that has neither
/// residual nor table: of whole vectors, as narrow blocks have kernels of their own.
#[inline(always)]
pub(super) unsafe fn words_of<V: Vector, const PATH: u8>(acc: [V; 2], j: usize, c: &Columns, e: &Epilogue) -> __m512i {
    let lanes = V::BYTES / 4;
    // SAFETY: columns are padded to a whole block.
    unsafe {
        let low = scaled_by::<PATH>(acc[0].widen(), c, j * lanes);
        words::<PATH>([low, scaled_by::<PATH>(acc[1].widen(), c, (j + 1) * lanes)], e)
    }
}

pub(super) const PLAIN: u8 = Path::Plain as u8;
pub(super) const ACTIVATION: u8 = Path::Activation as u8;
pub(super) const GENERAL: u8 = Path::General as u8;

/// Where the interleaved columns of a strip lie: by four input rows and quarter of the channels.
pub(super) struct Staged {
    start: *mut u8,
    /// Bytes from four rows to the next, and from a quarter to the next.
    quad: usize,
    quarter: usize,
    /// Bytes of a column's quarter, or from there to the next column's.
    pitch: usize,
    /// Columns from which pixels start come first, then those one further.
    stride: usize,
    /// Columns of each of these.
    each: usize,
}

impl Staged {
    /// All of a column together.
    fn by_column(dw: &Depthwise, bytes: usize, start: *mut u8) -> Staged {
        Staged { start, quad: 4 * bytes, quarter: bytes, pitch: dw.groups() * 4 * bytes, stride: 1, each: 0 }
    }

    /// All columns of a quarter together, so that those of neighbouring pixels are neighbours.
    pub(super) fn side_by_side(dw: &Depthwise, count: usize, bytes: usize, start: *mut u8) -> Staged {
        let (stride, each) = (dw.geometry.stride[1], dw.columns_of(count).div_ceil(dw.geometry.stride[1]));
        let quarter = (stride * each * bytes + BESIDE).next_multiple_of(ALIGN);
        Staged { start, quad: 4 * quarter, quarter, pitch: bytes, stride, each }
    }

    /// Bytes before a column.
    #[inline(always)]
    pub(super) fn column(&self, column: usize) -> usize {
        let at = if self.stride == 1 { column } else { column % self.stride * self.each + column / self.stride };
        at * self.pitch
    }

    #[inline(always)]
    pub(super) fn at(&self, quad: usize, quarter: usize) -> *mut u8 {
        self.start.wrapping_add(quad * self.quad + quarter * self.quarter)
    }
}

/// Staged columns of one strip, and what is computed from them.
struct Strip<'a> {
    staged: *const u8,
    /// Bytes of a staged column.
    pitch: usize,
    weights: *const i8,
    columns: Columns,
    mask: u64,
    dw: &'a Depthwise,
    /// First output pixel of the upper row.
    pixel: usize,
    channel: usize,
}

/// Does something for each group of rows, first of four, if they are of a 5×5 kernel, then of two and one, with the size of
/// a known kernel `k` and the path. A closure would not have the caller's instruction set.
macro_rules! each_rows {
    ($dw:expr, $rows:expr, $k:expr, |$row:ident, $RO:ident, $K:ident, $PATH:ident| $do:block) => {{
        let mut $row = 0;
        macro_rules! of {
            ($ro:literal, $kernel:literal, $path:ident) => {{
                const $RO: usize = $ro;
                const $K: usize = $kernel;
                const $PATH: u8 = $path;
                $do;
                $ro
            }};
        }
        macro_rules! known {
            ($path:ident, $left:expr) => {
                match ($left, $k) {
                    (4.., 5) => of!(4, 5, $path),
                    (2.., 5) => of!(2, 5, $path),
                    (_, 5) => of!(1, 5, $path),
                    (2.., 3) => of!(2, 3, $path),
                    (_, 3) => of!(1, 3, $path),
                    (2.., _) => of!(2, 0, $path),
                    (..) => of!(1, 0, $path),
                }
            };
        }
        while $row < $rows.len() {
            let left = $rows.len() - $row;
            $row += match $dw.epilogue.path {
                Path::Plain => known!(PLAIN, left),
                Path::Activation => known!(ACTIVATION, left),
                _ if left >= 2 => of!(2, 0, GENERAL),
                _ => of!(1, 0, GENERAL),
            };
        }
    }};
}
pub(super) use each_rows;

impl Depthwise {
    /// Output rows that share staged columns.
    ///
    /// # Safety
    /// AVX-512 is there; `io` is valid for the geometry; the scratch has [`Depthwise::staged_bytes`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    pub(super) unsafe fn strip_avx512(&self, image: usize, rows: Range<usize>, io: &Io<'_>, scratch: &mut [u8]) {
        for b in &self.blocks {
            // SAFETY: as the caller's.
            unsafe {
                match b.lanes {
                    32 if self.is_narrow(b) => self.strip_narrow::<__m256i>(image, rows.clone(), io, b, scratch),
                    16 if self.is_narrow(b) => self.strip_narrow::<__m128i>(image, rows.clone(), io, b, scratch),
                    64 => self.strip_of::<__m512i>(image, rows.clone(), io, b, scratch),
                    32 => self.strip_of::<__m256i>(image, rows.clone(), io, b, scratch),
                    _ => self.strip_of::<__m128i>(image, rows.clone(), io, b, scratch),
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    unsafe fn strip_of<V: Vector>(&self, image: usize, rows: Range<usize>, io: &Io<'_>, b: &Block, scratch: &mut [u8]) {
        let g = &self.geometry;
        let staged = Staged::by_column(self, V::BYTES, scratch.as_mut_ptr());
        let mut strip = Strip {
            staged: staged.start,
            pitch: staged.pitch,
            weights: self.weights[b.start..].as_ptr(),
            columns: self.columns(b),
            mask: ones(b.width),
            dw: self,
            pixel: 0,
            channel: b.channel,
        };
        // Loops over a known kernel unroll: their exits would be mispredicted.
        let k = if g.kh == g.kw && V::BYTES == 64 { g.kw } else { 0 };
        for ox in (0..g.ow).step_by(self.strip_columns) {
            let count = self.strip_columns.min(g.ow - ox);
            // SAFETY: the scratch holds a strip; pixels lie in the output.
            unsafe {
                self.stage::<V>(image, rows.start, ox, count, io, b, &staged);
                each_rows!(self, rows, k, |row, RO, K, PATH| {
                    strip.weights = self.weights[b.start..].as_ptr().add(row * 4 * V::BYTES);
                    strip.pixel = (image * g.oh + rows.start + row) * g.ow + ox;
                    strip.pixels::<V, RO, K, PATH>(count, io);
                });
            }
        }
    }

    /// Interleaves the input columns of `count` outputs from `ox` on.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    #[allow(clippy::too_many_arguments, reason = "a position in the output and the operands")]
    pub(super) unsafe fn stage<V: Vector>(
        &self,
        image: usize,
        oy: usize,
        ox: usize,
        count: usize,
        io: &Io<'_>,
        b: &Block,
        staged: &Staged,
    ) {
        let g = &self.geometry;
        let columns = self.columns_of(count);
        let x0 = (ox * g.stride[1]) as isize + g.origin[1];
        // Columns before, inside and after the input.
        let left = (-x0).clamp(0, columns as isize) as usize;
        let inside = (g.w as isize - x0).clamp(left as isize, columns as isize) as usize;
        let mask = ones(b.width);
        // Whole vectors of pixels, where they lie side by side in the input and in what is staged.
        let side = if g.c == V::BYTES && staged.pitch == g.c && g.stride[1] == 1 { 64 / V::BYTES } else { 0 };
        for quad in 0..self.groups() {
            let mut lines = [(self.border[b.channel..].as_ptr(), 0); 4];
            for (i, line) in lines.iter_mut().enumerate() {
                let iy = (oy * g.stride[0] + (quad * 4 + i) * g.dilation[0]) as isize + g.origin[0];
                if (0..g.h as isize).contains(&iy) {
                    let first = (image * g.h + iy as usize) * g.w * g.c + b.channel;
                    *line = (io.x.as_ptr().wrapping_add(first).wrapping_offset(x0 * g.c as isize), g.c);
                }
            }
            let out: [*mut u8; 4] = [0, 1, 2, 3].map(|quarter| staged.at(quad, quarter));
            // SAFETY: columns outside the input are not read; masked loads stay within the block's channels.
            unsafe {
                let border = V::splat8(self.border[0]);
                for column in (0..left).chain(inside..columns) {
                    for j in 0..4 {
                        border.store(out[j].add(staged.column(column)), u64::MAX);
                    }
                }
                let mut column = left;
                while side > 0 && column + side <= inside {
                    let mut x = [_mm512_setzero_si512(); 4];
                    for i in 0..4 {
                        let (line, step) = lines[i];
                        x[i] = if step == 0 {
                            V::spread(line)
                        } else {
                            __m512i::load_all(line.wrapping_add(column * step))
                        };
                    }
                    let x = interleave(x);
                    for j in 0..4 {
                        x[j].store(out[j].add(staged.column(column)), u64::MAX);
                    }
                    column += side;
                }
                for column in column..inside {
                    let mut x = [V::zero(); 4];
                    for i in 0..4 {
                        let at = lines[i].0.wrapping_add(column * lines[i].1);
                        x[i] = if b.width == V::BYTES { V::load_all(at) } else { V::load(at, mask) };
                    }
                    let x = interleave(x);
                    for j in 0..4 {
                        x[j].store(out[j].add(staged.column(column)), u64::MAX);
                    }
                }
            }
        }
    }
}

impl Strip<'_> {
    /// `count` pixels of `RO` output rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    unsafe fn pixels<V: Vector, const RO: usize, const K: usize, const PATH: u8>(&self, count: usize, io: &Io<'_>) {
        let mut ox = 0;
        // SAFETY: by the caller's promise.
        unsafe {
            while ox + 2 <= count {
                self.group::<V, RO, 2, K, PATH>(ox, io);
                ox += 2;
            }
            if ox < count {
                self.group::<V, RO, 1, K, PATH>(ox, io);
            }
        }
    }

    /// `OX` neighbouring pixels of `RO` rows.
    #[inline(always)]
    unsafe fn group<V: Vector, const RO: usize, const OX: usize, const K: usize, const PATH: u8>(
        &self,
        ox: usize,
        io: &Io<'_>,
    ) {
        let (e, c) = (&self.dw.epilogue, &self.columns);
        let width = self.dw.geometry.ow;
        // SAFETY: by the caller's promise.
        unsafe {
            if PATH == GENERAL {
                let mut acc = [[[V::zero(); 4]; OX]; RO];
                for j in 0..4 {
                    let sums = self.sums::<V, RO, OX, K>(ox, j);
                    for (row, sums) in acc.iter_mut().zip(sums) {
                        for (acc, sum) in row.iter_mut().zip(sums) {
                            acc[j] = sum;
                        }
                    }
                }
                for (row, acc) in acc.iter().enumerate() {
                    for (i, acc) in acc.iter().enumerate() {
                        let (y, r) = io.at(self.pixel + row * width + ox + i, self.channel);
                        finish(*acc, c, self.mask, e, y, r);
                    }
                }
                return;
            }
            let mut halves = [[[_mm512_setzero_si512(); OX]; RO]; 2];
            for half in 0..2 {
                let low = self.sums::<V, RO, OX, K>(ox, 2 * half);
                let high = self.sums::<V, RO, OX, K>(ox, 2 * half + 1);
                for row in 0..RO {
                    for i in 0..OX {
                        halves[half][row][i] = words_of::<V, PATH>([low[row][i], high[row][i]], 2 * half, c, e);
                    }
                }
            }
            for row in 0..RO {
                for i in 0..OX {
                    let (y, _) = io.at(self.pixel + row * width + ox + i, self.channel);
                    let bytes = bounded(_mm512_packus_epi16(halves[0][row][i], halves[1][row][i]), e);
                    V::narrow(bytes).store(y, self.mask);
                }
            }
        }
    }

    /// Accumulators of vector `j`, for a `K`×`K` kernel or, where `K` is 0, for any.
    #[inline(always)]
    unsafe fn sums<V: Vector, const RO: usize, const OX: usize, const K: usize>(
        &self,
        ox: usize,
        j: usize,
    ) -> [[V; OX]; RO] {
        let g = &self.dw.geometry;
        let (step, across) = (g.stride[1] * self.pitch, g.dilation[1] * self.pitch);
        // SAFETY: staged columns reach as far as the last tap of the last pixel.
        unsafe {
            let mut acc = [[V::load_all(column_of::<V, _>(self.columns.bias, j).cast()); OX]; RO];
            let mut w = self.weights.add(j * V::BYTES).cast::<u8>();
            let first = self.staged.add(ox * step + j * V::BYTES);
            let (quads, kw) = if K == 0 { (self.dw.groups(), g.kw) } else { (K.div_ceil(4), K) };
            for quad in 0..quads {
                let mut x = first.add(quad * 4 * V::BYTES);
                for _ in 0..kw {
                    let mut taps = [V::zero(); RO];
                    for row in 0..RO {
                        taps[row] = V::load_all(w.add(row * 4 * V::BYTES));
                    }
                    w = w.add(self.dw.rows * 4 * V::BYTES);
                    for i in 0..OX {
                        let x = V::load_all(x.add(i * step));
                        for row in 0..RO {
                            acc[row][i] = acc[row][i].dot(x, taps[row]);
                        }
                    }
                    x = x.add(across);
                }
            }
            acc
        }
    }
}
