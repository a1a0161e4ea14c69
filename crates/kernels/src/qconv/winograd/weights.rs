//! The transform of the weights.

use super::PLANES;
use crate::qconv::pack::{Block, LANES, Order, Source};

/// Input channels that are transformed together.
const RUN: usize = 32;

/// Words of so many channels.
type Words = [i16; RUN];

/// Transforms the weights of one block into zeros, `[36][columns / together][c / 2][together][2]`.
pub(super) fn pack_block(src: &Source<'_>, order: Order, b: &Block, together: usize, to: &mut [i16]) {
    let (c, columns) = (src.c_group, b.nv * LANES);
    for col in 0..columns {
        let within = order.channel(b.nv, col);
        if within >= b.width {
            continue;
        }
        let taps = &src.weights[(b.channel + within) * 9 * c..][..9 * c];
        for first in (0..c).step_by(RUN) {
            let g = std::array::from_fn(|row| std::array::from_fn(|i| words(&taps[(row * 3 + i) * c + first..])));
            let u = scaled(&g);
            for (plane, u) in u.as_flattened().iter().enumerate() {
                let at = (plane * columns / together + col / together) * c * together;
                let pairs = to[at + first * together..].chunks_mut(2 * together);
                for (to, pair) in pairs.zip(u.as_chunks::<2>().0) {
                    to[col % together * 2..][..2].copy_from_slice(pair);
                }
            }
        }
    }
    debug_assert_eq!(to.len() % (PLANES * c), 0);
}

fn words(from: &[i8]) -> Words {
    std::array::from_fn(|i| i16::from(from[i]))
}

/// `Gs g Gsᵀ`.
fn scaled(g: &[[Words; 3]; 3]) -> [[Words; 6]; 6] {
    let columns: [[Words; 6]; 3] = std::array::from_fn(|i| rows([&g[0][i], &g[1][i], &g[2][i]]));
    std::array::from_fn(|row| rows([&columns[0][row], &columns[1][row], &columns[2][row]]))
}

/// `Gs` times a column.
fn rows(g: [&Words; 3]) -> [Words; 6] {
    let each = |f: fn([i16; 3]) -> i16| std::array::from_fn(|i| f([g[0][i], g[1][i], g[2][i]]));
    [
        each(|g| 6 * g[0]),
        each(|g| g[0] + g[1] + g[2]),
        each(|g| g[0] - g[1] + g[2]),
        each(|g| g[0] + 2 * g[1] + 4 * g[2]),
        each(|g| g[0] - 2 * g[1] + 4 * g[2]),
        each(|g| 6 * g[2]),
    ]
}
