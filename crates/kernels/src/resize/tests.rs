use super::*;

#[test]
fn tables_follow_torch_and_onnx() -> Result<(), KernelError> {
    let pick = |size, out, mode, rounding| AxisTable::nearest(size, out, mode, rounding, None).map(|t| t.index);
    assert_eq!(pick(3, 6, Coordinates::Asymmetric, Nearest::Floor)?, [0, 0, 1, 1, 2, 2]);
    assert_eq!(pick(5, 3, Coordinates::Asymmetric, Nearest::Floor)?, [0, 1, 3]);
    assert_eq!(pick(2, 5, Coordinates::HalfPixel, Nearest::RoundPreferFloor)?, [0, 0, 0, 1, 1]);
    assert_eq!(pick(2, 4, Coordinates::AlignCorners, Nearest::RoundPreferCeil)?, [0, 0, 1, 1]);
    let t = AxisTable::linear(2, 4, Coordinates::HalfPixel, None)?;
    assert_eq!(t.index, [0, 1, 0, 1, 0, 1, 1, 1]);
    assert_eq!(t.weight, [1.0, 0.0, 0.75, 0.25, 0.25, 0.75, 1.0, 0.0]);
    let t = AxisTable::linear(3, 5, Coordinates::AlignCorners, None)?;
    assert_eq!(t.weight, [1.0, 0.0, 0.5, 0.5, 1.0, 0.0, 0.5, 0.5, 1.0, 0.0]);
    let t = AxisTable::linear(4, 1, Coordinates::PytorchHalfPixel, None)?;
    assert_eq!((t.index, t.weight), (vec![0, 1], vec![1.0, 0.0]));
    assert!(AxisTable::new(3, 2, vec![0, 3], vec![0.5, 0.5]).is_err());
    assert!(AxisTable::nearest(0, 3, Coordinates::Asymmetric, Nearest::Floor, None).is_err());
    Ok(())
}

#[test]
fn bilinear_is_the_weighted_sum_on_every_isa() -> Result<(), KernelError> {
    for (n, c, [h, w], [oh, ow]) in [(1, 3, [4, 5], [9, 7]), (2, 70, [6, 3], [3, 8]), (1, 130, [7, 7], [14, 14])] {
        let x: Vec<u8> = (0..n * h * w * c).map(|i| (i * 7919 % 65521) as u8).collect();
        let f: Vec<f32> = x.iter().map(|x| f32::from(*x) * 0.37 - 40.0).collect();
        let rows = AxisTable::linear(h, oh, Coordinates::HalfPixel, None)?;
        let cols = AxisTable::linear(w, ow, Coordinates::AlignCorners, None)?;
        let blend = |at: &dyn Fn(usize, usize) -> f32, oy: usize, ox: usize| {
            let ((ys, wy), (xs, wx)) = (rows.at(oy), cols.at(ox));
            let line = |y: usize| wx[0] * at(y, xs[0]) + wx[1] * at(y, xs[1]);
            wy[0] * line(ys[0]) + wy[1] * line(ys[1])
        };
        for isa in Isa::all() {
            let resize = Resize::new(isa, n, c, rows.clone(), cols.clone());
            let (mut y, mut z) = (vec![0; n * oh * ow * c], vec![0.0; n * oh * ow * c]);
            resize.run_u8(&ThreadPool::new(2), &x, &mut y)?;
            resize.run_f32(&ThreadPool::new(2), &f, &mut z)?;
            for i in 0..y.len() {
                let (b, oy, ox, ch) = (i / (oh * ow * c), i / (ow * c) % oh, i / c % ow, i % c);
                let index = |y: usize, x: usize| ((b * h + y) * w + x) * c + ch;
                assert_eq!(z[i], blend(&|y, q| f[index(y, q)], oy, ox));
                let v = blend(&|y, q| f32::from(x[index(y, q)]), oy, ox);
                assert_eq!(y[i], v.round_ties_even().clamp(0.0, 255.0) as u8);
            }
            assert!(resize.run_u8(&ThreadPool::new(1), &x[1..], &mut y).is_err());
        }
    }
    Ok(())
}

#[test]
fn nearest_copies_bits() -> Result<(), KernelError> {
    let (h, w, c) = (5, 4, 33);
    let x: Vec<f32> = (0..h * w * c).map(|i| if i == 7 { f32::NAN } else { i as f32 }).collect();
    let rows = AxisTable::nearest(h, 10, Coordinates::Asymmetric, Nearest::Floor, None)?;
    let cols = AxisTable::nearest(w, 8, Coordinates::Asymmetric, Nearest::Floor, None)?;
    for isa in Isa::all() {
        let mut y = vec![0.0; 80 * c];
        Resize::new(isa, 1, c, rows.clone(), cols.clone()).run_f32(&ThreadPool::new(1), &x, &mut y)?;
        for (i, y) in y.iter().enumerate() {
            let from = x[(i / (8 * c) / 2 * w + i / c % 8 / 2) * c + i % c];
            assert_eq!(y.to_bits(), from.to_bits());
        }
    }
    Ok(())
}
