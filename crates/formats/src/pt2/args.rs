//! Arguments as the JSON has them, brought to the order of the op's schema.

use super::schema::{InputJson, union};
use cleave_ir::schema::Param;
use cleave_ir::{Arg, Dim, NodeId, Op};
use cleave_numerics::DType;
use indexmap::IndexMap;
use serde_json::Value;

/// What a name in the file stands for.
#[derive(Clone, Debug)]
pub(super) enum Val {
    /// A node.
    Node(NodeId),
    /// A size that the file computed.
    Size(Dim),
    /// What the program asserts of a size.
    Flag,
    /// The result of a node that was not understood; the reason is noted there.
    Lost,
}

/// Why an argument has no value.
pub(super) enum NoArg {
    /// It hangs on a node that was not understood.
    Lost,
    /// What was expected and what was found.
    Why(String),
}

impl From<String> for NoArg {
    fn from(why: String) -> NoArg {
        NoArg::Why(why)
    }
}

type Found = Result<Arg, NoArg>;

/// One argument for each parameter up to the last one that is given; those left out in between take their defaults.
/// Arguments that are graphs have been read, by their place among the inputs.
pub(super) fn arguments(
    op: &Op,
    inputs: &[InputJson],
    values: &IndexMap<String, Val>,
    graphs: &IndexMap<usize, Arg>,
) -> Result<Vec<Arg>, NoArg> {
    let params = &op.schema.params;
    let mut given: Vec<Option<Arg>> = vec![None; params.len()];
    for (i, input) in inputs.iter().enumerate() {
        // Ops of higher order have arguments without names.
        let index = if input.name.is_empty() { Some(i) } else { op.schema.index(&input.name) };
        let index = index.filter(|i| *i < params.len()).ok_or_else(|| {
            let names: Vec<_> = params.iter().map(|p| p.name.as_str()).collect();
            format!("argument '{}': expected one of {}", input.name, names.join(", "))
        })?;
        let found = graphs.get(&i).cloned().map_or_else(|| argument(&input.arg, values), Ok);
        let found = found.map_err(|e| match e {
            NoArg::Why(why) => NoArg::Why(format!("argument '{}': {why}", params[index].name)),
            lost => lost,
        })?;
        if given[index].replace(found).is_some() {
            return Err(NoArg::Why(format!("argument '{}' is given twice", input.name)));
        }
    }
    let last = given.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
    given.truncate(last);
    let filled = given.into_iter().zip(params).map(|(a, p)| a.or_else(|| default(p)).ok_or(p));
    filled.collect::<Result<_, _>>().map_err(|p| NoArg::Why(format!("argument '{}' is missing", p.name)))
}

fn default(p: &Param) -> Option<Arg> {
    p.default.clone().or(p.optional.then_some(Arg::None))
}

/// A one-key object as an argument.
pub(super) fn argument(v: &Value, values: &IndexMap<String, Val>) -> Found {
    let (kind, inner) = union(v).ok_or_else(|| format!("expected a one-key object, found {}", brief(v)))?;
    let wrong = || NoArg::Why(format!("'{kind}' holds {}", brief(inner)));
    let each = |f: &dyn Fn(&Value) -> Found| -> Found {
        Ok(Arg::List(inner.as_array().ok_or_else(wrong)?.iter().map(f).collect::<Result<_, _>>()?))
    };
    match kind {
        "as_none" => Ok(Arg::None),
        "as_tensor" => tensor(inner, values),
        "as_tensors" => each(&|t| tensor(t, values)),
        "as_optional_tensor" | "as_sym_int" | "as_sym_float" | "as_sym_bool" => scalar_or_name(inner, values),
        "as_optional_tensors" => each(&|t| argument(t, values)),
        "as_sym_ints" | "as_sym_floats" | "as_sym_bools" => each(&|t| scalar_or_name(t, values)),
        "as_int" => inner.as_i64().map(Arg::Int).ok_or_else(wrong),
        "as_ints" => each(&|n| n.as_i64().map(Arg::Int).ok_or_else(wrong)),
        "as_float" => float(inner).map(Arg::Float).ok_or_else(wrong),
        "as_floats" => each(&|n| float(n).map(Arg::Float).ok_or_else(wrong)),
        "as_bool" => inner.as_bool().map(Arg::Bool).ok_or_else(wrong),
        "as_bools" => each(&|n| n.as_bool().map(Arg::Bool).ok_or_else(wrong)),
        "as_string" => inner.as_str().map(Arg::from).ok_or_else(wrong),
        "as_strings" => each(&|n| n.as_str().map(Arg::from).ok_or_else(wrong)),
        "as_scalar_type" => {
            let code = inner.as_i64().ok_or_else(wrong)?;
            let d = DType::from_torch_code(code);
            Ok(Arg::DType(d.ok_or_else(|| format!("element type {code} is not supported"))?))
        }
        "as_memory_format" => {
            named(inner, &["", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"])
        }
        "as_layout" => named(
            inner,
            &["", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "strided"],
        ),
        "as_device" => {
            let device = inner.get("type").and_then(Value::as_str).ok_or_else(wrong)?;
            let index = inner.get("index").and_then(Value::as_i64);
            Ok(Arg::Str(index.map_or(device.into(), |i| format!("{device}:{i}"))))
        }
        other => Err(NoArg::Why(format!("a value of kind '{other}' cannot be read"))),
    }
}

/// `{"name": …}`.
fn tensor(v: &Value, values: &IndexMap<String, Val>) -> Found {
    let name = v.get("name").and_then(Value::as_str);
    lookup(name.ok_or_else(|| format!("expected a tensor's name, found {}", brief(v)))?, values)
}

/// `{"as_name": …}` or a one-key object with the value itself.
fn scalar_or_name(v: &Value, values: &IndexMap<String, Val>) -> Found {
    match union(v) {
        Some(("as_name", name)) => {
            lookup(name.as_str().ok_or_else(|| format!("expected a name, found {}", brief(name)))?, values)
        }
        _ => argument(v, values),
    }
}

fn lookup(name: &str, values: &IndexMap<String, Val>) -> Found {
    match values.get(name) {
        Some(Val::Node(n)) => Ok(Arg::Node(*n)),
        Some(Val::Size(d)) => Ok(d.clone().into()),
        Some(Val::Flag) => Err(NoArg::Why(format!("'{name}' is known at run time only"))),
        Some(Val::Lost) => Err(NoArg::Lost),
        None => Err(NoArg::Why(format!("no value named '{name}' stands before"))),
    }
}

/// A number, or the text that stands for one that JSON does not have.
fn float(v: &Value) -> Option<f64> {
    v.as_f64().or_else(|| match v.as_str()? {
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => None,
    })
}

/// A number that stands for a member of one of torch's closed sets.
fn named(v: &Value, names: &[&str]) -> Found {
    let name = v.as_u64().and_then(|i| names.get(usize::try_from(i).ok()?)).filter(|n| !n.is_empty());
    Ok(Arg::from(*name.ok_or_else(|| format!("number {} has no name", brief(v)))?))
}

/// JSON cut to a length that fits a message.
fn brief(v: &Value) -> String {
    let text = v.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cleave_ir::op;

    fn inputs(json: &str) -> Vec<InputJson> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn arguments_stand_where_the_schema_has_them() {
        let values =
            IndexMap::from([("x".to_string(), Val::Node(NodeId::new(3))), ("n".into(), Val::Size(Dim::symbol("N")))]);
        let op = op::find("aten.upsample_bilinear2d.vec").unwrap();
        let json = r#"[{"name":"scale_factors","arg":{"as_floats":[1.5,"Infinity"]}},
            {"name":"input","arg":{"as_tensor":{"name":"x"}}},
            {"name":"output_size","arg":{"as_sym_ints":[{"as_name":"n"},{"as_int":7}]}},
            {"name":"align_corners","arg":{"as_bool":false}}]"#;
        let want = vec![
            Arg::Node(NodeId::new(3)),
            Arg::List(vec![Arg::Dim(Dim::symbol("N")), Arg::Int(7)]),
            Arg::Bool(false),
            Arg::List(vec![Arg::Float(1.5), Arg::Float(f64::INFINITY)]),
        ];
        assert_eq!(arguments(op, &inputs(json), &values, &IndexMap::new()).ok(), Some(want));
    }

    #[test]
    fn what_is_wrong_names_the_argument() {
        let op = op::find("aten.relu").unwrap();
        let why = |json: &str| match arguments(op, &inputs(json), &IndexMap::new(), &IndexMap::new()) {
            Err(NoArg::Why(why)) => why,
            _ => String::new(),
        };
        assert_eq!(
            why(r#"[{"name":"self","arg":{"as_tensor":{"name":"y"}}}]"#),
            "argument 'self': no value named 'y' stands before"
        );
        assert_eq!(why(r#"[{"name":"x","arg":{"as_int":1}}]"#), "argument 'x': expected one of self");
        assert_eq!(
            why(r#"[{"name":"self","arg":{"as_graph":{}}}]"#),
            "argument 'self': a value of kind 'as_graph' cannot be read"
        );
        assert_eq!(why(r#"[{"name":"self","arg":7}]"#), "argument 'self': expected a one-key object, found 7");
    }
}
