use super::*;
use crate::pointwise::{Binary, Builder, Data, Input, Layout, Output, Quantize, Rounding, Unary};

/// Values that are no dyadic fractions, so that the order of sums shows in the bits.
pub(super) fn values(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 4e6 - 2.0
        })
        .collect()
}

/// The definition, tap by tap.
pub(super) fn reference(s: &ConvShape, x: &[f32], w: &[f32], bias: &[f32], lo: f32, hi: f32) -> Vec<f32> {
    let (ci, co) = (s.c_in / s.groups, s.c_out / s.groups);
    let mut y = Vec::with_capacity(s.out_len());
    for (n, oy) in (0..s.n * s.oh()).map(|i| (i / s.oh(), i % s.oh())) {
        for (ox, c) in (0..s.ow() * s.c_out).map(|i| (i / s.c_out, i % s.c_out)) {
            let mut acc = bias[c];
            for tap in 0..s.kh * s.kw {
                let (ky, kx) = (tap / s.kw, tap % s.kw);
                let iy = (oy * s.stride[0] + ky * s.dilation[0]).wrapping_sub(s.pad[0]);
                let ix = (ox * s.stride[1] + kx * s.dilation[1]).wrapping_sub(s.pad[1]);
                for i in 0..ci {
                    let inside = iy < s.h && ix < s.w;
                    let v = if inside { x[((n * s.h + iy) * s.w + ix) * s.c_in + c / co * ci + i] } else { 0.0 };
                    acc = v.mul_add(w[(c * s.kh * s.kw + tap) * ci + i], acc);
                }
            }
            y.push(acc.max(lo).min(hi));
        }
    }
    y
}

fn shapes() -> Vec<ConvShape> {
    let base = ConvShape {
        n: 1,
        h: 9,
        w: 11,
        c_in: 5,
        c_out: 33,
        kh: 3,
        kw: 3,
        stride: [1, 1],
        pad: [1; 4],
        dilation: [1, 1],
        groups: 1,
    };
    vec![
        base,
        ConvShape { n: 2, stride: [2, 2], pad: [0, 1, 2, 3], kw: 5, ..base },
        ConvShape { dilation: [2, 3], pad: [3; 4], ..base },
        ConvShape { kh: 1, kw: 1, pad: [0; 4], c_in: 300, c_out: 70, ..base },
        ConvShape { c_in: 6, c_out: 9, groups: 3, ..base },
        ConvShape { c_in: 4, c_out: 8, groups: 4, ..base },
        ConvShape { n: 3, c_in: 53, c_out: 53, groups: 53, ..base },
        ConvShape { c_in: 70, c_out: 70, groups: 70, kh: 5, kw: 5, pad: [2; 4], stride: [2, 1], ..base },
        ConvShape { w: 19, c_in: 97, c_out: 97, groups: 97, pad: [1, 0, 2, 1], ..base },
        ConvShape { w: 19, c_in: 40, c_out: 40, groups: 40, kw: 5, dilation: [2, 1], pad: [2, 3, 2, 0], ..base },
        ConvShape { c_in: 3, c_out: 3, groups: 3, dilation: [2, 2], pad: [0; 4], ..base },
        ConvShape { h: 1, kh: 1, pad: [0, 7, 0, 7], kw: 15, c_in: 40, ..base },
        ConvShape { pad: [5; 4], h: 2, w: 2, ..base },
        ConvShape { n: 2, w: 67, c_in: 3, stride: [2, 2], ..base },
        ConvShape { w: 50, dilation: [2, 1], stride: [1, 3], kw: 4, pad: [0; 4], c_in: 90, c_out: 10, ..base },
        ConvShape {
            w: 40,
            kw: 1,
            dilation: [3, 1],
            pad: [2, 0, 2, 0],
            stride: [2, 1],
            c_in: 8,
            c_out: 6,
            groups: 2,
            ..base
        },
        ConvShape::linear(3, 700, 130),
    ]
}

/// Weights `[c_out, kh, kw, c_in / groups]` one by one.
pub(super) fn ordered<'w, T: Copy>(s: &ConvShape, w: &'w [T]) -> impl Fn(usize, usize, usize) -> T + use<'w, T> {
    let (taps, each) = (s.kh * s.kw, s.c_in / s.groups);
    move |channel, tap, input| w[(channel * taps + tap) * each + input]
}

#[test]
fn every_isa_and_thread_count_gives_the_definitions_bits() -> Result<(), KernelError> {
    for s in shapes() {
        let (x, w, b) = (values(s.in_len(), 1), values(s.weight_len(), 2), values(s.c_out, 3));
        let want = reference(&s, &x, &w, &b, -0.5, 6.0);
        for isa in Isa::all() {
            let conv = ConvF32::new(isa, &s, &w, Some(&b), EpilogueF32::Clamp { lo: -0.5, hi: 6.0 })?;
            for threads in [1, 2, 3] {
                let mut scratch = vec![0; conv.scratch_bytes(threads)];
                let mut y = vec![f32::NAN; s.out_len()];
                conv.run(&ThreadPool::new(threads), &x, &mut y, &mut scratch)?;
                assert_eq!(y, want, "{s:?} by {} with {threads} threads", conv.kernel_name());
            }
            let resized = ConvF32::new(isa, &ConvShape { n: 7, h: 20, ..s }, &w, Some(&b), EpilogueF32::RELU)?;
            assert_eq!(resized.resized(s.n, s.h, s.w).shape(), &s);
        }
    }
    Ok(())
}

#[test]
fn a_program_is_run_on_every_result() -> Result<(), KernelError> {
    let mut b = Builder::default();
    let (acc, gate) = (b.input(Input::F32), b.input(Input::F32));
    let residual = b.input(Input::U8 { scale: 0.1, zero_point: 99 });
    let active = b.unary(Unary::HardSwish, acc);
    let gated = b.binary(Binary::Mul, active, gate);
    let sum = b.binary(Binary::Add, gated, residual);
    let q = Quantize::u8(0.3, 77, Rounding::Div);
    b.store(sum, Output::U8(q));
    let program = b.build()?;
    for s in shapes() {
        let (x, w, gates) = (values(s.in_len(), 1), values(s.weight_len(), 2), values(s.n * s.c_out, 5));
        let bias = vec![0.0; s.c_out];
        let r: Vec<u8> = (0..s.out_len()).map(|i| (i * 131 % 256) as u8).collect();
        let sums = reference(&s, &x, &w, &bias, f32::NEG_INFINITY, f32::INFINITY);
        let pixels = s.oh() * s.ow();
        let meant = |i: usize| {
            let v = Unary::HardSwish.eval(sums[i]) * gates[i / (pixels * s.c_out) * s.c_out + i % s.c_out];
            q.eval(v + (f32::from(r[i]) - 99.0) * 0.1)
        };
        let inputs = [
            TileInput { data: Data::F32(&gates), layout: Layout::PerBatchChannel { pixels, stride: s.c_out } },
            TileInput { data: Data::U8(&r), layout: Layout::Rows { stride: s.c_out, offset: 0 } },
        ];
        let stride = s.c_out + 3;
        for isa in Isa::all() {
            let conv = ConvF32::new(isa, &s, &w, None, EpilogueF32::Program(program.clone()))?;
            let (mut y, mut scratch) = (vec![0u8; s.n * pixels * stride], vec![0; conv.scratch_bytes(2)]);
            let outputs = [TileOutput { data: Sink::U8(SharedMut::new(&mut y)), stride, offset: 2 }];
            conv.run_into(&ThreadPool::new(2), &x, &inputs, &outputs, &mut scratch)?;
            for i in 0..sums.len() {
                assert_eq!(y[i / s.c_out * stride + 2 + i % s.c_out], meant(i), "element {i} of {s:?}");
            }
        }
    }
    Ok(())
}

/// Scatters every input over its outputs, in integers.
fn transposed(t: &TransposeShape, x: &[f32], w: &[f32], bias: &[f32]) -> Vec<f32> {
    let (s, [oh, ow]) = (&t.conv, t.out_size());
    let (ci, co) = (s.c_in / s.groups, s.c_out / s.groups);
    let mut y: Vec<f32> = (0..s.n * oh * ow * s.c_out).map(|i| bias[i % s.c_out]).collect();
    for (at, v) in x.iter().enumerate() {
        let (i, ix, iy, n) = (at % s.c_in, at / s.c_in % s.w, at / s.c_in / s.w % s.h, at / s.c_in / s.w / s.h);
        for (ky, kx, c) in (0..s.kh * s.kw * co).map(|j| (j / co / s.kw, j / co % s.kw, j % co)) {
            let oy = (iy * s.stride[0] + ky * s.dilation[0]).wrapping_sub(s.pad[0]);
            let ox = (ix * s.stride[1] + kx * s.dilation[1]).wrapping_sub(s.pad[1]);
            if oy < oh && ox < ow {
                let c = i / ci * co + c;
                y[((n * oh + oy) * ow + ox) * s.c_out + c] += v * w[((c * s.kh + ky) * s.kw + kx) * ci + i % ci];
            }
        }
    }
    y
}

#[test]
fn residuals_are_added_to_the_sums_beside_them_and_in_place() -> Result<(), KernelError> {
    let mut b = Builder::default();
    let (sums, residual) = (b.input(Input::F32), b.input(Input::F32));
    let sum = b.binary(Binary::Add, sums, residual);
    let bounded = b.unary(Unary::Clamp { lo: -0.5, hi: 6.0 }, sum);
    b.store(bounded, Output::F32);
    let epilogue = EpilogueF32::Program(b.build()?);
    for s in shapes() {
        let (x, w, bias) = (values(s.in_len(), 1), values(s.weight_len(), 2), values(s.c_out, 3));
        let (stride, offset) = (s.c_out + 3, 2);
        let r = values(s.pixels() * stride, 4);
        let plain = reference(&s, &x, &w, &bias, f32::NEG_INFINITY, f32::INFINITY);
        let at = |i: usize| i / s.c_out * stride + offset + i % s.c_out;
        let want: Vec<f32> = plain.iter().enumerate().map(|(i, v)| (v + r[at(i)]).clamp(-0.5, 6.0)).collect();
        for isa in Isa::all() {
            let conv = ConvF32::new(isa, &s, &w, Some(&bias), epilogue.clone())?;
            for threads in [1, 2] {
                let (pool, mut scratch) = (ThreadPool::new(threads), vec![0; conv.scratch_bytes(threads)]);
                let what = format!("{s:?} by {} with {threads} threads", conv.kernel_name());
                let mut y = vec![f32::NAN; s.out_len()];
                let inputs = [TileInput { data: Data::F32(&r), layout: Layout::Rows { stride, offset } }];
                let output = TileOutput { data: Sink::F32(SharedMut::new(&mut y)), stride: s.c_out, offset: 0 };
                conv.run_into(&pool, &x, &inputs, &[output], &mut scratch)?;
                assert_eq!(y, want, "{what}");
                let mut y = r.clone();
                let output = TileOutput { data: Sink::F32(SharedMut::new(&mut y)), stride, offset };
                let done = conv.run_onto(&pool, &x, &output, &mut scratch);
                assert_eq!(done.is_ok(), conv.adds_in_place(), "{what}: {done:?}");
                let expected: Vec<f32> =
                    if done.is_ok() { want.clone() } else { (0..want.len()).map(|i| r[at(i)]).collect() };
                assert!((0..want.len()).all(|i| y[at(i)] == expected[i]), "in place, {what}");
                let beside = |i: &usize| !(offset..offset + s.c_out).contains(&(i % stride));
                assert!((0..y.len()).filter(beside).all(|i| y[i] == r[i]), "beside it, {what}");
            }
        }
    }
    Ok(())
}

#[test]
fn transposed_convolutions_equal_the_scattered_sum() -> Result<(), KernelError> {
    let whole = |n: usize, seed: u32| values(n, seed).iter().map(|v| (v * 4.0).round()).collect::<Vec<f32>>();
    for (k, stride, pad, dilation, out_pad, groups) in [
        (2, 2, 0, 1, 0, 1),
        (3, 2, 1, 1, 1, 1),
        (4, 2, 1, 1, 0, 2),
        (2, 3, 0, 1, 2, 1),
        (3, 2, 2, 2, 1, 1),
        (3, 1, 1, 1, 0, 4),
        (3, 4, 0, 3, 0, 1),
    ] {
        let conv = ConvShape {
            n: 2,
            h: 4,
            w: 5,
            c_in: 8,
            c_out: 20,
            kh: k,
            kw: k + 1,
            stride: [stride, stride],
            pad: [pad, 0, pad, pad],
            dilation: [dilation, dilation],
            groups,
        };
        let t = TransposeShape { conv, output_padding: [out_pad, 0] };
        let (x, w, b) = (whole(conv.in_len(), 1), whole(conv.weight_len(), 2), whole(conv.c_out, 3));
        let want = transposed(&t, &x, &w, &b);
        for isa in Isa::all() {
            let run = ConvTransposeF32::new(isa, &t, &w, Some(&b), EpilogueF32::NONE)?;
            let (mut y, mut scratch) = (vec![f32::NAN; want.len()], vec![0; run.scratch_bytes(2)]);
            run.run(&ThreadPool::new(2), &x, &mut y, &mut scratch)?;
            assert_eq!(y, want, "{t:?} on {isa:?}");
        }
    }
    Ok(())
}

#[test]
fn bad_operands_are_refused() -> Result<(), KernelError> {
    let s = shapes()[0];
    let (w, isa, pool) = (values(s.weight_len(), 2), Isa::best(), ThreadPool::new(1));
    assert!(ConvF32::new(isa, &s, &w[1..], None, EpilogueF32::NONE).is_err());
    assert!(ConvF32::new(isa, &s, &w, Some(&[0.0]), EpilogueF32::NONE).is_err());
    for groups in [0, 2] {
        assert!(ConvF32::new(isa, &ConvShape { groups, ..s }, &w, None, EpilogueF32::NONE).is_err());
    }
    let conv = ConvF32::new(isa, &s, &w, None, EpilogueF32::NONE)?;
    let (mut y, mut scratch) = (vec![0.0; s.out_len()], vec![0; conv.scratch_bytes(1)]);
    assert!(conv.run(&pool, &values(s.in_len() - 1, 1), &mut y, &mut scratch).is_err());
    assert!(conv.run(&pool, &values(s.in_len(), 1), &mut y[1..], &mut scratch).is_err());
    assert!(conv.run(&pool, &values(s.in_len(), 1), &mut y, &mut scratch[..64]).is_err());
    Ok(())
}

/// Halves of every kind: normal, subnormal, zeros of both signs, the greatest.
fn halves(n: usize, seed: u32) -> Vec<f16> {
    let special = [f16::MAX, f16::MIN, f16::MIN_POSITIVE, f16::from_bits(1), f16::from_bits(0x83ff), f16::NEG_ZERO];
    let of = |(i, v): (usize, f32)| if i % 23 == 7 { special[i % special.len()] } else { f16::from_f32(v) };
    values(n, seed).into_iter().enumerate().map(of).collect()
}

pub(super) fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|v| v.to_bits()).collect()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    #[test]
    fn weights_of_halves_give_the_bits_of_the_floats_that_they_widen_to(
        (n, h, w) in (1usize..3, 1usize..9, 1usize..9),
        (kh, kw, stride) in (1usize..4, 1usize..4, 1usize..3),
        (c_in, c_out, groups) in (1usize..40, 1usize..80, 1usize..3),
        depthwise in proptest::bool::weighted(0.2),
        threads in 1usize..3,
        seed in 0u32..1000,
    ) {
        let (c_in, c_out, groups) = if depthwise { (c_in, c_in, c_in) } else { (c_in * groups, c_out * groups, groups) };
        let (stride, pad) = ([stride, 3 - stride], [kh / 2, kw / 2, kh, kw]);
        let s = ConvShape { n, h, w, c_in, c_out, kh, kw, stride, pad, dilation: [1, 1], groups };
        let (x, w, b) = (values(s.in_len(), seed), halves(s.weight_len(), seed + 1), values(c_out, seed + 2));
        let wide: Vec<f32> = w.iter().map(|v| v.to_f32()).collect();
        let pool = ThreadPool::new(threads);
        let mut all = vec![];
        for isa in Isa::all() {
            let floats = ConvF32::new(isa, &s, &wide, Some(&b), EpilogueF32::NONE)?;
            let half = ConvF32::of_halves(isa, &s, ordered(&s, &w), Some(&b), EpilogueF32::NONE)?;
            for conv in [floats, half] {
                let (mut y, mut scratch) = (vec![f32::NAN; s.out_len()], vec![0; conv.scratch_bytes(threads)]);
                conv.run(&pool, &x, &mut y, &mut scratch)?;
                all.push((conv.kernel_name(), bits(&y)));
            }
        }
        for (name, y) in &all {
            proptest::prop_assert!(*y == all[0].1, "{} beside {} on {:?}", name, all[0].0, s);
        }
    }

    #[test]
    fn linear_layers_of_halves_too(
        (rows, k, n) in (1usize..31, 1usize..600, 1usize..140),
        threads in 1usize..3,
        seed in 0u32..1000,
    ) {
        let s = ConvShape::linear(rows, k, n);
        let (x, w) = (values(s.in_len(), seed), halves(s.weight_len(), seed + 1));
        let wide: Vec<f32> = w.iter().map(|v| v.to_f32()).collect();
        let want = reference(&s, &x, &wide, &vec![0.0; n], f32::NEG_INFINITY, f32::INFINITY);
        for isa in Isa::all() {
            let conv = ConvF32::of_halves(isa, &s, ordered(&s, &w), None, EpilogueF32::NONE)?;
            let (mut y, mut scratch) = (vec![f32::NAN; s.out_len()], vec![0; conv.scratch_bytes(threads)]);
            conv.run(&ThreadPool::new(threads), &x, &mut y, &mut scratch)?;
            proptest::prop_assert_eq!(&y, &want, "{}", conv.kernel_name());
        }
    }
}

#[test]
fn transposed_convolutions_take_halves_and_say_so() -> Result<(), KernelError> {
    let conv = ConvShape { c_in: 10, c_out: 24, groups: 2, stride: [2, 2], ..shapes()[0] };
    let t = TransposeShape { conv, output_padding: [1, 0] };
    let (x, w, b) = (values(conv.in_len(), 1), halves(conv.weight_len(), 2), values(conv.c_out, 3));
    let wide: Vec<f32> = w.iter().map(|v| v.to_f32()).collect();
    for isa in Isa::all() {
        let floats = ConvTransposeF32::new(isa, &t, &wide, Some(&b), EpilogueF32::RELU)?;
        let half = ConvTransposeF32::with_halves(isa, &t, &w, Some(&b), EpilogueF32::RELU)?;
        assert_eq!(half.kernel_name(), floats.kernel_name().replace("_f32_", "_f32f16_"));
        let [oh, ow] = t.out_size();
        let ys = [floats, half].map(|run| {
            let (mut y, mut scratch) = (vec![f32::NAN; conv.n * oh * ow * conv.c_out], vec![0; run.scratch_bytes(2)]);
            run.run(&ThreadPool::new(2), &x, &mut y, &mut scratch).map(|()| bits(&y))
        });
        let [a, b] = ys;
        assert_eq!(a?, b?, "{isa:?}");
    }
    Ok(())
}
