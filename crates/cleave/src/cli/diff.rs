//! `cleave diff`: op counts of two stages side by side.

use super::out::Out;
use crate::error::{Error, Result};
use crate::stage::{Model, Stage};
use crate::summary::{Constants, Summary};
use crate::table::Table;
use cleave_ir::{Dim, Graph, macs};
use indexmap::IndexMap;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// A second model, to compare with the first at the same stage.
    other: Option<PathBuf>,
    /// Stage of the first: export, raised, annotated, prepared, converted, or a table's name.
    #[arg(long, default_value = "export")]
    from: String,
    /// Stage of the second [default: `empty`; of a second model, the first's stage].
    #[arg(long)]
    to: Option<String>,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let from = Stage::parse(&a.from)?;
    let first = Model::read(&a.model)?;
    let (g, to, h) = match &a.other {
        None => {
            let to = Stage::parse(a.to.as_deref().unwrap_or("empty"))?;
            (first.at(&from)?, to.clone(), first.at(&to)?)
        }
        Some(other) => {
            let to = a.to.as_deref().map_or(Ok(from.clone()), Stage::parse)?;
            (first.at(&from)?, to.clone(), Model::read(other)?.at(&to)?)
        }
    };
    let (before, after, delta) = counts(&g, &h);
    out.say(format!("nodes (inputs, constants and output among them): {} {} → {} {}", from, g.len(), to, h.len()));
    out.say(delta_table(&[(&from.to_string(), &before), (&to.to_string(), &after)], Some(&delta)).to_string());
    out.document(&json!({
        "from": {"stage": from.to_string(), "nodes": g.len(), "ops": before},
        "to": {"stage": to.to_string(), "nodes": h.len(), "ops": after},
        "delta": delta,
    }))?;
    Ok(true)
}

type Counts = IndexMap<String, i64>;

fn op_counts(g: &Graph) -> Counts {
    g.op_counts().into_iter().map(|(op, n)| (op.to_string(), n as i64)).collect()
}

/// Op counts of both graphs, and the difference for every op that either has.
fn counts(g: &Graph, h: &Graph) -> (Counts, Counts, Counts) {
    let (before, after) = (op_counts(g), op_counts(h));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let delta = names.into_iter().map(|n| (n.clone(), after.get(n).unwrap_or(&0) - before.get(n).unwrap_or(&0)));
    let delta = delta.collect();
    (before, after, delta)
}

/// Columns of op counts, changed ops first; with a delta column if given.
pub fn delta_table(columns: &[(&str, &Counts)], delta: Option<&Counts>) -> Table {
    let heads: Vec<String> = columns.iter().map(|(n, _)| format!(">{n}")).collect();
    let mut head: Vec<&str> = vec!["op"];
    head.extend(heads.iter().map(String::as_str));
    head.extend(delta.map(|_| ">delta"));
    let mut table = Table::new(&head);
    let mut names: Vec<&String> = columns.iter().flat_map(|(_, c)| c.keys()).collect();
    names.sort();
    names.dedup();
    let differs = |n: &str| columns.windows(2).any(|w| w[0].1.get(n) != w[1].1.get(n));
    names.sort_by_cached_key(|n| (!differs(n), n.to_string()));
    for n in names {
        let mut row = vec![n.strip_suffix(".default").unwrap_or(n).to_string()];
        row.extend(columns.iter().map(|(_, c)| c.get(n).unwrap_or(&0).to_string()));
        row.extend(delta.and_then(|d| d.get(n)).map(|d| if *d == 0 { "0".into() } else { format!("{d:+}") }));
        table.row(row);
    }
    table
}

/// The op table of several stages of one model, as the demo prints it.
pub fn stages_table(stages: &[(&str, &Graph)]) -> Table {
    let counts: Vec<(&str, Counts)> = stages.iter().map(|(n, g)| (*n, op_counts(g))).collect();
    let columns: Vec<(&str, &Counts)> = counts.iter().map(|(n, c)| (*n, c)).collect();
    delta_table(&columns, None)
}

/// A size: a number, or an expression as text.
pub fn dim_json(d: &Dim) -> Value {
    d.as_const().map_or_else(|| json!(d.to_string()), |v| json!(v))
}

/// A graph as `show --json` prints it.
pub fn graph_json(stage: &str, g: &Graph) -> Result<Value> {
    let summary = Summary::of(g);
    let text =
        |m: &cleave_ir::Meta| m.as_tensor().map(|t| (t.dtype.name(), t.shape.iter().map(dim_json).collect::<Vec<_>>()));
    let nodes: Vec<Value> = g
        .nodes()
        .map(|(id, n)| {
            let args: Vec<String> = n.args.iter().map(|a| cleave_ir::text::arg_text(g, a)).collect();
            let op = match n.kind {
                cleave_ir::Kind::Call(op) => op.name,
                cleave_ir::Kind::Placeholder => "placeholder",
                cleave_ir::Kind::GetAttr(_) => "get_attr",
                cleave_ir::Kind::Output => "output",
            };
            let (dtype, shape) = text(&n.meta).unzip();
            json!({"name": n.name, "op": op, "args": args, "dtype": dtype, "shape": shape, "target": n.target, "module": n.origin.module, "sources": n.origin.sources, "macs": macs::macs(g, id, &summary.sizes)})
        })
        .collect();
    let constants = |c: Constants| json!({"elements": c.elements, "bytes": c.bytes});
    serde_json::to_value(json!({
        "stage": stage, "nodes": nodes, "ops": op_counts(g),
        "parameters": constants(summary.parameters), "buffers": constants(summary.buffers),
        "macs": summary.total_macs(), "macs_at": summary.sizes, "provenance": summary.provenance,
    }))
    .map_err(|e| Error::other(e.to_string()))
}
