//! Cross-layer equalization: the same function bit for bit, and ranges that share out evenly.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{self, Settings};
use cleave_ir::{Graph, Tensor, text};
use cleave_quantize::{Prepared, Selection, TomlQuantizer, annotate, equalize, prepare};
use cleave_runtime::reference;

/// Numbers that differ from channel to channel by orders of magnitude.
fn filled(src: &str) -> Graph {
    let mut g = text::parse(src).unwrap();
    let metas: Vec<_> = g
        .nodes()
        .filter(|(_, n)| matches!(n.kind, cleave_ir::Kind::GetAttr(_)))
        .map(|(id, n)| (n.target.clone(), g.tensor_meta(id).unwrap().shape.clone()))
        .collect();
    for (k, (name, shape)) in metas.into_iter().enumerate() {
        let shape: Vec<usize> = shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let (n, rows) = (shape.iter().product::<usize>(), shape[0]);
        let one = |i: usize| {
            let spread = 4f32.powi((i / (n / rows) * 7 + k * 3) as i32 % 9 - 4);
            spread * (((i * 37 + k * 11) % 101) as f32 / 50.0 - 1.0)
        };
        g.constants.insert(name, Tensor::new::<f32>(&shape, (0..n).map(one).collect()));
    }
    g
}

/// `cpu` with one scale for each weight.
const TENSORWISE: &str = "[quantizer]\nname = \"tensorwise\"\nextends = \"cpu\"\n[spec.weight]\ndtype = \"s8\"\nrange = [-127, 127]\nscheme = \"per_tensor_symmetric\"\nobserver = \"minmax\"\n";

fn prepared(g: &Graph) -> Prepared {
    prepared_by(g, &TomlQuantizer::parse(TENSORWISE, "tensorwise.toml").unwrap())
}

fn prepared_by(g: &Graph, q: &TomlQuantizer) -> Prepared {
    prepare(g, &annotate(g, q, &Selection::default()).unwrap()).unwrap()
}

fn input(shape: &[usize]) -> Tensor {
    let n = shape.iter().product();
    Tensor::new(shape, (0..n).map(|i: usize| ((i * 53) % 97) as f32 / 30.0 - 1.3).collect())
}

/// An inverted residual as MobileNet has them, with all that may stand between two layers.
const CHAIN: &str = r#"graph(%x: f32[2, 3, 9, 9]) {
  %w0 = param "expand.weight": f32[8, 3, 1, 1]
  %b0 = param "expand.bias": f32[8]
  %w1 = param "depthwise.weight": f32[8, 1, 3, 3]
  %b1 = param "depthwise.bias": f32[8]
  %w2 = param "project.weight": f32[4, 8, 1, 1]
  %w3 = param "up.weight": f32[4, 3, 2, 2]
  %w4 = param "grouped.weight": f32[6, 3, 1, 1]
  %w5 = param "fc.weight": f32[5, 6]
  %expand = aten.conv2d(%x, %w0, %b0): f32[2, 8, 9, 9]
  %relu6 = aten.hardtanh(%expand, 0.0, 6.0): f32[2, 8, 9, 9]
  %depthwise = aten.conv2d(%relu6, %w1, %b1, [1, 1], [1, 1], [1, 1], 8): f32[2, 8, 9, 9]
  %clamp = aten.clamp(%depthwise, -1.0): f32[2, 8, 9, 9]
  %project = aten.conv2d(%clamp, %w2): f32[2, 4, 9, 9]
  %max_pool2d = aten.max_pool2d(%project, [2, 2], [2, 2]): f32[2, 4, 4, 4]
  %up = aten.conv_transpose2d.input(%max_pool2d, %w3, none, [2, 2], [0, 0], [0, 0], 2): f32[2, 6, 8, 8]
  %leaky_relu = aten.leaky_relu(%up, 0.1): f32[2, 6, 8, 8]
  %grouped = aten.conv2d(%leaky_relu, %w4, none, [1, 1], [0, 0], [1, 1], 2): f32[2, 6, 8, 8]
  %relu = aten.relu(%grouped): f32[2, 6, 8, 8]
  %pool = aten.adaptive_avg_pool2d(%relu, [1, 1]): f32[2, 6, 1, 1]
  %flat = aten.view(%pool, [2, 6]): f32[2, 6]
  %fc = aten.linear(%flat, %w5): f32[2, 5]
  return %fc
}
"#;

#[test]
fn the_float_graph_keeps_every_bit() {
    let p = prepared(&filled(CHAIN));
    let (q, pairs) = equalize(&p).unwrap().unwrap();
    assert_eq!(pairs, ["expand → depthwise", "depthwise → project", "project → up", "up → grouped", "grouped → fc"]);
    let x = [input(&[2, 3, 9, 9])];
    let (want, got) = (reference::run(&p.graph, &x).unwrap(), reference::run(&q.graph, &x).unwrap());
    let bits = |t: &Tensor| t.to_f32().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&want[0]), bits(&got[0]));
    // Clamps keep their names and have a bound for each channel.
    let clamp = q.graph.node(q.graph.find("relu6").unwrap());
    assert_eq!(clamp.op().unwrap().name, "aten.clamp.Tensor");
    let max = q.graph.constant(clamp.arg("max").unwrap().nodes()[0]).unwrap();
    assert_eq!(max.shape(), [8, 1, 1]);
    assert!(max.to_f32().iter().any(|m| *m != 6.0) && max.to_f32().iter().all(|m| (m / 6.0).log2().fract() == 0.0));
}

#[test]
fn channels_have_equal_ranges_on_both_sides() {
    let (q, _) = equalize(&prepared(&filled(CHAIN))).unwrap().unwrap();
    let w = |name: &str| q.graph.constants[name].to_f32().into_owned();
    let most = |it: &mut dyn Iterator<Item = &f32>| it.fold(0f32, |m, v| m.max(v.abs()));
    let (expand, depthwise, project) = (w("expand.weight"), w("depthwise.weight"), w("project.weight"));
    for c in 0..8 {
        let out = most(&mut expand[c * 3..c * 3 + 3].iter());
        let through = most(&mut depthwise[c * 9..c * 9 + 9].iter());
        let into = most(&mut project.iter().skip(c).step_by(8));
        for (a, b) in [(out, through), (through, into)] {
            assert!((a / b).log2().abs() <= 1.0, "channel {c}: {out} {through} {into}");
        }
    }
}

#[test]
fn what_is_not_a_pair_stays() {
    let net = |body: &str| {
        filled(&format!(
            "graph(%x: f32[1, 4, 6, 6]) {{\n  %a = param \"a\": f32[4, 4, 1, 1]\n  %b = param \"b\": f32[4, 4, 1, 1]\n{body}\n}}\n"
        ))
    };
    let pairs = |g: &Graph| equalize(&prepared(g)).unwrap().map(|(_, pairs)| pairs.len());
    let chain = "  %c = aten.conv2d(%x, %a)\n  %r = aten.relu(%c)\n  %d = aten.conv2d(%r, %b)\n  return %d";
    assert_eq!(pairs(&net(chain)), Some(1));
    // A scale for each channel needs no help.
    assert!(equalize(&prepared_by(&net(chain), &TomlQuantizer::load("cpu").unwrap())).unwrap().is_none());
    for (why, body) in [
        ("a sigmoid does not commute", chain.replace("relu", "sigmoid")),
        (
            "another reader",
            "  %c = aten.conv2d(%x, %a)\n  %d = aten.conv2d(%c, %b)\n  %e = aten.add.Tensor(%d, %c)\n  return %e"
                .into(),
        ),
        ("a result", "  %c = aten.conv2d(%x, %a)\n  %d = aten.conv2d(%c, %b)\n  return %d, %c".into()),
        ("one weight for both", chain.replace("%b)", "%a)")),
    ] {
        assert_eq!(pairs(&net(&body)), None, "{why}");
    }
    let as_weight = "graph(%x: f32[4, 4, 1, 1]) {\n  %a = param \"a\": f32[4, 4, 1, 1]\n  %b = param \"b\": f32[4, 4, 1, 1]\n  %c = aten.conv2d(%x, %a)\n  %d = aten.conv2d(%b, %c)\n  return %d\n}\n";
    assert_eq!(pairs(&filled(as_weight)), None);
}

/// The shape that scales per tensor find hard.
#[test]
fn depthwise_networks_bear_one_scale_for_each_weight() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tensorwise.toml");
    std::fs::write(&file, TENSORWISE).unwrap();
    let g = cleave_formats::read(&cleave_tests::fixture("fashion/depthwise_fashion.pt2")).unwrap();
    let inputs = [cleave::demo::calibration(64)];
    let settings = Settings { quantizer: file.to_str().unwrap().into(), ..Settings::default() };
    let done = pipeline::quantize(&g, &inputs[..], &settings, &mut |_, _, _| {}).unwrap();
    let gain = done.check.gains.iter().find(|g| g.method == "equalization").unwrap();
    assert!(gain.kept && gain.sqnr_db[1] - gain.sqnr_db[0] > 5.0, "{gain:?}");
    assert!(done.check.outputs.iter().all(|(_, s)| s.sqnr_db > 15.0), "{:?}", done.check.outputs);
}
