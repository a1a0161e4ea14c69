//! Plain Rust tiles: two pixels by 16 channels.
#![allow(unsafe_code, reason = "tiles read and write through the pointers of their driver")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::pack::LANES;
use super::spec::OutputKind;
use super::tile::{Columns, Epilogue, Tile, TileFn};
use cleave_numerics::round_clamp;

/// The tile for `left` rows.
pub(super) fn select(left: usize) -> (usize, TileFn) {
    if left >= ROWS { (ROWS, tile::<ROWS>) } else { (1, tile::<1>) }
}

/// Rows of a tile: their accumulators fit sixteen registers of 128 bits beside what is multiplied.
const ROWS: usize = 2;

unsafe fn tile<const MR: usize>(t: &Tile<'_>) {
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let mut acc = [t.columns.bias.cast::<[i32; LANES]>().read_unaligned(); MR];
            let mut w = t.weights.cast::<[i8; LANES]>();
            for segment in t.segments {
                let mut x = [std::ptr::null::<u8>(); MR];
                for i in 0..MR {
                    x[i] = t.x_at(i).add(*segment);
                }
                for k in 0..t.steps * 4 {
                    let mut words = [0i16; LANES];
                    for c in 0..LANES {
                        words[c] = i16::from((*w)[c]);
                    }
                    w = w.add(1);
                    for i in 0..MR {
                        let x = i16::from(*x[i].add(k));
                        for c in 0..LANES {
                            acc[i][c] = acc[i][c].wrapping_add(i32::from(x) * i32::from(words[c]));
                        }
                    }
                }
            }
            for i in 0..MR {
                store(&acc[i], &t.columns, 0, t.epilogue, t.y_at(i), t.r_at(i));
            }
            t.next(MR);
        }
    }
}

/// The epilogue for up to 16 channels from column `first` of a block in natural order.
///
/// # Safety
/// `y` and `r` point to channel `first` of the block; `columns` is valid for 16 columns from it.
pub(super) unsafe fn store(
    acc: &[i32; LANES],
    columns: &Columns,
    first: usize,
    e: &Epilogue,
    y: *mut u8,
    r: *const u8,
) {
    for (i, acc) in acc.iter().enumerate().take(columns.width.saturating_sub(first)) {
        // SAFETY: i is below the block's width.
        unsafe {
            let mut v = *acc as f32 * *columns.scale.add(first + i);
            if e.float_bias {
                v += *columns.float_bias.add(first + i);
            }
            if let Some((m, z)) = e.residual {
                v += (i32::from(*r.add(i)) - z) as f32 * m;
            }
            if let Some(form) = &e.activation {
                v = form.eval(v);
            }
            match e.out {
                OutputKind::F32 => y.cast::<f32>().add(i).write(v),
                OutputKind::U8 => {
                    let q = round_clamp(v, e.zero_point, e.qmin, e.qmax) as u8;
                    y.add(i).write(e.table.as_ref().map_or(q, |t| t[usize::from(q)]));
                }
            }
        }
    }
}
