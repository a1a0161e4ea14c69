//! The nodes of a program's graphs.

use super::args::{NoArg, Val, argument, arguments};
use super::names::default_name;
use super::prepared;
use super::schema::{GraphJson, InputJson, NodeHead, NodeJson, Range, TensorJson, union};
use super::weights::dtype;
use super::{size, sizes};
use crate::error::Problems;
use cleave_ir::schema::Returns;
use cleave_ir::subgraph::{MAX_DEPTH, placeholder_metas};
use cleave_ir::{
    Arg, Builder, Class, Dim, Graph, IrError, Kind, Meta, Node, NodeId, Op, Origin, SymbolRange, TensorMeta, op,
};
use cleave_numerics::DType;
use indexmap::{IndexMap, IndexSet};
use serde_json::Value;
use serde_json::value::RawValue;
use std::rc::Rc;
use std::sync::Arc;

/// torch's stand-in for "no bound".
const UNBOUNDED: i64 = i64::MAX - 1;

/// Ops that run a graph under other settings, with the place of the graph among their arguments; operands follow.
const WRAPPERS: [(&str, usize); 2] =
    [("higher_order.wrap_with_set_grad_enabled", 1), ("higher_order.wrap_with_autocast", 4)];

/// Ops whose operands automatic casting brings to the lower precision.
const LOWERED: &str = " conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution \
    prelu addmm addmv addr matmul einsum mm mv linear addbmm baddbmm bmm scaled_dot_product_attention ";

/// A graph as it is read.
pub(super) struct Body<'p> {
    ranges: &'p IndexMap<String, Range>,
    /// The nodes so far.
    pub graph: Graph,
    /// What could not be understood so far.
    pub problems: Problems,
    /// Constants that nodes write to.
    pub written: IndexSet<String>,
    scope: Scope,
    /// In how many graphs this one stands.
    depth: usize,
}

/// Where names are looked up.
struct Scope {
    json: Rc<GraphJson>,
    values: IndexMap<String, Val>,
    /// Whether operands are cast to what an op wants.
    casts: bool,
}

/// One result of a node: its name in the file and what the file says of it.
struct Stated<'j> {
    name: Option<&'j str>,
    meta: Option<Meta>,
    /// Those of a list among several results.
    items: Vec<Stated<'j>>,
}

impl<'j> Stated<'j> {
    /// Its names, or those of its list.
    fn names(&self) -> impl Iterator<Item = &'j str> {
        std::iter::once(self).chain(&self.items).filter_map(|s| s.name)
    }
}

impl<'p> Body<'p> {
    /// An empty graph for the nodes of this one.
    pub(super) fn new(ranges: &'p IndexMap<String, Range>, json: Rc<GraphJson>) -> Self {
        let scope = Scope { json, values: IndexMap::new(), casts: false };
        let (graph, problems, written) = Default::default();
        Body { ranges, graph, problems, written, scope, depth: 0 }
    }

    /// Notes every op that has no record, once, with how often it is called.
    pub(super) fn unknown_ops(&mut self) {
        let mut unknown: IndexMap<String, (String, usize)> = IndexMap::new();
        let mut note = |name: &str, target: &str| {
            let op = op_name(target);
            let part = WRAPPERS.iter().any(|w| w.0 == op) || prepared::observes(op);
            let known = is_size_op(target) || part || op::find(op).is_ok();
            if !known {
                unknown.entry(op.into()).or_insert((name.into(), 0)).1 += 1;
            }
        };
        // What cannot be understood is said of when the node is read.
        for n in self.scope.json.nodes.iter().filter_map(|n| serde_json::from_str::<NodeHead<'_>>(n.get()).ok()) {
            note(n.name.as_deref().unwrap_or_default(), &n.target);
            let inputs = n.inputs.map(RawValue::get).filter(|text| text.contains("as_graph"));
            let inputs: Vec<InputJson> = inputs.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default();
            inputs.iter().for_each(|i| each_inner(&i.arg, &mut note));
        }
        for (op, (first, count)) in unknown {
            let more = if count > 1 { format!(" (and at {} more nodes)", count - 1) } else { String::new() };
            self.problems.push(&first, &op, format!("unknown op{more}"));
        }
    }

    /// What the program says of a symbol.
    pub(super) fn range(&self, symbol: &str) -> SymbolRange {
        let stated = self.ranges.get(symbol);
        let max = stated.and_then(|r| r.max_val).filter(|m| *m < UNBOUNDED);
        SymbolRange { min: stated.and_then(|r| r.min_val).unwrap_or(0), max }
    }

    /// Makes a value known by its name.
    pub(super) fn define(&mut self, name: &str, v: Val) {
        if self.scope.values.insert(name.into(), v).is_some() {
            self.problems.push(name, "", "a second value has this name");
        }
    }

    /// What a name stands for.
    pub(super) fn value(&self, name: &str) -> Option<&Val> {
        self.scope.values.get(name)
    }

    /// What the file says of a tensor, if anything.
    pub(super) fn stated(&self, name: &str) -> Option<Result<Meta, String>> {
        let text = self.scope.json.tensor_values.get(name)?.get();
        let parsed = serde_json::from_str::<TensorJson>(text).map_err(|e| format!("its type cannot be read: {e}"));
        Some(parsed.and_then(|t| dtype(t.dtype).and_then(|d| Ok(Meta::tensor(d, sizes(&t.sizes)?)))))
    }

    /// What the file says of a size, if anything.
    pub(super) fn stated_size(&self, name: &str) -> Option<Result<Meta, String>> {
        Some(size(self.scope.json.sym_int_values.get(name)?).map(Meta::Int))
    }

    /// Appends an input.
    pub(super) fn input(&mut self, name: &str, meta: Meta) {
        for s in meta.dims().iter().flat_map(Dim::symbols) {
            let range = self.range(&s);
            self.graph.symbols.entry(s).or_insert(range);
        }
        let origin = Origin { sources: vec![name.into()], module: String::new() };
        let node =
            Node { name: name.into(), kind: Kind::Placeholder, target: String::new(), args: vec![], meta, origin };
        let id = self.graph.push(node);
        self.graph.input_names.push(name.into());
        self.define(name, Val::Node(id));
    }

    /// Ends the graph with its results under these names.
    pub(super) fn output(&mut self, results: Vec<(String, NodeId)>) {
        let args = results.iter().map(|(_, id)| Arg::Node(*id)).collect();
        let (target, origin) = Default::default();
        self.graph.push(Node { name: "output".into(), kind: Kind::Output, target, args, meta: Meta::None, origin });
        self.graph.output_names = results.into_iter().map(|(name, _)| name).collect();
    }

    /// Appends all nodes.
    pub(super) fn nodes(&mut self) {
        let json = self.scope.json.clone();
        for (i, text) in json.nodes.iter().enumerate() {
            match serde_json::from_str(text.get()) {
                Ok(n) => self.node(&n),
                Err(e) => self.problems.push("", "", format!("node {i} cannot be read: {e}")),
            }
        }
    }

    fn node(&mut self, n: &NodeJson) {
        let target = op_name(&n.target);
        if let Some((_, at)) = WRAPPERS.iter().find(|w| w.0 == target) {
            if let Err(why) = self.wrapped(n, *at) {
                self.lose(n, target, NoArg::Why(why));
            }
            return;
        }
        if prepared::observes(target) {
            if let Err(e) = self.observed(n) {
                self.lose(n, target, e);
            }
            return;
        }
        let Ok(op) = op::find(target) else { return self.size_op(n) };
        let stated = self.results_stated(n);
        let name = match (op.schema.returns, stated.as_slice()) {
            (Returns::Tuple(_) | Returns::List, _) | (_, []) => n.name.clone().unwrap_or_else(|| default_name(op)),
            (_, [first, ..]) => first.name.map_or_else(|| default_name(op), String::from),
        };
        match self.call(op, n, &name, &stated) {
            Ok(id) => self.publish(op, id, n, &stated),
            Err(e) => self.lose(n, op.name, e),
        }
    }

    /// Notes why a node has no results.
    fn lose(&mut self, n: &NodeJson, op: &str, e: NoArg) {
        let names: Vec<String> = self.results_stated(n).iter().flat_map(Stated::names).map(String::from).collect();
        if let NoArg::Why(why) = e {
            let name = n.name.as_ref().or(names.first()).map_or("", String::as_str);
            self.problems.push(name, op, why);
        }
        names.iter().for_each(|name| self.define(name, Val::Lost));
    }

    fn results_stated<'j>(&self, n: &'j NodeJson) -> Vec<Stated<'j>> {
        let mut out = vec![];
        let tensor = |v: &'j Value| {
            let name = v.get("name").and_then(Value::as_str);
            // What cannot be understood here is left to the op's own shape rule.
            Stated { name, meta: name.and_then(|n| self.stated(n)).and_then(Result::ok), items: vec![] }
        };
        for v in &n.outputs {
            match union(v) {
                Some(("as_tensor", t)) => out.push(tensor(t)),
                Some(("as_tensors", list)) => {
                    let items: Vec<_> = list.as_array().into_iter().flatten().map(tensor).collect();
                    match n.outputs.len() {
                        1 => out = items,
                        _ => out.push(Stated { name: None, meta: None, items }),
                    }
                }
                Some((_, s)) => {
                    let name = s.get("as_name").and_then(Value::as_str);
                    let meta = name.and_then(|n| self.stated_size(n)).and_then(Result::ok);
                    out.push(Stated { name, meta, items: vec![] });
                }
                None => out.push(Stated { name: None, meta: None, items: vec![] }),
            }
        }
        out
    }

    /// Appends the call, its arguments complete and its meta that of the op's rule, held against the file's.
    fn call(&mut self, op: &'static Op, n: &NodeJson, name: &str, stated: &[Stated<'_>]) -> Result<NodeId, NoArg> {
        let mut graphs = IndexMap::new();
        for (i, input) in n.inputs.iter().enumerate() {
            if let Some(("as_graph", v)) = union(&input.arg) {
                graphs.insert(i, Arg::Graph(Arc::new(self.inner(v)?)));
            }
        }
        let args = match arguments(op, &n.inputs, &self.scope.values, &graphs) {
            // What is asserted of sizes is in their ranges.
            Err(NoArg::Why(_)) if op.base() == "_assert_scalar" => return Err(NoArg::Lost),
            other => other?,
        };
        let (args, inferred) = self.complete(op, args, name, stated).map_err(|e| match e {
            IrError::Call { why, .. } => NoArg::Why(why),
            e => NoArg::Why(e.to_string()),
        })?;
        let meta = self.reconcile(inferred, stated)?;
        let writes = op.schema.params.iter().zip(&args).filter(|(p, _)| p.mutated && op.class != Class::Inert);
        for id in writes.flat_map(|(_, a)| a.nodes()).filter(|id| self.graph.constant(*id).is_some()) {
            self.written.insert(self.graph.node(id).target.clone());
        }
        let origin = Origin { sources: vec![name.into()], module: module(n) };
        let node = Node { name: name.into(), kind: Kind::Call(op), target: String::new(), args, meta, origin };
        Ok(self.graph.push(node))
    }

    /// Arguments with defaults filled in, and the meta that the op gives for them; after casts, where there are any.
    fn complete(
        &mut self,
        op: &'static Op,
        args: Vec<Arg>,
        name: &str,
        stated: &[Stated<'_>],
    ) -> cleave_ir::Result<(Vec<Arg>, Meta)> {
        let wanted = stated.first().and_then(|s| s.meta.as_ref()?.as_tensor()).map(|t| t.dtype);
        let Some(wanted) = wanted.filter(|_| self.scope.casts) else { return complete(&self.graph, op, args, name) };
        if matches!(wanted, DType::F16 | DType::BF16) && LOWERED.contains(&format!(" {} ", op.base())) {
            let args = self.cast(args, wanted)?;
            return complete(&self.graph, op, args, name);
        }
        let plain = complete(&self.graph, op, args.clone(), name);
        let fits = |m: &Meta| m.as_tensor().is_none_or(|t| t.dtype == wanted);
        if wanted != DType::F32 || plain.as_ref().is_ok_and(|(_, m)| fits(m)) {
            return plain;
        }
        let args = self.cast(args, wanted)?;
        complete(&self.graph, op, args, name)
    }

    /// The arguments with tensors of other precision brought to this one.
    fn cast(&mut self, args: Vec<Arg>, to: DType) -> cleave_ir::Result<Vec<Arg>> {
        let op = op::find("aten._to_copy")?;
        let mut failed = None;
        let mut one = |g: &mut Graph, id: NodeId| {
            let from = g.node(id).meta.as_tensor().map(|t| t.dtype);
            if from == Some(to) || !matches!(from, Some(DType::F16 | DType::BF16 | DType::F32)) {
                return Arg::Node(id);
            }
            match complete(g, op, vec![Arg::Node(id), to.into()], op.base()) {
                Ok((args, meta)) => {
                    let (target, origin) = (String::new(), g.node(id).origin.clone());
                    let name = op.base().into();
                    Arg::Node(g.push(Node { name, kind: Kind::Call(op), target, args, meta, origin }))
                }
                Err(e) => {
                    failed.get_or_insert(e);
                    Arg::None
                }
            }
        };
        let args = args.iter().map(|a| a.map_nodes(&mut |id| one(&mut self.graph, id))).collect();
        failed.map_or(Ok(args), Err)
    }

    fn reconcile(&mut self, inferred: Meta, stated: &[Stated<'_>]) -> Result<Meta, String> {
        match (inferred, stated) {
            (Meta::Tuple(items), _) if items.len() == stated.len() => {
                let items = items.into_iter().zip(stated).map(|(m, s)| self.pick(m, s));
                Ok(Meta::Tuple(items.collect::<Result<_, _>>()?))
            }
            (Meta::Tuple(items), _) => {
                Err(format!("the op has {} results, the file names {}", items.len(), stated.len()))
            }
            (m, [one]) => self.pick(m, one),
            (m, _) => Ok(m),
        }
    }

    /// What the op gives; sizes that only running tells have the file's names.
    fn pick(&mut self, ours: Meta, file: &Stated<'_>) -> Result<Meta, String> {
        if !file.items.is_empty() {
            return self.reconcile(ours, &file.items);
        }
        let Some(theirs) = &file.meta else { return Ok(ours) };
        agree(&ours, theirs)?;
        let known = |d: &Dim| d.symbols().iter().all(|s| self.graph.symbols.contains_key(s));
        if ours.dims().iter().all(known) {
            return Ok(ours);
        }
        for s in theirs.dims().iter().flat_map(Dim::symbols) {
            let range = self.range(&s);
            self.graph.symbols.entry(s).or_insert(range);
        }
        Ok(theirs.clone())
    }

    /// Makes a node's results known by their names; several are taken apart by `getitem`.
    fn publish(&mut self, op: &Op, id: NodeId, n: &NodeJson, stated: &[Stated<'_>]) {
        let Meta::Tuple(items) = self.graph.node(id).meta.clone() else {
            if let Some(name) = stated.first().and_then(|s| s.name) {
                self.define(name, Val::Node(id));
            }
            return;
        };
        let Ok(getitem) = op::find("getitem") else { return };
        let node = n.name.as_deref().unwrap_or(op.base());
        for (i, (meta, s)) in items.into_iter().zip(stated).enumerate() {
            let unused = format!("{node}_unused_{i}");
            let Some(name) = s.name.filter(|name| *name != unused).or((!s.items.is_empty()).then_some("list")) else {
                continue;
            };
            let args = vec![Arg::Node(id), Arg::from(i)];
            let origin = Origin { sources: vec![name.into()], module: module(n) };
            let item = Node { name: name.into(), kind: Kind::Call(getitem), target: String::new(), args, meta, origin };
            let item = self.graph.push(item);
            match s.name {
                Some(name) => self.define(name, Val::Node(item)),
                None => self.publish(op, item, n, &s.items),
            }
        }
    }

    /// A call that observes and quantizes, as what it is without observing.
    fn observed(&mut self, n: &NodeJson) -> Result<(), NoArg> {
        let on = |i: &InputJson| match argument(&i.arg, &self.scope.values) {
            Ok(Arg::Node(id)) => Ok(self.graph.constant(id).map(|t| t.to_f64().iter().any(|v| *v != 0.0))),
            Ok(_) | Err(NoArg::Lost) => Ok(None),
            Err(NoArg::Why(why)) => Err(why),
        };
        let plain = prepared::plain(n, on)?;
        let itself = n.outputs.iter().take(usize::from(plain.is_none())).zip(["self"]);
        for (result, from) in itself.chain(n.outputs.iter().skip(2).zip(prepared::GIVEN_BACK)) {
            let given = argument(&prepared::input(n, from)?.arg, &self.scope.values)?;
            if let (Some(name), Arg::Node(id)) = (value_name(result), given) {
                self.define(name, Val::Node(id));
            }
        }
        if let Some(plain) = plain {
            self.node(&plain);
        }
        Ok(())
    }

    /// Arithmetic and comparisons of sizes that have no record: the file states what each gives.
    fn size_op(&mut self, n: &NodeJson) {
        for v in &n.outputs {
            let (kind, name) = match union(v) {
                Some((kind, s)) => (kind, s.get("as_name").and_then(Value::as_str).unwrap_or_default()),
                None => ("", ""),
            };
            let value = match (kind, self.stated_size(name)) {
                ("as_sym_bool", _) => Val::Flag,
                ("as_sym_int", Some(Ok(Meta::Int(d)))) => Val::Size(d),
                (_, Some(Err(why))) => {
                    self.problems.push(name, &n.target, why);
                    Val::Lost
                }
                _ => {
                    self.problems.push(name, &n.target, "a result that is not a size cannot be read");
                    Val::Lost
                }
            };
            self.define(name, value);
        }
    }

    /// The graph of `{"name": …, "graph": …}`, which is an argument.
    fn inner(&mut self, v: &Value) -> Result<Graph, NoArg> {
        let mut inner = Body::new(self.ranges, Rc::new(graph_json(v)?));
        inner.depth = self.depth + 1;
        if inner.depth >= MAX_DEPTH {
            return Err(NoArg::Why(format!("graphs stand in one another more than {MAX_DEPTH} deep")));
        }
        inner.operands()?;
        inner.nodes();
        let json = inner.scope.json.clone();
        let mut results = vec![];
        for out in &json.outputs {
            let name = value_name(out).ok_or_else(|| format!("a result {out} of a graph is not a tensor"))?;
            match inner.value(name) {
                Some(Val::Node(id)) => results.push((name.into(), *id)),
                Some(Val::Lost) => {}
                _ => return Err(NoArg::Why(format!("the result '{name}' of a graph is no tensor of it"))),
            }
        }
        inner.output(results);
        if inner.problems.is_empty() {
            return Ok(inner.graph);
        }
        self.problems.append(inner.problems);
        Err(NoArg::Lost)
    }

    /// Appends the inputs of a graph that is an argument.
    fn operands(&mut self) -> Result<(), NoArg> {
        let json = self.scope.json.clone();
        let (mut names, mut metas) = (vec![], vec![]);
        for v in &json.inputs {
            let name = value_name(v).ok_or_else(|| format!("the input {v} of a graph cannot be read"))?;
            let meta = self.stated(name).or_else(|| self.stated_size(name));
            names.push(name);
            metas.push(meta.ok_or_else(|| format!("input '{name}' of a graph without type and sizes"))??);
        }
        names.into_iter().zip(placeholder_metas(&metas)).for_each(|(name, meta)| self.input(name, meta));
        Ok(())
    }

    /// Appends what a graph that only stands under other settings does, as a part of this one.
    fn wrapped(&mut self, n: &NodeJson, at: usize) -> Result<(), String> {
        let graph = n.inputs.get(at).and_then(|i| union(&i.arg)).filter(|(kind, _)| *kind == "as_graph");
        let json = graph_json(graph.ok_or("expected a graph among the arguments")?.1)?;
        if self.depth + 1 >= MAX_DEPTH {
            return Err(format!("graphs stand in one another more than {MAX_DEPTH} deep"));
        }
        let operands = &n.inputs[at + 1..];
        if (json.inputs.len(), json.outputs.len()) != (operands.len(), self.results_stated(n).len()) {
            return Err("the graph takes and gives other values than the node".into());
        }
        let mut values = IndexMap::new();
        for (v, operand) in json.inputs.iter().zip(operands) {
            let name = value_name(v).ok_or_else(|| format!("the input {v} of a graph cannot be read"))?;
            let val = match argument(&operand.arg, &self.scope.values) {
                Ok(Arg::Node(id)) => Val::Node(id),
                Ok(Arg::Int(i)) => Val::Size(i.into()),
                Ok(Arg::Dim(d)) => Val::Size(d),
                Ok(_) => return Err(format!("operand {} cannot be read", operand.arg)),
                Err(NoArg::Lost) => Val::Lost,
                Err(NoArg::Why(why)) => return Err(why),
            };
            values.insert(name.into(), val);
        }
        let enabled = n.inputs.get(2).and_then(|i| i.arg.get("as_bool")).and_then(Value::as_bool);
        let casts = if op_name(&n.target).contains("autocast") { enabled != Some(false) } else { self.scope.casts };
        let json = Rc::new(json);
        let outer = std::mem::replace(&mut self.scope, Scope { json: json.clone(), values, casts });
        self.depth += 1;
        self.nodes();
        self.depth -= 1;
        let inner = std::mem::replace(&mut self.scope, outer);
        let names: Vec<Option<String>> = self.results_stated(n).iter().map(|s| s.name.map(String::from)).collect();
        for (out, name) in json.outputs.iter().zip(names) {
            let found = value_name(out).and_then(|o| inner.values.get(o)).cloned();
            let val = found.ok_or_else(|| format!("a result {out} of a graph is no value of it"))?;
            if let Some(name) = name {
                self.define(&name, val);
            }
        }
        Ok(())
    }
}

/// Shows the names and targets of nodes in the graphs that an argument holds.
fn each_inner(arg: &Value, note: &mut dyn FnMut(&str, &str)) {
    let nodes = arg.pointer("/as_graph/graph/nodes").and_then(Value::as_array);
    for n in nodes.into_iter().flatten() {
        let text = |key: &str| n.get(key).and_then(Value::as_str).unwrap_or_default();
        note(text("name"), text("target"));
        let inputs = n.get("inputs").and_then(Value::as_array);
        inputs.into_iter().flatten().filter_map(|i| i.get("arg")).for_each(|a| each_inner(a, note));
    }
}

fn graph_json(v: &Value) -> Result<GraphJson, String> {
    let text = v.get("graph").unwrap_or(&Value::Null).to_string();
    serde_json::from_str(&text).map_err(|e| format!("the graph cannot be read: {e}"))
}

/// The name of `{"as_tensor": {"name": …}}` or `{"as_sym_int": {"as_name": …}}`.
pub(super) fn value_name(v: &Value) -> Option<&str> {
    let (_, inner) = union(v)?;
    inner.get("name").or_else(|| inner.get("as_name"))?.as_str()
}

/// The op's name as records have it.
fn op_name(target: &str) -> &str {
    target.strip_prefix("torch.ops.").unwrap_or(target)
}

/// Python's own functions on sizes.
fn is_size_op(target: &str) -> bool {
    ["_operator.", "math.", "torch.sym_"].iter().any(|p| target.starts_with(p))
}

/// The dotted path of the innermost module a node stood in: `key,path,type;…`.
fn module(n: &NodeJson) -> String {
    let last = n.metadata.nn_module_stack.rsplit(';').next().unwrap_or_default();
    last.split(',').nth(1).unwrap_or_default().into()
}

/// Arguments with defaults filled in, and the meta that the op gives for them.
fn complete(g: &Graph, op: &'static Op, args: Vec<Arg>, name: &str) -> cleave_ir::Result<(Vec<Arg>, Meta)> {
    let scratch = Builder::new();
    let mut outer: Vec<NodeId> = vec![];
    let args = args
        .iter()
        .map(|a| {
            a.map_nodes(&mut |n| {
                let v = scratch.placeholder("x", g.node(n).meta.clone());
                outer.push(n);
                v.into()
            })
        })
        .collect();
    let (args, meta) = scratch.resolve(op, args, name)?;
    Ok((args.iter().map(|a| a.map_nodes(&mut |n| Arg::Node(outer[n.index()]))).collect(), meta))
}

/// Whether type, rank and sizes may be the same; sizes that are not both numbers may.
pub(super) fn agree(ours: &Meta, file: &Meta) -> Result<(), String> {
    let fits = match (ours, file) {
        (Meta::Tensor(TensorMeta { dtype: a, shape: s }), Meta::Tensor(TensorMeta { dtype: b, shape: t })) => {
            a == b && s.len() == t.len() && s.iter().zip(t).all(|(x, y)| same_size(x, y))
        }
        (Meta::Int(a), Meta::Int(b)) => same_size(a, b),
        _ => false,
    };
    let text = cleave_ir::text::meta_text;
    if fits { Ok(()) } else { Err(format!("the op gives {}, the file says {}", text(ours), text(file))) }
}

fn same_size(a: &Dim, b: &Dim) -> bool {
    match (a.as_const(), b.as_const()) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    }
}
