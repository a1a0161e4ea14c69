//! One arena lent out as disjoint slices: some to be written, the rest to be read.

use std::ops::Range;

/// Most ranges that one step writes.
pub(crate) const MAX_WRITES: usize = 4;

/// An arena split at the ranges that a step writes.
pub(crate) struct Carved<'a> {
    /// What lies between the written ranges, with the offset of each.
    gaps: [(usize, &'a [u8]); MAX_WRITES + 1],
}

/// Splits the arena: the slices to be written in the order of `writes`, and the readable rest.
///
/// # Panics
/// If ranges overlap, leave the arena or are more than [`MAX_WRITES`]: plans have none of these.
pub(crate) fn carve<'a>(arena: &'a mut [u8], writes: &[Range<usize>]) -> (Carved<'a>, [&'a mut [u8]; MAX_WRITES]) {
    let mut gaps: [(usize, &[u8]); MAX_WRITES + 1] = [(0, &[]); MAX_WRITES + 1];
    let mut slices: [&mut [u8]; MAX_WRITES] = Default::default();
    let (mut rest, mut at) = (arena, 0);
    let mut done = [false; MAX_WRITES];
    for gap in gaps.iter_mut().take(writes.len()) {
        let next = (0..writes.len()).filter(|i| !done[*i]).min_by_key(|i| (writes[*i].start, writes[*i].end));
        let i = next.expect("invariant: one range is left for each turn");
        done[i] = true;
        let (before, tail) = rest.split_at_mut(writes[i].start - at);
        let (mine, tail) = tail.split_at_mut(writes[i].len());
        *gap = (at, before);
        slices[i] = mine;
        (rest, at) = (tail, writes[i].end);
    }
    gaps[writes.len()] = (at, rest);
    (Carved { gaps }, slices)
}

impl<'a> Carved<'a> {
    /// Bytes of the arena.
    ///
    /// # Panics
    /// If they are among those lent out for writing.
    pub(crate) fn read(&self, range: &Range<usize>) -> &'a [u8] {
        let gap = self.gaps.iter().find(|(at, s)| *at <= range.start && range.end <= at + s.len());
        let (at, slice) = gap.expect("invariant: no step reads what it writes");
        &slice[range.start - at..range.end - at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read_ranges_are_apart() {
        let mut arena: Vec<u8> = (0..100).collect();
        let (rest, w) = carve(&mut arena, &[50..60, 10..20]);
        w[0][0] = 200;
        w[1][9] = 201;
        assert_eq!((w[0].len(), w[1].len()), (10, 10));
        assert_eq!(rest.read(&(20..23)), [20, 21, 22]);
        assert_eq!(rest.read(&(60..62)), [60, 61]);
        assert_eq!(rest.read(&(0..10)).len(), 10);
        assert_eq!((arena[50], arena[19]), (200, 201));
    }
}
