//! One pass over a tensor: extrema, zeros, and whether all is finite.

/// What a pass over a tensor finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scan {
    /// Least element; infinity if there is none.
    pub min: f32,
    /// Greatest element; negative infinity if there is none.
    pub max: f32,
    /// How many elements are exactly 0.
    pub zeros: u64,
    /// Whether an element is not a number. Extrema are those of the others.
    pub nan: bool,
}

const LANES: usize = 16;

/// Scans elements.
pub fn scan(x: &[f32]) -> Scan {
    let mut all = Scan { min: f32::INFINITY, max: f32::NEG_INFINITY, zeros: 0, nan: false };
    // Lane counters are 32 bits wide: blocks keep them from overflowing.
    for block in x.chunks(1 << 24) {
        let (mut min, mut max) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        let (mut zeros, mut nans) = ([0u32; LANES], [0u32; LANES]);
        let mut rows = block.chunks_exact(LANES);
        for row in &mut rows {
            for i in 0..LANES {
                let v = row[i];
                min[i] = if v < min[i] { v } else { min[i] };
                max[i] = if v > max[i] { v } else { max[i] };
                zeros[i] += u32::from(v == 0.0);
                nans[i] |= u32::from(v.is_nan());
            }
        }
        for (i, &v) in rows.remainder().iter().enumerate() {
            min[i] = if v < min[i] { v } else { min[i] };
            max[i] = if v > max[i] { v } else { max[i] };
            zeros[i] += u32::from(v == 0.0);
            nans[i] |= u32::from(v.is_nan());
        }
        for i in 0..LANES {
            all.min = all.min.min(min[i]);
            all.max = all.max.max(max[i]);
            all.zeros += u64::from(zeros[i]);
            all.nan |= nans[i] != 0;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_extrema_zeros_and_nan_anywhere() {
        let mut x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) / 8.0).collect();
        assert_eq!(scan(&x), Scan { min: -62.5, max: 62.375, zeros: 1, nan: false });
        x[999] = f32::NAN;
        assert_eq!(scan(&x), Scan { min: -62.5, max: 62.25, zeros: 1, nan: true });
        x[3] = f32::NEG_INFINITY;
        assert_eq!(scan(&x).min, f32::NEG_INFINITY);
        assert_eq!(scan(&[]).min, f32::INFINITY);
    }
}
