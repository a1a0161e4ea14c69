//! int8 on the small trained networks: accuracy, the same bits everywhere, and artifacts that read back.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave::backend::{Backend, run_batched};
use cleave::metrics::{Comparison, top1};
use cleave::pipeline::{self, Quantized, Settings, quantize};
use cleave::{demo, model};
use cleave_ir::{Graph, Tensor};
use cleave_kernels::{Isa, Level};
use cleave_runtime::{Options, Session, reference};
use cleave_tests::fixture;
use std::sync::LazyLock;

/// (network, quantizer), quantized once for all tests.
static QUANTIZED: LazyLock<Vec<(&str, &str, Quantized)>> = LazyLock::new(|| {
    let cases = [
        ("tiny_fashion", "cpu"),
        ("depthwise_fashion", "cpu"),
        ("depthwise_fashion", "onnx"),
        ("tiny_fashion", "xnnpack"),
        ("tiny_fashion", "x86"),
    ];
    cases.map(|(network, quantizer)| (network, quantizer, quantized(network, quantizer, &[]))).into()
});

fn quantized(network: &str, quantizer: &str, float: &[&str]) -> Quantized {
    let export = cleave_formats::read(&fixture(&format!("fashion/{network}.pt2"))).unwrap();
    let samples = [demo::calibration(64)];
    let float = float.iter().map(ToString::to_string).collect();
    let settings = Settings { quantizer: quantizer.into(), float, ..Settings::default() };
    quantize(&export, samples.as_slice(), &settings, &mut |_, _, _| {}).unwrap()
}

fn run(g: &Graph, x: &Tensor, options: Options) -> Tensor {
    let mut b = Backend::new("cpu", g, options).unwrap();
    run_batched(g, &mut b, std::slice::from_ref(x), &mut |_, _| {}).unwrap().remove(0)
}

fn accuracy(g: &Graph) -> f64 {
    let y = run(g, &demo::test_images(1000), Options::default());
    let (y, labels) = (y.to_f32(), demo::test_labels());
    let hits = y.chunks(10).zip(labels).filter(|(row, l)| top1(row) == usize::from(**l)).count();
    hits as f64 / 1000.0
}

#[test]
fn accuracy_is_that_of_float() {
    for (network, quantizer, q) in QUANTIZED.iter() {
        let (float, int8) = (accuracy(&q.raised), accuracy(&q.converted.graph));
        assert!(float > 0.89, "{network}: float {float}");
        let allowed = if *network == "tiny_fashion" { 0.003 } else { 0.01 };
        assert!(int8 >= float - allowed, "{network} by {quantizer}: float {float}, int8 {int8}");
    }
}

#[test]
fn bits_are_the_same_on_every_instruction_set_and_thread_count() {
    let x = demo::test_images(3);
    for (network, quantizer, q) in QUANTIZED.iter() {
        let best = run(&q.converted.graph, &x, Options::default());
        for level in Level::ALL {
            let Some(isa) = Isa::new(level) else { continue };
            for threads in [1, 2] {
                let y = run(&q.converted.graph, &x, Options { isa, threads });
                assert!(y == best, "{network} by {quantizer} on {} with {threads} threads", level.name());
            }
        }
    }
}

/// The QDQ graph in float means what the integer kernels compute: rare ties apart, the same levels.
#[test]
fn kernels_compute_what_the_graph_says() {
    let x = demo::test_images(8);
    for (network, quantizer, q) in QUANTIZED.iter() {
        let want = reference::run(&q.converted.graph, std::slice::from_ref(&x)).unwrap().remove(0);
        let got = run(&q.converted.graph, &x, Options::default());
        let (mut near, mut float) = (Comparison::default(), Comparison::default());
        near.add(&want, &got).unwrap();
        float.add(&want, &run(&q.raised, &x, Options::default())).unwrap();
        let (near, float) = (near.finish().sqnr_db, float.finish().sqnr_db);
        assert!(near >= float + 5.0, "{network} by {quantizer}: kernels {near:.1} dB, float {float:.1} dB");
    }
}

#[test]
fn every_node_has_a_row_and_a_kernel() {
    for (network, quantizer, q) in QUANTIZED.iter() {
        let plan = &q.converted.plan;
        let kernels = pipeline::kernels(&q.converted.graph, &[vec![1, 1, 28, 28]], Options::default()).unwrap();
        for r in &plan.rows {
            let known = r.status == cleave_quantize::Status::Folded || kernels.nodes.contains_key(&r.node);
            assert!(known, "{network} by {quantizer}: {} has no kernel", r.node);
        }
        for n in
            q.converted.graph.nodes().filter(|(_, n)| n.op().is_some_and(|o| ["conv2d", "linear"].contains(&o.base())))
        {
            let kernel = &kernels.nodes[&n.1.name];
            assert!(kernel.contains("u8s8"), "{network} by {quantizer}: {} runs on {kernel}", n.1.name);
        }
    }
}

#[test]
fn artifacts_read_back_to_the_same_bits() {
    let dir = tempfile::tempdir().unwrap();
    let x = demo::test_images(4);
    for (network, quantizer, q) in QUANTIZED.iter() {
        let want = run(&q.converted.graph, &x, Options::default());
        for ext in ["clv", "onnx", "pt2"] {
            let path = dir.path().join(format!("{network}_{quantizer}.{ext}"));
            pipeline::write(&path, &q.converted.graph).unwrap();
            let back = model::read_runnable(&path).unwrap();
            assert_eq!(back.input_names, q.converted.graph.input_names, "{ext}");
            let got = run(&back, &x, Options::default());
            assert!(got == want, "{network} by {quantizer} through .{ext}");
            let bytes = std::fs::read(&path).unwrap();
            pipeline::write(&path, &q.converted.graph).unwrap();
            assert!(bytes == std::fs::read(&path).unwrap(), "{network} by {quantizer}: two .{ext} files differ");
        }
    }
}

#[test]
fn quantizing_twice_gives_the_same_graph() {
    let (a, b) = (quantized("tiny_fashion", "cpu", &[]), quantized("tiny_fashion", "cpu", &[]));
    assert_eq!(a.converted.graph.to_string(), b.converted.graph.to_string());
    assert!(a.converted.graph.constants.iter().eq(b.converted.graph.constants.iter()));
}

#[test]
fn an_excluded_node_has_float_inputs() {
    let q = quantized("tiny_fashion", "cpu", &["linear"]);
    let g = &q.converted.graph;
    let linear = g.find("linear").unwrap();
    let weight = g.node(linear).arg("weight").unwrap().nodes()[0];
    assert!(g.constant(weight).is_some(), "its weight is still quantized");
    let row = q.converted.plan.row("linear").unwrap();
    assert_eq!(row.status, cleave_quantize::Status::Float);
}

#[test]
fn a_symbolic_batch_runs_at_any_size() {
    let (.., q) = &QUANTIZED[0];
    let mut session = Session::new(&q.converted.graph, Options::default()).unwrap();
    let images = demo::test_images(5);
    let all = session.run(std::slice::from_ref(&images)).unwrap().remove(0);
    for i in 0..5 {
        let one = session.run(&[images.narrow(0, i, 1)]).unwrap().remove(0);
        assert!(one == all.narrow(0, i, 1), "image {i} differs in a batch");
    }
}
