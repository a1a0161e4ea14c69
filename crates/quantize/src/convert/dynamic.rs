//! Values whose scale and zero point are computed as the model runs, in torch's form: `choose_qparams`, its two
//! results, `quantize_per_tensor.tensor`, and a `dequantize_per_tensor.tensor` for each consumer.

use super::Converter;
use crate::spec::SpecId;
use cleave_ir::{Arg, NodeId};
use cleave_numerics::QScheme;

/// A value as levels, with their scale and zero point.
#[derive(Clone, Copy)]
pub(super) struct Computed {
    levels: NodeId,
    scale: NodeId,
    zero_point: NodeId,
}

impl Converter<'_> {
    /// What a consumer reads in place of a value.
    pub(super) fn dynamic(&mut self, value: NodeId, spec: SpecId, scheme: QScheme) -> NodeId {
        let c = match self.computed.get(&(value, spec)) {
            Some(c) => *c,
            None => {
                let c = self.compute(value, spec, scheme);
                self.computed.insert((value, spec), c);
                c
            }
        };
        let mut args = self.levels(c.levels, c, spec);
        args.push(self.out_dtype(value));
        self.call("dequantize_per_tensor.tensor", args, &self.wish(value, "dq"))
    }

    fn compute(&self, value: NodeId, spec: SpecId, scheme: QScheme) -> Computed {
        let (x, s) = (self.map[value.index()], &self.p.specs[spec]);
        let range = s.range;
        let op = match scheme {
            QScheme::Affine => "choose_qparams.tensor",
            QScheme::Symmetric => "choose_qparams_symmetric.tensor",
        };
        let levels = [i64::from(range.min), i64::from(range.max)];
        let args = vec![x.into(), levels[0].into(), levels[1].into(), f64::from(s.eps).into(), range.dtype.into()];
        let chosen = self.call(op, args, &self.wish(value, "qparams"));
        let part = |i: i64, what| self.called("getitem", vec![chosen.into(), i.into()], &self.wish(value, what));
        let (scale, zero_point) = (part(0, "scale"), part(1, "zero_point"));
        let c = Computed { levels: x, scale, zero_point };
        let levels = self.call("quantize_per_tensor.tensor", self.levels(x, c, spec), &self.wish(value, "q"));
        Computed { levels, ..c }
    }

    /// The arguments that quantize and dequantize have in common.
    fn levels(&self, input: NodeId, c: Computed, spec: SpecId) -> Vec<Arg> {
        let range = self.p.specs[spec].range;
        let bounds = [i64::from(range.min), i64::from(range.max)].map(Arg::from);
        [vec![input.into(), c.scale.into(), c.zero_point.into()], bounds.to_vec(), vec![range.dtype.into()]].concat()
    }

    fn wish(&self, value: NodeId, what: &str) -> String {
        format!("{}_{what}", self.p.graph.node(value).name)
    }
}
