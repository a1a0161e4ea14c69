//! DATA: the samples that a model is calibrated, compared and run on.
//!
//! | where | what it holds |
//! |---|---|
//! | `x.npy` | samples along the first axis, or one sample without it |
//! | `x.npz` | an array for each input, by its name |
//! | image (.jpg, .png) | one sample |
//! | `input_0.pb` | an ONNX tensor for the input with that number |
//! | folder | arrays named by inputs; or files of one kind, each with one or more samples; or `test_data_set_N` folders |
//!
//! Files of a folder are taken in the order of their names, numbers in them by value. Nothing is held in
//! memory but the samples asked for: arrays stay in mapped files.

mod gather;
mod image;
mod labels;
mod source;

pub use image::{ImageOptions, Layout};
pub use labels::read_labels;

use crate::error::{FormatError, Result};
use cleave_ir::{Dim, Graph, Meta, Tensor, TensorMeta};
use source::Source;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What a model takes.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// The inputs' names for the outside, in order.
    pub names: Vec<String>,
    /// Their types and sizes; the first dimension is the batch.
    pub metas: Vec<TensorMeta>,
}

impl InputSpec {
    /// The inputs of a graph. An input that is not a tensor (a size) is left out: it follows from the others.
    pub fn of(graph: &Graph) -> InputSpec {
        let mut spec = InputSpec { names: vec![], metas: vec![] };
        for (id, name) in graph.placeholders().into_iter().zip(&graph.input_names) {
            if let Meta::Tensor(t) = &graph.node(id).meta {
                spec.names.push(name.clone());
                spec.metas.push(t.clone());
            }
        }
        spec
    }

    /// Whether the input has the batch as its first dimension: the one that the first input begins with.
    fn batched(&self, i: usize) -> bool {
        let first = |m: &TensorMeta| m.shape.first().cloned();
        first(&self.metas[i]).is_some_and(|d| Some(d) == first(&self.metas[0]))
    }

    /// Sizes of one sample of an input.
    fn sample(&self, i: usize) -> &[Dim] {
        &self.metas[i].shape[usize::from(self.batched(i))..]
    }
}

/// Samples for a model's inputs.
pub struct Dataset {
    path: PathBuf,
    spec: InputSpec,
    options: ImageOptions,
    /// With the number of the sample that each begins with.
    sources: Vec<(usize, Source)>,
    len: usize,
}

impl Dataset {
    /// Looks at a file or folder and checks types and sizes against the inputs; no elements are read yet.
    ///
    /// # Errors
    /// [`FormatError::Data`] naming file and array: nothing there, an unknown kind of file, an input without
    /// an array, an array without an input, a wrong type or shape, with what to do.
    pub fn open(path: &Path, spec: &InputSpec, options: &ImageOptions) -> Result<Dataset> {
        if spec.names.is_empty() {
            return Err(FormatError::data(path, "the model takes no tensors, so it needs no data"));
        }
        let mut data =
            Dataset { path: path.into(), spec: spec.clone(), options: options.clone(), sources: vec![], len: 0 };
        for source in gather::sources(path, spec)? {
            let n = source.check(spec, options)?;
            data.sources.push((data.len, source));
            data.len += n;
        }
        if data.len == 0 {
            return Err(FormatError::data(path, "holds no samples"));
        }
        Ok(data)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none: never, since opening refuses that.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the data lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Samples as tensors for the inputs, in order, joined along the first dimension. An input without the
    /// batch gets its whole array.
    ///
    /// # Errors
    /// A range past the end, samples of different sizes, or a file that has changed or cannot be decoded.
    pub fn batch(&self, range: Range<usize>) -> Result<Vec<Tensor>> {
        if range.is_empty() || range.end > self.len {
            let why = format!("samples {} to {} of {}", range.start, range.end, self.len);
            return Err(FormatError::data(&self.path, why));
        }
        let first = self.sources.partition_point(|(start, _)| *start <= range.start) - 1;
        let mut parts: Vec<Vec<Tensor>> = vec![vec![]; self.spec.names.len()];
        for (start, source) in self.sources[first..].iter().take_while(|(start, _)| *start < range.end) {
            let from = range.start.saturating_sub(*start);
            let tensors = source.load(&self.spec, &self.options, from..range.end - start)?;
            parts.iter_mut().zip(tensors).for_each(|(list, t)| list.push(t));
        }
        let joined = parts.into_iter().enumerate().map(|(i, list)| {
            join(&list, self.spec.batched(i)).map_err(|why| {
                let why = format!("input '{}', samples {} to {}: {why}", self.spec.names[i], range.start, range.end);
                FormatError::data(&self.path, why)
            })
        });
        joined.collect()
    }

    /// The file that a sample comes from.
    pub fn file_of(&self, sample: usize) -> &Path {
        let i = self.sources.partition_point(|(start, _)| *start <= sample).saturating_sub(1);
        self.sources.get(i).map_or(&self.path, |(_, s)| s.path())
    }

    /// Looks for NaN and infinities in a batch that began with sample `start`.
    ///
    /// # Errors
    /// [`FormatError::Data`] naming file, input, sample and index of the first one.
    pub fn check_finite(&self, start: usize, batch: &[Tensor]) -> Result<()> {
        for (i, t) in batch.iter().enumerate() {
            let Some(at) = first_not_finite(t) else { continue };
            let per = t.len() / t.shape().first().copied().unwrap_or(1).max(1);
            let inner = if self.spec.batched(i) { start + at / per.max(1) } else { start };
            let value = t.to_f64()[at];
            let name = self.spec.names.get(i).map_or("", String::as_str);
            let index = unravel(at, t.shape(), self.spec.batched(i));
            let why = format!("input '{name}', sample {inner}: the element at {index:?} is {value}");
            return Err(FormatError::data(self.file_of(inner), why));
        }
        Ok(())
    }
}

/// The position, in row-major order, of the first element that is NaN or infinite.
pub fn first_not_finite(t: &Tensor) -> Option<usize> {
    if !t.dtype().is_float() {
        return None;
    }
    match t.elements::<f32>() {
        Some(v) => v.iter().position(|x| !x.is_finite()),
        None => t.to_f64().iter().position(|x| !x.is_finite()),
    }
}

fn unravel(mut at: usize, shape: &[usize], batched: bool) -> Vec<usize> {
    let mut index: Vec<usize> = shape.iter().rev().map(|n| (at % n.max(&1), at /= n.max(&1)).0).collect();
    index.reverse();
    if batched { index.split_off(1.min(index.len())) } else { index }
}

/// Arrays one behind the other along the first dimension, or the first of them where they are whole.
fn join(list: &[Tensor], batched: bool) -> std::result::Result<Tensor, String> {
    let Some(first) = list.first() else { return Err("no array".into()) };
    if list.len() == 1 || !batched {
        return Ok(first.clone());
    }
    let mut shape = first.shape().to_vec();
    let mut bytes = vec![];
    shape[0] = 0;
    for t in list {
        if t.shape()[1..] != shape[1..] {
            let why = "samples of different sizes cannot be one batch; take one sample at a time";
            return Err(format!("{:?} beside {:?}: {why}", &shape[1..], &t.shape()[1..]));
        }
        shape[0] += t.shape()[0];
        bytes.extend_from_slice(&t.to_bytes());
    }
    Tensor::from_bytes(first.dtype(), shape, std::sync::Arc::new(bytes)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests;
