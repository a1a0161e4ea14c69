//! Products and sums with a constant for each channel, put into the weights of the convolution before them: what
//! becomes of a batch norm that was not folded before.

use super::{Calls, Convolution, Form, Operand};
use cleave_ir::NodeId;
use cleave_kernels::pointwise::Binary;

/// `y · scale + shift` for each output channel, and the nodes that say so.
pub(crate) struct Affine {
    /// The last of the nodes: its value is what the convolution computes.
    pub(crate) last: NodeId,
    /// The nodes, in order; none where the convolution stands as it is.
    pub(crate) nodes: Vec<NodeId>,
    scale: Vec<f32>,
    shift: Vec<f32>,
}

impl Affine {
    /// The products and sums among these nodes that follow a convolution directly.
    pub(crate) fn behind(calls: &Calls<'_>, c: &Convolution, among: &[NodeId]) -> Affine {
        let channels = c.shape.c_out;
        // Halves times a factor are no halves.
        let fixed = calls.halves(c.weight).is_some();
        let mut a = Affine { last: c.id, nodes: vec![], scale: vec![1.0; channels], shift: vec![0.0; channels] };
        while let Some(next) = calls.only_user(a.last).filter(|n| among.contains(n)) {
            let found = constant_operand(calls, c, a.last, next).filter(|(op, _)| !(fixed && *op == Binary::Mul));
            let Some((op, v)) = found else { break };
            for (o, v) in v.into_iter().enumerate() {
                match op {
                    Binary::Add => a.shift[o] += v,
                    Binary::Sub => a.shift[o] -= v,
                    _ => {
                        a.scale[o] *= v;
                        a.shift[o] *= v;
                    }
                }
            }
            a.nodes.push(next);
            a.last = next;
        }
        a
    }

    /// Those of these nodes that it does not stand for.
    pub(crate) fn rest(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        nodes.iter().filter(|n| !self.nodes.contains(n)).copied().collect()
    }

    /// A factor for each output channel.
    pub(crate) fn factors(&self) -> &[f32] {
        &self.scale
    }

    /// Puts its factors into weights `[c_out, …]`.
    pub(crate) fn scale(&self, weights: &mut [f32]) {
        if self.nodes.is_empty() {
            return;
        }
        let each = weights.len() / self.scale.len().max(1);
        for (row, s) in weights.chunks_exact_mut(each.max(1)).zip(&self.scale) {
            row.iter_mut().for_each(|w| *w *= s);
        }
    }

    /// Puts it into the bias.
    pub(crate) fn shift(&self, bias: Option<Vec<f32>>) -> Option<Vec<f32>> {
        if self.nodes.is_empty() {
            return bias;
        }
        let bias = bias.unwrap_or_else(|| vec![0.0; self.scale.len()]);
        Some(bias.iter().zip(self.scale.iter().zip(&self.shift)).map(|(b, (s, t))| b * s + t).collect())
    }
}

/// The op of a node and its constant for each channel, if the other operand is `x`.
fn constant_operand(calls: &Calls<'_>, c: &Convolution, x: NodeId, node: NodeId) -> Option<(Binary, Vec<f32>)> {
    let form = calls.form(node)?;
    let Form::Binary(op @ (Binary::Add | Binary::Sub | Binary::Mul), 1.0) = form else { return None };
    let other = match *calls.operands(node, form)?.as_slice() {
        [Operand::Node(a), b] if a == x => b,
        [a, Operand::Node(b)] if b == x && op != Binary::Sub => a,
        _ => return None,
    };
    let channels = c.shape.c_out;
    let n = match other {
        Operand::Number(f) => return Some((op, vec![f; channels])),
        Operand::Node(n) => n,
    };
    let t = calls.constant(n)?;
    let rank = calls.shape(x).ok()?.len();
    let channel = *c.order(rank).last()?;
    // As broadcast: dimensions before the tensor's own are 1.
    let lead = rank.checked_sub(t.shape().len())?;
    let fits = |(d, size): (usize, &usize)| *size == 1 || (d + lead == channel && *size == channels);
    if !t.shape().iter().enumerate().all(fits) {
        return None;
    }
    let v = t.to_f32();
    Some((op, if v.len() == 1 { vec![v[0]; channels] } else { v.into_owned() }))
}
