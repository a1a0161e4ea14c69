use super::*;
use crate::Isa;
use crate::pointwise::{Quantize, Rounding};
use crate::quant::Dequantize;

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7919 % 65521) as u8).collect()
}

/// Shapes: plain, dilated, overhanging (`ceil_mode`), many channels, one channel, a window of padding alone, few channels.
fn shapes() -> Vec<PoolShape> {
    let base = PoolShape {
        n: 2,
        h: 9,
        w: 7,
        c: 67,
        kernel: [3, 3],
        stride: [2, 2],
        pad: [1; 4],
        dilation: [1, 1],
        out: [0, 0],
    };
    let sized = |s: PoolShape, ceil: bool| {
        let size = |i: usize, size| {
            PoolShape::out_size(size, s.kernel[i], s.stride[i], [s.pad[i], s.pad[i + 2]], s.dilation[i], ceil)
        };
        PoolShape { out: [size(0, s.h), size(1, s.w)], ..s }
    };
    vec![
        sized(base, false),
        sized(PoolShape { h: 8, w: 8, pad: [0; 4], ..base }, true),
        sized(PoolShape { dilation: [2, 3], pad: [2, 1, 0, 2], stride: [1, 1], c: 1, ..base }, false),
        sized(PoolShape { n: 1, c: 300, kernel: [2, 5], ..base }, false),
        sized(PoolShape { n: 1, h: 1, kernel: [1, 3], pad: [0, 1, 0, 1], ..base }, false),
        sized(PoolShape { n: 1, h: 40, w: 40, c: 128, ..base }, true),
        // Windows whose pixels fill whole vectors.
        sized(PoolShape { w: 16, c: 32, kernel: [20, 4], stride: [1, 2], pad: [9, 0, 9, 0], ..base }, false),
        sized(PoolShape { w: 64, c: 1, kernel: [1, 64], pad: [0; 4], ..base }, false),
    ]
}

/// The taps of one output: every position of the window, inside or not.
fn taps(s: &PoolShape, oy: usize, ox: usize) -> (Vec<usize>, usize) {
    let (mut inside, mut padded) = (Vec::new(), 0);
    for tap in 0..s.kernel[0] * s.kernel[1] {
        let y = (oy * s.stride[0] + tap / s.kernel[1] * s.dilation[0]) as isize - s.pad[0] as isize;
        let x = (ox * s.stride[1] + tap % s.kernel[1] * s.dilation[1]) as isize - s.pad[1] as isize;
        let within = |v: isize, size: usize, far: usize| v < (size + far) as isize;
        padded += usize::from(within(y, s.h, s.pad[2]) && within(x, s.w, s.pad[3]));
        if y >= 0 && x >= 0 && within(y, s.h, 0) && within(x, s.w, 0) {
            inside.push((y as usize * s.w + x as usize) * s.c);
        }
    }
    (inside, padded)
}

/// Every output: its index in `y` (pixels at `stride`), the indices of its taps, taps with padding.
fn outputs(s: &PoolShape, stride: usize) -> Vec<(usize, Vec<usize>, usize)> {
    let mut all = Vec::new();
    for pixel in 0..s.n * s.out[0] * s.out[1] {
        let (n, oy, ox) = (pixel / (s.out[0] * s.out[1]), pixel / s.out[1] % s.out[0], pixel % s.out[1]);
        let (inside, padded) = taps(s, oy, ox);
        for c in 0..s.c {
            let at = inside.iter().map(|t| n * s.h * s.w * s.c + t + c).collect();
            all.push((pixel * stride + c, at, padded));
        }
    }
    all
}

#[test]
fn maxima_are_the_greatest_taps() -> Result<(), KernelError> {
    for s in shapes() {
        let x = bytes(s.n * s.h * s.w * s.c);
        let f: Vec<f32> = x.iter().enumerate().map(|(i, x)| if i == 40 { f32::NAN } else { -f32::from(*x) }).collect();
        let stride = s.c + 5;
        for isa in Isa::all() {
            let max = MaxPool::new(isa, &s)?;
            let len = s.n * s.out[0] * s.out[1] * stride;
            let (mut y, mut z) = (vec![1; len], vec![1.0; len]);
            max.run_u8(&ThreadPool::new(2), &x, &mut y, stride)?;
            max.run_f32(&ThreadPool::new(2), &f, &mut z, stride)?;
            for (at, taps, _) in outputs(&s, stride) {
                assert_eq!(y[at], taps.iter().map(|t| x[*t]).max().unwrap_or(0), "{s:?} at {at}");
                let nan = taps.contains(&40);
                let most = taps.iter().map(|t| f[*t]).fold(f32::NEG_INFINITY, f32::max);
                assert!(if nan { z[at].is_nan() } else { z[at] == most }, "{s:?} at {at}");
            }
            assert!(y.iter().skip(s.c).step_by(stride).all(|gap| *gap == 1));
            assert!(max.run_u8(&ThreadPool::new(1), &x[1..], &mut y, stride).is_err());
            assert!(max.run_u8(&ThreadPool::new(1), &x, &mut y, s.c - 1).is_err());
        }
    }
    Ok(())
}

#[test]
fn averages_of_bytes_are_exact_until_scaled() -> Result<(), KernelError> {
    let from = Dequantize { scale: 0.043, zero_point: 17 };
    let to = Quantize { scale: 0.039, zero_point: 21, qmin: 2, qmax: 250, rounding: Rounding::Div };
    for s in shapes() {
        let x = bytes(s.n * s.h * s.w * s.c);
        for (isa, count_padding) in Isa::all().into_iter().flat_map(|i| [(i, false), (i, true)]) {
            let avg = AvgPool::new(isa, &s, count_padding, None)?;
            let len = s.n * s.out[0] * s.out[1] * s.c;
            let (mut y, mut z) = (vec![0; len], vec![0.0; len]);
            avg.run_u8(&ThreadPool::new(2), &x, &from, &mut y, &to, s.c)?;
            avg.run_u8_f32(&ThreadPool::new(2), &x, &from, &mut z, s.c)?;
            for (at, taps, padded) in outputs(&s, s.c) {
                let sum: i32 = taps.iter().map(|t| i32::from(x[*t]) - 17).sum();
                let d = if count_padding { padded } else { taps.len() } as f32;
                let want = cleave_numerics::requantize(sum, 0.043 / (0.039 * d), 21, 2, 250);
                assert_eq!(i32::from(y[at]), want, "{s:?} at {at}");
                assert_eq!(z[at], sum as f32 * (0.043 / d));
            }
        }
    }
    Ok(())
}

/// Threads share out the rows of one window.
#[test]
fn means_of_whole_images_do_not_depend_on_threads() -> Result<(), KernelError> {
    let from = Dequantize { scale: 0.043, zero_point: 17 };
    let to = Quantize { scale: 0.039, zero_point: 21, qmin: 2, qmax: 250, rounding: Rounding::Div };
    for [n, h, w, c] in [[1, 33, 21, 70], [1, 64, 64, 4], [2, 7, 7, 1152], [1, 2, 5, 4100], [3, 40, 12, 130]] {
        let (x, taps) = (bytes(n * h * w * c), h * w);
        let sum = |i: usize| (0..taps).map(|p| i32::from(x[(i / c * taps + p) * c + i % c]) - 17).sum::<i32>();
        let sums: Vec<i32> = (0..n * c).map(sum).collect();
        for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [1, 2, 3, 8].map(|threads| (isa, threads))) {
            let (avg, pool, stride) = (AvgPool::global(isa, [n, h, w, c])?, ThreadPool::new(threads), c + 3);
            let (mut y, mut z) = (vec![0; n * stride], vec![0.0; n * stride]);
            avg.run_u8(&pool, &x, &from, &mut y, &to, stride)?;
            avg.run_u8_f32(&pool, &x, &from, &mut z, stride)?;
            for (i, sum) in sums.iter().enumerate() {
                let at = i / c * stride + i % c;
                let want = cleave_numerics::requantize(*sum, 0.043 / (0.039 * taps as f32), 21, 2, 250);
                assert_eq!(
                    (i32::from(y[at]), z[at]),
                    (want, *sum as f32 * (0.043 / taps as f32)),
                    "{i} of {n}x{h}x{w}x{c}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn averages_of_floats_are_the_same_everywhere() -> Result<(), KernelError> {
    for s in shapes() {
        let x: Vec<f32> = bytes(s.n * s.h * s.w * s.c).iter().map(|x| f32::from(*x) * 0.01 - 1.0).collect();
        let len = s.n * s.out[0] * s.out[1] * s.c;
        for isa in Isa::all() {
            let mut y = vec![0.0; len];
            AvgPool::new(isa, &s, true, Some(5))?.run_f32(&ThreadPool::new(2), &x, &mut y, s.c)?;
            for (at, taps, _) in outputs(&s, s.c) {
                assert_eq!(y[at], taps.iter().fold(0.0f32, |a, t| a + x[*t]) / 5.0, "{s:?} at {at}");
            }
        }
    }
    Ok(())
}

#[test]
fn adaptive_and_global_means() -> Result<(), KernelError> {
    let (n, h, w, c) = (2, 13, 11, 70);
    let x: Vec<f32> = bytes(n * h * w * c).iter().map(|x| f32::from(*x)).collect();
    let (mut first, pool) = (None, ThreadPool::new(2));
    for isa in Isa::all() {
        let (mut y, mut z) = (vec![0.0; n * c], vec![0.0; n * 3 * 4 * c]);
        AvgPool::global(isa, [n, h, w, c])?.run_f32(&pool, &x, &mut y, c)?;
        AvgPool::adaptive(isa, [n, h, w, c], [3, 4])?.run_f32(&pool, &x, &mut z, c)?;
        for (i, y) in y.iter().enumerate() {
            let (image, channel) = (i / c, i % c);
            let sum: f32 = (0..h * w).map(|p| x[(image * h * w + p) * c + channel]).sum();
            assert_eq!(*y, sum / 143.0);
        }
        // Output (1, 2) of image 0 sees rows 4..9 and columns 5..9.
        let sum: f32 = (4..9).flat_map(|r| (5..9).map(move |q| (r * w + q) * c + 3)).map(|i| x[i]).sum();
        assert_eq!(z[(4 + 2) * c + 3], sum / 20.0);
        assert_eq!(first.get_or_insert_with(|| z.clone()), &z);
    }
    Ok(())
}
