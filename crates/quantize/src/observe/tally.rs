//! Counting into bins: the inner loop that histograms share.

/// Counters of a bin, used in turn, so that an increment seldom waits for the one before it.
const TURNS: usize = 4;
/// Elements whose bins are computed together: the computation vectorises, the counting does not.
const PART: usize = 2048;
/// Adding it to a float of magnitude below 2^22 leaves the nearest integer in the low bits.
const MAGIC: f32 = 12_582_912.0;

/// `floor(v) + shift` as an integer, for results in `[0, 32768)`. Casts saturate, which does not vectorise.
/// The index has 32 bits: narrower ones, stored and read back in other widths, take three times as long.
#[inline(always)]
fn floor_index(v: f32, shift: f32) -> u32 {
    let nearest = (v + MAGIC) - MAGIC;
    let floor = nearest - if nearest > v { 1.0 } else { 0.0 };
    (floor + MAGIC + shift).to_bits() & 0x7fff
}

/// Adds up in `bins` how many elements fall into each: an element `v` into bin `floor(place(v)) + shift`,
/// which must be one of the `BINS` (a power of two of at most 2^15) there are.
pub(crate) fn tally<const BINS: usize>(x: &[f32], bins: &mut [u64], shift: f32, place: impl Fn(f32) -> f32) {
    // The mask makes the compiler see that no index leaves the table.
    let mask = BINS - 1;
    if x.len() < 4 * BINS {
        for v in x {
            bins[floor_index(place(*v), shift) as usize & mask] += 1;
        }
        return;
    }
    let mut index = [0u32; PART];
    let mut counters = vec![[0u32; TURNS]; BINS];
    // No counter overflows before it is emptied.
    for block in x.chunks(1 << 30) {
        for part in block.chunks(PART) {
            for (to, v) in index.iter_mut().zip(part) {
                *to = floor_index(place(*v), shift);
            }
            let mut rows = index[..part.len()].chunks_exact(TURNS);
            for row in &mut rows {
                for (k, i) in row.iter().enumerate() {
                    counters[*i as usize & mask][k] += 1;
                }
            }
            for i in rows.remainder() {
                bins[*i as usize & mask] += 1;
            }
        }
        for (sum, n) in bins.iter_mut().zip(&mut counters) {
            *sum += std::mem::take(n).iter().map(|v| u64::from(*v)).sum::<u64>();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_exact() {
        for v in [-2048.0f32, -2047.99, -1.5, -1.0, -0.999_999, -1e-30, -0.0, 0.0, 1e-30, 0.5, 1.0, 1.5, 2.5, 2047.999]
        {
            assert_eq!(floor_index(v, 2048.0) as i32, v.floor() as i32 + 2048, "{v}");
        }
    }

    #[test]
    fn counts_do_not_depend_on_the_length() {
        for n in [0usize, 7, 1024, 32_768, 40_001, 1_100_003] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7919) % 256) as f32 + 0.75).collect();
            let mut bins = vec![0u64; 256];
            tally::<256>(&x, &mut bins, 0.0, |v| v);
            let mut want = vec![0u64; 256];
            x.iter().for_each(|v| want[*v as usize] += 1);
            assert_eq!(bins, want, "{n}");
            let mut same = vec![0u64; 256];
            tally::<256>(&vec![3.0; n], &mut same, 1.0, |v| v);
            assert_eq!(same[4], n as u64);
        }
    }
}
