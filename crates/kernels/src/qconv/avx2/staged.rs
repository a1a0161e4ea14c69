//! Tiles of 16 pixels by 4 channels. Lanes are pixels, so that what [`super::super::octets`] adds to a single channel
//! costs two products of a tile. Inputs are staged as `[k / 4][16 pixels][4 k]`, once for all channels, and multiplied
//! with `vpmaddubsw`; or as words, `[k / 2][16 pixels][2 k]`, with `vpmaddwd`. Bounds and zero points are applied where [the epilogue of 512 bits](super::super::avx512::epilogue)
//! applies them.
#![allow(unsafe_code, reason = "vector loads and stores through the pointers of a tile")]
#![allow(clippy::needless_range_loop, reason = "fixed trip counts over registers")]

use super::activation::{after, before};
use super::epilogue::{Bounds, load_bytes, store, store_bytes};
use crate::qconv::octets::{Fix, Octet, ROWS, STEP};
use crate::qconv::pack::LANES;
use crate::qconv::tile::{Path, Tile};
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// The octets of a block of columns.
#[derive(Clone, Copy)]
pub(in crate::qconv) struct OctetsOf {
    pub list: *const Octet,
    pub fixes: *const Fix,
    /// The first fix of each column, and the end.
    pub starts: *const u32,
}

/// Stages the segments of 16 pixels, each of which begins at one of `rows`; `to` has room for their steps.
///
/// # Safety
/// AVX2 is there; the segments of all rows can be read, and `to` written.
#[target_feature(enable = "avx2")]
pub(in crate::qconv) unsafe fn stage<const WORDS: bool>(
    rows: &[*const u8; ROWS],
    segments: &[usize],
    steps: usize,
    mut to: *mut u8,
) {
    let size = const { if WORDS { 2 * STEP } else { STEP } };
    // SAFETY: by the caller's promise: no more than the steps is read.
    unsafe {
        for segment in segments {
            let mut step = 0;
            while step + 8 <= steps {
                for half in [0, 8] {
                    eight::<WORDS>(&rows[half..half + 8], segment + step * 4, to.add(half * 4));
                }
                (step, to) = (step + 8, to.add(8 * size));
            }
            while step < steps {
                let few = (steps - step).min(4);
                for half in [0, 8] {
                    upto_four::<WORDS>(&rows[half..half + 8], segment + step * 4, few, to.add(half * 4));
                }
                (step, to) = (step + few, to.add(few * size));
            }
        }
    }
}

/// Eight steps of eight pixels.
#[inline(always)]
unsafe fn eight<const WORDS: bool>(rows: &[*const u8], at: usize, to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [_mm256_setzero_si256(); 8];
        for i in 0..4 {
            // Of pixels i and i + 4, the first four steps and the last.
            let (a, b) = (rows[i].add(at), rows[i + 4].add(at));
            x[i] = _mm256_loadu2_m128i(b.cast(), a.cast());
            x[i + 4] = _mm256_loadu2_m128i(b.add(16).cast(), a.add(16).cast());
        }
        for half in [0, 4] {
            let columns = transpose([x[half], x[half + 1], x[half + 2], x[half + 3]]);
            for i in 0..4 {
                put::<WORDS>(columns[i], half + i, to);
            }
        }
    }
}

/// At most four steps of eight pixels.
#[inline(always)]
unsafe fn upto_four<const WORDS: bool>(rows: &[*const u8], at: usize, steps: usize, to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe {
        let mut x = [_mm256_setzero_si256(); 4];
        for i in 0..4 {
            let (a, b) = (rows[i].add(at), rows[i + 4].add(at));
            x[i] = _mm256_set_m128i(fours(b, steps), fours(a, steps));
        }
        let columns = transpose(x);
        for i in 0..steps {
            put::<WORDS>(columns[i], i, to);
        }
    }
}

/// At most four steps; the rest is zero.
#[inline(always)]
unsafe fn fours(x: *const u8, steps: usize) -> __m128i {
    // SAFETY: by the caller's promise.
    unsafe {
        match steps {
            1 => _mm_loadu_si32(x.cast()),
            2 => _mm_loadu_si64(x.cast()),
            3 => _mm_unpacklo_epi64(_mm_loadu_si64(x.cast()), _mm_loadu_si32(x.add(8).cast())),
            _ => _mm_loadu_si128(x.cast()),
        }
    }
}

/// Stores a step of eight pixels.
#[inline(always)]
unsafe fn put<const WORDS: bool>(x: __m256i, step: usize, to: *mut u8) {
    // SAFETY: by the caller's promise.
    unsafe {
        if !WORDS {
            return _mm256_store_si256(to.add(step * STEP).cast(), x);
        }
        let to = to.add(step * 2 * STEP);
        let two = _mm256_setr_epi8(
            0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1,
            13, -1,
        );
        _mm256_store_si256(to.cast(), _mm256_shuffle_epi8(x, two));
        _mm256_store_si256(to.add(STEP).cast(), _mm256_shuffle_epi8(_mm256_srli_epi32::<16>(x), two));
    }
}

/// Transposes four by four dwords in each half.
#[inline(always)]
unsafe fn transpose(x: [__m256i; 4]) -> [__m256i; 4] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (a, b) = (_mm256_unpacklo_epi32(x[0], x[1]), _mm256_unpacklo_epi32(x[2], x[3]));
        let (c, d) = (_mm256_unpackhi_epi32(x[0], x[1]), _mm256_unpackhi_epi32(x[2], x[3]));
        [
            _mm256_unpacklo_epi64(a, b),
            _mm256_unpackhi_epi64(a, b),
            _mm256_unpacklo_epi64(c, d),
            _mm256_unpackhi_epi64(c, d),
        ]
    }
}

/// Computes and stores `rows` pixels, at most 16, of a block of 16 channels: of octets, or else of words, which are the
/// tile's weights. Its `x` is staged, and its steps are even.
///
/// # Safety
/// AVX2 and FMA are there; the staged steps, octets or weights, and what the tile stores are valid.
#[target_feature(enable = "avx2,fma")]
pub(in crate::qconv) unsafe fn tile(t: &Tile<'_>, octets: Option<OctetsOf>, rows: usize) {
    // SAFETY: by the caller's promise.
    unsafe {
        match (rows > 8, t.steps / 2 > chunk(octets)) {
            (true, true) => tile_of::<2, true>(t, octets, rows),
            (true, false) => tile_of::<2, false>(t, octets, rows),
            (false, true) => tile_of::<1, true>(t, octets, rows),
            (false, false) => tile_of::<1, false>(t, octets, rows),
        }
    }
}

/// `V` vectors of eight pixels, in chunks or at once.
#[inline(always)]
unsafe fn tile_of<const V: usize, const CHUNKS: bool>(t: &Tile<'_>, octets: Option<OctetsOf>, rows: usize) {
    // SAFETY: as the caller's.
    unsafe {
        match t.epilogue.path {
            Path::Plain => quantized::<V, CHUNKS, { Path::Plain as u8 }>(t, octets, rows),
            Path::Residual => quantized::<V, CHUNKS, { Path::Residual as u8 }>(t, octets, rows),
            Path::Activation => quantized::<V, CHUNKS, { Path::Activation as u8 }>(t, octets, rows),
            Path::General => general::<V, CHUNKS>(t, octets, rows),
        }
    }
}

/// A tile by the general path: accumulators are transposed.
#[inline(always)]
unsafe fn general<const V: usize, const CHUNKS: bool>(t: &Tile<'_>, octets: Option<OctetsOf>, rows: usize) {
    // SAFETY: as the caller's.
    unsafe {
        let (partial, mut sums) = (begin::<V, CHUNKS>(t, octets), [[_mm_setzero_si128(); 4]; ROWS]);
        for (group, first) in (0..t.columns.width).step_by(4).enumerate() {
            let acc = accumulators::<V>(t, octets, first, &partial);
            for v in 0..V {
                let columns = transpose([acc[0][v], acc[1][v], acc[2][v], acc[3][v]]);
                for i in 0..4 {
                    sums[8 * v + i][group] = _mm256_castsi256_si128(columns[i]);
                    sums[8 * v + i + 4][group] = _mm256_extracti128_si256::<1>(columns[i]);
                }
            }
        }
        for (i, row) in sums.iter().enumerate().take(rows) {
            let row = [_mm256_set_m128i(row[1], row[0]), _mm256_set_m128i(row[3], row[2])];
            store(row, &t.columns, t.epilogue, t.y_at(i), t.r_at(i));
        }
    }
}

/// A tile of bytes: they are transposed, and so are those of the residual.
#[inline(always)]
unsafe fn quantized<const V: usize, const CHUNKS: bool, const PATH: u8>(
    t: &Tile<'_>,
    octets: Option<OctetsOf>,
    rows: usize,
) {
    // SAFETY: as the caller's.
    unsafe {
        let (c, e) = (&t.columns, t.epilogue);
        let (form, bounds) = (e.activation.as_ref(), Bounds::of(e));
        let fours = _mm256_setr_epi8(
            0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
        );
        // Of each vector of pixels and group of four channels, a pixel's four bytes in each lane.
        let mut lanes = [[_mm256_setzero_si256(); 4]; V];
        if PATH == Path::Residual as u8 {
            for v in 0..V {
                let mut x = [_mm256_setzero_si256(); 4];
                for i in 0..4 {
                    let (a, b) = ((8 * v + i).min(rows - 1), (8 * v + i + 4).min(rows - 1));
                    let (a, b) = (load_bytes(t.r_at(a), c.width), load_bytes(t.r_at(b), c.width));
                    x[i] = _mm256_set_m128i(b, a);
                }
                lanes[v] = transpose(x);
            }
        }
        let partial = begin::<V, CHUNKS>(t, octets);
        for (group, first) in (0..c.width).step_by(4).enumerate() {
            let acc = accumulators::<V>(t, octets, first, &partial);
            let mut x = [[_mm256_setzero_ps(); 4]; V];
            for i in 0..4 {
                let (m, b) = (_mm256_set1_ps(*c.scale.add(first + i)), first + i);
                for v in 0..V {
                    let sum = _mm256_cvtepi32_ps(acc[i][v]);
                    x[v][i] = match PATH == Path::Activation as u8 {
                        true => _mm256_fmadd_ps(sum, m, _mm256_set1_ps(*c.float_bias.add(b))),
                        false => _mm256_mul_ps(sum, m),
                    };
                }
            }
            for v in 0..V {
                if let Some(residual) = e.residual
                    && PATH == Path::Residual as u8
                {
                    x[v] = with_residual(x[v], lanes[v][group], residual);
                }
                let words = [before::<PATH>(form, [x[v][0], x[v][1]]), before::<PATH>(form, [x[v][2], x[v][3]])];
                lanes[v][group] = _mm256_shuffle_epi8(bounds.apply(after::<PATH>(form, words)), fours);
            }
        }
        let whole = rows == 8 * V && c.width == LANES && t.table.is_none();
        for v in 0..V {
            let pixels = transpose(lanes[v]);
            for i in 0..4 {
                let (a, b) = (8 * v + i, 8 * v + i + 4);
                let (x, y) = (_mm256_castsi256_si128(pixels[i]), _mm256_extracti128_si256::<1>(pixels[i]));
                if whole {
                    _mm_storeu_si128(t.y.add(a * t.y_step).cast(), x);
                    _mm_storeu_si128(t.y.add(b * t.y_step).cast(), y);
                    continue;
                }
                if a < rows {
                    store_bytes(x, t.y_at(a), c.width);
                }
                if b < rows {
                    store_bytes(y, t.y_at(b), c.width);
                }
            }
        }
    }
}

/// `v + f32(r - zr)·mr` of four channels, whose bytes are a lane's.
#[inline(always)]
unsafe fn with_residual(mut x: [__m256; 4], r: __m256i, (m, z): (f32, i32)) -> [__m256; 4] {
    // SAFETY: the caller enables the features.
    unsafe {
        let (z, m, byte) = (_mm256_set1_epi32(z), _mm256_set1_ps(m), _mm256_set1_epi32(255));
        let r = [
            _mm256_and_si256(r, byte),
            _mm256_and_si256(_mm256_srli_epi32::<8>(r), byte),
            _mm256_and_si256(_mm256_srli_epi32::<16>(r), byte),
            _mm256_srli_epi32::<24>(r),
        ];
        for i in 0..4 {
            let r = _mm256_cvtepi32_ps(_mm256_sub_epi32(r[i], z));
            x[i] = _mm256_add_ps(x[i], _mm256_mul_ps(r, m));
        }
    }
    x
}

/// Octets, or as many words, whose inputs stay in L1 while all channels of a block take them.
#[inline(always)]
fn chunk(octets: Option<OctetsOf>) -> usize {
    if octets.is_some() { 128 } else { 64 }
}

/// The accumulators of a block's channels after so many octets, or as many words.
struct Partial<const V: usize> {
    octets: usize,
    acc: MaybeUninit<[[[__m256i; V]; 4]; 4]>,
}

/// Takes all chunks but the last.
#[inline(always)]
unsafe fn begin<const V: usize, const CHUNKS: bool>(t: &Tile<'_>, octets: Option<OctetsOf>) -> Partial<V> {
    let mut partial = Partial { octets: 0, acc: MaybeUninit::uninit() };
    let chunk = chunk(octets);
    // SAFETY: as of `accumulators`.
    unsafe {
        while CHUNKS && t.steps / 2 - partial.octets > chunk {
            for first in (0..t.columns.width).step_by(4) {
                let acc = products(start(t, first, &partial), t, octets, first, partial.octets, chunk);
                (&raw mut (*partial.acc.as_mut_ptr())[first / 4]).write(acc);
            }
            partial.octets += chunk;
        }
    }
    partial
}

/// What the accumulators of four channels start with.
#[inline(always)]
unsafe fn start<const V: usize>(t: &Tile<'_>, first: usize, partial: &Partial<V>) -> [[__m256i; V]; 4] {
    // SAFETY: columns are padded to whole blocks; after octets there are accumulators.
    unsafe {
        if partial.octets > 0 {
            return (&raw const (*partial.acc.as_ptr())[first / 4]).read();
        }
        let mut acc = [[_mm256_setzero_si256(); V]; 4];
        for i in 0..4 {
            acc[i] = [_mm256_set1_epi32(*t.columns.bias.add(first + i)); V];
        }
        acc
    }
}

/// The accumulators of four channels, with their bias and fixes.
#[inline(always)]
unsafe fn accumulators<const V: usize>(
    t: &Tile<'_>,
    octets: Option<OctetsOf>,
    first: usize,
    partial: &Partial<V>,
) -> [[__m256i; V]; 4] {
    // SAFETY: columns are padded to whole blocks, which have fixes and weights.
    unsafe {
        let acc = start(t, first, partial);
        let mut acc = products(acc, t, octets, first, partial.octets, t.steps / 2 - partial.octets);
        let Some(octets) = octets else { return acc };
        let mut fix = octets.fixes.add(*octets.starts.add(first) as usize);
        for i in 0..4 {
            let end = octets.fixes.add(*octets.starts.add(first + i + 1) as usize);
            while fix < end {
                acc[i] = fixed(acc[i], t.x, &*fix);
                fix = fix.add(1);
            }
        }
        acc
    }
}

/// Adds the products of so many octets of four channels, or of as many words.
#[inline(always)]
unsafe fn products<const V: usize>(
    acc: [[__m256i; V]; 4],
    t: &Tile<'_>,
    octets: Option<OctetsOf>,
    first: usize,
    from: usize,
    count: usize,
) -> [[__m256i; V]; 4] {
    // SAFETY: by the caller's promise.
    unsafe {
        match octets {
            Some(octets) => bytes(acc, t.x, octets.list.add(first / 4 * (t.steps / 2) + from), count),
            None => {
                let w = t.weights.add(first * 8 * t.steps + from * 64);
                words(acc, t.x.add(from * 4 * STEP), w, 2 * count)
            }
        }
    }
}

/// Adds the products of four channels' words.
#[inline(always)]
unsafe fn words<const V: usize>(
    mut acc: [[__m256i; V]; 4],
    mut x: *const u8,
    mut w: *const i8,
    steps: usize,
) -> [[__m256i; V]; 4] {
    // SAFETY: so many steps are staged, and packed.
    unsafe {
        for _ in 0..2 * steps {
            let mut a = [_mm256_setzero_si256(); V];
            for v in 0..V {
                a[v] = _mm256_load_si256(x.add(32 * v).cast());
            }
            for c in 0..4 {
                let w = _mm256_set1_epi32(w.add(4 * c).cast::<i32>().read_unaligned());
                for v in 0..V {
                    acc[c][v] = _mm256_add_epi32(acc[c][v], _mm256_madd_epi16(a[v], w));
                }
            }
            (x, w) = (x.add(STEP), w.add(16));
        }
    }
    acc
}

/// Adds the products of four channels' octets.
#[inline(always)]
unsafe fn bytes<const V: usize>(
    mut acc: [[__m256i; V]; 4],
    x: *const u8,
    mut octet: *const Octet,
    octets: usize,
) -> [[__m256i; V]; 4] {
    // SAFETY: there are so many, and their steps are staged.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        for _ in 0..octets {
            let (xa, xb) = (x.add((*octet).at[0] as usize), x.add((*octet).at[1] as usize));
            let (mut a, mut b) = ([_mm256_setzero_si256(); V], [_mm256_setzero_si256(); V]);
            for v in 0..V {
                a[v] = _mm256_load_si256(xa.add(32 * v).cast());
                b[v] = _mm256_load_si256(xb.add(32 * v).cast());
            }
            let w = (&raw const (*octet).weights).cast::<i32>();
            for c in 0..4 {
                let (wa, wb) = (_mm256_set1_epi32(w.add(c).read()), _mm256_set1_epi32(w.add(4 + c).read()));
                for v in 0..V {
                    let words = _mm256_add_epi16(_mm256_maddubs_epi16(a[v], wa), _mm256_maddubs_epi16(b[v], wb));
                    acc[c][v] = _mm256_add_epi32(acc[c][v], _mm256_madd_epi16(words, ones));
                }
            }
            octet = octet.add(1);
        }
    }
    acc
}

/// Adds a fix of a channel.
#[inline(always)]
unsafe fn fixed<const V: usize>(mut acc: [__m256i; V], x: *const u8, fix: &Fix) -> [__m256i; V] {
    // SAFETY: its steps are staged.
    unsafe {
        let ones = _mm256_set1_epi16(1);
        let (a, b) = (x.add(fix.at[0] as usize), x.add(fix.at[1] as usize));
        let w = (&raw const fix.weights).cast::<i32>();
        let (wa, wb) = (_mm256_set1_epi32(w.read()), _mm256_set1_epi32(w.add(1).read()));
        for v in 0..V {
            let (a, b) = (_mm256_load_si256(a.add(32 * v).cast()), _mm256_load_si256(b.add(32 * v).cast()));
            let words = _mm256_add_epi16(_mm256_maddubs_epi16(a, wa), _mm256_maddubs_epi16(b, wb));
            acc[v] = _mm256_add_epi32(acc[v], _mm256_madd_epi16(words, ones));
        }
    }
    acc
}
