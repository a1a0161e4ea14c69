//! The text form of a graph: what `show` prints and tests are written in.
//!
//! ```text
//! graph(%x: f32[N, 1, 28, 28]) where 1 <= N <= 1024 with quantize = "divide" {
//!   %w = param "stem.0.weight": f32[16, 1, 3, 3]
//!   %conv2d = aten.conv2d(%x, %w, none, [1, 1], [1, 1]): f32[N, 16, 28, 28]
//!   return %conv2d
//! }
//! ```
//! A graph that is an argument stands there as it would stand alone. Arguments at their defaults are left out at the end. The values of constants are not part of the text:
//! a parsed graph has zeros. Names for the outside that differ from the node's stand in quotes behind it.

mod parse;
mod print;

pub use parse::parse;
pub use print::{Printer, arg_text, meta_text, node_text};
