//! Every rule in its uses, from the list of ops: it decomposes and gives the op's own results, infers what it gives,
//! and, where it is marked so, is found again by its trace. Derivatives have a test of their own.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_decompose::raise::traced;
use cleave_decompose::{Table, decompose, raise};
use cleave_ir::{Class, Graph, Levels, Op, example, op};
use cleave_numerics::DType;
use cleave_runtime::reference;

/// Ops with a rule, but for those in place: their rule is the op that they mutate by.
fn with_rules() -> impl Iterator<Item = &'static Op> {
    op::all().filter(|o| o.rule.is_some() && !o.schema.mutates())
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-5 + 1.3e-6 * b.abs()
}

#[test]
fn every_rule_has_an_example() {
    let without: Vec<&str> = with_rules().filter(|o| o.example.is_empty()).map(|o| o.name).collect();
    assert!(without.is_empty(), "{}", without.join(", "));
}

#[test]
fn every_rule_decomposes_to_the_same_results() {
    let mut bad = vec![];
    for o in with_rules() {
        for (i, e) in example::of(o, DType::F32).unwrap_or_else(|e| panic!("{}: {e}", o.name)).iter().enumerate() {
            let inputs = e.inputs(7);
            let want = reference::run(&e.graph, &inputs).unwrap_or_else(|e| panic!("{}: {e}", o.name));
            for table in [Table::core(), Table::prims()] {
                let got = decompose(&e.graph, &table).map_err(|e| e.to_string()).and_then(|g| {
                    if table.name == "prims"
                        && !o.levels.meets(Levels::PRIMS)
                        && g.nodes().any(|(_, n)| n.op() == Some(o))
                    {
                        return Err("is still there".into());
                    }
                    reference::run(&g, &inputs).map_err(|e| e.to_string())
                });
                let same = got.as_ref().is_ok_and(|got| {
                    got.len() == want.len()
                        && got.iter().zip(&want).all(|(a, b)| {
                            a.dtype() == b.dtype()
                                && a.shape() == b.shape()
                                && a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| close(*a, b))
                        })
                });
                if !same {
                    bad.push(format!("{} (example {i}) at {}: {:?}", o.name, table.name, got.err()));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn what_a_rule_makes_is_what_the_op_infers() {
    for o in with_rules() {
        for e in example::of(o, DType::F32).unwrap() {
            let g = decompose(&e.graph, &Table::prims()).unwrap_or_else(|e| panic!("{}: {e}", o.name));
            // Sizes that only running tells have names of their own in each graph.
            let known = |d: &cleave_ir::Dim| d.as_const().map_or(cleave_ir::Dim::unknown(0), Into::into);
            let meta = |g: &Graph, r| g.node(r).meta.map_dims(&mut |d| known(d));
            let metas = |g: &Graph| g.results().into_iter().map(|r| meta(g, r)).collect::<Vec<_>>();
            assert_eq!(metas(&g), metas(&e.graph), "{}", o.name);
        }
    }
}

/// The ops of a graph when it is raised, but for views and changes of type.
fn raised_ops(g: &Graph) -> Vec<String> {
    let raised = raise(g).unwrap().0;
    let ops = raised.nodes().filter_map(|(_, n)| n.op());
    ops.filter(|o| o.class != Class::View && o.base() != "_to_copy").map(|o| o.short().to_string()).collect()
}

#[test]
fn raisable_ops_are_found_again() {
    let mut bad = vec![];
    let probe = std::env::var_os("RAISABLE").is_some();
    for o in with_rules().filter(|o| o.raisable || probe) {
        for e in example::of(o, DType::F32).unwrap() {
            if probe && !o.raisable {
                eprintln!("{}: {:?}", o.name, traced::of(o, &e));
                continue;
            }
            let want = raised_ops(&e.graph);
            assert_eq!(want.len(), 1, "{}: {want:?}", o.name);
            for table in [Table::core(), Table::prims()] {
                // A product of vectors is the sum that it is spelled as.
                if o.name == "aten.matmul.default"
                    && e.graph.results().iter().all(|r| e.graph.tensor_meta(*r).unwrap().shape.is_empty())
                {
                    continue;
                }
                let got = raised_ops(&decompose(&e.graph, &table).unwrap());
                if got != want {
                    bad.push(format!("{} from {}: {got:?}, expected {want:?}", o.name, table.name));
                }
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}
