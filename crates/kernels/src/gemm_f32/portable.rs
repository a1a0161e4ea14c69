//! 4×64 (and 4×32) tiles in plain Rust: wide ones, so that the loop over a row is worth vectorising.
#![allow(unsafe_code, reason = "rows of a shared output")]

use super::{KB, Kernel, LDA, Task};
use crate::pointwise::math::{clamp, fma};

const MR: usize = 4;
const NR: usize = 64;

pub(super) const KERNEL: Kernel = Kernel { mr: MR, nr: NR, run, name: "4x64_portable" };

fn run(t: &Task<'_>) {
    t.check(MR);
    if t.width == NR { tile::<NR>(t) } else { tile::<{ NR / 2 }>(t) }
}

fn tile<const W: usize>(t: &Task<'_>) {
    let lines = t.b.as_chunks::<W>().0;
    for (r, at) in t.at[..t.rows].iter().enumerate() {
        let mut acc = lines[0];
        for (k, b) in lines[1..=t.k].iter().enumerate() {
            let x = t.a[k / KB * MR * LDA + r * LDA + k % KB];
            acc.iter_mut().zip(b).for_each(|(lane, b)| *lane = fma(x, *b, *lane));
        }
        // SAFETY: tiles are disjoint, see `Driver::run`.
        let to = unsafe { t.out.slice(*at..at + t.cols) };
        to.iter_mut().zip(acc).for_each(|(to, v)| *to = clamp(v, t.clamp.0, t.clamp.1));
    }
}
