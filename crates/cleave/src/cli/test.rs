//! `cleave test`: recorded cases.

use super::RunArgs;
use super::out::{Out, progress};
use crate::backend::Backend;
use crate::conformance::{Status, find_cases, run_case};
use crate::error::{Error, Result};
use crate::table::Table;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Folders of cases: model.onnx or model.pt2 beside inputs.npz and outputs.npz, or test_data_set_N/*.pb.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// cpu or reference.
    #[arg(long, default_value = "cpu", value_parser = ["cpu", "reference"])]
    backend: String,
    /// List the cases that passed as well.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let options = a.run.options()?;
    let mut cases = vec![];
    for dir in &a.dirs {
        let found = find_cases(dir)?;
        if found.is_empty() {
            return Err(Error::other(format!(
                "{}: no cases: expected folders with model.onnx or model.pt2 and recorded inputs and outputs",
                dir.display()
            )));
        }
        cases.extend(found);
    }
    let bar = progress("testing", cases.len());
    let mut rows = vec![];
    let mut counts = [0usize; 3];
    let mut table = Table::new(&["case", "status", "why"]);
    for case in &cases {
        let result = run_case(case, &mut |g| Backend::new(&a.backend, g, options));
        counts[result.status as usize] += 1;
        if a.all || result.status != Status::Passed {
            table.row([result.name.as_str(), result.status.name(), result.why.as_str()]);
        }
        rows.push(json!({"name": result.name, "status": result.status.name(), "why": result.why}));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !table.is_empty() {
        out.say(table.to_string());
    }
    let [passed, failed, unsupported] = counts;
    out.say(format!("{passed} passed, {failed} failed, {unsupported} unsupported"));
    out.document(&json!({"passed": passed, "failed": failed, "unsupported": unsupported, "cases": rows}))?;
    Ok(failed == 0)
}
