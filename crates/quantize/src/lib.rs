//! Quantizers read from pattern files or written in Rust, specs, observers, prepare, calibrate, convert.
//!
//! ```text
//! graph ── annotate(quantizer) ──▶ Annotations     units, specs of their edges, why not
//!       ── prepare ──────────────▶ Prepared        batch norm folded, groups of values to observe
//!       ── calibrate(samples) ───▶ Statistics      streamed; a group's memory does not grow
//!       ── convert ──────────────▶ Converted       quantize/dequantize in, weights folded, the plan
//! ```
//!
//! Every stage returns a new value. Running a graph is deliberately absent: whoever can run one implements
//! [`Evaluator`].

mod annotate;
mod annotations;
mod calibrate;
mod check;
mod composed;
mod convert;
mod correct;
mod equalize;
mod error;
mod file;
mod fold;
mod mask;
mod notes;
pub mod observe;
mod plan;
mod prepare;
mod quantizer;
mod select;
mod settle;
mod spec;
mod weights;

pub use annotate::{Annotator, annotate};
pub use annotations::{Annotations, Float, Input, Unit};
pub use calibrate::{
    BoxError, CalibrateOptions, Evaluator, NonFinite, Observed, Overflow, Statistics, calibrate,
    calibrate_side_by_side, depends_on_order, overflows,
};
pub use composed::{Composed, load, load_observing};
pub use convert::{Converted, convert, convert_alone};
pub use correct::{ChannelSums, correct_biases};
pub use equalize::equalize;
pub use error::{QuantizeError, Result};
pub use plan::{MissRow, Plan, PlanRow, QParamsRow, Status};
pub use prepare::{Group, GroupId, Prepared, prepare};
pub use quantizer::{BUILT_IN, Override, PatternTest, Quantizer, TomlQuantizer, UnitPattern};
pub use select::{Selection, Selector};
pub use spec::{LEAST_SCALE, ObserverKind, Scheme, Spec, SpecId};
