//! Derivatives against central finite differences, on the examples of all ops.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_decompose::{Table, backward, decompose};
use cleave_ir::derivative::Slope;
use cleave_ir::example::{self, Example};
use cleave_ir::schema::Type;
use cleave_ir::{Class, Graph, Op, Tensor, op};
use cleave_numerics::DType;
use cleave_runtime::reference;

/// Steps of differences, and how far they may be from gradients, of the greatest.
const STEP: f64 = 1e-5;
const CLOSE: f64 = 1e-5;

fn elements(t: &[Tensor]) -> Vec<Vec<f64>> {
    t.iter().map(Tensor::to_f64).collect()
}

/// The sum of results weighted by seeds.
fn loss(g: &Graph, inputs: &[Tensor], seeds: &[Tensor]) -> f64 {
    let results = reference::run(g, inputs).unwrap();
    let floats = results.iter().filter(|t| t.dtype().is_float());
    floats.zip(seeds).flat_map(|(y, s)| y.to_f64().into_iter().zip(s.to_f64())).map(|(y, s)| y * s).sum()
}

/// Numbers around 1 of alternating sign, unlike one another.
fn seed(shape: &[usize], k: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    Tensor::new(shape, (0..n).map(|i| sign(i + k) * (0.6 + ((i * 7 + k * 3) % 11) as f64 / 13.0)).collect())
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let scale = a.iter().chain(b).fold(1.0, |m: f64, v| m.max(v.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() <= tolerance * scale)
}

/// What is wrong with the gradients of one example.
fn check(e: &Example, seed_number: u64) -> Result<usize, String> {
    let g = &e.graph;
    let inputs = e.inputs(seed_number);
    let joint = backward(g).map_err(|e| e.to_string())?;
    let results = reference::run(g, &inputs).map_err(|e| e.to_string())?;
    let floats = results.iter().filter(|t| t.dtype().is_float());
    let seeds: Vec<Tensor> = floats.enumerate().map(|(k, t)| seed(t.shape(), k)).collect();
    let fed = [inputs.as_slice(), &seeds].concat();
    let got = reference::run(&joint, &fed).map_err(|e| format!("{e}\n{joint}"))?;
    for table in [Table::core(), Table::prims()] {
        let low = decompose(&joint, &table).map_err(|e| format!("at {}: {e}", table.name))?;
        let same = reference::run(&low, &fed).map_err(|e| format!("at {}: {e}", table.name))?;
        if !elements(&got).iter().zip(elements(&same)).all(|(a, b)| close(a, &b, 1e-9)) {
            return Err(format!("at {}: {:?}, not {:?}", table.name, elements(&same), elements(&got)));
        }
    }
    let mut checked = 0;
    for (i, gradient) in inputs.iter().enumerate().filter(|(_, t)| t.dtype() == DType::F64).zip(&got[results.len()..]) {
        let (i, x) = i;
        let difference = |j: usize| {
            let at = |step: f64| {
                let mut moved = x.to_f64();
                moved[j] += step;
                let mut all = inputs.clone();
                all[i] = Tensor::new(x.shape(), moved);
                loss(g, &all, &seeds)
            };
            (at(STEP) - at(-STEP)) / (2.0 * STEP)
        };
        let want: Vec<f64> = (0..x.len()).map(difference).collect();
        let got = gradient.to_f64();
        if gradient.shape() != x.shape() || !close(&got, &want, CLOSE) {
            return Err(format!("input {i}: gradient {got:?}, difference {want:?}\n{joint}"));
        }
        checked += got.len();
    }
    Ok(checked)
}

/// Ops whose rules lead to one that is refused.
const REFUSED: [&str; 2] = ["aten.histogramdd.default", "aten.histogramdd.int_bins"];

fn differentiable(o: &Op) -> bool {
    if REFUSED.contains(&o.name) {
        return false;
    }
    !matches!(o.derivative.map(|d| d.slope), Some(Slope::Zero(_) | Slope::Refused(_)))
        && (o.rule.is_some() || o.derivative.is_some())
}

/// Where a branch that is not taken overflows, its gradient is not used: large inputs whose results are finite have finite
/// gradients.
#[test]
fn large_inputs_have_finite_gradients() {
    let mut bad = vec![];
    for o in op::all().filter(|o| differentiable(o)) {
        for e in example::of(o, DType::F64).unwrap_or_default() {
            let large = |t: &Tensor| match t.dtype() {
                DType::F64 => Tensor::new(t.shape(), t.to_f64().iter().map(|v| v * 600.0).collect()),
                _ => t.clone(),
            };
            let inputs: Vec<Tensor> = e.inputs(1).iter().map(large).collect();
            let Ok(results) = reference::run(&e.graph, &inputs) else { continue };
            let finite = |t: &[Tensor]| t.iter().all(|t| t.to_f64().iter().all(|v| v.is_finite()));
            let Ok(joint) = backward(&e.graph) else { continue };
            let floats = results.iter().filter(|t| t.dtype().is_float());
            let seeds: Vec<Tensor> = floats.enumerate().map(|(k, t)| seed(t.shape(), k)).collect();
            let got = reference::run(&joint, &[inputs.as_slice(), &seeds].concat()).unwrap();
            if finite(&results) && !finite(&got) {
                let inputs = elements(&inputs);
                bad.push(format!("{}: {:?} at {inputs:?}", o.name, elements(&got[results.len()..])));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Gradients have their inputs' types, also where torch computes in others on the way.
#[test]
fn halves_have_gradients_of_their_type() {
    let mut bad = vec![];
    for o in op::all().filter(|o| differentiable(o)) {
        for e in example::of(o, DType::F16).unwrap_or_default() {
            let n = e.graph.results().len();
            let floats: Vec<DType> = e.inputs(1).iter().map(Tensor::dtype).filter(|d| d.is_float()).collect();
            let joint = match backward(&e.graph) {
                Ok(g) => g,
                Err(e) if e.to_string().contains("unknown op") => continue,
                Err(e) => {
                    bad.push(format!("{}: {e}", o.name));
                    continue;
                }
            };
            let got: Vec<DType> = joint.results()[n..].iter().map(|id| joint.tensor_meta(*id).unwrap().dtype).collect();
            if got != floats {
                bad.push(format!("{}: {got:?} for {floats:?}", o.name));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_op_at_the_bottom_says_what_its_derivative_is() {
    let silent = op::all().filter(|o| o.rule.is_none() && o.derivative.is_none() && !o.schema.mutates());
    let calls = silent.filter(|o| !matches!(o.class, Class::Structural | Class::Inert));
    let takes = |o: &&Op| o.schema.params.iter().any(|p| matches!(p.ty, Type::Tensor | Type::TensorList));
    let silent: Vec<&str> = calls.filter(takes).map(|o| o.name).collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn gradients_are_finite_differences() {
    let wanted = std::env::var("OPS").ok();
    let (mut bad, mut held, mut checked) = (vec![], 0, 0);
    for o in op::all().filter(|o| differentiable(o) && wanted.as_ref().is_none_or(|w| o.name.contains(w.as_str()))) {
        for (k, e) in example::of(o, DType::F64).unwrap_or_default().iter().enumerate() {
            match check(e, k as u64 + 1) {
                Ok(n) => {
                    held += 1;
                    checked += n;
                }
                Err(why) if why.contains("unknown op") => {}
                Err(why) => bad.push(format!("{} ({k}): {why}", o.name)),
            }
        }
    }
    eprintln!("{held} examples hold, {checked} elements");
    assert!(bad.is_empty(), "{} do not hold:\n{}", bad.len(), bad.join("\n"));
}
