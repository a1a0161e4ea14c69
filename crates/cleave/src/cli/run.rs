//! `cleave run`: a model on arrays.

use super::RunArgs;
use super::out::{Out, progress};
use crate::backend::{Backend, run_batched};
use crate::error::{Error, Result};
use crate::model::{input_names, read_for};
use crate::table::Table;
use cleave_formats::npy;
use cleave_ir::Tensor;
use indexmap::IndexMap;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model: .clv, .onnx or .pt2.
    model: PathBuf,
    /// An input: x.npy, or name=x.npy where the model has several; .npz files hold inputs by name.
    #[arg(long, required = true, value_name = "[NAME=]FILE")]
    input: Vec<String>,
    /// Where the outputs go, by name: .npz, or .npy for a model with one output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// cpu, or reference: the slow and exact interpreter.
    #[arg(long, default_value = "cpu")]
    backend: String,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let (g, inputs) = if a.model.extension().is_some_and(|e| e == "onnx") {
        // Values may decide how the model is read; those that did are no inputs any more.
        let names = input_names(&a.model)?;
        let values: Vec<(String, Tensor)> = names.iter().cloned().zip(inputs(&names, &a.input)?).collect();
        let g = read_for(&a.model, &values)?;
        let left = values.into_iter().filter(|(n, _)| g.input_names.contains(n)).map(|(_, t)| t).collect();
        (g, left)
    } else {
        let g = read_for(&a.model, &[])?;
        let inputs = inputs(&g.input_names, &a.input)?;
        (g, inputs)
    };
    let mut backend = Backend::new(&a.backend, &g, a.run.options()?)?;
    let bar = progress("running", 1);
    let results = run_batched(&g, &mut backend, &inputs, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let results = results?;
    let named: IndexMap<String, Tensor> = g.output_names.iter().cloned().zip(results).collect();
    if let Some(path) = &a.output {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npz") => npy::write_npz(path, &named)?,
            Some("npy") if named.len() == 1 => npy::write_npy(path, &named[0])?,
            Some("npy") => {
                return Err(Error::other(format!(
                    "{}: the model has {} outputs; write .npz",
                    path.display(),
                    named.len()
                )));
            }
            _ => return Err(Error::other(format!("{}: expected a name that ends in .npz or .npy", path.display()))),
        }
    }
    let mut table = Table::new(&["output", "type", "shape", ">least", ">mean", ">greatest"]);
    let mut rows = vec![];
    for (name, t) in &named {
        let v = t.to_f64();
        let mean = v.iter().sum::<f64>() / v.len().max(1) as f64;
        let (lo, hi) = v.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(*x), h.max(*x)));
        table.row([
            name.clone(),
            t.dtype().to_string(),
            format!("{:?}", t.shape()),
            format!("{lo:.5}"),
            format!("{mean:.5}"),
            format!("{hi:.5}"),
        ]);
        rows.push(json!({"name": name, "dtype": t.dtype().name(), "shape": t.shape()}));
    }
    out.say(table.to_string());
    if let Some(path) = &a.output {
        out.say(format!("wrote {}", path.display()));
    }
    out.document(&json!({"outputs": rows, "output": a.output}))?;
    Ok(true)
}

/// Arrays in order of the model's inputs.
fn inputs(names: &[String], given: &[String]) -> Result<Vec<Tensor>> {
    let mut slots: Vec<Option<Tensor>> = vec![None; names.len()];
    let mut put = |name: &str, t: Tensor| {
        let at = names.iter().position(|n| n == name);
        let at =
            at.ok_or_else(|| Error::other(format!("the model has no input '{name}'; it has {}", names.join(", "))))?;
        slots[at] = Some(t);
        Ok::<(), Error>(())
    };
    for item in given {
        let (name, file) = match item.split_once('=') {
            Some((n, f)) if names.iter().any(|m| m == n) => (Some(n), f),
            Some((n, f)) if !std::path::Path::new(item).exists() => {
                let _ = f;
                return Err(Error::other(format!("the model has no input '{n}'; it has {}", names.join(", "))));
            }
            _ => (None, item.as_str()),
        };
        let path = PathBuf::from(file);
        if path.extension().is_some_and(|e| e == "npz") {
            for (n, t) in npy::read_npz(&path)? {
                put(name.unwrap_or(&n), t)?;
            }
            continue;
        }
        let t = npy::read_npy(&path)?;
        match (name, names) {
            (Some(n), _) => put(n, t)?,
            (None, [only]) => put(only, t)?,
            (None, _) => {
                return Err(Error::other(format!(
                    "{file}: the model has several inputs ({}); say --input NAME={file}",
                    names.join(", ")
                )));
            }
        }
    }
    let missing: Vec<_> = names.iter().zip(&slots).filter(|(_, s)| s.is_none()).map(|(n, _)| n.as_str()).collect();
    if !missing.is_empty() {
        return Err(Error::other(format!("input {} is missing: give it as --input NAME=FILE.npy", missing.join(", "))));
    }
    Ok(slots.into_iter().flatten().collect())
}
