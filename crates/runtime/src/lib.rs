//! Running graphs: the reference interpreter and the CPU backend.
//!
//! Files and policy are deliberately absent.

mod calls;
mod compile;
pub mod error;
mod kernel;
mod lower;
mod memory;
mod packing;
pub mod plan;
pub mod reference;
pub mod session;
mod steps;

pub use error::{Result, RuntimeError};
pub use plan::{Plan, PlannedKernel};
pub use session::{Options, Session};
