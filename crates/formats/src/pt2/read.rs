//! From the program's JSON to a graph.

use super::args::Val;
use super::body::{Body, agree, value_name};
use super::schema::{Program, union};
use super::weights::Weights;
use crate::archive::Archive;
use crate::error::Result;
use cleave_ir::{ConstKind, Dim, Graph, Kind, Meta, Node, NodeId, Origin};
use serde_json::Value;
use std::rc::Rc;

/// Builds the graph of one program.
pub(super) struct Reader<'a> {
    archive: &'a mut Archive,
    weights: &'a Weights,
    program: &'a Program,
    body: Body<'a>,
    dropped: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(archive: &'a mut Archive, weights: &'a Weights, program: &'a Program) -> Self {
        let body = Body::new(&program.range_constraints, Rc::clone(&program.graph_module.graph));
        Reader { archive, weights, program, body, dropped: vec![] }
    }

    /// The graph, or all that is wrong with it.
    pub(super) fn read(mut self) -> Result<Graph> {
        let path = self.archive.path().to_path_buf();
        self.body.unknown_ops();
        if !self.body.problems.is_empty() {
            return self.body.problems.finish(&path).map(|()| self.body.graph);
        }
        for name in self.program.range_constraints.keys() {
            let range = self.body.range(name);
            self.body.graph.symbols.insert(name.clone(), range);
        }
        for spec in &self.program.graph_module.signature.input_specs {
            self.input(spec)?;
        }
        self.body.nodes();
        self.outputs();
        self.dropped.extend(self.body.written.iter().map(|name| format!("write to buffer {name}")));
        self.body.problems.finish(&path)?;
        let mut graph = self.body.graph;
        for (key, value) in &self.program.graph_module.metadata {
            if let (Some(key), Some(value)) = (key.strip_prefix(super::FACT), value.as_str()) {
                graph.metadata.insert(key.into(), value.into());
            }
        }
        if !self.dropped.is_empty() {
            graph.metadata.insert("dropped".into(), self.dropped.join(", "));
        }
        Ok(graph)
    }

    fn problem(&mut self, name: &str, why: impl Into<String>) {
        self.body.problems.push(name, "", why);
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
                let name = arg.get("name").and_then(Value::as_str).unwrap_or_default();
                self.problem(name, format!("input of kind '{other}' cannot be read"));
                return Ok(());
            }
        };
        let (Some(name), Some(target)) = (arg.get("name").and_then(Value::as_str), target) else {
            self.problem("", format!("{kind} without a name"));
            return Ok(());
        };
        self.constant(name, target, const_kind)
    }

    fn constant(&mut self, name: &str, target: &str, kind: ConstKind) -> Result<()> {
        let t = self.weights.tensor(self.archive, target)?;
        let meta = Meta::tensor(t.dtype(), t.shape().iter().map(|n| Dim::from(*n)).collect());
        if let Some(Err(why)) = self.body.stated(name).map(|s| s.and_then(|s| agree(&meta, &s))) {
            self.problem(name, format!("constant '{target}': {why}"));
        }
        let other = self.body.graph.constants.insert(target.into(), t.clone());
        if other.is_some_and(|o| !o.same_place(&t)) {
            self.problem(name, format!("a second constant is named '{target}'"));
        }
        let origin = Origin { sources: vec![name.into()], module: String::new() };
        let node =
            Node { name: name.into(), kind: Kind::GetAttr(kind), target: target.into(), args: vec![], meta, origin };
        let id = self.body.graph.push(node);
        self.body.define(name, Val::Node(id));
        Ok(())
    }

    fn user_input(&mut self, arg: &Value) {
        let found = match union(arg) {
            Some(("as_tensor", t)) => t.get("name").and_then(Value::as_str).map(|n| (n, self.body.stated(n))),
            Some(("as_sym_int", s)) => s.get("as_name").and_then(Value::as_str).map(|n| (n, self.body.stated_size(n))),
            // A plain value at export: part of the program.
            Some(("as_none" | "as_int" | "as_float" | "as_bool" | "as_string", _)) => return,
            _ => None,
        };
        match found {
            Some((name, Some(Ok(meta)))) => self.body.input(name, meta),
            Some((name, Some(Err(why)))) => self.problem(name, format!("input: {why}")),
            Some((name, None)) => self.problem(name, "input without type and sizes"),
            None => self.problem("", format!("input {arg} cannot be read")),
        }
    }

    fn outputs(&mut self) {
        let mut results: Vec<(String, NodeId)> = vec![];
        let specs = &self.program.graph_module.signature.output_specs;
        let user = specs.iter().filter(|s| union(s).is_some_and(|(kind, _)| kind == "user_output")).count();
        let keys = self.output_keys().filter(|k| k.len() == user).unwrap_or_else(|| vec![None; user]);
        let mut keys = keys.into_iter();
        for spec in specs {
            let (kind, body) = union(spec).unwrap_or(("", &Value::Null));
            let arg = body.get("arg").unwrap_or(&Value::Null);
            match kind {
                "user_output" => {
                    let key = keys.next().flatten();
                    let name = value_name(arg);
                    match (name.map(|n| (n, self.body.value(n).cloned())), union(arg)) {
                        (Some((n, Some(Val::Node(id)))), _) => results.push((key.unwrap_or(n.into()), id)),
                        (Some((_, Some(Val::Lost))), _) => {}
                        (Some((n, _)), _) => self.problem(n, "output that is no tensor of the program"),
                        (None, Some(("as_none", _))) => self.dropped.push("output none".into()),
                        (None, Some(("as_int" | "as_float" | "as_bool" | "as_string", v))) => {
                            self.dropped.push(format!("output {v}"));
                        }
                        _ => self.problem("", format!("output {arg} is not a tensor")),
                    }
                }
                "buffer_mutation" => {
                    let name = body.get("buffer_name").and_then(Value::as_str).unwrap_or("?");
                    self.body.written.insert(name.into());
                }
                other => self.problem("", format!("output of kind '{other}' cannot be read")),
            }
        }
        let names = unique(results.iter().map(|(n, _)| n.as_str()));
        self.body.output(names.into_iter().zip(results.iter().map(|(_, id)| *id)).collect());
    }

    /// The keys under which a model gives its results, for each in order: those of dictionaries, with what they
    /// stand in and the places in lists on the way; of other results none.
    fn output_keys(&self) -> Option<Vec<Option<String>>> {
        let calls = &self.program.graph_module.module_call_graph;
        let spec = &calls.iter().find(|c| c.fqn.is_empty())?.signature.as_ref()?.out_spec;
        let spec: Value = serde_json::from_str(spec).ok()?;
        let mut keys = vec![];
        leaves(spec.get(1)?, "", false, &mut keys)?;
        Some(keys)
    }
}

/// Appends the path of each leaf of a tree in torch's notation, if it has a key in it.
fn leaves(spec: &Value, path: &str, keyed: bool, out: &mut Vec<Option<String>>) -> Option<()> {
    let Some(kind) = spec.get("type")?.as_str() else {
        out.push(keyed.then(|| path.to_string()));
        return Some(());
    };
    let children = spec.get("children_spec")?.as_array()?;
    let keys: Option<Vec<Value>> = match kind {
        "builtins.dict" | "collections.OrderedDict" => Some(serde_json::from_str(spec.get("context")?.as_str()?).ok()?),
        _ => None,
    };
    let named = keyed || keys.is_some();
    for (i, child) in children.iter().enumerate() {
        let key = match keys.as_ref().map(|k| k.get(i)) {
            Some(key) => match key? {
                Value::String(s) => s.clone(),
                other => other.to_string(),
            },
            None => i.to_string(),
        };
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        leaves(child, &path, named, out)?;
    }
    Some(())
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
