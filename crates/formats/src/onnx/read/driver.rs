//! From the file's messages to the graph: inputs, constants, nodes in order, results.

use super::host::{Host, Known};
use super::order::order;
use super::scope::{Env, Evaluate, Functions, Scope, label};
use crate::error::{FormatError, Problems, Result};
use crate::mapped::Mapped;
use crate::onnx::METADATA_PREFIX;
use crate::onnx::proto::{DimensionValue, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::onnx::tensor::{External, bits_of, dtype_of};
use cleave_ir::{Builder, Dim, Graph, Levels, Meta, Origin, SymbolRange, Tensor, transform, verify};
use indexmap::{IndexMap, IndexSet};
use prost::Message;
use prost::bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;

/// The oldest version of ONNX's operator set that is read.
const OLDEST: i64 = 1;
/// The newest one whose operators are known.
const NEWEST: i64 = 28;

/// The most problems of one kind that are collected.
const MOST_PROBLEMS: usize = 1000;
/// The greatest size that an input may state.
const LARGEST: i64 = 1 << 40;

/// A mapped file as the owner of decoded bytes.
struct Owner(Mapped);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// The messages of an ONNX file. Tensors' bytes stay in the mapped file.
///
/// # Errors
/// A file that cannot be read, or that is no ONNX model.
pub fn decode(path: &Path) -> Result<ModelProto> {
    let bytes = Bytes::from_owner(Owner(Mapped::open(path)?));
    ModelProto::decode(bytes).map_err(|e| {
        FormatError::malformed(path, format!("not a whole ONNX model: {e}; copy or export the file again"))
    })
}

/// What is known when a model is read, besides the file.
#[derive(Clone, Copy, Default)]
pub struct ReadOptions<'a> {
    /// Values for inputs. Those that decide sizes, axes or which branch is taken become constants, and inputs of the
    /// graph no more; the others are left as inputs.
    pub values: &'a [(String, Tensor)],
    /// Runs a graph without inputs: what constant expressions come to that the reader does not fold by itself.
    pub evaluate: Option<Evaluate<'a>>,
}

/// Reads an ONNX model as a graph of ATen ops, verified. Inputs and results keep their names; external data is
/// looked for in the file's folder only.
///
/// # Errors
/// A file that is no model; all operators that are not known, at once; nodes that are not as ONNX has them.
pub fn read_onnx(path: &Path) -> Result<Graph> {
    read_model(path, &decode(path)?)
}

/// [`read_onnx`] of messages that are decoded already; `path` names them in errors and leads to external data.
///
/// # Errors
/// As [`read_onnx`].
pub fn read_model(path: &Path, model: &ModelProto) -> Result<Graph> {
    read_model_with(path, model, ReadOptions::default())
}

/// [`read_model`] with more known than the file says.
///
/// # Errors
/// As [`read_onnx`].
pub fn read_model_with(path: &Path, model: &ModelProto, options: ReadOptions<'_>) -> Result<Graph> {
    let mut given = Given::default();
    loop {
        let before = given.clone();
        match read_given(path, model, options, &mut given) {
            Err(_) if given != before => {}
            done => return done,
        }
    }
}

/// What is taken from the values of inputs.
#[derive(Clone, Default, PartialEq)]
struct Given {
    /// Those that become constants.
    inputs: IndexSet<String>,
    /// Whether sizes are theirs.
    sizes: bool,
}

/// Reads with these inputs as constants; what else should be one is added to them.
fn read_given(path: &Path, model: &ModelProto, options: ReadOptions<'_>, given: &mut Given) -> Result<Graph> {
    let graph =
        model.graph.as_ref().ok_or_else(|| FormatError::malformed(path, "not an ONNX model: it has no graph"))?;
    let opset = opset(path, model)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let sizes = graph.input.iter().filter_map(stated);
    let env = Env {
        inputs: sizes.fold(0usize, |a, n| a.saturating_add(n)),
        functions: functions(path, model)?,
        external: RefCell::new(External::new(folder)),
        evaluate: options.evaluate,
        available: options.values,
        needed: RefCell::default(),
        sized: Cell::new(false),
        narrow: RefCell::default(),
        nodes: Cell::new(0),
        elements: Cell::default(),
    };
    let mut problems = Problems::new();
    let names: BTreeSet<&str> = defined(graph).collect();
    let outputs = graph.output.iter().map(|o| o.name.as_str());
    let nodes = order(&graph.node, outputs, &|n| names.contains(n), &mut problems);
    let unknown = |n: &&&NodeProto| super::find(&n.domain, &n.op_type).is_none() && env.function(n).is_none();
    for n in nodes.iter().filter(unknown).take(MOST_PROBLEMS) {
        problems.push(label(n), &n.op_type, super::refused::why(&n.domain, &n.op_type));
    }
    if graph.output.is_empty() {
        problems.push("", "", "the graph has no results");
    }
    problems.finish(path)?;
    let b = Builder::new();
    let mut scope = Scope::new(&env, &b, opset);
    for (name, t) in options.values.iter().filter(|(n, _)| given.inputs.contains(n)) {
        scope.known.insert(name.clone(), Known::Host(Host::tensor(name, t.clone())));
    }
    for v in &graph.input {
        let code = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).map_or(0, |t| i64::from(t.elem_type));
        env.narrow.borrow_mut().extend(bits_of(code).map(|bits| (v.name.clone(), bits)));
    }
    let mut problems = Inputs::new(&b, options.values, given.sizes).read(graph, &mut scope.known);
    scope.initializers(graph, &nodes, &mut problems);
    problems.finish(path)?;
    let mut problems = Problems::new();
    for n in nodes {
        if let Err(why) = scope.read(n) {
            // What comes after would only fail for want of this node's results.
            problems.push(label(n), &n.op_type, why);
            break;
        }
    }
    given.inputs.extend(env.needed.take());
    given.sizes |= env.sized.get() && !options.values.is_empty();
    problems.finish(path)?;
    b.set_origin(Origin::default());
    let mut problems = Problems::new();
    let mut results = vec![];
    for o in &graph.output {
        match scope.known.get(&o.name) {
            Some(k) => results.push((o.name.clone(), scope.node_of(k))),
            None => problems.push("", "", format!("result '{}' is defined nowhere", o.name)),
        }
    }
    problems.finish(path)?;
    b.output(&results);
    drop(scope);
    finished(path, model, b)
}

fn finished(path: &Path, model: &ModelProto, b: Builder) -> Result<Graph> {
    let mut g = b.finish().map_err(|e| FormatError::ir(path, e))?;
    if g.op_counts().keys().any(|k| k.starts_with("quantized_decomposed.quantize")) {
        g.metadata.insert("quantize".into(), "divide".into());
    }
    for p in &model.metadata_props {
        if let Some(key) = p.key.strip_prefix(METADATA_PREFIX) {
            g.metadata.insert(key.into(), p.value.clone());
        }
    }
    let g = transform::prune(&g);
    verify::verify(&g, Levels::ALL).map_err(|e| FormatError::ir(path, e))?;
    Ok(g)
}

/// How many elements an input states, sizes that are not numbers counting as 1.
fn stated(v: &ValueInfoProto) -> Option<usize> {
    let shape = v.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
    shape.dim.iter().try_fold(1usize, |a, d| match d.value {
        Some(DimensionValue::DimValue(n)) => a.checked_mul(usize::try_from(n).ok()?),
        _ => Some(a),
    })
}

/// The names that are there before any node is read.
fn defined(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|s| Some(s.values.as_ref()?.name.as_str()));
    let inputs = graph.input.iter().map(|v| v.name.as_str());
    inputs.chain(graph.initializer.iter().map(|t| t.name.as_str())).chain(sparse)
}

/// The functions of a file, none of which may lead back to itself.
fn functions<'m>(path: &Path, model: &'m ModelProto) -> Result<Functions<'m>> {
    let own = |domain: &'m str| if domain == "ai.onnx" { "" } else { domain };
    let all: Functions<'m> =
        model.functions.iter().map(|f| ((own(&f.domain), f.name.as_str(), f.overload.as_str()), f)).collect();
    let called = |f: &'m FunctionProto| {
        let mut open: Vec<&NodeProto> = f.node.iter().collect();
        let mut out = vec![];
        while let Some(n) = open.pop() {
            out.extend(all.get_index_of(&(own(&n.domain), n.op_type.as_str(), n.overload.as_str())));
            open.extend(n.attribute.iter().filter_map(|a| a.g.as_deref()).flat_map(|g| &g.node));
        }
        out
    };
    let calls: Vec<Vec<usize>> = all.values().map(|f| called(f)).collect();
    // Functions that call none but those that are done are done; what is left calls itself.
    let mut done = vec![false; calls.len()];
    loop {
        let next = (0..calls.len()).find(|i| !done[*i] && calls[*i].iter().all(|c| done[*c]));
        match next {
            Some(i) => done[i] = true,
            None => break,
        }
    }
    match done.iter().position(|d| !d) {
        Some(i) => {
            let name = all.get_index(i).map_or("", |(k, _)| k.1);
            Err(FormatError::malformed(path, format!("function '{name}' calls itself, or one that does")))
        }
        None => Ok(all),
    }
}

/// The version of ONNX's own operator set.
fn opset(path: &Path, model: &ModelProto) -> Result<i64> {
    let own = model.opset_import.iter().find(|o| o.domain.is_empty() || o.domain == "ai.onnx");
    let version = own.map_or(1, |o| o.version);
    if (OLDEST..=NEWEST).contains(&version) {
        return Ok(version);
    }
    let what = format!("operator set {version}, expected {OLDEST} to {NEWEST}");
    Err(FormatError::unsupported(path, what, "convert the model with onnx.version_converter"))
}

/// Whether a dim_param is a name; exporters also write marks there that say nothing.
fn is_name(param: &str) -> bool {
    !matches!(param, "" | "?" | "-1" | "None" | "unk")
}

/// The names of sizes in an input's shape.
fn named_sizes(v: &ValueInfoProto) -> Vec<&str> {
    let shape = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).and_then(|t| t.shape.as_ref());
    let names = shape.iter().flat_map(|s| &s.dim).filter_map(|d| match &d.value {
        Some(DimensionValue::DimParam(p)) if is_name(p) => Some(p.as_str()),
        _ => None,
    });
    names.collect()
}

/// The inputs of the main graph.
struct Inputs<'b, 'v> {
    b: &'b Builder,
    values: &'v [(String, Tensor)],
    /// Whether sizes are those of the values.
    fixed: bool,
    /// Sizes by their name in the file.
    symbols: IndexMap<String, String>,
    /// The next number for a size without a name.
    numbered: usize,
}

impl<'b, 'v> Inputs<'b, 'v> {
    fn new(b: &'b Builder, values: &'v [(String, Tensor)], fixed: bool) -> Self {
        Inputs { b, values, fixed, symbols: IndexMap::new(), numbered: 0 }
    }

    /// Inputs that are not initializers become placeholders.
    fn read(&mut self, graph: &GraphProto, known: &mut IndexMap<String, Known<'b>>) -> Problems {
        let mut problems = Problems::new();
        // Named sizes come first, so that those made up for unknown ones differ from all of them.
        for name in graph.input.iter().flat_map(named_sizes) {
            self.symbol(name);
        }
        let sparse = graph.sparse_initializer.iter().filter_map(|s| Some(s.values.as_ref()?.name.as_str()));
        let constants: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).chain(sparse).collect();
        for v in &graph.input {
            if constants.contains(v.name.as_str()) || matches!(known.get(&v.name), Some(Known::Host(_))) {
                continue;
            }
            match self.meta(v) {
                Ok(meta) => {
                    let value = self.b.placeholder(&v.name, meta);
                    if known.insert(v.name.clone(), Known::Value(value)).is_some() {
                        problems.push("", "", format!("input '{}' is defined twice", v.name));
                    }
                }
                Err(why) => problems.push("", "", format!("input '{}': {why}", v.name)),
            }
        }
        problems
    }

    fn meta(&mut self, v: &ValueInfoProto) -> std::result::Result<Meta, String> {
        let t = v.r#type.as_ref().ok_or("its type is missing")?;
        let other = |name: &str| format!("values of type {name} are not supported, expected a tensor");
        let t = match t {
            t if t.sequence_type.is_some() => return Err(other("sequence")),
            t if t.optional_type.is_some() => return Err(other("optional")),
            t if t.map_type.is_some() => return Err(other("map")),
            t => t.tensor_type.as_ref().ok_or("expected a tensor")?,
        };
        let dtype = dtype_of(i64::from(t.elem_type))?;
        let value = self.values.iter().find(|(n, _)| *n == v.name).map(|(_, t)| t);
        if let (Some(value), true) = (value, self.fixed) {
            let sizes = value.shape().iter().map(|n| i64::try_from(*n).map(Dim::from).map_err(|e| e.to_string()));
            return Ok(Meta::tensor(dtype, sizes.collect::<std::result::Result<_, _>>()?));
        }
        let Some(shape) = t.shape.as_ref() else {
            let value = value.ok_or("its rank is not known; give the input a shape")?;
            return Ok(Meta::tensor(dtype, value.shape().iter().map(|_| self.new_symbol("s")).collect()));
        };
        let dims = shape.dim.iter().map(|d| match &d.value {
            Some(DimensionValue::DimValue(n)) if *n > LARGEST => Err(format!("size {n} is too large")),
            Some(DimensionValue::DimValue(n)) if *n >= 0 => Ok(Dim::from(*n)),
            Some(DimensionValue::DimParam(p)) if is_name(p) => Ok(self.symbol(p)),
            _ => Ok(self.new_symbol("s")),
        });
        Ok(Meta::tensor(dtype, dims.collect::<std::result::Result<_, _>>()?))
    }

    /// A named size; characters that sizes do not have in their names become underscores.
    fn symbol(&mut self, name: &str) -> Dim {
        if let Some(s) = self.symbols.get(name) {
            return Dim::symbol(s);
        }
        let clean = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
        let mut wish: String = name.chars().map(clean).collect();
        if wish.starts_with(|c: char| c.is_ascii_digit()) {
            wish.insert(0, '_');
        }
        let dim = self.new_symbol(&wish);
        self.symbols.insert(name.into(), dim.to_string());
        dim
    }

    /// A size that equals no other: the wish, or with a number behind it if it is taken or only a stem.
    fn new_symbol(&mut self, wish: &str) -> Dim {
        let free = |name: &String| self.b.with_graph(|g| !g.symbols.contains_key(name));
        let mut name = wish.to_string();
        while wish == "s" && name == "s" || !free(&name) {
            name = format!("{wish}{}", self.numbered);
            self.numbered += 1;
        }
        self.b.edit(|g| g.symbols.insert(name.clone(), SymbolRange { min: 1, max: None }));
        Dim::symbol(&name)
    }
}
