//! Weights for `vpmaddubsw`, which adds two products to a word, without its saturation.
//!
//! An octet is two fours of a column's weights. Its eight products are added to two words, four to each: of both fours
//! the first two, and the last two. That is exact where a word's positive weights add up to at most 128, and its
//! negative ones to no less than -128, since 255·128 < 2¹⁵ whatever the inputs are. Of four columns, which share their
//! inputs, fours are paired so that this holds for most octets; what is beyond in the others is taken from the weights
//! and given to fixes, fours of single columns that are added afterwards.

use super::pack::LANES;
use crate::versions::versions;

/// Pixels that are staged together.
pub(super) const ROWS: usize = 16;
/// Staged bytes of a step: four of each pixel. Words take twice as many.
pub(super) const STEP: usize = ROWS * 4;
/// The greatest sum of a word's weights of one sign.
const MOST: i32 = 128;
/// Fours among which pairs are sought.
const WINDOW: usize = 32;

/// Four weights of a column.
type Four = [i8; 4];

/// The octets of four columns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Octet {
    /// Staged bytes of the inputs.
    pub at: [u32; 2],
    pub weights: [[Four; 4]; 2],
}

/// Two fours that are added to a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Fix {
    /// Staged bytes of the inputs.
    pub at: [u32; 2],
    pub weights: [Four; 2],
}

/// All columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Octets {
    /// Of each four columns, as many.
    pub list: Vec<Octet>,
    pub fixes: Vec<Fix>,
    /// The first fix of each column, and the end.
    pub starts: Vec<u32>,
}

impl Octets {
    /// For so many blocks with so many octets of a column.
    pub fn with_capacity(blocks: usize, octets: usize) -> Octets {
        let mut starts = Vec::with_capacity(blocks * LANES + 1);
        starts.push(0);
        Octets { list: Vec::with_capacity(blocks * LANES / 4 * octets), fixes: Vec::new(), starts }
    }

    /// Whether they take less time than words, of so many columns with so many octets each. The weights are cycles of a
    /// tile of 16 pixels: what an octet saves, what a fix costs and that a column has any. They are fitted on Zen 3, so
    /// that of 16 to 576 inputs the quicker form is chosen for weights that are normal (octets from 64) and even (words).
    pub fn pay(&self, columns: usize, octets: usize) -> bool {
        let any = self.starts.windows(2).filter(|w| w[1] > w[0]).count();
        3.0 * self.fixes.len() as f64 + 3.0 * any as f64 <= 1.6 * (octets * columns) as f64
    }

    /// Appends four columns of an even number of fours.
    #[inline(always)]
    fn columns(&mut self, fours: &[[Four; 4]]) {
        let mut fixes: [Vec<Fix>; 4] = Default::default();
        for (window, fours) in fours.chunks(WINDOW).enumerate() {
            let mut pairs = Pairs::of(fours);
            while let Some((pair, beyond)) = pairs.next() {
                let at = pair.map(|i| ((window * WINDOW + i) * STEP) as u32);
                let mut weights = pair.map(|i| fours[i]);
                for (column, fixes) in fixes.iter_mut().enumerate().filter(|(column, _)| beyond[*column]) {
                    let mut octet = weights.map(|w| w[column]);
                    limit(&mut octet, |four, beyond| append(fixes, at[four], beyond));
                    weights.iter_mut().zip(octet).for_each(|(w, four)| w[column] = four);
                }
                self.list.push(Octet { at, weights });
            }
        }
        for of in &mut fixes {
            self.fixes.append(of);
            self.starts.push(self.fixes.len() as u32);
        }
    }
}

versions! {
    /// Appends a block, as [`Layout::Columns`](super::pack::Layout) has it, with an even number of steps.
    pub(super) fn append_block(octets: &mut Octets, block: &[i8], steps: usize) => append_block_body
}

#[inline(always)]
fn append_block_body(octets: &mut Octets, block: &[i8], steps: usize) {
    for columns in block.chunks_exact(16 * steps) {
        octets.columns(columns.as_chunks::<4>().0.as_chunks::<4>().0);
    }
}

/// Pairs the fours of a window: the greatest with the greatest other that it fits, or fits in most columns.
struct Pairs {
    /// Of each rank, by what they have together: the four, and its loads.
    four: [u8; WINDOW],
    loads: [[u8; WINDOW]; 16],
    /// 255 for those that are taken.
    taken: [u8; WINDOW],
}

impl Pairs {
    #[inline(always)]
    fn of(fours: &[[Four; 4]]) -> Pairs {
        let mut pairs = Pairs { four: [0; WINDOW], loads: [[0; WINDOW]; 16], taken: [255; WINDOW] };
        let (mut of, mut ranks) = ([[0; 16]; WINDOW], [0; WINDOW]);
        for (i, four) in fours.iter().enumerate() {
            of[i] = loads(four);
            let all: u16 = of[i].iter().map(|l| u16::from(*l)).sum();
            ranks[i] = u32::from(u16::MAX - all) << 8 | i as u32;
        }
        let ranks = &mut ranks[..fours.len()];
        ranks.sort_unstable();
        for (rank, key) in ranks.iter().enumerate() {
            (pairs.four[rank], pairs.taken[rank]) = (*key as u8, 0);
            for (loads, load) in pairs.loads.iter_mut().zip(of[*key as usize & 0xff]) {
                loads[rank] = load;
            }
        }
        pairs
    }

    /// Two fours, and the columns in which anything of their sum is beyond.
    #[inline(always)]
    #[allow(clippy::needless_range_loop, reason = "loops over vectors")]
    fn next(&mut self) -> Option<([usize; 2], [bool; 4])> {
        let a = self.taken.iter().position(|t| *t == 0)?;
        self.taken[a] = 255;
        // Columns in which anything is beyond.
        let mut columns = [0u8; WINDOW];
        for of in self.loads.as_chunks::<4>().0 {
            let mut beyond = [0; WINDOW];
            for loads in of {
                for i in 0..WINDOW {
                    beyond[i] |= loads[a].saturating_add(loads[i]).saturating_sub(MOST as u8);
                }
            }
            for i in 0..WINDOW {
                columns[i] += u8::from(beyond[i] != 0);
            }
        }
        let mut best = 255;
        for i in 0..WINDOW {
            best = ((columns[i] * WINDOW as u8 + i as u8) | self.taken[i]).min(best);
        }
        let b = usize::from(best) % WINDOW;
        self.taken[b] = 255;
        let mut beyond = [false; 4];
        for (i, loads) in self.loads.iter().enumerate().filter(|_| usize::from(best) >= WINDOW) {
            beyond[i / 4] |= loads[a].saturating_add(loads[b]) > MOST as u8;
        }
        Some(([a, b].map(|rank| usize::from(self.four[rank])), beyond))
    }
}

/// Appends a four to a column's fixes: to the last, if it has room and their sum is exact.
fn append(fixes: &mut Vec<Fix>, at: u32, four: Four) {
    match fixes.last_mut() {
        Some(last) if last.weights[1] == [0; 4] && beyond(&[last.weights[0], four]).is_none() => {
            (last.at[1], last.weights[1]) = (at, four);
        }
        _ => fixes.push(Fix { at: [at; 2], weights: [four, [0; 4]] }),
    }
}

/// What the weights of four columns add up to, 255 for more: of each column those of each word and sign.
#[inline(always)]
fn loads(fours: &[Four; 4]) -> [u8; 16] {
    let mut loads = [0; 16];
    for (word, w) in fours.as_flattened().as_chunks::<2>().0.iter().enumerate() {
        loads[2 * word] = w[0].max(0).cast_unsigned() + w[1].max(0).cast_unsigned();
        loads[2 * word + 1] = w[0].min(0).unsigned_abs().saturating_add(w[1].min(0).unsigned_abs());
    }
    loads
}

/// What a word's weights have of one sign.
#[inline]
fn sum(four: &Four, word: usize, sign: i32) -> i32 {
    (i32::from(four[2 * word]) * sign).max(0) + (i32::from(four[2 * word + 1]) * sign).max(0)
}

/// What is beyond in the sum of two fours, of each word and sign, if anything.
#[inline]
fn beyond(fours: &[Four; 2]) -> Option<[[i32; 2]; 2]> {
    let mut all = [[0; 2]; 2];
    for (word, of) in all.iter_mut().enumerate() {
        for (of, sign) in of.iter_mut().zip(SIGNS) {
            *of = (sum(&fours[0], word, sign) + sum(&fours[1], word, sign) - MOST).max(0);
        }
    }
    (all != [[0; 2]; 2]).then_some(all)
}

const SIGNS: [i32; 2] = [1, -1];

/// Takes what is beyond from an octet, and gives it to `fix` with the number of the four that it is from: of one where
/// one has enough.
fn limit(octet: &mut [Four; 2], mut fix: impl FnMut(usize, Four)) {
    while let Some(over) = beyond(octet) {
        let has = |four: &Four| -> i32 {
            let of = |word: usize, s: usize| over[word][s].min(sum(four, word, SIGNS[s]));
            of(0, 0) + of(0, 1) + of(1, 0) + of(1, 1)
        };
        let of = usize::from(has(&octet[1]) > has(&octet[0]));
        let (four, mut taken) = (&mut octet[of], [0; 4]);
        for (word, over) in over.into_iter().enumerate() {
            for (over, sign) in over.into_iter().zip(SIGNS) {
                let mut left = over.min(MOST);
                for i in 2 * word..2 * word + 2 {
                    let part = (i32::from(four[i]) * sign).clamp(0, left);
                    left -= part;
                    four[i] = (i32::from(four[i]) - sign * part) as i8;
                    taken[i] = (i32::from(taken[i]) + sign * part) as i8;
                }
            }
        }
        fix(of, taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_octet_and_its_fixes_add_up_to_the_weights(
            octet in prop_oneof![
                any::<[[i8; 4]; 2]>(),
                proptest::array::uniform2(proptest::array::uniform4(prop_oneof![Just(i8::MIN), Just(127), Just(0)])),
            ]
        ) {
            let (mut rest, mut taken) = (octet, [[0i32; 4]; 2]);
            limit(&mut rest, |four, beyond| {
                assert_eq!(super::beyond(&[beyond, [0; 4]]), None);
                taken[four].iter_mut().zip(beyond).for_each(|(t, b)| *t += i32::from(b));
            });
            prop_assert_eq!(beyond(&rest), None);
            for four in 0..2 {
                for i in 0..4 {
                    prop_assert_eq!(i32::from(rest[four][i]) + taken[four][i], i32::from(octet[four][i]));
                }
            }
            let columns = Pairs::of(&octet.map(|four| [[0; 4], four, [0; 4], [0; 4]])).next().map(|(_, beyond)| beyond);
            prop_assert_eq!(columns, Some([false, beyond(&octet).is_some(), false, false]));
        }
    }

    #[test]
    fn what_is_beyond_comes_from_one_four_where_it_has_enough() {
        let mut fixes = Vec::new();
        let mut octet = [[20, 0, -60, -60], [10, 127, -90, 50]];
        limit(&mut octet, |four, beyond| fixes.push((four, beyond)));
        assert_eq!(fixes, [(1, [10, 19, -82, 0])]);
        assert_eq!(octet, [[20, 0, -60, -60], [0, 108, -8, 50]]);
    }

    #[test]
    fn fixes_are_joined_where_their_sum_is_exact() {
        let mut of = Vec::new();
        let fours = [(1, [100, 0, 0, 0]), (5, [29, 0, 0, 0]), (9, [99, 0, -128, 0])];
        fours.into_iter().for_each(|(at, four)| append(&mut of, at, four));
        let fix = |at, weights| Fix { at, weights };
        assert_eq!(of, [fix([1, 1], [[100, 0, 0, 0], [0; 4]]), fix([5, 9], [[29, 0, 0, 0], [99, 0, -128, 0]])]);
    }

    #[test]
    fn fours_are_paired_with_those_that_they_fit() {
        let four = |w| [[w, 0, 0, 0], [0; 4], [0, 0, 0, -w], [0; 4]];
        let mut octets = Octets::default();
        octets.columns(&[100, 90, 28, 38, 120, 9].map(four));
        let at: Vec<[u32; 2]> = octets.list.iter().map(|o| o.at.map(|at| at / STEP as u32)).collect();
        // 120 fits none: it takes what is hardest to place.
        assert_eq!(at, [[4, 0], [1, 3], [2, 5]]);
        let fix = |four| Fix { at: [256; 2], weights: [four, [0; 4]] };
        assert_eq!(octets.fixes, [fix([92, 0, 0, 0]), fix([0, 0, 0, -92])]);
        assert_eq!(octets.starts, [1, 1, 2, 2]);
    }
}
