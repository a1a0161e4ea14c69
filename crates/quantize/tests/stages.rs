//! Annotate, prepare, calibrate and convert, on small graphs.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Graph, Levels, NodeId, Tensor, text, verify};
use cleave_quantize::{
    Annotations, BoxError, CalibrateOptions, Converted, Evaluator, NonFinite, Prepared, QuantizeError, Selection,
    Status, TomlQuantizer, annotate, calibrate, convert, load, prepare,
};

/// A stem, a residual block with a batch norm on its second convolution, a gate, pooling and a head.
const NET: &str = r#"graph(%x: f32[N, 2, 4, 4]) {
  %stem_weight = param "stem.weight": f32[3, 2, 1, 1]
  %stem_bias = param "stem.bias": f32[3]
  %block_weight = param "block.weight": f32[3, 3, 1, 1]
  %block_bn_weight = param "block.bn.weight": f32[3]
  %block_bn_bias = param "block.bn.bias": f32[3]
  %block_bn_running_mean = buffer "block.bn.running_mean": f32[3]
  %block_bn_running_var = buffer "block.bn.running_var": f32[3]
  %head_weight = param "head.weight": f32[5, 3]
  %stem = aten.conv2d(%x, %stem_weight, %stem_bias): f32[N, 3, 4, 4]
  %stem_act = aten.hardtanh(%stem, 0, 6): f32[N, 3, 4, 4]
  %block = aten.conv2d(%stem_act, %block_weight): f32[N, 3, 4, 4]
  %bn = aten.batch_norm(%block, %block_bn_weight, %block_bn_bias, %block_bn_running_mean, %block_bn_running_var, false, 0.1, 1e-3, false): f32[N, 3, 4, 4]
  %sum = aten.add.Tensor(%bn, %stem_act): f32[N, 3, 4, 4]
  %act = aten.relu(%sum): f32[N, 3, 4, 4]
  %pool = aten.max_pool2d(%act, [2, 2]): f32[N, 3, 2, 2]
  %mean_1 = aten.adaptive_avg_pool2d(%pool, [1, 1]): f32[N, 3, 1, 1]
  %flat = aten.flatten.using_ints(%mean_1, 1): f32[N, 3]
  %head = aten.linear(%flat, %head_weight): f32[N, 5]
  %softmax = aten.softmax.int(%head, 1): f32[N, 5]
  return %softmax
}
"#;

fn net() -> Graph {
    let mut g = text::parse(NET).unwrap();
    let mut put = |name: &str, shape: &[usize], data: &[f32]| {
        g.constants.insert(name.into(), Tensor::new(shape, data.to_vec()));
    };
    put("stem.weight", &[3, 2, 1, 1], &[0.5, -1.27, 0.0, 0.0, 0.25, 0.127]);
    put("stem.bias", &[3], &[0.1, 0.5, -0.25]);
    put("block.weight", &[3, 3, 1, 1], &[1.0, 0.5, -0.25, 0.125, -1.0, 0.75, 0.5, 0.5, 0.5]);
    put("block.bn.weight", &[3], &[1.0, 2.0, 0.5]);
    put("block.bn.bias", &[3], &[0.0, 0.25, -0.5]);
    put("block.bn.running_mean", &[3], &[0.5, 0.0, 1.0]);
    put("block.bn.running_var", &[3], &[0.999, 3.999, 0.249]);
    put("head.weight", &[5, 3], &[0.1, 0.2, 0.3, -0.1, -0.2, -0.3, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    g
}

/// Stands for a runtime: says of each value what a table says, elsewhere a ramp over [-1, 3].
struct Table(Vec<(&'static str, Vec<f32>)>);

impl Evaluator for Table {
    fn run(
        &mut self,
        graph: &Graph,
        _: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>, BoxError> {
        for id in taps {
            let name = &graph.node(*id).name;
            let given = self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            let ramp = || (0..=400).map(|i| i as f32 / 100.0 - 1.0).collect();
            let values = given.unwrap_or_else(ramp);
            sink(*id, &Tensor::new(&[values.len()], values));
        }
        Ok(vec![])
    }
}

fn annotated(quantizer: &str, float: &[&str]) -> (Graph, Annotations) {
    let g = net();
    let a = annotate(&g, &TomlQuantizer::load(quantizer).unwrap(), &Selection::float(float).unwrap()).unwrap();
    (g, a)
}

fn stats_of(p: &Prepared, table: Table) -> Result<cleave_quantize::Statistics, QuantizeError> {
    let sample = || Ok(vec![Tensor::new(&[1, 2, 4, 4], vec![0.0f32; 32])]);
    calibrate(p, &mut { table }, [sample(), sample()].into_iter(), CalibrateOptions::default(), &mut |_| {})
}

fn converted(quantizer: &str, float: &[&str], table: Table) -> Converted {
    let (g, a) = annotated(quantizer, float);
    let p = prepare(&g, &a).unwrap();
    let c = convert(&p, &stats_of(&p, table).unwrap()).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    c
}

/// `pattern: nodes` for each unit.
fn units(g: &Graph, a: &Annotations) -> Vec<String> {
    let names = |u: &cleave_quantize::Unit| u.nodes.iter().map(|n| g.node(*n).name.clone()).collect::<Vec<_>>();
    a.units.iter().map(|u| format!("{}: {}", u.pattern, names(u).join(" "))).collect()
}

#[test]
fn cpu_takes_whole_units_and_the_later_convolution_absorbs_the_residual() {
    let (g, a) = annotated("cpu", &[]);
    assert_eq!(
        units(&g, &a),
        [
            "conv_bn_act: stem stem_act",
            "conv_add_act: block bn sum act",
            "max_pool: pool",
            "mean: mean_1",
            "view: flat",
            "linear_act: head"
        ]
    );
    let floats: Vec<String> = a.floats.iter().map(|f| format!("{}: {}", g.node(f.node).name, f.reason)).collect();
    assert_eq!(floats, ["softmax: a softmax is run in float"]);
}

#[test]
fn x86_leaves_results_to_their_consumers_and_shares_through_pools() {
    let (g, a) = annotated("x86", &[]);
    assert_eq!(
        units(&g, &a),
        [
            "conv_act: stem stem_act",
            "conv_add_relu: block bn sum act",
            "max_pool: pool",
            "passes_through: mean_1",
            "flatten: flat",
            "linear_act: head"
        ]
    );
    assert!(a.units[0].output.is_none() && a.units[2].output.is_some());
    let p = prepare(&g, &a).unwrap();
    let shared: Vec<Vec<&str>> =
        p.groups.iter().map(|g| g.values.iter().map(|v| p.graph.node(*v).name.as_str()).collect()).collect();
    assert_eq!(shared, [vec!["x"], vec!["stem_act"], vec!["act", "pool", "mean_1", "flat"]]);
}

#[test]
fn batch_norm_is_folded_in_f32() {
    let (g, a) = annotated("cpu", &[]);
    let p = prepare(&g, &a).unwrap();
    verify::verify(&p.graph, Levels::ALL).unwrap();
    assert!(p.graph.find("bn").is_none());
    let block = p.graph.node(p.graph.find("block").unwrap());
    let constant = |i: usize| p.graph.constant(block.args[i].nodes()[0]).unwrap().to_f32().into_owned();
    let eps = 1e-3f32;
    let r = [0.999f32, 3.999, 0.249].map(|v| 1.0 / (v + eps).sqrt());
    let (gamma, beta, mean) = ([1.0f32, 2.0, 0.5], [0.0f32, 0.25, -0.5], [0.5f32, 0.0, 1.0]);
    let w = [1.0f32, 0.5, -0.25, 0.125, -1.0, 0.75, 0.5, 0.5, 0.5];
    let want: Vec<f32> = (0..9).map(|i| w[i] * (gamma[i / 3] * r[i / 3])).collect();
    assert_eq!(constant(1), want);
    assert_eq!(constant(2), [0, 1, 2].map(|c| (0.0 - mean[c]) * r[c] * gamma[c] + beta[c]));
    assert_eq!(p.plan().row("bn").unwrap().reason.as_deref(), Some("folded into block"));
    assert_eq!(g.constants.len(), 8, "the source is left alone");
}

#[test]
fn a_batch_norm_whose_convolution_has_another_user_is_not_folded() {
    let text = NET.replace("return %softmax", "return %softmax, %block");
    let mut g = text::parse(&text).unwrap();
    g.constants = net().constants;
    let a = annotate(&g, &TomlQuantizer::load("cpu").unwrap(), &Selection::default()).unwrap();
    assert!(units(&g, &a).contains(&"conv_bn_act: block".to_string()), "{:?}", units(&g, &a));
    let p = prepare(&g, &a).unwrap();
    assert!(p.graph.find("bn").is_some());
    let row = p.plan().row("bn").cloned().unwrap();
    assert_eq!(row.reason.as_deref(), Some("not folded: block has 2 users"));
    let misses: Vec<&str> = row.near_misses.iter().map(|m| m.why.as_str()).collect();
    assert!(misses.contains(&"conv has 2 users"), "{misses:?}");
}

#[test]
fn cpu_converts_to_integers_all_the_way() {
    let c = converted(
        "cpu",
        &[],
        Table(vec![
            ("x", vec![-1.0, 3.0]),
            ("stem_act", vec![0.0, 6.0]),
            ("act", vec![0.0, 5.1]),
            ("pool", vec![0.0, 5.1]),
        ]),
    );
    let text = c.graph.to_string();
    let line =
        |start: &str| text.lines().find(|l| l.trim_start().starts_with(start)).unwrap_or(start).trim().to_string();
    assert!(text.starts_with("graph(%x: f32[N, 2, 4, 4]) with quantize = \"divide\""), "{text}");
    assert_eq!(
        line("%x_q "),
        "%x_q = quantized_decomposed.quantize_per_tensor(%x, 0.01568627543747425, 64, 0, 255, u8): u8[N, 2, 4, 4]"
    );
    assert_eq!(line("%stem "), "%stem = aten.conv2d(%x_dq, %stem_weight_dq, %stem_bias_dq): f32[N, 3, 4, 4]");
    assert_eq!(line("%stem_act "), "%stem_act = aten.hardtanh(%stem, 0, 6): f32[N, 3, 4, 4]");
    assert!(
        line("%stem_weight_dq")
            .contains("%stem_weight_q, %stem_weight_scale, %stem_weight_zero_point, 0, -127, 127, i8")
    );
    assert_eq!(line("%pool "), "%pool = aten.max_pool2d(%act_dq, [2, 2]): f32[N, 3, 2, 2]");
    // One scale for the pool's input and output.
    assert!(line("%act_q ").contains(", 0.019999999552965164, 0, 0, 255, u8)"), "{}", line("%act_q "));
    assert!(line("%pool_q ").contains(", 0.019999999552965164, 0, 0, 255, u8)"), "{}", line("%pool_q "));
    let weight = c.graph.constants["stem.weight_q"].elements::<i8>().unwrap().into_owned();
    assert_eq!(weight, [50, -127, 0, 0, 127, 65]);
    let scales = c.graph.constants["stem.weight_scale"].to_f32().into_owned();
    assert_eq!(scales, [0.01, 0.01, 0.25 / 127.0], "the channel of zeros takes the widest scale");
    let sx = 4.0f32 / 255.0;
    let bias = c.graph.constants["stem.bias_q"].elements::<i32>().unwrap().into_owned();
    assert_eq!(bias, [0, 1, 2].map(|i| ([0.1f32, 0.5, -0.25][i] / (sx * scales[i])).round_ties_even() as i32));
    assert_eq!(c.plan.count(Status::Quantized), 9);
    assert_eq!(c.plan.count(Status::Folded), 1);
    assert_eq!(c.plan.row("act").unwrap().qparams.as_ref().unwrap().scale, 0.02);
    assert_eq!(c.plan.row("block").unwrap().unit.as_deref(), Some("block"));
}

#[test]
fn two_runs_give_the_same_graph() {
    let run = || {
        let c = converted("onnx", &[], Table(vec![]));
        (c.graph.to_string(), c.graph.constants, c.plan)
    };
    assert_eq!(run(), run());
}

#[test]
fn excluded_nodes_stay_float_and_the_plan_says_by_whom() {
    let c = converted("cpu", &["head", "node:mean_1"], Table(vec![]));
    let reason = |n: &str| c.plan.row(n).unwrap().reason.clone().unwrap();
    assert_eq!(reason("head"), "excluded by 'head'");
    assert_eq!(reason("mean_1"), "excluded by 'node:mean_1'");
    assert_eq!(reason("flat"), "x comes from mean_1, which is not quantized");
    assert!(!c.graph.to_string().contains("head_weight_q"));
    // Nothing but the excluded mean reads the pool, so the pool's result is not rounded.
    assert!(c.graph.find("pool_q").is_none());
    let e = annotate(&net(), &TomlQuantizer::load("cpu").unwrap(), &Selection::float(&["op:gelu"]).unwrap());
    assert!(e.unwrap_err().to_string().starts_with("selector 'op:gelu': it selects no node"));
}

#[test]
fn dead_tensors_and_masks_stay_float() {
    let c = converted("cpu", &[], Table(vec![("act", vec![0.0; 9]), ("pool", vec![0.0; 4])]));
    assert_eq!(c.plan.row("sum").unwrap().reason.as_deref(), Some("dead tensor: act is always 0 in calibration"));
    assert_eq!(c.plan.row("stem").unwrap().status, Status::Quantized);
    let c = converted("cpu", &[], Table(vec![("x", vec![-3.4e38, 1.0])]));
    let why = c.plan.row("stem").unwrap().reason.clone().unwrap();
    assert!(why.starts_with("x reaches -3") && why.ends_with("a mask, not an activation"), "{why}");
}

#[test]
fn a_bias_that_would_not_fit_is_kept_float_and_the_weight_is_unharmed() {
    let mut g = net();
    g.constants.insert("stem.bias".into(), Tensor::new(&[3], vec![3e8f32, 0.5, -0.25]));
    let a = annotate(&g, &TomlQuantizer::load("cpu").unwrap(), &Selection::default()).unwrap();
    let p = prepare(&g, &a).unwrap();
    let c = convert(&p, &stats_of(&p, Table(vec![])).unwrap()).unwrap();
    assert!(
        c.plan.notes[0].starts_with("bias of stem kept float: element 0, 300000000, does not fit"),
        "{:?}",
        c.plan.notes
    );
    let stem = c.graph.node(c.graph.find("stem").unwrap());
    assert!(c.graph.constant(stem.args[2].nodes()[0]).is_some());
    assert_eq!(c.graph.constants["stem.weight_q"].elements::<i8>().unwrap()[0], 50);
}

#[test]
fn bad_values_and_missing_data_are_errors() {
    let (g, a) = annotated("cpu", &[]);
    let p = prepare(&g, &a).unwrap();
    let e = stats_of(&p, Table(vec![("pool", vec![1.0, f32::NAN])]));
    // The pool's values are those of its input, observed there; x is observed itself.
    assert!(e.is_err() || p.taps().iter().all(|t| p.graph.node(*t).name != "pool"));
    let e = stats_of(&p, Table(vec![("act", vec![1.0, f32::NAN])])).unwrap_err().to_string();
    assert_eq!(e, "calibration sample 0: NaN in the value of node 'act' (aten.relu)");
    let e = stats_of(&p, Table(vec![("act", vec![1.0, f32::INFINITY])])).unwrap_err().to_string();
    assert_eq!(e, "calibration sample 0: an infinity in the value of node 'act' (aten.relu)");
    let ignore = CalibrateOptions { non_finite: NonFinite::Clip };
    let one = || [Ok(vec![])].into_iter();
    let mut table = Table(vec![("act", vec![1.0, f32::INFINITY])]);
    assert!(calibrate(&p, &mut table, one(), ignore, &mut |_| {}).is_ok());
    let none = std::iter::empty::<Result<Vec<Tensor>, BoxError>>();
    let e = calibrate(&p, &mut table, none, ignore, &mut |_| {}).unwrap_err().to_string();
    assert!(e.starts_with("no calibration samples"), "{e}");
}

#[test]
fn nothing_to_quantize_is_an_error() {
    let g = text::parse("graph(%x: f32[2]) {\n  %relu = aten.relu(%x): f32[2]\n  return %relu\n}").unwrap();
    let e = annotate(&g, &TomlQuantizer::load("cpu").unwrap(), &Selection::default()).unwrap_err().to_string();
    assert!(e.starts_with("quantizer 'cpu' found nothing to quantize among 1 compute nodes"), "{e}");
}

#[test]
fn shards_merge_to_the_same_statistics() {
    let (g, a) = annotated("cpu", &[]);
    let p = prepare(&g, &a).unwrap();
    let low = || Table(vec![("act", vec![0.5, 0.25])]);
    let high = || Table(vec![("act", vec![7.5, 0.0])]);
    let (mut l, h) = (stats_of(&p, low()).unwrap(), stats_of(&p, high()).unwrap());
    let mut other = h.clone();
    l.merge(&h).unwrap();
    other.merge(&stats_of(&p, low()).unwrap()).unwrap();
    assert_eq!(l, other);
    assert_eq!(l.samples, 4);
}

#[test]
fn overrides_keep_nodes_float_or_give_them_other_specs() {
    let file = r#"
[quantizer]
name = "mine"
extends = "cpu"
[spec.whole]
dtype = "u8"
scheme = "per_tensor_affine"
observer = "minmax"
[[override]]
select = "node:block"
replace = { activation = "whole" }
[[override]]
select = "op:linear"
float = true
"#;
    let g = net();
    let run = |text: &str| annotate(&g, &TomlQuantizer::parse(text, "mine.toml").unwrap(), &Selection::default());
    let a = run(file).unwrap();
    let name = |s: usize| a.specs[s].name.as_str();
    let block = a.units.iter().find(|u| g.node(u.compute).name == "block").unwrap();
    assert_eq!(block.output.map(name), Some("whole"));
    assert_eq!(block.inputs.iter().map(|i| name(i.spec)).collect::<Vec<_>>(), ["whole", "weight", "whole"]);
    let pool = a.units.iter().find(|u| u.pattern == "max_pool").unwrap();
    assert_eq!(pool.output.map(name), Some("whole"), "a shared spec is the producer's");
    assert_eq!(a.floats[0].reason, "excluded by 'op:linear'");
    let p = prepare(&g, &a).unwrap();
    let c = convert(&p, &stats_of(&p, Table(vec![])).unwrap()).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    assert!(
        c.plan.notes[0].starts_with("stem_act is u8[0, 255] affine, histogram; a consumer asks for"),
        "{:?}",
        c.plan.notes
    );
    let e = run(&file.replace("op:linear", "op:tanh")).unwrap_err().to_string();
    assert!(e.starts_with("selector 'op:tanh': it selects no node"), "{e}");
}

#[test]
fn results_that_no_quantized_unit_reads_are_left_float() {
    let c = converted("cpu", &[], Table(vec![]));
    let head = c.plan.row("head").unwrap();
    assert_eq!((head.status, &head.qparams), (Status::Quantized, &None));
    assert!(c.graph.find("head_q").is_none() && c.graph.find("flat_q").is_some());
    // A view of such a result moves floats.
    let c = converted("cpu", &["head"], Table(vec![]));
    assert_eq!(c.plan.row("flat").unwrap().reason.as_deref(), Some("no quantized unit reads its result"));
    assert!(c.graph.find("mean_1_q").is_none());
    // ONNX Runtime's Gemm gives floats as well; `arm` has a layer of its own, that gives bytes.
    for (quantizer, rounded) in [("onnx", false), ("openvino", false), ("arm", true), ("xnnpack", true)] {
        let c = converted(quantizer, &[], Table(vec![]));
        assert_eq!(c.graph.find("head_q").is_some(), rounded, "{quantizer}");
    }
}

#[test]
fn only_what_is_selected_is_quantized() {
    let g = net();
    let run = |quantizer: &str, only: &[&str]| {
        annotate(&g, load(quantizer).unwrap().as_ref(), &Selection::new(&[], only).unwrap())
    };
    let a = run("cpu", &["op:conv2d"]).unwrap();
    assert_eq!(units(&g, &a), ["conv_bn_act: stem stem_act", "conv_add_act: block bn sum act"], "whole units");
    let a = run("cpu", &["pattern:conv_bn_act", "node:head"]).unwrap();
    assert_eq!(
        units(&g, &a),
        ["conv_bn_act: stem stem_act", "conv_bn_act: block bn", "linear_act: head"],
        "what a pattern that is not selected would take is left to those that are"
    );
    let reason = a.floats.iter().find(|f| g.node(f.node).name == "pool").unwrap();
    assert!(reason.excluded, "its inputs are float");
    assert!(reason.reason.starts_with("not selected: only 'pattern:conv_bn_act', 'node:head'"), "{}", reason.reason);
    for (only, want) in [("op:gelu", "ops were compared"), ("pattern:cat", "patterns that matched were compared")] {
        let e = run("cpu", &["op:conv2d", only]).unwrap_err().to_string();
        assert!(e.starts_with(&format!("selector '{only}': it selects no node")) && e.contains(want), "{e}");
    }
}

#[test]
fn quantizers_are_composed_in_order_and_conflicts_are_told() {
    let g = net();
    let run = |names: &str| annotate(&g, load(names).unwrap().as_ref(), &Selection::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("narrow.toml");
    let text = r#"
[quantizer]
name = "narrow"
arithmetic = "divide"
[spec.activation]
dtype = "u8"
range = [0, 127]
scheme = "per_tensor_affine"
[spec.weight]
dtype = "s8"
scheme = "per_channel_symmetric"
[[pattern]]
name = "first"
match = "hardtanh?(conv2d(x, w, b?))"
where = ["not produced_by(x, hardtanh)", "not used_by(conv2d, batch_norm)"]
inputs = { x = "activation", w = "weight" }
output = "activation"
"#;
    std::fs::write(&file, text).unwrap();
    let a = run(&format!("{},cpu", file.display()));
    assert_eq!(a.quantizer, "narrow+cpu");
    assert_eq!(
        units(&g, &a)[..2],
        ["narrow:first: stem stem_act", "cpu:conv_add_act: block bn sum act"],
        "the second takes what the first left"
    );
    assert_eq!(a.specs[a.units[0].output.unwrap()].range.max, 127);
    assert_eq!(a.specs[a.units[1].output.unwrap()].range.max, 255);
    assert_eq!(a.notes, ["conflict: narrow took 1 units that cpu would take too (stem_act)"]);
    let p = prepare(&g, &a).unwrap();
    assert!(p.plan().notes[0].starts_with("conflict: narrow took"));
    let c = convert(&p, &stats_of(&p, Table(vec![])).unwrap()).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    assert!(c.plan.notes.iter().any(|n| n.contains("dequantized and quantized again")), "{:?}", c.plan.notes);
    let e = load("x86,cpu").err().unwrap().to_string();
    assert!(e.starts_with("quantizers: 'x86' multiplies by its reciprocal and 'cpu' divides by the scale"), "{e}");
    let e = load("cpu,cpu").err().unwrap().to_string();
    assert_eq!(e, "quantizers: 'cpu' stands twice");
}

#[test]
fn arm_has_signed_activations_and_fixed_scales() {
    let mut g = text::parse(&NET.replace("aten.hardtanh(%stem, 0, 6)", "aten.sigmoid(%stem)")).unwrap();
    g.constants = net().constants;
    let a = annotate(&g, &TomlQuantizer::load("arm").unwrap(), &Selection::default()).unwrap();
    let p = prepare(&g, &a).unwrap();
    let c = convert(&p, &stats_of(&p, Table(vec![])).unwrap()).unwrap();
    let sigmoid = c.plan.row("stem_act").unwrap().qparams.clone().unwrap();
    assert_eq!((sigmoid.scale, sigmoid.zero_point, sigmoid.dtype.as_str()), (1.0 / 256.0, -128, "i8"));
    let stem = c.plan.row("stem").unwrap().qparams.clone().unwrap();
    assert_eq!((stem.qmin, stem.qmax), (-128, 127));
    assert!(c.graph.constants["stem.weight_q"].elements::<i8>().unwrap().iter().all(|v| *v >= -127));
    assert!(c.graph.constants.contains_key("stem.bias_q"));
}
