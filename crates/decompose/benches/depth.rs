//! How decomposition scales with the number of nodes, and a real network (maxvit_t, 1,700 nodes) through every stage.

#![allow(clippy::unwrap_used, reason = "a bench that fails panics")]
#![allow(missing_docs, reason = "criterion's macros make the public items")]

use cleave_decompose::{Table, decompose, raise};
use cleave_ir::{Builder, Graph, Meta, text};
use cleave_numerics::DType;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn chain(n: usize) -> Graph {
    let b = Builder::new();
    let mut x = b.placeholder("x", Meta::tensor(DType::F32, vec![2.into(), 8.into()]));
    for i in 0..n {
        x = match i % 4 {
            0 => x.relu(),
            1 => x.op("aten.hardswish", vec![]),
            2 => x + 1.0,
            _ => x.op("aten.reshape", vec![vec![2i64, 8].into()]),
        };
    }
    b.output(&[("y".into(), x)]);
    b.finish().unwrap()
}

fn scaling(c: &mut Criterion) {
    let mut group = c.benchmark_group("core");
    group.sample_size(10);
    for n in [1_000, 10_000, 100_000] {
        let g = chain(n);
        group.throughput(Throughput::Elements(n as u64));
        group.bench_with_input(BenchmarkId::from_parameter(n), &g, |b, g| b.iter(|| decompose(g, &Table::core())));
    }
}

fn network(c: &mut Criterion) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/graphs/maxvit_t.graph");
    let g = text::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut group = c.benchmark_group("maxvit_t");
    group.sample_size(10);
    for name in ["empty", "core", "inductor", "prims"] {
        let table = Table::named(name).unwrap();
        group.bench_function(name, |b| b.iter(|| decompose(&g, &table)));
    }
    group.bench_function("raise", |b| b.iter(|| raise(&g)));
}

criterion_group!(benches, scaling, network);
criterion_main!(benches);
