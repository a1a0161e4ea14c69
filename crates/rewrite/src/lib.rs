//! Pattern language, matcher, driver, and the trace of what fired or declined and why.
//!
//! A pattern is a call-style expression: `act?(batch_norm?(conv(x, w, b?)))`. The crate knows no op by
//! name; what it knows of ops (overloads, classes, commutativity, defaults to be held) it reads from their
//! records. What a match is used for is its caller's business: `quantize` makes units of it, `decompose`
//! raises spelled-out ops with rules.
//!
//! | written | means |
//! |---|---|
//! | `relu(x)` | a call of any functional overload of `relu`; its argument is captured as `x` |
//! | `x` … `x` | the same value in both places |
//! | `_` | any argument, not captured |
//! | `x?` | an argument that may be absent |
//! | `name:relu(x)` | the matched node is labelled `name`; without a label it has the op's (alternative's) name |
//! | `relu?(p)` | `relu` around `p`, or `p` alone |
//! | `conv(x, w)` with `any.conv = ["conv1d", "conv2d"]` | alternatives |
//! | `pointwise(x)`, `view(x)`, … | any op of a class |
//! | `pointwise*(p, extras…)` | a chain, of any length, of single-use ops that ends in `p`; its other operands |
//! | `cat([xs…])`, `cat([x, ys…])` | a list |
//! | `clamp(x, 0, 6)` | numbers within 1e-6 relative; constants of one element count as numbers |
//! | `softmax(x, dim=-1)` | an argument by name; `none`, `true`, `false` and `'text'` are literals |
//! | `attention(..)` | whatever the other arguments are, even those that the record holds to their default |
//!
//! Where an op's record says that two operands may be exchanged, both orders are tried, and a call in the
//! pattern meets the later operand first. A call also matches through `getitem 0`.

mod driver;
mod error;
mod matcher;
mod parse;
mod pattern;
mod predicate;

pub use driver::{AdmitFn, Applied, Bound, Declined, Rule, Trace, rewrite, rewrite_admitted};
pub use error::{NearMiss, PatternError};
pub use matcher::{Edge, Match, user_count};
pub use pattern::{Alternatives, Pattern};
pub use predicate::{PREDICATES, PredicateDoc};
