//! The x86 quantizer against torchao 0.18, bit for bit: folded biases, weights, scales and zero points.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_ir::{Arg, Graph, NodeId, Tensor, text};
use cleave_quantize::{BoxError, CalibrateOptions, Evaluator, Selection, TomlQuantizer};
use cleave_quantize::{annotate, calibrate, convert, prepare};

const RECORDED: &str = include_str!("fixtures/pt2e/x86.txt");

const NET: &str = r#"graph(%x: f32[1, 2, 4, 4]) {
  %stem_weight = param "stem.weight": f32[4, 2, 3, 3]
  %bn_weight = param "bn.weight": f32[4]
  %bn_bias = param "bn.bias": f32[4]
  %bn_running_mean = buffer "bn.running_mean": f32[4]
  %bn_running_var = buffer "bn.running_var": f32[4]
  %dw_weight = param "dw.weight": f32[4, 1, 3, 3]
  %dw_bias = param "dw.bias": f32[4]
  %bn2_weight = param "bn2.weight": f32[4]
  %bn2_bias = param "bn2.bias": f32[4]
  %bn2_running_mean = buffer "bn2.running_mean": f32[4]
  %bn2_running_var = buffer "bn2.running_var": f32[4]
  %pw_weight = param "pw.weight": f32[4, 4, 1, 1]
  %pw_bias = param "pw.bias": f32[4]
  %fc_weight = param "fc.weight": f32[3, 4]
  %fc_bias = param "fc.bias": f32[3]
  %conv2d = aten.conv2d(%x, %stem_weight, none, [1, 1], [1, 1]): f32[1, 4, 4, 4]
  %batch_norm = aten.batch_norm(%conv2d, %bn_weight, %bn_bias, %bn_running_mean, %bn_running_var, false, 0.1, 1e-3, true): f32[1, 4, 4, 4]
  %relu = aten.relu(%batch_norm): f32[1, 4, 4, 4]
  %conv2d_1 = aten.conv2d(%relu, %dw_weight, %dw_bias, [1, 1], [1, 1], [1, 1], 4): f32[1, 4, 4, 4]
  %batch_norm_1 = aten.batch_norm(%conv2d_1, %bn2_weight, %bn2_bias, %bn2_running_mean, %bn2_running_var, false, 0.1, 1e-5, true): f32[1, 4, 4, 4]
  %hardtanh = aten.hardtanh(%batch_norm_1, 0.0, 6.0): f32[1, 4, 4, 4]
  %conv2d_2 = aten.conv2d(%hardtanh, %pw_weight, %pw_bias): f32[1, 4, 4, 4]
  %add = aten.add.Tensor(%conv2d_2, %relu): f32[1, 4, 4, 4]
  %relu_1 = aten.relu(%add): f32[1, 4, 4, 4]
  %max_pool2d = aten.max_pool2d(%relu_1, [2, 2], [2, 2]): f32[1, 4, 2, 2]
  %adaptive_avg_pool2d = aten.adaptive_avg_pool2d(%max_pool2d, [1, 1]): f32[1, 4, 1, 1]
  %flatten = aten.flatten.using_ints(%adaptive_avg_pool2d, 1): f32[1, 4]
  %linear = aten.linear(%flatten, %fc_weight, %fc_bias): f32[1, 3]
  return %linear
}
"#;

/// The lines of one kind, each split into a name and the rest.
fn recorded(kind: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    RECORDED.lines().filter_map(move |l| l.strip_prefix(kind)?.strip_prefix(' ')?.split_once(' '))
}

fn floats(bits: &str) -> Vec<f32> {
    bits.split_whitespace().map(|b| f32::from_bits(u32::from_str_radix(b, 16).unwrap())).collect()
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|f| f.to_bits()).collect()
}

fn net() -> Graph {
    let mut g = text::parse(NET).unwrap();
    for (name, rest) in recorded("const") {
        let (shape, data) = rest.split_once(' ').unwrap();
        let shape: Vec<usize> = shape.split(',').map(|d| d.parse().unwrap()).collect();
        g.constants.insert(name.into(), Tensor::new(&shape, floats(data)));
    }
    g
}

/// Shows the tensors that torch's observers saw.
struct Replay(usize);

impl Evaluator for Replay {
    fn run(
        &mut self,
        graph: &Graph,
        _: &[Tensor],
        taps: &[NodeId],
        sink: &mut dyn FnMut(NodeId, &Tensor),
    ) -> Result<Vec<Tensor>, BoxError> {
        for id in taps {
            let name = graph.node(*id).name.as_str();
            let (_, data) = recorded("seen").filter(|(n, _)| *n == name).nth(self.0).unwrap();
            let data = floats(data);
            sink(*id, &Tensor::new(&[data.len()], data));
        }
        self.0 += 1;
        Ok(vec![])
    }
}

#[test]
fn x86_stores_what_torch_stores() {
    let g = net();
    let a = annotate(&g, &TomlQuantizer::load("x86").unwrap(), &Selection::default()).unwrap();
    let p = prepare(&g, &a).unwrap();
    let samples = (0..3).map(|_| Ok(vec![]));
    let stats = calibrate(&p, &mut Replay(0), samples, CalibrateOptions::default(), &mut |_| {}).unwrap();
    let g = convert(&p, &stats).unwrap().graph;
    let arg = |name: &str, i: usize| g.node(g.find(name).unwrap()).args[i].clone();
    let constant = |a: &Arg| g.constant(a.nodes()[0]).unwrap().clone();

    for (node, want) in recorded("bias") {
        assert_eq!(bits(&constant(&arg(node, 2)).to_f32()), bits(&floats(want)), "bias of {node}");
    }
    for (node, rest) in recorded("weight") {
        let (scales, q) = rest.split_once(" | ").unwrap();
        let dq = g.node(arg(node, 1).nodes()[0]);
        assert_eq!(bits(&constant(&dq.args[1]).to_f32()), bits(&floats(scales)), "weight scales of {node}");
        let want: Vec<i8> = q.split(' ').map(|v| v.parse().unwrap()).collect();
        assert_eq!(constant(&dq.args[0]).elements::<i8>().unwrap().as_ref(), want, "weight of {node}");
    }
    let mut count = 0;
    for (node, rest) in recorded("act") {
        let (scale, zero_point) = rest.split_once(' ').unwrap();
        let q = g.node(g.find(&format!("{node}_q")).unwrap());
        assert_eq!(q.args[0], Arg::Node(g.find(node).unwrap()));
        assert_eq!(q.args[1], Arg::Float(f64::from(floats(scale)[0])), "scale of {node}");
        assert_eq!(q.args[2], Arg::Int(zero_point.parse().unwrap()), "zero point of {node}");
        count += 1;
    }
    let placed = g.op_counts()["quantized_decomposed.quantize_per_tensor.default"];
    assert_eq!((count, placed), (7, 7), "as many quantize ops as torch places");
}
