//! What panels are made of: f32, or half-precision numbers that a tile widens as it loads them.

use super::{Kernel, Packed, Panels, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::versions::versions;
use crate::{Isa, Level};
use bytemuck::Pod;
use half::f16;

/// An element of a packed right-hand side. Sums are in f32 whatever it is, so that a panel of halves gives the bits
/// of one of the floats that they widen to. Tiles widen as they load: to widen a panel once for all tiles of a block
/// takes as long, and more where there are few.
pub(crate) trait Element: Pod + Send + Sync {
    /// What it is called in kernel names, behind the type of the activations.
    const SUFFIX: &'static str;

    /// The kernel of an instruction set.
    fn kernel(isa: Isa) -> Kernel<Self>;

    /// Panels as those of either type.
    fn pack(panels: Panels<Self>) -> Packed;

    /// Elements as floats: themselves, or in `room`, which is as long.
    fn widen<'a>(isa: Isa, from: &'a [Self], room: &'a mut [f32]) -> &'a [f32];

    /// Nine lines of `count` elements that lie `step` apart, as floats, and how far apart those lie.
    fn widen_lines<'a>(
        isa: Isa,
        from: &'a [Self],
        step: usize,
        count: usize,
        room: &'a mut [f32],
    ) -> (&'a [f32], usize);
}

/// A half as a float, in arithmetic that is vectorised: the exponent is put right by a product, which is exact, that of
/// infinities and NaNs by hand.
#[inline(always)]
fn float(half: f16) -> f32 {
    let bits = u32::from(half.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let quiet = if magnitude > 0x0f80_0000 { 0x0040_0000 } else { 0 };
    let widened = if magnitude >= 0x0f80_0000 { magnitude | 0x7f80_0000 | quiet } else { scaled };
    f32::from_bits(widened | (bits & 0x8000) << 16)
}

#[inline(always)]
fn widen(from: &[f16], room: &mut [f32]) {
    for (to, half) in room.iter_mut().zip(from) {
        *to = float(*half);
    }
}

versions! {
    fn widen_on(from: &[f16], room: &mut [f32]) => widen
}

/// The kernels of a type that has them all.
macro_rules! kernel {
    () => {
        fn kernel(isa: Isa) -> Kernel<Self> {
            match isa.level() {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::kernel(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 | Level::AvxVnni => avx2::kernel(),
                _ => portable::kernel(),
            }
        }
    };
}

impl Element for f32 {
    const SUFFIX: &'static str = "";
    kernel!();

    fn pack(panels: Panels<f32>) -> Packed {
        Packed::F32(panels)
    }

    fn widen<'a>(_: Isa, from: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        from
    }

    fn widen_lines<'a>(_: Isa, from: &'a [f32], step: usize, _: usize, _: &'a mut [f32]) -> (&'a [f32], usize) {
        (from, step)
    }
}

impl Element for f16 {
    const SUFFIX: &'static str = "f16";
    kernel!();

    fn pack(panels: Panels<f16>) -> Packed {
        Packed::F16(panels)
    }

    fn widen<'a>(isa: Isa, from: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        widen_on(isa, from, room);
        room
    }

    fn widen_lines<'a>(
        isa: Isa,
        from: &'a [f16],
        step: usize,
        count: usize,
        room: &'a mut [f32],
    ) -> (&'a [f32], usize) {
        for (from, to) in from.chunks(step).zip(room.chunks_exact_mut(count)) {
            widen_on(isa, &from[..count], to);
        }
        (room, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_its_float() {
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut room = vec![0.0; halves.len()];
        for isa in Isa::all() {
            let floats = f16::widen(isa, &halves, &mut room);
            assert!(halves.iter().zip(floats).all(|(h, f)| h.to_f32_const().to_bits() == f.to_bits()), "{isa:?}");
        }
    }
}
