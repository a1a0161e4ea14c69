//! What a compiled model says of itself: its kernels in order, and the kernel that runs each node.

use indexmap::IndexMap;

/// One kernel of a compiled model.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedKernel {
    /// What it fuses, numbered: `conv2d_u8s8_relu_2`, `poi_fused_add_mul_0`.
    pub name: String,
    /// The code that runs: `conv2d_u8s8_6x64_avx512vnni`.
    pub kernel: String,
    /// The graph's nodes that it covers, in order.
    pub nodes: Vec<String>,
    /// Shape of its result, outermost dimension first.
    pub shape: Vec<usize>,
    /// Bytes of its results.
    pub bytes: usize,
    /// Bytes of the activations and shared constants that it reads; packed weights are its own.
    pub reads: usize,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Whether its result lies where a value lay to which it is added.
    pub in_place: bool,
}

/// A compiled model, described.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Plan {
    /// The kernels in the order in which they run.
    pub kernels: Vec<PlannedKernel>,
    /// For every call of the graph, the name of the kernel that runs it; `view` where it costs nothing, `constant`
    /// where it was computed beforehand.
    pub nodes: IndexMap<String, String>,
    /// Bytes of the arena that holds all activations.
    pub arena_bytes: usize,
    /// Bytes of the constants that kernels share (packed weights are the kernels' own).
    pub constant_bytes: usize,
}
