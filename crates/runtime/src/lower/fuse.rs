//! Regions: what was deferred on the way to a value that is now needed.

use super::{Deferred, Lower, Quant, State, conv, pointwise, qconv, quantized};
use crate::error::Result;
use crate::memory::Value;
use cleave_ir::{Arg, NodeId};

/// How a region's result is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink {
    /// As f32.
    Float,
    /// As levels: the quantize node is part of the region.
    Quantize(NodeId, Quant),
}

impl Sink {
    /// The node whose value is stored.
    pub(crate) fn node(&self, root: NodeId) -> NodeId {
        match self {
            Sink::Float => root,
            Sink::Quantize(node, _) => *node,
        }
    }

    /// Nodes with the quantize behind them.
    pub(crate) fn covers(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let mut nodes = nodes.to_vec();
        if let Sink::Quantize(q, _) = self {
            nodes.push(*q);
        }
        nodes
    }
}

/// Deferred nodes that a value needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Region {
    /// Pointwise ones, in topological order.
    pub(crate) nodes: Vec<NodeId>,
    /// Compute ops among what they read, in topological order.
    pub(crate) anchors: Vec<NodeId>,
}

impl Lower<'_> {
    /// The region that ends at a node.
    pub(crate) fn region(&self, root: NodeId) -> Region {
        let (mut region, mut stack) = (Region::default(), vec![root]);
        while let Some(id) = stack.pop() {
            match self.state(id) {
                State::Deferred(Deferred::Pointwise) if !region.nodes.contains(&id) => {
                    region.nodes.push(id);
                    stack.extend(self.g.node(id).args.iter().flat_map(Arg::nodes));
                }
                State::Deferred(Deferred::Pointwise) => {}
                State::Deferred(_) if !region.anchors.contains(&id) => region.anchors.push(id),
                _ => {}
            }
        }
        region.nodes.sort();
        region.anchors.sort();
        region
    }

    /// Computes a value now, with all that was deferred on the way to it in as few kernels as can be.
    ///
    /// # Errors
    /// A kernel that refuses its operands.
    pub(crate) fn materialise(&mut self, root: NodeId, sink: &Sink) -> Result<Value> {
        loop {
            let region = self.region(root);
            if let Some(v) = quantized::emit(self, root, &region, sink)? {
                return Ok(v);
            }
            let done = match region.anchors.as_slice() {
                [] => pointwise::emit(self, root, &region, sink)?,
                [anchor] => self.emit_anchor(*anchor, root, &region, sink)?,
                _ => None,
            };
            if let Some(v) = done {
                return Ok(v);
            }
            self.split(root, &region)?;
        }
    }

    fn emit_anchor(&mut self, anchor: NodeId, root: NodeId, region: &Region, sink: &Sink) -> Result<Option<Value>> {
        let State::Deferred(kind) = self.state(anchor).clone() else { return Ok(None) };
        match kind {
            Deferred::Convolution(c) if c.quantized => qconv::emit(self, &c, root, region, sink),
            Deferred::Convolution(c) => conv::emit(self, &c, root, region, sink),
            Deferred::Pad(x, pads) if anchor == root => super::moving::emit_pad(self, root, x, pads).map(Some),
            Deferred::Pool => super::pool::emit(self, anchor, root, region, sink),
            _ => Ok(None),
        }
    }

    /// Breaks a region that is too much for one kernel: of several compute ops all but the last are done first,
    /// a single one is separated from what follows, a program that is too long is cut before its last op.
    fn split(&mut self, root: NodeId, region: &Region) -> Result<()> {
        let progress = match region.anchors.as_slice() {
            [] => self.cut(root, region)?,
            [one] if *one != root => self.settle(*one)?,
            [_] => false,
            [.., last] => {
                let trunk = self.trunk(*last, region);
                let mut progress = false;
                for id in trunk.iter().skip(1).copied() {
                    for arg in self.g.node(id).args.iter().flat_map(Arg::nodes).collect::<Vec<_>>() {
                        if !trunk.contains(&arg) && !self.region(arg).anchors.is_empty() {
                            progress |= self.settle(arg)?;
                        }
                    }
                }
                progress || self.settle(region.anchors[0])?
            }
        };
        if progress { Ok(()) } else { Err(self.unsupported(root, "no kernel takes it")) }
    }

    fn cut(&mut self, root: NodeId, region: &Region) -> Result<bool> {
        let mut progress = false;
        for arg in self.g.node(root).args.iter().flat_map(Arg::nodes).collect::<Vec<_>>() {
            if region.nodes.contains(&arg) {
                progress |= self.settle(arg)?;
            }
        }
        Ok(progress)
    }

    /// Computes a deferred value as floats; false if it was not deferred.
    pub(crate) fn settle(&mut self, id: NodeId) -> Result<bool> {
        if !matches!(self.state(id), State::Deferred(_)) {
            return Ok(false);
        }
        self.value(id)?;
        Ok(true)
    }

    /// The anchor and the region's nodes that depend on it, in order.
    pub(crate) fn trunk(&self, anchor: NodeId, region: &Region) -> Vec<NodeId> {
        let mut trunk = vec![anchor];
        for id in &region.nodes {
            if self.g.node(*id).args.iter().flat_map(Arg::nodes).any(|a| trunk.contains(&a)) {
                trunk.push(*id);
            }
        }
        trunk
    }
}
