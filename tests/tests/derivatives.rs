//! Derivatives against central finite differences, on the examples of all ops.
//!
//! To look at some ops only: `OPS=upsample cargo test -p cleave-tests --test derivatives`.

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

/// Ops whose rules lead to one that is refused.
const REFUSED: [&str; 15] = [
    "aten.histogramdd.default",
    "aten.histogramdd.int_bins",
    "aten.linalg_svd.default",
    "aten.svd.default",
    "prims.svd.default",
    "aten.linalg_lu_factor.default",
    "aten._lu_with_info.default",
    "aten.linalg_ldl_factor.default",
    "aten.fake_quantize_per_tensor_affine.default",
    "aten.fake_quantize_per_tensor_affine.tensor_qparams",
    "aten.fake_quantize_per_channel_affine.default",
    "aten.fake_quantize_per_tensor_affine_cachemask.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten.lu_solve.default",
];

/// Ops that have no examples: torch does not notice what the first changes; the next have a derivative by one argument
/// only (`backward.rs` has examples of it), the last by some of their results only (the ops whose rules call them have).
const WITHOUT: [&str; 10] = [
    "aten.embedding_renorm.default",
    "aten.igamma.default",
    "aten.igammac.default",
    "prims.igamma.default",
    "prims.igammac.default",
    "prims.zeta.default",
    "aten._linalg_det.default",
    "aten._linalg_slogdet.default",
    "aten._linalg_solve_ex.default",
    "aten._linalg_svd.default",
];

fn differentiable(o: &Op) -> bool {
    let wanted = std::env::var("OPS").ok();
    let refused = matches!(o.derivative.map(|d| d.slope), Some(Slope::Zero(_) | Slope::Refused(_)));
    !refused
        && !REFUSED.contains(&o.name)
        && (o.rule.is_some() || o.derivative.is_some())
        && wanted.is_none_or(|w| o.name.contains(w.as_str()))
}

/// Checks all examples of differentiable ops, with floats of this type, on two threads: how many hold, the sum of what
/// they give, and why others do not.
fn examples(
    float: DType,
    check: impl Fn(&Example, u64) -> Result<usize, String> + Sync,
) -> (usize, usize, Vec<String>) {
    let ops: Vec<&'static Op> = op::all().filter(|o| differentiable(o)).collect();
    let part = |from: usize| {
        let (mut held, mut sum, mut bad) = (0, 0, vec![]);
        for o in ops.iter().skip(from).step_by(2) {
            for (k, e) in example::of(o, float).unwrap_or_default().iter().enumerate() {
                match check(e, k as u64 + 1) {
                    Ok(n) => (held, sum) = (held + 1, sum + n),
                    Err(why) => bad.push(format!("{} ({k}): {why}", o.name)),
                }
            }
        }
        (held, sum, bad)
    };
    std::thread::scope(|s| {
        let other = s.spawn(|| part(1));
        let (held, sum, mut bad) = part(0);
        let (h, n, b) = other.join().unwrap();
        bad.extend(b);
        (held + h, sum + n, bad)
    })
}

fn elements(t: &[Tensor]) -> Vec<Vec<f64>> {
    t.iter().map(Tensor::to_f64).collect()
}

fn floats(results: &[Tensor]) -> impl Iterator<Item = &Tensor> {
    results.iter().filter(|t| t.dtype().is_float())
}

/// The sum of results weighted by seeds.
fn loss(g: &Graph, inputs: &[Tensor], seeds: &[Tensor]) -> f64 {
    let results = reference::run(g, inputs).unwrap();
    let products = floats(&results).zip(seeds).flat_map(|(y, s)| y.to_f64().into_iter().zip(s.to_f64()));
    products.map(|(y, s)| y * s).sum()
}

/// Numbers around 1 of alternating sign, unlike one another, for each float result.
fn seeds(results: &[Tensor]) -> Vec<Tensor> {
    let sign = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
    let seed = |(k, t): (usize, &Tensor)| {
        let numbers = (0..t.len()).map(|i| sign(i + k) * (0.6 + ((i * 7 + k * 3) % 11) as f64 / 13.0));
        match t.dtype() {
            DType::F64 => Tensor::new(t.shape(), numbers.collect::<Vec<f64>>()),
            _ => Tensor::new(t.shape(), numbers.map(|v| v as f32).collect::<Vec<f32>>()),
        }
    };
    floats(results).enumerate().map(seed).collect()
}

fn close(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    let scale = a.iter().chain(b).fold(1.0, |m: f64, v| m.max(v.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(x, y)| (x - y).abs() <= tolerance * scale)
}

/// Compares gradients, at every depth, with differences; how many there are.
fn differences(e: &Example, number: u64) -> Result<usize, String> {
    let (g, inputs) = (&e.graph, e.inputs(number));
    let joint = backward(g).map_err(|e| e.to_string())?;
    let results = reference::run(g, &inputs).map_err(|e| e.to_string())?;
    let seeds = seeds(&results);
    let fed = [inputs.as_slice(), &seeds].concat();
    let got = reference::run(&joint, &fed).map_err(|e| format!("{e}\n{joint}"))?;
    for table in [Table::core(), Table::prims()] {
        let low = decompose(&joint, &table).map_err(|e| format!("at {}: {e}", table.name))?;
        let same = reference::run(&low, &fed).map_err(|e| format!("at {}: {e}", table.name))?;
        if !elements(&got).iter().zip(elements(&same)).all(|(a, b)| close(a, &b, 1e-9)) {
            return Err(format!("at {}: {:?}, not {:?}", table.name, elements(&same), elements(&got)));
        }
    }
    // Differences of other types are not exact enough.
    if floats(&results).any(|t| t.dtype() != DType::F64) {
        return Ok(0);
    }
    let mut compared = 0;
    let exact = inputs.iter().enumerate().filter(|(_, t)| t.dtype() == DType::F64);
    for ((i, x), gradient) in exact.zip(&got[results.len()..]) {
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
        compared += got.len();
    }
    Ok(compared)
}

#[test]
fn what_is_listed_as_refused_is_refused() {
    for o in REFUSED.iter().map(|n| op::find(n).unwrap()) {
        for e in example::of(o, DType::F64).unwrap() {
            assert!(backward(&e.graph).is_err(), "{}", o.name);
        }
    }
}

#[test]
fn gradients_are_finite_differences() {
    let (held, compared, bad) = examples(DType::F64, differences);
    eprintln!("{held} examples hold, {compared} elements");
    assert!(bad.is_empty(), "{} do not hold:\n{}", bad.len(), bad.join("\n"));
}

/// Where a branch that is not taken overflows, its gradient is not used: large inputs whose results are finite have finite
/// gradients.
#[test]
fn large_inputs_have_finite_gradients() {
    let finite = |t: &[Tensor]| t.iter().all(|t| t.to_f64().iter().all(|v| v.is_finite()));
    let (_, _, bad) = examples(DType::F64, |e, number| {
        let large = |t: &Tensor| match t.dtype() {
            DType::F64 => Tensor::new(t.shape(), t.to_f64().iter().map(|v| v * 600.0).collect()),
            _ => t.clone(),
        };
        let inputs: Vec<Tensor> = e.inputs(number).iter().map(large).collect();
        let (Ok(results), Ok(joint)) = (reference::run(&e.graph, &inputs), backward(&e.graph)) else { return Ok(0) };
        let got = reference::run(&joint, &[inputs.as_slice(), &seeds(&results)].concat()).map_err(|e| e.to_string())?;
        let gradients = &got[results.len()..];
        if !finite(&results) || finite(gradients) {
            return Ok(1);
        }
        Err(format!("{:?} at {:?}", elements(gradients), elements(&inputs)))
    });
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// Gradients have their inputs' types, also where torch computes in others on the way.
#[test]
fn halves_have_gradients_of_their_type() {
    let (_, _, bad) = examples(DType::F16, |e, number| {
        let joint = backward(&e.graph).map_err(|e| e.to_string())?;
        let want: Vec<DType> = e.inputs(number).iter().map(Tensor::dtype).filter(|d| d.is_float()).collect();
        let gradients = joint.results().split_off(e.graph.results().len());
        let got: Vec<DType> = gradients.into_iter().map(|id| joint.tensor_meta(id).unwrap().dtype).collect();
        if got == want { Ok(1) } else { Err(format!("{got:?} for {want:?}")) }
    });
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
fn every_derivative_is_of_a_listed_op_and_has_an_example() {
    let bad: Vec<&str> = cleave_ir::ops::derivative::all()
        .iter()
        .filter(|d| {
            let bare = |o: &Op| o.example.is_empty() && d.example.is_empty();
            let given = matches!(d.slope, Slope::Given(_) | Slope::Unary(_));
            op::find(d.op).map_or(true, |o| given && bare(o) && !WITHOUT.contains(&o.name))
        })
        .map(|d| d.op)
        .collect();
    assert!(bad.is_empty(), "{bad:?}");
}
