//! What is read of `model.json` and the weights' tables. Keys that are not named here are ignored.

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::rc::Rc;

/// The program of a file's JSON. Up to torch 2.5 it has infinities and NaN as Python writes them.
pub(super) fn parse(json: &[u8]) -> serde_json::Result<Program> {
    serde_json::from_slice(json).or_else(|e| match quoted(json) {
        Some(json) => serde_json::from_slice(&json),
        None => Err(e),
    })
}

/// The text with Python's names for numbers that JSON does not have in quotes; none if it has no such names.
fn quoted(json: &[u8]) -> Option<Vec<u8>> {
    let names = [&b"-Infinity"[..], b"Infinity", b"NaN"];
    let mut out = Vec::with_capacity(json.len() + json.len() / 8);
    let (mut at, mut inside, mut found) = (0, false, false);
    while let Some(&byte) = json.get(at) {
        let name = names.iter().find(|n| !inside && json[at..].starts_with(n));
        let n = match (name, byte) {
            (Some(name), _) => {
                found = true;
                out.push(b'"');
                out.extend_from_slice(name);
                out.push(b'"');
                at += name.len();
                continue;
            }
            (None, b'\\') if inside => 2,
            _ => 1,
        };
        inside ^= byte == b'"';
        out.extend_from_slice(&json[at..(at + n).min(json.len())]);
        at += n;
    }
    found.then_some(out)
}

/// `models/model.json`.
#[derive(Deserialize)]
pub(super) struct Program {
    pub graph_module: GraphModule,
    #[serde(default)]
    pub range_constraints: IndexMap<String, Range>,
    pub schema_version: Version,
    #[serde(default)]
    pub torch_version: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub major: i64,
    #[serde(default)]
    pub minor: i64,
}

#[derive(Deserialize)]
pub(super) struct Range {
    #[serde(default)]
    pub min_val: Option<i64>,
    #[serde(default)]
    pub max_val: Option<i64>,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    #[serde(deserialize_with = "shared")]
    pub graph: Rc<GraphJson>,
    pub signature: Signature,
    #[serde(default)]
    pub module_call_graph: Vec<ModuleCall>,
    #[serde(default)]
    pub metadata: IndexMap<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct ModuleCall {
    #[serde(default)]
    pub fqn: String,
    #[serde(default)]
    pub signature: Option<CallSignature>,
}

#[derive(Deserialize)]
pub(super) struct CallSignature {
    #[serde(default)]
    pub out_spec: String,
}

#[derive(Deserialize)]
pub(super) struct Signature {
    /// One-key objects: `user_input`, `parameter`, `buffer`, `tensor_constant`, …
    pub input_specs: Vec<Value>,
    /// One-key objects: `user_output`, `buffer_mutation`, …
    pub output_specs: Vec<Value>,
}

fn shared<'de, D: Deserializer<'de>>(d: D) -> Result<Rc<GraphJson>, D::Error> {
    GraphJson::deserialize(d).map(Rc::new)
}

#[derive(Deserialize)]
pub(super) struct GraphJson {
    /// One-key objects: `as_tensor`, `as_sym_int`, …
    #[serde(default)]
    pub inputs: Vec<Value>,
    #[serde(default)]
    pub outputs: Vec<Value>,
    /// A [`NodeJson`] each, which is taken apart only while the node is read: a program may have very many.
    pub nodes: Vec<Box<RawValue>>,
    /// A [`TensorJson`] each.
    #[serde(default)]
    pub tensor_values: IndexMap<String, Box<RawValue>>,
    #[serde(default)]
    pub sym_int_values: IndexMap<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct NodeJson {
    pub target: String,
    #[serde(default)]
    pub inputs: Vec<InputJson>,
    /// One-key objects: `as_tensor`, `as_tensors`, `as_sym_int`, …
    #[serde(default)]
    pub outputs: Vec<Value>,
    #[serde(default)]
    pub metadata: NodeMetadata,
    #[serde(default)]
    pub name: Option<String>,
}

/// What a node is called and calls, and its arguments' text.
#[derive(Deserialize)]
pub(super) struct NodeHead<'j> {
    #[serde(borrow)]
    pub target: Cow<'j, str>,
    #[serde(default, borrow)]
    pub name: Option<Cow<'j, str>>,
    #[serde(default, borrow)]
    pub inputs: Option<&'j RawValue>,
}

/// Of what is noted of a node, where it stood; stack traces are passed over.
#[derive(Default, Deserialize)]
pub(super) struct NodeMetadata {
    #[serde(default)]
    pub nn_module_stack: String,
}

#[derive(Deserialize)]
pub(super) struct InputJson {
    #[serde(default)]
    pub name: String,
    /// A one-key object.
    pub arg: Value,
}

/// Type and sizes of a tensor; sizes are `{"as_int": n}` or `{"as_expr": {"expr_str": …}}`.
#[derive(Deserialize)]
pub(super) struct TensorJson {
    pub dtype: i64,
    pub sizes: Vec<Value>,
    #[serde(default)]
    pub strides: Vec<Value>,
    #[serde(default)]
    pub storage_offset: Option<Value>,
    /// 7: strided.
    #[serde(default)]
    pub layout: Option<i64>,
}

/// `model_weights_config.json` and `model_constants_config.json`.
#[derive(Deserialize)]
pub(super) struct PayloadConfig {
    #[serde(default)]
    pub config: IndexMap<String, Payload>,
}

#[derive(Deserialize)]
pub(super) struct Payload {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    #[serde(default)]
    pub tensor_meta: Option<TensorJson>,
}

/// The key and the value of a one-key object.
pub(super) fn union(v: &Value) -> Option<(&str, &Value)> {
    let mut entries = v.as_object()?.iter();
    let (k, v) = entries.next()?;
    entries.next().is_none().then_some((k.as_str(), v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_names_for_numbers_are_put_in_quotes_outside_of_strings() {
        let text = |json: &str| quoted(json.as_bytes()).map(|b| String::from_utf8(b).unwrap());
        let want = r#"{"a \" NaN": ["-Infinity", "Infinity", "NaN"], "b\\": "NaN"}"#;
        assert_eq!(text(r#"{"a \" NaN": [-Infinity, Infinity, NaN], "b\\": NaN}"#).as_deref(), Some(want));
        assert_eq!(text(r#"{"a": "NaN", "b": -1.5}"#), None);
        assert_eq!(text("\"\\"), None);
    }
}
