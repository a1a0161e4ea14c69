//! Constants behind a dequantize: weights and biases as integers, put in where they are used.

use super::{Channels, Converter, scalar_args};
use crate::fold::free_in;
use crate::spec::{Scheme, SpecId};
use crate::weights;
use cleave_ir::{Arg, ConstKind, NodeId, Tensor};
use cleave_numerics::{DType, QParams, QRange};

impl Converter<'_> {
    /// A weight as integers behind a dequantize; a weight that two nodes share is stored once.
    pub(super) fn weight(&mut self, user: NodeId, value: NodeId, spec: SpecId) -> Option<NodeId> {
        let axis = self.p.graph.node(user).op().and_then(|o| o.weight_axis).unwrap_or(0);
        let target = self.p.graph.node(value).target.clone();
        let key = (target.clone(), spec, axis);
        let t = self.p.graph.constant(value)?;
        if !self.weights.contains_key(&key) {
            let floors = self.floors.get(&key).map_or(&[][..], Vec::as_slice);
            let by = (spec, &self.p.specs[spec]);
            let w = match self.p.known.quantize((&target, t), axis, by, self.p.divides, floors) {
                Ok(w) => w,
                Err(why) => {
                    self.notes.push(format!("weight of {} kept float: {why}", self.p.graph.node(user).name));
                    return None;
                }
            };
            if w.flattened > 0 {
                let (spec, node) = (&self.p.specs[spec], &self.p.graph.node(user).name);
                self.notes.push(format!(
                    "weight of {node}: {} of {} channels keep few levels or none at the least scale {} of spec '{}'; \
                     a spec with a smaller eps, or --float {node}, mends it",
                    w.flattened,
                    w.scales.len(),
                    spec.eps,
                    spec.name
                ));
            }
            let channels = self.channels(&target, w.q, &w.scales, &w.zero_points);
            self.weights.insert(key.clone(), (channels, w.scales));
        }
        let channels = self.weights.get(&key)?.0;
        let range = self.p.specs[spec].range;
        let name = format!("{}_dq", self.p.graph.node(value).name);
        Some(self.dequantize_channels(channels, axis, range, self.out_dtype(value), &name))
    }

    /// A weight as integers `[groups, size]` behind a dequantize and a view to its own shape.
    pub(super) fn grouped(&mut self, user: NodeId, value: NodeId, spec: SpecId, size: usize) -> Option<NodeId> {
        let t = self.p.graph.constant(value)?;
        let shape = t.shape().to_vec();
        let mut fail = |why: String| {
            self.notes.push(format!("weight of {} kept float: {why}", self.p.graph.node(user).name));
            None
        };
        if !shape.last().is_some_and(|n| n.is_multiple_of(size)) || t.is_empty() {
            return fail(format!("the last axis of {shape:?} is no multiple of the group size {size}"));
        }
        let rows = t.contiguous().reshape(&[t.len() / size, size]);
        let w = match weights::quantize_weight(&rows, 0, &self.p.specs[spec], self.p.divides, &[]) {
            Ok(w) => w,
            Err(why) => return fail(why),
        };
        let node = self.p.graph.node(value);
        let key = (node.target.clone(), spec, shape.len());
        let channels = match self.weights.get(&key) {
            Some((channels, _)) => *channels,
            None => self.channels(&node.target, w.q, &w.scales, &w.zero_points),
        };
        self.weights.insert(key, (channels, w.scales));
        let name = format!("{}_dq", node.name);
        let range = self.p.specs[spec].range;
        let dq = self.dequantize_channels(channels, 0, range, self.out_dtype(value), &format!("{name}_groups"));
        let sizes = Arg::List(shape.iter().map(|n| Arg::from(*n)).collect());
        Some(self.called("aten.view", vec![dq.into(), sizes], &name))
    }

    fn channels(&self, target: &str, q: Tensor, scales: &[f32], zero_points: &[i32]) -> Channels {
        let n = [scales.len()];
        let put = |what: &str, kind, t: Tensor| {
            self.b.constant(&free_in(&self.p.graph, &format!("{target}_{what}")), kind, t).id()
        };
        Channels {
            q: put("q", ConstKind::Param, q),
            scales: put("scale", ConstKind::Buffer, Tensor::new(&n, scales.to_vec())),
            zero_points: put(
                "zero_point",
                ConstKind::Buffer,
                Tensor::new(&n, zero_points.iter().map(|z| i64::from(*z)).collect()),
            ),
        }
    }

    fn dequantize_channels(&self, c: Channels, axis: usize, range: QRange, out_dtype: Arg, name: &str) -> NodeId {
        let args = vec![
            c.q.into(),
            c.scales.into(),
            c.zero_points.into(),
            axis.into(),
            i64::from(range.min).into(),
            i64::from(range.max).into(),
            range.dtype.into(),
            out_dtype,
        ];
        self.call("dequantize_per_channel", args, name)
    }

    /// A bias as i32 at the scales of its unit's activation and weight; none where it stays float.
    pub(super) fn bias(&mut self, unit: usize, value: NodeId, spec: SpecId) -> Option<NodeId> {
        let beside = self.beside(unit, spec)?;
        let sw = match self.p.specs[beside.spec].scheme {
            Scheme::PerChannelSymmetric | Scheme::PerChannelAffine => {
                self.weights.get(&(beside.target.clone(), beside.spec, beside.axis))?.1.clone()
            }
            // An accumulator has one scale; a sum over groups has several.
            Scheme::PerGroupSymmetric(_) | Scheme::PerGroupAffine(_) => return None,
            _ => vec![self.qparams(beside.value, beside.spec).scale],
        };
        let node = self.p.graph.node(value);
        let bias = self.p.graph.constant(value)?;
        if bias.dtype() != DType::F32 {
            // The product of two scales is no number of a 16-bit type.
            return None;
        }
        let compute = &self.p.graph.node(self.p.units[unit].compute).name;
        let q = match weights::quantize_bias(bias, beside.sx, &sw, beside.products, beside.limit) {
            Ok(q) => q,
            Err(why) => {
                self.notes.push(format!("bias of {compute} kept float: {why}"));
                return None;
            }
        };
        let (target, name) = (format!("{compute}.bias"), format!("{}_dq", node.name));
        if matches!(self.p.specs[spec].scheme, Scheme::Derived { as_float: true, .. }) {
            let floats = Tensor::new(bias.shape(), q.floats());
            return Some(self.b.constant(&free_in(&self.p.graph, &target), ConstKind::Param, floats).id());
        }
        let range = self.p.specs[spec].range;
        let out_dtype = self.out_dtype(value);
        if let [scale] = q.scales.as_slice() {
            let id = self.b.constant(&free_in(&self.p.graph, &format!("{target}_q")), ConstKind::Param, q.q).id();
            let mut args = scalar_args(id, QParams { scale: *scale, zero_point: 0 }, range);
            args.push(out_dtype);
            return Some(self.call("dequantize_per_tensor", args, &name));
        }
        let channels = self.channels(&target, q.q, &q.scales, &vec![0; q.scales.len()]);
        Some(self.dequantize_channels(channels, 0, range, out_dtype, &name))
    }
}
