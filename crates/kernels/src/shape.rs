//! The geometry of a 2-D convolution, shared by the integer and the float kernels.

use crate::KernelError;

/// A 2-D convolution over channels-last activations: `x [n, h, w, c_in]`, weights
/// `[c_out, kh, kw, c_in / groups]`, `y [n, oh, ow, c_out]`.
///
/// One dimension is `h = kh = 1`; a linear layer over `r` rows is `n = h = 1, w = r` with a 1×1 kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Batch.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Input channels.
    pub c_in: usize,
    /// Output channels.
    pub c_out: usize,
    /// Kernel rows.
    pub kh: usize,
    /// Kernel columns.
    pub kw: usize,
    /// Step between outputs: rows, columns.
    pub stride: [usize; 2],
    /// Padding: top, left, bottom, right.
    pub pad: [usize; 4],
    /// Step between taps: rows, columns.
    pub dilation: [usize; 2],
    /// Channel groups; divides `c_in` and `c_out`.
    pub groups: usize,
}

impl ConvShape {
    /// A linear layer, `[rows, c_in] · [c_out, c_in]ᵀ`, as a 1×1 convolution.
    pub fn linear(rows: usize, c_in: usize, c_out: usize) -> ConvShape {
        ConvShape {
            n: 1,
            h: 1,
            w: rows,
            c_in,
            c_out,
            kh: 1,
            kw: 1,
            stride: [1, 1],
            pad: [0; 4],
            dilation: [1, 1],
            groups: 1,
        }
    }

    /// A `k`×`k` convolution of one image: stride 1, no padding, dilation 1, one group.
    pub fn new(h: usize, w: usize, c_in: usize, c_out: usize, k: usize) -> ConvShape {
        ConvShape { h, w, kh: k, kw: k, ..ConvShape::linear(1, c_in, c_out) }
    }

    /// The same with stride `s` in both directions.
    pub fn with_stride(self, s: usize) -> ConvShape {
        ConvShape { stride: [s; 2], ..self }
    }

    /// The same with `p` pixels of padding on every side.
    pub fn with_pad(self, p: usize) -> ConvShape {
        ConvShape { pad: [p; 4], ..self }
    }

    /// The same with groups.
    pub fn with_groups(self, groups: usize) -> ConvShape {
        ConvShape { groups, ..self }
    }

    /// Output rows; 0 where the kernel is larger than the padded input.
    pub fn oh(&self) -> usize {
        out_size(self.h + self.pad[0] + self.pad[2], self.kh, self.stride[0], self.dilation[0])
    }

    /// Output columns; 0 where the kernel is larger than the padded input.
    pub fn ow(&self) -> usize {
        out_size(self.w + self.pad[1] + self.pad[3], self.kw, self.stride[1], self.dilation[1])
    }

    /// Pixels of all outputs.
    pub fn pixels(&self) -> usize {
        self.n * self.oh() * self.ow()
    }

    /// Multiply-accumulates of one run.
    pub fn macs(&self) -> usize {
        self.out_len() * self.kh * self.kw * (self.c_in / self.groups.max(1))
    }

    /// Elements of the input.
    pub fn in_len(&self) -> usize {
        self.n * self.h * self.w * self.c_in
    }

    /// Elements of the output, tightly packed.
    pub fn out_len(&self) -> usize {
        self.pixels() * self.c_out
    }

    /// Elements of the weights.
    pub fn weight_len(&self) -> usize {
        self.c_out * self.kh * self.kw * (self.c_in / self.groups.max(1))
    }

    /// Whether every group has one input channel and one output channel.
    pub fn is_depthwise(&self) -> bool {
        self.groups == self.c_in && self.groups == self.c_out
    }

    /// Whether the convolution is a matrix product over pixels: 1×1, stride 1, no padding.
    pub fn is_pointwise(&self) -> bool {
        self.kh == 1 && self.kw == 1 && self.stride == [1, 1] && self.pad == [0; 4]
    }

    /// # Errors
    /// A zero stride, dilation, kernel or channel count, or groups that do not divide the channels.
    pub fn check(&self) -> Result<(), KernelError> {
        let bad = |why: String| Err(KernelError::invalid("convolution shape", why));
        if self.c_in == 0 || self.c_out == 0 || self.kh == 0 || self.kw == 0 {
            return bad(format!(
                "channels and kernel must be positive, found c_in {}, c_out {}, kernel {}×{}",
                self.c_in, self.c_out, self.kh, self.kw
            ));
        }
        if self.stride.contains(&0) || self.dilation.contains(&0) {
            let (s, d) = (self.stride, self.dilation);
            return bad(format!("stride and dilation must be positive, found {s:?} and {d:?}"));
        }
        let g = self.groups;
        if g == 0 || !self.c_in.is_multiple_of(g) || !self.c_out.is_multiple_of(g) {
            return bad(format!("groups {g} must divide c_in {} and c_out {}", self.c_in, self.c_out));
        }
        Ok(())
    }
}

fn out_size(padded: usize, kernel: usize, stride: usize, dilation: usize) -> usize {
    let reach = dilation * kernel.saturating_sub(1) + 1;
    if padded < reach || stride == 0 { 0 } else { (padded - reach) / stride + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_usual_formula() {
        let s = ConvShape {
            n: 2,
            h: 7,
            w: 9,
            c_in: 4,
            c_out: 6,
            kh: 3,
            kw: 2,
            stride: [2, 1],
            pad: [1, 0, 1, 1],
            dilation: [1, 2],
            groups: 2,
        };
        assert_eq!((s.oh(), s.ow()), (4, 8));
        assert_eq!((s.out_len(), s.macs()), (2 * 4 * 8 * 6, 2 * 4 * 8 * 6 * 3 * 2 * 2));
        assert!(s.check().is_ok());
        assert!(ConvShape { groups: 4, ..s }.check().is_err());
        assert_eq!(ConvShape { kh: 10, ..s }.oh(), 0);
    }
}
