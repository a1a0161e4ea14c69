//! Cross-layer equalization: neighbouring layers share out the ranges of the channels between them.
//!
//! A positive factor commutes with what stands between two layers (nothing, a ReLU, a pooling, a clamp whose bounds take it
//! too), so channel `i` of the first may be divided by `s[i]` and the second's weights for it multiplied:
//! `s = sqrt(r₁ / r₂)`, with the greatest absolute weights of the channel on either side, makes both ranges equal
//! (Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019). Factors are powers of
//! two, so that the float graph's results keep every bit.
//!
//! Where both weights have a scale for each channel there is little to gain (measured on MobileNetV2 and V3,
//! EfficientNet-Lite0 and ResNet-18: -2.9 to +0.2 dB), so such pairs are left alone.

use crate::annotations::Unit;
use crate::error::Result;
use crate::fold::free_in;
use crate::prepare::{Prepared, group, remap};
use cleave_ir::transform::{Replace, transform_all};
use cleave_ir::{Arg, Builder, Class, ConstKind, Dim, Graph, Kind, Node, NodeId, Tensor};
use cleave_numerics::DType;

/// Rounds over all pairs; each round halves what is left on a logarithmic scale.
const ROUNDS: usize = 24;
/// Greatest power of two by which a channel is scaled in one round.
const MOST: i32 = 24;

/// The prepared graph with layers equalized of which a weight has one scale for all channels, and the pairs as
/// `first → second`; none if there are none.
///
/// # Errors
/// What putting the bounds of clamps in met.
pub fn equalize(p: &Prepared) -> Result<Option<(Prepared, Vec<String>)>> {
    if !p.units.iter().any(|u| has_one_scale(p, u)) {
        return Ok(None);
    }
    let mut layers: Vec<Layer> = p.graph.ids().filter_map(|id| layer(&p.graph, id)).collect();
    let has_one_scale = |l: &Layer| p.units.iter().any(|u| u.compute == l.id && has_one_scale(p, u));
    let mut pairs: Vec<Pair> = (0..layers.len()).filter_map(|a| pair(&p.graph, &layers, a)).collect();
    pairs.retain(|pair| has_one_scale(&layers[pair.from]) || has_one_scale(&layers[pair.to]));
    for _ in 0..ROUNDS {
        let mut changed = false;
        for pair in &mut pairs {
            changed |= pair.balance(&mut layers);
        }
        if !changed {
            break;
        }
    }
    pairs.retain(|pair| pair.powers.iter().any(|k| *k != 0));
    if pairs.is_empty() {
        return Ok(None);
    }
    let graph = rewritten(&p.graph, &layers, &pairs)?;
    // Every node keeps its name.
    let at = |n: NodeId| graph.find(&p.graph.node(n).name).unwrap_or(NodeId::end());
    let units: Vec<Unit> = p.units.iter().map(|u| remap(u, &at)).collect();
    let (groups, sites) = group(&graph, &p.specs, &units);
    let excluded = p.excluded.iter().map(|n| at(*n)).collect();
    let name = |layer: usize| &p.graph.node(layers[layer].id).name;
    let names = pairs.iter().map(|pair| format!("{} → {}", name(pair.from), name(pair.to))).collect();
    Ok(Some((Prepared { units, groups, sites, excluded, graph, ..p.clone() }, names)))
}

/// Whether the weight of a unit is quantized by one scale.
fn has_one_scale(p: &Prepared, u: &Unit) -> bool {
    let weight = |slot: usize| p.graph.node(u.compute).op().is_some_and(|o| o.schema.index("weight") == Some(slot));
    u.inputs.iter().any(|i| i.user == u.compute && weight(i.slot) && p.specs[i.spec].observed())
}

/// A convolution or linear layer that alone uses its weight and bias.
struct Layer {
    id: NodeId,
    weight: (String, Tensor),
    bias: Option<(String, Tensor)>,
    /// The weight's dimension of output channels: 0, or 1 of transposed convolutions.
    axis: usize,
    groups: usize,
}

fn layer(g: &Graph, id: NodeId) -> Option<Layer> {
    let node = g.node(id);
    let axis = node.op()?.weight_axis.filter(|a| *a < 2)?;
    let own = |name: &str| {
        let c = *node.arg(name)?.nodes().first()?;
        let t = g.constant(c).filter(|t| t.dtype() == DType::F32)?;
        let Node { kind: kind @ Kind::GetAttr(_), target, .. } = g.node(c) else { return None };
        let readers = g.nodes().filter(|(_, n)| n.kind == *kind && n.target == *target).count();
        (readers == 1 && g.use_count(c) == 1).then(|| (target.clone(), t.contiguous()))
    };
    let weight = own("weight").filter(|(_, w)| w.shape().len() >= 2)?;
    let bias = match node.arg("bias") {
        None | Some(Arg::None) => None,
        Some(_) => Some(own("bias")?),
    };
    let groups = match node.arg("groups") {
        Some(Arg::Int(n)) => usize::try_from(*n).ok().filter(|n| *n > 0)?,
        _ => 1,
    };
    let l = Layer { id, weight, bias, axis, groups };
    let whole = l.weight.1.shape()[0].is_multiple_of(groups);
    (whole && l.bias.as_ref().is_none_or(|(_, b)| b.shape() == [l.channels()[1]])).then_some(l)
}

impl Layer {
    /// Channels of input and output.
    fn channels(&self) -> [usize; 2] {
        let shape = self.weight.1.shape();
        if self.axis == 0 { [shape[1] * self.groups, shape[0]] } else { [shape[0], shape[1] * self.groups] }
    }

    /// The dimension of the channels of a value that is its input or output.
    fn channel_axis(&self, g: &Graph, value: NodeId) -> Option<usize> {
        (rank(g, value) + 1).checked_sub(self.weight.1.shape().len()).filter(|a| *a > 0)
    }

    /// The channel of input (0) or output (1) that an element of the weight belongs to.
    fn channel(&self, element: usize, of: usize) -> usize {
        let shape = self.weight.1.shape();
        let inner: usize = shape[2..].iter().product();
        let (first, second) = (element / (shape[1] * inner), element / inner % shape[1]);
        // The first dimension runs through all groups, the second through one.
        match (of == 1) == (self.axis == 0) {
            true => first,
            false => first / (shape[0] / self.groups) * shape[1] + second,
        }
    }

    /// Greatest and least absolute weight of each channel; zeros do not count for the least.
    fn ranges(&self, of: usize) -> Vec<(f32, f32)> {
        let mut ranges = vec![(0f32, f32::INFINITY); self.channels()[of]];
        for (i, w) in self.weight.1.to_f32().iter().enumerate() {
            let (most, least) = &mut ranges[self.channel(i, of)];
            *most = most.max(w.abs());
            *least = if *w == 0.0 { *least } else { least.min(w.abs()) };
        }
        ranges
    }

    /// Multiplies the weights of each channel, and the bias of output channels, by a power of two.
    fn scale(&mut self, of: usize, power: impl Fn(usize) -> i32) {
        let factor = |c: usize| 2f32.powi(power(c));
        let scaled = self.weight.1.to_f32().iter().enumerate().map(|(i, w)| w * factor(self.channel(i, of))).collect();
        self.weight.1 = Tensor::new(self.weight.1.shape(), scaled);
        if let (Some((_, b)), 1) = (&mut self.bias, of) {
            let scaled = b.to_f32().iter().enumerate().map(|(c, b)| b * factor(c)).collect();
            *b = Tensor::new(b.shape(), scaled);
        }
    }
}

/// Two layers, by place, with nothing between them that a factor would change.
struct Pair {
    from: usize,
    to: usize,
    /// The dimension of the channels between them.
    axis: usize,
    /// Clamps between them.
    clamps: Vec<NodeId>,
    /// By which power of two each channel between them was divided.
    powers: Vec<i32>,
}

/// The pair that a layer is the first of.
fn pair(g: &Graph, layers: &[Layer], from: usize) -> Option<Pair> {
    let channels = layers[from].channels()[1];
    let mut clamps = vec![];
    let mut at = layers[from].id;
    let axis = layers[from].channel_axis(g, at)?;
    loop {
        let [user] = g.users(at)[..] else { return None };
        if g.use_count(at) != 1 {
            return None;
        }
        let node = g.node(user);
        let first = node.args.first().is_some_and(|a| a.nodes() == [at]);
        if let Some(to) = layers.iter().position(|l| l.id == user) {
            let fits = first && layers[to].channels()[0] == channels && layers[to].channel_axis(g, at) == Some(axis);
            return fits.then(|| Pair { from, to, axis, clamps, powers: vec![0; channels] });
        }
        let op = node.op().filter(|_| first)?;
        match op.base() {
            "relu" | "leaky_relu" => {}
            "max_pool2d" | "avg_pool2d" | "adaptive_avg_pool2d" if axis + 3 == rank(g, at) => {}
            "hardtanh" | "clamp" if !op.short().ends_with("Tensor") => clamps.push(user),
            _ if op.class == Class::View && axis == 1 && drops_ones(g, at, user) => {}
            _ => return None,
        }
        at = user;
    }
}

fn rank(g: &Graph, id: NodeId) -> usize {
    g.node(id).meta.as_tensor().map_or(0, |t| t.shape.len())
}

/// Whether a view makes `[N, C]` of `[N, C, 1, 1]`.
fn drops_ones(g: &Graph, from: NodeId, to: NodeId) -> bool {
    let shape = |id| g.node(id).meta.as_tensor().map(|t| t.shape.as_slice());
    match (shape(from), shape(to)) {
        (Some([n, c, rest @ ..]), Some([m, d])) => n == m && c == d && rest.iter().all(|r| *r == Dim::from(1)),
        _ => false,
    }
}

impl Pair {
    /// Makes the ranges on both sides as equal as powers of two can; tells whether anything changed.
    fn balance(&mut self, layers: &mut [Layer]) -> bool {
        let (of_from, of_to) = (layers[self.from].ranges(1), layers[self.to].ranges(0));
        let power = |((a, least_a), (b, least_b)): (&(f32, f32), &(f32, f32))| {
            if *a == 0.0 || *b == 0.0 || !a.is_finite() || !b.is_finite() {
                return 0;
            }
            let k = ((a.log2() - b.log2()) / 2.0).round_ties_even().clamp(-MOST as f32, MOST as f32) as i32;
            // What would become subnormal or infinite would lose bits.
            let stays = |v: f32, k: i32| (v * 2f32.powi(k)).is_normal();
            let exact = stays(*a, -k) && stays(*least_a, -k) && stays(*b, k) && stays(*least_b, k);
            if exact { k } else { 0 }
        };
        let powers: Vec<i32> = of_from.iter().zip(&of_to).map(power).collect();
        let changed = powers.iter().any(|k| *k != 0);
        if changed {
            layers[self.from].scale(1, |c| -powers[c]);
            layers[self.to].scale(0, |c| powers[c]);
            self.powers.iter_mut().zip(&powers).for_each(|(sum, k)| *sum += k);
        }
        changed
    }
}

/// The graph with the layers' constants, and bounds per channel where a clamp stands in a pair.
fn rewritten(g: &Graph, layers: &[Layer], pairs: &[Pair]) -> Result<Graph> {
    let mut with = g.clone();
    for l in layers {
        for (name, t) in [Some(&l.weight), l.bias.as_ref()].into_iter().flatten() {
            with.constants.insert(name.clone(), t.clone());
        }
    }
    Ok(transform_all(&with, |b, id, node, args| {
        let Some(pair) = pairs.iter().find(|p| p.clamps.contains(&id)) else { return Ok(Replace::Copy) };
        Ok(Replace::With(vec![clamp(b, g, pair, node, args)]))
    })?)
}

/// A clamp between bounds that are divided by the channels' factors.
fn clamp<'b>(b: &'b Builder, g: &Graph, pair: &Pair, node: &Node, args: &[Arg]) -> cleave_ir::Value<'b> {
    let mut shape = vec![pair.powers.len()];
    shape.resize(node.meta.as_tensor().map_or(1, |t| t.shape.len()) - pair.axis, 1);
    let bound = |names: [&str; 2], what: &str| {
        let v = names.iter().find_map(|n| match node.arg(n)? {
            Arg::Float(v) => Some(*v as f32),
            Arg::Int(v) => Some(*v as f32),
            _ => None,
        });
        let Some(v) = v else { return Arg::None };
        let name = free_in(g, &format!("{}_{what}", node.name));
        let bounds = pair.powers.iter().map(|k| v * 2f32.powi(-k)).collect();
        b.constant(&name, ConstKind::Buffer, Tensor::new::<f32>(&shape, bounds)).into()
    };
    let (min, max) = (bound(["min_val", "min"], "min"), bound(["max_val", "max"], "max"));
    match cleave_ir::op::find("aten.clamp.Tensor") {
        Ok(op) => b.call_op(op, vec![args[0].clone(), min, max], Some(&node.name)),
        Err(e) => {
            b.fail(e);
            b.value(NodeId::end())
        }
    }
}
