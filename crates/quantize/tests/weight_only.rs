//! Weights as integers per group or channel beside float activations.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Graph, Levels, NodeId, Tensor, text, verify};
use cleave_quantize::{
    BoxError, CalibrateOptions, Converted, Evaluator, Selection, Status, TomlQuantizer, annotate, calibrate, convert,
    prepare,
};

const NET: &str = r#"graph(%x: f32[N, 8]) {
  %w = param "w": f32[2, 8]
  %b = param "b": f32[2]
  %linear = aten.linear(%x, %w, %b): f32[N, 2]
  return %linear
}
"#;

const W: [f32; 16] = [7.5, 1.0, -2.0, -7.5, 0.75, 0.1, -0.75, 0.4, 0.0, 0.0, 0.0, 0.0, 15.0, -15.0, 3.0, 0.5];

/// No activation is observed, so nobody need run the graph.
struct Nothing;

impl Evaluator for Nothing {
    fn run(
        &mut self,
        _: &Graph,
        _: &[Tensor],
        _: &[NodeId],
        _: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>, BoxError> {
        Ok(vec![])
    }
}

fn quantizer(dtype: &str, scheme: &str) -> Result<TomlQuantizer, String> {
    let text = format!(
        "[quantizer]\nname = \"mine\"\narithmetic = \"divide\"\n[spec.weight]\ndtype = \"{dtype}\"\n{scheme}\n[[pattern]]\nname = \"linear\"\nmatch = \"linear(x, w, b?)\"\nwhere = [\"constant(w)\"]\ninputs = {{ w = \"weight\" }}\n"
    );
    TomlQuantizer::parse(&text, "mine.toml").map_err(|e| e.to_string())
}

fn converted(dtype: &str, group: usize) -> Converted {
    let mut g = text::parse(NET).unwrap();
    g.constants.insert("w".into(), Tensor::new(&[2, 8], W.to_vec()));
    g.constants.insert("b".into(), Tensor::new(&[2], vec![0.5f32, -0.5]));
    let q = quantizer(dtype, &format!("scheme = \"per_group_symmetric\"\ngroup_size = {group}")).unwrap();
    let p = prepare(&g, &annotate(&g, &q, &Selection::default()).unwrap()).unwrap();
    let sample = [Ok(vec![])].into_iter();
    let stats = calibrate(&p, &mut Nothing, sample, CalibrateOptions::default(), &mut |_| {}).unwrap();
    let c = convert(&p, &stats).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    c
}

#[test]
fn groups_have_their_own_scales() {
    let c = converted("s4", 4);
    let text = c.graph.to_string();
    for line in [
        "%w_q = param \"w_q\": i8[4, 4]",
        "%w_dq_groups = quantized_decomposed.dequantize_per_channel(%w_q, %w_scale, %w_zero_point, 0, -8, 7, i8): f32[4, 4]",
        "%w_dq = aten.view(%w_dq_groups, [2, 8]): f32[2, 8]",
        "%linear = aten.linear(%x, %w_dq, %b): f32[N, 2]",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // The widest scale stands for the group of zeros; 7.5 steps are cut to 7.
    assert_eq!(c.graph.constants["w_scale"].to_f32().as_ref(), [1.0, 0.1, 2.0, 2.0]);
    let q = c.graph.constants["w_q"].elements::<i8>().unwrap().into_owned();
    assert_eq!(q, [7, 1, -2, -8, 7, 1, -8, 4, 0, 0, 0, 0, 7, -8, 2, 0]);
    assert_eq!(c.plan.row("linear").unwrap().status, Status::Quantized);
    let whole = converted("s8", 8);
    assert_eq!(whole.graph.constants["w_scale"].to_f32().as_ref(), [7.5 / 127.5, 15.0 / 127.5]);
}

#[test]
fn groups_that_do_not_fit_are_told() {
    let c = converted("s8", 3);
    assert_eq!(
        c.plan.notes,
        ["weight of linear kept float: the last axis of [2, 8] is no multiple of the group size 3"]
    );
    let refused = |dtype: &str, scheme: &str| quantizer(dtype, scheme).err().unwrap();
    assert!(refused("s8", "scheme = \"per_group_symmetric\"").contains("needs group_size, 1 or more"));
    assert!(
        refused("s8", "scheme = \"per_channel_symmetric\"\ngroup_size = 4")
            .contains("a key that its scheme does not use")
    );
    for dtype in ["u8", "u4"] {
        assert!(refused(dtype, "scheme = \"per_channel_symmetric\"").contains("weights are symmetric around 0"));
    }
}
