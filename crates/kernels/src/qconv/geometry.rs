//! Where the taps of an output pixel lie in memory.

use crate::ConvShape;

/// A convolution's walk over its input, in bytes: transposed convolutions become several of these.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub n: usize,
    pub h: usize,
    pub w: usize,
    /// Channels of a pixel, all groups.
    pub c: usize,
    pub oh: usize,
    pub ow: usize,
    pub kh: usize,
    pub kw: usize,
    pub stride: [usize; 2],
    pub dilation: [usize; 2],
    /// Input row and column of the first tap of the first output pixel; negative in padding.
    pub origin: [isize; 2],
}

impl Geometry {
    pub fn new(s: &ConvShape) -> Geometry {
        Geometry {
            n: s.n,
            h: s.h,
            w: s.w,
            c: s.c_in,
            oh: s.oh(),
            ow: s.ow(),
            kh: s.kh,
            kw: s.kw,
            stride: s.stride,
            dilation: s.dilation,
            origin: [-(s.pad[0] as isize), -(s.pad[1] as isize)],
        }
    }

    /// Output pixels of all images.
    pub fn pixels(&self) -> usize {
        self.n * self.oh * self.ow
    }

    /// Input rows and columns from the first tap of the first output to the last tap of the last.
    pub fn span(&self) -> [usize; 2] {
        let span = |o: usize, k: usize, i: usize| (o - 1) * self.stride[i] + (k - 1) * self.dilation[i] + 1;
        [span(self.oh, self.kh, 0), span(self.ow, self.kw, 1)]
    }

    /// Whether every tap of every output lies inside the input.
    pub fn inside(&self) -> bool {
        let [sh, sw] = self.span();
        let fits = |origin: isize, span: usize, size: usize| origin >= 0 && origin as usize + span <= size;
        fits(self.origin[0], sh, self.h) && fits(self.origin[1], sw, self.w)
    }
}

/// A dense walk without borders: over the input itself, or over a copy of it that has them.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    /// Byte of the first tap of the first output.
    pub start: usize,
    /// Bytes from an image to the next.
    pub image: usize,
    /// Bytes from an output row to the next.
    pub down: usize,
    /// Bytes from an output pixel to the next.
    pub right: usize,
    pub oh: usize,
    pub ow: usize,
}

impl Walk {
    /// The pixel after the last that follows `m` in even steps of `right`.
    #[inline]
    pub fn even_until(&self, m: usize) -> usize {
        if self.down != self.ow * self.right {
            (m / self.ow + 1) * self.ow
        } else if self.image != self.oh * self.down {
            let image = self.oh * self.ow;
            (m / image + 1) * image
        } else {
            usize::MAX
        }
    }

    /// Byte offsets of the first taps of the output pixels from `m` on.
    #[inline]
    pub fn offsets(&self, m: usize, out: &mut [usize]) {
        let (mut ox, row) = (m % self.ow, m / self.ow);
        let (mut oy, image) = (row % self.oh, row / self.oh);
        let mut line = self.start + image * self.image + oy * self.down;
        for o in out.iter_mut() {
            *o = line + ox * self.right;
            ox += 1;
            if ox == self.ow {
                (ox, oy) = (0, oy + 1);
                line += self.down;
                if oy == self.oh {
                    oy = 0;
                    line = line.wrapping_add(self.image).wrapping_sub(self.oh * self.down);
                }
            }
        }
    }
}

/// Where output pixels go: a dense list of them, or a grid of every `step`-th row and column.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    /// First pixel.
    pub start: usize,
    /// Pixels from an output pixel, row and image to the next.
    pub right: usize,
    pub down: usize,
    pub image: usize,
    pub oh: usize,
    pub ow: usize,
}

impl Placement {
    /// Pixel after pixel.
    pub fn dense(oh: usize, ow: usize) -> Placement {
        Placement { start: 0, right: 1, down: ow, image: oh * ow, oh, ow }
    }

    /// Whether output pixel `m` is pixel `m` of the tensor.
    pub fn is_dense(&self) -> bool {
        self.start == 0 && self.right == 1 && self.down == self.ow && self.image == self.oh * self.ow
    }

    /// The tensor's pixel of output pixel `m`.
    #[inline]
    pub fn at(&self, m: usize) -> usize {
        let (ox, row) = (m % self.ow, m / self.ow);
        self.start + row / self.oh * self.image + row % self.oh * self.down + ox * self.right
    }
}
