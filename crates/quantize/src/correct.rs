//! Bias correction: what rounding the weights does to a result on average goes into the bias.
//!
//! With weights `w'` in the place of `w`, a channel of a convolution or linear layer is off by `Σ (w' - w)·E[x]` on
//! average, where `E[x]` is the mean of an input channel over samples and places; places in the padding are not told apart.
//! (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019, with means measured.)

use crate::calibrate::Statistics;
use crate::prepare::Prepared;
use cleave_ir::{Arg, Graph, Kind, NodeId, Tensor};
use cleave_kernels::Isa;
use cleave_kernels::observe::{PARTS_BELOW, PARTS_ROWS, Parts, column_parts, scan, sum_parts, weighted_difference};
use cleave_numerics::DType;
use serde::{Deserialize, Serialize};

/// A layer whose bias can be corrected.
pub(crate) struct Layer {
    /// The convolution or linear layer.
    pub(crate) id: NodeId,
    /// Its input.
    pub(crate) x: NodeId,
    /// Name of its bias.
    bias: String,
    /// Sizes of the weight: `[out, in/groups, places]`.
    shape: [usize; 3],
    /// The input's channels.
    channels: usize,
    /// The dimension of the input's channels.
    pub(crate) axis: usize,
}

/// The layers with a bias of their own.
pub(crate) fn layers(g: &Graph) -> Vec<Layer> {
    g.ids().filter_map(|id| layer(g, id)).collect()
}

fn layer(g: &Graph, id: NodeId) -> Option<Layer> {
    let node = g.node(id);
    let op = node.op().filter(|o| o.weight_axis == Some(0))?;
    let of = |name: &str| node.arg(name).and_then(|a| a.nodes().first().copied());
    let (x, w, b) = (of("input")?, of("weight")?, of("bias")?);
    let bias = g.constant(b).filter(|t| t.dtype() == DType::F32 && t.shape().len() == 1)?;
    let weight = g.constant(w).filter(|t| t.dtype() == DType::F32)?;
    let shared = g.nodes().filter(|(_, n)| n.kind == g.node(b).kind && n.target == g.node(b).target).count() > 1;
    if shared || g.use_count(b) != 1 || !matches!(g.node(b).kind, Kind::GetAttr(_)) {
        return None;
    }
    let sizes = weight.shape();
    let [out, each, rest @ ..] = sizes else { return None };
    let places = rest.iter().product();
    let shape = g.tensor_meta(x).ok()?.shape.clone();
    let axis =
        if op.base() == "linear" { shape.len().checked_sub(1)? } else { shape.len().checked_sub(rest.len() + 1)? };
    let channels = usize::try_from(shape.get(axis)?.as_const()?).ok()?;
    let groups = channels.checked_div(*each)?;
    let fits = bias.len() == *out && groups * each == channels && groups > 0 && out % groups == 0;
    Some(Layer { id, x, bias: g.node(b).target.clone(), shape: [*out, *each, places], channels, axis }).filter(|_| fits)
}

/// A layer's weight, and what stands for it.
struct Rounded {
    weight: Tensor,
    levels: Tensor,
    scales: Vec<f32>,
    zero_points: Vec<i64>,
    /// Elements of a channel that lie side by side.
    inner: usize,
}

impl Rounded {
    /// None if the weight is not rounded.
    fn of(p: &Prepared, quantized: &Graph, l: &Layer) -> Option<Rounded> {
        let node = p.graph.node(l.id);
        let weight = p.graph.constant(*node.arg("weight")?.nodes().first()?)?.clone();
        let meant = quantized.node(quantized.find(&node.name)?).arg("weight")?;
        let node = quantized.node(*meant.nodes().first()?);
        let op = node.op()?;
        let constant = |name: &str| quantized.constant(*node.arg(name)?.nodes().first()?);
        let levels = constant(op.schema.params[0].name.as_str())?.clone();
        let by = (op.base(), node.arg("scale"), node.arg("zero_point"), node.arg("axis"));
        let (scales, zero_points, axis) = match by {
            ("dequantize_per_channel", _, _, Some(Arg::Int(axis))) => {
                let axis = usize::try_from(*axis).ok()?;
                (constant("scales")?.to_f32().into_owned(), constant("zero_points")?.to_i64(), axis)
            }
            ("dequantize_per_tensor", Some(Arg::Float(s)), Some(Arg::Int(z)), _) => (vec![*s as f32], vec![*z], 0),
            _ => return None,
        };
        let inner: usize = levels.shape().get(axis + 1..)?.iter().product();
        let fits = levels.len() == weight.len();
        Some(Rounded { weight, levels, scales, zero_points, inner: inner.max(1) }).filter(|_| fits)
    }

    /// What rounding adds, for each output channel: `Σ (w' - w)·mean` over input channels, of which `each` are a group's, and
    /// places.
    fn shifts(&self, [out, each, places]: [usize; 3], means: &[f64]) -> Vec<f64> {
        let (n, len) = (self.scales.len(), each * places);
        let per_group = out / (means.len() / each);
        let means: Vec<f64> = means.iter().flat_map(|m| std::iter::repeat_n(*m, places)).collect();
        let of_output = |first: usize| &means[first / len / per_group * len..][..len];
        let channel = |i: usize| (self.scales[i / self.inner % n], self.zero_points[i / self.inner % n] as f32);
        let (mut shifts, mut meant, isa) = (Vec::with_capacity(out), vec![], Isa::best());
        let levels = self.levels.elements::<i8>();
        let others = if levels.is_none() { self.levels.to_i64() } else { vec![] };
        self.weight.for_each_f32(len, |first, w| {
            meant.clear();
            match &levels {
                // Most weights: an output channel at once.
                Some(levels) if self.inner.is_multiple_of(len.max(1)) => {
                    let (scale, zero) = channel(first);
                    meant.extend(levels[first..][..len].iter().map(|q| (f32::from(*q) - zero) * scale));
                }
                _ => meant.extend((first..first + len).map(|i| {
                    let (scale, zero) = channel(i);
                    let level = levels.as_ref().map_or_else(|| others[i] as f32, |l| f32::from(l[i]));
                    (level - zero) * scale
                })),
            }
            shifts.push(weighted_difference(isa, &meant, w, of_output(first)));
        });
        shifts
    }
}

/// A sum in fixed point, so that it does not depend on the order: multiples of 2⁻⁴⁰, in two halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Exact {
    high: i64,
    low: u64,
}

const STEP: f64 = 1.0 / (1u64 << 40) as f64;

/// Most steps that one element counts: 2⁶⁰, so that a sum of 2²⁶ elements is exact.
const MOST: i128 = 1 << 100;

impl Exact {
    fn add(&mut self, more: i128) {
        let sum = self.value().saturating_add(more);
        *self = Exact { high: (sum >> 64) as i64, low: sum as u64 };
    }

    fn value(self) -> i128 {
        (i128::from(self.high) << 64) | i128::from(self.low)
    }
}

/// The sum of up to [`PARTS_ROWS`] elements in steps. What is not finite counts as 0.
fn sum(x: &[f32]) -> i128 {
    match sum_parts(Isa::best(), x) {
        Some(sum) => steps(sum),
        None => x.iter().copied().map(one).sum(),
    }
}

/// One element in steps.
fn one(v: f32) -> i128 {
    match v.abs() < PARTS_BELOW {
        true => sum_parts(Isa::portable(), &[v]).map_or(0, steps),
        false if v.is_finite() => ((f64::from(v) / STEP) as i128).clamp(-MOST, MOST),
        false => 0,
    }
}

fn steps(sum: Parts) -> i128 {
    (i128::from(sum.coarse) << 31) + (i128::from(sum.fine) << 9)
}

/// Sums of the channels of a layer's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSums {
    /// Name of the layer.
    pub layer: String,
    sums: Vec<Exact>,
    /// How many elements each channel had.
    count: u64,
}

impl ChannelSums {
    pub(crate) fn new(g: &Graph, l: &Layer) -> ChannelSums {
        ChannelSums { layer: g.node(l.id).name.clone(), sums: vec![Exact::default(); l.channels], count: 0 }
    }

    /// None yet, of as many channels of the same layer.
    pub(crate) fn alike(&self) -> ChannelSums {
        ChannelSums { layer: self.layer.clone(), sums: vec![Exact::default(); self.sums.len()], count: 0 }
    }

    /// Adds a value with its channels on this dimension; what is not finite counts as 0. `near` tells that [`Parts`]
    /// hold all elements.
    pub(crate) fn add(&mut self, t: &Tensor, axis: usize, near: bool) {
        let n = self.sums.len().max(1);
        if t.shape().get(axis) != Some(&n) {
            return;
        }
        let order = t.stored_order();
        let (sizes, t) = (t.shape(), t.permute(&order));
        let x = t.to_f32();
        let inner: usize = order.iter().skip_while(|d| **d != axis).skip(1).map(|d| sizes[*d]).product();
        if inner == 1 {
            x.chunks(PARTS_ROWS * n).for_each(|rows| self.add_rows(rows, near));
        } else {
            for (i, row) in x.chunks(inner.max(1)).enumerate() {
                self.sums[i % n].add(row.chunks(PARTS_ROWS).map(sum).sum());
            }
        }
        self.count += (x.len() / n) as u64;
    }

    /// Adds up to [`PARTS_ROWS`] rows of an element of each channel.
    fn add_rows(&mut self, rows: &[f32], near: bool) {
        let (n, isa) = (self.sums.len(), Isa::best());
        if !near && !scan(isa, rows).fits_parts() {
            rows.iter().enumerate().for_each(|(i, v)| self.sums[i % n].add(one(*v)));
            return;
        }
        let (mut coarse, mut fine) = (vec![0i32; n], vec![0i32; n]);
        column_parts(isa, rows, &mut coarse, &mut fine);
        for ((sum, coarse), fine) in self.sums.iter_mut().zip(coarse).zip(fine) {
            sum.add(steps(Parts { coarse, fine }));
        }
    }

    pub(crate) fn merge(&mut self, other: &ChannelSums) {
        self.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| a.add(b.value()));
        self.count += other.count;
    }

    /// Whether these are sums of as many channels of the same layer.
    pub(crate) fn is_like(&self, other: &ChannelSums) -> bool {
        self.layer == other.layer && self.sums.len() == other.sums.len()
    }

    fn mean(&self, channel: usize) -> f64 {
        self.sums[channel].value() as f64 * STEP / self.count as f64
    }
}

/// The prepared graph with corrected biases, and how many there are; none if there is none to correct.
pub fn correct_biases(p: &Prepared, quantized: &Graph, stats: &Statistics) -> Option<(Prepared, usize)> {
    let mut corrected = p.clone();
    let mut count = 0;
    for l in layers(&p.graph) {
        let fresh = ChannelSums::new(&p.graph, &l);
        let sums = stats.inputs.iter().find(|s| s.is_like(&fresh) && s.count > 0);
        let (Some(sums), Some(rounded)) = (sums, Rounded::of(p, quantized, &l)) else { continue };
        let Some(old) = p.graph.constants.get(&l.bias) else { continue };
        let means: Vec<f64> = (0..l.channels).map(|channel| sums.mean(channel)).collect();
        let (shifts, out) = (rounded.shifts(l.shape, &means), l.shape[0]);
        let bias: Vec<f32> =
            old.to_f32().iter().zip(&shifts).map(|(b, shift)| (f64::from(*b) - shift) as f32).collect();
        if bias.iter().all(|v| v.is_finite()) {
            corrected.graph.constants.insert(l.bias.clone(), Tensor::new(&[out], bias));
            count += 1;
        }
    }
    Some((corrected, count)).filter(|(_, n)| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_do_not_depend_on_the_order() {
        let empty = || ChannelSums { layer: "c".into(), sums: vec![Exact::default(); 2], count: 0 };
        let parts = [
            Tensor::new::<f32>(&[2, 2, 2], vec![0.1, 1e9, -3.0, f32::INFINITY, 1e-3, -0.7, f32::NAN, 2.5]),
            Tensor::new::<f32>(&[1, 2, 2], vec![-1e9, 0.25, f32::NEG_INFINITY, 0.5]),
        ];
        let (mut forth, mut back, mut merged) = (empty(), empty(), empty());
        parts.iter().for_each(|t| forth.add(t, 1, false));
        parts.iter().rev().for_each(|t| back.add(t, 1, false));
        for t in &parts {
            let mut one = empty();
            one.add(t, 1, false);
            merged.merge(&one);
        }
        assert!(forth == back && forth == merged);
        // However they lie.
        let mut last = empty();
        for t in &parts {
            let order: Vec<usize> = (0..t.shape().len()).map(|d| [0, 2, 1][d]).collect();
            last.add(&t.permute(&order).contiguous().permute(&order), 1, false);
        }
        assert_eq!(forth, last);
        assert_eq!(forth.count, 6);
        let want = [(0.1 + 1e-3 - 0.7 + 0.25) / 6.0, (-3.0 + 2.5 + 0.5) / 6.0];
        assert!((0..2).all(|c| (forth.mean(c) - want[c]).abs() < 1e-8), "{} {}", forth.mean(0), forth.mean(1));
    }

    #[test]
    fn sums_are_those_of_the_elements() {
        for (n, scale) in [(1, 1.0f32), (512, 4095.0), (512, -4095.9), (300, 1e-7), (77, 3e8)] {
            let x: Vec<f32> = (0..n).map(|i| scale * (1.0 - i as f32 / 1000.0)).collect();
            let want: f64 = x.iter().map(|v| f64::from(*v)).sum();
            let got = sum(&x) as f64 * STEP;
            assert!((got - want).abs() <= n as f64 / 4e9 + want.abs() * 1e-12, "{n} of {scale}: {got}, not {want}");
            assert_eq!(sum(&x), x.iter().map(|v| sum(&[*v])).sum::<i128>());
        }
        assert_eq!(sum(&[f32::MAX, f32::NAN, f32::NEG_INFINITY]), MOST);
    }
}
