//! Attention masks: numbers that stand for "not at all", added or filled in before a softmax.

use cleave_ir::{Class, Graph};

/// Values beyond this are masks wherever they stand (`-3.4e38`), not activations; torch draws the line here too.
pub(crate) const SENTINEL: f32 = 3.4e15;
/// What a softmax reads below this is 0 behind it, so it was written to be: `-1e4`, `-65504`.
pub(crate) const BEFORE_SOFTMAX: f32 = -1000.0;

/// What puts a mask on, and leaves the size of numbers as it is.
const MASKING: [&str; 4] = ["add", "sub", "where", "masked_fill"];

/// For each node, whether its value reaches a softmax by nothing but views and what puts masks on.
pub(crate) fn before_softmax(g: &Graph) -> Vec<bool> {
    let mut before = vec![false; g.len()];
    for (id, node) in g.nodes().collect::<Vec<_>>().into_iter().rev() {
        let Some(op) = node.op() else { continue };
        let softmax = op.base().contains("softmax");
        let passes = (op.class == Class::View || MASKING.contains(&op.base())) && before[id.index()];
        if softmax || passes {
            let reads = node.args.iter().flat_map(cleave_ir::Arg::nodes);
            reads.for_each(|n| before[n.index()] = true);
        }
    }
    before
}
