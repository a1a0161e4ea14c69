//! `x86` and `xnnpack` beside torch's X86InductorQuantizer and XNNPACKQuantizer on recorded networks
//! (tests/fixtures/generate/quantizers.py made the records and says what is in them).

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::CpuEvaluator;
use cleave::{demo, model};
use cleave_formats::{npy, read_pt2};
use cleave_ir::{Arg, Graph, Kind, Node, NodeId, Origin, Tensor, text};
use cleave_numerics::DType;
use cleave_quantize::observe::{Observer, scan};
use cleave_quantize::{Converted, Prepared, Quantizer, Selection, Status, TomlQuantizer};
use cleave_quantize::{annotate, calibrate, convert, prepare};
use cleave_tests::fixture;
use cleave_tests::quantized::Numbers;
use serde_json::Value;
use std::collections::BTreeSet;

const BATCH: usize = 2;
const BATCHES: usize = 3;
const SIZE: usize = 64;

/// XNNPACKQuantizer with `is_per_channel=False`.
const PER_TENSOR: &str = r#"
[quantizer]
name = "xnnpack_per_tensor"
extends = "xnnpack"

[spec.weight]
dtype = "s8"
range = [-127, 127]
scheme = "per_tensor_symmetric"
observer = "minmax"
eps = "torch"
"#;

fn records() -> Vec<Value> {
    serde_json::from_str(&std::fs::read_to_string(fixture("torchao/records.json")).unwrap()).unwrap()
}

fn quantizer(name: &str) -> TomlQuantizer {
    match name {
        "xnnpack_per_tensor" => TomlQuantizer::parse(PER_TENSOR, name).unwrap(),
        _ => TomlQuantizer::load(name).unwrap(),
    }
}

/// Scale and zero point in a record.
fn recorded(r: &Value) -> (f32, i64) {
    let bits = u32::try_from(r["scale"].as_u64().unwrap()).unwrap();
    (f32::from_bits(bits), r["zero_point"].as_i64().unwrap())
}

/// The constants of the generator's formula, which their names and shapes decide.
fn constant(name: &str, shape: &[usize]) -> Tensor {
    let seed = name.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let fan_in: usize = shape.iter().skip(1).product();
    let (scale, shift) = match shape {
        [_, _, ..] => ((6.0 / fan_in as f64).sqrt() as f32, 0.0),
        _ if name.ends_with("bias") || name.ends_with("mean") => (0.25, 0.0),
        _ => (0.5, 1.0),
    };
    let n = Numbers(seed).tensor(shape, scale).to_f32().iter().map(|v| v + shift).collect();
    Tensor::new(shape, n)
}

/// A network as torch exports it, for smaller images than the file's.
fn network(name: &str) -> Graph {
    if name == "tiny_fashion" {
        return demo::model().unwrap();
    }
    let text = std::fs::read_to_string(fixture(&format!("graphs/{name}.graph"))).unwrap();
    let text = text.replace("%x: f32[1, 3, 224, 224]", &format!("%x: f32[{BATCH}, 3, {SIZE}, {SIZE}]"));
    // The shapes of results follow from that of the input.
    let line =
        |l: &str| l.rsplit_once("): ").filter(|(call, _)| call.contains("= aten.")).map(|(call, _)| format!("{call})"));
    let text: Vec<String> = text.lines().map(|l| line(l).unwrap_or_else(|| l.into())).collect();
    let mut g = text::parse(&text.join("\n")).unwrap();
    let constants: Vec<(String, Vec<usize>)> = g
        .nodes()
        .filter(|(_, n)| !n.target.is_empty() && n.op().is_none())
        .filter_map(|(_, n)| Some((n.target.clone(), n.meta.as_tensor().filter(|t| t.dtype == DType::F32)?)))
        .filter_map(|(name, t)| {
            Some((name, t.shape.iter().map(|d| usize::try_from(d.as_const()?).ok()).collect::<Option<_>>()?))
        })
        .collect();
    for (name, shape) in constants {
        let value = constant(&name, &shape);
        g.constants.insert(name, value);
    }
    for id in g.ids().collect::<Vec<_>>() {
        let sources = vec![g.node(id).name.clone()];
        g.set_origin(id, Origin { sources, module: String::new() });
    }
    g
}

fn batches(name: &str) -> Vec<Vec<Tensor>> {
    if name == "tiny_fashion" {
        let x = demo::calibration(BATCH * BATCHES);
        return (0..BATCHES).map(|i| vec![x.narrow(0, i * BATCH, BATCH)]).collect();
    }
    let mut n = Numbers(99);
    [1.5, 2.0, 2.5].map(|scale| vec![n.tensor(&[BATCH, 3, SIZE, SIZE], scale)]).into()
}

fn prepared(g: &Graph, q: &TomlQuantizer) -> Prepared {
    let g = model::raise_for(g, q).unwrap();
    prepare(&g, &annotate(&g, q, &Selection::default()).unwrap()).unwrap()
}

fn calibrated(p: &Prepared, batches: Vec<Vec<Tensor>>) -> Converted {
    let mut e = CpuEvaluator::new(cleave_runtime::Options::default());
    let stats = calibrate(p, &mut e, batches.into_iter().map(Ok), Default::default(), &mut |_| {}).unwrap();
    convert(p, &stats).unwrap()
}

fn qparams(n: &Node) -> Option<(f32, i64)> {
    match (n.arg("scale")?, n.arg("zero_point")?) {
        (Arg::Float(s), Arg::Int(z)) => Some((*s as f32, *z)),
        _ => None,
    }
}

/// The scales of a layer's weight.
fn weight_scales(g: &Graph, layer: &str) -> Option<Vec<f32>> {
    let weight = g.node(g.find(layer)?).arg("weight")?.nodes();
    let dq = g.node(*weight.first()?);
    match dq.arg("scales") {
        Some(scales) => Some(g.constant(*scales.nodes().first()?)?.to_f32().into_owned()),
        None => Some(vec![qparams(dq)?.0]),
    }
}

/// FNV-1a over the bytes of the scales.
fn hash(scales: &[f32]) -> String {
    let bytes = scales.iter().flat_map(|s| s.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// What became of a node of the file; a dropout that is gone was its input.
fn find<'a>(file: &Graph, g: &'a Graph, source: &str) -> Option<(NodeId, &'a Node)> {
    let came =
        |n: &Node| n.kind == Kind::Placeholder && n.name == source || n.origin.sources.iter().any(|s| s == source);
    g.nodes().find(|(_, n)| n.target.is_empty() && came(n)).or_else(|| {
        let gone = file.node(file.find(source)?);
        let input = gone.args.first().filter(|_| gone.op().is_some_and(|o| o.base().starts_with("dropout")))?;
        find(file, g, &file.node(*input.nodes().first()?).name)
    })
}

/// Holds a network against its record; returns the number of torch's groups of which Cleave's is a wider one.
fn check(r: &Value) -> usize {
    let [name, quantizer_name] = ["network", "quantizer"].map(|k| r[k].as_str().unwrap());
    let file = network(name);
    let p = prepared(&file, &quantizer(quantizer_name));
    let groups = r["groups"].as_array().unwrap();
    let mut data = batches(name);
    if groups.is_empty() {
        data.truncate(1);
    }
    let g = calibrated(&p, data).graph;
    let mut bad = vec![];
    for (layer, want) in r["weights"].as_object().unwrap() {
        let got = find(&file, &p.graph, layer).and_then(|(_, n)| weight_scales(&g, &n.name));
        if got.as_deref().map(hash).as_deref() != want.as_str() {
            bad.push(format!("weight of {layer}: {got:?}"));
        }
    }
    let mut wider = 0;
    for group in groups {
        let sources = group["values"].as_array().unwrap().iter().map(|v| v.as_str().unwrap());
        let values: BTreeSet<NodeId> =
            sources.map(|v| find(&file, &p.graph, v).unwrap_or_else(|| panic!("{v}")).0).collect();
        let (scale, zero_point) = recorded(group);
        let Some(ours) = p.groups.iter().find(|g| values.iter().all(|v| g.values.contains(v))) else {
            bad.push(format!("torch quantizes together {}", group["values"]));
            continue;
        };
        let same = ours.values.len() == values.len();
        wider += usize::from(!same);
        for v in values.iter().map(|v| &p.graph.node(*v).name) {
            match g.find(&format!("{v}_q")).and_then(|q| qparams(g.node(q))) {
                Some((s, z)) => {
                    let near = (s / scale - 1.0).abs() <= 0.02 && (z - zero_point).abs() <= 1;
                    if same && group["steady"] == true && !near {
                        bad.push(format!("{v}: {s} {z}, torch {scale} {zero_point}"));
                    }
                }
                None => bad.push(format!("{v} is not quantized")),
            }
        }
    }
    assert!(bad.is_empty(), "{name}, {quantizer_name}:\n{}", bad.join("\n"));
    wider
}

/// Holds a network against all its records.
fn check_all(name: &str) -> Vec<(String, bool, usize)> {
    let records = records();
    let of_network = records.iter().filter(|r| r["network"] == name);
    of_network.map(|r| (r["quantizer"].as_str().unwrap().into(), r["modules"] == true, check(r))).collect()
}

/// What is recorded of a network: quantizer, whether each call has a ReLU module, and in how many groups Cleave has more.
fn rows(rows: &[(&str, bool, usize)]) -> Vec<(String, bool, usize)> {
    rows.iter().map(|(q, modules, wider)| (q.to_string(), *modules, *wider)).collect()
}

const ALL: [(&str, bool, usize); 3] = [("x86", false, 0), ("xnnpack", false, 0), ("xnnpack_per_tensor", false, 0)];

#[test]
fn tiny_fashion_gets_torchs_numbers() {
    assert_eq!(check_all("tiny_fashion"), rows(&ALL));
}

#[test]
fn mobilenet_v2_gets_torchs_numbers() {
    assert_eq!(check_all("mobilenet_v2"), rows(&ALL));
}

#[test]
fn mobilenet_v3_large_gets_torchs_numbers() {
    assert_eq!(check_all("mobilenet_v3_large"), rows(&ALL));
}

/// Its blocks call one ReLU module twice, which X86InductorQuantizer refuses.
#[test]
fn resnet18_gets_torchs_numbers() {
    assert_eq!(check_all("resnet18"), rows(&[("x86", true, 0), ALL[1], ALL[2]]));
}

/// Behind its functional relus X86InductorQuantizer leaves pools and concatenations float; here they share scales, as they
/// do there behind ReLU modules.
#[test]
fn googlenet_gets_torchs_numbers() {
    assert_eq!(check_all("googlenet"), rows(&[("x86", false, 19), ("x86", true, 0), ALL[1], ALL[2]]));
}

#[test]
fn observers_fed_torchs_tensors_give_its_numbers() {
    let arrays = npy::read_npz(&fixture("torchao/tensors.npz")).unwrap();
    let mut count = 0;
    for r in records() {
        let [name, quantizer_name] = ["network", "quantizer"].map(|k| r[k].as_str().unwrap());
        let q = quantizer(quantizer_name);
        let spec = q.specs().iter().find(|s| s.name == "activation").unwrap();
        for (i, fed) in r["fed"].as_array().unwrap().iter().enumerate() {
            let modules = u8::from(r["modules"] == true);
            let mut seen =
                (0..).map_while(|k| arrays.get(&format!("{name}/{quantizer_name}/{modules}/{i}/{k}"))).peekable();
            assert!(seen.peek().is_some(), "{name} {i}");
            let mut o = Observer::new(spec.observer);
            for x in seen.map(Tensor::to_f32) {
                o.update(&x, &scan(&x));
            }
            let got = o.qparams(spec).unwrap();
            let (scale, zero_point) = recorded(fed);
            let got = (got.scale.to_bits(), i64::from(got.zero_point));
            assert_eq!(got, (scale.to_bits(), zero_point), "{name}, {quantizer_name}: {}", fed["value"]);
            count += 1;
        }
    }
    assert_eq!(count, 65);
}

/// `F.conv2d`, `F.relu`, `F.linear` and a ReLU module that is called twice: X86InductorQuantizer quantizes nothing of the
/// first kind and refuses the second.
#[test]
fn functional_calls_and_shared_modules_are_units_all_the_same() {
    let g = read_pt2(&fixture("torchao/functional.pt2")).unwrap();
    for name in ["x86", "xnnpack"] {
        let q = quantizer(name);
        let g = model::raise_for(&g, &q).unwrap();
        let a = annotate(&g, &q, &Selection::default()).unwrap();
        let base = |n: &NodeId| g.node(*n).op().unwrap().base();
        let units: Vec<String> =
            a.units.iter().map(|u| u.nodes.iter().map(base).collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(units, ["conv2d relu", "conv2d relu", "conv2d relu", "flatten", "linear relu", "linear"], "{name}");
        let c = calibrated(&prepare(&g, &a).unwrap(), vec![vec![Numbers(3).tensor(&[2, 3, 8, 8], 1.0)]]);
        assert!(c.plan.rows.iter().all(|r| r.status == Status::Quantized), "{name}: {:?}", c.plan.rows);
    }
}
