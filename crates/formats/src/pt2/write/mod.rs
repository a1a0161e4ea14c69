//! Writing a graph as a program that `torch.export.load` takes.
//!
//! Graphs with `quantized_decomposed` ops load after `import torchao.quantization.pt2e`.

mod args;
mod names;
mod values;

use crate::archive::Packer;
use crate::atomic;
use crate::error::{FormatError, Problems, Result};
use cleave_ir::schema::Returns;
use cleave_ir::subgraph::sizes_of_symbols;
use cleave_ir::{Arg, ConstKind, Dim, Graph, Kind, Levels, Meta, Node, NodeId, Op, Tensor, verify::verify};
use indexmap::IndexMap;
use names::Names;
use serde_json::{Value, json};
use std::path::Path;
use values::Values;

/// The schema of `model.json` that is written: that of torch 2.9 and later.
const SCHEMA: (i64, i64) = (8, 20);

/// Writes a graph of ATen, prims and `quantized_decomposed` ops.
///
/// Inputs and results keep their names where these are names in Python, constants their dotted ones; sizes
/// stay symbolic, under torch's names for symbols (`s0`). Sizes in arguments must be nodes (`sym_size`), not
/// expressions. [`Graph::metadata`] is kept where torch does not look, so that reading the file back gives
/// the same meaning; torch itself always quantizes by the reciprocal.
///
/// # Errors
/// A graph that does not verify; ops that are not torch's and sizes that are not nodes, all of them; a file
/// that cannot be written.
pub fn write_pt2(path: &Path, graph: &Graph) -> Result<()> {
    verify(graph, Levels::ALL).map_err(|e| FormatError::ir(path, e))?;
    let mut w = Writer::new(graph, Values::new(graph));
    let nodes = w.nodes();
    let program = w.program(nodes);
    w.problems.finish(path)?;
    let text = program.to_string();
    let root = path.file_stem().and_then(|s| s.to_str()).filter(|s| !s.contains('/')).unwrap_or("archive");
    atomic::write(path, |sink| {
        let mut p = Packer::new(path, sink);
        let mut configs = vec![];
        for kind in [Stored::Weight, Stored::Constant] {
            configs.push((kind, tensors(&mut p, root, graph, &w.names, kind)?));
        }
        for (kind, config) in configs {
            let (folder, _) = kind.place();
            p.add(&format!("{root}/data/{folder}/model_{folder}_config.json"), config.to_string().as_bytes())?;
        }
        p.add(&format!("{root}/models/model.json"), text.as_bytes())?;
        // The samples that a program was exported with are optional; torch asks for the entry.
        p.add(&format!("{root}/data/sample_inputs/model.pt"), b"")?;
        p.add(&format!("{root}/archive_format"), b"pt2")?;
        p.add(&format!("{root}/archive_version"), b"0")?;
        p.add(&format!("{root}/.data/version"), b"6\n")?;
        p.add(&format!("{root}/byteorder"), b"little")?;
        p.finish()
    })
}

/// Which of the two tables a constant is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    Weight,
    Constant,
}

impl Stored {
    fn of(kind: ConstKind) -> Stored {
        if kind == ConstKind::Constant { Stored::Constant } else { Stored::Weight }
    }

    /// The folder, and what its files are called.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Stored::Weight => ("weights", "weight"),
            Stored::Constant => ("constants", "tensor"),
        }
    }
}

/// Whether the constant is a parameter for torch, which has none of integers.
fn is_param(kind: ConstKind, t: &Tensor) -> bool {
    kind == ConstKind::Param && t.dtype().is_float()
}

/// Writes the storages of one kind, tied ones once, and gives their table.
fn tensors<W: std::io::Write + std::io::Seek>(
    p: &mut Packer<'_, W>,
    root: &str,
    g: &Graph,
    names: &Names,
    kind: Stored,
) -> Result<Value> {
    let (folder, file) = kind.place();
    let mut places = IndexMap::new();
    let mut config = serde_json::Map::new();
    for (id, n) in g.nodes() {
        let Kind::GetAttr(k) = n.kind else { continue };
        let Some(t) = g.constant(id).filter(|_| Stored::of(k) == kind) else { continue };
        let next = places.len();
        let (index, new) = match places.entry((t.place(), t.dtype())) {
            indexmap::map::Entry::Occupied(e) => (*e.get(), false),
            indexmap::map::Entry::Vacant(e) => (*e.insert(next), true),
        };
        let entry = format!("{file}_{index}");
        if new {
            p.add(&format!("{root}/data/{folder}/{entry}"), &t.to_bytes())?;
        }
        let meta = values::stored(t);
        let row = json!({"path_name": entry, "is_param": is_param(k, t), "use_pickle": false, "tensor_meta": meta});
        config.insert(names.target(id).into(), row);
    }
    Ok(json!({ "config": config }))
}

struct Writer<'g> {
    g: &'g Graph,
    names: Names,
    values: Values<'g>,
    problems: Problems,
    tensor_values: IndexMap<String, Value>,
    size_values: IndexMap<String, Value>,
    condition_values: IndexMap<String, Value>,
}

impl<'g> Writer<'g> {
    fn new(g: &'g Graph, values: Values<'g>) -> Writer<'g> {
        let (problems, tensor_values, size_values, condition_values) = Default::default();
        Writer { g, names: Names::new(g), values, problems, tensor_values, size_values, condition_values }
    }

    /// Notes type and sizes of a value under its name.
    fn state(&mut self, name: &str, meta: &Meta) {
        match meta {
            Meta::Tensor(t) => {
                self.tensor_values.insert(name.into(), self.values.tensor(t));
            }
            Meta::Int(d) => {
                self.size_values.insert(name.into(), self.values.size(d));
            }
            Meta::Tuple(_) | Meta::None => {}
        }
    }

    fn nodes(&mut self) -> Vec<Value> {
        let mut out = vec![];
        for (id, n) in self.g.nodes() {
            let is_item = n.op().is_some_and(|o| o.name == "getitem");
            if n.kind == Kind::Output || is_item {
                continue;
            }
            let name = self.names.node(id).to_string();
            self.state(&name, &n.meta);
            if let Some(v) = self.call(id, n) {
                out.push(v);
            }
        }
        out
    }

    fn call(&mut self, id: NodeId, n: &Node) -> Option<Value> {
        let op = n.op()?;
        let python = op.name.starts_with("_operator.") || op.name.starts_with("torch.");
        let namespace = op.name.split('.').next().unwrap_or_default();
        if !python && !matches!(namespace, "aten" | "prims" | "quantized_decomposed" | "higher_order") {
            self.problems.push(&n.name, op.name, "the op is not one of torch's");
            return None;
        }
        let graphs = self.inner_graphs(id, n, op);
        let inputs = match args::inputs(self.g, &self.names, n, op, &graphs) {
            Ok(inputs) => inputs,
            Err(why) => {
                self.problems.push(&n.name, op.name, why);
                return None;
            }
        };
        let higher = namespace == "higher_order";
        let outputs = self.outputs(id, n, if higher { Returns::Tuple(0) } else { op.schema.returns });
        if let [Some(a), Some(b)] = [0, 1].map(|i| n.args.get(i).and_then(|a| self.dim(a)))
            && let Some(v) = self.values.condition(op.base(), &a, &b)
        {
            self.condition_values.insert(self.names.node(id).into(), v);
        }
        let target = if python { op.name.to_string() } else { format!("torch.ops.{}", op.name) };
        let mut metadata = serde_json::Map::new();
        if let Some(stack) = module_stack(&n.origin.module) {
            metadata.insert("nn_module_stack".into(), stack.into());
        }
        Some(json!({
            "target": target, "inputs": inputs, "outputs": outputs, "metadata": metadata,
            "is_hop_single_tensor_return": higher.then_some(false), "name": self.names.node(id),
        }))
    }

    /// The size that an argument is.
    fn dim(&self, a: &Arg) -> Option<Dim> {
        match a {
            Arg::Int(i) => Some((*i).into()),
            Arg::Dim(d) => Some(d.clone()),
            Arg::Node(n) => match &self.g.node(*n).meta {
                Meta::Int(d) => Some(d.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The graphs among a call's arguments, by place, with their sizes in the symbols of this one.
    fn inner_graphs(&mut self, id: NodeId, n: &Node, op: &Op) -> IndexMap<usize, Value> {
        let mut out = IndexMap::new();
        let operands: Vec<Meta> = match n.args.last() {
            Some(Arg::List(l)) => l
                .iter()
                .map(|a| match node_of(a) {
                    Some(n) => self.g.node(n).meta.clone(),
                    None => self.dim(a).map_or(Meta::None, Meta::Int),
                })
                .collect(),
            _ => vec![],
        };
        for (slot, arg) in n.args.iter().enumerate() {
            let Arg::Graph(inner) = arg else { continue };
            if inner.nodes().any(|(_, n)| matches!(n.kind, Kind::GetAttr(_))) {
                self.problems.push(&n.name, op.name, "a graph with constants of its own cannot be written");
            }
            let sizes = sizes_of_symbols(inner, &operands);
            let outer = |s: &str| sizes.get(s).map(|d| self.values.spelled(d));
            let inner = inner.map_dims(&mut |d| d.substitute(&outer));
            let mut w = Writer::new(&inner, self.values.within(&inner));
            let nodes = w.nodes();
            let inputs = inner.placeholders().into_iter().map(|p| w.value(p)).collect();
            let graph = w.graph(nodes, inputs);
            let name = self.names.free(&format!("{}_{}", self.names.node(id), op.schema.params[slot].name));
            out.insert(slot, json!({"as_graph": {"name": name, "graph": graph}}));
            self.problems.append(w.problems);
        }
        out
    }

    /// The names of a call's results; several are named by the getitems that take them.
    fn outputs(&mut self, id: NodeId, n: &Node, returns: Returns) -> Value {
        let name = self.names.node(id).to_string();
        match (&n.meta, returns) {
            (Meta::Tuple(items), _) => {
                let mut tensor = |i: usize| {
                    let item = self.names.item(id, i).map_or_else(|| format!("{name}_unused_{i}"), String::from);
                    self.state(&item, &items[i]);
                    json!({ "name": item })
                };
                let places = 0..items.len();
                match returns {
                    Returns::List => json!([{ "as_tensors": places.map(tensor).collect::<Vec<_>>() }]),
                    _ => places
                        .map(|i| match &items[i] {
                            Meta::None => json!({ "as_none": true }),
                            _ => json!({ "as_tensor": tensor(i) }),
                        })
                        .collect(),
                }
            }
            (Meta::Tensor(_), _) => json!([{"as_tensor": {"name": name}}]),
            (Meta::Int(_), _) => json!([{"as_sym_int": {"as_name": name}}]),
            (Meta::None, Returns::Scalar) => json!([{"as_sym_bool": {"as_name": name}}]),
            (Meta::None, _) => json!([]),
        }
    }

    fn value(&self, id: NodeId) -> Value {
        let name = self.names.node(id);
        match self.g.node(id).meta {
            Meta::Int(_) => json!({"as_sym_int": {"as_name": name}}),
            _ => json!({"as_tensor": {"name": name}}),
        }
    }

    /// Parameters, buffers, constants, then inputs, as torch orders them.
    fn inputs(&self) -> Vec<(NodeId, Value)> {
        let mut specs: Vec<(u8, NodeId, Value)> = vec![];
        for (id, n) in self.g.nodes() {
            let arg = json!({"name": self.names.node(id)});
            let target = self.names.target(id);
            let (order, spec) = match (n.kind, self.g.constant(id)) {
                (Kind::Placeholder, _) => (3, json!({"user_input": {"arg": self.value(id)}})),
                (Kind::GetAttr(k), Some(t)) if is_param(k, t) => {
                    (0, json!({"parameter": {"arg": arg, "parameter_name": target}}))
                }
                (Kind::GetAttr(k), Some(_)) => {
                    let persistent = k != ConstKind::Constant;
                    let spec = json!({"buffer": {"arg": arg, "buffer_name": target, "persistent": persistent}});
                    (if persistent { 1 } else { 2 }, spec)
                }
                _ => continue,
            };
            specs.push((order, id, spec));
        }
        specs.sort_by_key(|(order, id, _)| (*order, *id));
        specs.into_iter().map(|(_, id, spec)| (id, spec)).collect()
    }

    fn graph(&self, nodes: Vec<Value>, inputs: Vec<Value>) -> Value {
        let results: Vec<Value> = self.g.results().into_iter().map(|id| self.value(id)).collect();
        json!({
            "inputs": inputs, "outputs": results, "nodes": nodes,
            "tensor_values": self.tensor_values, "sym_int_values": self.size_values,
            "sym_bool_values": self.condition_values, "is_single_tensor_return": false,
            "custom_obj_values": {}, "sym_float_values": {},
        })
    }

    fn program(&self, nodes: Vec<Value>) -> Value {
        let inputs = self.inputs();
        let results: Vec<Value> = self.g.results().into_iter().map(|id| self.value(id)).collect();
        let outputs: Vec<Value> = results.iter().map(|r| json!({"user_output": {"arg": r}})).collect();
        let arg_names: Vec<&str> = self.g.placeholders().into_iter().map(|id| self.names.node(id)).collect();
        let (values, specs): (Vec<Value>, Vec<Value>) = inputs.into_iter().map(|(id, s)| (self.value(id), s)).unzip();
        let facts: serde_json::Map<String, Value> =
            self.g.metadata.iter().map(|(k, v)| (format!("{}{k}", super::FACT), v.as_str().into())).collect();
        json!({
            "graph_module": {
                "graph": self.graph(nodes, values),
                "signature": {"input_specs": specs, "output_specs": outputs},
                "module_call_graph": [{"fqn": "", "signature": {
                    "inputs": [], "outputs": [], "in_spec": in_spec(arg_names.len()),
                    "out_spec": out_spec(results.len()), "forward_arg_names": arg_names,
                }}],
                "metadata": facts,
                "treespec_namedtuple_fields": {},
            },
            "opset_version": {"aten": 10},
            "range_constraints": self.values.ranges(),
            "schema_version": {"major": SCHEMA.0, "minor": SCHEMA.1},
            "verifiers": ["TRAINING"],
            "torch_version": concat!("cleave ", env!("CARGO_PKG_VERSION")),
            "guards_code": [],
        })
    }
}

const LEAF: &str = r#"{"type": null, "context": null, "children_spec": []}"#;

fn tuple(n: usize) -> String {
    let leaves = vec![LEAF; n].join(", ");
    format!(r#"{{"type": "builtins.tuple", "context": "null", "children_spec": [{leaves}]}}"#)
}

/// Positional arguments and no keywords, in the notation of `torch.utils._pytree`.
fn in_spec(n: usize) -> String {
    let keywords = r#"{"type": "builtins.dict", "context": "[]", "children_spec": []}"#;
    let args = tuple(n);
    format!(r#"[1, {{"type": "builtins.tuple", "context": "null", "children_spec": [{args}, {keywords}]}}]"#)
}

/// One tensor, or a tuple of several.
fn out_spec(n: usize) -> String {
    if n == 1 { format!("[1, {LEAF}]") } else { format!("[1, {}]", tuple(n)) }
}

/// The module of a node as torch spells stacks; a path that its separators would break is left out.
fn module_stack(module: &str) -> Option<String> {
    if module.is_empty() || module.contains([',', ';', '(', ')', '[', ']']) {
        return None;
    }
    let ty = "torch.nn.modules.module.Module";
    Some(format!("L__self__,,{ty};L__self__{module},{module},{ty}"))
}

/// The node that an argument is.
fn node_of(a: &Arg) -> Option<NodeId> {
    if let Arg::Node(n) = a { Some(*n) } else { None }
}

#[cfg(test)]
mod tests;
