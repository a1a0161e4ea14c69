//! Convert: quantize and dequantize put in, constants folded to integers, the plan filled in.
//!
//! A quantized value is quantized once, right behind its producer; every consumer has its own dequantize.
//! Compute ops, and what stands between them and the quantize, keep their names.

mod constants;
mod dynamic;

use crate::calibrate::Statistics;
use crate::check;
use crate::error::Result;
use crate::fold::free_in;
use crate::notes;
use crate::plan::{Plan, QParamsRow, Status};
use crate::prepare::{GroupId, Prepared};
use crate::settle::{self, Settled};
use crate::spec::{Scheme, SpecId};
use crate::weights;
use cleave_ir::{Arg, Builder, ConstKind, Graph, Meta, Node, NodeId, Tensor, op, transform};
use cleave_numerics::{DType, QParams, QRange, QScheme};
use dynamic::Computed;
use indexmap::{IndexMap, IndexSet};

/// A quantized graph and its plan.
#[derive(Clone, Debug)]
pub struct Converted {
    /// The graph with quantize and dequantize ops.
    pub graph: Graph,
    /// What was decided for each node, with numbers.
    pub plan: Plan,
}

const NAMESPACE: &str = "quantized_decomposed.";

/// A use of a value: user, parameter, place in a list.
type Place = (NodeId, usize, Option<usize>);

/// A weight by its name, spec and channel axis: uses that agree in them share the integers.
type WeightKey = (String, SpecId, usize);

/// Integers with their scales and zero points per channel.
#[derive(Clone, Copy)]
struct Channels {
    q: NodeId,
    scales: NodeId,
    zero_points: NodeId,
}

/// The weight and the activation that a bias is added to the products of.
struct Beside<'a> {
    weight: &'a Tensor,
    target: &'a String,
    value: NodeId,
    spec: SpecId,
    axis: usize,
    sx: f32,
    /// Weights that one output sums over.
    products: usize,
    /// The greatest product.
    limit: i64,
}

struct Converter<'a> {
    p: &'a Prepared,
    s: &'a Settled,
    b: Builder,
    /// Old to new nodes, in float.
    map: Vec<NodeId>,
    /// Quantized edges of the units that stay, with their unit.
    edges: IndexMap<Place, (usize, SpecId)>,
    /// How results of units are quantized.
    outputs: IndexMap<NodeId, SpecId>,
    /// The specs that consumers ask for, by value.
    asked: IndexMap<NodeId, IndexSet<SpecId>>,
    quantized: IndexMap<(NodeId, SpecId), NodeId>,
    /// Values that are quantized by a scale that is computed.
    computed: IndexMap<(NodeId, SpecId), Computed>,
    weights: IndexMap<WeightKey, (Channels, Vec<f32>)>,
    /// Constants as other floating-point types: what two nodes stand for is stored once.
    casts: IndexMap<(String, DType), Tensor>,
    /// The groups of quantizes and dequantizes, by their names.
    members: IndexMap<String, GroupId>,
    /// Least scales of weights, so that the biases beside them fit.
    floors: IndexMap<WeightKey, Vec<f32>>,
    notes: Vec<String>,
}

/// Converts a calibrated graph.
///
/// # Errors
/// Statistics that do not belong to it. [`QuantizeError::Invariant`](crate::QuantizeError::Invariant) if the result
/// contradicts itself.
pub fn convert(p: &Prepared, stats: &Statistics) -> Result<Converted> {
    let observed = stats.of_groups(p)?;
    let settled = settle::settle(p, &observed);
    let (graph, mut more) = build(p, &settled)?;
    let mut notes = notes::notes(p, stats, &observed, &settled);
    notes.append(&mut more);
    Ok(Converted { graph, plan: plan(p, &settled, notes) })
}

/// The graph in which of all units this one alone is quantized, as [`convert`] quantizes it; none if that leaves it
/// float. Its results show what quantizing this unit does.
///
/// # Errors
/// As [`convert`].
pub fn convert_alone(p: &Prepared, stats: &Statistics, unit: usize) -> Result<Option<Graph>> {
    let mut settled = settle::settle(p, &stats.of_groups(p)?);
    if settled.dropped.get(unit).is_none_or(Option::is_some) {
        return Ok(None);
    }
    for other in (0..p.units.len()).filter(|n| *n != unit) {
        settled.dropped[other].get_or_insert_with(|| "left out".into());
        settled.outputs[other] = None;
    }
    Ok(Some(build(p, &settled)?.0))
}

/// The graph with what is settled put in, and notes on what could not be.
fn build(p: &Prepared, settled: &Settled) -> Result<(Graph, Vec<String>)> {
    let mut c = Converter::new(p, settled);
    for (id, node) in p.graph.nodes() {
        c.node(id, node);
    }
    let mut graph = c.b.finish()?;
    graph.input_names.clone_from(&p.graph.input_names);
    graph.output_names.clone_from(&p.graph.output_names);
    if p.divides {
        graph.metadata.insert("quantize".into(), "divide".into());
    }
    if p.fixed_gates {
        graph.metadata.insert("gates".into(), "fixed".into());
    }
    let graph = transform::prune(&graph);
    check::check(&graph, &c.members)?;
    Ok((graph, c.notes))
}

impl<'a> Converter<'a> {
    fn new(p: &'a Prepared, s: &'a Settled) -> Converter<'a> {
        let (mut edges, mut outputs) = (IndexMap::new(), IndexMap::new());
        let mut asked: IndexMap<NodeId, IndexSet<SpecId>> = IndexMap::new();
        for (n, u) in p.units.iter().enumerate().filter(|(n, _)| s.dropped[*n].is_none()) {
            for i in &u.inputs {
                edges.insert((i.user, i.slot, i.index), (n, i.spec));
                if p.sites.contains_key(&(i.value, i.spec)) {
                    asked.entry(i.value).or_default().insert(i.spec);
                }
            }
            if let Some(o) = s.outputs[n] {
                outputs.insert(u.root, o);
            }
        }
        let b = Builder::from_graph(p.graph.shell());
        let mut c = Converter {
            p,
            s,
            b,
            map: vec![],
            edges,
            outputs,
            asked,
            quantized: IndexMap::new(),
            computed: IndexMap::new(),
            weights: IndexMap::new(),
            casts: IndexMap::new(),
            members: IndexMap::new(),
            floors: IndexMap::new(),
            notes: vec![],
        };
        c.raise_floors();
        c
    }

    /// Finds the least scales of weights at which the biases of all their units fit.
    fn raise_floors(&mut self) {
        for (n, u) in self.p.units.iter().enumerate().filter(|(n, _)| self.s.dropped[*n].is_none()) {
            let derived = |s: SpecId| matches!(self.p.specs[s].scheme, Scheme::Derived { as_float: false, .. });
            for i in u.inputs.iter().filter(|i| derived(i.spec)) {
                let Some(b) = self.beside(n, i.spec) else { continue };
                let Some(bias) = self.p.graph.constant(i.value) else { continue };
                if self.p.specs[b.spec].scheme != Scheme::PerChannelSymmetric {
                    continue;
                }
                let room = weights::bias_room(b.products, b.limit);
                let spec = (b.spec, &self.p.specs[b.spec]);
                // One that cannot be quantized is told of where it is asked for.
                let reach = self.p.known.reach((b.target, b.weight), b.axis, spec, self.p.divides);
                let Ok(reach) = reach else { continue };
                let Some(least) = weights::bias_floors(&reach, bias, b.sx, room) else { continue };
                let floors = self.floors.entry((b.target.clone(), b.spec, b.axis)).or_default();
                floors.resize(least.len(), 0.0);
                floors.iter_mut().zip(least).for_each(|(f, l)| *f = f.max(l));
            }
        }
    }

    /// What a derived bias of a unit stands beside.
    fn beside(&self, unit: usize, spec: SpecId) -> Option<Beside<'a>> {
        let u = &self.p.units[unit];
        let Scheme::Derived { from, .. } = &self.p.specs[spec].scheme else { return None };
        let [x, w] = [0, 1].map(|k| u.inputs.iter().find(|i| i.capture == from[k]));
        let (x, w) = (x?, w?);
        let weight = self.p.graph.constant(w.value)?;
        let axis = self.p.graph.node(w.user).op().and_then(|o| o.weight_axis).unwrap_or(0);
        let widest = |r: QRange| i64::from(r.max) - i64::from(r.min);
        let magnitude = |spec: SpecId| match (&self.p.specs[spec], self.p.specs[spec].range) {
            (s, r) if s.qscheme() == QScheme::Affine => widest(r),
            (_, r) => i64::from(r.max).abs().max(i64::from(r.min).abs()),
        };
        Some(Beside {
            weight,
            target: &self.p.graph.node(w.value).target,
            value: w.value,
            spec: w.spec,
            axis,
            sx: self.qparams(x.value, x.spec).scale,
            products: weight.len() / weight.shape().get(axis).copied().unwrap_or(1).max(1),
            limit: widest(self.p.specs[x.spec].range) * magnitude(w.spec),
        })
    }

    fn node(&mut self, id: NodeId, node: &Node) {
        self.b.set_origin(node.origin.clone());
        // One dequantize for each (consumer, value) outside of units.
        let mut plain = IndexMap::new();
        let args = node.args.iter().enumerate().map(|(slot, a)| self.argument(id, slot, a, &mut plain)).collect();
        let new = self.b.edit(|g| g.push(Node { args, ..node.clone() }));
        self.map.push(new);
        if self.p.graph.constant(id).is_some() {
            return;
        }
        let first = self.outputs.get(&id).copied();
        let others = self.asked.get(&id).cloned().unwrap_or_default();
        for spec in first.into_iter().chain(others) {
            self.quantize(id, spec);
        }
    }

    fn argument(&mut self, user: NodeId, slot: usize, a: &Arg, plain: &mut IndexMap<NodeId, NodeId>) -> Arg {
        match a {
            Arg::Node(value) => Arg::Node(self.operand((user, slot, None), *value, plain)),
            Arg::List(items) => {
                let one = |(i, a): (usize, &Arg)| match a {
                    Arg::Node(value) => Arg::Node(self.operand((user, slot, Some(i)), *value, plain)),
                    other => other.map_nodes(&mut |n| Arg::Node(self.map[n.index()])),
                };
                Arg::List(items.iter().enumerate().map(one).collect())
            }
            other => other.clone(),
        }
    }

    /// What a consumer reads in place of a value.
    fn operand(&mut self, place: Place, value: NodeId, plain: &mut IndexMap<NodeId, NodeId>) -> NodeId {
        if let Some(&(unit, spec)) = self.edges.get(&place) {
            let done = match self.p.specs[spec].scheme {
                Scheme::PerChannelSymmetric | Scheme::PerChannelAffine => self.weight(place.0, value, spec),
                Scheme::PerGroupSymmetric(n) | Scheme::PerGroupAffine(n) => self.grouped(place.0, value, spec, n),
                Scheme::Derived { .. } => self.bias(unit, value, spec),
                Scheme::Dynamic(scheme) => Some(self.dynamic(value, spec, scheme)),
                _ => {
                    let q = self.quantize(value, spec);
                    Some(self.dequantize(q, value, spec))
                }
            };
            return done.unwrap_or(self.map[value.index()]);
        }
        let Some(&spec) = self.outputs.get(&value) else { return self.map[value.index()] };
        if let Some(done) = plain.get(&value) {
            return *done;
        }
        let q = self.quantize(value, spec);
        let dq = self.dequantize(q, value, spec);
        plain.insert(value, dq);
        dq
    }

    fn qparams(&self, value: NodeId, spec: SpecId) -> QParams {
        let group = self.p.sites.get(&(value, spec));
        let q = group.and_then(|g| self.s.qparams[*g]);
        q.expect("invariant: units whose groups have no qparams were dropped")
    }

    /// The quantized form of a value under a spec.
    fn quantize(&mut self, value: NodeId, spec: SpecId) -> NodeId {
        if let Some(q) = self.quantized.get(&(value, spec)) {
            return *q;
        }
        let p = self.qparams(value, spec);
        let range = self.p.specs[spec].range;
        if self.p.specs[spec].scheme == Scheme::Cast {
            let half = self.cast(value, range.dtype);
            self.quantized.insert((value, spec), half);
            return half;
        }
        let name = format!("{}_q", self.p.graph.node(value).name);
        let q = match self.p.graph.constant(value) {
            Some(t) => {
                let t = weights::quantize_constant(t, p, range, self.p.divides);
                let target = format!("{}_q", self.p.graph.node(value).target);
                self.b.constant(&free_in(&self.p.graph, &target), ConstKind::Param, t).id()
            }
            None => {
                let from = match self.outputs.get(&value).copied().filter(|o| *o != spec) {
                    Some(own) => {
                        let (a, b) = (self.p.specs[own].describe(), self.p.specs[spec].describe());
                        let name = &self.p.graph.node(value).name;
                        self.notes
                            .push(format!("{name} is {a}; a consumer asks for {b}: dequantized and quantized again"));
                        let q = self.quantize(value, own);
                        self.dequantize(q, value, own)
                    }
                    None => self.map[value.index()],
                };
                let q = self.call("quantize_per_tensor", scalar_args(from, p, range), &name);
                self.note_member(q, value, spec);
                q
            }
        };
        self.quantized.insert((value, spec), q);
        q
    }

    fn dequantize(&mut self, q: NodeId, value: NodeId, spec: SpecId) -> NodeId {
        let p = self.qparams(value, spec);
        if self.p.specs[spec].scheme == Scheme::Cast {
            let node = self.p.graph.node(value);
            let dtype = node.meta.as_tensor().map_or(DType::F32, |t| t.dtype);
            return self.called("aten._to_copy", vec![q.into(), dtype.into()], &format!("{}_{dtype}", node.name));
        }
        let mut args = scalar_args(q, p, self.p.specs[spec].range);
        args.push(self.out_dtype(value));
        let name = format!("{}_dq", self.p.graph.node(value).name);
        let dq = self.call("dequantize_per_tensor", args, &name);
        self.note_member(dq, value, spec);
        dq
    }

    /// A value as another floating-point type: a constant is stored so.
    fn cast(&mut self, value: NodeId, dtype: DType) -> NodeId {
        let node = self.p.graph.node(value);
        match self.p.graph.constant(value) {
            Some(t) => {
                let target = free_in(&self.p.graph, &format!("{}_{dtype}", node.target));
                let cast = self.casts.entry((node.target.clone(), dtype)).or_insert_with(|| weights::cast(t, dtype));
                self.b.constant(&target, ConstKind::Param, cast.clone()).id()
            }
            None => {
                let x = self.map[value.index()];
                self.called("aten._to_copy", vec![x.into(), dtype.into()], &format!("{}_{dtype}", node.name))
            }
        }
    }

    /// Remembers to which group a quantize or dequantize belongs.
    fn note_member(&mut self, id: NodeId, value: NodeId, spec: SpecId) {
        let name = self.b.edit(|g| g.node(id).name.clone());
        self.members.extend(self.p.sites.get(&(value, spec)).map(|group| (name, *group)));
    }

    /// The element type of a value, where it is not f32.
    fn out_dtype(&self, value: NodeId) -> Arg {
        match &self.p.graph.node(value).meta {
            Meta::Tensor(t) if t.dtype != DType::F32 => Arg::DType(t.dtype),
            _ => Arg::None,
        }
    }

    fn call(&self, name: &str, args: Vec<Arg>, node: &str) -> NodeId {
        self.called(&format!("{NAMESPACE}{name}"), args, node)
    }

    fn called(&self, name: &str, args: Vec<Arg>, node: &str) -> NodeId {
        match op::find(name) {
            Ok(o) => self.b.call_op(o, args, Some(&free_in(&self.p.graph, node))).id(),
            Err(e) => {
                self.b.fail(e);
                NodeId::end()
            }
        }
    }
}

/// The arguments that quantize and dequantize have in common.
fn scalar_args(input: NodeId, p: QParams, range: QRange) -> Vec<Arg> {
    vec![
        input.into(),
        f64::from(p.scale).into(),
        i64::from(p.zero_point).into(),
        i64::from(range.min).into(),
        i64::from(range.max).into(),
        range.dtype.into(),
    ]
}

fn plan(p: &Prepared, s: &Settled, notes: Vec<String>) -> Plan {
    let mut rows = vec![];
    for (row, unit) in &p.rows {
        let mut row = row.clone();
        if let Some(u) = *unit {
            match &s.dropped[u] {
                Some(why) if row.status == Status::Quantized => {
                    row.status = Status::Float;
                    row.reason = Some(why.clone());
                }
                Some(_) => {}
                None => {
                    let site = s.outputs[u].map(|o| (p.units[u].root, o));
                    row.group = site.and_then(|s| p.sites.get(&s).copied());
                    row.qparams = site.zip(row.group).and_then(|((_, spec), g)| {
                        let (q, r) = (s.qparams[g]?, p.specs[spec].range);
                        if r.dtype.is_float() {
                            return None;
                        }
                        Some(QParamsRow {
                            dtype: r.dtype.name().into(),
                            scale: q.scale,
                            zero_point: q.zero_point,
                            qmin: r.min,
                            qmax: r.max,
                        })
                    });
                }
            }
        }
        rows.push(row);
    }
    Plan { quantizer: p.quantizer.clone(), rows, notes: p.notes.iter().cloned().chain(notes).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Selection, TomlQuantizer, annotate, prepare};
    use cleave_ir::text;

    /// What the check of groups is told: every quantize and dequantize under the name that it has in the graph.
    #[test]
    fn members_of_groups_are_known_by_the_names_in_the_graph() {
        let g = text::parse(
            "graph(%x: f32[2, 4], %y: f32[2, 4]) {
  %cat = aten.cat([%x, %y], 1): f32[2, 8]
  %relu = aten.relu(%cat): f32[2, 8]
  return %relu
}",
        );
        let q = r#"
[quantizer]
name = "mine"
[spec.a]
dtype = "u8"
scheme = "fixed"
scale = 0.5
zero_point = 3
[[pattern]]
name = "cat"
match = "cat([xs…])"
inputs = { xs = "a" }
output = "a"
share = ["xs", "output"]
"#;
        let (g, q) = (g.unwrap(), TomlQuantizer::parse(q, "mine.toml").unwrap());
        let p = prepare(&g, &annotate(&g, &q, &Selection::default()).unwrap()).unwrap();
        let stats = Statistics::new(&p);
        let settled = settle::settle(&p, &stats.of_groups(&p).unwrap());
        let mut c = Converter::new(&p, &settled);
        p.graph.nodes().for_each(|(id, node)| c.node(id, node));
        let graph = c.b.finish().unwrap();
        let levels: Vec<&str> = graph
            .nodes()
            .filter(|(_, n)| n.name.contains("_q") || n.name.contains("_dq"))
            .map(|(_, n)| n.name.as_str())
            .collect();
        assert_eq!(levels, ["x_q", "y_q", "x_dq", "y_dq", "cat_q", "cat_dq"]);
        assert!(levels.iter().all(|n| c.members.get(*n) == Some(&0)), "{:?}", c.members);
    }
}
