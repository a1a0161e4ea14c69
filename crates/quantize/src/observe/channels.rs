//! One observer for each channel of a tensor.

use super::{Observer, scan};
use crate::spec::{ObserverKind, Spec};
use cleave_numerics::QParams;

/// Observers of the slices along one axis. Tensors may differ in all other sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelObserver {
    axis: usize,
    channels: Vec<Observer>,
}

impl ChannelObserver {
    /// Observers of `channels` slices along `axis`.
    pub fn new(kind: ObserverKind, axis: usize, channels: usize) -> ChannelObserver {
        ChannelObserver { axis, channels: vec![Observer::new(kind); channels] }
    }

    /// Takes in finite elements in row-major order.
    ///
    /// # Errors
    /// A shape that has another number of channels.
    pub fn update(&mut self, x: &[f32], shape: &[usize]) -> Result<(), String> {
        let n = self.channels.len();
        if shape.get(self.axis) != Some(&n) || n == 0 {
            return Err(format!("expected {n} channels on axis {} of {shape:?}", self.axis));
        }
        let inner: usize = shape[self.axis + 1..].iter().product::<usize>().max(1);
        if x.len() == n * inner {
            // Each lies in one piece.
            self.channels.iter_mut().zip(x.chunks(inner)).for_each(|(o, row)| o.update(row, &scan(row)));
            return Ok(());
        }
        let mut slice = Vec::with_capacity(x.len() / n);
        for (c, o) in self.channels.iter_mut().enumerate() {
            slice.clear();
            x.chunks(inner).skip(c).step_by(n).for_each(|row| slice.extend_from_slice(row));
            o.update(&slice, &scan(&slice));
        }
        Ok(())
    }

    /// The channels' observers, in order.
    pub fn channels(&self) -> &[Observer] {
        &self.channels
    }

    /// Scale and zero point of each channel under a spec; none for one that saw nothing.
    pub fn qparams(&self, spec: &Spec) -> Vec<Option<QParams>> {
        self.channels.iter().map(|o| o.qparams(spec)).collect()
    }
}
