//! `cleave bench`: latency of a model.

use super::out::{Out, peak_rss_mib, progress};
use super::{RunArgs, data};
use crate::error::Result;
use crate::metrics::median;
use crate::model::read_runnable;
use crate::table::Table;
use cleave_runtime::Session;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model: .clv, .onnx or .pt2.
    model: PathBuf,
    /// Runs that are measured.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Sizes of symbolic dimensions, as N=1; what is not named is 1.
    #[arg(long, value_name = "SYMBOL=SIZE")]
    bind: Vec<String>,
    /// Print the time of each kernel.
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let options = a.run.options()?;
    let g = read_runnable(&a.model)?;
    let inputs = data::noise(&g, &data::bindings(&g, &a.bind)?)?;
    let mut session = Session::new(&g, options)?;
    let shapes: Vec<_> = inputs.iter().map(|t| t.shape().to_vec()).collect();
    for _ in 0..5 {
        session.run(&inputs)?;
    }
    let bar = progress("measuring", a.runs as usize);
    let mut times = vec![];
    for _ in 0..a.runs {
        let start = Instant::now();
        session.run(&inputs)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let plan = session.plan(&shapes)?;
    let min = times.iter().copied().fold(f64::INFINITY, f64::min);
    out.say(format!(
        "{}: median {:.3} ms, least {min:.3} ms over {} runs, {} thread(s), {}, {} kernels, peak {:.0} MiB",
        a.model.display(),
        median(&times),
        a.runs,
        options.threads,
        options.isa.level().name(),
        plan.kernels.len(),
        peak_rss_mib()
    ));
    let mut profile = vec![];
    if a.profile {
        let mut table = Table::new(&["kernel", "code", "shape", ">µs", ">%"]);
        let mut runs = vec![];
        for _ in 0..a.runs.min(20) {
            runs.push(session.profile(&inputs)?);
        }
        let micros: Vec<f64> = (0..plan.kernels.len())
            .map(|i| median(&runs.iter().filter_map(|r| r.get(i)).map(|d| d.as_secs_f64() * 1e6).collect::<Vec<_>>()))
            .collect();
        let total: f64 = micros.iter().sum();
        for (k, us) in plan.kernels.iter().zip(&micros) {
            table.row([
                k.name.clone(),
                k.kernel.clone(),
                format!("{:?}", k.shape),
                format!("{us:.1}"),
                format!("{:.1}", us / total * 100.0),
            ]);
            profile.push(json!({"kernel": k.name, "code": k.kernel, "shape": k.shape, "us": us}));
        }
        out.say(table.to_string());
    }
    let mut document = json!({
        "median_ms": median(&times), "min_ms": min, "runs": a.runs, "threads": options.threads, "backend": "cpu",
        "isa": options.isa.level().name(), "kernels": plan.kernels.len(), "peak_rss_mib": peak_rss_mib(),
    });
    if a.profile {
        document["profile"] = profile.into();
    }
    out.document(&document)?;
    Ok(true)
}
