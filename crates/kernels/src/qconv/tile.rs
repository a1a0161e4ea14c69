//! The interface between the drivers and the files of the instruction sets.

use super::spec::{OutputKind, Requant};
use crate::{AlignedVec, Isa, Level};

/// The most rows of any tile.
pub(super) const MAX_MR: usize = 14;

/// What happens to an accumulator, without the per-channel part.
#[derive(Clone, Debug)]
pub(super) struct Epilogue {
    pub zero_point: i32,
    pub qmin: i32,
    pub qmax: i32,
    /// Multiplier and zero point of the residual.
    pub residual: Option<(f32, i32)>,
    pub float_bias: bool,
    /// 256 entries, or none.
    pub table: Option<AlignedVec<u8>>,
    pub out: OutputKind,
    /// u8, without residual, float bias and table.
    pub plain: bool,
}

impl Epilogue {
    pub fn new(requant: &Requant, float_bias: bool, out: OutputKind) -> Epilogue {
        Epilogue {
            zero_point: requant.zero_point,
            qmin: requant.qmin,
            qmax: requant.qmax,
            residual: requant.residual.map(|r| (r.multiplier, r.zero_point)),
            float_bias,
            table: requant.table.as_ref().map(|t| AlignedVec::from_slice(&t[..])),
            out,
            plain: out == OutputKind::U8 && requant.residual.is_none() && requant.table.is_none() && !float_bias,
        }
    }
}

/// Per-channel operands of one block, in the order of its columns, and its place in the output.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// Accumulators start here; padded to whole vectors like the others.
    pub bias: *const i32,
    pub scale: *const f32,
    /// Null without a float bias.
    pub float_bias: *const f32,
    /// Channels that are stored.
    pub width: usize,
}

/// One tile: `mr` output pixels, one block of channels.
pub(super) struct Tile<'a> {
    /// First input byte of each row.
    pub rows: [*const u8; MAX_MR],
    /// Output of each row: the block's first element.
    pub y: [*mut u8; MAX_MR],
    /// Residual of each row: the block's first element; null without one.
    pub r: [*const u8; MAX_MR],
    /// Byte offsets of the segments, and four-byte steps of each.
    pub segments: &'a [usize],
    pub steps: usize,
    pub weights: *const i8,
    pub columns: Columns,
    pub epilogue: &'a Epilogue,
}

/// Computes and stores a tile.
///
/// # Safety
/// The instruction set is there; every pointer is valid for what the tile's shape reads and writes.
pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// The kernel for a block of `nv` vectors with `left` rows to go: how many it takes, and the function.
pub(super) fn select(isa: Isa, nv: usize, left: usize) -> (usize, TileFn) {
    #[cfg(target_arch = "x86_64")]
    match isa.level() {
        Level::Avx512 => return super::avx512::select(nv, left),
        Level::Avx2 => return super::avx2::select(left),
        Level::Portable => {}
    }
    let _ = (isa, nv, Level::Portable);
    super::portable::select(left)
}

/// Rows and channels of the largest tile for blocks of `nv` vectors.
pub(super) fn largest(isa: Isa, nv: usize) -> (usize, usize) {
    (select(isa, nv, usize::MAX).0, nv * super::pack::LANES)
}
