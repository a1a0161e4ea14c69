//! `cleave decompose`: a model broken down as a table says.

use super::diff::graph_json;
use super::out::Out;
use super::show::table_of;
use crate::error::Result;
use crate::pipeline::Format;
use crate::stage::Model;
use cleave_ir::Graph;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// The table; see `cleave tables`.
    #[arg(long, default_value = "core")]
    table: String,
    /// Break this op up as well.
    #[arg(long, value_name = "OP")]
    decompose: Vec<String>,
    /// Leave this op whole.
    #[arg(long, value_name = "OP")]
    keep: Vec<String>,
    /// Add the gradients of inputs and parameters, given those of the results.
    #[arg(long)]
    backward: bool,
    /// Where the graph goes: .clv, .onnx or .pt2; without it, its text is printed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let table = table_of(&a.table, &a.decompose, &a.keep)?;
    let model = Model::read(&a.model)?;
    let mut g = model.decomposed(&table)?;
    let mut counts = None;
    if a.backward {
        let joint = model.joint(&table)?;
        let gradients = joint.results().len() - g.results().len();
        let c = [calls(&joint), calls(&g), gradients];
        out.say(format!("# {} calls, {} of them without gradients; {} gradients", c[0], c[1], c[2]));
        counts = Some(json!({"calls": c[0], "calls_without_gradients": c[1], "gradients": c[2]}));
        g = joint;
    }
    match &a.output {
        Some(path) => {
            crate::pipeline::write(path, &g)?;
            if let Some(caveat) = Format::of(path)?.caveat(&g) {
                out.say(format!("note: {caveat}"));
            }
            out.say(format!("wrote {}", path.display()));
        }
        None => out.say(g.to_string().trim_end()),
    }
    if out.is_json() {
        let mut document = graph_json(&a.table, &g)?;
        if let (Some(counts), Some(fields)) = (counts, document.as_object_mut()) {
            fields.insert("backward".into(), counts);
        }
        out.document(&document)?;
    }
    Ok(true)
}

fn calls(g: &Graph) -> usize {
    g.op_counts().values().sum()
}
