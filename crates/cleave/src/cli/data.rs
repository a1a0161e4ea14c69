//! Data for calibration and comparison, and noise for timing.

use crate::error::{Error, Result};
use crate::pipeline::Samples;
use cleave_formats::data::{Dataset, ImageOptions, InputSpec, Layout};
use cleave_ir::{Bindings, Graph, Tensor};
use cleave_numerics::DType;
use cleave_quantize::BoxError;
use std::path::Path;

/// How images become arrays.
#[derive(clap::Args, Debug, Clone)]
#[command(next_help_heading = "Images")]
pub struct ImageArgs {
    /// Resize the shorter side to this many pixels.
    #[arg(long, value_name = "PIXELS")]
    resize: Option<usize>,
    /// Then cut this square out of the middle.
    #[arg(long, value_name = "PIXELS")]
    crop: Option<usize>,
    /// Mean of each channel, of values in 0 to 1.
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    mean: Vec<f32>,
    /// Standard deviation of each channel.
    #[arg(long, value_delimiter = ',', value_name = "R,G,B")]
    std: Vec<f32>,
    /// Where the channels stand [default: where the input has 1 or 3 of them].
    #[arg(long, value_parser = ["nchw", "nhwc"])]
    layout: Option<String>,
}

impl ImageArgs {
    /// Whether anything is asked for.
    pub fn given(&self) -> bool {
        let numbers = self.resize.is_some() || self.crop.is_some() || !self.mean.is_empty() || !self.std.is_empty();
        numbers || self.layout.is_some()
    }

    /// The options that the formats crate takes.
    pub fn options(&self) -> ImageOptions {
        ImageOptions {
            resize: self.resize,
            crop: self.crop.map(|c| [c, c]),
            mean: self.mean.clone(),
            std: self.std.clone(),
            layout: self.layout.as_deref().map(|l| if l == "nhwc" { Layout::Nhwc } else { Layout::Nchw }),
        }
    }
}

/// Opens a data set for a graph's inputs.
///
/// # Errors
/// Data that do not fit them.
pub fn open(path: &Path, g: &Graph, images: &ImageArgs) -> Result<Dataset> {
    Ok(Dataset::open(path, &InputSpec::of(g), &images.options())?)
}

/// Sizes for all symbols of a graph: those given as `N=4`, the others their least value, at least 1.
///
/// # Errors
/// Text that is no binding, or a symbol that the graph does not have.
pub fn bindings(g: &Graph, given: &[String]) -> Result<Bindings> {
    let mut bound = least_sizes(g);
    bound.extend(given_sizes(g, given)?);
    Ok(bound)
}

/// The sizes that are given as `N=4`.
///
/// # Errors
/// As [`bindings`].
pub fn given_sizes(g: &Graph, given: &[String]) -> Result<Bindings> {
    let symbols = least_sizes(g);
    let one = |item: &String| {
        let parsed = item.split_once('=').and_then(|(s, n)| Some((s, n.parse::<i64>().ok().filter(|n| *n > 0)?)));
        let (symbol, size) =
            parsed.ok_or_else(|| Error::other(format!("--bind {item}: expected SYMBOL=SIZE, as N=1")))?;
        if symbols.contains_key(symbol) {
            return Ok((symbol.to_string(), size));
        }
        let names: Vec<String> = symbols.keys().cloned().collect();
        Err(Error::other(format!("--bind {item}: the model has no symbol '{symbol}'; it has {}", names.join(", "))))
    };
    given.iter().map(one).collect()
}

/// The least size of each symbol in the inputs' shapes, at least 1.
fn least_sizes(g: &Graph) -> Bindings {
    g.placeholders()
        .into_iter()
        .filter_map(|p| g.node(p).meta.as_tensor())
        .flat_map(|m| m.shape.iter().flat_map(cleave_ir::Dim::symbols))
        .map(|s| (s.clone(), g.symbols.get(&s).map_or(1, |r| r.min.max(1))))
        .collect()
}

/// Inputs of pseudo-random numbers, about normally distributed, the same in every run.
///
/// # Errors
/// An input whose size is not known or whose elements are of an unusual type.
pub fn noise(g: &Graph, bound: &Bindings) -> Result<Vec<Tensor>> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut inputs = vec![];
    for p in g.placeholders() {
        let m = g.tensor_meta(p)?;
        let shape: Vec<usize> =
            m.shape.iter().map(|d| d.eval(bound).map(|v| v.max(0) as usize)).collect::<cleave_ir::Result<_>>()?;
        let n = shape.iter().try_fold(1usize, |a, b| a.checked_mul(*b)).filter(|n| *n <= 1 << 30);
        let n = n.ok_or_else(|| {
            Error::other(format!("input '{}' of {shape:?} is too large to be made up", g.node(p).name))
        })?;
        inputs.push(match m.dtype {
            // The sum of four uniform numbers is near enough to normal for timing.
            DType::F32 => {
                Tensor::new(&shape, (0..n).map(|_| ((0..4).map(|_| next()).sum::<f32>() - 2.0) * 1.73).collect())
            }
            DType::I64 => Tensor::new(&shape, vec![1i64; n]),
            DType::I32 => Tensor::new(&shape, vec![1i32; n]),
            DType::U8 => Tensor::new(&shape, (0..n).map(|_| (next() * 256.0) as u8).collect()),
            DType::Bool => Tensor::from_bools(&shape, &vec![true; n]),
            other => {
                return Err(Error::other(format!("input '{}' has element type {other}; give data", g.node(p).name)));
            }
        });
    }
    Ok(inputs)
}

/// Some of the samples of a data set.
pub struct Part<'a> {
    data: &'a Dataset,
    from: usize,
    to: usize,
}

impl<'a> Part<'a> {
    /// All of them.
    pub fn all(data: &'a Dataset) -> Part<'a> {
        Part { data, from: 0, to: data.len() }
    }

    /// The first `N` of them, or those of `A..B`.
    ///
    /// # Errors
    /// Text that says neither, or more than there are.
    pub fn samples(data: &'a Dataset, text: &str) -> Result<Part<'a>> {
        let (from, to) = text.split_once("..").unwrap_or(("0", text));
        let range = from.parse::<usize>().ok().zip(to.parse::<usize>().ok()).filter(|(a, b)| a < b);
        let (from, to) =
            range.ok_or_else(|| Error::other(format!("--samples {text}: expected a number, or A..B with A < B")))?;
        if to > data.len() {
            return Err(Error::other(format!("--samples {text}: {} has {}", data.path().display(), data.len())));
        }
        Ok(Part { data, from, to })
    }

    /// The `I`th of `N` parts of about the same size, each a multiple of `step`.
    ///
    /// # Errors
    /// Text that is no `I/N`, or more parts than there are samples.
    pub fn shard(data: &'a Dataset, text: &str, step: usize) -> Result<Part<'a>> {
        let numbers = text.split_once('/').and_then(|(i, n)| i.parse::<usize>().ok().zip(n.parse::<usize>().ok()));
        let (i, n) = numbers
            .filter(|(i, n)| (1..=*n).contains(i))
            .ok_or_else(|| Error::other(format!("--shard {text}: expected I/N with I from 1 to N, as 3/8")))?;
        let batches = data.len() / step;
        if n > batches {
            let path = data.path().display();
            return Err(Error::other(format!("--shard {text}: {path} has {batches} batches, too few for {n} parts")));
        }
        // What is left of the last batch stays with the last part, and is an error there as in one run.
        let edge =
            |i: usize| if i == n { data.len() } else { (batches as u128 * i as u128 / n as u128) as usize * step };
        Ok(Part { data, from: edge(i - 1), to: edge(i) })
    }

    /// What is to be remembered of it; `path` is where the data lie.
    ///
    /// # Errors
    /// A sample that cannot be read.
    pub fn run(&self, path: &Path) -> Result<crate::calibration::Run> {
        crate::calibration::run_of(path, self.data, self.from, self.to)
    }
}

impl Samples for Part<'_> {
    fn len(&self) -> usize {
        self.to - self.from
    }

    fn batch(&self, from: usize, to: usize) -> std::result::Result<Vec<Tensor>, BoxError> {
        Samples::batch(self.data, self.from + from, self.from + to)
    }

    fn check_finite(&self, from: usize, batch: &[Tensor]) -> std::result::Result<(), BoxError> {
        Samples::check_finite(self.data, self.from + from, batch)
    }

    fn place(&self, sample: usize) -> String {
        self.data.place(self.from + sample)
    }
}
