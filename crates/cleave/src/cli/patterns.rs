//! `cleave patterns`: quantizers, their patterns, and checking a file.

use super::out::Out;
use crate::error::Result;
use crate::table::Table;
use cleave_quantize::{BUILT_IN, Quantizer, TomlQuantizer};
use cleave_rewrite::PREDICATES;
use serde_json::{Value, json};

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
    /// Check a quantizer file: names, expressions, specs.
    Check {
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
        Command::Check { file } => {
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
