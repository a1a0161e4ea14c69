//! Constants: what is computed when a model is compiled, and what stays levels or halves for kernels that take them so.

use super::Calls;
use crate::error::Result;
use crate::reference;
use cleave_ir::{Arg, Bindings, Graph, Kind, Meta, NodeId, Tensor};
use cleave_numerics::DType;
use std::sync::Arc;

/// Largest result that is computed beforehand, in elements.
const MAX_FOLDED: usize = 1 << 26;

/// What is known of a node's value beforehand.
#[derive(Clone)]
pub(super) enum Constant {
    /// Nothing: it is computed when the model runs.
    Unknown,
    /// All of it.
    Tensor(Tensor),
    /// What it is made from, levels or halves: the node is a dequantize, or a cast to f32, of a constant.
    Meant,
    /// Its parts.
    Tuple(Vec<Constant>),
}

impl<'g> Calls<'g> {
    /// Reads a graph whose sizes are numbers, and computes what depends on constants alone.
    ///
    /// # Errors
    /// A constant that is missing, or one that the reference interpreter cannot compute.
    pub(crate) fn of(g: &'g Arc<Graph>) -> Result<Calls<'g>> {
        let mut calls = Calls { g, constants: Vec::with_capacity(g.len()) };
        for id in g.ids() {
            let constant = calls.fold(id)?;
            calls.constants.push(constant);
        }
        Ok(calls)
    }

    fn fold(&self, id: NodeId) -> Result<Constant> {
        let node = self.g.node(id);
        match (&node.kind, &node.meta) {
            (Kind::GetAttr(_), _) => {
                let t = self.g.constant(id).ok_or_else(|| self.unsupported(id, "the constant is missing"))?;
                return Ok(Constant::Tensor(t.clone()));
            }
            (Kind::Call(_), Meta::Int(d)) => {
                let size = d.as_const().ok_or_else(|| self.unsupported(id, "its value depends on data"))?;
                return Ok(Constant::Tensor(Tensor::scalar(size)));
            }
            (Kind::Call(_), _) => {}
            _ => return Ok(Constant::Unknown),
        }
        if let Some((tuple, index)) = self.item(id)
            && let Constant::Tuple(parts) = &self.constants[tuple.index()]
        {
            return Ok(parts.get(index).cloned().unwrap_or(Constant::Unknown));
        }
        // Levels are chosen as the model runs for constants, too: a recurrence starts with the kernels of its other steps.
        let chooses = self.base(id).starts_with("choose_qparams");
        if chooses || !self.reads(id).into_iter().all(|n| self.is_constant(n)) {
            return Ok(Constant::Unknown);
        }
        if self.stays_levels(id) || self.stays_halves(id) {
            return Ok(Constant::Meant);
        }
        if let Some(t) = self.window(id) {
            return Ok(Constant::Tensor(t));
        }
        if super::sizes(&node.meta).is_some_and(|s| s.iter().product::<usize>() > MAX_FOLDED) {
            return Ok(Constant::Unknown);
        }
        let results = self.evaluate(id)?.into_iter().map(Constant::Tensor);
        Ok(nest(&node.meta, &mut results.into_iter(), Constant::Tuple).unwrap_or(Constant::Unknown))
    }

    /// The results of a call of constants.
    fn evaluate(&self, id: NodeId) -> Result<Vec<Tensor>> {
        let tensors = self.reads(id).into_iter().map(|n| self.tensor(n)).collect::<Result<Vec<_>>>()?;
        reference::eval_node(self.g, id, &tensors, &Bindings::new())
    }

    fn stays_levels(&self, id: NodeId) -> bool {
        let dequantizes = matches!(
            self.op(id),
            "quantized_decomposed.dequantize_per_tensor.default"
                | "quantized_decomposed.dequantize_per_channel.default"
        );
        dequantizes && self.is_float(id) && self.args(id).tensor("input").is_some_and(|x| self.constant(x).is_some())
    }

    fn stays_halves(&self, id: NodeId) -> bool {
        self.halves(id).is_some() && self.g.users(id).iter().all(|user| self.widens(*user, id))
    }

    /// Whether a kernel reads this operand of a call as it is stored, and widens it on the way.
    fn widens(&self, user: NodeId, operand: NodeId) -> bool {
        let taken = self.convolves(user) || self.op(user) == "aten.embedding.default";
        let once = self.reads(user).iter().filter(|n| **n == operand).count() == 1;
        taken && once && self.args(user).tensor("weight") == Some(operand)
    }

    /// Whether a value, or several, are known beforehand.
    pub(crate) fn is_known(&self, id: NodeId) -> bool {
        !matches!(self.constants[id.index()], Constant::Unknown)
    }

    /// Whether a tensor is known beforehand.
    pub(crate) fn is_constant(&self, id: NodeId) -> bool {
        matches!(self.constants[id.index()], Constant::Tensor(_) | Constant::Meant)
    }

    /// Whether what is known of a value is the levels or halves that it is made from.
    pub(crate) fn is_meant(&self, id: NodeId) -> bool {
        matches!(self.constants[id.index()], Constant::Meant)
    }

    /// A constant that is there as a tensor.
    pub(crate) fn constant(&self, id: NodeId) -> Option<&Tensor> {
        if let Constant::Tensor(t) = &self.constants[id.index()] { Some(t) } else { None }
    }

    /// A constant, computed now if it is meant by others.
    ///
    /// # Errors
    /// A node that is none.
    pub(crate) fn tensor(&self, id: NodeId) -> Result<Tensor> {
        let computed = match &self.constants[id.index()] {
            Constant::Tensor(t) => return Ok(t.clone()),
            Constant::Meant => self.evaluate(id)?.pop(),
            _ => None,
        };
        computed.ok_or_else(|| self.unsupported(id, "it is not a constant"))
    }

    /// The constant of half-precision numbers that a node is in f32.
    pub(crate) fn halves(&self, id: NodeId) -> Option<&Tensor> {
        let casts = matches!(self.base(id), "_to_copy" | "convert_element_type") && self.is_float(id);
        match self.g.node(id).args.first() {
            Some(Arg::Node(x)) if casts => self.constant(*x).filter(|t| t.dtype() == DType::F16),
            _ => None,
        }
    }
}

/// Results of a call, in order, put together as its meta nests them.
pub(crate) fn nest<T>(meta: &Meta, results: &mut dyn Iterator<Item = T>, tuple: fn(Vec<T>) -> T) -> Option<T> {
    match meta {
        Meta::Tuple(items) => items.iter().map(|m| nest(m, results, tuple)).collect::<Option<_>>().map(tuple),
        _ => results.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_depends_on_constants_alone_is_known() {
        let src = r#"graph(%x: f32[2, 4]) {
  %w = param "w": f32[4, 4]
  %q = param "q": i8[4, 4]
  %t = aten.t(%w): f32[4, 4]
  %split = aten.split.Tensor(%t, 2): (f32[2, 4], f32[2, 4])
  %part = getitem(%split, 1): f32[2, 4]
  %dq = quantized_decomposed.dequantize_per_tensor(%q, 0.5, 0, -127, 127, i8): f32[4, 4]
  %linear = aten.linear(%x, %dq): f32[2, 4]
  %add = aten.add.Tensor(%linear, %part): f32[2, 4]
  return %add
}
"#;
        let mut g = cleave_ir::text::parse(src).expect("a graph");
        g.constants.insert("w".into(), Tensor::new(&[4, 4], (0..16).map(|i| i as f32).collect()));
        g.constants.insert("q".into(), Tensor::new(&[4, 4], vec![-3i8; 16]));
        let g = Arc::new(g);
        let calls = Calls::of(&g).expect("constants that can be computed");
        let id = |name: &str| g.find(name).expect("a node");
        let part = calls.constant(id("part")).expect("a tensor");
        assert_eq!(*part.to_f32(), [2.0, 6.0, 10.0, 14.0, 3.0, 7.0, 11.0, 15.0]);
        // Levels stay what they are until their floats are asked for.
        assert!(calls.is_meant(id("dq")) && calls.constant(id("dq")).is_none());
        assert_eq!(calls.tensor(id("dq")).expect("floats").to_f32()[0], -1.5);
        assert!(["x", "linear", "add"].iter().all(|n| !calls.is_known(id(n))));
    }
}
