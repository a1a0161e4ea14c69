//! 4×8 tiles in plain Rust.
#![allow(unsafe_code, reason = "rows of a shared output")]

use super::{KB, Kernel, LDA, Task};
use crate::pointwise::math::clamp;

const MR: usize = 4;
const NR: usize = 8;

pub(super) const KERNEL: Kernel = Kernel { mr: MR, nr: NR, run, name: "4x8_portable" };

fn run(t: &Task<'_>) {
    t.check(MR);
    let (bias, b) = t.b.split_at(t.width);
    for (r, at) in t.at[..t.rows].iter().enumerate() {
        let mut acc = [0.0f32; NR];
        acc[..t.width].copy_from_slice(bias);
        for (k, b) in b.chunks_exact(t.width).take(t.k).enumerate() {
            let x = t.a[k / KB * MR * LDA + r * LDA + k % KB];
            for (lane, b) in acc.iter_mut().zip(b) {
                *lane = x.mul_add(*b, *lane);
            }
        }
        // SAFETY: tiles are disjoint, see `Driver::run`.
        let to = unsafe { t.out.slice(*at..at + t.cols) };
        to.iter_mut().zip(acc).for_each(|(to, v)| *to = clamp(v, t.clamp.0, t.clamp.1));
    }
}
