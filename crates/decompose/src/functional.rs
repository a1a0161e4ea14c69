//! Functional form: writes become values.
//!
//! A call that writes to its argument becomes the functional op of its rule, and whoever reads the argument,
//! or a view of the same storage, from there on reads the new value. A write through a view is put back into
//! the base by the inverse of the view, as torch's functionalization does it.

use crate::error::{DecomposeError, Result};
use cleave_ir::graph::{Arg, Graph, Kind, Meta, Node, NodeId};
use cleave_ir::op::{Class, Functional as Form, Op};
use cleave_ir::schema::Returns;
use cleave_ir::transform::Replace;
use cleave_ir::{Builder, Dim, Value, strides, transform};
use std::rc::Rc;

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
    written(&plain_views(src)?, &b)?;
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(transform::prune_rewritten(src, &g))
}

/// Builds the graph without mutation; how many writes each of the old nodes saw.
fn written(src: &Graph, b: &Builder) -> Result<Vec<usize>> {
    let n = src.len();
    let mut f = Functional {
        src,
        b,
        parent: vec![None; n],
        now: vec![None; n],
        made: vec![0; n],
        writes: vec![0; n],
        several: vec![vec![]; n],
    };
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
    let plain = plain_views(src)?;
    let writes = written(&plain, &Builder::from_graph(src.shell()))?;
    match plain.placeholders().into_iter().find(|p| writes[p.index()] > 0) {
        Some(p) => {
            Err(DecomposeError::WriteThrough { node: plain.node(p).name.clone(), op: "an operand of a branch".into() })
        }
        None => functionalize(src),
    }
}

/// Views that every table spells otherwise, spelled so; a view that is taken in place becomes an ordinary one, which
/// later readers of its argument read.
fn plain_views(src: &Graph) -> Result<Graph> {
    let respelled = |o: &Op| {
        let rule = o.functional == Form::Always && o.class == Class::View && !o.schema.mutates();
        o.rule.filter(|_| rule && !matches!(o.base(), "reshape" | "flatten"))
    };
    let mut g = transform::transform_all(src, |b, _, node, args| {
        b.expand_by(Rc::new(respelled));
        let made = node.op().map(|o| b.expanded(o, args, &node.name)).transpose()?.flatten();
        Ok(made.map_or(Replace::Copy, Replace::With))
    })?;
    if g.nodes().any(|(_, n)| n.op().is_some_and(|o| o.class == Class::View && o.schema.mutates())) {
        g = views_out_of_place(&g)?;
    }
    Ok(g)
}

fn views_out_of_place(src: &Graph) -> Result<Graph> {
    let b = Builder::from_graph(src.shell());
    let mut map: Vec<NodeId> = Vec::with_capacity(src.len());
    // What a call that writes gives is its argument; such names of one thing share the first.
    let mut first: Vec<NodeId> = Vec::with_capacity(src.len());
    let mut viewed: Vec<Option<NodeId>> = vec![None; src.len()];
    for (id, node) in src.nodes() {
        b.set_origin(node.origin.clone());
        let of = |n: NodeId| Arg::Node(viewed[first[n.index()].index()].unwrap_or(map[n.index()]));
        let args: Vec<Arg> = node.args.iter().map(|a| a.map_nodes(&mut |n| of(n))).collect();
        let writes = node.op().and_then(|o| Some((o, o.schema.params.iter().position(|p| p.mutated)?)));
        let target = writes.and_then(|(_, slot)| node.args[slot].nodes().first().copied());
        first.push(target.map_or(id, |t| first[t.index()]));
        match (writes, target) {
            (Some((op, _)), Some(t)) if op.class == Class::View => {
                let made = b.apply_rule(op, &args, &node.name)?;
                let made = *made.first().ok_or_else(|| refused(node, op))?;
                viewed[first[t.index()].index()] = Some(made.id());
                map.push(made.id());
            }
            _ => map.push(b.edit(|g| g.push(Node { args, ..node.clone() }))),
        }
    }
    let mut g = b.finish()?;
    g.output_names.clone_from(&src.output_names);
    Ok(g)
}

fn refused(node: &Node, op: &Op) -> DecomposeError {
    DecomposeError::WriteThrough { node: node.name.clone(), op: op.short().into() }
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
    /// For calls with several results that also write: the results.
    several: Vec<Vec<NodeId>>,
}

impl<'a> Functional<'a> {
    fn step(&mut self, id: NodeId, node: &Node) -> Result<()> {
        if let (Some(tuple), Some(Arg::Int(i))) =
            (node.args.first().and_then(|a| a.nodes().first().copied()), node.args.get(1))
            && let Some(made) = self.several[tuple.index()].get(usize::try_from(*i).unwrap_or(usize::MAX))
        {
            self.now[id.index()] = Some(*made);
            return Ok(());
        }
        let args = self.args(node, &mut |s, n| s.read(n))?;
        let Some(op) = node.op() else {
            self.now[id.index()] = Some(self.b.edit(|g| g.push(Node { args, ..node.clone() })));
            return Ok(());
        };
        if let Returns::Tuple(results) = op.schema.returns
            && op.schema.mutates()
        {
            return self.write_several(id, node, op, &args, results);
        }
        if let Some(slot) = op.schema.params.iter().position(|p| p.mutated) {
            let target = *node.args[slot].nodes().first().ok_or_else(|| refused(node, op))?;
            let made = self.b.apply_rule(op, &args, &node.name)?;
            let made = *made.first().ok_or_else(|| refused(node, op))?;
            self.parent[id.index()] = Some(target);
            if args[slot].nodes() == [made.id()] {
                return Ok(());
            }
            let value = self.as_before(target, made);
            return self.write(target, value, node);
        }
        self.now[id.index()] = Some(self.b.push_call(op, args, &node.name, node.meta.clone()).id());
        if self.aliases(id, op) {
            let first = |node: &Node| node.args.first().and_then(|a| a.nodes().first().copied());
            // A part is a view of what was taken apart.
            let of = first(node).map(|n| if op.name == "getitem" { self.src.node(n) } else { node });
            self.parent[id.index()] = of.and_then(first);
            self.made[id.index()] = self.writes[self.root(id).index()];
        }
        Ok(())
    }

    /// A call with several results that also writes: its rule gives the results, then what is written, in order.
    fn write_several(&mut self, id: NodeId, node: &Node, op: &'static Op, args: &[Arg], results: usize) -> Result<()> {
        let mut made = self.b.apply_rule(op, args, &node.name)?;
        let written = made.split_off(results.min(made.len()));
        self.several[id.index()] = made.into_iter().map(Value::id).collect();
        let slots = op.schema.params.iter().zip(&node.args).filter(|(p, _)| p.mutated);
        let targets: Vec<NodeId> = slots.flat_map(|(_, a)| a.nodes()).collect();
        if targets.len() != written.len() {
            return Err(refused(node, op));
        }
        for (target, value) in targets.into_iter().zip(written) {
            let value = self.as_before(target, value);
            self.write(target, value, node)?;
        }
        Ok(())
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
        let v = self.fresh(id)?;
        self.now[i] = Some(v);
        self.made[i] = writes;
        Ok(v)
    }

    /// The value of a view made anew all the way from its root, as torch makes it.
    fn fresh(&mut self, id: NodeId) -> Result<NodeId> {
        let (Some(parent), Some(op)) = (self.parent[id.index()], self.src.node(id).op()) else {
            return self.now[id.index()].ok_or_else(|| DecomposeError::WriteThrough {
                node: self.src.node(id).name.clone(),
                op: "a value that is not made yet".into(),
            });
        };
        let base = self.fresh(parent)?;
        if op.schema.mutates() {
            return Ok(base);
        }
        self.view(id, base)
    }

    /// A view of this base.
    fn view(&mut self, id: NodeId, base: NodeId) -> Result<NodeId> {
        let node = self.src.node(id);
        let Some(op) = node.op() else { return Ok(base) };
        let base = self.b.value(base);
        if let Some((part, args)) = part(self.src, node) {
            return Ok(base.op(part, args).id());
        }
        let parent = self.parent[id.index()];
        let args = self.args(node, &mut |s, n| if Some(n) == parent { Ok(base.id()) } else { s.read(n) })?;
        Ok(self.b.push_call(op, args, op.base(), node.meta.clone()).id())
    }

    /// The written value in the type that its target has.
    fn as_before(&self, target: NodeId, value: Value<'a>) -> Value<'a> {
        match &self.src.node(target).meta {
            Meta::Tensor(t) if t.dtype != value.dtype() => value.op("aten._to_copy", vec![t.dtype.into()]),
            _ => value,
        }
    }

    fn write(&mut self, target: NodeId, value: Value<'a>, node: &Node) -> Result<()> {
        // The views between the root and what is written, outermost first, and what each is a view of.
        let (mut views, mut root) = (vec![], target);
        while let Some(parent) = self.parent[root.index()] {
            if self.src.node(root).op().is_some_and(|o| !o.schema.mutates()) {
                views.insert(0, root);
            }
            root = parent;
        }
        let mut bases = vec![self.fresh(root)?];
        for view in views.iter().take(views.len().saturating_sub(1)) {
            bases.push(self.view(*view, bases[bases.len() - 1])?);
        }
        let mut value = value;
        for (id, base) in views.into_iter().zip(bases).rev() {
            let view = self.src.node(id);
            let op = view
                .op()
                .ok_or_else(|| DecomposeError::WriteThrough { node: node.name.clone(), op: view.name.clone() })?;
            value = inverse(self.src, view, op, self.b.value(base), value).ok_or_else(|| refused(node, op))?;
        }
        self.now[root.index()] = Some(value.id());
        self.writes[root.index()] += 1;
        Ok(())
    }
}

/// The slice or selection that one of several views is.
fn part(src: &Graph, node: &Node) -> Option<(&'static str, Vec<Arg>)> {
    if node.op()?.name != "getitem" {
        return None;
    }
    let tuple = src.node(*node.args.first()?.nodes().first()?);
    let (Some(Arg::Int(i)), Some(Arg::Int(dim))) = (node.arg("index"), tuple.arg("dim")) else { return None };
    let Meta::Tuple(items) = &tuple.meta else { return None };
    let at = usize::try_from(*i).ok()?;
    match tuple.op()?.base() {
        "unbind" => Some(("aten.select.int", vec![(*dim).into(), (*i).into()])),
        "split" | "split_with_sizes" => {
            let shape = items.get(at)?.as_tensor()?.shape.clone();
            let axis = usize::try_from(if *dim < 0 { dim + shape.len() as i64 } else { *dim }).ok()?;
            let size = |m: &Meta| m.as_tensor().and_then(|t| t.shape.get(axis).cloned());
            let start = items[..at].iter().try_fold(Dim::from(0i64), |sum, m| Some(sum + size(m)?))?;
            let end = start.clone() + size(&items[at])?;
            Some(("aten.slice.Tensor", vec![(*dim).into(), start.into(), end.into(), 1i64.into()]))
        }
        _ => None,
    }
}

/// The base with a view of it replaced by a value; `None` where the view has no inverse.
fn inverse<'b>(src: &Graph, view: &Node, op: &Op, base: Value<'b>, value: Value<'b>) -> Option<Value<'b>> {
    let given = |names: &[&str]| names.iter().map(|n| view.arg(n).cloned().unwrap_or(Arg::None)).collect::<Vec<_>>();
    let scattered = |op: &str, rest: Vec<Arg>| base.op(op, [vec![value.into()], rest].concat());
    if let Some((part, args)) = part(src, view) {
        return Some(scattered(
            if part == "aten.select.int" { "aten.select_scatter" } else { "aten.slice_scatter" },
            args,
        ));
    }
    Some(match op.base() {
        "slice" => scattered("aten.slice_scatter", given(&["dim", "start", "end", "step"])),
        "select" => scattered("aten.select_scatter", given(&["dim", "index"])),
        "diagonal" => scattered("aten.diagonal_scatter", given(&["offset", "dim1", "dim2"])),
        "as_strided" => scattered("aten.as_strided_scatter", given(&["size", "stride", "storage_offset"])),
        "view" | "reshape" | "flatten" => value.view(base.shape()),
        "squeeze" if value.rank() < base.rank() => {
            let dropped = |(dim, n): (usize, &Dim)| (n.is(1) && is_dropped(view, dim, base.rank())).then_some(dim);
            base.shape()
                .iter()
                .enumerate()
                .filter_map(dropped)
                .fold(value, |v, dim| v.op("aten.unsqueeze", vec![dim.into()]))
        }
        "unsqueeze" => value.op("aten.squeeze.dim", given(&["dim"])),
        "transpose" | "t" => {
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
        "expand" => {
            // What each of the copies adds reaches the one element.
            let (from, to) = (base.shape(), value.shape());
            let lead = to.len().checked_sub(from.len())?;
            let dims: Vec<usize> = (0..to.len()).filter(|i| *i < lead || from[i - lead] != to[*i]).collect();
            let mut change = value - base;
            if !dims.is_empty() {
                change = change.op("aten.sum.dim_IntList", vec![dims.into(), true.into()]);
            }
            base + if lead > 0 { change.view(from) } else { change }
        }
        "squeeze" | "alias" | "detach" | "contiguous" | "dropout" => value,
        _ => return None,
    })
}

/// Whether a squeeze takes out this dimension if it is of size 1.
fn is_dropped(view: &Node, dim: usize, rank: usize) -> bool {
    let is = |a: &Arg| matches!(a, Arg::Int(i) if i.rem_euclid(rank as i64) == dim as i64);
    match view.arg("dim") {
        None => true,
        Some(Arg::List(l)) => l.iter().any(is),
        Some(a) => is(a),
    }
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
    fn views_of_every_kind_are_written_back() {
        let inverse = |view: &str| {
            let src = format!(
                "graph(%x: f32[2, 1, 3]) {{\n %y = aten.relu(%x)\n {view}\n %r = aten.fill_.Scalar(%v, 7)\n return %y\n}}"
            );
            let g = functionalize(&text::parse(&src).unwrap()).unwrap();
            verify::verify(&g, Levels::ALL).unwrap();
            let lines: Vec<_> = g.to_string().lines().map(str::to_string).collect();
            let at = lines.iter().position(|l| l.contains("aten.fill.")).unwrap();
            let calls = lines[at + 1..].iter().filter_map(|l| l.split_once(" = ")).map(|(_, call)| call.to_string());
            calls.collect::<Vec<_>>().join("; ")
        };
        for (view, want) in [
            (
                "%s = aten.split.Tensor(%y, 1, 2)\n %v = getitem(%s, 1)",
                "aten.slice_scatter(%y, %fill, 2, 1, 2): f32[2, 1, 3]",
            ),
            (
                "%u = aten.unbind.int(%y, -1)\n %v = getitem(%u, 2)",
                "aten.select_scatter(%y, %fill, -1, 2): f32[2, 1, 3]",
            ),
            ("%v = aten.squeeze(%y)", "aten.unsqueeze(%fill, 1): f32[2, 1, 3]"),
            ("%v = aten.squeeze.dim(%y, 0)", ""),
            ("%v = aten.unsqueeze(%y, 0)", "aten.squeeze.dim(%fill, 0): f32[2, 1, 3]"),
            ("%v = aten.diagonal(%y, 0, 0, 2)", "aten.diagonal_scatter(%y, %fill, 0, 0, 2): f32[2, 1, 3]"),
            ("%v = aten.as_strided(%y, [2], [2])", "aten.as_strided_scatter(%y, %fill, [2], [2]): f32[2, 1, 3]"),
            (
                "%v = aten.expand(%y, [2, 2, 3])",
                "aten.sub.Tensor(%fill, %y): f32[2, 2, 3]; aten.sum.dim_IntList(%sub, [1], true): f32[2, 1, 3]; aten.add.Tensor(%y, %sum): f32[2, 1, 3]",
            ),
            ("%v = aten.swapaxes(%y, 0, 1)", "aten.transpose.int(%fill, 0, 1): f32[2, 1, 3]"),
            ("%v = aten.narrow(%y, 2, 1, 1)", "aten.slice_scatter(%y, %fill, 2, 1, 2): f32[2, 1, 3]"),
        ] {
            assert_eq!(inverse(view), want, "{view}");
        }
    }

    #[test]
    fn a_view_taken_in_place_is_what_later_readers_see() {
        check(
            "graph(%x: f32[2, 3]) {\n %a = aten.relu(%x)\n %u = aten.unsqueeze_(%a, 0)\n %r = aten.relu_(%u)\n %y = aten.neg(%r)\n return %y\n}",
            "graph(%x: f32[2, 3]) {
  %a = aten.relu(%x): f32[2, 3]
  %unsqueeze = aten.unsqueeze(%a, 0): f32[1, 2, 3]
  %relu = aten.relu(%unsqueeze): f32[1, 2, 3]
  %squeeze = aten.squeeze.dim(%relu, 0): f32[2, 3]
  %unsqueeze_1 = aten.unsqueeze(%squeeze, 0): f32[1, 2, 3]
  %y = aten.neg(%unsqueeze_1): f32[1, 2, 3]
  return %y
}
",
        );
    }

    #[test]
    fn a_call_may_write_to_several_arguments() {
        check(
            "graph(%x: f32[2, 3], %m: f32[3], %v: f32[3]) {
 %b = aten._native_batch_norm_legit(%x, none, none, %m, %v, true, 0.1, 0.001)
 %y = getitem(%b, 0)
 %z = aten.add.Tensor(%m, 1)
 return %y, %z
}",
            "graph(%x: f32[2, 3], %m: f32[3], %v: f32[3]) {
  %_native_batch_norm_legit_functional = aten._native_batch_norm_legit_functional(%x, none, none, %m, %v, true, 0.1, 0.001): (f32[2, 3], f32[3], f32[3], f32[3], f32[3])
  %getitem = getitem(%_native_batch_norm_legit_functional, 0): f32[2, 3]
  %getitem_3 = getitem(%_native_batch_norm_legit_functional, 3): f32[3]
  %z = aten.add.Tensor(%getitem_3, 1): f32[3]
  return %getitem \"y\", %z
}
",
        );
    }

    #[test]
    fn a_write_that_has_no_inverse_is_refused() {
        let src = "graph(%x: f32[5]) {\n %u = aten.unfold(%x, 0, 3, 1)\n %r = aten.relu_(%u)\n return %r\n}";
        let e = functionalize(&text::parse(src).unwrap()).unwrap_err().to_string();
        assert_eq!(e, "node 'r' writes through aten.unfold, which cannot be expressed without mutation");
    }
}
