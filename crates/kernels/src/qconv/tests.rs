//! Every instruction set of this machine against the reference, bit for bit, on one thread and on two.

use super::reference::{accumulate, accumulate_transposed, quantized, scaled};
use super::*;
use crate::pointwise::{Quantize, Rounding, Unary};
use proptest::prelude::*;

/// A small generator, so that cases are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    /// One in four is extreme.
    fn byte(&mut self) -> u8 {
        match self.next() % 8 {
            0 => 0,
            1 => 255,
            _ => self.next() as u8,
        }
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.byte()).collect()
    }

    fn weights(&mut self, n: usize, spread: Spread) -> Vec<i8> {
        let even = |rng: &mut Random| rng.byte().wrapping_add(128) as i8;
        let bell = |rng: &mut Random| match rng.next() % 64 {
            0 => even(rng),
            _ => (0..4).map(|_| (rng.next() % 64) as i8 - 32).sum(),
        };
        (0..n).map(|_| if spread == Spread::Even { even(self) } else { bell(self) }).collect()
    }
}

/// How weights are spread: as those of trained networks are, or evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    Bell,
    Even,
}

const SPREADS: [Spread; 2] = [Spread::Bell, Spread::Even];

/// What is added to a plain convolution.
#[derive(Clone, Copy, Debug)]
struct Extras {
    bias: u8,
    residual: bool,
    table: bool,
    activation: Option<Unary>,
    range: (i32, i32),
    zx: u8,
    zy: i32,
    out: OutputKind,
}

const PLAIN: Extras = Extras {
    bias: 1,
    residual: false,
    table: false,
    activation: None,
    range: (0, 255),
    zx: 37,
    zy: 3,
    out: OutputKind::U8,
};

fn extras() -> impl Strategy<Value = Extras> {
    let out = prop_oneof![3 => Just(OutputKind::U8), 1 => Just(OutputKind::F32)];
    let range = prop_oneof![Just((0, 255)), Just((11, 255)), Just((20, 200)), Just((128, 128))];
    let activation = prop_oneof![3 => Just(None), 1 => Just(Some(Unary::Silu)), 1 => Just(Some(Unary::HardSwish))];
    (0u8..3, any::<bool>(), any::<bool>(), activation, range, any::<u8>(), 0i32..256, out).prop_map(
        |(bias, residual, table, activation, range, zx, zy, out)| match activation {
            Some(_) => Extras { bias, activation, range, zx, zy, ..PLAIN },
            None => Extras { bias, residual, table, activation, range, zx, zy, out },
        },
    )
}

/// Bias and requantization that spread the accumulators over the range and past it.
fn config(rng: &mut Random, e: Extras, acc: &[i32], c_out: usize) -> (Bias, Requant) {
    let peak = acc.iter().map(|a| a.unsigned_abs()).max().unwrap_or(1).max(1) as f32;
    let multiplier = (0..c_out).map(|_| 200.0 / peak * (1.0 + (rng.next() % 100) as f32 / 50.0)).collect();
    let bias = match e.bias {
        0 => Bias::None,
        1 => Bias::I32((0..c_out).map(|_| (rng.next() % 2001) as i32 - 1000).collect()),
        _ => Bias::F32((0..c_out).map(|_| (rng.next() % 2001) as f32 / 100.0 - 10.0).collect()),
    };
    let mut requant = Requant::new(multiplier, e.zy);
    (requant.qmin, requant.qmax) = e.range;
    requant.residual = e.residual.then_some(Residual { multiplier: 0.37, zero_point: 91 });
    if let Some(op) = e.activation {
        let to =
            Quantize { scale: 0.06, zero_point: e.zy, qmin: e.range.0, qmax: e.range.1, rounding: Rounding::Recip };
        let activation = Activation::new(op, &to).unwrap();
        requant.multiplier.iter_mut().for_each(|m| *m *= 0.06 / activation.unit());
        requant.activation = Some(activation);
    }
    requant.table = e.table.then(|| Box::new(std::array::from_fn(|i| (i * 7 + 13) as u8)));
    (bias, requant)
}

/// What is common to both kinds of convolution.
struct Case {
    bias: Bias,
    requant: Requant,
    x: Vec<u8>,
    weights: Vec<i8>,
    acc: Vec<i32>,
    residual: Option<Vec<u8>>,
    c_out: usize,
}

impl Case {
    fn new(rng: &mut Random, e: Extras, x: Vec<u8>, weights: Vec<i8>, acc: Vec<i32>, c_out: usize) -> Case {
        let (bias, requant) = config(rng, e, &acc, c_out);
        let residual = e.residual.then(|| rng.bytes(acc.len()));
        Case { bias, requant, x, weights, acc, residual, c_out }
    }

    /// Runs into a wider tensor and compares with the reference; nothing beside the output may change.
    fn check(&self, out: OutputKind, what: &str, run: impl Fn(Option<View<'_, u8>>, Out<'_>)) {
        let values = scaled(&self.acc, &self.bias, &self.requant, self.residual.as_deref());
        let view = self.residual.as_ref().map(|r| View::dense(r, self.c_out));
        let (offset, stride) = (5, self.c_out + 7);
        let len = self.acc.len() / self.c_out * stride + offset;
        let index = |i: usize| i.checked_sub(offset).map(|i| (i / stride, i % stride));
        let inside = |i: usize| index(i).filter(|(_, c)| *c < self.c_out).map(|(p, c)| p * self.c_out + c);
        match out {
            OutputKind::U8 => {
                let expected = quantized(&values, &self.requant);
                let mut y = vec![77u8; len];
                run(view, Out { data: OutData::U8(&mut y), offset, stride });
                for (i, y) in y.iter().enumerate() {
                    let e = inside(i).map_or(77, |j| expected[j]);
                    assert_eq!(*y, e, "{what}, element {i} {:?}", index(i));
                }
            }
            OutputKind::F32 => {
                let mut y = vec![77f32; len];
                run(view, Out { data: OutData::F32(&mut y), offset, stride });
                for (i, y) in y.iter().enumerate() {
                    let e = inside(i).map_or(77.0, |j| values[j]);
                    assert_eq!(y.to_bits(), e.to_bits(), "{what}, element {i} {:?}", index(i));
                }
            }
        }
    }
}

/// Multipliers that suit small sums of large weights may suit no others: then an activation is refused.
fn unless_too_wide<T>(e: Extras, conv: Result<T, KernelError>) -> Option<T> {
    match conv {
        Err(KernelError::Overflow { what: "activation", .. }) if e.activation.is_some() => None,
        conv => Some(conv.unwrap()),
    }
}

fn check_conv(shape: &ConvShape, e: Extras, seed: u64) {
    SPREADS.into_iter().for_each(|spread| check_spread(shape, e, seed, spread));
}

fn check_spread(shape: &ConvShape, e: Extras, seed: u64, spread: Spread) {
    let mut rng = Random(seed);
    let (x, weights) = (rng.bytes(shape.in_len()), rng.weights(shape.weight_len(), spread));
    let acc = accumulate(shape, &weights, &x, e.zx);
    let case = Case::new(&mut rng, e, x, weights, acc, shape.c_out);
    for isa in Isa::all() {
        let conv = QConv::new(isa, shape, &case.weights, &case.bias, e.zx, case.requant.clone(), e.out);
        let Some(conv) = unless_too_wide(e, conv) else { return };
        // From what was packed for other levels, if it serves.
        let plain = Requant::new(vec![1.0; shape.c_out], 0);
        let other = QConv::new(isa, shape, &case.weights, &Bias::None, 128, plain, OutputKind::U8).unwrap();
        let again = other.again(shape, &case.weights, &case.bias, e.zx, case.requant.clone(), e.out).unwrap();
        for (threads, conv) in [(1, conv), (2, again)] {
            let pool = ThreadPool::new(threads);
            let mut scratch = vec![0; conv.scratch_bytes(threads)];
            let scratch = std::cell::RefCell::new(&mut scratch[..]);
            let what = format!("{} on {threads} threads, {shape:?}, {e:?}", conv.kernel_name());
            case.check(e.out, &what, |r, y| conv.run(&pool, &case.x, r, y, &mut scratch.borrow_mut()).unwrap());
            if let Some(mut y) = case.residual.clone().filter(|_| conv.adds_in_place()) {
                let expected = quantized(&scaled(&case.acc, &case.bias, &case.requant, Some(&y)), &case.requant);
                conv.run_onto(&pool, &case.x, Out::u8(&mut y, shape.c_out), &mut scratch.borrow_mut()).unwrap();
                assert!(y == expected, "in place, {what}");
            }
        }
    }
}

fn check_transposed(shape: &ConvTransposeShape, e: Extras, seed: u64) {
    let mut rng = Random(seed);
    let s = shape;
    let spread = SPREADS[(seed % 2) as usize];
    let (x, weights) = (rng.bytes(s.n * s.h * s.w * s.c_in), rng.weights(s.weight_len(), spread));
    let acc = accumulate_transposed(s, &weights, &x, e.zx);
    let case = Case::new(&mut rng, e, x, weights, acc, s.c_out);
    for isa in Isa::all() {
        let conv = QConvTranspose::new(isa, s, &case.weights, &case.bias, e.zx, case.requant.clone(), e.out);
        let Some(conv) = unless_too_wide(e, conv) else { return };
        for threads in [1, 2] {
            let pool = ThreadPool::new(threads);
            let scratch = std::cell::RefCell::new(vec![0; conv.scratch_bytes(threads)]);
            let what = format!("{} on {threads} threads, {s:?}, {e:?}", conv.kernel_name());
            case.check(e.out, &what, |r, y| conv.run(&pool, &case.x, r, y, &mut scratch.borrow_mut()).unwrap());
        }
    }
}

#[test]
fn pointwise_convolutions_of_every_width() {
    for c_out in [1, 8, 15, 16, 17, 31, 32, 33, 48, 50, 64, 65, 80, 96, 130, 144] {
        check_conv(&ConvShape::new(5, 7, 12, c_out, 1), PLAIN, c_out as u64);
        let e = Extras { residual: true, bias: 2, table: true, ..PLAIN };
        check_conv(&ConvShape::new(3, 5, 20, c_out, 1), e, c_out as u64);
    }
}

#[test]
fn every_remainder_of_rows() {
    for rows in 1..31 {
        for c_out in [16, 32, 48, 64] {
            check_conv(&ConvShape::linear(rows, 8, c_out), PLAIN, rows as u64);
            for activation in [Unary::HardSwish, Unary::Silu] {
                let e = Extras { activation: Some(activation), ..PLAIN };
                check_conv(&ConvShape::linear(rows, 8, c_out), e, rows as u64);
            }
            check_conv(&ConvShape::linear(rows, 8, c_out), Extras { residual: true, ..PLAIN }, rows as u64);
        }
    }
}

#[test]
fn spatial_convolutions() {
    check_conv(&ConvShape::new(11, 13, 3, 40, 7).with_stride(2).with_pad(3), PLAIN, 1);
    check_conv(&ConvShape::new(8, 8, 16, 70, 3).with_pad(1), PLAIN, 2);
    check_conv(&ConvShape { n: 3, ..ConvShape::new(7, 5, 6, 19, 3).with_stride(2).with_pad(1) }, PLAIN, 3);
    check_conv(&ConvShape { dilation: [2, 3], ..ConvShape::new(9, 12, 5, 33, 3).with_pad(2) }, PLAIN, 4);
    check_conv(&ConvShape { pad: [0, 3, 2, 1], ..ConvShape::new(6, 9, 8, 24, 3) }, PLAIN, 5);
    check_conv(&ConvShape::new(9, 9, 64, 64, 1).with_stride(2), PLAIN, 6);
    check_conv(&ConvShape { h: 1, kh: 1, pad: [0, 2, 0, 2], ..ConvShape::new(1, 40, 7, 9, 5) }, PLAIN, 7);
}

/// Whether a plain convolution is taken by Winograd's tiles, where there are vectors.
fn is_winograd(shape: &ConvShape, weights: &[i8], zx: u8) -> bool {
    let requant = Requant::new(vec![1.0; shape.c_out], 0);
    let conv = QConv::new(Isa::best(), shape, weights, &Bias::None, zx, requant, OutputKind::U8).unwrap();
    conv.kernel_name().contains("winograd")
}

#[test]
fn winograd_convolutions() {
    let square = |side, c_in, c_out| ConvShape::new(side, side, c_in, c_out, 3).with_pad(1);
    for (i, shape) in [
        square(16, 32, 64),
        square(16, 64, 128),
        square(15, 32, 48),
        square(14, 96, 40),
        ConvShape { pad: [0, 0, 0, 0], ..square(18, 32, 32) },
        ConvShape { pad: [2, 0, 1, 3], ..ConvShape::new(17, 21, 32, 72, 3) },
        ConvShape { n: 3, ..square(11, 64, 80) },
        ConvShape { n: 16, ..square(4, 32, 33) },
    ]
    .iter()
    .enumerate()
    {
        let vectors = Isa::best() != Isa::portable();
        assert_eq!(is_winograd(shape, &vec![1; shape.weight_len()], 3), vectors, "{shape:?}");
        check_conv(shape, PLAIN, i as u64);
        check_conv(shape, Extras { residual: true, zx: 0, ..PLAIN }, i as u64);
        check_conv(shape, Extras { activation: Some(Unary::Silu), zx: 255, ..PLAIN }, i as u64);
        check_conv(shape, Extras { bias: 2, table: true, range: (5, 180), residual: true, ..PLAIN }, i as u64);
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn kernels_in_the_encoding_of_avx_vnni() {
    crate::isa::vex::preferred(|| {
        every_remainder_of_rows();
        spatial_convolutions();
        depthwise_convolutions();
        winograd_convolutions();
    });
}

/// Sums at the bound of what Winograd's tiles yield exactly, and past it.
#[test]
fn winograd_sums_at_their_bound() {
    for (c_in, fits) in [(96, true), (128, false)] {
        let shape = ConvShape::new(16, 16, c_in, 32, 3).with_pad(1);
        for (weight, zx) in [(i8::MIN, 255), (i8::MAX, 0)] {
            let weights = vec![weight; shape.weight_len()];
            assert_eq!(is_winograd(&shape, &weights, zx), fits && Isa::best() != Isa::portable());
            let x = vec![255 - zx; shape.in_len()];
            let acc = accumulate(&shape, &weights, &x, zx);
            let requant = Requant::new([1.0e-6, 7.0e-6].repeat(16), 2);
            let expected = quantized(&scaled(&acc, &Bias::None, &requant, None), &requant);
            for isa in Isa::all() {
                let conv = QConv::new(isa, &shape, &weights, &Bias::None, zx, requant.clone(), OutputKind::U8).unwrap();
                let (mut y, mut scratch) = (vec![0; acc.len()], vec![0; conv.scratch_bytes(2)]);
                conv.run(&ThreadPool::new(2), &x, None, Out::u8(&mut y, 32), &mut scratch).unwrap();
                assert_eq!(y, expected, "{}", conv.kernel_name());
            }
        }
    }
}

#[test]
fn grouped_convolutions() {
    check_conv(&ConvShape::new(6, 7, 32, 64, 3).with_pad(1).with_groups(4), PLAIN, 1);
    check_conv(&ConvShape::new(6, 7, 12, 24, 3).with_pad(1).with_groups(12), PLAIN, 2);
    check_conv(&ConvShape::new(5, 5, 15, 9, 3).with_groups(3), PLAIN, 3);
    check_conv(&ConvShape::new(5, 5, 8, 8, 1).with_groups(2), PLAIN, 4);
}

#[test]
fn depthwise_convolutions() {
    for c in [2, 16, 17, 24, 32, 33, 48, 50, 64, 72, 96, 144, 200] {
        for (k, s) in [(3, 1), (3, 2), (5, 1), (5, 2), (2, 1), (7, 1)] {
            let shape = ConvShape::new(9, 8, c, c, k).with_stride(s).with_pad(k / 2).with_groups(c);
            check_conv(&shape, PLAIN, c as u64);
            let e = Extras { residual: true, bias: 2, table: true, range: (5, 180), ..PLAIN };
            check_conv(&shape, e, c as u64);
            check_conv(&shape, Extras { out: OutputKind::F32, residual: true, ..PLAIN }, c as u64);
            check_conv(&shape, Extras { bias: 2, activation: Some(Unary::Gelu), ..PLAIN }, c as u64);
        }
    }
    check_conv(&ConvShape { pad: [2, 0, 1, 3], ..ConvShape::new(7, 7, 40, 40, 3).with_groups(40) }, PLAIN, 1);
    check_conv(&ConvShape { dilation: [2, 2], ..ConvShape::new(9, 9, 40, 40, 3).with_groups(40) }, PLAIN, 2);
    check_conv(&ConvShape { n: 2, ..ConvShape::new(5, 5, 20, 20, 3).with_pad(1).with_groups(20) }, PLAIN, 3);
    check_conv(&ConvShape::new(1, 1, 64, 64, 3).with_pad(1).with_groups(64), PLAIN, 4);
}

#[test]
fn deep_products() {
    for (rows, depth) in [(21, 1100), (8, 2056), (5, 2056)] {
        check_conv(&ConvShape::linear(rows, depth, 40), PLAIN, rows as u64);
        check_conv(&ConvShape::linear(rows, depth, 40), Extras { residual: true, ..PLAIN }, rows as u64);
        check_conv(&ConvShape::linear(rows, depth, 40), Extras { out: OutputKind::F32, ..PLAIN }, rows as u64);
    }
}

/// The form of weights is chosen by those of the first channels.
#[test]
fn channels_of_extreme_weights_follow_tame_ones() {
    let shape = ConvShape::linear(20, 1100, 40);
    let mut rng = Random(1);
    let weights: Vec<i8> = (0..shape.weight_len())
        .map(|i| match i / 1100 {
            0..16 => (rng.next() % 16) as i8 - 8,
            16..24 => i8::MIN,
            24..32 => i8::MAX,
            _ => [i8::MIN, i8::MAX][(rng.next() % 2) as usize],
        })
        .collect();
    for x in [vec![255; shape.in_len()], rng.bytes(shape.in_len())] {
        let acc = accumulate(&shape, &weights, &x, 0);
        for isa in Isa::all() {
            let requant = Requant::new(vec![1.0; 40], 0);
            let conv = QConv::new(isa, &shape, &weights, &Bias::None, 0, requant, OutputKind::F32).unwrap();
            if isa.level() == crate::Level::Avx2 {
                assert!(conv.kernel_name().ends_with("octets"), "{}", conv.kernel_name());
            }
            let (mut y, mut scratch) = (vec![0.0; acc.len()], vec![0; conv.scratch_bytes(1)]);
            conv.run(&ThreadPool::new(1), &x, None, Out::f32(&mut y, 40), &mut scratch).unwrap();
            assert_eq!(y, acc.iter().map(|a| *a as f32).collect::<Vec<_>>(), "{}", conv.kernel_name());
        }
    }
}

#[test]
fn extreme_values_do_not_saturate_on_the_way() {
    for zx in [0, 255] {
        let shape = ConvShape::linear(3, 1024, 64);
        let weights = vec![-128; shape.weight_len()];
        let x = vec![255 - zx; shape.in_len()];
        let acc = accumulate(&shape, &weights, &x, zx);
        assert_eq!(acc[0].unsigned_abs(), 1024 * 255 * 128);
        for (multiplier, isa) in [1.0e-6, 1.0, 1.0e15, -1.0e15].into_iter().zip(Isa::all().into_iter().cycle()) {
            let requant = Requant::new(vec![multiplier; 64], 7);
            let expected = quantized(&scaled(&acc, &Bias::None, &requant, None), &requant);
            let conv = QConv::new(isa, &shape, &weights, &Bias::None, zx, requant, OutputKind::U8).unwrap();
            let mut y = vec![0; 3 * 64];
            let mut scratch = vec![0; conv.scratch_bytes(1)];
            conv.run(&ThreadPool::new(1), &x, None, Out::u8(&mut y, 64), &mut scratch).unwrap();
            assert_eq!(y, expected);
        }
    }
}

#[test]
fn activations_of_what_no_i32_holds_are_refused() {
    let shape = ConvShape::linear(1, 8, 4);
    let make = |multiplier: f32| {
        let mut requant = Requant::new(vec![multiplier; 4], 0);
        requant.activation = Activation::new(Unary::Silu, &Quantize::u8(0.05, 6, Rounding::Recip));
        QConv::new(Isa::portable(), &shape, &[127; 32], &Bias::None, 0, requant, OutputKind::U8)
    };
    assert!(make(1e3).is_ok());
    assert!(matches!(
        make(1e4),
        Err(KernelError::Overflow { what: "activation", bound: 2_590_800_000..2_590_900_000, .. })
    ));
}

/// What [`QConv::of_levels`] gives is what the same convolution gives whose levels were known beforehand.
#[test]
fn levels_may_come_with_the_run() {
    let shapes = [
        ConvShape::linear(5, 37, 70),
        ConvShape::linear(1, 256, 16),
        ConvShape::new(7, 6, 5, 20, 3).with_pad(1),
        ConvShape { n: 2, ..ConvShape::new(8, 9, 12, 33, 3).with_stride(2).with_pad(1).with_groups(3) },
    ];
    let mut rng = Random(11);
    for (shape, bias) in shapes.iter().flat_map(|s| [(s, 0), (s, 2)]) {
        let (x, weights) = (rng.bytes(shape.in_len()), rng.weights(shape.weight_len(), Spread::Bell));
        let sw: Vec<f32> = (0..shape.c_out).map(|c| 0.01 + c as f32 * 0.003).collect();
        let bias = if bias == 0 { Bias::None } else { Bias::F32(sw.iter().map(|s| s * 31.0 - 1.0).collect()) };
        for (scale, zero_point) in [(0.037, 0), (1.3, 101), (2e-4, 255)] {
            let requant = Requant::new(sw.iter().map(|sw| scale * sw).collect(), 0);
            let want = scaled(&accumulate(shape, &weights, &x, zero_point), &bias, &requant, None);
            for isa in Isa::all() {
                let conv = QConv::of_levels(isa, shape, &weights, &bias, sw.clone()).unwrap();
                for threads in [1, 2] {
                    let pool = ThreadPool::new(threads);
                    let mut scratch = vec![0; conv.scratch_bytes(threads)];
                    let mut y = vec![0.0; want.len()];
                    let levels = Some(InputLevels { scale, zero_point });
                    let mut run = |levels, y: &mut [f32]| {
                        conv.run_levels(
                            &pool,
                            QInput { data: &x, levels },
                            None,
                            Out::f32(y, shape.c_out),
                            &mut scratch,
                        )
                    };
                    run(levels, &mut y).unwrap();
                    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&y), bits(&want), "{} of {shape:?} at {levels:?}", conv.kernel_name());
                    assert!(run(None, &mut y).is_err());
                }
            }
        }
    }
    let make = |shape: &ConvShape, bias: Bias| {
        QConv::of_levels(Isa::portable(), shape, &vec![1; shape.weight_len()], &bias, vec![1.0; shape.c_out])
    };
    assert!(make(&shapes[0], Bias::I32(vec![0; 70])).is_err());
    assert!(make(&ConvShape::new(8, 8, 16, 16, 3).with_groups(16), Bias::None).is_err());
    // 2^31 / (255 · 128) products fit; so many more do not, though at a zero point in the middle they would.
    let wide = |k: usize| {
        QConv::of_levels(Isa::portable(), &ConvShape::linear(1, k, 1), &vec![-128; k], &Bias::None, vec![1.0])
    };
    assert!(wide(65_793).is_ok() && wide(65_794).is_err());
}

#[test]
fn transposed_convolutions() {
    let s = ConvTransposeShape {
        n: 1,
        h: 5,
        w: 4,
        c_in: 8,
        c_out: 20,
        kh: 2,
        kw: 2,
        stride: [2, 2],
        pad: [0; 4],
        output_pad: [0; 2],
        dilation: [1, 1],
        groups: 1,
    };
    check_transposed(&s, PLAIN, 1);
    check_transposed(&s, Extras { residual: true, bias: 2, ..PLAIN }, 2);
    check_transposed(&ConvTransposeShape { kh: 3, kw: 4, pad: [1, 1, 1, 2], output_pad: [1, 0], n: 2, ..s }, PLAIN, 3);
    check_transposed(&ConvTransposeShape { kh: 1, kw: 1, stride: [3, 2], ..s }, PLAIN, 4);
    check_transposed(&ConvTransposeShape { kh: 3, kw: 3, dilation: [2, 3], stride: [2, 2], groups: 2, ..s }, PLAIN, 5);
    check_transposed(&ConvTransposeShape { kh: 4, kw: 5, stride: [1, 3], pad: [3, 2, 3, 4], ..s }, PLAIN, 6);
}

#[test]
fn bad_operands_are_errors() {
    let shape = ConvShape::linear(2, 4, 3);
    let make = |w: usize, m: f32, bias: Bias| {
        QConv::new(Isa::portable(), &shape, &vec![1; w], &bias, 0, Requant::new(vec![m; 3], 0), OutputKind::U8)
    };
    assert!(make(11, 1.0, Bias::None).is_err());
    assert!(make(12, f32::NAN, Bias::None).is_err());
    assert!(make(12, 1.0, Bias::I32(vec![0; 2])).is_err());
    let overflow = make(12, 1.0, Bias::I32(vec![0, i32::MAX, 0])).unwrap_err();
    let bound = i64::from(i32::MAX) + 4 * 255;
    assert_eq!(overflow, KernelError::Overflow { what: WHAT, channel: 1, bound });
    let conv = make(12, 1.0, Bias::None).unwrap();
    let (pool, mut scratch) = (ThreadPool::new(1), vec![0; conv.scratch_bytes(1)]);
    let mut y = [0; 6];
    assert!(conv.run(&pool, &[0; 7], None, Out::u8(&mut y, 3), &mut scratch).is_err());
    assert!(conv.run(&pool, &[0; 8], None, Out::u8(&mut y[..5], 3), &mut scratch).is_err());
    assert!(conv.run(&pool, &[0; 8], None, Out::f32(&mut [0.0; 6], 3), &mut scratch).is_err());
    assert!(conv.run(&pool, &[0; 8], Some(View::dense(&[0; 6], 3)), Out::u8(&mut y, 3), &mut scratch).is_err());
    assert!(conv.run(&pool, &[1; 8], None, Out::u8(&mut y, 3), &mut scratch).is_ok());
    assert_eq!(y, [4; 6]);
}

#[test]
fn a_program_is_the_epilogue() {
    use crate::pointwise::{Binary, Builder, Data, Input, Layout, Output, Sink};
    let q = Quantize::u8(0.9, 11, Rounding::Div);
    let mut b = Builder::default();
    let (v, r) = (b.input(Input::F32), b.input(Input::U8 { scale: 0.5, zero_point: 100 }));
    let act = b.unary(Unary::HardSwish, v);
    let sum = b.binary(Binary::Add, act, r);
    b.store(sum, Output::U8(q));
    let program = b.build().unwrap();
    let shapes = [
        ConvShape::new(13, 11, 12, 80, 1),
        ConvShape { n: 2, ..ConvShape::new(9, 7, 5, 50, 3).with_stride(2).with_pad(1) },
        ConvShape { n: 2, ..ConvShape::new(9, 7, 70, 70, 3).with_pad(1).with_groups(70) },
        ConvShape::new(9, 7, 40, 40, 3).with_stride(2).with_pad(1).with_groups(40),
    ];
    for shape in shapes {
        let mut rng = Random(9);
        let (x, weights) = (rng.bytes(shape.in_len()), rng.weights(shape.weight_len(), Spread::Bell));
        let acc = accumulate(&shape, &weights, &x, 3);
        let (bias, mut requant) = config(&mut rng, PLAIN, &acc, shape.c_out);
        requant.multiplier.iter_mut().for_each(|m| *m *= 0.1);
        let residual = rng.bytes(acc.len());
        let expected: Vec<u8> = scaled(&acc, &bias, &requant, None)
            .iter()
            .zip(&residual)
            .map(|(v, r)| q.eval(Unary::HardSwish.eval(*v) + (f32::from(*r) - 100.0) * 0.5))
            .collect();
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
            let conv = QConv::new(isa, &shape, &weights, &bias, 3, requant.clone(), OutputKind::F32).unwrap();
            let mut scratch = vec![0; conv.program_scratch_bytes(threads)];
            let (mut y, pool) = (vec![0u8; acc.len()], ThreadPool::new(threads));
            let layout = Layout::Rows { stride: shape.c_out, offset: 0 };
            let inputs = [TileInput { data: Data::U8(&residual), layout }];
            let data = Sink::U8(SharedMut::new(&mut y));
            let outputs = [TileOutput { data, stride: shape.c_out, offset: 0 }];
            conv.run_program(&pool, x[..].into(), &program, &inputs, &outputs, &mut scratch).unwrap();
            let plain = QConv::new(isa, &shape, &weights, &bias, 3, requant.clone(), OutputKind::U8).unwrap();
            assert!(plain.run_program(&pool, x[..].into(), &program, &inputs, &outputs, &mut scratch).is_err());
            assert_eq!(y, expected, "{} on {threads} threads", conv.kernel_name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_convolution_equals_the_reference(
        (n, h, w) in (1usize..3, 1usize..12, 1usize..12),
        (kh, kw) in (1usize..6, 1usize..6),
        (groups, cg, og) in prop_oneof![
            (Just(1usize), 1usize..40, 1usize..150),
            (2usize..5, 1usize..9, 1usize..20),
            (2usize..150, Just(1), Just(1)),
        ],
        stride in [1usize..4, 1usize..4],
        pad in [0usize..4, 0usize..4, 0usize..4, 0usize..4],
        dilation in [1usize..3, 1usize..3],
        e in extras(),
        seed in any::<u64>(),
    ) {
        let shape =
            ConvShape { n, h, w, c_in: groups * cg, c_out: groups * og, kh, kw, stride, pad, dilation, groups };
        prop_assume!(shape.oh() * shape.ow() > 0);
        check_conv(&shape, e, seed);
    }

    #[test]
    fn any_transposed_convolution_equals_the_reference(
        (n, h, w) in (1usize..3, 1usize..7, 1usize..7),
        (kh, kw) in (1usize..5, 1usize..5),
        (groups, cg, og) in (1usize..3, 1usize..9, 1usize..40),
        stride in [1usize..4, 1usize..4],
        pad in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        output_pad in [0usize..2, 0usize..2],
        dilation in [1usize..4, 1usize..4],
        e in extras(),
        seed in any::<u64>(),
    ) {
        let (c_in, c_out) = (groups * cg, groups * og);
        let shape = ConvTransposeShape { n, h, w, c_in, c_out, kh, kw, stride, pad, output_pad, dilation, groups };
        prop_assume!(shape.oh() * shape.ow() > 0);
        check_transposed(&shape, e, seed);
    }
}
