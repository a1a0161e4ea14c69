//! What panels are made of: f32, or half-precision numbers that a tile widens as it loads them.

use super::{Kernel, Packed, Panels, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
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
    fn widen<'a>(from: &'a [Self], room: &'a mut [f32]) -> &'a [f32];
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

    fn widen<'a>(from: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        from
    }
}

impl Element for f16 {
    const SUFFIX: &'static str = "f16";
    kernel!();

    fn pack(panels: Panels<f16>) -> Packed {
        Packed::F16(panels)
    }

    fn widen<'a>(from: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        room.iter_mut().zip(from).for_each(|(to, v)| *to = v.to_f32_const());
        room
    }
}
