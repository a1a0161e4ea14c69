//! Constants to integers: weights per output channel, biases at the accumulator's scale.

use crate::observe::ChannelObserver;
use crate::spec::{LEAST_SCALE, Spec, SpecId};
use cleave_ir::Tensor;
use cleave_numerics::{
    DType, NARROW, QParams, QRange, QScheme, bias_to_i32, choose_qparams, quantize_div, quantize_recip,
    reciprocal_per_channel, reciprocal_per_tensor, round_clamp_narrow,
};
use half::{bf16, f16};
use indexmap::IndexMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A weight as integers, with a scale and zero point for each channel.
#[derive(Clone, Debug)]
pub(crate) struct QuantizedWeight {
    /// The integers, in the weight's shape.
    pub q: Tensor,
    /// One for each channel.
    pub scales: Vec<f32>,
    /// What they are where no bias asks for more.
    least: Vec<f32>,
    /// One for each channel.
    pub zero_points: Vec<i32>,
    /// The greatest magnitude of each channel.
    pub reach: Arc<[f32]>,
    /// Channels that are not zero and that the spec's least scale leaves fewer than [`LEAST_LEVELS`] on either side.
    pub flattened: usize,
}

/// What a weight is quantized by: its name, axis and spec.
type Key = (String, usize, SpecId);

/// Weights as they were quantized: attempts that differ in their biases share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<IndexMap<Key, (Tensor, QuantizedWeight)>>>);

impl Known {
    /// The greatest magnitude of each channel of a weight of a graph, as [`Known::quantize`] finds it.
    ///
    /// # Errors
    /// As [`quantize_weight`].
    pub(crate) fn reach(
        &self,
        (name, t): (&str, &Tensor),
        axis: usize,
        (id, spec): (SpecId, &Spec),
        divides: bool,
    ) -> Result<Arc<[f32]>, String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whatever its floors were.
        match all.get(&(name.to_owned(), axis, id)) {
            Some((of, w)) if of.same_place(t) => Ok(Arc::clone(&w.reach)),
            _ => {
                drop(all);
                self.quantize((name, t), axis, (id, spec), divides, &[]).map(|w| w.reach)
            }
        }
    }

    /// What [`quantize_weight`] makes of a weight of a graph, or has made of it.
    ///
    /// # Errors
    /// As [`quantize_weight`].
    pub(crate) fn quantize(
        &self,
        (name, t): (&str, &Tensor),
        axis: usize,
        (id, spec): (SpecId, &Spec),
        divides: bool,
        floors: &[f32],
    ) -> Result<QuantizedWeight, String> {
        let key = (name.to_owned(), axis, id);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(&key) {
            Some((of, w)) if of.same_place(t) && raised(&w.least, floors, t.dtype()) == w.scales => Ok(w.clone()),
            _ => {
                let w = quantize_weight(t, axis, spec, divides, floors)?;
                all.insert(key, (t.clone(), w.clone()));
                Ok(w)
            }
        }
    }
}

/// Quantizes a weight along `axis`. A channel of zeros takes the widest scale of the others,
/// at which its bias is as exact as theirs; with a floor under scales, torch's floor. `floors` are the least
/// scales at which the channels' biases fit, or empty.
///
/// # Errors
/// A weight without such an axis, or with values that are not finite.
pub(crate) fn quantize_weight(
    t: &Tensor,
    axis: usize,
    spec: &Spec,
    divides: bool,
    floors: &[f32],
) -> Result<QuantizedWeight, String> {
    let shape = t.shape();
    if axis >= shape.len() || t.is_empty() {
        return Err(format!("a weight of shape {shape:?} has no channels on axis {axis}"));
    }
    let x = t.to_f32();
    let finite = x.chunks(4096).all(|part| part.iter().fold(true, |all, v| all & v.is_finite()));
    if let Some(bad) = x.iter().find(|v| !finite && !v.is_finite()) {
        return Err(format!("the weight holds {bad}"));
    }
    let mut observed = ChannelObserver::new(spec.observer, axis, shape[axis]);
    observed.update(&x, shape)?;
    let floor = choose_qparams(0.0, 0.0, spec.range, spec.qscheme(), spec.eps).scale;
    let chosen = observed.qparams(spec);
    let mut scales: Vec<f32> = chosen.iter().map(|q| q.map_or(floor, |q| q.scale)).collect();
    let zero_points: Vec<i32> = chosen.iter().map(|q| q.map_or(0, |q| q.zero_point)).collect();
    if spec.eps == LEAST_SCALE {
        let widest = scales.iter().copied().fold(0.0, f32::max);
        let steps = if spec.qscheme() == QScheme::Affine { spec.range.max - spec.range.min } else { spec.range.max };
        let widest = if widest > LEAST_SCALE { widest } else { 1.0 / steps as f32 };
        let zero = observed.channels().iter().map(|o| o.extrema() == Some((0.0, 0.0)));
        scales.iter_mut().zip(zero).filter(|(_, z)| *z).for_each(|(s, _)| *s = widest);
    }
    let least = scales;
    let scales = raised(&least, floors, t.dtype());
    let inner: usize = shape[axis + 1..].iter().product();
    let QRange { min, max, dtype } = spec.range;
    let mut levels = Vec::with_capacity(x.len());
    for (i, row) in x.chunks(inner.max(1)).enumerate() {
        let (scale, zp) = (scales[i % shape[axis]], zero_points[i % shape[axis]]);
        let inverse = reciprocal_per_channel(scale);
        let near = [min, max].iter().all(|bound| (i64::from(*bound) - i64::from(zp)).abs() < NARROW);
        match (divides, near) {
            (true, true) => levels.extend(row.iter().map(|v| round_clamp_narrow(v / scale, zp, min, max))),
            (true, false) => levels.extend(row.iter().map(|v| quantize_div(*v, scale, zp, min, max))),
            (false, true) => levels.extend(row.iter().map(|v| round_clamp_narrow(v * inverse, zp, min, max))),
            (false, false) => levels.extend(row.iter().map(|v| quantize_recip(*v, inverse, zp, min, max))),
        }
    }
    let q = integers(shape, levels.into_iter(), dtype);
    let flat = |(reach, s): &(&f32, &f32)| {
        spec.eps > LEAST_SCALE && **s <= spec.eps && **reach > 0.0 && **reach < **s * LEAST_LEVELS
    };
    let few = scales.iter().any(|s| *s <= spec.eps);
    let reach: Arc<[f32]> =
        observed.channels().iter().map(|o| o.extrema().map_or(0.0, |(lo, hi)| hi.max(-lo).max(0.0))).collect();
    let flattened = if few { reach.iter().zip(&scales).filter(flat).count() } else { 0 };
    Ok(QuantizedWeight { q, scales, least, zero_points, reach, flattened })
}

/// Scales that are no less than the floors, if there are any, as the type of their tensor holds them.
fn raised(least: &[f32], floors: &[f32], dtype: DType) -> Vec<f32> {
    let floor = |c: usize| floors.get(c).copied().unwrap_or(0.0);
    least.iter().enumerate().map(|(c, s)| in_type(s.max(floor(c)), dtype)).collect()
}

/// A scale as the type of its tensor holds it, no less than that type's least normal number.
pub(crate) fn in_type(scale: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => f16::from_f32(scale).max(f16::MIN_POSITIVE).to_f32(),
        DType::BF16 => bf16::from_f32(scale).max(bf16::MIN_POSITIVE).to_f32(),
        _ => scale,
    }
}

/// Levels that a weight keeps on either side of 0 where its scale is raised for its bias.
const LEAST_LEVELS: f32 = 8.0;

/// A channel this much smaller than the weight's greatest element may lose all levels for its bias.
const NEGLIGIBLE: f32 = 1.0 / 1024.0;

/// The least scale of each channel at which `bias / (sx · scale)` fits beside the greatest sum of products, 0 where
/// any does; none if a channel that matters would lose its levels. `reach` are the channels' greatest magnitudes.
pub(crate) fn bias_floors(reach: &[f32], bias: &Tensor, sx: f32, room: i64) -> Option<Vec<f32>> {
    if room <= 0 {
        return None;
    }
    let widest = reach.iter().copied().fold(0.0, f32::max);
    let mut floors = vec![0.0f32; reach.len()];
    for (c, b) in bias.to_f32().iter().enumerate() {
        // A little more than the quotient, which rounds.
        let least = b.abs() / room as f32 / sx * 1.000_001;
        let c = c % floors.len().max(1);
        floors[c] = least.max(floors[c]);
    }
    let kept = |(floor, reach): (&f32, &f32)| floor * LEAST_LEVELS <= *reach || *reach <= widest * NEGLIGIBLE;
    floors.iter().zip(reach).all(kept).then_some(floors)
}

/// What a 32-bit sum leaves for a bias beside `products` products of at most `limit`.
pub(crate) fn bias_room(products: usize, limit: i64) -> i64 {
    i64::from(i32::MAX) - limit.saturating_mul(products as i64)
}

/// A constant quantized by one scale.
pub(crate) fn quantize_constant(t: &Tensor, p: QParams, range: QRange, divides: bool) -> Tensor {
    let inverse = reciprocal_per_tensor(p.scale);
    let x = t.to_f32();
    let q = x.iter().map(|v| match divides {
        true => quantize_div(*v, p.scale, p.zero_point, range.min, range.max),
        false => quantize_recip(*v, inverse, p.zero_point, range.min, range.max),
    });
    integers(t.shape(), q, range.dtype)
}

/// A constant as half-precision numbers, rounded to nearest.
pub(crate) fn cast(t: &Tensor, dtype: DType) -> Tensor {
    let x = t.to_f32();
    match dtype {
        DType::BF16 => Tensor::new(t.shape(), x.iter().map(|v| bf16::from_f32(*v)).collect()),
        _ => Tensor::new(t.shape(), x.iter().map(|v| f16::from_f32(*v)).collect()),
    }
}

/// Integers that are known to fit, as a tensor of their type.
fn integers(shape: &[usize], q: impl Iterator<Item = i32>, dtype: DType) -> Tensor {
    match dtype {
        DType::U8 => Tensor::new(shape, q.map(|v| v as u8).collect()),
        DType::I8 => Tensor::new(shape, q.map(|v| v as i8).collect()),
        DType::U16 => Tensor::new(shape, q.map(|v| v as u16).collect()),
        DType::I16 => Tensor::new(shape, q.map(|v| v as i16).collect()),
        _ => Tensor::new(shape, q.collect::<Vec<i32>>()),
    }
}

/// A bias at the scales of the accumulator.
pub(crate) struct QuantizedBias {
    /// i32 `[C]`.
    pub q: Tensor,
    /// One for each channel, or one.
    pub scales: Vec<f32>,
}

impl QuantizedBias {
    /// What the integers stand for.
    pub fn floats(&self) -> Vec<f32> {
        let scale = |c: usize| self.scales[c % self.scales.len()];
        self.q.to_i64().into_iter().enumerate().map(|(c, q)| q as f32 * scale(c)).collect()
    }
}

/// Quantizes a bias to `rne(b / (sx·sw))`; `products` is the number of weights that one output sums over,
/// `limit` the greatest product of an activation and a weight.
///
/// # Errors
/// Why it must stay float: it does not fit, or the sum might not.
pub(crate) fn quantize_bias(
    bias: &Tensor,
    sx: f32,
    sw: &[f32],
    products: usize,
    limit: i64,
) -> Result<QuantizedBias, String> {
    let b = bias.to_f32();
    let room = bias_room(products, limit);
    let mut q = Vec::with_capacity(b.len());
    for (c, v) in b.iter().enumerate() {
        let w = sw[c % sw.len()];
        match bias_to_i32(*v, sx, w) {
            Some(i) if i64::from(i).abs() <= room => q.push(i),
            _ => return Err(format!("element {c}, {v}, does not fit 32 bits at the scale {}", sx * w)),
        }
    }
    let scales = if sw.len() == 1 { vec![sx * sw[0]] } else { (0..b.len()).map(|c| sx * sw[c % sw.len()]).collect() };
    Ok(QuantizedBias { q: Tensor::new(&[b.len()], q), scales })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{ObserverKind, Scheme};

    fn spec(min: i32, eps: f32) -> Spec {
        let range = QRange { dtype: DType::I8, min, max: 127 };
        Spec { name: "w".into(), range, scheme: Scheme::PerChannelSymmetric, observer: ObserverKind::Minmax, eps }
    }

    #[test]
    fn channels_have_their_own_scales_on_any_axis() {
        let t = Tensor::new(&[2, 3], vec![1.27f32, 0.0, -0.5, -0.635, 0.0, 2.54]);
        let rows = quantize_weight(&t, 0, &spec(-127, LEAST_SCALE), true, &[]).unwrap();
        assert_eq!(rows.scales, [1.27 / 127.0, 2.54 / 127.0]);
        assert_eq!(rows.q.elements::<i8>().unwrap().as_ref(), [127, 0, -50, -32, 0, 127]);
        let columns = quantize_weight(&t, 1, &spec(-127, LEAST_SCALE), true, &[]).unwrap();
        assert_eq!(columns.scales, [1.27 / 127.0, 2.54 / 127.0, 2.54 / 127.0], "the channel of zeros takes the widest");
        let torch = quantize_weight(&t, 1, &spec(-128, cleave_numerics::EPS_TORCH), false, &[]).unwrap();
        assert_eq!(torch.scales[1], cleave_numerics::EPS_TORCH);
        let tiny = Tensor::new(&[2, 1], vec![1e-3f32, 1.0]);
        let torch = quantize_weight(&tiny, 0, &spec(-128, cleave_numerics::EPS_TORCH), false, &[]).unwrap();
        assert_eq!(torch.flattened, 1);
        assert_eq!(quantize_weight(&tiny, 0, &spec(-128, LEAST_SCALE), false, &[]).unwrap().flattened, 0);
        assert!(quantize_weight(&t, 2, &spec(-127, LEAST_SCALE), true, &[]).is_err());
    }

    #[test]
    fn scales_are_raised_for_biases_as_far_as_the_weight_allows() {
        let t = Tensor::new(&[3, 1], vec![1e-5f32, 1.0, 0.0]);
        let reach = quantize_weight(&t, 0, &spec(-127, LEAST_SCALE), true, &[]).unwrap().reach;
        let floors = |b: [f32; 3]| bias_floors(&reach, &Tensor::new(&[3], b.to_vec()), 0.01, 1 << 30);
        let got = floors([1.0, 1.0, 1.0]).unwrap();
        assert!(got.iter().all(|f| (*f - 1.0 / 0.01 / (1u64 << 30) as f32).abs() < 1e-12), "{got:?}");
        assert!(floors([1e6, 0.0, 1e6]).is_some(), "channels that are negligible, or zero, give way");
        assert!(floors([0.0, 1e7, 0.0]).is_none(), "one that matters does not");
        let q = quantize_weight(&t, 0, &spec(-127, LEAST_SCALE), true, &floors([100.0, 0.0, 0.0]).unwrap()).unwrap();
        assert_eq!(q.q.elements::<i8>().unwrap().as_ref(), [1, 127, 0]);
    }

    #[test]
    fn a_bias_that_does_not_fit_stays_float() {
        let b = Tensor::new(&[2], vec![1.0f32, -3.0]);
        let q = quantize_bias(&b, 0.5, &[0.25, 0.5], 9, 255 * 127).unwrap();
        assert_eq!(
            (q.q.elements::<i32>().unwrap().as_ref(), q.scales.as_slice()),
            ([8, -12].as_slice(), [0.125, 0.25].as_slice())
        );
        let why = quantize_bias(&Tensor::new(&[1], vec![3e9f32]), 1.0, &[1.0], 9, 255 * 127).err().unwrap();
        assert_eq!(why, "element 0, 3000000000, does not fit 32 bits at the scale 1");
        assert!(quantize_bias(&b, 1.0, &[1.0], 70_000, 255 * 127).is_err());
    }
}
