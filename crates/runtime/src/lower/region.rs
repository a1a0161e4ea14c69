//! Regions: what was deferred on the way to a value that is now needed.

use super::{Deferred, Lower, State, conv, moving, pointwise, pool, qconv, quantized};
use crate::calls::Quant;
use crate::error::Result;
use crate::memory::{Storage, Value};
use cleave_ir::NodeId;
use cleave_kernels::pointwise::Output;

/// A value that is needed now, and the deferred nodes that it needs.
#[derive(Clone, Debug)]
pub(super) struct Region {
    /// The node whose value is computed.
    pub(super) root: NodeId,
    /// The quantize behind it and its levels, if it is stored as such; else it is stored as f32.
    pub(super) quantize: Option<(NodeId, Quant)>,
    /// Pointwise nodes, in topological order.
    pub(super) nodes: Vec<NodeId>,
    /// Compute ops among what they read, in topological order.
    pub(super) anchors: Vec<NodeId>,
}

impl Region {
    /// The node whose value is stored.
    pub(super) fn stored(&self) -> NodeId {
        self.quantize.map_or(self.root, |(node, _)| node)
    }

    /// All that one kernel for it computes: the anchors, the pointwise nodes and the quantize.
    pub(super) fn covers(&self) -> Vec<NodeId> {
        let quantize = self.quantize.map(|(node, _)| node);
        self.anchors.iter().chain(&self.nodes).copied().chain(quantize).collect()
    }

    /// What a program stores.
    pub(super) fn output(&self) -> Output {
        self.quantize.map_or(Output::F32, |(_, quant)| Output::U8(quant.q))
    }

    /// How the result is stored.
    pub(super) fn storage(&self) -> Storage {
        self.quantize.map_or(Storage::F32, |(_, quant)| quant.storage)
    }
}

impl Lower<'_> {
    /// The region that ends at a node.
    fn region(&self, root: NodeId, quantize: Option<(NodeId, Quant)>) -> Region {
        let mut region = Region { root, quantize, nodes: vec![], anchors: vec![] };
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            match self.state(id) {
                State::Deferred(Deferred::Pointwise) if !region.nodes.contains(&id) => {
                    region.nodes.push(id);
                    stack.extend(self.calls.reads(id));
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

    /// Computes a value now, as f32 or as the levels of the quantize behind it, with all that was deferred on the way
    /// to it in as few kernels as can be.
    ///
    /// # Errors
    /// A kernel that refuses its operands.
    pub(super) fn materialise(&mut self, root: NodeId, quantize: Option<(NodeId, Quant)>) -> Result<Value> {
        loop {
            let region = self.region(root, quantize);
            if let Some(v) = quantized::emit(self, &region)? {
                return Ok(v);
            }
            let done = match region.anchors.as_slice() {
                [] => pointwise::emit(self, &region)?,
                [anchor] => self.emit_anchor(*anchor, &region)?,
                _ => None,
            };
            if let Some(v) = done {
                return Ok(v);
            }
            self.split(&region)?;
        }
    }

    fn emit_anchor(&mut self, anchor: NodeId, region: &Region) -> Result<Option<Value>> {
        let State::Deferred(kind) = self.state(anchor).clone() else { return Ok(None) };
        match kind {
            Deferred::Quantized(c) => qconv::emit(self, &c, region),
            Deferred::Convolution(c) => conv::emit(self, &c, region),
            Deferred::Pad(..) if anchor == region.root => moving::emit_pad(self, anchor),
            Deferred::Pool => pool::emit(self, anchor, region),
            _ => Ok(None),
        }
    }

    /// Breaks a region that is too much for one kernel: of several compute ops all but the last are done first,
    /// a single one is separated from what follows, a program that is too long is cut before its last op.
    fn split(&mut self, region: &Region) -> Result<()> {
        let root = region.root;
        let mut progress = false;
        match region.anchors.as_slice() {
            [] => {
                for arg in self.calls.reads(root).into_iter().filter(|a| region.nodes.contains(a)) {
                    progress |= self.settle(arg)?;
                }
            }
            [one] if *one != root => progress = self.settle(*one)?,
            [_] => {}
            [first, .., last] => {
                let trunk = self.trunk(*last, region);
                for arg in trunk.iter().skip(1).flat_map(|id| self.calls.reads(*id)).collect::<Vec<_>>() {
                    if !trunk.contains(&arg) && !self.region(arg, None).anchors.is_empty() {
                        progress |= self.settle(arg)?;
                    }
                }
                progress = progress || self.settle(*first)?;
            }
        }
        if progress { Ok(()) } else { Err(self.calls.unsupported(root, "no kernel takes it")) }
    }

    /// Computes a deferred value as floats; false if it was not deferred.
    pub(super) fn settle(&mut self, id: NodeId) -> Result<bool> {
        if !matches!(self.state(id), State::Deferred(_)) {
            return Ok(false);
        }
        self.value(id)?;
        Ok(true)
    }

    /// The anchor and the region's nodes that depend on it, in order.
    fn trunk(&self, anchor: NodeId, region: &Region) -> Vec<NodeId> {
        let mut trunk = vec![anchor];
        for id in &region.nodes {
            if self.calls.reads(*id).iter().any(|a| trunk.contains(a)) {
                trunk.push(*id);
            }
        }
        trunk
    }
}
