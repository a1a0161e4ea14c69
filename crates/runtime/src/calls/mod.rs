//! What calls say, in the terms of kernels: the geometry of a convolution, the windows of a pool, what levels mean.
//!
//! Read from a graph whose sizes are numbers and from its constants, which are computed first. Nothing here knows where
//! a value lies or what is fused with what: that is for `lower` to decide. What no kernel could mean is none.

mod affine;
mod args;
mod constant;
mod conv;
mod levels;
mod moving;
mod pointwise;
mod pool;
mod rows;
mod view;

pub(crate) use affine::Affine;
pub(crate) use constant::nest;
pub(crate) use conv::{ConvWeights, Convolution, Weights};
pub(crate) use levels::{Levels, Quant, RunQuant};
pub(crate) use moving::Pad;
pub(crate) use pointwise::{Form, Operand};
pub(crate) use view::View;

use crate::error::{Result, RuntimeError};
use args::Args;
use cleave_ir::{Arg, Class, Graph, Meta, NodeId};
use cleave_numerics::DType;
use constant::Constant;
use std::sync::Arc;

/// A graph, read call by call.
pub(crate) struct Calls<'g> {
    /// The graph.
    pub(crate) g: &'g Arc<Graph>,
    /// Of each node.
    constants: Vec<Constant>,
}

impl<'g> Calls<'g> {
    /// A call's arguments: nothing outside of here reads them.
    fn args(&self, id: NodeId) -> Args<'g> {
        Args { node: self.g.node(id) }
    }

    /// Full name of the op called; empty for what is no call.
    pub(crate) fn op(&self, id: NodeId) -> &'static str {
        self.g.node(id).op().map_or("", |o| o.name)
    }

    /// [`Calls::op`] without namespace and overload.
    pub(crate) fn base(&self, id: NodeId) -> &'static str {
        self.g.node(id).op().map_or("", |o| o.base())
    }

    /// The nodes among a call's arguments, in order.
    pub(crate) fn reads(&self, id: NodeId) -> Vec<NodeId> {
        self.g.node(id).args.iter().flat_map(Arg::nodes).collect()
    }

    /// The one node that uses a value, if the value is no result besides.
    pub(crate) fn only_user(&self, id: NodeId) -> Option<NodeId> {
        match self.g.users(id).as_slice() {
            [one] if !self.g.results().contains(&id) => Some(*one),
            _ => None,
        }
    }

    /// Sizes of a node's value.
    ///
    /// # Errors
    /// A value that is not one tensor.
    pub(crate) fn shape(&self, id: NodeId) -> Result<Vec<usize>> {
        self.g.tensor_meta(id)?;
        sizes(&self.g.node(id).meta).ok_or_else(|| self.unsupported(id, "its sizes depend on data"))
    }

    /// Sizes of a call's results, in order; none if some are no tensors.
    pub(crate) fn result_shapes(&self, id: NodeId) -> Option<Vec<Vec<usize>>> {
        match &self.g.node(id).meta {
            Meta::Tuple(items) => items.iter().map(sizes).collect(),
            meta => Some(vec![sizes(meta)?]),
        }
    }

    /// Whether a value is a tensor of f32.
    pub(crate) fn is_float(&self, id: NodeId) -> bool {
        self.g.tensor_meta(id).is_ok_and(|m| m.dtype == DType::F32)
    }

    /// Whether a call reads or makes a tensor without elements.
    pub(crate) fn is_empty(&self, id: NodeId) -> bool {
        let none = |n: NodeId| self.shape(n).is_ok_and(|s| s.contains(&0));
        none(id) || self.reads(id).into_iter().any(none)
    }

    /// Whether a node, or what reads its dequantized value, works on pixels of channels.
    pub(crate) fn is_spatial(&self, id: NodeId) -> bool {
        let Some(op) = self.g.node(id).op() else { return false };
        match op.class {
            Class::Quantize => self.g.users(id).iter().any(|u| self.is_spatial(*u)),
            Class::Pool => self.shape(id).is_ok_and(|s| s.len() == 4),
            Class::Strategic => op.base().starts_with("conv"),
            _ => false,
        }
    }

    /// Whether a node's value is a result of a reduction.
    pub(crate) fn is_reduced(&self, id: NodeId) -> bool {
        let made = self.item(id).map_or(id, |(tuple, _)| tuple);
        self.g.node(made).op().is_some_and(|o| o.class == Class::Reduction)
    }

    /// What stands against a call.
    pub(crate) fn unsupported(&self, id: NodeId, why: &str) -> RuntimeError {
        let node = self.g.node(id);
        let op = node.op().map_or("node", |o| o.name);
        RuntimeError::Unsupported { op: op.into(), node: node.name.clone(), why: why.into() }
    }
}

/// Sizes of a tensor; none if they depend on data.
pub(crate) fn sizes(meta: &Meta) -> Option<Vec<usize>> {
    meta.as_tensor()?.shape.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect()
}
