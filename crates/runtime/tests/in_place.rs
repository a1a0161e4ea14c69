//! Results that lie where a residual lay: where nobody needs that any more, and nowhere else.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use cleave_ir::{Graph, Tensor};
use cleave_runtime::{Options, Session};
use common::{Random, check_float, check_quantized, graph, sessions};

/// Three convolutions, to the last of which the result of the first is added; `END` follows.
const FLOAT: &str = r#"graph(%x: f32[N, 16, 9, 11]) where 1 <= N {
  %w1 = param "w1": f32[40, 16, 1, 1]
  %w2 = param "w2": f32[40, 40, K, K]
  %a = aten.conv2d(%x, %w1): f32[N, 40, 9, 11]
  %r = aten.relu(%a): f32[N, 40, 9, 11]
  %w3 = param "w3": f32[40, 40, 1, 1]
  %c = aten.conv2d(%r, %w3): f32[N, 40, 9, 11]
  %b = aten.conv2d(%c, %w2, none, [1, 1], [P, P], [D, D]): f32[N, 40, 9, 11]
  %add = aten.add.Tensor(%b, %r): f32[N, 40, 9, 11]
  %y = aten.relu(%add): f32[N, 40, 9, 11]
  END
}
"#;

fn float(k: &str, pad: &str, dilation: &str, end: &str) -> Graph {
    graph(&FLOAT.replace('K', k).replace('P', pad).replace(", [D, D]", dilation).replace("END", end))
}

/// The last one reads what is added to it.
fn whole_of_one(k: &str, pad: &str, dilation: &str) -> Graph {
    let src = FLOAT.replace("aten.conv2d(%c, %w2", "aten.conv2d(%r, %w2");
    graph(&src.replace('K', k).replace('P', pad).replace(", [D, D]", dilation).replace("END", "return %y"))
}

/// The same with levels.
fn quantized(channels: usize, end: &str) -> Graph {
    let dq = |y: &str, x: &str| {
        format!("  %{y} = quantized_decomposed.dequantize_per_tensor(%{x}, 0.02, 100, 0, 255, u8): f32[N, 40, 9, 11]\n")
    };
    let q = |y: &str, x: &str| {
        format!("  %{y} = quantized_decomposed.quantize_per_tensor(%{x}, 0.02, 100, 0, 255, u8): u8[N, 40, 9, 11]\n")
    };
    let weight = |y: &str, shape: &str| {
        format!(
            "  %{y}_q = param \"{y}_q\": i8[{shape}]\n  %{y}_scale = buffer \"{y}_scale\": f32[40]\n  \
             %{y}_zp = buffer \"{y}_zp\": i64[40]\n  %{y} = quantized_decomposed.dequantize_per_channel(%{y}_q, \
             %{y}_scale, %{y}_zp, 0, -127, 127, i8): f32[{shape}]\n"
        )
    };
    let src = [
        "graph(%x: f32[N, 40, 9, 11]) where 1 <= N {\n".into(),
        q("x_q", "x"),
        dq("x_1", "x_q"),
        weight("w1", "40, 40, 1, 1"),
        "  %a = aten.conv2d(%x_1, %w1): f32[N, 40, 9, 11]\n".into(),
        q("a_q", "a"),
        dq("a_1", "a_q"),
        dq("a_2", "a_q"),
        weight("w3", "40, 40, 1, 1"),
        "  %c = aten.conv2d(%a_1, %w3): f32[N, 40, 9, 11]\n".into(),
        q("c_q", "c"),
        dq("c_1", "c_q"),
        weight("w2", "40, 40, 3, 3"),
        "  %b = aten.conv2d(%c_1, %w2, none, [1, 1], [1, 1]): f32[N, 40, 9, 11]\n".into(),
        "  %add = aten.add.Tensor(%b, %a_2): f32[N, 40, 9, 11]\n".into(),
        "  %relu = aten.relu(%add): f32[N, 40, 9, 11]\n".into(),
        q("y_q", "relu"),
        dq("y", "y_q"),
        format!("  {end}\n}}\n"),
    ];
    graph(&src.concat().replace("40", &channels.to_string()))
}

/// Of each kernel, whether it adds in place.
fn in_place(g: &Graph, x: &Tensor) -> Vec<bool> {
    let plan = Session::new(g, Options::default()).unwrap().plan(&[x.shape().to_vec()]).unwrap();
    plan.kernels.iter().filter(|k| k.name.contains("add")).map(|k| k.in_place).collect()
}

#[test]
fn floats_are_added_in_place() {
    for n in [1, 3] {
        let x = Random::new(n as u64).floats(&[n, 16, 9, 11], 1.0);
        for (k, pad, dilation) in [("1", "0", ""), ("3", "1", ""), ("3", "2", ", [2, 2]")] {
            let whole = float(k, pad, dilation, "return %y");
            // Tiles of Winograd's transforms leave the sum to a program.
            let tiles = k == "3" && dilation.is_empty();
            assert_eq!(in_place(&whole, &x), [!tiles], "{k}×{k}{dilation}");
            check_float(&whole, std::slice::from_ref(&x), 1e-5);
            let itself = whole_of_one(k, pad, dilation);
            assert_eq!(in_place(&itself, &x), [false], "{k}×{k}{dilation} over what it adds to");
            check_float(&itself, std::slice::from_ref(&x), 1e-5);
            for end in ["return %y, %r", "%m = aten.mul.Tensor(%y, %r): f32[N, 40, 9, 11]\n  return %m"] {
                let needed = float(k, pad, dilation, end);
                assert_eq!(in_place(&needed, &x), [false], "{end}");
                check_float(&needed, std::slice::from_ref(&x), 1e-5);
            }
        }
    }
}

#[test]
fn levels_are_added_in_place() {
    // 64 channels are multiplied by Winograd's transforms.
    for (n, c) in [(1, 40), (3, 40), (1, 64), (3, 64)] {
        let x = Random::new(n as u64).floats(&[n, c, 9, 11], 2.0);
        let (whole, needed) = (quantized(c, "return %y"), quantized(c, "return %y, %a_q"));
        assert_eq!((in_place(&whole, &x), in_place(&needed, &x)), (vec![true], vec![false]));
        check_quantized(&whole, std::slice::from_ref(&x), 0.02, 2.0);
        for (mut a, mut b) in sessions(&whole).into_iter().zip(sessions(&needed)) {
            let (a, b) = (a.run(std::slice::from_ref(&x)).unwrap(), b.run(std::slice::from_ref(&x)).unwrap());
            assert_eq!(a[0], b[0]);
        }
    }
}

#[test]
fn taps_see_what_is_overwritten_later() {
    let x = Random::new(5).floats(&[1, 16, 9, 11], 1.0);
    let g = float("1", "0", "", "return %y");
    let (r, y) = (g.find("r").unwrap(), g.find("y").unwrap());
    let both = float("1", "0", "", "return %y, %r");
    let want = Session::new(&both, Options::default()).unwrap().run(std::slice::from_ref(&x)).unwrap();
    for keep in [false, true] {
        let mut s = Session::new(&g, Options::default()).unwrap();
        let mut seen = vec![];
        let mut kept = vec![];
        for _ in 0..2 {
            seen.clear();
            s.run_with_taps(std::slice::from_ref(&x), &[r, y], &mut |id, t| {
                seen.push((id, t.to_f32().into_owned()));
                if keep {
                    kept.push((id, t.clone()));
                }
            })
            .unwrap();
        }
        seen.extend(kept.iter().map(|(id, t)| (*id, t.to_f32().into_owned())));
        for (id, got) in seen {
            assert_eq!(got, *want[usize::from(id == r)].to_f32());
        }
    }
}
