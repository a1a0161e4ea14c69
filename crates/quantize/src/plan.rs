//! The plan: one row for every compute node, saying what was decided and why.

use serde::{Deserialize, Serialize};

/// Whether a node is quantized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Part of a quantized unit.
    Quantized,
    /// Left in float.
    Float,
    /// Merged into another node: a batch norm into its convolution.
    Folded,
}

/// Scale and zero point of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QParamsRow {
    /// Element type.
    pub dtype: String,
    /// Step between neighbouring integers.
    pub scale: f32,
    /// The integer that means 0.
    pub zero_point: i32,
    /// Least integer.
    pub qmin: i32,
    /// Greatest integer.
    pub qmax: i32,
}

/// A pattern that nearly matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissRow {
    /// The pattern.
    pub pattern: String,
    /// The part of it that failed.
    pub step: String,
    /// Why.
    pub why: String,
    /// How many calls it had matched by then.
    pub matched: usize,
}

/// What was decided for one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRow {
    /// The node's name; it is the same in every stage.
    pub node: String,
    /// Its op.
    pub op: String,
    /// Quantized or not.
    pub status: Status,
    /// The pattern of its unit.
    pub pattern: Option<String>,
    /// The node that the unit's work is named after.
    pub unit: Option<String>,
    /// How its unit's result is quantized.
    pub qparams: Option<QParamsRow>,
    /// The sharing group of its unit's result.
    pub group: Option<usize>,
    /// Why it is float or folded, or what is remarkable about it.
    pub reason: Option<String>,
    /// Patterns that nearly matched.
    pub near_misses: Vec<MissRow>,
}

/// Rows in order of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The quantizer's name.
    pub quantizer: String,
    /// One row for each compute node of the graph that was annotated.
    pub rows: Vec<PlanRow>,
    /// What concerns no single node: edges whose two ends ask for different specs, biases kept float.
    pub notes: Vec<String>,
}

impl Plan {
    /// The row of a node.
    pub fn row(&self, node: &str) -> Option<&PlanRow> {
        self.rows.iter().find(|r| r.node == node)
    }

    /// How many rows have this status.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|r| r.status == status).count()
    }
}
