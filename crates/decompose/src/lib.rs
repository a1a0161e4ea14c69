//! Tables of rules and their composition, the driver, reverse mode, raising, and backend targets.
//!
//! Quantization and files are deliberately absent; the rules themselves stand beside their ops in `cleave-ir`.
//!
//! A backend gets its table from the ops that it has. This one has thirty; what else a network calls is broken up
//! until only they are left:
//!
//! ```
//! use cleave_decompose::{Table, Target, decompose, raise};
//! use cleave_ir::{Op, text};
//!
//! const OPS: [&str; 30] = [
//!     "aten.convolution", "aten.mm", "aten.bmm", "aten.addmm", "aten.view", "aten.permute", "aten.unsqueeze",
//!     "aten.expand", "aten.slice.Tensor", "aten.cat", "aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor",
//!     "aten.div.Tensor", "aten.maximum", "aten.minimum", "aten.clamp", "aten.exp", "aten.erf", "aten.tanh", "aten.sqrt",
//!     "aten.rsqrt", "aten.neg", "aten.relu", "aten.mean.dim", "aten.sum.dim_IntList", "aten.amax",
//!     "aten.max_pool2d_with_indices", "aten.full", "getitem",
//! ];
//!
//! struct Toy;
//! impl Target for Toy {
//!     fn name(&self) -> &str { "toy" }
//!     fn table(&self) -> Table { Table::supporting("toy", &OPS).expect("its ops are listed") }
//!     fn quantizer(&self) -> &str { "cpu" }
//!     fn runs_here(&self) -> bool { false }
//!     fn fuses(&self, op: &Op) -> bool { op.base() == "relu" }
//! }
//!
//! let g = text::parse("graph(%x: f32[N, 3, 8, 8]) where 1 <= N {
//!     %w = param \"w\": f32[4, 3, 3, 3]
//!     %m = buffer \"m\": f32[4]
//!     %conv = aten.conv2d(%x, %w)
//!     %bn = aten.batch_norm(%conv, none, none, %m, %m, false, 0.1, 1e-5, false)
//!     %act = aten.hardswish(%bn)
//!     %pooled = aten.adaptive_avg_pool2d(%act, [1, 1])
//!     %flat = aten.flatten.using_ints(%pooled, 1)
//!     return %flat
//! }")?;
//! let lowered = decompose(&raise(&g)?.0, &Toy.table())?;
//! assert!(lowered.nodes().filter_map(|(_, n)| n.op()).all(|op| OPS.contains(&op.short())));
//! assert_eq!(lowered.op_counts()["aten.clamp.default"], 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod backward;
mod driver;
mod error;
mod functional;
pub mod raise;
mod sizes;
mod table;
mod target;

pub use attention::plain_attention;
pub use backward::backward;
pub use driver::decompose;
pub use error::{DecomposeError, Result};
pub use functional::{functionalize, resolve_sizes};
pub use raise::{Trace, raise};
pub use sizes::{has_size_nodes, materialise_dims};
pub use table::{Entry, Table, tables};
pub use target::{Target, target, targets};
