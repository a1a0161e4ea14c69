//! Functional form: writes become values.
//!
//! A call that writes to its argument becomes the functional op of its rule, and whoever reads the argument,
//! or a view of the same storage, from there on reads the new value. A write through a view is put back into
//! the base by the inverse of the view, as torch's functionalization does it.

use crate::error::{DecomposeError, Result};
use cleave_ir::graph::{Arg, Graph, Kind, Meta, Node, NodeId};
use cleave_ir::op::{Class, Op};
use cleave_ir::{Builder, Dim, Value, strides, transform};

/// The graph without mutation; aliases that are only read are left as they are.
///
/// # Errors
/// A write that cannot be expressed as a value.
pub fn functionalize(src: &Graph) -> Result<Graph> {
    let src = &*src.map_subgraphs(&mut functional_branch)?;
    if !src.nodes().filter_map(|(_, n)| n.op()).any(|o| o.schema.mutates()) {
        return Ok(src.clone());
    }
    let b = Builder::from_graph(src.shell());
    written(src, &b)?;
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(transform::prune_rewritten(src, &g))
}

/// Builds the graph without mutation; how many writes each of the old nodes saw.
fn written(src: &Graph, b: &Builder) -> Result<Vec<usize>> {
    let n = src.len();
    let mut f = Functional { src, b, parent: vec![None; n], now: vec![None; n], made: vec![0; n], writes: vec![0; n] };
    for (id, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        f.step(id, node)?;
        if let Some(e) = b.error() {
            return Err(e.into());
        }
    }
    Ok(f.writes)
}

/// [`functionalize`] for a graph that is an argument: what it wrote to an operand would be lost to the caller.
fn functional_branch(src: &Graph) -> Result<Graph> {
    let writes = written(src, &Builder::from_graph(src.shell()))?;
    match src.placeholders().into_iter().find(|p| writes[p.index()] > 0) {
        Some(p) => {
            Err(DecomposeError::WriteThrough { node: src.node(p).name.clone(), op: "an operand of a branch".into() })
        }
        None => functionalize(src),
    }
}

struct Functional<'a> {
    src: &'a Graph,
    b: &'a Builder,
    /// For a view of another node's storage: that node.
    parent: Vec<Option<NodeId>>,
    /// The value in the new graph, if it is made.
    now: Vec<Option<NodeId>>,
    /// How many writes the root had seen when the value was made.
    made: Vec<usize>,
    /// For roots: how many writes there were.
    writes: Vec<usize>,
}

impl<'a> Functional<'a> {
    fn step(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let args = self.args(node, &mut |s, n| s.read(n))?;
        let Some(op) = node.op() else {
            self.now[id.index()] = Some(self.b.edit(|g| g.push(Node { args, ..node.clone() })));
            return Ok(());
        };
        if let Some(slot) = op.schema.params.iter().position(|p| p.mutated) {
            let target = *node.args[slot].nodes().first().ok_or_else(|| self.refuse(node, op))?;
            let made = self.b.apply_rule(op, &args, &node.name)?;
            let made = *made.first().ok_or_else(|| self.refuse(node, op))?;
            self.parent[id.index()] = Some(target);
            if args[slot].nodes() == [made.id()] {
                return Ok(());
            }
            let value = self.as_before(target, made);
            return self.write(target, value, node);
        }
        self.now[id.index()] = Some(self.b.push_call(op, args, &node.name, node.meta.clone()).id());
        if self.aliases(id, op) {
            self.parent[id.index()] = node.args.first().and_then(|a| a.nodes().first().copied());
            self.made[id.index()] = self.writes[self.root(id).index()];
        }
        Ok(())
    }

    fn refuse(&self, node: &Node, op: &Op) -> DecomposeError {
        DecomposeError::WriteThrough { node: node.name.clone(), op: op.short().into() }
    }

    /// Whether the result shares the storage of the first argument.
    fn aliases(&self, id: NodeId, op: &Op) -> bool {
        let node = self.src.node(id);
        let Some(of) = node.args.first().and_then(|a| a.nodes().first().copied()) else { return false };
        let input = || self.b.value(self.now[of.index()].unwrap_or(of));
        match (op.class, op.base()) {
            (_, "getitem") => self.src.node(of).op().is_some_and(|o| o.class == Class::View),
            (Class::View, "reshape" | "flatten") => {
                let to = node.meta.as_tensor().map(|t| t.shape.clone()).unwrap_or_default();
                strides::reshaped(&input().shape(), &input().strides(), &to).is_some()
            }
            (Class::View, "_unsafe_view") => false,
            (Class::View, _) => true,
            (Class::Inert, "contiguous") => input().is_contiguous(),
            (Class::Inert, "alias" | "detach" | "dropout") => true,
            _ => false,
        }
    }

    fn root(&self, mut id: NodeId) -> NodeId {
        while let Some(p) = self.parent[id.index()] {
            id = p;
        }
        id
    }

    fn args(&mut self, node: &Node, read: &mut dyn FnMut(&mut Self, NodeId) -> Result<NodeId>) -> Result<Vec<Arg>> {
        let mut failed = None;
        let args = node
            .args
            .iter()
            .map(|a| {
                a.map_nodes(&mut |n| match read(self, n) {
                    Ok(v) => Arg::Node(v),
                    Err(e) => {
                        failed.get_or_insert(e);
                        Arg::None
                    }
                })
            })
            .collect();
        failed.map_or(Ok(args), Err)
    }

    /// The current value of a node: of a view that was overtaken by a write, the view of the new value.
    fn read(&mut self, id: NodeId) -> Result<NodeId> {
        let writes = self.writes[self.root(id).index()];
        let i = id.index();
        if let (Some(v), true) = (self.now[i], self.parent[i].is_none() || self.made[i] == writes) {
            return Ok(v);
        }
        let v = self.replay(id, &mut |s, n| s.read(n))?;
        self.now[i] = Some(v);
        self.made[i] = writes;
        Ok(v)
    }

    /// The view made anew; a write's own result is its target.
    fn replay(&mut self, id: NodeId, read: &mut dyn FnMut(&mut Self, NodeId) -> Result<NodeId>) -> Result<NodeId> {
        let (Some(parent), Some(op)) = (self.parent[id.index()], self.src.node(id).op()) else {
            return self.now[id.index()].ok_or_else(|| DecomposeError::WriteThrough {
                node: self.src.node(id).name.clone(),
                op: "a value that is not made yet".into(),
            });
        };
        if op.schema.mutates() {
            return read(self, parent);
        }
        let node = self.src.node(id);
        let args = self.args(node, read)?;
        Ok(self.b.push_call(op, args, op.base(), node.meta.clone()).id())
    }

    /// A view made anew all the way from its root, as torch makes it for writing back.
    fn fresh(&mut self, id: NodeId) -> Result<NodeId> {
        match self.parent[id.index()] {
            None => self.read(id),
            Some(_) => self.replay(id, &mut |s, n| s.fresh(n)),
        }
    }

    /// The written value in the type that its target has.
    fn as_before(&self, target: NodeId, value: Value<'a>) -> Value<'a> {
        match &self.src.node(target).meta {
            Meta::Tensor(t) if t.dtype != value.dtype() => value.op("aten._to_copy", vec![t.dtype.into()]),
            _ => value,
        }
    }

    fn write(&mut self, target: NodeId, value: Value<'a>, node: &Node) -> Result<()> {
        let root = self.root(target);
        let (mut at, mut value) = (target, value);
        while let Some(parent) = self.parent[at.index()] {
            let view = self.src.node(at);
            let op = view
                .op()
                .ok_or_else(|| DecomposeError::WriteThrough { node: node.name.clone(), op: view.name.clone() })?;
            if !op.schema.mutates() {
                let base = self.b.value(self.fresh(parent)?);
                value = inverse(view, op, base, value).ok_or_else(|| self.refuse(node, op))?;
            }
            at = parent;
        }
        self.now[root.index()] = Some(value.id());
        self.writes[root.index()] += 1;
        Ok(())
    }
}

/// The base with a view of it replaced by a value; `None` where the view has no inverse.
fn inverse<'b>(view: &Node, op: &Op, base: Value<'b>, value: Value<'b>) -> Option<Value<'b>> {
    let pick = |n: &str| view.arg(n).cloned().unwrap_or(Arg::None);
    let axis = |n: &str| match view.arg(n) {
        Some(Arg::Int(i)) => Some(*i),
        _ => None,
    };
    Some(match op.base() {
        "slice" => {
            base.op("aten.slice_scatter", vec![value.into(), pick("dim"), pick("start"), pick("end"), pick("step")])
        }
        "select" => base.op("aten.select_scatter", vec![value.into(), pick("dim"), pick("index")]),
        "view" | "reshape" | "flatten" | "unflatten" | "squeeze" => value.view(base.shape()),
        "unsqueeze" => value.op("aten.squeeze.dims", vec![vec![axis("dim")?].into()]),
        "transpose" | "swapaxes" | "t" | "mT" => {
            let mut args = vec![Arg::Node(value.id())];
            args.extend(view.args[1..].iter().cloned());
            value.builder().call(op.def.name, args)
        }
        "permute" => {
            let Arg::List(order) = view.arg("dims")? else { return None };
            let n = order.len() as i64;
            let order: Option<Vec<i64>> =
                order.iter().map(|a| if let Arg::Int(i) = a { Some(i.rem_euclid(n)) } else { None }).collect();
            let order = order?;
            value.permute((0..n).map(|i| order.iter().position(|o| *o == i).unwrap_or(0) as i64).collect())
        }
        "alias" | "detach" | "contiguous" | "dropout" => value,
        _ => return None,
    })
}

/// The graph with sizes in arguments as expressions: nodes that only compute sizes go, unless they are results.
///
/// # Errors
/// What copying a call meets.
pub fn resolve_sizes(src: &Graph) -> Result<Graph> {
    let src = &*src.map_subgraphs(&mut resolve_sizes)?;
    if !src.nodes().any(|(_, n)| matches!(n.meta, Meta::Int(_))) {
        return Ok(src.clone());
    }
    let mut g = src.shell();
    let mut map: Vec<NodeId> = Vec::with_capacity(src.len());
    for (_, node) in src.nodes() {
        let keep = node.kind == Kind::Output;
        let args =
            node.args.iter().map(|a| a.map_nodes(&mut |n| size_of(src, n, keep).unwrap_or(Arg::Node(map[n.index()]))));
        let args = args.collect();
        map.push(g.push(Node { args, ..node.clone() }));
    }
    Ok(transform::prune_rewritten(src, &g))
}

fn size_of(g: &Graph, id: NodeId, keep: bool) -> Option<Arg> {
    match &g.node(id).meta {
        // What reads a size out of a tensor's elements is no arithmetic of sizes.
        Meta::Int(d) if !keep && g.node(id).op().is_none_or(|o| o.class == Class::Structural) => {
            Some(Dim::clone(d).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::{Levels, text, verify};

    fn check(src: &str, want: &str) {
        let g = functionalize(&text::parse(src).unwrap()).unwrap();
        assert_eq!(g.to_string(), want);
        verify::verify(&g, Levels::ALL).unwrap();
    }

    #[test]
    fn later_readers_see_the_write() {
        check(
            "graph(%x: f32[2]) {\n %a = aten.add.Tensor(%x, 1)\n %r = aten.relu_(%a)\n %y = aten.mul.Tensor(%a, %r)\n return %y\n}",
            "graph(%x: f32[2]) {
  %a = aten.add.Tensor(%x, 1): f32[2]
  %relu = aten.relu(%a): f32[2]
  %y = aten.mul.Tensor(%relu, %relu): f32[2]
  return %y
}
",
        );
    }

    #[test]
    fn a_write_through_views_reaches_the_base_and_its_other_views() {
        check(
            "graph(%x: f32[4, 6]) {
 %z = aten.new_zeros(%x, [4, 6])
 %v = aten.view(%z, [24])
 %s = aten.slice.Tensor(%z, 0, 1, 3)
 %t = aten.select.int(%s, 1, 0)
 %f = aten.fill_.Scalar(%t, 7)
 %y = aten.add.Tensor(%v, 1)
 return %y, %z
}",
            "graph(%x: f32[4, 6]) {
  %z = aten.new_zeros(%x, [4, 6]): f32[4, 6]
  %s = aten.slice.Tensor(%z, 0, 1, 3): f32[2, 6]
  %t = aten.select.int(%s, 1, 0): f32[2]
  %fill = aten.fill.Scalar(%t, 7): f32[2]
  %slice = aten.slice.Tensor(%z, 0, 1, 3): f32[2, 6]
  %select_scatter = aten.select_scatter(%slice, %fill, 1, 0): f32[2, 6]
  %slice_scatter = aten.slice_scatter(%z, %select_scatter, 0, 1, 3): f32[4, 6]
  %view = aten.view(%slice_scatter, [24]): f32[24]
  %y = aten.add.Tensor(%view, 1): f32[24]
  return %y, %slice_scatter \"z\"
}
",
        );
    }

    #[test]
    fn writes_stay_inside_of_branches() {
        let src = "graph(%x: f32[2], %p: bool[]) {
  %cond = higher_order.cond(%p, graph(%a: f32[2]) {
    %clone = aten.clone(%a): f32[2]
    %relu_ = aten.relu_(%clone): f32[2]
    return %relu_
  }, graph(%a: f32[2]) {
    %neg = aten.neg(%a): f32[2]
    return %neg
  }, [%x]): (f32[2])
  %getitem = getitem(%cond, 0): f32[2]
  return %getitem
}
";
        check(
            src,
            &src.replace("return %relu_", "return %relu \"relu_\"").replace("relu_ = aten.relu_", "relu = aten.relu"),
        );
        let e = functionalize(&text::parse(&src.replace("relu_(%clone)", "relu_(%a)")).unwrap()).unwrap_err();
        let want = "node 'a' writes through an operand of a branch, which cannot be expressed without mutation";
        assert_eq!(e.to_string(), want);
    }

    #[test]
    fn a_write_that_has_no_inverse_is_refused() {
        let src = "graph(%x: f32[1]) {\n %e = aten.expand(%x, [3])\n %r = aten.relu_(%e)\n return %r\n}";
        let e = functionalize(&text::parse(src).unwrap()).unwrap_err().to_string();
        assert_eq!(e, "node 'r' writes through aten.expand, which cannot be expressed without mutation");
    }
}
