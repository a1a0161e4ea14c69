use super::*;
use crate::read_pt2;
use cleave_ir::{Tensor, text};

fn round_trip(g: &Graph) -> Result<Graph> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.pt2");
    write_pt2(&path, g)?;
    let first = std::fs::read(&path).unwrap();
    write_pt2(&path, g)?;
    assert_eq!(std::fs::read(&path).unwrap(), first, "the same graph gives the same bytes");
    read_pt2(&path)
}

#[test]
fn a_quantized_graph_comes_back() {
    let src = r#"graph(%x: f32[s0, 2]) where 1 <= s0 <= 64 with quantize = "divide" {
  %fc_bias = param "fc.bias": f32[4]
  %fc_w_q = buffer "fc.w_q": i8[4, 2]
  %fc_scales = buffer "fc.scales": f32[4]
  %fc_zps = const "fc.zps": i64[4]
  %sym_size = aten.sym_size.int(%x, 0): int<s0>
  %mul = _operator.mul(%sym_size, 4): int<4*s0>
  %x_q = quantized_decomposed.quantize_per_tensor(%x, 0.03921568766236305, 3, 0, 255, u8): u8[s0, 2]
  %x_dq = quantized_decomposed.dequantize_per_tensor(%x_q, 0.03921568766236305, 3, 0, 255, u8): f32[s0, 2]
  %w_dq = quantized_decomposed.dequantize_per_channel(%fc_w_q, %fc_scales, %fc_zps, 0, -127, 127, i8): f32[4, 2]
  %fc = aten.linear(%x_dq, %w_dq, %fc_bias): f32[s0, 4]
  %max_1 = aten.clamp(%fc, 0.0, inf): f32[s0, 4]
  %chunk = aten.chunk(%max_1, 2, 1): (f32[s0, 2], f32[s0, 2])
  %getitem = getitem(%chunk, 1): f32[s0, 2]
  %cat = aten.cat([%getitem, %x], 1): f32[s0, 4]
  %flat = aten.view(%cat, [%mul]): f32[4*s0]
  return %flat, %x_q
}
"#;
    let mut g = text::parse(src).unwrap();
    g.constants.insert("fc.w_q".into(), Tensor::new(&[4, 2], vec![1i8, -2, 3, -4, 5, -6, 7, -127]));
    g.constants.insert("fc.zps".into(), Tensor::new(&[4], vec![0i64; 4]));
    let back = round_trip(&g).unwrap();
    assert_eq!(back.to_string(), src);
    assert_eq!(back.constants, g.constants);
}

#[test]
fn names_that_python_does_not_admit_are_changed() {
    let src = r#"graph(%in_0 "input/1:0": f32[batch, 2]) where 1 <= batch {
  %a = param "a": f32[2]
  %a_b = param "a.b": f32[2]
  %onnx__Add_7 = const "onnx::Add_7": f32[2]
  %abs = aten.abs(%in_0): f32[batch, 2]
  %add = aten.add.Tensor(%abs, %a): f32[batch, 2]
  %lambda = aten.add.Tensor(%add, %a_b): f32[batch, 2]
  %add_1 = aten.add.Tensor(%lambda, %onnx__Add_7): f32[batch, 2]
  return %add_1 "out"
}
"#;
    let back = round_trip(&text::parse(src).unwrap()).unwrap().to_string();
    for part in [
        "%input_1_0: f32[s0, 2]) where 1 <= s0 {",
        "%a = param \"a\"",
        "%a_b = param \"a_b\"",
        "const \"onnx__Add_7\"",
        "%abs_1 = aten.abs(",
        "%lambda_1 = aten.add.Tensor(",
        "%out = aten.add.Tensor(",
        "return %out\n",
    ] {
        assert!(back.contains(part), "{part}\nin\n{back}");
    }
}

#[test]
fn what_torch_does_not_have_is_listed() {
    let src = "graph(%x: f32[N, 2]) {
  %view = aten.view(%x, [<2*N>]): f32[2*N]
  return %view
}
";
    let e = round_trip(&text::parse(src).unwrap()).unwrap_err().to_string();
    let why = "argument 'size': the size 2*N is an expression; sizes have to be nodes before a program is written";
    assert!(e.ends_with(&format!("node 'view' (aten.view.default): {why}")), "{e}");
}

#[test]
fn branches_come_back() {
    let src = r#"graph(%x: f32[batch, 4]) where 1 <= batch <= 9 {
  %w = param "w": f32[4]
  %sym_size = aten.sym_size.int(%x, 0): int<batch>
  %gt = _operator.gt(%sym_size, 2): none
  %cond = higher_order.cond(%gt, graph(%n: int<rows>, %a: f32[rows, 4], %w: f32[4]) where 1 <= rows <= 9 {
    %mul = aten.mul.Tensor(%a, %w): f32[rows, 4]
    %view = aten.view(%mul, [%n, 2, 2]): f32[rows, 2, 2]
    return %view, %mul
  }, graph(%n: int<m>, %a: f32[m, 4], %w: f32[4]) where 1 <= m <= 9 {
    %view = aten.view(%a, [%n, 2, 2]): f32[m, 2, 2]
    return %view, %a
  }, [%sym_size, %x, %w]): (f32[batch, 2, 2], f32[batch, 4])
  %getitem = getitem(%cond, 0): f32[batch, 2, 2]
  return %getitem
}
"#;
    let want = src.replace("rows", "s0").replace("<m>", "<s0>").replace("[m", "[s0").replace("<= m ", "<= s0 ");
    let back = round_trip(&text::parse(src).unwrap()).unwrap().to_string();
    assert_eq!(back, want.replace("batch", "s0"));
    let own = src.replacen("    %view = aten.view(%a", "    %c = const \"c\": f32[4]\n    %view = aten.view(%a", 1);
    let e = round_trip(&text::parse(&own).unwrap()).unwrap_err().to_string();
    assert!(e.ends_with("node 'cond' (higher_order.cond): a graph with constants of its own cannot be written"), "{e}");
}
