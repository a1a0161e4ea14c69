//! What one core can do at most: loops of the instruction that kernels live by, over registers alone.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::{Isa, Level};
use std::time::Instant;

/// Multiply-accumulates in a second of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Of bytes: `vpdpbusd` with 512 or 256 bits, or `vpmaddwd` and `vpaddd` with 256, which any weights admit. Octets of
    /// weights, five instructions of AVX2 instead of eight, pass that.
    pub int8: f64,
    /// Of floats: fused multiply-adds.
    pub f32: f64,
}

/// Rounds of a loop: some tenths of a millisecond.
const ROUNDS: usize = 100_000;

/// Measures for a few milliseconds; none where the compiler chooses the instructions.
pub fn measure(isa: Isa) -> Option<Limit> {
    match isa.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::AvxVnni | Level::Avx2 => {
            let (int8, f32) = x86::loops(isa);
            Some(Limit { int8: fastest(int8), f32: fastest(f32) })
        }
        _ => None,
    }
}

/// Multiply-accumulates in a second of a loop, which gives how many it did; the fastest of some goes.
fn fastest(go: impl Fn(usize) -> usize) -> f64 {
    let once = |_| {
        let start = Instant::now();
        let macs = go(ROUNDS);
        macs as f64 / start.elapsed().as_secs_f64()
    };
    (0..12).map(once).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_faster_than_floats_and_wide_than_narrow() {
        let of = |level| Isa::new(level).and_then(measure);
        assert_eq!(of(Level::Portable), None);
        if let Some(wide) = of(Level::Avx512) {
            assert!(wide.int8 > 2.0 * wide.f32 && wide.f32 > 1e9, "{wide:?}");
        }
        for narrow in [Level::Avx2, Level::AvxVnni].into_iter().filter_map(of) {
            assert!(narrow.int8 > 1e9 && narrow.f32 > 1e9, "{narrow:?}");
        }
    }
}
