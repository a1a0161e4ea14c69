//! The body of [`exec`](super::exec) compiled for each instruction set.
#![allow(unsafe_code, reason = "calls of functions with target features, behind the instruction set's token")]

use super::exec::{Frame, Register, execute};
use super::program::Program;
use crate::{Isa, Level};

/// Runs all steps over one chunk with the given instructions.
#[inline]
pub(crate) fn execute_on(isa: Isa, program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) {
    match isa.level() {
        // SAFETY: the token proves that the machine has the features.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { execute_avx512(program, frame, regs) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { execute_avx2(program, frame, regs) },
        _ => execute_portable(program, frame, regs),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn execute_avx512(program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) {
    execute(program, frame, regs);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn execute_avx2(program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) {
    execute(program, frame, regs);
}

fn execute_portable(program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) {
    execute(program, frame, regs);
}
