//! `cleave calibrate`: statistics of a model on some samples as a file, and files of shards merged.

use super::data::{ImageArgs, Part, open};
use super::out::{Out, bytes, peak_rss_mib, progress};
use super::quantize::OnNan;
use super::{Choice, RunArgs};
use crate::calibration::{self, Calibration};
use crate::error::{Error, Result};
use crate::pipeline::{self, Samples, Settings};
use crate::table::Table;
use cleave_quantize::ObserverKind;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    one: One,
}

#[derive(clap::Subcommand, Debug)]
enum Action {
    /// Merge statistics of several parts of the data into one file.
    Merge {
        /// Files that `cleave calibrate` wrote.
        #[arg(required = true, num_args = 1..)]
        files: Vec<PathBuf>,
        /// Where the merged statistics go.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

#[derive(clap::Args, Debug)]
struct One {
    /// The float model: .pt2 or .onnx.
    #[arg(required = true)]
    model: Option<PathBuf>,
    /// Where the statistics go.
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    /// Calibration data: a folder or file of .npy, .npz, images or .pb.
    #[arg(long, value_name = "DATA", required = true)]
    calib: Option<PathBuf>,
    /// The part of the data with this number of so many: 1/8 to 8/8.
    #[arg(long, value_name = "I/N", conflicts_with = "samples")]
    shard: Option<String>,
    /// The first N samples, or those from A up to, but not with, B [default: all].
    #[arg(long, value_name = "N|A..B")]
    samples: Option<String>,
    #[command(flatten)]
    choice: Choice,
    /// The observer of activations in place of the quantizer's own.
    #[arg(long, value_name = "NAME", value_parser = ObserverKind::parse)]
    observer: Option<ObserverKind>,
    /// What to do with values that are NaN or infinite: an error, leave out the sample, or leave out the values.
    #[arg(long, value_enum, default_value_t)]
    on_nan: OnNan,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    match &a.action {
        Some(Action::Merge { files, output }) => {
            cleave_formats::atomic::check_writable(output)?;
            let all = Calibration::merge_files(files)?;
            finish(&all, output, out)
        }
        None => calibrate(&a.one, out),
    }
}

fn calibrate(a: &One, out: &mut Out) -> Result<bool> {
    // They are optional for merge's sake only.
    let (Some(model), Some(output), Some(calib)) = (&a.model, &a.output, &a.calib) else {
        return Err(Error::other("expected a model, --calib and --output"));
    };
    cleave_formats::atomic::check_writable(output)?;
    let export = cleave_formats::read(model)?;
    let data = open(calib, &export, &a.images)?;
    let settings = Settings {
        quantizer: a.choice.quantizer("cpu"),
        observer: a.observer,
        float: a.choice.float.clone(),
        only: a.choice.only.clone(),
        non_finite: a.on_nan.into(),
        run: a.run.options()?,
        ..Settings::default()
    };
    let mut ready = pipeline::prepare(&export, &settings)?;
    let step = pipeline::batch_size(&ready.prepared.graph);
    let part = match (&a.shard, &a.samples) {
        (Some(shard), _) => Part::shard(&data, shard, step)?,
        (_, Some(samples)) => Part::samples(&data, samples)?,
        _ => Part::all(&data),
    };
    let model = calibration::identify(model, &export);
    let run = part.run(calib)?;
    let bar = progress("calibrating", part.len());
    let done = pipeline::calibrate(&mut ready, &part, &settings, &mut |_, n, _| bar.set_position(n as u64));
    bar.finish_and_clear();
    let c = Calibration::new(model, &ready.annotations.quantizer, run, done?);
    finish(&c, output, out)
}

fn finish(c: &Calibration, output: &std::path::Path, out: &mut Out) -> Result<bool> {
    c.write(output)?;
    let size = std::fs::metadata(output).map_or(0, |m| m.len());
    let (s, groups) = (&c.learnt.statistics, c.learnt.statistics.observed.len());
    out.say(format!("{} samples of {} for '{}': {groups} ranges", s.samples, c.model.name, c.quantizer));
    let mut t = Table::new(&["data", ">from", ">to", ">of"]);
    for r in &c.runs {
        t.row([r.data.name.clone(), r.from.to_string(), r.to.to_string(), r.of.to_string()]);
    }
    out.say(t.to_string());
    if s.skipped > 0 {
        out.say(format!("{} samples were left out for NaN or infinities", s.skipped));
    }
    out.say(format!("wrote {} ({})", output.display(), bytes(size)));
    let runs: Vec<Value> =
        c.runs.iter().map(|r| json!({"data": r.data.name, "from": r.from, "to": r.to, "of": r.of})).collect();
    out.document(&json!({
        "output": output, "model": c.model.name, "hash": format!("{:016x}", c.model.hash), "quantizer": c.quantizer,
        "samples": s.samples, "skipped": s.skipped, "ranges": groups, "runs": runs, "bytes": size,
        "peak_rss_mib": peak_rss_mib(),
    }))?;
    Ok(true)
}
