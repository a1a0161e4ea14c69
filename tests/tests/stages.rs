//! Stages on the small trained networks: op counts beside torch's, and the graphs under snapshot.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::stage::{Model, Stage};
use cleave_ir::Graph;
use cleave_tests::{fixture, root};
use indexmap::IndexMap;

fn model(name: &str) -> Model {
    Model::read(&fixture(&format!("fashion/{name}.pt2"))).unwrap()
}

fn counts(g: &Graph) -> IndexMap<String, usize> {
    let mut c: IndexMap<_, _> = g.op_counts().into_iter().map(|(k, n)| (k.to_string(), n)).collect();
    c.sort_keys();
    c
}

/// torch's own counts; that of one stage is missing where Cleave has no such table.
fn recorded(network: &str, stage: &str) -> IndexMap<String, usize> {
    let text = std::fs::read_to_string(fixture("fashion/histograms.json")).unwrap();
    let all: IndexMap<String, IndexMap<String, IndexMap<String, usize>>> = serde_json::from_str(&text).unwrap();
    let mut c = all[network][stage].clone();
    c.sort_keys();
    c
}

#[test]
fn op_counts_are_torchs_at_every_depth() {
    for network in ["tiny_static", "tiny_fashion", "depthwise_fashion"] {
        let m = model(network);
        let before = m.export().to_string();
        for stage in ["export", "empty", "core"] {
            let g = m.at(&Stage::parse(stage).unwrap()).unwrap();
            assert_eq!(counts(&g), recorded(network, stage), "{network} at {stage}");
        }
        assert_eq!(m.export().to_string(), before, "{network}: a stage changed the exported graph");
    }
}

/// The seed's count: placeholders, parameters, calls and the output; four batch norms become two nodes each.
#[test]
fn the_empty_table_adds_a_getitem_for_each_batch_norm() {
    let m = model("tiny_static");
    let sizes = ["export", "empty"].map(|s| m.at(&Stage::parse(s).unwrap()).unwrap().len());
    assert_eq!(sizes, [46, 50]);
}

#[test]
fn stages_of_the_tiny_network_are_as_reviewed() {
    let m = model("tiny_fashion");
    insta::with_settings!({snapshot_path => root().join("snapshots/stages"), prepend_module_to_snapshot => false}, {
        for name in ["tiny_fashion_export", "tiny_fashion_raised", "tiny_fashion_prepared", "tiny_fashion_empty", "tiny_fashion_core"] {
            let stage = name.rsplit('_').next().unwrap();
            insta::assert_snapshot!(name, m.at(&Stage::parse(stage).unwrap()).unwrap().to_string());
        }
        let (g, notes) = m.annotated().unwrap();
        let comment = |id| notes.comment(id);
        insta::assert_snapshot!("tiny_fashion_annotated", cleave_ir::text::Printer::with_comments(&comment).print(&g));
    });
}

#[test]
fn printed_graphs_parse_back() {
    let m = model("depthwise_fashion");
    for stage in ["export", "raised", "prepared", "empty", "core", "cpu"] {
        let g = m.at(&Stage::parse(stage).unwrap()).unwrap();
        let text = g.to_string();
        assert_eq!(cleave_ir::text::parse(&text).unwrap().to_string(), text, "{stage}");
    }
}

/// The same network from .pt2 and from .onnx is the same to a quantizer.
#[test]
fn both_formats_raise_to_the_same_units() {
    for network in ["tiny_fashion", "depthwise_fashion"] {
        let units = |ext: &str| {
            let m = Model::read(&fixture(&format!("fashion/{network}.{ext}"))).unwrap();
            let (_, a) = m.annotated().unwrap();
            let mut of: IndexMap<String, usize> = IndexMap::new();
            a.units.iter().for_each(|u| *of.entry(u.pattern.clone()).or_default() += 1);
            of.sort_keys();
            of
        };
        assert_eq!(units("pt2"), units("onnx"), "{network}");
    }
}

#[test]
fn a_batch_norm_whose_convolution_has_another_user_is_not_folded() {
    let m = Model::read(&fixture("shared_conv.pt2")).unwrap();
    let (g, a) = m.annotated().unwrap();
    let plan = cleave_quantize::prepare(&g, &a).unwrap().plan();
    let row = |n: &str| plan.row(n).unwrap();
    assert_eq!(row("batch_norm").status, cleave_quantize::Status::Float);
    assert_eq!(row("batch_norm").reason.as_deref(), Some("not folded: conv2d has 2 users"));
    assert_eq!(row("batch_norm_1").status, cleave_quantize::Status::Folded);
    // torch.relu, as any relu.
    assert_eq!(
        (row("relu_1").status, row("relu_1").pattern.as_deref()),
        (cleave_quantize::Status::Quantized, Some("conv_bn_act"))
    );
}
