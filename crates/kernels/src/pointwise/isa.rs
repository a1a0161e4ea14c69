//! The body of [`exec`](super::exec) compiled for each instruction set.

use super::exec::{Frame, Register, execute};
use super::program::Program;
use crate::versions::versions;

versions! {
    /// Runs all steps over one chunk with the given instructions.
    pub(crate) fn execute_on(program: &Program, frame: &Frame<'_, '_>, regs: &mut [Register]) => execute
}
