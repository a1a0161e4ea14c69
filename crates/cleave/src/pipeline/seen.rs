//! What the float graph gave for the first samples, kept as calibration runs them: what attempts are measured by.

use super::check::first_inputs;
use super::{Samples, Settings, batch_size};
use crate::backend::CpuEvaluator;
use crate::error::{Error, Result};
use cleave_ir::{Element, Graph, NodeId, Tensor};
use cleave_quantize::{BoxError, Evaluator, Prepared};
use indexmap::IndexMap;

/// Runs of which values are kept, if they are small.
const VALUE_RUNS: usize = 2;
/// Elements of a run but the first that are kept.
const FEW: usize = 1 << 20;
/// Elements that are kept of one value: of greater ones every second, third and so on.
const MOST: usize = 1 << 16;

/// What the float graph gave, by run.
#[derive(Default)]
pub(super) struct Seen {
    /// Its outputs.
    pub(super) outputs: IndexMap<usize, Vec<Tensor>>,
    /// Values within it.
    pub(super) values: IndexMap<usize, IndexMap<NodeId, Part>>,
}

/// Evenly spaced elements of a value.
pub(super) struct Part {
    /// The order in which dimensions are gone through.
    order: Vec<usize>,
    /// Elements from one to the next.
    every: usize,
    /// `[1, n]`.
    pub(super) elements: Tensor,
}

impl Part {
    fn of(t: &Tensor) -> Part {
        // All channels have their turn, however many there are.
        let coprime = |n: &usize| *n == 1 || t.shape().iter().all(|size| gcd(*n, *size) == 1);
        let every = (t.len().div_ceil(MOST).max(1)..).find(coprime).unwrap_or(1);
        let order = t.stored_order();
        let elements = taken(&t.permute(&order).to_f32(), every);
        Part { order, every, elements }
    }

    /// The same elements of another value of that shape.
    pub(super) fn same_of(&self, t: &Tensor) -> Tensor {
        let t = t.permute(&self.order);
        match (t.elements::<u8>(), t.elements::<i8>()) {
            (Some(x), _) => taken(&x, self.every),
            (_, Some(x)) => taken(&x, self.every),
            _ => taken(&t.to_f32(), self.every),
        }
    }
}

fn taken<T: Element>(x: &[T], every: usize) -> Tensor {
    let some: Vec<T> = x.iter().step_by(every).copied().collect();
    Tensor::new(&[1, some.len()], some)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Seen {
    /// Runs the graph for it.
    pub(super) fn by_running(
        float: &Prepared,
        evaluator: CpuEvaluator,
        samples: &(impl Samples + ?Sized),
        settings: &Settings,
    ) -> Result<Seen> {
        let mut watch = Watching::new(evaluator, &float.graph, settings);
        let taps = float.taps();
        for (run, inputs) in first_inputs(&float.graph, samples, settings.check, settings) {
            watch.begin(run);
            let taps = if run < VALUE_RUNS { &taps[..] } else { &[] };
            watch.run(&float.graph, &inputs?, taps, &mut |_, _| {}).map_err(|e| Error::other(e.to_string()))?;
        }
        Ok(Seen::of([watch]))
    }

    /// What evaluators saw.
    pub(super) fn of(watching: impl IntoIterator<Item = Watching>) -> Seen {
        let mut all = Seen::default();
        for w in watching {
            all.outputs.extend(w.seen.outputs);
            all.values.extend(w.seen.values);
        }
        all
    }
}

/// An evaluator that keeps what it gave for the first samples.
pub(super) struct Watching {
    evaluator: CpuEvaluator,
    /// Runs of which outputs are kept.
    outputs: usize,
    /// Runs of which values are kept.
    values: usize,
    run: usize,
    seen: Seen,
}

impl Watching {
    pub(super) fn new(evaluator: CpuEvaluator, g: &Graph, settings: &Settings) -> Watching {
        let outputs = settings.check.max(1).div_ceil(batch_size(g));
        Watching { evaluator, outputs, values: outputs.min(VALUE_RUNS), run: 0, seen: Seen::default() }
    }
}

impl Evaluator for Watching {
    fn begin(&mut self, sample: usize) {
        self.run = sample;
    }

    fn run(
        &mut self,
        graph: &Graph,
        inputs: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> std::result::Result<Vec<Tensor>, BoxError> {
        let (mut values, mut room) = (IndexMap::new(), if self.run == 0 { usize::MAX } else { FEW });
        let mut wanted = self.run < self.values;
        let results = self.evaluator.run(graph, inputs, taps, &mut |id, t| {
            if wanted && t.dtype().is_float() {
                let part = Part::of(t);
                wanted = room >= part.elements.len();
                room = room.saturating_sub(part.elements.len());
                values.insert(id, part);
            }
            sink(id, t);
        })?;
        if wanted {
            self.seen.values.insert(self.run, values);
        }
        if self.run < self.outputs {
            self.seen.outputs.insert(self.run, results.clone());
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_great_values_the_same_elements_are_taken() {
        let shape = [1, 64, 80, 80];
        let n: usize = shape.iter().product();
        let t = Tensor::new(&shape, (0..n).map(|i| i as f32).collect());
        let levels = Tensor::new(&shape, (0..n).map(|i| (i % 251) as u8).collect::<Vec<_>>());
        let last = |t: &Tensor| t.permute(&[0, 2, 3, 1]).contiguous().permute(&[0, 3, 1, 2]);
        for (t, levels) in [(t.clone(), levels.clone()), (last(&t), levels.clone()), (t.clone(), last(&levels))] {
            let part = Part::of(&t);
            // 7 is the first that leaves out no channel.
            assert_eq!((part.every, part.elements.shape()), (7, &[1, n.div_ceil(7)][..]));
            let (x, q) = (part.elements.to_f32(), part.same_of(&levels).to_i64());
            assert!(x.iter().zip(&q).all(|(x, q)| *x as i64 % 251 == *q));
            let channels: std::collections::HashSet<usize> = x.iter().map(|x| *x as usize / 6400).collect();
            assert_eq!(channels.len(), 64);
        }
        let small = Part::of(&Tensor::new(&[2, 3], vec![0.0f32; 6]));
        assert_eq!((small.every, small.elements.len()), (1, 6));
    }
}
