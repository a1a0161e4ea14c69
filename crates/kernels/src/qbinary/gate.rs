//! A u8 tensor times a gate that is repeated over its pixels, in 16-bit fixed point.
//!
//! With `f` bits for fractions of a level, `G = rne(b·m·2^(8+f))` and `C = 2^f·zy - rne(za·b·m·2^f) + 2^(f-1)`, both once
//! for each channel, an element is `clamp((((256·a)·G >> 16) + C) >> f)`. That differs from rounding the exact product by
//! one level at most, and only where that lies within 0.04 levels of the middle of two.

use super::over_images;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::pointwise::Quantize;
use crate::pointwise::math::MAGIC;
use crate::quant::Dequantize;
use crate::versions::versions;
use crate::{Isa, KernelError, Level, ThreadPool};

/// Elements of a gate that is repeated.
const REPEATED: usize = 4096;

/// Elements for which gates lie beside each other, in blocks of 64: of each, those that unpacks of low and then of high
/// bytes meet.
pub(super) struct Operands {
    pub gates: [u16; REPEATED],
    pub fixed: [i16; REPEATED],
    /// Elements after which they repeat.
    pub period: usize,
}

/// A product with a gate whose zero point is 0: sigmoids have such levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    isa: Isa,
    /// `(sa·sb)/sy`.
    m: f32,
    za: i32,
    pub(super) y: Quantize,
    /// Bits of fractions.
    pub(super) bits: u32,
}

impl Gate {
    /// None where it is not precise enough, or the gate's zero point is another.
    pub fn new(isa: Isa, a: Dequantize, b: Dequantize, y: Quantize) -> Option<Gate> {
        let m = a.scale * b.scale / y.scale;
        // The greatest product fits an i16 with its fractions.
        let bits = (32767.0 / (65025.0 * m)).log2().floor().min(7.0);
        let fits = b.zero_point == 0 && y.check().is_ok() && bits >= 4.0;
        fits.then_some(Gate { isa, m, za: a.zero_point, y, bits: bits as u32 })
    }

    /// `gate_u8_avx512`, say.
    pub fn kernel_name(&self) -> String {
        format!("gate_u8_{}", self.isa.level().name())
    }

    /// Most channels that are taken.
    pub const CHANNELS: usize = REPEATED;

    #[inline(always)]
    fn operands(&self, b: u8) -> (u16, i16) {
        let v = f32::from(b) * self.m * (1u32 << self.bits) as f32;
        // Both are far below 2²², where this sum rounds to an integer.
        let rounded = |x: f32| (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()).cast_signed();
        let fixed = (self.y.zero_point << self.bits) - rounded(self.za as f32 * v) + (1 << (self.bits - 1));
        (rounded(v * 256.0) as u16, fixed.clamp(i16::MIN.into(), i16::MAX.into()) as i16)
    }

    /// One element.
    pub fn eval(&self, a: u8, b: u8) -> u8 {
        let (gate, fixed) = self.operands(b);
        self.element(a, gate, fixed)
    }

    fn element(&self, a: u8, gate: u16, fixed: i16) -> u8 {
        let product = (((u32::from(a) << 8) * u32::from(gate)) >> 16) as i16;
        i32::from(product.saturating_add(fixed) >> self.bits).clamp(self.y.qmin, self.y.qmax) as u8
    }

    /// `a [n, pixels, c]` with `b [n, c]`, at most [`Gate::CHANNELS`] of them. `dims = [n, pixels, c]`.
    ///
    /// # Errors
    /// Slices of another length, or more channels.
    pub fn run(
        &self,
        pool: &ThreadPool,
        dims: [usize; 3],
        a: &[u8],
        b: &[u8],
        y: &mut [u8],
    ) -> Result<(), KernelError> {
        let c = dims[2];
        if c > REPEATED {
            return Err(KernelError::invalid("gate", format!("it has {c} channels; at most {REPEATED} are taken")));
        }
        let start = || (Operands { gates: [0; REPEATED], fixed: [0; REPEATED], period: 0 }, None);
        let times = rows_at_once(c).min(dims[1]);
        over_images(pool, dims, a, b, y, dims[1], start, |(operands, known), (gate, image), _, a, y| {
            if known.replace(image) != Some(image) {
                let mut levels = [0; REPEATED];
                levels.chunks_exact_mut(c).take(times).for_each(|row| row.copy_from_slice(gate));
                operands.period = times * c;
                operands_on(self.isa, self, &levels, operands);
            }
            self.rows(a, operands, y);
        })
    }

    fn rows(&self, a: &[u8], o: &Operands, y: &mut [u8]) {
        match self.isa.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::gate(self.isa, self, a, o, y),
            level => {
                for (a, y) in a.chunks(o.period).zip(y.chunks_mut(o.period)) {
                    let done = match level {
                        #[cfg(target_arch = "x86_64")]
                        Level::Avx2 | Level::AvxVnni => avx2::gate(self.isa, self, a, o, y),
                        _ => 0,
                    };
                    self.elements(done, a, o, y);
                }
            }
        }
    }

    /// One after another, from `first` on.
    fn elements(&self, first: usize, a: &[u8], o: &Operands, y: &mut [u8]) {
        for i in first..a.len() {
            y[i] = self.element(a[i], o.gates[place(i)], o.fixed[place(i)]);
        }
    }
}

/// The operands of as many levels as repeat.
#[inline(always)]
fn operands(g: &Gate, levels: &[u8; REPEATED], out: &mut Operands) {
    for first in (0..out.period).step_by(8) {
        let (at, levels) = (place(first), &levels[first..first + 8]);
        let (gates, fixed) = (&mut out.gates[at..at + 8], &mut out.fixed[at..at + 8]);
        for i in 0..8 {
            (gates[i], fixed[i]) = g.operands(levels[i]);
        }
    }
}

versions! {
    fn operands_on(g: &Gate, levels: &[u8; REPEATED], out: &mut Operands) => operands
}

/// Rows of `c` channels that are taken together: whole blocks of 64 if that many fit, and a few of them.
fn rows_at_once(c: usize) -> usize {
    let c = c.max(1);
    let whole = (1..=64).find(|rows| (rows * c).is_multiple_of(64) && rows * c <= REPEATED).unwrap_or(1);
    whole * (512 / (whole * c)).max(1)
}

/// Where the operands of element `i` stand: unpacks take 8 of each 16 bytes.
fn place(i: usize) -> usize {
    let (lane, byte) = (i / 16 % 4, i % 16);
    i / 64 * 64 + byte / 8 * 32 + lane * 8 + byte % 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pointwise::Rounding;

    fn gate(isa: Isa) -> Gate {
        let (a, b) = (Dequantize { scale: 0.031, zero_point: 9 }, Dequantize { scale: 1.0 / 255.0, zero_point: 0 });
        Gate::new(isa, a, b, Quantize { qmin: 3, qmax: 250, ..Quantize::u8(0.027, 11, Rounding::Recip) }).unwrap()
    }

    #[test]
    fn products_are_as_near_as_stated() {
        let g = gate(Isa::portable());
        let m = 0.031 / 255.0 / 0.027;
        let mut other = 0;
        for (a, b) in (0..=255u8).flat_map(|a| (0..=255u8).map(move |b| (a, b))) {
            let v = (f64::from(a) - 9.0) * f64::from(b) * m + 11.0;
            let want = v.round_ties_even().clamp(3.0, 250.0);
            let got = f64::from(g.eval(a, b));
            if got != want {
                other += 1;
                assert!((got - want).abs() == 1.0 && (v - v.floor() - 0.5).abs() < 0.04, "{a}·{b}: {v} gives {got}");
            }
        }
        assert!(other > 0 && other < 65536 / 20, "{other}");
    }

    #[test]
    fn every_isa_and_thread_gives_the_same() {
        for (n, pixels, c) in [(1, 49, 21), (2, 50, 64), (1, 70, 96), (3, 9, 1000), (1, 3, 4096), (1, 0, 8)] {
            let a: Vec<u8> = (0..n * pixels * c).map(|i| (i * 37 % 256) as u8).collect();
            let b: Vec<u8> = (0..n * c).map(|i| (i * 91 % 256) as u8).collect();
            for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 2)]) {
                let (g, mut y) = (gate(isa), vec![0; a.len()]);
                g.run(&ThreadPool::new(threads), [n, pixels, c], &a, &b, &mut y).unwrap();
                for (i, y) in y.iter().enumerate() {
                    assert_eq!(
                        *y,
                        g.eval(a[i], b[i / (pixels * c) * c + i % c]),
                        "{isa:?} {n}×{pixels}×{c}, element {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_declined() {
        let (a, y) = (Dequantize { scale: 0.03, zero_point: 9 }, Quantize::u8(0.03, 11, Rounding::Recip));
        let with = |scale, zero_point| Gate::new(Isa::portable(), a, Dequantize { scale, zero_point }, y).is_some();
        assert!(with(1.0 / 255.0, 0) && !with(1.0 / 255.0, 1) && !with(1.0, 0));
        let g = gate(Isa::portable());
        assert!(g.run(&ThreadPool::new(1), [1, 1, 4097], &[0; 4097], &[0; 4097], &mut [0; 4097]).is_err());
    }
}
