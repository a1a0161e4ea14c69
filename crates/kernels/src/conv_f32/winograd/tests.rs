use super::super::tests::{bits, ordered, reference, values};
use super::super::{ConvF32, EpilogueF32};
use super::*;
use crate::pointwise::{Binary, Builder, Data, Input, Layout, Output, Sink, TileInput, TileOutput, Unary};
use half::f16;

/// The sum in f64.
fn exact(s: &ConvShape, x: &[f32], w: &[f32], bias: &[f32]) -> Vec<f64> {
    let mut y = vec![0.0; s.out_len()];
    for (pixel, y) in y.chunks_mut(s.c_out).enumerate() {
        let (n, oy, ox) = (pixel / s.ow() / s.oh(), pixel / s.ow() % s.oh(), pixel % s.ow());
        y.iter_mut().zip(bias).for_each(|(y, b)| *y = f64::from(*b));
        for (ky, kx) in (0..9).map(|tap| (tap / 3, tap % 3)) {
            let (iy, ix) = ((oy + ky).wrapping_sub(s.pad[0]), (ox + kx).wrapping_sub(s.pad[1]));
            if iy >= s.h || ix >= s.w {
                continue;
            }
            let x = &x[((n * s.h + iy) * s.w + ix) * s.c_in..][..s.c_in];
            for (c, y) in y.iter_mut().enumerate() {
                let w = &w[((c * 3 + ky) * 3 + kx) * s.c_in..][..s.c_in];
                *y += x.iter().zip(w).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
            }
        }
    }
    y
}

/// Sums of twelve uniform values about 0: nearly normal.
fn normal(n: usize, seed: u32) -> Vec<f32> {
    let all = values(12 * n, seed);
    let mean = all.iter().map(|v| f64::from(*v)).sum::<f64>() / all.len() as f64;
    all.chunks(12).map(|v| v.iter().sum::<f32>() - 12.0 * mean as f32).collect()
}

fn shape(n: usize, [h, w]: [usize; 2], c_in: usize, c_out: usize, pad: [usize; 4]) -> ConvShape {
    ConvShape { n, pad, ..ConvShape::new(h, w, c_in, c_out, 3) }
}

fn run(conv: &ConvF32, threads: usize, x: &[f32]) -> Result<Vec<f32>, KernelError> {
    let (mut y, mut scratch) = (vec![f32::NAN; conv.shape().out_len()], vec![0; conv.scratch_bytes(threads)]);
    conv.run(&ThreadPool::new(threads), x, &mut y, &mut scratch)?;
    Ok(y)
}

/// The greatest error, and the root of the mean square, in units of the results' own.
fn errors(y: &[f32], exact: &[f64]) -> [f64; 2] {
    let norm = (exact.iter().map(|y| y * y).sum::<f64>() / exact.len() as f64).sqrt();
    let errors: Vec<f64> = y.iter().zip(exact).map(|(y, e)| (f64::from(*y) - e).abs() / norm).collect();
    let square = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
    [errors.iter().copied().fold(0.0, f64::max), square.sqrt()]
}

#[test]
fn errors_are_less_than_twice_those_of_the_direct_sum() -> Result<(), KernelError> {
    for (side, c_in, most) in [(20, 64, 1e-5), (12, 256, 2e-5), (8, 512, 3e-5)] {
        let s = shape(1, [side, side], c_in, 64, [1; 4]);
        let (x, w, b) = (normal(s.in_len(), 1), normal(s.weight_len(), 2), vec![0.0; s.c_out]);
        let exact = exact(&s, &x, &w, &b);
        let direct = errors(&reference(&s, &x, &w, &b, f32::NEG_INFINITY, f32::INFINITY), &exact);
        let conv = ConvF32::new(Isa::best(), &s, &w, None, EpilogueF32::NONE)?;
        assert!(conv.kernel_name().starts_with("winograd_f32_"));
        let [max, mean] = errors(&run(&conv, 1, &x)?, &exact);
        println!("{c_in} channels: greatest {max:.2e} mean {mean:.2e}; direct {:.2e} and {:.2e}", direct[0], direct[1]);
        assert!(max < most && mean < 2.0 * direct[1], "{c_in}: {max:e} {mean:e} beside {direct:?}");
    }
    Ok(())
}

/// That floats and halves give the same bits on every instruction set and thread count, and about the sum.
fn holds_everywhere(s: &ConvShape, seed: u32) -> Result<(), KernelError> {
    let (x, b) = (values(s.in_len(), seed), values(s.c_out, seed + 2));
    let half: Vec<f16> = values(s.weight_len(), seed + 1).into_iter().map(f16::from_f32).collect();
    let wide: Vec<f32> = half.iter().map(|v| v.to_f32()).collect();
    let mut all: Vec<Vec<f32>> = vec![];
    for isa in Isa::all() {
        let floats = ConvF32::new(isa, s, &wide, Some(&b), EpilogueF32::NONE)?;
        all.push(run(&floats, 1, &x)?);
        all.push(run(&floats, 3, &x)?);
        let halves = ConvF32::of_halves(isa, s, ordered(s, &half), Some(&b), EpilogueF32::NONE)?;
        all.push(run(&halves, 2, &x)?);
    }
    let [max, _] = errors(&all[0], &exact(s, &x, &wide, &b));
    assert!(max < 2e-5, "{max:e} for {s:?}");
    assert!(all.iter().all(|y| bits(y) == bits(&all[0])), "{s:?}");
    Ok(())
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn all_instruction_sets_and_threads_and_halves_give_the_same_bits_near_the_sum(
        (n, h, w) in (1usize..4, 6usize..20, 6usize..20),
        (c_in, c_out) in (16usize..150, 16usize..100),
        pad in [0usize..3, 0usize..3, 0usize..3, 0usize..3],
        seed in 0u32..1000,
    ) {
        let s = shape(n, [h, w], c_in, c_out, pad);
        proptest::prop_assume!(pays(&s));
        holds_everywhere(&s, seed)?;
    }
}

/// Fewer tiles than a block of rows, whose weights are not stored in terms.
#[test]
fn a_few_tiles_give_the_same_bits_too() -> Result<(), KernelError> {
    for (tiles, side) in [(2, [4, 8]), (3, [12, 4]), (4, [7, 7]), (4, [8, 7]), (6, [8, 11])] {
        for (c_in, c_out) in [(16, 16), (70, 45), (200, 130)] {
            let s = shape(1, side, c_in, c_out, [1; 4]);
            assert!(pays(&s) && s.oh().div_ceil(SIDE) * s.ow().div_ceil(SIDE) == tiles);
            holds_everywhere(&s, 3)?;
        }
    }
    Ok(())
}

#[test]
fn images_give_the_bits_that_they_give_alone_and_clamps_hold() -> Result<(), KernelError> {
    let s = shape(5, [9, 14], 70, 45, [1, 1, 1, 0]);
    let (x, w, b) = (values(s.in_len(), 1), values(s.weight_len(), 2), values(s.c_out, 3));
    let conv = ConvF32::new(Isa::best(), &s, &w, Some(&b), EpilogueF32::Clamp { lo: -3.0, hi: 40.0 })?;
    let all = run(&conv, 2, &x)?;
    assert!(all.contains(&-3.0) && all.contains(&40.0) && all.iter().all(|y| (-3.0..=40.0).contains(y)));
    let alone = conv.resized(1, s.h, s.w);
    for (x, y) in x.chunks(s.in_len() / 5).zip(all.chunks(all.len() / 5)) {
        assert_eq!(run(&alone, 1, x)?, y);
    }
    Ok(())
}

/// Where nothing but a centre tap of 1 is there, results are inputs, exactly where they have few bits.
#[test]
fn a_tap_of_one_moves_the_image() -> Result<(), KernelError> {
    let s = shape(2, [13, 10], 40, 40, [1; 4]);
    let x: Vec<f32> = (0..s.in_len()).map(|i| (i * 7 % 31) as f32 - 15.0).collect();
    for tap in 0..9 {
        let at = |i: usize| if i % s.c_in == i / s.c_in / 9 && i / s.c_in % 9 == tap { 1.0 } else { 0.0 };
        let w: Vec<f32> = (0..s.weight_len()).map(at).collect();
        let want = reference(&s, &x, &w, &[0.0; 40], f32::NEG_INFINITY, f32::INFINITY);
        for isa in Isa::all() {
            let y = run(&ConvF32::new(isa, &s, &w, None, EpilogueF32::NONE)?, 1, &x)?;
            assert!(y.iter().zip(&want).all(|(y, want)| (y - want).abs() < 5e-5), "tap {tap}");
        }
    }
    Ok(())
}

/// Sum with a residual, and another program, into strided outputs, in rows of tiles that are cut by a chunk's end and
/// in whole ones.
#[test]
fn programs_run_on_every_result() -> Result<(), KernelError> {
    for s in [shape(3, [8, 70], 33, 50, [1; 4]), shape(2, [7, 10], 96, 32, [1; 4]), shape(1, [6, 300], 32, 40, [0; 4])]
    {
        let (x, w, b) = (values(s.in_len(), 1), values(s.weight_len(), 2), values(s.c_out, 3));
        let r = values(s.out_len(), 4);
        for active in [Unary::Relu, Unary::HardSwish] {
            let mut builder = Builder::default();
            let (acc, residual) = (builder.input(Input::F32), builder.input(Input::F32));
            let sum = builder.binary(Binary::Add, acc, residual);
            let y = builder.unary(active, sum);
            builder.store(y, Output::F32);
            let program = builder.build()?;
            let inputs = [TileInput { data: Data::F32(&r), layout: Layout::Rows { stride: s.c_out, offset: 0 } }];
            let stride = s.c_out + 5;
            for isa in Isa::all() {
                let plain = run(&ConvF32::new(isa, &s, &w, Some(&b), EpilogueF32::NONE)?, 1, &x)?;
                let conv = ConvF32::new(isa, &s, &w, Some(&b), EpilogueF32::Program(program.clone()))?;
                let (mut y, mut scratch) = (vec![7.0; s.n * s.oh() * s.ow() * stride], vec![0; conv.scratch_bytes(2)]);
                let outputs = [TileOutput { data: Sink::F32(SharedMut::new(&mut y)), stride, offset: 2 }];
                conv.run_into(&ThreadPool::new(2), &x, &inputs, &outputs, &mut scratch)?;
                for (i, y) in y.iter().enumerate() {
                    let (pixel, c) = (i / stride, (i % stride).wrapping_sub(2));
                    let inside = c < s.c_out;
                    let at = pixel * s.c_out + if inside { c } else { 0 };
                    assert_eq!(*y, if inside { active.eval(plain[at] + r[at]) } else { 7.0 }, "element {i} of {s:?}");
                }
            }
        }
    }
    Ok(())
}
