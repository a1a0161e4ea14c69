//! Attention as products and a softmax, for backends that have kernels for those.
//!
//! The op's own rule guards against rows whose mask leaves nothing, with comparisons and selections; where there
//! is no such mask these are left out.

use crate::error::Result;
use cleave_ir::transform::{Replace, transform};
use cleave_ir::{Arg, Builder, ConstKind, Graph, Node, Tensor, Value, op};
use cleave_numerics::DType;

const ATTENTION: &str = "aten.scaled_dot_product_attention.default";

/// The graph with `softmax(q · scale · kᵀ [+ mask]) · v` in place of attention without a bool mask.
///
/// # Errors
/// A call that its arguments do not admit.
pub fn plain_attention(g: &Graph) -> Result<Graph> {
    if !g.nodes().any(|(_, n)| n.op().is_some_and(|o| o.name == ATTENTION)) {
        return Ok(g.clone());
    }
    Ok(transform(g, |b, _, node, args| Ok(attention(b, node, args).map_or(Replace::Copy, |v| Replace::With(vec![v]))))?)
}

fn attention<'b>(b: &'b Builder, node: &Node, args: &[Arg]) -> Option<Value<'b>> {
    let call = node.op().filter(|o| o.name == ATTENTION)?;
    let arg = |name: &str| call.schema.index(name).and_then(|i| args.get(i));
    let tensor = |name: &str| match arg(name) {
        Some(Arg::Node(n)) => Some(b.value(*n)),
        _ => None,
    };
    let plain = |name: &str| matches!(arg(name), None | Some(Arg::Bool(false) | Arg::None | Arg::Int(0)));
    let no_dropout = match arg("dropout_p") {
        Some(Arg::Float(p)) => *p == 0.0,
        other => matches!(other, None | Some(Arg::Int(0))),
    };
    if !plain("enable_gqa") || !no_dropout {
        return None;
    }
    let (q, k, v) = (tensor("query")?, tensor("key")?, tensor("value")?);
    let (rank, width) = (k.rank(), q.shape().last()?.as_const()?);
    let scale = match arg("scale") {
        Some(Arg::Float(s)) => *s,
        _ => 1.0 / (width as f64).sqrt(),
    };
    let mask = match (tensor("attn_mask"), plain("is_causal")) {
        (Some(m), true) if m.dtype() == DType::F32 => Some(m),
        (None, true) => None,
        (None, false) => Some(causal(b, &q, &k)?),
        _ => return None,
    };
    let mut order: Vec<i64> = (0..rank as i64).collect();
    order.swap(rank.checked_sub(2)?, rank - 1);
    let scores = (q * scale).op("aten.matmul", vec![k.permute(order).into()]);
    let scores = mask.map_or(scores, |m| scores + m);
    let weights = scores.op("aten.softmax.int", vec![Arg::Int(-1)]);
    let matmul = op::find("aten.matmul").ok()?;
    Some(b.call_op(matmul, vec![weights.into(), v.into()], Some(&node.name)))
}

/// 0 up to the diagonal, -inf past it; none if the lengths are not numbers.
fn causal<'b>(b: &'b Builder, q: &Value<'b>, k: &Value<'b>) -> Option<Value<'b>> {
    let length = |v: &Value<'b>| v.shape().iter().rev().nth(1)?.as_const().and_then(|n| usize::try_from(n).ok());
    let (rows, cols) = (length(q)?, length(k)?);
    let mask = (0..rows * cols).map(|i| if i % cols <= i / cols { 0.0 } else { f32::NEG_INFINITY }).collect();
    Some(b.constant("causal_mask", ConstKind::Constant, Tensor::new(&[rows, cols], mask)))
}
