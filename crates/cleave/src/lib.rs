//! Cleave: quantize while the semantic operators are whole, then let the backend choose how far to break them down.
//!
//! ```text
//!  .pt2 ┐                                                             ┌─▶ .onnx (QDQ)
//!  .onnx├─ read ─▶ raise ─▶ annotate ─▶ prepare ─▶ calibrate ─▶ convert┼─▶ .pt2 (QDQ)
//!  .clv ┘                                                      │      └─▶ .clv
//!                                             decompose ─▶ fuse ─▶ plan ─▶ run
//! ```
//!
//! The stages are functions of the crates that this one ties together; [`pipeline::quantize`] runs them in order.
//!
//! ```
//! use cleave::demo;
//! use cleave::pipeline::{Settings, quantize};
//!
//! let model = demo::model()?;
//! let samples = [demo::calibration(16)];
//! let q = quantize(&model, samples.as_slice(), &Settings::default(), &mut |_, _, _| {})?;
//! assert_eq!(q.converted.plan.count(cleave_quantize::Status::Float), 0);
//! # Ok::<(), cleave::Error>(())
//! ```

pub mod backend;
pub mod calibration;
pub mod chain;
pub mod cli;
pub mod conformance;
pub mod demo;
pub mod describe;
pub mod dot;
pub mod draw;
pub mod error;
pub mod focus;
pub mod metrics;
pub mod model;
pub mod outline;
pub mod patterns;
pub mod pipeline;
pub mod provenance;
pub mod sensitivity;
pub mod sizes;
pub mod snapshot;
pub mod stage;
pub mod summary;
pub mod table;
pub mod text;

pub use error::{Error, Result};
