//! What raising makes can be written: the examples of all raisable ops as files, read back and run.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_ir::{example, op};
use cleave_numerics::DType;
use cleave_runtime::reference;

/// What ONNX has no operators for: an op, the number of its example, and what is said.
const REFUSED: [(&str, usize, &str); 5] = [
    ("aten.batch_norm.default", 1, "batch norm in training mode"),
    ("aten.max_pool2d.default", 1, "unsqueeze it first"),
    ("aten.adaptive_avg_pool2d.default", 0, "output size [2, 3] does not divide [1, 2, 4, 5]"),
    ("aten.adaptive_avg_pool2d.default", 1, "output size [1, 1] does not divide [2, 3, 4]"),
    ("aten.adaptive_avg_pool3d.default", 0, "output size [2, 2, 2] does not divide [1, 1, 2, 3, 4]"),
];

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1.3e-5 * b.abs()
}

#[test]
fn raisable_ops_can_be_written_in_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = vec![];
    for o in op::all().filter(|o| o.raisable) {
        for (i, e) in example::of(o, DType::F32).unwrap().iter().enumerate() {
            let inputs = e.inputs(3);
            let want = reference::run(&e.graph, &inputs).unwrap();
            for ending in ["onnx", "pt2", "clv"] {
                let path = dir.path().join(format!("{}_{i}.{ending}", o.name));
                let got = cleave::pipeline::write(&path, &e.graph)
                    .and_then(|()| cleave_formats::read(&path).map_err(Into::into))
                    .map_err(|e| e.to_string())
                    .and_then(|g| reference::run(&g, &inputs).map_err(|e| e.to_string()));
                let same = |a: &cleave_ir::Tensor, b: &cleave_ir::Tensor| {
                    let values = a.to_f64();
                    a.shape() == b.shape() && values.iter().zip(b.to_f64()).all(|(a, b)| close(*a, b))
                };
                let refused = REFUSED.iter().find(|(name, n, _)| ending == "onnx" && (*name, *n) == (o.name, i));
                match got {
                    Err(why) if refused.is_some_and(|(.., said)| why.contains(said)) && !path.exists() => {}
                    _ if refused.is_some() => bad.push(format!("{} (example {i}) as {ending}: not refused", o.name)),
                    Ok(got) if got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| same(a, b)) => {}
                    Ok(_) => bad.push(format!("{} (example {i}) as {ending}: other results", o.name)),
                    Err(why) => bad.push(format!("{} (example {i}) as {ending}: {why}", o.name)),
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
