//! From the graph to the file: names, constants, nodes, and where large constants go.

use super::find;
use super::out::{Out, Writer};
use crate::atomic;
use crate::error::{FormatError, Problem, Problems, Result};
use crate::onnx::METADATA_PREFIX;
use crate::onnx::proto::{
    DimensionProto, DimensionValue, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::onnx::tensor::{code_of, packed, packed_proto_of, proto_of};
use cleave_ir::{Arg, Dim, Graph, Kind, Meta, NodeId, Tensor};
use indexmap::IndexMap;
use prost::Message;
use std::collections::BTreeSet;
use std::path::Path;

/// The operator set that a graph needs at least: from it on Squeeze and its like take axes as inputs, and
/// scales may be one for each channel.
const BASE: i64 = 13;
/// (operator set, version of the file format that came with it)
const IR_VERSIONS: [(i64, i64); 5] = [(13, 7), (15, 8), (19, 9), (21, 10), (23, 11)];

/// How a model is written.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Bytes of constants from which on they go into a file beside the model, `<name>.data`. Protobuf
    /// messages end at 2 GiB.
    pub external_from: u64,
}

impl Default for WriteOptions {
    fn default() -> WriteOptions {
        WriteOptions { external_from: 0x7000_0000 }
    }
}

/// Writes a graph at the semantic level as an ONNX model in ONNX's own operator set: the lowest version that
/// has all that it uses. Inputs, results and symbolic sizes keep their names. Same graph, same bytes.
///
/// # Errors
/// Every op that cannot be written, at once, by node; a place that cannot be written to.
pub fn write_onnx(path: &Path, g: &Graph) -> Result<()> {
    write_onnx_with(path, g, &WriteOptions::default())
}

/// [`write_onnx`] with options.
///
/// # Errors
/// As [`write_onnx`].
pub fn write_onnx_with(path: &Path, g: &Graph, options: &WriteOptions) -> Result<()> {
    let Parts { mut model, constants, narrow } = parts(path, g)?;
    let total: u64 = constants.values().map(|t| (t.len() * t.dtype().size()) as u64).sum();
    let graph = model.graph.get_or_insert_default();
    if total < options.external_from {
        graph.initializer = constants.iter().map(|(name, t)| message(name, t, &narrow)).collect();
    } else {
        graph.initializer = external(path, &constants, &narrow)?;
    }
    let bytes = model.encode_to_vec();
    atomic::write_bytes(path, &bytes)
}

/// The messages of a model with all constants in them, as [`write_onnx`] writes them; `path` names the file
/// in errors.
///
/// # Errors
/// As [`write_onnx`].
pub fn model_of(path: &Path, g: &Graph) -> Result<ModelProto> {
    let Parts { mut model, constants, narrow } = parts(path, g)?;
    model.graph.get_or_insert_default().initializer =
        constants.iter().map(|(name, t)| message(name, t, &narrow)).collect();
    Ok(model)
}

/// Writes large constants beside the model, each on a page of its own; small ones stay in the messages.
fn external(path: &Path, constants: &IndexMap<String, Tensor>, narrow: &BTreeSet<String>) -> Result<Vec<TensorProto>> {
    const PAGE: u64 = 4096;
    let name =
        path.file_name().and_then(|n| n.to_str()).ok_or_else(|| FormatError::malformed(path, "not a file name"))?;
    let location = format!("{name}.data");
    let mut protos = vec![];
    atomic::write(&path.with_file_name(&location), |w| {
        let failed = |e| FormatError::io(path, "write", e);
        let mut at = 0u64;
        for (name, t) in constants {
            let bytes = if narrow.contains(name) { packed(t).into() } else { t.to_bytes() };
            if bytes.len() < 1024 {
                protos.push(message(name, t, narrow));
                continue;
            }
            let start = at.next_multiple_of(PAGE);
            std::io::copy(&mut std::io::Read::take(std::io::repeat(0), start - at), w).map_err(failed)?;
            w.write_all(&bytes).map_err(failed)?;
            at = start + bytes.len() as u64;
            let entry = |key: &str, value: String| StringStringEntryProto { key: key.into(), value };
            let place = vec![
                entry("location", location.clone()),
                entry("offset", start.to_string()),
                entry("length", bytes.len().to_string()),
            ];
            let dims = t.shape().iter().map(|n| *n as i64).collect();
            let head = TensorProto { dims, raw_data: None, ..message(name, &t.narrow(0, 0, 0), narrow) };
            protos.push(TensorProto { data_location: 1, external_data: place, ..head });
        }
        Ok(())
    })?;
    Ok(protos)
}

/// A constant as a message.
fn message(name: &str, t: &Tensor, narrow: &BTreeSet<String>) -> TensorProto {
    if narrow.contains(name) { packed_proto_of(name, t) } else { proto_of(name, t) }
}

/// The model without its constants, and these; some are stored in four bits.
struct Parts {
    model: ModelProto,
    constants: IndexMap<String, Tensor>,
    narrow: BTreeSet<String>,
}

/// Writes all calls of a graph whose placeholders have names; the first that cannot be written is the error.
pub(super) fn calls(w: &mut Writer<'_>) -> std::result::Result<(), Problem> {
    let g = w.g;
    for (id, node) in g.nodes() {
        let Kind::Call(op) = node.kind else {
            if let Some(t) = g.constant(id) {
                let name = w.given(&node.target, t);
                w.set(id, vec![name]);
            }
            continue;
        };
        let done = match find(op) {
            _ if op.name == "getitem" => getitem(w, id),
            Some((.., emit)) => emit(&mut Out::new(w, id)),
            None => Ok(()),
        };
        done.map_err(|why| Problem { node: node.name.clone(), op: op.short().into(), why })?;
    }
    Ok(())
}

fn parts(path: &Path, g: &Graph) -> Result<Parts> {
    let mut problems = Problems::new();
    let opset = opset(g, &mut problems);
    std::mem::take(&mut problems).finish(path)?;
    let mut w = Writer::new(g, opset);
    for (id, name) in g.placeholders().into_iter().zip(&g.input_names) {
        w.set(id, vec![name.clone()]);
    }
    if let Err(p) = calls(&mut w) {
        problems.push(&p.node, &p.op, p.why);
    }
    problems.finish(path)?;
    let outputs = results(&mut w).map_err(|why| FormatError::malformed(path, why))?;
    let used = prune(&mut w.nodes, outputs.iter().map(|o| o.name.clone()).collect());
    w.whole.constants.retain(|k, _| used.contains(k));
    let ids = g.placeholders();
    let input = ids.iter().zip(&g.input_names).map(|(id, name)| info(name, &g.node(*id).meta)).collect();
    let nodes = std::mem::take(&mut w.nodes);
    let graph = GraphProto { node: nodes, name: "main".into(), input, output: outputs, ..GraphProto::default() };
    let version = IR_VERSIONS.iter().rev().find(|(o, _)| *o <= opset).map_or(7, |(_, v)| *v);
    let props = g
        .metadata
        .iter()
        .map(|(k, v)| StringStringEntryProto { key: format!("{METADATA_PREFIX}{k}"), value: v.clone() });
    let model = ModelProto {
        ir_version: version,
        producer_name: "cleave".into(),
        producer_version: env!("CARGO_PKG_VERSION").into(),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: opset }],
        metadata_props: props.collect(),
        graph: Some(graph),
        ..ModelProto::default()
    };
    Ok(Parts { model, constants: w.whole.constants, narrow: w.whole.narrow })
}

/// Leaves out calls that nothing reads: integer products take what stands before a dequantize. Gives the names of all
/// values that are read.
pub(super) fn prune(nodes: &mut Vec<NodeProto>, results: BTreeSet<String>) -> BTreeSet<String> {
    let mut used = results;
    nodes.reverse();
    nodes.retain(|n| {
        let read = n.output.iter().any(|o| used.contains(o));
        if read {
            used.extend(super::control::reads(n));
        }
        read
    });
    nodes.reverse();
    used
}

/// The lowest operator set that has all ops; those that none has are noted.
fn opset(g: &Graph, problems: &mut Problems) -> i64 {
    let mut opset = BASE;
    for (id, node) in g.nodes() {
        let Some(op) = node.op().filter(|o| o.name != "getitem") else { continue };
        for inner in node.args.iter() {
            if let Arg::Graph(inner) = inner {
                opset = opset.max(self::opset(inner, problems));
            }
        }
        match find(op) {
            Some((_, since, _)) => opset = opset.max(*since).max(super::quantized::since(g, id)),
            None => problems.push(&node.name, op.short(), "this op cannot be written as ONNX; decompose it first"),
        }
    }
    opset
}

fn getitem(w: &mut Writer<'_>, id: NodeId) -> std::result::Result<(), String> {
    let args = super::args::Args::new(w.g, w.g.node(id));
    let i = usize::try_from(args.int("index")?).map_err(|e| e.to_string())?;
    let name = w.names(args.tensor("self")?).get(i).cloned();
    w.set(id, vec![name.ok_or_else(|| format!("result {i} cannot be written"))?]);
    Ok(())
}

/// The results under their names for the outside.
fn results(w: &mut Writer<'_>) -> std::result::Result<Vec<ValueInfoProto>, String> {
    let mut out = vec![];
    for (id, name) in w.g.results().into_iter().zip(w.g.output_names.clone()) {
        let value = w.name(id)?;
        if value != name {
            let node = w.fresh(&format!("{name}_identity"));
            w.call("Identity", &node, vec![value], &name, vec![]);
        }
        out.push(info(&name, &w.g.node(id).meta));
    }
    Ok(out)
}

/// A value's name, type and shape.
pub(super) fn info(name: &str, meta: &Meta) -> ValueInfoProto {
    let dim = |d: &Dim| {
        let value = d.as_const().map_or_else(|| DimensionValue::DimParam(d.to_string()), DimensionValue::DimValue);
        DimensionProto { value: Some(value) }
    };
    let tensor_type = meta.as_tensor().map(|m| TensorTypeProto {
        elem_type: code_of(m.dtype),
        shape: Some(TensorShapeProto { dim: m.shape.iter().map(dim).collect() }),
    });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type, ..TypeProto::default() }) }
}
