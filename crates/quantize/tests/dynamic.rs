//! Activations whose scale is computed as the model runs.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Levels, Tensor, text, verify};
use cleave_quantize::{Converted, Selection, Statistics, Status, TomlQuantizer, annotate, convert, prepare};

const NET: &str = r#"graph(%x: f32[N, 4]) {
  %w = param "w": f32[3, 4]
  %b = param "b": f32[3]
  %v = param "v": f32[2, 4]
  %linear = aten.linear(%x, %w, %b): f32[N, 3]
  %other = aten.linear(%x, %v): f32[N, 2]
  %cat = aten.cat([%linear, %other], 1): f32[N, 5]
  return %cat
}
"#;

fn quantizer(activation: &str, pattern: &str) -> Result<TomlQuantizer, String> {
    let text = format!(
        r#"[quantizer]
name = "mine"
[spec.activation]
{activation}
[spec.weight]
dtype = "s8"
range = [-127, 127]
scheme = "per_channel_symmetric"
[spec.bias]
dtype = "s32"
scheme = "derived"
from = ["x", "w"]
[[pattern]]
name = "linear"
match = "linear(x, w, b?)"
where = ["constant(w)"]
{pattern}
"#
    );
    TomlQuantizer::parse(&text, "mine.toml").map_err(|e| e.to_string())
}

const INPUTS: &str = "inputs = { x = \"activation\", w = \"weight\" }";

fn converted(activation: &str) -> Converted {
    let mut g = text::parse(NET).unwrap();
    g.constants.insert("w".into(), Tensor::new(&[3, 4], (0..12).map(|i| i as f32 - 6.0).collect()));
    g.constants.insert("v".into(), Tensor::new(&[2, 4], (0..8).map(|i| i as f32).collect()));
    let p =
        prepare(&g, &annotate(&g, &quantizer(activation, INPUTS).unwrap(), &Selection::default()).unwrap()).unwrap();
    assert!(!p.needs_data() && p.taps().is_empty());
    let c = convert(&p, &Statistics::new(&p)).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    c
}

#[test]
fn convert_writes_torchs_form() {
    let c = converted("dtype = \"u8\"\nscheme = \"per_tensor_affine\"\ndynamic = true\neps = \"torch\"");
    let text = c.graph.to_string();
    let lines = [
        "%x_qparams = quantized_decomposed.choose_qparams.tensor(%x, 0, 255, 0.000244140625, u8): (f64[1], i64[1])",
        "%x_scale = getitem(%x_qparams, 0): f64[1]",
        "%x_zero_point = getitem(%x_qparams, 1): i64[1]",
        "%x_q = quantized_decomposed.quantize_per_tensor.tensor(%x, %x_scale, %x_zero_point, 0, 255, u8): u8[N, 4]",
        "%x_dq = quantized_decomposed.dequantize_per_tensor.tensor(%x_q, %x_scale, %x_zero_point, 0, 255, u8): f32[N, 4]",
        "%linear = aten.linear(%x_dq, %w_dq, %b): f32[N, 3]",
        "%other = aten.linear(%x_dq_1, %v_dq): f32[N, 2]",
    ];
    for line in lines {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let count = |op: &str| c.graph.op_counts().get(op).copied();
    assert_eq!(count("quantized_decomposed.choose_qparams.tensor"), Some(1), "one choice for both readers");
    assert_eq!(count("quantized_decomposed.dequantize_per_tensor.tensor"), Some(2), "one dequantize for each");
    assert_eq!(c.plan.row("linear").unwrap().status, Status::Quantized);
    let c = converted("dtype = \"s8\"\nscheme = \"per_tensor_symmetric\"\ndynamic = true");
    let line = "choose_qparams_symmetric.tensor(%x, -128, 127, ";
    assert!(c.graph.to_string().contains(line), "{}", c.graph);
}

#[test]
fn what_means_nothing_is_an_error() {
    let refused = |activation: &str, pattern: &str| quantizer(activation, pattern).err().unwrap();
    let spec = |rest: &str| format!("dynamic = true\n{rest}");
    for (rest, why) in [
        ("dtype = \"u8\"\nscheme = \"per_tensor_affine\"\nobserver = \"minmax\"", "a dynamic spec observes nothing"),
        ("dtype = \"s16\"\nscheme = \"per_tensor_affine\"", "a dynamic spec is u8 or s8"),
        ("dtype = \"s8\"\nscheme = \"per_channel_symmetric\"", "is per_tensor_affine or per_tensor_symmetric"),
    ] {
        let said = refused(&spec(rest), INPUTS);
        assert!(said.contains(why), "{said}");
    }
    let u8 = spec("dtype = \"u8\"\nscheme = \"per_tensor_affine\"");
    for (pattern, why) in [
        ("inputs = { x = \"activation\", w = \"weight\", b = \"bias\" }", "leave the bias float"),
        ("inputs = { x = \"activation\", w = \"weight\" }\noutput = \"activation\"", "that is not dynamic"),
        ("inputs = { x = \"activation\", b = \"activation\" }\nshare = [\"x\", \"b\"]", "its scale is its own"),
    ] {
        let said = refused(&u8, pattern);
        assert!(said.contains(why), "{said}");
    }
}
