//! Depths of decomposition against torch's own: the same op histogram wherever torch decomposes the graph.
//!
//! `fixtures/graphs` holds 24 torchvision networks as exported, in text form (weights are zeros), and torch's
//! op counts; `fixtures/fashion` two small trained ones.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use cleave_decompose::{Table, decompose, raise};
use cleave_formats::pt2::read_pt2;
use cleave_ir::schema::Param;
use cleave_ir::{Arg, Graph, Kind, Node, Op, Tensor, text};
use cleave_runtime::{Options, Session, reference};
use cleave_tests::fixture;
use std::collections::BTreeMap;

type Counts = BTreeMap<String, u64>;

fn counts(g: &Graph) -> Counts {
    g.op_counts().into_iter().map(|(k, v)| (k.to_string(), v as u64)).collect()
}

fn recorded(file: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(fixture(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn torch(all: &serde_json::Value, network: &str, stage: &str) -> Counts {
    let ops = all[network][stage].as_object().unwrap_or_else(|| panic!("{network} {stage}"));
    ops.iter().map(|(k, v)| (k.clone(), v.as_u64().unwrap())).collect()
}

fn network(name: &str) -> Graph {
    let path = fixture("graphs").join(format!("{name}.graph"));
    let src = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text::parse(&src).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Networks whose histogram at `inductor` is not torch's, with the reason.
const NOT_INDUCTOR: [(&str, &str); 4] = [
    (
        "convnext_tiny",
        "how a decomposed layer norm of a permuted tensor lies decides on one clone before a linear layer",
    ),
    ("swin_t", "as convnext_tiny: two linear layers behind layer norms of rolled windows"),
    ("maxvit_t", "as convnext_tiny: the linear layers behind window and grid partitions"),
    ("vit_b_16", "the CPU's attention kernel lays its result out so that torch needs no second clone"),
];

fn differs_at_inductor(name: &str) -> bool {
    NOT_INDUCTOR.iter().any(|(n, _)| *n == name)
}

/// How the counts of one graph differ from another's, as `op: here, there`.
fn difference(a: &Counts, b: &Counts) -> Vec<String> {
    let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
    let differ = keys.into_iter().filter(|k| a.get(*k) != b.get(*k));
    differ.map(|k| format!("{k}: {}, {}", a.get(k).unwrap_or(&0), b.get(k).unwrap_or(&0))).collect()
}

fn check(name: &str, g: &Graph, all: &serde_json::Value, bad: &mut Vec<String>) {
    for stage in ["export", "empty", "core", "inductor"] {
        let got = match stage {
            "export" => counts(g),
            table => match decompose(g, &Table::named(table).unwrap()) {
                Ok(g) => counts(&g),
                Err(e) => {
                    bad.push(format!("{name} at {stage}: {e}"));
                    continue;
                }
            },
        };
        let d = difference(&got, &torch(all, name, stage));
        if stage == "inductor" && differs_at_inductor(name) {
            if d.is_empty() {
                bad.push(format!("{name} at {stage}: listed, but it has torch's counts"));
            }
        } else if !d.is_empty() {
            bad.push(format!("{name} at {stage} (here, torch): {}", d.join("; ")));
        }
    }
}

#[test]
fn torchvision_networks_have_torchs_histograms() {
    let all = &recorded("graphs/histograms.json")["models"];
    let mut bad = vec![];
    for name in all.as_object().unwrap().keys() {
        check(name, &network(name), all, &mut bad);
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn fashion_networks_have_torchs_histograms() {
    let all = recorded("fashion/histograms.json");
    let mut bad = vec![];
    for name in all.as_object().unwrap().keys() {
        let g = read_pt2(&fixture("fashion").join(format!("{name}.pt2"))).unwrap();
        check(name, &g, &all, &mut bad);
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_batch_norm_is_one_node_before_and_two_after() {
    let g = read_pt2(&fixture("fashion/tiny_static.pt2")).unwrap();
    let functional = decompose(&g, &Table::empty()).unwrap();
    assert_eq!((g.len(), functional.len()), (46, 50));
}

/// Ops that raising does not find again, or finds where another stood, with the reason.
const NOT_RAISED: [(&str, &str); 8] = [
    ("view reshape flatten permute transpose select squeeze unsqueeze expand slice", "views have many spellings"),
    ("split split_with_sizes getitem", "how a tensor was split is not told apart afterwards"),
    ("add", "sums of indices of a roll are none of the network's"),
    ("einsum bmm", "an equation is a product of matrices with views around it"),
    ("roll index_select arange fmod", "a roll is a choice of elements"),
    ("fill full full_like new_zeros slice_scatter where masked_fill", "a mask made in place has lost how it was made"),
    (
        "constant_pad_nd upsample_bilinear2d index clamp relu hardtanh mul sub",
        "elements that are picked by index arithmetic",
    ),
    ("_to_copy ge lt ne bitwise_and", "masks of index arithmetic"),
];

/// What a node computes: the op, its arguments that are no tensors, dimensions counted from the first, and the constants
/// that it takes.
fn deed(g: &Graph, node: &Node) -> String {
    let rank = node.meta.as_tensor().map_or(0, |m| m.shape.len()) as i64;
    fn arg(g: &Graph, a: &Arg, rank: Option<i64>) -> String {
        match a {
            Arg::Node(n) => match &g.node(*n).kind {
                Kind::GetAttr(_) => g.node(*n).target.clone(),
                _ => "_".into(),
            },
            Arg::Int(i) => format!("{:?}", rank.map_or(*i, |r| i.rem_euclid(r)) as f64),
            Arg::List(l) => l.iter().map(|a| arg(g, a, rank)).collect::<Vec<_>>().join(" "),
            a => format!("{a:?}"),
        }
    }
    let Some(op) = node.op() else { return String::new() };
    let of = |(p, a): (&Param, &Arg)| arg(g, a, Some(rank).filter(|r| *r > 0 && p.name == "dim"));
    format!("{}({})", op.short(), op.schema.params.iter().zip(&node.args).map(of).collect::<Vec<_>>().join(", "))
}

fn deeds(g: &Graph, of: &dyn Fn(&Op) -> bool) -> Vec<String> {
    g.nodes().filter(|(_, n)| n.op().is_some_and(of)).map(|(_, n)| deed(g, n)).collect()
}

#[test]
fn raising_undoes_core_aten_and_prims() {
    let all = recorded("graphs/histograms.json");
    let names: Vec<String> = all["models"].as_object().unwrap().keys().cloned().collect();
    let listed = |o: &Op| NOT_RAISED.iter().any(|(ops, _)| ops.split(' ').any(|n| n == o.base()));
    let check = |names: &[String]| {
        let mut bad = vec![];
        for name in names {
            let raised = raise(&network(name)).unwrap().0;
            for table in [Table::core(), Table::prims()] {
                let again = raise(&decompose(&raised, &table).unwrap()).unwrap().0;
                // Node for node, whatever is marked raisable and is not among the masks of windows.
                for (what, of) in [
                    ("raisable ops", &(|o: &Op| o.raisable && !listed(o)) as &dyn Fn(&Op) -> bool),
                    ("others", &|o: &Op| !o.raisable && !listed(o)),
                ] {
                    let (want, got) = (deeds(&raised, of), deeds(&again, of));
                    if let Some(i) = (0..want.len().max(got.len())).find(|i| want.get(*i) != got.get(*i)) {
                        let (got, want) = (got.get(i), want.get(i));
                        bad.push(format!("{name} from {}, {what}, no. {i}: {got:?}, expected {want:?}", table.name));
                    }
                }
            }
        }
        bad
    };
    let (a, b) = names.split_at(names.len() / 2);
    let bad = std::thread::scope(|s| {
        let other = s.spawn(|| check(b));
        [check(a), other.join().unwrap()].concat()
    });
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_layer_norm_and_gelu_are_twelve_calls_and_two_kernels() {
    let src = "graph(%x: f32[N, 8], %w: f32[8], %b: f32[8]) where 1 <= N {
  %layer_norm = aten.layer_norm(%x, [8], %w, %b)
  %gelu = aten.gelu(%layer_norm)
  return %gelu
}";
    let want = "  %var_mean = aten.var_mean.correction(%x, [1], 0, true): (f32[N, 1], f32[N, 1])
  %add = aten.add.Tensor(%getitem, 1e-5): f32[N, 1]
  %rsqrt = aten.rsqrt(%add): f32[N, 1]
  %sub = aten.sub.Tensor(%x, %getitem_1): f32[N, 8]
  %mul = aten.mul.Tensor(%sub, %rsqrt): f32[N, 8]
  %mul_1 = aten.mul.Tensor(%mul, %w): f32[N, 8]
  %add_1 = aten.add.Tensor(%mul_1, %b): f32[N, 8]
  %mul_2 = aten.mul.Tensor(%add_1, 0.5): f32[N, 8]
  %mul_3 = aten.mul.Tensor(%add_1, 0.7071067811865476): f32[N, 8]
  %erf = aten.erf(%mul_3): f32[N, 8]
  %add_2 = aten.add.Tensor(%erf, 1): f32[N, 8]
  %mul_4 = aten.mul.Tensor(%mul_2, %add_2): f32[N, 8]";
    let g = text::parse(src).unwrap();
    let low = decompose(&g, &Table::inductor()).unwrap().to_string();
    let calls: Vec<_> = low.lines().filter(|l| l.contains("= aten.")).collect();
    assert_eq!(calls.join("\n"), want);

    let mut s = Session::with_table(&g, Options::default(), Table::inductor()).unwrap();
    let plan = s.plan(&[vec![5, 8], vec![8], vec![8]]).unwrap();
    let kernels: Vec<_> = plan.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(kernels, ["red_fused_var_mean_add_rsqrt_0", "poi_fused_sub_mul_mul_add_mul_mul_erf_add_mul_1"]);
    let ramp = |shape: &[usize], scale: f32| {
        let n = shape.iter().product::<usize>() as i32;
        Tensor::new(shape, (0..n).map(|i| ((i * 37 % 19) as f32 - 9.0) * scale).collect())
    };
    let inputs = [ramp(&[5, 8], 0.25), ramp(&[8], 0.125), ramp(&[8], 0.0625)];
    let (got, want) = (s.run(&inputs).unwrap(), reference::run(&g, &inputs).unwrap());
    for (a, b) in got[0].to_f64().iter().zip(want[0].to_f64()) {
        assert!((a - b).abs() <= 2e-6, "{a} {b}");
    }
}
