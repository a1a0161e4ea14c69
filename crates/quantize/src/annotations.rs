//! What annotation decided: units, the specs of their edges, and why the rest stays float.

use crate::plan::MissRow;
use crate::spec::{Spec, SpecId};
use cleave_ir::{Class, Graph, Node, NodeId};
use indexmap::IndexMap;

/// An edge of a unit that is quantized.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The pattern's name for the value.
    pub capture: String,
    /// The node of the unit that uses the value.
    pub user: NodeId,
    /// The parameter that it is given to.
    pub slot: usize,
    /// Its place, where the parameter is a list.
    pub index: Option<usize>,
    /// The value.
    pub value: NodeId,
    /// How it is quantized.
    pub spec: SpecId,
}

/// Nodes that are quantized together: nothing is rounded between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The pattern that found it.
    pub pattern: String,
    /// Its nodes, in topological order.
    pub nodes: Vec<NodeId>,
    /// The node whose value is its result.
    pub root: NodeId,
    /// The node that does the work: the one with a weight, else the first.
    pub compute: NodeId,
    /// Its quantized edges.
    pub inputs: Vec<Input>,
    /// The spec of every capture that has one, absent ones too.
    pub captures: IndexMap<String, SpecId>,
    /// How its result is quantized; none if the consumers decide.
    pub output: Option<SpecId>,
    /// Captures, or `output`, that have one scale and zero point together.
    pub share: Vec<String>,
    /// Whether it stands only where its inputs are results of quantized units.
    pub follows: bool,
    /// Whether its result stays float where no quantized unit reads it, whatever the quantizer does else.
    pub unread_float: bool,
}

/// A node that stays float, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Float {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub reason: String,
    /// Whether a selector asked for it.
    pub excluded: bool,
}

/// The result of annotation.
#[derive(Clone, Debug)]
pub struct Annotations {
    /// The quantizer's name.
    pub quantizer: String,
    /// Whether quantizing divides by the scale.
    pub divides: bool,
    /// Whether results that no quantized unit reads are left float.
    pub unread_float: bool,
    /// Whether gates are multiplied in fixed point.
    pub fixed_gates: bool,
    /// All specs; equal ones have one number.
    pub specs: Vec<Spec>,
    /// Units, in order of their roots.
    pub units: Vec<Unit>,
    /// Compute nodes outside of units.
    pub floats: Vec<Float>,
    /// What nearly matched, by node.
    pub misses: Vec<(NodeId, MissRow)>,
    /// What concerns no single node: where several quantizers want the same.
    pub notes: Vec<String>,
}

impl Annotations {
    /// The unit that a node belongs to.
    pub fn unit_of(&self, node: NodeId) -> Option<&Unit> {
        self.units.iter().find(|u| u.nodes.contains(&node))
    }

    /// What is known of a node, for comments in a printed graph:
    /// `conv_bn_act: out u8[0, 255] affine, histogram`.
    pub fn comment(&self, node: NodeId) -> Option<String> {
        if let Some(u) = self.units.iter().find(|u| u.root == node) {
            let out = u.output.map_or("as its consumers ask".into(), |s| self.specs[s].describe());
            return Some(format!("{}: out {out}", u.pattern));
        }
        if let Some(u) = self.unit_of(node) {
            return Some(u.pattern.clone());
        }
        self.floats.iter().find(|f| f.node == node).map(|f| format!("float: {}", f.reason))
    }
}

/// Whether a node does arithmetic or moves elements, so that the plan owes it a row.
pub(crate) fn is_compute(node: &Node) -> bool {
    node.op().is_some_and(|o| !matches!(o.class, Class::Structural | Class::Inert | Class::Quantize))
}

/// The compute nodes of a graph.
pub(crate) fn compute_nodes(g: &Graph) -> Vec<NodeId> {
    g.nodes().filter(|(_, n)| is_compute(n)).map(|(id, _)| id).collect()
}
