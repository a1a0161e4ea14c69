//! Where torch would lay the elements of a value: strides in elements, by torch's rules for views,
//! pointwise ops and channels-last convolution. What depends on them (reshape, contiguous) asks here.

use crate::dim::Dim;
use crate::graph::{Arg, Graph, Meta, Node, NodeId};
use crate::op::Class;

/// Strides of values, filled in topological order as a graph grows.
#[derive(Default)]
pub(crate) struct Strides {
    known: Vec<Option<Vec<Dim>>>,
}

impl Strides {
    /// The strides of a tensor node; of another, nothing.
    pub(crate) fn of(&mut self, g: &Graph, id: NodeId) -> Option<Vec<Dim>> {
        while self.known.len() <= id.index() {
            let node = g.node(NodeId::new(self.known.len()));
            let s = match &node.meta {
                Meta::Tensor(_) => Some(self.compute(g, node)),
                _ => None,
            };
            self.known.push(s);
        }
        self.known[id.index()].clone()
    }

    fn input(&self, g: &Graph, node: &Node) -> Option<(Vec<Dim>, Vec<Dim>)> {
        let id = *node.args.first()?.nodes().first()?;
        Some((g.node(id).meta.as_tensor()?.shape.clone(), self.known.get(id.index())?.clone()?))
    }

    fn compute(&self, g: &Graph, node: &Node) -> Vec<Dim> {
        let shape = node.meta.as_tensor().map(|t| t.shape.clone()).unwrap_or_default();
        let plain = contiguous(&shape);
        let Some(op) = node.op() else { return plain };
        if op.name == "getitem" {
            return self.getitem(g, node).unwrap_or(plain);
        }
        let Some((from, strides)) = self.input(g, node) else { return plain };
        match op.class {
            Class::View => view_strides(node, &from, &strides, &shape).unwrap_or(plain),
            Class::Pointwise => self.pointwise(g, node, &shape),
            Class::Inert => match op.base() {
                "contiguous" | "clone" => self.formatted(g, node, &shape),
                _ => strides,
            },
            Class::Creation => match op.base() {
                "full_like" | "zeros_like" | "ones_like" | "empty_like" => self.formatted(g, node, &shape),
                "empty_permuted" => axes(node, "physical_layout", shape.len())
                    .map_or(plain, |order| dense(&shape, &order.into_iter().rev().collect::<Vec<_>>())),
                "empty_strided" | "new_empty_strided" => stated(node).unwrap_or(plain),
                _ => plain,
            },
            Class::Move => match op.base() {
                "index" | "_unsafe_index" => picked(node, &from, &strides, &shape).unwrap_or(plain),
                "index_put" | "_unsafe_index_put" | "copy" | "slice_scatter" | "select_scatter"
                | "diagonal_scatter" => dense(&shape, &lying(&from, &strides)),
                "flip" => dense(&shape, &lying(&from, &strides)),
                "constant_pad_nd" | "pixel_shuffle" | "pixel_unshuffle" if is_channels_last(&from, &strides) => {
                    channels_last(&shape)
                }
                "cat" if self.all_channels_last(g, node) => channels_last(&shape),
                _ => plain,
            },
            Class::Strategic | Class::Pool if is_channels_last(&from, &strides) && shape.len() == from.len() => {
                channels_last(&shape)
            }
            Class::Norm if op.base().contains("batch_norm") => strides,
            Class::Strategic if op.base() == "scaled_dot_product_attention" => attention(&shape).unwrap_or(plain),
            Class::Reduction => self.reduction(node, &from, &strides, &shape),
            _ => plain,
        }
    }

    /// Strides in the memory format that a call names; without one, or to preserve it, its input's order.
    fn formatted(&self, g: &Graph, node: &Node, shape: &[Dim]) -> Vec<Dim> {
        match node.arg("memory_format") {
            Some(Arg::Str(f)) if f.contains("channels_last") && matches!(shape.len(), 4 | 5) => channels_last(shape),
            Some(Arg::Str(f)) if f.contains("contiguous") => contiguous(shape),
            _ => self.pointwise(g, node, shape),
        }
    }

    fn all_channels_last(&self, g: &Graph, node: &Node) -> bool {
        node.args.first().map(Arg::nodes).unwrap_or_default().into_iter().all(|id| {
            let shape = g.node(id).meta.as_tensor().map(|t| t.shape.as_slice());
            let strides = self.known.get(id.index()).and_then(Option::as_ref);
            shape.zip(strides).is_some_and(|(shape, strides)| is_channels_last(shape, strides))
        })
    }

    /// One of the results of a split is a window on its input; other results are fresh.
    fn getitem(&self, g: &Graph, node: &Node) -> Option<Vec<Dim>> {
        let tuple = g.node(*node.args.first()?.nodes().first()?);
        let op = tuple.op()?;
        let (_, strides) = self.input(g, tuple)?;
        if matches!(op.base(), "broadcast_tensors" | "meshgrid") {
            return self.spread(g, node, tuple);
        }
        match op.class {
            Class::View if op.base() == "unbind" => {
                let axis = axis(tuple, "dim", strides.len())?;
                Some(without(&strides, axis))
            }
            Class::View => Some(strides),
            Class::Norm if op.base().contains("batch_norm") => Some(strides),
            _ => None,
        }
    }

    /// One of several tensors that are broadcast, or spread over a grid.
    fn spread(&self, g: &Graph, node: &Node, tuple: &Node) -> Option<Vec<Dim>> {
        let to = &node.meta.as_tensor()?.shape;
        let i = match node.arg("index")? {
            Arg::Int(i) => usize::try_from(*i).ok()?,
            _ => return None,
        };
        let id = *tuple.args.first()?.nodes().get(i)?;
        let (from, strides) = (&g.node(id).meta.as_tensor()?.shape, self.known.get(id.index())?.as_ref()?);
        if tuple.op()?.base() == "broadcast_tensors" {
            return expanded(from, strides, to);
        }
        let swapped = matches!(tuple.arg("indexing"), Some(Arg::Str(s)) if s == "xy") && to.len() > 1;
        let axis = if swapped && i < 2 { 1 - i } else { i };
        let step = |d: usize| if d == axis { strides.first().cloned() } else { None };
        Some((0..to.len()).map(|d| step(d).unwrap_or(Dim::from(0i64))).collect())
    }

    /// A reduction keeps the order in which its input's dimensions lie.
    fn reduction(&self, node: &Node, from: &[Dim], strides: &[Dim], shape: &[Dim]) -> Vec<Dim> {
        let keeps = matches!(node.arg("keepdim"), Some(Arg::Bool(true))) && shape.len() == from.len();
        if keeps { dense(shape, &order(from, &[strides.to_vec()])) } else { contiguous(shape) }
    }

    /// torch's TensorIterator: contiguous operands give a contiguous result; else the result lies in the
    /// order of the first operand that tells two dimensions apart.
    fn pointwise(&self, g: &Graph, node: &Node, shape: &[Dim]) -> Vec<Dim> {
        let operands: Vec<(Vec<Dim>, Vec<Dim>)> = node
            .args
            .iter()
            .flat_map(Arg::nodes)
            .filter_map(|n| Some((g.node(n).meta.as_tensor()?.shape.clone(), self.known.get(n.index())?.clone()?)))
            .collect();
        let full: Vec<_> = operands.iter().filter(|(s, _)| s == shape).collect();
        if full.len() == operands.len() && full.iter().all(|(s, t)| is_contiguous(s, t)) {
            return contiguous(shape);
        }
        let aligned: Vec<Vec<Dim>> = operands
            .iter()
            .map(|(s, t)| {
                let lead = shape.len() - s.len().min(shape.len());
                (0..shape.len())
                    .map(|i| match i.checked_sub(lead) {
                        Some(j) if !s[j].is(1) || shape[i].is(1) => t[j].clone(),
                        _ => Dim::from(0i64),
                    })
                    .collect()
            })
            .collect();
        dense(shape, &order(shape, &aligned))
    }
}

/// Row-major strides.
pub fn contiguous(shape: &[Dim]) -> Vec<Dim> {
    dense(shape, &(0..shape.len()).rev().collect::<Vec<_>>())
}

fn channels_last(shape: &[Dim]) -> Vec<Dim> {
    let n = shape.len();
    let order: Vec<usize> = std::iter::once(1).chain((2..n).rev()).chain([0]).collect();
    dense(shape, &order)
}

/// Strides of a tensor without gaps whose dimensions lie in this order, innermost first.
fn dense(shape: &[Dim], order: &[usize]) -> Vec<Dim> {
    let mut strides = vec![Dim::from(1i64); shape.len()];
    let mut step = Dim::from(1i64);
    for &i in order {
        strides[i] = step.clone();
        if !shape[i].is(0) {
            step = step * shape[i].clone();
        }
    }
    strides
}

/// Whether elements lie in row-major order without gaps; strides of dimensions of size 1 do not matter.
pub fn is_contiguous(shape: &[Dim], strides: &[Dim]) -> bool {
    shape.iter().any(|d| d.is(0))
        || contiguous(shape).iter().zip(strides).zip(shape).all(|((a, b), n)| n.is(1) || a == b)
}

/// Whether channels lie innermost, as torch tells it from the strides alone (so that they must differ from
/// row-major ones).
pub fn is_channels_last(shape: &[Dim], strides: &[Dim]) -> bool {
    if shape.len() != 4 && shape.len() != 5 || is_contiguous(shape, strides) && !shape[1].is(1) && dims_matter(shape) {
        return false;
    }
    let last = channels_last(shape);
    last.iter().zip(strides).zip(shape).all(|((a, b), n)| n.is(1) || a == b) && strides[1] != contiguous(shape)[1]
}

/// Whether some dimension of space is larger than 1.
fn dims_matter(shape: &[Dim]) -> bool {
    shape[2..].iter().any(|d| !d.is(1))
}

/// A number for comparing sizes that hold symbols.
fn hint(d: &Dim) -> i64 {
    let value = |s: &str| Some(Dim::from(1009 + s.bytes().map(i64::from).sum::<i64>()));
    d.as_const().unwrap_or_else(|| d.substitute(&value).as_const().unwrap_or(i64::MAX))
}

/// Dimensions in the order in which they lie under these strides, innermost first.
pub fn lying(shape: &[Dim], strides: &[Dim]) -> Vec<usize> {
    order(shape, &[strides.to_vec()])
}

/// Dimensions in the order in which they lie, innermost first, by insertion sort as TensorIterator does it.
fn order(shape: &[Dim], operands: &[Vec<Dim>]) -> Vec<usize> {
    let n = shape.len();
    let mut perm: Vec<usize> = (0..n).rev().collect();
    // Greater than 0: dimension `a` must lie outside of `b`.
    let compare = |a: usize, b: usize| -> i32 {
        for s in operands {
            let (x, y) = (hint(&s[a]), hint(&s[b]));
            if x == 0 || y == 0 {
                continue;
            }
            if x != y {
                return if x < y { -1 } else { 1 };
            }
            if hint(&shape[a]) > hint(&shape[b]) {
                return 1;
            }
        }
        0
    };
    for i in 1..n {
        let mut at = i;
        for j in (0..i).rev() {
            match compare(perm[j], perm[at]) {
                1 => {
                    perm.swap(j, at);
                    at = j;
                }
                -1 => break,
                _ => {}
            }
        }
    }
    perm
}

fn axis(node: &Node, name: &str, rank: usize) -> Option<usize> {
    match node.arg(name)? {
        Arg::Int(i) => usize::try_from(if *i < 0 { i + rank as i64 } else { *i }).ok().filter(|a| *a < rank.max(1)),
        _ => None,
    }
}

fn axes(node: &Node, name: &str, rank: usize) -> Option<Vec<usize>> {
    let Arg::List(l) = node.arg(name)? else { return None };
    l.iter()
        .map(|a| match a {
            Arg::Int(i) => usize::try_from(if *i < 0 { i + rank as i64 } else { *i }).ok(),
            _ => None,
        })
        .collect()
}

fn without(v: &[Dim], axis: usize) -> Vec<Dim> {
    v.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d.clone()).collect()
}

fn attention(shape: &[Dim]) -> Option<Vec<Dim>> {
    (shape.len() == 4).then(|| dense(shape, &[3, 1, 0, 2]))
}

/// The strides that a call states.
fn stated(node: &Node) -> Option<Vec<Dim>> {
    let Arg::List(l) = node.arg("stride")? else { return None };
    l.iter()
        .map(|a| match a {
            Arg::Int(i) => Some(Dim::from(*i)),
            Arg::Dim(d) => Some(d.clone()),
            _ => None,
        })
        .collect()
}

fn expanded(from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let lead = to.len().checked_sub(from.len())?;
    let stretched = |i: usize, j: usize| from[j].is(1) && !to[i].is(1);
    let step = |i: usize| match i.checked_sub(lead) {
        Some(j) if !stretched(i, j) => strides[j].clone(),
        _ => Dim::from(0i64),
    };
    Some((0..to.len()).map(step).collect())
}

/// Strides of what index tensors pick: in the order of the input's dimensions, where those that are indexed, which
/// stand together or else in front, tell nothing.
fn picked(node: &Node, from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    if from.iter().any(|d| d.is(0)) {
        return None;
    }
    let Arg::List(items) = node.arg("indices")? else { return None };
    let given: Vec<usize> = (0..items.len()).filter(|i| items[*i] != Arg::None).collect();
    let lead = if given.windows(2).all(|w| w[0] + 1 == w[1]) { *given.first()? } else { 0 };
    let mut rest = (0..from.len()).filter(|i| !given.contains(i)).map(|i| strides[i].clone());
    let width = (to.len() + given.len()).checked_sub(from.len())?;
    let mut own: Vec<Dim> = rest.by_ref().take(lead).collect();
    own.extend(vec![Dim::from(0i64); width]);
    own.extend(rest);
    (own.len() == to.len()).then(|| dense(to, &order(to, &[own])))
}

/// Strides of a view of a tensor with these strides; `None` where it cannot be one.
fn view_strides(node: &Node, from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let rank = from.len();
    match node.op()?.base() {
        "permute" => axes(node, "dims", rank)?.into_iter().map(|i| strides.get(i).cloned()).collect(),
        base @ ("transpose" | "swapaxes" | "t" | "mT" | "numpy_T") => {
            let mut s = strides.to_vec();
            match base {
                "transpose" => s.swap(axis(node, "dim0", rank)?, axis(node, "dim1", rank)?),
                "swapaxes" => s.swap(axis(node, "axis0", rank)?, axis(node, "axis1", rank)?),
                "mT" => s.swap(rank.checked_sub(1)?, rank.checked_sub(2)?),
                _ => s.reverse(),
            }
            Some(s)
        }
        "unsqueeze" => {
            let at = axis(node, "dim", rank + 1)?;
            let step = match from.get(at) {
                Some(n) => n.clone() * strides[at].clone(),
                None => Dim::from(1i64),
            };
            let mut s = strides.to_vec();
            s.insert(at, step);
            Some(s)
        }
        "select" => Some(without(strides, axis(node, "dim", rank)?)),
        "slice" => {
            let mut s = strides.to_vec();
            let at = axis(node, "dim", rank)?;
            if let Some(Arg::Int(step)) = node.arg("step") {
                s[at] = s[at].clone() * Dim::from(*step);
            }
            Some(s)
        }
        "narrow" => Some(strides.to_vec()),
        "expand" | "expand_as" | "broadcast_to" => expanded(from, strides, to),
        "as_strided" => stated(node),
        "diagonal" => {
            let (a, b) = (axis(node, "dim1", rank)?, axis(node, "dim2", rank)?);
            let rest = strides.iter().enumerate().filter(|(i, _)| *i != a && *i != b).map(|(_, s)| s.clone());
            Some(rest.chain([strides.get(a)?.clone() + strides.get(b)?.clone()]).collect())
        }
        "unfold" => {
            let at = axis(node, "dimension", rank)?;
            let (Some(own), Arg::Int(step)) = (strides.get(at).cloned(), node.arg("step")?) else {
                return Some(vec![Dim::from(1i64)]);
            };
            let mut s = strides.to_vec();
            s[at] = own.clone() * Dim::from(*step);
            s.push(own);
            Some(s)
        }
        "squeeze" => squeezed(node, from, strides, to),
        _ => reshaped(from, strides, to),
    }
}

fn squeezed(node: &Node, from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let dropped = match node.arg("dim") {
        None => (0..from.len()).collect(),
        Some(Arg::Int(_)) => vec![axis(node, "dim", from.len())?],
        Some(_) => axes(node, "dim", from.len())?,
    };
    let kept: Vec<Dim> = from
        .iter()
        .zip(strides)
        .enumerate()
        .filter(|(i, (n, _))| !(n.is(1) && dropped.contains(i)))
        .map(|(_, (_, s))| s.clone())
        .collect();
    (kept.len() == to.len()).then_some(kept)
}

/// torch's `computeStride`: strides under which the same elements have another shape, if there are any.
pub fn reshaped(from: &[Dim], strides: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let one = || Dim::from(1i64);
    if from.iter().any(|d| d.is(0)) || from.is_empty() {
        return Some(contiguous(to));
    }
    let mut out = vec![one(); to.len()];
    let mut left = to.len();
    let mut base = strides.last()?.clone();
    let (mut have, mut given) = (one(), one());
    for i in (0..from.len()).rev() {
        have = have * from[i].clone();
        let joined = i > 0 && (from[i - 1].is(1) || strides[i - 1] == have.clone() * base.clone());
        if joined {
            continue;
        }
        while left > 0 && (hint(&given) < hint(&have) || to[left - 1].is(1)) {
            left -= 1;
            out[left] = given.clone() * base.clone();
            given = given * to[left].clone();
        }
        if given != have {
            return None;
        }
        if i > 0 {
            base = strides[i - 1].clone();
            (have, given) = (one(), one());
        }
    }
    (left == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn strides(body: &str) -> String {
        let src = format!("graph(%x: f32[N, 6, 4, 4]) {{\n{body}\n return %y\n}}");
        let g = text::parse(&src).unwrap();
        format!("{:?}", Strides::default().of(&g, g.find("y").unwrap()).unwrap())
    }

    #[test]
    fn strides_follow_torch() {
        for (body, want) in [
            ("%y = aten.relu(%x)", "[96, 16, 4, 1]"),
            ("%p = aten.permute(%x, [0, 2, 3, 1])\n%y = aten.relu(%p)", "[96, 4, 1, 16]"),
            ("%p = aten.permute(%x, [0, 2, 3, 1])\n%y = aten.view(%p, [<N>, 16, 6])", "[96, 1, 16]"),
            ("%y = aten.slice.Tensor(%x, 1, 0, 3)", "[96, 16, 4, 1]"),
            ("%s = aten.select.int(%x, 1, 0)\n%y = aten.unsqueeze(%s, 0)", "[96*N, 96, 4, 1]"),
            ("%s = aten.mean.dim(%x, [2, 3], true)\n%y = aten.expand(%s, [<N>, 6, 4, 4])", "[6, 1, 0, 0]"),
        ] {
            assert_eq!(strides(body), want, "{body}");
        }
    }

    #[test]
    fn a_view_needs_dimensions_that_lie_together() {
        let d = |v: &[i64]| v.iter().map(|x| Dim::from(*x)).collect::<Vec<_>>();
        assert_eq!(reshaped(&d(&[2, 3, 4]), &d(&[12, 4, 1]), &d(&[6, 4])), Some(d(&[4, 1])));
        assert_eq!(reshaped(&d(&[3, 2, 4]), &d(&[4, 12, 1]), &d(&[6, 4])), None);
        assert!(is_channels_last(&d(&[2, 3, 4, 4]), &d(&[48, 1, 12, 3])));
        assert!(!is_channels_last(&d(&[2, 3, 4, 4]), &d(&[48, 16, 4, 1])));
    }
}
