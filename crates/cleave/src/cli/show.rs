//! `cleave show`: a model at a stage, or several stages side by side.

use super::bench::mega;
use super::diff::graph_json;
use super::explain::plan_of;
use super::out::{Out, bytes, progress};
use super::{Choice, RunArgs, data};
use crate::chain;
use crate::dot;
use crate::draw::{self, Options};
use crate::error::{Error, Result};
use crate::outline::outline;
use crate::stage::{Model, Stage};
use crate::summary::Summary;
use crate::table::Table;
use cleave_decompose::Table as Rules;
use cleave_ir::text::Printer;
use cleave_ir::{Dim, Graph, NodeId};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The model.
    model: PathBuf,
    /// export, raised, annotated, prepared, converted, plan, or a table's name; several, as export,empty, stand side by
    /// side in a drawing [default: export].
    #[arg(long, value_delimiter = ',', value_name = "STAGE")]
    stage: Vec<String>,
    /// Break the graph down as this table says: the same as naming it as stage, but for the plan, which is then made
    /// of that table's graph [default of the plan: cpu].
    #[arg(long)]
    table: Option<String>,
    /// summary, text (exact, as it can be parsed), json, dot, or a drawing: svg, html [default: as the output file's
    /// name ends, else summary].
    #[arg(long, value_parser = ["summary", "text", "json", "dot", "svg", "html"])]
    format: Option<String>,
    /// Every node in the exact text form: --format text.
    #[arg(long, conflicts_with = "format")]
    full: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only these ops, by bare name, or nodes, as %conv2d_1, and what is near them: conv2d,relu.
    #[arg(long, value_delimiter = ',', value_name = "OPS")]
    focus: Vec<String>,
    /// Neighbours shown around the ops in focus [default: 1].
    #[arg(long, requires = "focus")]
    hops: Option<usize>,
    /// Only the chain of ops that begins at this node: each the one user of the one before it.
    #[arg(long, value_name = "NODE", conflicts_with_all = ["focus", "format", "full", "output"])]
    chain: Option<String>,
    #[command(flatten)]
    choice: Choice,
    /// Sizes of symbolic dimensions for the plan, summary or drawing, as N=1; what is not named is 1 in the plan.
    #[arg(long, value_name = "SYMBOL=SIZE")]
    bind: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    let stages = stages(a)?;
    let format = format(a)?;
    refuse_unused(a, &stages, format, out.is_json())?;
    let bar = progress("stages", stages.len() + 1);
    let model = a.choice.of(Model::read(&a.model)?);
    bar.inc(1);
    if stages == [Stage::Plan] {
        bar.finish_and_clear();
        return show_plan(a, &model, out);
    }
    let mut views = vec![];
    for stage in stages {
        views.push(View::new(&model, stage, &a.bind)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(node) = &a.chain {
        return show_chains(node, &views, out);
    }
    if matches!(format, "svg" | "html") {
        return show_drawing(a, format, &views, out);
    }
    let view = &views[0];
    let document = match out.is_json() || format == "json" {
        true => Some(graph_json(&view.stage.to_string(), &view.graph)?),
        false => None,
    };
    if a.output.is_some() || !out.is_json() {
        let text = match (format, &document) {
            ("json", Some(d)) => serde_json::to_string_pretty(d).map_err(|e| Error::other(e.to_string()))?,
            ("summary", _) => summary(a, view),
            _ => exact(a, format, view)?,
        };
        match &a.output {
            Some(path) => write(path, text + "\n", out)?,
            None => out.say(text),
        }
    }
    if let Some(document) = document {
        out.document(&document)?;
    }
    Ok(true)
}

/// A stage with its graph, and comments for its nodes where it has any.
struct View {
    stage: Stage,
    graph: Graph,
    comments: Vec<Option<String>>,
}

impl View {
    fn new(model: &Model, stage: Stage, bind: &[String]) -> Result<View> {
        let (mut graph, comments) = match stage {
            Stage::Annotated => {
                let (g, notes) = model.annotated()?;
                let comments = g.ids().map(|id| notes.comment(id)).collect();
                (g, comments)
            }
            _ => (model.at(&stage)?, vec![]),
        };
        state_sizes(&mut graph, bind)?;
        Ok(View { stage, graph, comments })
    }

    fn drawn(&self) -> draw::Stage<'_> {
        draw::Stage::new(&self.stage.to_string(), &self.graph).with_comments(self.comments.clone())
    }

    fn comment(&self, id: NodeId) -> Option<String> {
        self.comments.get(id.index()).cloned().flatten()
    }
}

/// Puts sizes in the place of symbols in all types, and leaves the graph as it is otherwise.
fn state_sizes(g: &mut Graph, bind: &[String]) -> Result<()> {
    if bind.is_empty() {
        return Ok(());
    }
    let mut bound = data::bindings(g, bind)?;
    bound.retain(|s, _| bind.iter().any(|b| b.split('=').next() == Some(s)));
    for id in g.ids() {
        let meta = g.node(id).meta.map_dims(&mut |d| d.substitute(&|s| bound.get(s).map(|n| Dim::from(*n))));
        g.set_meta(id, meta);
    }
    g.symbols.retain(|s, _| !bound.contains_key(s));
    Ok(())
}

fn stages(a: &Args) -> Result<Vec<Stage>> {
    let named = if a.stage.is_empty() { a.table.iter().collect() } else { a.stage.iter().collect::<Vec<_>>() };
    if named.is_empty() { Ok(vec![Stage::Export]) } else { named.into_iter().map(|s| Stage::parse(s)).collect() }
}

fn format(a: &Args) -> Result<&str> {
    if let Some(f) = &a.format {
        return Ok(f);
    }
    match &a.output {
        _ if a.full => Ok("text"),
        None => Ok(if a.focus.is_empty() { "summary" } else { "text" }),
        Some(path) => match path.extension().and_then(|e| e.to_str()) {
            Some("svg") => Ok("svg"),
            Some("html" | "htm") => Ok("html"),
            Some("dot" | "gv") => Ok("dot"),
            Some("json") => Ok("json"),
            Some("graph" | "txt") => Ok("text"),
            _ => Err(Error::other(format!("{}: its ending names no format; say which with --format", path.display()))),
        },
    }
}

const IS_FOR_ANNOTATION: &str = "is for the stages annotated and prepared";

/// Options that these stages or this format have no use for.
fn refuse_unused(a: &Args, stages: &[Stage], format: &str, is_json: bool) -> Result<()> {
    let annotates = stages.iter().any(|s| matches!(s, Stage::Annotated | Stage::Prepared));
    let plan = stages.contains(&Stage::Plan);
    let drawing = matches!(format, "svg" | "html");
    let unused = [
        ("--table", a.table.is_some() && !a.stage.is_empty() && !plan, "beside --stage is for the stage plan"),
        ("--quantizer", !a.choice.quantizer.is_empty() && !annotates, IS_FOR_ANNOTATION),
        ("--float", !a.choice.float.is_empty() && !annotates, IS_FOR_ANNOTATION),
        ("--only", !a.choice.only.is_empty() && !annotates, IS_FOR_ANNOTATION),
        (
            "--bind",
            !a.bind.is_empty() && !plan && !matches!(format, "summary" | "svg" | "html"),
            "is for the stage plan, the summary and drawings",
        ),
        ("--threads", a.run.threads.is_some() && !plan, "is for the stage plan"),
        (
            "--focus",
            !a.focus.is_empty() && (plan || matches!(format, "json" | "summary")),
            "is for graphs as text, dot or a drawing",
        ),
        ("--stage plan", plan && stages.len() > 1, "stands alone: the plan is no graph"),
        ("--chain", plan && a.chain.is_some(), "is for graphs; the plan is a table"),
        ("--output", plan && a.output.is_some(), "is for graphs; the plan goes to standard output"),
        ("--format", plan && a.format.as_ref().is_some_and(|f| f != "text"), "is for graphs; the plan is a table"),
        ("--full", plan && a.full, "is for graphs; the plan is a table"),
        (
            "--stage with several stages",
            stages.len() > 1 && !drawing && a.chain.is_none(),
            "is for --format svg, --format html and --chain; cleave diff compares two in text",
        ),
        ("--json", is_json && drawing && a.output.is_none(), "beside a drawing needs -o FILE for the drawing"),
    ];
    match unused.into_iter().find(|(_, unused, _)| *unused) {
        Some((option, _, why)) => Err(Error::other(format!("{option} {why}"))),
        None => Ok(()),
    }
}

fn summary(a: &Args, view: &View) -> String {
    let name = a.model.file_name().unwrap_or(a.model.as_os_str()).to_string_lossy();
    let comment = |id: NodeId| view.comment(id);
    format!("{name} at {}\n\n{}\n{}", view.stage, Summary::of(&view.graph), outline(&view.graph, &comment))
        .trim_end()
        .into()
}

/// The graph in the text form or as DOT, or the part of it in focus.
fn exact(a: &Args, format: &str, view: &View) -> Result<String> {
    let shown = dot::focus(&view.graph, &a.focus, a.hops.unwrap_or(1))?;
    let comment = |id: NodeId| view.comment(id);
    Ok(match format {
        "dot" => dot::dot(&view.graph, &shown, &comment),
        _ if shown.iter().all(|s| *s) => Printer::with_comments(&comment).print(&view.graph).trim_end().into(),
        _ => dot::lines(&view.graph, &shown, &Printer::with_comments(&comment)),
    })
}

fn show_drawing(a: &Args, format: &str, views: &[View], out: &mut Out) -> Result<bool> {
    let stages: Vec<draw::Stage<'_>> = views.iter().map(View::drawn).collect();
    let bar = progress("drawing", 1);
    let drawing = draw::draw(&stages, &Options { focus: a.focus.clone(), hops: a.hops.unwrap_or(1) })?;
    let name = a.model.file_name().unwrap_or(a.model.as_os_str()).to_string_lossy();
    let text = if format == "html" { drawing.html(&name) } else { drawing.svg() };
    bar.finish_and_clear();
    let Some(path) = &a.output else {
        out.say(text.trim_end());
        return Ok(true);
    };
    write(path, text, out)?;
    let of_stage = |(v, c): (&View, &draw::Column)| {
        let named = |f: &dyn Fn(&draw::Box) -> bool| {
            c.boxes.iter().filter(|b| f(b)).map(|b| b.name.clone()).collect::<Vec<_>>()
        };
        json!({"stage": v.stage.to_string(), "nodes": v.graph.len(), "drawn": named(&|b| !b.is_mark()), "gone": named(&|b| b.gone), "new": named(&|b| b.new)})
    };
    let stages: Vec<_> = views.iter().zip(&drawing.columns).map(of_stage).collect();
    out.document(&json!({"output": path, "stages": stages}))?;
    Ok(true)
}

fn write(path: &Path, text: String, out: &mut Out) -> Result<()> {
    cleave_formats::atomic::write_bytes(path, text.as_bytes())?;
    out.say(format!("wrote {} ({})", path.display(), bytes(text.len() as u64)));
    Ok(())
}

fn show_chains(node: &str, views: &[View], out: &mut Out) -> Result<bool> {
    let mut chains = vec![];
    let width = views.iter().map(|v| v.stage.to_string().len()).max().unwrap_or(0);
    for v in views {
        let chain = chain::of(&v.graph, node).map_err(|e| Error::other(format!("at {}: {e}", v.stage)))?;
        let stage = v.stage.to_string();
        let stage = if views.len() > 1 { format!("{stage:width$}  ") } else { String::new() };
        out.say(format!("{stage}{}   ({})", chain.ops(&v.graph).join(" → "), chain.end));
        let nodes: Vec<_> = chain
            .nodes
            .iter()
            .map(|id| {
                let n = v.graph.node(*id);
                let t = n.meta.as_tensor();
                let shape = t.map(|t| t.shape.iter().map(super::diff::dim_json).collect::<Vec<_>>());
                json!({"name": n.name, "op": n.op().map(|o| o.name), "dtype": t.map(|t| t.dtype.name()), "shape": shape})
            })
            .collect();
        chains.push(json!({"stage": v.stage.to_string(), "chain": nodes, "end": chain.end}));
    }
    match <[_; 1]>::try_from(chains) {
        Ok([one]) => out.document(&one)?,
        Err(several) => out.document(&json!({"stages": several}))?,
    }
    Ok(true)
}

fn show_plan(a: &Args, model: &Model, out: &mut Out) -> Result<bool> {
    let g = model.raised()?;
    let bound = data::bindings(&g, &a.bind)?;
    let table_name = a.table.as_deref().unwrap_or("cpu");
    let plan = plan_of(&g, &bound, a.run.options()?, Rules::named(table_name)?)?;
    let mut table = Table::new(&["kernel", "code", "shape", ">reads", ">writes", ">MMAC", "nodes"]);
    for k in &plan.kernels {
        table.row([
            k.name.clone(),
            k.kernel.clone(),
            format!("{:?}", k.shape),
            bytes(k.reads as u64),
            format!("{}{}", bytes(k.bytes as u64), if k.in_place { " in place" } else { "" }),
            if k.macs > 0 { mega(k.macs) } else { String::new() },
            k.nodes.join(" "),
        ]);
    }
    out.say(format!("{table}{} kernels, {} of activations", plan.kernels.len(), bytes(plan.arena_bytes as u64)));
    let kernels: Vec<_> = plan
        .kernels
        .iter()
        .map(|k| {
            json!({"name": k.name, "kernel": k.kernel, "nodes": k.nodes, "shape": k.shape, "bytes": k.bytes,
                   "reads": k.reads, "macs": k.macs, "in_place": k.in_place})
        })
        .collect();
    out.document(&json!({"stage": "plan", "kernels": kernels, "arena_bytes": plan.arena_bytes}))?;
    Ok(true)
}

/// The table that `--table`, `--decompose` and `--keep` describe.
pub fn table_of(name: &str, decompose: &[String], keep: &[String]) -> Result<Rules> {
    Ok(Rules::named(name)?.amend(decompose, keep)?)
}
