//! Plain Rust tiles: one pixel by 16 channels. More rows would share weights, but compilers then keep sums in memory.
#![allow(unsafe_code, reason = "tiles read and write through the pointers of their driver")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::pack::LANES;
use super::spec::OutputKind;
use super::tile::{Columns, Epilogue, Tile, TileFn};
use cleave_numerics::round_clamp;

/// The tile for any number of rows.
pub(super) fn select() -> (usize, TileFn) {
    (1, tile)
}

unsafe fn tile(t: &Tile<'_>) {
    // SAFETY: the driver's pointers cover whole segments, whole blocks and the tile's output.
    unsafe {
        let mut t = *t;
        for _ in 0..t.tiles {
            let mut acc = t.columns.bias.cast::<[i32; LANES]>().read_unaligned();
            let mut w = t.weights.cast::<[i8; LANES]>();
            for segment in t.segments {
                let x = t.x_at(0).add(*segment);
                for k in 0..t.steps * 4 {
                    // Of words, since products of words are what instruction sets have.
                    let (x, of) = (i16::from(*x.add(k)), *w);
                    w = w.add(1);
                    for c in 0..LANES {
                        acc[c] = acc[c].wrapping_add(i32::from(x) * i32::from(i16::from(of[c])));
                    }
                }
            }
            store(&acc, &t.columns, 0, t.epilogue, t.y_at(0), t.r_at(0));
            t.next(1);
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
            let (acc, m) = (*acc as f32, *columns.scale.add(first + i));
            let mut v = match &e.activation {
                Some(form) => form.eval(acc.mul_add(m, *columns.float_bias.add(first + i))),
                None if e.float_bias => acc * m + *columns.float_bias.add(first + i),
                None => acc * m,
            };
            if let Some((m, z)) = e.residual {
                v += (i32::from(*r.add(i)) - z) as f32 * m;
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
