//! Weights for `vpmaddubsw`, which adds two products to a word, without its saturation.
//!
//! An octet is two fours of a column's weights. Its eight products are added to two words, four to each: of both fours
//! the first two, and the last two. That is exact where a word's positive weights add up to at most 128, and its
//! negative ones to no less than -128, since 255·128 < 2¹⁵ whatever the inputs are. What is beyond is taken from the
//! weights and given to fixes: fours of single columns that are added afterwards.

use super::pack::{Block, LANES};

/// The greatest sum of a word's weights of one sign.
const MOST: i32 = 128;

/// Four weights of a column.
type Four = [i8; 4];

/// Two fours that are added to a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fix {
    /// Step of four inputs that each is multiplied with.
    pub steps: [u32; 2],
    pub weights: [Four; 2],
}

/// What is added to the columns of all blocks.
#[derive(Clone, Debug)]
pub(super) struct Fixes {
    /// The first of each column, and the end.
    pub starts: Vec<u32>,
    pub list: Vec<Fix>,
}

impl Fixes {
    /// Takes what is beyond from the weights of blocks with an even number of steps.
    pub fn of(weights: &mut [i8], blocks: &[Block], steps: usize) -> Fixes {
        let mut fixes = Fixes { starts: vec![0], list: Vec::new() };
        let mut of_column: [Vec<Fix>; 4] = Default::default();
        for b in blocks {
            for columns in weights[b.start..][..LANES * 4 * steps].chunks_exact_mut(16 * steps) {
                for (i, octets) in columns.as_chunks_mut::<32>().0.iter_mut().enumerate() {
                    if is_exact(octets) {
                        continue;
                    }
                    for (column, of) in of_column.iter_mut().enumerate() {
                        let fours = [column * 4, 16 + column * 4];
                        let mut octet = fours.map(|at| std::array::from_fn(|j| octets[at + j]));
                        limit(&mut octet, |four, beyond| append(of, (2 * i + four) as u32, beyond));
                        for (at, four) in fours.into_iter().zip(octet) {
                            octets[at..at + 4].copy_from_slice(&four);
                        }
                    }
                }
                for of in &mut of_column {
                    fixes.list.append(of);
                    fixes.starts.push(fixes.list.len() as u32);
                }
            }
        }
        fixes
    }

    /// Whether octets and their fixes take less time than words, of so many columns with so many octets each. Measured
    /// on Zen 3, in cycles of a tile of 16 pixels: a column's octet takes 3.4, as words 5; a fix 3.5, and that a
    /// column has any 4.
    pub fn pay(&self, columns: usize, octets: usize) -> bool {
        let any = self.starts.windows(2).filter(|w| w[1] > w[0]).count();
        3.5 * self.list.len() as f64 + 4.0 * any as f64 <= (5.0 - 3.4) * (octets * columns) as f64
    }
}

/// Appends a four to a column's fixes: to the last where it has room and their sum is exact.
fn append(of: &mut Vec<Fix>, step: u32, four: Four) {
    match of.last_mut() {
        Some(last) if last.weights[1] == [0; 4] && beyond(&[last.weights[0], four]).is_none() => {
            (last.steps[1], last.weights[1]) = (step, four);
        }
        _ => of.push(Fix { steps: [step; 2], weights: [four, [0; 4]] }),
    }
}

/// Whether the octets of four columns are.
fn is_exact(octets: &[i8; 32]) -> bool {
    let (mut up, mut down) = ([0u16; 16], [0u16; 16]);
    for i in 0..16 {
        let (a, b) = (i16::from(octets[i]), i16::from(octets[16 + i]));
        up[i] = (a.max(0) + b.max(0)) as u16;
        down[i] = (a.min(0) + b.min(0)).unsigned_abs();
    }
    (0..8).all(|i| i32::from((up[2 * i] + up[2 * i + 1]).max(down[2 * i] + down[2 * i + 1])) <= MOST)
}

/// What a word's weights have of one sign.
fn sum(four: &Four, word: usize, sign: i32) -> i32 {
    four[2 * word..2 * word + 2].iter().map(|w| (i32::from(*w) * sign).max(0)).sum()
}

/// What is beyond of each word and sign, if anything.
fn beyond(octet: &[Four; 2]) -> Option<[[i32; 2]; 2]> {
    let of = |word, sign| (sum(&octet[0], word, sign) + sum(&octet[1], word, sign) - MOST).max(0);
    let all = [0, 1].map(|word| [of(word, 1), of(word, -1)]);
    (all != [[0; 2]; 2]).then_some(all)
}

/// Takes what is beyond from an octet, and gives it to `fix` with the number of the four that it is from: of one where
/// one has enough.
fn limit(octet: &mut [Four; 2], mut fix: impl FnMut(usize, Four)) {
    const SIGNS: [i32; 2] = [1, -1];
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
            let flat = std::array::from_fn(|i| if i % 16 < 4 { octet[i / 16][i % 4] } else { 0 });
            prop_assert_eq!(is_exact(&flat), beyond(&octet).is_none());
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
        fours.into_iter().for_each(|(step, four)| append(&mut of, step, four));
        let fix = |steps, weights| Fix { steps, weights };
        assert_eq!(of, [fix([1, 1], [[100, 0, 0, 0], [0; 4]]), fix([5, 9], [[29, 0, 0, 0], [99, 0, -128, 0]])]);
    }
}
