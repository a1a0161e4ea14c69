//! From the program's JSON to a graph.

use super::args::{NoArg, Val, arguments};
use super::schema::{NodeJson, Program, TensorJson, union};
use super::weights::{Weights, dtype};
use super::{size, sizes};
use crate::archive::Archive;
use crate::error::{Problems, Result};
use cleave_ir::schema::Returns;
use cleave_ir::{
    Arg, Builder, ConstKind, Dim, Graph, IrError, Kind, Meta, Node, NodeId, Op, Origin, SymbolRange, TensorMeta, op,
};
use indexmap::IndexMap;
use serde_json::Value;

/// torch's stand-in for "no bound".
const UNBOUNDED: i64 = i64::MAX - 1;

/// Builds the graph of one program.
pub(super) struct Reader<'a> {
    archive: &'a mut Archive,
    weights: &'a Weights,
    program: &'a Program,
    graph: Graph,
    values: IndexMap<String, Val>,
    problems: Problems,
    dropped: Vec<String>,
}

/// One result of a node: its name in the file and what the file says of it.
struct Stated<'j> {
    name: Option<&'j str>,
    meta: Option<Meta>,
    /// Those of a list among several results.
    items: Vec<Stated<'j>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(archive: &'a mut Archive, weights: &'a Weights, program: &'a Program) -> Self {
        let (graph, values, problems, dropped) = Default::default();
        Reader { archive, weights, program, graph, values, problems, dropped }
    }

    /// The graph, or all that is wrong with it.
    pub(super) fn read(mut self) -> Result<Graph> {
        let path = self.archive.path().to_path_buf();
        self.unknown_ops();
        if !self.problems.is_empty() {
            return self.problems.finish(&path).map(|()| self.graph);
        }
        self.symbols();
        for spec in &self.program.graph_module.signature.input_specs {
            self.input(spec)?;
        }
        for node in &self.program.graph_module.graph.nodes {
            self.node(node);
        }
        self.outputs();
        self.problems.finish(&path)?;
        for (key, value) in &self.program.graph_module.metadata {
            if let (Some(key), Some(value)) = (key.strip_prefix(super::FACT), value.as_str()) {
                self.graph.metadata.insert(key.into(), value.into());
            }
        }
        if !self.dropped.is_empty() {
            self.graph.metadata.insert("dropped".into(), self.dropped.join(", "));
        }
        Ok(self.graph)
    }

    /// Notes every op that has no record, once, with how often it is called.
    fn unknown_ops(&mut self) {
        let mut unknown: IndexMap<&str, (&str, usize)> = IndexMap::new();
        for n in &self.program.graph_module.graph.nodes {
            let known = is_size_op(&n.target) || op::find(op_name(&n.target)).is_ok();
            if !known {
                let first = n.name.as_deref().unwrap_or_default();
                unknown.entry(op_name(&n.target)).or_insert((first, 0)).1 += 1;
            }
        }
        for (op, (first, count)) in unknown {
            let more = if count > 1 { format!(" (and at {} more nodes)", count - 1) } else { String::new() };
            self.problems.push(first, op, format!("unknown op{more}"));
        }
    }

    fn symbols(&mut self) {
        for (name, range) in &self.program.range_constraints {
            let max = range.max_val.filter(|m| *m < UNBOUNDED);
            self.graph.symbols.insert(name.clone(), SymbolRange { min: range.min_val.unwrap_or(0), max });
        }
    }

    fn define(&mut self, name: &str, v: Val) {
        if self.values.insert(name.into(), v).is_some() {
            self.problems.push(name, "", "a second value has this name");
        }
    }

    /// A parameter, buffer, constant or input.
    fn input(&mut self, spec: &Value) -> Result<()> {
        let (kind, body) = union(spec).unwrap_or(("", &Value::Null));
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        let arg = body.get("arg").unwrap_or(&Value::Null);
        let (target, const_kind) = match kind {
            "parameter" => (text("parameter_name"), ConstKind::Param),
            "buffer" if body.get("persistent").and_then(Value::as_bool) == Some(false) => {
                (text("buffer_name"), ConstKind::Constant)
            }
            "buffer" => (text("buffer_name"), ConstKind::Buffer),
            "tensor_constant" => (text("tensor_constant_name"), ConstKind::Constant),
            "user_input" => {
                self.user_input(arg);
                return Ok(());
            }
            // An argument that was a plain value at export is part of the program.
            "constant_input" => return Ok(()),
            other => {
                self.problems.push("", "", format!("input of kind '{other}' cannot be read"));
                return Ok(());
            }
        };
        let (Some(name), Some(target)) = (arg.get("name").and_then(Value::as_str), target) else {
            self.problems.push("", "", format!("{kind} without a name"));
            return Ok(());
        };
        self.constant(name, target, const_kind)
    }

    fn constant(&mut self, name: &str, target: &str, kind: ConstKind) -> Result<()> {
        let t = self.weights.tensor(self.archive, target)?;
        let meta = Meta::tensor(t.dtype(), t.shape().iter().map(|n| Dim::from(*n)).collect());
        if let Some(Err(why)) = self.stated(name).map(|s| s.and_then(|s| agree(&meta, &s))) {
            self.problems.push(name, "", format!("constant '{target}': {why}"));
        }
        let other = self.graph.constants.insert(target.into(), t.clone());
        if other.is_some_and(|o| !o.same_place(&t)) {
            self.problems.push(name, "", format!("a second constant is named '{target}'"));
        }
        let origin = Origin { sources: vec![name.into()], module: String::new() };
        let node =
            Node { name: name.into(), kind: Kind::GetAttr(kind), target: target.into(), args: vec![], meta, origin };
        let id = self.graph.push(node);
        self.define(name, Val::Node(id));
        Ok(())
    }

    fn user_input(&mut self, arg: &Value) {
        let found = match union(arg) {
            Some(("as_tensor", t)) => t.get("name").and_then(Value::as_str).map(|n| (n, self.stated(n))),
            Some(("as_sym_int", s)) => s.get("as_name").and_then(Value::as_str).map(|n| (n, self.stated_size(n))),
            // A plain value at export: part of the program.
            Some(("as_none" | "as_int" | "as_float" | "as_bool" | "as_string", _)) => return,
            _ => None,
        };
        let (name, meta) = match found {
            Some((name, Some(Ok(meta)))) => (name, meta),
            Some((name, Some(Err(why)))) => return self.problems.push(name, "", format!("input: {why}")),
            Some((name, None)) => return self.problems.push(name, "", "input without type and sizes"),
            None => return self.problems.push("", "", format!("input {arg} cannot be read")),
        };
        if let Meta::Tensor(t) = &meta {
            for s in t.shape.iter().flat_map(Dim::symbols) {
                self.graph.symbols.entry(s).or_insert(SymbolRange { min: 0, max: None });
            }
        }
        let origin = Origin { sources: vec![name.into()], module: String::new() };
        let node =
            Node { name: name.into(), kind: Kind::Placeholder, target: String::new(), args: vec![], meta, origin };
        let id = self.graph.push(node);
        self.graph.input_names.push(name.into());
        self.define(name, Val::Node(id));
    }

    /// What the file says of a tensor, if anything.
    fn stated(&self, name: &str) -> Option<std::result::Result<Meta, String>> {
        let t: &TensorJson = self.program.graph_module.graph.tensor_values.get(name)?;
        Some(dtype(t.dtype).and_then(|d| Ok(Meta::tensor(d, sizes(&t.sizes)?))))
    }

    fn stated_size(&self, name: &str) -> Option<std::result::Result<Meta, String>> {
        Some(size(self.program.graph_module.graph.sym_int_values.get(name)?).map(Meta::Int))
    }

    fn node(&mut self, n: &NodeJson) {
        let Ok(op) = op::find(op_name(&n.target)) else { return self.size_op(n) };
        let stated = self.results_stated(n);
        let name = match (op.schema.returns, stated.as_slice()) {
            (Returns::Tuple(_) | Returns::List, _) | (_, []) => n.name.as_deref().unwrap_or(op.base()),
            (_, [first, ..]) => first.name.unwrap_or(op.base()),
        };
        match self.call(op, n, name, &stated) {
            Ok(id) => self.publish(op, id, n, &stated),
            Err(e) => {
                if let NoArg::Why(why) = e {
                    self.problems.push(name, op.name, why);
                }
                for s in stated.iter().flat_map(|s| std::iter::once(s).chain(&s.items)).filter_map(|s| s.name) {
                    self.define(s, Val::Lost);
                }
            }
        }
    }

    fn results_stated<'j>(&self, n: &'j NodeJson) -> Vec<Stated<'j>> {
        let mut out = vec![];
        let tensor = |v: &'j Value| {
            let name = v.get("name").and_then(Value::as_str);
            // What cannot be understood here is left to the op's own shape rule.
            let meta = name.and_then(|n| self.stated(n)).and_then(std::result::Result::ok);
            Stated { name, meta, items: vec![] }
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
                    out.push(Stated {
                        name,
                        meta: name.and_then(|n| self.stated_size(n)).and_then(std::result::Result::ok),
                        items: vec![],
                    });
                }
                None => out.push(Stated { name: None, meta: None, items: vec![] }),
            }
        }
        out
    }

    /// Appends the call, its arguments complete and its meta that of the op's rule, held against the file's.
    fn call(
        &mut self,
        op: &'static Op,
        n: &NodeJson,
        name: &str,
        stated: &[Stated<'_>],
    ) -> std::result::Result<NodeId, NoArg> {
        let args = match arguments(op, &n.inputs, &self.values) {
            // What is asserted of sizes is in their ranges.
            Err(NoArg::Why(_)) if op.base() == "_assert_scalar" => return Err(NoArg::Lost),
            other => other?,
        };
        let (args, inferred) = complete(&self.graph, op, args, name).map_err(|e| match e {
            IrError::Call { why, .. } => NoArg::Why(why),
            e => NoArg::Why(e.to_string()),
        })?;
        let meta = self.reconcile(inferred, stated)?;
        let origin = Origin { sources: vec![name.into()], module: module(n) };
        let node = Node { name: name.into(), kind: Kind::Call(op), target: String::new(), args, meta, origin };
        Ok(self.graph.push(node))
    }

    fn reconcile(&self, inferred: Meta, stated: &[Stated<'_>]) -> std::result::Result<Meta, String> {
        let pick = |ours: Meta, file: &Stated<'_>| -> std::result::Result<Meta, String> {
            if !file.items.is_empty() {
                return self.reconcile(ours, &file.items);
            }
            let Some(theirs) = &file.meta else { return Ok(ours) };
            agree(&ours, theirs)?;
            // Sizes that only running tells have the file's names.
            Ok(if self.spelled_in_known_symbols(&ours) { ours } else { theirs.clone() })
        };
        match (inferred, stated) {
            (Meta::Tuple(items), _) if items.len() == stated.len() => Ok(Meta::Tuple(
                items.into_iter().zip(stated).map(|(m, s)| pick(m, s)).collect::<std::result::Result<_, _>>()?,
            )),
            (Meta::Tuple(items), _) => {
                Err(format!("the op has {} results, the file names {}", items.len(), stated.len()))
            }
            (m, [one]) => pick(m, one),
            (m, _) => Ok(m),
        }
    }

    fn spelled_in_known_symbols(&self, m: &Meta) -> bool {
        let known = |d: &Dim| d.symbols().iter().all(|s| self.graph.symbols.contains_key(s));
        match m {
            Meta::Tensor(t) => t.shape.iter().all(known),
            Meta::Int(d) => known(d),
            Meta::Tuple(_) | Meta::None => true,
        }
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

    fn outputs(&mut self) {
        let mut results: Vec<(String, NodeId)> = vec![];
        for spec in &self.program.graph_module.signature.output_specs {
            let (kind, body) = union(spec).unwrap_or(("", &Value::Null));
            let arg = body.get("arg").unwrap_or(&Value::Null);
            match kind {
                "user_output" => {
                    let name = union(arg).and_then(|(_, t)| t.get("name").or_else(|| t.get("as_name"))?.as_str());
                    match name.map(|n| (n, self.values.get(n))) {
                        Some((n, Some(Val::Node(id)))) => results.push((n.into(), *id)),
                        Some((_, Some(Val::Lost))) => {}
                        Some((n, _)) => self.problems.push(n, "", "output that is no tensor of the program"),
                        None if union(arg).is_some_and(|(k, _)| k == "as_none") => {
                            self.dropped.push("output none".into())
                        }
                        None => self.problems.push("", "", format!("output {arg} is not a tensor")),
                    }
                }
                "buffer_mutation" => {
                    let name = body.get("buffer_name").and_then(Value::as_str).unwrap_or("?");
                    self.dropped.push(format!("write to buffer {name}"));
                }
                other => self.problems.push("", "", format!("output of kind '{other}' cannot be read")),
            }
        }
        if let Some(keys) = self.output_keys().filter(|k| k.len() == results.len()) {
            results.iter_mut().zip(keys).for_each(|((name, _), key)| *name = key);
        }
        let names = unique(results.iter().map(|(n, _)| n.as_str()));
        let args = results.iter().map(|(_, id)| Arg::Node(*id)).collect();
        let node = Node {
            name: "output".into(),
            kind: Kind::Output,
            target: String::new(),
            args,
            meta: Meta::None,
            origin: Origin::default(),
        };
        self.graph.push(node);
        self.graph.output_names = names;
    }

    /// The keys under which a model that returns a dictionary gives its results.
    fn output_keys(&self) -> Option<Vec<String>> {
        let calls = &self.program.graph_module.module_call_graph;
        let spec = &calls.iter().find(|c| c.fqn.is_empty())?.signature.as_ref()?.out_spec;
        let spec: Value = serde_json::from_str(spec).ok()?;
        let spec = spec.get(1)?;
        let kind = spec.get("type")?.as_str()?;
        let leaves = spec.get("children_spec")?.as_array()?.iter().all(|c| c.get("type").is_some_and(Value::is_null));
        if !leaves || !matches!(kind, "builtins.dict" | "collections.OrderedDict") {
            return None;
        }
        serde_json::from_str(spec.get("context")?.as_str()?).ok()
    }
}

/// The names, with a number behind each that stands before already.
fn unique<'n>(wishes: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for wish in wishes {
        let free = (0..).map(|n| if n == 0 { wish.into() } else { format!("{wish}_{n}") });
        names.extend(free.filter(|n: &String| !names.contains(n)).take(1).collect::<Vec<_>>());
    }
    names
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
    let stack = n.metadata.get("nn_module_stack").and_then(Value::as_str).unwrap_or_default();
    let last = stack.rsplit(';').next().unwrap_or_default();
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
fn agree(ours: &Meta, file: &Meta) -> std::result::Result<(), String> {
    let fits = match (ours, file) {
        (Meta::Tensor(TensorMeta { dtype: a, shape: s }), Meta::Tensor(TensorMeta { dtype: b, shape: t })) => {
            a == b && s.len() == t.len() && s.iter().zip(t).all(|(x, y)| same_size(x, y))
        }
        (Meta::Int(a), Meta::Int(b)) => same_size(a, b),
        _ => false,
    };
    if fits { Ok(()) } else { Err(format!("the op gives {}, the file says {}", text(ours), text(file))) }
}

fn same_size(a: &Dim, b: &Dim) -> bool {
    match (a.as_const(), b.as_const()) {
        (Some(x), Some(y)) => x == y,
        _ => true,
    }
}

fn text(m: &Meta) -> String {
    cleave_ir::text::meta_text(m)
}
