//! Windows of a pooling: for each output position of an axis, the inputs it sees.

use crate::KernelError;

/// A pooling over channels-last activations: `x [n, h, w, c]`, `y [n, oh, ow, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolShape {
    /// Batch.
    pub n: usize,
    /// Input rows.
    pub h: usize,
    /// Input columns.
    pub w: usize,
    /// Channels.
    pub c: usize,
    /// Window rows and columns.
    pub kernel: [usize; 2],
    /// Step between windows.
    pub stride: [usize; 2],
    /// Padding: top, left, bottom, right.
    pub pad: [usize; 4],
    /// Step between taps.
    pub dilation: [usize; 2],
    /// Output rows and columns: with or without `ceil_mode`, as [`PoolShape::out_size`] has it.
    pub out: [usize; 2],
}

impl PoolShape {
    /// torch's output size of one axis, `ceil_mode` or not: a window may not begin in the far padding.
    pub fn out_size(size: usize, kernel: usize, stride: usize, pad: [usize; 2], dilation: usize, ceil: bool) -> usize {
        let (reach, stride) = (dilation * kernel.saturating_sub(1) + 1, stride.max(1));
        let Some(room) = (size + pad[0] + pad[1]).checked_sub(reach) else { return 0 };
        let out = if ceil { room.div_ceil(stride) } else { room / stride } + 1;
        if ceil && (out - 1) * stride >= size + pad[0] { out - 1 } else { out }
    }

    pub(super) fn check(&self) -> Result<(), KernelError> {
        let positive = self.kernel.iter().chain(&self.stride).chain(&self.dilation).all(|v| *v > 0);
        if positive && (self.h * self.w > 0 || self.out[0] * self.out[1] == 0) {
            return Ok(());
        }
        let why = format!("kernel, stride, dilation and input size must be positive, found {self:?}");
        Err(KernelError::invalid("pooling", why))
    }
}

/// What one output position of an axis sees: inputs `from, from + step, …` below `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) step: usize,
    /// Taps with the padding, but without what hangs over its end.
    pub(super) padded: usize,
}

impl Window {
    /// Taps inside the input.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        let reach = self.to.saturating_sub(self.from);
        // A division takes as long as a few taps.
        if self.step == 1 { reach } else { reach.div_ceil(self.step) }
    }

    /// Inputs from the first to behind the last.
    pub(super) fn reach(&self) -> usize {
        self.to.saturating_sub(self.from)
    }

    /// Input position of a tap.
    #[inline(always)]
    pub(super) fn tap(&self, i: usize) -> usize {
        self.from + i * self.step
    }

    pub(super) fn taps(self) -> impl Iterator<Item = usize> {
        (self.from..self.to.max(self.from)).step_by(self.step)
    }
}

/// The windows of an axis.
pub(super) fn sliding(
    size: usize,
    out: usize,
    kernel: usize,
    stride: usize,
    pad: [usize; 2],
    dilation: usize,
) -> Vec<Window> {
    let window = |o: usize| {
        let start = o * stride;
        // The first tap at or past the input's first element.
        let skipped = pad[0].saturating_sub(start).div_ceil(dilation);
        let end = (start + (kernel - 1) * dilation + 1).min(size + pad[0]);
        let padded = (start + (kernel - 1) * dilation + 1).min(size + pad[0] + pad[1]).saturating_sub(start);
        Window {
            from: start + skipped * dilation - pad[0].min(start + skipped * dilation),
            to: end.saturating_sub(pad[0]),
            step: dilation,
            padded: padded.div_ceil(dilation),
        }
    };
    (0..out).map(window).collect()
}

/// torch's adaptive windows: `floor(o · size / out) .. ceil((o + 1) · size / out)`.
pub(super) fn adaptive(size: usize, out: usize) -> Vec<Window> {
    let window = |o: usize| {
        let (from, to) = (o * size / out, ((o + 1) * size).div_ceil(out));
        Window { from, to, step: 1, padded: to - from }
    };
    (0..out).map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_clipped_to_the_input() {
        let w = sliding(5, 3, 3, 2, [1, 1], 1);
        assert_eq!(w[0], Window { from: 0, to: 2, step: 1, padded: 3 });
        assert_eq!(w[2], Window { from: 3, to: 5, step: 1, padded: 3 });
        // ceil_mode: the last window hangs over the padding, which does not count.
        let w = sliding(6, 4, 3, 2, [0, 0], 1);
        assert_eq!(w[2], Window { from: 4, to: 6, step: 1, padded: 2 });
        let w = sliding(5, 1, 3, 1, [3, 0], 2);
        assert_eq!(w[0].taps().collect::<Vec<_>>(), [1]);
        assert_eq!(adaptive(7, 3).iter().map(|w| (w.from, w.to)).collect::<Vec<_>>(), [(0, 3), (2, 5), (4, 7)]);
    }

    #[test]
    fn sizes_are_torchs() {
        let size = |s, k, st, p, ceil| PoolShape::out_size(s, k, st, [p, p], 1, ceil);
        assert_eq!((size(112, 3, 2, 1, false), size(112, 3, 2, 1, true)), (56, 57));
        assert_eq!((size(6, 3, 2, 0, false), size(6, 3, 2, 0, true)), (2, 3));
        assert_eq!((size(3, 2, 2, 1, true), size(1, 5, 1, 0, true)), (2, 0));
    }
}
