//! The interpreter beside torch 2.15: inputs are `(i mod 7) - 3`, results recorded.

mod recorded;

use super::run;
use cleave_ir::{Tensor, text};

fn ramp(shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>();
    Tensor::new(shape, (0..n).map(|i| (i % 7) as f32 - 3.0).collect())
}

/// (call on %x, %w, %b; shapes of as many inputs as it has; torch's result)
type Case = (&'static str, &'static [&'static [usize]], &'static [f32]);

const CASES: &[Case] = &[
    (
        "aten.conv2d(%x, %w, %b, [2, 2], [1, 1], [2, 2], 2)",
        &[&[1, 4, 5, 5], &[4, 2, 2, 2], &[4]],
        &[
            -3.0, -12.0, 5.0, -18.0, 12.0, -2.0, 5.0, -3.0, -8.0, 1.0, -8.0, -8.0, -12.0, -4.0, 12.0, 8.0, -1.0, -8.0,
            -8.0, -11.0, -8.0, -1.0, 7.0, 13.0, 8.0, -7.0, -6.0, -9.0, -10.0, -5.0, -5.0, -1.0, -4.0, 6.0, 13.0, 3.0,
        ],
    ),
    (
        "aten.conv_transpose2d.input(%x, %w, %b, [2, 2], [1, 1], [1, 1])",
        &[&[1, 2, 3, 3], &[2, 3, 3, 3], &[3]],
        &[
            -6.0, -10.0, -5.0, -8.0, -4.0, -4.0, -3.0, 2.0, -8.0, -22.0, 8.0, 0.0, -3.0, -4.0, -2.0, 5.0, -1.0, -2.0,
            3.0, 7.0, 12.0, -3.0, -14.0, 4.0, 0.0, 2.0, -6.0, -10.0, -5.0, -7.0, -18.0, -14.0, 3.0, 0.0, 3.0, 1.0,
            -13.0, 0.0, -8.0, 3.0, -3.0, 4.0, 1.0, -4.0, -3.0, 2.0, 0.0, -1.0, 2.0, 9.0, 7.0, 5.0, -2.0, -17.0, -4.0,
            -7.0, -8.0, -1.0, 2.0, -1.0, 3.0, -24.0, -13.0, 0.0, -8.0, 4.0, -1.0, 9.0, 3.0, 3.0, 0.0, -2.0, 8.0, 10.0,
            3.0, 7.0, -2.0, -2.0, -2.0, -3.0, 2.0, 5.0, -1.0, -2.0, -7.0, 1.0, -12.0, -23.0, 4.0, 3.0, 3.0, 0.0, -7.0,
            -6.0, -3.0, -6.0, -1.0, 6.0, 8.0, 10.0, 3.0, 1.0, 2.0, 4.0, -4.0, -8.0, -3.0, -5.0,
        ],
    ),
    (
        "aten.max_pool2d(%x, [3, 3], [2, 2], [0, 0], [1, 1], true)",
        &[&[1, 1, 6, 6]],
        &[3.0, 1.0, 2.0, 3.0, 3.0, 0.0, 2.0, 3.0, 3.0],
    ),
    (
        "aten.avg_pool2d(%x, [3, 3], [2, 2], [1, 1], true, false)",
        &[&[1, 1, 5, 5]],
        &[0.0, -0.833333, -0.5, 0.5, 0.444444, 0.0, -0.75, -1.0, 0.5],
    ),
    (
        "aten.avg_pool2d(%x, [2, 2], [2, 2], [1, 1], true, true)",
        &[&[1, 1, 5, 5]],
        &[-0.75, -0.75, 0.25, 0.5, 0.75, -0.75, 0.25, -1.5, 0.5],
    ),
    (
        "aten.adaptive_avg_pool2d(%x, [2, 3])",
        &[&[1, 1, 5, 5]],
        &[0.166667, 0.111111, -0.333333, -0.333333, 0.0, 0.333333],
    ),
    (
        "aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 2.0])",
        &[&[1, 1, 2, 3]],
        &[
            -3.0, -2.75, -2.25, -1.75, -1.25, -1.0, -2.25, -2.0, -1.5, -1.0, -0.5, -0.25, -0.75, -0.5, 0.0, 0.5, 1.0,
            1.25, 0.0, 0.25, 0.75, 1.25, 1.75, 2.0,
        ],
    ),
    (
        "aten.upsample_bilinear2d.vec(%x, [3, 4], true, none)",
        &[&[1, 1, 2, 3]],
        &[-3.0, -2.333333, -1.666667, -1.0, -1.5, -0.833333, -0.166667, 0.5, 0.0, 0.666667, 1.333333, 2.0],
    ),
    (
        "aten.upsample_nearest2d.vec(%x, none, [1.5, 1.5])",
        &[&[1, 1, 2, 3]],
        &[-3.0, -3.0, -2.0, -1.0, -3.0, -3.0, -2.0, -1.0, 0.0, 0.0, 1.0, 2.0],
    ),
    ("aten.softmax.int(%x, 1)", &[&[2, 3]], &[0.090031, 0.244728, 0.665241, 0.090031, 0.244728, 0.665241]),
    ("aten.layer_norm(%x, [3])", &[&[2, 3]], &[-1.224736, 0.0, 1.224736, -1.224736, 0.0, 1.224736]),
    ("aten.gelu(%x)", &[&[7]], &[-0.00405, -0.0455, -0.158655, 0.0, 0.841345, 1.9545, 2.99595]),
    ("aten.hardswish(%x)", &[&[7]], &[0.0, -0.333333, -0.333333, 0.0, 0.666667, 1.666667, 3.0]),
];

#[test]
fn ops_give_torchs_values() {
    for (call, shapes, want) in CASES {
        let params: Vec<_> = ["x", "w", "b"].iter().zip(*shapes).map(|(n, s)| format!("%{n}: f32{s:?}")).collect();
        let g = text::parse(&format!("graph({}) {{\n %y = {call}\n return %y\n}}", params.join(", "))).unwrap();
        let inputs: Vec<_> = shapes.iter().map(|s| ramp(s)).collect();
        let got = run(&g, &inputs).unwrap().remove(0);
        let meta = g.tensor_meta(g.results()[0]).unwrap();
        assert_eq!(
            meta.shape.iter().map(|d| d.as_const().unwrap() as usize).collect::<Vec<_>>(),
            got.shape(),
            "{call}"
        );
        let got = got.to_f32();
        assert_eq!(got.len(), want.len(), "{call}");
        for (a, b) in got.iter().zip(*want) {
            assert!((a - b).abs() <= 2e-6, "{call}: {got:?}");
        }
    }
}

#[test]
fn gradients_of_rows_are_added_up_by_index() {
    for (with, want) in [("0, false", [0.0, 0.0, -2.0, 0.0, 0.0, 0.0]), ("-1, true", [0.0, 0.0, -1.0, 0.0, -1.0, 0.0])]
    {
        let indices = if with.ends_with("true") { vec![1i64, 2, 1] } else { vec![1, 0, 1] };
        let call = format!("aten.embedding_dense_backward(%g, %i, 3, {with})");
        let g = text::parse(&format!("graph(%g: f32[3, 2], %i: i64[3]) {{\n %y = {call}\n return %y\n}}")).unwrap();
        let got = run(&g, &[ramp(&[3, 2]), Tensor::new(&[3], indices)]).unwrap();
        assert_eq!(got[0].to_f32().to_vec(), want, "{with}");
    }
}

#[test]
fn quantize_rounds_as_the_graph_says() {
    let text = |with: &str| {
        format!(
            "graph(%x: f32[3]){with} {{\n %q = quantized_decomposed.quantize_per_tensor(%x, 0.3, 3, 0, 255, u8)\n return %q\n}}"
        )
    };
    // 2.25 / 0.3 is 7.4999995 in f32, 2.25 · (1 / 0.3) is 7.5.
    let x = Tensor::new(&[3], vec![2.25f32, -9.0, f32::NAN]);
    for (with, want) in [("", [11u8, 0, 3]), (" with quantize = \"divide\"", [10, 0, 3])] {
        let g = text::parse(&text(with)).unwrap();
        assert_eq!(run(&g, std::slice::from_ref(&x)).unwrap()[0].elements::<u8>().unwrap().as_ref(), want);
    }
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let g = text::parse("graph(%x \"image\": f32[N, 3]) where 1 <= N <= 4 {\n return %x\n}").unwrap();
    let says = |inputs: &[Tensor]| run(&g, inputs).unwrap_err().to_string();
    assert_eq!(says(&[]), "input 'image': expected 1 inputs (image), found 0");
    assert_eq!(says(&[Tensor::new(&[1, 3], vec![0i32; 3])]), "input 'image': expected f32, found i32");
    assert_eq!(says(&[ramp(&[2, 4])]), "input at node 'image': expected shape [N, 3], found [2, 4]");
    assert_eq!(says(&[ramp(&[5, 3])]), "input at node 'image': expected shape [N, 3], found [5, 3]");
}

#[test]
fn every_op_is_evaluated_or_has_a_rule() {
    let neither = |o: &&cleave_ir::Op| o.rule.is_none() && !super::ANCHORS.contains_key(o.name);
    let missing: Vec<&str> = cleave_ir::op::all().filter(neither).map(|o| o.name).collect();
    assert_eq!(missing, [""; 0]);
}
