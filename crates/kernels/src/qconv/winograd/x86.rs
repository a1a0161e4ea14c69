//! The loops over a chunk of tiles, for vectors of any width.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a chunk")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::lanes::{Evex, Lanes, Madd, Vex, Zmm};
use super::{Chunk, Loops, Outputs, PLANES, REACH, SIDE, grid};
use crate::isa::takes_evex;
use crate::qconv::pack::LANES;
use crate::qconv::tile::Tile;
use crate::{Isa, Level};
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

/// 9⁻¹ modulo 2³².
const NINTH: i32 = 954_437_177;

pub(super) fn loops(isa: Isa) -> Option<Loops> {
    match isa.level() {
        Level::Portable => None,
        Level::Avx2 => Some(avx2::LOOPS),
        Level::AvxVnni if takes_evex() => Some(evex::LOOPS),
        Level::AvxVnni => Some(vex::LOOPS),
        Level::Avx512 => Some(avx512::LOOPS),
    }
}

macro_rules! versions {
    ($($name:ident: $lanes:ty, $features:literal;)*) => {
        $(mod $name {
            use super::*;

            pub(super) const LOOPS: Loops = Loops { inputs, outputs };

            #[target_feature(enable = $features)]
            unsafe fn inputs(chunk: &mut Chunk<'_>) {
                // SAFETY: as the caller's.
                unsafe { inputs_of::<$lanes>(chunk) }
            }

            #[target_feature(enable = $features)]
            unsafe fn outputs(chunk: &mut Chunk<'_>, to: &Outputs<'_>) {
                // SAFETY: as the caller's.
                unsafe { outputs_of::<$lanes>(chunk, to) }
            }
        })*
    };
}
versions! {
    avx2: Madd, "avx2,fma";
    vex: Vex, "avx2,fma,avxvnni";
    evex: Evex, "avx2,fma,avx512vl,avx512vnni";
    avx512: Zmm, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512vbmi2";
}

/// Image, and first output row and column, of a tile.
fn place(chunk: &Chunk<'_>, tile: usize) -> [usize; 3] {
    let [down, right] = grid(chunk.geometry);
    [tile / (down * right), tile / right % down * SIDE, tile % right * SIDE]
}

/// Transforms the tiles.
#[inline(always)]
unsafe fn inputs_of<V: Lanes>(chunk: &mut Chunk<'_>) {
    let g = chunk.geometry;
    let zero = i16::from(chunk.border[0]);
    for (number, tile) in chunk.tiles.clone().enumerate() {
        let [image, oy, ox] = place(chunk, tile);
        let (top, left) = (oy as isize + g.origin[0], ox as isize + g.origin[1]);
        let first = ((image * g.h) as isize + top) * g.w as isize + left;
        let first = chunk.x.as_ptr().wrapping_offset(first * g.c as isize);
        let rows: [bool; REACH] = std::array::from_fn(|i| ((top + i as isize) as usize) < g.h);
        let columns: [bool; REACH] = std::array::from_fn(|j| ((left + j as isize) as usize) < g.w);
        let mut pixels = [[chunk.border.as_ptr(); REACH]; REACH];
        for i in 0..REACH {
            for j in 0..REACH {
                if rows[i] && columns[j] {
                    pixels[i][j] = first.wrapping_add((i * g.w + j) * g.c);
                }
            }
        }
        let plane = chunk.inputs_plane();
        let to = &mut chunk.inputs[number * g.c..];
        // SAFETY: pixels and the border have `c` bytes, planes so many words for each tile.
        unsafe {
            for channel in (0..g.c).step_by(2 * V::SUMS) {
                tile_inputs::<V>(&pixels, channel, V::splat16(zero), to[channel..].as_mut_ptr(), plane);
            }
        }
    }
}

/// `V` of a vector of channels.
#[inline(always)]
unsafe fn tile_inputs<V: Lanes>(
    pixels: &[[*const u8; REACH]; REACH],
    channel: usize,
    zero: V,
    to: *mut i16,
    plane: usize,
) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut columns = [[zero; REACH]; REACH];
        for j in 0..REACH {
            let mut d = [zero; REACH];
            for i in 0..REACH {
                d[i] = V::widen(pixels[i][j].add(channel)).sub16(zero);
            }
            let v = input_rows(d);
            for i in 0..REACH {
                columns[i][j] = v[i];
            }
        }
        for i in 0..REACH {
            let v = input_rows(columns[i]);
            for j in 0..REACH {
                v[j].store(to.add((i * REACH + j) * plane).cast());
            }
        }
    }
}

/// `Bᵀ` times a column.
#[inline(always)]
unsafe fn input_rows<V: Lanes>(d: [V; REACH]) -> [V; REACH] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (even, odd) = (d[4].sub16(d[2].shl16(2)), d[3].sub16(d[1].shl16(2)));
        let (near, far) = (d[4].sub16(d[2]), d[3].sub16(d[1]));
        let far = far.add16(far);
        [
            d[0].sub16(d[2]).shl16(2).add16(near),
            even.add16(odd),
            even.sub16(odd),
            near.add16(far),
            near.sub16(far),
            d[5].sub16(d[3]).sub16(far.add16(far)),
        ]
    }
}

/// Multiplies the tiles with a block's weights, and stores what the sums yield.
#[inline(always)]
unsafe fn outputs_of<V: Lanes>(chunk: &mut Chunk<'_>, to: &Outputs<'_>) {
    let (c, count, columns) = (chunk.geometry.c, chunk.tiles.len(), to.block.nv * LANES);
    // Where a block is of one vector, a tile is so too.
    let vectors = (columns / V::SUMS).min(2);
    let together = vectors * V::SUMS;
    let parts = count.div_ceil(V::ROWS);
    let (inputs_plane, sums_plane) = (chunk.inputs_plane(), chunk.sums_plane(columns));
    // SAFETY: planes have `count` rows of `c` words, and of a block's columns.
    unsafe {
        let mut weights = to.weights.as_ptr();
        for plane in 0..PLANES {
            let inputs = chunk.inputs[plane * inputs_plane..][..count * c].as_ptr();
            let sums = chunk.sums[plane * sums_plane..][..count * columns].as_mut_ptr();
            for column in (0..columns).step_by(together) {
                for part in 0..parts {
                    let (first, end) = (part * count / parts, (part + 1) * count / parts);
                    let product = Product {
                        x: inputs.add(first * c),
                        c,
                        weights,
                        sums: sums.add(first * columns + column),
                        columns,
                    };
                    product.rows::<V>(end - first, vectors);
                }
                weights = weights.add(c * together);
            }
        }
        for (number, tile) in chunk.tiles.clone().enumerate() {
            for column in (0..columns).step_by(V::SUMS) {
                let sums = chunk.sums[number * columns + column..].as_ptr();
                let bias = V::load(to.columns.bias.add(column));
                tile_outputs::<V>(sums, sums_plane, bias, chunk.results[column..].as_mut_ptr(), columns);
            }
            store::<V>(chunk, to, tile);
        }
    }
}

/// `rows` of some columns of a plane.
struct Product {
    x: *const i16,
    c: usize,
    weights: *const i16,
    sums: *mut i32,
    columns: usize,
}

impl Product {
    #[inline(always)]
    unsafe fn rows<V: Lanes>(&self, rows: usize, vectors: usize) {
        macro_rules! of {
            ($($rows:literal)*) => {
                match (rows, vectors) {
                    $(
                        ($rows, 2) if $rows <= V::ROWS => self.tile::<V, $rows, 2>(),
                        ($rows, _) if $rows <= V::ROWS => self.tile::<V, $rows, 1>(),
                    )*
                    _ => unreachable!("a tile has at most {} rows", V::ROWS),
                }
            };
        }
        // SAFETY: by the caller's promise.
        unsafe { of!(1 2 3 4 5 6 7 8 9 10 11 12 13 14) }
    }

    #[inline(always)]
    unsafe fn tile<V: Lanes, const MR: usize, const NV: usize>(&self) {
        // SAFETY: by the caller's promise.
        unsafe {
            let mut acc = [[V::splat32(0); NV]; MR];
            let mut w = self.weights;
            for step in 0..self.c / 2 {
                let mut b = [acc[0][0]; NV];
                for v in 0..NV {
                    b[v] = V::load(w.add(v * 2 * V::SUMS).cast());
                    // What the next columns multiply with, or the next plane.
                    _mm_prefetch::<_MM_HINT_T1>(w.wrapping_add(v * 2 * V::SUMS + self.c * NV * V::SUMS).cast());
                }
                w = w.add(NV * 2 * V::SUMS);
                for i in 0..MR {
                    let two = self.x.add(i * self.c + 2 * step).cast::<i32>().read_unaligned();
                    let a = V::splat32(two);
                    for v in 0..NV {
                        acc[i][v] = V::dot(acc[i][v], a, b[v]);
                    }
                }
            }
            for i in 0..MR {
                for v in 0..NV {
                    acc[i][v].store(self.sums.add(i * self.columns + v * V::SUMS));
                }
            }
        }
    }
}

/// `Y` and the bias, of a vector of columns.
#[inline(always)]
unsafe fn tile_outputs<V: Lanes>(sums: *const i32, plane: usize, bias: V, to: *mut i32, columns: usize) {
    /// Powers of two that rows and columns are scaled by, beside 3.
    const POWERS: [i32; SIDE] = [3, 2, 1, 1];
    // SAFETY: by the caller's promise.
    unsafe {
        let ninth = V::splat32(NINTH);
        let mut rows = [[bias; REACH]; SIDE];
        for j in 0..REACH {
            let mut m = [bias; REACH];
            for i in 0..REACH {
                m[i] = V::load(sums.add((i * REACH + j) * plane));
            }
            let y = output_rows(m);
            for i in 0..SIDE {
                rows[i][j] = y[i];
            }
        }
        for i in 0..SIDE {
            let y = output_rows(rows[i]);
            for j in 0..SIDE {
                let y = y[j].mul32(ninth).shr32(POWERS[i] + POWERS[j]).add32(bias);
                y.store(to.add((i * SIDE + j) * columns));
            }
        }
    }
}

/// `As` times a column.
#[inline(always)]
unsafe fn output_rows<V: Lanes>(m: [V; REACH]) -> [V; SIDE] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (p, q) = (m[1].add32(m[2]), m[1].sub32(m[2]));
        let (r, s) = (m[3].add32(m[4]), m[3].sub32(m[4]));
        [m[0].sub32(p.shl32(2)).add32(r), s.sub32(q.add32(q)), r.sub32(p), s.add32(s).sub32(q).add32(m[5])]
    }
}

/// Stores the pixels of a tile that the output has.
#[inline(always)]
unsafe fn store<V: Lanes>(chunk: &Chunk<'_>, to: &Outputs<'_>, tile: usize) {
    let (g, columns) = (chunk.geometry, to.block.nv * LANES);
    let [image, oy, ox] = place(chunk, tile);
    for i in 0..SIDE.min(g.oh - oy) {
        let pixel = (image * g.oh + oy + i) * g.ow + ox;
        let (y, r) = to.io.at(pixel, to.block.channel);
        let t = Tile {
            x: std::ptr::null(),
            x_step: 0,
            y,
            y_step: to.io.y_stride * to.io.size,
            r,
            r_step: to.io.r_stride,
            table: None,
            tiles: 1,
            segments: &[],
            steps: 0,
            weights: std::ptr::null(),
            ahead: 0,
            number: 0,
            columns: to.columns,
            epilogue: to.epilogue,
        };
        // SAFETY: the results have these pixels; the output's length was checked.
        unsafe { V::finish(chunk.results[i * SIDE * columns..].as_ptr(), to.block.nv, SIDE.min(g.ow - ox), &t) };
    }
}
