//! The transform of the weights.

use super::REACH;
use crate::Isa;
use crate::qconv::pack::{Block, LANES, Order, Source};
use crate::versions::versions;

/// Input channels that are transformed together.
const RUN: usize = 32;

/// Words of so many channels.
type Words = [i16; RUN];

/// Transforms the weights of one block into zeros, `[36][columns / together][c / 2][together][2]`.
pub(super) fn pack_block(isa: Isa, src: &Source<'_>, order: Order, b: &Block, together: usize, to: &mut [i16]) {
    let (c, columns) = (src.c_group, b.nv * LANES);
    let mut u = [[[0; RUN]; REACH]; REACH];
    for first in (0..c).step_by(RUN) {
        for col in 0..columns {
            let within = order.channel(b.nv, col);
            if within >= b.width {
                continue;
            }
            let taps = &src.weights[(b.channel + within) * 9 * c..][..9 * c];
            scaled_on(isa, taps, first, &mut u);
            for (plane, u) in u.as_flattened().iter().enumerate() {
                let at = (plane * columns / together + col / together) * c * together;
                let pairs = to[at + first * together + col % together * 2..].chunks_mut(2 * together);
                for (to, pair) in pairs.zip(u.as_chunks::<2>().0) {
                    to[..2].copy_from_slice(pair);
                }
            }
        }
    }
}

versions! {
    /// `Gs g Gsᵀ` of the channels from `first` on.
    fn scaled_on(taps: &[i8], first: usize, u: &mut [[Words; REACH]; REACH]) => scaled
}

#[inline(always)]
fn scaled(taps: &[i8], first: usize, u: &mut [[Words; REACH]; REACH]) {
    let c = taps.len() / 9;
    let mut columns = [[[0; RUN]; REACH]; 3];
    for i in 0..3 {
        let mut g = [[0; RUN]; 3];
        for row in 0..3 {
            let from = &taps[(row * 3 + i) * c + first..][..RUN];
            for k in 0..RUN {
                g[row][k] = i16::from(from[k]);
            }
        }
        rows([&g[0], &g[1], &g[2]], &mut columns[i]);
    }
    for row in 0..REACH {
        rows([&columns[0][row], &columns[1][row], &columns[2][row]], &mut u[row]);
    }
}

/// `Gs` times a column.
#[inline(always)]
fn rows(g: [&Words; 3], u: &mut [Words; REACH]) {
    for k in 0..RUN {
        let (even, odd) = (g[0][k] + g[2][k], g[1][k]);
        let (far, twice) = (g[0][k] + 4 * g[2][k], 2 * g[1][k]);
        u[0][k] = 6 * g[0][k];
        u[1][k] = even + odd;
        u[2][k] = even - odd;
        u[3][k] = far + twice;
        u[4][k] = far - twice;
        u[5][k] = 6 * g[2][k];
    }
}
