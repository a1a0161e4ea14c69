//! Weights as integers per group or channel beside float activations.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Levels, Tensor, text, verify};
use cleave_numerics::DType;
use cleave_quantize::{Converted, Selection, Statistics, Status, TomlQuantizer, annotate, convert, prepare};

const NET: &str = r#"graph(%x: f32[N, 8]) {
  %w = param "w": f32[2, 8]
  %b = param "b": f32[2]
  %linear = aten.linear(%x, %w, %b): f32[N, 2]
  return %linear
}
"#;

const W: [f32; 16] = [7.5, 1.0, -2.0, -7.5, 0.75, 0.1, -0.75, 0.4, 0.0, 0.0, 0.0, 0.0, 15.0, -15.0, 3.0, 0.5];

fn quantizer(dtype: &str, scheme: &str) -> Result<TomlQuantizer, String> {
    let text = format!(
        "[quantizer]\nname = \"mine\"\narithmetic = \"divide\"\n[spec.weight]\ndtype = \"{dtype}\"\n{scheme}\n[[pattern]]\nname = \"linear\"\nmatch = \"linear(x, w, b?)\"\nwhere = [\"constant(w)\"]\ninputs = {{ w = \"weight\" }}\n"
    );
    TomlQuantizer::parse(&text, "mine.toml").map_err(|e| e.to_string())
}

fn converted(dtype: &str, group: usize) -> Converted {
    by(&quantizer(dtype, &format!("scheme = \"per_group_symmetric\"\ngroup_size = {group}")).unwrap(), W)
}

/// The network with this weight, converted without data.
fn by(q: &TomlQuantizer, w: [f32; 16]) -> Converted {
    let mut g = text::parse(NET).unwrap();
    g.constants.insert("w".into(), Tensor::new(&[2, 8], w.to_vec()));
    g.constants.insert("b".into(), Tensor::new(&[2], vec![0.5f32, -0.5]));
    let p = prepare(&g, &annotate(&g, q, &Selection::default()).unwrap()).unwrap();
    let c = convert(&p, &Statistics::new(&p)).unwrap();
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

#[test]
fn affine_weights_have_zero_points() {
    let of = |dtype: &str, scheme: &str| by(&quantizer(dtype, scheme).unwrap(), W);
    let c = of("u4", "scheme = \"per_channel_affine\"");
    let line = "dequantize_per_channel(%w_q, %w_scale, %w_zero_point, 0, 0, 15, u8): f32[2, 8]";
    assert!(c.graph.to_string().contains(line), "{}", c.graph);
    let constants = &c.graph.constants;
    // [-7.5, 7.5] and [-15, 15] over 15 steps; halves go to the even neighbour, 0 - rne(-7.5) = 8.
    assert_eq!(constants["w_scale"].to_f32().as_ref(), [1.0, 2.0]);
    assert_eq!(constants["w_zero_point"].to_i64(), [8, 8]);
    let q = [15, 9, 6, 0, 9, 8, 7, 8, 8, 8, 8, 8, 15, 0, 10, 8];
    assert_eq!(constants["w_q"].elements::<u8>().unwrap().as_ref(), q);
    let c = of("s4", "scheme = \"per_channel_affine\"");
    assert_eq!(c.graph.constants["w_zero_point"].to_i64(), [0, 0]);
    assert_eq!(c.graph.constants["w_q"].elements::<i8>().unwrap().as_ref(), q.map(|v| v as i8 - 8));
    let c = of("u4", "scheme = \"per_group_affine\"\ngroup_size = 4");
    let constants = &c.graph.constants;
    // [-0.75, 0.75] over 15 steps is 0.1; the group of zeros takes the widest scale.
    assert_eq!(constants["w_scale"].to_f32().as_ref(), [1.0, 0.1, 2.0, 2.0]);
    assert_eq!(constants["w_zero_point"].to_i64(), [8, 8, 0, 8]);
    let q = [15, 9, 6, 0, 15, 9, 0, 12, 0, 0, 0, 0, 15, 0, 10, 8];
    assert_eq!(constants["w_q"].elements::<u8>().unwrap().as_ref(), q);
}

#[test]
fn halves_are_stored_and_computed_in_float() {
    for (name, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        let mut w = W;
        w[1] = 1.0 / 3.0;
        let c = by(&quantizer(name, "").unwrap(), w);
        let text = c.graph.to_string();
        for line in [
            format!("%w_{name} = param \"w_{name}\": {name}[2, 8]"),
            format!("%w_f32 = aten._to_copy(%w_{name}, f32): f32[2, 8]"),
            "%linear = aten.linear(%x, %w_f32, %b): f32[N, 2]".into(),
        ] {
            assert!(text.contains(&line), "{line}\n{text}");
        }
        let stored = &c.graph.constants[&format!("w_{name}")];
        assert_eq!(stored.dtype(), dtype);
        let third = if dtype == DType::F16 { 1365.0 / 4096.0 } else { 171.0 / 512.0 };
        assert_eq!((stored.to_f32()[0], stored.to_f32()[1]), (7.5, third));
        assert_eq!(c.plan.row("linear").unwrap().status, Status::Quantized);
    }
    let mut w = W;
    w[3] = -65_520.0;
    let c = by(&quantizer("f16", "").unwrap(), w);
    let row = c.plan.row("linear").unwrap();
    assert_eq!((row.status, row.reason.as_deref()), (Status::Float, Some("w reaches -65520, which f16 does not hold")));
    assert!(c.graph.constants.contains_key("w") && !c.graph.constants.contains_key("w_f16"));
    assert_eq!(by(&quantizer("bf16", "").unwrap(), w).plan.row("linear").unwrap().status, Status::Quantized);
}

#[test]
fn what_means_nothing_is_an_error() {
    for (dtype, rest, why) in [
        ("f16", "scheme = \"per_tensor_affine\"", "f16 and bf16 are casts"),
        ("f16", "zero_point = 3", "f16 and bf16 are casts"),
        ("bf16", "observer = \"minmax\"", "f16 and bf16 are casts"),
        ("bf16", "dynamic = true", "f16 and bf16 are casts"),
        ("u4", "", "integers need a scheme"),
        ("u4", "scheme = \"per_group_affine\"", "per_group_affine needs group_size, 1 or more"),
        ("u4", "scheme = \"per_channel_affine\"\nzero_point = 3", "a key that its scheme does not use"),
        ("s32", "scheme = \"per_channel_affine\"", "weights are integers of 4, 8 or 16 bits"),
        ("f8", "", "expected u8, s8, u16, s16, s32, s4, u4, f16 or bf16"),
    ] {
        let said = quantizer(dtype, rest).err().unwrap();
        assert!(said.contains(why), "{dtype} {rest}: {said}");
    }
}

/// A graph with its weights filled in, converted by quantizers without data.
fn converted_by(quantizers: &str, src: &str) -> Converted {
    let mut g = text::parse(src).unwrap();
    let wanted: Vec<_> = g
        .nodes()
        .filter(|(id, n)| n.op().is_none() && !n.target.is_empty() && g.tensor_meta(*id).is_ok())
        .map(|(id, n)| (n.target.clone(), g.tensor_meta(id).unwrap().shape.clone()))
        .filter(|(_, s)| s.iter().all(|d| d.as_const().is_some()))
        .collect();
    for (name, shape) in wanted {
        let shape: Vec<usize> = shape.iter().map(|d| usize::try_from(d.as_const().unwrap()).unwrap()).collect();
        let n = shape.iter().product::<usize>();
        g.constants.insert(name, Tensor::new(&shape, (0..n).map(|i| (i % 13) as f32 / 7.0 - 0.9).collect()));
    }
    let q = cleave_quantize::load(quantizers).unwrap();
    let p = prepare(&g, &annotate(&g, q.as_ref(), &Selection::default()).unwrap()).unwrap();
    let c = convert(&p, &Statistics::new(&p)).unwrap();
    verify::verify(&c.graph, Levels::ALL).unwrap();
    c
}

#[test]
fn casts_take_what_patterns_before_them_leave_in_float() {
    let src = "graph(%x: f32[N, 8, 9, 9]) {
  %w = param \"w\": f32[16, 8, 3, 3]
  %d = param \"d\": f32[16, 1, 3, 3]
  %conv = aten.conv2d(%x, %w): f32[N, 16, 7, 7]
  %depthwise = aten.conv2d(%conv, %d, none, [1, 1], [1, 1], [1, 1], 16): f32[N, 16, 7, 7]
  %relu = aten.relu(%depthwise): f32[N, 16, 7, 7]
  return %relu
}";
    let c = converted_by("dynamic,fp16", src);
    let row = |name: &str| {
        let r = c.plan.row(name).unwrap();
        (r.status, r.pattern.clone().unwrap_or_default(), r.reason.clone().unwrap_or_default())
    };
    assert_eq!(row("conv"), (Status::Quantized, "dynamic:conv".into(), String::new()));
    assert_eq!(row("depthwise"), (Status::Quantized, "fp16:conv".into(), String::new()));
    assert_eq!(row("relu").0, Status::Float);
    assert_eq!(c.plan.notes, [""; 0], "no conflicts where one takes what is left");
    let types: Vec<_> = c.graph.constants.iter().map(|(n, t)| (n.as_str(), t.dtype())).collect();
    assert!(types.contains(&("w_q", DType::I8)) && types.contains(&("d_f16", DType::F16)), "{types:?}");
    // The arithmetic is that of the integers, whatever stands beside them.
    for other in ["cpu,fp16", "x86,fp16"] {
        assert!(cleave_quantize::load(other).is_ok(), "{other}");
    }
    let q = cleave_quantize::load("fp16,cpu").unwrap();
    assert!(q.divides() && q.equalizes() && !q.only_casts());
}

#[test]
fn weights_that_two_layers_share_are_stored_once() {
    let src = "graph(%i: i64[N]) {
  %t = param \"t\": f32[6, 4]
  %u = param \"t\": f32[6, 4]
  %e = aten.embedding(%t, %i): f32[N, 4]
  %y = aten.linear(%e, %u): f32[N, 6]
  return %y
}";
    let c = converted_by("fp16", src);
    let types: Vec<_> = c.graph.constants.iter().map(|(n, t)| (n.as_str(), t.dtype())).collect();
    assert_eq!(types, [("t_f16", DType::F16)], "{}", c.graph);
}
