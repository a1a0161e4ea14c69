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
//! Read, annotate by a TOML file, calibrate from an iterator of tensors, convert, write, run:
//!
//! ```
//! use cleave::pipeline::{self, Settings};
//! # let dir = tempfile::tempdir().unwrap();
//! # let [file, toml, output] = ["model.onnx", "mine.toml", "model.clv"].map(|n| dir.path().join(n));
//! # pipeline::write(&file, &cleave::demo::model()?)?;
//! # std::fs::write(&toml, "[quantizer]\nname = \"mine\"\nextends = \"cpu\"\n").unwrap();
//! # let images = cleave::demo::calibration(16);
//! let model = cleave_formats::read(&file)?;
//! let quantizer = cleave_quantize::TomlQuantizer::load(&toml.to_string_lossy())?; // or any `Quantizer` in Rust
//! let samples: Vec<_> = (0..16).map(|i| vec![images.narrow(0, i, 1)]).collect(); // the inputs of each sample
//! let q = pipeline::quantize_by(&quantizer, &model, &samples[..], &Settings::default(), &mut |_, _, _| {})?;
//! assert!(q.check.least_sqnr() > 25.0, "{:?}", q.check.worst);
//! pipeline::write_with(&output, &q.converted.graph, Some(&q.converted.plan))?;
//! let mut session = cleave_runtime::Session::new(&cleave_formats::read(&output)?, Default::default())?;
//! let y = session.run(&samples[0])?;
//! assert_eq!(y[0].shape(), [1, 10]);
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
pub mod report;
pub mod sensitivity;
pub mod sizes;
pub mod snapshot;
pub mod stage;
pub mod summary;
pub mod table;
pub mod text;

pub use error::{Error, Result};
