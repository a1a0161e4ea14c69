//! patterns/README.md, followed word for word.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::pipeline::{Settings, kernels, quantize};
use cleave::{model, patterns};
use cleave_quantize::{Quantizer, Selection, TomlQuantizer, annotate};
use cleave_rewrite::PREDICATES;
use cleave_runtime::Options;
use cleave_tests::onnx::Net;
use cleave_tests::quantized::{numbers, samples, status};
use cleave_tests::root;
use std::path::PathBuf;

fn readme() -> String {
    std::fs::read_to_string(root().join("patterns/README.md")).unwrap()
}

/// The README's blocks of a language, in order.
fn blocks(language: &str) -> Vec<String> {
    let text = readme();
    let fence = format!("```{language}\n");
    let starts = text.split(&fence).skip(1);
    starts.map(|b| b.split("```").next().unwrap().to_string()).collect()
}

/// The README's file and its test.
fn mine(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, format!("{}\n{}", blocks("toml")[0], blocks("toml")[1])).unwrap();
    path
}

/// The made-up unit, with the factor on either side.
fn network() -> Net {
    let net = Net::new("1 3 8 8").init("w", numbers(&[4, 3, 3, 3], 0.5)).init("b", numbers(&[4], 0.5));
    let net = net.init("s", numbers(&[1, 4, 1, 1], 2.0)).init("v", numbers(&[5, 4, 1, 1], 0.7));
    let net = net.init("t", numbers(&[5, 1, 1], 2.0));
    let net = net.node("Conv", "x w b", "c", &[]).node("Mul", "c s", "m", &[]).node("HardSwish", "m", "h", &[]);
    net.node("Conv", "h v", "d", &[]).node("Mul", "t d", "n", &[]).node("HardSwish", "n", "y", &[])
}

#[test]
fn the_readmes_pattern_is_short_fires_is_explained_and_runs_as_one_kernel() {
    let lines = blocks("toml")[0].lines().filter(|l| !l.trim().is_empty()).count();
    assert!(lines < 12, "{lines} lines");
    let dir = tempfile::tempdir().unwrap();
    let name = mine(&dir).display().to_string();
    let g = network().read("y");
    let quantizer = TomlQuantizer::load(&name).unwrap();

    let found = patterns::check(&quantizer, &g).unwrap();
    assert_eq!((found[0].pattern.as_str(), found[0].units.len()), ("conv_scale_hardswish", 2), "{found:?}");

    let settings = Settings { quantizer: name, ..Settings::default() };
    let x = samples(&[1, 3, 8, 8]);
    let q = quantize(&g, std::slice::from_ref(&x), &settings, &mut |_, _, _| {}).unwrap();
    for node in ["c", "m", "h", "d", "n", "y"] {
        assert_eq!(status(&q, node), cleave_quantize::Status::Quantized);
        assert_eq!(q.converted.plan.row(node).unwrap().pattern.as_deref(), Some("conv_scale_hardswish"), "{node}");
    }
    assert!(q.check.outputs[0].1.sqnr_db > 30.0, "{:?}", q.check.outputs);

    let plan = kernels(&q.converted.graph, &[vec![1, 3, 8, 8]], Options::default()).unwrap();
    let fused: Vec<&str> = plan.kernels.iter().map(|k| k.name.as_str()).filter(|k| k.starts_with("conv2d")).collect();
    assert_eq!(fused, ["conv2d_u8s8_mul_hardswish_1", "conv2d_u8s8_mul_hardswish_2"], "{plan:?}");
    assert!(plan.kernels.len() <= 4, "{plan:?}");

    let (raised, text) = annotated(&quantizer, &g);
    insta::with_settings!({ snapshot_path => root().join("snapshots/patterns"), prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("conv_scale_hardswish", text);
    });
    assert_eq!(raised.op_counts().get("aten.mul.Tensor"), Some(&2), "the factors are not folded away");
    let (folded, _) = annotated(&TomlQuantizer::load("cpu").unwrap(), &g);
    assert_eq!(folded.op_counts().get("aten.mul.Tensor"), None, "where no pattern names them, they are");
}

fn annotated(quantizer: &TomlQuantizer, g: &cleave_ir::Graph) -> (cleave_ir::Graph, String) {
    let raised = model::raise_for(g, quantizer).unwrap();
    let a = annotate(&raised, quantizer, &Selection::default()).unwrap();
    let lines = a.units.iter().map(|u| {
        let names: Vec<&str> = u.nodes.iter().map(|n| raised.node(*n).name.as_str()).collect();
        format!("{}   # {}\n", names.join(" "), a.comment(u.root).unwrap_or_default())
    });
    let text = lines.collect();
    (raised, text)
}

#[test]
fn the_readmes_test_passes_and_a_wrong_one_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = mine(&dir);
    let results = patterns::test(&TomlQuantizer::load(path.to_str().unwrap()).unwrap());
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].failure, None, "{results:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("aten.hardswish(%mul)", "aten.silu(%mul)")).unwrap();
    let results = patterns::test(&TomlQuantizer::load(path.to_str().unwrap()).unwrap());
    let why = results[0].failure.clone().unwrap();
    assert!(
        why.starts_with("expected [\"conv_scale_hardswish: conv2d mul hardswish\"], found [\"conv_bn_act"),
        "{why}"
    );
}

#[test]
fn what_declines_is_told_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let quantizer = TomlQuantizer::load(mine(&dir).to_str().unwrap()).unwrap();
    // The factor is an input, not a constant: the unit's lookalike.
    let net = Net::new("1 3 8 8").init("w", numbers(&[3, 3, 1, 1], 0.5));
    let g = net.node("Conv", "x w", "c", &[]).node("Mul", "c x", "m", &[]).node("HardSwish", "m", "y", &[]).read("y");
    let found = patterns::check(&quantizer, &g).unwrap();
    assert!(found[0].units.is_empty());
    let a = annotate(&model::raise_for(&g, &quantizer).unwrap(), &quantizer, &Selection::default()).unwrap();
    let near: Vec<String> = a.misses.iter().map(|(_, m)| format!("{} {}: {}", m.pattern, m.step, m.why)).collect();
    assert!(near.iter().chain(&declined(&found)).any(|n| n.contains("s is not a constant")), "{near:?} {found:?}");
}

fn declined(found: &[patterns::Found]) -> Vec<String> {
    found.iter().flat_map(|f| &f.declined).map(|(n, m)| format!("{n} {}: {}", m.step, m.why)).collect()
}

#[test]
fn the_readme_lists_every_predicate_and_quantizer() {
    let text = readme();
    for p in PREDICATES {
        assert!(text.contains(&format!("| `{}` | {} |", p.form, p.doc)), "{} is missing or says another thing", p.form);
    }
    for (name, _) in cleave_quantize::BUILT_IN {
        assert!(text.contains(&format!("| `{name}.toml` |")), "{name}");
    }
}

#[test]
fn the_readmes_overrides_are_read() {
    let specs = "[spec.precise]\ndtype = \"u16\"\nscheme = \"per_tensor_affine\"\nobserver = \"minmax\"\n";
    let text = format!("[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n{specs}{}", blocks("toml")[2]);
    let q = TomlQuantizer::parse(&text, "mine.toml").unwrap();
    assert_eq!(q.overrides().len(), 2);
    let e = annotate(&network().read("y"), &q, &Selection::default()).unwrap_err().to_string();
    assert!(e.starts_with("selector 'module:head.*': it selects no node"), "{e}");
}
