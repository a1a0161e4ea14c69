//! From the file's messages to the graph: inputs, constants, nodes in order, results.

use super::host::{Host, Known};
use super::node::Ctx;
use super::order::order;
use crate::error::{FormatError, Problems, Result};
use crate::mapped::Mapped;
use crate::onnx::METADATA_PREFIX;
use crate::onnx::proto::{DimensionValue, GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::onnx::tensor::{External, dtype_of, tensor_of};
use cleave_ir::{Builder, ConstKind, Dim, Graph, Levels, Meta, Origin, SymbolRange, Tensor, Value, transform, verify};
use indexmap::IndexMap;
use prost::Message;
use prost::bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

/// The oldest version of ONNX's operator set that is read.
const OLDEST: i64 = 9;
/// The newest one whose operators are known.
const NEWEST: i64 = 28;

/// The most problems of one kind that are collected.
const MOST_PROBLEMS: usize = 1000;
/// The greatest size that an input may state.
const LARGEST: i64 = 1 << 40;
/// The most elements that are folded while reading, unless the file itself has a quarter as many.
const FOLDED: usize = 1 << 27;

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

/// Reads an ONNX model (operator set 9 or later) as a graph of ATen ops, verified. Inputs and results keep
/// their names; external data is looked for in the file's folder only.
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
    read_model_with(path, model, &[])
}

/// [`read_model`] with values for some of the inputs: these become constants, and inputs of the graph no
/// more. Axes and sizes that a model takes as inputs are known so.
///
/// # Errors
/// As [`read_onnx`].
pub fn read_model_with(path: &Path, model: &ModelProto, given: &[(String, Tensor)]) -> Result<Graph> {
    let graph =
        model.graph.as_ref().ok_or_else(|| FormatError::malformed(path, "not an ONNX model: it has no graph"))?;
    let opset = opset(path, model)?;
    let mut problems = Problems::new();
    for s in &graph.sparse_initializer {
        let name = s.values.as_ref().map_or("", |v| &v.name);
        problems.push("", "", format!("initializer '{name}' is sparse, which is not supported"));
    }
    let nodes = order(graph, &graph.node, &mut problems);
    let unknown = |n: &&&NodeProto| super::find(&n.domain, &n.op_type).is_none();
    for n in nodes.iter().filter(unknown).take(MOST_PROBLEMS) {
        let domain = if n.domain.is_empty() { String::new() } else { format!(" of '{}'", n.domain) };
        problems.push(label(n), &n.op_type, format!("unknown operator{domain}"));
    }
    if graph.output.is_empty() {
        problems.push("", "", "the graph has no results");
    }
    problems.finish(path)?;
    let b = Builder::new();
    let mut reader = Reader::new(path, &b, opset);
    for (name, t) in given.iter().filter(|(n, _)| graph.input.iter().any(|v| v.name == *n)) {
        reader.known.insert(name.clone(), Known::Host(Host::tensor(name, t.clone())));
    }
    reader.inputs(graph)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let external = RefCell::new(External::new(folder));
    reader.initializers(graph, &nodes, &external);
    for n in nodes {
        reader.node(n, &external);
        if b.error().is_some() {
            break;
        }
    }
    reader.results(graph);
    std::mem::take(&mut reader.problems).finish(path)?;
    drop(reader);
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

/// What a node is called in messages: by its name, or by its first result's.
fn label(n: &NodeProto) -> &str {
    if n.name.is_empty() { n.output.first().map_or("", String::as_str) } else { &n.name }
}

/// The dotted module path in a name such as `/layer1/layer1.0/conv1/Conv`. A part that goes on where the
/// one before it ended replaces it.
fn module_of(name: &str) -> String {
    let Some((path, _)) = name.trim_start_matches('/').rsplit_once('/') else { return String::new() };
    let mut parts: Vec<&str> = vec![];
    for part in path.split('/').filter(|p| !p.is_empty()) {
        if parts.last().is_some_and(|last| part.strip_prefix(last).is_some_and(|rest| rest.starts_with('.'))) {
            parts.pop();
        }
        parts.push(part);
    }
    parts.join(".")
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

struct Reader<'b, 'p> {
    path: &'p Path,
    b: &'b Builder,
    opset: i64,
    known: IndexMap<String, Known<'b>>,
    /// Sizes by their name in the file.
    symbols: IndexMap<String, String>,
    /// The next number for a size without a name.
    numbered: usize,
    /// Elements of constants in the file, and of those computed from them.
    elements: (usize, usize),
    made: RefCell<IndexMap<String, Value<'b>>>,
    problems: Problems,
}

impl<'b, 'p> Reader<'b, 'p> {
    fn new(path: &'p Path, b: &'b Builder, opset: i64) -> Self {
        let (known, symbols, made) = (IndexMap::new(), IndexMap::new(), RefCell::default());
        let problems = Problems::new();
        Reader { path, b, opset, known, symbols, numbered: 0, elements: (0, 0), made, problems }
    }

    /// Inputs that are not initializers become placeholders.
    fn inputs(&mut self, graph: &GraphProto) -> Result<()> {
        // Named sizes come first, so that those made up for unknown ones differ from all of them.
        for name in graph.input.iter().flat_map(named_sizes) {
            self.symbol(name);
        }
        let constants: BTreeSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
        for v in &graph.input {
            if constants.contains(v.name.as_str()) || matches!(self.known.get(&v.name), Some(Known::Host(_))) {
                continue;
            }
            match self.meta(v) {
                Ok(meta) => {
                    let value = self.b.placeholder(&v.name, meta);
                    if self.known.insert(v.name.clone(), Known::Value(value)).is_some() {
                        self.problems.push("", "", format!("input '{}' is defined twice", v.name));
                    }
                }
                Err(why) => self.problems.push("", "", format!("input '{}': {why}", v.name)),
            }
        }
        std::mem::take(&mut self.problems).finish(self.path)
    }

    fn meta(&mut self, v: &ValueInfoProto) -> std::result::Result<Meta, String> {
        let t = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()).ok_or("expected a tensor")?;
        let dtype = dtype_of(i64::from(t.elem_type))?;
        let shape = t.shape.as_ref().ok_or("its rank is not known; give the input a shape")?;
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

    /// Constants that some node or result uses.
    fn initializers(&mut self, graph: &GraphProto, nodes: &[&NodeProto], external: &RefCell<External>) {
        let used: BTreeSet<&str> = (nodes.iter().flat_map(|n| &n.input))
            .chain(graph.output.iter().map(|o| &o.name))
            .map(String::as_str)
            .collect();
        for t in graph.initializer.iter().filter(|t| used.contains(t.name.as_str())) {
            match tensor_of(t, &mut external.borrow_mut()) {
                Ok(tensor) => {
                    self.elements.0 += tensor.len();
                    let mut host = Host::tensor(&t.name, tensor);
                    host.kind = ConstKind::Param;
                    self.known.insert(t.name.clone(), Known::Host(host));
                }
                Err(why) => self.problems.push("", "", format!("initializer '{}': {why}", t.name)),
            }
        }
    }

    fn node(&mut self, n: &NodeProto, external: &RefCell<External>) {
        if let Err(why) = self.read(n, external) {
            self.problems.push(label(n), &n.op_type, why);
            // What comes after would only fail for want of this node's results.
            self.b.fail(cleave_ir::IrError::Call { op: n.op_type.clone(), node: label(n).into(), why: String::new() });
        }
    }

    fn read(&mut self, n: &NodeProto, external: &RefCell<External>) -> std::result::Result<(), String> {
        let map = super::find(&n.domain, &n.op_type).ok_or("unknown operator")?;
        let find = |name: &String| match name.as_str() {
            "" => Ok(None),
            _ => self.known.get(name).cloned().map(Some).ok_or_else(|| format!("value '{name}' is not there")),
        };
        let inputs = n.input.iter().map(find).collect::<std::result::Result<Vec<_>, _>>()?;
        self.b.set_origin(Origin { sources: vec![label(n).into()], module: module_of(&n.name) });
        let ctx = Ctx::new(self.b, self.opset, n, inputs, external, &self.made);
        let results = map(&ctx)?;
        if let Some(e) = self.b.error() {
            return Err(match e {
                cleave_ir::IrError::Call { op, why, .. } => format!("as {op}: {why}"),
                other => other.to_string(),
            });
        }
        let unread = ctx.unread();
        if !unread.is_empty() {
            return Err(format!("attribute '{}' is not supported", unread.join("', '")));
        }
        self.count_folded(n, &results)?;
        for (i, name) in n.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let value = results.get(i).ok_or_else(|| format!("result {i} ('{name}') is not supported"))?;
            self.known.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    /// Constant expressions must stay in proportion to the file.
    fn count_folded(&mut self, n: &NodeProto, results: &[Known<'b>]) -> std::result::Result<(), String> {
        if matches!(n.op_type.as_str(), "Identity" | "Reshape" | "Transpose" | "Squeeze" | "Unsqueeze") {
            return Ok(());
        }
        let made: usize = results.iter().map(|r| if let Known::Host(h) = r { h.len() } else { 0 }).sum();
        let count = if n.op_type == "Constant" { &mut self.elements.0 } else { &mut self.elements.1 };
        *count += made;
        if self.elements.1 > FOLDED.max(self.elements.0.saturating_mul(4)) {
            return Err(format!("constant expressions have more than {} elements", self.elements.1));
        }
        Ok(())
    }

    fn results(&mut self, graph: &GraphProto) {
        if self.b.error().is_some() {
            return;
        }
        self.b.set_origin(Origin::default());
        let mut results = vec![];
        for o in &graph.output {
            match self.known.get(&o.name) {
                Some(Known::Value(v)) => results.push((o.name.clone(), *v)),
                Some(Known::Host(h)) => results.push((o.name.clone(), h.materialise(self.b, &self.made))),
                None => self.problems.push("", "", format!("result '{}' is defined nowhere", o.name)),
            }
        }
        self.b.output(&results);
    }
}

#[cfg(test)]
mod tests {
    use super::module_of;

    #[test]
    fn module_paths_are_put_together_from_names() {
        assert_eq!(module_of("/layer1/layer1.0/conv1/Conv"), "layer1.0.conv1");
        assert_eq!(module_of("/features/features.0/features.0.0/Conv"), "features.0.0");
        assert_eq!(module_of("/features/0/Conv"), "features.0");
        assert_eq!(module_of("/layer2/layer2.0/downsample/downsample.0/Conv"), "layer2.0.downsample.0");
        assert_eq!(module_of("conv2d_0.tmp_0"), "");
    }
}
