//! `cleave explain`: what was decided for each node, and why.

use super::out::Out;
use super::{Choice, RunArgs, data};
use crate::error::{Error, Result};
use crate::model::{is_clv, is_quantized};
use crate::pipeline::read_plan;
use crate::stage::Model;
use crate::table::Table;
use cleave_decompose::Table as Rules;
use cleave_ir::{Bindings, Graph};
use cleave_quantize::{Plan, PlanRow, Status};
use cleave_runtime::{Options, Session};
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model: a float one, or a .clv that `cleave quantize` wrote.
    model: PathBuf,
    /// Only this node, with what nearly matched.
    node: Option<String>,
    #[command(flatten)]
    choice: Choice,
    /// Sizes of symbolic dimensions, as N=1; what is not named is 1.
    #[arg(long, value_name = "SYMBOL=SIZE")]
    bind: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let model = a.choice.of(Model::read(&a.model)?);
    let given = a.choice.is_given();
    // Weights stored as f16 do not make a graph quantized; the file tells how it was made.
    let carried = if is_clv(&a.model) && !given { read_plan(&a.model).ok() } else { None };
    let made = carried.is_some() || is_quantized(model.export());
    let (mut plan, g) = if let Some(plan) = carried {
        (plan, model.export().clone())
    } else if made {
        if given {
            let why = "the model is quantized already; --quantizer, --float and --only are for float models";
            return Err(Error::other(format!("{}: {why}", a.model.display())));
        }
        (read_plan(&a.model)?, model.export().clone())
    } else {
        let (g, notes) = model.annotated()?;
        let prepared = cleave_quantize::prepare(&g, &notes)?;
        (prepared.plan(), prepared.graph)
    };
    // A model that does not compile at these sizes still has its plan; the kernels are not known then.
    let kernels = plan_of(&g, &data::bindings(&g, &a.bind)?, a.run.options()?, Rules::cpu()).unwrap_or_else(|e| {
        plan.notes.push(format!("kernels are not known: {e}; name sizes with --bind"));
        cleave_runtime::Plan::default()
    });
    let kernel = |r: &PlanRow| {
        let known = r.status != Status::Quantized || made;
        kernels.nodes.get(&r.node).filter(|_| known).cloned()
    };
    let rows: Vec<&PlanRow> = match &a.node {
        None => plan.rows.iter().collect(),
        Some(n) => vec![find(&plan, n)?],
    };
    out.say(if a.node.is_some() { detail(rows[0], kernel(rows[0])) } else { overview(&plan, &kernel) });
    let nodes: Vec<Value> = rows.iter().map(|r| row_json(r, kernel(r))).collect();
    out.document(&json!({"quantizer": plan.quantizer, "nodes": nodes, "notes": plan.notes}))?;
    Ok(true)
}

fn find<'a>(plan: &'a Plan, node: &str) -> Result<&'a PlanRow> {
    plan.row(node).ok_or_else(|| {
        let near: Vec<&str> = plan
            .rows
            .iter()
            .map(|r| r.node.as_str())
            .filter(|n| n.starts_with(node.split('_').next().unwrap_or(node)))
            .take(8)
            .collect();
        let near = if near.is_empty() { String::new() } else { format!("; there are {}", near.join(", ")) };
        Error::other(format!("no compute node '{node}'{near}"))
    })
}

/// The kernels of a graph at these sizes.
///
/// # Errors
/// What compiling met.
pub fn plan_of(g: &Graph, bound: &Bindings, options: Options, table: Rules) -> Result<cleave_runtime::Plan> {
    let mut shapes = vec![];
    for p in g.placeholders() {
        let m = g.tensor_meta(p)?;
        shapes.push(
            m.shape.iter().map(|d| d.eval(bound).map(|v| v.max(0) as usize)).collect::<cleave_ir::Result<Vec<_>>>()?,
        );
    }
    Ok(Session::with_table(g, options, table)?.plan(&shapes)?)
}

/// The status in words.
pub fn status(s: Status) -> &'static str {
    match s {
        Status::Quantized => "quantized",
        Status::Float => "float",
        Status::Folded => "folded",
    }
}

fn qparams(r: &PlanRow) -> String {
    r.qparams
        .as_ref()
        .map(|q| format!("{}[{}, {}] scale {:.6} zero point {}", q.dtype, q.qmin, q.qmax, q.scale, q.zero_point))
        .unwrap_or_default()
}

/// The plan as a table.
pub fn overview(plan: &Plan, kernel: &dyn Fn(&PlanRow) -> Option<String>) -> String {
    let mut t = Table::new(&["node", "op", "status", "pattern", "result", "kernel or why not"]);
    for r in &plan.rows {
        let why = match (kernel(r), &r.reason) {
            (Some(k), Some(w)) => format!("{k} ({w})"),
            (Some(k), None) => k,
            (None, w) => w.clone().unwrap_or_default(),
        };
        let op = r.op.strip_suffix(".default").unwrap_or(&r.op);
        t.row([
            r.node.clone(),
            op.to_string(),
            status(r.status).into(),
            r.pattern.clone().unwrap_or_default(),
            qparams(r),
            why,
        ]);
    }
    let mut text = format!(
        "{t}{} compute nodes: {} quantized, {} folded, {} float (quantizer {})",
        plan.rows.len(),
        plan.count(Status::Quantized),
        plan.count(Status::Folded),
        plan.count(Status::Float),
        plan.quantizer
    );
    for n in &plan.notes {
        text.push_str(&format!("\nnote: {n}"));
    }
    text
}

fn detail(r: &PlanRow, kernel: Option<String>) -> String {
    let mut lines = vec![format!("{}: {} is {}", r.node, r.op, status(r.status))];
    let mut add =
        |what: &str, v: Option<String>| lines.extend(v.filter(|v| !v.is_empty()).map(|v| format!("  {what:8} {v}")));
    add("pattern", r.pattern.clone());
    add("unit", r.unit.clone());
    add("result", Some(qparams(r)));
    add("group", r.group.map(|g| g.to_string()));
    add("kernel", kernel);
    add("why", r.reason.clone());
    for m in &r.near_misses {
        lines.push(format!("  nearly   {} at {}: {}", m.pattern, m.step, m.why));
    }
    lines.join("\n")
}

fn row_json(r: &PlanRow, kernel: Option<String>) -> Value {
    json!({
        "node": r.node, "op": r.op, "status": status(r.status), "pattern": r.pattern, "unit": r.unit,
        "qparams": r.qparams, "group": r.group, "kernel": kernel, "reason": r.reason, "near_misses": r.near_misses,
    })
}
