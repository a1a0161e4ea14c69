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

fn spec(observer: ObserverKind, scheme: Scheme) -> Spec {
    let range = match scheme {
        Scheme::Affine => QRange { dtype: DType::U8, min: 0, max: 255 },
        _ => QRange { dtype: DType::I8, min: -127, max: 127 },
    };
    Spec { name: String::new(), range, scheme, observer, eps: cleave_quantize::LEAST_SCALE }
}

fn range(x: &[f32], observer: ObserverKind, scheme: Scheme) -> (f32, f32) {
    observed(observer, &[x.to_vec()]).range(&spec(observer, scheme)).unwrap()
}

#[test]
fn percentile_and_entropy_are_those_of_numpy() {
    let text = include_str!("fixtures/observers/search.txt");
    let mut count = 0;
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let f: Vec<&str> = line.split(' ').collect();
        let kind = match f[1] {
            "entropy" => ObserverKind::Entropy,
            _ => ObserverKind::parse(&format!("percentile:{}", f[2])).unwrap(),
        };
        let scheme = if f[3] == "1" { Scheme::Symmetric } else { Scheme::Affine };
        let (lo, hi) = range(&generate(f[0]), kind, scheme);
        let want = [f[4], f[5]].map(|v| v.parse::<f64>().unwrap());
        let near = |a: f32, b: f64| (f64::from(a) - b).abs() <= 1e-6 * b.abs();
        assert!(near(lo, want[0]) && near(hi, want[1]), "{line}: {lo} {hi}");
        count += 1;
    }
    assert_eq!(count, 36);
}

/// Squared error of quantizing elements over a range.
fn squared_error(x: &[f32], lo: f32, hi: f32, s: &Spec) -> f64 {
    let q = cleave_numerics::choose_qparams(lo, hi, s.range, s.qscheme(), s.eps);
    let level = |v: f32| cleave_numerics::quantize_div(v, q.scale, q.zero_point, s.range.min, s.range.max);
    let error = |v: &f32| f64::from(*v - cleave_numerics::dequantize(level(*v), q.scale, q.zero_point));
    x.iter().map(|v| error(v).powi(2)).sum()
}

#[test]
fn mse_is_as_good_as_brute_force() {
    for case in ["1,6000,plain,1,0", "2,6000,relu,4,0", "3,6000,cube,30,0", "4,6000,relu6,8,1", "5,6000,cube,9,0.5"] {
        let mut x = generate(case);
        x.push(2.5 * x.iter().fold(0.0f32, |a, v| a.max(v.abs())));
        for scheme in [Scheme::Affine, Scheme::Symmetric] {
            let s = spec(ObserverKind::Mse, scheme.clone());
            let (lo, hi) = range(&x, ObserverKind::Mse, scheme.clone());
            let got = squared_error(&x, lo, hi, &s);
            let (min, max) = range(&x, ObserverKind::Minmax, scheme);
            let (min, max) = (min.min(0.0), max.max(0.0));
            let part = |i: i32| i as f32 / 40.0;
            let pairs = (0..=40).flat_map(|i| (1..=40).map(move |j| (i, j)));
            let best = pairs.map(|(i, j)| squared_error(&x, min * part(i), max * part(j), &s)).fold(f64::MAX, f64::min);
            assert!(got <= 1.03 * best, "{case} {:?}: [{lo}, {hi}] {got} beside {best}", s.scheme);
        }
    }
}

/// ONNX Runtime's entropy calibration has one candidate at its defaults, so it is its min-max.
#[test]
fn entropy_searches() {
    let mut x = generate("6,30000,cube,100,-0.3");
    x.push(2000.0);
    let (minmax, entropy) =
        (range(&x, ObserverKind::Minmax, Scheme::Affine), range(&x, ObserverKind::Entropy, Scheme::Affine));
    assert_eq!(minmax.1, 2000.0);
    assert!(entropy.1 < 400.0 && entropy.0 > -400.0, "{entropy:?}");
}

fn leaves(v: &toml::Value) -> usize {
    match v {
        toml::Value::Array(a) => a.iter().map(leaves).sum(),
        toml::Value::Table(t) => t.values().map(leaves).sum(),
        _ => 1,
    }
}

/// ONNX Runtime's histogram calibrators keep every tensor and fail on shapes that vary.
#[test]
fn state_does_not_grow_and_shapes_may_vary() {
    for name in ["histogram", "minmax", "percentile", "entropy", "mse", "moving_average", "torch_histogram"] {
        let kind = ObserverKind::parse(name).unwrap();
        let size = |samples: usize| {
            let tensors: Vec<Vec<f32>> = (0..samples).map(|i| generate(&format!("{i},{},plain,3,0", 7 + i))).collect();
            leaves(&toml::Value::try_from(observed(kind, &tensors)).unwrap())
        };
        assert_eq!(size(1), size(100), "{name}");
    }
}

#[test]
fn channels_are_observed_each_for_itself() {
    use cleave_quantize::observe::ChannelObserver;
    let mut o = ChannelObserver::new(ObserverKind::Minmax, 1, 2);
    o.update(&[1.0, -2.0, 3.0, 4.0, 0.5, 0.5, -8.0, 0.0], &[2, 2, 2]).unwrap();
    o.update(&[9.0, 0.25, 0.25, 0.25, 0.25, 0.25], &[1, 2, 3]).unwrap();
    let extrema: Vec<_> = o.channels().iter().map(|c| c.extrema().unwrap()).collect();
    assert_eq!(extrema, [(-2.0, 9.0), (-8.0, 4.0)]);
    assert!(o.update(&[1.0; 3], &[1, 3]).unwrap_err().contains("expected 2 channels on axis 1"));
    // torch's PerChannelMinMaxObserver, symmetric over -127..127.
    let scales: Vec<f32> =
        o.qparams(&spec(ObserverKind::Minmax, Scheme::Symmetric)).iter().map(|q| q.unwrap().scale).collect();
    assert_eq!(scales, [9.0 / 127.0, 8.0 / 127.0]);
}

/// No search may end with nothing left: a tensor that is nearly always 0 keeps its range.
#[test]
fn rare_values_are_not_flattened() {
    let mut x = vec![0.0; 100_000];
    x[3] = 2.0;
    for name in ["histogram", "percentile", "entropy", "mse"] {
        let (lo, hi) = range(&x, ObserverKind::parse(name).unwrap(), Scheme::Affine);
        assert!(lo == 0.0 && hi > 0.5, "{name}: {lo} {hi}");
    }
}

#[test]
fn magnitudes_of_all_sizes_have_a_range() {
    for m in [f32::MIN_POSITIVE, 1e-30, 1.0, 2048.0, 1e20, f32::MAX] {
        for name in ["histogram", "percentile", "entropy", "mse"] {
            for scheme in [Scheme::Affine, Scheme::Symmetric] {
                let (lo, hi) = range(&[m, m / 2.0, -m / 4.0], ObserverKind::parse(name).unwrap(), scheme.clone());
                assert!(lo.is_finite() && hi.is_finite() && lo <= 0.0 && hi > 0.0, "{name} {m} {scheme:?}: {lo} {hi}");
                assert!(hi <= m && lo >= -m, "{name} {m} {scheme:?}: {lo} {hi}");
            }
        }
    }
}

#[test]
fn names_are_read_and_others_refused() {
    assert_eq!(ObserverKind::parse("percentile:99.5"), Ok(ObserverKind::Percentile(99.5)));
    assert!(ObserverKind::parse("percentile:101").unwrap_err().contains("from 50 to 100"));
    assert!(ObserverKind::parse("kl").unwrap_err().starts_with("no observer 'kl'; expected histogram, minmax,"));
}
