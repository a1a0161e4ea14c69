//! `cleave decompose`: a model broken down as a table says.

use super::diff::graph_json;
use super::out::Out;
use super::show::table_of;
use crate::error::Result;
use crate::pipeline::Format;
use crate::stage::Model;
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
    /// Where the graph goes: .clv, .onnx or .pt2; without it, its text is printed.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let table = table_of(&a.table, &a.decompose, &a.keep)?;
    let g = Model::read(&a.model)?.decomposed(&table)?;
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
    out.document(&graph_json(&a.table, &g)?)?;
    Ok(true)
}
