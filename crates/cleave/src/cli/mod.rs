//! The command line: one file a command. Exit status: 0 done, 1 the work failed or a comparison did not hold,
//! 2 wrong usage.

mod bench;
mod calibrate;
mod compare;
mod data;
mod decompose;
mod demo;
mod diff;
mod explain;
mod lists;
mod out;
mod patterns;
mod quantize;
mod run;
mod show;
mod snapshot;
mod test;

use crate::error::{Error, Result};
use crate::stage::Model;
use clap::{Parser, Subcommand};
use cleave_kernels::Isa;
use cleave_runtime::Options;
use out::Out;
use std::io::Write;
use std::process::ExitCode;

/// Quantizes a trained model (.pt2 or .onnx) while its semantic operators are whole, then runs or exports it.
#[derive(Parser, Debug)]
#[command(name = "cleave", version, about, max_term_width = 110)]
struct Cli {
    /// Print one JSON document on standard output.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the whole pipeline on the embedded model and data, and print each stage.
    Demo(demo::Args),
    /// Quantize a model with calibration data and write .clv, .onnx or .pt2.
    Quantize(quantize::Args),
    /// Write what calibration learns of a model to a file, or merge such files.
    Calibrate(calibrate::Args),
    /// Show a model at a stage: a summary, its graph as text, JSON, DOT or drawing, or the plan of its kernels.
    Show(show::Args),
    /// Compare the op counts of two stages of a model, or of two models.
    Diff(diff::Args),
    /// Say for every compute node which pattern quantizes it and which kernel runs it, or why not.
    Explain(explain::Args),
    /// Break a model down as a table says, and write it.
    Decompose(decompose::Args),
    /// List the decomposition tables, or print one with its reasons.
    Tables(lists::TablesArgs),
    /// List the op vocabulary.
    Ops(lists::OpsArgs),
    /// List quantizers and their patterns, or check a quantizer file.
    Patterns(patterns::Args),
    /// Keep a model's annotated graph under test as a text file.
    Snapshot(snapshot::Args),
    /// Run a model on arrays and write its outputs.
    Run(run::Args),
    /// Compare two models on data: signal to noise, cosine, top-1.
    Compare(compare::Args),
    /// Run recorded cases: folders with a model, inputs and outputs.
    Test(test::Args),
    /// Measure a model's latency.
    Bench(bench::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).try_init();
    let mut out = Out::new(cli.json);
    let done = match &cli.command {
        Command::Demo(a) => demo::run(a, &mut out),
        Command::Quantize(a) => quantize::run(a, &mut out),
        Command::Calibrate(a) => calibrate::run(a, &mut out),
        Command::Show(a) => show::run(a, &mut out),
        Command::Diff(a) => diff::run(a, &mut out),
        Command::Explain(a) => explain::run(a, &mut out),
        Command::Decompose(a) => decompose::run(a, &mut out),
        Command::Tables(a) => lists::tables(a, &mut out),
        Command::Ops(a) => lists::ops(a, &mut out),
        Command::Patterns(a) => patterns::run(a, &mut out),
        Command::Snapshot(a) => snapshot::run(a, &mut out),
        Command::Run(a) => run::run(a, &mut out),
        Command::Compare(a) => compare::run(a, &mut out),
        Command::Test(a) => test::run(a, &mut out),
        Command::Bench(a) => bench::run(a, &mut out),
    };
    let done = done.and_then(|ok| out.flush().map(|()| ok));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(Error::Broken) => ExitCode::SUCCESS,
        Err(e) => {
            // Standard error may be closed as well; there is nobody left to tell then.
            let _ = writeln!(std::io::stderr(), "error: {e}");
            ExitCode::from(if matches!(e, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

/// By what a command quantizes, and which units.
#[derive(clap::Args, Debug, Clone)]
struct Choice {
    /// The quantizer, a built-in name or a file; a further one takes what those before left
    /// [default: cpu, or as the output's name asks: onnx for .onnx, xnnpack for .pt2].
    #[arg(long, value_name = "NAME|FILE")]
    quantizer: Vec<String>,
    /// Leave these nodes in float: an op, node, module glob or pattern.
    #[arg(long, value_name = "SELECTOR")]
    float: Vec<String>,
    /// Quantize these units and no others: an op, node, module glob or pattern.
    #[arg(long, value_name = "SELECTOR")]
    only: Vec<String>,
}

impl Choice {
    fn quantizer(&self, default: &str) -> String {
        if self.quantizer.is_empty() { default.into() } else { self.quantizer.join(",") }
    }

    fn is_given(&self) -> bool {
        !(self.quantizer.is_empty() && self.float.is_empty() && self.only.is_empty())
    }

    /// The model, to be annotated so.
    fn of(&self, model: Model) -> Model {
        model.with_quantizer(&self.quantizer("cpu"), &self.float).with_only(&self.only)
    }
}

/// How a command runs models.
#[derive(clap::Args, Debug, Clone)]
struct RunArgs {
    /// Threads to run on [default: all cores].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
}

impl RunArgs {
    /// Instruction set from `CLEAVE_ISA`, threads as asked or one for each core.
    fn options(&self) -> Result<Options> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Options { isa: Isa::from_env().map_err(Error::Other)?, threads: self.threads.map_or(cores, usize::from) })
    }
}
