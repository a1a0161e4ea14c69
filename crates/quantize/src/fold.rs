//! Batch norm folded into the convolution or linear layer before it.
//!
//! In f32 and in torch's order, without which half of the per-channel scales would differ:
//! `r = 1 / sqrt(var + eps)`, `W' = W · (gamma · r)` on the output-channel axis,
//! `b' = (b - mean) · r · gamma + beta`.

use cleave_ir::dim::Dim;
use cleave_ir::{Arg, ConstKind, Graph, Kind, Meta, Node, NodeId, Tensor};
use cleave_numerics::DType;

/// What folding did.
pub(crate) struct Folded {
    /// The new graph.
    pub graph: Graph,
    /// Old to new nodes; a folded batch norm leads to its convolution.
    pub map: Vec<NodeId>,
    /// Batch norms that were folded, with the node that they went into, in the old graph.
    pub into: Vec<(NodeId, NodeId)>,
    /// Batch norms behind a convolution that were not, and why.
    pub declined: Vec<(NodeId, String)>,
}

/// The operands of a batch norm that folds.
struct Pair {
    conv: NodeId,
    weight: Tensor,
    bias: Option<Tensor>,
    gamma: Option<Tensor>,
    beta: Option<Tensor>,
    mean: Tensor,
    var: Tensor,
    eps: f32,
}

/// Folds every batch norm that fulfils the preconditions, whether its convolution is quantized or not.
pub(crate) fn fold_batch_norms(src: &Graph) -> Folded {
    let mut plan: Vec<Option<(NodeId, Pair)>> = (0..src.len()).map(|_| None).collect();
    let (mut into, mut declined) = (vec![], vec![]);
    for (id, node) in src.nodes() {
        let Some(conv) = convolution_before(src, node) else { continue };
        match pair(src, node, conv) {
            Ok(p) => {
                into.push((id, p.conv));
                plan[conv.index()] = Some((id, p));
            }
            Err(why) => declined.push((id, why)),
        }
    }
    let mut g = src.shell();
    let mut map: Vec<NodeId> = Vec::with_capacity(src.len());
    for (id, node) in src.nodes() {
        if let Some((_, conv)) = into.iter().find(|(bn, _)| *bn == id) {
            map.push(map[conv.index()]);
            continue;
        }
        let mut args: Vec<Arg> = node.args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(map[n.index()]))).collect();
        if let Some((bn, p)) = &plan[id.index()]
            && let (Some(w), Some(b)) = (slot(node, "weight"), slot(node, "bias"))
        {
            let (weight, bias) = fold(p, node);
            let stem = node.arg("weight").and_then(|a| a.nodes().first().map(|n| src.node(*n).target.clone()));
            let stem = stem.unwrap_or_else(|| node.name.clone());
            let stem = stem.strip_suffix("weight").unwrap_or(&stem).trim_end_matches(['.', '_']).to_string();
            args[w] = Arg::Node(constant(src, &mut g, &format!("{stem}.weight_folded"), weight, node));
            args[b] = Arg::Node(constant(src, &mut g, &format!("{stem}.bias_folded"), bias, node));
            let mut origin = node.origin.clone();
            origin.sources.extend(src.node(*bn).origin.sources.iter().cloned());
            map.push(g.push(Node { args, origin, ..node.clone() }));
            continue;
        }
        map.push(g.push(Node { args, ..node.clone() }));
    }
    let (graph, map) = prune(&g, &map);
    Folded { graph, map, into, declined }
}

/// Drops constants that nothing uses any more.
fn prune(g: &Graph, map: &[NodeId]) -> (Graph, Vec<NodeId>) {
    let pruned = cleave_ir::transform::prune(g);
    let map = map.iter().map(|n| pruned.find(&g.node(*n).name).unwrap_or(NodeId::end())).collect();
    (pruned, map)
}

fn slot(node: &Node, name: &str) -> Option<usize> {
    node.op()?.schema.index(name)
}

/// The node before a batch norm, if it has a weight with an output-channel axis.
fn convolution_before(g: &Graph, node: &Node) -> Option<NodeId> {
    let op = node.op().filter(|o| o.base() == "batch_norm")?;
    let Some(Arg::Node(before)) = op.schema.index("input").and_then(|i| node.args.get(i)) else { return None };
    g.node(*before).op().filter(|o| o.weight_axis.is_some()).map(|_| *before)
}

fn pair(g: &Graph, bn: &Node, conv: NodeId) -> Result<Pair, String> {
    let node = g.node(conv);
    let users = g.users(conv).len();
    if users != 1 || g.use_count(conv) != 1 {
        return Err(format!("not folded: {} has {users} users", node.name));
    }
    let constant = |n: &Node, name: &str| -> Result<Option<Tensor>, String> {
        match n.arg(name) {
            Some(Arg::Node(id)) => match g.constant(*id) {
                Some(t) if t.dtype() == DType::F32 => Ok(Some(t.clone())),
                Some(t) => Err(format!("not folded: {name} of {} is {}", n.name, t.dtype())),
                None => Err(format!("not folded: {name} of {} is not a constant", n.name)),
            },
            _ => Ok(None),
        }
    };
    let needed = |n: &Node, name: &str| constant(n, name)?.ok_or(format!("not folded: {} has no {name}", n.name));
    if bn.arg("training") == Some(&Arg::Bool(true)) {
        return Err("not folded: it is in training mode".into());
    }
    let rank = |id: NodeId| g.node(id).meta.as_tensor().map(|t| t.shape.len());
    let weight = needed(node, "weight")?;
    if rank(conv) != Some(weight.shape().len()) {
        return Err(format!("not folded: dimension 1 of {} is not its output channel", node.name));
    }
    let eps = match bn.arg("eps") {
        Some(Arg::Float(e)) => *e as f32,
        _ => return Err("not folded: its eps is not a number".into()),
    };
    let p = Pair {
        conv,
        weight,
        bias: constant(node, "bias")?,
        gamma: constant(bn, "weight")?,
        beta: constant(bn, "bias")?,
        mean: needed(bn, "running_mean")?,
        var: needed(bn, "running_var")?,
        eps,
    };
    let channels = p.mean.len();
    let fits = [&p.bias, &p.gamma, &p.beta].iter().all(|t| t.as_ref().is_none_or(|t| t.len() == channels))
        && p.var.len() == channels
        && out_channels(&p.weight, node) == channels;
    if fits { Ok(p) } else { Err(format!("not folded: {channels} channels do not fit {}", node.name)) }
}

fn groups(node: &Node) -> usize {
    match node.arg("groups") {
        Some(Arg::Int(n)) => usize::try_from(*n).unwrap_or(1).max(1),
        _ => 1,
    }
}

/// Output channels of a weight: its size on the record's axis, for each group where that axis is inside a group.
fn out_channels(weight: &Tensor, node: &Node) -> usize {
    let axis = node.op().and_then(|o| o.weight_axis).unwrap_or(0);
    let n = weight.shape().get(axis).copied().unwrap_or(0);
    if axis == 0 { n } else { n * groups(node) }
}

fn fold(p: &Pair, node: &Node) -> (Tensor, Tensor) {
    let channels = p.mean.len();
    let or = |t: &Option<Tensor>, v: f32| t.as_ref().map_or(vec![v; channels], |t| t.to_f32().into_owned());
    let (gamma, beta, bias) = (or(&p.gamma, 1.0), or(&p.beta, 0.0), or(&p.bias, 0.0));
    let (mean, var) = (p.mean.to_f32(), p.var.to_f32());
    let r: Vec<f32> = var.iter().map(|v| 1.0 / (v + p.eps).sqrt()).collect();
    let b = (0..channels).map(|c| (bias[c] - mean[c]) * r[c] * gamma[c] + beta[c]).collect();
    let axis = node.op().and_then(|o| o.weight_axis).unwrap_or(0);
    let shape = p.weight.shape().to_vec();
    let scale: Vec<f32> = (0..channels).map(|c| gamma[c] * r[c]).collect();
    let mut w = p.weight.to_f32().into_owned();
    if axis == 0 {
        let inner = w.len() / channels.max(1);
        w.chunks_mut(inner.max(1)).zip(&scale).for_each(|(row, s)| row.iter_mut().for_each(|v| *v *= s));
    } else {
        // [in, out/groups, …]: the inputs of one group follow one another.
        let (inputs, per_group) = (shape[0], shape[1]);
        let inner: usize = shape[2..].iter().product();
        let inputs_per_group = (inputs / groups(node)).max(1);
        for (i, plane) in w.chunks_mut((per_group * inner).max(1)).enumerate() {
            let first = (i / inputs_per_group) * per_group;
            for (j, row) in plane.chunks_mut(inner.max(1)).enumerate() {
                row.iter_mut().for_each(|v| *v *= scale[first + j]);
            }
        }
    }
    (Tensor::new(&shape, w), Tensor::new(&[channels], b))
}

/// Puts a constant in under a name that the source has neither as constant nor as node.
fn constant(src: &Graph, g: &mut Graph, wish: &str, t: Tensor, of: &Node) -> NodeId {
    let target = free_name(wish, |n| g.constants.contains_key(n) || src.find(&clean(n)).is_some());
    let meta = Meta::tensor(t.dtype(), t.shape().iter().map(|d| Dim::from(*d)).collect());
    g.constants.insert(target.clone(), t);
    let kind = Kind::GetAttr(ConstKind::Param);
    g.push(Node { name: clean(&target), kind, target, args: vec![], meta, origin: of.origin.clone() })
}

/// The name of the node that reads a constant.
pub(crate) fn clean(target: &str) -> String {
    target.replace(['.', '/', ':'], "_")
}

/// A name like this one that is not taken.
pub(crate) fn free_name(wish: &str, taken: impl Fn(&str) -> bool) -> String {
    let others = (1..).map(|n| format!("{wish}_{n}"));
    std::iter::once(wish.to_string()).chain(others).find(|n| !taken(n)).expect("invariant: names are endless")
}

/// A name that no node or constant of a graph has, so that they keep theirs.
pub(crate) fn free_in(g: &Graph, wish: &str) -> String {
    free_name(wish, |n| g.constants.contains_key(n) || g.find(&clean(n)).is_some())
}
