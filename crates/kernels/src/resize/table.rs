//! Where the outputs of a resize come from, axis by axis: torch's and ONNX's coordinate modes as tables.

use crate::KernelError;

/// How an output position maps to an input position; `scale` is `in / out` unless given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coordinates {
    /// `(o + 0.5) · scale - 0.5`: torch's `align_corners=False`, ONNX's `half_pixel`.
    HalfPixel,
    /// As `HalfPixel`, but 0 where the output has one element: ONNX's `pytorch_half_pixel`.
    PytorchHalfPixel,
    /// `o · (in - 1) / (out - 1)`: torch's `align_corners=True`.
    AlignCorners,
    /// `o · scale`: torch's nearest, ONNX's `asymmetric`.
    Asymmetric,
}

/// How a position between two inputs becomes one of them; ONNX's `nearest_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// Down: torch's `nearest`.
    Floor,
    /// Up.
    Ceil,
    /// To the nearest, halves down.
    RoundPreferFloor,
    /// To the nearest, halves up.
    RoundPreferCeil,
}

/// For each output of an axis: inputs and their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisTable {
    pub(super) size: usize,
    pub(super) taps: usize,
    /// `taps` inputs an output.
    pub(super) index: Vec<usize>,
    /// `taps` weights an output.
    pub(super) weight: Vec<f32>,
}

/// The input position of output `o`, in f32 as torch computes it.
fn position(mode: Coordinates, o: usize, size: usize, out: usize, scale: f32) -> f32 {
    match mode {
        Coordinates::HalfPixel => (o as f32 + 0.5) * scale - 0.5,
        Coordinates::PytorchHalfPixel if out <= 1 => 0.0,
        Coordinates::PytorchHalfPixel => (o as f32 + 0.5) * scale - 0.5,
        Coordinates::AlignCorners if out <= 1 => 0.0,
        Coordinates::AlignCorners => o as f32 * ((size - 1) as f32 / (out - 1) as f32),
        Coordinates::Asymmetric => o as f32 * scale,
    }
}

impl AxisTable {
    /// Any table: `index` and `weight` have `taps` entries an output.
    ///
    /// # Errors
    /// Lists of another length, no taps, or an index past `size`.
    pub fn new(size: usize, taps: usize, index: Vec<usize>, weight: Vec<f32>) -> Result<AxisTable, KernelError> {
        KernelError::exactly("weights of a resize", index.len(), weight.len())?;
        if taps == 0 || !index.len().is_multiple_of(taps) {
            let why = format!("expected a multiple of {taps} indices, found {}", index.len());
            return Err(KernelError::invalid("resize", why));
        }
        if let Some(bad) = index.iter().find(|i| **i >= size) {
            return Err(KernelError::invalid("resize", format!("index {bad} is past an axis of {size}")));
        }
        Ok(AxisTable { size, taps, index, weight })
    }

    /// One input for each output. `scale` (input step per output step) overrides `size / out`.
    ///
    /// # Errors
    /// An empty input axis with a non-empty output.
    pub fn nearest(
        size: usize,
        out: usize,
        mode: Coordinates,
        rounding: Nearest,
        scale: Option<f32>,
    ) -> Result<AxisTable, KernelError> {
        let scale = scale.unwrap_or(size as f32 / out.max(1) as f32);
        let pick = |o: usize| {
            let p = position(mode, o, size, out, scale);
            let p = match rounding {
                Nearest::Floor => p.floor(),
                Nearest::Ceil => p.ceil(),
                Nearest::RoundPreferFloor => (p - 0.5).ceil(),
                Nearest::RoundPreferCeil => (p + 0.5).floor(),
            };
            (p.max(0.0) as usize).min(size.saturating_sub(1))
        };
        AxisTable::new(size, 1, (0..out).map(pick).collect(), vec![1.0; out])
    }

    /// Two inputs for each output, weighted by distance. `scale` overrides `size / out`.
    ///
    /// # Errors
    /// An empty input axis with a non-empty output.
    pub fn linear(size: usize, out: usize, mode: Coordinates, scale: Option<f32>) -> Result<AxisTable, KernelError> {
        let scale = scale.unwrap_or(size as f32 / out.max(1) as f32);
        let (mut index, mut weight) = (Vec::with_capacity(2 * out), Vec::with_capacity(2 * out));
        for o in 0..out {
            let last = size.saturating_sub(1);
            let p = position(mode, o, size, out, scale).clamp(0.0, last as f32);
            let low = (p.floor() as usize).min(last);
            let w = p - low as f32;
            index.extend([low, (low + 1).min(last)]);
            weight.extend([1.0 - w, w]);
        }
        AxisTable::new(size, 2, index, weight)
    }

    /// Outputs.
    pub fn out(&self) -> usize {
        self.index.len() / self.taps
    }

    /// The inputs and weights of an output.
    pub(super) fn at(&self, o: usize) -> (&[usize], &[f32]) {
        let range = o * self.taps..(o + 1) * self.taps;
        (&self.index[range.clone()], &self.weight[range])
    }

    /// Whether every output is one input.
    pub(super) fn is_pick(&self) -> bool {
        self.taps == 1 && self.weight.iter().all(|w| *w == 1.0)
    }
}
