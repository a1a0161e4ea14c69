//! Weights as the dense kernels read them.
//!
//! A block is up to 64 output channels of one group, and its weights are those of one segment of contiguous input after
//! another, each padded with zeros to a multiple of 4, in a [`Layout`]. Beside it stand the bias, with the zero point of
//! the input folded in (`-zx·Σw`; `-Σw` where it is not yet known), and the multipliers, in the order of the columns.

use super::Activation;
use super::octets::{Octets, append_block};
use super::spec::{Bias, OutputKind, Requant};
use super::tile::Columns;
use crate::{AlignedVec, Isa, KernelError, Level};
use std::sync::Arc;

/// Output channels of one vector of accumulators.
pub(super) const LANES: usize = 16;

/// How the channels of a block are laid over its vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Vector after vector.
    Natural,
    /// As the 512-bit in-lane packs undo it: four, then two vectors are interleaved by 128-bit lane.
    Packed,
}

impl Order {
    /// The order that an instruction set's epilogue expects.
    pub fn of(isa: Isa, out: OutputKind) -> Order {
        if isa.level() == Level::Avx512 && out == OutputKind::U8 { Order::Packed } else { Order::Natural }
    }

    /// Channel, within a block of `nv` vectors, of column `col`.
    pub fn channel(self, nv: usize, col: usize) -> usize {
        let (vector, lane, d) = (col / LANES, col / 4 % 4, col % 4);
        match (self, nv) {
            (Order::Packed, 4) => 16 * lane + 4 * vector + d,
            (Order::Packed, 2) => 8 * lane + 4 * vector + d,
            _ => col,
        }
    }
}

/// How weights lie within a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[k][16 channels]`.
    Single,
    /// `[k / 2][16 channels][2 k]`, which are widened to words.
    Pairs,
    /// `[k / 4][channels][4 k]`.
    Fours,
    /// `[channels / 4][k / 4][4 channels][4 k]`, with an even number of fours: as [`Octets`], or as words,
    /// `[channels / 4][k / 2][4 channels][2 k]`.
    Columns,
}

impl Layout {
    /// The layout of an instruction set for so many output pixels.
    pub fn of(isa: Isa, pixels: usize) -> Layout {
        match isa.level() {
            Level::Portable => Layout::Single,
            // Fewer leave too much of a staged tile empty.
            Level::Avx2 if pixels < 8 => Layout::Pairs,
            Level::Avx2 => Layout::Columns,
            Level::AvxVnni | Level::Avx512 => Layout::Fours,
        }
    }

    /// Columns that lie together, of a block of `nv` vectors, and weights of each.
    fn together(self, nv: usize) -> (usize, usize) {
        match self {
            Layout::Single => (LANES, 1),
            Layout::Pairs => (LANES, 2),
            Layout::Fours => (nv * LANES, 4),
            Layout::Columns => (4, 4),
        }
    }
}

/// Up to 64 output channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// First output channel.
    pub channel: usize,
    /// Channels.
    pub width: usize,
    /// Vectors of accumulators: `width / 16`, rounded up: one, two or four.
    pub nv: usize,
    /// First column in `bias` and `scale`.
    pub column: usize,
    /// First of its weights.
    pub start: usize,
    /// First channel of the group's input.
    pub input: usize,
}

/// The contiguous runs of input that one output reads.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    /// Byte offset of each from the first tap.
    pub offsets: Vec<usize>,
    /// Bytes of each.
    pub len: usize,
}

impl Segments {
    /// Steps of four bytes.
    pub fn steps(&self) -> usize {
        self.len.div_ceil(4)
    }

    /// Steps of all, as weights have them.
    pub fn all_steps(&self, layout: Layout) -> usize {
        let steps = self.offsets.len() * self.steps();
        if layout == Layout::Columns { steps.next_multiple_of(2) } else { steps }
    }
}

/// Packed weights of all blocks.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// How they lie.
    form: (Layout, Order),
    pub weights: Arc<AlignedVec<i8>>,
    pub bias: AlignedVec<i32>,
    pub scale: AlignedVec<f32>,
    /// Empty without a float bias.
    pub float_bias: AlignedVec<f32>,
    pub blocks: Vec<Block>,
    /// Instead of weights.
    pub octets: Option<Arc<Octets>>,
}

impl Packed {
    /// The operands of a block's columns; biases and scales are those of all columns.
    pub fn columns(&self, b: &Block, bias: &[i32], scale: &[f32]) -> Columns {
        let float_bias =
            if self.float_bias.is_empty() { std::ptr::null() } else { self.float_bias[b.column..].as_ptr() };
        Columns { bias: bias[b.column..].as_ptr(), scale: scale[b.column..].as_ptr(), float_bias, width: b.width }
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> usize {
        self.weights.len() + self.octets.as_ref().map_or(0, |o| size_of_val(&o.list[..]))
    }
}

/// What the weights are packed from.
pub(super) struct Source<'a> {
    /// `[c_out, segments, len]`.
    pub weights: &'a [i8],
    /// Of each output channel's weights, [`sums`].
    pub sums: Vec<(i64, i64)>,
    pub c_out: usize,
    pub groups: usize,
    /// Input channels of a group.
    pub c_group: usize,
    pub bias: &'a Bias,
    pub requant: &'a Requant,
    /// None where it is known only as the model runs.
    pub zx: Option<u8>,
}

impl Source<'_> {
    /// Whether something is added to products: a float bias, or what an activation wants.
    pub fn has_addend(&self) -> bool {
        matches!(self.bias, Bias::F32(_)) || self.requant.activation.is_some()
    }

    /// What is added to a channel's products.
    pub fn addend(&self, oc: usize) -> f32 {
        let bias = if let Bias::F32(b) = self.bias { b[oc] } else { 0.0 };
        bias + self.requant.activation.as_ref().map_or(0.0, Activation::offset)
    }
}

/// Packs all groups; the weights of `like`, which are the same, are shared if they lie so.
pub(super) fn pack(
    src: &Source<'_>,
    segments: &Segments,
    isa: Isa,
    (layout, order): (Layout, Order),
    like: Option<&Packed>,
) -> Result<Packed, KernelError> {
    let steps = segments.all_steps(layout);
    let packed = columns(src, isa, (layout, order), 4 * steps)?;
    if let Some(Packed { weights, octets, blocks, .. }) = like.filter(|like| like.form == packed.form) {
        let (weights, octets, blocks) = (Arc::clone(weights), octets.clone(), blocks.clone());
        return Ok(Packed { weights, octets, blocks, ..packed });
    }
    let mut blocks = packed.blocks;
    let pack_block = |b: &Block, to: &mut [i8]| pack_block(src, segments, layout, order, b, to);
    let (weights, octets) = if layout == Layout::Columns {
        pack_columns(isa, &mut blocks, steps, pack_block)
    } else {
        let mut weights = AlignedVec::zeroed(4 * steps * packed.bias.len());
        blocks.iter().for_each(|b| pack_block(b, &mut weights[b.start..]));
        (weights, None)
    };
    Ok(Packed { weights: Arc::new(weights), octets: octets.map(Arc::new), blocks, ..packed })
}

/// Blocks and what stands beside their columns, without weights, of which a column has `each`.
pub(super) fn columns(src: &Source<'_>, isa: Isa, form: (Layout, Order), each: usize) -> Result<Packed, KernelError> {
    let (_, order) = form;
    let og = src.c_out / src.groups;
    let widths = split(og, isa);
    let mut blocks = Vec::new();
    let (mut column, mut start) = (0, 0);
    for group in 0..src.groups {
        let mut channel = group * og;
        for &nv in &widths {
            let width = (nv * LANES).min((group + 1) * og - channel);
            blocks.push(Block { channel, width, nv, column, start, input: group * src.c_group });
            channel += width;
            column += nv * LANES;
            start += nv * LANES * each;
        }
    }
    let folded = fold_bias(src)?;
    let (mut bias, mut scale) = (AlignedVec::zeroed(column), AlignedVec::zeroed(column));
    let mut float_bias = AlignedVec::zeroed(if src.has_addend() { column } else { 0 });
    for b in &blocks {
        for col in 0..b.nv * LANES {
            let within = order.channel(b.nv, col);
            if within < b.width {
                let oc = b.channel + within;
                bias[b.column + col] = folded[oc];
                scale[b.column + col] = src.requant.multiplier[oc];
                if src.has_addend() {
                    float_bias[b.column + col] = src.addend(oc);
                }
            }
        }
    }
    Ok(Packed { form, weights: Arc::default(), bias, scale, float_bias, blocks, octets: None })
}

/// Packs the weights of one block, where there are zeros.
fn pack_block(src: &Source<'_>, segments: &Segments, layout: Layout, order: Order, b: &Block, to: &mut [i8]) {
    let (k, steps) = (segments.offsets.len() * segments.len, segments.all_steps(layout));
    let (columns, unit) = layout.together(b.nv);
    for s in 0..segments.offsets.len() {
        // A line of each row after the other: what is written of a block meanwhile stays in L1.
        for first in (0..segments.len).step_by(LINE) {
            let at = (s * segments.steps() * 4 + first) * columns;
            for col in 0..b.nv * LANES {
                let within = order.channel(b.nv, col);
                if within < b.width {
                    let row = &src.weights[(b.channel + within) * k + s * segments.len..][..segments.len];
                    let run = &row[first..segments.len.min(first + LINE)];
                    let to = &mut to[at + col / columns * columns * steps * 4 + col % columns * unit..];
                    match unit {
                        1 => put::<1>(run, columns, to),
                        2 => put::<2>(run, columns, to),
                        _ => put::<4>(run, columns, to),
                    }
                }
            }
        }
    }
}

/// Packs [`Layout::Columns`] as octets if those of the first block pay, or else as words.
fn pack_columns(
    isa: Isa,
    blocks: &mut [Block],
    steps: usize,
    pack_block: impl Fn(&Block, &mut [i8]),
) -> (AlignedVec<i8>, Option<Octets>) {
    let mut block = vec![0; LANES * 4 * steps];
    let mut octets = Octets::with_capacity(blocks.len(), steps / 2);
    for (i, b) in blocks.iter().enumerate() {
        block.fill(0);
        pack_block(b, &mut block);
        append_block(isa, &mut octets, &block, steps);
        if i == 0 && !octets.pay(b.width, steps / 2) {
            let mut words = AlignedVec::zeroed(2 * block.len() * blocks.len());
            for b in blocks {
                block.fill(0);
                pack_block(b, &mut block);
                b.start *= 2;
                widen(&block, &mut words[b.start..]);
            }
            return (words, None);
        }
    }
    (AlignedVec::default(), Some(octets))
}

/// Fours of four columns as words, two and two.
fn widen(weights: &[i8], to: &mut [i8]) {
    for (from, to) in weights.as_chunks::<16>().0.iter().zip(to.as_chunks_mut::<32>().0) {
        for (i, w) in from.iter().enumerate() {
            let at = i % 4 / 2 * 16 + i / 4 * 4 + i % 2 * 2;
            // Little-endian words.
            (to[at], to[at + 1]) = (*w, *w >> 7);
        }
    }
}

/// Bytes of a row that are packed together.
const LINE: usize = 64;

/// Packs a part of a column's row, `N` weights beside those of the other columns.
fn put<const N: usize>(run: &[i8], columns: usize, to: &mut [i8]) {
    let (units, rest) = run.as_chunks::<N>();
    for (i, unit) in units.iter().enumerate() {
        to[i * columns * N..][..N].copy_from_slice(unit);
    }
    if !rest.is_empty() {
        to[units.len() * columns * N..][..rest.len()].copy_from_slice(rest);
    }
}

/// Vectors of each block of one group.
fn split(channels: usize, isa: Isa) -> Vec<usize> {
    let n = channels.div_ceil(LANES);
    if isa.level() != Level::Avx512 {
        return vec![1; n];
    }
    // Rows of four, two or one vectors are stored 64 bytes at a time; of the last, half may be empty.
    let rest = match channels % (4 * LANES) {
        17..=24 => [1, 1],
        _ => [n % 4 / 2 * 2, n % 2],
    };
    std::iter::repeat_n(4, n / 4).chain(rest).filter(|nv| *nv > 0).collect()
}

/// The sum of weights, and of their magnitudes.
pub(super) fn sums(row: &[i8]) -> (i64, i64) {
    // Words hold that of so many bytes, and vectorise.
    let parts = row.chunks(256).map(|part| {
        part.iter().fold((0i16, 0u16), |(sum, all), w| (sum + i16::from(*w), all + u16::from(w.unsigned_abs())))
    });
    parts.fold((0, 0), |(sum, all), part| (sum + i64::from(part.0), all + i64::from(part.1)))
}

/// A bound on the magnitude of what is rounded, before activation or residual.
pub(super) fn peak(src: &Source<'_>) -> f64 {
    let of = |oc: usize| {
        let (_, sum) = src.sums[oc];
        let acc = if let Bias::I32(b) = src.bias { i64::from(b[oc]).abs() } else { 0 };
        (255 * sum + acc) as f64 * f64::from(src.requant.multiplier[oc]).abs() + f64::from(src.addend(oc)).abs()
    };
    (0..src.c_out).map(of).fold(0.0, f64::max)
}

/// Per output channel, `bias - zx·Σw`, or `-Σw` where `zx` is not yet known; refuses sums that an i32 may not hold.
pub(super) fn fold_bias(src: &Source<'_>) -> Result<Vec<i32>, KernelError> {
    let (zx, reach) = match src.zx.map(i64::from) {
        Some(zx) => (zx, zx.max(255 - zx)),
        None => (1, 255),
    };
    let fold = |oc: usize| {
        let (sum, magnitude) = src.sums[oc];
        let bias = if let Bias::I32(b) = src.bias { i64::from(b[oc]) } else { 0 };
        let bound = bias.abs() + reach * magnitude;
        if bound > i64::from(i32::MAX) {
            return Err(KernelError::Overflow { what: "quantized convolution", channel: oc, bound });
        }
        // Partial sums may wrap; the whole does not.
        Ok((bias - zx * sum) as i32)
    };
    (0..src.c_out).map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packed_order_is_a_permutation() {
        for nv in [1, 2, 4] {
            let mut seen: Vec<usize> = (0..nv * LANES).map(|c| Order::Packed.channel(nv, c)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..nv * LANES).collect::<Vec<_>>());
        }
        assert_eq!([0, 4, 16, 20].map(|c| Order::Packed.channel(4, c)), [0, 16, 4, 20]);
    }

    /// Also those of instruction sets that this machine lacks.
    #[test]
    fn weights_lie_where_each_layout_says() {
        let segments = Segments { offsets: vec![0, 100], len: 70 };
        let (k, padded) = (140, 72);
        for (layout, nv, order) in [
            (Layout::Single, 1, Order::Natural),
            (Layout::Pairs, 1, Order::Natural),
            (Layout::Columns, 1, Order::Natural),
            (Layout::Fours, 1, Order::Natural),
            (Layout::Fours, 2, Order::Packed),
            (Layout::Fours, 4, Order::Packed),
            (Layout::Fours, 4, Order::Natural),
        ] {
            let width = nv * LANES - 3;
            let weights: Vec<i8> = (0..width * k).map(|i| (i * 7919 % 251) as u8 as i8).collect();
            let (bias, requant) = (Bias::None, Requant::new(vec![1.0; width], 0));
            let (sums, groups) = (vec![(0, 0); width], 1);
            let src = Source {
                weights: &weights,
                sums,
                c_out: width,
                groups,
                c_group: 70,
                bias: &bias,
                requant: &requant,
                zx: None,
            };
            let b = Block { channel: 0, width, nv, column: 0, start: 0, input: 0 };
            let steps = segments.all_steps(layout);
            let mut packed = vec![0; nv * LANES * 4 * steps];
            pack_block(&src, &segments, layout, order, &b, &mut packed);
            let mut expected = vec![0; packed.len()];
            for (col, (s, i)) in
                (0..nv * LANES).flat_map(|c| (0..2).flat_map(move |s| (0..70).map(move |i| (c, (s, i)))))
            {
                let k_padded = s * padded + i;
                let at = match layout {
                    Layout::Single => k_padded * 16 + col,
                    Layout::Pairs => (k_padded / 2 * 16 + col) * 2 + k_padded % 2,
                    Layout::Fours => (k_padded / 4 * nv * 16 + col) * 4 + k_padded % 4,
                    Layout::Columns => ((col / 4 * steps + k_padded / 4) * 4 + col % 4) * 4 + k_padded % 4,
                };
                let channel = order.channel(nv, col);
                expected[at] = if channel < width { weights[channel * k + s * 70 + i] } else { 0 };
            }
            assert_eq!(packed, expected, "{layout:?} {nv} {order:?}");
        }
    }

    #[test]
    fn sums_of_extreme_weights_do_not_wrap() {
        assert_eq!(sums(&[i8::MIN; 1000]), (-128_000, 128_000));
        assert_eq!(sums(&[i8::MAX; 1000]), (127_000, 127_000));
        assert_eq!(sums(&[i8::MIN, 5, -7]), (-130, 140));
    }

    #[test]
    fn blocks_have_one_two_or_four_vectors() {
        let Some(isa) = Isa::new(Level::Avx512) else { return };
        assert_eq!(split(80, isa), [4, 1]);
        assert_eq!(split(112, isa), [4, 2, 1]);
        assert_eq!(split(64, isa), [4]);
        assert_eq!(split(10, isa), [1]);
        assert_eq!(split(24, isa), [1, 1]);
        assert_eq!(split(1000, isa), [vec![4; 15], vec![2, 1]].concat());
    }
}
