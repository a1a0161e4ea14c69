//! `cleave tables` and `cleave ops`.

use super::out::Out;
use crate::error::{Error, Result};
use crate::table::Table;
use cleave_decompose::{Table as Rules, tables as built_in};
use cleave_ir::{Levels, op};
use serde_json::json;

#[derive(clap::Args, Debug)]
pub struct TablesArgs {
    /// The table to print; without it all are listed.
    name: Option<String>,
}

#[derive(clap::Args, Debug)]
pub struct OpsArgs {
    /// Only ops that may stand on this level: torch, aten, core or prims.
    #[arg(long)]
    level: Option<String>,
}

const LEVELS: [(&str, Levels); 4] =
    [("torch", Levels::TORCH), ("aten", Levels::ATEN), ("core", Levels::CORE), ("prims", Levels::PRIMS)];

pub fn ops(a: &OpsArgs, out: &mut Out) -> Result<bool> {
    let level = match &a.level {
        None => Levels::ALL,
        Some(name) => {
            let hit = LEVELS.iter().find(|(n, _)| n == name);
            hit.ok_or_else(|| Error::other(format!("no level '{name}'; expected torch, aten, core or prims")))?.1
        }
    };
    let mut t = Table::new(&["op", "class", "levels", "rule", "commutes", "accuracy", "schema"]);
    let mut rows = vec![];
    for o in op::all().filter(|o| o.levels.meets(level)) {
        let levels: Vec<&str> = LEVELS.iter().filter(|(_, l)| o.levels.meets(*l)).map(|(n, _)| *n).collect();
        let [class, accuracy] = [format!("{:?}", o.class), format!("{:?}", o.accuracy)].map(|t| t.to_lowercase());
        let yes = |b: bool| if b { "yes" } else { "" };
        let (rule, commutes) = (yes(o.rule.is_some()), yes(o.commutative));
        t.row([o.short(), &class, &levels.join(" "), rule, commutes, &accuracy, o.def.schema]);
        rows.push(json!({
            "op": o.name, "class": class, "levels": levels, "rule": o.rule.is_some(), "commutative": o.commutative,
            "accuracy": accuracy, "raisable": o.raisable, "schema": o.def.schema,
        }));
    }
    out.say(format!("{t}{} ops", t.len()));
    out.document(&json!({ "ops": rows }))?;
    Ok(true)
}

pub fn tables(a: &TablesArgs, out: &mut Out) -> Result<bool> {
    match &a.name {
        None => {
            let mut t = Table::new(&["table", ">broken up", ">kept", "what it is for"]);
            let mut rows = vec![];
            for table in built_in() {
                let (broken, kept) = table.counts();
                t.row([table.name.clone(), broken.to_string(), kept.to_string(), table.doc.to_string()]);
                rows.push(json!({"name": table.name, "decomposed": broken, "kept": kept, "doc": table.doc}));
            }
            out.say(t.to_string().trim_end());
            out.document(&json!({ "tables": rows }))?;
        }
        Some(name) => {
            let table = Rules::named(name)?;
            out.say(table.to_string().trim_end());
            let entries: Vec<_> = table
                .entries()
                .map(|(op, e)| json!({"op": op, "decompose": e.decompose, "step": e.step, "reason": e.reason}))
                .collect();
            out.document(&json!({"name": table.name, "doc": table.doc, "entries": entries}))?;
        }
    }
    Ok(true)
}
