//! `cleave show`: a model at a stage.

use super::diff::graph_json;
use super::explain::plan_of;
use super::out::{Out, bytes};
use super::{RunArgs, data};
use crate::dot;
use crate::error::{Error, Result};
use crate::stage::{Model, Stage};
use crate::table::Table;
use cleave_decompose::Table as Rules;
use cleave_ir::text::Printer;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// export, raised, annotated, prepared, converted, plan, or a table's name [default: export].
    #[arg(long)]
    stage: Option<String>,
    /// Break the graph down as this table says: the same as naming it as stage, but for the plan, which is then made
    /// of that table's graph [default of the plan: cpu].
    #[arg(long)]
    table: Option<String>,
    /// text, json or dot.
    #[arg(long, default_value = "text", value_parser = ["text", "json", "dot"])]
    format: String,
    /// Only these ops and their neighbourhood, by bare name: conv2d,relu.
    #[arg(long, value_delimiter = ',', value_name = "OPS")]
    focus: Vec<String>,
    /// Neighbours shown around the ops in focus [default: 1].
    #[arg(long, requires = "focus")]
    hops: Option<usize>,
    /// The quantizer of the annotated stage: a built-in name or a file.
    #[arg(long, value_name = "NAME|FILE")]
    quantizer: Option<String>,
    /// Sizes of symbolic dimensions for the plan, as N=1; what is not named is 1.
    #[arg(long, value_name = "SYMBOL=SIZE")]
    bind: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let stage = Stage::parse(a.stage.as_deref().or(a.table.as_deref()).unwrap_or("export"))?;
    refuse_unused(a, &stage)?;
    let model = Model::read(&a.model)?.with_quantizer(a.quantizer.as_deref().unwrap_or("cpu"), &[]);
    if stage == Stage::Plan {
        return show_plan(a, &model, out);
    }
    let (g, comments) = match stage {
        Stage::Annotated => {
            let (g, notes) = model.annotated()?;
            let comments = g.ids().map(|id| notes.comment(id)).collect();
            (g, comments)
        }
        _ => (model.at(&stage)?, vec![]),
    };
    let shown = dot::focus(&g, &a.focus, a.hops.unwrap_or(1))?;
    let comment = |id: cleave_ir::NodeId| comments.get(id.index()).cloned().flatten();
    match a.format.as_str() {
        "json" => {
            let document = graph_json(&stage.to_string(), &g)?;
            if !out.is_json() {
                out.say(serde_json::to_string_pretty(&document).map_err(|e| Error::other(e.to_string()))?);
            }
        }
        "dot" => out.say(dot::dot(&g, &shown, &comment)),
        _ if shown.iter().all(|s| *s) => out.say(Printer::with_comments(&comment).print(&g).trim_end()),
        _ => out.say(dot::lines(&g, &shown, &Printer::with_comments(&comment))),
    }
    if out.is_json() {
        out.document(&graph_json(&stage.to_string(), &g)?)?;
    }
    Ok(true)
}

/// Options that this stage or format has no use for.
fn refuse_unused(a: &Args, stage: &Stage) -> Result<()> {
    let annotates = matches!(stage, Stage::Annotated | Stage::Prepared);
    let plan = *stage == Stage::Plan;
    let unused = [
        ("--table", a.table.is_some() && a.stage.is_some() && !plan, "beside --stage is for the stage plan"),
        ("--quantizer", a.quantizer.is_some() && !annotates, "is for the stages annotated and prepared"),
        ("--bind", !a.bind.is_empty() && !plan, "is for the stage plan"),
        ("--threads", a.run.threads.is_some() && !plan, "is for the stage plan"),
        ("--focus", !a.focus.is_empty() && (plan || a.format == "json"), "is for graphs as text or dot"),
        ("--format dot", a.format == "dot" && plan, "is for graphs; the plan is a table"),
    ];
    match unused.into_iter().find(|(_, unused, _)| *unused) {
        Some((option, _, why)) => Err(Error::other(format!("{option} {why}"))),
        None => Ok(()),
    }
}

fn show_plan(a: &Args, model: &Model, out: &mut Out) -> Result<bool> {
    let g = model.raised()?;
    let bound = data::bindings(&g, &a.bind)?;
    let table_name = a.table.as_deref().unwrap_or("cpu");
    let plan = plan_of(&g, &bound, a.run.options()?, Rules::named(table_name)?)?;
    let mut table = Table::new(&["kernel", "code", "shape", ">bytes", "nodes"]);
    for k in &plan.kernels {
        table.row([
            k.name.clone(),
            k.kernel.clone(),
            format!("{:?}", k.shape),
            bytes(k.bytes as u64),
            k.nodes.join(" "),
        ]);
    }
    out.say(format!("{table}{} kernels, {} of activations", plan.kernels.len(), bytes(plan.arena_bytes as u64)));
    let kernels: Vec<_> = plan
        .kernels
        .iter()
        .map(|k| json!({"name": k.name, "kernel": k.kernel, "nodes": k.nodes, "shape": k.shape, "bytes": k.bytes}))
        .collect();
    out.document(&json!({"stage": "plan", "kernels": kernels, "arena_bytes": plan.arena_bytes}))?;
    Ok(true)
}

/// The table that `--table`, `--decompose` and `--keep` describe.
pub fn table_of(name: &str, decompose: &[String], keep: &[String]) -> Result<Rules> {
    Ok(Rules::named(name)?.amend(decompose, keep)?)
}
