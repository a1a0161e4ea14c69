//! `cleave patterns`: quantizers, their patterns, and checking a file.

use super::out::Out;
use crate::error::{Error, Result};
use crate::patterns;
use crate::stage::Model;
use crate::table::Table;
use cleave_quantize::{BUILT_IN, Quantizer, TomlQuantizer};
use cleave_rewrite::PREDICATES;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the built-in quantizers, or the patterns of one.
    List {
        /// A built-in name or a file.
        quantizer: Option<String>,
    },
    /// Check a quantizer file: names, expressions, specs; with a model, what each pattern finds in it.
    Check {
        /// The file, or a built-in name.
        file: String,
        /// A float model: what fires where, what declines and why.
        model: Option<PathBuf>,
    },
    /// Run the tests in a quantizer file.
    Test {
        /// The file.
        file: String,
    },
    /// List the predicates that `where` knows.
    Predicates,
}

pub fn run(a: &Args, out: &mut Out) -> Result<bool> {
    match &a.command {
        Command::List { quantizer: None } => {
            let mut t = Table::new(&["quantizer", ">patterns", "what it is for"]);
            let mut rows = vec![];
            for (name, _) in BUILT_IN {
                let q = TomlQuantizer::load(name)?;
                t.row([name.to_string(), q.patterns().len().to_string(), q.doc().to_string()]);
                rows.push(json!({"name": name, "patterns": q.patterns().len(), "doc": q.doc()}));
            }
            out.say(t.to_string().trim_end());
            out.document(&json!({ "quantizers": rows }))?;
        }
        Command::List { quantizer: Some(name) } => list(&TomlQuantizer::load(name)?, out)?,
        Command::Check { file, model: Some(model) } => found(&TomlQuantizer::load(file)?, model, out)?,
        Command::Test { file } => return tested(&TomlQuantizer::load(file)?, file, out),
        Command::Check { file, model: None } => {
            let q = TomlQuantizer::load(file)?;
            list(&q, out)?;
            out.say(format!("{file}: {} patterns, no errors", q.patterns().len()));
        }
        Command::Predicates => {
            let mut t = Table::new(&["predicate", "holds if"]);
            for p in PREDICATES {
                t.row([p.form, p.doc]);
            }
            out.say(t.to_string().trim_end());
            let rows: Vec<Value> = PREDICATES.iter().map(|p| json!({"form": p.form, "doc": p.doc})).collect();
            out.document(&json!({ "predicates": rows }))?;
        }
    }
    Ok(true)
}

/// What each pattern finds in a model.
fn found(q: &TomlQuantizer, model: &Path, out: &mut Out) -> Result<()> {
    let all = patterns::check(q, Model::read(model)?.export())?;
    let (mut fired, mut declined, mut rows) = (
        Table::new(&["pattern", ">units", ">float", "where"]),
        Table::new(&["node", "pattern", "failed at", "why"]),
        vec![],
    );
    let mut any = false;
    for f in &all {
        let mut places: Vec<String> = f.units.iter().take(3).map(|u| u.join(" ")).collect();
        places.extend(f.floats.iter().take(3).cloned());
        let more = if f.units.len().max(f.floats.len()) > 3 { "; …" } else { "" };
        let places = format!("{}{more}", places.join("; "));
        fired.row([f.pattern.clone(), f.units.len().to_string(), f.floats.len().to_string(), places]);
        for (node, m) in &f.declined {
            any = true;
            declined.row([node.as_str(), f.pattern.as_str(), m.step.as_str(), m.why.as_str()]);
        }
        let misses: Vec<Value> =
            f.declined.iter().map(|(n, m)| json!({"node": n, "step": m.step, "why": m.why})).collect();
        rows.push(json!({"pattern": f.pattern, "units": f.units, "float": f.floats, "declined": misses}));
    }
    out.say(fired.to_string().trim_end());
    if any {
        out.say(format!("\nnearly matched, in nodes that no pattern took:\n{}", declined.to_string().trim_end()));
    }
    out.document(&json!({"quantizer": q.name(), "patterns": rows}))
}

/// Runs the tests of a file.
fn tested(q: &TomlQuantizer, file: &str, out: &mut Out) -> Result<bool> {
    if q.tests().is_empty() {
        return Err(Error::other(format!("{file}: it has no [[test]]")));
    }
    let results = patterns::test(q);
    for r in &results {
        match &r.failure {
            None => out.say(format!("ok      {}: {}; kernels {}", r.name, r.found.join("; "), r.kernels.join(", "))),
            Some(why) => out.say(format!("FAILED  {}: {why}", r.name)),
        }
    }
    let failed = results.iter().filter(|r| r.failure.is_some()).count();
    let rows: Vec<Value> = results
        .iter()
        .map(|r| json!({"name": r.name, "units": r.found, "kernels": r.kernels, "failure": r.failure}))
        .collect();
    out.document(&json!({"passed": results.len() - failed, "failed": failed, "tests": rows}))?;
    Ok(failed == 0)
}

fn list(q: &TomlQuantizer, out: &mut Out) -> Result<()> {
    let mut t = Table::new(&["pattern", "match", "output", "what it is for"]);
    let mut rows = vec![];
    for p in q.patterns() {
        let output = match (&p.float, p.output) {
            (Some(why), _) => format!("float: {why}"),
            (None, Some(s)) => q.specs()[s].describe(),
            (None, None) => "as its consumers ask".into(),
        };
        t.row([p.name.as_str(), p.pattern.text(), &output, &p.doc]);
        rows.push(json!({"name": p.name, "match": p.pattern.text(), "output": output, "doc": p.doc}));
    }
    out.say(t.to_string().trim_end());
    out.document(&json!({"quantizer": q.name(), "doc": q.doc(), "patterns": rows}))
}
