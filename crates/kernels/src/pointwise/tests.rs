use super::*;
use crate::{Isa, KernelError, SharedMut, ThreadPool};

/// Values of all kinds: zeros, ties, subnormals, huge ones, infinities, NaN.
fn samples(n: usize, seed: u32) -> Vec<f32> {
    let special = [0.0, -0.0, 0.5, 1.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut state = seed;
    (0..n)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if i % 7 == 3 { special[i / 7 % special.len()] } else { (state >> 8) as f32 / 1e6 - 8.0 }
        })
        .collect()
}

fn bytes(n: usize, seed: u32) -> Vec<u8> {
    samples(n, seed).iter().enumerate().map(|(i, x)| (x.to_bits() >> 11) as u8 ^ (i * 37) as u8).collect()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

const UNARY: [Unary; 24] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Relu,
    Unary::Clamp { lo: -1.0, hi: 6.0 },
    Unary::HardSwish,
    Unary::HardSigmoid,
    Unary::HardSigmoidAffine { alpha: 0.2, beta: 0.5 },
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Tanh,
    Unary::Exp,
    Unary::Log,
    Unary::Erf,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::LeakyRelu { slope: 0.01 },
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Reciprocal,
    Unary::Floor,
    Unary::Ceil,
    Unary::Trunc,
    Unary::Round,
    Unary::Sign,
];

const BINARY: [Binary; 11] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Lt,
    Binary::Le,
    Binary::Eq,
    Binary::Ne,
];

#[test]
fn every_op_equals_its_definition_on_every_isa() -> Result<(), KernelError> {
    let pool = ThreadPool::new(1);
    let (x, z) = (samples(1337, 1), samples(1337, 99));
    for isa in Isa::all() {
        let mut y = vec![0.0; x.len()];
        for op in UNARY {
            let p = Program::unary(Input::F32, op, Output::F32)?;
            Pointwise::flat(isa, p, x.len())?.run(&pool, &[Data::F32(&x)], &mut [DataMut::F32(&mut y)])?;
            let wrong = x.iter().zip(&y).find(|(x, y)| !same(op.eval(**x), **y));
            assert_eq!(wrong, None, "{op:?} on {isa:?}");
        }
        for op in BINARY {
            let p = Program::binary([Input::F32; 2], op, Output::F32)?;
            let run = Pointwise::flat(isa, p, x.len())?;
            run.run(&pool, &[Data::F32(&x), Data::F32(&z)], &mut [DataMut::F32(&mut y)])?;
            let wrong = x.iter().zip(&z).zip(&y).find(|((x, z), y)| !same(op.eval(**x, **z), **y));
            assert_eq!(wrong, None, "{op:?} on {isa:?}");
        }
    }
    Ok(())
}

#[test]
fn quantized_stores_and_loads_equal_numerics() -> Result<(), KernelError> {
    let x = samples(5000, 7);
    for isa in Isa::all() {
        for rounding in [Rounding::Recip, Rounding::Div] {
            for (zero_point, qmin, qmax) in [(0, 0, 255), (128, 0, 255), (255, 3, 200), (7, 7, 7)] {
                let q = Quantize { scale: 0.037, zero_point, qmin, qmax, rounding };
                let mut b = Builder::default();
                let v = b.input(Input::F32);
                b.store(v, Output::U8(q));
                let mut y = vec![0; x.len()];
                let run = Pointwise::flat(isa, b.build()?, x.len())?;
                run.run(&ThreadPool::new(2), &[Data::F32(&x)], &mut [DataMut::U8(&mut y)])?;
                assert!(x.iter().zip(&y).all(|(x, y)| q.eval(*x) == *y), "{q:?} on {isa:?}");

                let mut b = Builder::default();
                let v = b.input(Input::U8 { scale: 0.037, zero_point });
                b.store(v, Output::F32);
                let mut back = vec![0.0; x.len()];
                let run = Pointwise::flat(isa, b.build()?, x.len())?;
                run.run(&ThreadPool::new(1), &[Data::U8(&y)], &mut [DataMut::F32(&mut back)])?;
                let meant = |q: u8| cleave_numerics::dequantize(i32::from(q), 0.037, zero_point);
                assert!(y.iter().zip(&back).all(|(q, f)| meant(*q) == *f));
            }
        }
    }
    Ok(())
}

/// `hardswish(x · gate + r)`: a squeeze-excite gate and a quantized residual.
fn gated() -> Result<Program, KernelError> {
    let mut b = Builder::default();
    let (x, gate) = (b.input(Input::F32), b.input(Input::F32));
    let r = b.input(Input::U8 { scale: 0.05, zero_point: 120 });
    let scaled = b.binary(Binary::Mul, x, gate);
    let sum = b.binary(Binary::Add, scaled, r);
    let y = b.unary(Unary::HardSwish, sum);
    b.store(y, Output::U8(Quantize::u8(0.04, 11, Rounding::Div)));
    b.store(sum, Output::F32);
    b.build()
}

fn gated_value(x: f32, gate: f32, r: u8) -> (f32, u8) {
    let sum = x * gate + (f32::from(r) - 120.0) * 0.05;
    (sum, Quantize::u8(0.04, 11, Rounding::Div).eval(Unary::HardSwish.eval(sum)))
}

#[test]
fn broadcast_operands_are_addressed_by_their_strides() -> Result<(), KernelError> {
    for (n, hw, c) in [(1, 1, 1), (2, 35, 5), (3, 7, 96), (1, 3, 1100), (2, 300, 16)] {
        let (x, gate, r) = (samples(n * hw * c, 3), samples(n * c, 5), bytes(n * hw * c, 9));
        for isa in Isa::all() {
            for threads in [1, 2] {
                let (mut q, mut f) = (vec![0u8; x.len()], vec![0.0f32; x.len()]);
                let dims = [n, hw, c];
                let shapes = [dims.to_vec(), vec![n, 1, c], dims.to_vec()];
                let run = Pointwise::broadcast(isa, gated()?, &dims, &shapes)?;
                let inputs = [Data::F32(&x), Data::F32(&gate), Data::U8(&r)];
                run.run(&ThreadPool::new(threads), &inputs, &mut [DataMut::U8(&mut q), DataMut::F32(&mut f)])?;
                for i in 0..x.len() {
                    let (sum, byte) = gated_value(x[i], gate[i / (hw * c) * c + i % c], r[i]);
                    assert!(same(sum, f[i]) && byte == q[i], "element {i} of {dims:?} on {isa:?}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn strided_inputs_are_gathered() -> Result<(), KernelError> {
    // An NCHW input read into an NHWC output, and one value a row.
    let (n, c, hw) = (2, 3, 50);
    let x = samples(n * c * hw, 21);
    let row = samples(hw, 22);
    let p = Program::binary([Input::F32; 2], Binary::Add, Output::F32)?;
    let inputs = [vec![c * hw, 1, hw], vec![0, 1, 0]];
    for isa in Isa::all() {
        let run = Pointwise::new(isa, p.clone(), &[n, hw, c], &inputs, &[vec![hw * c, c, 1]])?;
        let mut y = vec![0.0; x.len()];
        run.run(&ThreadPool::new(1), &[Data::F32(&x), Data::F32(&row)], &mut [DataMut::F32(&mut y)])?;
        for (i, y) in y.into_iter().enumerate() {
            let (b, p, ch) = (i / (hw * c), i / c % hw, i % c);
            assert!(same(y, x[(b * c + ch) * hw + p] + row[p]));
        }
    }
    Ok(())
}

#[test]
#[allow(unsafe_code, reason = "tiles are run one after the other")]
fn a_tile_is_the_same_program_on_a_part() -> Result<(), KernelError> {
    let (n, hw, c, cs) = (3, 10, 20, 32);
    let (x, gate, r) = (samples(n * hw * c, 3), samples(n * c, 5), bytes(n * hw * cs, 9));
    let program = gated()?;
    for isa in Isa::all() {
        let (mut q, mut f) = (vec![0u8; n * hw * cs], vec![0.0f32; n * hw * c]);
        let pixels = hw;
        let inputs = [
            TileInput { data: Data::F32(&gate), layout: Layout::PerBatchChannel { pixels, stride: c } },
            TileInput { data: Data::U8(&r), layout: Layout::Rows { stride: cs, offset: 4 } },
        ];
        let outputs = [
            TileOutput { data: Sink::U8(SharedMut::new(&mut q)), stride: cs, offset: 12 },
            TileOutput { data: Sink::F32(SharedMut::new(&mut f)), stride: c, offset: 0 },
        ];
        program.check_epilogue(n * hw, c, &inputs, &outputs)?;
        assert!(program.check_epilogue(n * hw + 1, c, &inputs, &outputs).is_err());
        for row0 in (0..n * hw).step_by(14) {
            for col0 in (0..c).step_by(16) {
                let (rows, cols) = (14.min(n * hw - row0), 16.min(c - col0));
                let tile = Tile { values: &x[row0 * c + col0..], pitch: c, rows, cols, row0, col0 };
                // SAFETY: one task.
                unsafe { program.run_tile(isa, &tile, &inputs, &outputs) };
            }
        }
        for i in 0..x.len() {
            let (pixel, ch) = (i / c, i % c);
            let (sum, byte) = gated_value(x[i], gate[pixel / hw * c + ch], r[pixel * cs + 4 + ch]);
            assert!(same(sum, f[i]) && byte == q[pixel * cs + 12 + ch], "pixel {pixel}, channel {ch}");
        }
    }
    Ok(())
}

/// A residual has code of its own: its bits are those of the ops.
#[test]
#[allow(unsafe_code, reason = "tiles are run one after the other")]
fn a_bounded_sum_of_a_tile_is_the_sum() -> Result<(), KernelError> {
    let (pixels, c, cs) = (37, 41, 50);
    let (x, r) = (samples(pixels * c, 3), samples(pixels * cs, 9));
    for (op, swapped) in [None, Some(Unary::Relu), Some(Unary::Clamp { lo: -0.5, hi: 6.0 })]
        .into_iter()
        .flat_map(|o| [(o, false), (o, true)])
    {
        let mut b = Builder::default();
        let (v, w) = (b.input(Input::F32), b.input(Input::F32));
        let sum = if swapped { b.binary(Binary::Add, w, v) } else { b.binary(Binary::Add, v, w) };
        let bounded = op.map_or(sum, |op| b.unary(op, sum));
        b.store(bounded, Output::F32);
        let program = b.build()?;
        assert!(program.sum.is_some());
        for isa in Isa::all() {
            let mut y = vec![0.0f32; pixels * c];
            let inputs = [TileInput { data: Data::F32(&r), layout: Layout::Rows { stride: cs, offset: 3 } }];
            let outputs = [TileOutput { data: Sink::F32(SharedMut::new(&mut y)), stride: c, offset: 0 }];
            program.check_epilogue(pixels, c, &inputs, &outputs)?;
            for row0 in (0..pixels).step_by(14) {
                for col0 in (0..c).step_by(32) {
                    let (rows, cols) = (14.min(pixels - row0), 32.min(c - col0));
                    let tile = Tile { values: &x[row0 * c + col0..], pitch: c, rows, cols, row0, col0 };
                    // SAFETY: one task.
                    unsafe { program.run_tile(isa, &tile, &inputs, &outputs) };
                }
            }
            for (i, y) in y.iter().enumerate() {
                let sum = x[i] + r[i / c * cs + 3 + i % c];
                let want = op.map_or(sum, |op| op.eval(sum));
                assert!(same(want, *y), "{op:?}, element {i}: {y}, not {want}");
            }
        }
    }
    let product = Program::binary([Input::F32; 2], Binary::Mul, Output::F32)?;
    assert!(product.sum.is_none() && gated()?.sum.is_none());
    Ok(())
}

#[test]
#[allow(unsafe_code, reason = "tiles are run one after the other")]
fn an_activation_of_a_tile_is_that_of_its_elements() -> Result<(), KernelError> {
    let (pixels, c, stride) = (37, 41, 45);
    let x = samples(pixels * c, 3);
    for op in [Unary::HardSwish, Unary::Sigmoid, Unary::Silu, Unary::Gelu, Unary::Tanh] {
        let program = Program::unary(Input::F32, op, Output::F32)?;
        assert_eq!(program.activation, Some(op).filter(|op| *op != Unary::Tanh));
        for isa in Isa::all() {
            let mut y = vec![7.0f32; pixels * stride];
            let outputs = [TileOutput { data: Sink::F32(SharedMut::new(&mut y)), stride, offset: 3 }];
            program.check_epilogue(pixels, c, &[], &outputs)?;
            for row0 in (0..pixels).step_by(14) {
                for col0 in (0..c).step_by(32) {
                    let (rows, cols) = (14.min(pixels - row0), 32.min(c - col0));
                    let tile = Tile { values: &x[row0 * c + col0..], pitch: c, rows, cols, row0, col0 };
                    // SAFETY: one task.
                    unsafe { program.run_tile(isa, &tile, &[], &outputs) };
                }
            }
            for (i, y) in y.iter().enumerate() {
                let inside = (3..3 + c).contains(&(i % stride));
                let want = if inside { op.eval(x[i / stride * c + i % stride - 3]) } else { 7.0 };
                assert!(same(want, *y), "{op:?}, element {i}: {y}, not {want}");
            }
        }
    }
    let bytes = Quantize { scale: 1.0, zero_point: 0, qmin: 0, qmax: 255, rounding: Rounding::Div };
    assert_eq!(Program::unary(Input::F32, Unary::Silu, Output::U8(bytes))?.activation, None);
    Ok(())
}

#[test]
fn select_powers_and_fake_quantize_mean_what_they_say() -> Result<(), KernelError> {
    let x = samples(700, 31);
    let q = Quantize { scale: 0.25, zero_point: 100, qmin: 0, qmax: 255, rounding: Rounding::Recip };
    let mut b = Builder::default();
    let v = b.input(Input::F32);
    let (zero, two, cube) = (b.constant(0.0), b.constant(2.0), b.constant(3.0));
    let negative = b.binary(Binary::Lt, v, zero);
    let (square, third) = (b.binary(Binary::Pow, v, two), b.binary(Binary::Pow, v, cube));
    let picked = b.select(negative, square, third);
    let faked = b.fake_quantize(v, &q);
    let unused = b.unary(Unary::Exp, picked);
    let _ = b.binary(Binary::Add, unused, two);
    b.store(picked, Output::F32);
    b.store(faked, Output::F32);
    b.store(zero, Output::F32);
    let program = b.build()?;
    assert!(!program.steps.iter().any(|s| matches!(s, program::Step::Unary { op: Unary::Exp, .. })));
    for isa in Isa::all() {
        let mut y = vec![vec![1.0; x.len()]; 3];
        let [y0, y1, y2] = &mut y[..] else { unreachable!("three outputs") };
        let outputs = &mut [DataMut::F32(y0), DataMut::F32(y1), DataMut::F32(y2)];
        Pointwise::flat(isa, program.clone(), x.len())?.run(&ThreadPool::new(1), &[Data::F32(&x)], outputs)?;
        for (i, x) in x.iter().copied().enumerate() {
            assert!(same(y[0][i], if x < 0.0 { x * x } else { x * x * x }));
            let meant = cleave_numerics::dequantize(i32::from(q.eval(x)), 0.25, 100);
            assert!(y[1][i] == meant && y[2][i] == 0.0, "{x}: {} is not {meant}", y[1][i]);
        }
    }
    Ok(())
}

#[test]
fn bad_programs_and_operands_are_refused() -> Result<(), KernelError> {
    assert!(Builder::default().build().is_err());
    let p = Program::unary(Input::F32, Unary::Relu, Output::F32)?;
    let isa = Isa::portable();
    assert!(Pointwise::new(isa, p.clone(), &[4], &[], &[vec![1]]).is_err());
    assert!(Pointwise::new(isa, p.clone(), &[4], &[vec![1]], &[vec![0]]).is_err());
    assert!(Pointwise::new(isa, p.clone(), &[4], &[vec![1]], &[vec![2]]).is_err());
    assert!(Pointwise::broadcast(isa, p.clone(), &[4, 3], &[vec![4]]).is_err());
    let run = Pointwise::flat(isa, p, 4)?;
    let pool = ThreadPool::new(1);
    let mut y = [0.0; 4];
    assert!(run.run(&pool, &[Data::F32(&[0.0; 3])], &mut [DataMut::F32(&mut y)]).is_err());
    assert!(run.run(&pool, &[Data::U8(&[0; 4])], &mut [DataMut::F32(&mut y)]).is_err());
    assert!(run.run(&pool, &[Data::F32(&[0.0; 4])], &mut [DataMut::U8(&mut [0; 4])]).is_err());
    let mut b = Builder::default();
    let v = b.input(Input::F32);
    b.store(v, Output::U8(Quantize { scale: 1.0, zero_point: 300, qmin: 0, qmax: 255, rounding: Rounding::Div }));
    assert!(b.build().is_err());
    Ok(())
}
