//! Observers against torch 2.15 and torchao 0.18, bit for bit, on recorded cases.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use cleave_numerics::{DType, EPS_TORCH, QRange};
use cleave_quantize::observe::{Observer, scan};
use cleave_quantize::{ObserverKind, Scheme, Spec};

/// The tensors of the fixture are generated, here and there by the same f32 operations.
fn generate(case: &str) -> Vec<f32> {
    let f: Vec<&str> = case.split(',').collect();
    let (mut s, n): (u32, usize) = (f[0].parse().unwrap(), f[1].parse().unwrap());
    let (scale, shift): (f32, f32) = (f[3].parse().unwrap(), f[4].parse().unwrap());
    let mut next = || {
        s = s.wrapping_mul(1664525).wrapping_add(1013904223);
        (s >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let one = |_| {
        let v = next() + next() + next();
        let v = if f[2] == "cube" { v * v * v } else { v } * scale + shift;
        match f[2] {
            "relu" => v.max(0.0),
            "relu6" => v.clamp(0.0, 6.0),
            _ => v,
        }
    };
    (0..n).map(one).collect()
}

fn observed(kind: ObserverKind, tensors: &[Vec<f32>]) -> Observer {
    let mut o = Observer::new(kind);
    tensors.iter().for_each(|x| o.update(x, &scan(x)));
    o
}

fn shown(o: &Observer, dtype: DType, min: i32, max: i32, scheme: Scheme) -> String {
    let range = QRange { dtype, min, max };
    let spec = Spec { name: String::new(), range, scheme, observer: ObserverKind::Minmax, eps: EPS_TORCH };
    let q = o.qparams(&spec).unwrap();
    format!("{:08x}/{}", q.scale.to_bits(), q.zero_point)
}

#[test]
fn scales_and_zero_points_are_torchs() {
    let text = include_str!("fixtures/observers/torch.txt");
    let mut count = 0;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (tensors, want) = line.split_once(" | ").unwrap();
        let tensors: Vec<Vec<f32>> = tensors.split(';').map(generate).collect();
        let histogram = observed(ObserverKind::TorchHistogram, &tensors);
        let Observer::TorchHistogram(h) = &histogram else { unreachable!() };
        let (lo, hi) = h.range().unwrap();
        let total: f32 = h.bins().iter().sum();
        let want: Vec<&str> = want.split(' ').collect();
        let minmax = observed(ObserverKind::Minmax, &tensors);
        let moving = observed(ObserverKind::MovingAverage, &tensors);
        assert_eq!(format!("{:08x}:{:08x}", lo.to_bits(), hi.to_bits()), want[1][..17], "{line}");
        assert!((total - f32::from_bits(u32::from_str_radix(&want[1][18..], 16).unwrap())).abs() <= 1e-5 * total);
        let got = [
            shown(&histogram, DType::U8, 0, 255, Scheme::Affine),
            shown(&histogram, DType::I8, -128, 127, Scheme::Affine),
            shown(&minmax, DType::U8, 0, 255, Scheme::Affine),
            shown(&moving, DType::U8, 0, 255, Scheme::Affine),
            shown(&minmax, DType::I8, -127, 127, Scheme::Symmetric),
        ];
        assert_eq!(got.as_slice(), [want[0], want[2], want[3], want[4], want[5]], "{line}");
        count += 1;
    }
    assert_eq!(count, 44);
}

#[test]
fn what_depends_on_order_refuses_to_merge() {
    let mut a = observed(ObserverKind::TorchHistogram, &[vec![1.0, 2.0]]);
    let why = a.merge(&observed(ObserverKind::TorchHistogram, &[vec![3.0]])).unwrap_err();
    assert!(why.contains("order of the data"), "{why}");
    let mut m = observed(ObserverKind::Minmax, &[vec![1.0, 2.0]]);
    m.merge(&observed(ObserverKind::Minmax, &[vec![-3.0]])).unwrap();
    assert_eq!(m, Observer::Minmax(Some((-3.0, 2.0))));
}
