//! What other tools get wrong silently: each construct, small, with float and quantized results side by side.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_ir::{Graph, Tensor};
use cleave_quantize::Status;
use cleave_runtime::{Options, Session};
use cleave_tests::onnx::{Attr, Net};
use cleave_tests::quantized::{
    agrees, agrees_by, numbers, quantized, range, reason, results, samples, status, through_onnx, uncut, worst,
};
use half::f16;

const ALL: [&str; 4] = ["cpu", "onnx", "x86", "xnnpack"];
const IMAGE: [usize; 4] = [1, 3, 6, 6];

/// Two steps of what [`stem`] ranges over: what a clamp behind it may be off by.
const CONV: f32 = 0.07;

fn image() -> Tensor {
    samples(&IMAGE)
}

fn scalar(v: f32) -> Tensor {
    Tensor::new(&[], vec![v])
}

/// A 3×3 convolution `w`, `b` of `x` with 4 output channels, to be gone on with from `y`.
fn stem() -> Net {
    Net::new("1 3 6 6").init("w", numbers(&[4, 3, 3, 3], 0.4)).init("b", numbers(&[4], 0.3)).node(
        "Conv",
        "x w b",
        "y",
        &[],
    )
}

fn constant(g: &Graph, name: &str) -> Tensor {
    g.constants.get(name).unwrap_or_else(|| panic!("no constant {name}: {:?}", g.constants.keys())).clone()
}

#[test]
fn ort_1_gemm_scales_product_and_bias() {
    for (alpha, beta) in [(1.0, 2.0), (2.0, 1.0), (0.5, -2.0), (2.0, 0.0), (-1.0, 1.0)] {
        for transposed in [0, 1] {
            let w = if transposed == 1 { numbers(&[5, 8], 0.5) } else { numbers(&[8, 5], 0.5) };
            let attrs = [("alpha", Attr::Float(alpha)), ("beta", Attr::Float(beta)), ("transB", Attr::Int(transposed))];
            let g = Net::new("1 8").init("w", w).init("b", numbers(&[5], 2.0)).node("Gemm", "x w b", "y", &attrs);
            agrees(&g.read("y"), &samples(&[1, 8]));
        }
    }
}

#[test]
fn ort_2_a_clamp_is_absorbed_only_where_the_range_ends_at_its_bounds() {
    let bounds = [(1.0, 6.0), (0.0, 6.0), (-1.0, 1.0), (0.25, 0.5), (-2.0, -0.5), (-6.0, 0.0)];
    for (low, high) in bounds {
        let g = stem().init("low", scalar(low)).init("high", scalar(high)).node("Clip", "y low high", "z", &[]);
        for q in agrees_by(&ALL, &g.read("z"), &image(), &[], Some(CONV)) {
            let [y, _] = results(&through_onnx(&q.converted.graph), &numbers(&IMAGE, 3.0));
            assert!(y[0].to_f32().iter().all(|v| *v >= low - CONV && *v <= high + CONV), "Clip({low}, {high})");
        }
    }
}

#[test]
fn ort_2_one_sided_clamps_and_clamps_in_a_row() {
    for inputs in ["y low", "y - high", "y low high"] {
        for (low, high) in [(0.5, 0.9), (-0.5, 0.1)] {
            let g = stem().init("low", scalar(low)).init("high", scalar(high)).node("Clip", inputs, "z", &[]);
            let g = g.node("Relu", "z", "r", &[]);
            agrees_by(&ALL, &g.read("r"), &image(), &[], Some(CONV));
        }
    }
}

#[test]
fn ort_3_relu_stays_where_activations_are_symmetric() {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let spec = "[spec.activation]\ndtype = \"s8\"\nrange = [-127, 127]\nscheme = \"per_tensor_symmetric\"\n";
    for base in ["cpu", "onnx"] {
        std::fs::write(file.path(), format!("[quantizer]\nname = \"s\"\nextends = \"{base}\"\n{spec}")).unwrap();
        let name = file.path().to_str().unwrap();
        let g = stem().node("Relu", "y", "z", &[]).read("z");
        for q in agrees_by(&[name], &g, &image(), &[], None) {
            let [y, fast] = results(&through_onnx(&q.converted.graph), &numbers(&IMAGE, 3.0));
            assert!(y[0].to_f32().iter().chain(fast[0].to_f32().iter()).all(|v| *v >= 0.0), "negative results");
        }
    }
}

#[test]
fn ort_4_an_excluded_clamp_stays() {
    let relu = || stem().node("Relu", "y", "z", &[]).read("z");
    for q in agrees_by(&ALL, &relu(), &image(), &["op:relu"], None) {
        let text = q.converted.graph.to_string();
        assert!(text.contains("aten.relu("), "{text}");
        assert_eq!(reason(&q, "z"), "excluded by 'op:relu'");
    }
}

#[test]
fn ort_8_weights_near_zero_beside_huge_biases() {
    for scale in [1e-3f32, 1e-5, 1e-7, 1e-12] {
        for bias in [1.0f32, 10.0, 1e4] {
            let biases = Tensor::new(&[4], vec![bias, -bias, 0.0, bias / 3.0]);
            let net = Net::new("1 3 6 6").init("w", numbers(&[4, 3, 3, 3], scale)).init("b", biases);
            let g = net.node("Conv", "x w b", "y", &[]).node("Relu", "y", "z", &[]).read("z");
            for q in agrees_by(&["cpu", "onnx"], &g, &image(), &[], None) {
                assert_eq!(reason(&q, "y"), "", "{scale} {bias}");
                let w = constant(&q.converted.graph, "w_q");
                assert!(w.elements::<i8>().unwrap().iter().any(|v| v.abs() >= 7), "{scale} {bias}: the weight is gone");
            }
            let net = Net::new("1 8").init("w", numbers(&[8, 5], scale)).init("b", numbers(&[5], bias));
            agrees_by(&["cpu", "onnx"], &net.node("Gemm", "x w b", "y", &[]).read("y"), &samples(&[1, 8]), &[], None);
        }
    }
}

#[test]
fn ort_8_a_bias_that_does_not_fit_is_added_by_a_node_of_its_own_in_onnx() {
    let net = Net::new("1 3 6 6").init("w", numbers(&[4, 3, 3, 3], 1e-7)).init("b", numbers(&[4], 10.0));
    let q = quantized(&net.node("Conv", "x w b", "y", &[]).read("y"), "onnx", &[], &image()).unwrap();
    assert!(q.converted.plan.notes[0].starts_with("bias of y kept float"), "{:?}", q.converted.plan.notes);
    let g = through_onnx(&q.converted.graph);
    let text = g.to_string();
    assert_eq!((text.matches("aten.conv2d(").count(), text.matches("aten.add.Tensor(").count()), (1, 1), "{text}");
}

#[test]
fn ort_9_norm_parameters_stay_float() {
    let net = Net::new("1 4 8").init("g", numbers(&[8], 1.0)).init("b", numbers(&[8], 1.0));
    let net = net.node("LayerNormalization", "x g b", "n", &[]).init("w", numbers(&[8, 5], 0.5));
    let g = net.node("MatMul", "n w", "y", &[]).read("y");
    for q in agrees(&g, &samples(&[1, 4, 8])) {
        assert_eq!(status(&q, "n"), Status::Float);
        assert!(q.converted.graph.constants.contains_key("g"), "{}", q.converted.graph);
    }
}

#[test]
fn ort_10_a_channel_of_zeros_keeps_its_bias() {
    let mut w = numbers(&[4, 3, 3, 3], 0.4).to_f32().into_owned();
    w[27..54].fill(0.0);
    let net = Net::new("1 3 6 6").init("w", Tensor::new(&[4, 3, 3, 3], w)).init("b", numbers(&[4], 1.5));
    agrees(&net.node("Conv", "x w b", "y", &[]).read("y"), &image());
    let net = Net::new("1 3 6 6").init("w", Tensor::new(&[4, 3, 3, 3], vec![0f32; 108])).init("b", numbers(&[4], 1.5));
    agrees_by(&["cpu", "onnx"], &net.node("Conv", "x w b", "y", &[]).read("y"), &image(), &[], None);
}

#[test]
fn ort_12_only_a_bias_of_one_rank_is_fused() {
    for shape in [&[5][..], &[1, 5], &[1], &[], &[1, 1], &[3, 1], &[3, 5]] {
        for beta in [1.0, 2.0] {
            let net = Net::new("3 8").init("w", numbers(&[8, 5], 0.5)).init("b", numbers(shape, 2.0));
            let g = net.node("Gemm", "x w b", "y", &[("beta", Attr::Float(beta))]).node("Relu", "y", "z", &[]);
            agrees_by(&ALL, &g.read("z"), &samples(&[3, 8]), &[], Some(0.06));
        }
    }
}

#[test]
fn ort_13_the_operator_set_is_one_that_has_what_is_written() {
    for opset in [11, 12] {
        let q = quantized(&stem().opset(opset).node("Relu", "y", "z", &[]).read("z"), "onnx", &[], &image()).unwrap();
        let path = std::path::Path::new("q.onnx");
        let m = cleave_formats::onnx::model_of(path, &q.converted.graph).unwrap();
        assert!(m.opset_import[0].version >= 13, "{:?}", m.opset_import);
    }
}

#[test]
fn ort_14_scales_have_the_type_of_their_tensor() {
    let half = |t: Tensor| Tensor::new(t.shape(), t.to_f32().iter().map(|v| f16::from_f32(*v)).collect::<Vec<f16>>());
    let net = Net::typed("1 8", cleave_numerics::DType::F16).init("w", half(numbers(&[8, 5], 0.5)));
    let g = net.node("MatMul", "x w", "y", &[]).node("Softmax", "y", "z", &[]).opset(19).read("z");
    for quantizer in ALL {
        let x = half(samples(&[1, 8]));
        let q = quantized(&g, quantizer, &[], &x).unwrap();
        let m = cleave_formats::onnx::model_of(std::path::Path::new("q.onnx"), &q.converted.graph).unwrap();
        assert!(m.opset_import[0].version >= 19, "f16 scales are of operator set 19");
        let graph = m.graph.unwrap();
        for n in graph.node.iter().filter(|n| n.op_type.ends_with("QuantizeLinear")) {
            let scale = graph.initializer.iter().find(|t| t.name == n.input[1]).unwrap();
            assert_eq!(scale.data_type, 10, "{} of {}", n.input[1], n.name);
        }
        let one = Tensor::new(&[1, 8], x.elements::<f16>().unwrap()[..8].to_vec());
        let [want, _] = results(&q.raised, &one);
        for got in results(&through_onnx(&q.converted.graph), &one) {
            assert!(worst(&want[0], &got[0]) < range(&want[0]) * 0.03, "{quantizer}");
        }
    }
}

#[test]
fn ort_17_constants_are_constants_wherever_they_stand() {
    let w = || numbers(&[8, 5], 0.5);
    let transposed = || w().permute(&[1, 0]).contiguous();
    let perm = || [("perm", Attr::Ints(vec![1, 0]))];
    let flat = |t: Tensor| t.reshape(&[40]);
    let shape = Tensor::new(&[2], vec![8i64, 5]);
    let forms = [
        ("Constant", Net::new("1 8").node("Constant", "", "w", &[("value", Attr::Tensor(w()))])),
        ("Identity", Net::new("1 8").init("v", w()).node("Identity", "v", "w", &[])),
        ("Transpose", Net::new("1 8").init("v", transposed()).node("Transpose", "v", "w", &perm())),
        (
            "Constant, Transpose",
            Net::new("1 8").node("Constant", "", "v", &[("value", Attr::Tensor(transposed()))]).node(
                "Transpose",
                "v",
                "w",
                &perm(),
            ),
        ),
        ("Reshape", Net::new("1 8").init("v", flat(w())).init("s", shape).node("Reshape", "v s", "w", &[])),
        ("Mul", Net::new("1 8").init("v", w()).init("two", scalar(2.0)).node("Mul", "v two", "w", &[])),
    ];
    for (form, net) in forms {
        let g = net.node("MatMul", "x w", "y", &[]).node("Relu", "y", "z", &[]).read("z");
        for q in agrees(&g, &samples(&[1, 8])) {
            let i8s = q.converted.graph.constants.values().filter(|t| t.elements::<i8>().is_some());
            assert_eq!(i8s.map(Tensor::len).collect::<Vec<_>>(), [40], "{form}: {}", q.converted.graph);
        }
    }
}

#[test]
fn ort_18_names_of_nodes_are_free_and_those_of_outputs_kept() {
    for names in [["", "", ""], ["n", "n", "n"], ["x_q", "w_scale", "b0"], ["x_dq", "x_q_1", "w_q"], ["q", "r_q", "r"]]
    {
        let net = Net::new("1 3 6 6").init("w", numbers(&[4, 3, 3, 3], 0.4)).init("x_scale", numbers(&[4], 0.3));
        let net = net.named(names[0], "Conv", "x w x_scale", "x_q", &[]).named(names[1], "Relu", "x_q", "w_q", &[]);
        let net = net.init("w_scale", numbers(&[2, 4, 1, 1], 0.7));
        let g = net.named(names[2], "Conv", "w_q w_scale", "x_zero_point", &[]).read("x_zero_point w_q");
        for q in agrees(&g, &image()) {
            let read = through_onnx(&q.converted.graph);
            assert_eq!(read.output_names, ["x_zero_point", "w_q"]);
            for row in &q.converted.plan.rows {
                let node = q.converted.graph.find(&row.node).map(|id| q.converted.graph.node(id));
                let op = node.and_then(|n| n.op()).map(|o| o.short().to_string());
                assert_eq!(op.as_deref(), Some(row.op.as_str()), "{} keeps its name", row.node);
            }
        }
    }
}

#[test]
fn ort_20_what_nothing_consumes_is_not_quantized() {
    let net =
        stem().node("Erf", "y", "e", &[]).node("Reshape", "e s", "f", &[]).init("s", Tensor::new(&[2], vec![1i64, 64]));
    let g = net.node("Transpose", "f", "t", &[("perm", Attr::Ints(vec![1, 0]))]).read("t");
    for q in agrees_by(&ALL, &g, &image(), &[], Some(CONV)) {
        let floats = ["erf", "reshape", "permute"];
        for row in q.converted.plan.rows.iter().filter(|r| floats.iter().any(|f| r.op.contains(f))) {
            assert_eq!(row.status, Status::Float, "{row:?}");
            assert!(row.reason.is_some(), "{row:?}");
        }
    }
}

#[test]
fn ort_21_the_greatest_products_do_not_saturate() {
    // 255 · 127 twice is more than 16 bits hold.
    let w = Tensor::new(&[4, 3, 3, 3], (0..108).map(|i| if i < 54 { 1.0f32 } else { -1.0 }).collect());
    let g = Net::new("1 3 6 6").init("w", w).node("Conv", "x w", "y", &[]).read("y");
    let x = Tensor::new(&[16, 3, 6, 6], (0..1728).map(|i| if i >= 108 && i % 7 == 0 { 0.0f32 } else { 1.0 }).collect());
    for q in agrees(&g, &x) {
        let one = Tensor::new(&IMAGE, vec![1f32; 108]);
        let run = |isa| {
            let mut s = Session::new(&q.converted.graph, Options { isa, threads: 1 }).unwrap();
            s.run(std::slice::from_ref(&one)).unwrap()
        };
        let all: Vec<_> =
            cleave_kernels::Level::ALL.iter().filter_map(|l| cleave_kernels::Isa::new(*l)).map(run).collect();
        assert!(all.iter().all(|y| *y == all[0]));
        assert!((all[0][0].to_f32()[0] - 27.0).abs() < 0.2);
    }
}

/// A graph with made-up constants.
fn graph(text: &str) -> Graph {
    let mut g = cleave_ir::text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let names: Vec<(String, Vec<usize>)> = g.constants.iter().map(|(n, t)| (n.clone(), t.shape().to_vec())).collect();
    for (name, shape) in names {
        let t = numbers(&shape, 0.5);
        let positive = || Tensor::new(&shape, t.to_f32().iter().map(|v| v.abs() + 0.3).collect::<Vec<f32>>());
        g.constants.insert(name.clone(), if name.contains("var") { positive() } else { t });
    }
    g
}

fn net(body: &str) -> Graph {
    graph(&format!(
        "graph(%x: f32[N, 3, 6, 6]) where 1 <= N {{
  %w = param \"w\": f32[4, 3, 3, 3]
  %v = param \"v\": f32[4, 4, 1, 1]
  %m = buffer \"m\": f32[4]
  %var = buffer \"var\": f32[4]
{body}
}}
"
    ))
}

#[test]
fn torch_relu_in_every_spelling_is_one_unit() {
    let spellings = [
        "aten.relu(%c)",
        "aten.relu_(%c)",
        "aten.clamp_min(%c, 0)",
        "aten.clamp(%c, 0)",
        "aten.clamp(%c, 0, none)",
        "aten.hardtanh(%c, 0, 6)",
        "aten.relu6(%c)",
        "aten.clamp(%c, 0, 6)",
    ];
    for spelling in spellings {
        let g = net(&format!("  %c = aten.conv2d(%x, %w)\n  %r = {spelling}\n  return %r"));
        for q in agrees(&g, &image()) {
            let unit = q.annotations.units.iter().find(|u| u.nodes.len() == 2);
            let shared = q.annotations.units.len() == 2 && spelling.contains('6');
            assert!(unit.is_some() || shared, "{spelling} by {}: {:?}", q.annotations.quantizer, q.converted.plan.rows);
        }
    }
}

#[test]
fn torch_a_module_used_twice_is_two_sites() {
    let g = net(
        "  %c = aten.conv2d(%x, %w)\n  %r = aten.relu(%c)\n  %d = aten.conv2d(%r, %v)\n  %s = aten.relu(%d)\n  return %s",
    );
    for q in agrees(&g, &image()) {
        let units = q.annotations.units.iter().filter(|u| u.nodes.len() == 2).count();
        assert_eq!(units, 2, "{}", q.annotations.quantizer);
    }
}

#[test]
fn torch_a_batch_norm_whose_convolution_has_another_reader_is_not_folded() {
    let bn = "aten.batch_norm(%c, none, none, %m, %var, false, 0.1, 1e-3, false)";
    for other in ["aten.sigmoid(%c)", "aten.conv2d(%c, %v)", "aten.add.Tensor(%c, %c)"] {
        let g = net(&format!("  %c = aten.conv2d(%x, %w)\n  %n = {bn}\n  %o = {other}\n  return %n, %o"));
        for q in agrees(&g, &image()) {
            assert!(q.prepared.graph.find("n").is_some(), "{other}");
            assert_eq!(reason(&q, "n"), "not folded: c has 2 users");
        }
    }
    let g = net(&format!("  %c = aten.conv2d(%x, %w)\n  %n = {bn}\n  return %n, %c"));
    agrees(&g, &image());
}

#[test]
fn torch_a_batch_norm_has_its_own_eps() {
    for eps in ["1e-5", "1e-3", "0.1", "2.0"] {
        let g = net(&format!(
            "  %c = aten.conv2d(%x, %w)\n  %n = aten.batch_norm(%c, none, none, %m, %var, false, 0.1, {eps}, false)\n  return %n"
        ));
        agrees(&g, &image());
    }
}

#[test]
fn torch_what_is_misspelt_or_missing_is_an_error() {
    let g = stem().node("Relu", "y", "z", &[]).read("z");
    for selector in ["module:layr1.*", "op:conv2", "node:yy", "pattern:conv_bn_acts", "conv3d"] {
        let e = quantized(&g, "cpu", &[selector], &image()).err().unwrap().to_string();
        assert!(e.starts_with(&format!("selector '{selector}': it selects no node")), "{e}");
    }
    let none = Tensor::new(&[0, 3, 6, 6], Vec::<f32>::new());
    let e = quantized(&g, "cpu", &[], &none).err().unwrap().to_string();
    assert!(e.contains("no calibration samples"), "{e}");
    let nothing = Net::new("1 4").node("Sin", "x", "y", &[]).read("y");
    let e = quantized(&nothing, "cpu", &[], &samples(&[1, 4])).err().unwrap().to_string();
    assert!(e.starts_with("quantizer 'cpu' found nothing to quantize among 1 compute nodes"), "{e}");
}

#[test]
fn torch_a_symbolic_batch_stays_symbolic() {
    let g = net("  %c = aten.conv2d(%x, %w)\n  %f = aten.flatten.using_ints(%c, 1)\n  return %f");
    for quantizer in ALL {
        let q = quantized(&g, quantizer, &[], &image()).unwrap();
        let read = through_onnx(&q.converted.graph);
        let shape = &read.tensor_meta(read.placeholders()[0]).unwrap().shape;
        assert_eq!(shape[0].as_const(), None, "{quantizer}: {shape:?}");
        for n in [1, 3] {
            let [y, fast] = results(&read, &numbers(&[n, 3, 6, 6], 1.0));
            assert_eq!((y[0].shape(), fast[0].shape()), (&[n, 64][..], &[n, 64][..]));
        }
    }
}

#[test]
fn torch_views_of_every_kind_carry_a_scale() {
    let views = [
        "aten.permute(%c, [0, 2, 3, 1])",
        "aten.transpose.int(%c, 2, 3)",
        "aten.reshape(%c, [<N>, 4, 16])",
        "aten.flatten.using_ints(%c, 1)",
        "aten.unsqueeze(%c, 1)",
        "aten.slice.Tensor(%c, 2, 1, 3)",
        "aten.select.int(%c, 1, 2)",
        "aten.expand(%c, [-1, 4, 4, 4])",
        "aten.narrow(%c, 1, 0, 2)",
        "aten.pixel_shuffle(%c, 2)",
        "aten.flip(%c, [2])",
        "aten.channel_shuffle(%c, 2)",
    ];
    for view in views {
        let text = format!("  %c = aten.conv2d(%x, %w)\n  %p = {view}\n  %a = aten.add.Tensor(%p, %p)\n  return %a");
        let moves = ["pixel_shuffle", "flip", "channel_shuffle"].iter().any(|m| view.contains(m));
        // Readers of QDQ fuse views, and no other moves.
        let quantizers = if moves { &["cpu"][..] } else { &["cpu", "onnx"] };
        for q in agrees_by(quantizers, &net(&text), &image(), &[], None) {
            let floats: Vec<_> = q.converted.plan.rows.iter().filter(|r| r.status == Status::Float).collect();
            assert!(floats.is_empty(), "{view} by {}: {floats:?}", q.annotations.quantizer);
        }
    }
}

#[test]
fn torch_parts_of_different_scales_are_concatenated() {
    for factor in ["10.0", "0.05"] {
        let text = format!(
            "  %u = param \"u\": f32[4, 3, 3, 3]
  %c = aten.conv2d(%x, %w)
  %d = aten.conv2d(%x, %u)
  %t = aten.mul.Tensor(%d, {factor})
  %y = aten.cat([%c, %t, %c], 1)
  return %y"
        );
        agrees(&net(&text), &image());
    }
}

#[test]
fn others_an_initializer_feeds_two_products() {
    let net = Net::new("1 4 8").init("w", numbers(&[8, 8], 0.5)).node("MatMul", "x w", "y", &[]);
    let net = net.node("Relu", "y", "z", &[]).node("MatMul", "z w", "u", &[]).node("MatMul", "x w", "t", &[]);
    for q in agrees(&net.node("Add", "u t", "s", &[]).read("s"), &samples(&[1, 4, 8])) {
        let stored = q.converted.graph.constants.values().filter(|t| t.elements::<i8>().is_some());
        assert_eq!(stored.count(), 1, "{}: it is stored once", q.annotations.quantizer);
    }
}

#[test]
fn others_scales_per_channel_lie_on_the_axis_of_the_op() {
    // Channels of very different sizes: a wrong axis would be seen.
    let spread = |shape: &[usize], axis: usize| {
        let (inner, n) = (shape[axis + 1..].iter().product::<usize>(), shape[axis]);
        let t = numbers(shape, 1.0);
        let scaled = t.to_f32().iter().enumerate().map(|(i, v)| v * 2f32.powi((i / inner % n) as i32 - 2)).collect();
        Tensor::new::<f32>(shape, scaled)
    };
    let group = |g| [("group", Attr::Int(g)), ("strides", Attr::Ints(vec![2, 2]))];
    let cases: [(&str, Tensor, i64, usize); 6] = [
        ("Conv", spread(&[4, 4, 3, 3], 0), 1, 0),
        ("Conv", spread(&[4, 1, 3, 3], 0), 4, 0),
        ("Conv", spread(&[8, 2, 3, 3], 0), 2, 0),
        ("ConvTranspose", spread(&[4, 4, 3, 3], 1), 1, 1),
        ("ConvTranspose", spread(&[4, 1, 3, 3], 1), 4, 1),
        ("ConvTranspose", spread(&[4, 3, 3, 3], 1), 2, 1),
    ];
    for (op, w, groups, axis) in cases {
        let shape = w.shape().to_vec();
        let outputs = if axis == 0 { shape[0] } else { shape[1] * groups as usize };
        let net = Net::new("1 4 6 6").init("w", w).init("b", numbers(&[outputs], 1.0));
        let g = net.node(op, "x w b", "y", &group(groups)).read("y");
        // torch's quantizer for x86 leaves transposed convolutions in float, that for XNNPACK those in groups.
        let takes = |q: &&str| axis == 0 || !(*q == "x86" || *q == "xnnpack" && groups > 1);
        let files: Vec<_> = ALL.into_iter().filter(takes).map(uncut).collect();
        let quantizers: Vec<&str> = files.iter().map(|f| f.path().to_str().unwrap()).collect();
        for q in agrees_by(&quantizers, &g, &samples(&[1, 4, 6, 6]), &[], None) {
            assert_eq!(constant(&q.converted.graph, "w_scale").len(), shape[axis], "{op} {groups}");
        }
    }
}

#[test]
fn neighbours_of_concatenations_constant_parts_and_parts_used_twice() {
    for parts in ["%c, %k", "%k, %c", "%c, %d, %k", "%c, %k, %c", "%k, %c, %k", "%c, %r"] {
        for behind in ["aten.conv2d(%y, %q)", "aten.flatten.using_ints(%y, 1)", "aten.relu(%y)"] {
            let channels = parts.split(", ").count() * 4;
            let text = format!(
                "graph(%x: f32[1, 3, 6, 6]) {{
  %w = param \"w\": f32[4, 3, 3, 3]
  %v = param \"v\": f32[4, 3, 3, 3]
  %k = param \"k\": f32[1, 4, 4, 4]
  %q = param \"q\": f32[4, {channels}, 1, 1]
  %c = aten.conv2d(%x, %w)
  %d = aten.conv2d(%x, %v)
  %r = aten.relu(%c)
  %y = aten.cat([{parts}], 1)
  %z = {behind}
  return %z
}}
"
            );
            agrees(&graph(&text), &image());
        }
    }
}

#[test]
fn neighbours_of_clamps_outputs_inside_units_and_shared_convolutions() {
    let bodies = [
        "  %c = aten.conv2d(%x, %w)\n  %r = aten.relu(%c)\n  %d = aten.conv2d(%r, %v)\n  return %r, %d, %c",
        "  %c = aten.conv2d(%x, %w)\n  %r = aten.relu(%c)\n  %h = aten.hardtanh(%c, -1, 1)\n  %s = aten.add.Tensor(%r, %h)\n  return %s",
        "  %c = aten.conv2d(%x, %w)\n  %s = aten.add.Tensor(%c, %c)\n  %r = aten.relu(%s)\n  return %r",
        "  %c = aten.conv2d(%x, %w)\n  %d = aten.conv2d(%x, %w)\n  %s = aten.add.Tensor(%c, %d)\n  %r = aten.clamp(%s, 0.5)\n  return %r",
        "  %h = aten.hardtanh(%x, -1, 1)\n  %c = aten.conv2d(%h, %w)\n  %d = aten.conv2d(%c, %v)\n  %s = aten.sub.Tensor(%c, %d)\n  return %s",
        "  %c = aten.conv2d(%x, %w)\n  %s = aten.add.Tensor(%c, %m4)\n  %t = aten.mul.Tensor(%s, %s)\n  return %t, %x",
        "  %c = aten.conv2d(%x, %w)\n  %dead = aten.conv2d(%c, %v)\n  %p = aten.max_pool2d(%c, [3, 3], [1, 1], [1, 1])\n  %a = aten.avg_pool2d(%p, [3, 3], [1, 1], [1, 1])\n  return %a",
        "  %c = aten.conv2d(%x, %w)\n  %p = aten.mean.dim(%c, [2, 3], true)\n  %s = aten.add.Tensor(%c, %p)\n  return %s",
    ];
    for body in bodies {
        let constant = "  %m4 = param \"m4\": f32[1, 4, 1, 1]\n";
        for q in agrees_by(&["cpu", "onnx", "arm", "xnnpack"], &net(&format!("{constant}{body}")), &image(), &[], None)
        {
            assert!(q.converted.plan.rows.iter().all(|r| r.status != Status::Float || r.reason.is_some()), "{body}");
        }
    }
}

#[test]
fn torchs_least_scale_is_told_where_it_flattens_a_weight() {
    let net = Net::new("1 3 6 6").init("w", numbers(&[4, 3, 3, 3], 1e-4)).node("Conv", "x w", "y", &[]);
    let g = net.read("y");
    for quantizer in ["x86", "xnnpack"] {
        let q = quantized(&g, quantizer, &[], &image()).unwrap();
        let want =
            "weight of y: 4 of 4 channels keep few levels or none at the least scale 0.00024414063 of spec 'weight'";
        assert!(q.converted.plan.notes.iter().any(|n| n.starts_with(want)), "{:?}", q.converted.plan.notes);
    }
    agrees_by(&["cpu", "onnx"], &g, &image(), &[], None);
}
