//! 3×3 depthwise at stride 2: half of the columns serve one output only, so that they are not staged.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of an output row")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::avx512::{ACTIVATION, GENERAL, PLAIN, column_of, finish, interleave, words_of};
use super::{Block, Depthwise};
use crate::bytes512::ones;
use crate::qconv::avx512::epilogue::bounded;
use crate::qconv::avx512::vector::Vector;
use crate::qconv::dense::Io;
use crate::qconv::tile::Path;
use std::arch::x86_64::*;

/// Three input lines from which columns are taken; those outside read the border.
struct Lines {
    /// The block's first channel at column 0, and bytes to the next column: 0 outside.
    lines: [(*const u8, usize); 3],
    width: isize,
    border: u8,
    mask: u64,
    whole: bool,
}

impl Lines {
    /// Column `ix`, interleaved.
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, ix: isize) -> [V; 4] {
        // SAFETY: the column is checked; masked loads stay within the block's channels.
        unsafe {
            if ix < 0 || ix >= self.width {
                return [V::splat8(self.border); 4];
            }
            let mut x = [V::zero(); 4];
            for i in 0..3 {
                let at = self.lines[i].0.add(ix as usize * self.lines[i].1);
                x[i] = if self.whole { V::load_all(at) } else { V::load(at, self.mask) };
            }
            interleave(x)
        }
    }
}

impl Depthwise {
    /// Whether [`Depthwise::row_stride2_avx512`] may run.
    pub(super) fn is_3x3_stride2(&self) -> bool {
        let g = &self.geometry;
        [g.kh, g.kw] == [3, 3] && g.stride == [2, 2] && g.dilation == [1, 1]
    }

    /// One output row.
    ///
    /// # Safety
    /// AVX-512 is there; `io` is valid for the geometry, which is 3×3 at stride 2.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    pub(super) unsafe fn row_stride2_avx512(&self, image: usize, oy: usize, io: &Io<'_>, scratch: &mut [u8]) {
        for b in &self.blocks {
            // SAFETY: as the caller's.
            unsafe {
                match (b.lanes, self.epilogue.path) {
                    (32, _) if self.is_narrow(b) => self.strip_narrow::<__m256i>(image, oy..oy + 1, io, b, scratch),
                    (16, _) if self.is_narrow(b) => self.strip_narrow::<__m128i>(image, oy..oy + 1, io, b, scratch),
                    (64, Path::Plain) => self.slide::<__m512i, PLAIN>(image, oy, io, b),
                    (64, Path::Activation) => self.slide::<__m512i, ACTIVATION>(image, oy, io, b),
                    (64, _) => self.slide::<__m512i, GENERAL>(image, oy, io, b),
                    (32, _) => self.slide::<__m256i, GENERAL>(image, oy, io, b),
                    (..) => self.slide::<__m128i, GENERAL>(image, oy, io, b),
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2")]
    unsafe fn slide<V: Vector, const PATH: u8>(&self, image: usize, oy: usize, io: &Io<'_>, b: &Block) {
        let (g, c, e) = (&self.geometry, self.columns(b), &self.epilogue);
        let mut lines = [(self.border[b.channel..].as_ptr(), 0); 3];
        for (i, line) in lines.iter_mut().enumerate() {
            let iy = (2 * oy + i) as isize + g.origin[0];
            if (0..g.h as isize).contains(&iy) {
                *line = (io.x[((image * g.h + iy as usize) * g.w) * g.c + b.channel..].as_ptr(), g.c);
            }
        }
        let whole = b.width == b.lanes;
        let source = Lines { lines, width: g.w as isize, border: self.border[0], mask: ones(b.width), whole };
        let m = (image * g.oh + oy) * g.ow;
        let w = self.weights[b.start..].as_ptr().cast::<u8>();
        // SAFETY: columns check their bounds; pixels lie in the output; operands are padded to a block.
        unsafe {
            let mut first = source.column::<V>(g.origin[1]);
            for ox in 0..g.ow {
                let ix = 2 * ox as isize + g.origin[1];
                let (second, third) = (source.column::<V>(ix + 1), source.column::<V>(ix + 2));
                let mut acc = first;
                for j in 0..4 {
                    let w = w.add(j * V::BYTES);
                    acc[j] = V::load_all(column_of::<V, _>(c.bias, j).cast())
                        .dot(first[j], V::load_all(w))
                        .dot(second[j], V::load_all(w.add(4 * V::BYTES)))
                        .dot(third[j], V::load_all(w.add(8 * V::BYTES)));
                }
                first = third;
                let (y, r) = io.at(m + ox, b.channel);
                if PATH != GENERAL {
                    let low = words_of::<V, PATH>([acc[0], acc[1]], 0, &c, e);
                    let high = words_of::<V, PATH>([acc[2], acc[3]], 2, &c, e);
                    V::narrow(bounded(_mm512_packus_epi16(low, high), e)).store(y, source.mask);
                } else {
                    finish(acc, &c, source.mask, e, y, r);
                }
            }
        }
    }
}
