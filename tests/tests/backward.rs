//! Joint graphs: gradients beside those that torch recorded, whole networks under every table, and one under snapshot.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_decompose::{Table, backward, decompose};
use cleave_formats::npy::read_npz;
use cleave_formats::pt2::read_pt2;
use cleave_ir::{Graph, Levels, Tensor, text, verify};
use cleave_runtime::reference;
use cleave_tests::{fixture, root};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    graph: String,
    inputs: Vec<Vec<f32>>,
    seed: Vec<f32>,
    gradients: Vec<Vec<f32>>,
}

const CLOSE: f32 = 1e-5;

/// How far two arrays are apart, of the greatest element, if that is more than it may be.
fn apart(got: &[f32], want: &[f32]) -> Option<f32> {
    let scale = want.iter().fold(1.0, |m: f32, v| m.max(v.abs()));
    let worst = got.iter().zip(want).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs() / scale));
    (got.len() != want.len() || worst.is_nan() || worst > CLOSE).then_some(worst)
}

/// Inputs of a joint graph, by its placeholders' shapes.
fn inputs(g: &Graph, values: Vec<Vec<f32>>) -> Vec<Tensor> {
    let shape =
        |id| g.tensor_meta(id).unwrap().shape.iter().map(|d| d.as_const().unwrap() as usize).collect::<Vec<_>>();
    g.placeholders().into_iter().zip(values).map(|(id, v)| Tensor::new(&shape(id), v)).collect()
}

#[test]
fn gradients_are_torchs() {
    let cases: Vec<Case> =
        serde_json::from_str(&std::fs::read_to_string(fixture("gradients/cases.json")).unwrap()).unwrap();
    assert!(cases.len() > 40);
    let mut bad = vec![];
    for case in cases {
        let forward = text::parse(&case.graph).unwrap();
        let call = case.graph.lines().nth(1).unwrap().to_string();
        let joint = match backward(&forward) {
            Ok(g) => g,
            Err(e) => {
                bad.push(format!("{call}: {e}"));
                continue;
            }
        };
        let fed = inputs(&joint, case.inputs.into_iter().chain([case.seed]).collect());
        let got = reference::run(&joint, &fed).unwrap();
        for (i, (got, want)) in got[1..].iter().zip(&case.gradients).enumerate() {
            if let Some(worst) = apart(&got.to_f32(), want) {
                bad.push(format!("{call}: input {i} is {worst} away: {:?}, not {want:?}", got.to_f32()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_networks_gradients_are_torchs() {
    let joint = backward(&read_pt2(&fixture("fashion/tiny_static.pt2")).unwrap()).unwrap();
    let recorded = read_npz(&fixture("gradients/tiny_static.npz")).unwrap();
    let results = reference::run(&joint, &[recorded["input"].clone(), recorded["seed"].clone()]).unwrap();
    let mut compared = 0;
    for (name, got) in joint.output_names.iter().zip(&results) {
        let Some(of) = name.strip_prefix("grad_") else { continue };
        let want = recorded.get(of).unwrap_or(&recorded["grad_input"]);
        assert_eq!(apart(&got.to_f32(), &want.to_f32()), None, "{of}");
        compared += 1;
    }
    assert_eq!(compared, recorded.len() - 2);
}

/// A result that a backward op was not asked for is none in a file.
#[test]
fn joint_graphs_go_into_files_and_back() {
    let joint = backward(&read_pt2(&fixture("fashion/tiny_static.pt2")).unwrap()).unwrap();
    let core = decompose(&joint, &Table::core()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for name in ["joint.pt2", "joint.clv"] {
        let path = dir.path().join(name);
        cleave::pipeline::write(&path, &core).unwrap();
        let again = cleave_formats::read(&path).unwrap();
        assert_eq!(again.op_counts(), core.op_counts(), "{name}");
        assert_eq!(again.output_names.len(), core.output_names.len(), "{name}");
    }
}

fn network(name: &str) -> Graph {
    text::parse(&std::fs::read_to_string(fixture(&format!("graphs/{name}.graph"))).unwrap()).unwrap()
}

#[test]
fn joint_graphs_go_through_the_tables() {
    let graphs = [
        read_pt2(&fixture("fashion/tiny_static.pt2")).unwrap(),
        read_pt2(&fixture("fashion/tiny_fashion.pt2")).unwrap(),
        network("mobilenet_v2"),
        network("vit_b_16"),
    ];
    for g in graphs {
        let joint = backward(&g).unwrap();
        let params = g.nodes().filter(|(_, n)| n.kind == cleave_ir::Kind::GetAttr(cleave_ir::ConstKind::Param)).count();
        let inputs = g.placeholders().len();
        assert_eq!(joint.results().len(), g.results().len() + inputs + params);
        assert_eq!(joint.placeholders().len(), inputs + g.results().len());
        for (table, level) in [(Table::core(), Levels::CORE), (Table::prims(), Levels::PRIMS)] {
            let low = decompose(&joint, &table).unwrap();
            verify::verify(&low, level.and(Levels::ATEN)).unwrap();
            assert_eq!(low.output_names, joint.output_names);
        }
    }
}

#[test]
fn the_joint_graph_of_a_small_network_is_as_reviewed() {
    let g = text::parse(
        r#"graph(%x: f32[N, 1, 6, 6]) where 1 <= N {
  %weight = param "conv.weight": f32[2, 1, 3, 3]
  %bias = param "conv.bias": f32[2]
  %rows = param "fc.weight": f32[3, 32]
  %conv = aten.conv2d(%x, %weight, %bias)
  %relu = aten.relu(%conv)
  %flat = aten.flatten.using_ints(%relu, 1)
  %fc = aten.linear(%flat, %rows)
  return %fc "y"
}"#,
    )
    .unwrap();
    insta::with_settings!({snapshot_path => root().join("snapshots/backward"), prepend_module_to_snapshot => false}, {
        insta::assert_snapshot!("conv_relu_linear", backward(&g).unwrap().to_string());
    });
}

/// Sizes that are known only when a joint graph runs give the same gradients as numbers.
#[test]
fn symbolic_sizes_go_along() {
    for call in [
        "aten.mean.dim(%x, [0, 2])",
        "aten.var.correction(%x, [0], 1)",
        "aten.sum.dim_IntList(%x, [0])",
        "aten.amax(%x, [0, 1])",
        "aten.prod.dim_int(%x, 0)",
        "aten.softmax.int(%x, 0)",
        "aten.layer_norm(%x, [4])",
        "aten.view(%x, [<3*N>, 4])",
        "aten.slice.Tensor(%x, 0, 1, <N>)",
        "aten.cat([%x, %x], 0)",
        "aten.roll(%x, [1], [1])",
        "aten.repeat(%x, [2, 1, 3])",
        "aten.constant_pad_nd(%x, [1, -1, 0, 0, 2, 0])",
        "aten.mul.Tensor(%x, %row)",
        "aten.linear(%x, %row)",
    ] {
        let src = format!("graph(%x: f32[N, 3, 4], %row: f32[1, 4]) where 2 <= N {{\n %y = {call}\n return %y\n}}");
        let forward = text::parse(&src).unwrap();
        let joint = backward(&forward).unwrap();
        let with = [("N".to_string(), 5)].into_iter().collect();
        let fixed = cleave_ir::transform::bind(&forward, &with).unwrap();
        let numbers = |n: usize| (0..n).map(|i| ((i * 37 % 19) as f32 - 9.0) / 6.0).collect::<Vec<_>>();
        let shape = fixed.tensor_meta(fixed.results()[0]).unwrap().shape.clone();
        let shape: Vec<usize> = shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
        let seed = Tensor::new(&shape, numbers(shape.iter().product()));
        let fed = [Tensor::new(&[5, 3, 4], numbers(60)), Tensor::new(&[1, 4], numbers(4)), seed];
        let want = reference::run(&backward(&fixed).unwrap(), &fed).unwrap();
        for g in
            [joint.clone(), decompose(&joint, &Table::core()).unwrap(), decompose(&joint, &Table::prims()).unwrap()]
        {
            for (got, want) in reference::run(&g, &fed).unwrap().iter().zip(&want) {
                assert_eq!(apart(&got.to_f32(), &want.to_f32()), None, "{call}");
            }
        }
    }
}

/// Functions of two arguments that have a derivative by the second.
#[test]
fn a_constant_may_stand_where_there_is_no_derivative() {
    for call in ["aten.igamma(%a, %x)", "aten.igammac(%a, %x)", "aten.special_zeta(%a, %x)"] {
        let src = format!("graph(%x: f64[3]) {{\n %a = buffer \"a\": f64[]\n %y = {call}\n return %y\n}}");
        let mut g = text::parse(&src).unwrap();
        g.constants.insert("a".into(), Tensor::new(&[], vec![2.3f64]));
        let at = |x: [f64; 3]| reference::run(&g, &[Tensor::new(&[3], x.to_vec())]).unwrap()[0].to_f64();
        let (x, step) = ([0.7, 1.3, 2.9], 1e-5);
        let (above, below) = (at(x.map(|v| v + step)), at(x.map(|v| v - step)));
        let fed = [Tensor::new(&[3], x.to_vec()), Tensor::new(&[3], vec![1f64; 3])];
        let got = reference::run(&backward(&g).unwrap(), &fed).unwrap()[1].to_f64();
        for i in 0..3 {
            let want = (above[i] - below[i]) / (2.0 * step);
            assert!((got[i] - want).abs() < 1e-8 * want.abs().max(1.0), "{call}: {} {want}", got[i]);
        }
    }
}

/// The gradient of a branch is that of the branch which was taken.
#[test]
fn branches_have_gradients() {
    let src = r#"graph(%x: f32[N, 4], %p: bool[]) where 1 <= N {
  %w = param "w": f32[4]
  %cond = higher_order.cond(%p, graph(%a: f32[n, 4], %w: f32[4]) where 1 <= n {
    %mul = aten.mul.Tensor(%a, %w)
    return %mul
  }, graph(%a: f32[n, 4], %w: f32[4]) where 1 <= n {
    %sin = aten.sin(%a)
    return %sin
  }, [%x, %w])
  %getitem = getitem(%cond, 0)
  return %getitem "y"
}
"#;
    let mut g = text::parse(src).unwrap();
    g.constants.insert("w".into(), Tensor::new(&[4], vec![1f32, 2.0, -3.0, 0.5]));
    let joint = backward(&g).unwrap();
    assert_eq!(joint.output_names, ["y", "grad_x", "grad_w"]);
    let (x, seed) = ([0.1f32, 0.2, 0.3, 0.4], [1f32, -1.0, 2.0, 3.0]);
    for (p, want_x, want_w) in [
        (true, [1f32, -2.0, -6.0, 1.5], [0.1f32, -0.2, 0.6, 1.2]),
        (false, std::array::from_fn(|i| seed[i] * x[i].cos()), [0.0; 4]),
    ] {
        let fed =
            [Tensor::new(&[1, 4], x.to_vec()), Tensor::from_bools(&[], &[p]), Tensor::new(&[1, 4], seed.to_vec())];
        for g in [joint.clone(), decompose(&joint, &Table::prims()).unwrap()] {
            let got = reference::run(&g, &fed).unwrap();
            assert_eq!(apart(&got[1].to_f32(), &want_x), None, "{p}");
            assert_eq!(apart(&got[2].to_f32(), &want_w), None, "{p}");
        }
    }
}

#[test]
fn what_has_no_gradient_is_named() {
    let says = |body: &str| {
        let src = format!("graph(%x: f32[2, 4]) {{\n{body}\n return %y\n}}");
        backward(&text::parse(&src).unwrap()).map(|g| g.to_string()).map_err(|e| e.to_string())
    };
    let quantized = "%q = quantized_decomposed.quantize_per_tensor(%x, 0.5, 0, -128, 127, i8)
 %y = quantized_decomposed.dequantize_per_tensor(%q, 0.5, 0, -128, 127, i8)";
    assert_eq!(
        says(quantized).unwrap_err(),
        "derivative of quantized_decomposed.dequantize_per_tensor on node 'y': gradients do not pass through integer levels; take them of the float model"
    );
    let zeros = |body: &str| assert!(says(body).unwrap().contains("aten.full([2, 4], 0, f32)"), "{body}");
    zeros("%y = aten.argmax(%x)");
    zeros("%y = aten.floor(%x)");
    zeros("%d = aten.detach(%x)\n %y = aten.mul.Tensor(%d, %d)");
}

/// Gradients of further cases, where `GRADIENTS_DIR` names a folder with `gradients.npz` beside the cases of `CASES_DIR`:
/// `seed_<i>` for each float result, `grad_<i>` for each float input.
#[test]
fn further_gradients_are_torchs() {
    let (Some(gradients), Some(cases)) = (std::env::var_os("GRADIENTS_DIR"), std::env::var_os("CASES_DIR")) else {
        return;
    };
    let (mut bad, mut held) = (vec![], 0);
    for case in cleave::conformance::find_cases(std::path::Path::new(&cases)).unwrap() {
        let name = case.dir.strip_prefix(&cases).unwrap().display().to_string();
        let recorded = std::path::Path::new(&gradients).join(&name).join("gradients.npz");
        if !recorded.exists() {
            continue;
        }
        match further(&case, &recorded) {
            Ok(()) => held += 1,
            Err(why) => bad.push(format!("{name}: {why}")),
        }
    }
    eprintln!("{held} hold");
    assert!(bad.is_empty(), "{} do not hold:\n{}", bad.len(), bad.join("\n"));
}

fn further(case: &cleave::conformance::Case, recorded: &std::path::Path) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let forward = cleave_formats::read(&case.model).map_err(|e| text(&e))?;
    let joint = backward(&forward).map_err(|e| text(&e))?;
    let (inputs, recorded) = (read_npz(&case.dir.join("inputs.npz")), read_npz(recorded).unwrap());
    let mut inputs: Vec<(usize, Tensor)> =
        inputs.unwrap().into_iter().map(|(n, t)| (n.trim_start_matches("ts_").parse().unwrap(), t)).collect();
    inputs.sort_by_key(|(i, _)| *i);
    let mut fed: Vec<Tensor> = inputs.into_iter().map(|(_, t)| t).collect();
    fed.extend((0..).map_while(|i| recorded.get(&format!("seed_{i}")).cloned()));
    let results = reference::run(&joint, &fed).map_err(|e| text(&e))?;
    let got = joint.output_names.iter().zip(&results).filter(|(n, _)| n.starts_with("grad_"));
    let want = (0..).map_while(|i| recorded.get(&format!("grad_{i}")));
    for (i, ((_, got), want)) in got.zip(want).enumerate() {
        let (a, b) = (got.to_f64(), want.to_f64());
        let scale = b.iter().filter(|v| v.is_finite()).fold(1.0, |m: f64, v| m.max(v.abs()));
        let same = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= 1e-5 * scale;
        if a.len() != b.len() || !a.iter().zip(&b).all(same) {
            let at = a.iter().zip(&b).position(|p| !same(p)).unwrap_or(0);
            return Err(format!(
                "input {i} at {at}: {:?}, not {:?} ({})",
                a.get(at),
                b.get(at),
                joint.op_counts().keys().cloned().collect::<Vec<_>>().join(" ")
            ));
        }
    }
    Ok(())
}
