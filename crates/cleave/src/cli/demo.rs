//! `cleave demo`: the whole pipeline on the embedded model, stage by stage.

use super::RunArgs;
use super::diff::stages_table;
use super::explain::overview;
use super::out::{Out, bytes, progress};
use crate::backend::{Backend, run_batched};
use crate::demo;
use crate::error::{Error, Result};
use crate::metrics::{median, top1};
use crate::pipeline::{self, Quantized, Settings, write, write_with};
use crate::table::Table;
use cleave_decompose::{Table as Rules, decompose};
use cleave_ir::text::Printer;
use cleave_ir::{Graph, Tensor};
use cleave_runtime::{Options, Session};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Where the models go that it makes: a folder, created if it is not there.
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let options = a.run.options()?;
    let export = demo::model()?;
    out.say("TinyConvNet trained on Fashion-MNIST: .pt2 in, int8 out\n");
    let calibration = [demo::calibration(128)];
    let settings = Settings { run: options, ..Settings::default() };
    let bar = progress("calibrating", 128);
    let q = pipeline::quantize(&export, calibration.as_slice(), &settings, &mut |_, n, _| bar.set_position(n as u64));
    bar.finish_and_clear();
    let q = q?;
    let (empty, core) = (decompose(&export, &Rules::named("empty")?)?, decompose(&export, &Rules::named("core")?)?);
    let cpu = pipeline::lower(&q.converted.graph)?;
    stages(
        out,
        &[
            ("export", &export),
            ("raised", &q.raised),
            ("prepared", &q.prepared.graph),
            ("converted", &q.converted.graph),
            ("cpu", &cpu),
        ],
    );
    out.say(format!(
        "How far a table breaks the exported graph down (ops):\n{}",
        stages_table(&[("export", &export), ("empty", &empty), ("core", &core)])
    ));
    let comment = |id| q.annotations.comment(id);
    out.say(format!("Annotated before anything is decomposed:\n{}", Printer::with_comments(&comment).print(&q.raised)));
    out.flush()?;

    let float = measure(&q.raised, options)?;
    let int8 = measure(&q.converted.graph, options)?;
    let kernels = pipeline::kernels(&q.converted.graph, &[vec![1, 1, 28, 28]], options)?;
    let kernel = |r: &cleave_quantize::PlanRow| kernels.nodes.get(&r.node).cloned();
    out.say(format!("The plan:\n{}\n", overview(&q.converted.plan, &kernel)));
    results(out, &float, &int8, options);
    let written = match &a.output {
        Some(folder) => files(folder, &q)?,
        None => vec![],
    };
    for (path, size) in &written {
        out.say(format!("wrote {} ({})", path.display(), bytes(*size)));
    }
    out.document(&json!({
        "stages": {"export": export.len(), "raised": q.raised.len(), "prepared": q.prepared.graph.len(), "converted": q.converted.graph.len(), "cpu": cpu.len()},
        "top1_float": float.accuracy, "top1_int8": int8.accuracy,
        "median_ms_float": float.ms, "median_ms_int8": int8.ms, "threads": options.threads,
        "plan": q.converted.plan, "written": written.iter().map(|w| &w.0).collect::<Vec<_>>(),
    }))?;
    Ok(true)
}

fn stages(out: &mut Out, stages: &[(&str, &Graph)]) {
    let mut t = Table::new(&["stage", ">nodes", ">calls"]);
    for (name, g) in stages {
        t.row([(*name).to_string(), g.len().to_string(), g.op_counts().values().sum::<usize>().to_string()]);
    }
    out.say(format!("Stages:\n{t}"));
}

/// How well and how fast a model is.
struct Measured {
    /// Share of the test images whose class is right.
    accuracy: f64,
    /// Median of one image, in milliseconds.
    ms: f64,
}

fn measure(g: &Graph, options: Options) -> Result<Measured> {
    let images = demo::test_images(1000);
    let mut backend = Backend::new("cpu", g, options)?;
    let logits = run_batched(g, &mut backend, std::slice::from_ref(&images), &mut |_, _| {})?;
    let classes = logits.first().ok_or_else(|| Error::other("the model has no output"))?.to_f32();
    let labels = demo::test_labels();
    let right = classes
        .chunks(classes.len() / labels.len())
        .zip(labels)
        .filter(|(row, l)| top1(row) == usize::from(**l))
        .count();
    let mut session = Session::new(g, options)?;
    let one: [Tensor; 1] = [images.narrow(0, 0, 1)];
    let mut times = vec![];
    for i in 0..120 {
        let start = Instant::now();
        session.run(&one)?;
        if i >= 20 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(Measured { accuracy: right as f64 / labels.len() as f64, ms: median(&times) })
}

fn results(out: &mut Out, float: &Measured, int8: &Measured, options: Options) {
    let mut t = Table::new(&["", ">top-1 of 1,000", ">median latency"]);
    for (name, m) in [("float", float), ("int8", int8)] {
        t.row([name.to_string(), format!("{:.1} %", m.accuracy * 100.0), format!("{:.3} ms", m.ms)]);
    }
    out.say(format!("{t}{} thread(s), {}", options.threads, options.isa.level().name()));
}

/// Writes the float program and the quantized model in each format.
fn files(folder: &std::path::Path, q: &Quantized) -> Result<Vec<(PathBuf, u64)>> {
    std::fs::create_dir_all(folder).map_err(|e| Error::other(format!("{}: {e}", folder.display())))?;
    let path = |name: &str| folder.join(name);
    cleave_formats::atomic::write_bytes(&path("tiny_fashion.pt2"), demo::model_bytes())?;
    write_with(&path("tiny_fashion_int8.clv"), &q.converted.graph, Some(&q.converted.plan))?;
    write(&path("tiny_fashion_int8.onnx"), &q.converted.graph)?;
    write(&path("tiny_fashion_int8.pt2"), &q.converted.graph)?;
    let names = ["tiny_fashion.pt2", "tiny_fashion_int8.clv", "tiny_fashion_int8.onnx", "tiny_fashion_int8.pt2"];
    Ok(names.iter().map(|n| (path(n), std::fs::metadata(path(n)).map_or(0, |m| m.len()))).collect())
}
