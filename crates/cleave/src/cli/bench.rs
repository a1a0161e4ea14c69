//! `cleave bench`: latency of a model.

use super::out::{Out, bytes, peak_rss_mib, progress};
use super::{RunArgs, data};
use crate::error::Result;
use crate::metrics::median;
use crate::model::read_runnable;
use crate::table::Table;
use cleave_kernels::limit;
use cleave_runtime::Session;
use serde_json::{Value, json};
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

/// Multiply-accumulates in millions.
pub fn mega(macs: u64) -> String {
    format!("{:.3}", macs as f64 / 1e6)
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
    let (mut profile, mut limit) = (vec![], None);
    if a.profile {
        limit = limit::measure(options.isa);
        let limit_of = |code: &str| limit.map(|l| if code.contains("u8s8") { l.int8 } else { l.f32 });
        let mut table =
            Table::new(&["kernel", "code", "shape", ">µs", ">%", ">moved", ">MMAC", ">GMAC/s", ">of limit"]);
        let mut runs = vec![];
        for _ in 0..a.runs.min(20) {
            runs.push(session.profile(&inputs)?);
        }
        let micros: Vec<f64> = (0..plan.kernels.len())
            .map(|i| median(&runs.iter().filter_map(|r| r.get(i)).map(|d| d.as_secs_f64() * 1e6).collect::<Vec<_>>()))
            .collect();
        let total: f64 = micros.iter().sum();
        for (k, us) in plan.kernels.iter().zip(&micros) {
            let rate = k.macs as f64 / us / 1e3;
            let share = limit_of(&k.kernel).map(|l| rate * 1e9 / l / options.threads as f64);
            let (work, speed, share_of) = match share {
                _ if k.macs == 0 => (String::new(), String::new(), String::new()),
                Some(s) => (mega(k.macs), format!("{rate:.0}"), format!("{:.0} %", s * 100.0)),
                None => (mega(k.macs), format!("{rate:.0}"), String::new()),
            };
            let moved = k.reads + k.bytes;
            table.row([
                k.name.clone(),
                k.kernel.clone(),
                format!("{:?}", k.shape),
                format!("{us:.1}"),
                format!("{:.1}", us / total * 100.0),
                bytes(moved as u64),
                work,
                speed,
                share_of,
            ]);
            profile.push(json!({
                "kernel": k.name, "code": k.kernel, "shape": k.shape, "us": us, "bytes": moved, "macs": k.macs,
                "of_limit": share.filter(|_| k.macs > 0),
            }));
        }
        let accounted = total / 1e3 / median(&times) * 100.0;
        out.say(format!("{table}kernels account for {accounted:.0} % of the median run"));
        if let Some(l) = limit {
            let (int8, f32) = (l.int8 / 1e9, l.f32 / 1e9);
            out.say(format!(
                "limit of a core, measured by loops over registers: {int8:.0} GMAC/s int8, {f32:.0} GMAC/s f32"
            ));
            if plan.kernels.iter().any(|k| ["winograd", "octets"].iter().any(|short| k.kernel.contains(short))) {
                out.say("codes with winograd or octets in their name multiply less or faster, and may pass it");
            }
        }
    }
    let mut document = json!({
        "median_ms": median(&times), "min_ms": min, "runs": a.runs, "threads": options.threads, "backend": "cpu",
        "isa": options.isa.level().name(), "kernels": plan.kernels.len(), "peak_rss_mib": peak_rss_mib(),
    });
    if a.profile {
        document["profile"] = profile.into();
        document["limit"] = limit.map_or(Value::Null, |l| json!({"int8_macs_per_s": l.int8, "f32_macs_per_s": l.f32}));
    }
    out.document(&document)?;
    Ok(true)
}
