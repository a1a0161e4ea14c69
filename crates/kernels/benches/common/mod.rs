//! Cases of a kernel family on every instruction set of the machine, on one thread. Beside criterion's figures stands, for
//! each, its share of what a core can do at most, and its time next to that of the definition.

#![allow(dead_code, reason = "each bench takes its part")]

use cleave_kernels::{AlignedVec, Isa, limit};
use criterion::{Criterion, Throughput};
use std::time::{Duration, Instant};

/// What a kernel does, and so what limits it.
#[derive(Clone, Copy)]
pub enum Work {
    /// Multiply-accumulates of bytes.
    Int8(usize),
    /// Multiply-accumulates of floats.
    Float(usize),
    /// Bytes that are read and written: the limit is a copy of half as many.
    Bytes(usize),
}

/// Something that can be timed.
pub type Run = Box<dyn FnMut()>;

/// One kernel on operands of one shape.
pub struct Case {
    pub name: String,
    pub work: Work,
    /// The definition in plain loops; else the portable kernel is the reference.
    pub reference: Option<Run>,
    pub make: Box<dyn Fn(Isa) -> Run>,
}

impl Case {
    /// A case whose reference is the portable kernel.
    pub fn new(name: impl Into<String>, work: Work, make: impl Fn(Isa) -> Run + 'static) -> Case {
        Case { name: name.into(), work, reference: None, make: Box::new(make) }
    }
}

/// Runs a family's cases.
pub fn family(c: &mut Criterion, name: &str, cases: Vec<Case>) {
    let mut group = c.benchmark_group(name);
    group.sample_size(10).nresamples(1000);
    group.warm_up_time(Duration::from_millis(30)).measurement_time(Duration::from_millis(150));
    for case in cases {
        group.throughput(match case.work {
            Work::Int8(macs) | Work::Float(macs) => Throughput::Elements(macs as u64),
            Work::Bytes(bytes) => Throughput::Bytes(bytes as u64),
        });
        let Case { name, work, mut reference, make } = case;
        let mut plain = None;
        for isa in Isa::all() {
            let (mut run, mut best) = (None, f64::INFINITY);
            group.bench_function(format!("{name}/{}", isa.level().name()), |b| {
                let run = run.get_or_insert_with(|| make(isa));
                b.iter_custom(|n| {
                    let start = Instant::now();
                    (0..n).for_each(|_| run());
                    let time = start.elapsed();
                    best = best.min(time.as_secs_f64() / n as f64);
                    time
                });
            });
            if best < f64::INFINITY {
                let reference = reference.get_or_insert_with(|| make(Isa::portable()));
                let plain = *plain.get_or_insert_with(|| fastest(reference));
                let share =
                    share(work, isa, best).map_or(String::new(), |s| format!("{:.0} % of the limit, ", 100.0 * s));
                println!("    {share}{:.4} ms, the reference {:.3} ms: {:.1}×", 1e3 * best, 1e3 * plain, plain / best);
            }
        }
    }
    group.finish();
}

/// How near a time comes to the limit.
fn share(work: Work, isa: Isa, time: f64) -> Option<f64> {
    let limit = || limit::measure(isa);
    Some(match work {
        Work::Int8(macs) => macs as f64 / time / limit()?.int8,
        Work::Float(macs) => macs as f64 / time / limit()?.f32,
        Work::Bytes(bytes) => {
            let (x, mut y) = (bytes_of(bytes / 2), AlignedVec::<u8>::zeroed(bytes / 2));
            fastest(&mut || std::hint::black_box(&mut y).copy_from_slice(&x)) / time
        }
    })
}

/// Seconds of the fastest run in a tenth of a second, of at least one.
fn fastest(run: &mut dyn FnMut()) -> f64 {
    let (begin, mut best) = (Instant::now(), f64::INFINITY);
    while best == f64::INFINITY || begin.elapsed() < Duration::from_millis(100) {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_secs_f64());
    }
    best
}

/// Bytes of all values.
pub fn bytes_of(n: usize) -> AlignedVec<u8> {
    AlignedVec::from_slice(&(0..n).map(|i| (i * 31 % 256) as u8).collect::<Vec<_>>())
}

/// Floats from -1 to 1.
pub fn floats_of(n: usize) -> AlignedVec<f32> {
    AlignedVec::from_slice(&(0..n).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect::<Vec<_>>())
}

/// What benches expect of operands that they have made themselves.
pub const VALID: &str = "invariant: the operands follow the shape";
