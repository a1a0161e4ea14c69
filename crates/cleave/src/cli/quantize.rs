//! `cleave quantize`: the whole pipeline to a file.

use super::data::{ImageArgs, Part, given_sizes, open};
use super::explain::status;
use super::out::{Out, bytes, decibels, number, peak_rss_mib, progress};
use super::{Choice, RunArgs};
use crate::calibration::{self, Calibration};
use crate::error::{Error, Result};
use crate::metrics::Similarity;
use crate::pipeline::{self, Format, Quantized, Samples, Settings, plan_counts};
use crate::provenance::{Provenance, Source};
use crate::report::Report;
use crate::sensitivity::{Remedy, Sensitivity, remedy, sensitivity};
use crate::table::Table;
use cleave_ir::Graph;
use cleave_quantize::{NonFinite, ObserverKind, PlanRow, Statistics, Status, overflows};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The float model: .pt2 or .onnx.
    model: PathBuf,
    /// Where the quantized model goes: .clv, .onnx or .pt2. An existing file is replaced when all is done.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Calibration data: a folder or file of .npy, .npz, images or .pb. With --stats only the check reads it; a
    /// quantizer that observes nothing needs none.
    #[arg(long, value_name = "DATA")]
    calib: Option<PathBuf>,
    /// Statistics that `cleave calibrate` or --save-stats wrote, in place of calibrating here.
    #[arg(long, value_name = "FILE", conflicts_with = "save_stats")]
    stats: Option<PathBuf>,
    /// Write what calibration learns, too, for --stats.
    #[arg(long, value_name = "FILE")]
    save_stats: Option<PathBuf>,
    /// Samples that are used [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "calib")]
    samples: Option<u32>,
    /// Fix the sizes of symbolic dimensions, as N=1, in what is written: runtimes that plan memory ahead ask for it.
    #[arg(long, value_name = "SYMBOL=SIZE")]
    bind: Vec<String>,
    /// What becomes of the model: int8 quantizes it; fp16 stores its weights as half-precision numbers for arithmetic in
    /// f32, and tells which results in --calib exceed f16; int8,fp16 does the one, then the other with what stays float.
    #[arg(long, value_enum, value_name = "TYPE", value_delimiter = ',', default_value = "int8")]
    dtype: Vec<Dtype>,
    #[command(flatten)]
    choice: Choice,
    /// The observer of activations in place of the quantizer's own: histogram, minmax, percentile:99.9, entropy, mse, …
    #[arg(long, value_name = "NAME", value_parser = ObserverKind::parse)]
    observer: Option<ObserverKind>,
    /// What to do with values that are NaN or infinite: an error, leave out the sample, or leave out the values.
    #[arg(long, value_enum, default_value_t)]
    on_nan: OnNan,
    /// Samples on which float and quantized outputs are compared.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    check: u32,
    /// Write nothing, and say what to leave in float, where an output's SQNR is below this many dB.
    #[arg(long, value_name = "DB", default_value_t = MIN_SQNR, allow_hyphen_values = true)]
    min_sqnr: f64,
    /// Quantize each unit alone, too, and say what that does to the outputs.
    #[arg(long, requires = "calib")]
    sensitivity: bool,
    /// Write a page on how it went: plan, signal to noise, ranges, weights, graph; also where no model is written.
    #[arg(long, value_name = "FILE.html", value_parser = page)]
    report: Option<PathBuf>,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Below this many dB an output has little to do with the float model's.
const MIN_SQNR: f64 = 8.0;

fn page(path: &str) -> std::result::Result<PathBuf, String> {
    let path = PathBuf::from(path);
    let ending = path.extension().and_then(|e| e.to_str());
    if matches!(ending, Some("html" | "htm")) { Ok(path) } else { Err("expected a name that ends in .html".into()) }
}

/// What to do with values that are NaN or infinite.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
pub enum OnNan {
    #[default]
    Error,
    Skip,
    Clip,
}

impl From<OnNan> for NonFinite {
    fn from(v: OnNan) -> NonFinite {
        match v {
            OnNan::Error => NonFinite::Error,
            OnNan::Skip => NonFinite::Skip,
            OnNan::Clip => NonFinite::Clip,
        }
    }
}

/// What weights become.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    Int8,
    Fp16,
}

/// The quantizer that stores weights as f16.
const HALVES: &str = "fp16";

impl Args {
    /// The quantizers that the types ask for.
    fn quantizer(&self, format: Format) -> Result<String> {
        let usage = |why: &str| Err(Error::Usage(format!("--dtype fp16: {why}")));
        let named = self.choice.quantizer(format.quantizer());
        match self.dtype.as_slice() {
            [Dtype::Int8] => Ok(named),
            [Dtype::Fp16] if !self.choice.quantizer.is_empty() => usage(&format!(
                "nothing is quantized, so that --quantizer {named} has no use; --dtype int8,fp16 quantizes by it and \
                 stores as f16 what stays in float"
            )),
            [Dtype::Fp16] if self.observer.is_some() => usage("no range is looked for, so that --observer has no use"),
            [Dtype::Fp16] if self.sensitivity => {
                usage("no unit is quantized, so that --sensitivity has nothing to tell; --dtype int8,fp16 has")
            }
            [Dtype::Fp16] => Ok(HALVES.into()),
            [Dtype::Int8, Dtype::Fp16] | [Dtype::Fp16, Dtype::Int8] => Ok(format!("{named},{HALVES}")),
            _ => Err(Error::Usage("--dtype: a type stands twice; expected int8, fp16 or int8,fp16".into())),
        }
    }
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let start = Instant::now();
    let format = Format::of(&a.output)?;
    // A file that cannot be written is told before the work, not after it.
    for path in [Some(&a.output), a.save_stats.as_ref(), a.report.as_ref()].into_iter().flatten() {
        cleave_formats::atomic::check_writable(path)?;
    }
    if a.calib.is_none() && a.images.given() {
        return Err(Error::other("options for images are for --calib DATA; there is none"));
    }
    let path = a.model.clone();
    let sha256 = std::thread::spawn(move || Source::sha256(&path));
    let mut export = cleave_formats::read(&a.model)?;
    if !a.bind.is_empty() {
        export = cleave_ir::transform::bind(&export, &given_sizes(&export, &a.bind)?)?;
    }
    let read = start.elapsed().as_secs_f64();
    let data = a.calib.as_ref().map(|calib| open(calib, &export, &a.images)).transpose()?;
    let part = match (&data, a.samples) {
        (Some(data), Some(n)) => Some(Part::samples(data, &n.to_string())?),
        (Some(data), None) => Some(Part::all(data)),
        _ => None,
    };
    let settings = Settings {
        quantizer: a.quantizer(format)?,
        observer: a.observer,
        float: a.choice.float.clone(),
        only: a.choice.only.clone(),
        non_finite: a.on_nan.into(),
        check: a.check as usize,
        run: a.run.options()?,
    };
    let (mut q, calibration) = quantized(a, &export, part.as_ref(), &settings)?;
    let mut judged = Judged::default();
    let bad = q.check.least_sqnr() < a.min_sqnr;
    if let (Some(part), true) = (&part, a.sensitivity || bad) {
        judged = judge(a, &export, &q, part, &settings, bad)?;
    }
    if let Some(path) = &a.save_stats {
        calibration.write(path)?;
    }
    let mut seconds = q.seconds.clone();
    seconds.insert_before(0, "read", read);
    q.converted.plan.notes.extend(format.caveat(&q.converted.graph).map(String::from));
    let sha256 = sha256.join().map_err(|_| Error::other("hashing the model panicked"))??;
    let source = Source::new(&calibration.model, sha256);
    let provenance = Provenance::new(source, &q, &settings, calibration.runs.clone());
    let written = if bad {
        Err(Error::other(failure(a, &q, &judged)))
    } else {
        provenance.stamp(&mut q.converted.graph)?;
        let writing = Instant::now();
        let written = pipeline::write_with(&a.output, &q.converted.graph, Some(&q.converted.plan));
        seconds.insert("write", writing.elapsed().as_secs_f64());
        written
    };
    if let Some(path) = &a.report {
        let name = a.output.file_name().unwrap_or(a.output.as_os_str()).to_string_lossy();
        let sizes = || format!("Written as {name}: {} → {}", bytes(size(&a.model)), bytes(size(&a.output)));
        let outcome = written.as_ref().map(|()| sizes()).map_err(ToString::to_string);
        let report = Report { quantized: &q, provenance: &provenance, sensitivity: &judged.ranking, outcome };
        let bar = progress("report", 1);
        let page = report.html()?;
        bar.finish_and_clear();
        cleave_formats::atomic::write_bytes(path, page.as_bytes())?;
    }
    if bad || written.is_ok() {
        report(a, out, &q, &judged, &seconds, bad)?;
    }
    match (written, &a.report) {
        (Ok(()), _) => Ok(true),
        (Err(e), None) if bad => Err(Error::other(format!("nothing was written: {e}"))),
        (Err(e), Some(path)) if bad => Err(Error::other(format!("no model was written, see {}: {e}", path.display()))),
        (Err(e), _) => Err(e),
    }
}

/// What was found out about single units.
#[derive(Default)]
struct Judged {
    ranking: Vec<Sensitivity>,
    remedy: Option<Remedy>,
}

fn judge(a: &Args, export: &Graph, q: &Quantized, part: &Part<'_>, settings: &Settings, bad: bool) -> Result<Judged> {
    let bar = progress("units alone", q.prepared.units.len());
    let ranking = sensitivity(q, part, settings, &mut |n, _| bar.set_position(n as u64));
    bar.finish_and_clear();
    let ranking = ranking?;
    let remedy = match bad {
        true => {
            let bar = progress("what to leave in float", 1);
            let found = remedy(export, q, &ranking, part, settings, a.min_sqnr);
            bar.finish_and_clear();
            found?
        }
        false => None,
    };
    Ok(Judged { ranking, remedy })
}

/// Calibrates, or takes what was learnt before, and quantizes.
fn quantized(
    a: &Args,
    export: &Graph,
    part: Option<&Part<'_>>,
    settings: &Settings,
) -> Result<(Quantized, Calibration)> {
    let given = a.stats.as_ref().map(|path| Calibration::read(path)).transpose()?;
    let model = calibration::identify(&a.model, export);
    let mut ready = pipeline::prepare(export, settings)?;
    let quantizer = ready.annotations.quantizer.clone();
    let of = |learnt, runs| Calibration { model: model.clone(), quantizer: quantizer.clone(), runs, learnt };
    let calibration = match (given, &a.stats, part, &a.calib) {
        (Some(c), Some(path), ..) => {
            c.check(path, &model, &ready)?;
            c
        }
        (_, _, Some(part), Some(calib)) => {
            let bar = progress("calibrating", part.len());
            let done = pipeline::calibrate(&mut ready, part, settings, &mut |_, n, all| {
                bar.set_length(all as u64);
                bar.set_position(n as u64);
            });
            bar.finish_and_clear();
            of(done?, vec![part.run(calib)?])
        }
        _ if !ready.prepared.needs_data() => of(Statistics::new(&ready.prepared).into(), vec![]),
        _ => {
            let why = format!("expected --calib DATA or --stats FILE: '{quantizer}' observes activations");
            return Err(Error::Usage(why));
        }
    };
    let q = pipeline::finish(ready, calibration.learnt.clone(), part, settings)?;
    Ok((q, calibration))
}

fn size(p: &std::path::Path) -> u64 {
    std::fs::metadata(p).map_or(0, |m| m.len())
}

fn report(
    a: &Args,
    out: &mut Out,
    q: &Quantized,
    judged: &Judged,
    seconds: &IndexMap<&'static str, f64>,
    bad: bool,
) -> Result<()> {
    let plan = &q.converted.plan;
    let (all, quantized) = plan_counts(plan);
    let floats: Vec<_> = plan.rows.iter().filter(|r| r.status == Status::Float).collect();
    // Ops without weights are none of its business.
    let halves = plan.quantizer == HALVES;
    let remarkable = |r: &PlanRow| {
        let excluded = r.reason.as_ref().is_some_and(|why| why.starts_with("excluded"));
        excluded || r.unit.is_some() || !r.near_misses.is_empty()
    };
    let told: Vec<_> = floats.iter().filter(|r| !halves || remarkable(r)).collect();
    let (taken, what) = match halves {
        true => (plan.count(Status::Quantized), "with weights stored as f16"),
        false => (quantized, "quantized"),
    };
    out.say(format!(
        "{taken} of {all} compute nodes {what} by '{}'{}",
        plan.quantizer,
        if told.is_empty() { "" } else { "; left in float:" }
    ));
    if !told.is_empty() {
        let mut t = Table::new(&["node", "op", "why"]);
        for r in told {
            t.row([r.node.as_str(), r.op.as_str(), r.reason.as_deref().unwrap_or(status(r.status))]);
        }
        out.say(t.to_string());
    }
    for n in &plan.notes {
        let kind = if n.starts_with("overflow: ") { "warning" } else { "note" };
        out.say(format!("{kind}: {n}"));
    }
    let mut t = Table::new(&["value", ">SQNR", ">cosine", ">max |a-b|"]);
    let cells = |s: &Similarity| [decibels(s.sqnr_db), format!("{:.6}", s.cosine), format!("{:.4e}", s.max_abs)];
    for (name, s) in q.check.outputs.iter().map(|(n, s)| (format!("output {n}"), s)) {
        t.row([name].into_iter().chain(cells(s)));
    }
    for (name, s) in q.check.worst.iter().take(5) {
        t.row([format!("worst: {name}")].into_iter().chain(cells(s)));
    }
    let types = if halves { "fp16" } else { "int8" };
    match q.check.samples {
        0 => out.say(format!("not checked: float and {types} are compared where there is data (--calib)")),
        n => out.say(format!("float beside {types} on {n} calibration samples:\n{t}")),
    }
    if !judged.ranking.is_empty() {
        let mut t = Table::new(&["unit quantized alone", "pattern", ">SQNR"]);
        let shown = if a.sensitivity { judged.ranking.len() } else { 5 };
        for s in judged.ranking.iter().take(shown) {
            t.row([s.node.clone(), s.pattern.clone(), decibels(s.sqnr_db)]);
        }
        out.say(t.to_string());
    }
    let stages: Vec<String> = seconds.iter().map(|(s, t)| format!("{s} {t:.2} s")).collect();
    if bad {
        out.say(format!("{}; {}", bytes(size(&a.model)), stages.join(", ")));
    } else {
        out.say(format!("{} → {}; {}", bytes(size(&a.model)), bytes(size(&a.output)), stages.join(", ")));
        out.say(format!("wrote {}", a.output.display()));
    }
    if let Some(path) = &a.report {
        out.say(format!("wrote {} ({})", path.display(), bytes(size(path))));
    }
    let figures = |rows: &[(String, Similarity)]| -> Vec<Value> {
        rows.iter().map(|(n, s)| json!({"name": n, "sqnr_db": number(s.sqnr_db), "cosine": number(s.cosine), "max_abs": number(s.max_abs)})).collect()
    };
    let float: Vec<Value> = floats.iter().map(|r| json!({"node": r.node, "op": r.op, "reason": r.reason})).collect();
    let worst = &q.check.worst[..q.check.worst.len().min(10)];
    out.document(&json!({
        "output": if bad { None } else { Some(&a.output) }, "bytes_in": size(&a.model),
        "bytes_out": if bad { None } else { Some(size(&a.output)) },
        "plan": {"compute_nodes": all, "quantized": quantized, "float": float, "notes": plan.notes},
        "overflow": overflows(&q.prepared, q.used_statistics()),
        "check": {"samples": q.check.samples, "outputs": figures(&q.check.outputs), "worst": figures(worst), "gains": q.check.gains},
        "sensitivity": judged.ranking, "remedy": judged.remedy, "report": a.report,
        "seconds": seconds, "peak_rss_mib": peak_rss_mib(),
    }))
}

/// Why there is no file, and what to do.
fn failure(a: &Args, q: &Quantized, judged: &Judged) -> String {
    let (name, db) = q.check.worst_output().unwrap_or(("", 0.0));
    let what = format!("output {name} has {}, less than --min-sqnr {}", decibels(db), a.min_sqnr);
    let harm = judged
        .ranking
        .first()
        .map_or(String::new(), |s| format!("; unit {} alone brings the outputs to {}", s.node, decibels(s.sqnr_db)));
    let mend = match &judged.remedy {
        Some(r) => {
            let floats: Vec<String> = r.float.iter().map(|n| format!("--float node:{n}")).collect();
            format!("leave in float what does the harm, for {}: {}", decibels(r.sqnr_db), floats.join(" "))
        }
        None => "no small part of it left in float would do; see --sensitivity, --observer and other quantizers".into(),
    };
    format!("{what}{harm}; {mend}")
}
