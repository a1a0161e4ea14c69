//! The interface between the drivers and the files of the instruction sets.

use super::activation::Form;
use super::pack::{self, Block, Source};
use super::spec::OutputKind;
use crate::{AlignedVec, Isa, KernelError, Level};

/// The most rows of any tile.
pub(super) const MAX_MR: usize = 16;

/// What happens to an accumulator, without the per-channel part.
#[derive(Clone, Debug)]
pub(super) struct Epilogue {
    pub zero_point: i32,
    pub qmin: i32,
    pub qmax: i32,
    /// Multiplier and zero point of the residual.
    pub residual: Option<(f32, i32)>,
    /// Whether columns have one; so they have before an activation.
    pub float_bias: bool,
    pub activation: Option<Form>,
    /// 256 entries, or none.
    pub table: Option<AlignedVec<u8>>,
    pub out: OutputKind,
    pub path: Path,
}

/// Which code an epilogue takes. All but the general one count on values that an i32 holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// u8, nothing but requantization and its bounds.
    Plain,
    /// u8 with a residual.
    Residual,
    /// u8 with an activation.
    Activation,
    /// Anything.
    General,
}

impl Epilogue {
    /// Refuses an activation of values that an i32 may not hold.
    pub fn new(src: &Source<'_>, out: OutputKind) -> Result<Epilogue, KernelError> {
        let (requant, float_bias, peak) = (src.requant, src.has_addend(), pack::peak(src));
        let peak = match (&requant.residual, requant.activation.as_ref().map(|a| &a.form)) {
            (Some(r), _) => peak + 255.0 * f64::from(r.multiplier).abs(),
            (None, Some(Form::HardSwish(factor))) => peak * 6.0 * f64::from(*factor),
            _ => peak,
        };
        let wide = peak >= f64::from(1 << 30);
        if wide && requant.activation.is_some() {
            return Err(KernelError::Overflow { what: "activation", channel: 0, bound: peak as i64 });
        }
        // A curve's table yields levels with the zero point.
        let (activation, zero_point) = match requant.activation.as_ref().map(|a| a.form.clone()) {
            Some(Form::Curve(c)) => (Some(Form::Curve(Box::new(c.with_zero_point(requant.zero_point)))), 0),
            form => (form, requant.zero_point),
        };
        Ok(Epilogue {
            zero_point,
            qmin: requant.qmin,
            qmax: requant.qmax,
            residual: requant.residual.map(|r| (r.multiplier, r.zero_point)),
            float_bias,
            activation,
            table: requant.table.as_ref().map(|t| AlignedVec::from_slice(&t[..])),
            out,
            path: match (requant.residual, &requant.activation) {
                _ if wide => Path::General,
                (None, Some(_)) => Path::Activation,
                _ if out == OutputKind::F32 || float_bias || requant.table.is_some() => Path::General,
                (Some(_), _) => Path::Residual,
                (None, _) => Path::Plain,
            },
        })
    }
}

/// Per-channel operands of one block, in the order of its columns, and its place in the output.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    /// Accumulators start here; padded to whole vectors like the others.
    pub bias: *const i32,
    pub scale: *const f32,
    /// Null without a float bias.
    pub float_bias: *const f32,
    /// Channels that are stored.
    pub width: usize,
}

/// Where the rows of one tile lie that are not evenly spaced.
#[derive(Default)]
pub(super) struct Table {
    /// Bytes from `Tile::x`.
    pub x: [usize; MAX_MR],
    /// Pixels from `Tile::y` and `Tile::r`.
    pub pixel: [usize; MAX_MR],
}

/// Tiles of `mr` output pixels, one after another, and one block of channels.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    /// First input byte of the first row, and bytes to the next.
    pub x: *const u8,
    pub x_step: usize,
    /// The block's first element of the first row's output, and bytes to the next pixel.
    pub y: *mut u8,
    pub y_step: usize,
    /// The same of the residual; null without one.
    pub r: *const u8,
    pub r_step: usize,
    /// Instead of even steps; then there is one tile.
    pub table: Option<&'a Table>,
    pub tiles: usize,
    /// Byte offsets of the segments, and four-byte steps of each.
    pub segments: &'a [usize],
    pub steps: usize,
    pub weights: *const i8,
    /// Bytes from a block's weights to those of the next, which the first `nv` tiles fetch into cache: each a line of 64
    /// bytes at every step, beginning with the line of its number. 0 for none.
    pub ahead: usize,
    /// The number of the first tile.
    pub number: usize,
    pub columns: Columns,
    pub epilogue: &'a Epilogue,
}

impl Tile<'_> {
    /// First input byte of row `i`.
    #[inline(always)]
    pub fn x_at(&self, i: usize) -> *const u8 {
        self.x.wrapping_add(match self.table {
            Some(t) => t.x[i],
            None => i * self.x_step,
        })
    }

    #[inline(always)]
    fn pixel(&self, i: usize) -> usize {
        match self.table {
            Some(t) => t.pixel[i],
            None => i,
        }
    }

    /// The block's first output of row `i`.
    #[inline(always)]
    pub fn y_at(&self, i: usize) -> *mut u8 {
        self.y.wrapping_add(self.pixel(i) * self.y_step)
    }

    /// The block's first residual of row `i`.
    #[inline(always)]
    pub fn r_at(&self, i: usize) -> *const u8 {
        self.r.wrapping_add(self.pixel(i) * self.r_step)
    }

    /// Bytes from the weights at hand to those that a tile with `nv` vectors fetches.
    #[inline(always)]
    pub fn fetched(&self, nv: usize) -> usize {
        if self.ahead > 0 && self.number < nv { self.ahead + self.number * 64 } else { 0 }
    }

    /// The tile after one of `mr` rows.
    #[inline(always)]
    pub fn next(&mut self, mr: usize) {
        self.number += 1;
        self.x = self.x.wrapping_add(mr * self.x_step);
        self.y = self.y.wrapping_add(mr * self.y_step);
        self.r = self.r.wrapping_add(mr * self.r_step);
    }
}

/// Computes and stores tiles.
///
/// # Safety
/// The instruction set is there; every pointer is valid for what the tiles' shape reads and writes.
pub(super) type TileFn = unsafe fn(&Tile<'_>);

/// The kernel for a block with `left` rows to go: how many it takes, and the function.
pub(super) fn select(isa: Isa, b: &Block, left: usize) -> (usize, TileFn) {
    #[cfg(target_arch = "x86_64")]
    match isa.level() {
        Level::Avx512 => return super::avx512::select(b.width, b.nv, left),
        Level::AvxVnni => return super::avx2::dot::select(left),
        Level::Avx2 => return super::avx2::words::select(left),
        Level::Portable => {}
    }
    let _ = (isa, b, left, Level::Portable);
    super::portable::select()
}

/// Rows and channels of the largest tile for a block.
pub(super) fn largest(isa: Isa, b: &Block) -> (usize, usize) {
    (select(isa, b, usize::MAX).0, b.nv * super::pack::LANES)
}

/// The instruction set's part of a kernel's name.
pub(super) fn isa_name(isa: Isa) -> &'static str {
    match isa.level() {
        Level::Avx512 => "avx512vnni",
        level => level.name(),
    }
}
