//! Raising and decomposing change what a graph says, not what it computes: every rule's example, and the tables,
//! run before and after by the reference interpreter on the same numbers.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_decompose::raise::RULES;
use cleave_decompose::{Table, decompose, functionalize, raise};
use cleave_ir::{Bindings, Graph, Tensor, text, transform};
use cleave_numerics::DType;
use cleave_runtime::reference;

/// A small generator: the numbers are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32
    }

    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::new(shape, (0..n).map(|_| self.next()).collect::<Vec<f32>>())
    }
}

/// Numbers from 0 to 1 as elements of a type: floats between two bounds, or levels.
fn typed(t: &Tensor, dtype: DType, low: f32, high: f32) -> Tensor {
    let (x, shape) = (t.to_f32(), t.shape());
    match dtype {
        DType::U8 => Tensor::new(shape, x.iter().map(|v| (v * 255.0) as u8).collect()),
        DType::I32 => Tensor::new(shape, x.iter().map(|v| (v * 255.0) as i32 - 127).collect()),
        DType::F16 => Tensor::new(shape, x.iter().map(|v| half::f16::from_f32(low + (high - low) * v)).collect()),
        _ => Tensor::new(shape, x.iter().map(|v| low + (high - low) * v).collect::<Vec<f32>>()),
    }
}

/// The parsed graph with numbers in its constants (positive ones: some are variances), symbols bound to 2.
fn graph(src: &str, numbers: &mut Numbers) -> Graph {
    let mut g = text::parse(src).unwrap_or_else(|e| panic!("{e}\n{src}"));
    let names: Vec<String> = g.constants.keys().cloned().collect();
    for name in names {
        let old = &g.constants[&name];
        let new = typed(&numbers.tensor(old.shape()), old.dtype(), 0.1, 1.5);
        g.constants.insert(name, new);
    }
    let symbols: Vec<String> = g
        .nodes()
        .flat_map(|(_, n)| n.meta.as_tensor().map(|t| t.shape.clone()).unwrap_or_default())
        .flat_map(|d| d.symbols())
        .collect();
    let with: Bindings = symbols.into_iter().map(|s| (s, 2)).collect();
    transform::bind(&g, &with).unwrap()
}

fn inputs(g: &Graph, numbers: &mut Numbers) -> Vec<Tensor> {
    let shape = |id| -> Vec<usize> {
        let m = g.tensor_meta(id).unwrap();
        m.shape.iter().map(|d| d.as_const().unwrap() as usize).collect()
    };
    let dtype = |id| g.tensor_meta(id).unwrap().dtype;
    g.placeholders().into_iter().map(|id| typed(&numbers.tensor(&shape(id)), dtype(id), -6.0, 6.0)).collect()
}

fn assert_close(what: &str, a: &[Tensor], b: &[Tensor]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (a, b) in a.iter().zip(b) {
        assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()), "{what}");
        let (x, y) = (a.to_f64(), b.to_f64());
        let scale = x.iter().fold(1e-6, |m: f64, v| m.max(v.abs()));
        let worst = x.iter().zip(&y).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs()));
        assert!(worst <= 1e-5 * scale, "{what}: {worst} of {scale}");
    }
}

#[test]
fn every_raising_rule_computes_what_was_spelled_out() {
    let mut numbers = Numbers(1);
    for rule in RULES {
        let g = graph(rule.example.0, &mut numbers);
        let x = inputs(&g, &mut numbers);
        let raised = raise(&g).unwrap().0;
        let before = reference::run(&g, &x).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
        let after = reference::run(&raised, &x).unwrap_or_else(|e| panic!("{}: {e}", rule.name));
        assert_close(rule.name, &before, &after);
    }
}

/// Calls whose rules are worth a numeric check, on inputs `%x: f32[2, 4, 6, 6]`.
const CALLS: &[&str] = &[
    "%y = aten.hardswish(%x)",
    "%y = aten.hardsigmoid(%x)",
    "%y = aten.silu(%x)",
    "%y = aten.mish(%x)",
    "%y = aten.gelu(%x)",
    "%y = aten.elu(%x, 0.7)",
    "%y = aten.softplus(%x, 2.0)",
    "%y = aten.glu(%x, 1)",
    "%w = param \"w\": f32[4]\n %y = aten.prelu(%x, %w)",
    "%w = param \"w\": f32[5, 6]\n %b = param \"b\": f32[5]\n %y = aten.linear(%x, %w, %b)",
    "%w = param \"w\": f32[6, 5]\n %y = aten.matmul(%x, %w)",
    "%t = aten.transpose.int(%x, 2, 3)\n %y = aten.matmul(%x, %t)",
    "%y = aten.scaled_dot_product_attention(%x, %x, %x)",
    "%y = aten.scaled_dot_product_attention(%x, %x, %x, none, 0.0, true)",
    "%y = aten.einsum(\"bchw,bcdw->bchd\", [%x, %x])",
    "%y = aten.einsum(\"bchw,bcdw->bd\", [%x, %x])",
    "%y = aten.roll(%x, [1, -2], [2, 3])",
    "%y = aten.pixel_shuffle(%x, 2)",
    "%w = param \"w\": f32[6]\n %y = aten.layer_norm(%x, [6], %w, %w)",
    "%w = param \"w\": f32[4]\n %y = aten.batch_norm(%x, %w, %w, %w, %w, false, 0.1, 1e-3, false)",
    "%y = aten.softmax.int(%x, 1)",
    "%y = aten.adaptive_avg_pool2d(%x, [1, 1])",
    "%y = aten.adaptive_avg_pool2d(%x, [2, 3])",
    "%y = aten.max_pool2d(%x, [3, 3], [2, 2], [1, 1])",
    "%w = param \"w\": f32[5, 4, 4, 4]\n %y = aten.conv2d.padding(%x, %w, none, [1, 1], \"same\")",
    "%w = param \"w\": f32[4, 5, 3, 3]\n %y = aten.conv_transpose2d.input(%x, %w, none, [2, 2], [1, 1], [1, 1])",
    "%c = aten.chunk(%x, 3, 2)\n %a = getitem(%c, 0)\n %b = getitem(%c, 2)\n %y = aten.add.Tensor(%a, %b)",
    "%s = aten.stack([%x, %x], 1)\n %u = aten.unbind.int(%s, 1)\n %a = getitem(%u, 1)\n %y = aten.neg(%a)",
    "%s = aten.slice.Tensor(%x, 2, 1, 4)\n %f = aten.mul_.Tensor(%s, 3.0)\n %y = aten.add.Tensor(%x, 1.0)",
    "%p = aten.permute(%x, [0, 2, 3, 1])\n %y = aten.reshape(%p, [2, 6, 24])",
];

#[test]
fn tables_keep_what_a_graph_computes() {
    let mut numbers = Numbers(2);
    for body in CALLS {
        let g = graph(&format!("graph(%x: f32[2, 4, 6, 6]) {{\n {body}\n return %y\n}}"), &mut numbers);
        let x = inputs(&g, &mut numbers);
        let functional = functionalize(&g).unwrap();
        let want = reference::run(&functional, &x).unwrap_or_else(|e| panic!("{body}: {e}"));
        for table in ["empty", "semantic", "cpu", "core", "prims"] {
            let out = decompose(&g, &Table::named(table).unwrap()).unwrap_or_else(|e| panic!("{body} at {table}: {e}"));
            let got = reference::run(&out, &x).unwrap_or_else(|e| panic!("{body} at {table}: {e}"));
            assert_close(&format!("{body} at {table}"), &want, &got);
        }
    }
}

#[test]
fn a_write_through_a_view_is_seen_in_the_base() {
    let src = "graph(%x: f32[2, 3]) {\n %s = aten.select.int(%x, 1, 1)\n %f = aten.fill_.Scalar(%s, 7)\n %y = aten.add.Tensor(%x, 0.5)\n return %y\n}";
    let g = functionalize(&text::parse(src).unwrap()).unwrap();
    let x = Tensor::new(&[2, 3], vec![0f32, 1., 2., 3., 4., 5.]);
    let y = reference::run(&g, &[x]).unwrap();
    assert_eq!(y[0].to_f64(), [0.5, 7.5, 2.5, 3.5, 7.5, 5.5]);
}

/// Graphs that look like what a rule recognises and compute something else.
#[test]
fn lookalikes_keep_what_they_compute() {
    for src in [
        // Permutations where a linear layer has views.
        "graph(%x: f32[2, 4, 4]) {\n %w = param \"w\": f32[4, 4]\n %t = aten.permute(%x, [0, 2, 1])\n %m = aten.linear(%t, %w)\n %y = aten.permute(%m, [0, 2, 1])\n return %y\n}",
        "graph(%x: f32[2, 4, 4]) {\n %t = aten.permute(%x, [0, 2, 1])\n %m = aten.layer_norm(%t, [4])\n %y = aten.permute(%m, [0, 2, 1])\n return %y\n}",
        // Groups that are not folded into channels.
        "graph(%x: f32[2, 4, 2, 2]) {\n %f = aten.view(%x, [2, 4, 4])\n %n = aten.group_norm(%f, 2)\n %y = aten.view(%n, [2, 4, 2, 2])\n return %y\n}",
        "graph(%x: f32[4, 4, 2, 2]) {\n %f = aten.view(%x, [2, 2, 16])\n %n = aten.group_norm(%f, 2)\n %y = aten.view(%n, [4, 4, 2, 2])\n return %y\n}",
        // Weights of groups, not of channels.
        "graph(%x: f32[2, 4, 2, 2]) {\n %w = param \"w\": f32[2]\n %f = aten.view(%x, [2, 2, 8])\n %n = aten.group_norm(%f, 2, %w)\n %y = aten.view(%n, [2, 4, 2, 2])\n return %y\n}",
        // A softmax over the queries; keys that are turned otherwise; a mask that gives the result another shape.
        "graph(%q: f32[2, 3, 3], %k: f32[2, 3, 3], %v: f32[2, 3, 3]) {\n %t = aten.permute(%k, [0, 2, 1])\n %s = aten.matmul(%q, %t)\n %w = aten.softmax.int(%s, 1)\n %y = aten.matmul(%w, %v)\n return %y\n}",
        "graph(%q: f32[3, 3, 3], %k: f32[3, 3, 3], %v: f32[3, 3, 3]) {\n %t = aten.permute(%k, [1, 0, 2])\n %s = aten.matmul(%q, %t)\n %w = aten.softmax.int(%s, 2)\n %y = aten.matmul(%w, %v)\n return %y\n}",
        "graph(%q: f32[1, 3, 4], %k: f32[1, 3, 4], %v: f32[1, 3, 4], %m: f32[2, 3, 3]) {\n %t = aten.permute(%k, [0, 2, 1])\n %s = aten.matmul(%q, %t)\n %a = aten.add.Tensor(%s, %m)\n %w = aten.softmax.int(%a, 2)\n %y = aten.matmul(%w, %v)\n return %y\n}",
        // Means over other dimensions, and sums that are none.
        "graph(%x: f32[3, 3]) {\n %p = aten.pow.Tensor_Scalar(%x, 2)\n %v = aten.mean.dim(%p, [0], true)\n %e = aten.add.Tensor(%v, 1e-5)\n %s = aten.sqrt(%e)\n %y = aten.div.Tensor(%x, %s)\n return %y\n}",
        "graph(%x: f32[3, 3]) {\n %s = aten.sum.dim_IntList(%x, [1], true)\n %y = aten.div.Tensor(%s, 4)\n return %y\n}",
        "graph(%x: f32[3, 3]) {\n %m = aten.amax(%x, [0], true)\n %c = aten.sub.Tensor(%x, %m)\n %e = aten.exp(%c)\n %s = aten.sum.dim_IntList(%e, [1], true)\n %y = aten.div.Tensor(%e, %s)\n return %y\n}",
        // A shuffle by other groups than it is undone by.
        "graph(%x: f32[1, 6, 2, 2]) {\n %f = aten.view(%x, [1, 2, 3, 2, 2])\n %t = aten.permute(%f, [0, 1, 2, 4, 3])\n %y = aten.view(%t, [1, 6, 2, 2])\n return %y\n}",
        // Factors of the last dimension, not of channels.
        "graph(%x: f32[2, 3, 3]) {\n %s = param \"s\": f32[3]\n %t = param \"t\": f32[3]\n %m = aten.mul.Tensor(%x, %s)\n %y = aten.add.Tensor(%m, %t)\n return %y\n}",
    ] {
        let mut numbers = Numbers(5);
        let g = graph(src, &mut numbers);
        let x = inputs(&g, &mut numbers);
        let raised = raise(&g).unwrap().0;
        assert_close(&raised.to_string(), &reference::run(&g, &x).unwrap(), &reference::run(&raised, &x).unwrap());
    }
}
