//! Tables of rules and their composition, the driver, raising, and backend targets.
//!
//! Quantization and files are deliberately absent; the rules themselves stand beside their ops in `cleave-ir`.

mod driver;
mod error;
mod functional;
pub mod raise;
mod sizes;
mod table;
mod target;

pub use driver::decompose;
pub use error::{DecomposeError, Result};
pub use functional::{functionalize, resolve_sizes};
pub use raise::{Trace, raise};
pub use sizes::{has_size_nodes, materialise_dims};
pub use table::{Entry, Table, tables};
pub use target::{Target, target, targets};
