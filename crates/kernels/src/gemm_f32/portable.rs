//! 4×64 (and 4×32) tiles in plain Rust: wide ones, so that the loop over a row is worth vectorising.
#![allow(unsafe_code, reason = "rows of a shared output")]

use super::{Addend, Element, Kernel, Task};
use crate::Isa;
use crate::pointwise::math::{clamp, fma};

const MR: usize = 4;
const NR: usize = 64;
/// Rows of a panel that are widened at once, for all rows of the tile.
const DEPTH: usize = 16;

pub(super) fn kernel<E: Element>() -> Kernel<E> {
    Kernel { mr: MR, nr: NR, run: run::<E>, name: "4x64_portable" }
}

fn run<E: Element>(t: &Task<'_, E>) {
    t.check(MR);
    if t.width == NR { tile::<E, NR>(t) } else { tile::<E, { NR / 2 }>(t) }
}

fn tile<E: Element, const W: usize>(t: &Task<'_, E>) {
    let mut sums = [[0.0; W]; MR];
    sums.iter_mut().for_each(|acc| acc.copy_from_slice(&t.bias[..W]));
    let mut room = [[0.0; W]; DEPTH];
    for start in (0..t.k).step_by(t.a.depth) {
        let piece = &t.b[start * W..t.k.min(start + t.a.depth) * W];
        for (part, from) in piece.chunks(DEPTH * W).enumerate() {
            let room = &mut room.as_flattened_mut()[..from.len()];
            let lines = E::widen(Isa::portable(), from, room).as_chunks::<W>().0;
            let first = start / t.a.depth * t.a.step + part * DEPTH;
            for (r, acc) in sums[..t.rows].iter_mut().enumerate() {
                let a = &t.a.data[first + r * t.a.pitch..][..lines.len()];
                for (x, b) in a.iter().zip(lines) {
                    acc.iter_mut().zip(b).for_each(|(lane, b)| *lane = fma(*x, *b, *lane));
                }
            }
        }
    }
    for (r, (acc, at)) in sums.iter_mut().zip(&t.at[..t.rows]).enumerate() {
        // SAFETY: tiles are disjoint, see `Driver::run`.
        let to = unsafe { t.out.slice(*at..at + t.cols) };
        let added = match t.add {
            Addend::Nothing => &[],
            Addend::Stored => &*to,
            Addend::Rows(data, at) => &data[at[r]..][..t.cols],
        };
        acc.iter_mut().zip(added).for_each(|(acc, v)| *acc += v);
        to.iter_mut().zip(acc).for_each(|(to, v)| *to = clamp(*v, t.clamp.0, t.clamp.1));
    }
}
