use super::*;
use crate::pointwise::Rounding;
use cleave_numerics::{DType, QRange, QScheme};

fn floats(n: usize) -> Vec<f32> {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.25, 1e30];
    (0..n).map(|i| if i % 11 == 5 { special[i / 11 % 6] } else { (i * 7919 % 2003) as f32 * 0.01 - 9.0 }).collect()
}

#[test]
fn every_layout_and_isa_gives_the_definitions_bits() -> Result<(), KernelError> {
    for (n, c, pixels) in [(1, 3, 49 * 49), (2, 70, 33), (3, 1, 7), (1, 129, 200), (1, 3, 20_001)] {
        let x = floats(n * c * pixels);
        let at = |i: usize| (i / (c * pixels) * c + i % c) * pixels + i / c % pixels;
        for isa in Isa::all() {
            for (threads, rounding) in [(1, Rounding::Div), (2, Rounding::Recip)] {
                let pool = ThreadPool::new(threads);
                let q = Quantize { scale: 0.073, zero_point: 99, qmin: 1, qmax: 254, rounding };
                let (mut flat, mut nhwc) = (vec![0; x.len()], vec![0; x.len()]);
                quantize(isa, &pool, &q, &x, &mut flat)?;
                quantize_from_nchw(isa, &pool, &q, [n, c, pixels], &x, &mut nhwc)?;
                assert!(x.iter().zip(&flat).all(|(x, y)| q.eval(*x) == *y));
                assert!((0..x.len()).all(|i| nhwc[i] == flat[at(i)]));

                let d = Dequantize { scale: 0.073, zero_point: 99 };
                let (mut back, mut back_nchw) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                dequantize(isa, &pool, &d, &flat, &mut back)?;
                dequantize_to_nchw(isa, &pool, &d, [n, c, pixels], &nhwc, &mut back_nchw)?;
                assert_eq!(back, back_nchw);
                let meant = |q: u8| cleave_numerics::dequantize(i32::from(q), 0.073, 99);
                assert!(flat.iter().zip(&back).all(|(q, f)| meant(*q) == *f));
            }
        }
    }
    Ok(())
}

#[test]
fn layouts_round_trip() -> Result<(), KernelError> {
    let pool = ThreadPool::new(2);
    let (n, c, pixels) = (2, 37, 450);
    let x: Vec<u32> = (0..(n * c * pixels) as u32).collect();
    let (mut y, mut z) = (vec![0; x.len()], vec![0; x.len()]);
    nchw_to_nhwc(&pool, n, c, pixels, &x, &mut y)?;
    assert_eq!(y[1], pixels as u32);
    nhwc_to_nchw(&pool, n, c, pixels, &y, &mut z)?;
    assert_eq!(x, z);
    assert!(nhwc_to_nchw(&pool, n, c, pixels + 1, &y, &mut z).is_err());
    Ok(())
}

#[test]
fn scales_are_chosen_for_the_values_there_are() {
    let range = QRange { dtype: DType::U8, min: 0, max: 255 };
    let mut x: Vec<f32> = (0..40_003).map(|i| (i * 7919 % 1009) as f32 * 0.013 - 5.0).collect();
    x[39_999] = -7.5;
    x[17] = 21.0;
    x[18] = f32::NAN;
    for (isa, threads) in Isa::all().into_iter().flat_map(|i| [(i, 1), (i, 2)]) {
        let chosen = |x: &[f32], scheme| choose(isa, &ThreadPool::new(threads), x, range, scheme, 1e-9);
        let q = chosen(&x, QScheme::Affine).unwrap();
        assert_eq!((q.scale, q.zero_point), (28.5 / 255.0, 67));
        let q = chosen(&x, QScheme::Symmetric).unwrap();
        assert_eq!((q.scale, q.zero_point), (21.0 / 127.5, 128));
        let q = chosen(&[3.0], QScheme::Affine).unwrap();
        assert_eq!((q.scale, q.zero_point), (3.0 / 255.0, 0));
        assert!(chosen(&[], QScheme::Affine).is_err());
    }
}

#[test]
fn nan_is_found_wherever_it_is() {
    let pool = ThreadPool::new(2);
    for isa in Isa::all() {
        let mut x = vec![f32::INFINITY; 20_001];
        assert!(!has_nan(isa, &pool, &x) && !has_nan(isa, &pool, &[]));
        for at in [0, 9_999, 20_000] {
            x[at] = f32::NAN;
            assert!(has_nan(isa, &pool, &x), "{at}");
            x[at] = 0.0;
        }
    }
}
