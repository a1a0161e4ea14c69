//! Numbers that stand for "not at all": attention masks, added or filled in before a softmax, and what is put around an
//! image so that a maximum does not see it.

use cleave_ir::{Arg, Class, Graph, NodeId};

/// Values beyond this are masks wherever they stand (`-3.4e38`), not activations; torch draws the line here too.
pub(crate) const SENTINEL: f32 = 3.4e15;
/// What a softmax reads below this is 0 behind it, so it was written to be: `-1e4`, `-65504`.
pub(crate) const BEFORE_SOFTMAX: f32 = -1000.0;

/// What puts a mask on, and leaves the size of numbers as it is.
const MASKING: [&str; 4] = ["add", "sub", "where", "masked_fill"];

/// For each node, whether negative infinities in its value are no matter: before a softmax, and in what a maximum is
/// taken of. As levels they are the least one, which no maximum takes either.
pub(crate) fn may_be_negative_infinity(g: &Graph) -> Vec<bool> {
    let mut may = before_softmax(g);
    for (id, node) in g.nodes() {
        let pads = node.op().is_some_and(|o| o.base() == "constant_pad_nd")
            && node.arg("value").is_some_and(|v| *v == Arg::Float(f64::NEG_INFINITY));
        let pooled = |u: &NodeId| g.node(*u).op().is_some_and(|o| o.base().starts_with("max_pool"));
        may[id.index()] |= pads && g.users(id).iter().all(pooled);
    }
    may
}

/// For each node, whether its value reaches a softmax by nothing but views and what puts masks on.
pub(crate) fn before_softmax(g: &Graph) -> Vec<bool> {
    let mut before = vec![false; g.len()];
    for (id, node) in g.nodes().collect::<Vec<_>>().into_iter().rev() {
        let Some(op) = node.op() else { continue };
        let softmax = op.base().contains("softmax");
        let passes = (op.class == Class::View || MASKING.contains(&op.base())) && before[id.index()];
        if softmax || passes {
            let reads = node.args.iter().flat_map(Arg::nodes);
            reads.for_each(|n| before[n.index()] = true);
        }
    }
    before
}
