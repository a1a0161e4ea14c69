//! Depthwise kernels with `vpdpbusd`: four taps, or four rows, of a channel are interleaved into one dword.
//!
//! The unpacks that interleave leave channels in the order that the packs of the epilogue undo.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of an output pixel")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]
#![allow(clippy::manual_map, reason = "a closure would not have the caller's instruction set")]

use super::{Block, Depthwise, Kernel, Pixel};
use crate::qconv::avx512::epilogue::{lookup, store_f32};
use crate::qconv::avx512::vector::Vector;
use crate::qconv::dense::Io;
use crate::qconv::spec::OutputKind;
use crate::qconv::tile::{Columns, Epilogue};
use std::arch::x86_64::*;

/// Dwords of four bytes of a channel, one from each vector.
#[inline(always)]
unsafe fn interleave<V: Vector>(x: [V; 4]) -> [V; 4] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (a, b) = (x[0].unpack_lo8(x[1]), x[0].unpack_hi8(x[1]));
        let (c, d) = (x[2].unpack_lo8(x[3]), x[2].unpack_hi8(x[3]));
        [a.unpack_lo16(c), a.unpack_hi16(c), b.unpack_lo16(d), b.unpack_hi16(d)]
    }
}

/// `acc += x·w` for the four vectors of a block.
#[inline(always)]
unsafe fn dot<V: Vector>(acc: &mut [V; 4], x: &[V; 4], w: *const i8) {
    for j in 0..4 {
        // SAFETY: weights are packed in fours of vectors.
        unsafe { acc[j] = acc[j].dot(x[j], V::load_all(w.add(j * V::BYTES).cast())) };
    }
}

/// The four vectors at column `j·BYTES / 4` of a per-channel operand.
#[inline(always)]
unsafe fn column_of<V: Vector, T>(p: *const T, j: usize) -> *const T {
    // SAFETY: columns are padded to a whole block.
    unsafe { p.add(j * V::BYTES / 4) }
}

#[inline(always)]
unsafe fn bias<V: Vector>(c: &Columns) -> [V; 4] {
    let mut acc = [unsafe { V::zero() }; 4];
    for j in 0..4 {
        // SAFETY: columns are padded to a whole block.
        unsafe { acc[j] = V::load_all(column_of::<V, _>(c.bias, j).cast()) };
    }
    acc
}

/// The epilogue of one output pixel of a block.
#[inline(always)]
unsafe fn finish<V: Vector>(acc: [V; 4], c: &Columns, mask: u64, e: &Epilogue, y: *mut u8, r: *const u8) {
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

/// Bits of the first `width` bytes.
fn mask(width: usize) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

impl Depthwise {
    /// All channels of one output pixel.
    ///
    /// # Safety
    /// AVX-512 is there; the taps and the output are valid for all channels.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")]
    pub(super) unsafe fn pixel_avx512(&self, p: &Pixel<'_>) {
        for b in &self.blocks {
            // SAFETY: as the caller's.
            unsafe {
                match b.lanes {
                    64 => self.taps::<__m512i>(p, b),
                    32 => self.taps::<__m256i>(p, b),
                    _ => self.taps::<__m128i>(p, b),
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn taps<V: Vector>(&self, p: &Pixel<'_>, b: &Block) {
        // SAFETY: masked loads stay within the block's channels.
        unsafe {
            let (c, mask) = (self.columns(b), mask(b.width));
            let mut acc = bias::<V>(&c);
            let mut w = self.weights.as_ptr().add(b.start);
            for four in p.taps.chunks_exact(4) {
                let mut x = [V::zero(); 4];
                for i in 0..4 {
                    let at = (four[i] as *const u8).add(b.channel);
                    x[i] = if b.width == V::BYTES { V::load_all(at) } else { V::load(at, mask) };
                }
                dot(&mut acc, &interleave(x), w);
                w = w.add(4 * V::BYTES);
            }
            let (y, r) = (p.y.add(b.channel * p.size), p.r.wrapping_add(b.channel));
            finish(acc, &c, mask, &self.epilogue, y, r);
        }
    }

    /// One output row at stride 2, or two at stride 1, of a 3×3 kernel.
    ///
    /// # Safety
    /// AVX-512 is there; `io` is valid for the geometry.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")]
    pub(super) unsafe fn rows_3x3_avx512(&self, image: usize, oy: usize, io: &Io<'_>) {
        for b in &self.blocks {
            // SAFETY: as the caller's.
            unsafe {
                match (self.kernel, b.lanes) {
                    (Kernel::Rows3x3S2, 64) => self.slide_s2::<__m512i>(image, oy, io, b),
                    (Kernel::Rows3x3S2, 32) => self.slide_s2::<__m256i>(image, oy, io, b),
                    (Kernel::Rows3x3S2, _) => self.slide_s2::<__m128i>(image, oy, io, b),
                    (_, 64) => self.slide_s1::<__m512i>(image, oy, io, b),
                    (_, 32) => self.slide_s1::<__m256i>(image, oy, io, b),
                    (_, _) => self.slide_s1::<__m128i>(image, oy, io, b),
                }
            }
        }
    }

    /// Two output rows: column by column, keeping three.
    #[inline(always)]
    unsafe fn slide_s1<V: Vector>(&self, image: usize, oy: usize, io: &Io<'_>, b: &Block) {
        // SAFETY: columns check their bounds; pixels lie in the output.
        unsafe {
            let (g, c) = (&self.geometry, self.columns(b));
            let source = Lines::new(self, image, oy, io, b);
            let w = self.weights.as_ptr().add(b.start);
            let both = oy + 1 < g.oh;
            let m = (image * g.oh + oy) * g.ow;
            let mut x = [source.column::<V>(0), source.column::<V>(1), [V::zero(); 4]];
            for ox in 0..g.ow {
                x[2] = source.column(ox + 2);
                let (mut upper, mut lower) = (bias::<V>(&c), bias::<V>(&c));
                for (kx, x) in x.iter().enumerate() {
                    dot(&mut upper, x, w.add(kx * 4 * V::BYTES));
                    dot(&mut lower, x, w.add((3 + kx) * 4 * V::BYTES));
                }
                let (y, r) = io.at(m + ox, b.channel);
                finish(upper, &c, source.mask, &self.epilogue, y, r);
                if both {
                    let (y, r) = io.at(m + g.ow + ox, b.channel);
                    finish(lower, &c, source.mask, &self.epilogue, y, r);
                }
                x = [x[1], x[2], x[0]];
            }
        }
    }

    /// One output row: two new columns for each pixel.
    #[inline(always)]
    unsafe fn slide_s2<V: Vector>(&self, image: usize, oy: usize, io: &Io<'_>, b: &Block) {
        // SAFETY: columns check their bounds; pixels lie in the output.
        unsafe {
            let (g, c) = (&self.geometry, self.columns(b));
            let source = Lines::new(self, image, 2 * oy, io, b);
            let w = self.weights.as_ptr().add(b.start);
            let m = (image * g.oh + oy) * g.ow;
            let mut first = source.column::<V>(0);
            for ox in 0..g.ow {
                let mut acc = bias::<V>(&c);
                dot(&mut acc, &first, w);
                dot(&mut acc, &source.column(2 * ox + 1), w.add(4 * V::BYTES));
                first = source.column(2 * ox + 2);
                dot(&mut acc, &first, w.add(8 * V::BYTES));
                let (y, r) = io.at(m + ox, b.channel);
                finish(acc, &c, source.mask, &self.epilogue, y, r);
            }
        }
    }
}

/// Four input lines from which columns are taken; those outside read the border.
struct Lines {
    /// First channel of the block at column 0, and bytes to the next column: 0 outside.
    lines: [(*const u8, usize); 4],
    /// Input columns, and the column of tap 0.
    width: isize,
    origin: isize,
    border: u8,
    mask: u64,
    whole: bool,
}

impl Lines {
    /// Lines from input row `row + origin` on.
    fn new(dw: &Depthwise, image: usize, row: usize, io: &Io<'_>, b: &Block) -> Lines {
        let g = &dw.geometry;
        let mut lines = [(dw.border[b.channel..].as_ptr(), 0); 4];
        for (i, line) in lines.iter_mut().enumerate() {
            let iy = (row + i) as isize + g.origin[0];
            if (0..g.h as isize).contains(&iy) {
                *line = (io.x[((image * g.h + iy as usize) * g.w) * g.c + b.channel..].as_ptr(), g.c);
            }
        }
        Lines {
            lines,
            width: g.w as isize,
            origin: g.origin[1],
            border: dw.border[0],
            mask: mask(b.width),
            whole: b.width == b.lanes,
        }
    }

    /// Column `column + origin`, interleaved.
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, column: usize) -> [V; 4] {
        let ix = column as isize + self.origin;
        // SAFETY: the column was checked; masked loads stay within the block's channels.
        unsafe {
            if ix < 0 || ix >= self.width {
                return [V::splat8(self.border); 4];
            }
            let mut x = [V::zero(); 4];
            for i in 0..4 {
                let at = self.lines[i].0.add(ix as usize * self.lines[i].1);
                x[i] = if self.whole { V::load_all(at) } else { V::load(at, self.mask) };
            }
            interleave(x)
        }
    }
}
