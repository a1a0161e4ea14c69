//! One file, or one array for each input, as a run of samples.

use super::image;
use super::{ImageOptions, InputSpec};
use crate::error::{FormatError, Result};
use crate::npy::{read_npy, read_npz};
use crate::onnx::{proto::TensorProto, tensor};
use cleave_ir::{Dim, Tensor};
use indexmap::IndexMap;
use prost::Message;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where samples come from. Files are opened when their samples are asked for.
pub(super) enum Source {
    /// A .npy file for the only input.
    Npy(PathBuf),
    /// A .npz file with an array for each input.
    Npz(PathBuf),
    /// A .npy file for each input, in order.
    Named(Vec<PathBuf>),
    /// An image for the only input.
    Image(PathBuf),
    /// An ONNX tensor for each input, in order.
    Proto(Vec<PathBuf>),
}

impl Source {
    /// The file; of several, the first.
    pub(super) fn path(&self) -> &Path {
        match self {
            Source::Npy(p) | Source::Npz(p) | Source::Image(p) => p,
            Source::Named(list) | Source::Proto(list) => list.first().map_or(Path::new(""), PathBuf::as_path),
        }
    }

    /// The number of samples, after types and shapes have been held against the inputs.
    pub(super) fn check(&self, spec: &InputSpec, options: &ImageOptions) -> Result<usize> {
        if let Source::Image(path) = self {
            return image::check(path, spec, options).map(|()| 1);
        }
        self.count(spec, &self.arrays(spec)?)
    }

    fn count(&self, spec: &InputSpec, arrays: &[Tensor]) -> Result<usize> {
        let counts = arrays.iter().enumerate().filter(|(i, _)| spec.batched(*i)).map(|(i, t)| (i, t.shape()[0]));
        let counts: Vec<(usize, usize)> = counts.collect();
        let Some((_, n)) = counts.first().copied() else { return Ok(1) };
        match counts.iter().find(|(_, m)| *m != n) {
            None => Ok(n),
            Some((i, m)) => {
                let (a, b) = (&spec.names[0], &spec.names[*i]);
                Err(FormatError::data(self.path(), format!("{n} samples for input '{a}' and {m} for '{b}'")))
            }
        }
    }

    /// Samples of the run for each input; a range past its end stops there.
    pub(super) fn load(&self, spec: &InputSpec, options: &ImageOptions, range: Range<usize>) -> Result<Vec<Tensor>> {
        if let Source::Image(path) = self {
            return Ok(vec![image::load(path, spec, options)?]);
        }
        let arrays = self.arrays(spec)?;
        let n = self.count(spec, &arrays)?;
        let range = range.start.min(n)..range.end.min(n);
        Ok(arrays.iter().enumerate().map(|(i, t)| if spec.batched(i) { rows(t, &range) } else { t.clone() }).collect())
    }

    /// The arrays, each with a first axis of samples where the input has the batch.
    fn arrays(&self, spec: &InputSpec) -> Result<Vec<Tensor>> {
        let one = |path: &Path, i: usize, t: &Tensor| {
            fit(t, spec, i).map_err(|why| FormatError::data(path, format!("input '{}': {why}", spec.names[i])))
        };
        match self {
            Source::Npy(path) => Ok(vec![one(path, 0, &read_npy(path)?)?]),
            Source::Named(paths) => paths.iter().enumerate().map(|(i, p)| one(p, i, &read_npy(p)?)).collect(),
            Source::Proto(paths) => paths.iter().enumerate().map(|(i, p)| one(p, i, &read_proto(p)?)).collect(),
            Source::Npz(path) => {
                let arrays = by_name(path, spec, read_npz(path)?)?;
                arrays.iter().enumerate().map(|(i, t)| one(path, i, t)).collect()
            }
            Source::Image(_) => Ok(vec![]),
        }
    }
}

/// The arrays of an archive in the order of the inputs. The only array, if numpy named it (`arr_0`),
/// is the only input's; an array named `labels` is left alone.
fn by_name(path: &Path, spec: &InputSpec, mut arrays: IndexMap<String, Tensor>) -> Result<Vec<Tensor>> {
    if !spec.names.iter().any(|n| n == "labels") {
        arrays.shift_remove("labels");
    }
    if spec.names.len() == 1 && arrays.len() == 1 && arrays.contains_key("arr_0") {
        return Ok(arrays.into_values().collect());
    }
    if let Some(other) = arrays.keys().find(|k| !spec.names.contains(k)) {
        let why = format!("array '{other}' is no input; the inputs are {}", spec.names.join(", "));
        return Err(FormatError::data(path, why));
    }
    let found = spec.names.iter().map(|n| {
        arrays.get(n).cloned().ok_or_else(|| FormatError::data(path, format!("has no array for the input '{n}'")))
    });
    found.collect()
}

/// An ONNX tensor file.
fn read_proto(path: &Path) -> Result<Tensor> {
    let file = crate::mapped::Mapped::open(path)?;
    let proto = TensorProto::decode(file.bytes())
        .map_err(|e| FormatError::malformed(path, format!("not an ONNX tensor: {e}")))?;
    let mut external = tensor::External::new(path.parent().unwrap_or(Path::new(".")));
    tensor::tensor_of(&proto, &mut external).map_err(|why| FormatError::malformed(path, why))
}

/// The array as the input takes it: with the batch in front, where the input has one.
fn fit(t: &Tensor, spec: &InputSpec, i: usize) -> std::result::Result<Tensor, String> {
    let meta = &spec.metas[i];
    if t.dtype() != meta.dtype {
        let name = meta.dtype.torch_name();
        return Err(format!("expected {}, found {}; save it as a.astype('{name}')", meta.dtype, t.dtype()));
    }
    let sample = spec.sample(i);
    let fits = |shape: &[usize]| {
        shape.len() == sample.len()
            && shape.iter().zip(sample).all(|(n, d)| d.as_const().is_none_or(|d| d == *n as i64))
    };
    let t = t.contiguous();
    let shape = t.shape();
    if !spec.batched(i) {
        return if fits(shape) { Ok(t) } else { Err(format!("expected shape {}, found {shape:?}", text(sample))) };
    }
    match shape.split_first() {
        Some((_, rest)) if fits(rest) => Ok(t),
        _ if fits(shape) => {
            let one: Vec<usize> = std::iter::once(1).chain(shape.iter().copied()).collect();
            Ok(t.reshape(&one))
        }
        _ => Err(format!("expected samples of shape {}, found {shape:?}", text(sample))),
    }
}

fn text(shape: &[Dim]) -> String {
    let sizes: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

/// Some of the places along the first dimension of a contiguous tensor.
fn rows(t: &Tensor, range: &Range<usize>) -> Tensor {
    if *range == (0..t.shape()[0]) {
        return t.clone();
    }
    let mut shape = t.shape().to_vec();
    let row = t.len() / shape[0].max(1) * t.dtype().size();
    shape[0] = range.len();
    let bytes = t.to_bytes()[range.start * row..range.end * row].to_vec();
    Tensor::from_bytes(t.dtype(), shape, std::sync::Arc::new(bytes)).expect("invariant: as many bytes as rows")
}
