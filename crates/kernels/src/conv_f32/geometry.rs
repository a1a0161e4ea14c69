//! Where the taps of a convolution lie: sizes and origins that may also be negative, for the parts of a
//! transposed convolution.

use crate::ConvShape;
use crate::gemm_f32::{Lines, RowSink, Rows};

/// A window that slides over `x [n, h, w, channels]` and gives `oh × ow` results an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) n: usize,
    pub(super) h: usize,
    pub(super) w: usize,
    pub(super) channels: usize,
    pub(super) groups: usize,
    pub(super) kh: usize,
    pub(super) kw: usize,
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    /// The first window's first row and column: minus the padding.
    pub(super) origin: [isize; 2],
    pub(super) oh: usize,
    pub(super) ow: usize,
}

/// Where results go: element `offset + image · n + row · oy + pixel · ox + channel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) offset: usize,
    pub(super) image: usize,
    pub(super) row: usize,
    pub(super) pixel: usize,
}

/// The taps of a row or column that lie inside the input: from, to (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Position of tap 0, perhaps outside.
    pub(super) start: isize,
}

/// Taps `start + i · step`, `i < count`, that lie in `0..size`.
pub(super) fn span(start: isize, step: usize, count: usize, size: usize) -> Span {
    let before = |limit: isize| {
        let reach = (limit - start).max(0).cast_unsigned();
        // Windows are many, and a division takes as long as a few copies.
        if step == 1 { reach.min(count) } else { reach.div_ceil(step).min(count) }
    };
    let (from, to) = (before(0), before(size.cast_signed()));
    Span { from, to: to.max(from), start }
}

impl Geometry {
    pub(super) fn new(s: &ConvShape) -> Geometry {
        Geometry {
            n: s.n,
            h: s.h,
            w: s.w,
            channels: s.c_in,
            groups: s.groups,
            kh: s.kh,
            kw: s.kw,
            stride: s.stride,
            dilation: s.dilation,
            origin: [-s.pad[0].cast_signed(), -s.pad[1].cast_signed()],
            oh: s.oh(),
            ow: s.ow(),
        }
    }

    /// Results in all images.
    pub(super) fn pixels(&self) -> usize {
        self.n * self.oh * self.ow
    }

    /// Whether every result sees its own pixel only.
    fn is_pixelwise(&self) -> bool {
        let one = self.kh == 1 && self.kw == 1 && self.stride == [1, 1] && self.origin == [0, 0];
        one && self.oh == self.h && self.ow == self.w
    }

    /// Image, row and column of a result.
    pub(super) fn position(&self, pixel: usize) -> (usize, usize, usize) {
        let (line, ox) = (pixel / self.ow, pixel % self.ow);
        if self.n == 1 { (0, line, ox) } else { (line / self.oh, line % self.oh, ox) }
    }

    pub(super) fn rows_of(&self, oy: usize) -> Span {
        let start = (oy * self.stride[0]).cast_signed() + self.origin[0];
        span(start, self.dilation[0], self.kh, self.h)
    }

    pub(super) fn cols_of(&self, ox: usize) -> Span {
        let start = (ox * self.stride[1]).cast_signed() + self.origin[1];
        span(start, self.dilation[1], self.kw, self.w)
    }

    /// How many results from column `ox` on, up to column `end`, have windows that see no padding beside the input.
    pub(super) fn whole_from(&self, ox: usize, end: usize) -> usize {
        let Span { from, to, start } = self.cols_of(ox);
        if from > 0 || to < self.kw {
            return 0;
        }
        let reach = (self.kw - 1) * self.dilation[1] + 1;
        ((self.w - reach - start.cast_unsigned()) / self.stride[1] + 1).min(end - ox)
    }

    /// Element index of tap (ky, kx), which must lie inside, in image `n`.
    pub(super) fn at(&self, n: usize, rows: Span, ky: usize, cols: Span, kx: usize) -> usize {
        let y = (rows.start + (ky * self.dilation[0]).cast_signed()).cast_unsigned();
        let x = (cols.start + (kx * self.dilation[1]).cast_signed()).cast_unsigned();
        ((n * self.h + y) * self.w + x) * self.channels
    }
}

impl Placement {
    /// Pixels at `stride`, one image after the other.
    pub(super) fn dense(g: &Geometry, stride: usize, offset: usize) -> Placement {
        Placement { offset, image: g.oh * g.ow * stride, row: g.ow * stride, pixel: stride }
    }

    pub(super) fn of(&self, (n, oy, ox): (usize, usize, usize)) -> usize {
        self.offset + n * self.image + oy * self.row + ox * self.pixel
    }
}

/// The rows of the implicit matrix: one window each, taps in order of row, column and channel.
pub(super) struct Windows<'a> {
    pub(super) x: &'a [f32],
    pub(super) geometry: Geometry,
    pub(super) place: Placement,
}

impl Rows for Windows<'_> {
    fn gather(&self, group: usize, row: usize, sink: &mut RowSink<'_>) {
        let g = &self.geometry;
        let each = g.channels / g.groups;
        if g.is_pixelwise() {
            let start = row * g.channels + group * each;
            sink.push(&self.x[start..start + each]);
            return;
        }
        let (n, oy, ox) = g.position(row);
        let (rows, cols) = (g.rows_of(oy), g.cols_of(ox));
        sink.zeros(rows.from * g.kw * each);
        for ky in rows.from..rows.to {
            sink.zeros(cols.from * each);
            if g.groups == 1 && g.dilation[1] == 1 && cols.from < cols.to {
                let start = g.at(n, rows, ky, cols, cols.from);
                sink.push(&self.x[start..start + (cols.to - cols.from) * each]);
            } else {
                for kx in cols.from..cols.to {
                    let start = g.at(n, rows, ky, cols, kx) + group * each;
                    sink.push(&self.x[start..start + each]);
                }
            }
            sink.zeros((g.kw - cols.to) * each);
        }
        sink.zeros((g.kh - rows.to) * g.kw * each);
    }

    /// Windows of one line that see no padding: each row of taps is a piece.
    fn lines(&self, group: usize, row: usize, count: usize) -> Option<Lines<'_>> {
        let g = &self.geometry;
        let each = g.channels / g.groups;
        let (first, pitch) = if g.is_pixelwise() {
            (row * g.channels, g.channels)
        } else {
            let (n, oy, ox) = g.position(row);
            let (rows, cols) = (g.rows_of(oy), g.cols_of(ox));
            let together = g.kw == 1 || g.groups == 1 && g.dilation[1] == 1;
            if g.kh * g.kw == 0 || !together || (rows.from, rows.to) != (0, g.kh) || g.whole_from(ox, g.ow) < count {
                return None;
            }
            (g.at(n, rows, 0, cols, 0), g.stride[1] * g.channels)
        };
        // Rows that fall into the same sets of the cache would drive each other out.
        if pitch % 1024 == 0 {
            return None;
        }
        let step = g.dilation[0] * g.w * g.channels;
        Some(Lines { data: &self.x[first + group * each..], pitch, depth: g.kw * each, step })
    }

    fn place(&self, row: usize, at: &mut [usize]) {
        let (g, p) = (&self.geometry, &self.place);
        // Divisions are felt where the depth is small.
        let even = p.row == g.ow * p.pixel && p.image == g.oh * p.row;
        for (row, at) in (row..).zip(at) {
            *at = if even { p.offset + row * p.pixel } else { p.of(g.position(row)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_the_taps_inside() {
        assert_eq!(span(-1, 1, 3, 5), Span { from: 1, to: 3, start: -1 });
        assert_eq!(span(4, 1, 3, 5), Span { from: 0, to: 1, start: 4 });
        assert_eq!(span(-3, 2, 3, 1), Span { from: 2, to: 2, start: -3 });
        assert_eq!(span(9, 1, 3, 5), Span { from: 0, to: 0, start: 9 });
        assert_eq!(span(-9, 1, 3, 5), Span { from: 3, to: 3, start: -9 });
    }
}
