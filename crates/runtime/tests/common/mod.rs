//! Graphs in text form with constants filled in, and sessions held against the reference interpreter.
#![allow(dead_code, reason = "each test file uses some")]

use cleave_ir::{Graph, Kind, Tensor, text};
use cleave_kernels::Isa;
use cleave_numerics::DType;
use cleave_runtime::{Options, Session, reference};

/// A small generator of numbers that do not repeat.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// In [-1, 1).
    pub fn unit(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn floats(&mut self, shape: &[usize], scale: f32) -> Tensor {
        Tensor::new(shape, (0..shape.iter().product()).map(|_| self.unit() * scale).collect())
    }
}

/// Parses a graph and fills its constants: weights as noise, `*scale*` positive, `*zp*` zeros.
pub fn graph(src: &str) -> Graph {
    let mut g = text::parse(src).expect("a graph");
    let mut r = Random::new(7);
    let wanted: Vec<_> = g
        .nodes()
        .filter(|(_, n)| matches!(n.kind, Kind::GetAttr(_)))
        .map(|(id, n)| (n.target.clone(), g.tensor_meta(id).expect("a tensor").clone()))
        .collect();
    for (name, meta) in wanted {
        let shape: Vec<usize> = meta.shape.iter().map(|d| d.as_const().expect("a number") as usize).collect();
        let n = shape.iter().product();
        let fan: usize = shape.iter().skip(1).product::<usize>().max(1);
        let t = match meta.dtype {
            DType::F32 if name.contains("scale") => {
                Tensor::new(&shape, (0..n).map(|_| 0.004 + 0.003 * r.unit()).collect())
            }
            DType::F32 => r.floats(&shape, (fan as f32).powf(-0.5)),
            DType::I8 => Tensor::new(&shape, (0..n).map(|_| (r.unit() * 127.4) as i8).collect()),
            DType::I32 => Tensor::new(&shape, (0..n).map(|_| (r.unit() * 3000.0) as i32).collect()),
            _ => Tensor::new(&shape, vec![0i64; n]),
        };
        g.constants.insert(name, t);
    }
    g
}

/// Sessions on every instruction set with one and two threads.
pub fn sessions(g: &Graph) -> Vec<Session> {
    let mut all = vec![];
    for isa in Isa::all() {
        for threads in [1, 2] {
            all.push(Session::new(g, Options { isa, threads }).expect("a session"));
        }
    }
    all
}

/// Holds a float graph's sessions to the reference within a relative error, and all of them to one another.
pub fn check_float(g: &Graph, inputs: &[Tensor], tolerance: f32) {
    let want = reference::run(g, inputs).expect("reference");
    let mut first: Option<Vec<Tensor>> = None;
    for mut s in sessions(g) {
        let got = s.run(inputs).expect("a run");
        assert_eq!(got, s.run(inputs).expect("a second run"), "not repeatable");
        for (g, w) in got.iter().zip(&want) {
            assert_eq!((g.shape(), g.dtype()), (w.shape(), w.dtype()));
            let (a, b) = (g.to_f32(), w.to_f32());
            let scale = b.iter().fold(1e-6f32, |m, x| m.max(x.abs()));
            let worst = a.iter().zip(b.iter()).map(|(x, y)| (x - y).abs() / scale).fold(0.0f32, f32::max);
            assert!(worst <= tolerance, "off by {worst} of {scale}");
        }
        assert_eq!(got, *first.get_or_insert(got.clone()), "instruction sets or threads differ");
    }
}

/// Holds a quantized graph's sessions to the reference within steps of `scale`, and all to one another, bit by bit.
pub fn check_quantized(g: &Graph, inputs: &[Tensor], scale: f32, steps: f32) {
    let want = reference::run(g, inputs).expect("reference");
    let mut first: Option<Vec<Tensor>> = None;
    for mut s in sessions(g) {
        let got = s.run(inputs).expect("a run");
        for (g, w) in got.iter().zip(&want) {
            assert_eq!((g.shape(), g.dtype()), (w.shape(), w.dtype()));
            let worst =
                g.to_f32().iter().zip(w.to_f32().iter()).map(|(x, y)| (x - y).abs() / scale).fold(0.0f32, f32::max);
            assert!(worst <= steps + 1e-3, "off by {worst} steps");
        }
        assert_eq!(got, *first.get_or_insert(got.clone()), "instruction sets or threads differ");
    }
}

/// Names of the kernels for the inputs' shapes.
pub fn kernels(g: &Graph, inputs: &[Tensor]) -> Vec<String> {
    let mut s = Session::new(g, Options::default()).expect("a session");
    let shapes: Vec<Vec<usize>> = inputs.iter().map(|t| t.shape().to_vec()).collect();
    s.plan(&shapes).expect("a plan").kernels.into_iter().map(|k| k.name).collect()
}
