//! The definition: plain loops, one output element at a time. Every instruction set is compared with it.

use super::{Bias, Requant};
use crate::ConvShape;
use cleave_numerics::round_clamp;

/// Accumulators without bias, `Σ (x - zx)·w`, as `[pixels, c_out]`.
pub fn accumulate(shape: &ConvShape, weights: &[i8], x: &[u8], zx: u8) -> Vec<i32> {
    let s = shape;
    let (cg, og, oh, ow) = (s.c_in / s.groups, s.c_out / s.groups, s.oh(), s.ow());
    let mut acc = vec![0i32; s.out_len()];
    for (index, acc) in acc.iter_mut().enumerate() {
        let (oc, pixel) = (index % s.c_out, index / s.c_out);
        let (ox, oy, n) = (pixel % ow, pixel / ow % oh, pixel / ow / oh);
        for ky in 0..s.kh {
            for kx in 0..s.kw {
                let iy = (oy * s.stride[0] + ky * s.dilation[0]).wrapping_sub(s.pad[0]);
                let ix = (ox * s.stride[1] + kx * s.dilation[1]).wrapping_sub(s.pad[1]);
                if iy >= s.h || ix >= s.w {
                    continue;
                }
                for c in 0..cg {
                    let xv = x[((n * s.h + iy) * s.w + ix) * s.c_in + oc / og * cg + c];
                    let wv = weights[((oc * s.kh + ky) * s.kw + kx) * cg + c];
                    *acc += (i32::from(xv) - i32::from(zx)) * i32::from(wv);
                }
            }
        }
    }
    acc
}

/// Accumulators of a transposed convolution, `[n, oh, ow, c_out]`: every input pixel is scattered.
pub fn accumulate_transposed(shape: &super::ConvTransposeShape, weights: &[i8], x: &[u8], zx: u8) -> Vec<i32> {
    let s = shape;
    let (cg, og, oh, ow) = (s.c_in / s.groups, s.c_out / s.groups, s.oh(), s.ow());
    let mut acc = vec![0i32; s.n * oh * ow * s.c_out];
    for pixel in 0..s.n * s.h * s.w {
        let (ix, iy, n) = (pixel % s.w, pixel / s.w % s.h, pixel / s.w / s.h);
        for tap in 0..s.kh * s.kw {
            let oy = (iy * s.stride[0] + tap / s.kw * s.dilation[0]).wrapping_sub(s.pad[0]);
            let ox = (ix * s.stride[1] + tap % s.kw * s.dilation[1]).wrapping_sub(s.pad[1]);
            if oy >= oh || ox >= ow {
                continue;
            }
            for oc in 0..s.c_out {
                let out = &mut acc[((n * oh + oy) * ow + ox) * s.c_out + oc];
                for c in 0..cg {
                    let xv = i32::from(x[pixel * s.c_in + oc / og * cg + c]) - i32::from(zx);
                    *out += xv * i32::from(weights[(oc * s.kh * s.kw + tap) * cg + c]);
                }
            }
        }
    }
    acc
}

/// The float value of every accumulator, as [`Requant`] defines it. `acc` and `residual` are `[pixels, c_out]`.
pub fn scaled(acc: &[i32], bias: &Bias, requant: &Requant, residual: Option<&[u8]>) -> Vec<f32> {
    let c_out = requant.multiplier.len();
    let one = |(i, acc): (usize, &i32)| {
        let (c, mut acc) = (i % c_out, *acc);
        if let Bias::I32(b) = bias {
            acc += b[c];
        }
        let (acc, m) = (acc as f32, requant.multiplier[c]);
        let bias = if let Bias::F32(b) = bias { Some(b[c]) } else { None };
        let mut v = match (&requant.activation, bias) {
            (Some(a), b) => acc.mul_add(m, b.unwrap_or(0.0) + a.offset()),
            (None, Some(b)) => acc * m + b,
            (None, None) => acc * m,
        };
        if let (Some(r), Some(data)) = (&requant.residual, residual) {
            v += (i32::from(data[i]) - r.zero_point) as f32 * r.multiplier;
        }
        v
    };
    acc.iter().enumerate().map(one).collect()
}

/// The quantized outputs of float values.
pub fn quantized(values: &[f32], requant: &Requant) -> Vec<u8> {
    let one = |v: &f32| {
        let v = requant.activation.as_ref().map_or(*v, |a| a.eval(*v));
        let q = round_clamp(v, requant.zero_point, requant.qmin, requant.qmax) as u8;
        requant.table.as_ref().map_or(q, |t| t[usize::from(q)])
    };
    values.iter().map(one).collect()
}
