//! Offsets of buffers in one arena: the largest first, each in the tightest gap among those alive with it, and in its middle.

use cleave_kernels::buffer::{ALIGN, SLACK};

/// A buffer to be placed: its size and the steps from first write to last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Bytes.
    pub(crate) bytes: usize,
    /// First step.
    pub(crate) first: usize,
    /// Last step, inclusive.
    pub(crate) last: usize,
}

/// Offsets in order of the requests, each a multiple of [`ALIGN`], and the bytes needed in all.
///
/// Every buffer has [`SLACK`] bytes behind it that no other one alive with it starts in. Where it costs little, buffers lie in
/// the middle of their gaps: threads mostly have a half of a value each, so that one overwrites what was its own before, and
/// not lines that have to come from the other's cache.
pub(crate) fn place(requests: &[Request]) -> (Vec<usize>, usize) {
    let (tight, centred) = (pack(requests, false), pack(requests, true));
    if centred.1 <= tight.1 + tight.1 / 10 { centred } else { tight }
}

/// [`place`], with the buffers at the start of their gaps or in the middle.
fn pack(requests: &[Request], centred: bool) -> (Vec<usize>, usize) {
    let mut by_size: Vec<usize> = (0..requests.len()).collect();
    by_size.sort_by_key(|i| (std::cmp::Reverse(requests[*i].bytes), *i));
    let mut offsets = vec![0; requests.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total: usize = 0;
    for i in by_size {
        let need = (requests[i].bytes + SLACK).next_multiple_of(ALIGN);
        // Those that live at the same time, by offset.
        let overlapping = placed
            .iter()
            .filter(|p| requests[**p].first <= requests[i].last && requests[i].first <= requests[**p].last);
        let (mut end, mut best) = (0, None);
        for p in overlapping {
            let start = offsets[*p];
            if start >= end + need && best.is_none_or(|(_, gap)| start - end < gap) {
                best = Some((end, start - end));
            }
            end = end.max(start + (requests[*p].bytes + SLACK).next_multiple_of(ALIGN));
        }
        let (at, gap) = best.unwrap_or((end, need.max(total.saturating_sub(end))));
        offsets[i] = if centred { at + (gap - need) / 2 / ALIGN * ALIGN } else { at };
        total = total.max(offsets[i] + need);
        let at = placed.partition_point(|p| offsets[*p] <= offsets[i]);
        placed.insert(at, i);
    }
    (offsets, total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_dead_buffers_bytes_are_used_again() {
        let r = |bytes, first, last| Request { bytes, first, last };
        let (offsets, total) = place(&[r(1000, 0, 1), r(500, 1, 2), r(1000, 2, 3)]);
        assert_eq!(offsets, [0, 1088, 0]);
        assert_eq!(total, 1088 + 576);
    }

    #[test]
    fn a_buffer_lies_in_the_middle_of_the_one_before() {
        let r = |bytes, first, last| Request { bytes, first, last };
        let (offsets, total) = place(&[r(8064, 0, 1), r(8064, 1, 2), r(1984, 2, 3)]);
        assert_eq!((offsets, total), (vec![0, 8128, (8128 - 2048) / 2 / ALIGN * ALIGN], 2 * 8128));
    }

    proptest! {
        #[test]
        fn buffers_alive_together_do_not_overlap(v in prop::collection::vec((1usize..5000, 0usize..20, 0usize..6), 1..40)) {
            let requests: Vec<_> = v.iter().map(|(b, f, n)| Request { bytes: *b, first: *f, last: f + n }).collect();
            let (offsets, total) = place(&requests);
            let tight = pack(&requests, false).1;
            prop_assert!(total <= tight + tight / 10);
            for (i, a) in requests.iter().enumerate() {
                prop_assert!(offsets[i] % ALIGN == 0 && offsets[i] + a.bytes + SLACK <= total);
                for (j, b) in requests.iter().enumerate().skip(i + 1) {
                    let together = a.first <= b.last && b.first <= a.last;
                    let apart = offsets[i] + a.bytes + SLACK <= offsets[j] || offsets[j] + b.bytes + SLACK <= offsets[i];
                    prop_assert!(!together || apart);
                }
            }
        }
    }
}
