//! Unary functions of a u8 tensor as tables of 256 entries.

#[cfg(target_arch = "x86_64")]
mod x86;

use crate::share::split_rows;
use crate::{Isa, KernelError, Level, ThreadPool};

/// A map from u8 to u8.
#[derive(Clone, PartialEq, Eq)]
pub struct Lut {
    isa: Isa,
    table: [u8; 256],
}

impl std::fmt::Debug for Lut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lut").field(&self.table.as_slice()).finish()
    }
}

impl Lut {
    /// From its entries.
    pub fn new(isa: Isa, table: [u8; 256]) -> Lut {
        Lut { isa, table }
    }

    /// From a function: `f(q)` for every byte, in the reference arithmetic.
    pub fn from_fn(isa: Isa, f: impl Fn(u8) -> u8) -> Lut {
        Lut { isa, table: std::array::from_fn(|q| f(q as u8)) }
    }

    /// Its entries.
    pub fn table(&self) -> &[u8; 256] {
        &self.table
    }

    /// `lut_u8_avx512`, say.
    pub fn kernel_name(&self) -> String {
        format!("lut_u8_{}", self.isa.level().name())
    }

    /// This map, then another: a chain of maps is one map.
    pub fn then(&self, next: &Lut) -> Lut {
        Lut::from_fn(self.isa, |q| next.table[usize::from(self.table[usize::from(q)])])
    }

    /// `y[i] = table[x[i]]`.
    ///
    /// # Errors
    /// Slices of different lengths.
    pub fn run(&self, pool: &ThreadPool, x: &[u8], y: &mut [u8]) -> Result<(), KernelError> {
        KernelError::exactly("mapped tensor", x.len(), y.len())?;
        split_rows(pool, y, x.len(), 1, &|range, y| self.map(&x[range], y));
        Ok(())
    }

    /// `y[i] = table[y[i]]` on the calling thread.
    pub fn run_in_place(&self, y: &mut [u8]) {
        let mut block = [0u8; 1024];
        for y in y.chunks_mut(1024) {
            let x = &mut block[..y.len()];
            x.copy_from_slice(y);
            self.map(x, y);
        }
    }

    fn map(&self, x: &[u8], y: &mut [u8]) {
        match self.isa.level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => x86::avx512(self.isa, &self.table, x, y),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 | Level::AvxVnni => x86::avx2(self.isa, &self.table, x, y),
            _ => portable(&self.table, x, y),
        }
    }
}

fn portable(table: &[u8; 256], x: &[u8], y: &mut [u8]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y = table[usize::from(*x)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_isa_maps_every_byte() -> Result<(), KernelError> {
        for isa in Isa::all() {
            let lut = Lut::from_fn(isa, |q| q.wrapping_mul(167).wrapping_add(13) ^ (q >> 3));
            for n in [0, 1, 31, 32, 63, 64, 65, 256, 1023, 40_000] {
                let x: Vec<u8> = (0..n).map(|i| (i * 199 % 256) as u8).collect();
                let mut y = vec![0; n];
                lut.run(&ThreadPool::new(2), &x, &mut y)?;
                assert!(x.iter().zip(&y).all(|(x, y)| lut.table()[usize::from(*x)] == *y), "{n} bytes on {isa:?}");
                let mut z = x.clone();
                lut.run_in_place(&mut z);
                assert_eq!(y, z);
            }
            let twice = lut.then(&lut);
            assert_eq!(twice.table()[7], lut.table()[usize::from(lut.table()[7])]);
        }
        Ok(())
    }
}
